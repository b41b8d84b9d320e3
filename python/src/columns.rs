//! Objects of Python as the inputs and outputs of a job.

use std::ops::Range;

use overshot::io::{RawArray, RawArrayMut};
use overshot::{Dtype, Input, Number, Output, Scalar, Source};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt};

use crate::blocks::{Blocks, LentBlocks};
use crate::dtype;
use crate::file::{File, NewFile};
use crate::gpu::{GpuArray, LentGpuArray};
use crate::new_array::{NewArray, NewRows};
use crate::resident::Resident;

/// The memory of an array, which Python keeps as long as this exists.
pub(crate) struct Lent {
    buffer: PyUntypedBuffer,
    dtype: Dtype,
    shape: Vec<u64>,
}

impl Lent {
    /// Borrows the memory of an object with the buffer protocol. Arrays of `bfloat16` have no format in it, so a view
    /// of their bits is borrowed.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Lent> {
        let (buffer, dtype) = match PyUntypedBuffer::get(object) {
            Ok(buffer) => {
                let dtype = dtype::of_buffer(buffer.format())?;
                (buffer, dtype)
            }
            Err(_) if dtype::is_bfloat16(object) => {
                (PyUntypedBuffer::get(&object.call_method1("view", ("u2",))?)?, Dtype::Bf16)
            }
            Err(error) => return Err(error),
        };
        if buffer.item_size() != dtype.size() || buffer.suboffsets().is_some() {
            return Err(PyTypeError::new_err("its buffer is not an array of numbers"));
        }
        let shape = buffer.shape().iter().map(|&length| length as u64).collect();
        Ok(Lent { buffer, dtype, shape })
    }

    fn input(&self) -> Input<'_> {
        // SAFETY: the input borrows `self`.
        unsafe { self.array() }.into()
    }

    /// Returns the array.
    ///
    /// # Safety
    /// `self` is dropped after the result.
    pub(crate) unsafe fn array<'a>(&self) -> RawArray<'a> {
        let start = self.buffer.buf_ptr().cast_const().cast();
        // SAFETY: the buffer has elements of this dtype, shape and strides, and Python keeps its memory as long as the
        // buffer is borrowed. Python has no means to keep other threads from writing to it: the documentation asks
        // users not to, as NumPy's does for its own functions, which also run without the interpreter's lock.
        unsafe { RawArray::new(start, self.dtype, &self.shape, self.buffer.strides()) }
    }

    fn output(&mut self) -> Output<'_> {
        let start = self.buffer.buf_ptr().cast();
        // SAFETY: as in `input`; `Taken::new` refuses memory that may not be written and elements that overlap, and
        // `check_apart` refuses an array that shares memory with another one of the job.
        unsafe { RawArrayMut::new(start, self.dtype, &self.shape, self.buffer.strides()) }.into()
    }
}

impl Lent {
    /// Returns the array as an output.
    ///
    /// # Safety
    /// `self` is dropped after the result, and nobody else reads or writes the array before that.
    pub(crate) unsafe fn new_array<'a>(&self) -> RawArrayMut<'a> {
        let start = self.buffer.buf_ptr().cast();
        // SAFETY: as in `array`; the caller says that nobody else uses the elements.
        unsafe { RawArrayMut::new(start, self.dtype, &self.shape, self.buffer.strides()) }
    }

    /// Returns the addresses from the first byte of the array to behind its last one.
    pub(crate) fn extent(&self) -> Range<usize> {
        let start = self.buffer.buf_ptr().addr();
        if self.shape.contains(&0) {
            return start..start;
        }
        let reach = self.buffer.strides().iter().zip(self.buffer.shape());
        let reach: Vec<isize> = reach.map(|(stride, length)| stride * (*length as isize - 1)).collect();
        let below: isize = reach.iter().filter(|reach| **reach < 0).sum();
        let above: isize = reach.iter().filter(|reach| **reach > 0).sum();
        start.wrapping_add_signed(below)..start.wrapping_add_signed(above) + self.dtype.size()
    }
}

/// Checks that no output shares memory with another array of the job.
pub(crate) fn check_apart(given: &[(String, Given)], taken: &[(String, Taken)]) -> PyResult<()> {
    let extents = |given: &Given| match given {
        Given::Array(lent) => vec![lent.extent()],
        Given::Resident(resident) => resident.get().extent().into_iter().collect(),
        Given::Gpu(lent) => vec![lent.extent.clone()],
        Given::Blocks(blocks) => blocks.extents(),
        Given::File(_) | Given::Number(_) | Given::Scalar(_) => vec![],
    };
    let arrays_of_inputs = given.iter().flat_map(|(name, given)| extents(given).into_iter().map(move |at| (name, at)));
    let mut others: Vec<(&String, Range<usize>)> = arrays_of_inputs.collect();
    for (name, taken) in taken {
        let own = match taken {
            Taken::Array(lent) => lent.extent(),
            Taken::Gpu(lent) => lent.extent.clone(),
            Taken::File(_) | Taken::New(_) => continue,
        };
        if let Some((other, _)) = others.iter().find(|(_, other)| other.start < own.end && own.start < other.end) {
            return Err(PyValueError::new_err(format!("the output {name} shares memory with {other}")));
        }
        others.push((name, own));
    }
    Ok(())
}

/// What a name of an expression stands for, held for the time of a run.
pub(crate) enum Given {
    Array(Lent),
    /// An array of another library on a GPU.
    Gpu(LentGpuArray),
    Resident(Py<Resident>),
    /// Some rows of a dataset.
    Blocks(LentBlocks),
    File(Input<'static>),
    Number(Number),
    Scalar(Scalar),
}

impl Given {
    /// Takes an object. Arrays of a GPU are lent to the engine, if there is one.
    pub(crate) fn new(name: &str, object: &Bound<'_, PyAny>, engine: Option<&overshot::Engine>) -> PyResult<Given> {
        if let Ok(file) = object.cast::<File>() {
            return Ok(Given::File(file.get().input()?));
        }
        if let Ok(resident) = object.cast::<Resident>() {
            return Ok(Given::Resident(resident.clone().unbind()));
        }
        if let Ok(blocks) = object.cast::<Blocks>() {
            let lent = blocks.get().lend(object.py());
            return lent.map(Given::Blocks).map_err(|error| in_name(object.py(), name, error));
        }
        if let (Ok(array), Some(engine)) = (object.cast::<GpuArray>(), engine) {
            return array.get().lend(object.py(), name, engine, false).map(Given::Gpu);
        }
        if let Some(number) = number(object).map_err(|error| in_name(object.py(), name, error))? {
            return Ok(number);
        }
        Lent::new(object).map(Given::Array).map_err(|error| in_name(object.py(), name, error))
    }

    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Given::Array(lent) => lent.buffer.len_bytes() as u64,
            Given::File(input) => input.source().rows() * input.source().dtype().size() as u64,
            Given::Gpu(lent) => lent.extent.len() as u64,
            Given::Blocks(blocks) => blocks.extents().iter().map(|extent| extent.len() as u64).sum(),
            Given::Resident(resident) => {
                let dataset = resident.get().dataset();
                dataset.rows() * dataset.dtype().size() as u64
            }
            Given::Number(_) | Given::Scalar(_) => 0,
        }
    }

    /// Returns the lengths of the dimensions: none of a number, or if they are not known.
    pub(crate) fn shape(&self) -> &[u64] {
        match self {
            Given::Array(lent) => &lent.shape,
            Given::File(input) => input.source().shape().unwrap_or_default(),
            Given::Gpu(lent) => lent.array.shape(),
            Given::Blocks(blocks) => blocks.source().shape().unwrap_or_default(),
            Given::Resident(resident) => resident.get().lengths(),
            Given::Number(_) | Given::Scalar(_) => &[],
        }
    }

    /// Adds it to a job.
    pub(crate) fn add_to<'a>(&'a self, job: overshot::Job<'a>, name: &str) -> overshot::Job<'a> {
        match self {
            Given::Array(lent) => job.input(name, lent.input()),
            Given::Gpu(lent) => job.input(name, &lent.array),
            Given::Blocks(blocks) => job.input(name, blocks.source()),
            Given::Resident(resident) => job.input(name, resident.get().dataset()),
            Given::File(input) => job.input(name, input.source()),
            Given::Number(number) => job.number(name, *number),
            Given::Scalar(scalar) => job.scalar(name, *scalar),
        }
    }
    /// Returns an array of the host, or a file, as an input.
    pub(crate) fn input(&self) -> Option<Input<'_>> {
        match self {
            Given::Array(lent) => Some(lent.input()),
            Given::File(input) => Some(input.source().into()),
            _ => None,
        }
    }

    /// Returns an array or a file, wherever it is, as an input.
    pub(crate) fn table(&self, name: &str) -> PyResult<Input<'_>> {
        match self {
            Given::Gpu(lent) => Ok((&lent.array).into()),
            Given::Blocks(blocks) => Ok(blocks.source().into()),
            Given::Resident(resident) => Ok(resident.get().dataset().into()),
            other => other.input().ok_or_else(|| PyTypeError::new_err(format!("{name} is a number, and no array"))),
        }
    }
}

/// Returns the number that an object is, if it is one. As in NumPy, a number of Python adapts to what it meets; one of
/// NumPy, or an array without dimensions, has a dtype.
fn number(object: &Bound<'_, PyAny>) -> PyResult<Option<Given>> {
    if object.is_exact_instance_of::<PyBool>() {
        return Ok(Some(Given::Number(object.is_truthy()?.into())));
    }
    if object.is_exact_instance_of::<PyInt>() {
        return Ok(Some(Given::Number(object.extract::<i128>()?.into())));
    }
    if object.is_exact_instance_of::<PyFloat>() {
        return Ok(Some(Given::Number(object.extract::<f64>()?.into())));
    }
    let py = object.py();
    let (Ok(dims), Ok(own)) = (object.getattr(pyo3::intern!(py, "ndim")), object.getattr(pyo3::intern!(py, "dtype")))
    else {
        // A member of an enumeration is an integer, too.
        if object.is_instance_of::<PyInt>() {
            return Ok(Some(Given::Number(object.extract::<i128>()?.into())));
        }
        let is_float = object.is_instance_of::<PyFloat>();
        return is_float.then(|| Ok(Given::Number(object.extract::<f64>()?.into()))).transpose();
    };
    if dims.extract::<usize>().is_ok_and(|dims| dims > 0) {
        return Ok(None);
    }
    let name: String = own.getattr(pyo3::intern!(py, "name"))?.extract()?;
    let item = object.call_method0(pyo3::intern!(py, "item"))?;
    Ok(Some(Given::Scalar(dtype::from_python(&item, dtype::of_name(&name)?)?)))
}

pub(crate) fn in_name(py: Python<'_>, name: &str, error: PyErr) -> PyErr {
    PyTypeError::new_err(format!("{name}: {}", error.value(py)))
}

/// Where the rows of an output go, held for the time of a run.
pub(crate) enum Taken {
    Array(Lent),
    Gpu(LentGpuArray),
    File(Option<Output<'static>>),
    /// A new array, once the run has made it.
    New(NewArray),
}

impl Taken {
    pub(crate) fn new(name: &str, object: &Bound<'_, PyAny>, engine: &overshot::Engine) -> PyResult<Taken> {
        if object.is_none() {
            return Ok(Taken::New(NewArray::default()));
        }
        if let Ok(rows) = object.cast::<NewRows>() {
            return Ok(Taken::New(rows.get().array().clone()));
        }
        if let Ok(file) = object.cast::<NewFile>() {
            return Ok(Taken::File(Some(file.get().output()?)));
        }
        if let Ok(array) = object.cast::<GpuArray>() {
            return array.get().lend(object.py(), name, engine, true).map(Taken::Gpu);
        }
        let lent = Lent::new(object).map_err(|error| in_name(object.py(), name, error))?;
        if lent.buffer.readonly() {
            return Err(PyValueError::new_err(format!("{name}: the array is read-only")));
        }
        // Such an array has strides of 0, or was made with `numpy.lib.stride_tricks`.
        if has_overlap(&lent) {
            return Err(PyValueError::new_err(format!("{name}: elements of the array overlap; pass a copy of it")));
        }
        Ok(Taken::Array(lent))
    }

    pub(crate) fn output(&mut self) -> Option<Output<'_>> {
        match self {
            Taken::Array(lent) => Some(lent.output()),
            Taken::Gpu(lent) => Some((&mut lent.array).into()),
            Taken::File(output) => output.take(),
            Taken::New(array) => Some(array.clone().into()),
        }
    }

    /// Returns the new array.
    pub(crate) fn into_new(self) -> Option<Py<PyAny>> {
        match self {
            Taken::New(array) => array.take(),
            Taken::Array(_) | Taken::Gpu(_) | Taken::File(_) => None,
        }
    }
}

/// Returns whether two elements of an array may share memory: along each dimension, from the smallest stride up, the
/// elements of the inner dimensions must end before the next element begins.
fn has_overlap(lent: &Lent) -> bool {
    let mut dims: Vec<(usize, usize)> = lent
        .buffer
        .strides()
        .iter()
        .zip(lent.buffer.shape())
        .filter(|(_, length)| **length > 1)
        .map(|(stride, length)| (stride.unsigned_abs(), *length))
        .collect();
    dims.sort_unstable();
    let mut extent = lent.dtype.size();
    !lent.shape.contains(&0)
        && dims.into_iter().any(|(stride, length)| {
            let overlaps = stride < extent;
            extent += stride * (length - 1);
            overlaps
        })
}
