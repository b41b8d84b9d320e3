//! The devices of an engine: opened once, and made ready for each run.

use std::sync::Arc;

#[cfg(feature = "cuda")]
use crate::device::Device;
use crate::device::DeviceChoice;
use crate::device::DeviceInfo;
use crate::device::DeviceKind;
#[cfg(feature = "cuda")]
use crate::device::cuda::CudaDevice;
use crate::device::emulated::{self, EmulatedDevice};
use crate::device::kernel::SharedKernel;
use crate::error::{Error, Result};
use crate::memory::Account;
use crate::pipeline::{HostPart, Part, Staging};
use crate::plan::{DEFAULT_PINNED, DevicePlan, Limits};

/// Devices that are costly to open and so are kept for the next run.
#[derive(Clone, Default)]
pub(super) struct Opened {
    #[cfg(feature = "cuda")]
    cuda: Vec<Arc<CudaDevice>>,
}

/// A device that has no memory for being opened, and the error that says so.
pub(super) type Full = (String, Error);

impl Opened {
    /// Opens those devices that are not open yet, and returns those that cannot be for want of memory.
    #[cfg(feature = "cuda")]
    pub(super) fn open(&mut self, devices: &[DeviceInfo]) -> Result<Vec<Full>> {
        let mut full = Vec::new();
        for DeviceInfo { id, .. } in devices {
            let Some(number) = id.strip_prefix("cuda:").and_then(|number| number.parse().ok()) else { continue };
            if self.cuda.iter().any(|open| open.info().id == *id) {
                continue;
            }
            match CudaDevice::open(number) {
                Ok(device) => self.cuda.push(Arc::new(device)),
                Err(error @ Error::OutOfMemory { .. }) => full.push((id.clone(), error)),
                Err(error) => return Err(error),
            }
        }
        Ok(full)
    }

    /// Without CUDA there is nothing to open.
    #[cfg(not(feature = "cuda"))]
    #[allow(clippy::unnecessary_wraps, reason = "with CUDA it may fail")]
    pub(super) fn open(&mut self, _: &[DeviceInfo]) -> Result<Vec<Full>> {
        Ok(Vec::new())
    }

    /// Whether none is open.
    pub(super) fn is_empty(&self) -> bool {
        self.pins_with().is_none()
    }

    /// The device that pinned arrays are registered with, if any. Memory pinned on one GPU is pinned for all of them.
    #[cfg(feature = "cuda")]
    pub(super) fn pins_with(&self) -> Option<&CudaDevice> {
        self.cuda.first().map(|device| &**device)
    }

    /// Without CUDA there is nothing to register with.
    #[cfg(not(feature = "cuda"))]
    pub(super) fn pins_with(&self) -> Option<&EmulatedDevice> {
        None
    }

    /// Makes a device of the engine ready for a run: its kernel loaded, its memory taken.
    #[cfg_attr(not(feature = "cuda"), allow(unused_variables))]
    pub(super) fn ready(
        &self,
        choice: &DeviceChoice,
        plan: &DevicePlan,
        kernel: &SharedKernel,
        accounts: &Accounts,
    ) -> Result<Box<dyn Part>> {
        Ok(match (plan.kind, choice) {
            // A new one for every run, so that a seed means the same in every run.
            (DeviceKind::Emulated, DeviceChoice::Emulated(all)) => {
                let Some((id, options)) = emulated::named(all).find(|(id, _)| *id == plan.id) else {
                    unreachable!("the plan is of the engine's devices")
                };
                let device = Arc::new(EmulatedDevice::named(id, options));
                Box::new(Staging::new(device, plan, kernel, &accounts.device, &accounts.pinned)?)
            }
            #[cfg(feature = "cuda")]
            (DeviceKind::Cuda, _) => {
                let Some(device) = self.cuda.iter().find(|device| device.info().id == plan.id).cloned() else {
                    unreachable!("every GPU of the engine was opened")
                };
                Box::new(Staging::new(device, plan, kernel, &accounts.device, &accounts.pinned)?)
            }
            _ => Box::new(HostPart::new(plan.lanes, plan.lane_rows as usize)),
        })
    }
}

/// The accounts of one device in one run.
pub(super) struct Accounts {
    pub(super) device: Arc<Account>,
    pub(super) pinned: Arc<Account>,
}

impl Accounts {
    pub(super) fn new(limits: &Limits) -> Self {
        Accounts {
            device: Account::new("device memory", limits.device_memory.unwrap_or(u64::MAX)),
            pinned: Account::new("pinned memory", limits.pinned_memory.unwrap_or(DEFAULT_PINNED)),
        }
    }
}
