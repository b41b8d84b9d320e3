//! The memory of an engine: pinned arrays, use, and the return of cached memory.

use std::sync::PoisonError;

use super::Engine;
use super::devices::{Budgets, PlacementDevice};
use crate::arrays::PinnedBuffer;
use crate::data::Element;
use crate::error::Result;
use crate::memory::DeviceMemory;

impl Engine {
    /// Creates an array of `rows` zeros in pinned memory, which jobs use in place. It does not count against the limit
    /// on the pinned memory of a run.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if there is no memory, or it cannot be pinned.
    pub fn pinned<T: Element>(&self, rows: usize) -> Result<PinnedBuffer<T>> {
        let (opened, mut full) = self.opened()?;
        match full.pop() {
            Some((_, error)) if opened.is_empty() => Err(error),
            _ => opened.pinned(rows),
        }
    }

    /// Returns the devices that can hold rows longer than a run. Opens the GPUs.
    pub(super) fn placement_devices(&self) -> Result<Vec<PlacementDevice>> {
        // A device without memory for a context has none for rows either.
        drop(self.opened()?);
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(opened.placement_devices(&self.choice, &self.found().devices, &self.found().budgets))
    }

    /// Returns the memory use of each of the [`devices`](Engine::devices), in their order. Touches no device.
    ///
    /// The engine caches the memory of a run for later runs, because an allocation takes milliseconds. On each GPU it
    /// caches at most as many allocations as there were concurrent runs, each at most as large as that of the largest
    /// run. Cached memory and the memory of runs together stay within the limits of the engine. A run uses cached
    /// memory that is large enough for it; smaller memory is freed before the run allocates more. A failed run leaves
    /// nothing in the cache. Emulated devices are created for every run, so they have no cached memory.
    ///
    /// ```
    /// use overshot::{Engine, Job, device::Emulated};
    /// let engine = Engine::builder().device(Emulated::new()).build()?;
    /// engine.run(Job::eval("sum(i)")?.rows(1_000_000))?;
    /// let memory = &engine.memory()[0];
    /// assert!(memory.device.peak > 0 && memory.device.in_use == 0);
    /// println!("{memory}");
    /// # Ok::<(), overshot::Error>(())
    /// ```
    pub fn memory(&self) -> Vec<DeviceMemory> {
        let opened = self.opened_so_far();
        let found = self.found();
        found.devices.iter().zip(&found.budgets).map(|(device, budgets)| opened.memory_of(device, budgets)).collect()
    }

    /// Frees cached memory, and returns the number of bytes: device memory and pinned memory together. The memory of
    /// current runs, contexts and loaded kernels stay.
    pub fn trim(&self) -> u64 {
        self.opened_so_far().trim()
    }

    /// Resets the peaks of [`memory`](Engine::memory) to the memory in use now.
    pub fn reset_peak(&self) {
        self.found().budgets.iter().for_each(Budgets::reset_peak);
    }
}
