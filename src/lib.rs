//! Overshot streams datasets larger than a GPU's memory through a computation.

mod data;
mod device;
mod engine;
mod error;
mod expr;
mod job;
mod memory;
mod ops;
mod pipeline;
mod plan;
mod report;
#[doc(hidden)]
pub mod testing;

pub use data::{
    Chunk, Claim, Dtype, Element, Generator, Input, Memory, NewFile, Npy, Output, Place, Raw, Reading, Scalar, Sink,
    SinkMemory, Source, Target, create, open,
};
pub use device::{DeviceChoice, DeviceInfo, DeviceKind, Emulated, Fault, FaultAt, devices};
pub use engine::{Engine, EngineBuilder};
pub use error::{Error, Result};
pub use job::{CancelToken, Job, Progress};
pub use memory::PinnedArray;
pub use plan::{DevicePlan, Plan};
pub use report::{DeviceReport, OutputReport, Report, StageTime, StageTimes};

/// The examples of the README, compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
