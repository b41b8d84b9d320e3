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

pub use data::{
    Chunk, Claim, Dtype, Element, Generator, Input, Memory, NewFile, Npy, Output, Raw, Reading, Scalar, Sink,
    SinkMemory, Source, Target, create, open,
};
pub use device::{DeviceInfo, DeviceKind};
pub use error::{Error, Result};
