//! Matrices whose rows become columns, as products take them.

use crate::device::cpu::cores;
use crate::device::product::Float;
use crate::error::Result;
use crate::threads;

/// Fewer bytes take less time than to start a thread for them.
const BYTES_OF_THREAD: usize = if cfg!(test) { 256 } else { 1 << 20 };

/// Writes a matrix of `f32` or `f64` to another one, so that its rows of `length` elements become columns.
///
/// # Errors
/// If the system starts no more threads.
pub(super) fn transpose(from: &[u8], float: Float, length: usize, to: &mut [u8]) -> Result<()> {
    match float {
        Float::F32 => transpose_as::<4>(from, length, to),
        Float::F64 => transpose_as::<8>(from, length, to),
    }
}

/// Elements have `N` bytes. They go in squares, whose rows and columns stay in the cache.
fn transpose_as<const N: usize>(from: &[u8], length: usize, to: &mut [u8]) -> Result<()> {
    const SIDE: usize = 32;
    let threads = (from.len() / BYTES_OF_THREAD).clamp(1, cores());
    let ((from, _), (to, _)) = (from.as_chunks::<N>(), to.as_chunks_mut::<N>());
    let rows = from.len() / length.max(1);
    let columns = length.div_ceil(threads).next_multiple_of(SIDE);
    let parts = to.chunks_mut((columns * rows).max(1)).enumerate().collect();
    threads::each(parts, |(part, to)| {
        let first = part * columns;
        for (column, row) in
            (0..to.len() / rows).step_by(SIDE).flat_map(|column| (0..rows).step_by(SIDE).map(move |row| (column, row)))
        {
            for column in column..(to.len() / rows).min(column + SIDE) {
                for row in row..rows.min(row + SIDE) {
                    to[column * rows + row] = from[row * length + first + column];
                }
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        for (rows, length) in [(0, 3), (1, 1), (3, 5), (32, 32), (33, 65), (100, 1), (1, 100)] {
            let element = |number: usize, size: usize| (number as u64).to_le_bytes()[..size].to_vec();
            for float in [Float::F32, Float::F64] {
                let of = |numbers: &mut dyn Iterator<Item = usize>| -> Vec<u8> {
                    numbers.flat_map(|number| element(number, float.size())).collect()
                };
                let matrix = of(&mut (0..rows * length));
                let expected = of(&mut (0..length).flat_map(|k| (0..rows).map(move |row| row * length + k)));
                let mut found = vec![0; matrix.len()];
                transpose(&matrix, float, length, &mut found).unwrap();
                assert_eq!(found, expected, "{rows} rows of {length} {float:?}");
            }
        }
    }
}
