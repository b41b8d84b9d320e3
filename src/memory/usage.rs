//! Memory usage of an engine on its devices, as reported to users.

use std::fmt;

use bytesize::ByteSize;

use super::MemoryBudget;

/// The memory that an engine uses on one of its devices, from [`Engine::memory`](crate::Engine::memory).
///
/// `Display` is for people, `Serialize` for programs.
///
/// It counts the memory that the engine requested from the driver: the device blocks and staging slots of chunks,
/// arrays that stay on devices, and pinned arrays. It does not count the memory that the driver uses itself, such
/// as contexts and loaded kernels, nor the memory of other programs.
///
/// ```
/// use overshot::{Engine, device::Emulated};
/// let engine = Engine::builder().device(Emulated::new()).build()?;
/// let x = engine.shard(&[1.0f32; 10_000])?;
/// let memory = &engine.memory()[0];
/// assert!(memory.id == "emulated" && memory.device.in_use > 0);
/// drop(x);
/// assert_eq!(engine.memory()[0].device.in_use, 0);
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct DeviceMemory {
    /// The device, as `--device` names it.
    pub id: String,
    /// The memory of the device; zero for the CPU.
    pub device: MemoryUse,
    /// Pinned host memory: the staging slots of runs on this device; zero for the CPU. Pinned memory is pinned for
    /// all GPUs; a [`PinnedBuffer`](crate::arrays::PinnedBuffer) is counted on the first GPU for as long as it exists.
    pub pinned: MemoryUse,
}

/// Memory of one kind, in bytes.
///
/// ```
/// use overshot::{Engine, Job, device::Emulated};
/// let engine = Engine::builder().device(Emulated::new()).build()?;
/// engine.run(Job::eval("sum(x)")?.input("x", &[1.0f32, 2.0]))?;
/// let memory = engine.memory();
/// println!("{}", memory[0]);
/// assert!(memory[0].device.peak > 0);
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct MemoryUse {
    /// The memory in use now: by runs, by arrays and datasets that stay on devices, and by pinned arrays. A run
    /// that reuses a larger cached allocation is charged for all of it.
    pub in_use: u64,
    /// The most memory in use at the same time, since the engine was built or
    /// [`reset_peak`](crate::Engine::reset_peak) was called.
    pub peak: u64,
    /// Unused memory that is cached for the next run. [`trim`](crate::Engine::trim) frees it.
    pub cached: u64,
}

impl MemoryUse {
    pub(crate) fn new(in_use: &MemoryBudget, cached: u64) -> Self {
        MemoryUse { in_use: in_use.in_use(), peak: in_use.peak(), cached }
    }
}

impl fmt::Display for MemoryUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryUse { in_use, peak, cached } = self;
        write!(f, "{} in use (peak {}), {} cached", ByteSize(*in_use), ByteSize(*peak), ByteSize(*cached))
    }
}

impl fmt::Display for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: device memory {}; pinned memory {}", self.id, self.device, self.pinned)
    }
}
