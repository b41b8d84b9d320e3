//! Overshot streams datasets larger than a GPU's memory through a computation.
//!
//! ```text
//!                  one lane: a thread, one to three slots
//!  Source ──▶ fill slot ──▶ copy in ──▶ kernel ──▶ copy out ──▶ drain slot ──▶ Sink
//!      ▲        (host)       (DMA)      (GPU)       (DMA)         (host)
//!      └── every lane of every device claims its next chunk from the same queue
//! ```
//!
//! An [`Engine`] holds devices and memory limits and runs [`Job`]s. A job is an expression with inputs and outputs, which
//! are slices, files ([`Npy`], [`Raw`]), [`PinnedVec`]s, [`Generator`]s, arrays that stay on GPUs ([`ShardedArray`],
//! [`Resident`]), or anything that implements [`Source`] or [`Target`]. What happened is in the [`Report`]; what would happen, in the [`Plan`].
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
//! # Expressions
//!
//! Statements separated by `;` or `,`: `name = expression` for every row, or a reduction over all rows. Types, promotion,
//! integer wrap-around, division and NaN follow NumPy 2.
//!
//! - operators `+ - * / // % **`, comparisons, `& | ^ ~ << >>`, parentheses;
//! - constants: numbers, `pi e inf nan true false`; `i`, the number of the row as `i64`;
//! - `where clip min max abs floor ceil round trunc isnan isfinite isinf sqrt cbrt exp exp2 expm1 log log2 log10 log1p hypot
//!   sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh`, and casts by dtype name, as in `f32(x)`;
//! - reductions, any number in one pass: `sum mean min max var std count any all argmin argmax`. One may be named:
//!   `m = mean(x)`.
//!
//! Other names are columns, or values that are the same for all rows ([`Job::value`]): the same text with other values is the same
//! kernel, and is not compiled again.
//!
//! Where it differs from NumPy: there is no `f16`, so float functions of `bool`, `i8` and `u8` give `f32`; a literal that does not
//! fit the dtype beside it is an error also in `where` and `clip`; an integer array to a negative power is the reciprocal
//! rounded to zero; casts from floats to integers saturate, and NaN becomes 0; `min` and `max` of −0 and 0 give the first;
//! a `bool` with a literal exponent or with integers beyond `i64` becomes an integer. A name cannot be read as an input
//! and assigned in one text, and nesting ends at 200 levels.
//!
//! # Results
//!
//! Results are the same bits for every chunk size, number of lanes, device and repeat. That holds for functions without an
//! exact result too (`exp`, `sin`, `**`, …): each is defined here, once for all devices, and within 1 ulp wherever the tests
//! look. Those of `f32` are computed in `f64` and rounded.
//!
//! # Tracing
//!
//! Lanes emit [`tracing`] spans at level `DEBUG`: `run` for a job, and in it `send` and `drain` (`compute` on the CPU) for each
//! chunk, with the fields `chunk`, `row`, `rows`, `device` and `lane`.

mod cache_folder;
mod data;
mod device;
mod engine;
mod error;
mod expr;
mod foreign;
mod job;
mod limits;
mod memory;
mod ops;
mod pipeline;
mod plan;
mod progress;
mod report;
mod sync;
#[doc(hidden)]
pub mod testing;
mod threads;
mod trace;

pub use data::{
    Chunk, Claim, Dtype, Element, Generator, Input, Memory, NewFile, Npy, Output, Place, Raw, Reading, Scalar, Sink,
    SinkMemory, Source, Target, create, open, open_with,
};
pub use device::{DeviceChoice, DeviceDetails, DeviceInfo, DeviceKind, Emulated, Fault, FaultAt, devices};
pub use engine::{Engine, EngineBuilder};
pub use error::{Error, Result};
pub use foreign::{Call, ForeignKernel, HostRows};
pub use job::Job;
pub use limits::{DeviceLimits, HostLimits, MachineLimits, Rate, Size, Together};
pub use memory::{DeviceMemory, MemoryUse, PinnedVec, Resident, ShardedArray};
pub use plan::{DevicePlan, Plan};
pub use progress::{CancelToken, Progress};
pub use report::{Bound, DeviceReport, OutputReport, Report, Setup, Stage, StageTime, StageTimes};
pub use trace::Timeline;

/// The examples of the README, compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
