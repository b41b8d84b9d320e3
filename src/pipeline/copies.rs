//! The copies of a chunk, and what of it needs none.

use super::slot::Slot;
use super::{Sharded, Work};
use crate::data::{Chunk, Claim};
use crate::device::Device;
use crate::error::{Error, Result};

/// A copy between the host and a block, or memory of rows that stay on the device.
pub(super) struct Copy<'c, M> {
    pub(super) host: *mut u8,
    /// `None`: the block, from whose start `offset` counts.
    pub(super) memory: Option<&'c M>,
    pub(super) offset: usize,
    pub(super) bytes: usize,
    pub(super) staged: bool,
}

impl<'r, D: Device> Slot<'r, D> {
    /// The copies to the device. Columns that are `here` need none, unless they have to be brought first.
    pub(super) fn copies_in<'c>(
        &self,
        chunk: &Chunk,
        work: &Work<'r>,
        here: &[Option<(&'c D::Memory, usize)>],
    ) -> Result<Copies<'c, D>> {
        let columns = &work.operator.kernel().columns;
        let (rows, first) = (chunk.len(), chunk.rows().start as usize);
        let mut inputs = Vec::with_capacity(columns.inputs.len());
        for (column, (&size, input)) in columns.inputs.iter().zip(&work.inputs).enumerate() {
            if here[column].is_some() && !input.fills() {
                continue;
            }
            let (host, staged) = match (self.staged(column), input.memory) {
                (Some(staged), _) => (staged, true),
                (None, Some(memory)) if input.pinned => {
                    (memory.bytes()[first * size..][..rows * size].as_ptr().cast_mut(), false)
                }
                (None, _) => return Err(not_pinned()),
            };
            let (memory, offset) = match here[column] {
                Some((memory, offset)) => (Some(memory), offset),
                None => (None, self.layout.in_block[column]),
            };
            push(&mut inputs, Copy { host, memory, offset, bytes: rows * size, staged });
        }
        Ok(inputs)
    }

    /// The copies from the device, where nothing is brought of columns that are `here`.
    pub(super) fn copies_out<'c>(
        &self,
        chunk: &Chunk,
        work: &Work<'r>,
        here: &[Option<(&'c D::Memory, usize)>],
        in_place: &mut Vec<Claim<'r>>,
    ) -> Result<Copies<'c, D>> {
        let columns = &work.operator.kernel().columns;
        let rows = chunk.len();
        let mut outputs = Vec::with_capacity(columns.outputs.len() + 1);
        let sizes = columns.outputs.iter().map(|size| rows * size);
        let partials = Some(columns.partial_bytes(rows)).filter(|bytes| *bytes > 0);
        for (k, bytes) in sizes.chain(partials).enumerate() {
            let column = columns.inputs.len() + k;
            if here.get(column).is_some_and(Option::is_some) {
                continue;
            }
            let (host, staged) = match self.staged(column) {
                Some(staged) => (staged, true),
                None => {
                    let output = &work.outputs[k];
                    let memory = output.memory.filter(|_| output.pinned).ok_or_else(not_pinned)?;
                    let mut claim = memory.claim_for_run(chunk.times(output.elements).rows())?;
                    assert_eq!(claim.len(), bytes, "rows of an output in place");
                    let start = claim.as_mut_ptr();
                    in_place.push(claim);
                    (start, false)
                }
            };
            push(&mut outputs, Copy { host, memory: None, offset: self.layout.in_block[column], bytes, staged });
        }
        Ok(outputs)
    }
}

/// Adds a copy; one that goes on where the last one ends, on both sides, becomes a part of it.
fn push<'c, M>(copies: &mut Vec<Copy<'c, M>>, copy: Copy<'c, M>) {
    match copies.last_mut() {
        Some(last)
            if last.staged
                && copy.staged
                && last.memory.is_none()
                && copy.memory.is_none()
                && last.host.wrapping_add(last.bytes) == copy.host
                && last.offset + last.bytes == copy.offset =>
        {
            last.bytes += copy.bytes;
        }
        _ => copies.push(copy),
    }
}

/// Copies of a chunk to a device or back.
pub(super) type Copies<'c, D> = Vec<Copy<'c, <D as Device>::Memory>>;

/// For every input and output, where the rows of a chunk are on this device, if they stay there.
pub(super) fn here<'w, D: Device>(device: &D, chunk: &Chunk, work: &Work<'w>) -> Vec<Option<(&'w D::Memory, usize)>> {
    let columns = &work.operator.kernel().columns;
    let inputs = work.inputs.iter().map(|input| input.sharded).zip(&columns.inputs);
    let all = inputs.chain(work.outputs.iter().map(|output| output.sharded).zip(&columns.outputs));
    let place = |(sharded, row_bytes): (Option<&'w Sharded>, &usize)| {
        let sharded = sharded?;
        // Rows of a chunk that lie in a shard are inside its memory if they are as large as its rows.
        assert_eq!(sharded.row_bytes(), *row_bytes, "bytes of a row that stays on a device");
        sharded.on(device, chunk)
    };
    all.map(place).collect()
}

/// The plan does not stage columns that are pinned. Sources and sinks of a caller's own may say what is not so, and other code of
/// the program's may unregister what it registered.
fn not_pinned() -> Error {
    Error::Job(
        "a column that was planned as pinned is not: its Source or Target must say the same every time, and memory that was \
         registered must stay so until the job is done"
            .into(),
    )
}
