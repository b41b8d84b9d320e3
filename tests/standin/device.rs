//! Entry points that concern devices and their contexts.

use std::ffi::{c_char, c_int, c_uint};
use std::slice;

use crate::settings::SETTINGS;
use crate::state::driver;
use crate::{CURRENT, Code, INVALID_VALUE, OUT_OF_MEMORY, answer, bus_id, give, release};

const NO_DEVICE: Code = 100;
const INVALID_DEVICE: Code = 101;

fn known_device(device: c_int) -> Result<usize, Code> {
    usize::try_from(device).ok().filter(|&device| device < SETTINGS.devices).ok_or(INVALID_DEVICE)
}

/// # Safety
/// `to` is valid for `length` bytes.
unsafe fn give_text(to: *mut c_char, length: c_int, text: &str) -> Result<(), Code> {
    // SAFETY: by this function's contract, which is the driver's.
    let to = unsafe { slice::from_raw_parts_mut(to.cast::<u8>(), length as usize) };
    let end = text.len().min(to.len() - 1);
    to[..end].copy_from_slice(&text.as_bytes()[..end]);
    to[end] = 0;
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> Code {
    answer("cuInit", || if SETTINGS.visible.is_empty() { Err(NO_DEVICE) } else { Ok(()) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Code {
    // SAFETY: the driver's contract.
    answer("cuDriverGetVersion", || unsafe { give(version, 13_000) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(_error: Code, text: *mut *const c_char) -> Code {
    // SAFETY: the driver's contract.
    answer("cuGetErrorString", || unsafe {
        give(text, c"so the stand-in driver was told, or asked for nonsense".as_ptr())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Code {
    // SAFETY: the driver's contract.
    answer("cuDeviceGetCount", || unsafe { give(count, SETTINGS.visible.len() as c_int) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> Code {
    answer("cuDeviceGet", || {
        let visible = usize::try_from(ordinal).ok().and_then(|ordinal| SETTINGS.visible.get(ordinal));
        // SAFETY: the driver's contract.
        visible.ok_or(INVALID_DEVICE).and_then(|&known| unsafe { give(device, known as c_int) })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> Code {
    // SAFETY: the driver's contract.
    answer("cuDeviceGetName", || known_device(device).and_then(|_| unsafe { give_text(name, length, "Stand-in GPU") }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(id: *mut c_char, length: c_int, device: c_int) -> Code {
    answer("cuDeviceGetPCIBusId", || {
        // SAFETY: the driver's contract.
        known_device(device).and_then(|device| unsafe { give_text(id, length, &bus_id(device)) })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> Code {
    answer("cuDeviceTotalMem_v2", || {
        // SAFETY: the driver's contract.
        known_device(device).and_then(|device| unsafe { give(bytes, SETTINGS.memory(device)) })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> Code {
    answer("cuDeviceGetAttribute", || {
        known_device(device)?;
        let answer = match attribute {
            75 => 9, // compute capability, major
            76 => 0, // and minor
            _ => return Err(INVALID_VALUE),
        };
        // SAFETY: the driver's contract.
        unsafe { give(value, answer) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut u64, device: c_int) -> Code {
    answer("cuDevicePrimaryCtxRetain", || {
        let retained = driver().retain(known_device(device)?).ok_or(OUT_OF_MEMORY)?;
        // SAFETY: the driver's contract.
        unsafe { give(context, retained) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int) -> Code {
    answer("cuDevicePrimaryCtxGetState", || {
        let active_now = driver().is_retained(known_device(device)?);
        // SAFETY: the driver's contract.
        unsafe { give(flags, 0).and_then(|()| give(active, c_int::from(active_now))) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> Code {
    release("cuDevicePrimaryCtxRelease_v2", || known_device(device).map(|device| driver().release(device)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut u64) -> Code {
    // SAFETY: the driver's contract.
    answer("cuCtxGetCurrent", || unsafe { give(context, CURRENT.get()) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: u64) -> Code {
    answer("cuCtxSetCurrent", || {
        if context != 0 {
            driver().device_of(context);
        }
        CURRENT.set(context);
        Ok(())
    })
}
