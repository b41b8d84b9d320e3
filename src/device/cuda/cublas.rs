//! cuBLAS, which multiplies matrices on a GPU. It is loaded at run time, when a stream first needs it.

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

use cudarc::cublas::sys;
use cudarc::cublas::sys::cublasOperation_t::{CUBLAS_OP_N, CUBLAS_OP_T};
use cudarc::driver::sys::{CUdeviceptr, CUstream};

use super::context::{self, Context};
use super::driver::Missing;
use crate::device::product::{Float, MatrixProduct, Product};
use crate::device::split::is_split;
use crate::device::{Precision, WORKSPACE_BYTES};
use crate::error::{Error, Result};

/// Every cuBLAS function that this folder calls. They are looked up in advance, as those of the driver. CUDA 12.0 has
/// them all; older versions lack those with 64-bit sizes.
const FUNCTIONS: [&str; 11] = [
    "cublasGetProperty",
    "cublasCreate_v2",
    "cublasDestroy_v2",
    "cublasSetStream_v2",
    "cublasSetWorkspace_v2",
    "cublasSetPointerMode_v2",
    "cublasSetMathMode",
    "cublasSetAtomicsMode",
    "cublasSgemm_v2_64",
    "cublasDgemm_v2_64",
    "cublasGemmEx_64",
];

const INSTALL: &str = "install cuBLAS with the CUDA toolkit or with `pip install nvidia-cublas` \
                       (`nvidia-cublas-cu12` for CUDA 12), and put the folder that holds libcublas.so.* on \
                       LD_LIBRARY_PATH (for pip, site-packages/nvidia/cu13/lib or site-packages/nvidia/cublas/lib)";

/// Finds cuBLAS, once.
///
/// # Errors
/// [`Error::Device`] if it is not found. The remedy says how to get it. After `Ok`, all [`FUNCTIONS`] can be called
/// without a panic.
pub(super) fn find() -> Result<()> {
    static LIBRARY: OnceLock<Result<(), Missing>> = OnceLock::new();
    LIBRARY.get_or_init(probe).as_ref().map_err(Missing::error).copied()
}

fn probe() -> Result<(), Missing> {
    // SAFETY: loading cuBLAS runs its initialisers, which the machine's own library may be trusted with.
    if !unsafe { sys::is_culib_present() } {
        return Err(Missing { problem: "cuBLAS, which multiplies matrices, was not found".into(), remedy: INSTALL });
    }
    for name in FUNCTIONS {
        // SAFETY: the library was found; the symbol is looked up, never called through this type.
        if unsafe { sys::culib().get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_err() {
            return Err(Missing { problem: format!("the cuBLAS that was found lacks {name}"), remedy: INSTALL });
        }
    }
    let number = |property| {
        let mut number = 0;
        // SAFETY: `FUNCTIONS` holds it; `number` outlives the call that writes it.
        let status = unsafe { sys::cublasGetProperty(property, &mut number) };
        (status == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS).then_some(number)
    };
    let major = number(sys::libraryPropertyType::MAJOR_VERSION);
    let minor = number(sys::libraryPropertyType::MINOR_VERSION);
    tracing::debug!(major, minor, "cuBLAS found");
    Ok(())
}

/// A product as cuBLAS is asked for it: `c = a @ b` or `c += a @ b`, of matrices that are stored column by column,
/// without gaps.
struct Gemm {
    float: Float,
    /// Whether `a` and `b` are `bf16`.
    is_split: bool,
    a: CUdeviceptr,
    b: CUdeviceptr,
    /// Whether `b` is the transpose of what is stored.
    transposes_b: bool,
    c: CUdeviceptr,
    /// The rows of `c`, its columns, and the columns of `a`.
    sizes: [usize; 3],
    adds: bool,
}

/// What a stream needs to multiply. It must be destroyed, unless the device was given up.
pub(super) struct Handle {
    handle: sys::cublasHandle_t,
    precision: Precision,
}

impl Handle {
    /// Makes a stream ready to multiply. The context is current.
    ///
    /// # Errors
    /// [`Error::Device`] if there is no cuBLAS, or one of its calls failed.
    ///
    /// # Safety
    /// The stream is of this context, and lives until the handle is destroyed. The workspace has [`WORKSPACE_BYTES`],
    /// which nothing else uses until the work of the stream is done.
    pub(super) unsafe fn create(
        context: &Context,
        stream: CUstream,
        workspace: CUdeviceptr,
        precision: Precision,
    ) -> Result<Handle> {
        find()?;
        let mut handle = ptr::null_mut();
        // SAFETY: `find` found the function; `handle` outlives the call that writes it.
        check(context, "cublasCreate", unsafe { sys::cublasCreate_v2(&mut handle) })?;
        let handle = Handle { handle, precision };
        // SAFETY: the caller vouches for the same.
        match unsafe { handle.set_up(context, stream, workspace) } {
            Ok(()) => Ok(handle),
            Err(error) => {
                handle.destroy(context);
                Err(error)
            }
        }
    }

    /// Sets everything that the bits of a sum depend on, apart from the product.
    ///
    /// # Safety
    /// Those of [`create`](Handle::create).
    unsafe fn set_up(&self, context: &Context, stream: CUstream, workspace: CUdeviceptr) -> Result<()> {
        let own = self.handle;
        let math = match self.precision {
            // Sums are not rounded to fewer bits in between, and factors of f32 not to those of TF32.
            Precision::Full | Precision::Bf16x3 => sys::cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION,
            Precision::Tf32 => sys::cublasMath_t::CUBLAS_TF32_TENSOR_OP_MATH,
        };
        let pointers = sys::cublasPointerMode_t::CUBLAS_POINTER_MODE_HOST;
        let atomics = sys::cublasAtomicsMode_t::CUBLAS_ATOMICS_NOT_ALLOWED;
        // SAFETY: `create` made the handle and vouches for the stream and the workspace. The workspace is set after
        // the stream, because setting a stream takes the workspace away.
        unsafe {
            check(context, "cublasSetStream", sys::cublasSetStream_v2(own, stream.cast()))?;
            let workspace = sys::cublasSetWorkspace_v2(own, workspace as *mut c_void, WORKSPACE_BYTES);
            check(context, "cublasSetWorkspace", workspace)?;
            check(context, "cublasSetPointerMode", sys::cublasSetPointerMode_v2(own, pointers))?;
            check(context, "cublasSetMathMode", sys::cublasSetMathMode(own, math))?;
            check(context, "cublasSetAtomicsMode", sys::cublasSetAtomicsMode(own, atomics))
        }
    }

    /// Enqueues a sum of products on the stream. The context is current.
    ///
    /// cuBLAS stores matrices column by column, in which the sum is the transpose of ours: `right.T @ left`, whose
    /// first factor is stored as it is, and whose second one is transposed.
    ///
    /// # Errors
    /// [`Error::Device`] if the call failed.
    ///
    /// # Safety
    /// The stream is alive. The rows of the operands, and the sum, are at these addresses until the work is done, and
    /// the sum overlaps no operand.
    pub(super) unsafe fn multiply(
        &self,
        context: &Context,
        product: &Product,
        rows: usize,
        [left, right]: [CUdeviceptr; 2],
        sum: CUdeviceptr,
        adds: bool,
    ) -> Result<()> {
        let Product { float, left: m, right: n } = *product;
        let sizes = [n, m, rows];
        let is_split = is_split(float, self.precision);
        let gemm = Gemm { float, is_split, a: right, b: left, transposes_b: true, c: sum, sizes, adds };
        // SAFETY: the caller vouches for the stream and the memory: `a` has `rows` columns of n elements, `b`, which is
        // transposed, as many of m, and the sum m columns of n.
        unsafe { self.gemm(context, &gemm) }
    }

    /// Enqueues a product of rows with a matrix. The context is current.
    ///
    /// As cuBLAS stores matrices, it is `matrix.T @ from.T`, and both factors are stored so.
    ///
    /// # Errors
    /// [`Error::Device`] if the call failed.
    ///
    /// # Safety
    /// The stream is alive. The rows, the matrix and the result are at these addresses until the work is done, and the
    /// result overlaps neither of the others.
    pub(super) unsafe fn multiply_rows(
        &self,
        context: &Context,
        product: &MatrixProduct,
        rows: usize,
        from: CUdeviceptr,
        matrix: CUdeviceptr,
        to: CUdeviceptr,
    ) -> Result<()> {
        let MatrixProduct { float, inner, width } = *product;
        let sizes = [width, rows, inner];
        let is_split = is_split(float, self.precision);
        let gemm = Gemm { float, is_split, a: matrix, b: from, transposes_b: false, c: to, sizes, adds: false };
        // SAFETY: the caller vouches for the stream and the memory: `a` has `inner` columns of `width` elements, `b`
        // has `rows` columns of `inner`, and the result as many of `width`.
        unsafe { self.gemm(context, &gemm) }
    }

    /// Enqueues a product of cuBLAS. The context is current.
    ///
    /// # Errors
    /// [`Error::Device`] if the call failed.
    ///
    /// # Safety
    /// The stream is alive. The matrices have these sizes and are at these addresses until the work is done, and `c`
    /// overlaps no other.
    unsafe fn gemm(&self, context: &Context, gemm: &Gemm) -> Result<()> {
        let Gemm { a, b, transposes_b, c, adds, .. } = *gemm;
        let own = self.handle;
        // They are sizes of memory.
        let [m, n, k] = gemm.sizes.map(|number| number as i64);
        let (on_b, b_step) = if transposes_b { (CUBLAS_OP_T, n) } else { (CUBLAS_OP_N, k) };
        match gemm.float {
            Float::F32 if gemm.is_split => {
                let (alpha, beta) = (1.0_f32, f32::from(u8::from(adds)));
                let (of_factors, of_sum) = (sys::cudaDataType::CUDA_R_16BF, sys::cudaDataType::CUDA_R_32F);
                // SAFETY: the handle is alive and set up; the caller vouches for the memory. Both factors are read
                // from the host before the call returns, and are `f32`, as the type of the computation says.
                let status = unsafe {
                    sys::cublasGemmEx_64(
                        own,
                        CUBLAS_OP_N,
                        on_b,
                        m,
                        n,
                        k,
                        ptr::from_ref(&alpha).cast(),
                        a as *const c_void,
                        of_factors,
                        m,
                        b as *const c_void,
                        of_factors,
                        b_step,
                        ptr::from_ref(&beta).cast(),
                        c as *mut c_void,
                        of_sum,
                        m,
                        sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                        sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
                    )
                };
                check(context, "cublasGemmEx", status)
            }
            Float::F32 => {
                let (a, b, c) = (a as *const f32, b as *const f32, c as *mut f32);
                let (alpha, beta) = (1.0, f32::from(u8::from(adds)));
                // SAFETY: the handle is alive and set up; the caller vouches for the memory. Both factors are read
                // from the host before the call returns.
                let status = unsafe {
                    sys::cublasSgemm_v2_64(own, CUBLAS_OP_N, on_b, m, n, k, &alpha, a, m, b, b_step, &beta, c, m)
                };
                check(context, "cublasSgemm", status)
            }
            Float::F64 => {
                let (a, b, c) = (a as *const f64, b as *const f64, c as *mut f64);
                let (alpha, beta) = (1.0, f64::from(u8::from(adds)));
                // SAFETY: as above.
                let status = unsafe {
                    sys::cublasDgemm_v2_64(own, CUBLAS_OP_N, on_b, m, n, k, &alpha, a, m, b, b_step, &beta, c, m)
                };
                check(context, "cublasDgemm", status)
            }
        }
    }

    /// Releases it, after the work of its stream. This waits for all work of the device. Errors are only logged, as in
    /// [`Context::release`].
    pub(super) fn destroy(self, context: &Context) {
        let release = || {
            let _guard = context.enter_to_release()?;
            // SAFETY: made by `create`, and destroyed only here, because this consumes it.
            check(context, "cublasDestroy", unsafe { sys::cublasDestroy_v2(self.handle) })
        };
        if let Err(error) = release() {
            tracing::debug!(%error, "release failed");
        }
    }
}

/// Converts the result of the cuBLAS call `call`.
///
/// # Errors
/// The error of the driver if the device is lost, which says more; otherwise [`Error::Device`] with that of cuBLAS.
fn check(context: &Context, call: &str, status: sys::cublasStatus_t) -> Result<()> {
    if status == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    // Any call in a lost context fails. This one neither waits nor changes anything.
    context::free_bytes(context)?;
    Err(Error::Device {
        device: context.id().into(),
        problem: format!("{call} failed: {status:?}"),
        remedy: remedy(status).into(),
    })
}

fn remedy(status: sys::cublasStatus_t) -> &'static str {
    use sys::cublasStatus_t::*;
    match status {
        CUBLAS_STATUS_ALLOC_FAILED => "close other programs on the device, or set a smaller chunk size or memory limit",
        CUBLAS_STATUS_NOT_INITIALIZED | CUBLAS_STATUS_ARCH_MISMATCH | CUBLAS_STATUS_NOT_SUPPORTED => {
            "check that libcublas and libcublasLt are of the same version, that the version supports the GPU, and that \
             it is no newer than the driver"
        }
        _ => "see `nvidia-smi` and the kernel log for the state of the GPU",
    }
}
