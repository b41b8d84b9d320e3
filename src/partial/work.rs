//! What the parts of a job did together, for the report.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::device::DeviceKind;
use crate::report::{DeviceReport, RecomputedBy, Report, Setup, StageTime, StageTimes, Verification, VerifiedDevice};

/// A partial keeps at most this many notes and devices, so that it stays small.
const MOST: usize = 32;

/// The counters of the reports of all parts: sums, but the largest of what is a peak or a size. Times are nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    parts: u64,
    chunks: u64,
    chunk_rows: u64,
    time: u64,
    total_time: u64,
    processor_time: u64,
    /// As in [`Setup`]: find, open, kernel, memory.
    setup: [u64; 4],
    bytes_to_device: u64,
    bytes_from_device: u64,
    bytes_read_directly: u64,
    peak_pinned_bytes: u64,
    measured: bool,
    devices: Vec<Device>,
    notes: BTreeSet<String>,
    /// The smallest fraction of the chunks that a part verified, and what was verified.
    verified: (f64, Vec<Verified>),
}

/// The verified chunks of one device, or of several of the same name in different processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Verified {
    id: String,
    by: String,
    chunks: u64,
    rows: u64,
    time: u64,
}

/// What one device did, or several of the same name in different processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Device {
    id: String,
    name: String,
    kind: String,
    chunks: u64,
    rows: u64,
    chunk_rows: u64,
    workers: u64,
    peak_device_bytes: u64,
    virtual_time: Option<u64>,
    /// Busy and waiting, of each stage in its order.
    stages: [[u64; 2]; 5],
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}

fn add(own: &mut u64, other: u64) {
    *own = own.saturating_add(other);
}

impl Work {
    /// Creates the counters of one part.
    pub(crate) fn of(report: Report) -> Work {
        let Setup { find, open, kernel, memory } = report.setup;
        Work {
            parts: 1,
            chunks: report.chunks,
            chunk_rows: report.chunk_rows,
            time: nanos(report.time),
            total_time: nanos(report.total_time),
            processor_time: nanos(report.processor_time),
            setup: [find, open, kernel, memory].map(nanos),
            bytes_to_device: report.bytes_to_device,
            bytes_from_device: report.bytes_from_device,
            bytes_read_directly: report.bytes_read_directly,
            peak_pinned_bytes: report.peak_pinned_bytes,
            measured: report.measured,
            devices: report.devices.iter().map(Device::of).collect(),
            notes: report.notes.into_iter().collect(),
            verified: report.verification.map_or((0.0, vec![]), |verification| {
                (verification.fraction, verification.devices.into_iter().map(Verified::of).collect())
            }),
        }
    }

    /// Adds the counters of other parts.
    pub(crate) fn merge(&mut self, other: Work) {
        add(&mut self.parts, other.parts);
        add(&mut self.chunks, other.chunks);
        self.chunk_rows = self.chunk_rows.max(other.chunk_rows);
        add(&mut self.time, other.time);
        add(&mut self.total_time, other.total_time);
        add(&mut self.processor_time, other.processor_time);
        self.setup.iter_mut().zip(other.setup).for_each(|(own, other)| add(own, other));
        add(&mut self.bytes_to_device, other.bytes_to_device);
        add(&mut self.bytes_from_device, other.bytes_from_device);
        add(&mut self.bytes_read_directly, other.bytes_read_directly);
        self.peak_pinned_bytes = self.peak_pinned_bytes.max(other.peak_pinned_bytes);
        self.measured &= other.measured;
        for device in other.devices {
            let is_same = |own: &&mut Device| (&own.id, &own.name) == (&device.id, &device.name);
            match self.devices.iter_mut().find(is_same) {
                Some(own) => own.merge(&device),
                None => self.devices.push(device),
            }
        }
        // In any order of merging, the same ones stay.
        self.devices.sort_by(|a, b| (&a.id, &a.name).cmp(&(&b.id, &b.name)));
        self.devices.truncate(MOST);
        self.verified.0 = self.verified.0.min(other.verified.0);
        for verified in other.verified.1 {
            let is_same = |own: &&mut Verified| (&own.id, &own.by) == (&verified.id, &verified.by);
            match self.verified.1.iter_mut().find(is_same) {
                Some(own) => own.merge(&verified),
                None => self.verified.1.push(verified),
            }
        }
        self.verified.1.sort_by(|a, b| (&a.id, &a.by).cmp(&(&b.id, &b.by)));
        self.verified.1.truncate(MOST);
        self.notes.extend(other.notes);
        while self.notes.len() > MOST {
            self.notes.pop_last();
        }
    }

    /// Sets the counters, devices and notes of the report of the whole job.
    pub(crate) fn put_into(self, report: &mut Report) {
        let [find, open, kernel, memory] = self.setup.map(Duration::from_nanos);
        report.chunks = self.chunks;
        report.chunk_rows = self.chunk_rows;
        report.time = Duration::from_nanos(self.time);
        report.total_time = Duration::from_nanos(self.total_time);
        report.processor_time = Duration::from_nanos(self.processor_time);
        report.setup = Setup { find, open, kernel, memory };
        report.bytes_to_device = self.bytes_to_device;
        report.bytes_from_device = self.bytes_from_device;
        report.bytes_read_directly = self.bytes_read_directly;
        report.peak_pinned_bytes = self.peak_pinned_bytes;
        report.measured = self.measured;
        report.devices = self.devices.into_iter().map(Device::report).collect();
        let (fraction, verified) = self.verified;
        report.verification = (!verified.is_empty())
            .then(|| Verification { fraction, devices: verified.into_iter().map(Verified::report).collect() });
        report.notes.extend(self.notes);
    }

    /// Returns a note on the parts of a job.
    pub(super) fn note(&self) -> Option<String> {
        (self.parts > 1).then(|| format!("the job ran in {} parts, and the times are the sums of theirs", self.parts))
    }
}

impl Verified {
    fn of(device: VerifiedDevice) -> Verified {
        let VerifiedDevice { id, by, chunks, rows, time } = device;
        Verified { id, by: by.name().into(), chunks, rows, time: nanos(time) }
    }

    fn merge(&mut self, other: &Verified) {
        add(&mut self.chunks, other.chunks);
        add(&mut self.rows, other.rows);
        add(&mut self.time, other.time);
    }

    fn report(self) -> VerifiedDevice {
        let Verified { id, by, chunks, rows, time } = self;
        let known = [RecomputedBy::Cpu, RecomputedBy::OtherInstructions];
        let by = known.into_iter().find(|known| known.name() == by).unwrap_or(RecomputedBy::SameCode);
        VerifiedDevice { id, by, chunks, rows, time: Duration::from_nanos(time) }
    }
}

impl Device {
    fn of(report: &DeviceReport) -> Device {
        Device {
            id: report.id.clone(),
            name: report.name.clone(),
            kind: report.kind.to_string(),
            chunks: report.chunks,
            rows: report.rows,
            chunk_rows: report.chunk_rows,
            workers: report.workers as u64,
            peak_device_bytes: report.peak_device_bytes,
            virtual_time: report.virtual_time.map(nanos),
            stages: report.stages.named().map(|(_, StageTime { busy, waiting })| [nanos(busy), nanos(waiting)]),
        }
    }

    fn merge(&mut self, other: &Device) {
        add(&mut self.chunks, other.chunks);
        add(&mut self.rows, other.rows);
        self.chunk_rows = self.chunk_rows.max(other.chunk_rows);
        self.workers = self.workers.max(other.workers);
        self.peak_device_bytes = self.peak_device_bytes.max(other.peak_device_bytes);
        self.virtual_time = match (self.virtual_time, other.virtual_time) {
            (Some(own), Some(other)) => Some(own.saturating_add(other)),
            (own, other) => own.or(other),
        };
        let times = self.stages.iter_mut().flatten().zip(other.stages.iter().flatten());
        times.for_each(|(own, other)| add(own, *other));
    }

    fn report(self) -> DeviceReport {
        let [fill, copy_in, kernel, copy_out, drain] = self.stages.map(|stage| {
            let [busy, waiting] = stage.map(Duration::from_nanos);
            StageTime { busy, waiting }
        });
        DeviceReport {
            kind: match &*self.kind {
                "cuda" => DeviceKind::Cuda,
                "emulated" => DeviceKind::Emulated,
                _ => DeviceKind::Cpu,
            },
            id: self.id,
            name: self.name,
            chunks: self.chunks,
            rows: self.rows,
            chunk_rows: self.chunk_rows,
            workers: self.workers as usize,
            peak_device_bytes: self.peak_device_bytes,
            virtual_time: self.virtual_time.map(Duration::from_nanos),
            stages: StageTimes { fill, copy_in, kernel, copy_out, drain },
            // That of several processes, which may not even have run at the same time, is not known.
            bottleneck: None,
        }
    }
}
