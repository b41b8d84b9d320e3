//! Arrays in pinned memory that sources and sinks use in place.

use std::ops::{Deref, DerefMut};

use super::pinned::PinnedMemory;
use crate::data::{Dtype, Element, Input, Memory, Output, Source, slice_output};
use crate::device::Device;
use crate::error::Result;

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
    memory: PinnedMemory,
    rows: usize,
    _element: std::marker::PhantomData<T>,
}

impl<T: Element> PinnedArray<T> {
    /// `rows` zeros, registered with the device if there is one.
    pub(crate) fn new<D: Device>(device: Option<&D>, rows: usize) -> Result<Self> {
        let memory = PinnedMemory::new(device, rows.saturating_mul(size_of::<T>()))?;
        Ok(PinnedArray { memory, rows, _element: std::marker::PhantomData })
    }

    /// Whether the memory is registered with a device, so that copies need no staging.
    pub fn is_pinned(&self) -> bool {
        self.memory.is_pinned()
    }
}

impl<T: Element> Deref for PinnedArray<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.memory.bytes[..self.rows * size_of::<T>()])
    }
}

impl<T: Element> DerefMut for PinnedArray<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let bytes = self.rows * size_of::<T>();
        bytemuck::cast_slice_mut(&mut self.memory.bytes[..bytes])
    }
}

impl<T: Element> Source for PinnedArray<T> {
    fn dtype(&self) -> Dtype {
        T::DTYPE
    }

    fn rows(&self) -> u64 {
        self.len() as u64
    }

    fn name(&self) -> String {
        "pinned array".into()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        Input::from(&**self).source().read(first, dst)
    }

    fn memory(&self) -> Option<Memory<'_>> {
        let memory = Memory::new(bytemuck::cast_slice(self), T::DTYPE)?;
        Some(if self.is_pinned() { memory.pinned() } else { memory })
    }
}

impl<'a, T: Element> From<&'a mut PinnedArray<T>> for Output<'a> {
    fn from(array: &'a mut PinnedArray<T>) -> Self {
        let pinned = array.is_pinned();
        slice_output(array, pinned)
    }
}
