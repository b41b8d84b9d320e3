//! What the results of some rows depend on, if bounds of the values are known.
//!
//! What is known of each value follows from its operands: of `x[t > 5]`, a `t` of 3 at most makes the condition false,
//! so that the results depend neither on `x` nor on `t` there. This is interval arithmetic. The bounds of a result hold
//! after rounding, because rounding keeps the order.

use super::ir::{Id, Node, Op};
use super::program::Program;
use super::reduce::Reduction;
use super::words::{Binary, Unary};
use crate::data::{Dtype, Scalar};

/// The operations of a program whose results may depend on fewer inputs than they read.
#[derive(Debug)]
pub(crate) struct Needs {
    nodes: Vec<Node>,
    /// The rows of these inputs are read in the places of others, too.
    near: Vec<usize>,
    /// Of each input, whether a condition depends on it.
    conditional: Vec<bool>,
    filter: Option<Id>,
    outputs: Vec<Id>,
    /// What is reduced.
    reduced: Vec<Id>,
    /// Whether reductions take of a row only its values, not its number.
    are_of_values: bool,
}

/// What the results of some rows depend on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dependence {
    /// Of each input, whether they depend on it.
    pub(crate) inputs: Vec<bool>,
    /// What every row gives; `None` if that depends on an input, or on which row it is, or if it is written. Rows that
    /// a filter does not keep are not.
    pub(crate) outcome: Option<Outcome>,
}

/// What rows give that depend on no input. Rows whose outcomes are equal give the same bits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome(Vec<(Id, Known)>);

/// What is known of a value in some rows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    Nothing,
    Bool(bool),
    /// An integer from the first one to the second one.
    Int(i128, i128),
    /// A float from the first one to the second one, or NaN.
    Float(f64, f64),
}

impl Needs {
    /// Returns the operations of a program; `None` if it has no conditions, or if what a row gives depends on others.
    pub(crate) fn of(program: &Program) -> Option<Needs> {
        let conditional = conditional(program);
        let is_of_rows = program.row.width() == 1 && program.layer.is_none() && program.products.is_empty();
        if !conditional.contains(&true) || !is_of_rows || program.adds_up() || program.reduces_within() {
            return None;
        }
        let near = program.nodes.iter().filter_map(|node| match node.op {
            Op::At(input, _) => Some(input),
            _ => None,
        });
        let reduced = program.reductions.iter().flat_map(|one| [Some(one.of), one.weight]).flatten();
        Some(Needs {
            near: near.collect(),
            conditional,
            filter: program.filter,
            outputs: program.output_ids.clone(),
            reduced: reduced.collect(),
            are_of_values: !program.keeps_tiles() && !program.reductions.iter().any(Reduction::has_row),
            nodes: program.nodes.clone(),
        })
    }

    /// Returns whether a condition depends on an input, so that its bounds may tell which rows are needed.
    pub(crate) fn is_conditional(&self, input: usize) -> bool {
        self.conditional.get(input) == Some(&true)
    }

    /// Returns what the results of rows depend on whose values of inputs lie between these bounds. The inputs behind
    /// the last bounds have none. `scalars` are the bits of the kernel's scalars, if they are known.
    pub(crate) fn of_rows(&self, bounds: &[Option<(Scalar, Scalar)>], scalars: &[u64]) -> Dependence {
        let mut known = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            known.push(of_node(*node, &known, bounds, scalars));
        }
        let keeps_none = self.filter.is_some_and(|filter| known[filter] == Known::Bool(false));
        let outputs = self.outputs.iter().filter(|_| !keeps_none);
        let mut needed = vec![false; self.nodes.len()];
        outputs.chain(&self.filter).chain(&self.reduced).for_each(|root| needed[*root] = true);
        let mut inputs = vec![false; self.conditional.len()];
        // What the bounds tell of the values on which the results depend.
        let is_written = !self.outputs.is_empty() && !keeps_none;
        let (mut told, mut are_of_values) = (vec![], self.are_of_values && !is_written);
        for (id, node) in self.nodes.iter().enumerate().rev() {
            if !needed[id] {
                continue;
            }
            if known[id].is_one_value() {
                told.push((id, known[id]));
                continue;
            }
            match (node.op, taken(node.op, &known)) {
                (Op::Input(input), _) => inputs[input] = true,
                (Op::Select(condition, ..), Some(operand)) => {
                    told.push((condition, known[condition]));
                    needed[operand] = true;
                }
                (Op::Row | Op::RowAt(_) | Op::Element | Op::Column, _) => are_of_values = false,
                (op, _) => op.operands().for_each(|operand| needed[operand] = true),
            }
        }
        self.near.iter().for_each(|input| inputs[*input] = true);
        let outcome = (are_of_values && !inputs.contains(&true)).then_some(Outcome(told));
        Dependence { inputs, outcome }
    }
}

/// Returns for each input whether a condition depends on it.
fn conditional(program: &Program) -> Vec<bool> {
    let mut is_of_condition: Vec<bool> = program.nodes.iter().map(|node| node.dtype == Dtype::Bool).collect();
    let mut inputs = vec![false; program.inputs.len()];
    for (id, node) in program.nodes.iter().enumerate().rev() {
        match node.op {
            _ if !is_of_condition[id] => {}
            Op::Input(input) => inputs[input] = true,
            op => op.operands().for_each(|operand| is_of_condition[operand] = true),
        }
    }
    inputs
}

/// Returns the operand that a selection takes, if that is known.
fn taken(op: Op, known: &[Known]) -> Option<Id> {
    match op {
        Op::Select(condition, yes, no) => match known[condition] {
            Known::Bool(is_true) => Some(if is_true { yes } else { no }),
            _ => None,
        },
        _ => None,
    }
}

fn of_node(node: Node, known: &[Known], bounds: &[Option<(Scalar, Scalar)>], scalars: &[u64]) -> Known {
    let dtype = node.dtype;
    match node.op {
        Op::Constant(bits) => Known::value(Scalar::of_bits(dtype, bits)),
        Op::Value(scalar) => {
            scalars.get(scalar).map_or(Known::Nothing, |bits| Known::value(Scalar::of_bits(dtype, *bits)))
        }
        Op::Input(input) => match bounds.get(input) {
            Some(Some((least, greatest))) => Known::between(*least, *greatest),
            _ => Known::Nothing,
        },
        Op::Cast(of) => known[of].cast(dtype),
        Op::Unary(op, of) => known[of].unary(op, dtype),
        Op::Binary(op, a, b) => known[a].binary(op, known[b], dtype),
        Op::Select(_, yes, no) => match taken(node.op, known) {
            Some(operand) => known[operand],
            None => known[yes].or(known[no]),
        },
        Op::At(..) | Op::Row | Op::RowAt(_) | Op::TotalRows | Op::Element | Op::Column => Known::Nothing,
        Op::RunningSum(..) | Op::Reduce(..) => Known::Nothing,
    }
}

impl Known {
    fn value(value: Scalar) -> Known {
        Known::between(value, value)
    }

    fn between(least: Scalar, greatest: Scalar) -> Known {
        match (least, greatest) {
            (Scalar::Bool(least), Scalar::Bool(greatest)) if least == greatest => Known::Bool(least),
            (least, greatest) if least.dtype().is_float() => Known::floats(least.as_f64(), greatest.as_f64()),
            _ => match (least.as_int(), greatest.as_int()) {
                (Some(least), Some(greatest)) if least <= greatest => Known::Int(least, greatest),
                _ => Known::Nothing,
            },
        }
    }

    /// `Nothing` if one of them is NaN.
    fn floats(least: f64, greatest: f64) -> Known {
        if least <= greatest { Known::Float(least, greatest) } else { Known::Nothing }
    }

    /// `Nothing` if an integer of the dtype cannot have these values, so that they wrap around.
    fn ints(least: i128, greatest: i128, dtype: Dtype) -> Known {
        let (bits, is_signed) = (8 * dtype.size() as u32, dtype.is_signed());
        let own = if is_signed { -(1 << (bits - 1))..1 << (bits - 1) } else { 0..1i128 << bits };
        let fits = dtype.is_integer() && own.contains(&least) && own.contains(&greatest);
        if fits { Known::Int(least, greatest) } else { Known::Nothing }
    }

    /// Whether it has one value, and the same bits.
    fn is_one_value(self) -> bool {
        match self {
            Known::Bool(_) => true,
            Known::Int(least, greatest) => least == greatest,
            // It may also be NaN, and zero has two signs.
            Known::Nothing | Known::Float(..) => false,
        }
    }

    /// What is known of a value that is this one or the other.
    fn or(self, other: Known) -> Known {
        match (self, other) {
            (one, other) if one == other => one,
            (Known::Int(a, b), Known::Int(c, d)) => Known::Int(a.min(c), b.max(d)),
            (Known::Float(a, b), Known::Float(c, d)) => Known::Float(a.min(c), b.max(d)),
            _ => Known::Nothing,
        }
    }

    fn cast(self, dtype: Dtype) -> Known {
        let float = |value: f64| Scalar::of_float(dtype, value).as_f64();
        match self {
            Known::Bool(value) if dtype.is_integer() => Known::Int(value.into(), value.into()),
            Known::Int(least, greatest) if dtype.is_integer() => Known::ints(least, greatest, dtype),
            // Rounded once, and so as the cast does.
            Known::Int(least, greatest) if dtype == Dtype::F32 => {
                Known::floats(f64::from(least as f32), f64::from(greatest as f32))
            }
            Known::Int(least, greatest) if dtype == Dtype::F64 => Known::floats(least as f64, greatest as f64),
            Known::Float(least, greatest) if dtype.is_float() => Known::floats(float(least), float(greatest)),
            _ => Known::Nothing,
        }
    }

    fn unary(self, op: Unary, dtype: Dtype) -> Known {
        match (op, self) {
            (Unary::Not, Known::Bool(value)) if dtype == Dtype::Bool => Known::Bool(!value),
            (Unary::Pos, known) => known,
            (Unary::Neg, Known::Int(least, greatest)) => Known::ints(-greatest, -least, dtype),
            (Unary::Neg, Known::Float(least, greatest)) => Known::floats(-greatest, -least),
            _ => Known::Nothing,
        }
    }

    fn binary(self, op: Binary, other: Known, dtype: Dtype) -> Known {
        match (op, self, other) {
            (Binary::And, Known::Bool(false), _) | (Binary::And, _, Known::Bool(false)) => Known::Bool(false),
            (Binary::Or, Known::Bool(true), _) | (Binary::Or, _, Known::Bool(true)) => Known::Bool(true),
            (Binary::And | Binary::Or, Known::Bool(one), Known::Bool(other)) if one == other => Known::Bool(one),
            (Binary::And, Known::Bool(true), Known::Bool(value)) => Known::Bool(value),
            (op, Known::Int(a, b), Known::Int(c, d)) if op.is_comparison() => compared(op, [a, b], [c, d], false),
            (op, Known::Float(a, b), Known::Float(c, d)) if op.is_comparison() => compared(op, [a, b], [c, d], true),
            (Binary::Add, Known::Int(a, b), Known::Int(c, d)) => Known::ints(a + c, b + d, dtype),
            (Binary::Sub, Known::Int(a, b), Known::Int(c, d)) => Known::ints(a - d, b - c, dtype),
            (Binary::Mul, Known::Int(a, b), Known::Int(c, d)) => {
                let all = [(a, c), (a, d), (b, c), (b, d)].map(|(one, other)| one.checked_mul(other));
                let [Some(first), Some(second), Some(third), Some(fourth)] = all else { return Known::Nothing };
                let all = [first, second, third, fourth];
                Known::ints(all.into_iter().fold(first, i128::min), all.into_iter().fold(first, i128::max), dtype)
            }
            (Binary::Add | Binary::Sub | Binary::Mul, Known::Float(a, b), Known::Float(c, d)) => {
                of_floats(op, [a, b], [c, d], dtype)
            }
            _ => Known::Nothing,
        }
    }
}

/// The bounds of a sum, a difference or a product: those of the results at all ends.
fn of_floats(op: Binary, one: [f64; 2], other: [f64; 2], dtype: Dtype) -> Known {
    let at = |a: f64, b: f64| match (dtype, op) {
        (Dtype::F32, Binary::Add) => f64::from(a as f32 + b as f32),
        (Dtype::F32, Binary::Sub) => f64::from(a as f32 - b as f32),
        (Dtype::F32, _) => f64::from(a as f32 * b as f32),
        (_, Binary::Add) => a + b,
        (_, Binary::Sub) => a - b,
        (_, _) => a * b,
    };
    let ends = [at(one[0], other[0]), at(one[0], other[1]), at(one[1], other[0]), at(one[1], other[1])];
    if !matches!(dtype, Dtype::F32 | Dtype::F64) || ends.iter().any(|end| end.is_nan()) {
        return Known::Nothing;
    }
    Known::floats(ends.into_iter().fold(ends[0], f64::min), ends.into_iter().fold(ends[0], f64::max))
}

/// What is known of a comparison of values between bounds. All comparisons with NaN are false, but `!=` is true.
fn compared<T: PartialOrd + Copy>(op: Binary, [a, b]: [T; 2], [c, d]: [T; 2], may_be_nan: bool) -> Known {
    let is_one = a == b && c == d;
    let (is_true, is_false) = match op {
        Binary::Lt => (b < c, a >= d),
        Binary::Le => (b <= c, a > d),
        Binary::Gt => (a > d, b <= c),
        Binary::Ge => (a >= d, b < c),
        Binary::Eq => (is_one && a == c, b < c || d < a),
        Binary::Ne => (b < c || d < a, is_one && a == c),
        _ => (false, false),
    };
    let of_nan = op == Binary::Ne;
    match (is_true, is_false) {
        (true, _) if !may_be_nan || of_nan => Known::Bool(true),
        (_, true) if !may_be_nan || !of_nan => Known::Bool(false),
        _ => Known::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const COMPARISONS: [Binary; 6] = [Binary::Lt, Binary::Le, Binary::Gt, Binary::Ge, Binary::Eq, Binary::Ne];

    fn holds<T: PartialOrd>(op: Binary, a: T, b: T) -> bool {
        match op {
            Binary::Lt => a < b,
            Binary::Le => a <= b,
            Binary::Gt => a > b,
            Binary::Ge => a >= b,
            Binary::Eq => a == b,
            _ => a != b,
        }
    }

    fn result(op: Binary, a: i128, b: i128) -> i128 {
        match op {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            _ => a * b,
        }
    }

    /// What all of these results have in common.
    fn known(results: impl Iterator<Item = bool>) -> Known {
        let results: BTreeSet<bool> = results.collect();
        if results.len() == 1 { Known::Bool(results.contains(&true)) } else { Known::Nothing }
    }

    /// All of it is known, and nothing else: of every pair of values between some bounds.
    #[test]
    fn what_is_known_is_what_all_values_have_in_common() {
        let ranges = || (-3..=3i128).flat_map(|a| (a..=3).map(move |b| (a, b)));
        for ((a, b), (c, d)) in ranges().flat_map(|one| ranges().map(move |other| (one, other))) {
            let pairs = || (a..=b).flat_map(|x| (c..=d).map(move |y| (x, y)));
            let (ints, other_ints) = (Known::Int(a, b), Known::Int(c, d));
            let [floats, other_floats] = [(a, b), (c, d)].map(|(a, b)| Known::Float(a as f64, b as f64));
            for op in COMPARISONS {
                let of_ints = known(pairs().map(|(x, y)| holds(op, x, y)));
                assert_eq!(ints.binary(op, other_ints, Dtype::Bool), of_ints, "{a}..{b} {op:?} {c}..{d}");
                let of_nan = holds(op, f64::NAN, 0.0);
                let of_floats = known(pairs().map(|(x, y)| holds(op, x, y)).chain([of_nan]));
                assert_eq!(floats.binary(op, other_floats, Dtype::Bool), of_floats, "{a}..{b} {op:?} {c}..{d}");
            }
            for op in [Binary::Add, Binary::Sub, Binary::Mul] {
                let results: BTreeSet<i128> = pairs().map(|(x, y)| result(op, x, y)).collect();
                let (least, greatest) = (*results.first().unwrap(), *results.last().unwrap());
                let of_ints = ints.binary(op, other_ints, Dtype::I8);
                assert_eq!(of_ints, Known::Int(least, greatest), "{a}..{b} {op:?} {c}..{d}");
                for dtype in [Dtype::F32, Dtype::F64] {
                    let of_floats = floats.binary(op, other_floats, dtype);
                    assert_eq!(of_floats, Known::Float(least as f64, greatest as f64), "{a}..{b} {op:?} {c}..{d}");
                }
            }
            assert_eq!(ints.or(other_ints), Known::Int(a.min(c), b.max(d)));
            assert_eq!(floats.or(other_floats), Known::Float(a.min(c) as f64, b.max(d) as f64));
            assert_eq!(ints.unary(Unary::Neg, Dtype::I8), Known::Int(-b, -a));
            assert_eq!(floats.unary(Unary::Neg, Dtype::F32), Known::Float(-b as f64, -a as f64));
        }
    }

    #[test]
    fn bounds_are_rounded_as_values_are() {
        let odd = Known::Int(16_777_217, 16_777_219);
        assert_eq!(odd.cast(Dtype::F32), Known::Float(16_777_216.0, 16_777_220.0));
        assert_eq!(odd.cast(Dtype::F64), Known::Float(16_777_217.0, 16_777_219.0));
        assert_eq!(Known::Float(0.1, 1e300).cast(Dtype::F32), Known::Float(f64::from(0.1f32), f64::INFINITY));
        assert_eq!(Known::Float(2049.0, 2051.0).cast(Dtype::F16), Known::Float(2048.0, 2052.0));
        let tenth = Known::Float(f64::from(0.1f32), f64::from(0.1f32));
        assert_eq!(
            tenth.binary(Binary::Add, tenth, Dtype::F32),
            Known::Float(f64::from(0.1f32 + 0.1), f64::from(0.1f32 + 0.1))
        );
        // What wraps around, or is NaN, may have any value.
        assert_eq!(Known::Int(0, 200).cast(Dtype::I8), Known::Nothing);
        assert_eq!(Known::Int(100, 100).binary(Binary::Add, Known::Int(28, 28), Dtype::I8), Known::Nothing);
        assert_eq!(Known::Int(1, 2).unary(Unary::Neg, Dtype::U8), Known::Nothing);
        let greatest = Known::Int(0, u64::MAX.into());
        assert_eq!(greatest.binary(Binary::Mul, greatest, Dtype::U64), Known::Nothing);
        let infinite = Known::Float(f64::NEG_INFINITY, f64::INFINITY);
        assert_eq!(infinite.binary(Binary::Sub, infinite, Dtype::F64), Known::Nothing);
    }
}
