//! Exponentials.
//!
//! The argument is reduced by a multiple n of ln 2 with the method of W. J. Cody and W. Waite (Software Manual for the
//! Elementary Functions, 1980) and fused operations: r = x - n ln 2, in two parts; exp(x) = 2^n exp(r).

use super::coefficients::*;
use super::language::*;
use super::sums::*;

define! {
    /// r in two parts; `count` contains the bits of n + MAGIC.
    fn exp_reduced(x: f64) -> Turn {
        let t = fma(x, LOG2_E, MAGIC);
        let n = t - MAGIC;
        // Exact: both are multiples of the same power of 2, and the difference is small.
        let first = fma(n, -LN_2_1, x);
        let r = fma(n, -LN_2_2, first);
        return turn(r, fma(n, -LN_2_2, first - r), bits(t));
    }

    /// r, with exp(r) - 1 - r added to its low part.
    fn exp_parts(x: f64) -> Turn {
        let r = exp_reduced(x);
        return turn(r.hi, fma(r.hi * r.hi, fma(exp_tail(r.hi), r.hi, 0.5), r.lo), r.count);
    }

    /// r, with exp(r) - 1 - r - half(r) added to its low part, for sums of more than two parts.
    fn exp_close_parts(x: f64) -> Turn {
        let r = exp_reduced(x);
        let square = r.hi * r.hi;
        let rest = fma(0.5, fma(r.hi, r.hi, -square), r.lo);
        return turn(r.hi, fma(square * r.hi, exp_tail(r.hi), rest), r.count);
    }

    /// r^2 / 2, rounded.
    fn half_square(r: f64) -> f64 {
        return 0.5 * (r * r);
    }

    /// Limits x to ±1000, where exponentials already overflow or underflow.
    fn clamped(x: f64) -> f64 {
        let least = select(x < -1000.0, -1000.0, x);
        return select(least > 1000.0, 1000.0, least);
    }

    /// The natural exponential.
    fn exp(x: f64) -> f64 {
        let parts = exp_parts(clamped(x));
        let sum = fast_sum(1.0, parts.hi);
        return scale(sum.hi + (sum.lo + parts.lo), float_of(parts.count));
    }

    /// exp(hi + lo), for lo that is small compared with hi.
    fn exp_of(hi: f64, lo: f64) -> f64 {
        let parts = exp_close_parts(clamped(hi));
        let one = fast_sum(1.0, parts.hi);
        let two = fast_sum(one.hi, half_square(parts.hi));
        let rest = fma(lo, two.hi + parts.lo, parts.lo);
        return scale(two.hi + ((one.lo + two.lo) + rest), float_of(parts.count));
    }

    /// 2^x: the integer part of x is subtracted, and the remainder is multiplied by ln 2.
    fn exp2(x: f64) -> f64 {
        let least = select(x < -1400.0, -1400.0, x);
        let inside = select(least > 1400.0, 1400.0, least);
        let t = inside + MAGIC;
        let rest = inside - (t - MAGIC);
        let r = rest * LN_2_1;
        let low = fma(rest, LN_2_2, fma(rest, LN_2_1, -r));
        let sum = fast_sum(1.0, r);
        return scale(sum.hi + (sum.lo + fma(r * r, fma(exp_tail(r), r, 0.5), low)), t);
    }

    /// A quarter of exp(x) - 1, for x from -60 to 710.8.
    fn expm1_quarter(x: f64) -> Pair {
        let parts = exp_close_parts(x);
        let power = float_of(plus(minus(parts.count, 0x4338000000000000), 1021) << 52);
        let whole = two_sum(power, -0.25);
        let one = fast_sum(whole.hi, power * parts.hi);
        let two = fast_sum(one.hi, power * half_square(parts.hi));
        return fast_sum(two.hi, (one.lo + two.lo) + fma(power, parts.lo, whole.lo));
    }

    /// exp(x) - 1, accurate near 0.
    fn expm1(x: f64) -> f64 {
        let least = select(x < -60.0, -60.0, x);
        let quarter = expm1_quarter(select(least > 710.8, 710.8, least));
        return select(size(x) < 1e-17, x, 4.0 * (quarter.hi + quarter.lo));
    }
}
