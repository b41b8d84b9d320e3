//! The expression language: `y = where(x > 0, sqrt(x), 0); m = mean(x)`.
//!
//! ```text
//! text ── lex, parse ──▶ terms ── bind (dtypes) ──▶ program ──┬── twin ──▶ loops on the host
//!                                                             └── cuda ──▶ CUDA C++
//! ```
//! Statements stand on lines of their own or between `;` or `,`. `NAME = VALUE` gives every row a value; a reduction, named
//! or not, gives one value of all rows. In order of how tightly they bind: `**`, then `+ - ~` before a value, `* / // %`,
//! `+ -`, `<< >>`, `&`, `^`, `|`, and comparisons, which do not chain. Names that are only read are columns, or what is the same
//! for all rows, which is typed as columns are. Besides them and numbers there are `pi e inf nan True False` and the row
//! number `i`; dtype names convert; the functions and reductions are in `words.rs`.
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
mod fold;
mod functions;
mod header;
mod lex;
mod parse;
mod program;
mod reduce;
mod samples;
mod scalar;
#[cfg(test)]
mod tests;
mod twin;
mod typing;
mod words;

use crate::data::Dtype;
use crate::error::{Error, Result};

pub(crate) use header::rebuild;
pub(crate) use program::Program;
pub(crate) use samples::samples;

/// A parsed text: statements that assign a value to every row, or reduce one over all rows.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    text: String,
    parsed: parse::Parsed,
}

impl Expression {
    /// Parses a text.
    ///
    /// # Errors
    /// [`Error::Expression`] if it is none of the language.
    pub(crate) fn parse(text: &str) -> Result<Expression> {
        match parse::parse(text) {
            Ok(parsed) => Ok(Expression { text: text.to_owned(), parsed }),
            Err(fault) => Err(fault.in_text(text)),
        }
    }

    /// The text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The names it assigns row values to, in text order. Names of reductions are not among them.
    pub(crate) fn assigned(&self) -> &[String] {
        &self.parsed.assigned
    }

    /// The names of its reductions, in text order: those given to them, or else their texts.
    pub(crate) fn labels(&self) -> impl Iterator<Item = &str> {
        self.parsed.statements.iter().filter_map(|statement| match statement {
            parse::Statement::Reduce { label, .. } => Some(label.as_str()),
            parse::Statement::Assign { .. } => None,
        })
    }

    /// The names it reads but does not assign, in order of first use: inputs and values.
    pub(crate) fn inputs(&self) -> &[String] {
        &self.parsed.inputs
    }

    /// Gives the inputs and the values, which are the same for all rows, their dtypes, and with them everything else.
    ///
    /// `outputs` are the assigned names that have a place to go: with a dtype, to which the value is converted, or
    /// without, in the dtype it has. Other assigned names must be read later in the text.
    ///
    /// # Errors
    /// [`Error::Expression`] if dtypes do not fit, or names are missing.
    pub(crate) fn bind(
        &self,
        inputs: &[(String, Dtype)],
        values: &[(String, Dtype)],
        outputs: &[(String, Option<Dtype>)],
    ) -> Result<Program> {
        bind::bind(self, &self.parsed, inputs, values, outputs).map_err(|fault| fault.in_text(&self.text))
    }
}

/// What is wrong with a text, and where: characters from 0.
#[derive(Debug)]
struct Fault {
    at: usize,
    message: String,
}

impl Fault {
    fn new(at: usize, message: impl Into<String>) -> Fault {
        Fault { at, message: message.into() }
    }

    fn in_text(self, text: &str) -> Error {
        Error::Expression { column: self.at + 1, text: text.to_owned(), message: self.message }
    }
}
