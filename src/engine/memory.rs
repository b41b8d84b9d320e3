//! The memory of an engine, as its users see it and give it back.

use std::sync::PoisonError;

use super::Engine;
use super::devices::{Budgets, PlacementDevice};
use crate::arrays::PinnedBuffer;
use crate::data::Element;
use crate::error::Result;
use crate::memory::DeviceMemory;

impl Engine {
    /// An array of `rows` zeros in pinned memory, which jobs use in place. It does not count against the limit on
    /// the pinned memory of a run.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if there is no memory, or it cannot be pinned.
    pub fn pinned<T: Element>(&self, rows: usize) -> Result<PinnedBuffer<T>> {
        let (opened, mut full) = self.opened()?;
        match (opened.pins_with(), full.pop()) {
            (None, Some((_, error))) => Err(error),
            (device, _) => PinnedBuffer::new(device, rows),
        }
    }

    /// Its devices as places for rows that outlive a run: GPUs are opened for that.
    pub(super) fn placement_devices(&self) -> Result<Vec<PlacementDevice>> {
        // What has no memory for being opened has none for rows either.
        drop(self.opened()?);
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(opened.placement_devices(&self.choice, &self.devices, &self.budgets))
    }

    /// The memory that it has of each of its [`devices`](Engine::devices), in their order. Touches no device.
    ///
    /// What a run took is kept for the next run, as taking it costs milliseconds: on each GPU at most as much as the
    /// largest run took, for each of the runs that there were at once, and together with what runs have no more than
    /// the limits of the engine. A run uses what fits it, and what is too small is given back before more is taken. A
    /// run that fails keeps nothing. The emulated device is made anew for every run and keeps nothing either.
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
        self.devices.iter().zip(&self.budgets).map(|(device, budgets)| opened.memory_of(device, budgets)).collect()
    }

    /// Gives the memory back that is kept for the next run, and returns how many bytes that was, of devices and of
    /// pinned memory together. Runs that are under way keep what they have; contexts and loaded kernels stay, too.
    pub fn trim(&self) -> u64 {
        self.opened_so_far().trim()
    }

    /// Lets the peaks of [`memory`](Engine::memory) begin anew with what is in use now.
    pub fn reset_peak(&self) {
        self.budgets.iter().for_each(Budgets::reset_peak);
    }
}
