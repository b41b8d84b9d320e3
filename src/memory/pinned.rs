//! Pinned host memory: anonymous pages in huge pages where possible, touched in parallel, then registered.
//!
//! Our own pages and not the driver's allocation, because that one is slow to make, aligned to 256 bytes only (too little
//! for direct I/O) and, as some bindings hand it out, write-combined and so very slow to read back.

use std::sync::Arc;

use memmap2::MmapMut;
use rayon::prelude::*;

use super::Account;
use super::account::Booked;
use crate::device::Device;
use crate::error::{Error, Result};

/// Bytes of a page; also the alignment of slots.
pub(crate) const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;

/// Page-aligned, zeroed, resident host memory of at least one byte.
pub(crate) fn allocate(bytes: usize) -> Result<MmapMut> {
    let mut memory = MmapMut::map_anon(bytes.max(1)).map_err(|error| Error::Device {
        device: "host".into(),
        problem: format!("cannot get {bytes} bytes of memory ({error})"),
        remedy: "close other programs or set a smaller --pinned-memory".into(),
    })?;
    // Best effort: without huge pages everything is the same, only slower to touch and to register.
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    memory.par_chunks_mut(HUGE_PAGE).for_each(|part| part.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0));
    Ok(memory)
}

/// The pinned memory of all slots of one device: allocated once for a run, given back at its end.
pub(crate) struct PinnedRing<D: Device> {
    // Dropped in this order: unregistered before it is unmapped.
    _pin: Option<D::Pin>,
    memory: MmapMut,
    slot_bytes: usize,
    slots: usize,
    _booked: Booked,
}

impl<D: Device> PinnedRing<D> {
    /// Pins `slots` × `slot_bytes`, the latter a multiple of the page size. No bytes, no registration.
    pub(crate) fn new(device: &D, slots: usize, slot_bytes: usize, account: &Arc<Account>) -> Result<Self> {
        debug_assert!(slot_bytes.is_multiple_of(PAGE));
        let bytes = slots * slot_bytes;
        let booked = account.book(bytes as u64)?;
        let mut memory = allocate(bytes)?;
        let pin = match bytes {
            0 => None,
            // SAFETY: the mapping starts on a page, is at least `bytes` long and is unmapped only after the pin, which
            // stands before it in the struct, is dropped.
            _ => Some(unsafe { device.pin(memory.as_mut_ptr(), bytes)? }),
        };
        Ok(PinnedRing { _pin: pin, memory, slot_bytes, slots, _booked: booked })
    }

    /// The memory of each slot.
    pub(crate) fn slots(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let mut rest: &mut [u8] = &mut self.memory;
        let bytes = self.slot_bytes;
        (0..self.slots).map(move |_| {
            let (slot, tail) = std::mem::take(&mut rest).split_at_mut(bytes);
            rest = tail;
            slot
        })
    }
}
