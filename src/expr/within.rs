//! Reductions within rows on the host.
//!
//! A row has as many lanes as elements, but at most 256. Lane `l` has the elements `l`, `l + 256`, … in order. Then
//! lanes `l` and `l + h` are combined for every power of two h that is less than the number of lanes, from the largest
//! one to 1, as far as there is a lane `l + h`. `reduce_row` in `kernels/reduce.cu` gives the same bits.

use super::dispatch::{self, Work};
use super::ir::Id;
use super::reduce::{Fold, MAX_WORDS, Reduction};
use super::tiling::BLOCK_ELEMENTS;
use super::words::Kind;
use crate::data::Dtype;
use crate::device::kernel::TILE_THREADS;

/// A reduction within rows, with its lanes.
pub(super) struct RowReduction {
    /// The reduced value.
    pub(super) of: Id,
    reduction: Reduction,
    /// The words of the lanes: of one row, or of all rows of a span, those of lane 0 first.
    words: [Vec<u64>; 2],
    /// The columns of the lanes that are added, for reductions that find one.
    columns: Vec<u64>,
    /// The value of the last row.
    value: u64,
}

impl RowReduction {
    /// A reduction of values of this dtype, which is that of a state.
    pub(super) fn new(kind: Kind, of: Id, dtype: Dtype) -> RowReduction {
        let reduction = Reduction::new(String::new(), kind, dtype);
        let lanes = |is_used: bool| vec![0; if is_used { BLOCK_ELEMENTS } else { 0 }];
        let finds = matches!(reduction.fold, Fold::ArgMin | Fold::ArgMax);
        RowReduction { of, reduction, words: [lanes(true), lanes(finds)], columns: lanes(finds), value: 0 }
    }

    fn finds(&self) -> bool {
        !self.columns.is_empty()
    }

    /// Begins a row.
    pub(super) fn begin(&mut self) {
        for (lanes, identity) in self.words.iter_mut().zip(self.reduction.identity()) {
            lanes.iter_mut().take(TILE_THREADS).for_each(|lane| *lane = identity);
        }
    }

    /// Accumulates elements of a row from `column` on, which is a multiple of 256.
    pub(super) fn push(&mut self, column: usize, values: &[u64]) {
        dispatch::run(Push { to: self, column, values });
    }

    /// Ends a row of more than 256 elements. Its value is known then.
    pub(super) fn end(&mut self) {
        dispatch::run(Halve { of: self, lanes: TILE_THREADS, rows: 1 });
        self.value = self.results()[0];
    }

    /// The value of the last row.
    pub(super) fn value(&self) -> u64 {
        self.value
    }

    /// Reduces whole rows of so many elements, at most 1024 in all, and writes the value of each row to all of its
    /// elements.
    pub(super) fn reduce(&mut self, values: &[u64], width: usize, out: &mut [u64]) {
        if width > TILE_THREADS {
            for (row, out) in values.chunks(width).zip(out.chunks_mut(width)) {
                self.begin();
                self.push(0, row);
                self.end();
                out.fill(self.value);
            }
            return;
        }
        // The lanes of all rows are combined at once.
        let rows = values.len() / width;
        for (row, values) in values.chunks(width).enumerate() {
            for (lane, value) in values.iter().enumerate() {
                self.words[0][lane * rows + row] = *value;
            }
        }
        if self.finds() {
            self.words[1][..values.len()].chunks_mut(rows).zip(0..).for_each(|(lane, number)| lane.fill(number));
        }
        dispatch::run(Halve { of: self, lanes: width, rows });
        out.chunks_mut(width).zip(self.results()).for_each(|(row, value)| row.fill(*value));
    }

    /// The word of the states that is the result.
    fn results(&self) -> &[u64] {
        &self.words[usize::from(self.finds())]
    }

    /// Combines words of the lanes from `start` on with these.
    #[inline(always)]
    fn merge(reduction: &Reduction, [first, second]: [&mut [u64]; 2], [values, columns]: [&[u64]; 2]) {
        let right: [&[u64]; MAX_WORDS] = [values, columns, &[]];
        reduction.merge([first, second, &mut []], right);
    }
}

struct Push<'a> {
    to: &'a mut RowReduction,
    column: usize,
    values: &'a [u64],
}

impl Work for Push<'_> {
    #[inline(always)]
    fn run(self) {
        let Push { to, column, values } = self;
        let finds = to.finds();
        for (values, column) in values.chunks(TILE_THREADS).zip((column as u64..).step_by(TILE_THREADS)) {
            if finds {
                to.columns.iter_mut().zip(column..).take(values.len()).for_each(|(slot, column)| *slot = column);
            }
            let [first, second] = to.words.each_mut().map(Vec::as_mut_slice);
            let columns = to.columns.get(..values.len()).unwrap_or_default();
            RowReduction::merge(&to.reduction, [first, second], [values, columns]);
        }
    }
}

/// Combines the lanes of rows.
struct Halve<'a> {
    of: &'a mut RowReduction,
    lanes: usize,
    rows: usize,
}

impl Work for Halve<'_> {
    #[inline(always)]
    fn run(self) {
        let Halve { of, mut lanes, rows } = self;
        while lanes > 1 {
            // The largest power of two that is less.
            let half = 1 << (lanes - 1).ilog2();
            let [(first, right), (second, columns)] = of.words.each_mut().map(|words| {
                let rows = rows.min(words.len());
                let (left, right) = words[..lanes * rows].split_at_mut(half * rows);
                (left, &*right)
            });
            RowReduction::merge(&of.reduction, [first, second], [right, columns]);
            lanes = half;
        }
    }
}
