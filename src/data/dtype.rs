//! Element types, and single values of them.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The type of one element. It is parsed from its [name](Dtype::name).
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
    F32,
    F64,
}

impl Dtype {
    /// Every dtype.
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
        Dtype::F32,
        Dtype::F64,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Dtype::Bool | Dtype::I8 | Dtype::U8 => 1,
            Dtype::I16 | Dtype::U16 => 2,
            Dtype::I32 | Dtype::U32 | Dtype::F32 => 4,
            Dtype::I64 | Dtype::U64 | Dtype::F64 => 8,
        }
    }

    /// The name used in expressions and on the command line: `bool`, `i8` … `u64`, `f32`, `f64`.
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
            Dtype::F32 => "f32",
            Dtype::F64 => "f64",
        }
    }

    /// Whether it is `f32` or `f64`.
    pub const fn is_float(self) -> bool {
        matches!(self, Dtype::F32 | Dtype::F64)
    }

    /// Whether it is a signed integer.
    pub const fn is_signed(self) -> bool {
        matches!(self, Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64)
    }

    /// Whether it is an unsigned integer.
    pub const fn is_unsigned(self) -> bool {
        matches!(self, Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64)
    }

    /// Whether it is an integer (`bool` is not).
    pub const fn is_integer(self) -> bool {
        self.is_signed() || self.is_unsigned()
    }
}

impl FromStr for Dtype {
    type Err = Error;

    /// # Errors
    /// [`Error::Job`] if there is no such dtype.
    fn from_str(name: &str) -> Result<Dtype> {
        Dtype::ALL.iter().copied().find(|dtype| dtype.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Dtype::ALL.iter().map(|dtype| dtype.name()).collect();
            Error::Job(format!("'{name}' is no dtype: write one of {}", names.join(" ")))
        })
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A plain Rust type that is an element: `i8` … `u64`, `f32`, `f64`.
///
/// `bool` is not among them, because not every byte is one; slices of `bool` have sources and sinks of their own.
pub trait Element: bytemuck::Pod + Send + Sync + sealed::Sealed {
    /// Its dtype.
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
elements!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64, f32 => F32, f64 => F64);

impl From<bool> for Scalar {
    fn from(value: bool) -> Scalar {
        Scalar::Bool(value)
    }
}

/// One value of any dtype: the result of a reduction, or what is the same for all rows of a job.
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
    F32(f32),
    F64(f64),
}

impl Scalar {
    /// Its dtype.
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
            Scalar::F32(_) => Dtype::F32,
            Scalar::F64(_) => Dtype::F64,
        }
    }

    /// The value that a text such as `2.5`, `-3` or `true` is in this dtype; `None` if it is none, or out of its range.
    pub fn parse(text: &str, dtype: Dtype) -> Option<Scalar> {
        Some(match dtype {
            Dtype::Bool => Scalar::Bool(text.parse().ok()?),
            Dtype::I8 => Scalar::I8(text.parse().ok()?),
            Dtype::I16 => Scalar::I16(text.parse().ok()?),
            Dtype::I32 => Scalar::I32(text.parse().ok()?),
            Dtype::I64 => Scalar::I64(text.parse().ok()?),
            Dtype::U8 => Scalar::U8(text.parse().ok()?),
            Dtype::U16 => Scalar::U16(text.parse().ok()?),
            Dtype::U32 => Scalar::U32(text.parse().ok()?),
            Dtype::U64 => Scalar::U64(text.parse().ok()?),
            Dtype::F32 => Scalar::F32(text.parse().ok()?),
            Dtype::F64 => Scalar::F64(text.parse().ok()?),
        })
    }

    /// Its bits, in the lowest ones of a word.
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
            Scalar::F32(v) => u64::from(v.to_bits()),
            Scalar::F64(v) => v.to_bits(),
        }
    }

    /// The value as a float: exact except for 64-bit integers beyond 2⁵³, which round to nearest; `true` is 1.
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
            Scalar::F32(v) => v as f64,
            Scalar::F64(v) => v,
        }
    }
}

impl fmt::Display for Scalar {
    /// The shortest decimal that reads back as the same value.
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
            Scalar::F32(v) => fmt::Debug::fmt(&v, f),
            Scalar::F64(v) => fmt::Debug::fmt(&v, f),
        }
    }
}
