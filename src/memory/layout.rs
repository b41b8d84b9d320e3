//! Where the columns of a chunk lie in a slot and in a device block.

use super::pinned::PAGE;
use crate::device::kernel::Columns;

/// Columns start at multiples of this many bytes, so that every dtype is aligned and device accesses coalesce.
const ALIGNMENT: usize = 256;

/// Offsets in bytes, for chunks of up to a set number of rows. The order of columns is that of [`Columns`]: inputs,
/// outputs, the partials if there are any, scratch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Of every column, in a device block.
    pub(crate) in_block: Vec<usize>,
    /// Bytes of a block.
    pub(crate) block_bytes: usize,
    /// Of every column that is staged, in a slot; `None` for columns that are pinned where they are. Outputs and partials lie
    /// where the inputs were: these are on the device before anything comes back, so that a slot, which has to stay in the
    /// cache, is as large as the larger side only.
    pub(crate) in_slot: Vec<Option<usize>>,
    /// Bytes of a slot: whole pages.
    pub(crate) slot_bytes: usize,
}

impl Layout {
    /// The layout of chunks of `rows` rows; `staged` says for every input and output whether it needs pinned memory
    /// of its own. Partials always do.
    pub(crate) fn new(columns: &Columns, staged: &[bool], rows: usize) -> Self {
        let mut layout = Layout { in_block: Vec::new(), block_bytes: 0, in_slot: Vec::new(), slot_bytes: 0 };
        let (staged_inputs, staged_outputs) = staged.split_at(columns.inputs.len());
        let bytes = |bytes_per_row: &usize| bytes_per_row * rows;
        layout.push(columns.inputs.iter().map(bytes).zip(staged_inputs.iter().copied()));
        let partials = Some((columns.partial_bytes(rows), true)).filter(|_| columns.partial_words > 0);
        layout.push(columns.outputs.iter().map(bytes).zip(staged_outputs.iter().copied()).chain(partials));
        layout.push(columns.scratch.iter().map(|bytes| (bytes * rows, false)));
        layout.slot_bytes = layout.slot_bytes.next_multiple_of(PAGE);
        layout
    }

    /// Adds the columns of one side, inputs or outputs: their bytes, and whether they are staged.
    fn push(&mut self, columns: impl Iterator<Item = (usize, bool)>) {
        let mut end = 0;
        for (bytes, staged) in columns {
            let room = bytes.next_multiple_of(ALIGNMENT);
            self.in_block.push(self.block_bytes);
            self.block_bytes += room;
            self.in_slot.push(staged.then_some(end));
            end += if staged { room } else { 0 };
        }
        self.slot_bytes = self.slot_bytes.max(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    proptest! {
        #[test]
        fn columns_are_aligned_and_do_not_overlap(
            inputs in prop::collection::vec(1usize..9, 0..5), outputs in prop::collection::vec(1usize..9, 0..5),
            partial_words in 0usize..4, scratch in prop::collection::vec(1usize..9, 0..3), staged in prop::collection::vec(any::<bool>(), 10), rows in 1usize..100_000,
        ) {
            let columns = Columns { inputs, outputs, partial_words, scratch, ..Columns::default() };
            let layout = Layout::new(&columns, &staged, rows);
            let sizes: Vec<usize> = columns.bytes(rows).collect();
            prop_assert_eq!(layout.in_block.len(), sizes.len());
            let ends = |offsets: &[usize], sizes: &[usize], room: usize| {
                let starts = offsets.iter().copied().skip(1).chain([room]);
                offsets.iter().zip(sizes).zip(starts).all(|((o, s), next)| o % ALIGNMENT == 0 && o + s <= next)
            };
            prop_assert!(ends(&layout.in_block, &sizes, layout.block_bytes));
            let in_slot: Vec<_> = layout.in_slot.iter().zip(&sizes).collect();
            let (inputs, outputs) = in_slot.split_at(columns.inputs.len());
            for side in [inputs, outputs] {
                let (offsets, sizes): (Vec<_>, Vec<_>) =
                    side.iter().filter_map(|(o, s)| o.map(|o| (o, **s))).unzip();
                prop_assert!(ends(&offsets, &sizes, layout.slot_bytes));
                prop_assert!(offsets.first().is_none_or(|first| *first == 0));
            }
            prop_assert!(layout.slot_bytes.is_multiple_of(PAGE));
        }
    }
}
