//! Exponentials.
//!
//! The argument is reduced by a multiple n of ln 2 as W. J. Cody and W. Waite do (Software Manual for the Elementary
//! Functions, 1980), with fused operations: x - n ln 2 = r, known to twice the precision; exp(x) = 2^n exp(r).

use super::coefficients::*;
use super::language::*;
use super::sums::*;

define! {
    /// r in two parts, exp(r) - 1 - r added to the low one; the count is n, as bits of n + MAGIC.
    fn exp_parts(x: f64) -> Turn {
        let t = fma(x, LOG2_E, MAGIC);
        let n = t - MAGIC;
        // Exact, as both are multiples of the same power of 2, and what is left is small.
        let first = fma(n, -LN_2_1, x);
        let r = fma(n, -LN_2_2, first);
        let rest = fma(n, -LN_2_2, first - r);
        return turn(r, fma(r * r, exp_tail(r), rest), bits(t));
    }

    /// Beyond ±1000 exponentials overflow or vanish as they do there.
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

    /// exp(hi + lo), for lo small beside hi.
    fn exp_of(hi: f64, lo: f64) -> f64 {
        let parts = exp_parts(clamped(hi));
        let sum = fast_sum(1.0, parts.hi);
        let rest = fma(lo, sum.hi + parts.lo, parts.lo);
        return scale(sum.hi + (sum.lo + rest), float_of(parts.count));
    }

    /// 2^x: x loses its integer, and what is left is taken times ln 2.
    fn exp2(x: f64) -> f64 {
        let least = select(x < -1400.0, -1400.0, x);
        let inside = select(least > 1400.0, 1400.0, least);
        let t = inside + MAGIC;
        let rest = inside - (t - MAGIC);
        let r = rest * LN_2_1;
        let low = fma(rest, LN_2_2, fma(rest, LN_2_1, -r));
        let sum = fast_sum(1.0, r);
        return scale(sum.hi + (sum.lo + fma(r * r, exp_tail(r), low)), t);
    }

    /// A quarter of exp(x) - 1, for x from -60 to 710.8.
    fn expm1_quarter(x: f64) -> Pair {
        let parts = exp_parts(x);
        let power = float_of(plus(minus(parts.count, 0x4338000000000000), 1021) << 52);
        let whole = two_sum(power, -0.25);
        let sum = fast_sum(whole.hi, power * parts.hi);
        return fast_sum(sum.hi, sum.lo + fma(power, parts.lo, whole.lo));
    }

    /// exp(x) - 1 without loss near 0.
    fn expm1(x: f64) -> f64 {
        let least = select(x < -60.0, -60.0, x);
        let quarter = expm1_quarter(select(least > 710.8, 710.8, least));
        return select(size(x) < 1e-17, x, 4.0 * (quarter.hi + quarter.lo));
    }
}
