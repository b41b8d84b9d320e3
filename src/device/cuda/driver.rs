//! The CUDA driver library: finding it, listing its devices, and translating its error codes.
//!
//! Nothing here creates a context, so describing a device does not open it.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use cudarc::driver::{result::DriverError, sys};

use crate::device::visible::{not_visible, visible_devices};
use crate::device::{DeviceDetails, DeviceInfo, DeviceKind};
use crate::error::{Error, Result};

/// Every driver function that this folder calls.
///
/// cudarc looks up a function at its first call and panics if it is missing, so all functions are looked up in
/// advance. Two functions are not in the list: `cuEventElapsedTime_v2`, which drivers before 12.8 lack and
/// [`elapsed_time`] can do without, and `cuFuncGetParamInfo`, which drivers before 12.4 lack.
const FUNCTIONS: [&str; 38] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorString",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetAttribute",
    "cuDeviceGetPCIBusId",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemAllocHost_v2",
    "cuMemFreeHost",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemHostGetFlags",
    "cuPointerGetAttribute",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuModuleUnload",
    "cuLaunchKernel",
    "cuStreamCreate",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuStreamDestroy_v2",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventDestroy_v2",
];

/// The oldest driver that is known to have all of these functions and to accept the output of NVRTC 12 and later.
const OLDEST_DRIVER: c_int = 12_000;

/// The remedy if no GPU is visible.
const HIDDEN: &str =
    "check that `nvidia-smi` lists a GPU and that CUDA_VISIBLE_DEVICES does not hide it, or run on the cpu";

/// The reason why a library cannot be used. Stored for the life of the process, because it does not change.
pub(super) struct Missing {
    pub(super) problem: String,
    pub(super) remedy: &'static str,
}

impl Missing {
    pub(super) fn error(&self) -> Error {
        Error::Device { device: "cuda".into(), problem: self.problem.clone(), remedy: self.remedy.into() }
    }
}

/// Loads and initialises the driver, once.
///
/// # Errors
/// [`Error::Device`] if there is no driver, it is too old, or there is no device. After `Ok`, all [`FUNCTIONS`] can
/// be called without a panic.
pub(super) fn init() -> Result<()> {
    found().map(drop)
}

/// Returns the newest CUDA version that the driver supports, such as `CUDA 13.0`.
///
/// # Errors
/// Those of [`init`].
pub(crate) fn version() -> Result<String> {
    found().map(|version| format!("CUDA {}", dotted(version)))
}

fn found() -> Result<c_int> {
    static DRIVER: OnceLock<Result<c_int, Missing>> = OnceLock::new();
    DRIVER.get_or_init(probe).as_ref().map_err(Missing::error).copied()
}

fn dotted(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Loads the driver and returns its version.
fn probe() -> Result<c_int, Missing> {
    // SAFETY: loading libcuda runs its initialisers. The driver library of the machine is trusted.
    if !unsafe { sys::is_culib_present() } {
        return Err(Missing {
            problem: "libcuda.so.1, the CUDA driver, was not found".into(),
            remedy: "install the NVIDIA driver, or run on the cpu or emulated device",
        });
    }
    for name in FUNCTIONS {
        if !has(name) {
            return Err(Missing {
                problem: format!("the CUDA driver lacks {name}"),
                remedy: "update the NVIDIA driver to 525 or later",
            });
        }
    }
    let code = |call: &str, result: sys::CUresult| match result {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        sys::CUresult::CUDA_ERROR_NO_DEVICE => {
            Err(Missing { problem: format!("the driver shows no GPU{}", visible_devices()), remedy: HIDDEN })
        }
        other => Err(Missing { problem: describe(call, other), remedy: remedy(other) }),
    };
    let mut version = 0;
    // SAFETY: `FUNCTIONS` holds both functions; `version` outlives the call that writes it.
    unsafe {
        code("cuInit", sys::cuInit(0))?;
        code("cuDriverGetVersion", sys::cuDriverGetVersion(&mut version))?;
    }
    if version < OLDEST_DRIVER {
        return Err(Missing {
            problem: format!("the CUDA driver is for CUDA {}", dotted(version)),
            remedy: "update the NVIDIA driver to 525 (CUDA 12.0) or later",
        });
    }
    tracing::debug!(version, "CUDA driver found");
    Ok(version)
}

fn has(name: &str) -> bool {
    // SAFETY: called only after the library was found. The symbol is only looked up, never called through this type.
    unsafe { sys::culib().get::<unsafe extern "C" fn()>(name.as_bytes()).is_ok() }
}

/// One device as the driver describes it.
pub(super) struct Found {
    pub(super) handle: sys::CUdevice,
    pub(super) info: DeviceInfo,
    /// The compute capability as NVRTC counts it: 90 for 9.0.
    pub(super) arch: u32,
}

/// Lists all CUDA devices without opening them.
///
/// # Errors
/// [`Error::Device`] with the reason if CUDA cannot be used on this machine.
pub(crate) fn devices() -> Result<Vec<DeviceInfo>> {
    match count()? {
        0 => Err(Error::Device {
            device: "cuda".into(),
            problem: format!("the driver shows no GPU{}", visible_devices()),
            remedy: HIDDEN.into(),
        }),
        count => (0..count).map(|ordinal| Ok(find(ordinal)?.info)).collect(),
    }
}

fn count() -> Result<usize> {
    init()?;
    let mut count = 0;
    // SAFETY: `init` found the function; `count` outlives the call that writes it.
    check("cuda", "cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Describes one device.
///
/// # Errors
/// [`Error::Device`] if CUDA cannot be used, or there is no device with this number.
pub(super) fn find(ordinal: usize) -> Result<Found> {
    let id = format!("cuda:{ordinal}");
    let count = count()?;
    let Some(number) = c_int::try_from(ordinal).ok().filter(|_| ordinal < count) else {
        return Err(not_visible(ordinal, count));
    };
    let (mut handle, mut memory, mut name, mut pci) = (0, 0, [0; 256], [0; 32]);
    let attribute = |attribute, handle| -> Result<u32> {
        let mut value = 0;
        // SAFETY: `init` (by `count`) found the function; `value` outlives the call that writes it.
        let result = unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, handle) };
        check(&id, "cuDeviceGetAttribute", result)?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    // SAFETY: `init` (by `count`) found the functions; every pointer is to a local that outlives the call, and the
    // lengths are those of the buffers.
    unsafe {
        check(&id, "cuDeviceGet", sys::cuDeviceGet(&mut handle, number))?;
        check(&id, "cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, handle))?;
        check(&id, "cuDeviceTotalMem", sys::cuDeviceTotalMem_v2(&mut memory, handle))?;
        check(&id, "cuDeviceGetPCIBusId", sys::cuDeviceGetPCIBusId(pci.as_mut_ptr(), pci.len() as c_int, handle))?;
    }
    let major = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle)?;
    let minor = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, handle)?;
    let info = DeviceInfo {
        id,
        name: text(&name),
        kind: DeviceKind::Cuda,
        memory_bytes: memory as u64,
        compute_capability: Some(format!("{major}.{minor}")),
        details: DeviceDetails { pci_bus_id: Some(text(&pci)), ..DeviceDetails::default() },
    };
    Ok(Found { handle, info, arch: major * 10 + minor })
}

fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the time between two events in milliseconds, with the version of `cuEventElapsedTime` that the driver has.
///
/// # Safety
/// [`init`] succeeded and both events are alive.
pub(super) unsafe fn elapsed_time(milliseconds: &mut f32, from: sys::CUevent, to: sys::CUevent) -> sys::CUresult {
    type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;
    static FUNCTION: OnceLock<Option<ElapsedTime>> = OnceLock::new();
    let function = FUNCTION.get_or_init(|| {
        // SAFETY: `init` loaded the library; both functions have this signature.
        let library = unsafe { sys::culib() };
        // SAFETY: as above.
        let newer = unsafe { library.get::<ElapsedTime>(b"cuEventElapsedTime_v2") };
        // SAFETY: as above.
        newer.or_else(|_| unsafe { library.get::<ElapsedTime>(b"cuEventElapsedTime") }).ok().map(|symbol| *symbol)
    });
    match function {
        // SAFETY: the caller vouches for the events; `milliseconds` is a reference.
        Some(function) => unsafe { function(milliseconds, from, to) },
        None => sys::CUresult::CUDA_ERROR_NOT_SUPPORTED,
    }
}

/// Returns whether the driver reports the parameters of a kernel (CUDA 12.4 and later). If so, [`parameter_bytes`]
/// may be called.
pub(super) fn tells_parameters() -> bool {
    static TELLS: OnceLock<bool> = OnceLock::new();
    *TELLS.get_or_init(|| init().is_ok() && has("cuFuncGetParamInfo"))
}

/// Returns the size of the kernel parameter with this number; `None` if the kernel has fewer parameters.
///
/// # Errors
/// The error code of the driver.
///
/// # Safety
/// [`tells_parameters`] returned true, and the function is alive.
pub(super) unsafe fn parameter_bytes(
    function: sys::CUfunction,
    number: usize,
) -> std::result::Result<Option<usize>, sys::CUresult> {
    let (mut offset, mut bytes) = (0, 0);
    // SAFETY: the caller vouches for the function; both numbers outlive the call that writes them.
    match unsafe { sys::cuFuncGetParamInfo(function, number, &mut offset, &mut bytes) } {
        sys::CUresult::CUDA_SUCCESS => Ok(Some(bytes)),
        sys::CUresult::CUDA_ERROR_INVALID_VALUE => Ok(None),
        other => Err(other),
    }
}

/// Converts the result of the driver call `call`.
///
/// # Errors
/// [`Error::Device`] if the call failed.
pub(super) fn check(device: &str, call: &str, result: sys::CUresult) -> Result<()> {
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        other => {
            Err(Error::Device { device: device.into(), problem: describe(call, other), remedy: remedy(other).into() })
        }
    }
}

fn describe(call: &str, result: sys::CUresult) -> String {
    // The driver owns the string, which is static. `FUNCTIONS` contains the function that cudarc calls for it.
    match DriverError(result).error_string().map(CStr::to_string_lossy) {
        Ok(text) => format!("{call} failed: {result:?} ({text})"),
        Err(_) => format!("{call} failed: {result:?}"),
    }
}

fn remedy(result: sys::CUresult) -> &'static str {
    use sys::CUresult::*;
    match result {
        CUDA_ERROR_NO_DEVICE => HIDDEN,
        CUDA_ERROR_STUB_LIBRARY => "take the toolkit's stub libcuda.so off LD_LIBRARY_PATH",
        CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => "reboot: the driver was updated but the old kernel module still runs",
        CUDA_ERROR_SYSTEM_NOT_READY => "start the service that the GPU needs (nvidia-fabricmanager)",
        CUDA_ERROR_DEVICE_UNAVAILABLE => "wait until the GPU is free: another process uses it exclusively",
        CUDA_ERROR_OUT_OF_MEMORY => "close other programs on the device, or set a smaller chunk size or memory limit",
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION | CUDA_ERROR_NO_BINARY_FOR_GPU | CUDA_ERROR_INVALID_IMAGE => {
            "update the NVIDIA driver, or install an NVRTC that is no newer than the driver"
        }
        CUDA_ERROR_ECC_UNCORRECTABLE | CUDA_ERROR_NVLINK_UNCORRECTABLE => {
            "restart the program, because this process can no longer use the GPU; its memory or link is faulty, so \
             have it checked (`nvidia-smi -q`), and use another device until then"
        }
        CUDA_ERROR_ILLEGAL_ADDRESS
        | CUDA_ERROR_MISALIGNED_ADDRESS
        | CUDA_ERROR_ILLEGAL_INSTRUCTION
        | CUDA_ERROR_LAUNCH_FAILED
        | CUDA_ERROR_LAUNCH_TIMEOUT => {
            "restart the program, because this process can no longer use the GPU; if you use a custom kernel, check it \
             with compute-sanitizer, otherwise report a bug of Overshot"
        }
        _ => "see `nvidia-smi` and the kernel log for the state of the GPU",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_at_the_terminator() {
        assert_eq!(text(&[b'a' as c_char, b'b' as c_char, 0, b'c' as c_char]), "ab");
        assert_eq!(text(&[]), "");
    }
}
