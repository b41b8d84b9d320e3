//! Logarithms.
//!
//! With x = 2^k m, m between sqrt(1/2) and sqrt(2), and s = (m - 1) / (m + 1): log(x) = k ln 2 + 2 atanh(s),
//! with a polynomial for atanh. The rounding errors of the quotient and the sums are computed and added.

use super::coefficients::*;
use super::language::*;
use super::sums::*;

define! {
    /// k + 1023 in the high bits, and the distance of m from sqrt(1/2) in the low bits; for normal x > 0.
    fn split(x: f64) -> u64 {
        return plus(minus(bits(x), 0x3fe6a09e667f3bcd), 0x3ff0000000000000);
    }

    /// k, from [`split`], converted through the low bits of 2^52.
    fn exponent(split: u64) -> f64 {
        return float_of((split >> 52) | 0x4330000000000000) - (TWO_52 + 1023.0);
    }

    /// m, from [`split`].
    fn mantissa(split: u64) -> f64 {
        return float_of(plus(split & 0x000fffffffffffff, 0x3fe6a09e667f3bcd));
    }

    /// s for m = 1 + f + low.
    fn log_quotient(f: f64, low: f64) -> Pair {
        let below = 2.0 + f;
        let lost = (f - (below - 2.0)) + low;
        let inverse = 1.0 / below;
        let s = f * inverse;
        return pair(s, (fma(-s, below, f) + fma(-s, lost, low)) * inverse);
    }

    /// k ln 2 + log(1 + f + low).
    fn log_sum(k: f64, f: f64, low: f64) -> Pair {
        let s = log_quotient(f, low);
        let z = s.hi * s.hi;
        let tail = fma(s.hi * z, log_tail(z), 2.0 * s.lo);
        let sum = fast_sum(k * LN_2_SHORT_1, 2.0 * s.hi);
        return pair(sum.hi, sum.lo + fma(k, LN_2_SHORT_2, tail));
    }

    /// The logarithm of a positive finite x.
    fn log_parts(x: f64) -> Pair {
        let is_subnormal = x < LEAST_NORMAL;
        let parts = split(select(is_subnormal, x * UP_54, x));
        return log_sum(exponent(parts) - select(is_subnormal, 54.0, 0.0), mantissa(parts) - 1.0, 0.0);
    }

    /// The logarithm of x, including special cases. `of` is the logarithm of positive finite x.
    fn log_special(x: f64, of: f64) -> f64 {
        let positive = select(x > 0.0, of, select(x == 0.0, -infinity(), nan()));
        return select(x < infinity(), positive, x);
    }

    /// The natural logarithm.
    fn log(x: f64) -> f64 {
        let parts = log_parts(x);
        return log_special(x, parts.hi + parts.lo);
    }

    /// The product of two pairs.
    fn times(a: Pair, hi: f64, lo: f64) -> f64 {
        let product = a.hi * hi;
        return product + (fma(a.hi, hi, -product) + fma(a.hi, lo, a.lo * hi));
    }

    /// The logarithm to base 2.
    fn log2(x: f64) -> f64 {
        return log_special(x, times(log_parts(x), INVERSE_LN_2_1, INVERSE_LN_2_2));
    }

    /// The logarithm to base 10.
    fn log10(x: f64) -> f64 {
        return log_special(x, times(log_parts(x), INVERSE_LN_10_1, INVERSE_LN_10_2));
    }

    /// log(1 + hi + low) for a sum above -1, finite and not tiny; `low` is small compared with `hi`.
    fn log1p_parts(hi: f64, low: f64) -> Pair {
        let sum = two_sum(1.0, hi);
        let parts = split(sum.hi);
        let k = exponent(parts);
        // 2^-k; where that is not a power of 2, the rounding error is negligible.
        let power = float_of(minus(2046, parts >> 52) << 52);
        let lost = select(k < 200.0, (sum.lo + low) * power, 0.0);
        let is_near = k == 0.0;
        return log_sum(k, select(is_near, hi, mantissa(parts) - 1.0), select(is_near, low, lost));
    }

    /// log(1 + x), accurate near 0.
    fn log1p(x: f64) -> f64 {
        let parts = log1p_parts(x, 0.0);
        let positive = select(x > -1.0, parts.hi + parts.lo, select(x == -1.0, -infinity(), nan()));
        return select(size(x) < 1e-17, x, select(x < infinity(), positive, x));
    }
}
