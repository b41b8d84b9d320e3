//! The rows of the tables that tests write.

use super::*;

/// The value number `k`, as the bits of the dtype.
pub(super) fn bits(dtype: Dtype, k: u64) -> u64 {
    // Few different ones, so that a dictionary is of use, and all bits.
    let value = (k % 37).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    match dtype {
        Dtype::Bool => value & 1,
        _ => value & (u64::MAX >> (64 - 8 * dtype.size())),
    }
}

/// The rows that should be read, with `fill` in the place of nulls.
pub(super) fn expected(dtype: Dtype, rows: u64, null_every: Option<u64>, fill: Scalar) -> Vec<u8> {
    let value = |row: u64| match null_every {
        Some(every) if row.is_multiple_of(every) => fill.bits(),
        _ => bits(dtype, row),
    };
    (0..rows).flat_map(|row| value(row).to_le_bytes()[..dtype.size()].to_vec()).collect()
}
