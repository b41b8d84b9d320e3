//! A freelist of equal device memory blocks, each with the event of its last use.
//!
//! A block returns to the list as soon as its last use is *enqueued*, not when it is complete. The next user makes
//! its **stream** wait for that event; the host never waits for the device here. A device with memory for few
//! blocks can therefore serve many workers, one after the other, in stream order.

use std::collections::VecDeque;
use std::sync::Arc;

use super::budget::Charge;
use super::cache::Cached;
use super::{MemoryBudget, MemoryCache};
use crate::device::{Device, Host, Stream};
use crate::error::{Error, Result};

/// The freelist. The submitter takes a block, enqueues the work of a chunk on it and returns it. A block is therefore
/// always available, unless blocks are held for chunks that are copied ahead, or of which other fills follow.
pub(crate) struct DevicePool<D: Device> {
    /// In the order of return, so the front block is the likeliest to be complete.
    free: VecDeque<Block<D>>,
    /// The piece of each block, and its offset there.
    blocks: Vec<(usize, usize)>,
    /// The allocations that blocks are cut from. There is one, unless the device had no allocation large enough for
    /// all blocks.
    pieces: Vec<Cached<D::Memory>>,
    block_bytes: usize,
    _charged: Charge,
}

/// A block. It is taken for the work of one chunk. If it is dropped after an error, it is lost to the round of the run,
/// because work that still uses it may be running.
pub(crate) struct Block<D: Device> {
    piece: usize,
    offset: usize,
    /// A separate event, although a slot records one at the same point: the slot records its event again with its
    /// next chunk, and the next user of the block would wait for that chunk.
    last_use: D::Event,
}

impl<D: Device> DevicePool<D> {
    /// Allocates and charges memory for up to `blocks` blocks of `block_bytes` each. There are fewer if the device
    /// does not have enough memory.
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`] if not even one block fits the device.
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
        // Other engines may fill their caches again meanwhile.
        let mut others_have_freed = false;
        while free.len() < blocks {
            let bytes = size * block_bytes;
            match cache.blocks.take(bytes as u64..=room, || device.allocate(bytes)) {
                Ok(piece) => {
                    room -= piece.bytes();
                    // A cached piece may be larger than necessary.
                    let cut = (piece.bytes() / block_bytes as u64).min((blocks - free.len()) as u64) as usize;
                    for offset in (0..cut).map(|number| number * block_bytes) {
                        free.push_back(Block { piece: pieces.len(), offset, last_use: device.event(false)? });
                    }
                    pieces.push(piece);
                    size = size.min(blocks - free.len());
                }
                Err(Error::OutOfMemory { .. })
                    if !std::mem::replace(&mut others_have_freed, true) && cache.trim_others() > 0 => {}
                Err(Error::OutOfMemory { .. }) if size > 1 => size /= 2,
                Err(Error::OutOfMemory { .. }) if !free.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        let blocks: Vec<_> = free.iter().map(|block| (block.piece, block.offset)).collect();
        let _charged = budget.charge((blocks.len() * block_bytes) as u64)?;
        Ok(DevicePool { free, blocks, pieces, block_bytes, _charged })
    }

    /// Returns the size of all allocations in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(Cached::bytes).sum()
    }

    /// Returns the number of blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the size of a block in bytes.
    pub(crate) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Makes the blocks available that a round has dropped. No pending work may use them: the streams of the round have
    /// waited for it.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn reclaim(&mut self, device: &D) -> Result<()> {
        for &(piece, offset) in &self.blocks {
            if !self.free.iter().any(|block| (block.piece, block.offset) == (piece, offset)) {
                self.free.push_back(Block { piece, offset, last_use: device.event(false)? });
            }
        }
        Ok(())
    }

    /// Takes a block for work that is about to be enqueued. `stream`, on which that work begins, waits for the last
    /// use of the block if it may still be running.
    ///
    /// # Errors
    /// Returns [`Error::abandoned`] if there is none: an error occurred while the last one was in use.
    pub(crate) fn take(&mut self, stream: &mut D::Stream, host: &mut D::Host) -> Result<Block<D>> {
        let block = self.free.pop_front().ok_or_else(Error::abandoned)?;
        if !host.query(&block.last_use)? {
            stream.wait(&block.last_use)?;
        }
        Ok(block)
    }

    /// Returns whether a block is available.
    pub(crate) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Returns the allocation that contains a block, and the offset of the block in it. Only work that is ordered
    /// after the stream that took the block may use it.
    pub(crate) fn memory(&self, block: &Block<D>) -> (&D::Memory, usize) {
        (&self.pieces[block.piece], block.offset)
    }

    /// Returns a block to the list, after all work enqueued so far on `stream`, which has its last use.
    pub(crate) fn retire(&mut self, block: Block<D>, stream: &mut D::Stream) -> Result<()> {
        stream.record(&block.last_use)?;
        self.free.push_back(block);
        Ok(())
    }

    /// Caches the memory for the next run, if all blocks are in one allocation. No pending work may use it.
    pub(crate) fn keep(mut self) {
        if let (Some(piece), []) = (self.pieces.pop(), &self.pieces[..]) {
            piece.keep();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Instant;

    use super::*;
    use crate::device::emulated::{Emulated, EmulatedDevice};

    /// Returns the bytes that are cached after a run whose pool has these blocks, on a device of 10 000 bytes.
    fn cached_after(blocks: usize) -> (usize, u64) {
        let [memory, pinned] = ["device", "pinned"].map(|what| MemoryBudget::new(what, 1 << 20));
        let cache = MemoryCache::new(EmulatedDevice::new(&Emulated::new().memory(10_000)), &memory, &pinned);
        let pool = DevicePool::new(&cache, blocks, 1024, &MemoryBudget::new("run", 1 << 20)).unwrap();
        let given = pool.blocks();
        pool.keep();
        (given, cache.usage().0.cached)
    }

    #[test]
    fn memory_is_kept_if_it_is_in_one_piece() {
        assert_eq!(cached_after(8), (8, 8 * 1024));
        // Pieces of 6 and 3 blocks: the next run would find neither large enough.
        assert_eq!(cached_after(12), (9, 0));
    }

    #[test]
    fn blocks_that_a_round_has_dropped_are_there_for_the_next_one() {
        let device = EmulatedDevice::new(&Emulated::new().memory(10_000));
        let [memory, pinned] = ["device", "pinned"].map(|what| MemoryBudget::new(what, 1 << 20));
        let cache = MemoryCache::new(device.clone(), &memory, &pinned);
        let mut pool = DevicePool::new(&cache, 3, 1024, &MemoryBudget::new("run", 1 << 20)).unwrap();
        let (mut stream, mut host) = (device.open_stream().unwrap(), device.host(Instant::now()));
        let returned = pool.take(&mut stream, &mut host).unwrap();
        (0..2).for_each(|_| drop(pool.take(&mut stream, &mut host).unwrap()));
        pool.retire(returned, &mut stream).unwrap();
        pool.reclaim(&device).unwrap();
        let places =
            (0..3).map(|_| pool.take(&mut stream, &mut host).unwrap()).map(|block| (block.piece, block.offset));
        assert_eq!(places.collect::<BTreeSet<_>>(), BTreeSet::from([(0, 0), (0, 1024), (0, 2048)]));
        assert!(!pool.has_free());
    }

    #[test]
    fn what_another_engine_keeps_on_the_device_is_freed_for_a_run() {
        let device = || EmulatedDevice::new(&Emulated::new().memory(10_000));
        let cache = |device: EmulatedDevice| {
            let [memory, pinned] = ["device", "pinned"].map(|what| MemoryBudget::new(what, 1 << 20));
            MemoryCache::new(device, &memory, &pinned)
        };
        let pool = |cache: &MemoryCache<EmulatedDevice>| {
            DevicePool::new(cache, 8, 1024, &MemoryBudget::new("run", 1 << 20)).unwrap()
        };
        let shared = device();
        let (one, other, elsewhere) = (cache(shared.clone()), cache(shared), cache(device()));
        let cached = || [&one, &other, &elsewhere].map(|cache| cache.usage().0.cached);
        pool(&one).keep();
        pool(&elsewhere).keep();
        assert_eq!(cached(), [8192, 0, 8192]);
        let run = pool(&other);
        assert_eq!((run.blocks(), run.pieces.len(), cached()), (8, 1, [0, 0, 8192]));
        // What is in use stays.
        assert_eq!(pool(&one).blocks(), 1);
        run.keep();
        assert_eq!(cached(), [0, 8192, 8192]);
        drop(other);
        assert_eq!(pool(&one).blocks(), 8);
    }
}
