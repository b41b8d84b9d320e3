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
    /// Finds the rows of a block, of so many elements, where the condition is 1. In all others it is 0. Those of a row
    /// are the same.
    pub(super) fn find(&mut self, conditions: &[u8], width: usize) {
        if width > 1 {
            let rows = (0_u16..).zip(conditions.iter().step_by(width));
            self.rows.clear();
            self.rows.extend(rows.filter(|(_, condition)| **condition == 1).map(|(row, _)| row));
            self.count = self.rows.len();
            return;
        }
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

    /// Moves some bytes of the kept rows of a block, whose first one is `row` in an output with rows of so many bytes,
    /// to rows from `to` on. That is not behind the begin of the block.
    pub(super) fn move_parts(&self, output: &mut [u8], row_bytes: usize, part: Range<usize>, row: usize, to: usize) {
        for (to, kept) in (to..).zip(&self.rows[..self.count]) {
            let from = (row + usize::from(*kept)) * row_bytes;
            output.copy_within(from + part.start..from + part.end, to * row_bytes + part.start);
        }
    }

    /// The same in an output with rows of one element of this size.
    pub(super) fn move_elements(&self, output: &mut [u8], size: usize, row: usize, to: usize) {
        let rows = &self.rows[..self.count];
        let bytes = &mut output[to * size..];
        let start = row - to;
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
                kept.find(&conditions, 1);
                let expected: Vec<u16> = (0..len as u16).filter(|row| conditions[usize::from(*row)] == 1).collect();
                assert_eq!(&kept.rows[..kept.count()], expected, "{len} rows, {step}");
            }
        }
    }

    /// Parts of rows move alone, and the others stay.
    #[test]
    fn parts_of_kept_rows_move_to_the_begin() {
        let (width, rows) = (5, 7);
        let mut kept = KeptRows::default();
        let keeps = |row: usize| row % 3 != 1;
        let conditions: Vec<u8> = (0..rows * width).map(|element| u8::from(keeps(element / width))).collect();
        kept.find(&conditions, width);
        let mut output: Vec<u8> = (0..3 * rows * width).map(|byte| byte as u8).collect();
        let before = output.clone();
        // The rows of the block are 2 to 8, of two bytes for each element, and the first kept one goes to row 1.
        kept.move_parts(&mut output[..], 2 * width, 2..6, 2, 1);
        for (to, from) in (1..).zip((0..rows).filter(|row| keeps(*row)).map(|row| row + 2)) {
            let of = |row: usize| row * 2 * width;
            assert_eq!(output[of(to) + 2..of(to) + 6], before[of(from) + 2..of(from) + 6]);
            assert_eq!(output[of(to)..of(to) + 2], before[of(to)..of(to) + 2]);
            assert_eq!(output[of(to) + 6..of(to + 1)], before[of(to) + 6..of(to + 1)]);
        }
        assert_eq!(kept.count(), 5);
    }
}
