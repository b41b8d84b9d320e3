//! The functions over blocks of rows.

use super::super::dispatch::Work;
use super::super::scalar::Float;
use super::super::words::{Binary, Unary};
use super::language::size;
use super::{arc, exp, hyperbolic, log, power, trig};

/// Computes `out = op(a)`. Does nothing for an operation that is not one of these functions.
pub(in super::super) struct OfOne<'a, T> {
    pub(in super::super) op: Unary,
    pub(in super::super) a: &'a [T],
    pub(in super::super) out: &'a mut [T],
}

/// Computes `out = op(a, b)`. Does nothing for an operation that is not one of these functions.
pub(in super::super) struct OfTwo<'a, T> {
    pub(in super::super) op: Binary,
    pub(in super::super) a: &'a [T],
    pub(in super::super) b: &'a [T],
    pub(in super::super) out: &'a mut [T],
}

// Macros instead of functions: a function passed as an argument may not be inlined, and is then not compiled for the
// instruction set.

macro_rules! map {
    ($a:expr, $out:expr, $function:path) => {
        for (slot, a) in $out.iter_mut().zip($a) {
            *slot = T::narrow($function(a.wide()));
        }
    };
}

macro_rules! zip {
    ($a:expr, $b:expr, $out:expr, $function:path) => {
        for ((slot, a), b) in $out.iter_mut().zip($a).zip($b) {
            *slot = T::narrow($function(a.wide(), b.wide()));
        }
    };
}

/// A function with a much simpler algorithm up to [`trig::EASY`], which is used for blocks without larger values.
macro_rules! turns {
    ($a:expr, $out:expr, $easy:path, $any:path) => {
        if $a.iter().fold(true, |all, a| all & (size(a.wide()) <= trig::EASY)) {
            map!($a, $out, $easy)
        } else {
            map!($a, $out, $any)
        }
    };
}

impl<T: Float> Work for OfOne<'_, T> {
    #[inline(always)]
    fn run(self) {
        let OfOne { op, a, out } = self;
        match op {
            Unary::Cbrt => map!(a, out, power::cbrt),
            Unary::Exp => map!(a, out, exp::exp),
            Unary::Exp2 => map!(a, out, exp::exp2),
            Unary::Expm1 => map!(a, out, exp::expm1),
            Unary::Log => map!(a, out, log::log),
            Unary::Log2 => map!(a, out, log::log2),
            Unary::Log10 => map!(a, out, log::log10),
            Unary::Log1p => map!(a, out, log::log1p),
            Unary::Sin => turns!(a, out, trig::sin_easy, trig::sin),
            Unary::Cos => turns!(a, out, trig::cos_easy, trig::cos),
            Unary::Tan => turns!(a, out, trig::tan_easy, trig::tan),
            Unary::Asin => map!(a, out, arc::asin),
            Unary::Acos => map!(a, out, arc::acos),
            Unary::Atan => map!(a, out, arc::atan),
            Unary::Sinh => map!(a, out, hyperbolic::sinh),
            Unary::Cosh => map!(a, out, hyperbolic::cosh),
            Unary::Tanh => map!(a, out, hyperbolic::tanh),
            Unary::Asinh => map!(a, out, hyperbolic::asinh),
            Unary::Acosh => map!(a, out, hyperbolic::acosh),
            Unary::Atanh => map!(a, out, hyperbolic::atanh),
            _ => {}
        }
    }
}

impl<T: Float> Work for OfTwo<'_, T> {
    #[inline(always)]
    fn run(self) {
        let OfTwo { op, a, b, out } = self;
        match op {
            Binary::Pow => zip!(a, b, out, power::power),
            Binary::Atan2 => zip!(a, b, out, arc::atan2),
            Binary::Hypot => zip!(a, b, out, power::hypot),
            _ => {}
        }
    }
}
