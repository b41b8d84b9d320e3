//! Order statistics: what a pass counts to find values by their rank.
//!
//! Every value has a key, an unsigned integer of as many bits with the same order. A pass counts the keys of a range
//! in bins of equal width. The next pass divides one bin of these, until it has one key, or so few that a pass lists
//! them. `search.rs` finds the range of the next pass.

use super::bins::Bins;
use super::ir::{Id, Nodes, Op};
use super::reduce::Reduction;
use super::tally::{LEFT_OUT, Tally};
use super::words::{Binary, Kind, Unary};
use half::{bf16, f16};

use crate::data::{Dtype, Scalar};

/// The bits of a key that a pass resolves.
const BIN_BITS: u32 = 16;
/// The number of bins.
const BINS: u32 = 1 << BIN_BITS;
/// The most values that `topk` may return, and that a pass lists.
pub(super) const MOST_LISTED: u32 = 65_536;

/// Which values are found, by their rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Order {
    Median,
    /// With the share of values that are less.
    Quantile(f64),
    /// So many of the largest.
    Top(u32),
}

/// A text that needs an order statistic, as the engine sees it.
#[derive(Clone, Debug)]
pub(crate) struct Ranking {
    /// Its name, or its text.
    pub(crate) label: String,
    pub(crate) order: Order,
    /// The number of the first pass that counts for it.
    pub(crate) first: usize,
    /// The label under which that pass counts, which those of the same values share.
    pub(crate) shared: String,
}

impl Ranking {
    /// The number of the pass that is the first one after those that count for it.
    pub(crate) fn end(&self) -> usize {
        self.first + self.order.passes()
    }
}

impl Order {
    /// The most passes that it takes: those of 64-bit values.
    pub(super) fn passes(self) -> usize {
        (0..).take_while(|pass| self.counts(*pass, 64) || self.lists(*pass, 64)).count()
    }

    /// Whether a pass, counted from 0, counts keys of so many bits. Each resolves some of them.
    pub(super) fn counts(self, pass: usize, bits: u32) -> bool {
        pass as u32 * BIN_BITS < bits
    }

    /// Whether a pass, counted from 0, may list keys of so many bits. The last pass that counts finds the value, and
    /// only `topk` needs the ones above it.
    pub(super) fn lists(self, pass: usize, bits: u32) -> bool {
        let is_last = !self.counts(pass + 1, bits);
        match self {
            Order::Top(_) => pass > 0 && bits > BIN_BITS && self.counts(pass - 1, bits),
            _ => pass > 0 && !is_last,
        }
    }
}

/// The bits of the keys of a dtype.
pub(super) fn key_bits(dtype: Dtype) -> u32 {
    8 * dtype.size() as u32
}

/// The greatest key of so many bits. For floats it is that of NaN, and of no other value.
pub(super) fn greatest_key(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

/// The width of the bins of a range of keys, as a power of 2.
pub(super) fn shift_of(range: u64) -> u32 {
    (64 - range.leading_zeros()).saturating_sub(BIN_BITS)
}

/// What a kernel receives about the range of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// The least key.
    Low,
    /// The greatest key. It is less than [`Low`](Bound::Low) if no key is in the range.
    High,
    /// The width of a bin, as a power of 2.
    Shift,
    /// Whether keys are listed, as opposed to counted.
    IsList,
}

impl Bound {
    pub(super) const ALL: [Bound; 4] = [Bound::Low, Bound::High, Bound::Shift, Bound::IsList];

    /// The name of the scalar for the value with this label. No name of a text has a space.
    pub(super) fn name(self, label: &str) -> String {
        let what = match self {
            Bound::Low => "low",
            Bound::High => "high",
            Bound::Shift => "shift",
            Bound::IsList => "lists",
        };
        format!("{label}: {what}")
    }
}

/// Returns the label of the value for which a pass finds out what has this label.
pub(super) fn found_for(label: &str) -> &str {
    label.split_once(": ").map_or(label, |(value, _)| value)
}

/// Returns whether only the passes of an order statistic use the scalar with this name.
pub(crate) fn is_bound(name: &str) -> bool {
    name.contains(": ")
}

/// What a pass finds out about keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The number of keys in each bin.
    Counts,
    /// The least key that is not below the range.
    Least,
    /// The greatest key that is not above the range.
    Greatest,
    /// The number of listed keys, and these keys.
    List,
}

impl Part {
    pub(super) const ALL: [Part; 4] = [Part::Counts, Part::Least, Part::Greatest, Part::List];

    /// The label of the reduction for the value with this label.
    pub(super) fn label(self, label: &str) -> String {
        let what = match self {
            Part::Counts => "counts",
            Part::Least => "least",
            Part::Greatest => "greatest",
            Part::List => "list",
        };
        format!("{label}: {what}")
    }
}

/// The values of a pass.
pub(super) struct Values {
    /// The values, of this dtype.
    pub(super) of: Id,
    pub(super) dtype: Dtype,
    /// Which of them are kept, if a filter keeps some.
    pub(super) condition: Option<Id>,
}

/// Returns the reductions of a pass, counted from 0, for the value with this label. `received` are the bounds of the
/// range, of which the first pass needs none.
pub(super) fn reductions(
    nodes: &mut Nodes,
    (label, order, pass): (&str, Order, usize),
    values: &Values,
    received: impl Fn(Bound) -> Option<Op>,
) -> Vec<Reduction> {
    let bits = key_bits(values.dtype);
    let key = key(nodes, values);
    let mut bound = |bound: Bound| {
        let of_all = match bound {
            Bound::Low | Bound::IsList => 0,
            Bound::High => greatest_key(bits),
            Bound::Shift => bits.saturating_sub(BIN_BITS).into(),
        };
        let op = received(bound).filter(|_| pass > 0).unwrap_or(Op::Constant(of_all));
        nodes.push(op, Dtype::U64)
    };
    let [low, high, shift, is_list] = Bound::ALL.map(&mut bound);
    let mut graph = Graph { nodes, condition: values.condition };
    let is_above = graph.compare(Binary::Ge, key, low);
    let is_below = graph.compare(Binary::Le, key, high);
    let is_inside = graph.nodes.push(Op::Binary(Binary::And, is_above, is_below), Dtype::Bool);
    let zero = graph.nodes.push(Op::Constant(0), Dtype::U64);
    let mut reductions = vec![];
    let named = |part: Part, kind, dtype| Reduction::new(part.label(label), kind, dtype);
    if order.counts(pass, bits) {
        let is_counted = graph.compare(Binary::Eq, is_list, zero);
        // The range of the first pass has all keys, from 0 on.
        let place = if pass == 0 { key } else { graph.nodes.push(Op::Binary(Binary::Sub, key, low), Dtype::U64) };
        let unless_all = |conditions: Vec<Id>| if pass == 0 { vec![] } else { conditions };
        let bin = graph.nodes.push(Op::Binary(Binary::Shr, place, shift), Dtype::U64);
        let bin = graph.nodes.push(Op::Cast(bin), Dtype::I64);
        let of = graph.bin(&unless_all(vec![is_inside, is_counted]), bin);
        let tally = Tally::of(Bins::Keys(BINS), None);
        let mut reduction = named(Part::Counts, Kind::BinCount, values.dtype).in_bins(tally);
        reduction.of = of;
        reductions.push(reduction);
        for (part, kind, is_one) in [(Part::Least, Kind::Min, is_above), (Part::Greatest, Kind::Max, is_below)] {
            let mut reduction = named(part, kind, Dtype::U64);
            reduction.of = graph.where_kept(&unless_all(vec![is_one]), key, reduction.neutral(), Dtype::U64);
            reductions.push(reduction);
        }
    }
    if order.lists(pass, bits) {
        let is_listed = graph.compare(Binary::Ne, is_list, zero);
        let first = graph.nodes.push(Op::Constant(0), Dtype::I64);
        let of = graph.bin(&[is_inside, is_listed], first);
        let tally = Tally::of(Bins::List(MOST_LISTED), None);
        let mut reduction = named(Part::List, Kind::BinCount, values.dtype).in_bins(tally);
        (reduction.of, reduction.weight) = (of, Some(key));
        reductions.push(reduction);
    }
    reductions
}

/// The key of each value, as a `u64`.
fn key(nodes: &mut Nodes, values: &Values) -> Id {
    let (of, dtype) = (values.of, values.dtype);
    let as_u64 = |nodes: &mut Nodes, of: Id| match nodes.dtype(of) {
        Dtype::U64 => of,
        _ => nodes.push(Op::Cast(of), Dtype::U64),
    };
    match dtype {
        _ if dtype.is_float() => {
            let unsigned = match dtype.size() {
                2 => Dtype::U16,
                4 => Dtype::U32,
                _ => Dtype::U64,
            };
            let key = nodes.push(Op::Unary(Unary::Key, of), unsigned);
            as_u64(nodes, key)
        }
        _ => {
            let key = as_u64(nodes, of);
            if !dtype.is_signed() {
                return key;
            }
            let half = nodes.push(Op::Constant(1 << (key_bits(dtype) - 1)), Dtype::U64);
            nodes.push(Op::Binary(Binary::Add, key, half), Dtype::U64)
        }
    }
}

/// The operations of a pass.
struct Graph<'n> {
    nodes: &'n mut Nodes,
    /// Which values are kept.
    condition: Option<Id>,
}

impl Graph<'_> {
    fn compare(&mut self, op: Binary, left: Id, right: Id) -> Id {
        self.nodes.push(Op::Binary(op, left, right), Dtype::Bool)
    }

    /// The value where it is kept and all of these hold, and otherwise this constant.
    fn where_kept(&mut self, all: &[Id], value: Id, otherwise: u64, dtype: Dtype) -> Id {
        let otherwise = self.nodes.push(Op::Constant(otherwise), dtype);
        let all = self.condition.iter().chain(all).copied().collect::<Vec<_>>();
        let all = all.into_iter().reduce(|a, b| self.nodes.push(Op::Binary(Binary::And, a, b), Dtype::Bool));
        match all {
            Some(all) => self.nodes.push(Op::Select(all, value, otherwise), dtype),
            None => value,
        }
    }

    /// The bin, an `i64`, of what is kept where all of these hold.
    fn bin(&mut self, all: &[Id], bin: Id) -> Id {
        self.where_kept(all, bin, LEFT_OUT as u64, Dtype::I64)
    }
}

/// The key of a float: that of NaN is the greatest.
pub(super) trait Key {
    type Bits;
    fn key(self) -> Self::Bits;
}

macro_rules! keys {
    ($($float:ty, $bits:ty;)*) => {$(
        impl Key for $float {
            type Bits = $bits;

            #[inline(always)]
            fn key(self) -> $bits {
                let bits = self.to_bits();
                let top = 1 << (<$bits>::BITS - 1);
                // Negative floats are in the opposite order of their bits.
                let key = if bits & top == 0 { bits | top } else { !bits };
                if self.is_nan() { <$bits>::MAX } else { key }
            }
        }
    )*};
}
keys!(f16, u16; bf16, u16; f32, u32; f64, u64;);

/// Returns the bits of the value of this dtype with this key.
pub(super) fn bits_of_key(dtype: Dtype, key: u64) -> u64 {
    let bits = key_bits(dtype);
    let top = 1 << (bits - 1);
    match dtype {
        _ if dtype.is_float() && key == greatest_key(bits) => Scalar::of_float(dtype, f64::NAN).bits(),
        _ if dtype.is_float() => {
            if key & top == 0 {
                !key & greatest_key(bits)
            } else {
                key ^ top
            }
        }
        _ if dtype.is_signed() => key.wrapping_sub(top),
        _ => key,
    }
}
