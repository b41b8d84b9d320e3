//! What is known of the values of some rows before these are read.

use super::{Dtype, Scalar};
use crate::error::Result;
use std::cmp::Ordering;
use std::ops::Range;

/// Bounds of the values of some rows, such as those of a page of a Parquet file.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    /// The rows.
    pub rows: Range<u64>,
    /// A value of the dtype of the rows; no row has a smaller one. NaN has no place in the order: rows may be NaN,
    /// whatever the bounds are.
    pub least: Scalar,
    /// A value of the same dtype; no row has a greater one.
    pub greatest: Scalar,
}

impl Bounds {
    /// Returns whether these can be the bounds of rows of a column of so many rows, behind row `first`. Callers
    /// implement sources.
    pub(crate) fn are_of(&self, dtype: Dtype, first: u64, rows: u64) -> bool {
        let Bounds { rows: own, least, greatest } = self;
        let is_inside = first <= own.start && own.start < own.end && own.end <= rows;
        let is_range = matches!(least.order(*greatest), Some(Ordering::Less | Ordering::Equal));
        is_inside && least.dtype() == dtype && greatest.dtype() == dtype && is_range
    }
}

/// Rows of a column that are not read, because no result depends on their values within their bounds. Others take their
/// places.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unread {
    /// Ranges of rows in ascending order, each with the bits of the value that all of its rows get.
    parts: Vec<(Range<u64>, u64)>,
}

impl Unread {
    /// Adds rows behind those that were added before.
    pub(crate) fn push(&mut self, rows: Range<u64>, value: u64) {
        match self.parts.last_mut() {
            Some((last, own)) if last.end == rows.start && *own == value => last.end = rows.end,
            _ => self.parts.push((rows, value)),
        }
    }

    /// Returns how many of these rows are not read.
    pub(crate) fn count(&self, rows: &Range<u64>) -> u64 {
        let own = self.parts.iter().map(|(own, _)| own.end.min(rows.end).saturating_sub(own.start.max(rows.start)));
        own.sum()
    }

    /// Fills `dst` with rows of `dtype` from row `first` on: with the values that take the places of rows, and by
    /// `read` with the others.
    pub(crate) fn read(
        &self,
        dtype: Dtype,
        first: u64,
        dst: &mut [u8],
        read: impl Fn(u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let size = dtype.size();
        let (mut row, mut rest) = (first, dst);
        let mut next = self.parts.partition_point(|(own, _)| own.end <= first);
        while !rest.is_empty() {
            let left = (rest.len() / size) as u64;
            // The rows up to the next ones that are not read, or these.
            let (count, value) = match self.parts.get(next) {
                Some((own, value)) if own.start <= row => (own.end - row, Some(*value)),
                Some((own, _)) => (own.start - row, None),
                None => (left, None),
            };
            let (rows, after) = rest.split_at_mut(count.min(left) as usize * size);
            match value {
                Some(value) => fill(rows, size, value),
                None => read(row, rows)?,
            }
            next += usize::from(value.is_some());
            (row, rest) = (row + count.min(left), after);
        }
        Ok(())
    }
}

/// Fills rows of `size` bytes with the low bytes of a word.
pub(super) fn fill(rows: &mut [u8], size: usize, value: u64) {
    // By the size of all dtypes, so that these are loops over vectors.
    match size {
        1 => rows.fill(value as u8),
        2 => rows.as_chunks_mut().0.fill((value as u16).to_ne_bytes()),
        4 => rows.as_chunks_mut().0.fill((value as u32).to_ne_bytes()),
        _ => rows.as_chunks_mut().0.fill(value.to_ne_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_are_read_or_have_their_value(
            lens in prop::collection::vec((0u64..5, 1u64..5, 0u64..3), 0..12),
            first in 0u64..40,
            rows in 0usize..60,
        ) {
            let (mut unread, mut twin, mut row) = (Unread::default(), vec![None; 200], 0);
            for (gap, len, value) in lens {
                row += gap;
                unread.push(row..row + len, value);
                twin[row as usize..(row + len) as usize].fill(Some(value));
                row += len;
            }
            let mut dst = vec![0u16; rows];
            unread.read(Dtype::U16, first, bytemuck::cast_slice_mut(&mut dst), |first, dst| {
                assert!(!dst.is_empty());
                let rows = dst.chunks_exact_mut(2).zip(first..);
                rows.for_each(|(to, row)| to.copy_from_slice(&(1000 + row as u16).to_ne_bytes()));
                Ok(())
            })?;
            let all = first..first + rows as u64;
            for (row, value) in all.clone().zip(dst) {
                let wanted = twin[row as usize].map_or(1000 + row as u16, |value| value as u16);
                prop_assert_eq!(value, wanted, "row {}", row);
            }
            let count = all.clone().filter(|row| twin[*row as usize].is_some()).count();
            prop_assert_eq!(unread.count(&all), count as u64);
        }
    }
}
