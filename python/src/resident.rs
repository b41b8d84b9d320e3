//! Datasets that stay on the GPUs of an engine.

use std::ops::Range;

use overshot::{Dtype, Input, arrays};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::columns::{Given, Lent};
use crate::dtype;
use crate::error::exception;
use crate::process::OfProcess;

/// A dataset that stays in the memory of an engine's GPUs as far as it fits.
#[pyclass(frozen, module = "overshot")]
pub(crate) struct Resident {
    // Dropped in this order: the dataset reads the memory of the array.
    resident: OfProcess<arrays::Resident<'static>>,
    dtype: Dtype,
    shape: Vec<u64>,
    lent: Option<Lent>,
}

#[pymethods]
impl Resident {
    /// The dtype, as a scalar type of NumPy.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        dtype::numpy_type(py, self.dtype)
    }

    /// The lengths of the dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The devices with rows, and their numbers of rows. All others come from the array or file in every run.
    #[getter]
    fn rows_on_devices(&self) -> Vec<(String, u64)> {
        let mut on_devices: Vec<(String, u64)> = vec![];
        for (device, rows) in self.dataset().on_devices() {
            // Several ranges of rows may be on one device.
            match on_devices.last_mut().filter(|(last, _)| *last == device) {
                Some((_, number)) => *number += rows.end - rows.start,
                None => on_devices.push((device, rows.end - rows.start)),
            }
        }
        on_devices
    }

    fn __repr__(&self) -> String {
        let on: Vec<_> =
            self.rows_on_devices().into_iter().map(|(device, rows)| format!("{rows} on {device}")).collect();
        let on = if on.is_empty() { "none on a device".into() } else { on.join(", ") };
        format!("<overshot.Resident {:?} of {}, rows: {on}>", self.shape, dtype::numpy_name(self.dtype))
    }
}

impl Resident {
    pub(crate) fn dataset(&self) -> &arrays::Resident<'static> {
        self.resident.get()
    }

    /// Returns the lengths of the dimensions.
    pub(crate) fn lengths(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the addresses of the array.
    pub(crate) fn extent(&self) -> Option<Range<usize>> {
        self.lent.as_ref().map(Lent::extent)
    }

    pub(crate) fn new(engine: &overshot::Engine, given: Given) -> PyResult<Self> {
        let (input, lent) = match given {
            // SAFETY: the field `lent` is dropped after the dataset.
            Given::Array(lent) => (Input::from(unsafe { lent.array() }), Some(lent)),
            Given::File(input) => (input, None),
            _ => return Err(PyTypeError::new_err("a resident dataset is made of an array of the host or a file")),
        };
        let source = input.source();
        let (dtype, shape) = (source.dtype(), source.shape().map_or_else(|| vec![source.rows()], <[u64]>::to_vec));
        let resident = engine.resident(input).map_err(exception)?;
        Ok(Resident { resident: OfProcess::new(resident), dtype, shape, lent })
    }
}
