//! A parsed expression.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::bind;
use super::number::Number;
use super::parse::{self, Parsed, Statement, Tree};
use super::program::Program;
use crate::data::Dtype;
use crate::error::{Error, Result};

/// A parsed expression: statements that compute a value for every row, or reduce a value over all rows.
///
/// Parse it once and use it for any number of jobs, with inputs of any dtypes. The [crate
/// documentation](crate#expressions) describes the language. Cloning is cheap. `Display` writes the text that was
/// parsed.
///
/// ```
/// use overshot::{DeviceChoice, Engine, Expression, Job};
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// let expression: Expression = "y = a * x; total = sum(y)".parse()?;
/// assert_eq!(expression.inputs().collect::<Vec<_>>(), ["a", "x"]);
/// assert_eq!(expression.outputs().collect::<Vec<_>>(), ["y"]);
/// assert_eq!(expression.reductions().collect::<Vec<_>>(), ["total"]);
/// assert!(expression.reads("y") && !expression.reads("total"));
/// for (x, total) in [(vec![1.0, 2.0], 6.0), (vec![3.0, 4.0, 5.0], 24.0)] {
///     let report = engine.run(Job::new(&expression).input("x", &x).scalar("a", 2.0))?;
///     assert_eq!(report.value("total")?.map(|total| total.as_f64()), Some(total));
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
    /// Parses an expression.
    ///
    /// # Errors
    /// [`Error::Expression`] with the column if the text is not a valid expression. Names and dtypes are checked when
    /// a job runs, because they depend on its inputs.
    pub fn parse(text: &str) -> Result<Expression> {
        match parse::parse(text) {
            Ok(parsed) => Ok(Expression(Arc::new(Inner { text: text.to_owned(), parsed }))),
            Err(fault) => Err(fault.in_text(text)),
        }
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Returns the names that the expression reads but does not assign, in order of first use. A job needs an input
    /// or a scalar for each of them.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.parsed.inputs.iter().map(String::as_str)
    }

    /// Returns the names of the constants that the expression reads, such as `pi` and `e`, in order of first use. An
    /// input or scalar of the same name replaces the constant.
    pub fn constants(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.parsed.constants.iter().map(String::as_str)
    }

    /// Returns the names to which the expression assigns row values, in text order. Each of them needs an output, or
    /// must be read later in the text.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.parsed.assigned.iter().map(String::as_str)
    }

    /// Returns whether the expression reads `name` anywhere. An assigned name that it does not read needs an output.
    pub fn reads(&self, name: &str) -> bool {
        self.0.parsed.terms.iter().any(|term| matches!(&term.tree, Tree::Name(read) if read == name))
    }

    /// Returns the names of the reductions in reports, in text order. The name of an unnamed reduction is its text,
    /// with every run of whitespace replaced by one space.
    pub fn reductions(&self) -> impl Iterator<Item = &str> {
        self.0.parsed.statements.iter().filter_map(|statement| match statement {
            Statement::Reduce { label, .. } => Some(label.as_str()),
            Statement::Assign { .. } => None,
        })
    }

    /// The result of parsing.
    #[cfg(test)]
    pub(super) fn parsed(&self) -> &Parsed {
        &self.0.parsed
    }

    /// Binds the inputs and the scalars to dtypes, adds numbers that adapt, and infers all other dtypes.
    ///
    /// `outputs` are the assigned names that are written. A value is converted to the dtype of its output, if that
    /// has one. All other assigned names must be read later in the text.
    ///
    /// # Errors
    /// [`Error::Expression`] if dtypes do not match or names are missing.
    pub(crate) fn bind(
        &self,
        inputs: &[(String, Dtype)],
        scalars: &[(String, Dtype)],
        numbers: &[(String, Number)],
        outputs: &[(String, Option<Dtype>)],
    ) -> Result<Program> {
        let Inner { text, parsed } = &*self.0;
        bind::bind(text, parsed, inputs, scalars, numbers, outputs).map_err(|fault| fault.in_text(text))
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
