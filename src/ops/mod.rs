//! Operators: what is done to a chunk. An operator knows kernels and partial results, nothing of files or devices.

mod eval;
mod fold;
mod foreign;

pub(crate) use eval::Eval;
pub(crate) use foreign::Foreign;

use crate::data::Scalar;
use crate::device::kernel::SharedKernel;

/// What the pipeline asks of an operator.
pub(crate) trait Operator: Send + Sync {
    /// The kernel that every chunk goes through.
    fn kernel(&self) -> &SharedKernel;

    /// Takes the partial results of a chunk, whose first row is the first of a tile. Called once a chunk, in any
    /// order and from any lane; the final result must not depend on that.
    fn absorb(&self, first_row: u64, rows: usize, partials: &[u8]);

    /// Whether the outputs have some of the rows only: the partials then are how many of each tile.
    fn keeps(&self) -> bool {
        false
    }

    /// What came of all `rows` rows, after they were absorbed: labels and values, `None` where there is no value, as for
    /// the minimum of nothing.
    fn results(&self, rows: u64) -> Vec<(String, Option<Scalar>)>;
}
