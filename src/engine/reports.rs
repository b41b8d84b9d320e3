//! The report of each device, from the measurements of its workers.

use std::collections::BTreeMap;
use std::time::Duration;

use super::devices::Budgets;
use crate::data::Input;
use crate::device::DeviceKind;
use crate::job::JobBody;
use crate::limits::MachineLimits;
use crate::pipeline::WorkerOutcome;
use crate::plan::{DevicePlan, Plan};
use crate::report::{Computation, DeviceReport, DeviceWork, InputReport, StageTimes};

/// The sizes and kinds of the columns of a run.
pub(super) struct IoProfile {
    /// Number of bytes of one row.
    pub(super) row_in: u64,
    pub(super) row_out: u64,
    /// Number of bytes read past the page cache.
    pub(super) from_disk: u64,
    pub(super) from_files: bool,
    pub(super) to_files: bool,
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

/// The time that a run took.
#[derive(Clone, Copy)]
pub(super) enum RunTime {
    Real(Duration),
    /// Every worker has its own virtual clock.
    Virtual,
}

/// Returns the reports of the plan's devices.
pub(super) fn of_devices(
    plan: &Plan,
    outcomes: &[WorkerOutcome],
    budgets: &[Budgets],
    medium: &IoProfile,
    limits: Option<&MachineLimits>,
    time: RunTime,
) -> Vec<DeviceReport> {
    let is_virtual = matches!(time, RunTime::Virtual);
    let reports = plan.devices.iter().zip(budgets).enumerate().map(|(number, (device, budgets))| {
        let workers: Vec<&WorkerOutcome> = outcomes.iter().filter(|worker| worker.device == number).collect();
        let sum = |of: fn(&WorkerOutcome) -> u64| workers.iter().map(|worker| of(worker)).sum::<u64>();
        let virtual_end = workers.iter().map(|worker| worker.end).max().unwrap_or_default();
        let rows = sum(|worker| worker.rows);
        let stages = stage_times(&workers);
        // Nothing is copied to the CPU; its bytes are those that it reads and writes.
        let touched = |bytes: u64, row: u64| if device.kind == DeviceKind::Cpu { rows * row } else { bytes };
        let work = DeviceWork {
            kind: device.kind,
            id: &device.id,
            limits,
            workers: device.workers,
            seconds: match time {
                RunTime::Real(time) => time,
                RunTime::Virtual => virtual_end,
            }
            .as_secs_f64(),
            stages,
            bytes_in: touched(sum(|worker| worker.bytes_in), medium.row_in),
            bytes_out: touched(sum(|worker| worker.bytes_out), medium.row_out),
            staged_in: sum(|worker| worker.staged_in),
            staged_out: sum(|worker| worker.staged_out),
            throttled: workers.iter().map(|worker| worker.throttled.as_secs_f64()).sum(),
            from_disk: medium.from_disk * 2 > sum(|worker| worker.staged_in),
            from_files: medium.from_files,
            to_files: medium.to_files,
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
            bottleneck: work.bottleneck(),
        }
    });
    reports.collect()
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
}
