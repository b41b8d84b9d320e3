//! Devices that were lost: the engine does not use them again.

use std::sync::PoisonError;
use std::time::Duration;

use super::Engine;
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::pipeline::{DeviceRun, Loss};
use crate::plan::Plan;
use crate::units;

impl Engine {
    /// Remembers the devices that a run has lost, or whose error it ended with, unless they still answer.
    pub(super) fn without_lost<T>(&self, driven: Result<(T, Vec<Loss>)>) -> Result<(T, Vec<Loss>)> {
        match &driven {
            Ok((_, lost)) => lost.iter().for_each(|loss| self.lose_failed(&loss.error)),
            Err(error) => self.lose_failed(error),
        }
        driven
    }

    /// Remembers the device of an error, if it is one of a device, unless it still answers.
    pub(super) fn lose_failed(&self, error: &Error) {
        if let Some((device, problem)) = of_device(error) {
            self.lose(device, problem);
        }
    }

    /// Remembers that a device has failed with this problem, unless it still answers.
    pub(super) fn lose(&self, device: &str, problem: &str) {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).lose(device, problem);
    }
}

/// Returns the device and the problem of a device's error.
fn of_device(error: &Error) -> Option<(&str, &str)> {
    match error {
        Error::Device { device, problem, .. } => Some((device, problem)),
        Error::Chunk { cause, .. } => of_device(cause),
        _ => None,
    }
}

/// Returns a note on each device that was lost during a run.
pub(super) fn notes(plan: &Plan, lost: &[Loss]) -> Vec<String> {
    let note = |loss: &Loss| {
        let device = &plan.devices[loss.device].id;
        let at = units::time(loss.at);
        format!("{device} was lost after {at}, and other devices computed its rows: {}", loss.error)
    };
    lost.iter().map(note).collect()
}

/// Returns a note if the time limit of devices does not hold in a run, because they use the memory of this column.
pub(super) fn no_timeout(plan: &Plan, limit: Option<Duration>, in_place: Option<&str>) -> Option<String> {
    let (seconds, name) = (limit?.as_secs_f64(), in_place?);
    (plan.workers() > plan.workers_of(DeviceKind::Cpu)).then(|| {
        format!(
            "the time limit of {seconds} s for devices did not hold: they use the memory of '{name}' in place, so a \
             run ends only when they do"
        )
    })
}

/// Recycles the memory of all devices that were not lost.
pub(super) fn keep_others(runs: Vec<Box<dyn DeviceRun>>, lost: &[Loss]) {
    for (number, run) in runs.into_iter().enumerate() {
        if lost.iter().all(|loss| loss.device != number) {
            run.recycle_memory();
        }
    }
}
