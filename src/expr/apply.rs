//! Applies one operation to one block of rows.

use std::ops::Range;

use ::half::{bf16, f16};
use bytemuck::{Pod, cast_slice, cast_slice_mut};

use super::dispatch::{self, Work};
use super::functions::{self, OfOne, OfTwo};
use super::gather::InputRows;
use super::ir::{Id, Node, Op};
use super::program::Program;
use super::random::Random;
use super::rank::Key;
use super::scalar::{Float, Int, Value, greatest, least};
use super::shape::Extent;
use super::view::View;
use super::words::{Binary, Unary};
use crate::data::{Dtype, PastCache, half, until_line};

/// Where a result is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Register(usize),
    /// In the input column.
    Input(usize),
    /// In the input column if this view moves all rows of the block alike, or else in the register.
    Near {
        input: usize,
        view: usize,
        register: usize,
    },
    /// In the output column, from which nothing reads.
    Output(usize),
}

/// Where the results of a block of rows go.
pub(super) enum Target<'a> {
    /// A register, which may be longer.
    Register(&'a mut [u64]),
    /// Rows of an output. It has the canonical NaN for every NaN, as on all devices.
    Output(&'a mut [u8], Option<&'a PastCache>),
}

impl<'a> Target<'a> {
    /// # Panics
    /// Panics if it is no register: see [`goes_to_outputs`].
    fn register(self) -> &'a mut [u64] {
        match self {
            Target::Register(register) => register,
            Target::Output(..) => panic!("the operation needs a register"),
        }
    }
}

/// Returns whether the results of an operation can go to an output at once. Not so those of functions, whose code is
/// long and which take much longer than the way from a register, and those of casts and comparisons, of which there are
/// so many that their loops would be half of the library.
pub(super) fn goes_to_outputs(Node { op, dtype }: Node) -> bool {
    match op {
        Op::Unary(..) | Op::Select(..) => !functions::is_function(op),
        Op::Binary(of, ..) => !functions::is_function(op) && !of.is_comparison() && of != Binary::Random,
        // Results of operations on these.
        Op::Cast(_) => dtype.is_half(),
        _ => false,
    }
}

/// The locations of the values of a block of elements.
pub(super) struct Block<'a> {
    pub(super) places: &'a [Place],
    pub(super) registers: &'a [Vec<u64>],
    pub(super) inputs: &'a [InputRows<'a>],
    pub(super) views: &'a [View],
    /// The rows of the job.
    pub(super) total_rows: u64,
    /// The bits of the scalars.
    pub(super) scalars: &'a [u64],
    /// The number of the first row of the inputs.
    pub(super) first_row: u64,
    /// The elements of a row.
    pub(super) width: usize,
    /// The row of the first element, within the inputs.
    pub(super) row: usize,
    /// The column of the first element.
    pub(super) column: usize,
    /// The first element, within inputs that have all elements of each row.
    pub(super) start: usize,
    pub(super) elements: usize,
}

impl<'a> Block<'a> {
    /// Returns the values of a result.
    pub(super) fn values<T: Pod>(&self, id: Id) -> &'a [T] {
        match self.places[id] {
            Place::Register(register) => &cast_slice(&self.registers[register])[..self.elements],
            Place::Input(input) => self.input(input, 0),
            Place::Near { input, view, register } => match self.moves(view) {
                Some(moved) => self.input(input, moved),
                None => &cast_slice(&self.registers[register])[..self.elements],
            },
            Place::Output(_) => &[],
        }
    }

    /// The rows of the elements.
    pub(super) fn rows(&self) -> Range<u64> {
        let rows = (self.column + self.elements).div_ceil(self.width) as u64;
        self.first_row()..self.first_row() + rows
    }

    /// The number of the row of the first element.
    pub(super) fn first_row(&self) -> u64 {
        self.first_row + self.row as u64
    }

    /// The number of the first element among all elements of all rows.
    pub(super) fn first_element(&self) -> u64 {
        self.first_row.wrapping_mul(self.width as u64).wrapping_add(self.start as u64)
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
            Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64 => $other,
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

pub(super) use {for_all, for_floats, for_ints};

/// The same with `f16` and `bf16`, which are moved and converted only.
macro_rules! for_stored {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            Dtype::F16 => {
                type $T = f16;
                $body
            }
            Dtype::Bf16 => {
                type $T = bf16;
                $body
            }
            dtype => for_all!(dtype, $T => $body),
        }
    };
}

/// Computes the operation `id` on a block.
///
/// # Panics
/// Panics if `target` is an output and the operation needs a register.
pub(super) fn apply(program: &Program, id: Id, block: &Block<'_>, target: Target<'_>) {
    let nodes = &program.nodes;
    let Node { op, dtype } = nodes[id];
    match op {
        Op::Input(input) if program.row.extent(input) != Extent::Full => {
            read((input, program.row.extent(input)), None, dtype, block, target.register());
        }
        Op::At(input, view) => match (program.row.extent(input), block.moves(view)) {
            (Extent::Full, Some(moved)) if dtype == Dtype::Bool => {
                let a = block.input::<u8>(input, moved);
                to_register(target, a.len(), Map { a, f: |byte| u8::from(byte != 0) });
            }
            (extent, _) => read((input, extent), Some(view), dtype, block, target.register()),
        },
        Op::Input(input) => {
            let a = block.input::<u8>(input, 0);
            to_register(target, a.len(), Map { a, f: |byte| u8::from(byte != 0) });
        }
        Op::Value(value) => for_stored!(dtype, T => fill::<T>(target.register(), block.scalars[value])),
        Op::Row => {
            let rows = target.register()[..block.elements].chunks_mut(block.width);
            // The first row may begin before the block; then the block is within it.
            rows.zip(block.first_row()..).for_each(|(row, number)| row.fill(number));
        }
        Op::RowAt(view) => block.row_numbers(view, target.register()),
        Op::TotalRows => fill::<u64>(target.register(), block.total_rows),
        Op::Element => {
            let elements = &mut target.register()[..block.elements];
            elements.iter_mut().zip(block.first_element()..).for_each(|(slot, element)| *slot = element);
        }
        Op::Column => {
            // A block begins within a row, or has whole rows.
            let rows = target.register()[..block.elements].chunks_mut(block.width);
            rows.for_each(|row| row.iter_mut().zip(block.column as u64..).for_each(|(slot, column)| *slot = column));
        }
        Op::Constant(bits) => for_stored!(dtype, T => fill::<T>(target.register(), bits)),
        Op::Cast(of) => cast(nodes[of].dtype, dtype, block, of, target),
        Op::Unary(op, of) => unary(op, nodes[of].dtype, block, of, target),
        Op::Binary(op, a, b) => binary(op, nodes[a].dtype, block, [a, b], target),
        Op::Select(condition, then, otherwise) => select(dtype, block, [condition, then, otherwise], target),
        // A `RowReduction` or a `TileSums` computes it.
        Op::Reduce(..) | Op::RunningSum(..) => {}
    }
}

/// Copies the elements of an input to a register, in the rows that a view gives.
fn read(input: (usize, Extent), view: Option<usize>, dtype: Dtype, block: &Block<'_>, register: &mut [u64]) {
    for_stored!(dtype, T => block.gather::<T>(input, view, cast_slice_mut(register)));
    if dtype == Dtype::Bool {
        let bytes: &mut [u8] = cast_slice_mut(register);
        bytes[..block.elements].iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
}

/// Writes a result to an output.
pub(super) fn store(dtype: Dtype, id: Id, block: &Block<'_>, target: Target<'_>) {
    for_stored!(dtype, T => map(target, block.values::<T>(id), |value| value));
}

/// Writes the elements of the first column of a result to an output.
pub(super) fn store_first_column(dtype: Dtype, id: Id, block: &Block<'_>, out: &mut [u8]) {
    for_stored!(dtype, T => {
        let values = block.values::<T>(id).iter().step_by(block.width);
        cast_slice_mut::<u8, T>(out).iter_mut().zip(values).for_each(|(slot, value)| *slot = value.canonical());
    });
}

fn fill<T: Pod>(out: &mut [u64], bits: u64) {
    // The value is in the low bytes, which are the last bytes on big-endian machines.
    let bytes = bits.to_ne_bytes();
    let from = if cfg!(target_endian = "big") { 8 - size_of::<T>() } else { 0 };
    cast_slice_mut::<u64, T>(out).fill(bytemuck::pod_read_unaligned(&bytes[from..from + size_of::<T>()]));
}

fn map<A: Pod, R: Value>(target: Target<'_>, a: &[A], f: impl Fn(A) -> R) {
    run(target, a.len(), Map { a, f });
}

fn zip<A: Pod, R: Value>(target: Target<'_>, a: &[A], b: &[A], f: impl Fn(A, A) -> R) {
    run(target, a.len(), Zip { a, b, f });
}

fn compare<T: Pod>(target: Target<'_>, block: &Block<'_>, [a, b]: [Id; 2], f: impl Fn(T, T) -> bool) {
    let (a, b) = (block.values(a), block.values(b));
    to_register(target, block.elements, Zip { a, b, f: |a, b| u8::from(f(a, b)) });
}

fn select(dtype: Dtype, block: &Block<'_>, [condition, then, otherwise]: [Id; 3], target: Target<'_>) {
    let conditions = block.values(condition);
    for_stored!(dtype, T => {
        let (then, otherwise) = (block.values::<T>(then), block.values(otherwise));
        run(target, block.elements, Select { conditions, then, otherwise });
    });
}

/// Runs the loop of an operation whose results go to registers only.
fn to_register<R: Value>(target: Target<'_>, rows: usize, of: impl Rows<R>) {
    dispatch::run(ToRegister { out: &mut cast_slice_mut(target.register())[..rows], of });
}

/// Runs the loop of an operation.
pub(super) fn run<R: Value>(target: Target<'_>, rows: usize, of: impl Rows<R>) {
    match target {
        Target::Register(_) => to_register(target, rows, of),
        Target::Output(out, past_cache) => dispatch::run(ToOutput { out: cast_slice_mut(out), of, past_cache }),
    }
}

/// An operation on the rows of a block.
pub(super) trait Rows<R> {
    /// Computes some rows, and applies `then` to each result.
    fn compute(&self, rows: Range<usize>, out: &mut [R], then: impl Fn(R) -> R);
}

struct Map<'a, A, F> {
    a: &'a [A],
    f: F,
}

impl<A: Pod, R: Value, F: Fn(A) -> R> Rows<R> for Map<'_, A, F> {
    #[inline(always)]
    fn compute(&self, rows: Range<usize>, out: &mut [R], then: impl Fn(R) -> R) {
        for (slot, a) in out.iter_mut().zip(&self.a[rows]) {
            *slot = then((self.f)(*a));
        }
    }
}

struct Zip<'a, A, F> {
    a: &'a [A],
    b: &'a [A],
    f: F,
}

impl<A: Pod, R: Value, F: Fn(A, A) -> R> Rows<R> for Zip<'_, A, F> {
    #[inline(always)]
    fn compute(&self, rows: Range<usize>, out: &mut [R], then: impl Fn(R) -> R) {
        for ((slot, a), b) in out.iter_mut().zip(&self.a[rows.clone()]).zip(&self.b[rows]) {
            *slot = then((self.f)(*a, *b));
        }
    }
}

struct Select<'a, T> {
    conditions: &'a [u8],
    then: &'a [T],
    otherwise: &'a [T],
}

impl<T: Value> Rows<T> for Select<'_, T> {
    #[inline(always)]
    fn compute(&self, rows: Range<usize>, out: &mut [T], then: impl Fn(T) -> T) {
        let slots = out.iter_mut().zip(&self.conditions[rows.clone()]);
        for (((slot, condition), a), b) in slots.zip(&self.then[rows.clone()]).zip(&self.otherwise[rows]) {
            *slot = then(if *condition != 0 { *a } else { *b });
        }
    }
}

struct ToRegister<'a, R, L> {
    out: &'a mut [R],
    of: L,
}

impl<R: Value, L: Rows<R>> Work for ToRegister<'_, R, L> {
    #[inline(always)]
    fn run(self) {
        self.of.compute(0..self.out.len(), self.out, |value| value);
    }
}

/// The rows of an output that are computed before they are stored past the cache: whole cache lines, and so few that
/// the processor stores them while it loads and computes the next ones. If they were as many as in a block, it would do
/// these in turn: with 1024, `c = a * b` from memory takes a third longer in `cargo bench --bench expression`.
const GROUP: usize = 64;

struct ToOutput<'a, R, L> {
    out: &'a mut [R],
    of: L,
    past_cache: Option<&'a PastCache>,
}

impl<R: Value, L: Rows<R>> Work for ToOutput<'_, R, L> {
    #[inline(always)]
    fn run(self) {
        let ToOutput { out, of, past_cache } = self;
        let Some(past_cache) = past_cache else { return of.compute(0..out.len(), out, R::canonical) };
        let mut group = [R::zeroed(); GROUP];
        let mut from = 0;
        while from < out.len() {
            let rest = &mut out[from..];
            let rows = GROUP.min(match until_line(rest) {
                0 => rest.len(),
                until => until,
            });
            of.compute(from..from + rows, &mut group[..rows], R::canonical);
            past_cache.copy(cast_slice_mut(&mut rest[..rows]), cast_slice(&group[..rows]));
            from += rows;
        }
    }
}

fn cast(from: Dtype, to: Dtype, block: &Block<'_>, of: Id, target: Target<'_>) {
    match (from, to) {
        (Dtype::F16, _) => return to_register(target, block.elements, Map { a: block.values(of), f: half::of_f16 }),
        (Dtype::Bf16, _) => return to_register(target, block.elements, Map { a: block.values(of), f: half::of_bf16 }),
        (Dtype::F64, Dtype::F16) => return map(target, block.values(of), half::f16_of),
        (Dtype::F64, Dtype::Bf16) => return map(target, block.values(of), half::bf16_of),
        (_, Dtype::F16) => return map(target, block.values(of), half::to_f16),
        (_, Dtype::Bf16) => return map(target, block.values(of), half::to_bf16),
        _ => {}
    }
    for_all!(from, F => {
        let values = block.values::<F>(of);
        if to == Dtype::Bool {
            return to_register(target, values.len(), Map { a: values, f: |value| u8::from(value != 0 as F) });
        }
        for_all!(to, T => to_register(target, values.len(), Map { a: values, f: |value| value as T }));
    });
}

fn unary(op: Unary, dtype: Dtype, block: &Block<'_>, of: Id, target: Target<'_>) {
    match (op, dtype) {
        (Unary::Not, Dtype::Bool) => map(target, block.values::<u8>(of), |value| value ^ 1),
        (Unary::Not, _) => for_ints!(dtype, T => map(target, block.values::<T>(of), |value| !value), else {}),
        (Unary::Neg, _) if !dtype.is_float() => {
            for_ints!(dtype, T => map(target, block.values::<T>(of), |value| value.wrapping_neg()), else {});
        }
        (Unary::Sign, _) if !dtype.is_float() => {
            for_ints!(dtype, T => map(target, block.values::<T>(of), T::sign), else {});
        }
        (Unary::Abs, Dtype::I8) => map(target, block.values::<i8>(of), i8::wrapping_abs),
        (Unary::Abs, Dtype::I16) => map(target, block.values::<i16>(of), i16::wrapping_abs),
        (Unary::Abs, Dtype::I32) => map(target, block.values::<i32>(of), i32::wrapping_abs),
        (Unary::Abs, Dtype::I64) => map(target, block.values::<i64>(of), i64::wrapping_abs),
        (Unary::Key, Dtype::F16) => map(target, block.values::<f16>(of), Key::key),
        (Unary::Key, Dtype::Bf16) => map(target, block.values::<bf16>(of), Key::key),
        _ => for_floats!(dtype, T => float_unary(op, block.values::<T>(of), target), else {}),
    }
}

/// Differences between `f32` and `f64` beyond [`Float`].
macro_rules! exact {
    ($T:ident, $op:expr, $a:expr, $target:expr, $rest:expr) => {
        match $op {
            Unary::Neg => map($target, $a, |x: $T| -x),
            Unary::Abs => map($target, $a, $T::abs),
            Unary::Sqrt => map($target, $a, $T::sqrt),
            Unary::Floor => map($target, $a, $T::floor),
            Unary::Ceil => map($target, $a, $T::ceil),
            Unary::Round => map($target, $a, $T::round_ties_even),
            Unary::Trunc => map($target, $a, $T::trunc),
            Unary::Sign => map($target, $a, $T::sign),
            Unary::SignBit => map($target, $a, |x: $T| u8::from(x.sign_bit())),
            Unary::IsNan => map($target, $a, |x: $T| u8::from(x.is_nan())),
            Unary::IsInf => map($target, $a, |x: $T| u8::from(x.is_infinite())),
            Unary::IsFinite => map($target, $a, |x: $T| u8::from(x.is_finite())),
            Unary::Key => map($target, $a, Key::key),
            _ => $rest,
        }
    };
}

trait FloatUnary: Float + Pod {
    fn exact_or(op: Unary, a: &[Self], target: Target<'_>, rest: impl FnOnce(Target<'_>));
}
impl FloatUnary for f32 {
    fn exact_or(op: Unary, a: &[f32], target: Target<'_>, rest: impl FnOnce(Target<'_>)) {
        exact!(f32, op, a, target, rest(target));
    }
}
impl FloatUnary for f64 {
    fn exact_or(op: Unary, a: &[f64], target: Target<'_>, rest: impl FnOnce(Target<'_>)) {
        exact!(f64, op, a, target, rest(target));
    }
}

fn float_unary<T: FloatUnary>(op: Unary, a: &[T], target: Target<'_>) {
    T::exact_or(op, a, target, |target| dispatch::run(OfOne { op, a, out: cast_slice_mut(target.register()) }));
}

fn binary(op: Binary, dtype: Dtype, block: &Block<'_>, [a, b]: [Id; 2], target: Target<'_>) {
    match op {
        Binary::Eq => return for_all!(dtype, T => compare::<T>(target, block, [a, b], |a, b| a == b)),
        Binary::Ne => return for_all!(dtype, T => compare::<T>(target, block, [a, b], |a, b| a != b)),
        Binary::Lt => return for_all!(dtype, T => compare::<T>(target, block, [a, b], |a, b| a < b)),
        Binary::Le => return for_all!(dtype, T => compare::<T>(target, block, [a, b], |a, b| a <= b)),
        Binary::Gt => return for_all!(dtype, T => compare::<T>(target, block, [a, b], |a, b| a > b)),
        Binary::Ge => return for_all!(dtype, T => compare::<T>(target, block, [a, b], |a, b| a >= b)),
        Binary::Min => return for_all!(dtype, T => zip(target, block.values(a), block.values(b), least::<T>)),
        Binary::Max => return for_all!(dtype, T => zip(target, block.values(a), block.values(b), greatest::<T>)),
        Binary::Random => {
            let (seeds, positions) = (block.values(a), block.values(b));
            return dispatch::run(Random { seeds, positions, out: cast_slice_mut(target.register()) });
        }
        Binary::NextAfter if dtype == Dtype::F16 => {
            return zip(target, block.values(a), block.values(b), half::f16_after);
        }
        Binary::NextAfter if dtype == Dtype::Bf16 => {
            return zip(target, block.values(a), block.values(b), half::bf16_after);
        }
        _ => {}
    }
    for_ints!(dtype, T => {
        let (a, b) = (block.values::<T>(a), block.values::<T>(b));
        match op {
            Binary::Add => zip(target, a, b, T::wrapping_add),
            Binary::Sub => zip(target, a, b, T::wrapping_sub),
            Binary::Mul => zip(target, a, b, T::wrapping_mul),
            Binary::FloorDiv => zip(target, a, b, T::floor_div),
            Binary::Rem => zip(target, a, b, T::floor_rem),
            Binary::Fmod => zip(target, a, b, T::fmod),
            Binary::Pow => zip(target, a, b, T::power),
            Binary::And => zip(target, a, b, |a, b| a & b),
            Binary::Or => zip(target, a, b, |a, b| a | b),
            Binary::Xor => zip(target, a, b, |a, b| a ^ b),
            Binary::Shl => zip(target, a, b, T::shift_left),
            Binary::Shr => zip(target, a, b, T::shift_right),
            _ => {}
        }
    }, else for_floats!(dtype, T => {
        let (a, b) = (block.values::<T>(a), block.values::<T>(b));
        match op {
            Binary::Add => zip(target, a, b, |a, b| a + b),
            Binary::Sub => zip(target, a, b, |a, b| a - b),
            Binary::Mul => zip(target, a, b, |a, b| a * b),
            Binary::Div => zip(target, a, b, |a, b| a / b),
            Binary::FloorDiv => zip(target, a, b, T::floor_div),
            Binary::Rem => zip(target, a, b, T::floor_rem),
            Binary::Fmod => zip(target, a, b, |a, b| a % b),
            Binary::CopySign => zip(target, a, b, T::with_sign),
            Binary::NextAfter => zip(target, a, b, T::next_after),
            _ => dispatch::run(OfTwo { op, a, b, out: cast_slice_mut(target.register()) }),
        }
    }, else {}));
}
