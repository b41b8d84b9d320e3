//! What is read: the [`Source`] trait and the [`Input`] that a job takes.

use super::shards::Shards;
use super::{Dtype, Memory};
use crate::error::{Error, Result};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Reads row ranges of a dataset. A row is one element.
///
/// A row of dtype `bool` is one byte: 0 is false, every other byte is true.
pub trait Source: Send + Sync {
    /// The type of a row.
    fn dtype(&self) -> Dtype;

    /// How many rows there are. It never changes.
    fn rows(&self) -> u64;

    /// What messages call it: the path of a file, `slice`, …
    fn name(&self) -> String;

    /// Fills `dst`, a whole number of rows in native byte order, with the rows from `first` on. Several threads call
    /// it at once, for any ranges within [`rows`](Source::rows).
    ///
    /// These are threads of the engine, and the caller of [`Engine::run`](crate::Engine::run) waits for them. So `read` must not
    /// wait for the thread that called `run`, nor for a thread pool all of whose threads may have called it: a `read` that uses
    /// rayon never ends if jobs are run from every thread of rayon's global pool.
    ///
    /// # Errors
    /// When the rows cannot be read; `dst` then holds anything.
    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()>;

    /// The whole dataset, if it stands in memory in native byte order, so that it can be used in place.
    fn memory(&self) -> Option<Memory<'_>> {
        None
    }

    /// The lengths of the dimensions, outermost first, if the dataset has any besides its rows: their product is
    /// [`rows`](Source::rows), and a file written from this source takes them over.
    fn shape(&self) -> Option<&[u64]> {
        None
    }

    /// The file behind it, if it is one.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Whether these rows of its [`memory`](Source::memory) are to be used in place. If not, they are better
    /// [`read`](Source::read), as those of a file that is not in the page cache are.
    fn is_cached(&self, _first: u64, _rows: u64) -> bool {
        true
    }

    /// How many bytes it has read from a disk so far, past the page cache.
    fn bytes_read_direct(&self) -> u64 {
        0
    }

    /// Something a user may want to know about how it reads, for the report.
    fn warning(&self) -> Option<String> {
        None
    }
}

impl<S: Source + ?Sized> Source for &S {
    fn dtype(&self) -> Dtype {
        (**self).dtype()
    }

    fn rows(&self) -> u64 {
        (**self).rows()
    }

    fn name(&self) -> String {
        (**self).name()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        (**self).read(first, dst)
    }

    fn memory(&self) -> Option<Memory<'_>> {
        (**self).memory()
    }

    fn shape(&self) -> Option<&[u64]> {
        (**self).shape()
    }

    fn path(&self) -> Option<&Path> {
        (**self).path()
    }

    fn is_cached(&self, first: u64, rows: u64) -> bool {
        (**self).is_cached(first, rows)
    }

    fn bytes_read_direct(&self) -> u64 {
        (**self).bytes_read_direct()
    }

    fn warning(&self) -> Option<String> {
        (**self).warning()
    }
}

/// What a job reads under one name: any [`Source`] or reference to one; a slice, a vector or an array by reference; or a vector or
/// an `Arc<[T]>` that it then owns.
pub struct Input<'a> {
    source: Box<dyn Source + 'a>,
    shards: Option<Arc<Shards>>,
}

impl<'a> Input<'a> {
    /// An input of which some rows lie in the memory of devices.
    pub(crate) fn sharded(source: impl Source + 'a, shards: Arc<Shards>) -> Self {
        Input { source: Box::new(source), shards: Some(shards) }
    }

    /// The source itself.
    pub fn source(&self) -> &(dyn Source + 'a) {
        &*self.source
    }

    /// The rows that lie in the memory of devices.
    pub(crate) fn shards(&self) -> Option<&Arc<Shards>> {
        self.shards.as_ref()
    }

    /// The same input once more.
    pub(crate) fn borrowed(&self) -> Input<'_> {
        Input { source: Box::new(&*self.source), shards: self.shards.clone() }
    }

    /// The same input, of which some rows lie in the memory of devices.
    pub(crate) fn with_shards(&self, shards: Arc<Shards>) -> Input<'_> {
        Input { source: Box::new(&*self.source), shards: Some(shards) }
    }
}

impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Input({}, {} rows of {})", self.source.name(), self.source.rows(), self.source.dtype())
    }
}

// So that the compiler lists slices, vectors and arrays when a type is none of them, and not the trait.
#[diagnostic::do_not_recommend]
impl<'a, S: Source + 'a> From<S> for Input<'a> {
    fn from(source: S) -> Self {
        Input { source: Box::new(source), shards: None }
    }
}

impl<'a> From<Box<dyn Source + 'a>> for Input<'a> {
    fn from(source: Box<dyn Source + 'a>) -> Self {
        Input { source, shards: None }
    }
}

/// The memory of a source, checked: it holds all rows, of so many and of this dtype. Sources may come from outside, so the pipeline
/// asks here.
pub(crate) fn whole_memory(source: &dyn Source, dtype: Dtype, rows: u64) -> Result<Option<Memory<'_>>> {
    let Some(memory) = source.memory() else { return Ok(None) };
    let bytes = memory.bytes();
    let fits = rows.checked_mul(dtype.size() as u64) == Some(bytes.len() as u64);
    let aligned = (bytes.as_ptr() as usize).is_multiple_of(dtype.size());
    if fits && aligned {
        return Ok(Some(memory));
    }
    Err(Error::Job(format!(
        "{}: its Source says {rows} rows of {dtype}, but its memory is {} bytes at {:p}; \
         return memory of all rows, aligned for the dtype, or None",
        source.name(),
        bytes.len(),
        bytes.as_ptr()
    )))
}
