//! Outputs that are encoded: the columns of a new Parquet file, or the arrays of a new Zarr store.
//!
//! Each output has a sink of its own. All sinks of a file share it, and the first one that is checked, published or
//! committed does so for all. Each thread that writes encodes what it has completed.

use super::grains::Grains;
use super::new_file::{misfit, unequal};
use super::sink::rows_of;
use super::{Dtype, Sink};
use crate::error::{Error, Result};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// A new file, or a new folder, that encoded rows are written to. Dropping it leaves nothing behind.
pub(super) trait Container: Send + Sync {
    /// Returns the path as given by the user.
    fn path(&self) -> &Path;

    /// Writes the rows of a grain of an output. Several threads call this, in any order.
    fn encode(&self, output: usize, grain: u64, rows: &[u8]) -> Result<()>;

    /// Writes what describes the outputs, which have so many rows, all of which are written.
    fn describe(&self, rows: &[u64]) -> Result<()>;

    /// Returns a note for the report.
    fn warning(&self) -> Option<String>;

    /// Checks whether it can be given its name.
    fn check(&self) -> Result<()>;

    /// Gives it its name, until it is dropped.
    fn publish(&mut self) -> Result<()>;

    /// Gives it its name permanently.
    fn commit(self) -> Result<()>;
}

/// An output that is to be encoded.
pub(super) struct NewOutput {
    pub name: String,
    pub dtype: Dtype,
    /// The elements of all rows.
    pub rows: u64,
    /// The elements of a grain.
    pub grain: u64,
    /// Whether the outputs of the same container have the same number of rows.
    pub is_column: bool,
}

struct Shared<C> {
    outputs: Vec<(NewOutput, Grains)>,
    /// `None` after the commit.
    container: RwLock<Option<C>>,
    state: Mutex<State>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// All rows and what describes them are written.
    Complete,
    /// They could not be: what is there has no name, and gets none.
    Failed,
}

struct EncodedSink<C> {
    shared: Arc<Shared<C>>,
    own: usize,
}

/// Returns a sink for each output of a new container.
pub(super) fn sinks<C: Container + 'static>(container: C, outputs: Vec<NewOutput>) -> Vec<Box<dyn Sink>> {
    let with_grains = |output: NewOutput| {
        let grains = Grains::new(output.rows, output.grain, output.dtype.size());
        (output, grains)
    };
    let outputs: Vec<_> = outputs.into_iter().map(with_grains).collect();
    let count = outputs.len();
    let shared = Arc::new(Shared { outputs, container: RwLock::new(Some(container)), state: Mutex::new(State::Open) });
    (0..count).map(|own| Box::new(EncodedSink { shared: shared.clone(), own }) as Box<dyn Sink>).collect()
}

/// Returns the error for rows that are missing.
pub(super) fn not_written(path: &Path) -> Error {
    Error::file(path, "rows were not written", "this is a bug in the caller of Sink::write")
}

impl<C: Container> Shared<C> {
    /// Does something with the container, unless it is committed.
    fn with<T: Default>(&self, does: impl FnOnce(&C) -> Result<T>) -> Result<T> {
        let container = self.container.read().unwrap_or_else(PoisonError::into_inner);
        container.as_ref().map_or_else(|| Ok(T::default()), does)
    }

    /// Writes what the outputs lack when all rows are written. Later calls do nothing.
    fn complete(&self) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *state == State::Complete {
            return Ok(());
        }
        let was = std::mem::replace(&mut *state, State::Failed);
        self.with(|container| {
            if was == State::Failed {
                return Err(not_written(container.path()));
            }
            let rows: Vec<u64> = self.outputs.iter().map(|(_, grains)| grains.rows()).collect();
            let first = &self.outputs[0].0;
            for (number, ((output, grains), own)) in self.outputs.iter().zip(&rows).enumerate() {
                if output.is_column && *own != rows[0] {
                    return Err(unequal(container.path(), &first.name, rows[0], &output.name, *own));
                }
                if !grains.finish(|grain, bytes| container.encode(number, grain, bytes))? {
                    return Err(not_written(container.path()));
                }
            }
            container.describe(&rows)
        })?;
        *state = State::Complete;
        Ok(())
    }
}

impl<C: Container> Sink for EncodedSink<C> {
    fn write(&self, first_row: u64, bytes: &[u8]) -> Result<()> {
        let (output, grains) = &self.shared.outputs[self.own];
        self.shared.with(|container| {
            let rows = rows_of(first_row, bytes, output.dtype.size()).filter(|rows| rows.end <= output.rows);
            let rows = rows.ok_or_else(|| misfit(container.path(), first_row, bytes))?;
            grains.write(rows, bytes, |grain, bytes| container.encode(self.own, grain, bytes))
        })
    }

    fn warning(&self) -> Option<String> {
        // One for the container is enough.
        self.shared.with(|container| Ok(container.warning())).ok().flatten().filter(|_| self.own == 0)
    }

    fn truncate(&mut self, rows: u64) -> Result<()> {
        self.shared.outputs[self.own].1.truncate(rows);
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.shared.complete()?;
        self.shared.with(Container::check)
    }

    fn publish(&mut self) -> Result<()> {
        self.shared.complete()?;
        let mut container = self.shared.container.write().unwrap_or_else(PoisonError::into_inner);
        container.as_mut().map_or(Ok(()), Container::publish)
    }

    fn commit(mut self: Box<Self>) -> Result<()> {
        self.publish()?;
        let container = self.shared.container.write().unwrap_or_else(PoisonError::into_inner).take();
        container.map_or(Ok(()), Container::commit)
    }
}
