//! Runs a function over a block of rows, with the vector instructions that the processor has.
//!
//! One loop is compiled several times, for more and more instructions; the operations are the same, and so are the bits.

use super::super::scalar::Float;
use super::super::words::{Binary, Unary};
use super::language::size;
use super::{arc, exp, hyperbolic, log, power, trig};

/// For which instructions a loop is compiled. A level that the processor lacks is never made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Level {
    /// What every processor of the architecture has. On x86-64 each fused operation is a call, and slow.
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// Those that the processor has, the best one first.
    pub(super) fn supported() -> impl Iterator<Item = Level> {
        #[cfg(target_arch = "x86_64")]
        let levels = {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            [(avx2 && avx512).then_some(Level::Avx512), avx2.then_some(Level::Avx2), Some(Level::Plain)]
        };
        #[cfg(not(target_arch = "x86_64"))]
        let levels = [Some(Level::Plain)];
        levels.into_iter().flatten()
    }

    fn best() -> Level {
        Level::supported().next().unwrap_or(Level::Plain)
    }

    pub(super) fn unary<T: Float>(self, op: Unary, a: &[T], out: &mut [T]) {
        match self {
            Level::Plain => unary_loop(op, a, out),
            // SAFETY: `supported` makes the level only if the processor has `avx2` and `fma`.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { unary_avx2(op, a, out) },
            // SAFETY: `supported` makes the level only if the processor has what the function names.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { unary_avx512(op, a, out) },
        }
    }

    pub(super) fn binary<T: Float>(self, op: Binary, a: &[T], b: &[T], out: &mut [T]) {
        match self {
            Level::Plain => binary_loop(op, a, b, out),
            // SAFETY: `supported` makes the level only if the processor has `avx2` and `fma`.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { binary_avx2(op, a, b, out) },
            // SAFETY: `supported` makes the level only if the processor has what the function names.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { binary_avx512(op, a, b, out) },
        }
    }
}

/// `out = op(a)`; of an operation that is no function here, nothing.
pub(in super::super) fn unary<T: Float>(op: Unary, a: &[T], out: &mut [T]) {
    Level::best().unary(op, a, out);
}

/// `out = op(a, b)`; of an operation that is no function here, nothing.
pub(in super::super) fn binary<T: Float>(op: Binary, a: &[T], b: &[T], out: &mut [T]) {
    Level::best().binary(op, a, b, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn unary_avx2<T: Float>(op: Unary, a: &[T], out: &mut [T]) {
    unary_loop(op, a, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512dq,avx512vl")]
fn unary_avx512<T: Float>(op: Unary, a: &[T], out: &mut [T]) {
    unary_loop(op, a, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn binary_avx2<T: Float>(op: Binary, a: &[T], b: &[T], out: &mut [T]) {
    binary_loop(op, a, b, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512dq,avx512vl")]
fn binary_avx512<T: Float>(op: Binary, a: &[T], b: &[T], out: &mut [T]) {
    binary_loop(op, a, b, out);
}

// Macros and not functions: a function that is passed to another need not be inlined there, and then it has none of the
// instructions.

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

/// A function that is much simpler up to [`trig::EASY`]: a block without larger values runs that part alone.
macro_rules! turns {
    ($a:expr, $out:expr, $easy:path, $any:path) => {
        if $a.iter().fold(true, |all, a| all & (size(a.wide()) <= trig::EASY)) {
            map!($a, $out, $easy)
        } else {
            map!($a, $out, $any)
        }
    };
}

/// Compiled into each of the instances.
#[inline(always)]
fn unary_loop<T: Float>(op: Unary, a: &[T], out: &mut [T]) {
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

/// Compiled into each of the instances.
#[inline(always)]
fn binary_loop<T: Float>(op: Binary, a: &[T], b: &[T], out: &mut [T]) {
    match op {
        Binary::Pow => zip!(a, b, out, power::power),
        Binary::Atan2 => zip!(a, b, out, arc::atan2),
        Binary::Hypot => zip!(a, b, out, power::hypot),
        _ => {}
    }
}
