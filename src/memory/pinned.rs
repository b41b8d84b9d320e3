//! Pinned host memory: anonymous memory with huge pages where possible, touched in parallel and then registered.
//!
//! Overshot maps these pages itself instead of using the driver's allocator. That one is slow, aligns to 256 bytes
//! only (too little for direct I/O) and, as some bindings call it, returns write-combined memory, which is very
//! slow to read. The memory is registered in one piece, although several threads could register parts concurrently,
//! because a copy must not cross from one registration to the next.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memmap2::MmapMut;

use super::budget::Charge;
use super::cache::Cached;
use super::{MemoryBudget, MemoryCache};
use crate::device::{Device, Registration, cpu};
use crate::error::{Error, Result};
use crate::threads;

/// The size of a page in bytes, which is also the alignment of slots.
pub(crate) const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;
/// The minimum number of bytes that a thread touches. Starting the thread takes about as long.
const TOUCH: usize = 4 * HUGE_PAGE;

/// Allocates page-aligned, zeroed, resident host memory of at least one byte.
fn allocate(bytes: usize) -> Result<MmapMut> {
    let mut memory = MmapMut::map_anon(bytes.max(1)).map_err(|error| Error::Device {
        device: "host".into(),
        problem: format!("cannot allocate {bytes} bytes of memory ({error})"),
        remedy: "close other programs or set a smaller pinned memory limit".into(),
    })?;
    // Best effort: without huge pages, the memory is only slower to touch and to register.
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    let part = memory.len().div_ceil(cpu::cores()).max(TOUCH).next_multiple_of(HUGE_PAGE);
    threads::each(memory.chunks_mut(part).collect(), |part| {
        part.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0);
        Ok(())
    })?;
    Ok(memory)
}

/// Host memory that is registered with a device, or ordinary memory if there is no device.
pub(crate) struct PinnedMemory {
    pin: Option<Box<dyn Registration>>,
    pub(crate) bytes: ManuallyDrop<MmapMut>,
    /// The time it took to register the resident memory.
    pub(crate) pinning: Duration,
}

impl PinnedMemory {
    /// Allocates at least `bytes` zeroed bytes, aligned to a page.
    pub(crate) fn new<D: Device>(device: Option<&D>, bytes: usize) -> Result<Self> {
        let mut memory = allocate(bytes)?;
        let begin = Instant::now();
        let pin = match device.filter(|_| bytes > 0) {
            // SAFETY: the mapping starts on a page, is at least `bytes` long, and is unmapped only after the pin is
            // dropped.
            Some(device) => Some(Box::new(unsafe { device.pin(memory.as_mut_ptr(), bytes)? }) as _),
            None => None,
        };
        Ok(PinnedMemory { pin, bytes: ManuallyDrop::new(memory), pinning: begin.elapsed() })
    }

    /// Allocates ordinary memory in the same way.
    pub(crate) fn on_host(bytes: usize) -> Result<Self> {
        Ok(PinnedMemory { pin: None, bytes: ManuallyDrop::new(allocate(bytes)?), pinning: Duration::ZERO })
    }

    /// Returns whether the memory is registered.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pin.is_some()
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        let pin = self.pin.take();
        if pin.as_ref().is_some_and(|pin| pin.is_for_ever()) {
            tracing::debug!(bytes = self.bytes.len(), "pinned memory stays, because its device was given up");
            return;
        }
        // The memory is unregistered before it is unmapped.
        drop(pin);
        // SAFETY: it is dropped only here, and nobody uses it afterwards.
        unsafe { ManuallyDrop::drop(&mut self.bytes) };
    }
}

/// The pinned memory of all slots of one device in one run.
pub(crate) struct StagingSlab {
    /// `None` if nothing is staged.
    memory: Option<Cached<PinnedMemory>>,
    slot_bytes: usize,
    slots: usize,
    _charged: Charge,
}

impl StagingSlab {
    /// Allocates and charges `slots` × `slot_bytes` bytes; `slot_bytes` is a multiple of the page size.
    pub(crate) fn new<D: Device>(
        cache: &MemoryCache<D>,
        slots: usize,
        slot_bytes: usize,
        budget: &Arc<MemoryBudget>,
    ) -> Result<Self> {
        debug_assert!(slot_bytes.is_multiple_of(PAGE));
        let bytes = slots * slot_bytes;
        let _charged = budget.charge(bytes as u64)?;
        let take = || {
            let make = || PinnedMemory::new(Some(&**cache.device()), bytes);
            cache.slabs.take(bytes as u64..=budget.limit(), make)
        };
        let memory = (bytes > 0).then(take).transpose()?;
        Ok(StagingSlab { memory, slot_bytes, slots, _charged })
    }

    /// Returns its size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.bytes.len() as u64)
    }

    /// Returns the memory of each slot.
    pub(crate) fn slots(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let mut rest: &mut [u8] = self.memory.as_mut().map_or(&mut [], |memory| &mut memory.bytes);
        let bytes = self.slot_bytes;
        (0..self.slots).map(move |_| {
            let (slot, tail) = std::mem::take(&mut rest).split_at_mut(bytes);
            rest = tail;
            slot
        })
    }

    /// Caches the memory for the next run. No pending copy may use it.
    pub(crate) fn keep(self) {
        if let Some(memory) = self.memory {
            memory.keep();
        }
    }
}
