//! Datasets of which some rows lie in the memory of devices. What that memory is, devices know; here it is only where rows are.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::Dtype;
use crate::error::{Error, Result};

/// The rows of a dataset that lie in the memory of devices; all others are on the host.
#[allow(unnameable_types, reason = "hidden methods of public traits hand it on")]
pub struct Shards {
    dtype: Dtype,
    rows: u64,
    /// In the order of their rows, none empty.
    shards: Vec<Shard>,
    /// Whether the devices have what is to be there.
    state: AtomicU8,
    note: Option<String>,
}

/// Nobody has copied the rows there yet; a run does so now; they are there.
const EMPTY: u8 = 0;
const FILLING: u8 = 1;
const FULL: u8 = 2;

/// Some rows next to each other in the memory of one device.
pub(crate) struct Shard {
    /// The device as `--device` names it.
    pub(crate) device: String,
    pub(crate) rows: Range<u64>,
    pub(crate) memory: Box<dyn ShardMemory>,
}

/// Memory of a device. Its functions wait until they are done.
pub(crate) trait ShardMemory: Send + Sync {
    /// The memory as the device has it.
    fn memory(&self) -> &(dyn Any + Send + Sync);

    /// Copies bytes from `offset` on to the host.
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<()>;

    /// Copies bytes from the host to `offset` on.
    fn write(&self, offset: usize, from: &[u8]) -> Result<()>;

    /// Makes all of it zeros.
    fn zero(&self) -> Result<()>;
}

impl Shards {
    /// The shards of a dataset, in the order of their rows; if they are not `full`, a run has to copy the rows there. The note is for
    /// reports.
    pub(crate) fn new(dtype: Dtype, rows: u64, shards: Vec<Shard>, full: bool, note: Option<String>) -> Arc<Self> {
        let state = AtomicU8::new(if full { FULL } else { EMPTY });
        Arc::new(Shards { dtype, rows, shards, state, note })
    }

    /// Each shard.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter()
    }

    /// Whether all rows are on the host.
    pub(crate) fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// What a user may want to know about where the rows are.
    pub(crate) fn warning(&self) -> Option<String> {
        self.note.clone()
    }

    /// Rows on devices.
    pub(crate) fn rows_on_devices(&self) -> u64 {
        self.shards.iter().map(|shard| shard.rows.end - shard.rows.start).sum()
    }

    /// Among all rows that are on the host, the number of the first one that is not before `row`.
    pub(crate) fn host_row(&self, row: u64) -> u64 {
        let before = |shard: &Shard| shard.rows.end.min(row).saturating_sub(shard.rows.start);
        row - self.shards.iter().map(before).sum::<u64>()
    }

    /// Cuts rows into those on each device and those on the host, in order.
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

    /// The shard that all of these rows lie in, on a device that `is_it`.
    pub(crate) fn find(&self, rows: &Range<u64>, is_it: impl Fn(&str) -> bool) -> Option<&Shard> {
        self.shards.iter().find(|shard| {
            shard.rows.start <= rows.start && rows.end <= shard.rows.end && !rows.is_empty() && is_it(&shard.device)
        })
    }

    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.dtype.size()
    }

    /// Whether the devices have the rows.
    pub(crate) fn is_full(&self) -> bool {
        self.state.load(Ordering::Acquire) == FULL
    }

    /// Lends the shards to a run, which fills them if nobody has yet; `None` while another run does.
    pub(crate) fn begin_use(self: &Arc<Self>) -> Option<FillGuard> {
        let is_filling = match self.state.compare_exchange(EMPTY, FILLING, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => true,
            Err(FULL) => false,
            Err(_) => return None,
        };
        Some(FillGuard { shards: self.clone(), is_filling, filled: AtomicU64::new(0) })
    }

    /// Forgets what the devices have, so that the next run copies the rows again.
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
    /// Where a row begins, in bytes.
    pub(crate) fn offset(&self, row: u64, row_bytes: usize) -> usize {
        (row - self.rows.start) as usize * row_bytes
    }
}

/// The shards of an input in the hands of a run.
pub(crate) struct FillGuard {
    shards: Arc<Shards>,
    /// Whether this run copies the rows there.
    pub(crate) is_filling: bool,
    filled: AtomicU64,
}

impl FillGuard {
    /// Says that so many rows more are there.
    pub(crate) fn record_filled(&self, rows: u64) {
        self.filled.fetch_add(rows, Ordering::Relaxed);
    }
}

impl Drop for FillGuard {
    fn drop(&mut self) {
        if self.is_filling {
            let full = *self.filled.get_mut() == self.shards.rows_on_devices();
            self.shards.state.store(if full { FULL } else { EMPTY }, Ordering::Release);
        }
    }
}

/// The shards of a source or sink, checked: they are of so many rows of this dtype. Sources and sinks may come from outside.
pub(crate) fn whole_shards(shards: Option<&Arc<Shards>>, dtype: Dtype, rows: u64) -> Result<Option<&Arc<Shards>>> {
    match shards.filter(|shards| !shards.is_empty()) {
        Some(shards) if (shards.dtype, shards.rows) != (dtype, rows) => Err(Error::Job(format!(
            "a Source or Sink of {rows} rows of {dtype} has shards of {} rows of {}: it must say the same every time, and must not \
             pass on the shards of another one",
            shards.rows, shards.dtype
        ))),
        shards => Ok(shards),
    }
}

/// No memory, for tests.
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
        let shard = |device: &str, rows| Shard { device: device.into(), rows, memory: Box::new(Nowhere) };
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
        let first = shards.begin_use().unwrap();
        assert!(first.is_filling && shards.begin_use().is_none());
        first.record_filled(69);
        drop(first);
        let again = shards.begin_use().unwrap();
        assert!(again.is_filling);
        (0..7).for_each(|_| again.record_filled(10));
        drop(again);
        let [one, two] = [shards.begin_use().unwrap(), shards.begin_use().unwrap()];
        assert!(!one.is_filling && !two.is_filling);
    }
}
