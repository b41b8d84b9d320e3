//! Inputs of which a process has some rows only.

use super::sink::rows_of;
use super::{Dtype, Input, Memory, Source};
use crate::error::{ColumnError, Result};

/// An input of which this process has some rows only, in blocks.
///
/// [`Engine::run_rows`](crate::Engine::run_rows) reads no rows but those that it runs. So a process needs only these
/// rows of a dataset that several processes share. Rows that are in no block cannot be read.
///
/// Partials compare samples of their inputs, and a process that has some rows only cannot take them. Therefore blocks
/// have an identity in their place: see [`Source::identity`].
///
/// ```
/// use overshot::{Dtype, Engine, Job, io::Blocks};
/// let (first, last) = (vec![1.0f64; 4096], vec![2.0f64; 904]);
/// // All rows of the input, and what every process calls this dataset.
/// let x = || Blocks::new(Dtype::F64, &[5000], "measurements, version 7");
/// let job = |x: Blocks<'static>| Ok::<_, overshot::Error>(Job::eval("sum(x)")?.input("x", x));
/// let engine = Engine::builder().build()?;
/// let mut all = engine.run_rows(job(x().block(0, first)?)?, 0..4096)?;
/// // By another process, for example.
/// all.merge(engine.run_rows(job(x().block(4096, last)?)?, 4096..5000)?)?;
/// assert_eq!(all.finish()?.value("sum(x)")?.map(|sum| sum.as_f64()), Some(4096.0 + 2.0 * 904.0));
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Debug)]
pub struct Blocks<'a> {
    dtype: Dtype,
    rows: u64,
    shape: Vec<u64>,
    identity: String,
    /// With their first rows, in order. They have no rows in common.
    blocks: Vec<(u64, Input<'a>)>,
}

impl<'a> Blocks<'a> {
    /// Creates an input without blocks. `shape` is that of the whole dataset, outermost dimension first; each element
    /// is a row. `identity` is its [`identity`](Source::identity).
    pub fn new(dtype: Dtype, shape: &[u64], identity: impl Into<String>) -> Self {
        let rows = shape.iter().fold(1, |rows: u64, length| rows.saturating_mul(*length));
        Blocks { dtype, rows, shape: shape.to_vec(), identity: identity.into(), blocks: vec![] }
    }

    /// Adds the rows from row `first` on, in any order of the calls.
    ///
    /// # Errors
    /// [`Error::InvalidColumn`](crate::Error::InvalidColumn) if the block has another dtype, rows of another block, or
    /// rows beyond the end.
    pub fn block(mut self, first: u64, rows: impl Into<Input<'a>>) -> Result<Self> {
        let block = rows.into();
        let (dtype, rows) = (block.source().dtype(), block.source().rows());
        let end = first.saturating_add(rows);
        if dtype != self.dtype {
            let (dtype, own) = (dtype.to_string(), self.dtype.to_string());
            return Err(ColumnError::BlockDtype { first, end, dtype, own }.into());
        }
        if end > self.rows {
            return Err(ColumnError::BlockBeyondEnd { first, end, own_rows: self.rows }.into());
        }
        let place = self.blocks.partition_point(|(other, _)| *other < first);
        let before = place.checked_sub(1).map_or(0, |before| end_of(&self.blocks[before]));
        let after = self.blocks.get(place).map_or(self.rows, |(after, _)| *after);
        if rows > 0 && (before > first || after < end) {
            return Err(ColumnError::BlockTwice { first, end }.into());
        }
        if rows > 0 {
            self.blocks.insert(place, (first, block));
        }
        Ok(self)
    }
}

/// Returns the row after the last one of a block.
fn end_of((first, block): &(u64, Input<'_>)) -> u64 {
    first + block.source().rows()
}

impl Source for Blocks<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn name(&self) -> String {
        "blocks".into()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        let size = self.dtype.size();
        let wanted = rows_of(first, dst, size).ok_or_else(|| ColumnError::ReadPartOfRow {
            column: self.name(),
            bytes: dst.len(),
            dtype: self.dtype.to_string(),
        })?;
        let (mut row, mut rest) = (first, dst);
        let next = self.blocks.partition_point(|block| end_of(block) <= first);
        for block in &self.blocks[next..] {
            if row == wanted.end || block.0 > row {
                break;
            }
            let end = end_of(block).min(wanted.end);
            let (rows, after) = rest.split_at_mut((end - row) as usize * size);
            block.1.source().read(row - block.0, rows)?;
            (row, rest) = (end, after);
        }
        match row == wanted.end {
            true => Ok(()),
            false => Err(ColumnError::MissingRows { column: self.name(), first: row, end: wanted.end }.into()),
        }
    }

    fn is_cached(&self, first: u64, rows: u64) -> bool {
        // Rows of several blocks are read in any case.
        let block = self.blocks.get(self.blocks.partition_point(|block| end_of(block) <= first));
        let block = block.and_then(|block| Some((block.1.source(), first.checked_sub(block.0)?)));
        block.is_none_or(|(source, first)| source.is_cached(first, rows))
    }

    fn piece(&self, first: u64, rows: u64) -> Option<Memory<'_>> {
        let block = self.blocks.get(self.blocks.partition_point(|block| end_of(block) <= first))?;
        block.1.source().piece(first.checked_sub(block.0)?, rows)
    }

    fn shape(&self) -> Option<&[u64]> {
        Some(&self.shape)
    }

    fn identity(&self) -> Option<&str> {
        Some(&self.identity)
    }

    fn warning(&self) -> Option<String> {
        self.blocks.iter().find_map(|(_, block)| block.source().warning())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    /// Blocks of the rows 0 to 9, with the rows of these ranges.
    fn blocks(ranges: &[std::ops::Range<u64>]) -> Result<Blocks<'static>> {
        ranges.iter().try_fold(Blocks::new(Dtype::U16, &[5, 2], "ten"), |all, range| {
            all.block(range.start, range.clone().map(|row| row as u16).collect::<Vec<_>>())
        })
    }

    #[test]
    fn rows_are_read_from_the_blocks_that_have_them() {
        let all = blocks(&[6..7, 0..3, 4..4, 4..6]).unwrap();
        assert_eq!((all.rows(), all.shape(), all.identity()), (10, Some(&[5, 2][..]), Some("ten")));
        let has = |row: u64| row < 3 || (4..7).contains(&row);
        for first in 0..12 {
            for end in first..12 {
                let mut rows = vec![99u16; (end - first) as usize];
                match (all.read(first, bytemuck::cast_slice_mut(&mut rows)), (first..end).find(|row| !has(*row))) {
                    (Ok(()), None) => assert!(rows.iter().map(|row| u64::from(*row)).eq(first..end)),
                    (Err(Error::InvalidColumn(ColumnError::MissingRows { first, .. })), Some(missing)) => {
                        assert_eq!(first, missing);
                    }
                    (result, missing) => panic!("rows {first} to {end}: {result:?}, but {missing:?} is missing"),
                }
            }
        }
        assert!(all.read(0, &mut [0]).is_err(), "half a row");
    }

    #[test]
    fn blocks_that_do_not_fit_are_refused() {
        for (ranges, problem) in [
            (&[0..3, 2..4][..], "some of the rows 2 to 4 of a block are in another"),
            (&[2..4, 0..3], "some of the rows 0 to 3 of a block are in another"),
            (&[2..4, 2..3], "some of the rows 2 to 3 of a block are in another"),
            (&[0..9, 3..4], "some of the rows 3 to 4 of a block are in another"),
            (&[0..1, 8..11], "rows 8 to 11 of a block are beyond the 10 rows"),
        ] {
            let text = blocks(ranges).unwrap_err().to_string();
            assert!(text.starts_with(problem), "{text}");
        }
        let text = blocks(&[]).unwrap().block(0, vec![1.0f64]).unwrap_err().to_string();
        assert_eq!(text, "rows 0 to 1 of a block are of f64, but the input is of u16: convert them");
        assert!(blocks(&[]).unwrap().block(u64::MAX, vec![1u16]).is_err());
    }
}
