//! Device memory for rows that stay there.

use std::any::Any;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::budget::Charge;
use super::cache::Failure;
use super::{MemoryBudget, MemoryCache};
use crate::data::ShardMemory;
use crate::device::{Device, Host, Stream};
use crate::error::Result;
use crate::threads;

/// A device of any type, as an allocator of memory that outlives a run.
pub(crate) trait DeviceAllocator {
    /// Returns the device, as `--device` names it.
    fn id(&self) -> &str;

    /// Returns the number of free bytes of device memory. Memory that is cached for the next run is freed first. If
    /// fewer than `wanted` are free then, that of other engines is freed, too.
    ///
    /// # Errors
    /// Returns an error if the device cannot be queried.
    fn free_bytes(&self, wanted: u64) -> Result<u64>;

    /// Allocates this number of bytes (> 0), with unspecified content, and also charges them to `stays`.
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`] if the device has no contiguous block of this size.
    fn take(&self, bytes: usize, stays: &Arc<MemoryBudget>) -> Result<Arc<dyn ShardMemory>>;

    /// Returns memory that other code allocated; `None` if it is not of this device. See [`Device::borrow`].
    ///
    /// # Errors
    /// Those of [`Device::borrow`].
    ///
    /// # Safety
    /// Those of [`Device::borrow`].
    unsafe fn borrow(&self, address: u64, bytes: usize, stream: Option<u64>) -> Result<Option<Arc<dyn ShardMemory>>>;
}

impl<D: Device> DeviceAllocator for MemoryCache<D> {
    fn id(&self) -> &str {
        &self.device().info().id
    }

    fn free_bytes(&self, wanted: u64) -> Result<u64> {
        self.trim();
        let free = self.failure().watch(self.device().free_bytes())?;
        if free >= wanted || self.trim_others() == 0 {
            return Ok(free);
        }
        self.failure().watch(self.device().free_bytes())
    }

    fn take(&self, bytes: usize, stays: &Arc<MemoryBudget>) -> Result<Arc<dyn ShardMemory>> {
        let memory = self.failure().watch(self.device().allocate(bytes))?;
        let _charged = [self.device_budget().charge(bytes as u64)?, stays.charge(bytes as u64)?];
        Ok(Arc::new(Taken::new(memory, Some(_charged), bytes, self)))
    }

    unsafe fn borrow(&self, address: u64, bytes: usize, stream: Option<u64>) -> Result<Option<Arc<dyn ShardMemory>>> {
        // SAFETY: the caller vouches for the same.
        let memory = self.failure().watch(unsafe { self.device().borrow(address, bytes, stream) })?;
        Ok(memory.map(|memory| Arc::new(Taken::new(memory, None, bytes, self)) as _))
    }
}

/// Device memory, with the part of the budgets that it has unless other code allocated it.
struct Taken<D: Device> {
    // Dropped in this order: the memory is freed before its charge.
    memory: D::Memory,
    _charged: Option<[Charge; 2]>,
    bytes: usize,
    device: Arc<D>,
    failure: Arc<Failure>,
}

impl<D: Device> Taken<D> {
    fn new(memory: D::Memory, _charged: Option<[Charge; 2]>, bytes: usize, cache: &MemoryCache<D>) -> Self {
        Taken { memory, _charged, bytes, device: cache.device().clone(), failure: cache.failure().clone() }
    }

    /// Enqueues an operation and waits for it, on a thread of Overshot, because the device may become the current
    /// device of the thread.
    fn wait_for(&self, enqueue: impl FnOnce(&mut D::Stream) -> Result<()> + Send) -> Result<()> {
        let work = || {
            let (event, mut host) = (self.device.event(false)?, self.device.host(Instant::now()));
            let mut stream = self.device.open_stream()?;
            enqueue(&mut stream)?;
            stream.record(&event)?;
            host.synchronize(&event)
        };
        thread::scope(|scope| match thread::Builder::new().spawn_scoped(scope, work) {
            Ok(thread) => self.failure.watch(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))),
            Err(error) => Err(threads::not_started(&error)),
        })
    }

    fn check(&self, offset: usize, bytes: usize) {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "{bytes} bytes at {offset}");
    }
}

impl<D: Device> ShardMemory for Taken<D> {
    fn memory(&self) -> &(dyn Any + Send + Sync) {
        &self.memory
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        self.check(offset, to.len());
        self.wait_for(|stream| {
            // SAFETY: inside the memory (checked above). `to` is borrowed until the stream has completed its work;
            // the stream also waits for it when it is dropped after an error.
            unsafe { stream.copy_out(&self.memory, offset, to.as_mut_ptr(), to.len()) }
        })
    }

    fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.check(offset, from.len());
        // SAFETY: as above.
        self.wait_for(|stream| unsafe { stream.copy_in(from.as_ptr(), &self.memory, offset, from.len()) })
    }

    fn zero(&self) -> Result<()> {
        // SAFETY: this is the whole memory, which has `self.bytes` bytes.
        self.wait_for(|stream| unsafe { stream.zero(&self.memory, 0, self.bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::device::emulated::{Emulated, EmulatedDevice};

    #[test]
    fn what_is_written_is_read_and_memory_comes_back() {
        let budgets = ["device", "pinned", "stays"].map(|what| MemoryBudget::new(what, 1 << 20));
        let device = EmulatedDevice::new(&Emulated::new().memory(1000).seed(3));
        let cache = MemoryCache::new(device, &budgets[0], &budgets[1]);
        let memory = cache.take(600, &budgets[2]).unwrap();
        assert!(matches!(cache.take(600, &budgets[2]), Err(Error::OutOfMemory { bytes: 600, .. })));
        assert_eq!((cache.free_bytes(0).unwrap(), budgets[0].in_use(), budgets[2].in_use()), (400, 600, 600));
        memory.zero().unwrap();
        memory.write(101, &[1, 2, 3]).unwrap();
        let mut bytes = [9; 600];
        memory.read(0, &mut bytes).unwrap();
        let mut expected = [0; 600];
        expected[101..104].copy_from_slice(&[1, 2, 3]);
        assert_eq!(bytes, expected);
        drop(memory);
        assert_eq!((cache.free_bytes(0).unwrap(), budgets[0].in_use(), budgets[2].in_use()), (1000, 0, 0));
    }
}
