//! The report of a run.

mod bottleneck;
mod json;
mod show;
mod stage_limits;
#[cfg(test)]
pub(crate) mod tests;
mod verification;

pub use bottleneck::{Bottleneck, Stage};
pub(crate) use bottleneck::{DeviceWork, Medium};
pub(crate) use stage_limits::StageLimits;
pub use verification::{RecomputedBy, Verification, VerifiedDevice};

use std::path::PathBuf;
use std::time::Duration;

use crate::data::{ArrayValue, Dtype, Scalar};
use crate::device::DeviceKind;
use crate::error::{Error, JobError};
use crate::trace::Timeline;

/// The report of a run.
///
/// `{}` writes the short form: the results, one per line; a line with rows, bytes, time, rate and bottleneck; then
/// the notes. `{:#}` adds the [`details`](Report::details). Amounts of data and rates use decimal units (MB, GB/s);
/// memory uses binary units (MiB), as do the memory limits. `Serialize` writes the JSON that the command prints;
/// `docs/json.md` describes it.
///
/// ```
/// use overshot::{DeviceChoice, Engine, Job};
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// let x = vec![2.0f64; 1_000_000];
/// let report = engine.run(Job::eval("m = mean(x)")?.input("x", &x))?;
/// // m = 2.0
/// // 1,000,000 rows (8.0 MB) in 1.1 ms, 7.3 GB/s; bottleneck: computing (91 % busy)
/// println!("{report}");
/// assert!(report.to_string().starts_with("m = 2.0\n1,000,000 rows (8.0 MB) in "));
/// // The same, with chunks, memory, devices and the time of each stage.
/// println!("{report:#}");
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// What was computed.
    pub computation: Computation,
    /// Rows of the job.
    pub rows: u64,
    /// The reductions to one value in the order of the expression, each with its name, or with its text if it has no
    /// name. `None` if it has no value, such as the minimum of zero rows.
    pub results: Vec<(String, Option<Scalar>)>,
    /// The reductions along the rows, which have a value for each element of a row, in the same form.
    pub arrays: Vec<(String, Option<ArrayValue>)>,
    /// The inputs read.
    pub inputs: Vec<InputReport>,
    /// The outputs written.
    pub outputs: Vec<OutputReport>,
    /// Chunks processed by all devices.
    pub chunks: u64,
    /// Rows of a full chunk of the device with the largest chunks. The first and last chunks are smaller.
    pub chunk_rows: u64,
    /// Wall-clock time of the pipeline: from the first claim until the last chunk is drained, and rows that give the
    /// same as others are counted. One of several
    /// [`passes`](crate::Engine::passes) may begin before the previous pass ends, and its time includes the wait for
    /// its values. The sum over passes may therefore exceed the time that they took together.
    pub time: Duration,
    /// Processor time of all workers, also while they wait without sleeping. Zero with emulated devices, whose workers
    /// share one thread.
    pub processor_time: Duration,
    /// Wall-clock time of the whole run, including kernel loading, memory pinning and the creation of outputs. A pass
    /// is prepared during the previous pass; the time includes its wait for that pass.
    pub total_time: Duration,
    /// The time spent on setup, by step.
    pub setup: Setup,
    /// Bytes of the inputs copied to devices; 0 on the CPU.
    pub bytes_to_device: u64,
    /// The part of `bytes_to_device` whose copies were enqueued before the values of the pass were known. Only for
    /// [`Engine::passes`](crate::Engine::passes).
    pub bytes_ahead: u64,
    /// Bytes copied from devices.
    pub bytes_from_device: u64,
    /// Bytes of the inputs that were read from disk without the page cache.
    pub bytes_read_directly: u64,
    /// Peak of the pinned memory used for staging, over all devices. Memory that the caller pinned does not count.
    pub peak_pinned_bytes: u64,
    /// The devices that took part.
    pub devices: Vec<DeviceReport>,
    /// The reports of the passes over the rows, in order, if the expression needed several
    /// ([`Expression::passes`](crate::Expression::passes)); empty otherwise. Then the counts and times of this report
    /// are sums, and only the reports of the passes have bottlenecks.
    pub passes: Vec<Report>,
    /// Notes for the user: for example, a faster or requested way that was not taken, and the reason.
    pub notes: Vec<String>,
    /// Whether the limits of this machine were measured (`overshot bench --limits`), so that bottlenecks can be
    /// compared with them.
    pub measured: bool,
    /// The begin and end of every stage of every chunk, if the job asked for them
    /// ([`Job::timeline`](crate::Job::timeline)). For one of several [`passes`](crate::Engine::passes), time zero is
    /// when the pass was ready, which may be long before its first chunk.
    pub timeline: Option<Timeline>,
    /// What was computed again and compared; `None` if the job did not ask for it
    /// ([`Job::verify`](crate::Job::verify)).
    pub verification: Option<Verification>,
    /// The time that checksums took ([`Job::checksum`](crate::Job::checksum)). It is part of
    /// [`total_time`](Report::total_time).
    pub checksum_time: Duration,
}

/// The computation of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Computation {
    /// An expression: its text.
    Expression(String),
    /// A custom kernel: its entry point.
    Kernel(String),
}

/// Setup times of a run. An engine does each step once if it can; a step that was done earlier has time 0.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Setup {
    /// Finding the devices when the engine was built; for CUDA, the initialisation of the driver. Not included in
    /// [`total_time`](Report::total_time).
    pub find: Duration,
    /// Opening the devices; for CUDA, the creation of contexts.
    pub open: Duration,
    /// Compiling kernels, or reading them from the cache, and loading them.
    pub kernel: Duration,
    /// Allocating device memory and pinned memory.
    pub memory: Duration,
}

/// One input of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InputReport {
    /// Its name in the expression.
    pub name: String,
    /// The path of its file; `None` if it is not a file.
    pub path: Option<PathBuf>,
    /// Its dtype.
    pub dtype: Dtype,
    /// The lengths of its dimensions; a single length if it has only one dimension.
    pub shape: Vec<u64>,
    /// Its rows: the product of the dimensions.
    pub rows: u64,
    /// The size of its rows in bytes.
    pub bytes: u64,
}

/// One output of a run.
///
/// ```
/// use overshot::{DeviceChoice, Dtype, Engine, Job, Raw};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("y.f64");
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// let report = engine.run(Job::eval("y = sqrt(x)")?.input("x", &[1.0, 4.0]).output("y", Raw::create(&path)))?;
/// let y = &report.outputs[0];
/// assert_eq!((y.name.as_str(), y.dtype, y.rows, y.bytes, y.path.as_ref()), ("y", Dtype::F64, 2, 16, Some(&path)));
/// assert_eq!(y.shape, [2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OutputReport {
    /// Its name in the expression.
    pub name: String,
    /// Its dtype.
    pub dtype: Dtype,
    /// The path of its file; `None` if it is not a file.
    pub path: Option<PathBuf>,
    /// The lengths of its dimensions. If a filter or a compacting kernel selects rows, the first one is their number.
    pub shape: Vec<u64>,
    /// Its rows: as many as the job has, or as many as a compacting kernel selected.
    pub rows: u64,
    /// The size of its rows in bytes.
    pub bytes: u64,
    /// The BLAKE3 hash, in hexadecimal, of the whole file, or of the rows in memory in their order, if the job asked
    /// for it ([`Job::checksum`](crate::Job::checksum)). It depends on no chunks, devices or parts.
    pub checksum: Option<String>,
}

/// The work of one device in a run.
///
/// ```
/// use overshot::{DeviceChoice, Engine, Job};
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// let x = vec![1.0; 100_000];
/// let report = engine.run(Job::eval("sum(x)")?.input("x", &x))?;
/// let cpu = &report.devices[0];
/// assert_eq!((cpu.id.as_str(), cpu.rows), ("cpu", 100_000));
/// println!("computing took {:?}, summed over {} workers", cpu.stages.kernel.busy, cpu.workers);
/// if let Some(bottleneck) = &cpu.bottleneck {
///     println!("{:?} was busy for {:.0} % of the time", bottleneck.busiest, 100.0 * bottleneck.busy);
/// }
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceReport {
    /// Its id, as [`DeviceChoice`](crate::DeviceChoice) parses it, such as `cuda:0`.
    pub id: String,
    /// The product name.
    pub name: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// Chunks that it processed.
    pub chunks: u64,
    /// Rows that it processed.
    pub rows: u64,
    /// Rows of a full chunk of this device, as its memory allows.
    pub chunk_rows: u64,
    /// The number of its workers.
    pub workers: usize,
    /// Peak device memory of the block pool in bytes; 0 for the CPU.
    pub peak_device_bytes: u64,
    /// For emulated devices, and for the CPU beside them, the virtual time that the run took; `None` if no operation
    /// takes virtual time.
    pub virtual_time: Option<Duration>,
    /// Time per stage, summed over its workers.
    pub stages: StageTimes,
    /// Its bottleneck; `None` if it processed nothing.
    pub bottleneck: Option<Bottleneck>,
}

/// Time per stage, summed over workers: eight workers that each fill for one second count as eight seconds. On an
/// emulated device all times are virtual.
///
/// Times on a device are measured with device events. On a GPU one chunk in sixteen is measured, because timing
/// events slow the GPU down; the times of all chunks are extrapolated from these.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct StageTimes {
    /// Host: reading rows into slots.
    pub fill: StageTime,
    /// Device: copies from the host. Waiting: from the time when the slot was filled to the start of the copy.
    pub copy_in: StageTime,
    /// Device or CPU: computing. Waiting: from the end of the copy in (on the CPU, from the end of reading) to the
    /// start of the kernel. In a pass, it includes the wait for values.
    pub kernel: StageTime,
    /// Device: copies to the host. Waiting: from the end of the kernel to the start of the copy.
    pub copy_out: StageTime,
    /// Host: writing rows to sinks and combining partial results. Waiting: for a chunk to come back from the device.
    pub drain: StageTime,
}

/// Time of one stage.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct StageTime {
    /// Time at work.
    pub busy: Duration,
    /// Time spent waiting.
    pub waiting: Duration,
}

impl StageTimes {
    /// Returns the stages in order, with their names.
    #[must_use]
    pub fn named(&self) -> [(&'static str, StageTime); 5] {
        [
            ("fill", self.fill),
            ("copy in", self.copy_in),
            ("kernel", self.kernel),
            ("copy out", self.copy_out),
            ("drain", self.drain),
        ]
    }

    /// Returns whether no time was measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.named().iter().all(|(_, time)| (time.busy + time.waiting).is_zero())
    }

    pub(crate) fn add(&mut self, other: &StageTimes) {
        for (mine, theirs) in [
            (&mut self.fill, other.fill),
            (&mut self.copy_in, other.copy_in),
            (&mut self.kernel, other.kernel),
            (&mut self.copy_out, other.copy_out),
            (&mut self.drain, other.drain),
        ] {
            mine.busy += theirs.busy;
            mine.waiting += theirs.waiting;
        }
    }
}

impl StageTimes {
    pub(crate) fn scale(&mut self, factor: f64) {
        for time in [&mut self.fill, &mut self.copy_in, &mut self.kernel, &mut self.copy_out, &mut self.drain] {
            time.busy = time.busy.mul_f64(factor);
            time.waiting = time.waiting.mul_f64(factor);
        }
    }
}

/// The error for a name that no result of the job has, or one of the other form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownResult {
    /// No result has the name.
    #[error("there is no result '{name}'; {}", known_as_text(.known))]
    #[non_exhaustive]
    Name {
        /// The requested name.
        name: String,
        /// The names of the results of the job.
        known: Vec<String>,
    },

    /// One value was requested, and the result is an array.
    #[error("the result '{name}' is an array; read it with `array`")]
    #[non_exhaustive]
    Array {
        /// The requested name.
        name: String,
    },

    /// An array was requested, and the result is one value.
    #[error("the result '{name}' is one value; read it with `value`")]
    #[non_exhaustive]
    Value {
        /// The requested name.
        name: String,
    },
}

fn known_as_text(known: &[String]) -> String {
    match known {
        [] => "the job has no reduction".into(),
        known => format!("the results are '{}'", known.join("', '")),
    }
}

impl From<UnknownResult> for Error {
    fn from(error: UnknownResult) -> Error {
        let message = error.to_string();
        let (UnknownResult::Name { name, .. } | UnknownResult::Array { name } | UnknownResult::Value { name }) = error;
        JobError::UnknownName { message, name }.into()
    }
}

impl Report {
    /// The version of the JSON format. It changes with every change that a reader of the JSON could notice.
    pub const SCHEMA_VERSION: u32 = 1;

    /// Returns the value of the reduction with this name, or with this text if it has no name. Returns `None` if the
    /// reduction has no value, such as the minimum of zero rows.
    ///
    /// ```
    /// # use overshot::{DeviceChoice, Engine, Job};
    /// # let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
    /// let report = engine.run(Job::eval("m = min(x), max(x)")?.input("x", &[1.0f32, 2.0]))?;
    /// assert_eq!(report.value("m")?.map(|m| m.as_f64()), Some(1.0));
    /// let error = report.value("min(x)").unwrap_err();
    /// assert_eq!(error.to_string(), "there is no result 'min(x)'; the results are 'm', 'max(x)'");
    /// # Ok::<(), overshot::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`UnknownResult`] if there is no such reduction, or if it is an [`array`](Report::array). The error lists the
    /// names of all reductions.
    pub fn value(&self, name: &str) -> Result<Option<Scalar>, UnknownResult> {
        match self.results.iter().find(|(known, _)| known == name) {
            Some((_, value)) => Ok(*value),
            None if self.arrays.iter().any(|(known, _)| known == name) => {
                Err(UnknownResult::Array { name: name.into() })
            }
            None => Err(self.unknown(name)),
        }
    }

    /// Returns the array of the reduction along the rows with this name, or with this text if it has no name. Returns
    /// `None` if it has no values, such as the minimum of zero rows.
    ///
    /// # Errors
    /// [`UnknownResult`] if there is no such reduction, or if it has one [`value`](Report::value).
    pub fn array(&self, name: &str) -> Result<Option<&ArrayValue>, UnknownResult> {
        match self.arrays.iter().find(|(known, _)| known == name) {
            Some((_, array)) => Ok(array.as_ref()),
            None if self.results.iter().any(|(known, _)| known == name) => {
                Err(UnknownResult::Value { name: name.into() })
            }
            None => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> UnknownResult {
        let arrays = self.arrays.iter().map(|(known, _)| known);
        let known = self.results.iter().map(|(known, _)| known).chain(arrays).cloned().collect();
        UnknownResult::Name { name: name.into(), known }
    }

    /// Returns the bytes of all inputs.
    #[must_use]
    pub fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|input| input.bytes).sum()
    }

    /// Returns the bytes of all outputs.
    #[must_use]
    pub fn output_bytes(&self) -> u64 {
        self.outputs.iter().map(|output| output.bytes).sum()
    }

    /// Returns the time per stage, summed over the workers of all devices.
    #[must_use]
    pub fn stages(&self) -> StageTimes {
        let mut all = StageTimes::default();
        self.devices.iter().for_each(|device| all.add(&device.stages));
        all
    }
}
