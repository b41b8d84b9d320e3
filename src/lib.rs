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

pub use data::{Dtype, Element, Scalar};
pub use device::{DeviceInfo, DeviceKind};
pub use error::{Error, Result};
