//! Inputs: the [`Source`] trait, and the [`Input`] that a job takes.

use super::shards::Shards;
use super::{Bounds, Dtype, Memory};
use crate::error::{ColumnError, Result};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A dataset that a job reads by ranges of rows. A row is one element.
///
/// A row of dtype `bool` is one byte: 0 is false, every other value is true.
///
/// ```
/// use overshot::{Dtype, Engine, Job, Result, Source};
///
/// /// The numbers 0 to 999.
/// struct Numbers;
///
/// impl Source for Numbers {
///     fn dtype(&self) -> Dtype {
///         Dtype::U64
///     }
///     fn rows(&self) -> u64 {
///         1000
///     }
///     fn name(&self) -> String {
///         "numbers".into()
///     }
///     fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
///         for (number, row) in (first..).zip(dst.chunks_exact_mut(8)) {
///             row.copy_from_slice(&number.to_ne_bytes());
///         }
///         Ok(())
///     }
/// }
///
/// let engine = Engine::builder().build()?;
/// let report = engine.run(Job::eval("max(x)")?.input("x", Numbers))?;
/// assert_eq!(report.value("max(x)")?.map(|v| v.as_f64()), Some(999.0));
/// # Ok::<(), overshot::Error>(())
/// ```
pub trait Source: Send + Sync {
    /// Returns the dtype of the rows.
    fn dtype(&self) -> Dtype;

    /// Returns the number of rows. It must never change.
    fn rows(&self) -> u64;

    /// Returns the name used in messages: the path of a file, `slice`, …
    fn name(&self) -> String;

    /// Fills `dst` with the rows that start at row `first`. `dst` is a whole number of rows in native byte order.
    /// Several threads call this method concurrently, for any ranges within [`rows`](Source::rows).
    ///
    /// The callers are threads of the engine, and the caller of [`Engine::run`](crate::Engine::run) waits for them.
    /// Therefore `read` must not wait for the thread that called `run`, nor for a thread pool whose threads may all
    /// have called `run`: a `read` that uses rayon deadlocks if every thread of rayon's global pool runs a job.
    ///
    /// # Errors
    /// Returns an error if the rows cannot be read. The content of `dst` is then unspecified.
    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()>;

    /// Returns the whole dataset, if it is in memory in native byte order, so that it can be used in place.
    fn memory(&self) -> Option<Memory<'_>> {
        None
    }

    /// Returns `rows` rows from row `first` on, if these are adjacent in memory in native byte order, so that they can
    /// be used in place. A dataset of several pieces has no [`memory`](Source::memory) of all rows.
    fn piece(&self, first: u64, rows: u64) -> Option<Memory<'_>> {
        self.memory()?.part(first, rows, self.dtype())
    }

    /// Returns the first rows of the **grains** of the dataset, in ascending order, from row 0 on. A grain is a part
    /// that is decoded from its first row on, such as a row group of a Parquet file, so that it takes long to begin in
    /// the middle of one. A run lets one worker read all rows of a grain, in order, where it can. Empty if reads may
    /// begin anywhere.
    fn grains(&self) -> &[u64] {
        &[]
    }

    /// Returns whether reads decode, so that they take time of a core. A run then reads with all cores. By default,
    /// those of a dataset with [`grains`](Source::grains) do.
    fn decodes(&self) -> bool {
        !self.grains().is_empty()
    }

    /// Returns the most bytes of memory in which the source keeps rows that it has decoded, or has read before they are
    /// needed, if it knows that; otherwise 0. Plans show them.
    fn decode_memory(&self) -> u64 {
        0
    }

    /// Returns bounds of the values of rows, in ascending order of the rows, where they are known before the rows are
    /// read: the statistics of a file, for example. Rows on whose values within these bounds no result of a job depends
    /// are not read, such as those that a filter cannot keep. Wrong bounds give wrong results. Called at the begin of
    /// each run with a condition on the values.
    ///
    /// # Errors
    /// Returns an error if the bounds cannot be read.
    fn bounds(&self) -> Result<Vec<Bounds>> {
        Ok(vec![])
    }

    /// Returns the lengths of the dimensions, outermost first, if the dataset has dimensions. Their product is
    /// [`rows`](Source::rows). A file that is written from this source gets the same dimensions.
    fn shape(&self) -> Option<&[u64]> {
        None
    }

    /// Returns the path by which messages and reports name the source, if it reads files: that of a file, or the name
    /// of a folder or a pattern that stands for several.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Returns the paths of all files that the source reads. No output of a job may be one of them.
    fn files(&self) -> Vec<&Path> {
        self.path().into_iter().collect()
    }

    /// Returns a text that tells the values of this dataset from those of all others, if there is one: a name with a
    /// version, for example. [`Partial`](crate::Partial)s of the same job have inputs with the same text; if there is
    /// none, they compare samples of the rows. Equal texts for different values give wrong results.
    fn identity(&self) -> Option<&str> {
        None
    }

    /// Returns a text that tells these rows from others that are read of the same files: the name of a column, or a
    /// value in the place of nulls. Empty if the files alone say which rows they are.
    fn variant(&self) -> String {
        String::new()
    }

    /// Returns whether these rows of [`memory`](Source::memory) or [`piece`](Source::piece) should be used in place. If
    /// not, they are [`read`](Source::read), which is faster for mapped rows that are not in the page cache.
    fn is_cached(&self, _first: u64, _rows: u64) -> bool {
        true
    }

    /// Returns the number of bytes read from a disk with direct I/O so far.
    fn bytes_read_direct(&self) -> u64 {
        0
    }

    /// Returns a number that is another one after the rows have changed; `None` if the source cannot tell. A run asks
    /// at its begin and at its end, and is an error if the answers differ. Files combine their length and the time of
    /// their last change.
    fn version(&self) -> Option<u128> {
        None
    }

    /// Returns a note for the report about how the source reads.
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

    fn piece(&self, first: u64, rows: u64) -> Option<Memory<'_>> {
        (**self).piece(first, rows)
    }

    fn grains(&self) -> &[u64] {
        (**self).grains()
    }

    fn decodes(&self) -> bool {
        (**self).decodes()
    }

    fn decode_memory(&self) -> u64 {
        (**self).decode_memory()
    }

    fn bounds(&self) -> Result<Vec<Bounds>> {
        (**self).bounds()
    }

    fn shape(&self) -> Option<&[u64]> {
        (**self).shape()
    }

    fn path(&self) -> Option<&Path> {
        (**self).path()
    }

    fn files(&self) -> Vec<&Path> {
        (**self).files()
    }

    fn identity(&self) -> Option<&str> {
        (**self).identity()
    }

    fn variant(&self) -> String {
        (**self).variant()
    }

    fn is_cached(&self, first: u64, rows: u64) -> bool {
        (**self).is_cached(first, rows)
    }

    fn bytes_read_direct(&self) -> u64 {
        (**self).bytes_read_direct()
    }

    fn version(&self) -> Option<u128> {
        (**self).version()
    }

    fn warning(&self) -> Option<String> {
        (**self).warning()
    }
}

/// An input of a job.
///
/// It is made from any [`Source`] or a reference to one; from a slice, a vector or an array by reference; or from a
/// vector or an `Arc<[T]>`, which it then owns.
///
/// ```
/// use overshot::Input;
/// let borrowed = [1.0f32, 2.0];
/// assert_eq!(Input::from(&borrowed).source().rows(), 2);
/// let owned: Input<'static> = Input::from(vec![1u8, 2, 3]);
/// assert_eq!(owned.source().rows(), 3);
/// ```
pub struct Input<'a> {
    source: Box<dyn Source + 'a>,
    shards: Option<Arc<Shards>>,
}

impl<'a> Input<'a> {
    /// An input, some rows of which are in device memory.
    pub(crate) fn sharded(source: impl Source + 'a, shards: Arc<Shards>) -> Self {
        Input { source: Box::new(source), shards: Some(shards) }
    }

    /// Returns the source.
    pub fn source(&self) -> &(dyn Source + 'a) {
        &*self.source
    }

    /// Returns the rows that are in device memory.
    pub(crate) fn shards(&self) -> Option<&Arc<Shards>> {
        self.shards.as_ref()
    }

    /// Returns an input that borrows this one.
    pub(crate) fn borrowed(&self) -> Input<'_> {
        Input { source: Box::new(&*self.source), shards: self.shards.clone() }
    }

    /// Returns an input that borrows this one, some rows of which are in device memory.
    pub(crate) fn with_shards(&self, shards: Arc<Shards>) -> Input<'_> {
        Input { source: Box::new(&*self.source), shards: Some(shards) }
    }
}

impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Input({}, {} rows of {})", self.source.name(), self.source.rows(), self.source.dtype())
    }
}

// With this, the compiler lists slices, vectors and arrays as candidates for a wrong type, and not the trait.
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

/// Returns the memory of a source after checking that it holds exactly `rows` rows of `dtype`. Callers implement
/// sources, so the pipeline does not trust them.
pub(crate) fn whole_memory(source: &dyn Source, dtype: Dtype, rows: u64) -> Result<Option<Memory<'_>>> {
    source.memory().map(|memory| checked(memory, source, dtype, rows)).transpose()
}

/// Returns the memory of `rows` rows from row `first` on, after checking that it holds exactly these; `None` if they
/// are not adjacent in memory.
pub(crate) fn piece_of(source: &dyn Source, dtype: Dtype, first: u64, rows: u64) -> Result<Option<Memory<'_>>> {
    source.piece(first, rows).map(|memory| checked(memory, source, dtype, rows)).transpose()
}

fn checked<'a>(memory: Memory<'a>, source: &dyn Source, dtype: Dtype, rows: u64) -> Result<Memory<'a>> {
    let bytes = memory.bytes();
    let fits = rows.checked_mul(dtype.size() as u64) == Some(bytes.len() as u64);
    let aligned = (bytes.as_ptr() as usize).is_multiple_of(dtype.size());
    if fits && aligned {
        return Ok(memory);
    }
    let (column, dtype) = (source.name(), dtype.to_string());
    let (bytes, address) = (bytes.len(), bytes.as_ptr() as usize);
    Err(ColumnError::SourceMemory { column, rows, dtype, bytes, address }.into())
}
