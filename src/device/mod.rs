//! Devices: what the pipeline asks of them, and what they say of themselves.
//!
//! A device knows nothing of jobs, chunks or files. It has memory, streams and events, and it runs [`Kernel`]s. Two
//! devices implement [`Device`]: `emulated`, made of host memory, and `cuda`. The CPU is no [`Device`]: it needs no
//! copies, so its lane runs a kernel's twin on the data where it is.

mod choice;
#[cfg(test)]
pub(crate) mod contract;
pub(crate) mod cpu;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
pub(crate) mod emulated;
pub(crate) mod kernel;

pub(crate) use choice::driver_version;
pub use choice::{DeviceChoice, devices};
pub use emulated::{Emulated, Fault, FaultAt};

use std::fmt;
use std::time::Duration;

use crate::error::Result;
use kernel::SharedKernel;

/// What kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DeviceKind {
    /// The cores of this machine, on the data where it is.
    Cpu,
    /// A device made of host memory, for tests and for seeing how the pipeline works.
    Emulated,
    /// An NVIDIA GPU.
    Cuda,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Emulated => "emulated",
            DeviceKind::Cuda => "cuda",
        })
    }
}

/// A device as it looks from outside, without touching it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// As `--device` names it: `cpu`, `emulated`, `cuda:0`.
    pub id: String,
    /// As its maker names it.
    pub name: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// Its memory in bytes; for the CPU, the machine's.
    pub memory_bytes: u64,
    /// Compute capability, for CUDA devices: `"9.0"`.
    pub compute_capability: Option<String>,
}

/// How the lanes of a device are driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// Each lane on a thread of its own.
    Threads,
    /// All lanes on one thread, one turn at a time, in the order of the device's virtual time and of this seed.
    Seeded(u64),
}

/// A device with memory of its own.
///
/// Contract for all implementations: no call but [`Stream::synchronize`] waits for the device; errors of
/// asynchronous work surface at the next call on the same stream or at `synchronize`; everything may be dropped in any
/// order after its streams were synchronised.
pub(crate) trait Device: Send + Sync + Sized + 'static {
    /// One allocation of device memory; freed on drop.
    type Memory: Send + Sync;
    /// A kernel loaded on this device.
    type Kernel: Send + Sync;
    /// Host memory made known to the device for asynchronous copies, until dropped.
    type Pin: Send + Sync;
    /// A queue of work.
    type Stream: Stream<Device = Self>;

    /// What it is.
    fn info(&self) -> &DeviceInfo;

    /// How its lanes are to be driven.
    fn schedule(&self) -> Schedule {
        Schedule::Threads
    }

    /// Allocates `bytes` (> 0) of device memory, aligned to 256 bytes, content unspecified.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) when there is not enough; the device stays usable.
    fn allocate(&self, bytes: usize) -> Result<Self::Memory>;

    /// Page-locks host memory, so that copies from and to it run asynchronously at the full speed of the link.
    ///
    /// # Safety
    /// `start` is page-aligned, and the `bytes` from it on stay mapped until the result is dropped.
    unsafe fn pin(&self, start: *mut u8, bytes: usize) -> Result<Self::Pin>;

    /// Compiles (or finds in the cache) and loads a kernel.
    fn load(&self, kernel: &SharedKernel) -> Result<Self::Kernel>;

    /// Opens a stream.
    fn open_stream(&self) -> Result<Self::Stream>;
}

/// A queue of device work that runs in order, asynchronously to the host and to other streams.
///
/// On drop a stream waits until none of its work can touch host memory any more.
pub(crate) trait Stream: Send {
    /// The device it belongs to.
    type Device: Device;
    /// A point in a stream's work. May be recorded again; waiting concerns the latest record at the time of the call.
    /// An event that was never recorded counts as done.
    type Event: Send + Sync;

    /// Makes an event.
    fn event(&self) -> Result<Self::Event>;

    /// Enqueues a copy of `bytes` from the host to `to[offset..]`.
    ///
    /// # Safety
    /// `from` is readable for `bytes` bytes and nobody writes them until work enqueued up to here is done, which an
    /// event recorded later or [`synchronize`](Stream::synchronize) tells. `offset + bytes` is inside `to`.
    unsafe fn copy_in(
        &mut self,
        from: *const u8,
        to: &<Self::Device as Device>::Memory,
        offset: usize,
        bytes: usize,
    ) -> Result<()>;

    /// Enqueues a copy of `bytes` from `from[offset..]` to the host.
    ///
    /// # Safety
    /// `to` is writable for `bytes` bytes and nobody reads or writes them until work enqueued up to here is done.
    /// `offset + bytes` is inside `from`.
    unsafe fn copy_out(
        &mut self,
        from: &<Self::Device as Device>::Memory,
        offset: usize,
        to: *mut u8,
        bytes: usize,
    ) -> Result<()>;

    /// Enqueues a kernel on `rows` rows (> 0) whose columns lie in `memory` at `offsets`, in the order of
    /// [`Columns`](kernel::Columns).
    ///
    /// # Safety
    /// Every column of `rows` rows fits `memory` at its offset, columns do not overlap, and offsets are multiples of 8.
    unsafe fn launch(
        &mut self,
        kernel: &<Self::Device as Device>::Kernel,
        memory: &<Self::Device as Device>::Memory,
        offsets: &[usize],
        first_row: u64,
        rows: usize,
    ) -> Result<()>;

    /// Records an event behind all work enqueued so far.
    fn record(&mut self, event: &Self::Event) -> Result<()>;

    /// Makes this stream (never the host) wait for an event of any stream of the same device.
    fn wait(&mut self, event: &Self::Event) -> Result<()>;

    /// Whether the event is done; never waits.
    fn query(&self, event: &Self::Event) -> Result<bool>;

    /// Makes the host wait for the event, and reports errors of the work before it.
    fn synchronize(&mut self, event: &Self::Event) -> Result<()>;

    /// Time on the device between two events that are done.
    fn elapsed(&self, from: &Self::Event, to: &Self::Event) -> Result<Duration>;

    /// The time of the host that uses this stream, since some fixed moment; virtual where the device's time is.
    fn now(&self) -> Duration;

    /// The virtual time at which a recorded event will be done; zero where time is real and nobody can know.
    fn done_at(&self, _event: &Self::Event) -> Duration {
        Duration::ZERO
    }
}
