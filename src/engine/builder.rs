//! What can be set on an engine.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::Engine;
use super::devices::Budgets;
use crate::device::DeviceChoice;
use crate::error::{Result, SettingError};
use crate::limits::MachineLimits;
use crate::plan::RunLimits;

/// Each worker is a thread: more than this is a mistake.
const MAX_WORKERS: usize = 1024;

/// Builds an [`Engine`]. Everything has a default.
///
/// ```
/// use overshot::{DeviceChoice, Engine};
/// let engine = Engine::builder()
///     .device(DeviceChoice::Cpu)
///     .device_memory(2 << 30)
///     .pinned_memory(512 << 20)
///     .chunk(16 << 20)
///     .workers(2)
///     .build()?;
/// assert_eq!(engine.devices()[0].id, "cpu");
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it builds"]
pub struct EngineBuilder {
    choice: DeviceChoice,
    limits: RunLimits,
}

impl EngineBuilder {
    /// The devices to use; [`DeviceChoice::Auto`] if not set.
    pub fn device(mut self, choice: impl Into<DeviceChoice>) -> Self {
        self.choice = choice.into();
        self
    }

    /// The most device memory that the runs of the engine may use, all at one time together with arrays and datasets
    /// that stay there ([`sharded`](Engine::sharded), [`resident`](Engine::resident)), in bytes per device. It counts
    /// these and the blocks that chunks live in, not what the driver takes for its own. If not set, all of the
    /// device's memory.
    ///
    /// A run uses what its plan says, and [waits](Engine::run) until there is as much. Each of two
    /// [`passes`](Engine::passes) plans for half of the limit.
    pub fn device_memory(mut self, bytes: u64) -> Self {
        self.limits.device_memory = Some(bytes);
        self
    }

    /// The most pinned memory that the runs of the engine may use at one time, in bytes per device; 256 MiB if not
    /// set. Runs share it as they share [device memory](EngineBuilder::device_memory).
    pub fn pinned_memory(mut self, bytes: u64) -> Self {
        self.limits.pinned_memory = Some(bytes);
        self
    }

    /// Bytes of a chunk, inputs and outputs together; chosen by the plan if not set. Chunks are whole tiles: 4096
    /// rows for expressions, the rows of a block for kernels.
    pub fn chunk(mut self, bytes: u64) -> Self {
        self.limits.chunk = Some(bytes);
        self
    }

    /// Workers per device; chosen by the plan if not set.
    pub fn workers(mut self, workers: usize) -> Self {
        self.limits.workers = Some(workers);
        self
    }

    /// Finds the devices. Nothing is allocated, and no GPU is touched before the first run.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if a device was asked for by name and is not there;
    /// [`Error::InvalidSetting`](crate::Error::InvalidSetting) for no workers or more than 1024.
    pub fn build(self) -> Result<Engine> {
        let EngineBuilder { mut choice, limits } = self;
        if let Some(workers) = limits.workers.filter(|workers| !(1..=MAX_WORKERS).contains(workers)) {
            return Err(SettingError::Workers { workers, most: MAX_WORKERS }.into());
        }
        if let Some(bytes) = limits.device_memory {
            // An emulated device without a size has as much memory as the limit.
            choice.emulated_mut().iter_mut().for_each(|options| _ = options.memory_bytes.get_or_insert(bytes));
        }
        let begin = Instant::now();
        let (devices, note) = choice.resolve()?;
        let found = begin.elapsed();
        let (machine, limits_note) = MachineLimits::load_or_note(&devices);
        let budgets = devices.iter().map(|device| Budgets::of_engine(&limits, device)).collect();
        Ok(Engine {
            choice,
            limits,
            devices,
            note,
            found,
            machine,
            limits_note,
            budgets,
            admissions: Arc::default(),
            weights: Mutex::default(),
            opened: Mutex::default(),
        })
    }
}
