//! Numbers that adapt to what they meet, as literals do.

use std::fmt;
use std::str::FromStr;

use super::parse::{Parsed, Tree};
use super::words::{Binary, Function, Weak};

/// A number of a job that adapts to what it meets, as a number in the text does: see
/// [`Job::number`](crate::Job::number).
///
/// `Display` and `FromStr` write and read it as Rust does: `true`, `-3`, `2.5`, `inf`.
///
/// ```
/// use overshot::Number;
/// assert_eq!(Number::from(3u8), Number::from(3i64));
/// assert_eq!("-2.5".parse(), Ok(Number::from(-2.5)));
/// assert_ne!("1".parse::<Number>()?, Number::from(1.0));
/// # Ok::<(), overshot::NotANumber>(())
/// ```
#[derive(Clone, Copy, PartialEq)]
pub struct Number(pub(super) Weak);

/// The error of a text that is not a [`Number`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a number: write one such as 3, -2.5, inf or true")]
#[non_exhaustive]
pub struct NotANumber;

impl Number {
    /// Returns the value as a float, rounded to the nearest.
    pub fn as_f64(self) -> f64 {
        self.0.float()
    }

    /// Whether kernels receive the value in each run, instead of containing it.
    ///
    /// Kernels receive floats, so that another value compiles nothing. Integers and bools are part of the kernel:
    /// whether one fits a dtype depends on its value. So is the exponent of a power, because simple exponents have
    /// their own operations.
    pub(super) fn is_received(self, name: &str, parsed: &Parsed) -> bool {
        let is_name = |term: usize| matches!(&parsed.terms[term].tree, Tree::Name(read) if read == name);
        let is_exponent = |tree: &Tree| match tree {
            Tree::Binary(Binary::Pow, _, exponent) => is_name(*exponent),
            Tree::Call(Function::Binary(Binary::Pow), operands) => operands.get(1).is_some_and(|last| is_name(*last)),
            _ => false,
        };
        matches!(self.0, Weak::Float(_)) && !parsed.terms.iter().any(|term| is_exponent(&term.tree))
    }
}

macro_rules! from {
    ($($t:ty => $weak:ident as $wide:ty),*) => {
        $(impl From<$t> for Number {
            fn from(value: $t) -> Number {
                Number(Weak::$weak(<$wide>::from(value)))
            }
        })*
    };
}

from!(
    bool => Bool as bool,
    i8 => Int as i128, i16 => Int as i128, i32 => Int as i128, i64 => Int as i128, i128 => Int as i128,
    u8 => Int as i128, u16 => Int as i128, u32 => Int as i128, u64 => Int as i128,
    f32 => Float as f64, f64 => Float as f64
);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Weak::Bool(value) => value.fmt(f),
            Weak::Int(value) => value.fmt(f),
            // With a decimal point, unlike `Display`.
            Weak::Float(value) => fmt::Debug::fmt(&value, f),
        }
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Number {
    type Err = NotANumber;

    fn from_str(text: &str) -> Result<Number, NotANumber> {
        let bool = || text.parse().ok().map(Weak::Bool);
        let int = || text.parse().ok().map(Weak::Int);
        let float = || text.parse().ok().map(Weak::Float);
        bool().or_else(int).or_else(float).map(Number).ok_or(NotANumber)
    }
}
