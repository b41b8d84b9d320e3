//! The stand-in for cuBLAS: its handles, and its products as work of streams.
//!
//! They are in the library of the driver, whose streams and memory they use. `libcublas.so` calls them. Their calls
//! fail as those of the driver do, under cuBLAS's names: see `inject.rs`.

use std::ops::Range;

use overshot::Precision;
use overshot::testing::{Float, MatrixProduct, Product};

use crate::inject;
use crate::queue::{Column, Factors, Multiply, Work};
use crate::state::{Driver, driver};
use crate::{Code, ILLEGAL_ADDRESS, INVALID_CONTEXT, OUT_OF_MEMORY, answer, current, enqueue, give, healthy, misuse};
use crate::{push, release};

/// The status of a call of cuBLAS.
type Status = u32;
const ALLOC_FAILED: Status = 3;
const EXECUTION_FAILED: Status = 13;

/// The operations of operands: as they are, and transposed.
const AS_IT_IS: u32 = 0;
const TRANSPOSED: u32 = 1;

/// The modes in which the bits of a sum depend on nothing but the product: factors on the host, and no atomics.
const POINTERS: u32 = 0;
const ATOMICS: u32 = 0;
/// The types of `bf16` and `f32`, of a computation in `f32`, and the usual algorithm.
const BF16: u32 = 14;
const F32: u32 = 0;
const COMPUTE_F32: u32 = 68;
const ALGORITHM: i32 = -1;
/// The modes of mathematics: no reduced precision, and TF32.
const FULL: u32 = 16;
const TF32: u32 = 3;

/// A handle of cuBLAS.
pub struct Handle {
    pub device: usize,
    stream: Option<u64>,
    /// The range of addresses of the workspace.
    workspace: Option<Range<u64>>,
    /// Of pointers, mathematics and atomics.
    modes: [Option<u32>; 3],
}

impl Handle {
    pub fn of(device: usize) -> Handle {
        Handle { device, stream: None, workspace: None, modes: [None; 3] }
    }
}

fn status(code: Code) -> Status {
    match code {
        0 => 0,
        OUT_OF_MEMORY => ALLOC_FAILED,
        _ => EXECUTION_FAILED,
    }
}

/// The device whose context is current, if it has no fault. Without a context, cuBLAS would open the first device.
fn device(driver: &Driver) -> Result<usize, Code> {
    match healthy(driver) {
        Err(INVALID_CONTEXT) => misuse(format_args!("cuBLAS is called without a context")),
        device => device,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn standinCublasGetProperty(property: u32, value: *mut i32) -> Status {
    // 0.1.0, as the stand-in for NVRTC.
    // SAFETY: cuBLAS's contract.
    status(answer("cublasGetProperty", || unsafe { give(value, i32::from(property == 1)) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn standinCublasCreate(handle: *mut u64) -> Status {
    status(answer("cublasCreate_v2", || {
        let mut driver = driver();
        let device = device(&driver)?;
        // SAFETY: cuBLAS's contract.
        unsafe { give(handle, driver.make_products(device)) }
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn standinCublasDestroy(handle: u64) -> Status {
    status(release("cublasDestroy_v2", || {
        let mut driver = driver();
        let device = current(&driver)?;
        let handle = driver.take_products(device, handle);
        if let Some(stream) = handle.stream {
            // It must not be destroyed before.
            driver.stream(device, stream);
        }
        driver.fault(device)
    }))
}

/// Changes a handle.
fn set(call: &'static str, handle: u64, change: impl FnOnce(&mut Handle, &Driver)) -> Status {
    status(answer(call, || {
        let mut driver = driver();
        let device = device(&driver)?;
        let mut changed = driver.take_products(device, handle);
        change(&mut changed, &driver);
        driver.put_products(handle, changed);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn standinCublasSetStream(handle: u64, stream: u64) -> Status {
    set("cublasSetStream_v2", handle, |handle, driver| {
        driver.stream(handle.device, stream);
        handle.stream = Some(stream);
        // cuBLAS takes its own again.
        handle.workspace = None;
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn standinCublasSetWorkspace(handle: u64, workspace: u64, bytes: usize) -> Status {
    set("cublasSetWorkspace_v2", handle, |handle, driver| {
        driver.memory.block(handle.device, workspace, bytes);
        if !workspace.is_multiple_of(256) {
            misuse(format_args!("a workspace of cuBLAS that is not aligned"));
        }
        let range = workspace..workspace + bytes as u64;
        if driver.products().filter_map(|other| other.workspace.as_ref()).any(|other| overlap(other, &range)) {
            misuse(format_args!("two handles of cuBLAS with the same workspace"));
        }
        handle.workspace = Some(range);
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn standinCublasSetPointerMode(handle: u64, mode: u32) -> Status {
    set("cublasSetPointerMode_v2", handle, |handle, _| handle.modes[0] = Some(mode))
}

#[unsafe(no_mangle)]
pub extern "C" fn standinCublasSetMathMode(handle: u64, mode: u32) -> Status {
    set("cublasSetMathMode", handle, |handle, _| handle.modes[1] = Some(mode))
}

#[unsafe(no_mangle)]
pub extern "C" fn standinCublasSetAtomicsMode(handle: u64, mode: u32) -> Status {
    set("cublasSetAtomicsMode", handle, |handle, _| handle.modes[2] = Some(mode))
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "so cuBLAS has it")]
pub unsafe extern "C" fn standinCublasSgemm(
    handle: u64,
    on_a: u32,
    on_b: u32,
    m: i64,
    n: i64,
    k: i64,
    alpha: *const f32,
    a: u64,
    lda: i64,
    b: u64,
    ldb: i64,
    beta: *const f32,
    c: u64,
    ldc: i64,
) -> Status {
    // SAFETY: cuBLAS's contract, as the factors are on the host, which `multiply` checks to be so.
    let factors = unsafe { [*alpha, *beta] }.map(f64::from);
    let call = ("cublasSgemm_v2_64", Float::F32, false);
    multiply(call, handle, [on_a, on_b], [m, n, k], factors, [(a, lda), (b, ldb), (c, ldc)])
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "so cuBLAS has it")]
pub unsafe extern "C" fn standinCublasDgemm(
    handle: u64,
    on_a: u32,
    on_b: u32,
    m: i64,
    n: i64,
    k: i64,
    alpha: *const f64,
    a: u64,
    lda: i64,
    b: u64,
    ldb: i64,
    beta: *const f64,
    c: u64,
    ldc: i64,
) -> Status {
    // SAFETY: as above.
    let factors = unsafe { [*alpha, *beta] };
    let call = ("cublasDgemm_v2_64", Float::F64, false);
    multiply(call, handle, [on_a, on_b], [m, n, k], factors, [(a, lda), (b, ldb), (c, ldc)])
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "so cuBLAS has it")]
pub unsafe extern "C" fn standinCublasGemmEx(
    handle: u64,
    on_a: u32,
    on_b: u32,
    m: i64,
    n: i64,
    k: i64,
    alpha: *const f32,
    a: u64,
    a_type: u32,
    lda: i64,
    b: u64,
    b_type: u32,
    ldb: i64,
    beta: *const f32,
    c: u64,
    c_type: u32,
    ldc: i64,
    compute: u32,
    algorithm: i32,
) -> Status {
    if ([a_type, b_type, c_type], compute, algorithm) != ([BF16, BF16, F32], COMPUTE_F32, ALGORITHM) {
        misuse(format_args!("a product of the types {:?}, {compute} and {algorithm}", [a_type, b_type, c_type]));
    }
    // SAFETY: as above.
    let factors = unsafe { [*alpha, *beta] }.map(f64::from);
    let call = ("cublasGemmEx_64", Float::F32, true);
    multiply(call, handle, [on_a, on_b], [m, n, k], factors, [(a, lda), (b, ldb), (c, ldc)])
}

/// Enqueues one of the products that Overshot asks for, stored by columns. In `a * b.T`, stored by rows, `b` is the
/// left operand and `a` the right one. In `a * b`, `b` has the rows that are multiplied and `a` is the matrix. Operands
/// may be split to `bf16`.
fn multiply(
    (call, float, is_split): (&'static str, Float, bool),
    handle: u64,
    on: [u32; 2],
    sizes: [i64; 3],
    factors: [f64; 2],
    [a, b, c]: [(u64, i64); 3],
) -> Status {
    let body = |fate| {
        let driver = driver();
        let device = device(&driver)?;
        let handle = driver.products_of(device, handle);
        let Some(stream) = handle.stream else { misuse(format_args!("a product without a stream")) };
        let Some(workspace) = &handle.workspace else { misuse(format_args!("a product without a workspace")) };
        let precision = match handle.modes {
            [Some(POINTERS), Some(FULL), Some(ATOMICS)] if is_split => Precision::Bf16x3,
            [Some(POINTERS), Some(FULL), Some(ATOMICS)] => Precision::Full,
            [Some(POINTERS), Some(TF32), Some(ATOMICS)] if !is_split => Precision::Tf32,
            modes => misuse(format_args!("a product with the modes {modes:?}")),
        };
        let [m, n, k] = sizes.map(|size| usize::try_from(size).ok().filter(|&size| size > 0));
        let (Some(m), Some(n), Some(k)) = (m, n, k) else { misuse(format_args!("a product of the sizes {sizes:?}")) };
        let (of, b_step) = match (on, factors) {
            ([AS_IT_IS, TRANSPOSED], [1.0, adds @ (0.0 | 1.0)]) => {
                let product = Product { float, left: n, right: m };
                (Factors::Sum { product, rows: k, adds: adds == 1.0 }, sizes[1])
            }
            ([AS_IT_IS, AS_IT_IS], [1.0, 0.0]) => {
                (Factors::Rows { product: MatrixProduct { float, inner: k, width: m }, rows: n }, sizes[2])
            }
            _ => misuse(format_args!("a product with the operations {on:?} and the factors {factors:?}")),
        };
        if [a.1, b.1, c.1] != [sizes[0], b_step, sizes[0]] {
            misuse(format_args!("a product of the sizes {sizes:?} with the leading dimensions {:?}", [a.1, b.1, c.1]));
        }
        let place = |start: u64, bytes: usize| {
            if !start.is_multiple_of(8) {
                misuse(format_args!("an operand or a result that is not aligned"));
            }
            Column { start: start as usize, bytes, _block: driver.memory.block(device, start, bytes) }
        };
        let size = float.factor_bytes(precision);
        let operands = [place(b.0, n * k * size), place(a.0, m * k * size)];
        let result = place(c.0, m * n * float.size());
        let range = |column: &Column| column.start as u64..(column.start + column.bytes) as u64;
        if operands.iter().any(|operand| overlap(&range(operand), &range(&result))) {
            misuse(format_args!("a result that overlaps an operand"));
        }
        if operands.iter().chain([&result]).any(|column| overlap(&range(column), workspace)) {
            misuse(format_args!("a product of what is in its workspace"));
        }
        let scratch = Column {
            start: workspace.start as usize,
            bytes: (workspace.end - workspace.start) as usize,
            _block: driver.memory.block(device, workspace.start, 0),
        };
        let work = Multiply { of, precision, operands, result, scratch, flips: inject::flips() };
        push(driver.stream(device, stream), fate, ILLEGAL_ADDRESS, Work::Multiply(work));
        Ok(())
    };
    status(enqueue(call, body))
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
