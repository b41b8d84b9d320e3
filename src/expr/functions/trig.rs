//! Sine, cosine and tangent.
//!
//! The argument is reduced to x = n pi/2 + r. r has twice the precision of `f64`, and polynomials give its sine and
//! cosine. Up to [`EASY`] the reduction is that of Cody and Waite, with pi/2 in three parts. For larger arguments it is
//! that of M. Payne and R. Hanek (Radian reduction for trigonometric functions, 1983).

use super::coefficients::*;
use super::language::*;
use super::sums::*;

define! {
    constants {
        /// 2^30: the upper bound for the first reduction.
        const EASY: f64 = 1073741824.0;
    }

    /// r and n for x up to [`EASY`].
    fn quarter_turn(x: f64) -> Turn {
        let t = fma(x, TWO_OVER_PI, MAGIC);
        let n = t - MAGIC;
        // Exact: both are multiples of the same power of 2, and the difference is small.
        let first = fma(n, -HALF_PI_1, x);
        let second = n * HALF_PI_2;
        let r = first - second;
        let lost = ((first - r) - second) - fma(n, HALF_PI_2, -second);
        return turn(r, fma(n, -HALF_PI_3, lost), bits(t));
    }

    /// Converts an integer below 2^32 exactly.
    fn small(a: u64) -> f64 {
        return float_of(a | 0x4330000000000000) - TWO_52;
    }

    /// r and n for any finite x of at least [`EASY`].
    ///
    /// x is an integer times 2^e. The bits of 2/pi that contribute only multiples of 4 to the product are skipped. The
    /// next 192 bits are enough, because no f64 is nearer to a multiple of pi/2 than 2^-62.
    fn quarter_turn_far(x: f64) -> Turn {
        let integer = (bits(x) & 0x000fffffffffffff) | 0x0010000000000000;
        // Skips e - 2 bits after the first 64 bits of the table, which are 0; e = exponent - 1075.
        let first = minus((bits(x) >> 52) & 0x7ff, 1013);
        let at = first >> 6;
        let by = first & 63;
        // Two shifts, because a shift by 64 is undefined.
        let a = (word(at) << by) | ((word(plus(at, 1)) >> 1) >> (63 - by));
        let b = (word(plus(at, 1)) << by) | ((word(plus(at, 2)) >> 1) >> (63 - by));
        let c = (word(plus(at, 2)) << by) | ((word(plus(at, 3)) >> 1) >> (63 - by));
        let middle = plus(low(integer, b), high(integer, c));
        let carry = one_if(middle < low(integer, b));
        let top = plus(plus(low(integer, a), high(integer, b)), carry);
        // Two bits of n and 126 bits of the fraction. A fraction above a half is subtracted from 1.
        let upper = (top << 2) | (middle >> 62);
        let lower = (middle << 2) | (low(integer, c) >> 62);
        let is_above = one_if((upper >> 63) == 1);
        let mask = minus(0, is_above);
        let one = upper ^ mask;
        let two = lower ^ mask;
        let leading =
            fast_sum(small(one >> 32) * 2.3283064365386963e-10, small(one & 0xffffffff) * 5.421010862427522e-20);
        let trailing = fma(small(two >> 32), 1.262177448353619e-29, small(two & 0xffffffff) * 2.938735877055719e-39);
        let fraction = two_sum(leading.hi, leading.lo + trailing);
        let r = fraction.hi * HALF_PI_1;
        let lost = fma(fraction.hi, HALF_PI_2, fraction.lo * HALF_PI_1);
        let angle = fast_sum(r, fma(fraction.hi, HALF_PI_1, -r) + lost);
        // The signs of x and of the fraction.
        let sign = (mask ^ bits(x)) & 0x8000000000000000;
        let n = plus(top >> 62, is_above);
        let is_negative = minus(0, bits(x) >> 63);
        return turn(
            float_of(bits(angle.hi) ^ sign), float_of(bits(angle.lo) ^ sign), minus(n ^ is_negative, is_negative)
        );
    }

    /// sin(hi + lo) in two parts, for arguments up to pi/4.
    fn sin_parts(hi: f64, lo: f64) -> Pair {
        let z = hi * hi;
        return pair(hi, fma(hi * z, sin_tail(z), fma(-0.5 * z, lo, lo)));
    }

    /// cos(hi + lo) in two parts, for arguments up to pi/4.
    fn cos_parts(hi: f64, lo: f64) -> Pair {
        let z = hi * hi;
        let sum = fast_sum(1.0, -0.5 * z);
        let square = fma(hi, hi, -z);
        return pair(sum.hi, fma(z * z, cos_tail(z), fma(-hi, lo, fma(-0.5, square, sum.lo))));
    }

    /// The sine of r, or its cosine if `count` is odd; negated if the second bit of `count` is set.
    fn sine(angle: Turn, count: u64) -> f64 {
        let sin = sin_parts(angle.hi, angle.lo);
        let cos = cos_parts(angle.hi, angle.lo);
        let value = select((count & 1) == 1, cos.hi + cos.lo, sin.hi + sin.lo);
        return float_of(bits(value) ^ ((count & 2) << 62));
    }

    /// The tangent of r + count pi/2.
    fn tangent(angle: Turn) -> f64 {
        let sin = sin_parts(angle.hi, angle.lo);
        let cos = cos_parts(angle.hi, angle.lo);
        let is_odd = (angle.count & 1) == 1;
        let above = select(is_odd, -cos.hi, sin.hi);
        let above_low = select(is_odd, -cos.lo, sin.lo);
        let below = select(is_odd, sin.hi, cos.hi);
        let below_low = select(is_odd, sin.lo, cos.lo);
        let top = fast_sum(above, above_low);
        let bottom = fast_sum(below, below_low);
        let inverse = 1.0 / bottom.hi;
        let quotient = top.hi * inverse;
        return quotient + (fma(-quotient, bottom.hi, top.hi) + fma(-quotient, bottom.lo, top.lo)) * inverse;
    }

    /// The sine, up to [`EASY`].
    fn sin_easy(x: f64) -> f64 {
        let angle = quarter_turn(x);
        return select(size(x) < 1e-8, x, sine(angle, angle.count));
    }

    /// The cosine, up to [`EASY`].
    fn cos_easy(x: f64) -> f64 {
        let angle = quarter_turn(x);
        return sine(angle, plus(angle.count, 1));
    }

    /// The tangent, up to [`EASY`].
    fn tan_easy(x: f64) -> f64 {
        return select(size(x) < 1e-8, x, tangent(quarter_turn(x)));
    }

    /// The sine.
    fn sin(x: f64) -> f64 {
        if (size(x) <= EASY) { return sin_easy(x); }
        if (is_nan(x) | (size(x) == infinity())) { return nan(); }
        let angle = quarter_turn_far(x);
        return sine(angle, angle.count);
    }

    /// The cosine.
    fn cos(x: f64) -> f64 {
        if (size(x) <= EASY) { return cos_easy(x); }
        if (is_nan(x) | (size(x) == infinity())) { return nan(); }
        let angle = quarter_turn_far(x);
        return sine(angle, plus(angle.count, 1));
    }

    /// The tangent.
    fn tan(x: f64) -> f64 {
        if (size(x) <= EASY) { return tan_easy(x); }
        if (is_nan(x) | (size(x) == infinity())) { return nan(); }
        return tangent(quarter_turn_far(x));
    }
}
