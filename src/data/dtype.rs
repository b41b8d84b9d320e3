//! Element types and scalar values.

use super::half;
use crate::error::{Error, Result, SettingError};
use ::half::{bf16, f16};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// The type of an element.
///
/// A dtype is parsed from its [name](Dtype::name):
///
/// ```
/// use overshot::Dtype;
/// let dtype: Dtype = "i16".parse()?;
/// assert_eq!(dtype, Dtype::I16);
/// assert_eq!(dtype.size(), 2);
/// assert!(dtype.is_signed());
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)] // the names say it
pub enum Dtype {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    Bf16,
    F32,
    F64,
}

impl Dtype {
    /// All dtypes.
    pub const ALL: &'static [Dtype] = &[
        Dtype::Bool,
        Dtype::I8,
        Dtype::I16,
        Dtype::I32,
        Dtype::I64,
        Dtype::U8,
        Dtype::U16,
        Dtype::U32,
        Dtype::U64,
        Dtype::F16,
        Dtype::Bf16,
        Dtype::F32,
        Dtype::F64,
    ];

    /// Returns the size of an element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Dtype::Bool | Dtype::I8 | Dtype::U8 => 1,
            Dtype::I16 | Dtype::U16 | Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::I32 | Dtype::U32 | Dtype::F32 => 4,
            Dtype::I64 | Dtype::U64 | Dtype::F64 => 8,
        }
    }

    /// Returns the name used in expressions and on the command line: `bool`, `i8` … `u64`, `f16`, `bf16`, `f32`,
    /// `f64`.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::Bool => "bool",
            Dtype::I8 => "i8",
            Dtype::I16 => "i16",
            Dtype::I32 => "i32",
            Dtype::I64 => "i64",
            Dtype::U8 => "u8",
            Dtype::U16 => "u16",
            Dtype::U32 => "u32",
            Dtype::U64 => "u64",
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
            Dtype::F32 => "f32",
            Dtype::F64 => "f64",
        }
    }

    /// Returns whether this is `f16`, `bf16`, `f32` or `f64`.
    pub const fn is_float(self) -> bool {
        matches!(self, Dtype::F32 | Dtype::F64) || self.is_half()
    }

    /// Returns whether this is `f16` or `bf16`. Values of these are computed as `f32` and rounded after every
    /// operation.
    pub const fn is_half(self) -> bool {
        matches!(self, Dtype::F16 | Dtype::Bf16)
    }

    /// Returns whether this is a signed integer.
    pub const fn is_signed(self) -> bool {
        matches!(self, Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64)
    }

    /// Returns whether this is an unsigned integer.
    pub const fn is_unsigned(self) -> bool {
        matches!(self, Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64)
    }

    /// Returns whether this is an integer. `bool` is not an integer.
    pub const fn is_integer(self) -> bool {
        self.is_signed() || self.is_unsigned()
    }
}

/// Returns the names of all dtypes, for error messages.
pub(super) fn dtype_names() -> String {
    let names: Vec<&str> = Dtype::ALL.iter().map(|dtype| dtype.name()).collect();
    names.join(" ")
}

impl FromStr for Dtype {
    type Err = Error;

    /// Parses the name of a dtype.
    ///
    /// # Errors
    /// Returns [`Error::InvalidSetting`] if no dtype has this name.
    fn from_str(name: &str) -> Result<Dtype> {
        let dtype = Dtype::ALL.iter().copied().find(|dtype| dtype.name() == name);
        dtype.ok_or_else(|| SettingError::UnknownDtype { name: name.into(), known: dtype_names() }.into())
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A Rust type that can be an element: `i8` … `u64`, `f32`, `f64`, and `f16` and `bf16` of the crate `half`.
///
/// `bool` does not implement this trait, because not every byte is a valid `bool`. Slices of `bool` have separate
/// sources and sinks.
///
/// ```
/// use overshot::{Dtype, io::Element};
/// fn bytes<T: Element>(rows: &[T]) -> usize {
///     rows.len() * T::DTYPE.size()
/// }
/// assert_eq!(bytes(&[1.0f32, 2.0]), 8);
/// assert_eq!(u8::DTYPE, Dtype::U8);
/// ```
pub trait Element: bytemuck::Pod + Send + Sync + sealed::Sealed {
    /// The dtype of this type.
    const DTYPE: Dtype;
}

mod sealed {
    #[allow(unnameable_types, reason = "so that nobody else implements it")]
    pub trait Sealed {}
}

macro_rules! elements {
    ($($t:ty => $d:ident),*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: Dtype = Dtype::$d;
        }
        impl From<$t> for Scalar {
            fn from(value: $t) -> Scalar {
                Scalar::$d(value)
            }
        }
    )*};
}
elements!(
    i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64, f32 => F32, f64 => F64,
    f16 => F16, bf16 => Bf16
);

impl From<bool> for Scalar {
    fn from(value: bool) -> Scalar {
        Scalar::Bool(value)
    }
}

/// A value of any dtype: the result of a reduction, or a value that is the same for all rows of a job.
///
/// ```
/// use overshot::{Dtype, Scalar};
/// let value = Scalar::from(2.5f32);
/// assert_eq!(value.dtype(), Dtype::F32);
/// assert_eq!(value.as_f64(), 2.5);
/// assert_eq!(Scalar::parse("-3", Dtype::I64), Some(Scalar::I64(-3)));
/// assert_eq!(Scalar::parse("-3", Dtype::U8), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs)] // the names say it
pub enum Scalar {
    Bool(bool),
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    F16(f16),
    Bf16(bf16),
    F32(f32),
    F64(f64),
}

impl Scalar {
    /// Returns the float of a dtype that is nearest to a value; an `f64` if the dtype is none of floats. Every NaN has
    /// the same bits.
    pub(crate) fn of_float(dtype: Dtype, value: f64) -> Scalar {
        match dtype {
            Dtype::F16 => Scalar::F16(half::f16_of(value)),
            Dtype::Bf16 => Scalar::Bf16(half::bf16_of(value)),
            Dtype::F32 if value.is_nan() => Scalar::F32(f32::NAN),
            Dtype::F32 => Scalar::F32(value as f32),
            _ if value.is_nan() => Scalar::F64(f64::NAN),
            _ => Scalar::F64(value),
        }
    }

    /// Returns the dtype of the value.
    pub const fn dtype(self) -> Dtype {
        match self {
            Scalar::Bool(_) => Dtype::Bool,
            Scalar::I8(_) => Dtype::I8,
            Scalar::I16(_) => Dtype::I16,
            Scalar::I32(_) => Dtype::I32,
            Scalar::I64(_) => Dtype::I64,
            Scalar::U8(_) => Dtype::U8,
            Scalar::U16(_) => Dtype::U16,
            Scalar::U32(_) => Dtype::U32,
            Scalar::U64(_) => Dtype::U64,
            Scalar::F16(_) => Dtype::F16,
            Scalar::Bf16(_) => Dtype::Bf16,
            Scalar::F32(_) => Dtype::F32,
            Scalar::F64(_) => Dtype::F64,
        }
    }

    /// Parses a text such as `2.5`, `-3` or `true` as a value of `dtype`. Returns `None` if the text is not a value
    /// of that dtype or is out of its range. Other numbers are rounded to the nearest float.
    pub fn parse(text: &str, dtype: Dtype) -> Option<Scalar> {
        let value = match dtype {
            Dtype::Bool => Scalar::Bool(text.parse().ok()?),
            Dtype::I8 => Scalar::I8(text.parse().ok()?),
            Dtype::I16 => Scalar::I16(text.parse().ok()?),
            Dtype::I32 => Scalar::I32(text.parse().ok()?),
            Dtype::I64 => Scalar::I64(text.parse().ok()?),
            Dtype::U8 => Scalar::U8(text.parse().ok()?),
            Dtype::U16 => Scalar::U16(text.parse().ok()?),
            Dtype::U32 => Scalar::U32(text.parse().ok()?),
            Dtype::U64 => Scalar::U64(text.parse().ok()?),
            Dtype::F16 => Scalar::F16(half::f16_of(text.parse().ok()?)),
            Dtype::Bf16 => Scalar::Bf16(half::bf16_of(text.parse().ok()?)),
            Dtype::F32 => Scalar::F32(text.parse().ok()?),
            Dtype::F64 => Scalar::F64(text.parse().ok()?),
        };
        // A number that is too large is rounded to an infinity, too.
        let word = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
        (!value.as_f64().is_infinite() || word.starts_with("inf")).then_some(value)
    }

    /// Returns the bits of the value, in the low bits of the word.
    pub(crate) fn bits(self) -> u64 {
        match self {
            Scalar::Bool(v) => u64::from(v),
            Scalar::I8(v) => u64::from(v as u8),
            Scalar::I16(v) => u64::from(v as u16),
            Scalar::I32(v) => u64::from(v as u32),
            Scalar::I64(v) => v as u64,
            Scalar::U8(v) => u64::from(v),
            Scalar::U16(v) => u64::from(v),
            Scalar::U32(v) => u64::from(v),
            Scalar::U64(v) => v,
            Scalar::F16(v) => u64::from(v.to_bits()),
            Scalar::Bf16(v) => u64::from(v.to_bits()),
            Scalar::F32(v) => u64::from(v.to_bits()),
            Scalar::F64(v) => v.to_bits(),
        }
    }

    /// Returns the value of a dtype with these bits, as [`bits`](Scalar::bits) returns them.
    pub(crate) fn of_bits(dtype: Dtype, bits: u64) -> Scalar {
        match dtype {
            Dtype::Bool => Scalar::Bool(bits != 0),
            Dtype::I8 => Scalar::I8(bits as i8),
            Dtype::I16 => Scalar::I16(bits as i16),
            Dtype::I32 => Scalar::I32(bits as i32),
            Dtype::I64 => Scalar::I64(bits as i64),
            Dtype::U8 => Scalar::U8(bits as u8),
            Dtype::U16 => Scalar::U16(bits as u16),
            Dtype::U32 => Scalar::U32(bits as u32),
            Dtype::U64 => Scalar::U64(bits),
            Dtype::F16 => Scalar::F16(f16::from_bits(bits as u16)),
            Dtype::Bf16 => Scalar::Bf16(bf16::from_bits(bits as u16)),
            Dtype::F32 => Scalar::F32(f32::from_bits(bits as u32)),
            Dtype::F64 => Scalar::F64(f64::from_bits(bits)),
        }
    }

    /// Returns an integer; `None` for floats and booleans.
    pub(crate) fn as_int(self) -> Option<i128> {
        match self {
            Scalar::I8(v) => Some(v.into()),
            Scalar::I16(v) => Some(v.into()),
            Scalar::I32(v) => Some(v.into()),
            Scalar::I64(v) => Some(v.into()),
            Scalar::U8(v) => Some(v.into()),
            Scalar::U16(v) => Some(v.into()),
            Scalar::U32(v) => Some(v.into()),
            Scalar::U64(v) => Some(v.into()),
            Scalar::Bool(_) | Scalar::F16(_) | Scalar::Bf16(_) | Scalar::F32(_) | Scalar::F64(_) => None,
        }
    }

    /// Returns the order of two values of one dtype; `None` if one of them is NaN.
    pub(crate) fn order(self, other: Scalar) -> Option<Ordering> {
        match (self.as_int(), other.as_int()) {
            (Some(own), Some(other)) => Some(own.cmp(&other)),
            _ => self.as_f64().partial_cmp(&other.as_f64()),
        }
    }

    /// Returns the value as a float. The result is exact except for 64-bit integers beyond 2⁵³, which round to
    /// nearest; `true` is 1.
    pub const fn as_f64(self) -> f64 {
        match self {
            Scalar::Bool(v) => v as u8 as f64,
            Scalar::I8(v) => v as f64,
            Scalar::I16(v) => v as f64,
            Scalar::I32(v) => v as f64,
            Scalar::I64(v) => v as f64,
            Scalar::U8(v) => v as f64,
            Scalar::U16(v) => v as f64,
            Scalar::U32(v) => v as f64,
            Scalar::U64(v) => v as f64,
            Scalar::F16(v) => v.to_f64_const(),
            Scalar::Bf16(v) => v.to_f64_const(),
            Scalar::F32(v) => v as f64,
            Scalar::F64(v) => v,
        }
    }
}

impl fmt::Display for Scalar {
    /// Writes the shortest decimal number that parses to the same value; for `f16` and `bf16`, to the same `f32`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Scalar::Bool(v) => fmt::Display::fmt(&v, f),
            Scalar::I8(v) => fmt::Display::fmt(&v, f),
            Scalar::I16(v) => fmt::Display::fmt(&v, f),
            Scalar::I32(v) => fmt::Display::fmt(&v, f),
            Scalar::I64(v) => fmt::Display::fmt(&v, f),
            Scalar::U8(v) => fmt::Display::fmt(&v, f),
            Scalar::U16(v) => fmt::Display::fmt(&v, f),
            Scalar::U32(v) => fmt::Display::fmt(&v, f),
            Scalar::U64(v) => fmt::Display::fmt(&v, f),
            Scalar::F16(v) => fmt::Debug::fmt(&v.to_f32(), f),
            Scalar::Bf16(v) => fmt::Debug::fmt(&v.to_f32(), f),
            Scalar::F32(v) => fmt::Debug::fmt(&v, f),
            Scalar::F64(v) => fmt::Debug::fmt(&v, f),
        }
    }
}
