//! Reductions: their states, and how states are combined.
//!
//! The order of operations is fixed and the same on every device. In a tile of 4096 rows, lane `l` of 256 accumulates
//! the rows `l`, `l + 256`, … in order; then lanes `l` and `l + h` are combined for h = 128, 64, … 1. Missing rows
//! count as the identity. `kernels/reduce.cu` gives the same bits. `tiling.rs` has the lanes of rows of several
//! elements.

use std::ops::Range;
use std::thread;

use super::dispatch::{self, Work};
use super::ir::Id;
use super::scalar::{Value, greatest, least};
use super::tally::Tally;
use super::tiling::{BLOCK_ELEMENTS, Tiling};
use super::words::Kind;
use crate::data::{ArrayValue, Dtype, Scalar};
use crate::device::kernel::TILE_THREADS;

/// The maximum number of words of a state.
pub(super) const MAX_WORDS: usize = 3;

/// How states are combined. Several kinds of reductions share a fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    Sum,
    Product,
    Min,
    Max,
    /// A value and its row.
    ArgMin,
    /// A value and its row.
    ArgMax,
    /// Count, mean, and sum of squared differences from the mean.
    Moments,
    /// None: elements are counted in words of the chunk, and tiles have no state.
    Tally,
}

/// A result has at most so many columns, and its shape at most so many dimensions, as NumPy's shapes have. A partial of
/// more is damaged.
const MOST_COLUMNS: u64 = 1 << 24;
const MOST_DIMENSIONS: usize = 64;

/// A reduction: one value computed from all rows, or one for each column, which is an element of a row.
///
/// The state of all columns has the first word of each column, then the second word of each, and so on: columns are
/// combined as lanes are, with vector instructions.
#[derive(Clone, Debug)]
pub(crate) struct Reduction {
    label: String,
    kind: Kind,
    /// The dtype of the row value in the expression.
    dtype: Dtype,
    /// The shape of the result, which has a value for each column; `None` if it is one value of all elements.
    shape: Option<Vec<u64>>,
    /// The elements of a row, all of which it combines if the result is one value.
    pub(super) elements: u64,
    pub(super) fold: Fold,
    /// The dtype of the state: `i64`, `u64` or `f64`.
    pub(super) state: Dtype,
    /// The row value, converted to the dtype of the state. It is neutral in rows that a filter leaves out.
    pub(super) of: Id,
    /// For moments of kept rows: 1 for each of them, and 0 for the others, as an `f64`. For counts: the weights.
    pub(super) weight: Option<Id>,
    /// How it counts, if it does.
    pub(super) tally: Option<Tally>,
    /// Whether its result is the states of all tiles, as opposed to the state of all of them together.
    pub(super) keeps_tiles: bool,
    /// For a value that depends on the number of kept rows: which reduction counts them.
    pub(super) counter: Option<usize>,
}

impl Reduction {
    pub(super) fn new(label: String, kind: Kind, dtype: Dtype) -> Reduction {
        let fold = match kind {
            Kind::Sum | Kind::Mean | Kind::Count | Kind::Kept => Fold::Sum,
            Kind::Prod => Fold::Product,
            Kind::Min | Kind::All => Fold::Min,
            Kind::Max | Kind::Any => Fold::Max,
            Kind::ArgMin => Fold::ArgMin,
            Kind::ArgMax => Fold::ArgMax,
            Kind::Var | Kind::Std => Fold::Moments,
            Kind::Histogram | Kind::BinCount => Fold::Tally,
        };
        let state = match kind {
            Kind::Mean | Kind::Var | Kind::Std | Kind::Histogram => Dtype::F64,
            Kind::BinCount => Dtype::I64,
            Kind::Count | Kind::Kept | Kind::Any | Kind::All => Dtype::U64,
            Kind::Sum | Kind::Prod if dtype == Dtype::Bool => Dtype::I64,
            _ if dtype.is_float() => Dtype::F64,
            _ if dtype.is_signed() => Dtype::I64,
            _ => Dtype::U64,
        };
        Reduction {
            label,
            kind,
            dtype,
            shape: None,
            elements: 1,
            fold,
            state,
            of: 0,
            weight: None,
            tally: None,
            keeps_tiles: false,
            counter: None,
        }
    }

    /// Makes it count elements in bins. Its result has a value for each of them.
    pub(super) fn in_bins(self, tally: Tally) -> Reduction {
        Reduction { shape: Some(vec![tally.bins as u64]), tally: Some(tally), ..self }
    }

    /// Makes it a reduction along the rows, with a value for each column. `shape` is that of the result.
    pub(super) fn along_rows(self, shape: Vec<u64>) -> Reduction {
        Reduction { shape: Some(shape), ..self }
    }

    /// Returns whether a result may have this shape.
    pub(super) fn is_possible(shape: &[u64]) -> bool {
        let columns = shape.iter().try_fold(1_u64, |columns, length| columns.checked_mul(*length));
        let is_small = shape.iter().chain(&columns).all(|length| *length <= MOST_COLUMNS);
        shape.len() <= MOST_DIMENSIONS && columns.is_some() && is_small
    }

    /// Creates the reduction that counts kept rows: those where this value, as a `u64`, is 1.
    pub(super) fn of_kept_rows(of: Id) -> Reduction {
        Reduction { of, ..Reduction::new(String::new(), Kind::Kept, Dtype::Bool) }
    }

    /// Whether it may be the sums of a product over the rows.
    pub(crate) fn is_of_products(&self) -> bool {
        self.kind == Kind::Sum && self.state == Dtype::F64 && self.shape.is_some()
    }

    /// Whether it is a result, as opposed to a count that others need.
    pub(crate) fn is_result(&self) -> bool {
        self.kind != Kind::Kept
    }

    /// Whether the value of some rows depends on their number, which the state does not have.
    pub(super) fn needs_count(&self) -> bool {
        matches!(self.kind, Kind::Mean | Kind::Min | Kind::Max)
    }

    /// The value whose accumulation changes no state.
    pub(super) fn neutral(&self) -> u64 {
        self.identity()[0]
    }

    /// The operations whose results the kernel accumulates.
    pub(super) fn operands_mut(&mut self) -> impl Iterator<Item = &mut Id> {
        [&mut self.of].into_iter().chain(&mut self.weight)
    }

    /// The same operations.
    pub(super) fn operands(&self) -> impl Iterator<Item = Id> {
        [self.of].into_iter().chain(self.weight)
    }

    /// Whether the reduction depends only on which rows are true.
    pub(super) fn counts(&self) -> bool {
        matches!(self.kind, Kind::Count | Kind::Any | Kind::All)
    }

    /// Creates a reduction that combines states; `None` if its kind or its dtype is unknown, or no result has this
    /// shape.
    pub(crate) fn parse(
        label: String,
        kind: &str,
        dtype: &str,
        counter: Option<usize>,
        (elements, shape): (u64, Option<Vec<u64>>),
        weights: Option<Dtype>,
    ) -> Option<Reduction> {
        let own = [(Kind::Kept.name(), Kind::Kept)];
        let kind = Kind::names().chain(Kind::tallies()).chain(own).find(|(name, _)| *name == kind)?.1;
        let reduction = Reduction { counter, elements, ..Reduction::new(label, kind, dtype.parse().ok()?) };
        if reduction.fold == Fold::Tally {
            let [bins] = shape?[..] else { return None };
            let tally = Tally::of_words(usize::try_from(bins).ok()?, kind == Kind::BinCount, weights);
            let is_possible = counter.is_none() && tally.bins <= tally.most_bins();
            return is_possible.then(|| reduction.in_bins(tally));
        }
        match shape {
            _ if weights.is_some() => None,
            None => Some(reduction),
            Some(shape) if Reduction::is_possible(&shape) => Some(reduction.along_rows(shape)),
            Some(_) => None,
        }
    }

    /// The name of its kind, such as `mean`.
    pub(crate) fn kind(&self) -> &'static str {
        self.kind.name()
    }

    /// Which reduction counts the rows that it reduces, if they are kept ones and its value depends on their number.
    pub(crate) fn counter(&self) -> Option<usize> {
        self.counter
    }

    /// The elements of a row, all of which it combines if the result is one value.
    pub(crate) fn elements(&self) -> u64 {
        self.elements
    }

    /// The shape of the result; `None` if it is one value of all elements.
    pub(crate) fn shape(&self) -> Option<&[u64]> {
        self.shape.as_deref()
    }

    /// What decides how states are combined and finished, and the label.
    pub(crate) fn key(&self) -> impl PartialEq {
        (self.kind, self.dtype, self.counter, &self.shape, self.elements, self.weights(), &self.label)
    }

    /// The dtype of the weights that it adds; `None` if it adds none.
    pub(crate) fn weights(&self) -> Option<Dtype> {
        self.tally.as_ref()?.weights
    }

    /// Whether its result is the states of all tiles, as opposed to the state of all of them together.
    pub(crate) fn keeps_tiles(&self) -> bool {
        self.keeps_tiles
    }

    /// Whether its state has the number of a row.
    pub(super) fn has_row(&self) -> bool {
        matches!(self.fold, Fold::ArgMin | Fold::ArgMax)
    }

    /// The dtype of the state.
    pub(crate) fn state_dtype(&self) -> Dtype {
        self.state
    }

    /// How it counts elements in words of the chunk; `None` if it has a state for each tile.
    pub(crate) fn tally(&self) -> Option<&Tally> {
        self.tally.as_ref()
    }

    /// The number of 8-byte words of a chunk to which it adds.
    pub(crate) fn chunk_words(&self) -> usize {
        self.tally.as_ref().map_or(0, Tally::words)
    }

    /// The dtype of the values that it reduces.
    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The dtype of the result.
    pub(crate) fn result_dtype(&self) -> Dtype {
        match self.kind {
            Kind::Min | Kind::Max => self.dtype,
            Kind::Sum | Kind::Prod | Kind::Mean | Kind::Var | Kind::Std => match self.state {
                Dtype::F64 if self.dtype.is_float() => self.dtype,
                state => state,
            },
            Kind::Count | Kind::Kept | Kind::ArgMin | Kind::ArgMax => Dtype::I64,
            Kind::Any | Kind::All => Dtype::Bool,
            Kind::Histogram | Kind::BinCount => self.tally.as_ref().map_or(Dtype::I64, Tally::result_dtype),
        }
    }

    /// The assigned name, or the text of an unnamed reduction.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// The number of 8-byte words of the state of one column.
    pub(crate) fn words(&self) -> usize {
        match self.fold {
            Fold::Sum | Fold::Product | Fold::Min | Fold::Max => 1,
            Fold::ArgMin | Fold::ArgMax => 2,
            Fold::Moments => 3,
            Fold::Tally => 0,
        }
    }

    /// The number of columns; 1 if the result is one value of all elements.
    pub(crate) fn columns(&self) -> usize {
        self.shape.as_ref().map_or(1, |shape| shape.iter().product::<u64>() as usize)
    }

    /// The number of 8-byte words of the state of all columns; 0 if states of tiles are not combined.
    pub(crate) fn state_words(&self) -> usize {
        if self.keeps_tiles { 0 } else { self.words() * self.columns() }
    }

    /// Returns the state of one of the columns; only its first [`words`](Reduction::words) are used.
    pub(crate) fn state_of_column(&self, state: &[u64], column: usize) -> [u64; MAX_WORDS] {
        let mut words = state.iter().skip(column).step_by(self.columns().max(1));
        std::array::from_fn(|_| words.next().copied().unwrap_or(0))
    }

    /// Combines the state of earlier rows, `left`, with the state of later rows, and stores the result in `left`.
    ///
    /// # Panics
    /// If a state has a wrong number of words.
    pub(crate) fn combine(&self, left: &mut [u64], right: &[u64]) {
        assert_eq!(left.len(), self.state_words(), "words of the left state");
        assert_eq!(right.len(), self.state_words(), "words of the right state");
        dispatch::run(Merge { reduction: self, left, right });
    }

    /// Combines states with those behind them, pair by pair, and stores the results one behind the other, from the
    /// first place on. Each state has `words` words, of which those of this reduction begin with the word `first`; the
    /// others stay. The reduction has one column.
    ///
    /// # Panics
    /// If a state has too few words.
    pub(crate) fn combine_pairs(&self, states: &mut [u64], words: usize, first: usize) {
        assert!(first + self.words() <= words, "words of a state");
        dispatch::run(MergePairs { reduction: self, states, words, first });
    }

    /// The same as [`combine`](Reduction::combine) on so many threads, if states with one word for each column are so
    /// large that it pays.
    ///
    /// # Panics
    /// Those of [`combine`](Reduction::combine).
    pub(crate) fn combine_on(&self, threads: usize, left: &mut [u64], right: &[u64]) {
        /// A thread combines so many words in ten times as long as it takes to start.
        const LEAST_WORDS: usize = 1 << 17;
        let words = left.len().div_ceil(threads.max(1)).max(LEAST_WORDS);
        if left.len() <= words || self.words() != 1 || left.len() != right.len() {
            return self.combine(left, right);
        }
        thread::scope(|scope| {
            let mut parts = left.chunks_mut(words).zip(right.chunks(words));
            let own = parts.next();
            for (left, right) in parts {
                scope.spawn(move || dispatch::run(Merge { reduction: self, left, right }));
            }
            if let Some((left, right)) = own {
                dispatch::run(Merge { reduction: self, left, right });
            }
        });
    }

    /// Replaces NaNs, whose bits differ between processors, by the canonical NaN, in values of the word `number` of
    /// states.
    #[inline(always)]
    fn canonicalise(&self, number: usize, values: &mut [u64]) {
        if self.state == Dtype::F64 && (self.fold == Fold::Moments || number == 0) {
            values.iter_mut().for_each(|word| *word = f64::from_bits(*word).canonical().to_bits());
        }
    }

    /// Whether each column is reduced separately.
    pub(super) fn is_by_column(&self) -> bool {
        self.shape.is_some() && self.tally.is_none()
    }

    /// The state of no rows.
    pub(super) fn identity(&self) -> [u64; MAX_WORDS] {
        let least = match self.state {
            Dtype::F64 => f64::NEG_INFINITY.to_bits(),
            Dtype::I64 => i64::MIN as u64,
            _ => u64::MIN,
        };
        let greatest = match self.state {
            Dtype::F64 => f64::INFINITY.to_bits(),
            Dtype::I64 => i64::MAX as u64,
            _ => u64::MAX,
        };
        match self.fold {
            // -0 + x is x for every x; 0 + -0 is not.
            Fold::Sum if self.state == Dtype::F64 => [(-0.0_f64).to_bits(), 0, 0],
            Fold::Sum | Fold::Moments | Fold::Tally => [0; MAX_WORDS],
            Fold::Product if self.state == Dtype::F64 => [1.0_f64.to_bits(), 0, 0],
            Fold::Product => [1, 0, 0],
            Fold::Min => [greatest, 0, 0],
            Fold::Max => [least, 0, 0],
            // The last possible row number: an actual row of the same value takes precedence.
            Fold::ArgMin => [greatest, u64::MAX, 0],
            Fold::ArgMax => [least, u64::MAX, 0],
        }
    }

    /// Combines lanes on the left with lanes on the right, word by word, as far as the right ones reach.
    #[inline(always)]
    pub(super) fn merge(&self, [l0, l1, l2]: [&mut [u64]; MAX_WORDS], [r0, r1, r2]: [&[u64]; MAX_WORDS]) {
        match (self.fold, self.state) {
            (Fold::Sum, Dtype::F64) => zip(l0, r0, |a: f64, b| a + b),
            (Fold::Sum, _) => zip(l0, r0, u64::wrapping_add),
            (Fold::Product, Dtype::F64) => zip(l0, r0, |a: f64, b| a * b),
            (Fold::Product, _) => zip(l0, r0, u64::wrapping_mul),
            (Fold::Min, Dtype::F64) => zip(l0, r0, least::<f64>),
            (Fold::Min, Dtype::I64) => zip(l0, r0, least::<i64>),
            (Fold::Min, _) => zip(l0, r0, least::<u64>),
            (Fold::Max, Dtype::F64) => zip(l0, r0, greatest::<f64>),
            (Fold::Max, Dtype::I64) => zip(l0, r0, greatest::<i64>),
            (Fold::Max, _) => zip(l0, r0, greatest::<u64>),
            (Fold::ArgMin, Dtype::F64) => find((l0, l1), (r0, r1), |a: f64, b| a < b),
            (Fold::ArgMin, Dtype::I64) => find((l0, l1), (r0, r1), |a: i64, b| a < b),
            (Fold::ArgMin, _) => find((l0, l1), (r0, r1), |a: u64, b| a < b),
            (Fold::ArgMax, Dtype::F64) => find((l0, l1), (r0, r1), |a: f64, b| a > b),
            (Fold::ArgMax, Dtype::I64) => find((l0, l1), (r0, r1), |a: i64, b| a > b),
            (Fold::ArgMax, _) => find((l0, l1), (r0, r1), |a: u64, b| a > b),
            (Fold::Moments, _) => moments([l0, l1, l2], [r0, r1, r2]),
            (Fold::Tally, _) => {}
        }
    }

    /// Computes the values of all columns as [`finish`](Reduction::finish) computes one. `None` if there are no values,
    /// or if the result is not an array.
    pub(crate) fn finish_columns(&self, state: Option<&[u64]>, rows: u64) -> Option<ArrayValue> {
        let shape = self.shape.clone()?;
        let state = state.filter(|state| state.len() == self.state_words());
        let is_float = self.state == Dtype::F64 && matches!(self.dtype, Dtype::F32 | Dtype::F64);
        let has_fast_way = rows > 0 && is_float && matches!(self.kind, Kind::Sum | Kind::Mean);
        if let Some(state) = state.filter(|_| has_fast_way) {
            // Sums and means may have millions of columns, so this is one loop. Adding 0 turns -0, the identity of
            // lanes without rows, into 0; dividing by 1 changes nothing.
            let (zero, count) = if self.kind == Kind::Sum { (0.0, 1.0) } else { (-0.0, rows as f64) };
            let values = state.iter().map(|word| ((f64::from_bits(*word) + zero) / count).canonical());
            return Some(match self.dtype {
                Dtype::F64 => ArrayValue::of_words(Dtype::F64, shape, values.map(f64::to_bits).collect()),
                _ => {
                    let mut words = vec![0_u64; state.len().div_ceil(2)];
                    let floats: &mut [f32] = bytemuck::cast_slice_mut(&mut words);
                    floats.iter_mut().zip(values).for_each(|(to, value)| *to = (value as f32).canonical());
                    ArrayValue::of_words(Dtype::F32, shape, words)
                }
            });
        }
        let value = |column| match state {
            Some(state) => self.finish(Some(&self.state_of_column(state, column)[..self.words()]), rows),
            None => self.finish(None, rows),
        };
        ArrayValue::of_values(self.result_dtype(), shape, (0..self.columns()).map(value))
    }

    /// Computes the value of `rows` rows from the state of one column, which is `None` without rows. `None` if there is
    /// no value.
    pub(crate) fn finish(&self, state: Option<&[u64]>, rows: u64) -> Option<Scalar> {
        let float = |value: f64| Scalar::of_float(self.dtype, value);
        let Some(state) = state.filter(|state| rows > 0 && state.len() == self.words()) else {
            return match self.kind {
                Kind::Sum if self.state == Dtype::F64 => Some(float(0.0)),
                Kind::Sum if self.state == Dtype::U64 => Some(Scalar::U64(0)),
                Kind::Sum | Kind::Count | Kind::Kept => Some(Scalar::I64(0)),
                Kind::Prod if self.state == Dtype::F64 => Some(float(1.0)),
                Kind::Prod if self.state == Dtype::U64 => Some(Scalar::U64(1)),
                Kind::Prod => Some(Scalar::I64(1)),
                Kind::Mean | Kind::Var | Kind::Std => Some(float(f64::NAN)),
                Kind::Any => Some(Scalar::Bool(false)),
                Kind::All => Some(Scalar::Bool(true)),
                Kind::Min | Kind::Max | Kind::ArgMin | Kind::ArgMax | Kind::Histogram | Kind::BinCount => None,
            };
        };
        Some(match self.kind {
            // Adding 0 turns -0, the identity of lanes without rows, into 0.
            Kind::Sum if self.state == Dtype::F64 => float(f64::from_bits(state[0]) + 0.0),
            Kind::Prod if self.state == Dtype::F64 => float(f64::from_bits(state[0])),
            Kind::Sum | Kind::Prod if self.state == Dtype::U64 => Scalar::U64(state[0]),
            Kind::Sum | Kind::Prod => Scalar::I64(state[0] as i64),
            Kind::Min | Kind::Max => match self.dtype {
                Dtype::Bool => Scalar::Bool(state[0] != 0),
                Dtype::I8 => Scalar::I8(state[0] as i8),
                Dtype::I16 => Scalar::I16(state[0] as i16),
                Dtype::I32 => Scalar::I32(state[0] as i32),
                Dtype::I64 => Scalar::I64(state[0] as i64),
                Dtype::U8 => Scalar::U8(state[0] as u8),
                Dtype::U16 => Scalar::U16(state[0] as u16),
                Dtype::U32 => Scalar::U32(state[0] as u32),
                Dtype::U64 => Scalar::U64(state[0]),
                Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64 => float(f64::from_bits(state[0])),
            },
            Kind::Mean => float(f64::from_bits(state[0]) / rows as f64),
            Kind::Var => float(variance(state)),
            Kind::Std => float(variance(state).sqrt()),
            Kind::Count | Kind::Kept => Scalar::I64(state[0] as i64),
            Kind::Histogram | Kind::BinCount => return None,
            Kind::Any | Kind::All => Scalar::Bool(state[0] != 0),
            Kind::ArgMin | Kind::ArgMax => Scalar::I64(state[1] as i64),
        })
    }
}

#[inline(always)]
fn zip<T: bytemuck::Pod>(left: &mut [u64], right: &[u64], combine: impl Fn(T, T) -> T) {
    let (left, right): (&mut [T], &[T]) = (bytemuck::cast_slice_mut(left), bytemuck::cast_slice(right));
    for (left, right) in left.iter_mut().zip(right) {
        *left = combine(*left, *right);
    }
}

/// Keeps the value that is first in the order of `precedes`, with its row. NaN precedes all other values. Of equal
/// values, the one in the earlier row is kept.
#[inline(always)]
fn find<T: bytemuck::Pod + PartialOrd>(
    (values, rows): (&mut [u64], &mut [u64]),
    (new_values, new_rows): (&[u64], &[u64]),
    precedes: impl Fn(T, T) -> bool,
) {
    let (values, new_values): (&mut [T], &[T]) = (bytemuck::cast_slice_mut(values), bytemuck::cast_slice(new_values));
    for (((value, row), new), new_row) in values.iter_mut().zip(rows).zip(new_values).zip(new_rows) {
        let (a, b) = (*value, *new);
        #[allow(clippy::eq_op)]
        let (is_nan, new_is_nan) = (a != a, b != b);
        let is_better = precedes(b, a) | (new_is_nan & !is_nan);
        let is_equal = (a == b) | (new_is_nan & is_nan);
        if is_better | (is_equal & (*new_row < *row)) {
            *value = b;
            *row = *new_row;
        }
    }
}

fn variance(moments: &[u64]) -> f64 {
    let [count, mean, squares] = [0, 1, 2].map(|word| f64::from_bits(moments[word]));
    // An infinite value has an infinite distance from every mean, even from itself.
    if mean.is_finite() { squares / count } else { f64::NAN }
}

/// Combines two triples (count, mean, squared differences) with Chan's method, which is numerically stable.
#[inline(always)]
fn moments([l0, l1, l2]: [&mut [u64]; MAX_WORDS], [r0, r1, r2]: [&[u64]; MAX_WORDS]) {
    let (counts, means, squares): (&mut [f64], &mut [f64], &mut [f64]) =
        (bytemuck::cast_slice_mut(l0), bytemuck::cast_slice_mut(l1), bytemuck::cast_slice_mut(l2));
    let (new_counts, new_means, new_squares): (&[f64], &[f64], &[f64]) =
        (bytemuck::cast_slice(r0), bytemuck::cast_slice(r1), bytemuck::cast_slice(r2));
    let left = counts.iter_mut().zip(means).zip(squares);
    let right = new_counts.iter().zip(new_means).zip(new_squares);
    for (((count, mean), square), ((&new_count, &new_mean), &new_square)) in left.zip(right) {
        let total = *count + new_count;
        let delta = new_mean - *mean;
        let share = new_count / total;
        let joint_mean = *mean + delta * share;
        let joint_square = *square + new_square + delta * delta * (*count * share);
        let (was_empty, adds_none) = (*count == 0.0, new_count == 0.0);
        *mean = if was_empty {
            new_mean
        } else if adds_none {
            *mean
        } else {
            joint_mean
        };
        *square = if was_empty {
            new_square
        } else if adds_none {
            *square
        } else {
            joint_square
        };
        *count = total;
    }
}

/// Combines the states of earlier and later rows.
struct Merge<'a> {
    reduction: &'a Reduction,
    left: &'a mut [u64],
    right: &'a [u64],
}

impl Work for Merge<'_> {
    #[inline(always)]
    fn run(self) {
        let columns = self.reduction.columns().max(1);
        let (mut left, mut right) = (self.left.chunks_mut(columns), self.right.chunks(columns));
        let mut left: [&mut [u64]; MAX_WORDS] = std::array::from_fn(|_| left.next().unwrap_or_default());
        let mut right: [&[u64]; MAX_WORDS] = std::array::from_fn(|_| right.next().unwrap_or_default());
        // Some columns at a time: states of wide rows are larger than the caches.
        while !left[0].is_empty() {
            let count = left[0].len().min(BLOCK_ELEMENTS);
            let mut own = left.each_mut().map(|words| words.split_off_mut(..count).unwrap_or_default());
            let others = right.each_mut().map(|words| words.split_off(..count).unwrap_or_default());
            self.reduction.merge(own.each_mut().map(|words| &mut **words), others);
            for (number, values) in own.iter_mut().enumerate() {
                self.reduction.canonicalise(number, values);
            }
        }
    }
}

/// Combines states of one column pair by pair.
struct MergePairs<'a> {
    reduction: &'a Reduction,
    states: &'a mut [u64],
    /// The words of a state, and the first one of the reduction.
    words: usize,
    first: usize,
}

impl Work for MergePairs<'_> {
    #[inline(always)]
    fn run(self) {
        /// So many pairs are combined as columns, in vectorised loops.
        const PAIRS: usize = 128;
        let MergePairs { reduction, states, words, first } = self;
        let (own, pairs) = (reduction.words(), states.len() / words / 2);
        let (mut left, mut right) = ([[0; PAIRS]; MAX_WORDS], [[0; PAIRS]; MAX_WORDS]);
        for from in (0..pairs).step_by(PAIRS) {
            let count = PAIRS.min(pairs - from);
            let both = states[2 * from * words..2 * (from + count) * words].chunks_exact(2 * words);
            for (pair, states) in both.enumerate() {
                for word in 0..own {
                    (left[word][pair], right[word][pair]) = (states[first + word], states[words + first + word]);
                }
            }
            reduction.merge(left.each_mut().map(|all| &mut all[..count]), right.each_ref().map(|all| &all[..count]));
            for (word, values) in left.iter_mut().enumerate().take(own) {
                reduction.canonicalise(word, &mut values[..count]);
            }
            for (pair, state) in states[from * words..].chunks_exact_mut(words).take(count).enumerate() {
                (0..own).for_each(|word| state[first + word] = left[word][pair]);
            }
        }
    }
}

/// Accumulates the values of rows in lanes.
struct Push<'a> {
    lanes: &'a mut Lanes,
    reduction: &'a Reduction,
    first: u64,
    values: &'a [u64],
    /// See [`Reduction::weight`]; empty if all rows count.
    weights: &'a [u64],
}

impl Work for Push<'_> {
    #[inline(always)]
    fn run(self) {
        self.lanes.push_all(self.reduction, self.first, self.values, self.weights);
    }
}

/// The lanes of the strips of a tile on the host. Each word of the states is stored in a separate row, for vector
/// instructions.
pub(super) struct Lanes {
    words: [Vec<u64>; MAX_WORDS],
    tiling: Tiling,
    /// The words that accompany values: their numbers, or a count of 1 for each value.
    beside: Vec<u64>,
    zeros: Vec<u64>,
}

impl Lanes {
    pub(super) fn new(reduction: &Reduction, tiling: Tiling) -> Lanes {
        let count = if tiling.strips == 1 { TILE_THREADS } else { tiling.columns_at_once() };
        let lanes = |is_used: bool| vec![0; if is_used { count } else { 0 }];
        let words = std::array::from_fn(|word| lanes(word < reduction.words()));
        let beside = if reduction.fold == Fold::Moments { 1.0_f64.to_bits() } else { 0 };
        Lanes { words, tiling, beside: vec![beside; count], zeros: lanes(true) }
    }

    /// Resets the lanes.
    pub(super) fn clear(&mut self, reduction: &Reduction) {
        for (lanes, identity) in self.words.iter_mut().zip(reduction.identity()) {
            lanes.fill(identity);
        }
    }

    /// Accumulates the values of a span, whose first element has the number `first`: among all elements, or, for a
    /// reduction of each column, that of its row. `weights` is empty if all count.
    pub(super) fn push(&mut self, reduction: &Reduction, first: u64, values: &[u64], weights: &[u64]) {
        dispatch::run(Push { lanes: self, reduction, first, values, weights });
    }

    #[inline(always)]
    fn push_all(&mut self, reduction: &Reduction, mut first: u64, values: &[u64], weights: &[u64]) {
        let lanes = if self.tiling.strips == 1 { self.tiling.lanes() } else { self.zeros.len() };
        let mut weights = weights.chunks(lanes);
        for values in values.chunks(lanes) {
            if matches!(reduction.fold, Fold::ArgMin | Fold::ArgMax) {
                let (columns, rows) = match reduction.is_by_column() {
                    true => (self.tiling.columns_at_once(), self.tiling.rows_at_once),
                    false => (1, values.len()),
                };
                let numbers = self.beside.chunks_mut(columns).zip(first..);
                numbers.for_each(|(numbers, number)| numbers.fill(number));
                first += rows as u64;
            }
            let right: [&[u64]; MAX_WORDS] = match reduction.fold {
                Fold::Moments => [weights.next().unwrap_or(&self.beside), values, &self.zeros],
                _ => [values, &self.beside, &[]],
            };
            reduction.merge(self.words.each_mut().map(Vec::as_mut_slice), right);
        }
    }

    /// Combines the lanes and writes the states of these columns: one state for each strip, or one for each column, in
    /// which each word has all columns.
    pub(super) fn finish(&mut self, reduction: &Reduction, columns: Range<usize>, state: &mut [u64]) {
        let Tiling { width, rows_at_once, .. } = self.tiling;
        if reduction.is_by_column() {
            if rows_at_once > 1 {
                self.halve(reduction, 0, rows_at_once / 2 * width, width);
            }
            for (all, lanes) in state.chunks_mut(width).zip(&self.words) {
                all[columns.clone()].copy_from_slice(&lanes[..columns.len()]);
            }
            let own = state.chunks_mut(width).map(|all| &mut all[columns.clone()]);
            own.enumerate().for_each(|(word, values)| reduction.canonicalise(word, values));
            return;
        }
        let strips = columns.start / TILE_THREADS..columns.end.div_ceil(TILE_THREADS);
        for (strip, state) in state.chunks_mut(reduction.words()).take(strips.end).skip(strips.start).enumerate() {
            let start = strip * TILE_THREADS;
            self.halve(reduction, start, TILE_THREADS / 2, 1);
            for (number, (word, lanes)) in state.iter_mut().zip(&self.words).enumerate() {
                *word = lanes[start];
                reduction.canonicalise(number, std::slice::from_mut(word));
            }
        }
    }

    /// Combines the lanes from `start` on in halves, of which the first has `half` lanes and the last has `last`.
    fn halve(&mut self, reduction: &Reduction, start: usize, mut half: usize, last: usize) {
        while half >= last {
            let mut right: [&[u64]; MAX_WORDS] = Default::default();
            let mut words = self.words.iter_mut().zip(&mut right);
            let left = std::array::from_fn(|_| {
                let Some((lanes, right)) = words.next() else { return Default::default() };
                let own = lanes.get_mut(start..start + 2 * half).unwrap_or_default();
                let (left, rest) = own.split_at_mut(half.min(own.len()));
                *right = rest;
                left
            });
            reduction.merge(left, right);
            half /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::dispatch::Level;
    use super::*;

    /// Every reduction has the same bits with the instructions of every level, special values among the rows.
    #[test]
    fn every_level_has_the_same_bits() {
        let special = [f64::NAN, -0.0, 0.0, f64::INFINITY, 1e300, -1e300, f64::MIN_POSITIVE / 4.0];
        let value = |k: u64| match k % 97 {
            at @ 0..7 if k > 500 => special[at as usize],
            _ => ((k * 7919 % 1009) as f64 - 500.0) / 3.0,
        };
        for rows in [1, 255, 256, 700, 4096] {
            let floats: Vec<u64> = (0..rows).map(|k| value(k).to_bits()).collect();
            let ints: Vec<u64> = (0..rows).map(|k| (k * 7919 % 1009).wrapping_sub(500)).collect();
            for kind in [Kind::Sum, Kind::Prod, Kind::Min, Kind::Max, Kind::ArgMin, Kind::ArgMax, Kind::Var] {
                for dtype in [Dtype::F64, Dtype::I64, Dtype::U64] {
                    let reduction = Reduction::new(String::new(), kind, dtype);
                    let values = if dtype == Dtype::F64 || kind == Kind::Var { &floats } else { &ints };
                    let state = |level: Level| {
                        let mut lanes = Lanes::new(&reduction, Tiling::of(1, true));
                        lanes.clear(&reduction);
                        level.run(Push { lanes: &mut lanes, reduction: &reduction, first: 0, values, weights: &[] });
                        let mut state = vec![0; reduction.words()];
                        lanes.finish(&reduction, 0..1, &mut state);
                        state
                    };
                    let plain = state(Level::Plain);
                    for level in Level::supported() {
                        assert_eq!(state(level), plain, "{kind:?} of {dtype:?}, {rows} rows, {level:?}");
                    }
                }
            }
        }
    }
}
