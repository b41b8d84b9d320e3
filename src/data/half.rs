//! Conversions of `f16` and `bf16`, by integer operations that compilers turn into vector instructions.
//!
//! `kernels/half.cu` is the counterpart for CUDA. All conversions round once, to the nearest and then to even, and turn
//! every NaN into the canonical one of the dtype. The crate `half` rounds an `f64` twice.

use std::cmp::Ordering;

use half::{bf16, f16};

/// The exponent of 1 in an `f32`, and the lowest bit of the exponent.
const ONE: u32 = 127 << 23;
const STEP: u32 = 1 << 23;

/// Converts an `f16`.
#[inline(always)]
pub(crate) fn of_f16(value: f16) -> f32 {
    let bits = u32::from(value.to_bits());
    let size = (bits & 0x7fff) << 13;
    // The exponent of an f16 has the bias 15; its largest one is infinity or NaN.
    let normal = size + 112 * STEP;
    let special = size + 224 * STEP;
    // An f16 without an exponent is its mantissa times 2^-24.
    let lowest = 113 * STEP;
    let small = (f32::from_bits(size + lowest) - f32::from_bits(lowest)).to_bits();
    let size = if size >= 31 * STEP {
        special
    } else if size < STEP {
        small
    } else {
        normal
    };
    f32::from_bits(size | (bits & 0x8000) << 16)
}

/// Converts to `f16`.
#[inline(always)]
pub(crate) fn to_f16(value: f32) -> f16 {
    let bits = value.to_bits();
    let (sign, size) = (bits & 0x8000_0000, bits & 0x7fff_ffff);
    // Halfway cases become even: the bits that are dropped exceed a half if the last kept bit is odd.
    let normal = size.wrapping_sub(112 * STEP).wrapping_add(0xfff + (size >> 13 & 1));
    // The unit in the last place of this float is that of an f16 without an exponent, so the addition rounds.
    let unit = f32::from_bits(ONE - STEP);
    let small = (f32::from_bits(size) + unit).to_bits().wrapping_sub(unit.to_bits());
    let half = if size > 0x7f80_0000 {
        0x7e00
    } else if size >= ONE + 16 * STEP {
        0x7c00 | sign >> 16
    } else if size < 113 * STEP {
        small | sign >> 16
    } else {
        normal >> 13 | sign >> 16
    };
    f16::from_bits(half as u16)
}

/// Converts a `bf16`.
#[inline(always)]
pub(crate) fn of_bf16(value: bf16) -> f32 {
    f32::from_bits(u32::from(value.to_bits()) << 16)
}

/// Converts to `bf16`.
#[inline(always)]
pub(crate) fn to_bf16(value: f32) -> bf16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    bf16::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fc0 } else { rounded as u16 })
}

/// Converts to an `f32` that is not yet rounded: if bits are lost, the last one is 1. So it lies on the same side of
/// all values of `f16` and `bf16`, and can be rounded to these.
#[inline(always)]
fn unrounded(value: f64) -> f32 {
    let near = value as f32;
    let (wide, bits) = (f64::from(near), near.to_bits());
    let cut = bits.wrapping_sub(u32::from(wide.abs() > value.abs())) | 1;
    #[allow(clippy::float_cmp)]
    let is_exact = wide == value || value.is_nan();
    f32::from_bits(if is_exact { bits } else { cut })
}

/// Converts to `f16`.
#[inline(always)]
pub(crate) fn f16_of(value: f64) -> f16 {
    to_f16(unrounded(value))
}

/// Converts to `bf16`.
#[inline(always)]
pub(crate) fn bf16_of(value: f64) -> bf16 {
    to_bf16(unrounded(value))
}

/// The bits of the next value. Those of zeros of both signs are next to each other, and those of sizes are in order.
#[inline(always)]
fn bits_after(bits: u16, is_zero: bool, is_up: bool) -> u16 {
    let sign = if is_up { 0 } else { 0x8000 };
    if is_zero {
        sign | 1
    } else if bits & 0x8000 == sign {
        bits + 1
    } else {
        bits - 1
    }
}

macro_rules! after {
    ($name:ident, $t:ident, $of:ident) => {
        /// The next value towards another one; the same if they are equal, as in NumPy.
        #[inline(always)]
        pub(crate) fn $name(from: $t, to: $t) -> $t {
            let (a, b) = ($of(from), $of(to));
            match a.partial_cmp(&b) {
                None => $t::NAN,
                Some(Ordering::Equal) => from,
                Some(order) => $t::from_bits(bits_after(from.to_bits(), a == 0.0, order == Ordering::Less)),
            }
        }
    };
}
after!(f16_after, f16, of_f16);
after!(bf16_after, bf16, of_bf16);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The nearest of all finite values, of two the one with an even last bit; infinity from half a step beyond.
    fn nearest(value: f64, largest: u16, of: impl Fn(u16) -> f64) -> u16 {
        if value.is_nan() {
            return largest + 1 + ((largest + 1) & (largest + 1).wrapping_neg()) / 2;
        }
        let size = value.abs();
        // Bits are in the order of sizes.
        let (mut low, mut high) = (0, largest);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if of(middle) <= size { low = middle } else { high = middle - 1 }
        }
        let above = if low == largest { of(low) + (of(low) - of(low - 1)) } else { of(low + 1) };
        let (down, up) = (size - of(low), above - size);
        let is_up = down > up || (down == up && low % 2 == 1);
        (low + u16::from(is_up)).min(largest + 1) | if value.is_sign_negative() { 0x8000 } else { 0 }
    }

    fn check(value: f64) {
        let found = [f16_of(value).to_bits(), bf16_of(value).to_bits()];
        let wide16 = |bits| f64::from(f16::from_bits(bits).to_f32());
        let wide_bf16 = |bits| f64::from(bf16::from_bits(bits).to_f32());
        let expected = [nearest(value, 0x7bff, wide16), nearest(value, 0x7f7f, wide_bf16)];
        assert_eq!(found, expected, "{value:?}");
        let single = value as f32;
        let wide = f64::from(single);
        let expected = [nearest(wide, 0x7bff, wide16), nearest(wide, 0x7f7f, wide_bf16)];
        assert_eq!([to_f16(single).to_bits(), to_bf16(single).to_bits()], expected, "{single:?}");
    }

    /// Every value converts to the same float as by the crate `half`, and back.
    #[test]
    fn all_values_are_converted() {
        for bits in 0..=u16::MAX {
            let (a, b) = (f16::from_bits(bits), bf16::from_bits(bits));
            if a.is_nan() {
                assert!(of_f16(a).is_nan());
                assert_eq!(to_f16(of_f16(a)).to_bits(), 0x7e00);
            } else {
                assert_eq!(of_f16(a).to_bits(), a.to_f32().to_bits(), "{a}");
                assert_eq!(to_f16(of_f16(a)).to_bits(), bits);
            }
            if b.is_nan() {
                assert!(of_bf16(b).is_nan());
                assert_eq!(to_bf16(of_bf16(b)).to_bits(), 0x7fc0);
            } else {
                assert_eq!(of_bf16(b).to_bits(), b.to_f32().to_bits(), "{b}");
                assert_eq!(to_bf16(of_bf16(b)).to_bits(), bits);
            }
        }
    }

    /// Values between two neighbours, at the half and beside it, are rounded once.
    #[test]
    fn halves_become_even() {
        let near = |value: f64| [value, value.next_up(), value.next_down(), -value];
        for bits in 0..0x7bff {
            let (low, high) = (of_f16(f16::from_bits(bits)), of_f16(f16::from_bits(bits + 1)));
            near((f64::from(low) + f64::from(high)) / 2.0).into_iter().for_each(check);
        }
        for bits in 0..0x7f7f {
            let (low, high) = (of_bf16(bf16::from_bits(bits)), of_bf16(bf16::from_bits(bits + 1)));
            near((f64::from(low) + f64::from(high)) / 2.0).into_iter().for_each(check);
        }
        [65519.99, 65520.0, 65536.0, 3.39e38, 3.4e38, 1e300, f64::INFINITY, f64::NAN, 1e-300, 5e-324, 0.0]
            .into_iter()
            .for_each(|value| {
                [value, -value]
                    .map(|value| if value.is_nan() { f64::NAN } else { value })
                    .map(check)
                    .into_iter()
                    .collect()
            });
    }

    /// No operation overflows for any exponent.
    #[test]
    fn floats_of_every_exponent_are_rounded() {
        for top in 0..=u32::from(u16::MAX) {
            for low in [0, 1, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0xffff] {
                let value = f32::from_bits(top << 16 | low);
                if !value.is_nan() {
                    check(value.into());
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_float_is_rounded_once(bits in any::<u64>(), single in any::<u32>()) {
            let canonical = |value: f64| if value.is_nan() { f64::NAN } else { value };
            check(canonical(f64::from_bits(bits)));
            check(canonical(f64::from(f32::from_bits(single))));
        }
    }
}
