//! New arrays of NumPy as the outputs of a job.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use overshot::io::{Parts, Placement, RawArrayMut, SinkMemory, Target};
use overshot::{Dtype, Error, Output, Sink};
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyTuple};

use crate::columns::Lent;
use crate::dtype;

/// A new array, made when its dtype and length are known.
#[derive(Clone, Default)]
pub(crate) struct NewArray {
    array: Arc<Mutex<Option<Py<PyAny>>>>,
    /// The rows that the array has, if it has not all, and the number of all rows of the job.
    part: Option<(Range<u64>, u64)>,
}

/// A new array of the rows of an output that a part of a job computes.
#[pyclass(frozen, module = "overshot._core")]
pub(crate) struct NewRows(NewArray);

#[pymethods]
impl NewRows {
    /// Names rows `first` to `end` of a job of `rows` rows.
    #[new]
    fn new(first: u64, end: u64, rows: u64) -> Self {
        NewRows(NewArray { part: Some((first..end.max(first), rows)), ..NewArray::default() })
    }

    /// Returns the array, once a run has made it.
    fn take(&self) -> Option<Py<PyAny>> {
        self.0.take()
    }
}

impl NewRows {
    pub(crate) fn array(&self) -> &NewArray {
        &self.0
    }
}

impl NewArray {
    pub(crate) fn take(&self) -> Option<Py<PyAny>> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Py<PyAny>>> {
        self.array.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the first element of the array among those of the output, and the shape of the array.
    fn place(&self, rows: u64, shape: &[u64]) -> (u64, Vec<u64>) {
        let Some((part, of)) = &self.part else { return (0, shape.to_vec()) };
        // A kernel may write several elements for a row.
        let elements = rows.checked_div(*of).unwrap_or(1);
        let (first, length) = (part.start * elements, (part.end - part.start) * elements);
        let inner = shape.iter().skip(1).product::<u64>().max(1);
        match first % inner == 0 && length % inner == 0 {
            true => (first, [length / inner].iter().chain(shape.iter().skip(1)).copied().collect()),
            // The rows begin or end within those of the first dimension.
            false => (first, vec![length]),
        }
    }
}

impl Target for NewArray {
    fn name(&self) -> String {
        "new array".into()
    }

    fn place(&self) -> Placement {
        if self.part.is_some() { Placement::Elsewhere } else { Placement::Memory }
    }

    fn can_read_back(&self) -> bool {
        self.part.is_none()
    }

    fn parts(&self) -> Parts<'_> {
        if self.part.is_some() { Parts::InPlace } else { Parts::Refused }
    }

    fn open<'s>(self: Box<Self>, dtype: Dtype, rows: u64, shape: Option<&[u64]>) -> overshot::Result<Box<dyn Sink + 's>>
    where
        Self: 's,
    {
        let (first, shape) = NewArray::place(&self, rows, shape.unwrap_or(&[rows]));
        let lent = Python::attach(|py| {
            let numpy_type = dtype::numpy_type(py, dtype)?;
            let array = py.import("numpy")?.call_method1("empty", (PyTuple::new(py, &shape)?, numpy_type))?;
            // The buffer of an array without dimensions has no shape.
            let lent = Lent::new(&if shape.is_empty() { array.call_method1("reshape", (1,))? } else { array.clone() })?;
            *self.lock() = Some(array.unbind());
            Ok::<_, PyErr>(lent)
        });
        let lent = lent.map_err(Error::other)?;
        let rows = shape.iter().product();
        // SAFETY: nobody else has the new array before the run ends, and `NewSink` keeps its memory as long as the
        // sink.
        let array: RawArrayMut<'static> = unsafe { lent.new_array() };
        let sink = Output::from(array).open(dtype, rows, None)?;
        Ok(Box::new(NewSink { sink, first, array: *self, _lent: lent }))
    }
}

/// The rows of a new array.
struct NewSink {
    sink: Box<dyn Sink>,
    /// The first row of the array.
    first: u64,
    array: NewArray,
    /// Dropped after the sink, which writes to it.
    _lent: Lent,
}

impl Sink for NewSink {
    fn write(&self, first_row: u64, bytes: &[u8]) -> overshot::Result<()> {
        // Rows before the first one become rows beyond the end, which the sink refuses.
        self.sink.write(first_row.wrapping_sub(self.first), bytes)
    }

    fn read_back(&self, offset: u64, to: &mut [u8]) -> overshot::Result<()> {
        self.sink.read_back(offset, to)
    }

    fn memory(&self) -> Option<&SinkMemory<'_>> {
        match self.array.part {
            None => self.sink.memory(),
            Some(_) => None,
        }
    }

    /// The array becomes a view of its first rows. The pages behind them were never written, so they take no memory.
    fn truncate(&mut self, rows: u64) -> overshot::Result<()> {
        Python::attach(|py| {
            let mut array = self.array.lock();
            if let Some(whole) = array.take() {
                let whole = whole.bind(py);
                // The first dimension is the number of rows.
                let shape: Vec<u64> = whole.getattr("shape")?.extract()?;
                let kept = rows.checked_div(shape.iter().skip(1).product()).unwrap_or(0);
                *array = Some(whole.get_item(PySlice::new(py, 0, kept as isize, 1))?.unbind());
            }
            Ok::<_, PyErr>(())
        })
        .map_err(Error::other)?;
        self.sink.truncate(rows)
    }

    fn commit(self: Box<Self>) -> overshot::Result<()> {
        self.sink.commit()
    }
}
