//! Arrays in memory by their address, shape and strides, such as those of other languages.

use std::marker::PhantomData;

use super::memory::Disjoint;
use super::sink::{check_fit, does_not_fit, rows_of, wanted_rows};
use super::slice::SliceSink;
use super::{Dtype, Memory, Parts, Placement, Sink, SinkMemory, Source, Target};
use crate::error::{ColumnError, Result};

/// The places of the elements of an array.
#[derive(Clone, Debug)]
struct Layout {
    dtype: Dtype,
    shape: Vec<u64>,
    /// Bytes from an element to the next one along each dimension.
    strides: Vec<isize>,
    /// Length and stride of each dimension, without those of one element. Two dimensions are one if the elements of the
    /// inner one continue in the outer one.
    merged: Vec<(u64, isize)>,
}

impl Layout {
    fn new(dtype: Dtype, shape: &[u64], strides: &[isize]) -> Layout {
        assert_eq!(shape.len(), strides.len(), "an array has one stride for each dimension");
        let mut merged: Vec<(u64, isize)> = Vec::with_capacity(shape.len());
        for (&length, &stride) in shape.iter().zip(strides).filter(|(length, _)| **length != 1) {
            let continues = |(outer, step): &&mut (u64, isize)| {
                *step == stride.wrapping_mul(length as isize) && outer.checked_mul(length).is_some()
            };
            match merged.last_mut().filter(continues) {
                Some(outer) => *outer = (outer.0 * length, stride),
                None => merged.push((length, stride)),
            }
        }
        Layout { dtype, shape: shape.to_vec(), strides: strides.to_vec(), merged }
    }

    /// Returns the number of elements. Strides of 0 make arrays of any size.
    fn rows(&self) -> u64 {
        self.shape.iter().fold(1, |rows: u64, length| rows.saturating_mul(*length))
    }

    /// Returns the bytes of the array at `start`, if its elements are adjacent, in row-major order and aligned.
    fn bytes(&self, start: *const u8) -> Option<*const [u8]> {
        let size = self.dtype.size();
        let is_adjacent = match *self.merged {
            [] => true,
            [(_, stride)] => stride == size as isize,
            _ => false,
        };
        let bytes = usize::try_from(self.rows()).ok()?.checked_mul(size)?;
        match bytes {
            0 => Some(std::ptr::slice_from_raw_parts(std::ptr::dangling::<u64>().cast(), 0)),
            _ if is_adjacent && start.addr().is_multiple_of(size) => Some(std::ptr::slice_from_raw_parts(start, bytes)),
            _ => None,
        }
    }

    /// Calls `each` with the runs of elements from row `first` on: the offset of the first element of a run in bytes,
    /// and the number of its elements, which are [`step`](Layout::step) bytes apart.
    fn runs(&self, first: u64, rows: u64, mut each: impl FnMut(isize, usize)) {
        let [outer @ .., (last, step)] = &*self.merged else {
            return (0..rows).for_each(|_| each(0, 1));
        };
        let (mut row, end) = (first, first + rows);
        while row < end {
            let (mut rest, along) = (row / last, row % last);
            let mut offset = along as isize * step;
            for (length, stride) in outer.iter().rev() {
                offset += (rest % length) as isize * stride;
                rest /= length;
            }
            let len = (last - along).min(end - row);
            each(offset, len as usize);
            row += len;
        }
    }

    /// Returns the bytes between two elements of a run.
    fn step(&self) -> isize {
        self.merged.last().map_or(0, |(_, stride)| *stride)
    }

    fn describe(&self) -> String {
        format!("an array of shape {:?} and strides of {:?} bytes", self.shape, self.strides)
    }
}

/// An array in memory, as an input. Each element is a row, in row-major order of the dimensions.
///
/// If the elements are adjacent in this order and aligned, the array is used in place, as a slice is. Other elements
/// are gathered when a chunk is filled; the report says so.
///
/// ```
/// use overshot::{Dtype, Engine, Job, io::RawArray};
/// // The second column of three rows.
/// let table = [1.0f64, 10.0, 2.0, 20.0, 3.0, 30.0];
/// // SAFETY: the last of the three elements, 16 bytes apart, is the last one of the table.
/// let column = unsafe { RawArray::new(table[1..].as_ptr().cast(), Dtype::F64, &[3], &[16]) };
/// let report = Engine::builder().build()?.run(Job::eval("sum(x)")?.input("x", column))?;
/// assert_eq!(report.value("sum(x)")?.map(|sum| sum.as_f64()), Some(60.0));
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Debug)]
pub struct RawArray<'a> {
    start: *const u8,
    layout: Layout,
    _borrow: PhantomData<&'a [u8]>,
}

// SAFETY: a `RawArray` is a shared borrow of numbers for `'a`, which threads may read at the same time.
unsafe impl Send for RawArray<'_> {}
// SAFETY: as above.
unsafe impl Sync for RawArray<'_> {}

impl<'a> RawArray<'a> {
    /// Creates an input of the elements at `start`. `strides` are the bytes from an element to the next one along
    /// each dimension: any numbers, negative ones and 0 too. Elements need not be aligned.
    ///
    /// # Safety
    /// Every element of an array of this dtype, shape and strides lies in memory that may be read during `'a`, and
    /// that nobody writes to.
    ///
    /// # Panics
    /// If there are not as many strides as dimensions.
    pub unsafe fn new(start: *const u8, dtype: Dtype, shape: &[u64], strides: &[isize]) -> RawArray<'a> {
        RawArray { start, layout: Layout::new(dtype, shape, strides), _borrow: PhantomData }
    }
}

impl Source for RawArray<'_> {
    fn dtype(&self) -> Dtype {
        self.layout.dtype
    }

    fn rows(&self) -> u64 {
        self.layout.rows()
    }

    fn name(&self) -> String {
        "array".into()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        let (size, own_rows) = (self.layout.dtype.size(), self.rows());
        let rows = wanted_rows(first, dst, size, own_rows, || self.name())?;
        let (mut rest, stride) = (dst, self.layout.step());
        self.layout.runs(first, rows.end - first, |offset, len| {
            let (run, after) = std::mem::take(&mut rest).split_at_mut(len * size);
            rest = after;
            let start = self.start.wrapping_offset(offset);
            // SAFETY: the elements of the run are elements of the array, which `new` requires to be readable.
            unsafe {
                match size {
                    1 => gather::<1>(start, stride, run),
                    2 => gather::<2>(start, stride, run),
                    4 => gather::<4>(start, stride, run),
                    _ => gather::<8>(start, stride, run),
                }
            }
        });
        Ok(())
    }

    fn memory(&self) -> Option<Memory<'_>> {
        // SAFETY: these are the elements of the array, which `new` requires to be readable.
        let bytes = unsafe { &*self.layout.bytes(self.start)? };
        Memory::new(bytes, self.layout.dtype)
    }

    fn shape(&self) -> Option<&[u64]> {
        Some(&self.layout.shape)
    }

    fn warning(&self) -> Option<String> {
        let is_gathered = self.layout.bytes(self.start).is_none();
        is_gathered.then(|| format!("{} is gathered; one with adjacent elements is faster", self.layout.describe()))
    }
}

/// Copies elements of `N` bytes that are `stride` bytes apart.
///
/// # Safety
/// All of them may be read.
unsafe fn gather<const N: usize>(start: *const u8, stride: isize, to: &mut [u8]) {
    if stride == N as isize {
        // SAFETY: the caller says so.
        return unsafe { start.copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
    }
    let mut from = start;
    for element in to.chunks_exact_mut(N) {
        // SAFETY: the caller says so.
        unsafe { from.copy_to_nonoverlapping(element.as_mut_ptr(), N) };
        from = from.wrapping_offset(stride);
    }
}

/// An array in memory, as an output. Each element is a row, in row-major order of the dimensions. It is written in
/// place if a [`RawArray`] of it would be read in place.
///
/// ```
/// use overshot::{Dtype, Engine, Job, io::RawArrayMut};
/// let mut table = [0.0f64; 6];
/// // SAFETY: the three elements are the odd ones of the table, which nobody else uses.
/// let column = unsafe { RawArrayMut::new(table[1..].as_mut_ptr().cast(), Dtype::F64, &[3], &[16]) };
/// let x = [1.0, 2.0, 3.0];
/// Engine::builder().build()?.run(Job::eval("y = x * x")?.input("x", &x).output("y", column))?;
/// assert_eq!(table, [0.0, 1.0, 0.0, 4.0, 0.0, 9.0]);
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Debug)]
pub struct RawArrayMut<'a> {
    start: *mut u8,
    layout: Layout,
    _borrow: PhantomData<&'a mut [u8]>,
}

// SAFETY: a `RawArrayMut` is a unique borrow of numbers for `'a`, which may move to another thread.
unsafe impl Send for RawArrayMut<'_> {}

impl<'a> RawArrayMut<'a> {
    /// Creates an output of the elements at `start`, as [`RawArray::new`] does.
    ///
    /// # Safety
    /// Every element of an array of this dtype, shape and strides lies in memory that may be written during `'a`, and
    /// that nobody else reads or writes. No two elements overlap.
    ///
    /// # Panics
    /// If there are not as many strides as dimensions.
    pub unsafe fn new(start: *mut u8, dtype: Dtype, shape: &[u64], strides: &[isize]) -> RawArrayMut<'a> {
        RawArrayMut { start, layout: Layout::new(dtype, shape, strides), _borrow: PhantomData }
    }
}

impl Target for RawArrayMut<'_> {
    fn name(&self) -> String {
        "array".into()
    }

    fn dtype(&self) -> Option<Dtype> {
        Some(self.layout.dtype)
    }

    fn rows(&self) -> Option<u64> {
        Some(self.layout.rows())
    }

    fn place(&self) -> Placement {
        if self.layout.bytes(self.start).is_some() { Placement::Memory } else { Placement::Elsewhere }
    }

    fn memory(&self) -> Option<&[u8]> {
        // SAFETY: these are the elements of the array, which `new` requires to be writable by nobody else.
        Some(unsafe { &*self.layout.bytes(self.start)? })
    }

    fn can_read_back(&self) -> bool {
        true
    }

    fn parts(&self) -> Parts<'_> {
        Parts::InPlace
    }

    fn open<'s>(self: Box<Self>, dtype: Dtype, rows: u64, shape: Option<&[u64]>) -> Result<Box<dyn Sink + 's>>
    where
        Self: 's,
    {
        check_fit("array", (self.layout.dtype, self.layout.rows()), (dtype, rows))?;
        check_shape(&self.layout.shape, shape)?;
        if let Some(bytes) = self.layout.bytes(self.start) {
            // SAFETY: as in `memory`, and this is the only reference: `self` is consumed.
            let bytes = unsafe { &mut *bytes.cast_mut() };
            let memory = SinkMemory::new(bytes, dtype).ok_or_else(|| does_not_fit("array", 0, &[]))?;
            return Ok(Box::new(SliceSink(memory)));
        }
        let elements = usize::try_from(rows).map_err(|_| does_not_fit("array", 0, &[]))?;
        // A slice of elements without a size allocates nothing.
        let places = Disjoint::new(Box::leak(vec![(); elements].into_boxed_slice()));
        Ok(Box::new(RawSink { array: *self, places }))
    }
}

struct RawSink<'a> {
    array: RawArrayMut<'a>,
    /// Stands for the elements of the array, so that each is written by one thread at a time.
    places: Disjoint<'static, ()>,
}

// SAFETY: threads write to elements only through `write`, each to those that it has claimed.
unsafe impl Sync for RawSink<'_> {}

impl Sink for RawSink<'_> {
    fn write(&self, first_row: u64, bytes: &[u8]) -> Result<()> {
        let layout = &self.array.layout;
        let size = layout.dtype.size();
        let rows = rows_of(first_row, bytes, size);
        let places = rows.and_then(|rows| Some(usize::try_from(rows.start).ok()?..usize::try_from(rows.end).ok()?));
        let claim = places.and_then(|places| self.places.claim(places));
        let claim = claim.ok_or_else(|| does_not_fit("array", first_row, bytes))?;
        let (mut rest, stride) = (bytes, layout.step());
        layout.runs(first_row, claim.len() as u64, |offset, len| {
            let (run, after) = rest.split_at(len * size);
            rest = after;
            let start = self.array.start.wrapping_offset(offset);
            // SAFETY: the elements of the run are elements of the array, which `new` requires to be writable; until
            // the claim is dropped, no other thread writes to them.
            unsafe {
                match size {
                    1 => scatter::<1>(run, start, stride),
                    2 => scatter::<2>(run, start, stride),
                    4 => scatter::<4>(run, start, stride),
                    _ => scatter::<8>(run, start, stride),
                }
            }
        });
        Ok(())
    }

    fn read_back(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        let RawArrayMut { start, layout, .. } = &self.array;
        let (first, rows) = (offset as usize / layout.dtype.size(), to.len() / layout.dtype.size());
        let claim = self.places.claim(first..first + rows);
        let _claim = claim.ok_or_else(|| does_not_fit("array", first as u64, to))?;
        RawArray { start: *start, layout: layout.clone(), _borrow: PhantomData }.read(first as u64, to)
    }

    fn warning(&self) -> Option<String> {
        let layout = &self.array.layout;
        Some(format!("{} is scattered; one with adjacent elements is faster", layout.describe()))
    }

    /// An array keeps its shape; the report says how many rows are valid.
    fn truncate(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Copies elements of `N` bytes to places that are `stride` bytes apart.
///
/// # Safety
/// All of them may be written.
unsafe fn scatter<const N: usize>(from: &[u8], start: *mut u8, stride: isize) {
    if stride == N as isize {
        // SAFETY: the caller says so.
        return unsafe { start.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    }
    let mut to = start;
    for element in from.chunks_exact(N) {
        // SAFETY: the caller says so.
        unsafe { to.copy_from_nonoverlapping(element.as_ptr(), N) };
        to = to.wrapping_offset(stride);
    }
}

/// Checks that an array of this shape can take rows of the other one, if they have one.
///
/// # Errors
/// [`Error::InvalidColumn`](crate::Error::InvalidColumn) if it cannot.
pub(super) fn check_shape(own: &[u64], shape: Option<&[u64]>) -> Result<()> {
    match shape.filter(|shape| *shape != own) {
        None => Ok(()),
        Some(shape) => {
            let (own, shape) = (format!("{own:?}"), format!("{shape:?}"));
            Err(ColumnError::TargetShape { column: "array".into(), own, shape }.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Output;
    use proptest::prelude::*;

    /// A view of numbers 0, 1, 2, …: the start, shapes and strides in elements.
    #[derive(Clone, Debug)]
    struct View {
        elements: usize,
        start: usize,
        shape: Vec<u64>,
        strides: Vec<isize>,
    }

    impl View {
        /// Returns the indices of the elements in row-major order.
        fn indices(&self) -> Vec<usize> {
            let mut all = vec![self.start as isize];
            for (length, stride) in self.shape.iter().zip(&self.strides) {
                all = all.iter().flat_map(|at| (0..*length as isize).map(move |k| at + k * stride)).collect();
            }
            all.into_iter().map(|at| at as usize).collect()
        }

        fn byte_strides(&self, size: usize) -> Vec<isize> {
            self.strides.iter().map(|stride| stride * size as isize).collect()
        }
    }

    prop_compose! {
        /// Draws a view of distinct elements: steps and directions along each dimension, and an order of them.
        fn views()(
            dims in prop::collection::vec((0u64..5, 1usize..4, any::<bool>()), 0..4),
            order in any::<prop::sample::Index>(),
        ) -> View {
            let (mut extent, mut start) = (1, 0);
            let mut strides = vec![0; dims.len()];
            let mut places: Vec<usize> = (0..dims.len()).collect();
            places.rotate_left(order.index(dims.len().max(1)));
            for place in places {
                let (length, step, is_backwards) = dims[place];
                let stride = (extent * step) as isize;
                strides[place] = if is_backwards { -stride } else { stride };
                let reach = (length.max(1) as usize - 1) * extent * step;
                start += if is_backwards { reach } else { 0 };
                extent += reach;
            }
            View { elements: extent, start, shape: dims.iter().map(|dim| dim.0).collect(), strides }
        }
    }

    proptest! {
        #[test]
        fn elements_are_gathered_and_scattered_in_order(view in views(), first in 0u64..30, rows in 0u64..30) {
            let indices = view.indices();
            let numbers: Vec<u32> = (0..view.elements as u32).collect();
            let (strides, dtype) = (view.byte_strides(4), Dtype::U32);
            // SAFETY: `views` makes views of `elements` numbers.
            let source = unsafe { RawArray::new(numbers[view.start..].as_ptr().cast(), dtype, &view.shape, &strides) };
            prop_assert_eq!(source.rows(), indices.len() as u64);
            let is_adjacent = indices.windows(2).all(|pair| pair[1] == pair[0] + 1);
            prop_assert_eq!((source.memory().is_some(), source.warning().is_none()), (is_adjacent, is_adjacent));
            if let Some(memory) = source.memory() {
                let own: &[u32] = bytemuck::cast_slice(memory.bytes());
                prop_assert!(own.iter().map(|at| *at as usize).eq(indices.iter().copied()));
            }
            let mut read = vec![0u32; rows as usize];
            let result = source.read(first, bytemuck::cast_slice_mut(&mut read));
            let range = first as usize..(first + rows) as usize;
            let Some(expected) = indices.get(range) else {
                prop_assert!(result.is_err());
                return Ok(());
            };
            result.unwrap();
            prop_assert!(read.iter().map(|at| *at as usize).eq(expected.iter().copied()));

            let mut written = vec![u32::MAX; view.elements];
            let start = written[view.start..].as_mut_ptr().cast();
            // SAFETY: as above, and the elements of a view are distinct.
            let target = unsafe { RawArrayMut::new(start, dtype, &view.shape, &strides) };
            let output = Output::from(target);
            prop_assert_eq!(output.target().memory().is_some(), is_adjacent);
            let sink = output.open(dtype, indices.len() as u64, None).unwrap();
            prop_assert_eq!(sink.memory().is_some(), is_adjacent);
            sink.write(first, bytemuck::cast_slice(&read)).unwrap();
            drop(sink);
            for (at, value) in written.into_iter().enumerate() {
                prop_assert_eq!(value, if expected.contains(&at) { at as u32 } else { u32::MAX });
            }
        }
    }

    #[test]
    fn elements_of_every_size_and_alignment_are_copied() {
        let bytes: Vec<u8> = (0..64).collect();
        for dtype in [Dtype::Bool, Dtype::I16, Dtype::F32, Dtype::F64] {
            let size = dtype.size();
            // SAFETY: 4 elements, 15 bytes apart, end before byte 64.
            let source = unsafe { RawArray::new(bytes[1..].as_ptr(), dtype, &[4], &[15]) };
            let mut read = vec![0; 3 * size];
            source.read(1, &mut read).unwrap();
            let expected: Vec<u8> = (1..4).flat_map(|k| 1 + 15 * k..1 + 15 * k + size as u8).collect();
            assert_eq!(read, expected);
            let mut written = [0; 64];
            // SAFETY: as above.
            let target = unsafe { RawArrayMut::new(written[1..].as_mut_ptr(), dtype, &[4], &[15]) };
            Output::from(target).open(dtype, 4, None).unwrap().write(1, &read).unwrap();
            assert!(expected.iter().all(|&at| written[usize::from(at)] == at));
            assert_eq!(written.iter().filter(|byte| **byte > 0).count(), expected.len());
        }
    }

    #[test]
    fn an_array_of_any_size_has_a_number_of_rows() {
        let number = [7u8];
        // SAFETY: all elements are the one number.
        let source = unsafe { RawArray::new(number.as_ptr(), Dtype::U8, &[1 << 40, 1 << 40], &[0, 0]) };
        let mut read = [0; 3];
        source.read(1 << 50, &mut read).unwrap();
        assert_eq!((source.rows(), source.memory().is_none(), read), (u64::MAX, true, [7; 3]));
    }

    #[test]
    fn an_output_takes_only_rows_of_its_shape_and_dtype() {
        let mut numbers = [0u16; 8];
        let mut open = |dtype, rows, shape: Option<&[u64]>| {
            // SAFETY: 2 times 2 elements, the last of which is number 6.
            let target = unsafe { RawArrayMut::new(numbers.as_mut_ptr().cast(), Dtype::U16, &[2, 2], &[8, 4]) };
            Output::from(target).open(dtype, rows, shape).map(|sink| sink.write(3, &[0; 4]).is_err())
        };
        assert!(open(Dtype::I16, 4, None).is_err() && open(Dtype::U16, 5, None).is_err());
        assert!(open(Dtype::U16, 4, Some(&[4])).is_err());
        assert!(open(Dtype::U16, 4, Some(&[2, 2])).unwrap(), "rows 3 and 4 of 4");
    }
}
