//! Sharded columns, of which some rows are resident on devices, and the segments of rows that follow from them.
//!
//! Segments affect only the speed of a run, not its results. Every chunk is checked separately ([`Sharded::on`]):
//! rows that are not resident on the device that processes them are read from the source and written to the sink,
//! like all others.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::queue::Segment;
use crate::data::{Chunk, Shard, Shards};
use crate::device::Device;
use crate::device::kernel::Halo;
use crate::error::Result;

/// A column of a job of which some rows are resident on devices.
#[derive(Clone)]
pub(crate) struct Sharded {
    shards: Arc<Shards>,
    /// Elements per row of the job.
    elements: u64,
    /// The rows around those of a chunk that the kernel reads, too, and the rows of the job.
    halo: (Halo, u64),
    /// Whether this run copies the rows to the devices.
    pub(crate) is_filling: bool,
}

impl Sharded {
    /// Creates a sharded column. Returns `None` if its rows cannot be used in place, because columns of a kernel must
    /// begin at a multiple of eight bytes.
    pub(crate) fn new(shards: &Arc<Shards>, elements: u64, tile_rows: usize, is_filling: bool) -> Option<Self> {
        let tile_bytes = tile_rows as u64 * elements * shards.row_bytes() as u64;
        let halo = (Halo::default(), 0);
        tile_bytes.is_multiple_of(8).then(|| Sharded { shards: shards.clone(), elements, halo, is_filling })
    }

    /// Returns the same column with the halo of an input of a job of so many rows.
    pub(crate) fn with_halo(self, halo: Halo, total_rows: u64) -> Self {
        Sharded { halo: (halo, total_rows), ..self }
    }

    /// Returns the elements that a kernel reads for rows of the job.
    fn window(&self, rows: &Range<u64>) -> Range<u64> {
        let (halo, total_rows) = self.halo;
        let window = halo.window(rows, total_rows);
        window.start * self.elements..window.end * self.elements
    }

    /// Returns whether devices hold some of the rows, and the host the others.
    pub(crate) fn is_divided(&self) -> bool {
        self.shards.are_divided()
    }

    /// Returns whether both columns use the same shards.
    pub(crate) fn is_same(&self, other: &Sharded) -> bool {
        Arc::ptr_eq(&self.shards, &other.shards)
    }

    /// Returns the shard of this device that holds all rows of a chunk and of its halo, and the offset of the first row
    /// of the chunk; `None` unless all of them are resident there.
    fn shard(&self, device: &str, chunk: &Chunk) -> Option<(&Shard, usize)> {
        let shard = self.shards.find(&self.window(&chunk.rows()), |id| id == device)?;
        Some((shard, shard.offset(chunk.rows().start * self.elements, self.shards.row_bytes())))
    }

    /// Returns where the rows of a chunk begin in the memory of this device; `None` unless all of them are resident
    /// there.
    pub(super) fn on<D: Device>(&self, device: &D, chunk: &Chunk) -> Option<(&D::Memory, usize)> {
        let (shard, offset) = self.shard(&device.info().id, chunk)?;
        Some((shard.memory.memory().downcast_ref()?, offset))
    }

    /// Reads rows of a chunk from the memory of this device, from `first_row` of the job on; `None` unless all rows of
    /// the chunk are resident there.
    pub(super) fn read(&self, device: &str, chunk: &Chunk, first_row: u64, to: &mut [u8]) -> Option<Result<()>> {
        let (shard, offset) = self.shard(device, chunk)?;
        Some(shard.memory.read(offset + (first_row - chunk.rows().start) as usize * self.row_bytes(), to))
    }

    /// Returns the bytes per row of the job.
    pub(super) fn row_bytes(&self) -> usize {
        self.elements as usize * self.shards.row_bytes()
    }

    /// Returns whether all rows of the segment, and of its halo, are resident on this device.
    fn lies_on(&self, segment: &Segment, device: &str) -> bool {
        self.shards.find(&self.window(&segment.rows), |id| id == device).is_some()
    }

    /// Returns whether some rows are resident on a device other than the one that processes them. Segments are in the
    /// order of their rows.
    pub(crate) fn goes_away(&self, segments: &[Segment], devices: &[&str]) -> bool {
        self.shards.iter().filter(|shard| !shard.held().is_empty()).any(|shard| {
            let home = devices.iter().position(|device| *device == shard.device);
            let held = shard.held();
            let (start, end) = (held.start / self.elements, held.end.div_ceil(self.elements));
            // There may be thousands of both.
            let first = segments.partition_point(|segment| segment.rows.end <= start);
            let mut its = segments[first..].iter().take_while(|segment| segment.rows.start < end);
            // A segment without an owner belongs to the device if there is only one.
            its.any(|segment| segment.owner.or((devices.len() == 1).then_some(0)) != home)
        })
    }

    /// Restricts the rows that this run copies to devices, where they stay, to those that it processes there. These are
    /// contiguous in each shard: only the segments at its ends may have another owner.
    pub(crate) fn hold_what_is_processed(&self, segments: &[Segment], devices: &[&str]) {
        for shard in self.shards.iter().filter(|_| self.is_filling) {
            // Without its device, the run does not fill all shards anyway.
            let Some(home) = devices.iter().position(|device| *device == shard.device) else { continue };
            let held = shard.held();
            let (start, end) = (held.start / self.elements, held.end.div_ceil(self.elements));
            let first = segments.partition_point(|segment| segment.rows.end <= start);
            let there = segments[first..].iter().take_while(|segment| segment.rows.start < end);
            let mut own = there.filter(|segment| segment.owner == Some(home)).map(|segment| &segment.rows);
            let rows = own.next().map_or(start..start, |rows| rows.start..own.last().unwrap_or(rows).end);
            shard.hold(rows.start * self.elements..rows.end * self.elements);
        }
    }

    /// Returns whether every segment is resident on the device that processes it.
    pub(crate) fn stays_home(&self, segments: &[Segment], devices: &[&str]) -> bool {
        segments.iter().all(|segment| segment.owner.is_some_and(|owner| self.lies_on(segment, devices[owner])))
    }
}

/// Divides the rows of a job into segments where shards of its columns begin or end, at whole tiles. The owner of a
/// segment is the device that holds most of its bytes. If `in_order`, no segment has an owner.
pub(crate) fn segments(
    columns: &[Option<&Sharded>],
    rows: u64,
    tile_rows: usize,
    devices: &[&str],
    in_order: bool,
) -> Vec<Segment> {
    let are_all = columns.iter().all(|column| column.is_some_and(|column| !column.is_filling));
    let columns: Vec<&Sharded> = columns.iter().copied().flatten().collect();
    let tile = tile_rows as u64;
    let ends = columns.iter().flat_map(|column| {
        let elements = column.elements;
        let Halo { before, after } = column.halo.0;
        let ends = column.shards.iter().map(Shard::held).flat_map(move |held| {
            // Rows whose halo goes beyond the end of a shard are a separate segment.
            let [before, after] = [before as u64 * elements, after as u64 * elements];
            [held.start, held.start.saturating_add(before), held.end, held.end.saturating_sub(after)]
        });
        // A tile on both sides of the end of a shard is a separate segment.
        ends.filter(move |end| *end < rows * elements).flat_map(move |end| {
            [end / elements / tile * tile, end.div_ceil(elements).next_multiple_of(tile).min(rows)]
        })
    });
    let mut borders: Vec<u64> = ends.chain([0, rows]).collect();
    borders.sort_unstable();
    borders.dedup();
    let segment = |rows: &[u64]| {
        let mut segment = Segment { rows: rows[0]..rows[1], owner: None, resident_on: None };
        let bytes = |device: &str| -> u64 {
            let here = columns.iter().filter(|column| column.lies_on(&segment, device));
            here.map(|column| column.elements * column.shards.row_bytes() as u64).sum()
        };
        let each = devices.iter().enumerate().map(|(number, device)| (bytes(device), Reverse(number)));
        let home = each.max().filter(|(bytes, _)| *bytes > 0).map(|(_, Reverse(number))| number);
        let are_there = |home: &usize| columns.iter().all(|column| column.lies_on(&segment, devices[*home]));
        segment.resident_on = home.filter(|home| are_all && are_there(home));
        segment.owner = home.filter(|_| !in_order);
        segment
    };
    borders.windows(2).map(segment).collect()
}

/// Cuts segments so that each tile of `tile_rows` has one owner: the device that owns most of its rows. Devices claim
/// whole tiles of products.
pub(crate) fn in_tiles(segments: &[Segment], tile_rows: u64) -> Vec<Segment> {
    let parts = segments.iter().flat_map(|segment| {
        // Its rows in the tile that it begins in, in whole tiles, and in the tile that it ends in.
        let Range { start, end } = segment.rows;
        let mut ends =
            [start, start.next_multiple_of(tile_rows).min(end), (end / tile_rows * tile_rows).max(start), end];
        ends.sort_unstable();
        let part = |k: usize| Segment { rows: ends[k]..ends[k + 1], ..segment.clone() };
        (0..3).map(part).collect::<Vec<_>>()
    });
    let mut parts: Vec<Segment> = parts.filter(|part| !part.rows.is_empty()).collect();
    let are_of_one =
        |before: &Segment, next: &Segment| (before.rows.end - 1) / tile_rows == next.rows.start / tile_rows;
    for tile in parts.chunk_by_mut(are_of_one) {
        let mut rows = BTreeMap::new();
        for part in tile.iter() {
            part.owner.iter().for_each(|owner| *rows.entry(*owner).or_insert(0) += part.rows.end - part.rows.start);
        }
        let most = rows.into_iter().max_by_key(|(owner, rows)| (*rows, Reverse(*owner)));
        tile.iter_mut().for_each(|part| part.owner = most.map(|(owner, _)| owner));
    }
    // Segments stay apart: rows that a run copies to a device end where one does.
    let ends = |row: u64| segments.binary_search_by_key(&row, |segment| segment.rows.end).is_ok();
    parts.dedup_by(|next, before| {
        let goes_on = before.owner == next.owner && !ends(before.rows.end);
        if goes_on {
            before.rows.end = next.rows.end;
        }
        goes_on
    });
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Dtype, Nowhere};
    use proptest::prelude::*;

    fn column(dtype: Dtype, rows: u64, elements: u64, shards: &[(&str, std::ops::Range<u64>)]) -> Option<Sharded> {
        let shard =
            |(device, rows): &(&str, std::ops::Range<u64>)| Shard::new(device, rows.clone(), (Arc::new(Nowhere), 0));
        let shards = Shards::new(dtype, rows * elements, shards.iter().map(shard).collect(), true, None);
        Sharded::new(&shards, elements, 1000, false)
    }

    fn segments_of(columns: &[Option<Sharded>], rows: u64, in_order: bool) -> Vec<Segment> {
        let columns: Vec<_> = columns.iter().map(Option::as_ref).collect();
        segments(&columns, rows, 1000, &["a", "b"], in_order)
    }

    fn cut(columns: &[Option<Sharded>], rows: u64, in_order: bool) -> Vec<(u64, u64, Option<usize>)> {
        let segments = segments_of(columns, rows, in_order);
        segments.iter().map(|segment| (segment.rows.start, segment.rows.end, segment.owner)).collect()
    }

    #[test]
    fn rows_go_to_the_device_that_has_most_of_them() {
        let small = column(Dtype::F32, 9500, 1, &[("a", 0..3000), ("b", 5000..9500)]);
        let large = column(Dtype::F64, 9500, 1, &[("b", 2000..5000)]);
        let columns = [small, None, large];
        let cuts = [(0, 2000, Some(0)), (2000, 3000, Some(1)), (3000, 5000, Some(1)), (5000, 9500, Some(1))];
        assert_eq!(cut(&columns, 9500, false), cuts);
        assert_eq!(cut(&columns, 9500, true), cuts.map(|(start, end, _)| (start, end, None)));
        assert_eq!(cut(&[None, None], 9500, false), [(0, 9500, None)]);
        let segments = segments_of(&columns, 9500, false);
        let [Some(small), None, Some(large)] = &columns else { unreachable!() };
        assert!(small.goes_away(&segments, &["a", "b"]) && !large.goes_away(&segments, &["a", "b"]));
        assert!(
            !small.stays_home(&segments, &["a", "b"]) && segments.iter().all(|segment| segment.resident_on.is_none())
        );
    }

    #[test]
    fn a_tile_on_both_sides_of_an_end_is_for_everybody() {
        // Three elements a row: the ends are rows 1365⅓ and 2730⅔.
        let columns = [column(Dtype::F32, 5000, 3, &[("a", 0..4096), ("b", 8192..15000)])];
        let cuts = [(0, 1000, Some(0)), (1000, 2000, None), (2000, 3000, None), (3000, 5000, Some(1))];
        assert_eq!(cut(&columns, 5000, false), cuts);
        for in_order in [false, true] {
            let resident_on = segments_of(&columns, 5000, in_order).into_iter().map(|segment| segment.resident_on);
            assert_eq!(resident_on.collect::<Vec<_>>(), [Some(0), None, None, Some(1)]);
        }
    }

    #[test]
    fn tiles_that_begin_at_odd_bytes_are_not_used_in_place() {
        let shards = Shards::new(Dtype::F32, 3003, Vec::new(), true, None);
        assert!(Sharded::new(&shards, 1, 1000, false).is_some());
        assert!(Sharded::new(&shards, 1, 1001, false).is_none() && Sharded::new(&shards, 3, 1001, false).is_none());
        assert!(Sharded::new(&shards, 2, 1001, false).is_some());
    }

    proptest! {
        #[test]
        fn a_tile_has_one_owner(
            lengths in prop::collection::vec((1u64..40, prop::option::of((0usize..3, any::<bool>()))), 1..20),
            first in 0u64..30, tile in 1u64..20,
        ) {
            let mut end = first;
            let segments: Vec<Segment> = lengths.iter().map(|(length, on)| {
                let rows = end..end + length;
                end = rows.end;
                let resident_on = on.filter(|(_, is_resident)| *is_resident).map(|(owner, _)| owner);
                Segment { rows, owner: on.map(|(owner, _)| owner), resident_on }
            }).collect();
            let cut = in_tiles(&segments, tile);
            let of = |segments: &[Segment], row: u64| {
                segments.iter().find(|segment| segment.rows.contains(&row)).cloned().unwrap()
            };
            let follow = cut.windows(2).all(|pair| pair[0].rows.end == pair[1].rows.start);
            prop_assert!(follow && cut[0].rows.start == first && cut[cut.len() - 1].rows.end == end);
            for row in first..end {
                let own = (row / tile * tile).max(first)..(row / tile * tile + tile).min(end);
                let is_of = |row: u64, owner: usize| of(&segments, row).owner == Some(owner);
                let count = |owner: usize| own.clone().filter(|row| is_of(*row, owner)).count();
                let counts = [0, 1, 2].map(count);
                let owner = of(&cut, row).owner;
                prop_assert_eq!(owner.map_or(0, |owner| counts[owner]), *counts.iter().max().unwrap());
                prop_assert_eq!(of(&cut, row).resident_on, of(&segments, row).resident_on);
            }
        }
    }

    #[test]
    fn a_run_fills_what_it_processes_there() {
        let columns = [column(Dtype::F32, 40, 10, &[("a", 0..150), ("b", 150..290), ("a", 290..330)])];
        let segments = in_tiles(&segments(&[columns[0].as_ref()], 40, 1, &["a", "b"], false), 10);
        let held =
            |column: &Option<Sharded>| column.iter().flat_map(|own| own.shards.iter().map(Shard::held)).collect();
        columns.iter().flatten().for_each(|own| own.hold_what_is_processed(&segments, &["a", "b"]));
        let all: Vec<_> = held(&columns[0]);
        assert_eq!(all, [0..150, 150..290, 290..330], "it does not fill them");
        let columns = columns.map(|own| own.map(|own| Sharded { is_filling: true, ..own }));
        // Rows 10 to 20 are of both, as many, and 20 to 30 of `b` but for one; `c` is not in the run.
        columns.iter().flatten().for_each(|own| own.hold_what_is_processed(&segments, &["a", "c"]));
        columns.iter().flatten().for_each(|own| own.hold_what_is_processed(&segments, &["a", "b"]));
        let own: Vec<_> = held(&columns[0]);
        assert_eq!(own, [0..150, 200..290, 300..330]);
    }

    #[test]
    fn what_is_all_on_one_device_stays_there() {
        let columns = [column(Dtype::I8, 2500, 1, &[("b", 0..2500)])];
        assert_eq!(cut(&columns, 2500, false), [(0, 2500, Some(1))]);
        let segments = segments_of(&columns, 2500, false);
        assert!(segments.iter().all(|segment| segment.resident_on == Some(1)));
        assert!(columns[0].as_ref().is_some_and(|column| column.stays_home(&segments, &["a", "b"])));
    }
}
