//! Outputs: the [`Sink`] trait, the [`Target`] that opens one, and the [`Output`] that a job takes.

use super::shards::Shards;
use super::{Dtype, NewFile, SinkMemory};
use crate::error::{ColumnError, Error, Result};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Receives the rows of one output. A job opens it from a [`Target`], which has an example.
pub trait Sink: Send + Sync {
    /// Writes the rows that start at row `first_row`. `bytes` is a whole number of rows in native byte order;
    /// `bool` rows are 0 or 1. Several threads call this method concurrently and in any order. Every row of the
    /// output is written once; if a device is lost and the run begins anew, rows are written again, with the same
    /// bytes.
    ///
    /// # Errors
    /// Returns an error if the rows cannot be written. The run then stops, and [`commit`](Sink::commit) is not
    /// called.
    fn write(&self, first_row: u64, bytes: &[u8]) -> Result<()>;

    /// Returns the memory of all rows, in native byte order, if they can be written in place. Each chunk is either
    /// written there or passed to [`write`](Sink::write).
    fn memory(&self) -> Option<&SinkMemory<'_>> {
        None
    }

    /// Returns a note for the report about how the sink writes.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Reduces the output to its first `rows` rows, fewer than it was opened for. Called at most once, after the
    /// last [`write`](Sink::write).
    ///
    /// # Errors
    /// Returns an error if the sink does not support fewer rows, which is the default.
    fn truncate(&mut self, _rows: u64) -> Result<()> {
        Err(ColumnError::CannotTruncate.into())
    }

    /// Returns the bytes that the output stores before its rows, such as the header of a file.
    fn header_bytes(&self) -> u64 {
        0
    }

    /// Returns the bytes that the output stores behind its rows, such as the directory of a file.
    fn trailer_bytes(&self) -> u64 {
        0
    }

    /// Reads bytes that the output stores, from byte `offset` on: first the [header](Sink::header_bytes), then the
    /// rows, then the [trailer](Sink::trailer_bytes). Called after the last [`write`](Sink::write) and before
    /// [`publish`](Sink::publish), by several threads concurrently, and only if the target says that it
    /// [can be read back](Target::can_read_back). `offset` and the length of `to` are multiples of 8 unless `to` holds
    /// the end.
    ///
    /// # Errors
    /// Returns an error if the bytes cannot be read. The default is that they cannot.
    fn read_back(&self, _offset: u64, _to: &mut [u8]) -> Result<()> {
        Err(ColumnError::CannotReadBack.into())
    }

    /// Checks whether [`commit`](Sink::commit) would succeed now. A job calls this for all outputs before it
    /// publishes the first one.
    ///
    /// # Errors
    /// Returns the same errors as [`commit`](Sink::commit).
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Makes the output visible, in a way that dropping the sink undoes. A job calls this for all outputs before it
    /// commits the first one, so that it leaves no first file if the second one cannot be named. Sinks that cannot
    /// undo it do nothing here.
    ///
    /// # Errors
    /// Returns an error if the output cannot be given its name.
    fn publish(&mut self) -> Result<()> {
        Ok(())
    }

    /// Makes the output visible permanently, even if it was not [published](Sink::publish). All rows have been
    /// written. A file that is dropped without a commit leaves no trace; a slice keeps the rows written so far.
    ///
    /// # Errors
    /// Returns an error if the output cannot be given its name.
    fn commit(self: Box<Self>) -> Result<()>;
}

/// Where the rows of an output will be stored.
///
/// ```
/// use overshot::{Output, io::Placement};
/// let mut y = [0.0; 8];
/// assert_eq!(Output::from(&mut y).target().place(), Placement::Memory);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// In memory.
    Memory,
    /// In pinned memory.
    Pinned,
    /// Elsewhere: the rows are passed to [`Sink::write`].
    Elsewhere,
}

/// How the rows of an output are stored if several processes each run some rows of the job.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Parts<'t> {
    /// They cannot be.
    Refused,
    /// Each run opens the target, and its sink gets the rows of that run only. All runs together write all rows.
    InPlace,
    /// All processes write to one file, which gets its name when their partials are merged.
    File(&'t NewFile),
}

/// The destination of an output, before its dtype and number of rows are known.
///
/// ```
/// use overshot::io::Target;
/// use overshot::{Dtype, Engine, Job, Result, Sink};
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// /// Counts the bytes of an output.
/// struct Counter<'a>(&'a AtomicUsize);
///
/// impl Target for Counter<'_> {
///     fn name(&self) -> String {
///         "counter".into()
///     }
///     fn open<'s>(self: Box<Self>, _: Dtype, _: u64, _: Option<&[u64]>) -> Result<Box<dyn Sink + 's>>
///     where
///         Self: 's,
///     {
///         Ok(self)
///     }
/// }
///
/// impl Sink for Counter<'_> {
///     fn write(&self, _: u64, bytes: &[u8]) -> Result<()> {
///         self.0.fetch_add(bytes.len(), Ordering::Relaxed);
///         Ok(())
///     }
///     fn commit(self: Box<Self>) -> Result<()> {
///         Ok(())
///     }
/// }
///
/// let bytes = AtomicUsize::new(0);
/// let engine = Engine::builder().build()?;
/// engine.run(Job::eval("y = x + 1")?.input("x", &[1.0f64, 2.0]).output("y", Counter(&bytes)))?;
/// assert_eq!(bytes.into_inner(), 16);
/// # Ok::<(), overshot::Error>(())
/// ```
pub trait Target: Send {
    /// Returns the name used in messages: the path of a file, `slice`, …
    fn name(&self) -> String;

    /// Tells the target the name of the output that it is of a job. A table has a column of that name. The default does
    /// nothing.
    fn set_output(&mut self, _name: &str) {}

    /// Returns the dtype that the target requires, if any.
    fn dtype(&self) -> Option<Dtype> {
        None
    }

    /// Returns whether values of another dtype are cast to [`dtype`](Target::dtype). If not, they must have that
    /// dtype.
    fn cast(&self) -> bool {
        false
    }

    /// Returns the number of rows that the target has room for, if that is fixed.
    fn rows(&self) -> Option<u64> {
        None
    }

    /// Returns the path of the file, if the target is a file.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Returns whether the opened sink will have [`memory`](Sink::memory). The plan depends on this.
    fn place(&self) -> Placement {
        Placement::Elsewhere
    }

    /// Returns the memory that the rows will be stored in, if it exists already, as for a slice. If a device
    /// reports that it is pinned, it is used in place as with [`Placement::Pinned`]; the [`memory`](Sink::memory)
    /// of the sink must then be the same.
    fn memory(&self) -> Option<&[u8]> {
        None
    }

    /// Returns whether [`Sink::read_back`] works, which [checksums](crate::Job::checksum) need.
    fn can_read_back(&self) -> bool {
        false
    }

    /// Returns the bytes of the rows that are encoded as a whole, of `rows` rows of `dtype` that have this shape; 0 if
    /// rows are stored as they are. The plan has the memory in which such rows are put together.
    ///
    /// # Errors
    /// Returns an error if the rows cannot be encoded as the target says.
    fn grain_bytes(&self, _dtype: Dtype, _rows: u64, _shape: Option<&[u64]>) -> Result<u64> {
        Ok(0)
    }

    /// Returns the target, if it is a file that may have other outputs, too.
    #[doc(hidden)]
    fn new_file(&self) -> Option<&NewFile> {
        None
    }

    /// Returns how the rows are stored by [`Engine::run_rows`](crate::Engine::run_rows).
    fn parts(&self) -> Parts<'_> {
        Parts::Refused
    }

    /// Makes room for `rows` rows of `dtype`. `shape` is the dimensions to record, outermost first, if their
    /// product is `rows` and the format records dimensions.
    ///
    /// # Errors
    /// Returns an error if the target cannot take the rows: the file exists, the disk is full, or the slice has
    /// another length. Nothing is left behind.
    fn open<'s>(self: Box<Self>, dtype: Dtype, rows: u64, shape: Option<&[u64]>) -> Result<Box<dyn Sink + 's>>
    where
        Self: 's;
}

/// An output of a job: any [`Target`], or a mutable slice, vector or array.
///
/// ```
/// use overshot::Output;
/// let mut y = vec![0.0f32; 8];
/// assert_eq!(Output::from(&mut y).target().rows(), Some(8));
/// ```
pub struct Output<'a> {
    target: Box<dyn Target + 'a>,
    shards: Option<Arc<Shards>>,
}

impl<'a> Output<'a> {
    /// An output, some rows of which are in device memory. Only the run reads or writes these rows.
    pub(crate) fn sharded(target: impl Target + 'a, shards: Arc<Shards>) -> Self {
        Output { target: Box::new(target), shards: Some(shards) }
    }

    /// Returns the target.
    pub fn target(&self) -> &(dyn Target + 'a) {
        &*self.target
    }

    /// Makes this the output `name` of a job.
    pub(crate) fn named(mut self, name: &str) -> Self {
        self.target.set_output(name);
        self
    }

    /// Returns the rows that are in device memory.
    pub(crate) fn shards(&self) -> Option<&Arc<Shards>> {
        self.shards.as_ref()
    }

    /// Opens the target; see [`Target::open`].
    ///
    /// # Errors
    /// Returns the same errors as [`Target::open`].
    pub fn open(self, dtype: Dtype, rows: u64, shape: Option<&[u64]>) -> Result<Box<dyn Sink + 'a>> {
        self.target.open(dtype, rows, shape)
    }
}

impl fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Output({})", self.target.name())
    }
}

// With this, the compiler lists slices, vectors and arrays as candidates for a wrong type, and not the trait.
#[diagnostic::do_not_recommend]
impl<'a, T: Target + 'a> From<T> for Output<'a> {
    fn from(target: T) -> Self {
        Output { target: Box::new(target), shards: None }
    }
}

impl<'a> From<Box<dyn Target + 'a>> for Output<'a> {
    fn from(target: Box<dyn Target + 'a>) -> Self {
        Output { target, shards: None }
    }
}

/// Returns the range of the rows that `bytes` holds, from `first_row` on. Returns `None` if `bytes` is not a whole
/// number of rows.
pub(super) fn rows_of(first_row: u64, bytes: &[u8], row_bytes: usize) -> Option<Range<u64>> {
    let rows = (bytes.len() / row_bytes) as u64;
    Some(first_row..first_row.checked_add(rows)?).filter(|_| bytes.len().is_multiple_of(row_bytes))
}

/// Returns the range of the rows that are to be read to `dst`, of a dataset of `own_rows` rows with this name.
///
/// # Errors
/// [`Error::InvalidColumn`](crate::Error::InvalidColumn) if it has fewer, or `dst` is not a whole number of rows.
pub(super) fn wanted_rows(
    first: u64,
    dst: &[u8],
    row_bytes: usize,
    own_rows: u64,
    name: impl FnOnce() -> String,
) -> Result<Range<u64>> {
    rows_of(first, dst, row_bytes).filter(|wanted| wanted.end <= own_rows).ok_or_else(|| {
        let rows = (dst.len() / row_bytes) as u64;
        ColumnError::ReadBeyondEnd { column: name(), first, rows, own_rows }.into()
    })
}

/// Checks that a target of a fixed dtype and size, its `own`, is opened for these rows.
///
/// # Errors
/// [`Error::InvalidColumn`](crate::Error::InvalidColumn) if it is not.
pub(crate) fn check_fit(column: &str, (own, own_rows): (Dtype, u64), (dtype, rows): (Dtype, u64)) -> Result<()> {
    let column = column.to_owned();
    if own != dtype {
        return Err(ColumnError::TargetDtype { column, own: own.to_string(), dtype: dtype.to_string() }.into());
    }
    if own_rows != rows {
        return Err(ColumnError::TargetRows { column, own_rows, rows }.into());
    }
    Ok(())
}

/// Returns the error for bytes that are not whole free rows of an output.
pub(crate) fn does_not_fit(column: &str, first: u64, bytes: &[u8]) -> Error {
    ColumnError::WriteDoesNotFit { column: column.into(), first, bytes: bytes.len() }.into()
}

/// Returns the memory of a sink after checking that it holds exactly `rows` rows of `dtype`. Callers implement
/// sinks, so the pipeline does not trust them.
pub(crate) fn whole_sink_memory(sink: &dyn Sink, dtype: Dtype, rows: u64) -> Result<Option<&SinkMemory<'_>>> {
    let Some(memory) = sink.memory() else { return Ok(None) };
    if memory.rows() == rows && memory.row_bytes() == dtype.size() {
        return Ok(Some(memory));
    }
    let (own_rows, row_bytes, dtype) = (memory.rows(), memory.row_bytes(), dtype.to_string());
    Err(ColumnError::SinkMemory { own_rows, row_bytes, rows, dtype }.into())
}

/// Makes all outputs visible, or none: dropping a sink that is published and not committed undoes its publication.
///
/// # Errors
/// Those of [`Sink::check`], [`Sink::publish`] and [`Sink::commit`].
pub fn commit_all(mut sinks: Vec<Box<dyn Sink + '_>>) -> Result<()> {
    sinks.iter().try_for_each(|sink| sink.check())?;
    sinks.iter_mut().try_for_each(|sink| sink.publish())?;
    // All have their names now. An error of one must not take away those of the others.
    let committed: Vec<Result<()>> = sinks.into_iter().map(Sink::commit).collect();
    committed.into_iter().collect()
}
