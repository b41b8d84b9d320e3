//! Error-free sums, and scaling by powers of 2.

use super::language::*;

define! {
    /// a + b and its rounding error, for any a and b (D. E. Knuth, The Art of Computer Programming, volume 2, 4.2.2,
    /// theorem B).
    fn two_sum(a: f64, b: f64) -> Pair {
        let sum = a + b;
        let other = sum - a;
        return pair(sum, (a - (sum - other)) + (b - other));
    }

    /// a + b and its rounding error, if a is 0 or |a| >= |b| (T. J. Dekker, A floating-point technique for extending
    /// the available precision, 1971).
    fn fast_sum(a: f64, b: f64) -> Pair {
        let sum = a + b;
        return pair(sum, (a - sum) + b);
    }

    /// a times 2^n, rounded once, for n from -1440 to 1440; `t` is n + MAGIC.
    fn scale(a: f64, t: f64) -> f64 {
        let both = plus(minus(bits(t), 0x4338000000000000), 2046);
        let one = both >> 1;
        return (a * float_of(one << 52)) * float_of(minus(both, one) << 52);
    }
}
