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
    /// The most rows of a chunk whose inputs are in a slot at a time. If these are fewer than those of a chunk, it is
    /// staged in several fills.
    pub(crate) fill_rows: usize,
    /// The offset of every column in a device block. The partials come first, then the outputs, as in a slot, so that
    /// both are copied back at once. Inputs with a halo have room for it before their offset, which is that of the
    /// first row of the chunk, and behind their rows.
    pub(crate) in_block: Vec<usize>,
    /// The size of a block in bytes.
    pub(crate) block_bytes: usize,
    /// The offset of every staged column in a slot; `None` for columns that are pinned where they are. Partials and
    /// outputs reuse the space of the inputs, which are on the device before anything is copied back. A slot,
    /// which has to stay in the cache, is therefore only as large as the larger side.
    pub(crate) in_slot: Vec<Option<usize>>,
    /// The size of a slot in bytes, a multiple of the page size.
    pub(crate) slot_bytes: usize,
    /// The number of rows of the largest chunk whose inputs and outputs are all on the device. Only its partials and
    /// its scratch columns need space. Without scratch columns, partials get the whole block.
    pub(crate) resident_chunk_rows: usize,
}

/// The space for a column: the bytes before the first row of the chunk, and from there on in the block and in the slot.
struct Space {
    front: usize,
    in_block: usize,
    in_slot: usize,
}

impl Layout {
    /// Computes the layout of chunks of `rows` rows, of which a slot holds the inputs of `fill_rows` at a time.
    /// `staged` says for every input and output whether it needs staging in pinned memory. Partials always do. If there
    /// are scratch columns, a chunk whose inputs and outputs are all on the device may have `resident_rows` rows, if
    /// these are more.
    ///
    /// # Panics
    /// If a chunk has several fills and outputs or a halo.
    pub(crate) fn new(
        columns: &Columns,
        staged: &[bool],
        (rows, fill_rows): (usize, usize),
        resident_rows: usize,
    ) -> Self {
        assert!(fill_rows >= rows || columns.may_have_fills(), "a chunk in several fills");
        let scratch_rows = if columns.scratch.is_empty() { rows } else { resident_rows.max(rows) };
        let room = columns.partial_bytes(scratch_rows).next_multiple_of(ALIGNMENT);
        let mut layout = Layout {
            fill_rows: fill_rows.min(rows),
            in_block: Vec::new(),
            block_bytes: room,
            in_slot: Vec::new(),
            slot_bytes: room,
            resident_chunk_rows: scratch_rows,
        };
        let (staged_inputs, staged_outputs) = staged.split_at(columns.inputs.len());
        let bytes = |size: &usize| Space { front: 0, in_block: size * rows, in_slot: size * rows };
        let outputs = columns.outputs.iter().map(bytes).zip(staged_outputs.iter().copied());
        let outputs = layout.side(room, outputs.zip(std::iter::repeat(true)));
        let input = |(input, size): (usize, &usize)| {
            let Halo { before, after } = columns.halo(input);
            let in_slot = (fill_rows.min(rows) + after) * size;
            Space { front: before * size, in_block: (rows + after) * size, in_slot }
        };
        // Inputs that are multiplied as they are have their places in panels.
        let in_block = (0..columns.inputs.len()).map(|input| !columns.is_multiplied(input));
        let inputs = columns.inputs.iter().enumerate().map(input).zip(staged_inputs.iter().copied());
        let inputs = layout.side(0, inputs.zip(in_block));
        let of_scratch = |size: &usize| Space { front: 0, in_block: size * scratch_rows, in_slot: 0 };
        let scratch = columns.scratch.iter().map(of_scratch).zip(std::iter::repeat(false));
        let scratch = layout.side(0, scratch.zip(std::iter::repeat(true)));
        let partials = columns.has_partials().then_some((0, Some(0)));
        let all = inputs.into_iter().chain(outputs).chain(partials).chain(scratch);
        (layout.in_block, layout.in_slot) = all.unzip();
        layout.block_bytes = layout.block_bytes.max(ALIGNMENT);
        layout.slot_bytes = layout.slot_bytes.next_multiple_of(PAGE);
        if columns.scratch.is_empty() {
            let row_bytes = columns.inputs.iter().chain(&columns.outputs).sum::<usize>().max(1);
            let room = layout.block_bytes.min(layout.slot_bytes) - columns.chunk_partials().end;
            let tiles = room.checked_div(columns.partial_words * 8).unwrap_or(usize::MAX);
            let tiles = tiles.min(WHOLE_CHUNK / row_bytes / columns.tile_rows);
            let most = columns.most_rows / columns.tile_rows;
            layout.resident_chunk_rows = rows.max(tiles.min(most) * columns.tile_rows);
        }
        layout
    }

    /// Adds the columns of one side, inputs or outputs, from this offset on in the slot: the space that they need,
    /// whether they are staged, and whether they are in the block. Returns the offsets of each in the block and in the
    /// slot.
    fn side(
        &mut self,
        mut end: usize,
        columns: impl Iterator<Item = ((Space, bool), bool)>,
    ) -> Vec<(usize, Option<usize>)> {
        let place = |((space, staged), in_block): ((Space, bool), bool)| {
            let [front, of_block, of_slot] =
                [space.front, space.in_block, space.in_slot].map(|bytes| bytes.next_multiple_of(ALIGNMENT));
            let place = (if in_block { self.block_bytes + front } else { 0 }, staged.then_some(end + front));
            self.block_bytes += if in_block { front + of_block } else { 0 };
            end += if staged { front + of_slot } else { 0 };
            place
        };
        let places = columns.map(place).collect();
        self.slot_bytes = self.slot_bytes.max(end);
        places
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
            staged in prop::collection::vec(any::<bool>(), 10), rows in 1usize..100_000, part in 1usize..100_000,
            resident_rows in 1usize..200_000,
        ) {
            let halos = halos.into_iter().map(|(before, after)| Halo { before, after }).collect();
            let columns = Columns { inputs, outputs, partial_words, chunk_words, scratch, halos, ..Columns::default() };
            let fill_rows = if columns.may_have_fills() { part } else { rows };
            let mut layout = Layout::new(&columns, &staged, (rows, fill_rows), resident_rows);
            prop_assert_eq!(layout.fill_rows, rows.min(fill_rows));
            let mut sizes: Vec<usize> = columns.bytes(rows).collect();
            if !columns.scratch.is_empty() {
                prop_assert_eq!(layout.resident_chunk_rows, rows.max(resident_rows));
                let first = sizes.len() - columns.scratch.len();
                let scratch = columns.scratch.iter().zip(&mut sizes[first..]);
                scratch.for_each(|(size, own)| *own = size * layout.resident_chunk_rows);
            }
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
            for (input, size) in columns.inputs.iter().enumerate() {
                sizes[input] -= (rows - layout.fill_rows) * size;
            }
            let in_slot: Vec<_> = layout.in_slot.iter().zip(&sizes).collect();
            let (inputs, others) = in_slot.split_at(columns.inputs.len());
            for side in [inputs, others] {
                let mut staged: Vec<_> = side.iter().filter_map(|(o, s)| o.map(|o| (o, **s))).collect();
                staged.sort_unstable();
                let (offsets, sizes): (Vec<_>, Vec<_>) = staged.into_iter().unzip();
                prop_assert!(ends(&offsets, &sizes, layout.slot_bytes));
                prop_assert!(offsets.first().is_none_or(|first| *first == 0));
            }
            // The first output is behind the partials on both sides.
            if let [first, ..] = columns.outputs[..] && first > 0 && staged[columns.inputs.len()] {
                let place = columns.inputs.len();
                prop_assert_eq!(layout.in_slot[place], Some(layout.in_block[place]));
            }
            prop_assert!(layout.slot_bytes.is_multiple_of(PAGE));
        }
    }
}
