//! Devices: the interface between the pipeline and its backends.
//!
//! A device knows nothing about jobs, chunks or files. It has memory, streams and events, and it runs kernels
//! (`kernel::Kernel`). Two backends implement `Device`: `emulated`, which simulates a device in host memory, and
//! `cuda`. The CPU is not a `Device`: it needs no copies, so its workers run the host kernel on the data in place.

#[cfg(test)]
pub(crate) mod as_cpp;
mod backoff;
pub(crate) mod by_key;
mod choice;
#[cfg(test)]
pub(crate) mod contract;
pub(crate) mod cpu;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
pub(crate) mod emulated;
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub, reason = "`testing` exports what is `pub` there"))]
mod halo;
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub, reason = "`testing` exports what is `pub` there"))]
pub(crate) mod kernel;
pub(crate) mod layers;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod probe;
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub, reason = "`testing` exports what is `pub` there"))]
pub(crate) mod product;
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub, reason = "`testing` exports what is `pub` there"))]
mod scalars;
pub(crate) mod split;
mod visible;

pub(crate) use backoff::SpinThenSleep;
pub(crate) use choice::driver_version;
pub use choice::{DeviceChoice, devices};
pub use emulated::{Emulated, Fault, FaultAt};

use std::any::Any;
use std::fmt;
use std::time::{Duration, Instant};

use crate::error::Result;
use kernel::SharedKernel;
pub use product::Precision;
use product::{AnyProduct, MatrixProduct, Product};

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DeviceKind {
    /// The cores of this machine, which use the data in place.
    Cpu,
    /// A device simulated in host memory, for tests and for exploring the pipeline.
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

/// The description of a device, obtained without opening it.
///
/// ```
/// let (devices, notes) = overshot::device::devices();
/// for device in &devices {
///     println!("{}: {}, {} bytes", device.id, device.name, device.memory_bytes);
/// }
/// for note in &notes {
///     println!("{note}");
/// }
/// assert_eq!(devices[0].id, "cpu");
/// ```
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its id, as [`DeviceChoice`] parses it: `cpu`, `emulated`, `cuda:0`.
    pub id: String,
    /// The product name.
    pub name: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// Its memory in bytes; for the CPU, the memory of the machine, or what control groups let this process use of it.
    pub memory_bytes: u64,
    /// The compute capability of a CUDA device, such as `"9.0"`.
    pub compute_capability: Option<String>,
    /// Location and current load of a GPU. Only [`devices`] fills these in. An engine does not, because they may
    /// change at any moment.
    pub details: DeviceDetails,
}

/// The location and current load of a GPU, obtained without opening it. `None` if a value is unknown.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct DeviceDetails {
    /// Its PCI address, such as `0000:1B:00.0`. It identifies a GPU independently of how GPUs are numbered.
    pub pci_bus_id: Option<String>,
    /// Free device memory in bytes.
    pub free_bytes: Option<u64>,
    /// Utilisation: the percentage of the last sampling period (at most a second) in which a kernel was running.
    pub busy_percent: Option<u32>,
    /// The highest PCI Express generation that both the GPU and its slot support.
    pub pcie_generation: Option<u32>,
    /// The number of PCI Express lanes of its connection.
    pub pcie_width: Option<u32>,
    /// The NUMA node of the host that the GPU is connected to. Also `None` if there is only one node.
    pub numa_node: Option<u32>,
}

/// How much of a range of host memory is page-locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pinned {
    /// Neither end is page-locked.
    No,
    /// An end is page-locked, but the range is not in a single registration, or the device may not write to it.
    /// Copies must not cross the end of a registration.
    InPart,
    /// The whole range is in a single registration: copies need no staging.
    Whole,
}

/// How the workers of a device are scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// Each worker on its own thread.
    Threads,
    /// All workers on one thread, one step at a time, in an order determined by the virtual time of the device and
    /// this seed.
    Seeded(u64),
}

/// A device with its own memory.
///
/// Every implementation keeps this contract:
///
/// - Only [`Host::synchronize`] waits for the device.
/// - An error of asynchronous work is returned by a later call or by `synchronize`. After an error nothing more runs
///   on the device.
/// - Once the streams of a device were dropped, everything else may be dropped in any order.
/// - Nothing waits for a device after [`Device::give_up`], except for streams that were not abandoned.
pub(crate) trait Device: Send + Sync + Sized + 'static {
    /// One allocation of device memory; freed on drop.
    type Memory: Send + Sync + 'static;
    /// A kernel loaded on this device.
    type Kernel: Send + Sync;
    /// A registration of host memory for asynchronous copies; ends on drop.
    type Pin: Registration + 'static;
    /// A queue of work.
    type Stream: Stream<Device = Self>;
    /// A point in the work of a stream. It may be recorded again, on any stream; a wait refers to the latest record
    /// at the time of the call. An event that was never recorded counts as done.
    type Event: Send + Sync;
    /// The view that one host thread has of the device.
    type Host: Host<Device = Self>;

    /// Describes the device.
    fn info(&self) -> &DeviceInfo;

    /// Returns a number that tells it from other devices that the process has opened. All values of this type for one
    /// device have the same.
    fn number(&self) -> usize;

    /// Returns how its workers must be scheduled.
    fn schedule(&self) -> Schedule {
        Schedule::Threads
    }

    /// Allocates `bytes` (> 0) of device memory, aligned to 256 bytes, content unspecified.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough free memory. The device stays usable.
    fn allocate(&self, bytes: usize) -> Result<Self::Memory>;

    /// Returns memory of this device that other code allocated, after the work that is on `stream` now; `None` if the
    /// memory is not of this device. It is not freed on drop. Streams are numbered as in CUDA's array interface: 1 is
    /// the default stream, 2 that of each thread, and other numbers are handles.
    ///
    /// # Errors
    /// [`ColumnError`](crate::io::ColumnError) if the allocation at this address has fewer bytes; the error of the
    /// device if its work on the stream failed.
    ///
    /// # Safety
    /// The memory stays allocated until the result is dropped. The stream exists.
    unsafe fn borrow(&self, _address: u64, _bytes: usize, _stream: Option<u64>) -> Result<Option<Self::Memory>> {
        Ok(None)
    }

    /// Returns the free device memory in bytes. It need not be contiguous.
    ///
    /// # Errors
    /// The error of the device if the query fails.
    fn free_bytes(&self) -> Result<u64>;

    /// Page-locks host memory, so that copies from and to it run asynchronously at the full speed of the link.
    ///
    /// # Errors
    /// The error of the device if it refuses.
    ///
    /// # Safety
    /// `start` is page-aligned. The `bytes` from `start` on belong to the caller, have not been page-locked since
    /// they were mapped, and stay mapped until the result is dropped.
    unsafe fn pin(&self, start: *mut u8, bytes: usize) -> Result<Self::Pin>;

    /// Allocates page-locked memory with the driver's allocator and frees it, as a reference for measurements.
    /// Returns false if there is no such allocator.
    fn allocate_pinned_once(&self, _bytes: usize) -> Result<bool> {
        Ok(false)
    }

    /// Returns how much of this host memory is already page-locked, no matter which code locked it. If `is_written`,
    /// the device must also be allowed to write to it. Never returns [`Pinned::Whole`] if that cannot be known.
    fn pinned(&self, _memory: *const [u8], _is_written: bool) -> Pinned {
        Pinned::No
    }

    /// Loads a kernel. Compiles it first, unless the compiled kernel is in the cache.
    fn load(&self, kernel: &SharedKernel) -> Result<Self::Kernel>;

    /// Returns whether the device has not been asked for this product of so many rows, and for this precision, before.
    /// Its library loads code with the first one, and all work of the device waits meanwhile.
    fn is_first(&self, _product: AnyProduct, _rows: usize, _precision: Precision) -> bool {
        false
    }

    /// Returns notes for the report about how this kernel runs here.
    fn notes(&self, _: &kernel::Kernel) -> Vec<String> {
        vec![]
    }

    /// Opens a stream.
    fn open_stream(&self) -> Result<Self::Stream>;

    /// Creates an event. [`Host::elapsed`] accepts only events that keep time. These cost the device more.
    fn event(&self, keeps_time: bool) -> Result<Self::Event>;

    /// Makes this thread ready for many calls of streams and of the host. Dropping the result, on the same thread,
    /// restores what the thread was before. Without it, every call may change the thread for good.
    ///
    /// # Errors
    /// The error of the device if it refuses.
    fn enter(&self) -> Result<Box<dyn Any>> {
        Ok(Box::new(()))
    }

    /// Returns the view of a host thread. Its time counts from `epoch`, or is virtual and starts at zero.
    fn host(&self, epoch: Instant) -> Self::Host;

    /// Gives up a device that does not finish its work. All later calls return an error at once. Nothing is released
    /// any more, because the work may still use it: device memory and registrations stay until the process ends.
    fn give_up(&self);

    /// Returns whether the device was given up.
    fn is_given_up(&self) -> bool;
}

/// A registration of host memory.
pub(crate) trait Registration: Send + Sync {
    /// Returns whether the memory must stay mapped until the process ends, because its device was given up.
    fn is_for_ever(&self) -> bool;
}

/// A queue of device work that runs in order, asynchronously to the host and to other streams.
///
/// On drop, a stream waits until its work can no longer access host memory, unless it was abandoned.
pub(crate) trait Stream: Send {
    /// The device it belongs to.
    type Device: Device;

    /// Makes the drop return at once.
    ///
    /// # Safety
    /// All memory that work of the stream accesses stays until the process ends.
    unsafe fn abandon(&mut self);

    /// Sets the host time at which the following work is enqueued, for devices with virtual time.
    fn at(&mut self, _now: Duration) {}

    /// Enqueues a copy of `bytes` from the host to `to[offset..]`.
    ///
    /// # Safety
    /// `from` is readable for `bytes` bytes, and nobody writes to them until the work enqueued up to here is done, as
    /// an event recorded later shows. `offset + bytes` is inside `to`.
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
    /// `to` is writable for `bytes` bytes, and nobody reads or writes them until the work enqueued up to here is
    /// done, except for copies in that this stream waits for. `offset + bytes` is inside `from`.
    unsafe fn copy_out(
        &mut self,
        from: &<Self::Device as Device>::Memory,
        offset: usize,
        to: *mut u8,
        bytes: usize,
    ) -> Result<()>;

    /// Enqueues a copy of `bytes` from one memory of the device to another.
    ///
    /// # Safety
    /// `offset + bytes` is inside each of the memories. The ranges do not overlap.
    unsafe fn copy_within(
        &mut self,
        from: (&<Self::Device as Device>::Memory, usize),
        to: (&<Self::Device as Device>::Memory, usize),
        bytes: usize,
    ) -> Result<()>;

    /// Enqueues the zeroing of `bytes` bytes of `to[offset..]`.
    ///
    /// # Safety
    /// `offset + bytes` is inside `to`.
    unsafe fn zero(&mut self, to: &<Self::Device as Device>::Memory, offset: usize, bytes: usize) -> Result<()>;

    /// Enqueues a kernel on `rows` rows (> 0). `columns` gives the memory and the offset of each column, in the order
    /// of [`Columns`](kernel::Columns); `resident` gives the resident arrays.
    ///
    /// # Safety
    /// Every column of `rows` rows fits its memory at its offset, columns that are written overlap no other column,
    /// and offsets are multiples of 8. The resident arrays are as large as those of the kernel. When the kernel is
    /// called as its [`Launch`](kernel::Launch) says, it accesses no other memory.
    unsafe fn launch(
        &mut self,
        kernel: &<Self::Device as Device>::Kernel,
        columns: &[(&<Self::Device as Device>::Memory, usize)],
        resident: &[<Self::Device as Device>::Memory],
        first_row: u64,
        rows: usize,
    ) -> Result<()>;

    /// Makes the stream ready to multiply. [`WORKSPACE_BYTES`] at the start of the memory are for what its products
    /// store in between. Those of `f32` have this precision, which the device [has](Precision::on). With
    /// [`Precision::Bf16x3`] their factors are `bf16`: callers split them (`split.rs`).
    ///
    /// # Errors
    /// The error of the device if it has no library for products; its remedy says how to get it.
    ///
    /// # Safety
    /// Nothing else uses these bytes until the stream is dropped.
    unsafe fn prepare_products(
        &mut self,
        workspace: &<Self::Device as Device>::Memory,
        precision: Precision,
    ) -> Result<()>;

    /// Enqueues a product of `rows` rows (> 0) of both operands. Its sum is stored in `sum`, or added to what is there
    /// if it `adds`. The bits depend on the shape, on the number of rows, and on the model of the device alone.
    ///
    /// # Errors
    /// The error of the device if the stream is not ready to multiply.
    ///
    /// # Safety
    /// The rows of the operands and the sum fit their memory at their offsets, which are multiples of 8, and the sum
    /// overlaps no operand.
    unsafe fn multiply(
        &mut self,
        product: &Product,
        rows: usize,
        operands: [(&<Self::Device as Device>::Memory, usize); 2],
        sum: (&<Self::Device as Device>::Memory, usize),
        adds: bool,
    ) -> Result<()>;

    /// Enqueues the product of `rows` rows (> 0) with a matrix, which is at the start of its memory. The bits depend on
    /// the shape, on the number of rows, and on the model of the device alone.
    ///
    /// # Errors
    /// The error of the device if the stream is not ready to multiply.
    ///
    /// # Safety
    /// The rows that are multiplied, the matrix and the result fit their memory at their offsets, which are multiples
    /// of 8, and the result overlaps neither of the others.
    unsafe fn multiply_rows(
        &mut self,
        product: &MatrixProduct,
        rows: usize,
        from: (&<Self::Device as Device>::Memory, usize),
        matrix: &<Self::Device as Device>::Memory,
        to: (&<Self::Device as Device>::Memory, usize),
    ) -> Result<()>;

    /// Records an event behind all work enqueued so far.
    fn record(&mut self, event: &<Self::Device as Device>::Event) -> Result<()>;

    /// Makes this stream wait for an event of any stream of the same device. The host does not wait.
    fn wait(&mut self, event: &<Self::Device as Device>::Event) -> Result<()>;
}

/// One thread of the host and its clock.
pub(crate) trait Host: Send {
    /// The device.
    type Device: Device;

    /// Returns the time of this thread; virtual if the time of the device is.
    fn now(&self) -> Duration;

    /// Records that this thread filled or drained so many bytes. This advances virtual time; real time has already
    /// passed.
    fn worked(&mut self, _work: HostWork, _bytes: usize) {}

    /// Records that this thread waited until `time`. This advances virtual time to `time`, unless it is already
    /// later.
    fn reach(&mut self, _time: Duration) {}

    /// Returns whether the event is done. Never waits.
    fn query(&mut self, event: &<Self::Device as Device>::Event) -> Result<bool>;

    /// Waits for the event, and returns errors of the work before it.
    fn synchronize(&mut self, event: &<Self::Device as Device>::Event) -> Result<()> {
        self.synchronize_until(event, Duration::MAX).map(drop)
    }

    /// Waits for the event until `deadline` on the clock of this thread. Returns whether the event is done.
    fn synchronize_until(&mut self, event: &<Self::Device as Device>::Event, deadline: Duration) -> Result<bool>;

    /// Returns the time on the device between two events that keep time and are done.
    fn elapsed(&self, from: &<Self::Device as Device>::Event, to: &<Self::Device as Device>::Event)
    -> Result<Duration>;

    /// Returns the virtual time at which a recorded event will be done; zero if time is real, because it cannot be
    /// known.
    fn done_at(&self, _event: &<Self::Device as Device>::Event) -> Duration {
        Duration::ZERO
    }
}

/// The bytes of memory that a stream needs to multiply: what cuBLAS recommends for current GPUs.
pub(crate) const WORKSPACE_BYTES: usize = 32 << 20;

/// The work of a host thread on a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostWork {
    /// Reading rows into a slot.
    Fill,
    /// Writing rows from a slot.
    Drain,
}
