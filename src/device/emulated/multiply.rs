//! The products of an emulated device.

use std::ops::Range;
use std::sync::PoisonError;

use super::machine::{Words, flip};
use crate::device::product::Product;

/// An enqueued product: see [`Stream::multiply`](crate::device::Stream::multiply).
pub(super) struct Multiply {
    pub(super) product: Product,
    pub(super) rows: usize,
    /// The memory and the start of each operand.
    pub(super) operands: [(Words, usize); 2],
    pub(super) sum: (Words, usize),
    pub(super) adds: bool,
}

impl Multiply {
    /// Returns the bytes of each operand.
    pub(super) fn operand_bytes(&self) -> [usize; 2] {
        [self.product.left, self.product.right].map(|elements| self.rows * elements * self.product.float.size())
    }

    /// Returns the device memory that it reads or writes.
    pub(super) fn memory(&self) -> [(&Words, Range<usize>); 3] {
        let [left, right] = self.operand_bytes();
        let range = |place: &(Words, usize), bytes| place.1..place.1 + bytes;
        let [on_left, on_right] = &self.operands;
        [
            (&on_left.0, range(on_left, left)),
            (&on_right.0, range(on_right, right)),
            (&self.sum.0, range(&self.sum, self.product.bytes())),
        ]
    }

    /// Multiplies copies of the operands, because all three may be the same memory. `flips` is a bit that it gets
    /// wrong.
    pub(super) fn run(&self, flips: Option<u64>) {
        let [left, right, mut sum] = self.memory().map(|(words, range)| copy(words, range));
        let [left_bytes, right_bytes] = self.operand_bytes();
        let operands: [&[u8]; 2] =
            [&bytemuck::cast_slice(&left)[..left_bytes], &bytemuck::cast_slice(&right)[..right_bytes]];
        let sum = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut sum)[..self.product.bytes()];
        self.product.multiply(self.rows, operands, sum, self.adds);
        if let Some(bit) = flips {
            flip(&mut [&mut *sum], bit);
        }
        let mut words = self.sum.0.lock().unwrap_or_else(PoisonError::into_inner);
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[self.sum.1..][..sum.len()].copy_from_slice(sum);
    }
}

/// Returns these bytes of device memory, in words, so that they are aligned.
fn copy(words: &Words, range: Range<usize>) -> Vec<u64> {
    let mut copy = vec![0; range.len().div_ceil(8)];
    let words = words.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes = &bytemuck::cast_slice::<u64, u8>(&words)[range];
    bytemuck::cast_slice_mut(&mut copy)[..bytes.len()].copy_from_slice(bytes);
    copy
}
