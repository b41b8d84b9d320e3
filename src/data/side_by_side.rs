//! Columns side by side, which are read as a table of two dimensions.

use super::half::{of_bf16, of_f16};
use super::sink::wanted_rows;
use super::{Dtype, Input, Source};
use crate::error::{Error, Result};
use half::{bf16, f16};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_128;

/// Rows of a column that are read at a time. Elements of neighbouring columns go to the same line of the cache, which
/// is still there if the rows are few.
const BLOCK: usize = 2048;

/// Columns with as many rows, whose elements alternate: a row of the table has one of each.
///
/// The dtype is that of the columns if all have one, and `f64` otherwise.
#[derive(Debug)]
pub(super) struct SideBySide {
    /// What the user named.
    name: PathBuf,
    columns: Vec<Input<'static>>,
    dtype: Dtype,
    /// Elements, as of every source.
    rows: u64,
    shape: [u64; 2],
    grains: Vec<u64>,
}

impl SideBySide {
    /// Puts columns side by side, with their names.
    ///
    /// # Errors
    /// If there are none, if they have several dimensions or other numbers of rows, or too many elements.
    pub(super) fn new(name: &Path, columns: Vec<(String, Input<'static>)>) -> Result<SideBySide> {
        let Some((first_name, first)) = columns.first() else {
            return Err(Error::file(name, "has no columns to put side by side", "name one column at least"));
        };
        let first = first.source().rows();
        for (own, column) in &columns {
            let column = column.source();
            if column.shape().is_some_and(|shape| shape.len() != 1) {
                let problem = format!("'{own}' has several dimensions, and is no column of a table");
                return Err(Error::file(name, problem, "read it by itself"));
            }
            if column.rows() != first {
                let problem = format!("'{own}' has {} rows, but '{first_name}' has {first}", column.rows());
                return Err(Error::file(name, problem, "name columns with as many rows"));
            }
        }
        let columns: Vec<_> = columns.into_iter().map(|(_, column)| column).collect();
        let sources = || columns.iter().map(Input::source);
        let width = columns.len() as u64;
        let first_dtype = sources().next().map_or(Dtype::F64, Source::dtype);
        let dtype = if sources().all(|column| column.dtype() == first_dtype) { first_dtype } else { Dtype::F64 };
        let rows = first.checked_mul(width).filter(|rows| rows.checked_mul(dtype.size() as u64).is_some());
        let rows = rows.ok_or_else(|| {
            Error::file(name, "its columns have more rows than can be counted", "read fewer columns at once")
        })?;
        let shape = [first, width];
        // If those of another column differ, some of its grains are decoded by several workers.
        let grains = sources().map(Source::grains).find(|grains| !grains.is_empty()).unwrap_or_default();
        let grains = grains.iter().map(|row| row * width).collect();
        Ok(SideBySide { name: name.into(), columns, dtype, rows, shape, grains })
    }

    fn sources(&self) -> impl Iterator<Item = &dyn Source> {
        self.columns.iter().map(|column| column.source() as &dyn Source)
    }

    /// Fills elements that begin with column `first` of a row: one row at most, or whole rows, [`BLOCK`] at most.
    fn fill<const N: usize>(&self, row: u64, first: usize, elements: &mut [[u8; N]]) -> Result<()> {
        let width = self.columns.len();
        let rows = (elements.len() / width).max(1);
        let (mut read, mut widened) = (vec![0u64; rows], vec![0.0; rows]);
        for (place, column) in self.sources().skip(first).take(elements.len()).enumerate() {
            let dtype = column.dtype();
            column.read(row, &mut bytemuck::cast_slice_mut(&mut read)[..rows * dtype.size()])?;
            let own: &[u8] = if dtype == self.dtype {
                bytemuck::cast_slice(&read)
            } else {
                widen(dtype, &read, &mut widened);
                bytemuck::cast_slice(&widened)
            };
            let to = elements.iter_mut().skip(place).step_by(width);
            to.zip(own.as_chunks::<N>().0).for_each(|(to, own)| *to = *own);
        }
        Ok(())
    }

    fn read_elements<const N: usize>(&self, first: u64, dst: &mut [[u8; N]]) -> Result<()> {
        let width = self.columns.len();
        let (mut rest, mut next) = (dst, first);
        while !rest.is_empty() {
            let (row, column) = (next / width as u64, (next % width as u64) as usize);
            let whole = rest.len() / width;
            let count = match column {
                0 if whole > 0 => whole.min(BLOCK) * width,
                _ => rest.len().min(width - column),
            };
            let (elements, after) = rest.split_at_mut(count);
            self.fill(row, column, elements)?;
            (rest, next) = (after, next + count as u64);
        }
        Ok(())
    }
}

impl Source for SideBySide {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn name(&self) -> String {
        self.name.display().to_string()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        let size = self.dtype.size();
        wanted_rows(first, dst, size, self.rows, || self.name())?;
        match size {
            1 => self.read_elements::<1>(first, dst.as_chunks_mut().0),
            2 => self.read_elements::<2>(first, dst.as_chunks_mut().0),
            4 => self.read_elements::<4>(first, dst.as_chunks_mut().0),
            _ => self.read_elements::<8>(first, dst.as_chunks_mut().0),
        }
    }

    fn grains(&self) -> &[u64] {
        &self.grains
    }

    fn decodes(&self) -> bool {
        self.sources().any(|column| column.decodes())
    }

    fn decode_memory(&self) -> u64 {
        self.sources().fold(0, |sum, column| sum.saturating_add(column.decode_memory()))
    }

    fn shape(&self) -> Option<&[u64]> {
        Some(&self.shape)
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.name)
    }

    fn files(&self) -> Vec<&Path> {
        let files: BTreeSet<&Path> = self.sources().flat_map(|column| column.files()).collect();
        files.into_iter().collect()
    }

    fn variant(&self) -> String {
        self.sources().map(|column| column.variant()).collect::<Vec<_>>().join("; ")
    }

    fn bytes_read_direct(&self) -> u64 {
        self.sources().fold(0, |sum, column| sum.saturating_add(column.bytes_read_direct()))
    }

    fn version(&self) -> Option<u128> {
        // Of columns of one file they are the same, so they must not cancel each other.
        let versions = self.sources().map(Source::version).collect::<Option<Vec<_>>>()?;
        Some(XxHash3_128::oneshot(bytemuck::cast_slice(&versions)))
    }

    fn warning(&self) -> Option<String> {
        self.sources().find_map(|column| column.warning())
    }
}

/// Converts values of another dtype, whose bytes are at the begin of these words.
fn widen(dtype: Dtype, from: &[u64], to: &mut [f64]) {
    macro_rules! each {
        ($t:ty, $value:expr) => {
            to.iter_mut().zip(bytemuck::cast_slice::<u64, $t>(from)).for_each(|(to, from)| *to = $value(*from))
        };
    }
    match dtype {
        Dtype::Bool => each!(u8, |value| f64::from(u8::from(value != 0))),
        Dtype::I8 => each!(i8, f64::from),
        Dtype::I16 => each!(i16, f64::from),
        Dtype::I32 => each!(i32, f64::from),
        Dtype::I64 => each!(i64, |value| value as f64),
        Dtype::U8 => each!(u8, f64::from),
        Dtype::U16 => each!(u16, f64::from),
        Dtype::U32 => each!(u32, f64::from),
        Dtype::U64 => each!(u64, |value| value as f64),
        Dtype::F16 => each!(u16, |bits| f64::from(of_f16(f16::from_bits(bits)))),
        Dtype::Bf16 => each!(u16, |bits| f64::from(of_bf16(bf16::from_bits(bits)))),
        Dtype::F32 => each!(f32, f64::from),
        Dtype::F64 => each!(f64, |value| value),
    }
}
