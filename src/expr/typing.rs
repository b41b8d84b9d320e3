//! The dtypes of results, by the rules of NumPy 2.
//!
//! A literal is *weak*: it adopts the dtype of the other operand. Intentional differences from NumPy:
//! - float functions of `bool`, `i8` and `u8` give `f32`, not `f16`, and `round` of a `bool` is that `bool`;
//! - a `bool` to the power of a literal 2 is an `i64`, as with every other literal;
//! - a literal that does not fit in the other dtype is an error in `where` and `clip`, too;
//! - alone or next to a `bool`, an integer that does not fit in `i64` is a `u64`, and one that does not fit in `u64`
//!   an `f64`.

use super::words::Weak;
use crate::data::{Dtype, half};

/// The common dtype of two dtypes.
pub(super) fn common(a: Dtype, b: Dtype) -> Dtype {
    if a == b || b == Dtype::Bool {
        return a;
    }
    if a == Dtype::Bool {
        return b;
    }
    match (a.is_float(), b.is_float()) {
        // Each of f16 and bf16 has values that the other has not.
        (true, true) if a.is_half() && b.is_half() => Dtype::F32,
        (true, true) => {
            if a.size() > b.size() {
                a
            } else {
                b
            }
        }
        (true, false) => float_beside(a, b),
        (false, true) => float_beside(b, a),
        (false, false) if a.is_signed() == b.is_signed() => {
            if a.size() > b.size() {
                a
            } else {
                b
            }
        }
        (false, false) => {
            let (signed, unsigned) = if a.is_signed() { (a, b) } else { (b, a) };
            if signed.size() > unsigned.size() {
                return signed;
            }
            match unsigned {
                Dtype::U8 => Dtype::I16,
                Dtype::U16 => Dtype::I32,
                Dtype::U32 => Dtype::I64,
                // No integer dtype contains both i64 and u64.
                _ => Dtype::F64,
            }
        }
    }
}

fn float_beside(float: Dtype, integer: Dtype) -> Dtype {
    match integer.size() {
        1 => float,
        2 if float.is_half() => Dtype::F32,
        2 => float,
        _ => Dtype::F64,
    }
}

/// The common dtype of several dtypes, independent of their order.
pub(super) fn common_of(dtypes: impl Iterator<Item = Dtype> + Clone) -> Option<Dtype> {
    // Floats first: the common dtype of i8, u16 and f32 is f32, although that of i8 and u16 is i32.
    let floats = dtypes.clone().filter(|d| d.is_float()).reduce(common);
    match floats {
        Some(float) => Some(dtypes.fold(float, common)),
        None => dtypes.reduce(common),
    }
}

/// The result dtype of a float function.
pub(super) fn float_of(dtype: Dtype) -> Dtype {
    match dtype {
        _ if dtype.is_float() => dtype,
        _ if dtype.size() <= 2 => Dtype::F32,
        _ => Dtype::F64,
    }
}

/// The dtype of a literal that has no dtype to adopt.
pub(super) fn default_dtype(value: Weak) -> Dtype {
    match value {
        Weak::Bool(_) => Dtype::Bool,
        Weak::Int(value) if i64::try_from(value).is_err() && u64::try_from(value).is_ok() => Dtype::U64,
        Weak::Int(value) if i64::try_from(value).is_err() => Dtype::F64,
        Weak::Int(_) => Dtype::I64,
        Weak::Float(_) => Dtype::F64,
    }
}

/// The bits of a literal as a constant of `dtype`; `None` if it does not fit.
pub(super) fn constant_bits(value: Weak, dtype: Dtype) -> Option<u64> {
    let int = match value {
        Weak::Bool(value) => i128::from(value),
        Weak::Int(value) => value,
        Weak::Float(value) => return Some(float_bits(value, dtype)),
    };
    match dtype {
        Dtype::Bool => Some(u64::from(int != 0)),
        Dtype::F16 | Dtype::Bf16 => Some(float_bits(int as f64, dtype)),
        // Rounded once, directly from the integer.
        Dtype::F32 => Some(u64::from((int as f32).to_bits())),
        Dtype::F64 => Some((int as f64).to_bits()),
        _ => {
            let (lowest, highest) = range(dtype);
            (lowest..=highest).contains(&int).then_some(int as u64)
        }
    }
}

/// The bits of a float converted to `dtype`, saturating.
fn float_bits(value: f64, dtype: Dtype) -> u64 {
    match dtype {
        Dtype::F64 => value.to_bits(),
        Dtype::F16 => u64::from(half::f16_of(value).to_bits()),
        Dtype::Bf16 => u64::from(half::bf16_of(value).to_bits()),
        Dtype::F32 => u64::from((value as f32).to_bits()),
        Dtype::Bool => u64::from(value != 0.0),
        _ => {
            let (lowest, highest) = range(dtype);
            (value as i128).clamp(lowest, highest) as u64
        }
    }
}

/// The smallest and the largest value of an integer dtype.
pub(super) fn range(dtype: Dtype) -> (i128, i128) {
    let bits = dtype.size() as u32 * 8;
    if dtype.is_signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}
