//! Arc functions.
//!
//! The arc tangent is reduced by pi/4 or pi/2, with the formula for the tangent of a difference, to the range of a
//! short polynomial. Above a half, arc sine and arc cosine use asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)).

use super::coefficients::*;
use super::language::*;
use super::sums::*;

define! {
    /// The angle of a point in the first quadrant. `up` and `right` are finite, nonnegative and not both 0, and their
    /// product does not overflow.
    fn angle(up: f64, right: f64) -> Pair {
        let is_steep = up * TAN_PI_8 > right;
        let is_flat = up < TAN_PI_8 * right;
        let difference = two_sum(up, -right);
        let sum = two_sum(up, right);
        let top = select(is_flat, up, select(is_steep, -right, difference.hi));
        let top_low = select(is_flat | is_steep, 0.0, difference.lo);
        let below = select(is_flat, right, select(is_steep, up, sum.hi));
        let below_low = select(is_flat | is_steep, 0.0, sum.lo);
        let times = select(is_flat, 0.0, select(is_steep, 2.0, 1.0));
        let t = top / below;
        let t_low = ((fma(-t, below, top) + top_low) - t * below_low) / below;
        let z = t * t;
        let result = fast_sum(times * QUARTER_PI_1, t);
        return fast_sum(result.hi, result.lo + fma(t * z, atan_tail(z), fma(times, QUARTER_PI_2, t_low)));
    }

    /// The arc tangent.
    fn atan(x: f64) -> f64 {
        // Above 2^60 the result is exactly the nearest float of pi/2.
        let a = select(size(x) > 1152921504606846976.0, 1152921504606846976.0, size(x));
        let result = angle(a, 1.0);
        return select(size(x) < 1e-8, x, signed_as(result.hi + result.lo, x));
    }

    /// The angle of the point (x, y).
    fn atan2(y: f64, x: f64) -> f64 {
        let b = size(y);
        let a = size(x);
        // If a coordinate is infinite, infinite coordinates count as 1 and finite ones as 0. The origin counts as (1,
        // 0). Other points are scaled so that nothing overflows or underflows.
        let is_far = (a == infinity()) | (b == infinity());
        let is_none = (a == 0.0) & (b == 0.0);
        let most = select(a > b, a, b);
        let by = select(most > 1e150, DOWN, select(most < 1e-150, UP, 1.0));
        let up = select(is_far, select(b == infinity(), 1.0, 0.0), b * by);
        let right = select(is_far, select(a == infinity(), 1.0, 0.0), select(is_none, 1.0, a * by));
        let result = angle(up, right);
        let is_left = (bits(x) >> 63) == 1;
        let left = fast_sum(PI_1, -result.hi);
        let value = select(is_left, left.hi + (left.lo + (PI_2 - result.lo)), result.hi + result.lo);
        // A tiny quotient equals the angle. Computed directly, it is rounded only once.
        let is_tiny = (!is_left) & (!is_far) & (up < right * 1e-9);
        let any = select(is_tiny, b / a, value);
        return select(is_nan(x) | is_nan(y), nan(), signed_as(select(is_none & (!is_left), 0.0, any), y));
    }

    /// asin(s + low) - s for s * s = z, for s up to a half.
    fn asin_rest(s: f64, low: f64, z: f64) -> f64 {
        return fma(s * z, asin_tail(z), low);
    }

    /// The arc sine.
    fn asin(x: f64) -> f64 {
        let a = size(x);
        let is_big = a > 0.5;
        let z = select(is_big, fma(-0.5, a, 0.5), a * a);
        let s = select(is_big, root(z), a);
        let low = select(is_big, fma(-s, s, z) * (0.5 / s), 0.0);
        let rest = asin_rest(s, select(z == 0.0, 0.0, low), z);
        let far = fast_sum(HALF_PI_1, -2.0 * s);
        let value = select(is_big, far.hi + (far.lo + fma(-2.0, rest, HALF_PI_2)), s + rest);
        return select(a < 1e-8, x, select(a <= 1.0, signed_as(value, x), nan()));
    }

    /// The arc cosine.
    fn acos(x: f64) -> f64 {
        let a = size(x);
        let is_big = a > 0.5;
        let z = select(is_big, fma(-0.5, a, 0.5), a * a);
        let s = select(is_big, root(z), x);
        let low = select(is_big, fma(-s, s, z) * (0.5 / s), 0.0);
        let rest = asin_rest(s, select(z == 0.0, 0.0, low), z);
        let middle = fast_sum(HALF_PI_1, -s);
        let left = fast_sum(PI_1, -2.0 * s);
        let near = middle.hi + (middle.lo + (HALF_PI_2 - rest));
        let far = select(x < 0.0, left.hi + (left.lo + fma(-2.0, rest, PI_2)), 2.0 * (s + rest));
        return select(a <= 1.0, select(is_big, far, near), nan());
    }
}
