//! Overshot streams datasets larger than a GPU's memory through a computation.
//!
//! ```text
//!                  one worker: a thread, one to three slots
//!  Source ──▶ fill slot ──▶ copy in ──▶ kernel ──▶ copy out ──▶ drain slot ──▶ Sink
//!      ▲        (host)       (DMA)      (GPU)       (DMA)         (host)
//!      └── every worker of every device claims its next chunk from the same queue
//! ```
//!
//! An [`Engine`] holds devices and memory limits and runs [`Job`]s. A job is an expression with inputs and outputs,
//! which are slices, files ([`Npy`], [`Raw`]), [`PinnedBuffer`](arrays::PinnedBuffer)s,
//! [`Generator`](io::Generator)s, arrays that stay on GPUs ([`ShardedArray`](arrays::ShardedArray),
//! [`Resident`](arrays::Resident), [`DeviceArray`](arrays::DeviceArray)), or anything that implements [`Source`] or
//! [`Target`](io::Target). What happened is in the [`Report`]; what would happen, in the [`Plan`].
//!
//! ```
//! use overshot::{Engine, Job};
//! let engine = Engine::builder().device_memory(2 << 30).build()?;
//! let a = vec![1.0f64, 2.0, 3.0];
//! let mut c = vec![0.0; 3];
//! let report = engine.run(Job::eval("c = a * a; mean(c)")?.input("a", &a).output("c", &mut c))?;
//! assert_eq!(c, [1.0, 4.0, 9.0]);
//! println!("{report}");
//! # Ok::<(), overshot::Error>(())
//! ```
//!
//! Without a GPU the same program runs on the CPU, and the report says so.
//!
//! # Guide
//!
//! From file to file. [`Npy::open`] and [`Raw::open`] read files of any size, and [`Npy::create`] and [`Raw::create`]
//! write new ones. An output file appears under its name when the whole job has succeeded:
//!
//! ```
//! use overshot::{Engine, Job, Npy};
//! # let folder = tempfile::tempdir()?;
//! # let (input, output) = (folder.path().join("a.npy"), folder.path().join("c.npy"));
//! # let engine = Engine::builder().build()?;
//! # engine.run(Job::eval("x = f64(i)")?.rows(1000).output("x", Npy::create(&input)))?;
//! let job = Job::eval("c = sqrt(a); m = max(c)")?.input("a", Npy::open(&input)?).output("c", Npy::create(&output));
//! let report = engine.run(job)?;
//! assert_eq!(report.value("m")?.map(|max| max.as_f64()), Some(999f64.sqrt()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A function of your own: [`RowFunction`](kernel::RowFunction) turns a safe Rust closure into a kernel for the CPU,
//! and [`CustomKernel`](kernel::CustomKernel) takes CUDA C++, PTX or a cubin for GPUs.
//!
//! ```
//! use overshot::kernel::RowFunction;
//! use overshot::{DeviceChoice, Engine, Job};
//! let twice = RowFunction::new("twice").input::<i32>("x").output::<i32>("y").run(|x, y| {
//!     y.iter_mut().zip(x).for_each(|(y, x)| *y = 2 * x);
//! });
//! let (x, mut y) = ([1, 2, 3], [0; 3]);
//! let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
//! engine.run(Job::kernel(&twice).input("x", &x).output("y", &mut y))?;
//! assert_eq!(y, [2, 4, 6]);
//! # Ok::<(), overshot::Error>(())
//! ```
//!
//! What a run would do: [`Engine::plan`] returns chunk sizes and memory without touching a device. How far a run is:
//! [`Job::progress`] calls a function after every chunk, and a [`CancelToken`] stops the run.
//!
//! ```
//! use overshot::{CancelToken, Engine, Error, Job};
//! let (x, token) = (vec![1.0; 100_000], CancelToken::new());
//! // As text, as a program gets it from its user: `auto`, `cpu`, `cuda`, `cuda:0`, `emulated`, …
//! let engine = Engine::builder().device("cpu".parse::<overshot::DeviceChoice>()?).build()?;
//! let plan = engine.plan(&Job::eval("sum(x)")?.input("x", &x))?;
//! assert_eq!((plan.rows, plan.row_bytes, plan.devices[0].id.as_str()), (100_000, 8, "cpu"));
//! let job = Job::eval("sum(x)")?.input("x", &x).cancel_token(token.clone());
//! let result = engine.run(job.progress(|progress| {
//!     println!("{} of {} rows", progress.done, progress.rows);
//!     token.cancel();
//! }));
//! assert!(result.is_ok() || matches!(result, Err(Error::Cancelled { .. })));
//! # Ok::<(), Error>(())
//! ```
//!
//! Where to go from here:
//!
//! - [`Engine::passes`] runs a job several times over the same rows, with values that depend on the results before;
//! - with the feature `matrices`, the module `matrices` has regressions, principal components, clusters and nearest
//!   neighbours for tables;
//! - [`Engine::resident`] and [`Engine::shard`] keep datasets on the GPUs between jobs;
//! - with the feature `ndarray`, arrays of that crate are inputs and outputs
//!   (`Input::try_from(array.view())`, `Output::try_from(array.view_mut())`), with their shapes;
//! - [`io`] has sources and sinks, and the traits for your own; [`kernel`], [`device`], [`memory`], [`plan`] and
//!   [`report`] have the rest of the types of their subjects; [`limits`] has what this machine was measured to reach;
//! - [`Report::html`] and [`Plan::html`] return pictures for notebooks, and [`html::page`] makes pages of them;
//! - `overshot bench` measures these limits, and [`Report`] then compares each run with them.
//!
//! # Expressions
//!
//! Statements separated by `;` or `,`: `name = expression` for every row, or a reduction over all rows. Types,
//! promotion, integer wrap-around, division and NaN follow NumPy 2.
//!
//! - operators `+ - * / // % **`, comparisons `== != < <= > >=`, `& | ^ ~ << >>`, parentheses;
//! - filters: `y = x[x > 0]` has the rows of `x` where the condition is true, in order. Reductions take it, too;
//! - constants: numbers, `pi e inf nan True False`; `i`, short for `index()`, the number of the row as `i64`;
//! - functions:
//!   `index where clip min max abs floor ceil round trunc sign signbit copysign nextafter fmod isnan isfinite isinf
//!   sqrt cbrt exp exp2 expm1 log log2 log10 log1p power hypot sin cos tan asin acos atan atan2 sinh cosh tanh asinh
//!   acosh atanh rand randn cumsum onehot`. `cumsum` adds up rows, in two passes, as in `y = cumsum(x) / sum(x)`, and
//!   `onehot` is only a factor, as below;
//! - neighbouring rows: `shift diff moving_sum moving_mean moving_min moving_max`. In `y = shift(x, 1, edge)` each row
//!   has the value of the row before; `edge`, `wrap`, `nan` or a number says what is beyond the first and the last row;
//! - conversions, as in `f32(x)`: `bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64`;
//! - reductions, any number in one pass:
//!   `sum prod mean min max var std count any all argmin argmax histogram bincount`. One may be named: `m = mean(x)`.
//!   What uses a reduction, as in `y = x - mean(x)`, is computed in another pass over the rows. The results of the last
//!   two are arrays, with a count for each bin;
//! - products over the rows of tables, as in `g = x.T @ y`, whose result is a [`Report::array`], and sums of rows by an
//!   integer key, as in `s = onehot(k, 10).T @ x`;
//! - products of the rows of a table with an array of the job, as in `y = x @ w` and `near = argmin(x @ c.T, axis=-1)`;
//! - order statistics, exact, in a few passes: `median quantile topk`, as in `quantile(x, 0.25)` and `topk(x, 10)`;
//! - the same by NumPy's and other names:
//!   `minimum maximum absolute arcsin arccos arctan arctan2 arcsinh arccosh arctanh true false`.
//!
//! [`expr::functions`] lists all of them for programs. Other names are columns, or values that are the same for all
//! rows ([`Job::scalar`]): the same text with other values is the same kernel, and is not compiled again.
//!
//! A name is a constant only if no input, value or result has it: columns may be called `e`, `i` and `pi`. Functions
//! are told by their parentheses, so that columns may have their names, too. [`Expression`] is a parsed text for any
//! number of jobs.
//!
//! Inputs of one shape are paired element by element, and outputs have that shape. Inputs of other shapes are broadcast
//! as in NumPy; a row is then a slice along the first axis, and an input has all of its elements, one of them, or one
//! row for all rows. Inputs without a shape (slices, raw files, generators) go with every shape of as many elements. A
//! reduction with `axis=0` has a value for each element of a row: [`Report::array`]. One with `axis=-1` has a value for
//! each row, and is an output, or part of an expression: `y = x / sum(x, axis=-1, keepdims=True)`.
//!
//! Where it differs from NumPy: float functions of `bool`, `i8` and `u8` give `f32`, not `f16`; a literal
//! that does not fit the dtype beside it is an error also in `where` and `clip`; an integer array to a negative power
//! is the reciprocal rounded to zero; casts from floats to integers saturate, and NaN becomes 0; `min` and `max` of
//! −0 and 0 give the first; a `bool` with a literal exponent or with integers beyond `i64` becomes an integer. A name
//! cannot be read as an input and assigned in one text. Parentheses and signs nest 200 levels deep at most; a sum may
//! have any number of terms.
//!
//! # Results
//!
//! Results are the same bits for every chunk size, number of workers, device and repeat. That holds for functions
//! without an exact result too (`exp`, `sin`, `**`, …): each is defined here, once for all devices, and within 1 ulp
//! wherever the tests look. Those of `f32` are computed in `f64` and rounded.
//!
//! # Tracing
//!
//! Workers emit [`tracing`] spans at level `DEBUG`: `run` for a job, and in it `send` and `drain` (`compute` on the
//! CPU) for each chunk, with the fields `chunk`, `row`, `rows`, `device` and `worker`.

// Of a library alone: in programs and tests nothing that is `pub` is reached from outside.
#![warn(missing_debug_implementations, unnameable_types, unreachable_pub)]

pub mod arrays;
mod cache_folder;
mod cgroup;
mod cpu_cache;
mod custom;
mod data;
pub mod device;
mod engine;
mod error;
pub mod expr;
pub mod html;
mod job;
pub mod limits;
#[cfg(feature = "matrices")]
pub mod matrices;
pub mod memory;
mod ops;
mod panics;
mod partial;
mod pipeline;
pub mod plan;
mod progress;
pub mod report;
mod sync;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod thread_pool;
mod threads;
pub mod trace;
#[doc(hidden)]
pub mod units;

#[cfg(feature = "arrow")]
pub use data::Arrow;
#[cfg(feature = "parquet")]
pub use data::Parquet;
#[cfg(feature = "zarr")]
pub use data::Zarr;
pub use data::{ArrayValue, Dtype, Input, Npy, Output, Raw, Scalar, Sink, Source};
pub use device::{DeviceChoice, Precision};
pub use engine::{Engine, EngineBuilder, Passes};
pub use error::{Error, JobError, MatrixError, PartialError, Result, SettingError, VerificationError};
pub use expr::{Expression, NotANumber, Number};
pub use job::Job;
pub use partial::{Journal, Partial};
pub use plan::Plan;
pub use progress::{CancelToken, Progress};
pub use report::Report;

/// Inputs and outputs: files, memory, generators, and the traits for sources and sinks of one's own.
pub mod io {
    #[cfg(feature = "arrow")]
    pub use crate::data::Arrow;
    #[cfg(feature = "parquet")]
    pub use crate::data::Parquet;
    #[cfg(feature = "zarr")]
    pub use crate::data::Zarr;
    pub use crate::data::{
        ArrayValue, Blocks, Bounds, Claim, Codec, ColumnOptions, Dtype, Element, Generator, Input, Memory, NewFile,
        Npy, Output, Parts, Placement, Raw, RawArray, RawArrayMut, ReadMode, Scalar, Sink, SinkMemory, Source,
        StoredArray, TableColumn, TableFile, Target, commit_all, create, map, open, open_column, open_columns,
        open_with,
    };
    #[doc(hidden)]
    pub use crate::data::{
        Clash, FileId, FileSet, FolderKey, Foreign, NamedFile, NpyField, NpyFields, NpyRecord, folder_state,
        foreign_format, is_store, is_url, length_and_head, mapped_path, remove_unfinished_outputs, url_state,
    };
    pub use crate::error::ColumnError;
}

/// Computations other than expressions: closures in Rust, and kernels in CUDA C++ or PTX.
pub mod kernel {
    pub use crate::custom::{AddColumn, Call, CustomKernel, HostRows, RowColumns, RowElement, RowFunction};
    pub use crate::error::KernelError;
}

/// The examples of the README, compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

// The examples of `docs/`: every document, so that no block of Rust is forgotten.
#[cfg(doctest)]
#[doc = include_str!("../docs/batch.md")]
mod docs_batch {}
#[cfg(doctest)]
#[doc = include_str!("../docs/command.md")]
mod docs_command {}
#[cfg(doctest)]
#[doc = include_str!("../docs/cuda-glossary.md")]
mod docs_cuda_glossary {}
#[cfg(doctest)]
#[doc = include_str!("../docs/errors.md")]
mod docs_errors {}
#[cfg(doctest)]
#[doc = include_str!("../docs/expressions.md")]
mod docs_expressions {}
#[cfg(all(doctest, feature = "ndarray"))]
#[doc = include_str!("../docs/formats.md")]
mod docs_formats {}
#[cfg(doctest)]
#[doc = include_str!("../docs/iterating.md")]
mod docs_iterating {}
#[cfg(doctest)]
#[doc = include_str!("../docs/json.md")]
mod docs_json {}
#[cfg(doctest)]
#[doc = include_str!("../docs/kernels.md")]
mod docs_kernels {}
#[cfg(all(doctest, feature = "matrices"))]
#[doc = include_str!("../docs/matrices.md")]
mod docs_matrices {}
#[cfg(doctest)]
#[doc = include_str!("../docs/memory.md")]
mod docs_memory {}
#[cfg(doctest)]
#[doc = include_str!("../docs/parts.md")]
mod docs_parts {}

#[cfg(doctest)]
#[doc = include_str!("../docs/python.md")]
mod docs_python {}
#[cfg(doctest)]
#[doc = include_str!("../docs/reliability.md")]
mod docs_reliability {}
#[cfg(doctest)]
#[doc = include_str!("../docs/resume.md")]
mod docs_resume {}
#[cfg(doctest)]
#[doc = include_str!("../docs/scale.md")]
mod docs_scale {}
#[cfg(doctest)]
#[doc = include_str!("../docs/several-gpus.md")]
mod docs_several_gpus {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrays::{DeviceArray, PinnedBuffer, Resident, ShardedArray};
    use crate::io::NewFile;
    use crate::kernel::CustomKernel;

    const fn is_send_and_sync<T: Send + Sync>() {}
    const fn is_send<T: Send>() {}

    /// What users share between threads, or hand from one to the other: checked by compiling it.
    const _: () = {
        is_send_and_sync::<Engine>();
        is_send_and_sync::<EngineBuilder>();
        is_send_and_sync::<Report>();
        is_send_and_sync::<Plan>();
        is_send_and_sync::<Error>();
        is_send_and_sync::<Npy>();
        is_send_and_sync::<Raw>();
        is_send_and_sync::<NewFile>();
        is_send_and_sync::<CancelToken>();
        is_send_and_sync::<Progress>();
        is_send_and_sync::<CustomKernel>();
        is_send_and_sync::<PinnedBuffer<f64>>();
        is_send_and_sync::<ShardedArray<f64>>();
        is_send_and_sync::<DeviceArray>();
        is_send_and_sync::<Resident<'_>>();
        is_send_and_sync::<kernel::RowFunction>();
        is_send_and_sync::<Expression>();
        is_send::<Job<'_>>();
        is_send::<Input<'_>>();
        is_send::<Output<'_>>();
    };
}
