//! Devices that fail during a run. Other devices compute the rows that a lost device has not finished, or all rows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};

/// The devices that a run has lost.
#[derive(Debug)]
pub(crate) struct Losses {
    /// Whether other devices can compute all rows.
    is_survivable: bool,
    /// Whether the run begins anew without the device, so that all devices end.
    ends_all: bool,
    lost: Mutex<Vec<Loss>>,
    /// Whether there are any. Workers ask in every step.
    any: AtomicBool,
}

/// A device that a run has lost.
#[derive(Debug)]
pub(crate) struct Loss {
    /// The number of the device in the run.
    pub(crate) device: usize,
    pub(crate) error: Error,
    /// When it was lost, on the clock of the run.
    pub(crate) at: Duration,
}

impl Losses {
    /// `is_survivable` tells whether the run has several devices, each of which can compute all rows, and `ends_all`
    /// whether it begins anew after a loss.
    pub(crate) fn new(is_survivable: bool, ends_all: bool) -> Losses {
        Losses { is_survivable, ends_all, lost: Mutex::default(), any: AtomicBool::new(false) }
    }

    /// Records that a device was lost. Only its first error counts: the others are consequences.
    ///
    /// # Errors
    /// The same error if it is not that of a device, or if no other device can compute the rows.
    pub(super) fn record(&self, device: usize, error: Error, at: Duration) -> Result<()> {
        if !self.is_survivable || !is_of_device(&error) {
            return Err(error);
        }
        let mut lost = self.lost();
        if lost.iter().all(|loss| loss.device != device) {
            lost.push(Loss { device, error, at });
        }
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns whether a device is lost.
    pub(super) fn has(&self, device: usize) -> bool {
        self.any.load(Ordering::Acquire) && self.lost().iter().any(|loss| loss.device == device)
    }

    /// Returns whether a device ends: because it is lost, or because the run begins anew without one that is.
    pub(super) fn end(&self, device: usize) -> bool {
        self.any.load(Ordering::Acquire) && (self.ends_all || self.has(device))
    }

    /// Takes all losses, in the order in which they happened.
    pub(super) fn take(&mut self) -> Vec<Loss> {
        self.any = AtomicBool::new(false);
        std::mem::take(&mut self.lost())
    }

    fn lost(&self) -> MutexGuard<'_, Vec<Loss>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether an error is one of a device, and not of the job, its files or its kernel.
fn is_of_device(error: &Error) -> bool {
    match error {
        Error::Device { .. } => true,
        Error::Chunk { cause, .. } => is_of_device(cause),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(problem: &str) -> Error {
        Error::Device { device: "cuda:1".into(), problem: problem.into(), remedy: String::new() }
    }

    #[test]
    fn the_first_error_of_a_device_is_its_loss() {
        let mut losses = Losses::new(true, false);
        let second = Duration::from_secs(1);
        losses.record(1, failure("first"), second).unwrap();
        losses.record(1, failure("second"), 2 * second).unwrap();
        assert!(losses.end(1) && !losses.end(0));
        let lost = losses.take();
        assert!(lost.len() == 1 && lost[0].error.to_string().contains("first") && lost[0].at == second);
        assert!(!losses.end(1));
    }

    #[test]
    fn all_devices_end_if_the_run_begins_anew() {
        let mut losses = Losses::new(true, true);
        assert!(!losses.end(0));
        losses.record(1, failure("fell off the bus"), Duration::ZERO).unwrap();
        assert!(losses.end(0) && losses.end(1) && losses.has(1) && !losses.has(0));
        assert_eq!(losses.take().iter().map(|loss| loss.device).collect::<Vec<_>>(), [1]);
        assert!(!losses.end(0));
    }

    #[test]
    fn other_errors_and_runs_without_another_device_fail() {
        let mut losses = Losses::new(true, false);
        assert!(losses.record(0, Error::file("a", "is short", "copy it"), Duration::ZERO).is_err());
        assert!(losses.record(0, Error::abandoned(), Duration::ZERO).is_err());
        assert!(Losses::new(false, false).record(0, failure("fell off the bus"), Duration::ZERO).is_err());
        assert!(losses.take().is_empty());
    }
}
