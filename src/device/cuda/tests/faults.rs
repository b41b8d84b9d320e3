//! The reaction of the device to failures of the driver. Needs the stand-in driver, which fails on request.

use crate::device::cuda::CudaDevice;
use crate::device::{Device, contract};

#[test]
#[ignore = "needs a CUDA driver whose next allocation fails"]
fn survives_a_failed_allocation() {
    contract::check_failed_allocation(&CudaDevice::open(0).unwrap());
}

#[test]
#[ignore = "needs a CUDA driver that fails a copy or a launch"]
fn reports_failed_work() {
    contract::check_failed_work(&CudaDevice::open(0).unwrap());
}

#[test]
#[ignore = "needs a CUDA driver whose next registration of host memory fails"]
fn reports_memory_that_cannot_be_pinned() {
    let device = CudaDevice::open(0).unwrap();
    let page = std::alloc::Layout::from_size_align(4096, 4096).unwrap();
    // SAFETY: the layout has a size, and the pin is dropped before the memory is freed.
    unsafe {
        let start = std::alloc::alloc_zeroed(page);
        let error = device.pin(start, 4096).err().unwrap().to_string();
        assert!(error.starts_with("cuda:0: 4096 bytes of host memory") && error.contains("ulimit"), "{error}");
        drop(device.pin(start, 4096).unwrap());
        std::alloc::dealloc(start, page);
    }
}
