//! A stand-in for cuBLAS that goes with the stand-in for the CUDA driver. It is built as `libcublas.so`.
//!
//! Its products are work of the driver's streams, so everything is in the driver's library (`products.rs`), and the
//! functions here call those of the same names there.
#![allow(non_snake_case, reason = "the names are cuBLAS's")]
#![allow(missing_docs, clippy::missing_safety_doc, reason = "cuBLAS's manual documents the functions")]

use std::ffi::{CStr, c_void};
use std::mem;
use std::process;

/// Returns a function of the stand-in for the driver, which the process has loaded.
fn driver_function(name: &CStr) -> *mut c_void {
    for library in [c"libcuda.so", c"libcuda.so.1"] {
        // SAFETY: both are strings; nothing is loaded.
        let found = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW) };
        if !found.is_null() {
            // SAFETY: the library is loaded, and stays so: it is never closed. The name is a string.
            let function = unsafe { libc::dlsym(found, name.as_ptr()) };
            if !function.is_null() {
                return function;
            }
        }
    }
    eprintln!("stand-in cuBLAS: the process has no stand-in CUDA driver with {name:?}");
    process::abort();
}

macro_rules! forward {
    ($($name:ident as $target:literal($($argument:ident: $type:ty),*);)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
            let function = driver_function($target);
            // SAFETY: `products.rs` declares the function with these arguments.
            let function: unsafe extern "C" fn($($type),*) -> u32 = unsafe { mem::transmute(function) };
            // SAFETY: the contract of both functions is the same.
            unsafe { function($($argument),*) }
        }
    )* };
}

forward! {
    cublasGetProperty as c"standinCublasGetProperty"(property: u32, value: *mut i32);
    cublasCreate_v2 as c"standinCublasCreate"(handle: *mut u64);
    cublasDestroy_v2 as c"standinCublasDestroy"(handle: u64);
    cublasSetStream_v2 as c"standinCublasSetStream"(handle: u64, stream: u64);
    cublasSetWorkspace_v2 as c"standinCublasSetWorkspace"(handle: u64, workspace: u64, bytes: usize);
    cublasSetPointerMode_v2 as c"standinCublasSetPointerMode"(handle: u64, mode: u32);
    cublasSetMathMode as c"standinCublasSetMathMode"(handle: u64, mode: u32);
    cublasSetAtomicsMode as c"standinCublasSetAtomicsMode"(handle: u64, mode: u32);
    cublasSgemm_v2_64 as c"standinCublasSgemm"(
        handle: u64, on_a: u32, on_b: u32, m: i64, n: i64, k: i64, alpha: *const f32, a: u64, lda: i64, b: u64,
        ldb: i64, beta: *const f32, c: u64, ldc: i64
    );
    cublasDgemm_v2_64 as c"standinCublasDgemm"(
        handle: u64, on_a: u32, on_b: u32, m: i64, n: i64, k: i64, alpha: *const f64, a: u64, lda: i64, b: u64,
        ldb: i64, beta: *const f64, c: u64, ldc: i64
    );
    cublasGemmEx_64 as c"standinCublasGemmEx"(
        handle: u64, on_a: u32, on_b: u32, m: i64, n: i64, k: i64, alpha: *const f32, a: u64, a_type: u32, lda: i64,
        b: u64, b_type: u32, ldb: i64, beta: *const f32, c: u64, c_type: u32, ldc: i64, compute: u32, algorithm: i32
    );
}
