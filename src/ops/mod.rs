//! Operators: what is done to a chunk. An operator knows kernels and partial results, nothing of files or devices.

mod custom;
mod eval;
mod fold;

pub(crate) use custom::CustomOp;
pub(crate) use eval::Eval;

use crate::data::Scalar;
use crate::device::kernel::SharedKernel;

/// What the pipeline asks of an operator.
pub(crate) trait Operator: Send + Sync {
    /// The kernel that every chunk goes through.
    fn kernel(&self) -> &SharedKernel;

    /// Takes the partial results of a chunk, whose first row is the first of a tile. Called once a chunk, in any
    /// order and from any worker; the final result must not depend on that.
    fn absorb(&self, first_row: u64, rows: usize, partials: &[u8]);

    /// Whether the outputs have some of the rows only: the partials then are how many of each tile.
    fn compacts(&self) -> bool {
        false
    }

    /// What came of all `rows` rows, after they were absorbed: labels and values, `None` where there is no value, as for
    /// the minimum of nothing.
    fn results(&self, rows: u64) -> Vec<(String, Option<Scalar>)>;
}
