//! What an engine has found: its devices, their budgets, and the measured limits of the machine.

use std::time::{Duration, Instant};

use super::devices::Budgets;
use crate::device::{DeviceChoice, DeviceInfo, cpu};
use crate::error::Result;
use crate::limits::MachineLimits;
use crate::plan::RunLimits;

/// The devices of an engine and the facts about them.
pub(super) struct Found {
    pub(super) devices: Vec<DeviceInfo>,
    /// The budgets that all runs share, for each device.
    pub(super) budgets: Vec<Budgets>,
    /// The measured limits of this machine, if there are any.
    pub(super) machine: Option<MachineLimits>,
    /// Why expected devices are missing, and why measured limits are not used, for the report.
    pub(super) notes: Vec<String>,
    /// The time to find the devices.
    pub(super) took: Duration,
}

impl Found {
    /// Finds the chosen devices. Nothing is allocated.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if a named device does not exist; never with [`DeviceChoice::Auto`].
    pub(super) fn by_choice(choice: &DeviceChoice, limits: &RunLimits) -> Result<Found> {
        let begin = Instant::now();
        let (devices, note) = choice.resolve()?;
        Ok(Found::new(devices, note, begin.elapsed(), limits))
    }

    /// Returns the CPU alone, which takes no time to find.
    pub(super) fn cpu(limits: &RunLimits) -> Found {
        Found::new(vec![cpu::info()], None, Duration::ZERO, limits)
    }

    fn new(devices: Vec<DeviceInfo>, note: Option<String>, took: Duration, limits: &RunLimits) -> Found {
        let (machine, limits_note) = MachineLimits::load_or_note(&devices);
        let budgets = devices.iter().map(|device| Budgets::of_engine(limits, device)).collect();
        Found { devices, budgets, machine, notes: note.into_iter().chain(limits_note).collect(), took }
    }

    /// Returns the budgets of a device of a plan.
    pub(super) fn budgets_of(&self, id: &str) -> &Budgets {
        let number = self.devices.iter().position(|device| device.id == id);
        &self.budgets[number.expect("a plan is for devices of the engine")]
    }
}
