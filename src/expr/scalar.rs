//! Operations on single values, where the operators of Rust differ from those of NumPy.
//!
//! Every function has a counterpart in `kernels/math.cu`, which must give the same bits.

use bytemuck::Pod;
use half::{bf16, f16};

/// Values of a column.
pub(super) trait Value: Pod {
    /// The value, or the canonical NaN for any NaN: the bits of NaN results differ between processors.
    fn canonical(self) -> Self;
}

/// Integers.
pub(super) trait Int: Copy {
    /// Division rounded down; by 0 it gives 0.
    fn floor_div(self, by: Self) -> Self;
    /// The remainder of [`floor_div`](Int::floor_div), with the sign of `by`; by 0 it is 0.
    fn floor_rem(self, by: Self) -> Self;
    /// The remainder of division rounded toward zero, with the sign of `self`; by 0 it is 0.
    fn fmod(self, by: Self) -> Self;
    /// 1, 0 or -1.
    fn sign(self) -> Self;
    /// The power modulo 2ⁿ. A negative power is the reciprocal rounded toward zero: 1 for 1, ±1 for -1, otherwise 0.
    fn power(self, exponent: Self) -> Self;
    /// The left shift; 0 if `by` is negative or not less than the number of bits.
    fn shift_left(self, by: Self) -> Self;
    /// The right shift; all bits are sign bits if `by` is negative or not less than the number of bits.
    fn shift_right(self, by: Self) -> Self;
}

macro_rules! int {
    ($signed:literal: $($t:ty)*) => {$(
        impl Value for $t {
            #[inline(always)]
            fn canonical(self) -> $t {
                self
            }
        }

        #[allow(unused_comparisons)] // the signed half of a definition for both
        impl Int for $t {
            #[inline(always)]
            fn floor_div(self, by: $t) -> $t {
                if by == 0 {
                    return 0;
                }
                let quotient = self.wrapping_div(by);
                let is_rounded_up = $signed && (self < 0) != (by < 0) && quotient.wrapping_mul(by) != self;
                if is_rounded_up { quotient.wrapping_sub(1) } else { quotient }
            }

            #[inline(always)]
            fn floor_rem(self, by: $t) -> $t {
                if by == 0 {
                    return 0;
                }
                let rest = self.wrapping_rem(by);
                if $signed && rest != 0 && (rest < 0) != (by < 0) { rest.wrapping_add(by) } else { rest }
            }

            #[inline(always)]
            fn fmod(self, by: $t) -> $t {
                if by == 0 { 0 } else { self.wrapping_rem(by) }
            }

            #[inline(always)]
            fn sign(self) -> $t {
                <$t>::from(self > 0).wrapping_sub(<$t>::from(self < 0))
            }

            #[inline]
            fn power(self, exponent: $t) -> $t {
                if $signed && exponent < 0 {
                    let is_odd = exponent & 1 != 0;
                    return if self == 1 || (self == !0 && !is_odd) { 1 } else if self == !0 { self } else { 0 };
                }
                let (mut result, mut base, mut rest) = (1 as $t, self, exponent);
                while rest != 0 {
                    if rest & 1 != 0 {
                        result = result.wrapping_mul(base);
                    }
                    base = base.wrapping_mul(base);
                    rest >>= 1;
                }
                result
            }

            #[inline(always)]
            fn shift_left(self, by: $t) -> $t {
                if by >= 0 && by < <$t>::BITS as $t { self << by } else { 0 }
            }

            #[inline(always)]
            fn shift_right(self, by: $t) -> $t {
                let last = <$t>::BITS as $t - 1;
                if by >= 0 && by <= last { self >> by } else if $signed { self >> last } else { 0 }
            }
        }
    )*};
}
int!(true: i8 i16 i32 i64);
int!(false: u8 u16 u32 u64);

/// Floats.
pub(super) trait Float: Value + PartialOrd {
    /// The value as `f64`. Functions without an exact result are computed in `f64` and rounded once.
    fn wide(self) -> f64;
    /// The nearest value to `value`.
    fn narrow(value: f64) -> Self;
    /// Division rounded down as in NumPy, consistent with [`floor_rem`](Float::floor_rem).
    fn floor_div(self, by: Self) -> Self;
    /// The remainder, with the sign of `by`.
    fn floor_rem(self, by: Self) -> Self;
    /// 1, 0 or -1; NaN of NaN.
    fn sign(self) -> Self;
    /// Whether the sign is `-`. That of NaN is not: it differs between processors.
    fn sign_bit(self) -> bool;
    /// The value with the sign of `of`.
    fn with_sign(self, of: Self) -> Self;
    /// The next value towards `to`.
    fn next_after(self, to: Self) -> Self;
}

macro_rules! float {
    ($($t:ty)*) => {$(
        impl Value for $t {
            #[inline(always)]
            fn canonical(self) -> $t {
                #[allow(clippy::eq_op)]
                if self == self { self } else { <$t>::NAN }
            }
        }

        impl Float for $t {
            #[inline(always)]
            #[allow(clippy::cast_lossless)]
            fn wide(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn narrow(value: f64) -> $t {
                value as $t
            }

            #[inline]
            fn floor_div(self, by: $t) -> $t {
                if by == 0.0 {
                    return self / by;
                }
                let rest = self % by;
                let mut quotient = (self - rest) / by;
                if rest != 0.0 && (by < 0.0) != (rest < 0.0) {
                    quotient -= 1.0;
                }
                if quotient == 0.0 {
                    return (0.0 as $t).copysign(self / by);
                }
                let floor = quotient.floor();
                if quotient - floor > 0.5 { floor + 1.0 } else { floor }
            }

            #[inline]
            fn floor_rem(self, by: $t) -> $t {
                let rest = self % by;
                if by == 0.0 {
                    rest
                } else if rest == 0.0 {
                    (0.0 as $t).copysign(by)
                } else if (by < 0.0) != (rest < 0.0) {
                    rest + by
                } else {
                    rest
                }
            }

            #[inline(always)]
            fn sign(self) -> $t {
                if self > 0.0 {
                    1.0
                } else if self < 0.0 {
                    -1.0
                } else {
                    self + 0.0 // -0 becomes 0
                }
            }

            #[inline(always)]
            fn sign_bit(self) -> bool {
                self.canonical().is_sign_negative()
            }

            #[inline(always)]
            fn with_sign(self, of: $t) -> $t {
                self.copysign(of.canonical())
            }

            #[inline]
            fn next_after(self, to: $t) -> $t {
                if self < to {
                    self.next_up()
                } else if self > to {
                    self.next_down()
                } else if self == to {
                    to
                } else {
                    <$t>::NAN
                }
            }
        }
    )*};
}
float!(f32 f64);

macro_rules! stored {
    ($($t:ty)*) => {$(
        impl Value for $t {
            #[inline(always)]
            fn canonical(self) -> $t {
                if self.is_nan() { <$t>::NAN } else { self }
            }
        }
    )*};
}
stored!(f16 bf16);

/// The smaller value; NaN if either is NaN, and the first if they compare equal.
#[inline(always)]
pub(super) fn least<T: PartialOrd + Copy>(a: T, b: T) -> T {
    #[allow(clippy::eq_op)]
    if a <= b || a != a { a } else { b }
}

/// The larger value; NaN if either is NaN, and the first if they compare equal.
#[inline(always)]
pub(super) fn greatest<T: PartialOrd + Copy>(a: T, b: T) -> T {
    #[allow(clippy::eq_op)]
    if a >= b || a != a { a } else { b }
}
