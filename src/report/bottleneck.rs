//! The bottleneck of a run: the stage that was busy all the time while the other stages waited for it.

use std::fmt;

use super::StageTimes;
use crate::device::DeviceKind;
use crate::limits::{DeviceLimits, MachineLimits, RateBySize, RateByThreads};
use crate::units;

/// A stage of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stage {
    /// Reading rows into slots, or into the staging memory of CPU workers.
    Fill,
    /// Copies from the host to the device.
    CopyIn,
    /// Computing.
    Kernel,
    /// Memory bandwidth, for the CPU: memory could not supply the cores any faster.
    Memory,
    /// Copies from the device to the host.
    CopyOut,
    /// Writing rows to the outputs.
    Drain,
    /// No stage: the job ended before any stage was busy for long.
    Latency,
}

/// The bottleneck of one device in a run.
#[derive(Clone, Copy, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct Bottleneck {
    /// The stage that was busiest.
    pub stage: Stage,
    /// The kind of the device.
    pub kind: DeviceKind,
    /// The fraction of the time, 0 to 1, for which the stage was busy: for a stage on the device, its engine; for a
    /// stage on the host, all workers that were not throttled.
    pub busy: f64,
    /// Throughput of the stage in bytes per second, inputs and outputs together. For filling and draining, it is the
    /// throughput of all workers together while they fill or drain.
    pub bytes_per_second: f64,
    /// The measured limit of this machine for the stage (`overshot bench --limits`), in the same unit; `None` if
    /// there is none.
    pub limit_bytes_per_second: Option<f64>,
}

/// A stage that was busy for a smaller fraction of the time than this is not a bottleneck.
const BUSY: f64 = 0.5;

/// Cores that reach at least this fraction of the memory bandwidth are limited by memory.
const MEMORY: f64 = 0.75;

/// What a device and its workers did.
pub(crate) struct DeviceWork<'a> {
    pub(crate) kind: DeviceKind,
    /// As `--device` names it.
    pub(crate) id: &'a str,
    /// The measured limits of the machine.
    pub(crate) limits: Option<&'a MachineLimits>,
    pub(crate) workers: usize,
    /// The time that the work took.
    pub(crate) seconds: f64,
    /// Summed over workers.
    pub(crate) stages: StageTimes,
    /// Bytes copied to and from the device; on the CPU, bytes of the inputs and outputs.
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// Bytes filled and drained.
    pub(crate) staged_in: u64,
    pub(crate) staged_out: u64,
    /// Seconds for which workers were throttled, summed over workers. They do not count as time available for work.
    pub(crate) throttled: f64,
    /// Whether most of the filled bytes were read from disk without the page cache.
    pub(crate) from_disk: bool,
    /// Whether some inputs are files.
    pub(crate) from_files: bool,
    /// Whether some outputs are files.
    pub(crate) to_files: bool,
}

impl DeviceWork<'_> {
    /// Returns the stage that was busy for the largest fraction of the time. A worker alternates between filling and
    /// draining (and computing, on the CPU). If all workers are always busy, the stage that takes most of their time
    /// is the bottleneck.
    pub(crate) fn bottleneck(&self) -> Option<Bottleneck> {
        if self.seconds <= 0.0 || self.stages.is_empty() {
            return None;
        }
        let share = |busy: f64| busy / self.seconds;
        let [fill, copy_in, kernel, copy_out, drain] = self.stages.named().map(|(_, time)| time.busy.as_secs_f64());
        let mut of_workers = vec![(Stage::Fill, fill), (Stage::Drain, drain)];
        let mut of_device = Vec::new();
        if self.kind == DeviceKind::Cpu {
            of_workers.push((Stage::Kernel, kernel));
        } else {
            of_device = vec![(Stage::CopyIn, copy_in), (Stage::Kernel, kernel), (Stage::CopyOut, copy_out)];
        }
        let longest = |stages: &[(Stage, f64)]| stages.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        let worker_seconds = (self.workers.max(1) as f64 * self.seconds - self.throttled).max(1e-9);
        let workers_busy = of_workers.iter().map(|(_, busy)| busy).sum::<f64>() / worker_seconds;
        let workers = longest(&of_workers).map(|(stage, _)| (stage, workers_busy));
        let device = longest(&of_device).map(|(stage, busy)| (stage, share(busy)));
        let busiest = [workers, device].into_iter().flatten().max_by(|a, b| a.1.total_cmp(&b.1));
        let (mut stage, busy) = busiest.filter(|(_, busy)| *busy >= BUSY).unwrap_or((Stage::Latency, 0.0));
        // A worker does one thing at a time. The limit of filling applies to the time spent on filling, not to the
        // whole run.
        let all_workers = |busy: f64| (busy / self.workers.max(1) as f64).max(1e-9);
        let bytes_per_second = match stage {
            Stage::Fill => self.staged_in as f64 / all_workers(fill),
            Stage::Drain => self.staged_out as f64 / all_workers(drain),
            _ => (self.bytes_in + self.bytes_out) as f64 / self.seconds,
        };
        let mut limit = self.limit(stage);
        if stage == Stage::Kernel {
            // Memory bandwidth limits the cores only if they come near it. Otherwise they compute, and no limit is
            // known.
            limit = limit.filter(|limit| bytes_per_second >= MEMORY * limit);
            stage = if limit.is_some() { Stage::Memory } else { stage };
        }
        Some(Bottleneck {
            stage,
            kind: self.kind,
            busy: busy.min(1.0),
            bytes_per_second,
            limit_bytes_per_second: limit,
        })
    }

    /// Returns the limit of this machine for a stage, in bytes per second as `Bottleneck` counts them for that stage.
    fn limit(&self, stage: Stage) -> Option<f64> {
        let limits = self.limits?;
        let host = &limits.host;
        match (stage, self.kind) {
            (_, DeviceKind::Emulated) => None,
            (Stage::CopyIn | Stage::CopyOut, _) => {
                link(limits.devices.iter().find(|device| device.id == self.id)?, self.bytes_in, self.bytes_out)
            }
            // Two measured points: reading only, and reading as much as is written.
            (Stage::Kernel, DeviceKind::Cpu) => {
                let [read, copy] =
                    [&host.read, &host.copy].map(|rates| Some(RateByThreads::best(rates)?.bytes_per_second));
                between(&[(0.0, read?), (0.5, 2.0 * copy?)], self.bytes_in, self.bytes_out)
            }
            (Stage::Fill, _) if self.from_disk => host.direct_read,
            (Stage::Fill, _) if self.from_files => RateByThreads::with(&host.page_cache, self.workers),
            (Stage::Fill, _) => RateByThreads::with(&host.stage, self.workers),
            (Stage::Drain, _) if self.to_files => host.new_file,
            (Stage::Drain, _) => RateByThreads::with(&host.copy, self.workers),
            _ => None,
        }
    }
}

/// Returns the bandwidth of a link for this mixture of copies in and out.
fn link(device: &DeviceLimits, bytes_in: u64, bytes_out: u64) -> Option<f64> {
    let best = |sizes: &[RateBySize]| Some(RateBySize::best(sizes)?.bytes_per_second);
    let points = [
        (0.0, best(&device.copy_in)?),
        (1.0 / 3.0, best(&device.two_in_one_out)?),
        (0.5, best(&device.duplex)?),
        (1.0, best(&device.copy_out)?),
    ];
    between(&points, bytes_in, bytes_out)
}

/// Returns the rate for this fraction of outgoing bytes. Interpolates linearly, in seconds per byte, between measured
/// rates.
fn between(points: &[(f64, f64)], bytes_in: u64, bytes_out: u64) -> Option<f64> {
    let share = bytes_out as f64 / (bytes_in + bytes_out).max(1) as f64;
    let above = points.iter().position(|(at, _)| *at >= share).unwrap_or(points.len() - 1).max(1);
    let ((left, slow), (right, fast)) = (points.get(above - 1)?, points.get(above)?);
    let part = ((share - left) / (right - left)).clamp(0.0, 1.0);
    Some(1.0 / (slow.recip() + part * (fast.recip() - slow.recip())))
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Fill => "reading the inputs",
            Stage::CopyIn => "host-to-device copies",
            Stage::Kernel => "computing",
            Stage::Memory => "memory of the host",
            Stage::CopyOut => "device-to-host copies",
            Stage::Drain => "writing the outputs",
            Stage::Latency => "none",
        })
    }
}

impl fmt::Display for Bottleneck {
    /// Writes `computing (83 % busy)`. The alternate form `{:#}` adds the rate, and the limit of the machine if it is
    /// known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stage == Stage::Latency {
            return write!(f, "{} (no stage was busy for half of the time)", self.stage);
        }
        write!(f, "{} ({:.0} % busy)", self.stage, self.busy * 100.0)?;
        // A rate in virtual time says nothing about this machine.
        if !f.alternate() || self.kind == DeviceKind::Emulated || self.bytes_per_second == 0.0 {
            return Ok(());
        }
        write!(f, ", {}", units::rate(self.bytes_per_second))?;
        match self.limit_bytes_per_second {
            Some(limit) if limit > 0.0 => {
                let share = self.bytes_per_second / limit * 100.0;
                write!(f, ", {share:.0} % of this machine's limit ({})", units::rate(limit))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::StageTime;

    /// Work of cores that were busy all the time, and read so many bytes in a second.
    fn computing(bytes: u64, limits: &MachineLimits) -> Bottleneck {
        let kernel = StageTime { busy: Duration::from_secs(4), waiting: Duration::ZERO };
        let work = DeviceWork {
            kind: DeviceKind::Cpu,
            id: "cpu",
            limits: Some(limits),
            workers: 4,
            seconds: 1.0,
            stages: StageTimes { kernel, ..StageTimes::default() },
            bytes_in: bytes,
            bytes_out: 0,
            staged_in: 0,
            staged_out: 0,
            throttled: 0.0,
            from_disk: false,
            from_files: false,
            to_files: false,
        };
        work.bottleneck().unwrap()
    }

    #[test]
    fn computing_is_not_held_against_a_limit_of_memory() {
        let limits = crate::limits::tests::example();
        let read = RateByThreads::best(&limits.host.read).unwrap().bytes_per_second;
        let slow = computing((read * 0.06) as u64, &limits);
        assert_eq!((slow.stage, slow.limit_bytes_per_second), (Stage::Kernel, None));
        assert!(!format!("{slow:#}").contains("limit"), "{slow:#}");
        let fast = computing((read * 0.9) as u64, &limits);
        assert_eq!((fast.stage, fast.limit_bytes_per_second), (Stage::Memory, Some(read)));
        assert!(format!("{fast:#}").contains("90 % of this machine's limit"), "{fast:#}");
    }

    #[test]
    fn a_mixture_lies_between_what_was_measured() {
        let points = [(0.0, 50.0), (0.5, 100.0), (1.0, 50.0)];
        for (bytes_in, bytes_out, rate) in [(10, 0, 50.0), (10, 10, 100.0), (0, 10, 50.0), (3, 1, 200.0 / 3.0)] {
            let found = between(&points, bytes_in, bytes_out).unwrap();
            assert!((found - rate).abs() < 1e-9, "{bytes_in} in, {bytes_out} out: {found}");
        }
    }
}
