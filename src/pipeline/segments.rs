//! Columns of which some rows lie in the memory of devices, and how the rows of a job are cut by that.
//!
//! Whose rows are whose is a matter of speed only: every chunk is looked at by itself ([`Sharded::on`]), and rows that do not lie on the
//! device that works on them come from the source and go to the sink, as all others.

use std::cmp::Reverse;
use std::sync::Arc;

use super::queue::Segment;
use crate::data::{Chunk, Shards};
use crate::device::Device;

/// A column of a job of which some rows lie on devices.
#[derive(Clone)]
pub(crate) struct Sharded {
    shards: Arc<Shards>,
    /// Elements that make a row of the job.
    elements: u64,
    /// Whether this run copies the rows there first.
    pub(crate) fills: bool,
}

impl Sharded {
    /// A column; `None` if no rows of it can be used where they lie, as kernels want columns to begin at multiples of eight bytes.
    pub(crate) fn new(shards: &Arc<Shards>, elements: u64, tile_rows: usize, fills: bool) -> Option<Self> {
        let tile_bytes = tile_rows as u64 * elements * shards.row_bytes() as u64;
        tile_bytes.is_multiple_of(8).then(|| Sharded { shards: shards.clone(), elements, fills })
    }

    /// Whether both are in the same memory.
    pub(crate) fn is_same(&self, other: &Sharded) -> bool {
        Arc::ptr_eq(&self.shards, &other.shards)
    }

    /// Whether it is of these.
    pub(crate) fn is_of(&self, shards: &Arc<Shards>) -> bool {
        Arc::ptr_eq(&self.shards, shards)
    }

    /// Where the rows of a chunk begin in the memory of this device, if all of them lie there.
    pub(super) fn on<D: Device>(&self, device: &D, chunk: &Chunk) -> Option<(&D::Memory, usize)> {
        let rows = chunk.times(self.elements).rows();
        let shard = self.shards.find(&rows, |id| id == device.info().id)?;
        Some((shard.memory.memory().downcast_ref()?, shard.offset(rows.start, self.shards.row_bytes())))
    }

    /// The elements of a chunk.
    pub(super) fn elements_of(&self, chunk: &Chunk) -> u64 {
        chunk.len() as u64 * self.elements
    }

    /// Whether all rows of the segment lie on this device.
    fn lies_on(&self, segment: &Segment, device: &str) -> bool {
        let rows = segment.rows.start * self.elements..segment.rows.end * self.elements;
        self.shards.find(&rows, |id| id == device).is_some()
    }

    /// Whether no lane works on rows that do not lie on its device.
    pub(crate) fn stays_home(&self, segments: &[Segment], devices: &[&str]) -> bool {
        segments.iter().all(|segment| segment.owner.is_some_and(|owner| self.lies_on(segment, devices[owner])))
    }
}

/// Cuts the rows of a job where shards of its columns begin or end, at whole tiles. Each segment is for the device that has most of
/// its bytes; `in_order`, all are for everybody.
pub(crate) fn segments(
    columns: &[Option<Sharded>],
    rows: u64,
    tile_rows: usize,
    devices: &[&str],
    in_order: bool,
) -> Vec<Segment> {
    let columns: Vec<&Sharded> = columns.iter().flatten().collect();
    let ends = columns.iter().flat_map(|column| {
        let ends = column.shards.iter().flat_map(|shard| [shard.rows.start, shard.rows.end]);
        ends.map(|end| end.div_ceil(column.elements).next_multiple_of(tile_rows as u64).min(rows))
    });
    let mut borders: Vec<u64> = ends.chain([0, rows]).collect();
    borders.sort_unstable();
    borders.dedup();
    let segment = |rows: &[u64]| {
        let mut segment = Segment { rows: rows[0]..rows[1], owner: None };
        let bytes = |device: &str| -> u64 {
            let here = columns.iter().filter(|column| column.lies_on(&segment, device));
            here.map(|column| column.elements * column.shards.row_bytes() as u64).sum()
        };
        let each = devices.iter().enumerate().map(|(number, device)| (bytes(device), Reverse(number)));
        segment.owner = each.max().filter(|(bytes, _)| *bytes > 0 && !in_order).map(|(_, Reverse(number))| number);
        segment
    };
    borders.windows(2).map(segment).collect()
}
