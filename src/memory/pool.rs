//! Device memory: a freelist of equal blocks, each with the event of its last use.
//!
//! A block goes back to the list as soon as its last use is *enqueued*, not when it is done. Whoever takes it next makes
//! its **stream** wait for that event; the host never waits for the device here. So a device with memory for few blocks
//! still serves many lanes, one after the other, in stream order.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::Account;
use super::account::Booked;
use crate::device::{Device, Stream};
use crate::error::{Error, Result};

type EventOf<D> = <<D as Device>::Stream as Stream>::Event;

/// The freelist.
pub(crate) struct DevicePool<D: Device> {
    list: Mutex<List<D>>,
    /// Signalled when a block comes back or the list closes.
    changed: Condvar,
    blocks: usize,
}

struct List<D: Device> {
    /// Longest returned first, so the front is the likeliest to be done.
    free: VecDeque<Block<D>>,
    /// A lane failed while it held a block: nobody may wait for that block to come back.
    closed: bool,
}

struct Block<D: Device> {
    memory: D::Memory,
    last_use: EventOf<D>,
    last_lane: Option<usize>,
    _booked: Booked,
}

impl<D: Device> DevicePool<D> {
    /// Allocates up to `blocks` blocks of `block_bytes` each: fewer when the device has no memory for all of them.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if not even one block fits the device.
    pub(crate) fn new(device: &D, blocks: usize, block_bytes: usize, account: &Arc<Account>) -> Result<Self> {
        let events = device.open_stream()?;
        let mut free = VecDeque::with_capacity(blocks);
        for _ in 0..blocks {
            let memory = match device.allocate(block_bytes) {
                Ok(memory) => memory,
                Err(Error::OutOfMemory { .. }) if !free.is_empty() => break,
                Err(error) => return Err(error),
            };
            let booked = account.book(block_bytes as u64)?;
            free.push_back(Block { memory, last_use: events.event()?, last_lane: None, _booked: booked });
        }
        let blocks = free.len();
        Ok(DevicePool { list: Mutex::new(List { free, closed: false }), changed: Condvar::new(), blocks })
    }

    /// How many blocks there are.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Takes a block for work that `lane` is about to enqueue on `stream`, and makes the stream wait for the block's
    /// last use if that may still run.
    ///
    /// The calling thread waits only while all blocks are in the hands of lanes that are enqueueing, which is
    /// microseconds: nobody waits for anything between taking a block and [`Lease::retire`].
    pub(crate) fn take(&self, lane: usize, stream: &mut D::Stream) -> Result<Lease<'_, D>> {
        let mut list = self.list();
        let block = loop {
            if list.closed {
                return Err(Error::Abandoned);
            }
            // Work of the same stream runs in order anyway: its own block needs no wait.
            let own = list.free.iter().position(|b| b.last_lane == Some(lane)).unwrap_or(0);
            match list.free.remove(own) {
                Some(block) => break block,
                None => list = self.changed.wait(list).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(list);
        let lease = Lease { pool: self, block: Some(block) };
        if let Some(block) = &lease.block
            && block.last_lane != Some(lane)
            && !stream.query(&block.last_use)?
        {
            stream.wait(&block.last_use)?;
        }
        Ok(lease)
    }

    fn list(&self) -> MutexGuard<'_, List<D>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A block in the hands of one lane, while it enqueues work on it.
///
/// Dropping a lease without [`retire`](Lease::retire) means that the lane failed: the pool closes, and every later
/// [`take`](DevicePool::take) is an error instead of a wait for a block that never comes back.
pub(crate) struct Lease<'p, D: Device> {
    pool: &'p DevicePool<D>,
    block: Option<Block<D>>,
}

impl<D: Device> Lease<'_, D> {
    /// The block's memory. Only work on the stream that took the block may use it.
    pub(crate) fn memory(&self) -> &D::Memory {
        match &self.block {
            Some(block) => &block.memory,
            None => unreachable!("only retire and drop take the block, and both end the lease"),
        }
    }

    /// Gives the block back behind all work enqueued on `stream` so far.
    pub(crate) fn retire(mut self, lane: usize, stream: &mut D::Stream) -> Result<()> {
        let Some(block) = &mut self.block else { return Ok(()) };
        stream.record(&block.last_use)?;
        block.last_lane = Some(lane);
        let block = self.block.take();
        self.pool.list().free.extend(block);
        self.pool.changed.notify_one();
        Ok(())
    }
}

impl<D: Device> Drop for Lease<'_, D> {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            let mut list = self.pool.list();
            list.closed = true;
            list.free.push_back(block);
            self.pool.changed.notify_all();
        }
    }
}
