//! Device memory: a freelist of equal blocks, each with the event of its last use.
//!
//! A block goes back to the list as soon as its last use is *enqueued*, not when it is done. Whoever takes it next makes
//! its **stream** wait for that event; the host never waits for the device here. So a device with memory for few blocks
//! still serves many workers, one after the other, in stream order.

use std::collections::VecDeque;
use std::sync::Arc;

use super::budget::Reservation;
use super::cache::Cached;
use super::{MemoryBudget, MemoryCache};
use crate::device::{Device, Host, Stream};
use crate::error::{Error, Result};

/// The freelist. Who takes a block enqueues the work of a chunk on it and gives it back, so that there always is one, unless blocks
/// are kept for chunks that are copied ahead.
pub(crate) struct DevicePool<D: Device> {
    /// Longest returned first, so the front is the likeliest to be done.
    free: VecDeque<Block<D>>,
    blocks: usize,
    /// What blocks are cut of: one, unless the device had none that is large enough for all.
    pieces: Vec<Cached<D::Memory>>,
    _reserved: Reservation,
}

/// A block. Once taken it is for the work of one chunk; one that is dropped, because something failed, is lost to the run: nobody
/// knows what still runs on it.
pub(crate) struct Block<D: Device> {
    piece: usize,
    offset: usize,
    /// Its own, although a slot records one at the same point: the slot's is recorded again with its next chunk, and whoever
    /// took the block then would wait for that.
    last_use: D::Event,
}

impl<D: Device> DevicePool<D> {
    /// Takes and books memory for up to `blocks` blocks of `block_bytes` each: fewer when the device has none for all of them.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if not even one block fits the device.
    pub(crate) fn new(
        cache: &MemoryCache<D>,
        blocks: usize,
        block_bytes: usize,
        budget: &Arc<MemoryBudget>,
    ) -> Result<Self> {
        let device = cache.device();
        let mut pieces: Vec<Cached<D::Memory>> = Vec::new();
        let mut free = VecDeque::with_capacity(blocks);
        let (mut size, mut room) = (blocks, budget.limit());
        while free.len() < blocks {
            let bytes = size * block_bytes;
            match cache.blocks.take(bytes as u64..=room, || device.allocate(bytes)) {
                Ok(piece) => {
                    room -= piece.bytes();
                    // One that was kept may be larger than it has to be.
                    let cut = (piece.bytes() / block_bytes as u64).min((blocks - free.len()) as u64) as usize;
                    for offset in (0..cut).map(|number| number * block_bytes) {
                        free.push_back(Block { piece: pieces.len(), offset, last_use: device.event(false)? });
                    }
                    pieces.push(piece);
                    size = size.min(blocks - free.len());
                }
                Err(Error::OutOfMemory { .. }) if size > 1 => size /= 2,
                Err(Error::OutOfMemory { .. }) if !free.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        let blocks = free.len();
        let _reserved = budget.reserve((blocks * block_bytes) as u64)?;
        Ok(DevicePool { free, blocks, pieces, _reserved })
    }

    /// How many blocks there are.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Takes a block for work that is about to be enqueued, and makes `stream`, where that work begins, wait for the
    /// block's last use if that may still run.
    ///
    /// # Errors
    /// [`Error::Abandoned`] if there is none: something failed while it had the last one.
    pub(crate) fn take(&mut self, stream: &mut D::Stream, host: &mut D::Host) -> Result<Block<D>> {
        let block = self.free.pop_front().ok_or(Error::Abandoned)?;
        if !host.query(&block.last_use)? {
            stream.wait(&block.last_use)?;
        }
        Ok(block)
    }

    /// Whether there is a block to take.
    pub(crate) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// The memory that a block is a part of, and where it begins there. Only work that comes behind the stream that took
    /// the block may use it.
    pub(crate) fn memory(&self, block: &Block<D>) -> (&D::Memory, usize) {
        (&self.pieces[block.piece], block.offset)
    }

    /// Takes a block back, behind all work enqueued so far on `stream`, where its last use is.
    pub(crate) fn retire(&mut self, block: Block<D>, stream: &mut D::Stream) -> Result<()> {
        stream.record(&block.last_use)?;
        self.free.push_back(block);
        Ok(())
    }

    /// Keeps the memory for the next run, if all blocks are of one piece. No work may be left that uses it.
    pub(crate) fn keep(mut self) {
        if let (Some(piece), []) = (self.pieces.pop(), &self.pieces[..]) {
            piece.keep();
        }
    }
}
