//! What each device did, from what its lanes say.

use std::collections::BTreeMap;
use std::time::Duration;

use super::devices::Accounts;
use crate::data::Input;
use crate::device::DeviceKind;
use crate::job::What;
use crate::limits::MachineLimits;
use crate::pipeline::LaneOutcome;
use crate::plan::{DevicePlan, Plan};
use crate::report::{Computation, DeviceReport, DeviceWork, InputReport, StageTimes};

/// What rows are and where they come from and go to.
pub(super) struct Medium {
    /// Bytes of a row.
    pub(super) row_in: u64,
    pub(super) row_out: u64,
    /// Bytes read past the page cache.
    pub(super) from_disk: u64,
    pub(super) from_files: bool,
    pub(super) to_files: bool,
}

/// What a job computes.
pub(super) fn of_computation(what: &What) -> Computation {
    match what {
        What::Expression(expression) => Computation::Expression(expression.text().to_owned()),
        What::Kernel(call) => Computation::Kernel(call.entry().to_owned()),
    }
}

/// The reports of a job's inputs.
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

/// Notes on devices whose chunks are smaller than others', or than they were to be; `short` has those that had too little
/// memory, and for how many bytes.
pub(super) fn of_smaller_chunks(plan: &Plan, short: &BTreeMap<String, u64>) -> Vec<String> {
    let staging = plan.devices.iter().filter(|device| device.kind != DeviceKind::Cpu);
    let note = |device: &DevicePlan| {
        let DevicePlan { id, lane_rows, .. } = device;
        match short.get(id) {
            Some(bytes) => Some(format!(
                "{id} had no memory for a block of {bytes} bytes: its chunks were made smaller, {lane_rows} rows"
            )),
            None if *lane_rows < plan.chunk_rows => {
                Some(format!("{id} has less memory than others: its chunks are smaller, {lane_rows} rows"))
            }
            None => None,
        }
    };
    staging.filter_map(note).collect()
}

/// The reports of the plan's devices.
pub(super) fn of_devices(
    plan: &Plan,
    outcomes: &[LaneOutcome],
    accounts: &[Accounts],
    medium: &Medium,
    limits: Option<&MachineLimits>,
    time: Duration,
) -> Vec<DeviceReport> {
    let reports = plan.devices.iter().zip(accounts).enumerate().map(|(number, (device, accounts))| {
        let lanes: Vec<&LaneOutcome> = outcomes.iter().filter(|lane| lane.device == number).collect();
        let sum = |of: fn(&LaneOutcome) -> u64| lanes.iter().map(|lane| of(lane)).sum::<u64>();
        let is_virtual = device.kind == DeviceKind::Emulated;
        let virtual_end = lanes.iter().map(|lane| lane.end).max().unwrap_or_default();
        let (rows, sampled) = (sum(|lane| lane.rows), sum(|lane| lane.sampled_rows));
        let mut stages = StageTimes::default();
        lanes.iter().for_each(|lane| stages.add(&lane.sample));
        // As the chunks that were timed, so the others.
        stages.scale(if sampled == 0 { 0.0 } else { rows as f64 / sampled as f64 });
        lanes.iter().for_each(|lane| stages.add(&lane.times));
        // Nothing is copied to the CPU: what counts is what it reads and writes.
        let touched = |bytes: u64, row: u64| if device.kind == DeviceKind::Cpu { rows * row } else { bytes };
        let work = DeviceWork {
            kind: device.kind,
            id: &device.id,
            limits,
            lanes: device.lanes,
            seconds: if is_virtual { virtual_end } else { time }.as_secs_f64(),
            stages,
            bytes_in: touched(sum(|lane| lane.bytes_in), medium.row_in),
            bytes_out: touched(sum(|lane| lane.bytes_out), medium.row_out),
            staged_in: sum(|lane| lane.staged_in),
            staged_out: sum(|lane| lane.staged_out),
            aside: lanes.iter().map(|lane| lane.aside.as_secs_f64()).sum(),
            from_disk: medium.from_disk * 2 > sum(|lane| lane.staged_in),
            from_files: medium.from_files,
            to_files: medium.to_files,
        };
        DeviceReport {
            id: device.id.clone(),
            name: device.name.clone(),
            kind: device.kind,
            chunks: sum(|lane| lane.chunks),
            rows,
            chunk_rows: device.lane_rows,
            lanes: device.lanes,
            peak_device_bytes: accounts.device.peak(),
            virtual_time: (is_virtual && !virtual_end.is_zero()).then_some(virtual_end),
            stages,
            bound: work.bound(),
        }
    });
    reports.collect()
}
