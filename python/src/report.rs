//! Reports and plans.

use pyo3::prelude::*;

use crate::error::exception;

/// Returns the JSON of a value as a dictionary.
pub(crate) fn dictionary<'py>(py: Python<'py>, value: &impl serde::Serialize) -> PyResult<Bound<'py, PyAny>> {
    let json = serde_json::to_string(value).map_err(|error| exception(overshot::Error::other(error)))?;
    py.import("json")?.call_method1("loads", (json,))
}

/// What a run did. `str` is the text that the command prints; `to_dict` has every number.
#[pyclass(frozen, module = "overshot")]
pub(crate) struct Report(pub(crate) overshot::Report);

#[pymethods]
impl Report {
    /// The rows of the job.
    #[getter]
    fn rows(&self) -> u64 {
        self.0.rows
    }

    /// The seconds from the first chunk to the last one.
    #[getter]
    fn seconds(&self) -> f64 {
        self.0.time.as_secs_f64()
    }

    /// The seconds of the whole run, with loading kernels and creating outputs.
    #[getter]
    fn total_seconds(&self) -> f64 {
        self.0.total_time.as_secs_f64()
    }

    /// What was not done in the fast or requested way, and why.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.0.notes.clone()
    }

    /// Returns every number of the report as a dictionary; docs/json.md describes it.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        dictionary(py, &self.0)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    /// The picture of the run that notebooks show: stages, overlap, bottleneck, timeline.
    fn _repr_html_(&self) -> String {
        self.0.html()
    }

    fn __repr__(&self) -> String {
        format!("<overshot.Report of {} rows in {:.3} s>", self.0.rows, self.0.time.as_secs_f64())
    }
}

/// What a run would do. `str` is the text that `overshot plan` prints.
#[pyclass(frozen, module = "overshot")]
pub(crate) struct Plan(pub(crate) overshot::Plan);

#[pymethods]
impl Plan {
    /// Returns every number of the plan as a dictionary; docs/json.md describes it.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        dictionary(py, &self.0)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    /// The picture of the plan that notebooks show.
    fn _repr_html_(&self) -> String {
        self.0.html()
    }

    fn __repr__(&self) -> String {
        format!("<overshot.Plan of {} rows>", self.0.rows)
    }
}
