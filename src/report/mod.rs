//! What a run did.

mod bottleneck;
mod json;
mod show;
#[cfg(test)]
mod tests;

pub(crate) use bottleneck::DeviceWork;
pub use bottleneck::{Bottleneck, Stage};

use std::path::PathBuf;
use std::time::Duration;

use crate::data::{Dtype, Scalar};
use crate::device::DeviceKind;
use crate::error::Error;
use crate::trace::Timeline;

/// What a run did.
///
/// `{}` is the short form: the results, one a line; a line with rows, bytes, time, rate and bottleneck; then the notes.
/// `{:#}` has the [`details`](Report::details) as well. Amounts of data and rates are decimal (MB, GB/s); memory is
/// binary (MiB), as the limits that callers set on it. `Serialize` is the JSON that the command prints, described in
/// `docs/json.md`.
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
    /// Every reduction by its text (or name) in the order of the expression; `None` where there is no value, as for the
    /// minimum of no rows.
    pub results: Vec<(String, Option<Scalar>)>,
    /// The inputs read.
    pub inputs: Vec<InputReport>,
    /// The outputs written.
    pub outputs: Vec<OutputReport>,
    /// Chunks done, over all devices.
    pub chunks: u64,
    /// Rows of a full chunk of the device that has the largest; the first and the last ones are smaller.
    pub chunk_rows: u64,
    /// Wall-clock time of the pipeline: from the first claim to the last drained chunk. Of one of several
    /// [`passes`](crate::Engine::passes) that may begin while the pass before it ends, and has in it the wait for its values: the
    /// times of all passes may be more than they took together.
    pub time: Duration,
    /// Wall-clock time of the whole run, with the loading of kernels, the pinning of memory and the making of outputs. A pass gets
    /// ready while the one before it runs, and waits for its turn.
    pub total_time: Duration,
    /// What of it went into getting ready.
    pub setup: Setup,
    /// Bytes of the inputs copied to devices (on the CPU: none).
    pub bytes_to_device: u64,
    /// Of these, the bytes whose copies were enqueued while the values of the pass were not known yet: only in
    /// [`Engine::passes`](crate::Engine::passes).
    pub bytes_ahead: u64,
    /// Bytes copied from devices.
    pub bytes_from_device: u64,
    /// Bytes of the inputs that were read from a disk past the page cache.
    pub bytes_read_directly: u64,
    /// The most pinned memory in use at once for staging, over all devices; what the caller pinned does not count.
    pub peak_pinned_bytes: u64,
    /// The devices that took part.
    pub devices: Vec<DeviceReport>,
    /// What the user should know: a faster or asked-for way that was not taken, and why.
    pub notes: Vec<String>,
    /// Whether this machine was measured (`overshot bench --limits`), so that verdicts may know its limits.
    pub measured: bool,
    /// When every stage of every chunk began and ended, if the job was asked for it ([`Job::timeline`](crate::Job::timeline)).
    /// One of several [`passes`](crate::Engine::passes) counts from when it was ready, which may be long before its first chunk.
    pub timeline: Option<Timeline>,
}

/// What a job computed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Computation {
    /// An expression, by its text.
    Expression(String),
    /// A kernel of the caller's own, by its entry point.
    Kernel(String),
}

/// Times of getting ready for a run. What an engine has done once is not done again: then it is 0.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Setup {
    /// Finding the devices when the engine was built: for CUDA the initialisation of the driver. Not a part of
    /// [`total_time`](Report::total_time).
    pub find: Duration,
    /// Opening the devices: for CUDA, making contexts.
    pub open: Duration,
    /// Compiling kernels, or finding them in the cache, and loading them.
    pub kernel: Duration,
    /// Taking device memory and pinned memory.
    pub memory: Duration,
}

/// One input of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InputReport {
    /// Its name in the expression.
    pub name: String,
    /// The file, if it is one.
    pub path: Option<PathBuf>,
    /// Its dtype.
    pub dtype: Dtype,
    /// The lengths of its dimensions; one if it has no others.
    pub shape: Vec<u64>,
    /// Its rows: the product of the dimensions.
    pub rows: u64,
    /// Bytes of its rows.
    pub bytes: u64,
}

/// One output of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OutputReport {
    /// Its name in the expression.
    pub name: String,
    /// Its dtype.
    pub dtype: Dtype,
    /// The file, if it is one.
    pub path: Option<PathBuf>,
    /// Its rows: those of the job, or those that a kernel kept.
    pub rows: u64,
    /// Bytes of its rows.
    pub bytes: u64,
}

/// What one device did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceReport {
    /// As `--device` names it.
    pub id: String,
    /// As its maker names it.
    pub name: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// Chunks it did.
    pub chunks: u64,
    /// Rows it did.
    pub rows: u64,
    /// Rows of a full chunk of this device: what it has memory for.
    pub chunk_rows: u64,
    /// Workers it had.
    pub workers: usize,
    /// The most device memory the freelist held, in bytes; 0 for the CPU.
    pub peak_device_bytes: u64,
    /// For emulated devices: how long the run took in virtual time; `None` if none of its operations takes any.
    pub virtual_time: Option<Duration>,
    /// Time per stage, summed over its workers.
    pub stages: StageTimes,
    /// What bound it; `None` if it did nothing.
    pub bottleneck: Option<Bottleneck>,
}

/// Time per stage, summed over workers: eight workers that fill for one second each are eight seconds. On an emulated device
/// all times are virtual.
///
/// Times on a device are measured by its own events, on a GPU for one chunk of sixteen, since such events slow it down; the
/// others are taken to be like it.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct StageTimes {
    /// Host: reading rows into slots.
    pub fill: StageTime,
    /// Device: copies in. Waiting: from when the slot was full to the start of the copy.
    pub copy_in: StageTime,
    /// Device, or CPU: computing. Waiting: from the end of the copy in, on the CPU of reading, to the start of the kernel; in a pass, also
    /// for its values.
    pub kernel: StageTime,
    /// Device: copies out. Waiting: from the end of the kernel to the start of the copy.
    pub copy_out: StageTime,
    /// Host: writing rows to sinks and combining partial results. Waiting: for a chunk to come back from the device.
    pub drain: StageTime,
}

/// Time of one stage.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct StageTime {
    /// At work.
    pub busy: Duration,
    /// Standing still.
    pub waiting: Duration,
}

impl StageTimes {
    /// The stages in order, with their names.
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

    /// Whether nothing was measured.
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

/// A name that no result of the job has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no result '{name}'; {}", known_as_text(.known))]
#[non_exhaustive]
pub struct UnknownResult {
    /// The name that was asked for.
    pub name: String,
    /// The results that there are.
    pub known: Vec<String>,
}

fn known_as_text(known: &[String]) -> String {
    match known {
        [] => "the job has no reduction".into(),
        known => format!("the results are '{}'", known.join("', '")),
    }
}

impl From<UnknownResult> for Error {
    fn from(error: UnknownResult) -> Error {
        Error::Job(error.to_string())
    }
}

impl Report {
    /// The version of the JSON. It changes when a reader of the JSON could notice.
    pub const SCHEMA_VERSION: u32 = 1;

    /// The value of a reduction by its name, or by its text as written if it has no name. `None` if there is no value, as
    /// for the minimum of no rows.
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
    /// [`UnknownResult`] if there is no such reduction; it lists those that there are.
    pub fn value(&self, name: &str) -> Result<Option<Scalar>, UnknownResult> {
        match self.results.iter().find(|(known, _)| known == name) {
            Some((_, value)) => Ok(*value),
            None => {
                let known = self.results.iter().map(|(known, _)| known.clone()).collect();
                Err(UnknownResult { name: name.into(), known })
            }
        }
    }

    /// Bytes of all inputs.
    #[must_use]
    pub fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|input| input.bytes).sum()
    }

    /// Bytes of all outputs.
    #[must_use]
    pub fn output_bytes(&self) -> u64 {
        self.outputs.iter().map(|output| output.bytes).sum()
    }

    /// Time per stage, summed over the workers of all devices.
    #[must_use]
    pub fn stages(&self) -> StageTimes {
        let mut all = StageTimes::default();
        self.devices.iter().for_each(|device| all.add(&device.stages));
        all
    }
}
