//! The bottleneck of a run: the stage that was busy all the time while the other stages waited for it.
//!
//! A stage or a resource that was in use for [`NEAR`] of the time, or of its limit, bounds the run. The order of the
//! questions:
//!
//! 1. Which stage was busiest: a stage on the device, or the workers on the host? If it was not busy for `NEAR` of the
//!    time, the run waited for single chunks: latency.
//! 2. What bounds that stage? Kernels on a device: its memory, if they moved bytes at `NEAR` of its bandwidth, or else
//!    arithmetic. Workers that fill and drain: memory, likewise, or else whatever takes most of their time. Cores:
//!    computing or memory, whichever has the lower limit, as in the roofline model (Williams, Waterman and Patterson,
//!    "Roofline: an insightful visual performance model for multicore architectures", 2009).

use std::fmt;
use std::time::Duration;

use super::StageTimes;
use super::stage_limits::StageLimits;
use crate::device::DeviceKind;
use crate::units;

/// A stage of the pipeline, or a resource that bounds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stage {
    /// Reading rows into slots, or into the staging memory of CPU workers.
    Fill,
    /// Reading rows of files that are decoded meanwhile, such as columns of Parquet files.
    Decode,
    /// Copies from the host to the device.
    CopyIn,
    /// Computing.
    Kernel,
    /// Memory bandwidth of the host: memory could not supply the cores any faster.
    Memory,
    /// Memory bandwidth of the device: kernels waited for it.
    DeviceMemory,
    /// Copies from the device to the host.
    CopyOut,
    /// Writing rows to the outputs.
    Drain,
    /// Writing rows to outputs that are encoded meanwhile, such as Parquet files.
    Encode,
    /// No stage: chunks waited although no stage was busy all the time, or the job ended before any stage was.
    Latency,
}

/// The bottleneck of one device in a run.
#[derive(Clone, Copy, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct Bottleneck {
    /// What bounded the run: the busiest stage, if it was busy for at least 85 % of the time.
    pub stage: Stage,
    /// The busiest stage: `stage`, unless that is [`Stage::Latency`].
    pub busiest: Stage,
    /// The kind of the device.
    pub kind: DeviceKind,
    /// The fraction of the time, 0 to 1, for which the busiest stage was busy: for a stage on the device, its engine;
    /// for a stage on the host, all workers that were not throttled.
    pub busy: f64,
    /// Throughput in bytes per second, inputs and outputs together: on the host, of the whole run; of copies, likewise,
    /// both directions together; of the kernels of a device, while they run. On an emulated device in virtual time.
    pub bytes_per_second: f64,
    /// The limit of `stage` for these bytes, in the same unit: as measured on this machine (`overshot bench --limits`);
    /// for computing on the CPU, as measured during the run; on an emulated device, as its options say. `None` if it is
    /// not known, and for [`Stage::Latency`].
    pub limit_bytes_per_second: Option<f64>,
}

/// A stage that was busy for this fraction of the time, or a resource that was used to this fraction of its limit,
/// bounds the run. Between 1 and 1 / 1.2, so that a stage that is 1.2 times as fast as another is never named in its
/// place.
const NEAR: f64 = 0.85;

/// Cores that compute for less than this fraction of the time wait for memory.
const WAITS: f64 = 0.5;

/// Where the rows of the inputs come from, or where those of the outputs go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// Ordinary memory of the caller.
    Memory,
    /// Files, through the page cache.
    Files,
    /// Files, past the page cache.
    Disk,
    /// Files that are decoded while they are read.
    Encoded,
    /// Code of the caller.
    Code,
}

/// What a device and its workers did.
pub(crate) struct DeviceWork<'a> {
    pub(crate) kind: DeviceKind,
    /// As `--device` names it.
    pub(crate) id: &'a str,
    pub(crate) workers: usize,
    /// The time that the work took.
    pub(crate) seconds: f64,
    /// Summed over workers.
    pub(crate) stages: StageTimes,
    /// Bytes copied to and from the device.
    pub(crate) copied: [u64; 2],
    /// Bytes of the inputs and the outputs of its rows, wherever they are.
    pub(crate) columns: [u64; 2],
    /// Bytes filled and drained.
    pub(crate) staged: [u64; 2],
    /// What is filled from and drained to.
    pub(crate) media: [Medium; 2],
    /// On the CPU: the time in which one core computes all of these rows if they are in its cache.
    pub(crate) in_cache: Option<Duration>,
    /// On the CPU: the time for which workers were busy but had no core, because other programs had it.
    pub(crate) preempted: Duration,
    /// Seconds for which workers were throttled, summed over workers. They do not count as time available for work.
    pub(crate) throttled: f64,
}

/// What bounds a stage, its rate, and the limit for it.
struct Bound {
    stage: Stage,
    rate: f64,
    limit: Option<f64>,
}

impl DeviceWork<'_> {
    /// Returns the bottleneck; `None` if the device did nothing.
    pub(crate) fn bottleneck(&self, limits: &StageLimits) -> Option<Bottleneck> {
        if self.seconds <= 0.0 || self.stages.is_empty() {
            return None;
        }
        let [fill, copy_in, kernel, copy_out, drain] = self.stages.named().map(|(_, time)| time.busy.as_secs_f64());
        let mut of_workers = vec![(Stage::Fill, fill), (Stage::Drain, drain)];
        let mut of_device = Vec::new();
        if self.kind == DeviceKind::Cpu {
            of_workers.push((Stage::Kernel, kernel));
        } else {
            of_device = vec![(Stage::CopyIn, copy_in), (Stage::Kernel, kernel), (Stage::CopyOut, copy_out)];
        }
        let longest = |stages: &[(Stage, f64)]| stages.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        // A worker alternates between filling and draining (and computing, on the CPU). If all workers are always busy,
        // the stage that takes most of their time is the bottleneck.
        let workers_busy = of_workers.iter().map(|(_, busy)| busy).sum::<f64>() / self.worker_seconds();
        let workers = longest(&of_workers).map(|(stage, _)| (stage, workers_busy));
        let device = longest(&of_device).map(|(stage, busy)| (stage, busy / self.seconds));
        let (stage, busy) = [workers, device].into_iter().flatten().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let Bound { stage, rate, limit } = match stage {
            Stage::Kernel if self.kind == DeviceKind::Cpu => self.of_cores(kernel, limits),
            Stage::Kernel => self.of_kernels(kernel, limits),
            Stage::CopyIn | Stage::CopyOut => Bound { stage, rate: self.rate(self.copied), limit: limits.link },
            stage => self.of_staging(stage, limits),
        };
        let bounds = busy >= NEAR;
        Some(Bottleneck {
            stage: if bounds { stage } else { Stage::Latency },
            busiest: stage,
            kind: self.kind,
            busy: busy.min(1.0),
            bytes_per_second: rate,
            limit_bytes_per_second: limit.filter(|_| bounds),
        })
    }

    /// Returns the seconds for which workers could have been busy, summed over workers.
    fn worker_seconds(&self) -> f64 {
        (self.workers.max(1) as f64 * self.seconds - self.throttled).max(1e-9)
    }

    /// Returns the rate of so many bytes in and out over the whole run.
    fn rate(&self, bytes: [u64; 2]) -> f64 {
        bytes.iter().sum::<u64>() as f64 / self.seconds
    }

    /// Returns what bounds workers that fill and drain; `stage` takes most of their time. A worker does one thing at a
    /// time, so there is one limit for the bytes of both.
    fn of_staging(&self, stage: Stage, limits: &StageLimits) -> Bound {
        let rate = self.rate(self.staged);
        // The limits are those of copies.
        match (stage, self.media) {
            (Stage::Fill, [Medium::Encoded, _]) => return Bound { stage: Stage::Decode, rate, limit: None },
            (Stage::Drain, [_, Medium::Encoded]) => return Bound { stage: Stage::Encode, rate, limit: None },
            _ => {}
        }
        match limits.host_memory.filter(|limit| self.kind != DeviceKind::Cpu && rate >= NEAR * limit) {
            Some(limit) => Bound { stage: Stage::Memory, rate, limit: Some(limit) },
            None => Bound { stage, rate, limit: limits.staging },
        }
    }

    /// Returns what bounds kernels on a device that ran for so many seconds.
    fn of_kernels(&self, seconds: f64, limits: &StageLimits) -> Bound {
        let rate = self.columns.iter().sum::<u64>() as f64 / seconds.max(1e-9);
        let limit = limits.device_memory.filter(|limit| rate >= NEAR * limit);
        Bound { stage: if limit.is_some() { Stage::DeviceMemory } else { Stage::Kernel }, rate, limit }
    }

    /// Returns what bounds cores that computed for so many seconds, summed over workers: computing or memory, whichever
    /// has the lower limit. If the limit of memory is not known, memory bounds cores that take more than twice as long
    /// as on rows in the cache: they wait for most of the time.
    fn of_cores(&self, seconds: f64, limits: &StageLimits) -> Bound {
        let rate = self.rate(self.columns);
        let bytes = self.columns.iter().sum::<u64>() as f64;
        let of_memory = |limit| Bound { stage: Stage::Memory, rate, limit };
        let Some(in_cache) = self.in_cache.map(|time| time.as_secs_f64()) else {
            // Code of the caller, or a job too small to measure it.
            let near = limits.host_memory.filter(|limit| rate >= NEAR * limit);
            return near.map_or(Bound { stage: Stage::Kernel, rate, limit: None }, |limit| of_memory(Some(limit)));
        };
        // The cores are as fast as they were at any time: a single tile may have been slow by chance.
        let cores = self.worker_seconds() / self.seconds;
        let computing = bytes * cores / in_cache.min(seconds).max(1e-9);
        let on_core = (seconds - self.preempted.as_secs_f64()).max(0.0);
        match limits.host_memory {
            Some(limit) if limit <= computing => of_memory(Some(limit)),
            None if in_cache < WAITS * on_core => of_memory(None),
            _ => Bound { stage: Stage::Kernel, rate, limit: Some(computing).filter(|limit| *limit > 0.0) },
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Fill => "reading the inputs",
            Stage::Decode => "decoding the inputs",
            Stage::CopyIn => "host-to-device copies",
            Stage::Kernel => "computing",
            Stage::Memory => "memory of the host",
            Stage::DeviceMemory => "memory of the device",
            Stage::CopyOut => "device-to-host copies",
            Stage::Drain => "writing the outputs",
            Stage::Encode => "encoding the outputs",
            Stage::Latency => "latency",
        })
    }
}

impl fmt::Display for Bottleneck {
    /// Writes `computing (93 % busy)`. The alternate form `{:#}` adds the rate, and the limit if it is known. With
    /// latency, writes which stage was busiest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let busy = self.busy * 100.0;
        if self.stage == Stage::Latency {
            return write!(
                f,
                "{} (the busiest stage, {}, was busy for {busy:.0} % of the time)",
                self.stage, self.busiest
            );
        }
        write!(f, "{} ({busy:.0} % busy)", self.stage)?;
        // A rate in virtual time says nothing about this machine.
        if !f.alternate() || self.kind == DeviceKind::Emulated || self.bytes_per_second == 0.0 {
            return Ok(());
        }
        write!(f, ", {}", units::rate(self.bytes_per_second))?;
        match self.limit_bytes_per_second {
            Some(limit) if limit > 0.0 => {
                let share = self.bytes_per_second / limit * 100.0;
                let whose =
                    if self.stage == Stage::Kernel { "the limit of these cores" } else { "this machine's limit" };
                write!(f, ", {share:.0} % of {whose} ({})", units::rate(limit))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::StageTime;

    /// A device with four workers that ran for a second. Every stage takes a tenth of it; nothing else is known.
    fn work(kind: DeviceKind) -> DeviceWork<'static> {
        DeviceWork {
            kind,
            id: "",
            workers: 4,
            seconds: 1.0,
            stages: stages([0.1; 5]),
            copied: [200, 100],
            columns: [1000, 500],
            staged: [40, 20],
            media: [Medium::Memory; 2],
            in_cache: None,
            preempted: Duration::ZERO,
            throttled: 0.0,
        }
    }

    /// Seconds of filling, copies in, kernels, copies out and draining; on the host, summed over workers.
    fn stages([fill, copy_in, kernel, copy_out, drain]: [f64; 5]) -> StageTimes {
        let time = |seconds| StageTime { busy: Duration::from_secs_f64(seconds), waiting: Duration::ZERO };
        StageTimes {
            fill: time(fill),
            copy_in: time(copy_in),
            kernel: time(kernel),
            copy_out: time(copy_out),
            drain: time(drain),
        }
    }

    fn limits(all: f64) -> StageLimits {
        let limit = Some(all);
        StageLimits { link: limit, device_memory: limit, host_memory: limit, staging: limit }
    }

    fn found(work: &DeviceWork<'_>, limits: &StageLimits) -> (Stage, f64, Option<f64>) {
        let Bottleneck { stage, bytes_per_second, limit_bytes_per_second, .. } = work.bottleneck(limits).unwrap();
        (stage, bytes_per_second.round(), limit_bytes_per_second.map(f64::round))
    }

    #[test]
    fn a_stage_that_waits_is_not_a_bottleneck() {
        for (busy, bounds) in [(0.84, false), (0.86, true), (1.0, true)] {
            for (stage, times) in [
                (Stage::CopyIn, [0.1, busy, 0.1, 0.1, 0.1]),
                (Stage::CopyOut, [0.1, 0.1, 0.1, busy, 0.1]),
                (Stage::Fill, [3.0 * busy, 0.1, 0.1, 0.1, busy]),
                (Stage::Drain, [busy, 0.1, 0.1, 0.1, 3.0 * busy]),
            ] {
                let work = DeviceWork { stages: stages(times), ..work(DeviceKind::Cuda) };
                let found = work.bottleneck(&limits(400.0)).unwrap();
                assert_eq!((found.stage == stage, found.busiest), (bounds, stage), "{busy}: {found:?}");
                assert_eq!(found.limit_bytes_per_second.is_some(), bounds, "{found:?}");
                assert!((found.busy - busy).abs() < 1e-9, "{found:?}");
            }
        }
        let waits = DeviceWork { stages: stages([0.1, 0.62, 0.1, 0.1, 0.1]), ..work(DeviceKind::Cuda) };
        let text = waits.bottleneck(&limits(400.0)).unwrap().to_string();
        assert_eq!(text, "latency (the busiest stage, host-to-device copies, was busy for 62 % of the time)");
        assert!(DeviceWork { stages: StageTimes::default(), ..waits }.bottleneck(&limits(1.0)).is_none());
    }

    #[test]
    fn throttled_workers_count_as_absent() {
        let half = DeviceWork { stages: stages([2.0, 0.1, 0.1, 0.1, 0.0]), ..work(DeviceKind::Cuda) };
        assert_eq!(half.bottleneck(&limits(400.0)).unwrap().stage, Stage::Latency);
        let throttled = DeviceWork { throttled: 2.0, ..half };
        assert_eq!(throttled.bottleneck(&limits(400.0)).unwrap().stage, Stage::Fill);
    }

    #[test]
    fn kernels_wait_for_device_memory_if_they_come_near_it() {
        // 1500 bytes in 0.9 seconds.
        let work = DeviceWork { stages: stages([0.1, 0.1, 0.9, 0.1, 0.1]), ..work(DeviceKind::Cuda) };
        assert_eq!(found(&work, &limits(1900.0)), (Stage::DeviceMemory, 1667.0, Some(1900.0)));
        assert_eq!(found(&work, &limits(2000.0)), (Stage::Kernel, 1667.0, None));
        assert_eq!(found(&work, &StageLimits::default()), (Stage::Kernel, 1667.0, None));
    }

    #[test]
    fn workers_wait_for_memory_if_they_come_near_it() {
        // 60 bytes in a second.
        let work = DeviceWork { stages: stages([3.0, 0.1, 0.1, 0.1, 1.0]), ..work(DeviceKind::Cuda) };
        let of_files = StageLimits { staging: Some(80.0), ..StageLimits::default() };
        assert_eq!(found(&work, &limits(65.0)), (Stage::Memory, 60.0, Some(65.0)));
        assert_eq!(found(&work, &limits(75.0)), (Stage::Fill, 60.0, Some(75.0)));
        assert_eq!(found(&work, &of_files), (Stage::Fill, 60.0, Some(80.0)));
        let encoded = DeviceWork { media: [Medium::Encoded, Medium::Encoded], ..work };
        assert_eq!(found(&encoded, &limits(65.0)), (Stage::Decode, 60.0, None));
        let encodes = DeviceWork { stages: stages([1.0, 0.1, 0.1, 0.1, 3.0]), ..encoded };
        assert_eq!(found(&encodes, &limits(65.0)).0, Stage::Encode);
    }

    #[test]
    fn cores_compute_if_that_has_the_lower_limit() {
        let of = |in_cache: Option<f64>| {
            let in_cache = in_cache.map(Duration::from_secs_f64);
            DeviceWork { in_cache, stages: stages([0.0, 0.0, 4.0, 0.0, 0.0]), ..work(DeviceKind::Cpu) }
        };
        // 1500 bytes in a second, on four cores that took four seconds.
        let unknown = StageLimits::default();
        assert_eq!(found(&of(Some(3.6)), &unknown), (Stage::Kernel, 1500.0, Some(1667.0)));
        assert_eq!(found(&of(Some(3.6)), &limits(2e4)), (Stage::Kernel, 1500.0, Some(1667.0)));
        assert_eq!(found(&of(Some(1.8)), &unknown), (Stage::Memory, 1500.0, None));
        assert_eq!(found(&of(Some(1.8)), &limits(3300.0)), (Stage::Memory, 1500.0, Some(3300.0)));
        assert_eq!(found(&of(Some(1.8)), &limits(3400.0)), (Stage::Kernel, 1500.0, Some(3333.0)));
        // A core that another program has does not wait for memory.
        let preempted = DeviceWork { preempted: Duration::from_secs(1), ..of(Some(1.8)) };
        assert_eq!(found(&preempted, &unknown), (Stage::Kernel, 1500.0, Some(3333.0)));
        // The smaller limit.
        assert_eq!(found(&of(Some(3.6)), &limits(1600.0)), (Stage::Memory, 1500.0, Some(1600.0)));
        assert_eq!(found(&of(Some(3.6)), &limits(1700.0)), (Stage::Kernel, 1500.0, Some(1667.0)));
        // The tile that was measured was slow: no core exceeds its limit.
        assert_eq!(found(&of(Some(9.0)), &unknown), (Stage::Kernel, 1500.0, Some(1500.0)));
        // Not measured: memory, if the cores come near it.
        assert_eq!(found(&of(None), &limits(1600.0)), (Stage::Memory, 1500.0, Some(1600.0)));
        assert_eq!(found(&of(None), &limits(2e4)), (Stage::Kernel, 1500.0, None));
        let text = format!("{:#}", of(Some(3.6)).bottleneck(&unknown).unwrap());
        assert!(
            text.starts_with("computing (100 % busy), ") && text.contains(", 90 % of the limit of these cores ("),
            "{text}"
        );
    }
}
