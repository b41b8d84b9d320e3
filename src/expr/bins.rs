//! The bins of a histogram, and the keys of a count.

use std::ops::RangeInclusive;

use crate::data::{Dtype, half};

/// The numbers of bins that a count may have. More would take longer to combine than to sort.
pub(super) const COUNTS: RangeInclusive<u32> = 1..=65_536;

/// What a reduction counts in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bins {
    /// Bins of the same width.
    Equal(Edges),
    /// One bin for each integer from 0 to below this number.
    Keys(u32),
    /// No bins: elements whose key is 0 are listed, up to so many. What is listed is in place of the weight.
    List(u32),
}

impl Bins {
    /// The number of bins.
    pub(super) fn count(self) -> u32 {
        match self {
            Bins::Equal(edges) => edges.bins,
            Bins::Keys(count) => count,
            // The number of listed elements is in front.
            Bins::List(most) => most + 1,
        }
    }
}

/// The edges of bins of the same width, as those of `numpy.linspace(low, high, bins + 1)`. Each bin has its lower edge,
/// and the last one both edges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Edges {
    pub(super) bins: u32,
    pub(super) low: f64,
    pub(super) high: f64,
    /// The float dtype to which the edges are rounded, as NumPy rounds them for values of that dtype.
    pub(super) dtype: Dtype,
}

impl Edges {
    /// The distance of the edges before they are rounded.
    pub(super) fn step(self) -> f64 {
        (self.high - self.low) / f64::from(self.bins)
    }

    /// The edge with this number, from 0 on.
    #[inline(always)]
    pub(super) fn edge(self, number: u32) -> f64 {
        // As `linspace` computes it.
        let edge = if number == self.bins { self.high } else { f64::from(number) * self.step() + self.low };
        match self.dtype {
            Dtype::F16 => half::of_f16(half::f16_of(edge)).into(),
            Dtype::Bf16 => half::of_bf16(half::bf16_of(edge)).into(),
            Dtype::F32 => f64::from(edge as f32),
            _ => edge,
        }
    }

    /// Whether each edge is greater than the one before it.
    pub(super) fn are_distinct(self) -> bool {
        (0..self.bins).all(|number| self.edge(number) < self.edge(number + 1)) && self.edge(self.bins).is_finite()
    }

    /// The bin of a value; `None` outside the edges, and for NaN. `kernels/tally.cu` has the same function.
    #[inline(always)]
    pub(super) fn bin(self, value: f64) -> Option<u32> {
        if value.is_nan() || value < self.edge(0) || value > self.edge(self.bins) {
            return None;
        }
        let near = (value - self.low) / (self.high - self.low) * f64::from(self.bins);
        let bin = (near.max(0.0) as u32).min(self.bins - 1);
        // The edges decide. They are rounded otherwise than the quotient, by less than a bin.
        if value < self.edge(bin) {
            Some(bin - 1)
        } else if bin + 1 < self.bins && value >= self.edge(bin + 1) {
            Some(bin + 1)
        } else {
            Some(bin)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By its definition: the last edge that is not greater.
    fn naive(edges: Edges, value: f64) -> Option<u32> {
        if value == edges.edge(edges.bins) {
            return Some(edges.bins - 1);
        }
        (0..edges.bins).find(|bin| edges.edge(*bin) <= value && value < edges.edge(bin + 1))
    }

    #[test]
    fn values_at_edges_and_beside_them_are_in_their_bins() {
        let ranges = [(0.0, 1.0), (-3.0, 3.0), (0.1, 0.7), (-1e300, 1e300), (1e15, 1e15 + 300.0), (1000.0, 1000.01)];
        for (low, high) in ranges {
            for bins in [1, 2, 3, 7, 10, 49, 100] {
                for dtype in [Dtype::F16, Dtype::Bf16, Dtype::F32, Dtype::F64] {
                    let edges = Edges { bins, low, high, dtype };
                    if !edges.are_distinct() {
                        continue;
                    }
                    for number in 0..=bins {
                        let edge = edges.edge(number);
                        for value in [edge.next_down(), edge, edge.next_up(), edge + 0.3 * edges.step()] {
                            assert_eq!(edges.bin(value), naive(edges, value), "{edges:?}, {value:?}");
                        }
                    }
                }
            }
        }
        let edges = Edges { bins: 4, low: 0.0, high: 1.0, dtype: Dtype::F64 };
        for outside in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-300, 1.0_f64.next_up()] {
            assert_eq!(edges.bin(outside), None);
        }
    }

    #[test]
    fn edges_that_are_equal_are_found() {
        let are_distinct = |bins, low, high, dtype| Edges { bins, low, high, dtype }.are_distinct();
        assert!(are_distinct(65_536, 1.0, 2.0, Dtype::F64) && are_distinct(65_536, 1.0, 2.0, Dtype::F32));
        assert!(
            !are_distinct(65_536, 1e15, 1e15 + 1.0, Dtype::F64) && !are_distinct(65_536, 1000.0, 1001.0, Dtype::F32)
        );
        assert!(!are_distinct(1, f64::MIN, f64::MAX, Dtype::F64) && !are_distinct(1, 0.0, 1e300, Dtype::F32));
        assert!(!are_distinct(2, 0.0, 5e-324, Dtype::F64));
    }
}
