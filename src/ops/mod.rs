//! Operators: what is done to a chunk. An operator knows kernels and partial results, nothing of files or devices.

mod eval;
mod fold;

pub(crate) use eval::Eval;

use crate::device::kernel::SharedKernel;

/// What the pipeline asks of an operator.
pub(crate) trait Operator: Sync {
    /// The kernel that every chunk goes through.
    fn kernel(&self) -> &SharedKernel;

    /// Takes the partial results of a chunk, whose first row is the first of a tile. Called once a chunk, in any
    /// order and from any lane; the final result must not depend on that.
    fn absorb(&self, first_row: u64, rows: usize, partials: &[u8]);
}
