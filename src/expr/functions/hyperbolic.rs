//! Hyperbolic functions and their inverses, from exp(x) - 1 and log(1 + x) in two parts.

use super::exp::*;
use super::language::*;
use super::log::*;
use super::sums::*;

define! {
    constants {
        /// For larger x, exp(-x) is negligible compared with exp(x).
        const FAR: f64 = 40.0;
        /// 2^28: for larger x, 1 is negligible compared with x^2.
        const LARGE: f64 = 268435456.0;
    }

    /// (top + top_low) / (below + below_low), for top_low and below_low that are small compared with the others.
    fn quotient(top: f64, top_low: f64, below: f64, below_low: f64) -> Pair {
        let inverse = 1.0 / below;
        let q = top * inverse;
        return pair(q, ((fma(-q, below, top) + top_low) - q * below_low) * inverse);
    }

    /// sinh(x): with t = exp(|x|) - 1 it is (t + t / (t + 1)) / 2.
    fn sinh(x: f64) -> f64 {
        let a = select(size(x) > 710.8, 710.8, size(x));
        let t = expm1_quarter(a);
        let below = two_sum(1.0, 4.0 * t.hi);
        let q = quotient(t.hi, t.lo, below.hi, below.lo + 4.0 * t.lo);
        let is_far = a > FAR;
        let sum = fast_sum(t.hi, select(is_far, 0.0, q.hi));
        let result = 2.0 * (sum.hi + (sum.lo + (t.lo + select(is_far, 0.0, q.lo))));
        return select(size(x) < 1e-8, x, signed_as(result, x));
    }

    /// cosh(x): with e = exp(|x|) it is (e + 1 / e) / 2.
    fn cosh(x: f64) -> f64 {
        let a = select(size(x) > 710.8, 710.8, size(x));
        let parts = exp_parts(a);
        let sum = fast_sum(1.0, parts.hi);
        let e = fast_sum(sum.hi, sum.lo + parts.lo);
        let power = float_of(plus(minus(parts.count, 0x4338000000000000), 1021) << 52);
        // A quarter of e, because e may overflow.
        let hi = power * e.hi;
        let lo = power * e.lo;
        let is_far = a > FAR;
        let other = quotient(0.0625, 0.0, select(is_far, 1.0, hi), lo);
        let both = fast_sum(hi, select(is_far, 0.0, other.hi));
        return 2.0 * (both.hi + (both.lo + (lo + select(is_far, 0.0, other.lo))));
    }

    /// tanh(x): with t = exp(2 |x|) - 1 it is t / (t + 2).
    fn tanh(x: f64) -> f64 {
        let t = expm1_quarter(2.0 * select(size(x) > 22.0, 22.0, size(x)));
        let below = two_sum(0.5, t.hi);
        let q = quotient(t.hi, t.lo, below.hi, below.lo + t.lo);
        return select(size(x) < 1e-8, x, signed_as(q.hi + q.lo, x));
    }

    /// log(2 x) if x is large, else log(1 + hi + lo).
    fn log1p_or_twice(is_large: bool, x: f64, hi: f64, lo: f64) -> f64 {
        let near = log1p_parts(select(is_large, 1.0, hi), select(is_large, 0.0, lo));
        let parts = split(select(is_large, x, 1.0));
        let far = log_sum(exponent(parts) + 1.0, mantissa(parts) - 1.0, 0.0);
        return select(is_large, far.hi + far.lo, near.hi + near.lo);
    }

    /// asinh(x) = log(1 + |x| + x^2 / (1 + sqrt(1 + x^2))).
    fn asinh(x: f64) -> f64 {
        let is_large = size(x) > LARGE;
        let a = select(is_large, 1.0, size(x));
        let square = a * a;
        let square_low = fma(a, a, -square);
        let sum = two_sum(1.0, square);
        let r = root(sum.hi);
        let r_low = (fma(-r, r, sum.hi) + (sum.lo + square_low)) * (0.5 / r);
        let below = fast_sum(r, 1.0);
        let q = quotient(square, square_low, below.hi, below.lo + r_low);
        let all = fast_sum(select(a < q.hi, q.hi, a), select(a < q.hi, a, q.hi));
        let result = log1p_or_twice(is_large, size(x), all.hi, all.lo + q.lo);
        return select(size(x) < 1e-8, x, select(size(x) < infinity(), signed_as(result, x), x));
    }

    /// acosh(x) = log(1 + t + sqrt(t (t + 2))) with t = x - 1.
    fn acosh(x: f64) -> f64 {
        let is_large = x > LARGE;
        let t = two_sum(select(is_large, 2.0, x), -1.0);
        let square = t.hi * t.hi;
        let sum = two_sum(2.0 * t.hi, square);
        let rest = fma(2.0 * t.hi, t.lo, fma(t.hi, t.hi, -square)) + (sum.lo + 2.0 * t.lo);
        let r = root(sum.hi);
        let r_low = (fma(-r, r, sum.hi) + rest) * (0.5 / r);
        let all = two_sum(r, t.hi);
        let result = log1p_or_twice(is_large, x, all.hi, all.lo + (r_low + t.lo));
        let inside = select(x > 1.0, result, select(x == 1.0, 0.0, nan()));
        return select(x < infinity(), inside, x);
    }

    /// atanh(x) = log(1 + 2 |x| / (1 - |x|)) / 2.
    fn atanh(x: f64) -> f64 {
        let a = size(x);
        let below = fast_sum(1.0, -a);
        let q = quotient(2.0 * a, 0.0, below.hi, below.lo);
        let parts = log1p_parts(q.hi, q.lo);
        let inside = select(a < 1.0, 0.5 * (parts.hi + parts.lo), select(a == 1.0, infinity(), nan()));
        return select(a < 1e-8, x, signed_as(inside, x));
    }
}
