//! Errors of Overshot as exceptions of Python.

use overshot::{Error, MatrixError};
use pyo3::create_exception;
use pyo3::exceptions::{PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

create_exception!(overshot, Cancelled, PyRuntimeError, "A run was stopped before its end. No output file was written.");

/// Returns the exception for an error: `ValueError` for a job that is not valid, NumPy's `LinAlgError` for equations
/// with many solutions, `OSError` for a file, `MemoryError` for memory, and `RuntimeError` for devices. An exception
/// of the caller's own code passes through.
pub(crate) fn exception(error: Error) -> PyErr {
    let text = error.to_string();
    match innermost(&error) {
        Error::Other(own) if own.is::<PyErr>() => match own.downcast_ref::<PyErr>() {
            Some(raised) => Python::attach(|py| raised.clone_ref(py)),
            None => PyRuntimeError::new_err(text),
        },
        Error::Cancelled { .. } => Cancelled::new_err(text),
        Error::Budget { .. } | Error::OutOfMemory { .. } => PyMemoryError::new_err(text),
        Error::File { path, problem, remedy, cause } => match cause.as_ref().and_then(std::io::Error::raw_os_error) {
            Some(number) => PyOSError::new_err((number, format!("{problem}; {remedy}"), path.clone())),
            None => PyOSError::new_err(text),
        },
        Error::InvalidTable(MatrixError::Singular) => linear_algebra(text),
        error if error.is_usage() => PyValueError::new_err(text),
        _ => PyRuntimeError::new_err(text),
    }
}

/// Returns the cause of an error in a chunk.
fn innermost(error: &Error) -> &Error {
    match error {
        Error::Chunk { cause, .. } => innermost(cause),
        error => error,
    }
}

/// Returns NumPy's error of linear algebra, which is a `ValueError`.
fn linear_algebra(text: String) -> PyErr {
    Python::attach(|py| {
        let raised = py.import("numpy.linalg").and_then(|module| module.getattr("LinAlgError")?.call1((text,)));
        raised.map_or_else(|error| error, PyErr::from_value)
    })
}
