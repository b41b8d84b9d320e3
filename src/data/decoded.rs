//! Datasets that are decoded from the first row of a grain on, such as the columns of Parquet files.
//!
//! A [`Cursor`](Decode::Cursor) decodes the rows of a grain in order. It waits between two reads, with the last rows
//! that it has decoded. The next read that begins where it stands, or among these rows, goes on with it, because the
//! chunks of a job that reads neighbours overlap. A read that begins elsewhere takes the last cursor before that row of
//! the grain, or begins a new one, and skips rows. So every read gives the same rows, and a worker that reads a grain
//! from its begin to its end decodes it once.

use super::Dtype;
use super::sink::wanted_rows;
use crate::error::Result;
use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;

/// A dataset in grains.
pub(super) trait Decode: Send + Sync {
    /// Decodes the rows of a grain, in order.
    type Cursor: Send;

    fn dtype(&self) -> Dtype;

    fn path(&self) -> &Path;

    /// Returns a cursor at the first row of a grain.
    fn begin(&self, grain: usize) -> Result<Self::Cursor>;

    /// Moves a cursor at this row of its grain by so many rows, which the grain has.
    fn skip(&self, cursor: &mut Self::Cursor, row: u64, rows: u64) -> Result<()>;

    /// Fills `dst` with the next rows, which the grain has.
    fn decode(&self, cursor: &mut Self::Cursor, dst: &mut [u8]) -> Result<()>;

    /// Returns how many bytes of memory a cursor has, at most, if the grains are alike.
    fn cursor_memory(&self) -> u64;

    /// Moves a cursor as [`skip`](Decode::skip) does, by decoding the rows.
    fn decode_past(&self, cursor: &mut Self::Cursor, mut rows: u64) -> Result<()> {
        /// Rows that are decoded at once.
        const STEP: u64 = 4096;
        let size = self.dtype().size();
        let mut step = vec![0; STEP.min(rows) as usize * size];
        while rows > 0 {
            let own = rows.min(STEP);
            self.decode(cursor, &mut step[..own as usize * size])?;
            rows -= own;
        }
        Ok(())
    }
}

/// The most rows that wait with a cursor. The widest moving window has half of them.
const KEPT: u64 = 512;

/// The least number of cursors that may wait, if there are few cores and many workers.
const LEAST_WAITING: usize = 32;

/// A cursor that no thread uses.
struct Waiting<C> {
    /// The row at which it stands.
    row: u64,
    cursor: C,
    /// The rows before, of the same grain.
    before: Vec<u8>,
}

/// A dataset that is decoded while it is read.
pub(super) struct Decoded<D: Decode> {
    pub(super) decoder: D,
    /// The first row of each grain.
    pub(super) grains: Vec<u64>,
    pub(super) rows: u64,
    /// In the order in which they began to wait.
    waiting: Mutex<VecDeque<Waiting<D::Cursor>>>,
    /// The most cursors that wait. A worker needs the one that stands where its chunk ended; those that nobody needs
    /// wait for the longest time.
    most: usize,
}

impl<D: Decode> Decoded<D> {
    /// A dataset whose grains have so many rows each.
    pub(super) fn new(decoder: D, grain_rows: impl IntoIterator<Item = u64>) -> Decoded<D> {
        let (mut rows, mut grains) = (0u64, Vec::new());
        for own in grain_rows.into_iter().filter(|rows| *rows > 0) {
            grains.push(rows);
            rows = rows.saturating_add(own);
        }
        let most = (2 * available_parallelism().map_or(1, usize::from)).max(LEAST_WAITING);
        Decoded { decoder, grains, rows, waiting: Mutex::default(), most }
    }

    /// See [`Source::decode_memory`](super::Source::decode_memory).
    pub(super) fn memory(&self) -> u64 {
        let kept = KEPT.min(self.rows) * self.decoder.dtype().size() as u64;
        // Those that wait, and one for each core.
        self.decoder.cursor_memory().saturating_add(kept).saturating_mul((self.most + self.most / 2) as u64)
    }

    /// Forgets the cursors that wait: those that stand before rows that nobody reads would wait for ever.
    pub(super) fn forget(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        drop(waiting);
    }

    /// Returns the rows of a grain.
    fn grain(&self, grain: usize) -> Range<u64> {
        self.grains[grain]..self.grains.get(grain + 1).copied().unwrap_or(self.rows)
    }

    /// Returns a cursor that stands at this row of a grain, or behind it and has the rows from there.
    fn cursor(&self, grain: usize, row: u64) -> Result<Waiting<D::Cursor>> {
        let (begin, size) = (self.grains[grain], self.decoder.dtype().size());
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let has_row = |own: &Waiting<D::Cursor>| own.row - (own.before.len() / size) as u64 <= row && row <= own.row;
        // At the begin of a grain, the cursor of the grain before has none of its rows.
        let is_here = |own: &Waiting<D::Cursor>| has_row(own) && own.row >= begin;
        let found = waiting.iter().position(|own| own.row == row && is_here(own));
        let before = || {
            let before = waiting.iter().enumerate().filter(|(_, own)| (begin + 1..row).contains(&own.row));
            before.max_by_key(|(_, own)| own.row).map(|(place, _)| place)
        };
        let found = found.or_else(|| waiting.iter().position(is_here)).or_else(before);
        let found = found.and_then(|place| waiting.remove(place));
        drop(waiting);
        let (at, mut cursor) = match found {
            Some(found) if found.row >= row => return Ok(found),
            Some(found) => (found.row, found.cursor),
            None => (begin, self.decoder.begin(grain)?),
        };
        if at < row {
            self.decoder.skip(&mut cursor, at - begin, row - at)?;
        }
        Ok(Waiting { row, cursor, before: vec![] })
    }

    /// Fills `dst` with rows of a grain, from `row` on.
    fn read_grain(&self, grain: usize, row: u64, dst: &mut [u8]) -> Result<()> {
        let size = self.decoder.dtype().size();
        let Waiting { row: at, mut cursor, mut before } = self.cursor(grain, row)?;
        let kept = &before[before.len() - (at - row) as usize * size..];
        let (known, next) = dst.split_at_mut(kept.len().min(dst.len()));
        known.copy_from_slice(&kept[..known.len()]);
        self.decoder.decode(&mut cursor, next)?;
        let end = at + (next.len() / size) as u64;
        if end < self.grain(grain).end {
            let room = KEPT as usize * size;
            before.extend_from_slice(&next[next.len().saturating_sub(room)..]);
            before.drain(..before.len().saturating_sub(room));
            self.keep(Waiting { row: end, cursor, before });
        }
        Ok(())
    }

    fn keep(&self, cursor: Waiting<D::Cursor>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(cursor);
        let oldest = if waiting.len() > self.most { waiting.pop_front() } else { None };
        drop(waiting);
        drop(oldest);
    }

    /// See [`Source::read`](super::Source::read).
    pub(super) fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        let (size, own_rows) = (self.decoder.dtype().size(), self.rows);
        let wanted = wanted_rows(first, dst, size, own_rows, || self.decoder.path().display().to_string())?;
        let (mut row, mut rest) = (wanted.start, dst);
        while !rest.is_empty() {
            let grain = self.grains.partition_point(|start| *start <= row) - 1;
            let end = self.grain(grain).end.min(wanted.end);
            let (rows, after) = rest.split_at_mut((end - row) as usize * size);
            self.read_grain(grain, row, rows)?;
            (row, rest) = (end, after);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The numbers of the rows, in grains. Counts the rows that are decoded and skipped.
    #[derive(Default)]
    struct Numbers {
        firsts: Vec<u64>,
        decoded: AtomicU64,
        skipped: AtomicU64,
    }

    impl Decode for Numbers {
        type Cursor = u64;

        fn dtype(&self) -> Dtype {
            Dtype::U64
        }
        fn path(&self) -> &Path {
            Path::new("numbers")
        }
        fn begin(&self, grain: usize) -> Result<u64> {
            Ok(self.firsts[grain])
        }
        fn skip(&self, cursor: &mut u64, row: u64, rows: u64) -> Result<()> {
            let grain = self.firsts.partition_point(|first| first <= cursor) - 1;
            assert_eq!(*cursor, self.firsts[grain] + row);
            self.skipped.fetch_add(rows, Ordering::Relaxed);
            *cursor += rows;
            Ok(())
        }
        fn cursor_memory(&self) -> u64 {
            8
        }
        fn decode(&self, cursor: &mut u64, dst: &mut [u8]) -> Result<()> {
            for row in dst.chunks_exact_mut(8) {
                row.copy_from_slice(&cursor.to_ne_bytes());
                *cursor += 1;
            }
            self.decoded.fetch_add((dst.len() / 8) as u64, Ordering::Relaxed);
            Ok(())
        }
    }

    fn numbers(grain_rows: &[u64]) -> Decoded<Numbers> {
        let firsts = grain_rows.iter().filter(|rows| **rows > 0).scan(0, |row, own| {
            *row += own;
            Some(*row - own)
        });
        Decoded::new(Numbers { firsts: firsts.collect(), ..Numbers::default() }, grain_rows.iter().copied())
    }

    proptest! {
        /// Any read gives the rows that it asks for, whatever was read before.
        #[test]
        fn a_read_may_begin_anywhere(
            grain_rows in prop::collection::vec(0u64..50, 0..10),
            reads in prop::collection::vec((any::<u64>(), any::<u64>()), 0..40),
        ) {
            let source = numbers(&grain_rows);
            prop_assert_eq!(source.rows, grain_rows.iter().sum::<u64>());
            for (first, len) in reads {
                let first = first % (source.rows + 1);
                let len = len % (source.rows - first + 1);
                let mut rows = vec![0u64; len as usize];
                source.read(first, bytemuck::cast_slice_mut(&mut rows))?;
                prop_assert!(rows.iter().copied().eq(first..first + len));
            }
        }
    }

    #[test]
    fn rows_that_are_read_in_order_are_decoded_once() {
        let source = numbers(&[100, 0, 30, 70]);
        let mut rows = [0u64; 8];
        // Two workers, each in a grain of its own.
        for (a, b) in (0..100).step_by(5).zip((130..200).step_by(5)) {
            source.read(a, bytemuck::cast_slice_mut(&mut rows[..5])).unwrap();
            source.read(b, bytemuck::cast_slice_mut(&mut rows[..5])).unwrap();
        }
        assert_eq!(source.decoder.skipped.load(Ordering::Relaxed), 0);
        assert!(source.waiting.lock().unwrap().len() <= 1, "cursors at the end of a grain are of no use");
    }

    #[test]
    fn rows_that_two_reads_share_are_decoded_once() {
        for (len, step) in [(50, 40), (1000, 700), (600, 88)] {
            let source = numbers(&[10_000]);
            for first in (0..9000).step_by(step) {
                let mut rows = vec![0u64; len];
                source.read(first as u64, bytemuck::cast_slice_mut(&mut rows)).unwrap();
                assert!(rows.iter().copied().eq(first as u64..(first + len) as u64));
            }
            assert_eq!(source.decoder.skipped.load(Ordering::Relaxed), 0, "{len} rows, {step} rows later");
        }
    }

    #[test]
    fn rows_that_are_left_out_are_skipped_from_where_a_cursor_stands() {
        let source = numbers(&[100, 100]);
        let mut rows = [0u64; 10];
        for first in [0, 50, 90, 100, 180, 130] {
            source.read(first, bytemuck::cast_slice_mut(&mut rows)).unwrap();
            assert!(rows.iter().copied().eq(first..first + 10));
        }
        // The last read begins the second grain again.
        assert_eq!(source.decoder.skipped.load(Ordering::Relaxed), 40 + 30 + 70 + 30);
    }

    #[test]
    fn no_more_cursors_wait_than_workers_need() {
        let source = numbers(&[10_000]);
        for first in (0..1000).rev().map(|number| 10 * number) {
            source.read(first, &mut [0; 8]).unwrap();
        }
        assert_eq!(source.waiting.lock().unwrap().len(), source.most);
        let beyond = source.read(9_999, &mut [0; 16]).unwrap_err().to_string();
        assert!(beyond.contains("10000"), "{beyond}");
    }
}
