//! Devices: what the pipeline asks of them, and what they say of themselves.
//!
//! A device knows nothing of jobs, chunks or files. It has memory, streams and events, and it runs `Kernel`s. Two
//! devices implement `Device`: `emulated`, made of host memory, and `cuda`. The CPU is no `Device`: it needs no
//! copies, so its worker runs a kernel's host kernel on the data where it is.

mod backoff;
mod choice;
#[cfg(test)]
pub(crate) mod contract;
pub(crate) mod cpu;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
pub(crate) mod emulated;
pub(crate) mod kernel;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod probe;
mod visible;

pub(crate) use backoff::SpinThenSleep;
pub(crate) use choice::driver_version;
pub use choice::{DeviceChoice, devices};
pub use emulated::{Emulated, Fault, FaultAt};

use std::fmt;
use std::time::{Duration, Instant};

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
    /// Where it is and what it does at the moment, of GPUs as [`devices`] lists them. An engine does not ask: it has no use
    /// for what may be otherwise a moment later.
    pub details: DeviceDetails,
}

/// What can be seen of a GPU without touching it. `None` is what is not known.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct DeviceDetails {
    /// Its place on the bus, such as `0000:1B:00.0`: it tells GPUs apart whatever their numbers are.
    pub pci_bus_id: Option<String>,
    /// Bytes of its memory that nobody uses.
    pub free_bytes: Option<u64>,
    /// Percent of the last moments, a second at most, in which some kernel ran on it.
    pub busy_percent: Option<u32>,
    /// The generation of PCI Express that it and its slot can do.
    pub pcie_generation: Option<u32>,
    /// Lanes of PCI Express that it is connected by.
    pub pcie_width: Option<u32>,
    /// The NUMA node of the host that it is connected to; also `None` if there is only one.
    pub numa_node: Option<u32>,
}

/// How far memory of the host is page-locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pinned {
    /// Not at its ends.
    No,
    /// At an end, but not in one piece from end to end, or not to be written. Copies must not cross the ends of a piece.
    InPart,
    /// In one piece: copies need no staging.
    Whole,
}

/// How the workers of a device are driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// Each worker on a thread of its own.
    Threads,
    /// All workers on one thread, one turn at a time, in the order of the device's virtual time and of this seed.
    Seeded(u64),
}

/// A device with memory of its own.
///
/// Contract for all implementations: no call but [`Host::synchronize`] waits for the device; errors of asynchronous work
/// surface at a later call or at `synchronize`, and after one nothing more runs on the device; everything may be dropped
/// in any order after its streams were dropped.
pub(crate) trait Device: Send + Sync + Sized + 'static {
    /// One allocation of device memory; freed on drop.
    type Memory: Send + Sync + 'static;
    /// A kernel loaded on this device.
    type Kernel: Send + Sync;
    /// Host memory made known to the device for asynchronous copies, until dropped.
    type Pin: Send + Sync;
    /// A queue of work.
    type Stream: Stream<Device = Self>;
    /// A point in a stream's work. May be recorded again, on any stream; waiting concerns the latest record at the time of
    /// the call. An event that was never recorded counts as done.
    type Event: Send + Sync;
    /// How one thread of the host sees the device.
    type Host: Host<Device = Self>;

    /// What it is.
    fn info(&self) -> &DeviceInfo;

    /// How its workers are to be driven.
    fn schedule(&self) -> Schedule {
        Schedule::Threads
    }

    /// Allocates `bytes` (> 0) of device memory, aligned to 256 bytes, content unspecified.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) when there is not enough; the device stays usable.
    fn allocate(&self, bytes: usize) -> Result<Self::Memory>;

    /// Bytes of its memory that nobody uses at the moment. Not all of them need to be there in one piece.
    ///
    /// # Errors
    /// When the device cannot be asked.
    fn free_bytes(&self) -> Result<u64>;

    /// Page-locks host memory, so that copies from and to it run asynchronously at the full speed of the link.
    ///
    /// # Errors
    /// When the device refuses it.
    ///
    /// # Safety
    /// `start` is page-aligned, and the `bytes` from it on are the caller's own memory that nobody has page-locked since it was
    /// mapped, and stay mapped until the result is dropped.
    unsafe fn pin(&self, start: *mut u8, bytes: usize) -> Result<Self::Pin>;

    /// Allocates page-locked memory the driver's own way and frees it, for measurements to compare with. False if there is no such
    /// way.
    fn allocate_pinned_once(&self, _bytes: usize) -> Result<bool> {
        Ok(false)
    }

    /// How far memory of the host is page-locked already, by whomever: so that the device may write it, too, if it `is_written`.
    /// Never [`Pinned::Whole`] where that cannot be known.
    fn pinned(&self, _memory: *const [u8], _is_written: bool) -> Pinned {
        Pinned::No
    }

    /// Compiles (or finds in the cache) and loads a kernel.
    fn load(&self, kernel: &SharedKernel) -> Result<Self::Kernel>;

    /// What a report should say of how it runs this kernel.
    fn notes(&self, _: &kernel::Kernel) -> Vec<String> {
        vec![]
    }

    /// Opens a stream.
    fn open_stream(&self) -> Result<Self::Stream>;

    /// Makes an event. Only one that keeps time can be asked for [`Host::elapsed`], and it costs the device more.
    fn event(&self, keeps_time: bool) -> Result<Self::Event>;

    /// The device as a thread of the host sees it, whose time counts from `epoch` (or is virtual and starts at zero).
    fn host(&self, epoch: Instant) -> Self::Host;
}

/// A queue of device work that runs in order, asynchronously to the host and to other streams.
///
/// On drop a stream waits until none of its work can touch host memory any more.
pub(crate) trait Stream: Send {
    /// The device it belongs to.
    type Device: Device;

    /// Says at what time of its own the host enqueues what follows: for devices whose time is virtual.
    fn at(&mut self, _now: Duration) {}

    /// Enqueues a copy of `bytes` from the host to `to[offset..]`.
    ///
    /// # Safety
    /// `from` is readable for `bytes` bytes and nobody writes them until work enqueued up to here is done, which an
    /// event recorded later tells. `offset + bytes` is inside `to`.
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
    /// `to` is writable for `bytes` bytes and nobody reads or writes them until work enqueued up to here is done, except for
    /// copies in that this stream waits for.
    /// `offset + bytes` is inside `from`.
    unsafe fn copy_out(
        &mut self,
        from: &<Self::Device as Device>::Memory,
        offset: usize,
        to: *mut u8,
        bytes: usize,
    ) -> Result<()>;

    /// Enqueues zeros for `bytes` bytes of `to[offset..]`.
    ///
    /// # Safety
    /// `offset + bytes` is inside `to`.
    unsafe fn zero(&mut self, to: &<Self::Device as Device>::Memory, offset: usize, bytes: usize) -> Result<()>;

    /// Enqueues a kernel on `rows` rows (> 0) whose columns each begin in a memory at an offset, in the order of
    /// [`Columns`](kernel::Columns), and whose resident arrays are `resident`.
    ///
    /// # Safety
    /// Every column of `rows` rows fits its memory at its offset, columns that are written overlap no others, and offsets are
    /// multiples of 8. The resident arrays are as large as those of the kernel. The kernel stays within these when it is
    /// called as it says.
    unsafe fn launch(
        &mut self,
        kernel: &<Self::Device as Device>::Kernel,
        columns: &[(&<Self::Device as Device>::Memory, usize)],
        resident: &[<Self::Device as Device>::Memory],
        first_row: u64,
        rows: usize,
    ) -> Result<()>;

    /// Records an event behind all work enqueued so far.
    fn record(&mut self, event: &<Self::Device as Device>::Event) -> Result<()>;

    /// Makes this stream (never the host) wait for an event of any stream of the same device.
    fn wait(&mut self, event: &<Self::Device as Device>::Event) -> Result<()>;
}

/// One thread of the host and its clock.
pub(crate) trait Host: Send {
    /// The device it looks at.
    type Device: Device;

    /// Its time; virtual where the device's is.
    fn now(&self) -> Duration;

    /// Says that this thread filled (or drained) so many bytes: virtual time passes with it, real time has.
    fn worked(&mut self, _work: HostWork, _bytes: usize) {}

    /// Says that this thread waited until then: its virtual time is that now, if it was not later.
    fn reach(&mut self, _time: Duration) {}

    /// Whether the event is done; never waits.
    fn query(&mut self, event: &<Self::Device as Device>::Event) -> Result<bool>;

    /// Waits for the event, and reports errors of the work before it.
    fn synchronize(&mut self, event: &<Self::Device as Device>::Event) -> Result<()>;

    /// Time on the device between two events that keep time and are done.
    fn elapsed(&self, from: &<Self::Device as Device>::Event, to: &<Self::Device as Device>::Event)
    -> Result<Duration>;

    /// The virtual time at which a recorded event will be done; zero where time is real and nobody can know.
    fn done_at(&self, _event: &<Self::Device as Device>::Event) -> Duration {
        Duration::ZERO
    }
}

/// What a thread of the host does with a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostWork {
    /// ReadMode rows into a slot.
    Fill,
    /// Writing rows from a slot.
    Drain,
}
