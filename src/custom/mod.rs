//! Custom kernels: CUDA C++, PTX, cubins and fatbins with a host function, and Rust closures.
//!
//! ```text
//! text or image ── CustomKernel ── call (values, resident arrays, scratch) ── bind (inputs, outputs)
//!                                                                    ──▶ device::kernel::Kernel
//! closure ── RowFunction ── CustomKernel without device code
//! ```

mod call;
mod declaration;
mod host;
mod lex;
mod parameter;
mod row_function;

use std::sync::Arc;

pub use call::Call;
pub(crate) use call::{BoundCall, Given};
use host::HostFunction;
pub use host::HostRows;
use parameter::Parameter;
pub use row_function::{AddColumn, RowColumns, RowElement, RowFunction};

use crate::device::kernel::Code;
use crate::error::{KernelError, Result};

/// Threads of a block, and rows of one, if not set.
const THREADS: u32 = 256;

/// A kernel of the caller's own.
///
/// To make one is `unsafe`, and so is everything that changes what it touches: how it is compiled and launched, and
/// the arrays that it is given. All else is checked or, as the number of rows, given to it.
///
/// Its parameters are those of its C declaration, in any order, and are known by their names:
///
/// - `const T *name`: the rows of an input, or of an array that is [`resident`](Call::resident) for the whole job;
/// - `T *name`: the rows of an output, or [`scratch`](Call::scratch);
/// - `const T (*name)[16]` and `T (*name)[16]`: the same, with rows of 16 elements each; vectors such as `float4` are
///   rows of their elements;
/// - `T name`: a [`value`](Call::scalar);
/// - `long long rows`, `long long first_row`: how many rows this launch has, and the number of the first one among
///   all. Without `rows` a kernel cannot know where the last block's rows end, so then the rows of a job have to be
///   those of whole blocks;
/// - `unsigned long long *num_selected`: see below.
///
/// A launch is for the rows of one chunk: pointers are to the first of these. It has one block for every
/// [`rows_per_block`](CustomKernel::rows_per_block) rows, a **tile**. Text is compiled by NVRTC without fused
/// multiply-add, as all kernels here, and kept in the cache.
///
/// A kernel that keeps some of the rows has the parameter `num_selected`, one number a tile: block `b` writes the
/// rows that it keeps, in order, to the start of tile `b` of each output, and their number to `num_selected[b]`.
/// Outputs
/// then
/// have the rows of all tiles, one after the other, whatever the chunks were.
///
/// On devices without CUDA its [function for the host](CustomKernel::on_host) runs instead.
///
/// ```
/// use overshot::{DeviceChoice, Engine, Job, kernel::CustomKernel};
/// const SAXPY: &str = r#"
/// extern "C" __global__ void saxpy(long long rows, float a, const float *x, float *y)
/// {
///     long long i = blockIdx.x * 256ll + threadIdx.x;
///     if (i < rows) y[i] = a * x[i] + 1;
/// }"#;
/// // SAFETY: it reads and writes rows 0 to `rows` of its columns and nothing else.
/// let saxpy = unsafe { CustomKernel::cuda("saxpy.cu", SAXPY, "saxpy") }?.on_host(|rows| {
///     let (a, x, y) = (rows.value::<f32>("a"), rows.input::<f32>("x"), rows.output::<f32>("y"));
///     y.iter_mut().zip(x).for_each(|(y, x)| *y = a * x + 1.0);
/// });
/// let (x, mut y) = (vec![1.0f32; 1000], vec![0.0f32; 1000]);
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// engine.run(Job::kernel(saxpy.call().scalar("a", 2.0f32)).input("x", &x).output("y", &mut y))?;
/// assert_eq!(y, [3.0; 1000]);
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a kernel does nothing until a job runs it"]
pub struct CustomKernel {
    entry: String,
    code: Code,
    parameters: Vec<Parameter>,
    threads: u32,
    /// As many as threads if not set.
    rows_per_block: Option<usize>,
    shared_bytes: u32,
    host: Option<HostFunction>,
}

impl CustomKernel {
    /// The kernel `entry` in a text of CUDA C++, which messages of the compiler call `name`. It has to be declared
    /// `extern "C"`. The text is compiled when a job runs on CUDA for the first time.
    ///
    /// # Errors
    /// [`Error::InvalidKernel`](crate::Error::InvalidKernel) if the text has no such kernel, its parameters cannot be
    /// read, or they depend on the preprocessor: then see [`cuda_with_parameters`](CustomKernel::cuda_with_parameters).
    ///
    /// # Safety
    /// Launched as it is set up here and by later calls, for any rows, with any values, and with arguments as the
    /// [type](CustomKernel) says, the kernel reads and writes nothing but the `rows` rows of its columns, its
    /// resident arrays (read only), one `num_selected` for every block, and memory that is its own.
    pub unsafe fn cuda(name: &str, text: &str, entry: &str) -> Result<Self> {
        let parameters = declaration::of_source(text, entry)
            .map_err(|message| KernelError::Declaration { name: name.into(), message })?;
        Ok(Self::of_text(name, text, entry, parameters))
    }

    /// The same, with `parameters` as in C, `"const float *x, float *y, long long rows"`, instead of those that the
    /// text declares: for a declaration that depends on the preprocessor. The entry point may also have a mangled
    /// name.
    ///
    /// # Errors
    /// [`Error::InvalidKernel`](crate::Error::InvalidKernel) if the parameters cannot be read.
    ///
    /// # Safety
    /// As for [`cuda`](CustomKernel::cuda), and these are its parameters.
    pub unsafe fn cuda_with_parameters(name: &str, text: &str, entry: &str, parameters: &str) -> Result<Self> {
        Ok(Self::of_text(name, text, entry, given(entry, parameters)?))
    }

    fn of_text(name: &str, text: &str, entry: &str, parameters: Vec<Parameter>) -> Self {
        let code = Code::Cuda { name: name.into(), text: text.into(), options: vec![] };
        Self::new(entry, code, parameters)
    }

    /// The kernel `entry` of PTX text, a cubin or a fatbin, with `parameters` as in C:
    /// `"const float *x, float *y, long long rows"`.
    ///
    /// # Errors
    /// [`Error::InvalidKernel`](crate::Error::InvalidKernel) if the parameters cannot be read.
    ///
    /// # Safety
    /// As for [`cuda`](CustomKernel::cuda), and these are its parameters.
    pub unsafe fn image(image: impl Into<Vec<u8>>, entry: &str, parameters: &str) -> Result<Self> {
        let mut image = image.into();
        // The end of PTX text; the other formats know their length.
        image.push(0);
        Ok(Self::new(entry, Code::Image(image.into()), given(entry, parameters)?))
    }

    fn new(entry: &str, code: Code, parameters: Vec<Parameter>) -> Self {
        let entry = entry.to_owned();
        CustomKernel { entry, code, parameters, threads: THREADS, rows_per_block: None, shared_bytes: 0, host: None }
    }

    /// A kernel with a function for the host alone, over the columns `parameters`.
    fn of_host(entry: &str, parameters: Vec<Parameter>, function: HostFunction) -> Self {
        CustomKernel { host: Some(function), ..Self::new(entry, Code::HostOnly, parameters) }
    }

    /// Threads of a block, in one dimension: 256 if not set.
    ///
    /// # Safety
    /// The kernel keeps to what [`cuda`](CustomKernel::cuda) asks for when it is launched so.
    pub unsafe fn threads(self, threads: u32) -> Self {
        CustomKernel { threads, ..self }
    }

    /// Rows that one block computes, which make a tile: as many as there are threads if not set.
    ///
    /// # Safety
    /// The kernel keeps to what [`cuda`](CustomKernel::cuda) asks for when it is launched so.
    pub unsafe fn rows_per_block(self, rows: usize) -> Self {
        CustomKernel { rows_per_block: Some(rows), ..self }
    }

    /// Bytes of dynamic shared memory of a block: 0 if not set.
    ///
    /// # Safety
    /// The kernel keeps to what [`cuda`](CustomKernel::cuda) asks for when it is launched so.
    pub unsafe fn shared_bytes(self, bytes: u32) -> Self {
        CustomKernel { shared_bytes: bytes, ..self }
    }

    /// One more option for the compiler, such as `--include-path=FOLDER` or `--use_fast_math`. Has no effect on images.
    ///
    /// # Safety
    /// The kernel keeps to what [`cuda`](CustomKernel::cuda) asks for when it is compiled so: an option may define
    /// macros, and so change what the text says.
    pub unsafe fn option(mut self, option: &str) -> Self {
        if let Code::Cuda { options, .. } = &mut self.code {
            options.push(option.into());
        }
        self
    }

    /// What the CPU and the emulated device run: the same function of the same rows. It is called from several
    /// threads at once, each with rows of its own, that start with a tile.
    pub fn on_host(self, function: impl Fn(&mut HostRows<'_>) + Send + Sync + 'static) -> Self {
        CustomKernel { host: Some(Arc::new(function)), ..self }
    }

    /// A call of it, for a [`Job::kernel`](crate::Job::kernel).
    pub fn call(&self) -> Call {
        Call::new(self.clone())
    }

    /// The name of the entry point.
    pub fn entry(&self) -> &str {
        &self.entry
    }
}

/// Parameters that were given apart from the text.
fn given(entry: &str, parameters: &str) -> Result<Vec<Parameter>> {
    declaration::of_text(parameters).map_err(|message| KernelError::Declaration { name: entry.into(), message }.into())
}

impl std::fmt::Debug for CustomKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CustomKernel")
            .field("entry", &self.entry)
            .field("parameters", &self.parameters)
            .finish_non_exhaustive()
    }
}
