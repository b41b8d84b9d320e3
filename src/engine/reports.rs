//! The report of each device, from the measurements of its workers.

use std::collections::BTreeMap;
use std::time::Duration;

use super::devices::{Budgets, options_of};
use crate::data::Input;
use crate::device::kernel::Kernel;
use crate::device::{DeviceChoice, DeviceKind, Emulated};
use crate::job::JobBody;
use crate::limits::MachineLimits;
use crate::pipeline::{Verified, WorkerOutcome, recomputation};
use crate::plan::{DevicePlan, Plan};
use crate::report::{
    Computation, DeviceReport, DeviceWork, InputReport, Medium, StageLimits, StageTimes, Verification, VerifiedDevice,
};

/// The sizes and kinds of the columns of a run.
pub(super) struct IoProfile {
    /// Number of bytes of one row.
    pub(super) row_in: u64,
    pub(super) row_out: u64,
    /// Number of bytes read past the page cache.
    pub(super) from_disk: u64,
    pub(super) from: Medium,
    pub(super) to: Medium,
}

/// The computation of a job.
pub(super) fn of_computation(what: &JobBody) -> Computation {
    match what {
        JobBody::Expression(expression) => Computation::Expression(expression.text().to_owned()),
        JobBody::Kernel(call) => Computation::Kernel(call.entry().to_owned()),
    }
}

/// Returns the reports of a job's inputs.
pub(super) fn of_inputs(inputs: &[(String, Input<'_>)]) -> Vec<InputReport> {
    let report = |(name, input): &(String, Input<'_>)| {
        let source = input.source();
        let (dtype, rows) = (source.dtype(), source.rows());
        InputReport {
            name: name.clone(),
            path: source.path().map(Into::into),
            dtype,
            shape: source.shape().map_or_else(|| vec![rows], <[u64]>::to_vec),
            rows,
            bytes: rows.saturating_mul(dtype.size() as u64),
        }
    };
    inputs.iter().map(report).collect()
}

/// Returns notes on devices whose chunks are smaller than planned, or smaller than those of other devices. `short` has
/// the devices that had too little memory, and the bytes that they were asked for.
pub(super) fn of_smaller_chunks(plan: &Plan, short: &BTreeMap<String, u64>) -> Vec<String> {
    let staging = plan.devices.iter().filter(|device| device.kind != DeviceKind::Cpu);
    let note = |device: &DevicePlan| {
        let DevicePlan { id, max_chunk_rows, .. } = device;
        match short.get(id) {
            Some(bytes) => Some(format!(
                "{id} had no memory for a block of {bytes} bytes: its chunks were made smaller, {max_chunk_rows} rows"
            )),
            None if *max_chunk_rows < plan.chunk_rows => {
                Some(format!("{id} has less memory than others: its chunks are smaller, {max_chunk_rows} rows"))
            }
            None => None,
        }
    };
    staging.filter_map(note).collect()
}

/// Returns what the workers of each device of the plan have verified.
pub(super) fn verified_by_device(plan: &Plan, outcomes: &[WorkerOutcome]) -> Vec<Verified> {
    let of_device = |number: usize| {
        let own = outcomes.iter().filter(|worker| worker.device == number).map(|worker| worker.verified);
        own.fold(Verified::default(), |all, one| Verified {
            chunks: all.chunks + one.chunks,
            rows: all.rows + one.rows,
            time: all.time + one.time,
        })
    };
    (0..plan.devices.len()).map(of_device).collect()
}

/// Returns the report of what was verified.
pub(super) fn of_verification(fraction: f64, plan: &Plan, verified: &[Verified], kernel: &Kernel) -> Verification {
    let device = |(device, verified): (&DevicePlan, &Verified)| {
        let by = recomputation(kernel, device.kind == DeviceKind::Cpu).map(|(by, _)| by);
        let Verified { chunks, rows, time } = *verified;
        Some(VerifiedDevice { id: device.id.clone(), by: by?, chunks, rows, time })
    };
    Verification { fraction, devices: plan.devices.iter().zip(verified).filter_map(device).collect() }
}

/// The time that a run took.
#[derive(Clone, Copy)]
pub(super) enum RunTime {
    Real(Duration),
    /// Every worker has its own virtual clock.
    Virtual,
}

/// The machine of a run.
pub(super) struct Machine<'m> {
    pub(super) choice: &'m DeviceChoice,
    /// Its limits, if they were measured.
    pub(super) limits: Option<&'m MachineLimits>,
}

impl Machine<'_> {
    /// Returns the options of an emulated device, or those of the CPU beside emulated devices; `None` if the device is
    /// real.
    fn options(&self, id: &str) -> Option<&Emulated> {
        options_of(self.choice, id).or_else(|| self.choice.emulated().first())
    }
}

/// Returns the reports of the plan's devices.
pub(super) fn of_devices(
    plan: &Plan,
    outcomes: &[WorkerOutcome],
    budgets: &[Budgets],
    medium: &IoProfile,
    machine: &Machine<'_>,
    time: RunTime,
) -> Vec<DeviceReport> {
    let is_virtual = matches!(time, RunTime::Virtual);
    let reports = plan.devices.iter().zip(budgets).enumerate().map(|(number, (device, budgets))| {
        let workers: Vec<&WorkerOutcome> = outcomes.iter().filter(|worker| worker.device == number).collect();
        let sum = |of: fn(&WorkerOutcome) -> u64| workers.iter().map(|worker| of(worker)).sum::<u64>();
        let virtual_end = workers.iter().map(|worker| worker.end).max().unwrap_or_default();
        let rows = sum(|worker| worker.rows);
        let stages = stage_times(&workers);
        let staged = [sum(|worker| worker.staged_in), sum(|worker| worker.staged_out)];
        let from = if medium.from_disk * 2 > staged[0] { Medium::Disk } else { medium.from };
        let options = machine.options(&device.id);
        let work = DeviceWork {
            kind: device.kind,
            id: &device.id,
            workers: device.workers,
            seconds: match time {
                RunTime::Real(time) => time,
                RunTime::Virtual => virtual_end,
            }
            .as_secs_f64(),
            stages,
            copied: [sum(|worker| worker.bytes_in), sum(|worker| worker.bytes_out)],
            columns: [rows * medium.row_in, rows * medium.row_out],
            staged,
            media: [from, medium.to],
            in_cache: match options {
                Some(options) => Duration::try_from_secs_f64(rows as f64 / options.cpu_rate).ok(),
                None => in_cache(&workers, rows),
            },
            preempted: workers.iter().map(|worker| preempted(worker)).sum(),
            throttled: workers.iter().map(|worker| worker.throttled.as_secs_f64()).sum(),
        };
        let limits = match (options, machine.limits) {
            (Some(options), _) => StageLimits::emulated(options, &work),
            (None, Some(limits)) => StageLimits::measured(limits, &work),
            (None, None) => StageLimits::default(),
        };
        DeviceReport {
            id: device.id.clone(),
            name: device.name.clone(),
            kind: device.kind,
            chunks: sum(|worker| worker.chunks),
            rows,
            chunk_rows: device.max_chunk_rows,
            workers: device.workers,
            peak_device_bytes: budgets.device.peak(),
            virtual_time: (is_virtual && !virtual_end.is_zero()).then_some(virtual_end),
            stages,
            bottleneck: work.bottleneck(&limits),
        }
    });
    reports.collect()
}

/// Returns the time for which a CPU worker was busy without a core; zero if its processor time is not known.
fn preempted(worker: &WorkerOutcome) -> Duration {
    let StageTimes { fill, kernel, drain, .. } = worker.times;
    let busy = fill.busy + kernel.busy + drain.busy;
    if worker.processor.is_zero() { Duration::ZERO } else { busy.saturating_sub(worker.processor) }
}

/// Returns the time in which one core computes so many rows in its cache: the median of the workers that measured it,
/// because each measured a single tile.
fn in_cache(workers: &[&WorkerOutcome], rows: u64) -> Option<Duration> {
    let measured = workers.iter().map(|worker| worker.in_cache).filter(|(rows, time)| *rows > 0 && !time.is_zero());
    let mut times: Vec<_> = measured.map(|(tile, time)| time.mul_f64(rows as f64 / tile as f64)).collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

/// The times of the stages of a device, for all its rows: only some chunks were timed on the device.
fn stage_times(workers: &[&WorkerOutcome]) -> StageTimes {
    let sum = |of: fn(&WorkerOutcome) -> u64| workers.iter().map(|worker| of(worker)).sum::<u64>();
    let (rows, sampled) = (sum(|worker| worker.rows), sum(|worker| worker.sampled_rows));
    let mut stages = StageTimes::default();
    workers.iter().for_each(|worker| stages.add(&worker.sample));
    // As the chunks that were timed, so the others.
    stages.scale(if sampled == 0 { 0.0 } else { rows as f64 / sampled as f64 });
    workers.iter().for_each(|worker| stages.add(&worker.times));
    stages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_some_chunks_stand_for_all_rows() {
        let worker = |rows, sampled_rows, kernel, fill| {
            let mut worker = WorkerOutcome { rows, sampled_rows, ..WorkerOutcome::default() };
            worker.sample.kernel.busy = Duration::from_millis(kernel);
            worker.times.fill.busy = Duration::from_millis(fill);
            worker
        };
        let workers = [worker(300, 50, 7, 2), worker(100, 50, 3, 4), worker(0, 0, 0, 0)];
        let stages = stage_times(&workers.each_ref());
        // 100 of 400 rows took 10 ms.
        assert_eq!(stages.kernel.busy, Duration::from_millis(40));
        assert_eq!(stages.fill.busy, Duration::from_millis(6), "every chunk is timed on the host");
        assert_eq!(stage_times(&[&workers[2]]).kernel.busy, Duration::ZERO);
    }

    #[test]
    fn a_worker_without_a_core_is_preempted() {
        let s = Duration::from_secs;
        let mut worker = WorkerOutcome { processor: s(3), ..WorkerOutcome::default() };
        (worker.times.fill.busy, worker.times.kernel.busy, worker.times.drain.busy) = (s(1), s(2), s(4));
        assert_eq!(preempted(&worker), s(4));
        assert_eq!(preempted(&WorkerOutcome { processor: s(8), ..worker.clone() }), s(0));
        assert_eq!(preempted(&WorkerOutcome { processor: s(0), ..worker }), s(0), "virtual time");
    }

    #[test]
    fn the_speed_in_the_cache_is_that_of_most_workers() {
        let worker = |rows, micros| {
            let in_cache = (rows, Duration::from_micros(micros));
            WorkerOutcome { in_cache, ..WorkerOutcome::default() }
        };
        // One was interrupted, one found no second chunk, one has a clock that did not advance.
        let workers = [worker(10, 5), worker(10, 500), worker(20, 12), worker(0, 0), worker(10, 0)];
        let workers: Vec<_> = workers.iter().collect();
        assert_eq!(in_cache(&workers, 1000), Some(Duration::from_micros(600)));
        assert_eq!(in_cache(&workers[3..], 1000), None);
    }
}
