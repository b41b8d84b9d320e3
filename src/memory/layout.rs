//! The layout of the columns of a chunk in a slot and in a device block.

use super::pinned::PAGE;
use crate::device::kernel::{Columns, Halo};

/// Columns start at multiples of this many bytes, so that every dtype is aligned and device accesses coalesce.
const ALIGNMENT: usize = 256;

/// Bytes of the largest chunk whose rows are all on the device. The device reads that many bytes in the time that
/// it takes to enqueue a few chunks.
const WHOLE_CHUNK: usize = 256 << 20;

/// Offsets in bytes, for chunks of up to a fixed number of rows. The order of columns is that of [`Columns`]:
/// inputs, outputs, the partials if there are any, scratch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The offset of every column in a device block. The partials come first. Inputs with a halo have room for it
    /// before their offset, which is that of the first row of the chunk, and behind their rows.
    pub(crate) in_block: Vec<usize>,
    /// The size of a block in bytes.
    pub(crate) block_bytes: usize,
    /// The offset of every staged column in a slot; `None` for columns that are pinned where they are. Outputs and
    /// partials reuse the space of the inputs, which are on the device before anything is copied back. A slot,
    /// which has to stay in the cache, is therefore only as large as the larger side.
    pub(crate) in_slot: Vec<Option<usize>>,
    /// The size of a slot in bytes, a multiple of the page size.
    pub(crate) slot_bytes: usize,
    /// The number of rows of the largest chunk whose inputs and outputs are all on the device. Only its partials
    /// need space, and they get the whole block.
    pub(crate) resident_chunk_rows: usize,
}

impl Layout {
    /// Computes the layout of chunks of `rows` rows. `staged` says for every input and output whether it needs
    /// staging in pinned memory. Partials always do.
    pub(crate) fn new(columns: &Columns, staged: &[bool], rows: usize) -> Self {
        let partials = columns.partial_bytes(rows);
        let mut layout = Layout {
            in_block: Vec::new(),
            block_bytes: partials.next_multiple_of(ALIGNMENT),
            in_slot: Vec::new(),
            slot_bytes: 0,
            resident_chunk_rows: rows,
        };
        let (staged_inputs, staged_outputs) = staged.split_at(columns.inputs.len());
        let input = |(input, size): (usize, &usize)| {
            let Halo { before, after } = columns.halo(input);
            (before * size, (rows + after) * size)
        };
        let bytes = |bytes_per_row: &usize| (0, bytes_per_row * rows);
        // Inputs that are multiplied as they are have their places in panels.
        let in_block = (0..columns.inputs.len()).map(|input| !columns.is_multiplied(input));
        layout.push(columns.inputs.iter().enumerate().map(input).zip(staged_inputs.iter().copied()).zip(in_block));
        let in_block = || std::iter::repeat(true);
        let outputs = columns.outputs.iter().map(bytes).zip(staged_outputs.iter().copied());
        let end = layout.push(outputs.zip(in_block()));
        if columns.has_partials() {
            layout.in_block.push(0);
            layout.in_slot.push(Some(end));
            layout.slot_bytes = layout.slot_bytes.max(end + partials);
        }
        layout.push(columns.scratch.iter().map(bytes).zip(std::iter::repeat(false)).zip(in_block()));
        layout.block_bytes = layout.block_bytes.max(ALIGNMENT);
        layout.slot_bytes = layout.slot_bytes.next_multiple_of(PAGE);
        if columns.scratch.is_empty() {
            let row_bytes = columns.inputs.iter().chain(&columns.outputs).sum::<usize>().max(1);
            let room = layout.block_bytes.min(layout.slot_bytes - end) - columns.chunk_partials().end;
            let tiles = room.checked_div(columns.partial_words * 8).unwrap_or(usize::MAX);
            let tiles = tiles.min(WHOLE_CHUNK / row_bytes / columns.tile_rows);
            let most = columns.most_rows / columns.tile_rows;
            layout.resident_chunk_rows = rows.max(tiles.min(most) * columns.tile_rows);
        }
        layout
    }

    /// Adds the columns of one side, inputs or outputs: their bytes before the first row of the chunk and from there
    /// on, whether they are staged, and whether they are in the block. Returns the end offset in the slot.
    fn push(&mut self, columns: impl Iterator<Item = (((usize, usize), bool), bool)>) -> usize {
        let mut end = 0;
        for (((front, bytes), staged), in_block) in columns {
            let (front, room) = (front.next_multiple_of(ALIGNMENT), bytes.next_multiple_of(ALIGNMENT));
            self.in_block.push(if in_block { self.block_bytes + front } else { 0 });
            self.block_bytes += if in_block { front + room } else { 0 };
            self.in_slot.push(staged.then_some(end + front));
            end += if staged { front + room } else { 0 };
        }
        self.slot_bytes = self.slot_bytes.max(end);
        end
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
            halos in prop::collection::vec((0usize..300, 0usize..300), 0..5),
            partial_words in 0usize..4, chunk_words in 0usize..1000, scratch in prop::collection::vec(1usize..9, 0..3),
            staged in prop::collection::vec(any::<bool>(), 10), rows in 1usize..100_000,
        ) {
            let halos = halos.into_iter().map(|(before, after)| Halo { before, after }).collect();
            let columns = Columns { inputs, outputs, partial_words, chunk_words, scratch, halos, ..Columns::default() };
            let mut layout = Layout::new(&columns, &staged, rows);
            let mut sizes: Vec<usize> = columns.bytes(rows).collect();
            // Inputs begin with the rows of their halo, which are not aligned.
            for (input, size) in columns.inputs.iter().enumerate() {
                let Halo { before, after } = columns.halo(input);
                let front = (before * size).next_multiple_of(ALIGNMENT);
                layout.in_block[input] -= front;
                layout.in_slot[input] = layout.in_slot[input].map(|start| start - front);
                sizes[input] += front + after * size;
            }
            prop_assert_eq!(layout.in_block.len(), sizes.len());
            let ends = |offsets: &[usize], sizes: &[usize], room: usize| {
                let starts = offsets.iter().copied().skip(1).chain([room]);
                offsets.iter().zip(sizes).zip(starts).all(|((o, s), next)| o % ALIGNMENT == 0 && o + s <= next)
            };
            let mut in_block: Vec<_> = layout.in_block.iter().copied().zip(sizes.iter().copied()).collect();
            in_block.sort_unstable();
            let (offsets, lengths): (Vec<_>, Vec<_>) = in_block.into_iter().unzip();
            prop_assert!(ends(&offsets, &lengths, layout.block_bytes));
            // A chunk that only has partials may be larger.
            let whole = columns.partial_bytes(layout.resident_chunk_rows);
            prop_assert!(layout.resident_chunk_rows >= rows);
            prop_assert!(whole <= layout.block_bytes.max(columns.partial_bytes(rows)));
            if columns.has_partials() {
                let place = columns.inputs.len() + columns.outputs.len();
                prop_assert_eq!(layout.in_block[place], 0);
                prop_assert!(layout.in_slot[place].is_some_and(|start| start + whole <= layout.slot_bytes));
            }
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
