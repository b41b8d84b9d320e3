//! Operators: the computation of a chunk. An operator uses kernels and partial results, and is independent of files
//! and devices.

mod custom;
mod eval;
mod fold;
mod state;

pub(crate) use custom::CustomOp;
pub(crate) use eval::Eval;
pub(crate) use fold::{Combine, Fold, Place, most_nodes};
pub(crate) use state::State;

use std::ops::Range;

use crate::device::kernel::SharedKernel;
use crate::error::Result;
use crate::expr::Results;

/// The interface between the pipeline and an operator.
pub(crate) trait Operator: Send + Sync {
    /// The kernel that processes every chunk.
    fn kernel(&self) -> &SharedKernel;

    /// Absorbs the partial results of a chunk (its own words, and those of its tiles), whose first row is the first row
    /// of a tile. Called once per chunk, in any order and from any worker. The final result must not depend on the
    /// order.
    fn absorb(&self, first_row: u64, rows: usize, partials: &[u8]);

    /// Absorbs ranges of rows, in whole tiles, each of which has the partial results of one tile that is a chunk of its
    /// own. Called only for expressions whose [`Needs`](crate::expr::Needs) say so.
    fn absorb_alike(&self, _rows: &[Range<u64>], _tile: &[u8]) {}

    /// Forgets all partial results, because every chunk is computed again. No worker is running.
    fn restart(&self) {}

    /// Whether the kernel compacts its outputs. The first word of the partials of a tile is then the number of its rows
    /// that remain.
    fn compacts(&self) -> bool {
        false
    }

    /// Whether a run that loses a device begins with the first row again: because the places of later rows depend on
    /// those that are lost, or because sums over rows that are finished are lost.
    fn begins_anew(&self) -> bool {
        self.compacts() || !self.kernel().columns.products.is_empty()
    }

    /// Returns the first result in which two partial results of a tile of `rows` rows differ, and both as text; `None`
    /// if they are the same.
    fn difference(&self, one: &[u64], other: &[u64], rows: u64) -> Option<[String; 3]>;

    /// The same of the words of a chunk.
    fn difference_of_chunk(&self, _one: &[u64], _other: &[u64]) -> Option<[String; 3]> {
        None
    }

    /// Returns memory for the sums of all products, which follow each other as `f64`: that of a node that is not needed
    /// any more, if there is one.
    fn product_sums(&self) -> Box<[u64]> {
        Box::default()
    }

    /// Absorbs the sums of all products over the rows of a node of their tree, whose leaves have
    /// [`PRODUCT_ROWS`](crate::device::product::PRODUCT_ROWS) rows. Called once for each node, in any order and from
    /// any thread. The caller has so many `threads`, which large sums need.
    fn absorb_products(&self, _node: Place, sums: Box<[u64]>, _threads: usize) {
        drop(sums);
    }

    /// Returns what all rows that were absorbed have come to.
    fn state(&self) -> State {
        State::default()
    }

    /// Returns the results after all `rows` rows were absorbed.
    ///
    /// # Errors
    /// [`Error::InvalidJob`](crate::Error::InvalidJob) if rows have values for which there is no result.
    fn results(&self, rows: u64) -> Result<Results> {
        self.state().results(rows)
    }
}
