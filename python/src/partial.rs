//! The results of some rows of a job, which other processes may complete.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::engine::{Values, values};
use crate::error::exception;
use crate::report::Report;

/// The results of some rows of a job.
#[pyclass(frozen, module = "overshot._core")]
pub(crate) struct Partial(Mutex<overshot::Partial>);

impl Partial {
    pub(crate) fn new(partial: overshot::Partial) -> Self {
        Partial(Mutex::new(partial))
    }

    /// Nobody who holds the lock waits for the interpreter's one, so taking it cannot wait forever.
    fn lock(&self) -> MutexGuard<'_, overshot::Partial> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Partial {
    /// The complete rows, in order, as pairs of numbers.
    #[getter]
    fn rows(&self) -> Vec<(u64, u64)> {
        self.lock().rows().iter().map(|rows| (rows.start, rows.end)).collect()
    }

    /// The rows of the job.
    #[getter]
    fn total_rows(&self) -> u64 {
        self.lock().total_rows()
    }

    #[getter]
    fn is_complete(&self) -> bool {
        self.lock().is_complete()
    }

    /// Adds the rows of another partial of the same job.
    fn merge(&self, py: Python<'_>, other: &Partial) -> PyResult<()> {
        // A copy, so that no two locks are held at a time, and a partial may be asked to merge itself.
        let merged = py.detach(|| {
            let other = other.lock().clone();
            self.lock().merge(other)
        });
        merged.map_err(exception)
    }

    /// Names the outputs, and returns the results and the report.
    #[pyo3(signature = (checksum=false))]
    fn finish(&self, py: Python<'_>, checksum: bool) -> PyResult<(Values, Report)> {
        // A copy, so that the caller may try again after an error.
        let report = py.detach(|| {
            let own = self.lock().clone();
            own.checksum(checksum).finish()
        });
        let report = report.map_err(exception)?;
        Ok((values(py, &report)?, Report(report)))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.lock().to_bytes())
    }

    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        overshot::Partial::from_bytes(bytes).map(Partial::new).map_err(exception)
    }
}
