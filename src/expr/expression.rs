//! A parsed text.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::bind;
use super::parse::{self, Parsed, Statement};
use super::program::Program;
use crate::data::Dtype;
use crate::error::{Error, Result};

/// A parsed expression: statements that give every row a value, or reduce a value over all rows.
///
/// It is parsed once and serves any number of jobs, with inputs of any dtypes. The language is described in the
/// [crate documentation](crate#expressions). A clone is cheap. `Display` gives the text it was parsed from.
///
/// ```
/// use overshot::{DeviceChoice, Engine, Expression, Job};
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// let expression: Expression = "y = a * x; total = sum(y)".parse()?;
/// assert_eq!(expression.inputs().collect::<Vec<_>>(), ["a", "x"]);
/// assert_eq!(expression.outputs().collect::<Vec<_>>(), ["y"]);
/// assert_eq!(expression.reductions().collect::<Vec<_>>(), ["total"]);
/// for (x, total) in [(vec![1.0, 2.0], 6.0), (vec![3.0, 4.0, 5.0], 24.0)] {
///     let report = engine.run(Job::new(&expression).input("x", &x).scalar("a", 2.0))?;
///     assert_eq!(report.value("total").map(|total| total.as_f64()), Some(total));
/// }
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone)]
pub struct Expression(Arc<Inner>);

struct Inner {
    text: String,
    parsed: Parsed,
}

impl Expression {
    /// Parses a text.
    ///
    /// # Errors
    /// [`Error::Expression`] with the place if the text does not belong to the language. Names and dtypes are checked when a
    /// job runs, as they depend on its inputs.
    pub fn parse(text: &str) -> Result<Expression> {
        match parse::parse(text) {
            Ok(parsed) => Ok(Expression(Arc::new(Inner { text: text.to_owned(), parsed }))),
            Err(fault) => Err(fault.in_text(text)),
        }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The names that it reads and does not assign, in order of first use: a job gives each an input or a value.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.parsed.inputs.iter().map(String::as_str)
    }

    /// The names of constants that it reads, such as `pi` and `e`, in order of first use. A job may give them an input or a
    /// value; then they are that and not the constant.
    pub fn constants(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.parsed.constants.iter().map(String::as_str)
    }

    /// The names to which it assigns row values, in text order: a job gives each an output, or the text reads it later.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.parsed.assigned.iter().map(String::as_str)
    }

    /// The names under which reports show the values of its reductions, in text order. A reduction without a name is shown as
    /// its text, with single blanks for line ends and blanks.
    pub fn reductions(&self) -> impl Iterator<Item = &str> {
        self.0.parsed.statements.iter().filter_map(|statement| match statement {
            Statement::Reduce { label, .. } => Some(label.as_str()),
            Statement::Assign { .. } => None,
        })
    }

    /// What the text was parsed to.
    #[cfg(test)]
    pub(super) fn parsed(&self) -> &Parsed {
        &self.0.parsed
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
        let Inner { text, parsed } = &*self.0;
        bind::bind(text, parsed, inputs, values, outputs).map_err(|fault| fault.in_text(text))
    }
}

impl FromStr for Expression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Expression> {
        Expression::parse(text)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.text()).finish()
    }
}
