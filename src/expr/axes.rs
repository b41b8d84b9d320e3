//! The axes of a reduction: which elements it combines.

use super::bins::Bins;
use super::rank::Order;

/// What a reduction combines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Along {
    /// All elements.
    #[default]
    All,
    /// The rows: `axis=0`. The result has the shape of a row, or that of an array of one row.
    Rows { keeps_dims: bool },
    /// The elements of each row: `axis=-1`. There is a value for each row.
    Within(Within),
    /// All elements, which it counts in bins. The result has a value for each bin.
    Bins(Bins),
    /// The rows of each tile. The result has a value for each of them.
    Tiles,
    /// The rows, of which it adds the products of each element of one value with each of another: `x.T @ y`.
    Product,
    /// All elements, of which it finds some by their rank, in several passes.
    Order(Order),
    /// The same, in one of these passes, which are counted from 0.
    Ranked(Order, usize),
}

impl Along {
    /// The rows, without their dimension in the result.
    pub(super) const ROWS: Along = Along::Rows { keeps_dims: false };

    /// The most passes over the rows that it takes.
    pub(super) fn passes(self) -> usize {
        match self {
            Along::Order(order) => order.passes(),
            _ => 1,
        }
    }
}

/// A reduction of the elements of each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Within {
    pub(super) axes: Axes,
    /// Whether the result keeps the dimensions of a row, with one element in each.
    pub(super) keeps_dims: bool,
}

/// Axes by their numbers, from the first one on or from the last one on. Others than the first 64 do not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Axes {
    /// Bit `k` is axis `k`.
    from_first: u64,
    /// Bit `k` is axis `-1 - k`.
    from_last: u64,
}

impl Axes {
    /// Adds an axis. Returns whether there may be one of this number, and it was not given yet.
    pub(super) fn add(&mut self, axis: i128) -> bool {
        let (bits, number) = if axis < 0 { (&mut self.from_last, -1 - axis) } else { (&mut self.from_first, axis) };
        let bit = u32::try_from(number).ok().and_then(|number| 1_u64.checked_shl(number)).unwrap_or(0);
        let is_new = bit & !*bits != 0;
        *bits |= bit;
        is_new
    }

    /// Whether it is the first axis alone.
    pub(super) fn is_first(self) -> bool {
        self == Axes { from_first: 1, from_last: 0 }
    }

    /// Whether the first axis is among them, by its number from the front.
    pub(super) fn has_first(self) -> bool {
        self.from_first & 1 == 1
    }

    /// Whether it is the first axis alone of an array of so many dimensions, by its number from the last one.
    pub(super) fn is_first_of(self, dims: usize) -> bool {
        let bit = u32::try_from(dims.saturating_sub(1)).ok().and_then(|number| 1_u64.checked_shl(number));
        self.from_first == 0 && Some(self.from_last) == bit
    }

    /// An axis that an array of so many dimensions does not have.
    pub(super) fn beyond(self, dims: usize) -> Option<i64> {
        let first = |bits: u64| {
            let bits = bits & u32::try_from(dims).ok().and_then(|dims| u64::MAX.checked_shl(dims)).unwrap_or(0);
            (bits != 0).then(|| i64::from(bits.trailing_zeros()))
        };
        first(self.from_first).or_else(|| Some(-1 - first(self.from_last)?))
    }

    /// The number of axes, if these are the last ones of an array of so many dimensions, and not all of them.
    pub(crate) fn last_of(self, dims: usize) -> Option<usize> {
        let count = (self.from_first.count_ones() + self.from_last.count_ones()) as usize;
        let all = (0..dims.min(64)).filter(|axis| {
            let from_last = dims - 1 - axis;
            self.from_first >> axis & 1 == 1 || from_last < 64 && self.from_last >> from_last & 1 == 1
        });
        let all: Vec<usize> = all.collect();
        let is_last = all.len() == count && all.first() == Some(&(dims.saturating_sub(count))) && count < dims;
        is_last.then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(axes: &[i128]) -> Axes {
        let mut all = Axes::default();
        axes.iter().for_each(|axis| assert!(all.add(*axis)));
        all
    }

    #[test]
    fn axes_beyond_the_dimensions_are_found() {
        for (axes, dims, expected) in [
            (&[0, 1, -1, -2][..], 2, None),
            (&[1, 2, 5], 2, Some(2)),
            (&[1, -3], 2, Some(-3)),
            (&[63, -64], 64, None),
            (&[63], 63, Some(63)),
        ] {
            assert_eq!(of(axes).beyond(dims), expected, "{axes:?} of {dims}");
        }
    }

    #[test]
    fn axes_are_counted_from_both_ends() {
        for (axes, dims, expected) in [
            (&[1][..], 2, Some(1)),
            (&[-1], 2, Some(1)),
            (&[-1], 3, Some(1)),
            (&[1], 3, None),
            (&[1, 2], 3, Some(2)),
            (&[-2, 2], 3, Some(2)),
            (&[-2, -1], 3, Some(2)),
            (&[-1], 1, None),
            (&[-2], 2, None),
            (&[0, 1], 2, None),
            (&[2], 2, None),
            (&[-3], 2, None),
            (&[1, -1], 2, None),
            (&[], 2, None),
        ] {
            assert_eq!(of(axes).last_of(dims), expected, "{axes:?} of {dims}");
        }
    }

    #[test]
    fn no_axis_is_given_twice_and_few_may_exist() {
        let mut axes = of(&[1, -1]);
        assert!(!axes.add(1) && !axes.add(-1) && !axes.add(64) && !axes.add(-65) && !axes.add(i128::MAX));
        assert!(axes.add(63) && axes.add(-64) && !axes.add(i128::MIN));
        assert!(of(&[0]).is_first() && !of(&[0, 1]).is_first() && of(&[0, 1]).has_first() && !of(&[-1]).has_first());
    }
}
