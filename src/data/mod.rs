//! Datasets: dtypes, sources, sinks and file formats. Nothing here knows of devices.

mod dtype;

pub use dtype::{Dtype, Element, Scalar};
