//! Products over the rows on the CPU: each worker multiplies the rows of its chunks, leaf by leaf of the tree of sums.

use super::cpu::bytes_of;
use crate::data::Chunk;
use crate::device::kernel::{ColumnProduct, Columns, HostKernel, Side, Uniform};
use crate::device::product::PRODUCT_ROWS;
use crate::error::Result;
use crate::ops::Operator;

/// The memory of a worker that multiplies.
pub(super) struct HostProducts<'r> {
    columns: &'r Columns,
    operator: &'r dyn Operator,
    /// The operands that the kernel computes, of all rows of a chunk, in words.
    operands: Vec<Vec<u64>>,
    /// The sum of each product over a leaf, in words.
    sums: Vec<Vec<u64>>,
    /// What adds up rows by their keys, for each product that does.
    by_key: Vec<Option<Box<dyn HostKernel>>>,
}

impl<'r> HostProducts<'r> {
    /// Returns `None` if the operator has no products.
    pub(super) fn of(operator: &'r dyn Operator) -> Option<Self> {
        let columns = &operator.kernel().columns;
        (!columns.products.is_empty()).then(|| HostProducts {
            columns,
            operator,
            operands: vec![vec![]; columns.operands.len()],
            sums: columns.products.iter().map(|product| vec![0; product.product.bytes().div_ceil(8)]).collect(),
            by_key: columns.products.iter().map(|product| product.kernel(PRODUCT_ROWS)?.new_host_kernel()).collect(),
        })
    }

    /// Returns the memory for the operands of a chunk of so many rows, each with the bytes of its rows.
    ///
    /// # Errors
    /// If there is no memory.
    pub(super) fn operands(&mut self, rows: usize) -> Result<Vec<(&mut [u8], usize)>> {
        let each = self.operands.iter_mut().zip(&self.columns.operands);
        each.map(|(memory, &size)| Ok((bytes_of(memory, rows * size)?, size))).collect()
    }

    /// Multiplies the rows of a chunk, which begins with a leaf, and whose inputs are these. Its operands are computed.
    pub(super) fn multiply(&mut self, chunk: &Chunk, inputs: &[&[u8]]) {
        let first = chunk.rows().start / PRODUCT_ROWS as u64;
        for (leaf, begin) in (first..).zip((0..chunk.len()).step_by(PRODUCT_ROWS)) {
            let rows = PRODUCT_ROWS.min(chunk.len() - begin);
            for ((product, sum), by_key) in self.columns.products.iter().zip(&mut self.sums).zip(&mut self.by_key) {
                let side = |side: Side| match side {
                    Side::Operand(operand) => {
                        let size = self.columns.operands[operand];
                        &bytemuck::cast_slice(&self.operands[operand])[begin * size..(begin + rows) * size]
                    }
                    Side::Input(input) => {
                        let size = self.columns.inputs[input];
                        &inputs[input][begin * size..(begin + rows) * size]
                    }
                };
                let ColumnProduct { product, sides, .. } = product;
                let sum = bytemuck::cast_slice_mut(sum);
                match by_key {
                    Some(kernel) => {
                        sum.fill(0);
                        let first = chunk.rows().start + begin as u64;
                        kernel.run(first, rows, &sides.map(side), &mut [], sum, &Uniform::default());
                    }
                    None if sides[0] == sides[1] => product.multiply_by_itself(rows, side(sides[0]), sum),
                    None => product.multiply(rows, sides.map(side), sum, false),
                }
            }
            let mut words = self.operator.product_sums();
            let mut rest = &mut words[..];
            for (ColumnProduct { product, .. }, sum) in self.columns.products.iter().zip(&self.sums) {
                let (own, behind) = rest.split_at_mut(product.elements());
                product.widen(&bytemuck::cast_slice(sum)[..product.bytes()], own);
                rest = behind;
            }
            self.operator.absorb_products((0, leaf), words, 1);
        }
    }
}
