//! A program: an expression bound to dtypes.

use super::ir::{Id, Node};
use super::reduce::Reduction;
use crate::data::Dtype;

/// An expression bound to dtypes. It is independent of devices, and can be lowered to a kernel.
#[derive(Debug)]
pub(crate) struct Program {
    pub(super) text: String,
    pub(super) inputs: Vec<(String, Dtype)>,
    pub(super) values: Vec<(String, Dtype)>,
    /// The outputs as requested, for the first line of the source.
    pub(super) requested: Vec<(String, Option<Dtype>)>,
    pub(super) nodes: Vec<Node>,
    pub(super) outputs: Vec<(String, Dtype)>,
    /// The result of each output.
    pub(super) output_ids: Vec<Id>,
    pub(super) reductions: Vec<Reduction>,
}

impl Program {
    /// Returns the outputs with their dtypes, in the order passed to `bind`.
    pub(crate) fn outputs(&self) -> &[(String, Dtype)] {
        &self.outputs
    }

    /// Returns the reductions in text order, which is also the order of their words in the partials of a tile.
    pub(crate) fn reductions(&self) -> &[Reduction] {
        &self.reductions
    }
}
