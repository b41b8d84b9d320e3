//! Checks that the stand-in for the CUDA driver notices misuse. Tests on a driver that accepts mistakes are worthless.
//!
//! Each case runs in a separate process that loads the stand-in: this program, started again. The tests of the CUDA
//! device on the stand-in are in `src/device/cuda/tests/`.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the calls break the driver's rules on purpose")]
#![allow(clippy::unwrap_used, reason = "in tests")]

use std::env;
use std::path::Path;
use std::process::Command;
use std::ptr;

use cudarc::driver::sys;
use cudarc::driver::sys::CUresult::CUDA_SUCCESS;

/// Runs an ignored test on the stand-in. Returns whether it passed, and its output.
fn run(test: &str) -> (bool, String) {
    let program = env::current_exe().unwrap();
    let examples = program.parent().and_then(Path::parent).unwrap().join("examples");
    assert!(examples.join("libcuda.so").exists(), "no stand-in: run `cargo build --examples`");
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
