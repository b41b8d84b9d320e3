//! Arithmetic on literals, by the rules of Python.

use super::words::{Binary, Unary, Weak};

impl Weak {
    fn int(self) -> Option<i128> {
        match self {
            Weak::Bool(value) => Some(value.into()),
            Weak::Int(value) => Some(value),
            Weak::Float(_) => None,
        }
    }

    /// The value as a float, rounded to the nearest.
    pub(super) fn float(self) -> f64 {
        match self {
            Weak::Bool(value) => f64::from(u8::from(value)),
            Weak::Int(value) => value as f64,
            Weak::Float(value) => value,
        }
    }
}

/// Applies a prefix operator to a literal.
pub(super) fn unary(op: Unary, of: Weak) -> Result<Weak, String> {
    match (op, of.int()) {
        (Unary::Pos, Some(value)) => Ok(Weak::Int(value)),
        (Unary::Neg, Some(value)) => value.checked_neg().map(Weak::Int).ok_or_else(too_large),
        (Unary::Not, Some(value)) => Ok(Weak::Int(!value)),
        (Unary::Pos, None) => Ok(of),
        (Unary::Neg, None) => Ok(Weak::Float(-of.float())),
        _ => Err(format!("`{}` accepts integers, not floats", op.name())),
    }
}

/// Applies an infix operator to two literals.
pub(super) fn binary(op: Binary, left: Weak, right: Weak) -> Result<Weak, String> {
    if let (Weak::Bool(a), Weak::Bool(b)) = (left, right) {
        match op {
            Binary::And => return Ok(Weak::Bool(a & b)),
            Binary::Or => return Ok(Weak::Bool(a | b)),
            Binary::Xor => return Ok(Weak::Bool(a ^ b)),
            _ => {}
        }
    }
    match (left.int(), right.int()) {
        (Some(a), Some(b)) => ints(op, a, b),
        _ => floats(op, left.float(), right.float()),
    }
}

fn ints(op: Binary, a: i128, b: i128) -> Result<Weak, String> {
    let value = match op {
        Binary::Add => a.checked_add(b),
        Binary::Sub => a.checked_sub(b),
        Binary::Mul => a.checked_mul(b),
        Binary::Div | Binary::FloorDiv | Binary::Rem if b == 0 => return Err(by_zero()),
        Binary::Div => return Ok(Weak::Float(ratio(a, b))),
        Binary::FloorDiv => a.checked_div_euclid(b).map(|q| if b < 0 && a.rem_euclid(b) != 0 { q - 1 } else { q }),
        Binary::Rem => a.checked_rem_euclid(b).map(|r| if b < 0 && r != 0 { r + b } else { r }),
        Binary::Pow if b < 0 => return floats(op, a as f64, b as f64),
        Binary::Pow => power(a, b),
        Binary::And => Some(a & b),
        Binary::Or => Some(a | b),
        Binary::Xor => Some(a ^ b),
        Binary::Shl | Binary::Shr if b < 0 => return Err("the shift count is negative".to_owned()),
        Binary::Shl if a == 0 => Some(0),
        Binary::Shl => u32::try_from(b).ok().and_then(|b| 2_i128.checked_pow(b)).and_then(|b| a.checked_mul(b)),
        Binary::Shr => Some(a >> b.min(127)),
        Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge => {
            return Ok(Weak::Bool(compare(op, &a, &b)));
        }
        // `bind` gives literals a dtype before it applies these functions.
        Binary::Min | Binary::Max | Binary::Fmod => None,
        Binary::Atan2 | Binary::Hypot | Binary::CopySign | Binary::NextAfter | Binary::Random => None,
    };
    value.map(Weak::Int).ok_or_else(too_large)
}

/// The quotient, rounded once to the nearest float, ties to even.
fn ratio(a: i128, b: i128) -> f64 {
    let (divisor, is_negative) = (b.unsigned_abs(), (a < 0) != (b < 0));
    let (mut quotient, mut rest) = (a.unsigned_abs() / divisor, a.unsigned_abs() % divisor);
    let mut places = 0_u64;
    // 55 bits: the 53 bits of a float, a rounding bit and a sticky bit.
    while rest != 0 && quotient < 1 << 54 {
        rest *= 2; // below 2¹²⁸, as it was less than the divisor
        quotient = quotient * 2 + rest / divisor;
        rest %= divisor;
        places += 1;
    }
    let scale = f64::from_bits((1023 - places) << 52); // 2 to the power of -places, which are at most 55 + 127
    let magnitude = (quotient | u128::from(rest != 0)) as f64 * scale;
    if is_negative { -magnitude } else { magnitude }
}

fn power(a: i128, b: i128) -> Option<i128> {
    match a {
        0 | 1 => Some(if b == 0 { 1 } else { a }),
        -1 => Some(if b % 2 == 0 { 1 } else { -1 }),
        _ => a.checked_pow(u32::try_from(b).ok()?),
    }
}

fn floats(op: Binary, a: f64, b: f64) -> Result<Weak, String> {
    use super::scalar::Float;
    let value = match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div | Binary::FloorDiv | Binary::Rem if b == 0.0 => return Err(by_zero()),
        Binary::Div => a / b,
        Binary::FloorDiv => a.floor_div(b),
        Binary::Rem => a.floor_rem(b),
        Binary::Pow if a == 0.0 && b < 0.0 => return Err(by_zero()),
        Binary::Pow if a < 0.0 && a.is_finite() && b.is_finite() && b.fract() != 0.0 => {
            return Err("this power of a negative number is not real".to_owned());
        }
        Binary::Pow => super::functions::power(a, b),
        Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge => {
            return Ok(Weak::Bool(compare(op, &a, &b)));
        }
        _ => return Err(format!("`{}` accepts integers, not floats", op.name())),
    };
    Ok(Weak::Float(value))
}

/// Compares two values of the same type.
pub(super) fn compare<T: PartialOrd>(op: Binary, a: &T, b: &T) -> bool {
    match op {
        Binary::Eq => a == b,
        Binary::Ne => a != b,
        Binary::Lt => a < b,
        Binary::Le => a <= b,
        Binary::Gt => a > b,
        _ => a >= b,
    }
}

fn by_zero() -> String {
    "division by zero".to_owned()
}

fn too_large() -> String {
    "the number is too large; compute with floats, like 2.0 ** 200".to_owned()
}
