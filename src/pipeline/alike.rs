//! Rows that no worker claims, because statistics of the inputs say that many of them give the same: one tile of these
//! is computed, and absorbed as often as there are tiles. Nothing of them is written: if there are outputs, a filter
//! keeps none of them.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Work;
use super::cpu::bytes_of;
use super::queue::Segment;
use crate::device::kernel::Uniform;
use crate::error::{Error, Result};
use crate::panics;

/// Returns the segments without these rows, which are whole tiles in ascending order.
pub(crate) fn without(segments: &[Segment], rows: &[(Range<u64>, usize)]) -> Vec<Segment> {
    let rest = |segment: &Segment| {
        let mut next = segment.rows.start;
        let mut parts = vec![];
        let rows = rows.iter().map(|(own, _)| own);
        for own in rows.filter(|own| own.start < segment.rows.end && segment.rows.start < own.end) {
            parts.push(next..own.start);
            next = own.end;
        }
        parts.push(next..segment.rows.end);
        parts.retain(|part| part.start < part.end);
        parts.into_iter().map(|rows| Segment { rows, ..segment.clone() }).collect::<Vec<_>>()
    };
    segments.iter().flat_map(rest).collect()
}

/// Absorbs the rows of the run that no worker claims, when the workers have ended.
///
/// # Errors
/// [`Error::is_abandoned`] if values of the kernel never come. [`Error::Panicked`] if the kernel or the progress
/// function panics.
pub(super) fn absorb(work: &Work<'_>) -> Result<()> {
    let kernel = work.operator.kernel();
    if work.alike.is_empty() {
        return Ok(());
    }
    let mut host = kernel.new_host_kernel().ok_or_else(|| kernel.no_host_kernel("cpu"))?;
    let values = kernel.values.wait().ok_or_else(Error::abandoned)?;
    let resident: Vec<&[u8]> = kernel.resident.iter().map(|array| array.bytes()).collect();
    let uniform = Uniform { resident: &resident, values, total_rows: kernel.columns.total_rows };
    let (columns, tile) = (&kernel.columns, kernel.columns.tile_rows);
    let (mut memory, mut partials) = (vec![vec![]; work.inputs.len()], vec![]);
    let mut unwritten = vec![vec![]; columns.outputs.len()];
    let bytes = columns.partial_bytes(tile);
    let mut by_number = BTreeMap::<usize, Vec<Range<u64>>>::new();
    work.alike.iter().for_each(|(rows, number)| by_number.entry(*number).or_default().push(rows.clone()));
    for rows in by_number.values() {
        let first = rows[0].start;
        let mut inputs: Vec<&[u8]> = Vec::with_capacity(memory.len());
        for ((input, memory), size) in work.inputs.iter().zip(&mut memory).zip(&columns.inputs) {
            // None of these rows is read: see `InputColumn::unread`.
            let to = bytes_of(memory, tile * size)?;
            input.read(first, to)?;
            inputs.push(to);
        }
        let of_tile = bytes_of(&mut partials, bytes)?;
        of_tile[columns.chunk_partials()].fill(0);
        let outputs = unwritten.iter_mut().zip(&columns.outputs).map(|(memory, size)| bytes_of(memory, tile * size));
        let mut outputs = outputs.collect::<Result<Vec<_>>>()?;
        panics::catch(|| kernel.whose(), || host.run(first, tile, &inputs, &mut outputs, of_tile, &uniform))?;
        let are_kept = work.compaction.as_ref().map(|compaction| compaction.keeps(first, tile, of_tile));
        if are_kept.unwrap_or(!outputs.is_empty()) {
            return Err(Error::Internal("rows that are not computed would be written".into()));
        }
        work.operator.absorb_alike(rows, of_tile);
    }
    work.queue.finish_others()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn segments_lose_these_rows_and_no_others(
            borders in prop::collection::btree_set(0u64..60, 0..12),
            cuts in prop::collection::btree_set(1u64..50, 0..5),
        ) {
            let borders: Vec<u64> = borders.into_iter().collect();
            let rows: Vec<_> = borders.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect();
            let ends: Vec<u64> = [0].into_iter().chain(cuts).chain([50]).collect();
            let segments = ends.windows(2).enumerate().map(|(number, pair)| Segment {
                rows: pair[0]..pair[1], owner: (number % 2 == 0).then_some(number), resident_on: None,
            });
            let segments: Vec<_> = segments.collect();
            let left = without(&segments, &rows.iter().map(|rows| (rows.clone(), 0)).collect::<Vec<_>>());
            prop_assert!(left.iter().all(|segment| !segment.rows.is_empty()));
            let owners = |segments: &[Segment]| -> Vec<(u64, Option<usize>)> {
                segments.iter().flat_map(|segment| segment.rows.clone().map(|row| (row, segment.owner))).collect()
            };
            let twin: Vec<_> =
                owners(&segments).into_iter().filter(|(row, _)| !rows.iter().any(|own| own.contains(row))).collect();
            prop_assert_eq!(owners(&left), twin);
        }
    }
}
