//! A program: an expression bound to dtypes.

use super::ir::{Id, Node};
use super::reduce::Reduction;
use crate::data::Dtype;

/// An expression bound to dtypes: device-neutral, ready to be made a kernel.
#[derive(Debug)]
pub(crate) struct Program {
    pub(super) text: String,
    pub(super) inputs: Vec<(String, Dtype)>,
    pub(super) values: Vec<(String, Dtype)>,
    /// As they were asked for, for the first line of the source.
    pub(super) requested: Vec<(String, Option<Dtype>)>,
    pub(super) nodes: Vec<Node>,
    pub(super) outputs: Vec<(String, Dtype)>,
    /// The result that goes to each output.
    pub(super) output_ids: Vec<Id>,
    pub(super) reductions: Vec<Reduction>,
}

impl Program {
    /// The outputs with their dtypes, in the order given to `bind`.
    pub(crate) fn outputs(&self) -> &[(String, Dtype)] {
        &self.outputs
    }

    /// The reductions, in text order: the order of their words in the partials of a tile.
    pub(crate) fn reductions(&self) -> &[Reduction] {
        &self.reductions
    }
}
