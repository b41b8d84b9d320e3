//! Kernels of the user's own.

use overshot::kernel::{self, CustomKernel};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::columns::{Given, in_name};
use crate::dtype;
use crate::error::exception;

/// A kernel in CUDA C++, PTX or device code.
#[pyclass(frozen, module = "overshot._core")]
pub(crate) struct Kernel(CustomKernel);

/// A kernel with its scalars, resident arrays and scratch memory.
#[pyclass(frozen, module = "overshot._core")]
pub(crate) struct Call(pub(crate) kernel::Call);

#[pymethods]
impl Kernel {
    /// Makes a kernel of a text in CUDA C++, or of PTX or device code if `is_image`.
    #[new]
    #[allow(clippy::too_many_arguments, reason = "they are keywords")]
    #[pyo3(signature = (code, entry, name, is_image, parameters=None, threads=None, rows_per_block=None,
                        shared_bytes=None, options=vec![], halos=vec![]))]
    fn new(
        code: &Bound<'_, PyAny>,
        entry: &str,
        name: &str,
        is_image: bool,
        parameters: Option<&str>,
        threads: Option<u32>,
        rows_per_block: Option<usize>,
        shared_bytes: Option<u32>,
        options: Vec<String>,
        halos: Vec<(Option<String>, usize, usize)>,
    ) -> PyResult<Self> {
        let bytes = match (code.cast::<PyString>(), code.cast::<PyBytes>()) {
            (Ok(text), _) => text.to_str()?.as_bytes(),
            (_, Ok(bytes)) => bytes.as_bytes(),
            _ => return Err(PyTypeError::new_err("the code of a kernel is a str or bytes")),
        };
        let text = || str::from_utf8(bytes).map_err(|_| PyValueError::new_err("the code is not UTF-8 text"));
        // SAFETY: as on the command line, the user who runs a kernel is responsible for what it accesses and for its
        // launch. The documentation says so.
        let kernel = unsafe {
            let kernel = match parameters {
                None if is_image => {
                    let problem = "the parameters of the kernel are missing: give them as in C, as in \
                                   parameters='long long rows, const float *x, float *y'";
                    return Err(PyValueError::new_err(problem));
                }
                Some(parameters) if is_image => CustomKernel::image(bytes, entry, parameters),
                Some(parameters) => CustomKernel::cuda_with_parameters(name, text()?, entry, parameters),
                None => CustomKernel::cuda(name, text()?, entry),
            };
            let mut kernel = kernel.map_err(exception)?;
            if let Some(threads) = threads {
                kernel = kernel.threads(threads);
            }
            if let Some(rows) = rows_per_block {
                kernel = kernel.rows_per_block(rows);
            }
            if let Some(bytes) = shared_bytes {
                kernel = kernel.shared_bytes(bytes);
            }
            for (input, before, after) in &halos {
                kernel = match input {
                    Some(input) => kernel.halo(input, *before, *after),
                    None => kernel.halos(*before, *after),
                };
            }
            options.iter().fold(kernel, |kernel, option| kernel.option(option))
        };
        Ok(Kernel(kernel))
    }

    /// Adds scalars, resident arrays and scratch memory.
    fn call<'py>(
        &self,
        numbers: Vec<(String, Bound<'py, PyAny>)>,
        resident: Vec<(String, Bound<'py, PyAny>)>,
        scratch: Vec<String>,
    ) -> PyResult<Call> {
        let mut call = scratch.iter().fold(self.0.call(), |call, name| call.scratch(name));
        for (name, number) in numbers {
            let Some(dtype) = call.value_type(&name) else {
                return Err(PyTypeError::new_err(format!("{name}: the kernel has no scalar of this name")));
            };
            let value = dtype::from_python(&number, dtype).map_err(|error| in_name(number.py(), &name, error))?;
            call = call.scalar(&name, value);
        }
        for (name, array) in resident {
            let given = Given::new(&name, &array, None)?;
            let Some(input) = given.input() else {
                return Err(PyTypeError::new_err(format!(
                    "{name}: a resident array is an array of the host or a file"
                )));
            };
            // SAFETY: as in `new`.
            call = unsafe { call.resident_rows(&name, input.source()) }.map_err(exception)?;
        }
        Ok(Call(call))
    }

    /// The names of the parameters that are scalars, of these.
    fn scalars(&self, names: Vec<String>) -> Vec<String> {
        let call = self.0.call();
        names.into_iter().filter(|name| call.value_type(name).is_some()).collect()
    }

    /// The name of the entry point.
    #[getter]
    fn entry(&self) -> &str {
        self.0.entry()
    }
}

#[pymethods]
impl Call {
    /// The names of the parameters that take inputs, in order.
    #[getter]
    fn inputs(&self) -> Vec<&str> {
        self.0.input_names().collect()
    }

    /// The names of the parameters that take outputs, in order.
    #[getter]
    fn outputs(&self) -> Vec<&str> {
        self.0.output_names().collect()
    }
}
