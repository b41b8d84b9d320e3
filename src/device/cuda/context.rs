//! The primary context of one GPU, and what lives in it beside streams.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys;

use super::driver::{self, Found};
use crate::device::Pinned;
use crate::error::{Error, Result};

/// A retained primary context: the one that other CUDA libraries of the process share.
pub(super) struct Context {
    handle: sys::CUcontext,
    device: sys::CUdevice,
    id: String,
    spare: Spares,
}

/// What costs the driver time to make and to destroy, and is the same for every run: kept for the next one.
#[derive(Default)]
pub(super) struct Spares {
    pub(super) streams: Mutex<Vec<sys::CUstream>>,
    pub(super) events: Mutex<Vec<sys::CUevent>>,
    /// Those that keep time.
    pub(super) timers: Mutex<Vec<sys::CUevent>>,
}

/// Spares of a kind that are kept at most.
const SPARES: usize = 1024;

/// Takes a spare one.
pub(super) fn take<T>(spares: &Mutex<Vec<T>>) -> Option<T> {
    spares.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

/// Keeps a spare one; gives it back if there are enough.
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
// SAFETY: as above; the handles never change, and spares are behind mutexes, of which any thread may use what it takes.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the primary context of a device, which creates it if need be.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the device has no memory for one.
    pub(super) fn retain(found: &Found) -> Result<Arc<Context>> {
        let mut handle = ptr::null_mut();
        // SAFETY: a `Found` exists only after `init`; `handle` outlives the call that writes it.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&mut handle, found.handle) };
        if result == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(Error::OutOfMemory { device: found.info.id.clone(), bytes: 0 });
        }
        driver::check(&found.info.id, "cuDevicePrimaryCtxRetain", result)?;
        let spare = Spares::default();
        Ok(Arc::new(Context { handle, device: found.handle, id: found.info.id.clone(), spare }))
    }

    /// Streams and events that nobody uses now.
    pub(super) fn spare(&self) -> &Spares {
        &self.spare
    }

    /// The device as `--device` names it.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Turns the driver's answer to `call` into ours.
    pub(super) fn check(&self, call: &str, result: sys::CUresult) -> Result<()> {
        driver::check(&self.id, call, result)
    }

    /// Makes the context current on this thread and leaves it so: for worker threads, which are ours.
    ///
    /// The driver is asked each time, as a source or sink of the caller's that runs on the worker may use CUDA too. That
    /// costs a read of a thread-local variable.
    pub(super) fn make_current(&self) -> Result<()> {
        if self.current()? == self.handle {
            return Ok(());
        }
        // SAFETY: `self` keeps the context retained.
        self.check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.handle) })
    }

    /// Makes the context current on this thread until the guard is dropped: for threads of the caller, whose own choice
    /// of device must not change behind their back.
    pub(super) fn enter(&self) -> Result<Guard> {
        let previous = self.current()?;
        if previous != self.handle {
            // SAFETY: `self` keeps the context retained.
            self.check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.handle) })?;
        }
        Ok(Guard { previous, changed: previous != self.handle })
    }

    fn current(&self) -> Result<sys::CUcontext> {
        let mut current = ptr::null_mut();
        // SAFETY: `current` outlives the call that writes it.
        self.check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut current) })?;
        Ok(current)
    }

    /// Runs the call that gives something back, in this context. There is nobody to hand an error to, and after a fault
    /// of the device every such call fails, so errors are only logged.
    pub(super) fn release(&self, call: &str, release: impl FnOnce() -> sys::CUresult) {
        // Even in a context that is lost, so that the driver can drop what it still holds. Without the context the call would be
        // of another device, or of none; it is tried again, as what is not given back now never is.
        let guard = self.enter().or_else(|_| self.enter());
        if let Err(error) = guard.and_then(|_guard| self.check(call, release())) {
            tracing::debug!(%error, "release failed");
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        while let Some(stream) = take(&self.spare.streams) {
            // SAFETY: a spare stream is alive, has no work, and is destroyed here only.
            self.release("cuStreamDestroy", || unsafe { sys::cuStreamDestroy_v2(stream) });
        }
        while let Some(event) = take(&self.spare.events).or_else(|| take(&self.spare.timers)) {
            // SAFETY: a spare event is alive, and is destroyed here only.
            self.release("cuEventDestroy", || unsafe { sys::cuEventDestroy_v2(event) });
        }
        // SAFETY: retained by `retain`, released here only; all that lives in the context holds an `Arc` of `self`.
        let result = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
        if let Err(error) = self.check("cuDevicePrimaryCtxRelease", result) {
            tracing::debug!(%error, "release failed");
        }
    }
}

/// Gives a thread its previous context back.
pub(super) struct Guard {
    /// A raw pointer also keeps the guard on its thread.
    previous: sys::CUcontext,
    changed: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.changed {
            // SAFETY: it was current when the guard was made; whoever destroys a context that is current on a running
            // thread gets an error from the driver here, which is theirs.
            let restore = || unsafe { sys::cuCtxSetCurrent(self.previous) };
            // Tried again, as the caller's work would else go on in our context. If that fails too, none is current, and the
            // caller's next call says so.
            if restore() != sys::CUresult::CUDA_SUCCESS && restore() != sys::CUresult::CUDA_SUCCESS {
                // SAFETY: null means no context.
                let result = unsafe { sys::cuCtxSetCurrent(ptr::null_mut()) };
                tracing::warn!(?result, "the caller's CUDA context could not be made current again");
            }
        }
    }
}

/// One allocation of device memory.
pub(crate) struct Memory {
    context: Arc<Context>,
    start: sys::CUdeviceptr,
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
                Ok(Memory { context: context.clone(), start })
            }
        }
    }

    /// The address of a byte of it on the device.
    pub(super) fn address(&self, offset: usize) -> sys::CUdeviceptr {
        self.start + offset as u64
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated by `allocate`, freed here only.
        self.context.release("cuMemFree", || unsafe { sys::cuMemFree_v2(self.start) });
    }
}

/// Bytes of the device's memory that nobody uses.
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
    /// The driver may know the addresses already, though nobody has page-locked this memory: from memory that was there before
    /// and was unmapped without being unregistered. Copies would go to and from that memory's old pages, so such a
    /// registration is removed.
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
            // SAFETY: nobody has page-locked this memory, as the caller vouches for.
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

/// Makes the driver forget what it knows as page-locked in a range of addresses.
///
/// # Errors
/// [`Error::Device`] if such memory goes on beyond the range: there it may be in use.
///
/// # Safety
/// No memory in the range is page-locked now: what the driver knows of it is of memory that was unmapped. A context is current.
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
                    "new memory at {start:#x} is page-locked as part of older memory at {first:#x}, which was unmapped before it \
                     was unregistered"
                ),
                remedy: "have the code that page-locked it unregister memory before it unmaps it".into(),
            });
        }
        tracing::debug!(start = first, bytes = size, "removes a page-lock of memory that was unmapped");
        // SAFETY: as the caller vouches for, this is of memory that is gone.
        context.check("cuMemHostUnregister", unsafe { sys::cuMemHostUnregister(first as *mut c_void) })?;
        page = last;
    }
    Ok(())
}

/// Allocates page-locked memory by the driver and frees it.
pub(super) fn allocate_pinned_once(context: &Context, bytes: usize) -> Result<()> {
    let _guard = context.enter()?;
    let mut start = ptr::null_mut();
    // SAFETY: the context is current; `start` outlives the call that writes it.
    context.check("cuMemAllocHost", unsafe { sys::cuMemAllocHost_v2(&mut start, bytes) })?;
    // SAFETY: just allocated, and used by nobody.
    context.check("cuMemFreeHost", unsafe { sys::cuMemFreeHost(start) })
}

/// How far memory is page-locked, by whomever. The driver looks the addresses up and does not read what is there.
pub(super) fn pinned(context: &Context, memory: *const [u8], is_written: bool) -> Pinned {
    let (start, bytes) = (memory.cast::<u8>() as u64, memory.len() as u64);
    let Some(last) = bytes.checked_sub(1).map(|before| start.saturating_add(before)) else { return Pinned::No };
    let Ok(_guard) = context.enter() else { return Pinned::No };
    let (first_flags, last_flags) = (flags(start), flags(last));
    // That both ends are page-locked does not say that what is between them is: they may be of two registrations.
    let is_whole = range(start).is_some_and(|(first, size)| first <= start && last < first.saturating_add(size));
    match first_flags.zip(last_flags) {
        Some((flags, _)) if is_whole && !(is_written && flags & sys::CU_MEMHOSTREGISTER_READ_ONLY != 0) => {
            Pinned::Whole
        }
        None if first_flags.or(last_flags).is_none() => Pinned::No,
        _ => Pinned::InPart,
    }
}

/// How a byte of host memory was page-locked, if it is.
fn flags(byte: u64) -> Option<u32> {
    let mut flags = 0;
    // SAFETY: a context is current; `flags` outlives the call that writes it.
    let result = unsafe { sys::cuMemHostGetFlags(&mut flags, byte as *mut c_void) };
    (result == sys::CUresult::CUDA_SUCCESS).then_some(flags)
}

/// Where the page-locked memory begins that an address lies in, and how many bytes it has.
fn range(address: u64) -> Option<(u64, u64)> {
    attribute(sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address)
        .zip(attribute(sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE, address))
}

/// An attribute of 64 bits of an address, if it has that.
fn attribute(attribute: sys::CUpointer_attribute, address: sys::CUdeviceptr) -> Option<u64> {
    let mut value = 0_u64;
    // SAFETY: a context is current; the attributes asked for have 64 bits, and `value` outlives the call that writes it.
    let result = unsafe { sys::cuPointerGetAttribute((&raw mut value).cast::<c_void>(), attribute, address) };
    (result == sys::CUresult::CUDA_SUCCESS).then_some(value)
}

impl Drop for Pin {
    fn drop(&mut self) {
        let start = self.start as *mut c_void;
        // SAFETY: registered by `new`, unregistered here only.
        self.context.release("cuMemHostUnregister", || unsafe { sys::cuMemHostUnregister(start) });
    }
}
