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
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub, reason = "`testing` exports what is `pub` there"))]
mod parameter;
mod row_function;

use std::sync::Arc;

pub use call::Call;
pub(crate) use call::{BoundCall, Given};
use host::HostFunction;
pub use host::HostRows;
#[cfg(feature = "testing")]
pub use parameter::Kind as ParameterKind;
use parameter::Parameter;
pub use row_function::{AddColumn, RowColumns, RowElement, RowFunction};

use crate::device::kernel::{Code, Halo};
use crate::error::{KernelError, Result};

/// The default number of threads and rows of a block.
const THREADS: u32 = 256;

/// A custom kernel: CUDA C++, PTX, a cubin or a fatbin.
///
/// Creating one is `unsafe`, and so is everything that changes the memory that it touches: compiler options, launch
/// shape and resident arrays. Everything else is checked, or set by Overshot, such as the number of rows.
///
/// The parameters of the C declaration may be in any order. Their names and types say what they are:
///
/// - `const T *name`: the rows of an input, or of an array that is [`resident`](Call::resident) for the whole job;
/// - `T *name`: the rows of an output, or [`scratch`](Call::scratch);
/// - `const T (*name)[16]` and `T (*name)[16]`: the same, with rows of 16 elements each; vectors such as `float4` are
///   rows of their elements;
/// - `T name`: a [`value`](Call::scalar);
/// - `long long rows`, `long long first_row`, `long long total_rows`: the number of rows of this launch, the number of
///   its first row among all rows, and the number of all rows. A kernel without `rows` cannot know where the rows of
///   the last block end, so it runs only if the rows of the job fill whole blocks;
/// - `unsigned long long *num_selected`: see below.
///
/// A launch computes the rows of one chunk, and pointers are to the first of them. It has one block for every
/// [`rows_per_block`](CustomKernel::rows_per_block) rows, a **tile**. NVRTC compiles the text without fused
/// multiply-add, as it compiles all kernels of Overshot, and the result is cached.
///
/// A kernel that selects some of the rows has the parameter `num_selected`, one number per tile. Block `b` writes the
/// rows that it selects, in order, to the start of tile `b` of each output, and their number to `num_selected[b]`.
/// The outputs have the selected rows of all tiles in order, for every chunk size.
///
/// A kernel that also reads rows before and behind those of a launch declares how many: the
/// [`halo`](CustomKernel::halo) of an input.
///
/// On devices without CUDA, its [host function](CustomKernel::on_host) runs instead.
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
    /// By default, as many rows as threads.
    rows_per_block: Option<usize>,
    shared_bytes: u32,
    /// The halos of inputs by name, and that of all others.
    halos: Vec<(Option<String>, Halo)>,
    host: Option<HostFunction>,
}

impl CustomKernel {
    /// Creates a kernel from CUDA C++: the function `entry`, which must be declared `extern "C"`. Messages of the
    /// compiler call the text `name`. The text is compiled when a job first runs on CUDA.
    ///
    /// # Errors
    /// [`Error::InvalidKernel`](crate::Error::InvalidKernel) if the text has no such kernel, its parameters cannot be
    /// read, or they depend on the preprocessor: then see [`cuda_with_parameters`](CustomKernel::cuda_with_parameters).
    ///
    /// # Safety
    /// The kernel is launched with the settings of this and later calls, with the arguments that the
    /// [type](CustomKernel) describes, and with any rows and values. In every such launch it accesses only the `rows`
    /// rows of its columns, the rows of [halos](CustomKernel::halo) that exist (read only), its resident arrays (read
    /// only), one `num_selected` for each block, and its own memory.
    pub unsafe fn cuda(name: &str, text: &str, entry: &str) -> Result<Self> {
        let parameters = declaration::of_source(text, entry)
            .map_err(|message| KernelError::Declaration { name: name.into(), message })?;
        Ok(Self::of_text(name, text, entry, parameters))
    }

    /// Creates a kernel from CUDA C++, as [`cuda`](CustomKernel::cuda) does, with `parameters` as in C, such as
    /// `"const float *x, float *y, long long rows"`, instead of those in the text. For declarations that depend on the
    /// preprocessor. The entry point may have a mangled name.
    ///
    /// # Errors
    /// [`Error::InvalidKernel`](crate::Error::InvalidKernel) if the parameters cannot be read.
    ///
    /// # Safety
    /// The contract of [`cuda`](CustomKernel::cuda) holds, and the kernel has these parameters.
    pub unsafe fn cuda_with_parameters(name: &str, text: &str, entry: &str, parameters: &str) -> Result<Self> {
        Ok(Self::of_text(name, text, entry, given(entry, parameters)?))
    }

    fn of_text(name: &str, text: &str, entry: &str, parameters: Vec<Parameter>) -> Self {
        let code = Code::Cuda { name: name.into(), text: text.into(), options: vec![] };
        Self::new(entry, code, parameters)
    }

    /// Creates a kernel from PTX text, a cubin or a fatbin: the function `entry`, with `parameters` as in C, such as
    /// `"const float *x, float *y, long long rows"`.
    ///
    /// # Errors
    /// [`Error::InvalidKernel`](crate::Error::InvalidKernel) if the parameters cannot be read.
    ///
    /// # Safety
    /// The contract of [`cuda`](CustomKernel::cuda) holds, and the kernel has these parameters.
    pub unsafe fn image(image: impl Into<Vec<u8>>, entry: &str, parameters: &str) -> Result<Self> {
        let mut image = image.into();
        // PTX text ends with a zero byte; the other formats contain their length.
        image.push(0);
        Ok(Self::new(entry, Code::Image(image.into()), given(entry, parameters)?))
    }

    fn new(entry: &str, code: Code, parameters: Vec<Parameter>) -> Self {
        let entry = entry.to_owned();
        CustomKernel {
            entry,
            code,
            parameters,
            threads: THREADS,
            rows_per_block: None,
            shared_bytes: 0,
            halos: vec![],
            host: None,
        }
    }

    /// Creates a kernel without device code over the columns `parameters`, with a host function alone.
    fn of_host(
        entry: &str,
        parameters: Vec<Parameter>,
        halos: Vec<(Option<String>, Halo)>,
        function: HostFunction,
    ) -> Self {
        CustomKernel { host: Some(function), halos, ..Self::new(entry, Code::HostOnly, parameters) }
    }

    /// Sets the number of threads of a block, in one dimension. The default is 256.
    ///
    /// # Safety
    /// Launched with this setting, the kernel satisfies the contract of [`cuda`](CustomKernel::cuda).
    pub unsafe fn threads(self, threads: u32) -> Self {
        CustomKernel { threads, ..self }
    }

    /// Sets the number of rows of a block, which are a tile. By default, it is the number of threads.
    ///
    /// # Safety
    /// Launched with this setting, the kernel satisfies the contract of [`cuda`](CustomKernel::cuda).
    pub unsafe fn rows_per_block(self, rows: usize) -> Self {
        CustomKernel { rows_per_block: Some(rows), ..self }
    }

    /// Sets the bytes of dynamic shared memory of a block. The default is 0.
    ///
    /// # Safety
    /// Launched with this setting, the kernel satisfies the contract of [`cuda`](CustomKernel::cuda).
    pub unsafe fn shared_bytes(self, bytes: u32) -> Self {
        CustomKernel { shared_bytes: bytes, ..self }
    }

    /// Declares how many rows of an input the kernel reads before and behind those of a launch: its halo, of at most
    /// 65 536 rows on each side. By default, there are none.
    ///
    /// The pointer is to the first of the `rows` rows, as without a halo. The rows `-before` to `rows + after` may be
    /// read, as far as the job has them: row `r` of the launch is row `first_row + r` of `total_rows`, and what is
    /// beyond the first and the last of these is for the kernel to decide. So a kernel with a halo has the parameters
    /// `first_row` and `total_rows`. The pointer is aligned to rows, and to no more: a kernel that reads several rows
    /// as one vector finds it misaligned.
    ///
    /// ```
    /// use overshot::{DeviceChoice, Engine, Job, kernel::CustomKernel};
    /// const BLUR: &str = r#"
    /// extern "C" __global__ void blur(const float *x, float *y, long long first_row, long long rows,
    ///                                 long long total_rows)
    /// {
    ///     long long i = blockIdx.x * 256ll + threadIdx.x;
    ///     if (i >= rows) return;
    ///     float before = first_row + i > 0 ? x[i - 1] : 0;
    ///     float after = first_row + i + 1 < total_rows ? x[i + 1] : 0;
    ///     y[i] = before + x[i] + after;
    /// }"#;
    /// // SAFETY: it reads and writes rows 0 to `rows` of its columns, and the rows of `x` beside them that exist.
    /// let blur = unsafe { CustomKernel::cuda("blur.cu", BLUR, "blur")?.halo("x", 1, 1) }.on_host(|rows| {
    ///     let (x, front, y) = (rows.input::<f32>("x"), rows.halo_before("x"), rows.output::<f32>("y"));
    ///     let at = |i: Option<usize>| i.and_then(|i| x.get(i)).copied().unwrap_or_default();
    ///     for (i, y) in (front..).zip(y) {
    ///         *y = at(i.checked_sub(1)) + x[i] + at(Some(i + 1));
    ///     }
    /// });
    /// let (x, mut y) = ([1.0f32, 2.0, 3.0], [0.0f32; 3]);
    /// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
    /// engine.run(Job::kernel(&blur).input("x", &x).output("y", &mut y))?;
    /// assert_eq!(y, [3.0, 6.0, 5.0]);
    /// # Ok::<(), overshot::Error>(())
    /// ```
    ///
    /// # Safety
    /// Launched with this setting, the kernel satisfies the contract of [`cuda`](CustomKernel::cuda).
    pub unsafe fn halo(mut self, input: &str, before: usize, after: usize) -> Self {
        self.halos.push((Some(input.into()), Halo { before, after }));
        self
    }

    /// Declares the [`halo`](CustomKernel::halo) of all inputs that have none of their own.
    ///
    /// # Safety
    /// Launched with this setting, the kernel satisfies the contract of [`cuda`](CustomKernel::cuda).
    pub unsafe fn halos(mut self, before: usize, after: usize) -> Self {
        self.halos.push((None, Halo { before, after }));
        self
    }

    /// The halo of an input: the last one that was declared for its name, or else for all inputs.
    fn halo_of(&self, input: &str) -> Halo {
        let of = |name: Option<&str>| self.halos.iter().rev().find(|(own, _)| own.as_deref() == name);
        of(Some(input)).or_else(|| of(None)).map(|(_, halo)| *halo).unwrap_or_default()
    }

    /// Adds a compiler option, such as `--include-path=FOLDER` or `--use_fast_math`. It has no effect on images.
    ///
    /// # Safety
    /// Compiled with this option, the kernel satisfies the contract of [`cuda`](CustomKernel::cuda). An option may
    /// define macros, and thereby change the text.
    pub unsafe fn option(mut self, option: &str) -> Self {
        if let Code::Cuda { options, .. } = &mut self.code {
            options.push(option.into());
        }
        self
    }

    /// Sets the host function, which the CPU and emulated devices run instead of the kernel. It must compute the same
    /// rows. Several threads call it at the same time, each with rows that start at a tile.
    pub fn on_host(self, function: impl Fn(&mut HostRows<'_>) + Send + Sync + 'static) -> Self {
        CustomKernel { host: Some(Arc::new(function)), ..self }
    }

    /// Returns a call of the kernel, for [`Job::kernel`](crate::Job::kernel).
    pub fn call(&self) -> Call {
        Call::new(self.clone())
    }

    /// Returns the name of the entry point.
    pub fn entry(&self) -> &str {
        &self.entry
    }
}

/// Returns the parameters of the kernel `entry` in a text of CUDA C++, for fuzzing.
#[cfg(feature = "testing")]
pub(crate) fn parameters(text: &str, entry: &str) -> Result<Vec<Parameter>, String> {
    declaration::of_source(text, entry)
}

/// Returns the ranges of the tokens of a text of CUDA C++, for fuzzing.
#[cfg(feature = "testing")]
pub(crate) fn token_ranges(text: &str) -> Vec<std::ops::Range<usize>> {
    lex::tokens(text).iter().map(|token| token.start..token.start + token.text.len()).collect()
}

/// Reads parameters that were given apart from the text.
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
