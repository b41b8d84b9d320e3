//! Checks that the stand-ins for the CUDA driver and cuBLAS notice misuse. Tests on a driver that accepts mistakes are
//! worthless.
//!
//! Each case runs in a separate process that loads the stand-in: this program, started again. The tests of the CUDA
//! device on the stand-in are in `src/device/cuda/tests/`.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the calls break the driver's rules on purpose")]
#![allow(clippy::unwrap_used, reason = "in tests")]

use std::env;
use std::ffi::c_void;
use std::path::Path;
use std::process::Command;
use std::ptr;

use cudarc::cublas::sys as cublas;
use cudarc::cublas::sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS;
use cudarc::driver::sys;
use cudarc::driver::sys::CUresult::CUDA_SUCCESS;

/// Runs an ignored test on the stand-in. Returns whether it passed, and its output.
fn run(test: &str) -> (bool, String) {
    let program = env::current_exe().unwrap();
    let examples = program.parent().and_then(Path::parent).unwrap().join("examples");
    for library in ["libcuda.so", "libcublas.so"] {
        assert!(examples.join(library).exists(), "no stand-in: run `cargo build --examples`");
    }
    let output = Command::new(program)
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", examples)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (output.status.success() && text.contains("1 passed"), text)
}

/// A device with a context, a stream and some memory, used correctly.
struct Used {
    stream: sys::CUstream,
    memory: sys::CUdeviceptr,
}

const BYTES: usize = 1 << 20;

impl Used {
    fn open() -> Used {
        let (mut context, mut stream, mut memory) = (ptr::null_mut(), ptr::null_mut(), 0);
        unsafe {
            assert_eq!(sys::cuInit(0), CUDA_SUCCESS);
            assert_eq!(sys::cuDevicePrimaryCtxRetain(&mut context, 0), CUDA_SUCCESS);
            assert_eq!(sys::cuCtxSetCurrent(context), CUDA_SUCCESS);
            assert_eq!(sys::cuStreamCreate(&mut stream, 1), CUDA_SUCCESS);
            assert_eq!(sys::cuMemAlloc_v2(&mut memory, BYTES), CUDA_SUCCESS);
        }
        Used { stream, memory }
    }

    fn copy_in(&self, from: &[u8], offset: usize) -> sys::CUresult {
        unsafe { sys::cuMemcpyHtoDAsync_v2(self.memory + offset as u64, from.as_ptr().cast(), from.len(), self.stream) }
    }

    /// Makes a handle of cuBLAS with a stream, and with the first half of the memory as its workspace.
    fn multiplies(&self) -> cublas::cublasHandle_t {
        let mut handle = ptr::null_mut();
        let math = cublas::cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
        unsafe {
            assert_eq!(cublas::cublasCreate_v2(&mut handle), CUBLAS_STATUS_SUCCESS);
            cublas::cublasSetStream_v2(handle, self.stream.cast());
            cublas::cublasSetWorkspace_v2(handle, self.memory as *mut c_void, BYTES / 2);
            cublas::cublasSetPointerMode_v2(handle, cublas::cublasPointerMode_t::CUBLAS_POINTER_MODE_HOST);
            cublas::cublasSetMathMode(handle, math);
            cublas::cublasSetAtomicsMode(handle, cublas::cublasAtomicsMode_t::CUBLAS_ATOMICS_NOT_ALLOWED);
        }
        handle
    }

    /// Multiplies three rows of two and of four numbers, with this second leading dimension. The operands and the sum
    /// begin so many numbers behind the workspace.
    fn multiply(&self, handle: cublas::cublasHandle_t, ldb: i64, at: [usize; 3]) -> cublas::cublasStatus_t {
        use cublas::cublasOperation_t::{CUBLAS_OP_N, CUBLAS_OP_T};
        let [left, right, sum] = at.map(|number| (self.memory + (BYTES / 2 + number * 8) as u64) as *mut f64);
        let (on_a, on_b) = (CUBLAS_OP_N, CUBLAS_OP_T);
        unsafe { cublas::cublasDgemm_v2_64(handle, on_a, on_b, 4, 2, 3, &1.0, right, 4, left, ldb, &0.0, sum, 4) }
    }

    fn close(self) {
        unsafe {
            assert_eq!(sys::cuStreamSynchronize(self.stream), CUDA_SUCCESS);
            assert_eq!(sys::cuStreamDestroy_v2(self.stream), CUDA_SUCCESS);
            assert_eq!(sys::cuMemFree_v2(self.memory), CUDA_SUCCESS);
            assert_eq!(sys::cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        }
    }
}

#[test]
#[ignore = "needs the stand-in driver"]
fn proper_use() {
    let used = Used::open();
    assert_eq!(used.copy_in(&[1; 100], BYTES - 100), CUDA_SUCCESS);
    let handle = used.multiplies();
    assert_eq!(used.multiply(handle, 2, [0, 6, 18]), CUBLAS_STATUS_SUCCESS);
    assert_eq!(unsafe { sys::cuStreamSynchronize(used.stream) }, CUDA_SUCCESS);
    assert_eq!(unsafe { cublas::cublasDestroy_v2(handle) }, CUBLAS_STATUS_SUCCESS);
    used.close();
}

#[test]
fn proper_use_passes() {
    let (passed, text) = run("proper_use");
    assert!(passed, "{text}");
}

/// A case of misuse, and the test that expects its message.
macro_rules! misuse {
    ($($case:ident, $expected:ident, $message:literal: |$used:ident| $body:block)*) => { $(
        #[test]
        #[ignore = "needs the stand-in driver, and ends the process"]
        fn $case() {
            let $used = Used::open();
            $body
        }

        #[test]
        fn $expected() {
            let (passed, text) = run(stringify!($case));
            assert!(!passed && text.contains(concat!("misuse: ", $message)), "{text}");
        }
    )* };
}

misuse! {
    copy_past_the_end, copy_past_the_end_is_noticed, "100 bytes at": |used| {
        used.copy_in(&[1; 100], BYTES - 99);
    }
    use_after_free, use_after_free_is_noticed, "100 bytes at": |used| {
        unsafe { sys::cuMemFree_v2(used.memory) };
        used.copy_in(&[1; 100], 0);
    }
    free_twice, free_twice_is_noticed, "0 bytes at": |used| {
        unsafe { sys::cuMemFree_v2(used.memory) };
        unsafe { sys::cuMemFree_v2(used.memory) };
    }
    destroyed_event, destroyed_event_is_noticed, "0x": |used| {
        let mut event = ptr::null_mut();
        unsafe { sys::cuEventCreate(&mut event, 0) };
        unsafe { sys::cuEventDestroy_v2(event) };
        unsafe { sys::cuEventRecord(event, used.stream) };
    }
    default_stream, default_stream_is_noticed, "0x0 is no stream": |used| {
        unsafe { sys::cuMemcpyHtoDAsync_v2(used.memory, [1_u8; 8].as_ptr().cast(), 8, ptr::null_mut()) };
    }
    leak, leak_is_noticed, "left over with device 0: 1 streams, 0 events, 0 modules, 1048576 bytes": |_used| {
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(0) };
    }
    leaked_handle, leaked_handle_is_noticed, "left over with device 0: 0 streams, 0 events, 0 modules, 0 bytes, \
        0 registrations, 1 handles of cuBLAS": |used| {
        used.multiplies();
        used.close();
    }
    destroyed_handle, destroyed_handle_is_noticed, "0x": |used| {
        let handle = used.multiplies();
        unsafe { cublas::cublasDestroy_v2(handle) };
        used.multiply(handle, 2, [0, 6, 18]);
    }
    no_stream, no_stream_is_noticed, "a product without a stream": |used| {
        let mut handle = ptr::null_mut();
        unsafe { cublas::cublasCreate_v2(&mut handle) };
        used.multiply(handle, 2, [0, 6, 18]);
    }
    no_workspace, no_workspace_is_noticed, "a product without a workspace": |used| {
        let handle = used.multiplies();
        // A new stream takes the workspace away.
        unsafe { cublas::cublasSetStream_v2(handle, used.stream.cast()) };
        used.multiply(handle, 2, [0, 6, 18]);
    }
    one_workspace, one_workspace_is_noticed, "two handles of cuBLAS with the same workspace": |used| {
        used.multiplies();
        used.multiplies();
    }
    other_math, other_math_is_noticed, "a product with the modes": |used| {
        let handle = used.multiplies();
        unsafe { cublas::cublasSetMathMode(handle, cublas::cublasMath_t::CUBLAS_DEFAULT_MATH) };
        used.multiply(handle, 2, [0, 6, 18]);
    }
    wrong_dimension, wrong_dimension_is_noticed, "a product of the sizes [4, 2, 3] with": |used| {
        used.multiply(used.multiplies(), 3, [0, 6, 18]);
    }
    short_operand, short_operand_is_noticed, "48 bytes at": |used| {
        used.multiply(used.multiplies(), 2, [BYTES / 16 - 5, 0, 12]);
    }
    overlapping_sum, overlapping_sum_is_noticed, "a result that overlaps": |used| {
        used.multiply(used.multiplies(), 2, [0, 6, 17]);
    }
    no_context, no_context_is_noticed, "cuBLAS is called without a context": |_used| {
        unsafe { sys::cuCtxSetCurrent(ptr::null_mut()) };
        unsafe { cublas::cublasCreate_v2(&mut ptr::null_mut()) };
    }
    early_unpin, early_unpin_is_noticed, "host memory is unregistered while queued": |used| {
        let host = PAGES.0.as_ptr().cast_mut().cast();
        let bytes = size_of_val(&PAGES);
        unsafe { sys::cuMemHostRegister_v2(host, bytes, 1) };
        // Enough work that it cannot be finished at once.
        for _ in 0..10_000 {
            unsafe { sys::cuMemcpyHtoDAsync_v2(used.memory, host, bytes, used.stream) };
        }
        unsafe { sys::cuMemHostUnregister(host) };
    }
}

#[repr(align(4096))]
struct Pages([u8; BYTES]);
static PAGES: Pages = Pages([1; BYTES]);
