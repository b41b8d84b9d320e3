//! What can be set on an emulated device.

/// Options of an emulated device: seed, memory, virtual speed, failures.
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
    /// What others use of it.
    pub(crate) taken_bytes: u64,
    /// Bytes, rows and bytes per virtual second; infinite: takes no time.
    pub(crate) copy_in_rate: f64,
    pub(crate) kernel_rate: f64,
    pub(crate) copy_out_rate: f64,
    /// Bytes per virtual second of one worker.
    pub(crate) fill_rate: f64,
    pub(crate) drain_rate: f64,
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
            fill_rate: f64::INFINITY,
            drain_rate: f64::INFINITY,
            faults: Vec::new(),
        }
    }
}

impl Emulated {
    /// Seed 0, as much memory as the engine's limit on device memory (64 MiB if there is none), operations that take no virtual time, no failures.
    pub fn new() -> Self {
        Self::default()
    }

    /// The seed from which the order of everything follows.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The size of its memory in bytes.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes.unwrap_or(64 << 20)
    }

    /// How much of its memory other programs use, in bytes: it cannot be had, and nobody says so before.
    pub fn taken(mut self, bytes: u64) -> Self {
        self.taken_bytes = bytes;
        self
    }

    /// The speed of its copy engine towards the device, in bytes per virtual second (> 0).
    pub fn copy_in_rate(mut self, bytes_per_second: f64) -> Self {
        self.copy_in_rate = bytes_per_second;
        self
    }

    /// The speed of its kernels, in rows per virtual second (> 0).
    pub fn kernel_rate(mut self, rows_per_second: f64) -> Self {
        self.kernel_rate = rows_per_second;
        self
    }

    /// The speed of its copy engine towards the host, in bytes per virtual second (> 0).
    pub fn copy_out_rate(mut self, bytes_per_second: f64) -> Self {
        self.copy_out_rate = bytes_per_second;
        self
    }

    /// The speed at which one worker fills slots, in bytes per virtual second (> 0).
    pub fn fill_rate(mut self, bytes_per_second: f64) -> Self {
        self.fill_rate = bytes_per_second;
        self
    }

    /// The speed at which one worker drains slots, in bytes per virtual second (> 0).
    pub fn drain_rate(mut self, bytes_per_second: f64) -> Self {
        self.drain_rate = bytes_per_second;
        self
    }

    /// Whether no operation of the device takes virtual time.
    pub(crate) fn is_timeless(&self) -> bool {
        [self.copy_in_rate, self.kernel_rate, self.copy_out_rate].iter().all(|rate| rate.is_infinite())
    }

    /// Adds a failure.
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }
}

/// A failure on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub(crate) at: FaultAt,
    pub(crate) nth: u64,
}

impl Fault {
    /// The operation `nth` of this kind fails, counted from 0 in the order in which the device runs copies, zeros and kernels and in which
    /// it is called for all others.
    pub fn new(at: FaultAt, nth: u64) -> Self {
        Fault { at, nth }
    }
}

/// Where a failure happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultAt {
    /// An allocation of device memory, as if there were none left.
    Allocate,
    /// A copy to the device.
    CopyIn,
    /// A kernel.
    Kernel,
    /// A copy to the host.
    CopyOut,
    /// The registration of host memory.
    Pin,
    /// Zeros for device memory.
    Zero,
    /// The opening of a stream.
    OpenStream,
    /// The making of an event.
    Event,
    /// The recording of an event.
    Record,
    /// A stream that is to wait for an event.
    Wait,
    /// The question whether an event is done.
    Query,
    /// The wait of the host for an event.
    Synchronize,
    /// The loading of a kernel.
    Load,
    /// The question how much memory is free.
    FreeBytes,
}

impl FaultAt {
    /// How many there are.
    pub(super) const COUNT: usize = FaultAt::FreeBytes as usize + 1;

    /// What failed.
    pub(super) fn problem(self) -> &'static str {
        match self {
            FaultAt::Allocate => "an allocation failed (on demand)",
            FaultAt::CopyIn => "a copy to the device failed (on demand)",
            FaultAt::Kernel => "a kernel failed (on demand)",
            FaultAt::CopyOut => "a copy to the host failed (on demand)",
            FaultAt::Pin => "host memory could not be registered (on demand)",
            FaultAt::Zero => "zeros could not be written (on demand)",
            FaultAt::OpenStream => "a stream could not be opened (on demand)",
            FaultAt::Event => "an event could not be made (on demand)",
            FaultAt::Record => "an event could not be recorded (on demand)",
            FaultAt::Wait => "a stream could not be told to wait (on demand)",
            FaultAt::Query => "an event could not be asked for (on demand)",
            FaultAt::Synchronize => "an event could not be waited for (on demand)",
            FaultAt::Load => "a kernel could not be loaded (on demand)",
            FaultAt::FreeBytes => "the device could not say how much memory is free (on demand)",
        }
    }
}
