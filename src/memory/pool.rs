//! Device memory: a freelist of equal blocks, each with the event of its last use.
//!
//! A block goes back to the list as soon as its last use is *enqueued*, not when it is done. Whoever takes it next makes
//! its **stream** wait for that event; the host never waits for the device here. So a device with memory for few blocks
//! still serves many lanes, one after the other, in stream order.

use std::collections::VecDeque;
use std::sync::Arc;

use super::account::Booked;
use super::cache::Held;
use super::{Account, MemoryCache};
use crate::device::{Device, Host, Stream};
use crate::error::{Error, Result};

/// The freelist. One lane at a time takes a block, enqueues work on it and gives it back, so that there always is one.
pub(crate) struct DevicePool<D: Device> {
    /// Longest returned first, so the front is the likeliest to be done.
    free: VecDeque<Block<D>>,
    blocks: usize,
    /// A lane failed while it held a block: nobody knows what still runs on it.
    failed: bool,
    /// What blocks are cut of: one, unless the device had none that is large enough for all.
    pieces: Vec<Held<D::Memory>>,
    _booked: Booked,
}

struct Block<D: Device> {
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
        account: &Arc<Account>,
    ) -> Result<Self> {
        let device = cache.device();
        let mut pieces: Vec<Held<D::Memory>> = Vec::new();
        let mut free = VecDeque::with_capacity(blocks);
        let (mut size, mut room) = (blocks, account.limit());
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
        let _booked = account.book((blocks * block_bytes) as u64)?;
        Ok(DevicePool { free, blocks, failed: false, pieces, _booked })
    }

    /// How many blocks there are.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Takes a block for work that is about to be enqueued, and makes `stream`, where that work begins, wait for the
    /// block's last use if that may still run.
    ///
    /// # Errors
    /// [`Error::Abandoned`] once a lane failed while it held a block.
    pub(crate) fn take(&mut self, stream: &mut D::Stream, host: &mut D::Host) -> Result<Lease<'_, D>> {
        // Looked at before a block is taken: nobody else may have one then.
        let block = if self.failed { None } else { self.free.pop_front() };
        let lease = Lease { block: Some(block.ok_or(Error::Abandoned)?), pool: self };
        let last_use = &lease.block().last_use;
        if !host.query(last_use)? {
            stream.wait(last_use)?;
        }
        Ok(lease)
    }

    /// Keeps the memory for the next run, if all blocks are of one piece. No work may be left that uses it.
    pub(crate) fn keep(mut self) {
        if let (Some(piece), []) = (self.pieces.pop(), &self.pieces[..]) {
            piece.keep();
        }
    }
}

/// A block in the hands of one lane, while it enqueues work on it.
///
/// Dropping a lease without [`retire`](Lease::retire) means that the lane failed: there are no more leases then.
pub(crate) struct Lease<'p, D: Device> {
    pool: &'p mut DevicePool<D>,
    block: Option<Block<D>>,
}

impl<D: Device> Lease<'_, D> {
    fn block(&self) -> &Block<D> {
        match &self.block {
            Some(block) => block,
            None => unreachable!("only retire and drop take the block, and both end the lease"),
        }
    }

    /// The memory that the block is a part of, and where it begins there. Only work that comes behind the stream that took
    /// the block may use it.
    pub(crate) fn memory(&self) -> (&D::Memory, usize) {
        let Block { piece, offset, .. } = self.block();
        (&self.pool.pieces[*piece], *offset)
    }

    /// Gives the block back behind all work enqueued so far on `stream`, where the block's last use is.
    pub(crate) fn retire(mut self, stream: &mut D::Stream) -> Result<()> {
        stream.record(&self.block().last_use)?;
        self.pool.free.extend(self.block.take());
        Ok(())
    }
}

impl<D: Device> Drop for Lease<'_, D> {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.pool.failed = true;
            self.pool.free.push_back(block);
        }
    }
}
