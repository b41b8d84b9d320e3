//! Device memory: a freelist of equal blocks, each with the event of its last use.
//!
//! A block goes back to the list as soon as its last use is *enqueued*, not when it is done. Whoever takes it next makes
//! its **stream** wait for that event; the host never waits for the device here. So a device with memory for few blocks
//! still serves many lanes, one after the other, in stream order.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Account;
use super::account::Booked;
use crate::device::{Device, Host, Stream};
use crate::error::{Error, Result};

/// The freelist. One lane at a time takes a block, enqueues work on it and gives it back, so that there always is one.
pub(crate) struct DevicePool<D: Device> {
    /// Longest returned first, so the front is the likeliest to be done.
    free: VecDeque<Block<D>>,
    blocks: usize,
    /// A lane failed while it held a block: nobody knows what still runs on it.
    failed: bool,
}

struct Block<D: Device> {
    memory: D::Memory,
    /// Its own, although a slot records one at the same point: the slot's is recorded again with its next chunk, and whoever
    /// took the block then would wait for that.
    last_use: D::Event,
    _booked: Booked,
}

impl<D: Device> DevicePool<D> {
    /// Allocates up to `blocks` blocks of `block_bytes` each: fewer when the device has no memory for all of them.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if not even one block fits the device.
    pub(crate) fn new(device: &D, blocks: usize, block_bytes: usize, account: &Arc<Account>) -> Result<Self> {
        let mut free = VecDeque::with_capacity(blocks);
        for _ in 0..blocks {
            let memory = match device.allocate(block_bytes) {
                Ok(memory) => memory,
                Err(Error::OutOfMemory { .. }) if !free.is_empty() => break,
                Err(error) => return Err(error),
            };
            let _booked = account.book(block_bytes as u64)?;
            free.push_back(Block { memory, last_use: device.event(false)?, _booked });
        }
        let blocks = free.len();
        Ok(DevicePool { free, blocks, failed: false })
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
        // Looked at before a block is taken, as one that is dropped here would be freed under work that is queued.
        let block = if self.failed { None } else { self.free.pop_front() };
        let lease = Lease { block: Some(block.ok_or(Error::Abandoned)?), pool: self };
        let last_use = &lease.block().last_use;
        if !host.query(last_use)? {
            stream.wait(last_use)?;
        }
        Ok(lease)
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

    /// The block's memory. Only work that comes behind the stream that took the block may use it.
    pub(crate) fn memory(&self) -> &D::Memory {
        &self.block().memory
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
