//! Applies one operation to one block of rows.

use bytemuck::{Pod, cast_slice, cast_slice_mut};

use super::dispatch::{self, Work};
use super::functions::{OfOne, OfTwo};
use super::ir::{Id, Node, Op};
use super::scalar::{Float, Int, greatest, least};
use super::words::{Binary, Unary};
use crate::data::Dtype;

/// Where a result is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Register(usize),
    /// In the input column.
    Input(usize),
}

/// The locations of the values of a block of rows.
pub(super) struct Block<'a> {
    pub(super) places: &'a [Place],
    pub(super) registers: &'a [Vec<u64>],
    pub(super) inputs: &'a [&'a [u8]],
    /// The bits of the scalars.
    pub(super) scalars: &'a [u64],
    /// The first row, within the inputs.
    pub(super) start: usize,
    pub(super) rows: usize,
}

impl<'a> Block<'a> {
    /// Returns the values of a result.
    pub(super) fn values<T: Pod>(&self, id: Id) -> &'a [T] {
        match self.places[id] {
            Place::Register(register) => &cast_slice(&self.registers[register])[..self.rows],
            Place::Input(input) => self.input(input),
        }
    }

    fn input<T: Pod>(&self, input: usize) -> &'a [T] {
        let size = size_of::<T>();
        cast_slice(&self.inputs[input][self.start * size..(self.start + self.rows) * size])
    }
}

/// Expands a body for the Rust type of each dtype; `bool` is a byte.
macro_rules! for_ints {
    ($dtype:expr, $T:ident => $body:expr, else $other:expr) => {
        match $dtype {
            Dtype::I8 => {
                type $T = i8;
                $body
            }
            Dtype::I16 => {
                type $T = i16;
                $body
            }
            Dtype::I32 => {
                type $T = i32;
                $body
            }
            Dtype::I64 => {
                type $T = i64;
                $body
            }
            Dtype::Bool | Dtype::U8 => {
                type $T = u8;
                $body
            }
            Dtype::U16 => {
                type $T = u16;
                $body
            }
            Dtype::U32 => {
                type $T = u32;
                $body
            }
            Dtype::U64 => {
                type $T = u64;
                $body
            }
            Dtype::F32 | Dtype::F64 => $other,
        }
    };
}
macro_rules! for_floats {
    ($dtype:expr, $T:ident => $body:expr, else $other:expr) => {
        match $dtype {
            Dtype::F32 => {
                type $T = f32;
                $body
            }
            Dtype::F64 => {
                type $T = f64;
                $body
            }
            _ => $other,
        }
    };
}
macro_rules! for_all {
    ($dtype:expr, $T:ident => $body:expr) => {
        for_ints!($dtype, $T => $body, else for_floats!($dtype, $T => $body, else {}))
    };
}

/// Computes the operation `id` on a block into `out`.
pub(super) fn apply(nodes: &[Node], id: Id, block: &Block<'_>, first_row: u64, out: &mut [u64]) {
    let Node { op, dtype } = nodes[id];
    match op {
        Op::Input(input) => map(out, block.input::<u8>(input), |byte| u8::from(byte != 0)),
        Op::Value(value) => for_all!(dtype, T => fill::<T>(out, block.scalars[value])),
        Op::Row => {
            let rows = &mut out[..block.rows];
            rows.iter_mut().zip(first_row..).for_each(|(slot, row)| *slot = row);
        }
        Op::Constant(bits) => for_all!(dtype, T => fill::<T>(out, bits)),
        Op::Cast(of) => cast(nodes[of].dtype, dtype, block, of, out),
        Op::Unary(op, of) => unary(op, nodes[of].dtype, block, of, out),
        Op::Binary(op, a, b) => binary(op, nodes[a].dtype, block, [a, b], out),
        Op::Select(condition, then, otherwise) => match dtype.size() {
            1 => select::<u8>(out, block, [condition, then, otherwise]),
            2 => select::<u16>(out, block, [condition, then, otherwise]),
            4 => select::<u32>(out, block, [condition, then, otherwise]),
            _ => select::<u64>(out, block, [condition, then, otherwise]),
        },
    }
}

/// Writes a result to an output. Replaces every NaN by the canonical NaN, which all devices store.
pub(super) fn store(dtype: Dtype, id: Id, block: &Block<'_>, target: &mut [u8]) {
    fn copy<T: Pod>(target: &mut [u8], values: &[T], stored: impl Fn(T) -> T) {
        dispatch::run(Map { out: cast_slice_mut(target), a: values, f: stored });
    }
    match dtype {
        Dtype::F32 => copy(target, block.values(id), f32::canonical),
        Dtype::F64 => copy(target, block.values(id), f64::canonical),
        _ => for_ints!(dtype, T => copy(target, block.values::<T>(id), |value| value), else {}),
    }
}

fn fill<T: Pod>(out: &mut [u64], bits: u64) {
    // The value is in the low bytes, which are the last bytes on big-endian machines.
    let bytes = bits.to_ne_bytes();
    let from = if cfg!(target_endian = "big") { 8 - size_of::<T>() } else { 0 };
    cast_slice_mut::<u64, T>(out).fill(bytemuck::pod_read_unaligned(&bytes[from..from + size_of::<T>()]));
}

fn map<A: Pod, R: Pod>(out: &mut [u64], a: &[A], f: impl Fn(A) -> R) {
    dispatch::run(Map { out: cast_slice_mut(out), a, f });
}

fn zip<A: Pod, R: Pod>(out: &mut [u64], a: &[A], b: &[A], f: impl Fn(A, A) -> R) {
    dispatch::run(Zip { out: cast_slice_mut(out), a, b, f });
}

fn select<T: Pod>(out: &mut [u64], block: &Block<'_>, [condition, then, otherwise]: [Id; 3]) {
    let conditions = block.values(condition);
    let (then, otherwise) = (block.values(then), block.values(otherwise));
    dispatch::run(Select::<T> { out: cast_slice_mut(out), conditions, then, otherwise });
}

struct Map<'a, A, R, F> {
    out: &'a mut [R],
    a: &'a [A],
    f: F,
}

impl<A: Pod, R: Pod, F: Fn(A) -> R> Work for Map<'_, A, R, F> {
    #[inline(always)]
    fn run(self) {
        for (slot, a) in self.out.iter_mut().zip(self.a) {
            *slot = (self.f)(*a);
        }
    }
}

struct Zip<'a, A, R, F> {
    out: &'a mut [R],
    a: &'a [A],
    b: &'a [A],
    f: F,
}

impl<A: Pod, R: Pod, F: Fn(A, A) -> R> Work for Zip<'_, A, R, F> {
    #[inline(always)]
    fn run(self) {
        for ((slot, a), b) in self.out.iter_mut().zip(self.a).zip(self.b) {
            *slot = (self.f)(*a, *b);
        }
    }
}

struct Select<'a, T> {
    out: &'a mut [T],
    conditions: &'a [u8],
    then: &'a [T],
    otherwise: &'a [T],
}

impl<T: Pod> Work for Select<'_, T> {
    #[inline(always)]
    fn run(self) {
        let slots = self.out.iter_mut();
        for (((slot, condition), a), b) in slots.zip(self.conditions).zip(self.then).zip(self.otherwise) {
            *slot = if *condition != 0 { *a } else { *b };
        }
    }
}

fn cast(from: Dtype, to: Dtype, block: &Block<'_>, of: Id, out: &mut [u64]) {
    for_all!(from, F => {
        let values = block.values::<F>(of);
        if to == Dtype::Bool {
            return map(out, values, |value| u8::from(value != 0 as F));
        }
        for_all!(to, T => map(out, values, |value| value as T));
    });
}

fn unary(op: Unary, dtype: Dtype, block: &Block<'_>, of: Id, out: &mut [u64]) {
    match (op, dtype) {
        (Unary::Not, Dtype::Bool) => map(out, block.values::<u8>(of), |value| value ^ 1),
        (Unary::Not, _) => for_ints!(dtype, T => map(out, block.values::<T>(of), |value| !value), else {}),
        (Unary::Neg, _) if !dtype.is_float() => {
            for_ints!(dtype, T => map(out, block.values::<T>(of), |value| value.wrapping_neg()), else {});
        }
        (Unary::Sign, _) if !dtype.is_float() => {
            for_ints!(dtype, T => map(out, block.values::<T>(of), T::sign), else {});
        }
        (Unary::Abs, Dtype::I8) => map(out, block.values::<i8>(of), i8::wrapping_abs),
        (Unary::Abs, Dtype::I16) => map(out, block.values::<i16>(of), i16::wrapping_abs),
        (Unary::Abs, Dtype::I32) => map(out, block.values::<i32>(of), i32::wrapping_abs),
        (Unary::Abs, Dtype::I64) => map(out, block.values::<i64>(of), i64::wrapping_abs),
        _ => for_floats!(dtype, T => float_unary(op, block.values::<T>(of), out), else {}),
    }
}

/// Differences between `f32` and `f64` beyond [`Float`].
macro_rules! exact {
    ($T:ident, $op:expr, $a:expr, $out:expr, $rest:expr) => {
        match $op {
            Unary::Neg => map($out, $a, |x: $T| -x),
            Unary::Abs => map($out, $a, $T::abs),
            Unary::Sqrt => map($out, $a, $T::sqrt),
            Unary::Floor => map($out, $a, $T::floor),
            Unary::Ceil => map($out, $a, $T::ceil),
            Unary::Round => map($out, $a, $T::round_ties_even),
            Unary::Trunc => map($out, $a, $T::trunc),
            Unary::Sign => map($out, $a, $T::sign),
            Unary::SignBit => map($out, $a, |x: $T| u8::from(x.sign_bit())),
            Unary::IsNan => map($out, $a, |x: $T| u8::from(x.is_nan())),
            Unary::IsInf => map($out, $a, |x: $T| u8::from(x.is_infinite())),
            Unary::IsFinite => map($out, $a, |x: $T| u8::from(x.is_finite())),
            _ => $rest,
        }
    };
}

trait FloatUnary: Float + Pod {
    fn exact_or(op: Unary, a: &[Self], out: &mut [u64], rest: impl FnOnce(&mut [u64]));
}
impl FloatUnary for f32 {
    fn exact_or(op: Unary, a: &[f32], out: &mut [u64], rest: impl FnOnce(&mut [u64])) {
        exact!(f32, op, a, out, rest(out));
    }
}
impl FloatUnary for f64 {
    fn exact_or(op: Unary, a: &[f64], out: &mut [u64], rest: impl FnOnce(&mut [u64])) {
        exact!(f64, op, a, out, rest(out));
    }
}

fn float_unary<T: FloatUnary>(op: Unary, a: &[T], out: &mut [u64]) {
    T::exact_or(op, a, out, |out| dispatch::run(OfOne { op, a, out: cast_slice_mut(out) }));
}

fn binary(op: Binary, dtype: Dtype, block: &Block<'_>, [a, b]: [Id; 2], out: &mut [u64]) {
    match op {
        Binary::Eq => {
            return for_all!(dtype, T => zip(out, block.values(a), block.values(b), |a: T, b| u8::from(a == b)));
        }
        Binary::Ne => {
            return for_all!(dtype, T => zip(out, block.values(a), block.values(b), |a: T, b| u8::from(a != b)));
        }
        Binary::Lt => {
            return for_all!(dtype, T => zip(out, block.values(a), block.values(b), |a: T, b| u8::from(a < b)));
        }
        Binary::Le => {
            return for_all!(dtype, T => zip(out, block.values(a), block.values(b), |a: T, b| u8::from(a <= b)));
        }
        Binary::Gt => {
            return for_all!(dtype, T => zip(out, block.values(a), block.values(b), |a: T, b| u8::from(a > b)));
        }
        Binary::Ge => {
            return for_all!(dtype, T => zip(out, block.values(a), block.values(b), |a: T, b| u8::from(a >= b)));
        }
        Binary::Min => return for_all!(dtype, T => zip(out, block.values(a), block.values(b), least::<T>)),
        Binary::Max => return for_all!(dtype, T => zip(out, block.values(a), block.values(b), greatest::<T>)),
        _ => {}
    }
    for_ints!(dtype, T => {
        let (a, b) = (block.values::<T>(a), block.values::<T>(b));
        match op {
            Binary::Add => zip(out, a, b, T::wrapping_add),
            Binary::Sub => zip(out, a, b, T::wrapping_sub),
            Binary::Mul => zip(out, a, b, T::wrapping_mul),
            Binary::FloorDiv => zip(out, a, b, T::floor_div),
            Binary::Rem => zip(out, a, b, T::floor_rem),
            Binary::Fmod => zip(out, a, b, T::fmod),
            Binary::Pow => zip(out, a, b, T::power),
            Binary::And => zip(out, a, b, |a, b| a & b),
            Binary::Or => zip(out, a, b, |a, b| a | b),
            Binary::Xor => zip(out, a, b, |a, b| a ^ b),
            Binary::Shl => zip(out, a, b, T::shift_left),
            Binary::Shr => zip(out, a, b, T::shift_right),
            _ => {}
        }
    }, else for_floats!(dtype, T => {
        let (a, b) = (block.values::<T>(a), block.values::<T>(b));
        match op {
            Binary::Add => zip(out, a, b, |a, b| a + b),
            Binary::Sub => zip(out, a, b, |a, b| a - b),
            Binary::Mul => zip(out, a, b, |a, b| a * b),
            Binary::Div => zip(out, a, b, |a, b| a / b),
            Binary::FloorDiv => zip(out, a, b, T::floor_div),
            Binary::Rem => zip(out, a, b, T::floor_rem),
            Binary::Fmod => zip(out, a, b, |a, b| a % b),
            Binary::CopySign => zip(out, a, b, T::with_sign),
            Binary::NextAfter => zip(out, a, b, T::next_after),
            _ => dispatch::run(OfTwo { op, a, b, out: cast_slice_mut(out) }),
        }
    }, else {}));
}
