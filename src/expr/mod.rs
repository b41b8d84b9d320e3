//! The expression language: `y = where(x > 0, sqrt(x), 0); m = mean(x)`.
//!
//! ```text
//! text ── lex, parse ──▶ terms ── bind (dtypes) ──▶ program ── lower ──┬── host kernel ──▶ loops on the host
//!                                                                     └── cuda ──▶ CUDA C++
//! ```
//! Statements stand on lines of their own or between `;` or `,`. `NAME = VALUE` gives every row a value; a reduction, named
//! or not, gives one value of all rows. In order of how tightly they bind: `**`, then `+ - ~` before a value, `* / // %`,
//! `+ -`, `<< >>`, `&`, `^`, `|`, and comparisons, which do not chain. Names that are only read are columns, or what is the same
//! for all rows, which is typed as columns are. A name that is neither may be a constant, such as `pi`: which it is, is known
//! when the inputs are. All words are in `words.rs`; what is said about others is in `hints.rs`.
//!
//! Each file knows those to its left alone: `words` and `ir`; `lex`, `parse`, `typing`, `bind`; `program`; `host kernel` and `cuda`;
//! `lower`. Nothing that walks a text or a program recurses, but for the parser, which counts how deep.
//!
//! Results and dtypes are NumPy 2's; `tests/numpy` holds us to that. Where NumPy leaves a result to the processor, it
//! is defined here, and the same on every device:
//! - a float outside the range of an integer converts to the nearest integer there is, NaN to 0;
//! - an integer array to a negative power is the reciprocal rounded to zero, and 0 for 0;
//! - every stored NaN is the same one.
//!
//! Where NumPy computes in `f16`, which is not there, it is `f32` here.

mod apply;
mod bind;
mod cuda;
mod dispatch;
mod expression;
mod fault;
mod fold;
mod functions;
mod header;
mod hints;
mod host;
mod ir;
mod lex;
mod lower;
mod parse;
mod program;
mod reduce;
#[cfg(any(test, feature = "testing"))]
mod samples;
mod scalar;
#[cfg(test)]
mod tests;
mod typing;
mod words;

pub use expression::Expression;
pub use fault::{Location, locate};
pub use words::{FunctionInfo, FunctionKind, functions};

pub(crate) use hints::unbound;
pub(crate) use program::Program;
#[cfg(any(test, feature = "testing"))]
pub(crate) use samples::{rebuild, samples};
