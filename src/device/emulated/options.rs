//! The options of an emulated device.

/// The options of an emulated device: seed, memory, virtual speed, failures.
///
/// ```
/// use overshot::{DeviceChoice, Engine, device::Emulated};
/// let device = Emulated::new().seed(7).memory(1 << 20).copy_in_rate(50e9);
/// let engine = Engine::builder().device(device.clone()).build()?;
/// // Two of them, one with eight times the memory.
/// let devices = vec![device.clone(), device.memory(8 << 20)];
/// let engine = Engine::builder().device(DeviceChoice::Emulated(devices)).build()?;
/// assert_eq!(engine.devices()[1].id, "emulated:1");
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "options do nothing until an engine has them"]
pub struct Emulated {
    pub(crate) seed: u64,
    /// `None`: as much as the limit on device memory, or 64 MiB.
    pub(crate) memory_bytes: Option<u64>,
    /// Device memory in use by other programs.
    pub(crate) taken_bytes: u64,
    /// Bytes, rows and bytes per virtual second. Infinite if an operation takes no time.
    pub(crate) copy_in_rate: f64,
    pub(crate) kernel_rate: f64,
    pub(crate) copy_out_rate: f64,
    /// Bytes per virtual second that kernels read and write.
    pub(crate) memory_rate: f64,
    /// Bytes per virtual second of all workers together.
    pub(crate) host_memory_rate: f64,
    /// Bytes per virtual second of one worker.
    pub(crate) fill_rate: f64,
    pub(crate) drain_rate: f64,
    /// Rows per virtual second of one CPU worker.
    pub(crate) cpu_rate: f64,
    pub(crate) faults: Vec<Fault>,
}

impl Default for Emulated {
    fn default() -> Self {
        Emulated {
            seed: 0,
            memory_bytes: None,
            taken_bytes: 0,
            copy_in_rate: f64::INFINITY,
            kernel_rate: f64::INFINITY,
            copy_out_rate: f64::INFINITY,
            memory_rate: f64::INFINITY,
            host_memory_rate: f64::INFINITY,
            fill_rate: f64::INFINITY,
            drain_rate: f64::INFINITY,
            cpu_rate: f64::INFINITY,
            faults: Vec::new(),
        }
    }
}

impl Emulated {
    /// Creates the default options: seed 0, as much memory as the engine's limit on device memory (64 MiB if there is
    /// none), operations that take no virtual time, no failures.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the seed, which determines the order of all operations.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the size of the device memory in bytes.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes.unwrap_or(64 << 20)
    }

    /// Sets how many bytes of the device memory other programs use. Allocations cannot use them, and the plan does
    /// not know about them.
    pub fn taken(mut self, bytes: u64) -> Self {
        self.taken_bytes = bytes;
        self
    }

    /// Sets the speed of copies to the device, in bytes per virtual second (> 0).
    pub fn copy_in_rate(mut self, bytes_per_second: f64) -> Self {
        self.copy_in_rate = bytes_per_second;
        self
    }

    /// Sets the speed of kernels, in rows per virtual second (> 0).
    pub fn kernel_rate(mut self, rows_per_second: f64) -> Self {
        self.kernel_rate = rows_per_second;
        self
    }

    /// Sets the speed of copies to the host, in bytes per virtual second (> 0).
    pub fn copy_out_rate(mut self, bytes_per_second: f64) -> Self {
        self.copy_out_rate = bytes_per_second;
        self
    }

    /// Sets the bandwidth of the device memory, in bytes per virtual second (> 0). A kernel reads and writes its
    /// columns while it computes, and takes as long as the slower of both. A product of matrices takes as long as its
    /// operands are read.
    pub fn memory_rate(mut self, bytes_per_second: f64) -> Self {
        self.memory_rate = bytes_per_second;
        self
    }

    /// Sets the bandwidth of the memory of the host, in bytes per virtual second (> 0). The workers of the device share
    /// it when they fill and drain slots, and so do CPU workers beside the device when they compute. Every device has
    /// this bandwidth for itself, and the CPU has that of the first device.
    pub fn host_memory_rate(mut self, bytes_per_second: f64) -> Self {
        self.host_memory_rate = bytes_per_second;
        self
    }

    /// Sets the speed at which one worker fills slots, in bytes per virtual second (> 0).
    pub fn fill_rate(mut self, bytes_per_second: f64) -> Self {
        self.fill_rate = bytes_per_second;
        self
    }

    /// Sets the speed at which one worker drains slots, in bytes per virtual second (> 0).
    pub fn drain_rate(mut self, bytes_per_second: f64) -> Self {
        self.drain_rate = bytes_per_second;
        self
    }

    /// Sets the speed at which one CPU worker computes beside the device, in rows per virtual second (> 0). Of several
    /// devices, the first one determines this speed.
    pub fn cpu_rate(mut self, rows_per_second: f64) -> Self {
        self.cpu_rate = rows_per_second;
        self
    }

    /// Returns whether no operation of the device takes virtual time.
    pub(crate) fn is_timeless(&self) -> bool {
        let rates = [self.copy_in_rate, self.kernel_rate, self.copy_out_rate, self.memory_rate];
        rates.iter().all(|rate| rate.is_infinite())
    }

    /// Adds a failure.
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }
}

/// An injected failure.
///
/// ```
/// use overshot::device::{Emulated, Fault, FaultAt};
/// use overshot::{Engine, Error, Job};
/// let engine = Engine::builder().device(Emulated::new().fault(Fault::new(FaultAt::Kernel, 0))).build()?;
/// let result = engine.run(Job::eval("sum(x)")?.input("x", &[1.0, 2.0]));
/// assert!(matches!(result, Err(Error::Chunk { chunk: 0, .. })));
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub(crate) at: FaultAt,
    pub(crate) nth: u64,
    pub(super) effect: Effect,
}

/// What becomes of an operation with a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Fails,
    /// It gets this bit wrong.
    Flips(u64),
    /// It never ends.
    Hangs,
}

impl Fault {
    /// Lets operation number `nth` of this kind fail, counted from 0. Copies, zeroing and kernels are counted in the
    /// order in which the device runs them, all other operations in the order of the calls.
    pub fn new(at: FaultAt, nth: u64) -> Self {
        Fault { at, nth, effect: Effect::Fails }
    }

    /// Lets operation number `nth` of this kind succeed with a wrong result: bit `bit`, modulo their number, of all
    /// bits that a copy moves or a kernel writes is the other one. Operations without bits fail as with
    /// [`new`](Fault::new).
    ///
    /// ```
    /// use overshot::device::{Emulated, Fault, FaultAt};
    /// use overshot::{Engine, Job};
    /// let faulty = Emulated::new().fault(Fault::flip(FaultAt::CopyOut, 0, 63));
    /// let mut y = [0.0];
    /// Engine::builder().device(faulty).build()?.run(Job::eval("y = 2 * x")?.input("x", &[1.0]).output("y", &mut y))?;
    /// assert_eq!(y, [-2.0]);
    /// # Ok::<(), overshot::Error>(())
    /// ```
    pub fn flip(at: FaultAt, nth: u64, bit: u64) -> Self {
        Fault { at, nth, effect: Effect::Flips(bit) }
    }

    /// Lets operation number `nth` of this kind never end, and no operation after it: the device hangs. Only copies,
    /// zeroing and kernels can hang; other operations fail as with [`new`](Fault::new). Without a
    /// [time limit](crate::EngineBuilder::device_timeout) the run fails, because virtual time would have no end.
    ///
    /// ```
    /// use overshot::device::{Emulated, Fault, FaultAt};
    /// use overshot::{DeviceChoice, Engine, Job};
    /// use std::time::Duration;
    /// let hanging = Emulated::new().fault(Fault::hang(FaultAt::Kernel, 0));
    /// let devices = DeviceChoice::CpuAndEmulated(vec![hanging]);
    /// let engine = Engine::builder().device(devices).device_timeout(Duration::from_secs(30)).build()?;
    /// let report = engine.run(Job::eval("sum(x)")?.input("x", &vec![1.0; 100_000]))?;
    /// assert_eq!(report.value("sum(x)")?.map(|sum| sum.as_f64()), Some(100_000.0));
    /// assert!(report.notes.iter().any(|note| note.contains("time limit of 30 s")));
    /// # Ok::<(), overshot::Error>(())
    /// ```
    pub fn hang(at: FaultAt, nth: u64) -> Self {
        Fault { at, nth, effect: Effect::Hangs }
    }
}

/// The kind of operation that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultAt {
    /// An allocation of device memory, as if no memory were left.
    Allocate,
    /// A copy to the device.
    CopyIn,
    /// A kernel, or a product of matrices.
    Kernel,
    /// A copy to the host.
    CopyOut,
    /// The registration of host memory.
    Pin,
    /// Zeroing device memory.
    Zero,
    /// Opening a stream.
    OpenStream,
    /// Creating an event.
    Event,
    /// Recording an event.
    Record,
    /// Making a stream wait for an event.
    Wait,
    /// Querying whether an event is done.
    Query,
    /// Waiting for an event on the host.
    Synchronize,
    /// Loading a kernel.
    Load,
    /// Querying the free device memory.
    FreeBytes,
}

impl FaultAt {
    /// The number of kinds.
    pub(super) const COUNT: usize = FaultAt::FreeBytes as usize + 1;

    /// Describes the failure.
    pub(super) fn problem(self) -> &'static str {
        match self {
            FaultAt::Allocate => "an allocation failed (on demand)",
            FaultAt::CopyIn => "a copy to the device failed (on demand)",
            FaultAt::Kernel => "a kernel failed (on demand)",
            FaultAt::CopyOut => "a copy to the host failed (on demand)",
            FaultAt::Pin => "host memory could not be registered (on demand)",
            FaultAt::Zero => "device memory could not be zeroed (on demand)",
            FaultAt::OpenStream => "a stream could not be opened (on demand)",
            FaultAt::Event => "an event could not be created (on demand)",
            FaultAt::Record => "an event could not be recorded (on demand)",
            FaultAt::Wait => "a stream could not wait for an event (on demand)",
            FaultAt::Query => "an event could not be queried (on demand)",
            FaultAt::Synchronize => "an event could not be waited for (on demand)",
            FaultAt::Load => "a kernel could not be loaded (on demand)",
            FaultAt::FreeBytes => "the free device memory could not be queried (on demand)",
        }
    }
}
