//! Arrays in pinned memory that sources and sinks use in place.

use std::any::Any;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

use crate::data::Element;

/// A fixed-size array in pinned memory, made by [`Engine::pinned`](crate::Engine::pinned).
///
/// As an input or output of a job it is used in place: its rows cross the link straight from and to it, with no copy
/// in between. It dereferences to a slice. On an engine without a GPU it is ordinary memory.
///
/// ```
/// # fn main() -> overshot::Result<()> {
/// use overshot::{DeviceChoice, Engine, Job};
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// let mut x = engine.pinned::<f32>(1000)?;
/// x.fill(2.0);
/// let report = engine.run(Job::eval("sum(x)")?.input("x", &x))?;
/// assert_eq!(report.value("sum(x)").map(|v| v.as_f64()), Some(2000.0));
/// # Ok(())
/// # }
/// ```
pub struct PinnedArray<T: Element> {
    // Dropped in this order: unregistered before it is unmapped.
    pins: Vec<Box<dyn Any + Send + Sync>>,
    memory: MmapMut,
    rows: usize,
    _element: std::marker::PhantomData<T>,
}

impl<T: Element> PinnedArray<T> {
    /// `memory` holds at least `rows` elements; `pins` keep it registered (none: ordinary memory).
    pub(crate) fn new(memory: MmapMut, rows: usize, pins: Vec<Box<dyn Any + Send + Sync>>) -> Self {
        PinnedArray { pins, memory, rows, _element: std::marker::PhantomData }
    }

    /// Whether the memory is registered with a device, so that copies need no staging.
    pub fn is_pinned(&self) -> bool {
        !self.pins.is_empty()
    }
}

impl<T: Element> Deref for PinnedArray<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.memory[..self.rows * size_of::<T>()])
    }
}

impl<T: Element> DerefMut for PinnedArray<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let bytes = self.rows * size_of::<T>();
        bytemuck::cast_slice_mut(&mut self.memory[..bytes])
    }
}
