//! How much memory an engine has of its devices, as it says to its users.

use std::fmt;

use bytesize::ByteSize;

use super::MemoryBudget;

/// Memory that an engine has on one of its devices, from [`Engine::memory`](crate::Engine::memory). `Display` is for people,
/// `Serialize` for programs.
///
/// It counts what the engine asked the driver for: the blocks and slots that chunks live in, arrays that stay on devices, and
/// pinned arrays. It does not count
/// what the driver takes for its own, such as contexts and loaded kernels, nor what others have.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct DeviceMemory {
    /// The device as `--device` names it.
    pub id: String,
    /// Its own memory; nothing for the CPU.
    pub device: MemoryUse,
    /// Pinned memory of the host: the slots of runs on this device. What is pinned is so for all GPUs; a
    /// [`PinnedBuffer`](crate::arrays::PinnedBuffer) counts on the first of them, for as long as it lives. Nothing for the CPU.
    pub pinned: MemoryUse,
}

/// Memory of one kind, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct MemoryUse {
    /// In use now, by runs, by arrays and datasets that stay there, and by pinned arrays. A run that got memory of a larger one before it has all of that.
    pub in_use: u64,
    /// The most that was in use at once, since the engine was built or [`reset_peak`](crate::Engine::reset_peak).
    pub peak: u64,
    /// Linearizer for the next run and used by nobody; [`trim`](crate::Engine::trim) gives it back.
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
