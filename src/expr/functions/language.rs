//! The language of the functions: the common subset of Rust and CUDA C++.
//!
//! [`define!`] turns each definition into a Rust function and into text that follows `kernels/functions.cu`. A single
//! definition guarantees that operations and constants are identical. A definition may contain `let` (each name once
//! per function), `if (…) { … }`, `return`, operators on `f64` and on `bool` (`&`, `|`, `!`), the operators
//! `& | ^ << >>` on `u64`, and the functions below, which `kernels/functions.cu` defines with the same names. All of
//! these are exact or rounded once, as IEEE 754 requires, on every processor.

/// Defines constants and functions of `f64`, `u64`, [`Pair`] and [`Turn`], and `CUDA`, their text for CUDA C++.
macro_rules! define {
    (
        $(constants { $($(#[$of_constant:meta])* const $constant:ident: f64 = $value:expr;)* })?
        $($(#[$of_function:meta])* fn $function:ident($($name:ident: $type:ident),*) -> $result:ident { $($body:tt)* })*
    ) => {
        $($($(#[$of_constant])* pub(in super::super) const $constant: f64 = $value;)*)?
        $(
            $(#[$of_function])*
            #[inline(always)]
            #[allow(clippy::needless_return, unused_parens)] // required by C++
            pub(in super::super) fn $function($($name: $type),*) -> $result { $($body)* }
        )*
        /// The definitions in CUDA C++.
        pub(in super::super) const CUDA: &str = concat!(
            $($("static constexpr f64 ", stringify!($constant), " = ", stringify!($value), ";\n",)*)?
            $(
                "OP ", stringify!($result), " ", stringify!($function),
                "(", stringify!($($type $name),*), ") {\n", stringify!($($body)*), "\n}\n",
            )*
        );
    };
}
pub(super) use define;

/// An unevaluated sum of two numbers.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub(super) hi: f64,
    pub(super) lo: f64,
}

/// The remainder of an argument reduction, and in the low bits of `count` the number of periods that were subtracted.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub(super) hi: f64,
    pub(super) lo: f64,
    pub(super) count: u64,
}

#[inline(always)]
pub(super) fn pair(hi: f64, lo: f64) -> Pair {
    Pair { hi, lo }
}

#[inline(always)]
pub(super) fn turn(hi: f64, lo: f64, count: u64) -> Turn {
    Turn { hi, lo, count }
}

/// `a * b + c`, rounded once.
#[inline(always)]
pub(super) fn fma(a: f64, b: f64, c: f64) -> f64 {
    a.mul_add(b, c)
}

#[inline(always)]
pub(super) fn root(a: f64) -> f64 {
    a.sqrt()
}

#[inline(always)]
pub(super) fn size(a: f64) -> f64 {
    a.abs()
}

/// The absolute value of `a` with the sign of `b`.
#[inline(always)]
pub(super) fn signed_as(a: f64, b: f64) -> f64 {
    a.copysign(b)
}

#[inline(always)]
pub(super) fn select(condition: bool, then: f64, otherwise: f64) -> f64 {
    if condition { then } else { otherwise }
}

#[inline(always)]
pub(super) fn bits(a: f64) -> u64 {
    a.to_bits()
}

#[inline(always)]
pub(super) fn float_of(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// Modulo 2^64.
#[inline(always)]
pub(super) fn plus(a: u64, b: u64) -> u64 {
    a.wrapping_add(b)
}

/// Modulo 2^64.
#[inline(always)]
pub(super) fn minus(a: u64, b: u64) -> u64 {
    a.wrapping_sub(b)
}

/// The low half of a product.
#[inline(always)]
pub(super) fn low(a: u64, b: u64) -> u64 {
    a.wrapping_mul(b)
}

/// The high half of a product.
#[inline(always)]
pub(super) fn high(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

#[inline(always)]
pub(super) fn infinity() -> f64 {
    f64::INFINITY
}

#[inline(always)]
pub(super) fn nan() -> f64 {
    f64::NAN
}

#[inline(always)]
pub(super) fn is_nan(a: f64) -> bool {
    a.is_nan()
}

/// 1 or 0.
#[inline(always)]
pub(super) fn one_if(condition: bool) -> u64 {
    u64::from(condition)
}

/// A word of the bits of 2 / pi.
#[inline(always)]
pub(super) fn word(index: u64) -> u64 {
    super::coefficients::TWO_OVER_PI_BITS[index as usize]
}
