//! Datasets of which this process has some rows only.

use std::ops::Range;

use overshot::Dtype;
use overshot::io;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::columns::Lent;
use crate::dtype;
use crate::error::exception;

/// Arrays, each with the number of its first element.
type Arrays = Vec<(u64, Py<PyAny>)>;

/// A dataset of which this process has some rows only, in arrays.
#[pyclass(frozen, module = "overshot._core")]
pub(crate) struct Blocks {
    dtype: Dtype,
    shape: Vec<u64>,
    identity: String,
    blocks: Arrays,
}

#[pymethods]
impl Blocks {
    /// Creates a dataset of a dtype, a shape and an identity; each block is the number of its first element and an
    /// array.
    #[new]
    #[pyo3(signature = (dtype, shape, identity, blocks=vec![]))]
    fn new(dtype: &str, shape: Vec<u64>, identity: String, blocks: Arrays) -> PyResult<Self> {
        Ok(Blocks { dtype: dtype::of_name(dtype)?, shape, identity, blocks })
    }

    /// Returns the same dataset with these blocks.
    fn with_blocks(&self, blocks: Arrays) -> Blocks {
        Blocks { dtype: self.dtype, shape: self.shape.clone(), identity: self.identity.clone(), blocks }
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// What pickle passes to `__new__`.
    fn __getnewargs__(&self, py: Python<'_>) -> (&'static str, Vec<u64>, String, Arrays) {
        let blocks = self.blocks.iter().map(|(first, array)| (*first, array.clone_ref(py))).collect();
        (dtype::numpy_name(self.dtype), self.shape.clone(), self.identity.clone(), blocks)
    }
}

impl Blocks {
    /// Borrows the memory of all blocks.
    pub(crate) fn lend(&self, py: Python<'_>) -> PyResult<LentBlocks> {
        let mut lent = Vec::with_capacity(self.blocks.len());
        let mut blocks = io::Blocks::new(self.dtype, &self.shape, self.identity.clone());
        for (first, array) in &self.blocks {
            let block = Lent::new(array.bind(py))?;
            // SAFETY: the field `lent` is dropped after the blocks.
            blocks = blocks.block(*first, unsafe { block.array() }).map_err(exception)?;
            lent.push(block);
        }
        Ok(LentBlocks { blocks, lent })
    }
}

/// Blocks whose memory Python keeps as long as this exists.
pub(crate) struct LentBlocks {
    blocks: io::Blocks<'static>,
    lent: Vec<Lent>,
}

impl LentBlocks {
    pub(crate) fn source(&self) -> &io::Blocks<'static> {
        &self.blocks
    }

    /// Returns the addresses of each block.
    pub(crate) fn extents(&self) -> Vec<Range<usize>> {
        self.lent.iter().map(Lent::extent).collect()
    }
}
