//! Slices as sources and sinks. They are used in place, so that nothing is copied unnecessarily.

use super::memory::Disjoint;
use super::sink::{check_fit, does_not_fit, rows_of};
use super::{Dtype, Element, Input, Memory, Output, Parts, Placement, Sink, SinkMemory, Source, Target};
use crate::error::{ColumnError, Result};
use std::sync::Arc;

struct SliceSource<'a> {
    bytes: &'a [u8],
    dtype: Dtype,
}

impl Source for SliceSource<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn rows(&self) -> u64 {
        (self.bytes.len() / self.dtype.size()) as u64
    }

    fn name(&self) -> String {
        "slice".into()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        super::file_rows::copy_rows(self.bytes, first, self.dtype, dst).ok_or_else(|| {
            let (rows, own_rows) = ((dst.len() / self.dtype.size()) as u64, self.rows());
            ColumnError::ReadBeyondEnd { column: self.name(), first, rows, own_rows }.into()
        })
    }

    fn memory(&self) -> Option<Memory<'_>> {
        Memory::new(self.bytes, self.dtype)
    }
}

impl<'a, T: Element> From<&'a [T]> for Input<'a> {
    fn from(slice: &'a [T]) -> Self {
        SliceSource { bytes: bytemuck::cast_slice(slice), dtype: T::DTYPE }.into()
    }
}

impl<'a> From<&'a [bool]> for Input<'a> {
    fn from(slice: &'a [bool]) -> Self {
        SliceSource { bytes: bytemuck::cast_slice(slice), dtype: Dtype::Bool }.into()
    }
}

/// Elements that the source owns, so that a job that reads them borrows nothing.
pub(super) struct OwnedSource<V> {
    pub(super) values: V,
    pub(super) dtype: Dtype,
    pub(super) bytes: fn(&V) -> &[u8],
}

impl<V: Send + Sync> OwnedSource<V> {
    fn slice(&self) -> SliceSource<'_> {
        SliceSource { bytes: (self.bytes)(&self.values), dtype: self.dtype }
    }
}

impl<V: Send + Sync> Source for OwnedSource<V> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn rows(&self) -> u64 {
        self.slice().rows()
    }

    fn name(&self) -> String {
        self.slice().name()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        self.slice().read(first, dst)
    }

    fn memory(&self) -> Option<Memory<'_>> {
        Memory::new((self.bytes)(&self.values), self.dtype)
    }
}

/// Implements owned sources for vectors and shared slices.
macro_rules! owned {
    ($($element:ty, $dtype:expr $(, $bound:ident)?);*) => {$(
        impl<$(T: $bound)?> From<Vec<$element>> for Input<'_> {
            fn from(values: Vec<$element>) -> Self {
                OwnedSource { values, dtype: $dtype, bytes: |values| bytemuck::cast_slice(values) }.into()
            }
        }

        impl<$(T: $bound)?> From<Arc<[$element]>> for Input<'_> {
            fn from(values: Arc<[$element]>) -> Self {
                OwnedSource { values, dtype: $dtype, bytes: |values| bytemuck::cast_slice(values) }.into()
            }
        }
    )*};
}
owned!(T, T::DTYPE, Element; bool, Dtype::Bool);

/// A slice of numbers as an output. It is written in place.
struct SliceTarget<'a, T> {
    slice: &'a mut [T],
    pinned: bool,
}

/// Returns a slice as an output; `pinned` says whether it is in pinned memory.
pub(crate) fn slice_output<T: Element>(slice: &mut [T], pinned: bool) -> Output<'_> {
    SliceTarget { slice, pinned }.into()
}

impl<T: Element> Target for SliceTarget<'_, T> {
    fn name(&self) -> String {
        "slice".into()
    }

    fn dtype(&self) -> Option<Dtype> {
        Some(T::DTYPE)
    }

    fn rows(&self) -> Option<u64> {
        Some(self.slice.len() as u64)
    }

    fn place(&self) -> Placement {
        if self.pinned { Placement::Pinned } else { Placement::Memory }
    }

    fn memory(&self) -> Option<&[u8]> {
        Some(bytemuck::cast_slice(self.slice))
    }

    fn can_read_back(&self) -> bool {
        true
    }

    fn parts(&self) -> Parts<'_> {
        Parts::InPlace
    }

    fn open<'s>(self: Box<Self>, dtype: Dtype, rows: u64, _: Option<&[u64]>) -> Result<Box<dyn Sink + 's>>
    where
        Self: 's,
    {
        check_fit("slice", (T::DTYPE, self.slice.len() as u64), (dtype, rows))?;
        match SinkMemory::new(bytemuck::cast_slice_mut(self.slice), dtype) {
            Some(memory) => Ok(Box::new(SliceSink(if self.pinned { memory.pinned() } else { memory }))),
            None => unreachable!("a slice is aligned for its elements"),
        }
    }
}

/// A slice that is written in place.
pub(super) struct SliceSink<'a>(pub(super) SinkMemory<'a>);

impl Sink for SliceSink<'_> {
    fn write(&self, first_row: u64, bytes: &[u8]) -> Result<()> {
        let size = self.0.row_bytes();
        let rows = rows_of(first_row, bytes, size);
        let claim = rows.and_then(|rows| self.0.try_claim(rows));
        self.0.copy(&mut claim.ok_or_else(|| does_not_fit("slice", first_row, bytes))?, bytes);
        Ok(())
    }

    fn memory(&self) -> Option<&SinkMemory<'_>> {
        Some(&self.0)
    }

    fn read_back(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        let (first, size) = (offset / self.0.row_bytes() as u64, self.0.row_bytes());
        to.copy_from_slice(&self.0.claim_for_run(first..first + (to.len() / size) as u64)?);
        Ok(())
    }

    /// A slice keeps its length; the report says how many rows are valid.
    fn truncate(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// A slice of `bool` as an output. It is never written in place, because not every byte is a valid `bool`.
struct BoolTarget<'a>(&'a mut [bool]);

impl Target for BoolTarget<'_> {
    fn name(&self) -> String {
        "slice".into()
    }

    fn dtype(&self) -> Option<Dtype> {
        Some(Dtype::Bool)
    }

    fn rows(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }

    fn can_read_back(&self) -> bool {
        true
    }

    fn parts(&self) -> Parts<'_> {
        Parts::InPlace
    }

    fn open<'s>(self: Box<Self>, dtype: Dtype, rows: u64, _: Option<&[u64]>) -> Result<Box<dyn Sink + 's>>
    where
        Self: 's,
    {
        check_fit("slice", (Dtype::Bool, self.0.len() as u64), (dtype, rows))?;
        Ok(Box::new(BoolSink(Disjoint::new(self.0))))
    }
}

struct BoolSink<'a>(Disjoint<'a, bool>);

impl Sink for BoolSink<'_> {
    fn write(&self, first_row: u64, bytes: &[u8]) -> Result<()> {
        let start = usize::try_from(first_row).ok();
        let rows = start.and_then(|start| Some(start..start.checked_add(bytes.len())?));
        let claim = rows.and_then(|rows| self.0.claim(rows));
        for (value, byte) in claim.ok_or_else(|| does_not_fit("slice", first_row, bytes))?.iter_mut().zip(bytes) {
            *value = *byte != 0;
        }
        Ok(())
    }

    fn read_back(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        let start = offset as usize;
        let claim = self.0.claim(start..start + to.len()).ok_or_else(|| does_not_fit("slice", offset, to))?;
        to.iter_mut().zip(claim.iter()).for_each(|(byte, value)| *byte = u8::from(*value));
        Ok(())
    }

    /// As for other slices.
    fn truncate(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl<'a, T: Element> From<&'a mut [T]> for Output<'a> {
    fn from(slice: &'a mut [T]) -> Self {
        slice_output(slice, false)
    }
}

impl<'a> From<&'a mut [bool]> for Output<'a> {
    fn from(slice: &'a mut [bool]) -> Self {
        BoolTarget(slice).into()
    }
}

/// Vectors and arrays are outputs as the slices that they dereference to.
macro_rules! as_slices {
    ($($element:ty $(, $bound:ident)?);*) => {$(
        impl<'a $(, T: $bound)?> From<&'a Vec<$element>> for Input<'a> {
            fn from(vec: &'a Vec<$element>) -> Self {
                vec.as_slice().into()
            }
        }

        impl<'a $(, T: $bound)?, const N: usize> From<&'a [$element; N]> for Input<'a> {
            fn from(array: &'a [$element; N]) -> Self {
                array.as_slice().into()
            }
        }

        impl<'a $(, T: $bound)?> From<&'a mut Vec<$element>> for Output<'a> {
            fn from(vec: &'a mut Vec<$element>) -> Self {
                vec.as_mut_slice().into()
            }
        }

        impl<'a $(, T: $bound)?, const N: usize> From<&'a mut [$element; N]> for Output<'a> {
            fn from(array: &'a mut [$element; N]) -> Self {
                array.as_mut_slice().into()
            }
        }
    )*};
}
as_slices!(T, Element; bool);
