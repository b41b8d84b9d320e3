//! Entry points of the management library (NVML), which describes devices without creating a context.
//!
//! They are in the same library as the driver, because they report its state: a link named `libnvidia-ml.so.1` to
//! `libcuda.so` is the stand-in for NVML. It sees all devices, whatever `CUDA_VISIBLE_DEVICES` says.

use std::ffi::{CStr, c_char, c_uint, c_ulonglong};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::settings::SETTINGS;
use crate::state::driver;
use crate::{Code, answer, bus_id, give, misuse, release};

const NOT_FOUND: Code = 6;

/// The number of initialisations without a shutdown.
static USERS: AtomicUsize = AtomicUsize::new(0);

/// The device behind a handle, which is its number counted from 1.
fn known(handle: usize) -> usize {
    if USERS.load(Ordering::SeqCst) == 0 || !(1..=SETTINGS.devices).contains(&handle) {
        misuse(format_args!("{handle} is no device of the management library, or that is shut down"));
    }
    handle - 1
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Code {
    answer("nvmlInit_v2", || {
        USERS.fetch_add(1, Ordering::SeqCst);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> Code {
    release("nvmlShutdown", || {
        if USERS.fetch_sub(1, Ordering::SeqCst) == 0 {
            misuse(format_args!("the management library is shut down more often than it was initialised"));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(id: *const c_char, handle: *mut usize) -> Code {
    answer("nvmlDeviceGetHandleByPciBusId_v2", || {
        // SAFETY: the library's contract: a text that ends with a zero byte.
        let id = unsafe { CStr::from_ptr(id) }.to_str().map_err(|_| NOT_FOUND)?;
        let device = (0..SETTINGS.devices).find(|&device| bus_id(device) == id).ok_or(NOT_FOUND)?;
        // SAFETY: the library's contract.
        unsafe { give(handle, device + 1) }
    })
}

#[repr(C)]
pub struct MemoryInfo {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(handle: usize, info: *mut MemoryInfo) -> Code {
    answer("nvmlDeviceGetMemoryInfo_v2", || {
        let device = known(handle);
        let (total, used) = (SETTINGS.memory(device), driver().used(device));
        let [total, used, free] = [total, used, total - used].map(|bytes| bytes as c_ulonglong);
        // SAFETY: the library's contract.
        unsafe { give(info, MemoryInfo { version: 2, total, reserved: 0, free, used }) }
    })
}

#[repr(C)]
pub struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(handle: usize, rates: *mut Utilization) -> Code {
    known(handle);
    // SAFETY: the library's contract.
    answer("nvmlDeviceGetUtilizationRates", || unsafe { give(rates, Utilization { gpu: 7, memory: 3 }) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxPcieLinkGeneration(handle: usize, generation: *mut c_uint) -> Code {
    known(handle);
    // SAFETY: the library's contract.
    answer("nvmlDeviceGetMaxPcieLinkGeneration", || unsafe { give(generation, 5) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCurrPcieLinkWidth(handle: usize, width: *mut c_uint) -> Code {
    known(handle);
    // SAFETY: the library's contract.
    answer("nvmlDeviceGetCurrPcieLinkWidth", || unsafe { give(width, 16) })
}
