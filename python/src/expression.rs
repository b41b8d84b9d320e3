//! Parsed expressions.

use pyo3::prelude::*;

use crate::error::exception;

/// A parsed expression.
#[pyclass(frozen, module = "overshot")]
pub(crate) struct Expression {
    pub(crate) parsed: overshot::Expression,
    /// The text.
    #[pyo3(get)]
    text: String,
    /// The name of the output if the text is one expression without a name.
    #[pyo3(get)]
    unnamed: Option<&'static str>,
}

/// Names for the output of a text without one: the first that the text does not read itself.
const UNNAMED: [&str; 3] = ["result", "unnamed_result", "result_without_a_name"];

#[pymethods]
impl Expression {
    /// Parses statements, or a single expression without a name.
    #[new]
    fn new(text: &str) -> PyResult<Self> {
        // What separates statements says nothing around all of them, as the lines at both ends of triple-quoted texts.
        let text = text.trim_matches(|sign: char| sign.is_whitespace() || sign == ';' || sign == ',');
        let error = match overshot::Expression::parse(text) {
            Ok(parsed) => return Ok(Expression { parsed, text: text.into(), unnamed: None }),
            Err(error) => error,
        };
        for name in UNNAMED {
            if let Ok(parsed) = overshot::Expression::parse(&format!("{name} = {text}"))
                && parsed.outputs().len() == 1
                && parsed.reductions().next().is_none()
            {
                return Ok(Expression { parsed, text: text.into(), unnamed: Some(name) });
            }
        }
        Err(exception(error))
    }

    /// The names that the expression reads, in order of their first use.
    #[getter]
    fn inputs(&self) -> Vec<&str> {
        self.parsed.inputs().collect()
    }

    /// The names of constants that the expression reads, such as `pi`, which an array may replace.
    #[getter]
    fn constants(&self) -> Vec<&str> {
        self.parsed.constants().collect()
    }

    /// The assigned names that the expression does not read: each needs an output.
    #[getter]
    fn unread(&self) -> Vec<&str> {
        self.parsed.outputs().filter(|name| !self.parsed.reads(name)).collect()
    }

    /// The names to which the expression assigns a value for each row.
    #[getter]
    fn outputs(&self) -> Vec<&str> {
        self.parsed.outputs().collect()
    }

    /// The names, or else the texts, of the reductions.
    #[getter]
    fn reductions(&self) -> Vec<&str> {
        self.parsed.reductions().collect()
    }

    fn __getnewargs__(&self) -> (&str,) {
        (&self.text,)
    }

    fn __repr__(&self) -> String {
        format!("overshot.Expression({:?})", self.text)
    }
}
