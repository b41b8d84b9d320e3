//! The copies of a chunk, and what of it needs none.

use super::Work;
use crate::data::Chunk;
use crate::device::Device;

/// A copy between the host and a block, or memory of rows that stay on the device.
pub(super) struct Copy<'c, M> {
    pub(super) host: *mut u8,
    /// `None`: the block, from whose start `offset` counts.
    pub(super) memory: Option<&'c M>,
    pub(super) offset: usize,
    pub(super) bytes: usize,
    pub(super) staged: bool,
}

/// Adds a copy; one that goes on where the last one ends, on both sides, becomes a part of it.
pub(super) fn push<'c, M>(copies: &mut Vec<Copy<'c, M>>, copy: Copy<'c, M>) {
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
    let inputs = work.inputs.iter().map(|input| input.sharded);
    let all = inputs.chain(work.outputs.iter().map(|output| output.sharded));
    all.map(|sharded| sharded?.on(device, chunk)).collect()
}
