//! Arrays in pinned memory that jobs use in place.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::data::{Dtype, Element, Input, Memory, Output, Source, slice_output};
use crate::device::Device;
use crate::error::Result;
use crate::memory::{Charge, MemoryBudget, PinnedMemory};

/// A fixed-size array in pinned memory, created by [`Engine::pinned`](crate::Engine::pinned).
///
/// A job uses it in place: devices copy its rows directly from and to it, without a staging copy, and the run pins
/// no other memory for them. It dereferences to a slice. On an engine without a GPU it is ordinary memory.
///
/// ```
/// # fn main() -> overshot::Result<()> {
/// use overshot::{DeviceChoice, Engine, Job};
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// let mut x = engine.pinned::<f32>(1000)?;
/// x.fill(2.0);
/// let report = engine.run(Job::eval("sum(x)")?.input("x", &x))?;
/// assert_eq!(report.value("sum(x)")?.map(|v| v.as_f64()), Some(2000.0));
/// # Ok(())
/// # }
/// ```
pub struct PinnedBuffer<T: Element> {
    // Dropped in this order: the memory is released before its charge.
    memory: PinnedMemory,
    _charged: Option<Charge>,
    rows: usize,
    _element: std::marker::PhantomData<T>,
}

impl<T: Element> PinnedBuffer<T> {
    /// Creates an array of `rows` zeros. The memory is registered with the device and charged to this budget.
    pub(crate) fn new<D: Device>(device: &D, budget: &Arc<MemoryBudget>, rows: usize) -> Result<Self> {
        let bytes = rows.saturating_mul(size_of::<T>());
        let memory = PinnedMemory::new(Some(device), bytes)?;
        let _charged = Some(budget.charge(bytes as u64)?);
        Ok(PinnedBuffer { memory, _charged, rows, _element: std::marker::PhantomData })
    }

    /// Creates an array of `rows` zeros in ordinary memory.
    pub(crate) fn on_host(rows: usize) -> Result<Self> {
        let memory = PinnedMemory::on_host(rows.saturating_mul(size_of::<T>()))?;
        Ok(PinnedBuffer { memory, _charged: None, rows, _element: std::marker::PhantomData })
    }

    /// Returns whether the memory is registered with a device, so that copies need no staging.
    pub fn is_pinned(&self) -> bool {
        self.memory.is_pinned()
    }
}

impl<T: Element> std::fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut all = f.debug_struct("PinnedBuffer");
        all.field("dtype", &T::DTYPE)
            .field("rows", &self.rows)
            .field("pinned", &self.is_pinned())
            .finish_non_exhaustive()
    }
}

impl<T: Element> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.memory.bytes[..self.rows * size_of::<T>()])
    }
}

impl<T: Element> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let bytes = self.rows * size_of::<T>();
        bytemuck::cast_slice_mut(&mut self.memory.bytes[..bytes])
    }
}

impl<T: Element> Source for PinnedBuffer<T> {
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

impl<'a, T: Element> From<&'a mut PinnedBuffer<T>> for Output<'a> {
    fn from(array: &'a mut PinnedBuffer<T>) -> Self {
        let pinned = array.is_pinned();
        slice_output(array, pinned)
    }
}
