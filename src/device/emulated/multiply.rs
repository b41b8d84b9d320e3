//! The products of an emulated device.

use std::ops::Range;
use std::sync::PoisonError;

use super::machine::{Words, flip};
use crate::device::product::{Float, MatrixProduct, Precision, Product};

/// An enqueued product: see [`Stream::multiply`](crate::device::Stream::multiply) and
/// [`Stream::multiply_rows`](crate::device::Stream::multiply_rows).
pub(super) struct Multiply {
    pub(super) kind: Kind,
    pub(super) precision: Precision,
    pub(super) rows: usize,
    /// The memory and the start of each operand.
    pub(super) operands: [(Words, usize); 2],
    pub(super) result: (Words, usize),
}

/// What is multiplied.
pub(super) enum Kind {
    /// The rows of two operands, whose products are summed, and added to what is there if it `adds`.
    Sum { product: Product, adds: bool },
    /// The rows of the first operand with a matrix, the second one.
    Rows(MatrixProduct),
}

impl Multiply {
    fn float(&self) -> Float {
        match self.kind {
            Kind::Sum { product, .. } => product.float,
            Kind::Rows(product) => product.float,
        }
    }

    /// Returns the bytes of each operand.
    fn operand_bytes(&self) -> [usize; 2] {
        let factors = match self.kind {
            Kind::Sum { product: Product { left, right, .. }, .. } => [left, right].map(|factors| self.rows * factors),
            Kind::Rows(MatrixProduct { inner, width, .. }) => [self.rows * inner, inner * width],
        };
        factors.map(|factors| factors * self.float().factor_bytes(self.precision))
    }

    /// Returns the bytes of the result.
    fn result_bytes(&self) -> usize {
        match self.kind {
            Kind::Sum { product, .. } => product.bytes(),
            Kind::Rows(product) => self.rows * product.row_bytes(),
        }
    }

    /// Returns the bytes that take time to read and write: operands, and results that are not small against them.
    pub(super) fn moved_bytes(&self) -> usize {
        let written = if matches!(self.kind, Kind::Rows(_)) { self.result_bytes() } else { 0 };
        self.operand_bytes().iter().sum::<usize>() + written
    }

    /// Returns the device memory that it overwrites without reading it.
    pub(super) fn overwritten(&self) -> Option<(&Words, Range<usize>)> {
        let [.., result] = self.memory();
        (!matches!(self.kind, Kind::Sum { adds: true, .. })).then_some(result)
    }

    /// Returns the device memory that it reads or writes: operands, then the result.
    pub(super) fn memory(&self) -> [(&Words, Range<usize>); 3] {
        let [first, second] = self.operand_bytes();
        let range = |place: &(Words, usize), bytes| place.1..place.1 + bytes;
        let [on_first, on_second] = &self.operands;
        [
            (&on_first.0, range(on_first, first)),
            (&on_second.0, range(on_second, second)),
            (&self.result.0, range(&self.result, self.result_bytes())),
        ]
    }

    /// Multiplies copies of the operands, because all three may be the same memory. `flips` is a bit that it gets
    /// wrong.
    pub(super) fn run(&self, flips: Option<u64>) {
        let [first, second, mut result] = self.memory().map(|(words, range)| copy(words, range));
        let [first_bytes, second_bytes] = self.operand_bytes();
        let factors = |words: &[u64], bytes: usize| {
            self.float().factors(self.precision, &bytemuck::cast_slice::<u64, u8>(words)[..bytes])
        };
        let (first, second) = (factors(&first, first_bytes), factors(&second, second_bytes));
        let (first, second) = (bytemuck::cast_slice(&first), bytemuck::cast_slice(&second));
        let result = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut result)[..self.result_bytes()];
        match self.kind {
            Kind::Sum { product, adds } => product.multiply(self.rows, [first, second], result, adds),
            Kind::Rows(product) => product.multiply(self.rows, first, second, result),
        }
        if let Some(bit) = flips {
            flip(&mut [&mut *result], bit);
        }
        let mut words = self.result.0.lock().unwrap_or_else(PoisonError::into_inner);
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[self.result.1..][..result.len()].copy_from_slice(result);
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
