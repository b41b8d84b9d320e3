//! A program: an expression bound to dtypes.

use std::sync::Arc;

use super::ir::{Id, Node};
use super::number::Number;
use super::reduce::Reduction;
use crate::data::Dtype;

/// An expression bound to dtypes. It is independent of devices, and can be lowered to a kernel.
#[derive(Debug)]
pub(crate) struct Program {
    pub(super) text: Arc<str>,
    /// Which pass of the text it is; `None` if the text has one pass.
    pub(super) pass: Option<usize>,
    pub(super) inputs: Vec<(String, Dtype)>,
    /// What the kernel receives: the scalars, then numbers that adapt.
    pub(super) values: Vec<(String, Dtype)>,
    /// The numbers that adapt; `None` for those that the kernel receives.
    pub(super) numbers: Vec<(String, Option<Number>)>,
    /// The outputs as requested, for the first line of the source.
    pub(super) requested: Vec<(String, Option<Dtype>)>,
    pub(super) nodes: Vec<Node>,
    pub(super) outputs: Vec<(String, Dtype)>,
    /// The result of each output.
    pub(super) output_ids: Vec<Id>,
    /// The `bool` that is true in the rows that the outputs keep; `None` if they keep all. The first reduction counts
    /// these rows.
    pub(super) filter: Option<Id>,
    pub(super) reductions: Vec<Reduction>,
}

impl Program {
    /// Returns the values that the kernel receives: the scalars, then numbers that adapt.
    pub(crate) fn values(&self) -> &[(String, Dtype)] {
        &self.values
    }

    /// Returns the outputs with their dtypes, in the order passed to `bind`.
    pub(crate) fn outputs(&self) -> &[(String, Dtype)] {
        &self.outputs
    }

    /// Returns whether the outputs keep only some of the rows. The first word of the partials of a tile is then their
    /// number.
    pub(crate) fn is_filtered(&self) -> bool {
        self.filter.is_some()
    }

    /// Returns the reductions in the order of their words in the partials of a tile: those that count kept rows, then
    /// those of the text in its order.
    pub(crate) fn reductions(&self) -> &[Reduction] {
        &self.reductions
    }
}
