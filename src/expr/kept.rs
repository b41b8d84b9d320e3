//! Moves the kept rows of outputs together on the host, as `kernels/filter.cu` does on CUDA.

use std::ops::Range;

use bytemuck::Pod;

/// The rows whose conditions are looked at together.
const EIGHT: usize = 8;

/// The numbers of the bits that are set in each byte, and then anything.
const SET_BITS: [[u16; EIGHT]; 256] = {
    let mut all = [[0; EIGHT]; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut bit, mut count) = (0, 0);
        while bit < EIGHT {
            if byte >> bit & 1 == 1 {
                all[byte][count] = bit as u16;
                count += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    all
};

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
        // Eight rows are written at a time, the last ones behind the kept rows.
        let needed = conditions.len().next_multiple_of(EIGHT) + EIGHT;
        self.rows.resize(self.rows.len().max(needed), 0);
        self.count = 0;
        for (block, conditions) in (0_u16..).zip(conditions.chunks(EIGHT)) {
            let mut eight = [0; EIGHT];
            eight[..conditions.len()].copy_from_slice(conditions);
            // Bit k of the upper byte of the product is condition k: each is moved there once, and nothing is carried.
            let mask = (u64::from_le_bytes(eight).wrapping_mul(0x0102_0408_1020_4080) >> 56) as usize;
            let places = SET_BITS[mask].map(|bit| block * EIGHT as u16 + bit);
            self.rows[self.count..self.count + EIGHT].copy_from_slice(&places);
            self.count += mask.count_ones() as usize;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pattern of eight conditions, and every length of the last rows.
    #[test]
    fn kept_rows_are_those_of_a_loop() {
        let mut kept = KeptRows::default();
        for len in [0, 1, 7, 8, 9, 1000, 1024, 2048 - 3] {
            for step in 1..5 {
                let conditions: Vec<u8> = (0..len).map(|row| ((row / 8 * step) >> (row % 8) & 1) as u8).collect();
                kept.find(&conditions);
                let expected: Vec<u16> = (0..len as u16).filter(|row| conditions[usize::from(*row)] == 1).collect();
                assert_eq!(&kept.rows[..kept.count()], expected, "{len} rows, {step}");
            }
        }
    }
}
