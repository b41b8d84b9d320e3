//! Exact sums: integers in digits of 32 bits, which are kept in words of 64 bits.
//!
//! A value is a sign and a few digits at a place. Adding it adds to each digit alone, so the order of additions does
//! not matter. 2^31 values can be added before a word overflows; then [`Digits::carry`] makes the form of a sum
//! unique. `kernels/tally.cu` has the same digits.

use crate::data::Dtype;

/// The number of digits of a value.
pub(super) const MOST_DIGITS: usize = 3;

/// How the values of a dtype become digits: as multiples of 2^-`scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digits {
    /// The words of a sum. The last one has the sign.
    pub(super) count: usize,
    pub(super) scale: i32,
    /// The low bits of the significand of an `f64` that are 0 in every value.
    pub(super) dropped: u32,
}

/// A value that can be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) is_negative: bool,
    /// The place of the first digit.
    pub(super) at: usize,
    pub(super) digits: [u32; MOST_DIGITS],
}

impl Digits {
    /// Those of values of this dtype, with room for the sum of 2^63 of them.
    pub(super) fn of(dtype: Dtype) -> Digits {
        match dtype {
            Dtype::F64 => Digits { count: 67, scale: 1074, dropped: 0 },
            // A significand of 24 bits whose highest bit is set, so that the least value is 2^-149 in units of 2^-172.
            Dtype::F16 | Dtype::Bf16 | Dtype::F32 => Digits { count: 11, scale: 172, dropped: 29 },
            _ => Digits { count: 3, scale: 0, dropped: 0 },
        }
    }

    /// The digits of a finite float.
    #[inline(always)]
    pub(super) fn of_float(self, value: f64) -> Value {
        let bits = value.to_bits();
        let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
        let significand = if exponent == 0 { fraction } else { fraction | 1 << 52 };
        let place = exponent.max(1) - 1075 + self.dropped as i32 + self.scale;
        // Only 0 has a place below the first one.
        let place = place.max(0) as u32;
        let shifted = u128::from(significand >> self.dropped) << (place % 32);
        let digits = [shifted as u32, (shifted >> 32) as u32, (shifted >> 64) as u32];
        Value { is_negative: bits >> 63 == 1, at: place as usize / 32, digits }
    }

    /// The digits of an integer, which has a sign or not.
    #[inline(always)]
    pub(super) fn of_integer(value: u64, is_signed: bool) -> Value {
        let is_negative = is_signed && (value as i64) < 0;
        let magnitude = if is_negative { value.wrapping_neg() } else { value };
        Value { is_negative, at: 0, digits: [magnitude as u32, (magnitude >> 32) as u32, 0] }
    }

    /// Makes every word but the last one a digit, with the same sum.
    pub(super) fn carry(words: &mut [u64]) {
        let mut carried = 0_i64;
        if let Some((last, digits)) = words.split_last_mut() {
            for word in digits {
                let sum = (*word as i64).wrapping_add(carried);
                carried = sum >> 32;
                *word = sum as u64 & 0xffff_ffff;
            }
            *last = last.wrapping_add(carried as u64);
        }
    }

    /// The nearest `f64` to a sum that was carried; of two, the even one.
    pub(super) fn round(self, words: &[u64]) -> f64 {
        let is_negative = words.last().is_some_and(|last| (*last as i64) < 0);
        let mut digits = words.to_vec();
        if is_negative {
            digits.iter_mut().for_each(|word| *word = word.wrapping_neg());
            Digits::carry(&mut digits);
        }
        let Some(highest) = digits.iter().rposition(|digit| *digit != 0) else { return 0.0 };
        // The highest digit may have 63 bits, and with the next two there are more than a result has.
        let lowest = highest.saturating_sub(2);
        let head = digits[lowest..=highest].iter().rev().fold(0_u128, |head, digit| head << 32 | u128::from(*digit));
        let has_rest = digits[..lowest].iter().any(|digit| *digit != 0);
        let unit = 32 * lowest as i32 - self.scale;
        let bits = 128 - head.leading_zeros() as i32;
        let dropped = (bits - 53).max(-1074 - unit);
        let (significand, exponent) = match u32::try_from(dropped) {
            Ok(dropped @ 1..) => {
                let (kept, half) = (head >> dropped, 1_u128 << (dropped - 1));
                let rest = head & (half * 2 - 1);
                let is_up = rest > half || (rest == half && (has_rest || kept & 1 == 1));
                (kept as u64 + u64::from(is_up), unit + dropped as i32)
            }
            _ => (head as u64, unit),
        };
        // Both factors are exact, and so is the product, unless it is too large.
        let scaled = match exponent {
            1024.. => f64::INFINITY,
            _ => significand as f64 * power_of_two(exponent),
        };
        if is_negative { -scaled } else { scaled }
    }
}

/// Returns 2 to a power from -1074 to 1023.
fn power_of_two(exponent: i32) -> f64 {
    match exponent {
        -1022.. => f64::from_bits(((exponent + 1023) as u64) << 52),
        _ => f64::from_bits(1 << (exponent + 1074).max(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(dtype: Dtype, values: impl IntoIterator<Item = Value>) -> f64 {
        let digits = Digits::of(dtype);
        let mut words = vec![0; digits.count];
        for value in values {
            add(&mut words, value);
        }
        Digits::carry(&mut words);
        let once = words.clone();
        Digits::carry(&mut words);
        assert_eq!(words, once, "the form is unique");
        digits.round(&words)
    }

    fn add(words: &mut [u64], value: Value) {
        for (digit, word) in value.digits.into_iter().zip(&mut words[value.at..]) {
            let digit = if value.is_negative { u64::from(digit).wrapping_neg() } else { u64::from(digit) };
            *word = word.wrapping_add(digit);
        }
    }

    fn floats(values: &[f64]) -> f64 {
        sum(Dtype::F64, values.iter().map(|value| Digits::of(Dtype::F64).of_float(*value)))
    }

    fn random() -> impl Iterator<Item = u64> {
        std::iter::successors(Some(7_u64), |state| {
            Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
        })
        .map(|state| state ^ (state >> 29))
    }

    #[test]
    fn a_single_value_is_its_sum() {
        let special = [0.0, 5e-324, f64::MIN_POSITIVE, f64::MAX, f64::MIN, 1.0, -1.5, f64::MIN_POSITIVE.next_down()];
        let any = random().map(f64::from_bits).filter(|value| value.is_finite()).take(20_000);
        for value in special.into_iter().chain(any) {
            assert_eq!(floats(&[value]).to_bits(), (value + 0.0).to_bits(), "{value:?}");
            let single = value as f32;
            if single.is_finite() {
                let own = sum(Dtype::F32, [Digits::of(Dtype::F32).of_float(single.into())]);
                assert_eq!(own.to_bits(), (f64::from(single) + 0.0).to_bits(), "{single:?}");
            }
        }
        let single = |bits: u32| f64::from(f32::from_bits(bits));
        for bits in [1, 2, 0x7f_ffff, 0x80_0000, 0x7f7f_ffff] {
            assert_eq!(sum(Dtype::F32, [Digits::of(Dtype::F32).of_float(single(bits))]), single(bits));
        }
    }

    /// The sum of two floats is rounded once, as their sum with a carry is.
    #[test]
    fn two_values_are_rounded_once() {
        let values: Vec<f64> = random()
            .map(|bits| f64::from_bits(bits & !(0x7ff << 52) | (1023 - 40 + bits % 80) << 52))
            .take(20_000)
            .collect();
        for pair in values.windows(2) {
            assert_eq!(floats(pair), pair[0] + pair[1], "{pair:?}");
        }
        assert_eq!(floats(&[f64::MAX, f64::MAX]), f64::INFINITY);
        assert_eq!(floats(&[f64::MIN, f64::MIN, 1.0]), f64::NEG_INFINITY);
        assert_eq!(floats(&[f64::MAX, f64::MAX, f64::MIN]), f64::MAX);
        assert_eq!(floats(&[5e-324, 5e-324]), 1e-323);
    }

    #[test]
    fn sums_are_exact_until_they_are_rounded() {
        assert_eq!(floats(&[1e308, 1.0, -1e308]), 1.0);
        assert_eq!(floats(&[0.1; 10]), 1.0, "as fsum");
        // A tie goes to the even one, and anything beyond it decides.
        let half = f64::EPSILON / 2.0;
        assert_eq!(floats(&[1.0, half]), 1.0);
        assert_eq!(floats(&[1.0, half, 5e-324]), 1.0_f64.next_up());
        assert_eq!(floats(&[1.0, half, -5e-324]), 1.0);
        assert_eq!(floats(&[1.0_f64.next_up(), half]), 1.0 + 2.0 * f64::EPSILON);
        assert_eq!(floats(&[-1.0, -half, -5e-324]), -1.0_f64.next_up());
        let up = vec![1e-3; 1_000_000];
        let exact = 1e-3_f64;
        // The significand times a million fits in 128 bits.
        let significand = u128::from(exact.to_bits() & ((1 << 52) - 1) | 1 << 52) * 1_000_000;
        assert_eq!(floats(&up), significand as f64 * 2.0_f64.powi(-62));
    }

    #[test]
    fn integers_have_no_overflow() {
        let values = [u64::MAX; 5];
        let unsigned = sum(Dtype::U64, values.iter().map(|value| Digits::of_integer(*value, false)));
        assert_eq!(unsigned, (u128::from(u64::MAX) * 5) as f64);
        let signed = [i64::MIN, i64::MIN, 3, -1];
        let found = sum(Dtype::I64, signed.iter().map(|value| Digits::of_integer(*value as u64, true)));
        assert_eq!(found, signed.iter().map(|value| i128::from(*value)).sum::<i128>() as f64);
        assert_eq!(
            sum(Dtype::I64, signed.iter().map(|value| Digits::of_integer((*value / 4) as u64, true))),
            -4.611686018427388e18
        );
    }
}
