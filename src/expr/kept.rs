//! Moves the kept rows of outputs together on the host, as `kernels/filter.cu` does on CUDA.

use std::ops::Range;

use bytemuck::Pod;

/// The kept rows of a block.
#[derive(Default)]
pub(super) struct KeptRows {
    /// Their numbers in the block, and then anything.
    rows: Vec<u16>,
    count: usize,
}

impl KeptRows {
    /// Finds the rows of a block where the condition is 1. In all others it is 0.
    pub(super) fn find(&mut self, conditions: &[u8]) {
        self.rows.resize(self.rows.len().max(conditions.len()), 0);
        self.count = 0;
        for (row, condition) in (0..).zip(conditions) {
            // Every row is written, because a branch would be mispredicted as often as not.
            self.rows[self.count] = row;
            self.count += usize::from(*condition);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Moves the kept rows of a block, which are at `block` in an output with elements of this size, to `to`. That is
    /// not behind the begin of the block.
    pub(super) fn move_together(&self, output: &mut [u8], size: usize, block: Range<usize>, to: usize) {
        let rows = &self.rows[..self.count];
        let bytes = &mut output[to * size..block.end * size];
        let start = block.start - to;
        match size {
            1 => gather::<u8>(bytes, rows, start),
            2 => gather::<u16>(bytes, rows, start),
            4 => gather::<u32>(bytes, rows, start),
            _ => gather::<u64>(bytes, rows, start),
        }
    }
}

/// Moves elements to the begin. Each comes from behind those before it, or stays.
fn gather<T: Pod>(bytes: &mut [u8], rows: &[u16], start: usize) {
    let elements: &mut [T] = bytemuck::cast_slice_mut(bytes);
    for (to, row) in rows.iter().enumerate() {
        elements[to] = elements[start + usize::from(*row)];
    }
}
