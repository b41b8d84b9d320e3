//! The reaction of the device to failures of the driver. Needs the stand-in driver, which fails on request.

use crate::device::cuda::CudaDevice;
use crate::device::{Device, Precision, Stream, WORKSPACE_BYTES, contract};

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

#[test]
#[ignore = "needs a CUDA driver that fails a call of cuBLAS"]
fn reports_a_failed_product() {
    contract::check_failed_product(&CudaDevice::open(0).unwrap());
}

#[test]
#[ignore = "needs a CUDA driver that fails a call of cuBLAS"]
fn reports_a_failed_matrix_product() {
    contract::check_failed_matrix_product(&CudaDevice::open(0).unwrap());
}

/// Returns the error of a stream that cannot be made ready to multiply.
fn no_products() -> String {
    let device = CudaDevice::open(0).unwrap();
    let workspace = device.allocate(WORKSPACE_BYTES).unwrap();
    let mut stream = device.open_stream().unwrap();
    // SAFETY: only this stream uses the workspace, and it is dropped before it.
    unsafe { stream.prepare_products(&workspace, Precision::Full) }.unwrap_err().to_string()
}

#[test]
#[ignore = "needs a CUDA driver, and no cuBLAS"]
fn tells_how_to_get_cublas() {
    let error = no_products();
    let is_right = error.starts_with("cuda: cuBLAS, which multiplies matrices, was not found; install cuBLAS");
    assert!(is_right && error.contains("`pip install nvidia-cublas`"), "{error}");
}

#[test]
#[ignore = "needs a CUDA driver, and a cuBLAS that lacks a function"]
fn tells_what_cublas_lacks() {
    let error = no_products();
    let is_right = error.starts_with("cuda: the cuBLAS that was found lacks cublasDgemm_v2_64; install cuBLAS");
    assert!(is_right, "{error}");
}
