//! Powers, roots and lengths.

use super::coefficients::*;
use super::exp::*;
use super::language::*;
use super::log::*;
use super::sums::*;

define! {
    /// log(x) with a relative error of about 2^-67, for positive finite x. As `log_sum`, but s^3 and s^5 have two
    /// parts, too.
    fn log_precise(x: f64) -> Pair {
        let is_subnormal = x < LEAST_NORMAL;
        let parts = split(select(is_subnormal, x * UP_54, x));
        let k = exponent(parts) - select(is_subnormal, 54.0, 0.0);
        let s = log_quotient(mantissa(parts) - 1.0, 0.0);
        let square = s.hi * s.hi;
        let square_low = fma(s.hi, s.hi, -square) + 2.0 * (s.hi * s.lo);
        let cube = square * s.hi;
        let cube_low = fma(square, s.hi, -cube) + fma(square_low, s.hi, square * s.lo);
        let third = cube * TWO_THIRDS_1;
        let third_low = fma(cube, TWO_THIRDS_1, -third) + fma(cube, TWO_THIRDS_2, cube_low * TWO_THIRDS_1);
        let power = cube * square;
        let power_low = fma(cube, square, -power) + fma(cube_low, square, cube * square_low);
        let fifth = power * TWO_FIFTHS_1;
        let fifth_low = fma(power, TWO_FIFTHS_1, -fifth) + fma(power, TWO_FIFTHS_2, power_low * TWO_FIFTHS_1);
        let tail = fma(power * square, log_far_tail(square), fifth_low + third_low);
        let one = fast_sum(k * LN_2_SHORT_1, 2.0 * s.hi);
        let two = fast_sum(one.hi, third);
        let three = fast_sum(two.hi, fifth);
        let rest = fma(k, LN_2_SHORT_2, fma(2.0, s.lo, tail));
        return fast_sum(three.hi, (one.lo + (two.lo + three.lo)) + rest);
    }

    /// Whether a nonnegative number is an integer.
    fn is_whole(a: f64) -> bool {
        return (a >= TWO_52) | (((a + TWO_52) - TWO_52) == a);
    }

    /// x to the power y: exp(y log|x|) with the sign of the power. Special cases are those of C99.
    fn power(x: f64, y: f64) -> f64 {
        let a = size(x);
        let log = log_precise(a);
        let hi = log_special(a, log.hi);
        let product = y * hi;
        let low = fma(y, hi, -product) + y * log.lo;
        let result = exp_of(product, select(size(product) < 1000.0, low, 0.0));
        let is_integer = is_whole(size(y));
        let is_odd = is_integer & (!is_whole(0.5 * size(y)));
        let is_negative = (bits(x) >> 63) == 1;
        let value = select(is_negative & is_odd, -result, result);
        let real = select((x < 0.0) & (!is_integer) & (a < infinity()), nan(), value);
        let one = (y == 0.0) | (x == 1.0) | ((x == -1.0) & (size(y) == infinity()));
        return select(one, 1.0, select(is_nan(x) | is_nan(y), nan(), real));
    }

    /// The cube root. A polynomial and Newton's iteration give 1 / cbrt; the last step includes the rounding errors.
    fn cbrt(x: f64) -> f64 {
        let a = size(x);
        let is_subnormal = a < LEAST_NORMAL;
        let b = select(is_subnormal, a * UP_54, a);
        // a = m 2^(3 k), m from 1 to 8; for subnormals, k is reduced by 18.
        let e = float_of((bits(b) >> 52) | 0x4330000000000000) - (TWO_52 + 1023.0);
        let t = fma(e - 1.0, THIRD, MAGIC);
        let whole = minus(bits(t), 0x4338000000000000);
        let m = float_of(minus(bits(b), plus(whole, plus(whole, whole)) << 52));
        let y0 = inverse_cbrt(m);
        let y1 = fma(y0 * THIRD, fma(-m * y0, y0 * y0, 1.0), y0);
        let y2 = fma(y1 * THIRD, fma(-m * y1, y1 * y1, 1.0), y1);
        let y3 = fma(y2 * THIRD, fma(-m * y2, y2 * y2, 1.0), y2);
        let c = m * (y3 * y3);
        let square = c * c;
        let cube = square * c;
        let cube_low = fma(square, c, -cube) + fma(c, c, -square) * c;
        let result = fma(((m - cube) - cube_low) * THIRD, y3 * y3, c);
        let by = float_of(plus(whole, 1023) << 52) * select(is_subnormal, 3.814697265625e-06, 1.0);
        return select((a == 0.0) | (a == infinity()) | is_nan(a), x, signed_as(result * by, x));
    }

    /// The length of the vector (x, y).
    fn hypot(x: f64, y: f64) -> f64 {
        let is_x = size(x) > size(y);
        let a = select(is_x, size(x), size(y));
        let b = select(is_x, size(y), size(x));
        let by = select(a > 1e150, DOWN, select(a < 1e-130, UP, 1.0));
        let back = select(a > 1e150, UP, select(a < 1e-130, DOWN, 1.0));
        let p = a * by;
        let q = b * by;
        let p_square = p * p;
        let q_square = q * q;
        let sum = fast_sum(p_square, q_square);
        let low = (fma(p, p, -p_square) + fma(q, q, -q_square)) + sum.lo;
        let r = root(sum.hi);
        let result = r + (fma(-r, r, sum.hi) + low) * (0.5 / r);
        let finite = select(a == 0.0, 0.0, result * back);
        let any = select(is_nan(x) | is_nan(y), nan(), finite);
        return select((size(x) == infinity()) | (size(y) == infinity()), infinity(), any);
    }
}
