//! What a run did.

mod bound;

pub(crate) use bound::DeviceWork;
pub use bound::{Bound, Stage};

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::data::Scalar;
use crate::device::DeviceKind;
use crate::trace::Timeline;

/// What a run did. `Display` is for people, `Serialize` is the JSON that the command prints.
#[derive(Clone, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Rows of the job.
    pub rows: u64,
    /// Every reduction by its text (or name) in the order of the expression; `None` where there is no value, as for the
    /// minimum of no rows. In JSON an object; floats that are not finite are the strings `"NaN"`, `"inf"`, `"-inf"`.
    #[serde(serialize_with = "results")]
    pub results: Vec<(String, Option<Scalar>)>,
    /// The outputs written.
    pub outputs: Vec<OutputReport>,
    /// Chunks done, over all devices.
    pub chunks: u64,
    /// Rows of a full chunk of the device that has the largest; the first and the last ones are smaller.
    pub chunk_rows: u64,
    /// Wall-clock time of the pipeline: from the first claim to the last drained chunk. Of one of several
    /// [`passes`](crate::Engine::passes) that may begin while the pass before it ends, and has in it the wait for its values: the
    /// seconds of all passes may be more than they took together.
    pub seconds: f64,
    /// Wall-clock time of the whole run, with the loading of kernels, the pinning of memory and the making of outputs. A pass gets
    /// ready while the one before it runs, and waits for its turn.
    pub total_seconds: f64,
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
    /// Time per stage, summed over all lanes.
    pub stages: StageTimes,
    /// What the user should know: a faster or asked-for way that was not taken, and why.
    pub notes: Vec<String>,
    /// Whether this machine was measured (`overshot bench --limits`), so that verdicts may know its limits.
    pub measured: bool,
    /// When every stage of every chunk began and ended, if the job was asked for it ([`Job::timeline`](crate::Job::timeline)).
    /// One of several [`passes`](crate::Engine::passes) counts from when it was ready, which may be long before its first chunk.
    #[serde(skip)]
    pub timeline: Option<Timeline>,
}

/// Times of getting ready for a run, in seconds. What an engine has done once is not done again: then it is 0.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
#[non_exhaustive]
pub struct Setup {
    /// Finding the devices when the engine was built: for CUDA the initialisation of the driver. Not a part of
    /// [`total_seconds`](Report::total_seconds).
    pub find_seconds: f64,
    /// Opening the devices: for CUDA, making contexts.
    pub open_seconds: f64,
    /// Compiling kernels, or finding them in the cache, and loading them.
    pub kernel_seconds: f64,
    /// Taking device memory and pinned memory.
    pub memory_seconds: f64,
}

/// One output of a run.
#[derive(Clone, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct OutputReport {
    /// Its name in the expression.
    pub name: String,
    /// Its dtype.
    pub dtype: String,
    /// The file, if it is one. In JSON, bytes of it that are not UTF-8 are replaced.
    #[serde(serialize_with = "lossy")]
    pub path: Option<PathBuf>,
    /// Its rows: those of the job, or those that a kernel kept.
    pub rows: u64,
    /// Bytes of its rows.
    pub bytes: u64,
}

/// What one device did.
#[derive(Clone, Debug, serde::Serialize)]
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
    /// Lanes it had.
    pub lanes: usize,
    /// The most device memory the freelist held, in bytes; 0 for the CPU.
    pub peak_device_bytes: u64,
    /// For emulated devices: how long the run took in virtual time.
    pub virtual_seconds: Option<f64>,
    /// Time per stage, summed over its lanes.
    pub stages: StageTimes,
    /// What bound it; `None` if it did nothing.
    pub bound: Option<Bound>,
}

/// Time per stage, summed over lanes: eight lanes that fill for one second each are eight seconds. On an emulated device
/// all times are virtual.
///
/// Times on a device are measured by its own events, on a GPU for one chunk of sixteen, since such events slow it down; the
/// others are taken to be like it.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
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
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
#[non_exhaustive]
pub struct StageTime {
    /// At work.
    #[serde(rename = "busy_seconds", serialize_with = "seconds")]
    pub busy: Duration,
    /// Standing still.
    #[serde(rename = "waiting_seconds", serialize_with = "seconds")]
    pub waiting: Duration,
}

impl StageTimes {
    /// The stages in order, with their names.
    pub fn named(&self) -> [(&'static str, StageTime); 5] {
        [
            ("fill", self.fill),
            ("copy in", self.copy_in),
            ("kernel", self.kernel),
            ("copy out", self.copy_out),
            ("drain", self.drain),
        ]
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

impl Report {
    /// The value of a reduction by its text as written (or by its name, if it was given one). `None` if there is no such
    /// reduction, or it has no value.
    pub fn value(&self, label: &str) -> Option<Scalar> {
        self.results.iter().find(|(l, _)| l == label).and_then(|(_, value)| *value)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (label, value) in &self.results {
            match value {
                Some(value) => writeln!(f, "{label} = {value}")?,
                None => writeln!(f, "{label} has no value (no rows)")?,
            }
        }
        for output in &self.outputs {
            let to = output.path.as_ref().map(|path| format!(" -> {}", path.display())).unwrap_or_default();
            writeln!(f, "{}: {} rows of {}{to}", output.name, self.rows, output.dtype)?;
        }
        write!(f, "\n{} rows in {} chunks of up to {} rows: ", self.rows, self.chunks, self.chunk_rows)?;
        writeln!(f, "{:.3} s ({:.3} s with setup)", self.seconds, self.total_seconds)?;
        let Setup { find_seconds, open_seconds, kernel_seconds, memory_seconds } = self.setup;
        if self.devices.iter().any(|device| device.kind == DeviceKind::Cuda) {
            writeln!(
                f,
                "setup: CUDA initialised in {:.3} s, kernel ready in {kernel_seconds:.3} s, memory in {memory_seconds:.3} s",
                find_seconds + open_seconds
            )?;
        }
        let (bytes_in, bytes_out) = (self.bytes_to_device, self.bytes_from_device);
        if bytes_in + bytes_out > 0 {
            write!(f, "copied to and from devices: {} and {}", ByteSize(bytes_in), ByteSize(bytes_out))?;
            if self.bytes_ahead > 0 {
                write!(f, " ({} ahead of the values)", ByteSize(self.bytes_ahead))?;
            }
            // Only copies to a GPU cross a link whose speed says something.
            if self.devices.iter().all(|device| device.kind == DeviceKind::Cuda) && self.seconds > 0.0 {
                write!(f, ", {:.1} GB/s together", (bytes_in + bytes_out) as f64 / self.seconds / 1e9)?;
            }
            writeln!(f)?;
        }
        if self.bytes_read_directly > 0 {
            writeln!(f, "read past the page cache: {}", ByteSize(self.bytes_read_directly))?;
        }
        if self.peak_pinned_bytes > 0 {
            writeln!(f, "peak pinned memory: {}", ByteSize(self.peak_pinned_bytes))?;
        }
        self.devices.iter().try_for_each(|device| device.fmt(f))?;
        self.stages.fmt(f)?;
        for device in &self.devices {
            if let Some(bound) = &device.bound {
                writeln!(f, "{}: {bound}", device.id)?;
            }
        }
        if !self.measured && self.devices.iter().any(|device| device.kind != DeviceKind::Emulated) {
            writeln!(f, "(how far that is from what this machine can do: run 'overshot bench --limits' once)")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

impl fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({}): {} rows in {} chunks over {} lanes",
            self.id, self.name, self.rows, self.chunks, self.lanes
        )?;
        if self.kind != DeviceKind::Cpu {
            write!(f, ", peak device memory {}", ByteSize(self.peak_device_bytes))?;
        }
        match self.virtual_seconds.filter(|seconds| *seconds > 0.0) {
            Some(seconds) => writeln!(f, "; its copies and kernels took {seconds:.3} virtual seconds"),
            None => writeln!(f),
        }
    }
}

impl fmt::Display for StageTimes {
    /// A table of the stages that took any time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.named().iter().all(|(_, time)| (time.busy + time.waiting).is_zero()) {
            return Ok(());
        }
        writeln!(f, "\n{:10} {:>10} {:>10}   (seconds, summed over lanes)", "stage", "busy", "waiting")?;
        for (name, StageTime { busy, waiting }) in self.named() {
            if !(busy + waiting).is_zero() {
                writeln!(f, "{name:10} {:>10.3} {:>10.3}", busy.as_secs_f64(), waiting.as_secs_f64())?;
            }
        }
        Ok(())
    }
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

fn lossy<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(serializer)
}

fn results<S: Serializer>(results: &[(String, Option<Scalar>)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(results.len()))?;
    for (k, (label, value)) in results.iter().enumerate() {
        // The same text twice has the same value; a JSON object has a key once.
        if results[..k].iter().any(|(other, _)| other == label) {
            continue;
        }
        match *value {
            None => map.serialize_entry(label, &())?,
            Some(Scalar::Bool(v)) => map.serialize_entry(label, &v)?,
            Some(Scalar::U64(v)) => map.serialize_entry(label, &v)?,
            Some(Scalar::I64(v)) => map.serialize_entry(label, &v)?,
            // JSON has no such numbers.
            Some(v @ (Scalar::F32(_) | Scalar::F64(_))) if !v.as_f64().is_finite() => {
                map.serialize_entry(label, &v.to_string())?;
            }
            Some(Scalar::F32(v)) => map.serialize_entry(label, &v)?,
            Some(v) => map.serialize_entry(label, &v.as_f64())?,
        }
    }
    map.end()
}
