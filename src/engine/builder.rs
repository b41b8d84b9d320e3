//! The settings of an engine.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::Engine;
use super::found::Found;
use crate::device::DeviceChoice;
use crate::error::{Result, SettingError};
use crate::plan::RunLimits;
use crate::thread_pool::ThreadPool;

/// The most workers of a device. Each is a thread, so a larger number is a mistake.
const MAX_WORKERS: usize = 1024;

/// Builds an [`Engine`]. Every setting has a default.
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
    device_timeout: Option<Duration>,
}

impl EngineBuilder {
    /// Sets the devices to use. The default is [`DeviceChoice::Auto`].
    pub fn device(mut self, choice: impl Into<DeviceChoice>) -> Self {
        self.choice = choice.into();
        self
    }

    /// Sets the limit on device memory, in bytes per device. The default is all memory of the device.
    ///
    /// The limit holds for all concurrent runs of the engine together. It counts the blocks that hold chunks, and the
    /// arrays and datasets that stay on the device ([`sharded`](Engine::sharded), [`resident`](Engine::resident)). It
    /// does not count memory that the driver uses for itself.
    ///
    /// A run uses the memory of its plan, and [waits](Engine::run) until that much is free. Each of two
    /// [`passes`](Engine::passes) plans for half of the limit.
    pub fn device_memory(mut self, bytes: u64) -> Self {
        self.limits.device_memory = Some(bytes);
        self
    }

    /// Sets the limit on pinned memory, in bytes per device. The default is 256 MiB. Concurrent runs share it as they
    /// share [device memory](EngineBuilder::device_memory).
    pub fn pinned_memory(mut self, bytes: u64) -> Self {
        self.limits.pinned_memory = Some(bytes);
        self
    }

    /// Sets the size of a chunk in bytes, inputs and outputs together. By default, the plan chooses it. Chunks are
    /// whole tiles: 4096 rows for expressions, the rows of a block for kernels.
    pub fn chunk(mut self, bytes: u64) -> Self {
        self.limits.chunk = Some(bytes);
        self
    }

    /// Sets the number of workers per device. By default, the plan chooses it.
    pub fn workers(mut self, workers: usize) -> Self {
        self.limits.workers = Some(workers);
        self
    }

    /// Sets the time limit of devices: how long a GPU may take for a chunk, from when it begins with it. The default is
    /// no limit, because nothing tells a GPU that hangs from a kernel that takes long.
    ///
    /// A device that takes longer is lost: others compute its rows, or the run ends with
    /// [`Error::Chunk`](crate::Error::Chunk). The engine does not use it again, and never waits for it. The memory that
    /// it may still access stays allocated until the process ends; the error says how much.
    ///
    /// The limit does not hold in runs with columns that devices use in place: pinned memory, and arrays on devices.
    /// Such a run ends only when its devices do, and has a note. Nor does it end a call of the driver that does not
    /// return.
    pub fn device_timeout(mut self, limit: Duration) -> Self {
        self.device_timeout = Some(limit);
        self
    }

    /// Builds the engine: finds the devices, except for [`DeviceChoice::Auto`], with which the first job that is large
    /// enough finds them. Nothing is allocated, and no GPU is touched before the first run.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if a named device does not exist;
    /// [`Error::InvalidSetting`](crate::Error::InvalidSetting) if the number of workers is not 1 to 1024, or the time
    /// limit of devices is zero.
    pub fn build(self) -> Result<Engine> {
        let EngineBuilder { mut choice, limits, device_timeout } = self;
        if device_timeout == Some(Duration::ZERO) {
            return Err(SettingError::DeviceTimeout.into());
        }
        if let Some(workers) = limits.workers.filter(|workers| !(1..=MAX_WORKERS).contains(workers)) {
            return Err(SettingError::Workers { workers, most: MAX_WORKERS }.into());
        }
        if let Some(bytes) = limits.device_memory {
            // The memory of an emulated device is what its options say.
            choice.emulated_mut().iter_mut().for_each(|options| _ = options.memory_bytes.get_or_insert(bytes));
        }
        let found = match choice {
            // A small job needs no GPU, and a driver takes a quarter of a second to find one.
            DeviceChoice::Auto => OnceLock::new(),
            _ => Found::by_choice(&choice, &limits)?.into(),
        };
        Ok(Engine {
            choice,
            limits,
            device_timeout,
            found,
            cpu: OnceLock::new(),
            admissions: Arc::default(),
            weights: Mutex::default(),
            opened: Mutex::default(),
            learned: super::learned::Learned::of_user(),
            threads: ThreadPool::default(),
        })
    }
}
