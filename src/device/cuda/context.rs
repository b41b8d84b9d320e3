//! The primary context of a GPU, and its memory, registrations and recycled objects.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys;

use super::driver::{self, Found};
use crate::device::{Pinned, Registration};
use crate::error::{ColumnError, Error, Result};

/// A retained primary context, which is shared with other CUDA libraries of the process.
pub(super) struct Context {
    handle: sys::CUcontext,
    device: sys::CUdevice,
    id: String,
    spare: Spares,
    /// Whether the device was given up. Calls in its context could wait for it, so there are none any more.
    is_given_up: AtomicBool,
}

/// Objects that are recycled for the next run, because the driver is slow to create and destroy them.
#[derive(Default)]
pub(super) struct Spares {
    pub(super) streams: Mutex<Vec<sys::CUstream>>,
    pub(super) events: Mutex<Vec<sys::CUevent>>,
    /// Events that keep time.
    pub(super) timers: Mutex<Vec<sys::CUevent>>,
}

/// The most spare objects of a kind that are kept.
const SPARES: usize = 1024;

/// Takes a spare object.
pub(super) fn take<T>(spares: &Mutex<Vec<T>>) -> Option<T> {
    spares.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

/// Keeps a spare object, or returns it to the caller if there are enough.
pub(super) fn keep<T>(spares: &Mutex<Vec<T>>, spare: T) -> Option<T> {
    let mut spares = spares.lock().unwrap_or_else(PoisonError::into_inner);
    if spares.len() >= SPARES {
        return Some(spare);
    }
    spares.push(spare);
    None
}

// SAFETY: the driver lets any thread use a context; making it current is per thread, and done before each use.
unsafe impl Send for Context {}
// SAFETY: as above. The handles never change. Spares are behind mutexes, and any thread may use those that it takes.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the primary context of a device, and creates it if necessary.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the device has no memory for a context.
    pub(super) fn retain(found: &Found) -> Result<Arc<Context>> {
        let mut handle = ptr::null_mut();
        // SAFETY: a `Found` exists only after `init`; `handle` outlives the call that writes it.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&mut handle, found.handle) };
        if result == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(Error::OutOfMemory { device: found.info.id.clone(), bytes: 0 });
        }
        driver::check(&found.info.id, "cuDevicePrimaryCtxRetain", result)?;
        Ok(Arc::new(Context {
            handle,
            device: found.handle,
            id: found.info.id.clone(),
            spare: Spares::default(),
            is_given_up: AtomicBool::new(false),
        }))
    }

    /// Returns the streams and events that are not in use.
    pub(super) fn spare(&self) -> &Spares {
        &self.spare
    }

    /// Returns the id of the device, such as `cuda:0`.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns a number that all values for this context have.
    pub(super) fn number(&self) -> usize {
        self.handle.addr()
    }

    /// Converts the result of the driver call `call`.
    pub(super) fn check(&self, call: &str, result: sys::CUresult) -> Result<()> {
        driver::check(&self.id, call, result)
    }

    /// Lets every later call in this context return an error at once.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
    }

    /// Returns whether the device was given up.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }

    /// Makes the context current on this thread and leaves it current. For threads that have [entered](Context::enter),
    /// or that end.
    ///
    /// The current context is checked each time, because a caller's source or sink that runs on the worker may use
    /// CUDA, too. The check costs a read of a thread-local variable.
    pub(super) fn make_current(&self) -> Result<()> {
        if self.current()? == self.handle {
            return Ok(());
        }
        // SAFETY: `self` keeps the context retained.
        self.check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.handle) })
    }

    /// Makes the context current on this thread until the guard is dropped. For threads of the caller, whose current
    /// context must not change, and for those of an engine, which outlive the context.
    pub(super) fn enter(&self) -> Result<Guard> {
        let previous = self.current()?;
        if previous != self.handle {
            // SAFETY: `self` keeps the context retained.
            self.check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.handle) })?;
        }
        Ok(Guard { previous, changed: previous != self.handle })
    }

    fn current(&self) -> Result<sys::CUcontext> {
        if self.is_given_up() {
            return Err(Error::Device {
                device: self.id.clone(),
                problem: "it was given up, because it did not finish its work within the time limit".into(),
                remedy: "start the program again, or choose another device".into(),
            });
        }
        let mut current = ptr::null_mut();
        // SAFETY: `current` outlives the call that writes it.
        self.check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut current) })?;
        Ok(current)
    }

    /// Runs a call that frees a resource, in this context. Errors are only logged: a drop cannot return them, and
    /// after a fault of the device every such call fails.
    pub(super) fn release(&self, call: &str, release: impl FnOnce() -> sys::CUresult) {
        // Also in a lost context, so that the driver can free what it still holds. Without the context the call would
        // refer to another device, or to none.
        if let Err(error) = self.enter_to_release().and_then(|_guard| self.check(call, release())) {
            tracing::debug!(%error, "release failed");
        }
    }

    /// Does the same as [`enter`](Context::enter), for the release of a resource. It is tried twice, because a resource
    /// that is not released now is never released.
    pub(super) fn enter_to_release(&self) -> Result<Guard> {
        self.enter().or_else(|_| self.enter())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.is_given_up() {
            return;
        }
        while let Some(stream) = take(&self.spare.streams) {
            // SAFETY: a spare stream is alive, has no work, and is destroyed only here.
            self.release("cuStreamDestroy", || unsafe { sys::cuStreamDestroy_v2(stream) });
        }
        while let Some(event) = take(&self.spare.events).or_else(|| take(&self.spare.timers)) {
            // SAFETY: a spare event is alive, and is destroyed only here.
            self.release("cuEventDestroy", || unsafe { sys::cuEventDestroy_v2(event) });
        }
        // SAFETY: retained by `retain`, and released only here. Everything in the context holds an `Arc` of `self`.
        let result = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
        if let Err(error) = self.check("cuDevicePrimaryCtxRelease", result) {
            tracing::debug!(%error, "release failed");
        }
    }
}

/// Restores the previous context of a thread on drop.
pub(super) struct Guard {
    /// The previous context. The raw pointer also keeps the guard on its thread, because it is not `Send`.
    previous: sys::CUcontext,
    changed: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.changed {
            // SAFETY: the context was current when the guard was created. If other code has destroyed it since, the
            // driver returns an error.
            let restore = || unsafe { sys::cuCtxSetCurrent(self.previous) };
            // Tried twice, because otherwise the caller's work would continue in our context. If it fails again, no
            // context is made current, and the caller's next call returns an error.
            if restore() != sys::CUresult::CUDA_SUCCESS && restore() != sys::CUresult::CUDA_SUCCESS {
                // SAFETY: null means no context.
                let result = unsafe { sys::cuCtxSetCurrent(ptr::null_mut()) };
                tracing::warn!(?result, "the caller's CUDA context could not be made current again");
            }
        }
    }
}

/// One allocation of device memory, or memory of other code.
pub(crate) struct Memory {
    context: Arc<Context>,
    start: sys::CUdeviceptr,
    /// Whether it is freed on drop.
    is_own: bool,
}

impl Memory {
    pub(super) fn allocate(context: &Arc<Context>, bytes: usize) -> Result<Memory> {
        let _guard = context.enter()?;
        let mut start = 0;
        // SAFETY: the context is current; `start` outlives the call that writes it.
        match unsafe { sys::cuMemAlloc_v2(&mut start, bytes) } {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                Err(Error::OutOfMemory { device: context.id().into(), bytes: bytes as u64 })
            }
            result => {
                context.check("cuMemAlloc", result)?;
                Ok(Memory { context: context.clone(), start, is_own: true })
            }
        }
    }

    /// See [`Device::borrow`](crate::device::Device::borrow).
    ///
    /// # Safety
    /// Those of [`Device::borrow`](crate::device::Device::borrow).
    pub(super) unsafe fn borrow(
        context: &Arc<Context>,
        address: u64,
        bytes: usize,
        stream: Option<u64>,
    ) -> Result<Option<Memory>> {
        use sys::CUpointer_attribute::{CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
        let _guard = context.enter()?;
        let is_of_a_gpu = attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
            == Some(sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u64);
        let is_here = attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) == u64::try_from(context.device).ok();
        if !is_of_a_gpu || !is_here {
            return Ok(None);
        }
        if let Some((start, own_bytes)) = range(address) {
            let bytes = bytes as u64;
            if address.saturating_add(bytes) > start.saturating_add(own_bytes) {
                return Err(ColumnError::BeyondAllocation { address, bytes, start, own_bytes }.into());
            }
        }
        if let Some(stream) = stream {
            // SAFETY: the context is current, and the caller vouches for the stream.
            let result = unsafe { sys::cuStreamSynchronize(stream as sys::CUstream) };
            context.check("cuStreamSynchronize", result)?;
        }
        Ok(Some(Memory { context: context.clone(), start: address, is_own: false }))
    }

    /// Returns the device address of the byte at an offset.
    pub(super) fn address(&self, offset: usize) -> sys::CUdeviceptr {
        self.start + offset as u64
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !self.is_own {
            return;
        }
        // SAFETY: allocated by `allocate`, and freed only here.
        self.context.release("cuMemFree", || unsafe { sys::cuMemFree_v2(self.start) });
    }
}

/// Returns the free device memory in bytes.
pub(super) fn free_bytes(context: &Context) -> Result<u64> {
    let _guard = context.enter()?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: the context is current; both numbers outlive the call that writes them.
    context.check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
    Ok(free as u64)
}

/// Page-locked host memory.
pub(crate) struct Pin {
    context: Arc<Context>,
    start: usize,
}

impl Pin {
    /// Page-locks memory for all contexts.
    ///
    /// The driver may already have a registration for these addresses, although nobody has page-locked this memory:
    /// earlier memory at the same addresses was unmapped without being unregistered. Copies would use the old pages,
    /// so such a registration is removed.
    ///
    /// # Safety
    /// Those of [`Device::pin`](crate::device::Device::pin).
    pub(super) unsafe fn new(context: &Arc<Context>, start: *mut u8, bytes: usize) -> Result<Pin> {
        let _guard = context.enter()?;
        // SAFETY: the context is current and the caller vouches for the memory.
        let register =
            || unsafe { sys::cuMemHostRegister_v2(start.cast::<c_void>(), bytes, sys::CU_MEMHOSTREGISTER_PORTABLE) };
        let mut result = register();
        if result == sys::CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED {
            // SAFETY: nobody has page-locked this memory; the caller vouches for this.
            unsafe { remove_registrations(context, start as u64, bytes as u64)? };
            result = register();
        }
        match result {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(Error::Device {
                device: context.id().into(),
                problem: format!("{bytes} bytes of host memory cannot be page-locked"),
                remedy: "set a smaller limit for pinned memory, or raise the system's (`ulimit -l`)".into(),
            }),
            result => context
                .check("cuMemHostRegister", result)
                .map(|()| Pin { context: context.clone(), start: start as usize }),
        }
    }
}

/// Removes the driver's registrations in a range of addresses.
///
/// # Errors
/// [`Error::Device`] if a registration extends beyond the range, where it may be in use.
///
/// # Safety
/// No memory in the range is page-locked now: every registration in it is of memory that was unmapped. A context is
/// current.
unsafe fn remove_registrations(context: &Context, start: u64, bytes: u64) -> Result<()> {
    const PAGE: u64 = 4096;
    let end = start.saturating_add(bytes);
    let mut page = start;
    while page < end {
        let Some((first, size)) = range(page) else {
            page += PAGE;
            continue;
        };
        let last = first.saturating_add(size);
        if first < start || last > end {
            return Err(Error::Device {
                device: context.id().into(),
                problem: format!(
                    "new memory at {start:#x} is page-locked as part of older memory at {first:#x}, which was unmapped \
                     before it was unregistered"
                ),
                remedy: "change the code that page-locked it to unregister memory before unmapping it".into(),
            });
        }
        tracing::debug!(start = first, bytes = size, "removes a page-lock of memory that was unmapped");
        // SAFETY: the registration is of memory that was unmapped; the caller vouches for this.
        context.check("cuMemHostUnregister", unsafe { sys::cuMemHostUnregister(first as *mut c_void) })?;
        page = last;
    }
    Ok(())
}

/// Allocates page-locked memory with the driver's allocator and frees it.
pub(super) fn allocate_pinned_once(context: &Context, bytes: usize) -> Result<()> {
    let _guard = context.enter()?;
    let mut start = ptr::null_mut();
    // SAFETY: the context is current; `start` outlives the call that writes it.
    context.check("cuMemAllocHost", unsafe { sys::cuMemAllocHost_v2(&mut start, bytes) })?;
    // SAFETY: just allocated, and not used.
    context.check("cuMemFreeHost", unsafe { sys::cuMemFreeHost(start) })
}

/// Returns how much of the memory is page-locked, no matter which code locked it. The driver looks up the addresses
/// and does not access the memory.
pub(super) fn pinned(context: &Context, memory: *const [u8], is_written: bool) -> Pinned {
    let (start, bytes) = (memory.cast::<u8>() as u64, memory.len() as u64);
    let Some(last) = bytes.checked_sub(1).map(|before| start.saturating_add(before)) else { return Pinned::No };
    let Ok(_guard) = context.enter() else { return Pinned::No };
    let (first_flags, last_flags) = (flags(start), flags(last));
    // If both ends are page-locked, the memory between them need not be: they may belong to two registrations.
    let is_whole = range(start).is_some_and(|(first, size)| first <= start && last < first.saturating_add(size));
    match first_flags.zip(last_flags) {
        Some((flags, _)) if is_whole && !(is_written && flags & sys::CU_MEMHOSTREGISTER_READ_ONLY != 0) => {
            Pinned::Whole
        }
        None if first_flags.or(last_flags).is_none() => Pinned::No,
        _ => Pinned::InPart,
    }
}

/// Returns the flags with which a byte of host memory was page-locked, if it is.
fn flags(byte: u64) -> Option<u32> {
    let mut flags = 0;
    // SAFETY: a context is current; `flags` outlives the call that writes it.
    let result = unsafe { sys::cuMemHostGetFlags(&mut flags, byte as *mut c_void) };
    (result == sys::CUresult::CUDA_SUCCESS).then_some(flags)
}

/// Returns the start and the size of the registration or allocation that contains an address.
fn range(address: u64) -> Option<(u64, u64)> {
    attribute(sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address)
        .zip(attribute(sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE, address))
}

/// Returns an attribute of an address, if the address has it.
fn attribute(attribute: sys::CUpointer_attribute, address: sys::CUdeviceptr) -> Option<u64> {
    let mut value = 0_u64;
    // SAFETY: a context is current; the requested attributes have 64 bits, or 32 bits, which are the low ones of
    // `value`; it outlives the call that writes it.
    let result = unsafe { sys::cuPointerGetAttribute((&raw mut value).cast::<c_void>(), attribute, address) };
    (result == sys::CUresult::CUDA_SUCCESS).then_some(value)
}

impl Registration for Pin {
    fn is_for_ever(&self) -> bool {
        self.context.is_given_up()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let start = self.start as *mut c_void;
        // SAFETY: registered by `new`, and unregistered only here.
        self.context.release("cuMemHostUnregister", || unsafe { sys::cuMemHostUnregister(start) });
    }
}
