//! What becomes of every column of one chunk on one device: decided once, when the chunk is claimed, and carried by its slot.

use std::mem::ManuallyDrop;

use super::Work;
use super::segments::Sharded;
use crate::data::{Chunk, Claim};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::Layout;

/// The route of one chunk. The vectors are used again for the next chunk of the slot.
pub(super) struct Route<'r, D: Device> {
    pub(super) chunk: Chunk,
    /// In the order of the kernel's inputs.
    pub(super) inputs: Vec<In<'r, D>>,
    /// In the order of the kernel's outputs.
    pub(super) outputs: Vec<Out<'r, D>>,
}

/// A place in memory of the device that outlives the chunk: the memory, and the offset in bytes.
pub(super) type At<'r, D> = (&'r <D as Device>::Memory, usize);

/// How the rows of an input get to the kernel.
pub(super) enum In<'r, D: Device> {
    /// They lie on the device.
    Resident(At<'r, D>),
    /// They are copied: to a resident dataset that this run fills, or else into the chunk's block.
    Upload { from: From<'r>, to: Option<At<'r, D>> },
}

/// Where the rows of an output go from the kernel.
pub(super) enum Out<'r, D: Device> {
    /// They stay on the device.
    Resident(At<'r, D>),
    /// They are copied from the chunk's block.
    Download(To<'r>),
}

/// The host's side of a copy to the device.
pub(super) enum From<'r> {
    /// The slot.
    Staged,
    /// Pinned memory of the source.
    Pinned(&'r [u8]),
}

/// The host's side of a copy from the device.
pub(super) enum To<'r> {
    /// The slot.
    Staged,
    /// Pinned memory of the sink. The claim is given back when the copy is done and never on an error, since copies that were
    /// enqueued before may still write there.
    Pinned(ManuallyDrop<Claim<'r>>),
    /// Pinned memory of the sink, which has the rows by now.
    Written,
}

impl<'r, D: Device> Route<'r, D> {
    /// A route without a chunk.
    pub(super) fn new() -> Self {
        Route { chunk: Chunk::new(0, 0..0), inputs: Vec::new(), outputs: Vec::new() }
    }

    /// Makes this the route of a chunk, on a device that stages columns as `layout` says.
    ///
    /// # Errors
    /// [`Error::Job`] if rows of an output in pinned memory are in use, by a sink that holds a claim on them.
    pub(super) fn set(&mut self, chunk: &Chunk, device: &'r D, layout: &Layout, work: &'r Work<'r>) -> Result<()> {
        self.inputs.clear();
        self.outputs.clear();
        let columns = &work.operator.kernel().columns;
        let (rows, first) = (chunk.len(), chunk.rows().start);
        let on = |sharded: &'r Option<Sharded>, row_bytes: usize| {
            let sharded = sharded.as_ref()?;
            // Rows of a chunk that lie in a shard are inside its memory if they are as large as its rows.
            assert_eq!(sharded.row_bytes(), row_bytes, "bytes of a row that stays on a device");
            sharded.on(device, chunk)
        };
        for (column, (&size, input)) in columns.inputs.iter().zip(&work.inputs).enumerate() {
            let at = on(&input.sharded, size);
            let from = || match (layout.in_slot[column], input.pinned) {
                (Some(_), _) => Ok(From::Staged),
                (None, Some(memory)) => Ok(From::Pinned(&memory[first as usize * size..][..rows * size])),
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

    /// Whether some rows of the chunk stay on the device: such a chunk says nothing about how fast others are staged.
    pub(super) fn is_home(&self) -> bool {
        let inputs = self.inputs.iter().any(|input| match input {
            In::Resident(_) => true,
            In::Upload { to, .. } => to.is_some(),
        });
        inputs || self.outputs.iter().any(|output| matches!(output, Out::Resident(_)))
    }

    /// Gives back the rows of pinned outputs. No copy of the chunk may be under way.
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

/// A column is staged, pinned or resident: the plan and the columns of a run are made of the same facts.
fn unplanned() -> Error {
    Error::Internal("a column is neither staged nor pinned nor resident".into())
}
