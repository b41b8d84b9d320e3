//! Tables for products of matrices, and the devices that have room for these.

use ndarray::Array2;
use overshot::device::DeviceKind;
use overshot::{DeviceChoice, EngineBuilder};

use crate::harness::{Outcome, engine, numbers};

/// Small integers, whose products and sums are exact in any order.
pub fn integers(rows: usize, width: usize) -> Outcome<Array2<f64>> {
    let values = numbers(rows * width, 9).into_iter().map(|x| (x * 4.0).round().rem_euclid(9.0) - 4.0).collect();
    Ok(Array2::from_shape_vec((rows, width), values)?)
}

pub fn table(rows: usize, width: usize) -> Outcome<Array2<f64>> {
    Ok(Array2::from_shape_vec((rows, width), numbers(rows * width, 6))?)
}

/// The engine of a device. An emulated device has room for what products need.
pub fn builder(choice: &DeviceChoice) -> EngineBuilder {
    engine(choice).device_memory(1 << 30)
}

/// Whether every GPU has memory for what cuBLAS needs, and for panels. Jobs on smaller ones are refused.
pub fn has_room(choice: &DeviceChoice) -> Outcome<bool> {
    let engine = engine(choice).build()?;
    Ok(engine.devices().iter().all(|device| device.kind != DeviceKind::Cuda || device.memory_bytes >= 256 << 20))
}
