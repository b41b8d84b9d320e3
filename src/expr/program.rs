//! A program: an expression bound to dtypes.

use std::borrow::Cow;
use std::sync::Arc;

use super::ir::{Id, Node, Op};
use super::neighbours::Neighbourhood;
use super::number::Number;
use super::product::{self, RowProduct};
use super::reduce::Reduction;
use super::shape::{Extent, RowShape, TermShape};
use super::tiling::Tiling;
use super::words::Kind;
use crate::data::Dtype;

/// An expression bound to dtypes. It is independent of devices, and can be lowered to a kernel.
#[derive(Debug)]
pub(crate) struct Program {
    pub(super) text: Arc<str>,
    /// Which pass of the text it is; `None` if the text has one pass.
    pub(super) pass: Option<usize>,
    /// Which layer of the pass it is; `None` if that has one layer.
    pub(super) layer: Option<LayerOf>,
    pub(super) inputs: Vec<(String, Dtype)>,
    /// The shape of rows, and which inputs are broadcast.
    pub(super) row: RowShape,
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
    /// The extent of each output: all elements of each row, or one.
    pub(super) output_extents: Vec<Extent>,
    /// Which outputs have no dimensions of a row, because they were reduced within rows.
    pub(super) reduced_outputs: Vec<bool>,
    /// The products over the rows. Their operands are the last ones of the outputs, and no outputs of the job.
    pub(super) products: Vec<RowProduct>,
    /// The `bool` that is true in the rows that the outputs keep; `None` if they keep all. The first reduction counts
    /// these rows.
    pub(super) filter: Option<Id>,
    pub(super) reductions: Vec<Reduction>,
    /// What it reads beside the rows of a chunk.
    pub(super) near: Neighbourhood,
}

/// The blocks of threads of a batch of rows that are reduced within: a chunk may have no more rows, and these blocks
/// keep a GPU busy. The state of such a tile is small.
const BLOCKS_OF_BATCH: usize = 256;

/// The turns of a block of a layer that reduces nothing. A chunk of wide rows has few of them, and a thread loads the
/// elements of its turns one after the other: a GPU is busy with many blocks of few turns.
const TURNS_OF_LAYER: usize = 4;

/// The place of a program among the layers of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LayerOf {
    /// Its number.
    pub(super) number: usize,
    /// The outputs of the pass, by which it was divided.
    pub(super) outputs: Vec<String>,
    /// The rows that are multiplied at a time, a power of two. They depend on all layers, so they are set at last.
    pub(super) batch_rows: usize,
}

impl Program {
    pub(super) fn tiling(&self) -> Tiling {
        let of = if self.reduces_within() { Tiling::of_whole_rows } else { Tiling::of };
        let tiling = of(self.row.width(), !self.reductions.is_empty());
        match &self.layer {
            Some(layer) => {
                let tiling = tiling.with_power_of_two();
                let most = match (self.reduces_within(), self.reductions.is_empty()) {
                    (true, _) => layer.batch_rows / BLOCKS_OF_BATCH,
                    (false, true) => layer.batch_rows.min(tiling.rows_at_once * TURNS_OF_LAYER),
                    (false, false) => layer.batch_rows,
                };
                tiling.with_at_most(most)
            }
            // Products are of panels, whose rows are a power of two.
            None if !self.products.is_empty() => tiling.with_power_of_two(),
            None => tiling,
        }
    }

    /// Sets the rows that are multiplied at a time.
    pub(super) fn in_batches(mut self, rows: usize) -> Program {
        if let Some(layer) = &mut self.layer {
            layer.batch_rows = rows;
        }
        self
    }

    /// The reductions within rows: what each is, its kind, and what it reduces.
    pub(super) fn row_reductions(&self) -> impl Iterator<Item = (Id, Kind, Id)> {
        self.nodes.iter().enumerate().filter_map(|(id, node)| match node.op {
            Op::Reduce(kind, of) => Some((id, kind, of)),
            _ => None,
        })
    }

    /// The running sums: what each is, what it adds up, and the input with the sums before tiles.
    pub(super) fn running_sums(&self) -> impl Iterator<Item = (Id, Id, usize)> {
        self.nodes.iter().enumerate().filter_map(|(id, node)| match node.op {
            Op::RunningSum(of, before) => Some((id, of, before)),
            _ => None,
        })
    }

    /// Whether rows are added up.
    pub(super) fn adds_up(&self) -> bool {
        self.running_sums().next().is_some()
    }

    /// Whether elements are reduced within rows.
    pub(super) fn reduces_within(&self) -> bool {
        self.row_reductions().next().is_some()
    }

    /// The operations whose results are stored, accumulated, or decide about rows.
    pub(super) fn roots(&self) -> impl Iterator<Item = Id> {
        let reduced = self.reductions.iter().flat_map(|reduction| [Some(reduction.of), reduction.weight]);
        self.output_ids.iter().copied().chain(self.filter).chain(reduced.flatten())
    }

    /// The inputs that are columns of the kernel, and those that stay on the device, by their numbers: one row for all
    /// rows, or a value for each tile.
    pub(super) fn split_inputs(&self) -> (Vec<usize>, Vec<usize>) {
        (0..self.inputs.len()).partition(|input| !self.row.extent(*input).is_resident())
    }

    /// The inputs whose rows at both ends the kernel has, as arrays behind those that are one row for all rows. Each
    /// has its number, and how many rows the array has of each end. Those that do not exist, because the job has fewer,
    /// are zeros: behind the rows of the begin, and before those of the end.
    pub(crate) fn ends(&self) -> &[(usize, usize)] {
        &self.near.ends
    }

    /// The name of an input, and its bytes in a row. One with a value for each tile has none.
    pub(super) fn input_row(&self, input: usize) -> (&str, usize) {
        let (name, dtype) = &self.inputs[input];
        let elements = self.row.elements(input);
        (name, elements.saturating_mul(dtype.size()))
    }

    /// Returns the number of elements that an output has in a row.
    pub(crate) fn output_elements(&self, output: usize) -> usize {
        if self.output_extents[output] == Extent::PerRow { 1 } else { self.row.width() }
    }

    /// Returns whether an output has one element for each row, and no dimensions of a row.
    pub(crate) fn is_reduced(&self, output: usize) -> bool {
        self.reduced_outputs[output]
    }

    /// Returns the dtype of an output that is multiplied, and its dimensions in each row: one, or none. `None` if there
    /// is no such output, or if it has more.
    pub(crate) fn factor(&self, name: &str) -> Option<(Dtype, Vec<u64>)> {
        let output = self.requested.iter().position(|(own, _)| own == name)?;
        let (extent, is_reduced) = (self.output_extents[output], self.reduced_outputs[output]);
        let shape = TermShape { extent, is_reduced, ..TermShape::FULL };
        Some((self.outputs[output].1, product::dims_of(shape, &self.row)?))
    }

    /// The name of an output, and its bytes in a row.
    pub(super) fn output_row(&self, output: usize) -> (&str, usize) {
        let (name, dtype) = &self.outputs[output];
        (name, self.output_elements(output).saturating_mul(dtype.size()))
    }

    /// The words of a reduction in the partials of a tile: its state for each strip, or for each column.
    pub(super) fn words_of(&self, reduction: &Reduction) -> usize {
        let Tiling { width, strips, .. } = self.tiling();
        reduction.words() * if reduction.is_by_column() { width } else { strips }
    }

    /// Returns the states of a tile of these partials that are combined with those of other tiles. Those of its strips
    /// are combined from left to right.
    pub(crate) fn state_of_tile<'p>(&self, partials: &'p [u64]) -> Cow<'p, [u64]> {
        if self.tiling().strips == 1 && !self.keeps_tiles() {
            return Cow::Borrowed(partials);
        }
        let (mut states, mut rest) = (Vec::new(), partials);
        for reduction in self.reductions.iter().filter(|reduction| reduction.tally().is_none()) {
            let (own, behind) = rest.split_at(self.words_of(reduction));
            rest = behind;
            if reduction.keeps_tiles {
                continue;
            }
            let mut strips = own.chunks(reduction.state_words());
            let begin = states.len();
            states.extend_from_slice(strips.next().unwrap_or_default());
            strips.for_each(|strip| reduction.combine(&mut states[begin..], strip));
        }
        Cow::Owned(states)
    }

    /// Returns the words of a tile of these partials that are kept as they are.
    pub(crate) fn kept_of_tile(&self, partials: &[u64]) -> Vec<u64> {
        let (mut kept, mut rest) = (Vec::new(), partials);
        for reduction in self.reductions.iter().filter(|reduction| reduction.tally().is_none()) {
            let (own, behind) = rest.split_at(self.words_of(reduction));
            rest = behind;
            if reduction.keeps_tiles {
                kept.extend_from_slice(own);
            }
        }
        kept
    }

    /// Whether some words of tiles are kept as they are.
    pub(crate) fn keeps_tiles(&self) -> bool {
        self.reductions.iter().any(|reduction| reduction.keeps_tiles)
    }

    /// The words of the partials of a tile.
    pub(super) fn partial_words(&self) -> usize {
        self.reductions.iter().map(|reduction| self.words_of(reduction)).sum()
    }

    /// The words of a chunk to which the reductions add.
    pub(super) fn chunk_words(&self) -> usize {
        self.reductions.iter().map(Reduction::chunk_words).sum()
    }

    /// Returns the values that the kernel receives: the scalars, then numbers that adapt.
    pub(crate) fn values(&self) -> &[(String, Dtype)] {
        &self.values
    }

    /// Returns the outputs with their dtypes, in the order passed to `bind`.
    pub(crate) fn outputs(&self) -> &[(String, Dtype)] {
        &self.outputs[..self.requested.len()]
    }

    /// Returns the products over the rows, in the order of the text.
    pub(crate) fn products(&self) -> &[RowProduct] {
        &self.products
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
