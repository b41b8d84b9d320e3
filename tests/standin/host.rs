//! Entry points for host memory, and two that no driver has: they report how much memory is allocated and copied.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::Ordering;

use crate::queue::COPIED;
use crate::settings::{Fate, SETTINGS};
use crate::state::driver;
use crate::{Code, INVALID_VALUE, OUT_OF_MEMORY, answer, current, give, healthy, misuse, release};

const ALREADY_REGISTERED: Code = 712;
const NOT_REGISTERED: Code = 713;
const PORTABLE: c_uint = 1;

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostRegister_v2(start: *mut c_void, bytes: usize, flags: c_uint) -> Code {
    answer("cuMemHostRegister_v2", || {
        let mut driver = driver();
        healthy(&driver)?;
        if !(start as usize).is_multiple_of(4096) || bytes == 0 || flags & 1 == 0 {
            misuse(format_args!("{bytes} bytes of host memory at {start:?} registered with flags {flags}"));
        }
        if SETTINGS.pin.next() != Fate::Succeeds {
            return Err(OUT_OF_MEMORY);
        }
        if driver.memory.pin(start as usize, bytes, flags) { Ok(()) } else { Err(ALREADY_REGISTERED) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostUnregister(start: *mut c_void) -> Code {
    release("cuMemHostUnregister", || {
        let mut driver = driver();
        let device = current(&driver)?;
        driver.memory.unpin(start as usize);
        driver.fault(device)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostGetFlags(flags: *mut c_uint, byte: *mut c_void) -> Code {
    answer("cuMemHostGetFlags", || {
        let pinned = driver().memory.pinned(byte as usize, 1).ok_or(NOT_REGISTERED)?;
        // SAFETY: the driver's contract.
        unsafe { give(flags, pinned.flags) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttribute(value: *mut c_void, attribute: c_uint, address: u64) -> Code {
    answer("cuPointerGetAttribute", || {
        let driver = driver();
        healthy(&driver)?;
        let block = driver.memory.block_at(address);
        let pinned = if block.is_some() { None } else { driver.memory.pinned(address as usize, 1) };
        let range = match (&block, &pinned) {
            (Some(block), _) => (block.start() as usize, block.bytes()),
            (None, Some(pinned)) => (pinned.range.start, pinned.range.len()),
            (None, None) => return Err(INVALID_VALUE),
        };
        // SAFETY: the driver's contract.
        let give_word = |answer: usize| unsafe { give(value.cast::<u64>(), answer as u64) };
        // SAFETY: the driver's contract: these attributes have 32 bits.
        let give_half = |answer: usize| unsafe { give(value.cast::<u32>(), answer as u32) };
        match attribute {
            2 => give_half(if block.is_some() { 2 } else { 1 }), // memory of a device, or of the host
            9 => give_half(block.map_or(0, |block| block.device)),
            11 => give_word(range.0), // where the allocation or registration begins
            12 => give_word(range.1), // and its size
            _ => misuse(format_args!("attribute {attribute} of a pointer is asked for")),
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocHost_v2(address: *mut *mut c_void, bytes: usize) -> Code {
    answer("cuMemAllocHost_v2", || {
        let mut driver = driver();
        healthy(&driver)?;
        let start = driver.memory.allocate_host(bytes, PORTABLE).ok_or(OUT_OF_MEMORY)?;
        // SAFETY: the driver's contract.
        unsafe { give(address, start.cast()) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeHost(start: *mut c_void) -> Code {
    release("cuMemFreeHost", || {
        let mut driver = driver();
        let device = current(&driver)?;
        driver.memory.free_host(start as usize);
        driver.fault(device)
    })
}

/// Bytes of device memory that are allocated, on all devices.
#[unsafe(no_mangle)]
pub extern "C" fn standinDeviceBytes() -> u64 {
    driver().memory.blocks.values().map(|block| block.bytes() as u64).sum()
}

/// Bytes of host memory that are page-locked.
#[unsafe(no_mangle)]
pub extern "C" fn standinPinnedBytes() -> u64 {
    driver().memory.pinned_bytes()
}

/// Bytes that copies have moved so far, to and from all devices.
#[unsafe(no_mangle)]
pub extern "C" fn standinCopiedBytes() -> u64 {
    COPIED.load(Ordering::SeqCst)
}
