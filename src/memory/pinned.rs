//! Pinned host memory: anonymous pages in huge pages where possible, touched in parallel, then registered.
//!
//! Our own pages and not the driver's allocation, because that one is slow to make, aligned to 256 bytes only (too little
//! for direct I/O) and, as some bindings hand it out, write-combined and so very slow to read back. Registered in one piece,
//! though threads could register several at once: a copy must not go from one piece into the next.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memmap2::MmapMut;

use super::budget::Reservation;
use super::cache::Cached;
use super::{MemoryBudget, MemoryCache};
use crate::device::{Device, cpu};
use crate::error::{Error, Result};
use crate::threads;

/// Bytes of a page; also the alignment of slots.
pub(crate) const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;
/// Bytes that a thread touches at least: it takes about as long to start it.
const TOUCH: usize = 4 * HUGE_PAGE;

/// Page-aligned, zeroed, resident host memory of at least one byte.
fn allocate(bytes: usize) -> Result<MmapMut> {
    let mut memory = MmapMut::map_anon(bytes.max(1)).map_err(|error| Error::Device {
        device: "host".into(),
        problem: format!("cannot get {bytes} bytes of memory ({error})"),
        remedy: "close other programs or set a smaller pinned memory limit".into(),
    })?;
    // Best effort: without huge pages everything is the same, only slower to touch and to register.
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    let part = memory.len().div_ceil(cpu::cores()).max(TOUCH).next_multiple_of(HUGE_PAGE);
    threads::each(memory.chunks_mut(part).collect(), |part| {
        part.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0);
        Ok(())
    })?;
    Ok(memory)
}

/// Host memory that is registered with a device, or ordinary memory if there is no device to register it with.
pub(crate) struct PinnedMemory {
    // Dropped in this order: unregistered before it is unmapped.
    pin: Option<Box<dyn Any + Send + Sync>>,
    pub(crate) bytes: MmapMut,
    /// How long it took to register memory that was resident already.
    pub(crate) pinning: Duration,
}

impl PinnedMemory {
    /// At least `bytes` zeroed bytes from the start of a page on.
    pub(crate) fn new<D: Device>(device: Option<&D>, bytes: usize) -> Result<Self> {
        let mut memory = allocate(bytes)?;
        let begin = Instant::now();
        let pin = match device.filter(|_| bytes > 0) {
            // SAFETY: the mapping starts on a page, is at least `bytes` long and is unmapped only after the pin, which
            // stands before it in the struct, is dropped.
            Some(device) => Some(Box::new(unsafe { device.pin(memory.as_mut_ptr(), bytes)? }) as _),
            None => None,
        };
        Ok(PinnedMemory { pin, bytes: memory, pinning: begin.elapsed() })
    }

    /// The same in ordinary memory.
    pub(crate) fn on_host(bytes: usize) -> Result<Self> {
        Ok(PinnedMemory { pin: None, bytes: allocate(bytes)?, pinning: Duration::ZERO })
    }

    /// Whether it is registered.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pin.is_some()
    }
}

/// The pinned memory of all slots of one device in one run.
pub(crate) struct StagingSlab {
    /// `None` if nothing is staged.
    memory: Option<Cached<PinnedMemory>>,
    slot_bytes: usize,
    slots: usize,
    _reserved: Reservation,
}

impl StagingSlab {
    /// Takes `slots` × `slot_bytes`, the latter a multiple of the page size, and books them.
    pub(crate) fn new<D: Device>(
        cache: &MemoryCache<D>,
        slots: usize,
        slot_bytes: usize,
        budget: &Arc<MemoryBudget>,
    ) -> Result<Self> {
        debug_assert!(slot_bytes.is_multiple_of(PAGE));
        let bytes = slots * slot_bytes;
        let _reserved = budget.reserve(bytes as u64)?;
        let take = || {
            let make = || PinnedMemory::new(Some(&**cache.device()), bytes);
            cache.slabs.take(bytes as u64..=budget.limit(), make)
        };
        let memory = (bytes > 0).then(take).transpose()?;
        Ok(StagingSlab { memory, slot_bytes, slots, _reserved })
    }

    /// The memory of each slot.
    pub(crate) fn slots(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let mut rest: &mut [u8] = self.memory.as_mut().map_or(&mut [], |memory| &mut memory.bytes);
        let bytes = self.slot_bytes;
        (0..self.slots).map(move |_| {
            let (slot, tail) = std::mem::take(&mut rest).split_at_mut(bytes);
            rest = tail;
            slot
        })
    }

    /// Keeps its memory for the next run. No copy may be left that uses it.
    pub(crate) fn keep(self) {
        if let Some(memory) = self.memory {
            memory.keep();
        }
    }
}
