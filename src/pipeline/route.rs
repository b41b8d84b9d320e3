//! The route of a chunk: where each of its columns is read, copied and written on one device.
//!
//! A [`Route`] is set once, after the chunk is claimed, and its slot carries it. Later stages do not decide again;
//! they match on the route:
//!
//! | column | host side | device side |
//! | --- | --- | --- |
//! | [`In::Resident`] | none | resident memory |
//! | [`In::Upload`] | the slot, or pinned memory of the source ([`From`]) | the block, or resident memory to fill |
//! | [`Out::Resident`] | none | resident memory |
//! | [`Out::Download`] | the slot, or pinned memory of the sink ([`To`]) | the block |
//!
//! A **slot** is pinned memory of the pipeline for staging; a **block** is device memory for one chunk; **resident**
//! memory holds rows that stay on the device between runs.

use std::mem::ManuallyDrop;

use super::Work;
use super::segments::Sharded;
use crate::data::{Chunk, Claim};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::Layout;

/// The route of one chunk. The vectors are reused for the next chunk of the slot.
pub(super) struct Route<'r, D: Device> {
    pub(super) chunk: Chunk,
    /// In the order of the kernel's inputs.
    pub(super) inputs: Vec<In<'r, D>>,
    /// In the order of the kernel's outputs.
    pub(super) outputs: Vec<Out<'r, D>>,
}

/// A location in device memory that outlives the chunk: the memory, and an offset in bytes.
pub(super) type At<'r, D> = (&'r <D as Device>::Memory, usize);

/// How the kernel gets the rows of an input.
pub(super) enum In<'r, D: Device> {
    /// The rows are resident on the device.
    Resident(At<'r, D>),
    /// The rows are copied: to a resident dataset that this run fills, or, if `to` is `None`, into the block of the
    /// chunk.
    Upload { from: From<'r>, to: Option<At<'r, D>> },
}

/// Where the rows of an output go from the kernel.
pub(super) enum Out<'r, D: Device> {
    /// The rows stay on the device.
    Resident(At<'r, D>),
    /// The rows are copied from the block of the chunk.
    Download(To<'r>),
}

/// The host side of a copy to the device.
pub(super) enum From<'r> {
    /// The slot.
    Staged,
    /// Pinned memory of the source.
    Pinned(&'r [u8]),
}

/// The host side of a copy from the device.
pub(super) enum To<'r> {
    /// The slot.
    Staged,
    /// Pinned memory of the sink. The claim is released when the copy is done. After an error it is forgotten,
    /// because copies enqueued earlier may still write to the memory. If the run goes on, the staging worker ends it
    /// when the streams are gone.
    Pinned(ManuallyDrop<Claim<'r>>),
    /// Pinned memory of the sink to which the copy is done.
    Written,
}

impl<'r, D: Device> Route<'r, D> {
    /// Creates a route without a chunk.
    pub(super) fn new() -> Self {
        Route { chunk: Chunk::new(0, 0..0), inputs: Vec::new(), outputs: Vec::new() }
    }

    /// Sets the route for a chunk. `layout` says which columns the device stages.
    ///
    /// # Errors
    /// [`Error::InvalidColumn`] if rows of an output in pinned memory are in use, because a sink holds a claim on them.
    pub(super) fn set(&mut self, chunk: &Chunk, device: &'r D, layout: &Layout, work: &'r Work<'r>) -> Result<()> {
        self.inputs.clear();
        self.outputs.clear();
        let columns = &work.operator.kernel().columns;
        let on = |sharded: &'r Option<Sharded>, row_bytes: usize| {
            let sharded = sharded.as_ref()?;
            // `Sharded::on` checks row numbers. The rows are inside the memory of the shard only if the row sizes are
            // equal.
            assert_eq!(sharded.row_bytes(), row_bytes, "bytes of a row that stays on a device");
            sharded.on(device, chunk)
        };
        for (column, (&size, input)) in columns.inputs.iter().zip(&work.inputs).enumerate() {
            let at = on(&input.sharded, size);
            let from = || match (layout.in_slot[column], input.pinned) {
                (Some(_), _) => Ok(From::Staged),
                (None, Some(memory)) => {
                    let window = columns.window(column, &chunk.rows());
                    Ok(From::Pinned(&memory[window.start as usize * size..window.end as usize * size]))
                }
                (None, None) => Err(unplanned()),
            };
            self.inputs.push(match at {
                Some(at) if !input.is_filling() => In::Resident(at),
                to => In::Upload { from: from()?, to },
            });
        }
        for (k, (&size, output)) in columns.outputs.iter().zip(&work.outputs).enumerate() {
            let to = || match (layout.in_slot[columns.inputs.len() + k], output.pinned) {
                (Some(_), _) => Ok(To::Staged),
                (None, Some(memory)) => Ok(To::Pinned(ManuallyDrop::new(memory.claim_for_run(output.rows(chunk))?))),
                (None, None) => Err(unplanned()),
            };
            self.outputs.push(match on(&output.sharded, size) {
                Some(at) => Out::Resident(at),
                None => Out::Download(to()?),
            });
        }
        self.chunk = chunk.clone();
        Ok(())
    }

    /// Releases the claims on pinned outputs. No copy of the chunk may be in flight.
    pub(super) fn release(&mut self) {
        for output in &mut self.outputs {
            if let Out::Download(to @ To::Pinned(_)) = output
                && let To::Pinned(claim) = std::mem::replace(to, To::Written)
            {
                drop(ManuallyDrop::into_inner(claim));
            }
        }
    }
}

/// Returns the error for a column that is neither staged nor pinned nor resident. This cannot happen, because the
/// plan and the columns of a run are made from the same facts.
fn unplanned() -> Error {
    Error::Internal("a column is neither staged nor pinned nor resident".into())
}
