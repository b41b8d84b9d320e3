//! Datasets, some rows of which are in device memory. This file only records where the rows are; what the memory
//! is, only the devices know.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::Dtype;
use crate::error::{ColumnError, Result};

/// The locations of the rows of a dataset that are in device memory. All other rows are on the host.
pub(crate) struct Shards {
    dtype: Dtype,
    rows: u64,
    /// Ordered by row; none is empty.
    shards: Vec<Shard>,
    /// Whether the devices hold the rows.
    state: AtomicU8,
    note: Option<String>,
}

/// The states: the rows have not been copied to the devices; a run is copying them; they are there.
const EMPTY: u8 = 0;
const FILLING: u8 = 1;
const FULL: u8 = 2;

/// A contiguous range of rows in the memory of one device.
pub(crate) struct Shard {
    /// The device, as `--device` names it.
    pub(crate) device: String,
    /// The rows that the memory has space for.
    pub(crate) rows: Range<u64>,
    /// Those of them that runs use there. A run that fills the shards copies whole tiles only, and only rows that it
    /// processes there, so the rest of a tile at an end of the shard is not there.
    held: [AtomicU64; 2],
    /// Several shards may lie in one memory.
    pub(crate) memory: Arc<dyn ShardMemory>,
    /// Where the first row begins in the memory, in bytes.
    begin: usize,
}

/// Memory of a device. Its methods block until the operation is complete.
pub(crate) trait ShardMemory: Send + Sync {
    /// Returns the memory in the type of the device.
    fn memory(&self) -> &(dyn Any + Send + Sync);

    /// Copies the bytes that start at `offset` to the host.
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<()>;

    /// Copies bytes from the host to `offset`.
    fn write(&self, offset: usize, from: &[u8]) -> Result<()>;

    /// Sets all bytes to zero.
    fn zero(&self) -> Result<()>;
}

impl Shards {
    /// Creates the shards of a dataset, ordered by row. If they are not `full`, a run has to copy the rows to the
    /// devices. The note is for reports.
    pub(crate) fn new(dtype: Dtype, rows: u64, shards: Vec<Shard>, full: bool, note: Option<String>) -> Arc<Self> {
        let state = AtomicU8::new(if full { FULL } else { EMPTY });
        Arc::new(Shards { dtype, rows, shards, state, note })
    }

    /// Returns an iterator over the shards.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter()
    }

    /// Returns whether all rows are on the host.
    pub(crate) fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// Returns a note for the user about where the rows are.
    pub(crate) fn warning(&self) -> Option<String> {
        self.note.clone()
    }

    /// Returns the number of rows on devices.
    pub(crate) fn rows_on_devices(&self) -> u64 {
        self.shards.iter().map(|shard| shard.rows.end - shard.rows.start).sum()
    }

    /// Returns whether devices hold some of the rows, and the host the others.
    pub(crate) fn are_divided(&self) -> bool {
        self.is_full() && self.rows_on_devices() < self.rows
    }

    /// Returns the index, among all rows on the host, of the first one at or after `row`.
    pub(crate) fn host_row(&self, row: u64) -> u64 {
        let before = |shard: &Shard| shard.rows.end.min(row).saturating_sub(shard.rows.start);
        row - self.shards.iter().map(before).sum::<u64>()
    }

    /// Splits rows into those on each device and those on the host, in order.
    pub(crate) fn parts(&self, rows: Range<u64>) -> Vec<(Range<u64>, Option<&Shard>)> {
        let mut parts = Vec::new();
        let mut next = rows.start;
        for shard in &self.shards {
            let (start, end) = (shard.rows.start.max(next), shard.rows.end.min(rows.end));
            if start < end {
                parts.extend((next < start).then_some((next..start, None)));
                parts.push((start..end, Some(shard)));
                next = end;
            }
        }
        parts.extend((next < rows.end).then_some((next..rows.end, None)));
        parts
    }

    /// Returns the shard that holds all of these rows, on a device that `is_it` accepts.
    pub(crate) fn find(&self, rows: &Range<u64>, is_it: impl Fn(&str) -> bool) -> Option<&Shard> {
        let behind = self.shards.partition_point(|shard| shard.rows.start <= rows.start);
        let shard = self.shards.get(behind.checked_sub(1)?)?;
        let held = shard.held();
        let has_all = held.start <= rows.start && rows.end <= held.end && !rows.is_empty();
        (has_all && is_it(&shard.device)).then_some(shard)
    }

    /// Returns the size of a row in bytes.
    pub(crate) fn row_bytes(&self) -> usize {
        self.dtype.size()
    }

    /// Returns whether the devices hold the rows.
    pub(crate) fn is_full(&self) -> bool {
        self.state.load(Ordering::Acquire) == FULL
    }

    /// Lends the shards to a run, which fills them if they are empty. Returns `None` while another run fills them.
    /// `tile` is the rows of these shards that a tile of the run has.
    pub(crate) fn begin_use(self: &Arc<Self>, tile: u64) -> Option<FillGuard> {
        let is_filling = match self.state.compare_exchange(EMPTY, FILLING, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => true,
            Err(FULL) => false,
            Err(_) => return None,
        };
        if is_filling {
            self.shards.iter().for_each(|shard| shard.hold_whole_tiles(tile, self.rows));
        }
        Some(FillGuard { shards: self.clone(), is_filling, filled: AtomicU64::new(0) })
    }

    /// Discards the rows on the devices, so that the next run copies them again.
    pub(crate) fn forget(&self) {
        self.state.store(EMPTY, Ordering::Release);
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shards = self.shards.iter().map(|shard| (&shard.device, &shard.rows));
        f.debug_map().entries(shards).finish()
    }
}

impl Shard {
    /// Creates a shard whose rows are in this memory, from the byte `begin` on.
    pub(crate) fn new(device: &str, rows: Range<u64>, (memory, begin): (Arc<dyn ShardMemory>, usize)) -> Shard {
        let held = [rows.start, rows.end].map(AtomicU64::new);
        Shard { device: device.into(), rows, held, memory, begin }
    }

    /// Returns the rows that runs use here.
    pub(crate) fn held(&self) -> Range<u64> {
        // They change only while one run alone uses the shards; the state orders this change before other runs.
        let [start, end] = [0, 1].map(|k: usize| self.held[k].load(Ordering::Relaxed));
        start..end
    }

    /// Restricts the rows in use to whole tiles. The last tile ends with the dataset, which has `total` rows.
    fn hold_whole_tiles(&self, tile: u64, total: u64) {
        let tile = tile.max(1);
        let end = if self.rows.end == total { total } else { self.rows.end / tile * tile };
        let start = self.rows.start.div_ceil(tile).saturating_mul(tile).min(end);
        self.held[0].store(start, Ordering::Relaxed);
        self.held[1].store(end, Ordering::Relaxed);
    }

    /// Restricts the rows in use to these. Only for the run that fills the shard.
    pub(crate) fn hold(&self, rows: Range<u64>) {
        let Range { start, end } = self.held();
        let start = rows.start.clamp(start, end);
        self.held[0].store(start, Ordering::Relaxed);
        self.held[1].store(rows.end.clamp(start, end), Ordering::Relaxed);
    }

    /// Returns the offset of a row in the memory, in bytes.
    pub(crate) fn offset(&self, row: u64, row_bytes: usize) -> usize {
        self.begin + (row - self.rows.start) as usize * row_bytes
    }
}

/// The shards of an input while a run uses them.
pub(crate) struct FillGuard {
    shards: Arc<Shards>,
    /// Whether this run copies the rows to the devices.
    pub(crate) is_filling: bool,
    filled: AtomicU64,
}

impl FillGuard {
    /// Records that this number of rows more has been copied.
    pub(crate) fn record_filled(&self, rows: u64) {
        self.filled.fetch_add(rows, Ordering::Relaxed);
    }
}

impl Drop for FillGuard {
    fn drop(&mut self) {
        if self.is_filling {
            let held = self.shards.iter().map(Shard::held).map(|held| held.end - held.start).sum::<u64>();
            // With tiles larger than the shards, they hold no rows: other tiles may fill them later.
            let full = held > 0 && *self.filled.get_mut() == held;
            self.shards.state.store(if full { FULL } else { EMPTY }, Ordering::Release);
        }
    }
}

/// Returns the shards of a source or sink after checking that they are of `rows` rows of `dtype`. Callers implement
/// sources and sinks, so their answers are not trusted.
pub(crate) fn whole_shards(shards: Option<&Arc<Shards>>, dtype: Dtype, rows: u64) -> Result<Option<&Arc<Shards>>> {
    match shards.filter(|shards| !shards.is_empty()) {
        Some(shards) if (shards.dtype, shards.rows) != (dtype, rows) => {
            let (dtype, own, own_rows) = (dtype.to_string(), shards.dtype.to_string(), shards.rows);
            Err(ColumnError::Shards { rows, dtype, own_rows, own }.into())
        }
        shards => Ok(shards),
    }
}

/// A shard without memory, for tests.
#[cfg(test)]
pub(crate) struct Nowhere;

#[cfg(test)]
impl ShardMemory for Nowhere {
    fn memory(&self) -> &(dyn Any + Send + Sync) {
        &()
    }

    fn read(&self, _: usize, _: &mut [u8]) -> Result<()> {
        Ok(())
    }

    fn write(&self, _: usize, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn zero(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards(full: bool) -> Arc<Shards> {
        let shard = |device: &str, rows| Shard::new(device, rows, (Arc::new(Nowhere), 0));
        Shards::new(Dtype::F32, 100, vec![shard("a", 10..30), shard("b", 30..40), shard("a", 60..100)], full, None)
    }

    #[test]
    fn parts_are_all_rows_in_order() {
        let shards = shards(true);
        for (start, end) in (0..100).flat_map(|start| (start..=100).map(move |end| (start, end))) {
            let parts = shards.parts(start..end);
            let mut next = start;
            for (rows, shard) in &parts {
                assert!(rows.start == next && !rows.is_empty());
                assert!(rows.clone().all(|row| {
                    let home = shards.find(&(row..row + 1), |_| true).map(|shard| &shard.rows);
                    home == shard.map(|shard| &shard.rows)
                }));
                next = rows.end;
            }
            assert_eq!(next, end);
        }
        assert_eq!(
            (shards.host_row(5), shards.host_row(35), shards.host_row(50), shards.host_row(100)),
            (5, 10, 20, 30)
        );
        assert!(shards.find(&(25..35), |_| true).is_none() && shards.find(&(30..40), |device| device == "a").is_none());
    }

    #[test]
    fn one_run_fills_and_only_all_rows_are_full() {
        let shards = shards(false);
        let first = shards.begin_use(1).unwrap();
        assert!(first.is_filling && shards.begin_use(1).is_none());
        first.record_filled(69);
        drop(first);
        let again = shards.begin_use(1).unwrap();
        assert!(again.is_filling);
        (0..7).for_each(|_| again.record_filled(10));
        drop(again);
        let [one, two] = [shards.begin_use(1).unwrap(), shards.begin_use(1).unwrap()];
        assert!(!one.is_filling && !two.is_filling);
    }

    #[test]
    fn parts_of_tiles_at_the_ends_of_shards_stay_on_the_host() {
        let shards = shards(false);
        let held = || shards.iter().map(Shard::held).collect::<Vec<_>>();
        let first = shards.begin_use(7).unwrap();
        // The last shard ends with the dataset.
        assert_eq!(held(), [14..28, 35..35, 63..100]);
        first.record_filled(14 + 37);
        drop(first);
        assert!(!shards.begin_use(1).unwrap().is_filling);
        assert_eq!(held(), [14..28, 35..35, 63..100], "other tiles do not change what is there");
        assert!(shards.find(&(14..28), |_| true).is_some() && shards.find(&(13..28), |_| true).is_none());
        assert!(shards.find(&(30..31), |_| true).is_none());
        shards.forget();
        assert!(shards.begin_use(10).unwrap().is_filling);
        assert_eq!(held(), [10..30, 30..40, 60..100]);
    }
}
