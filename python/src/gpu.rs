//! Arrays of other libraries in the memory of a GPU.

use std::ffi::{CStr, c_void};
use std::ops::Range;

use overshot::{Dtype, arrays::DeviceArray};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::dtype;
use crate::error::exception;

/// An array that CuPy, PyTorch, Numba or another library has in the memory of a GPU, as its array interface for CUDA or
/// its DLPack capsule describes it.
#[pyclass(frozen, module = "overshot._core")]
pub(crate) struct GpuArray {
    address: u64,
    dtype: Dtype,
    shape: Vec<u64>,
    /// The stream with work on the array that may not be done.
    stream: Option<u64>,
    is_read_only: bool,
    /// The array, which keeps the memory.
    #[pyo3(get)]
    owner: Py<PyAny>,
    /// The capsule, whose deleter ends the loan.
    _capsule: Option<Py<PyCapsule>>,
}

#[pymethods]
impl GpuArray {
    #[new]
    fn new(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        // Up to version 2, the interface has no stream, so DLPack is asked: PyTorch's tensors have both.
        let py = array.py();
        let interface = array.getattr_opt(pyo3::intern!(py, "__cuda_array_interface__"))?;
        let interface = interface.as_ref().map(|interface| interface.cast::<PyDict>()).transpose()?;
        match interface {
            Some(interface) if version(interface)? >= 3 || !array.hasattr(pyo3::intern!(py, "__dlpack__"))? => {
                GpuArray::of_interface(array, interface)
            }
            _ => GpuArray::of_dlpack(array),
        }
    }

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
}

impl GpuArray {
    /// Reads the CUDA array interface.
    fn of_interface(array: &Bound<'_, PyAny>, interface: &Bound<'_, PyDict>) -> PyResult<Self> {
        let field = |name: &str| {
            let value = interface.get_item(name)?.filter(|value| !value.is_none());
            Ok::<_, PyErr>(value)
        };
        let needed =
            |name: &str| field(name)?.ok_or_else(|| refused(format!("its __cuda_array_interface__ has no {name}")));
        let (address, is_read_only): (u64, bool) = needed("data")?.extract()?;
        let shape: Vec<u64> = needed("shape")?.extract()?;
        let dtype = dtype::of_typestr(&needed("typestr")?.extract::<String>()?)?;
        if field("mask")?.is_some() {
            return Err(refused("its mask would be ignored; pass its data"));
        }
        if let Some(strides) = field("strides")? {
            check_strides(&shape, &strides.extract::<Vec<i64>>()?, dtype.size() as i64)?;
        }
        let stream = field("stream")?.map(|stream| stream.extract::<u64>()).transpose()?;
        let stream = if version(interface)? < 3 { Some(DEFAULT_STREAM) } else { stream };
        if stream == Some(0) {
            return Err(refused("its __cuda_array_interface__ has the stream 0, which the interface does not allow"));
        }
        let owner = array.clone().unbind();
        Ok(GpuArray { address, dtype, shape, stream, is_read_only, owner, _capsule: None })
    }

    /// Reads a DLPack capsule of the default stream, which waits for the work of the library.
    fn of_dlpack(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let options = PyDict::new(array.py());
        options.set_item("stream", DEFAULT_STREAM)?;
        let capsule = array.call_method(pyo3::intern!(array.py(), "__dlpack__"), (), Some(&options))?;
        let capsule = capsule.cast_into::<PyCapsule>()?;
        // SAFETY: a capsule of this name has a `DLManagedTensor`, which lives as long as the capsule: nobody renames
        // it, so its destructor calls the deleter.
        let tensor = unsafe { &*capsule.pointer_checked(Some(DLTENSOR))?.cast::<Tensor>().as_ptr() };
        if !matches!(tensor.device.kind, DL_CUDA | DL_CUDA_MANAGED) {
            return Err(refused("its DLPack device is not a GPU of NVIDIA"));
        }
        let dtype = match tensor.dtype {
            DlDtype { lanes: 1, code, bits } => dtype::of_dlpack(code, bits),
            _ => None,
        };
        let dtype = dtype.ok_or_else(|| refused("its elements are not numbers that Overshot computes with"))?;
        let negative = || refused("its DLPack tensor has a negative number of dimensions or elements");
        let dims = usize::try_from(tensor.dims).map_err(|_| negative())?;
        // SAFETY: by the contract of DLPack, the shape and the strides have this many numbers; strides may be absent.
        let (shape, strides) = unsafe { (numbers(tensor.shape, dims), numbers(tensor.strides, dims)) };
        let shape = shape.iter().map(|length| u64::try_from(*length)).collect::<Result<Vec<u64>, _>>();
        let shape = shape.map_err(|_| negative())?;
        if !strides.is_empty() {
            check_strides(&shape, strides, 1)?;
        }
        let address = (tensor.data.addr() as u64).wrapping_add(tensor.byte_offset);
        let (owner, stream) = (array.clone().unbind(), Some(DEFAULT_STREAM));
        let _capsule = Some(capsule.unbind());
        Ok(GpuArray { address, dtype, shape, stream, is_read_only: false, owner, _capsule })
    }

    /// Lends the array to an engine.
    pub(crate) fn lend(
        &self,
        py: Python<'_>,
        name: &str,
        engine: &overshot::Engine,
        is_written: bool,
    ) -> PyResult<LentGpuArray> {
        if is_written && self.is_read_only {
            return Err(PyValueError::new_err(format!("{name}: the array is read-only")));
        }
        if self.shape.is_empty() {
            let problem = "is an array without dimensions on a GPU; pass its value";
            return Err(PyTypeError::new_err(format!("{name}: {problem}, as {name}.item()")));
        }
        // SAFETY: the interface describes memory that its owner keeps as long as it exists, which is longer than the
        // run. As for arrays of the host, the documentation asks users not to write to it during the run.
        let borrow = || unsafe { engine.device_array(self.address, self.dtype, &self.shape, self.stream) };
        // It waits for the stream.
        let array = py.detach(borrow);
        let array = array.map_err(|error| match error.is_usage() {
            true => PyValueError::new_err(format!("{name}: {error}")),
            false => exception(error),
        });
        let array = array?;
        let (start, rows) = (self.address as usize, array.rows() as usize);
        Ok(LentGpuArray { array, extent: start..start + rows * self.dtype.size() })
    }
}

/// An array of a GPU during a run.
pub(crate) struct LentGpuArray {
    pub(crate) array: DeviceArray,
    /// Its addresses.
    pub(crate) extent: Range<usize>,
}

fn version(interface: &Bound<'_, PyDict>) -> PyResult<u64> {
    interface.get_item("version")?.map_or(Ok(0), |version| version.extract())
}

/// Refuses arrays whose elements are not in row-major order without gaps.
fn check_strides(shape: &[u64], strides: &[i64], element: i64) -> PyResult<()> {
    let mut next = element;
    let is_empty = shape.contains(&0);
    let is_dense = strides.len() == shape.len()
        && shape.iter().zip(strides).rev().all(|(length, stride)| {
            let fits = is_empty || *length == 1 || *stride == next;
            next = next.saturating_mul(*length as i64);
            fits
        });
    match is_dense {
        true => Ok(()),
        false => Err(refused("its elements are not adjacent in row-major order; pass a copy of it that is contiguous")),
    }
}

fn refused(problem: impl Into<String>) -> PyErr {
    PyTypeError::new_err(problem.into())
}

/// # Safety
/// `start` is null, or the start of `count` numbers that live long enough.
unsafe fn numbers<'a>(start: *const i64, count: usize) -> &'a [i64] {
    // SAFETY: by the contract of this function.
    if start.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(start, count) } }
}

const DLTENSOR: &CStr = c"dltensor";
const DEFAULT_STREAM: u64 = 1;
const DL_CUDA: i32 = 2;
const DL_CUDA_MANAGED: i32 = 13;

/// `DLTensor`, with which a `DLManagedTensor` begins.
#[repr(C)]
struct Tensor {
    data: *const c_void,
    device: DlDevice,
    dims: i32,
    dtype: DlDtype,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
struct DlDtype {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlDevice {
    kind: i32,
    _number: i32,
}
