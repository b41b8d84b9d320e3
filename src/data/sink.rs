//! What is written: the [`Sink`] trait, the [`Target`] that becomes one, and the [`Output`] that a job takes.

use super::shards::Shards;
use super::{Dtype, SinkMemory};
use crate::error::{Error, Result};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Receives the rows of one output.
pub trait Sink: Send + Sync {
    /// Writes the rows from `first_row` on: `bytes` are a whole number of rows in native byte order; `bool` rows are 0 or 1.
    /// Called from several threads at once, in any order; every row of the output is written once.
    ///
    /// # Errors
    /// When the rows cannot be written. The run stops then, and [`commit`](Sink::commit) is not called.
    fn write(&self, first_row: u64, bytes: &[u8]) -> Result<()>;

    /// Where all rows stand, in native byte order, if they can be written in place. A chunk is either written there or
    /// given to [`write`](Sink::write).
    fn memory(&self) -> Option<&SinkMemory<'_>> {
        None
    }

    /// Something a user may want to know about how it writes, for the report.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Says that there are only so many rows, the first ones: fewer than it was opened for. Called at most once, after the last
    /// [`write`](Sink::write).
    ///
    /// # Errors
    /// When it cannot have fewer, as those that do not say otherwise.
    fn truncate(&mut self, _rows: u64) -> Result<()> {
        Err(Error::Job("this Sink cannot have fewer rows than it was opened for: implement Sink::truncate".into()))
    }

    /// Whether [`commit`](Sink::commit) would succeed now. Asked of all outputs of a job before the first one is
    /// published.
    ///
    /// # Errors
    /// As [`commit`](Sink::commit).
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Makes the output visible, in a way that dropping it takes back. Asked of all outputs of a job before the first
    /// one is committed, so that a job whose second file cannot be named leaves no first one. Sinks that cannot take it
    /// back do nothing here.
    ///
    /// # Errors
    /// When the output cannot be given its name.
    fn publish(&mut self) -> Result<()> {
        Ok(())
    }

    /// Makes the output visible for good, also if it was not [published](Sink::publish): all rows are written. A file
    /// that is dropped without it leaves no trace; a slice keeps what was written so far.
    ///
    /// # Errors
    /// When the output cannot be given its name.
    fn commit(self: Box<Self>) -> Result<()>;
}

/// Where the rows of an output will stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// In memory.
    Memory,
    /// In pinned memory.
    Pinned,
    /// Elsewhere: they are given to [`Sink::write`].
    Elsewhere,
}

/// A place for an output whose dtype and rows are not known yet.
pub trait Target: Send {
    /// What messages call it: the path of a file, `slice`, …
    fn name(&self) -> String;

    /// The dtype that it asks for, if any.
    fn dtype(&self) -> Option<Dtype> {
        None
    }

    /// Whether values of another dtype are to be cast to [`dtype`](Target::dtype). If not, they must have it.
    fn cast(&self) -> bool {
        false
    }

    /// How many rows it has room for, if that is fixed.
    fn rows(&self) -> Option<u64> {
        None
    }

    /// The file behind it, if it is one.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Whether the sink that it becomes will have [`memory`](Sink::memory): what a plan goes by.
    fn place(&self) -> Placement {
        Placement::Elsewhere
    }

    /// The memory that the rows will stand in, if it is there already, as that of a slice is. If a device finds that it is
    /// pinned, it is used in place as with [`Placement::Pinned`]; the sink's [`memory`](Sink::memory) must be the same then.
    fn memory(&self) -> Option<&[u8]> {
        None
    }

    /// Makes room for `rows` rows of `dtype`. `shape` are the dimensions to record, outermost first, if their product
    /// is `rows` and the format records any.
    ///
    /// # Errors
    /// When the place cannot take the rows: a file that exists, a full disk, a slice of another length. Nothing is left
    /// behind.
    fn open<'s>(self: Box<Self>, dtype: Dtype, rows: u64, shape: Option<&[u64]>) -> Result<Box<dyn Sink + 's>>
    where
        Self: 's;
}

/// What a job writes under one name: any [`Target`], or a mutable slice, vector or array.
pub struct Output<'a> {
    target: Box<dyn Target + 'a>,
    shards: Option<Arc<Shards>>,
}

impl<'a> Output<'a> {
    /// An output of which some rows lie in the memory of devices. Nobody else reads or writes these.
    pub(crate) fn sharded(target: impl Target + 'a, shards: Arc<Shards>) -> Self {
        Output { target: Box::new(target), shards: Some(shards) }
    }

    /// The target itself.
    pub fn target(&self) -> &(dyn Target + 'a) {
        &*self.target
    }

    /// The rows that lie in the memory of devices.
    pub(crate) fn shards(&self) -> Option<&Arc<Shards>> {
        self.shards.as_ref()
    }

    /// Opens the target, see [`Target::open`].
    ///
    /// # Errors
    /// As [`Target::open`].
    pub fn open(self, dtype: Dtype, rows: u64, shape: Option<&[u64]>) -> Result<Box<dyn Sink + 'a>> {
        self.target.open(dtype, rows, shape)
    }
}

impl fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Output({})", self.target.name())
    }
}

// So that the compiler lists slices, vectors and arrays when a type is none of them, and not the trait.
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

/// The rows from `first_row` on that are `bytes`; `None` if these end within a row.
pub(super) fn rows_of(first_row: u64, bytes: &[u8], row_bytes: usize) -> Option<Range<u64>> {
    let rows = (bytes.len() / row_bytes) as u64;
    Some(first_row..first_row.checked_add(rows)?).filter(|_| bytes.len().is_multiple_of(row_bytes))
}

/// The memory of a sink, checked: it holds exactly `rows` rows of `dtype`. Sinks may come from outside, so the pipeline
/// asks here.
pub(crate) fn whole_sink_memory(sink: &dyn Sink, dtype: Dtype, rows: u64) -> Result<Option<&SinkMemory<'_>>> {
    let Some(memory) = sink.memory() else { return Ok(None) };
    if memory.rows() == rows && memory.row_bytes() == dtype.size() {
        return Ok(Some(memory));
    }
    Err(Error::Job(format!(
        "the memory of a Sink is {} rows of {} bytes, not {rows} rows of {dtype}; return memory of all rows, or None",
        memory.rows(),
        memory.row_bytes()
    )))
}

/// Makes all outputs visible, or none: what is published and not committed is taken back when it is dropped.
pub(crate) fn commit_all(mut sinks: Vec<Box<dyn Sink + '_>>) -> Result<()> {
    sinks.iter().try_for_each(|sink| sink.check())?;
    sinks.iter_mut().try_for_each(|sink| sink.publish())?;
    sinks.into_iter().try_for_each(Sink::commit)
}
