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
use crate::error::Result;
use crate::memory::Account;
use crate::pipeline::{HostPart, Part, Staging};
use crate::plan::{DEFAULT_PINNED, DevicePlan, Limits};

/// Devices that are costly to open and so are kept for the next run.
#[derive(Clone)]
pub(super) struct Opened {
    #[cfg(feature = "cuda")]
    cuda: Vec<Arc<CudaDevice>>,
}

impl Opened {
    /// For jobs of the CPU.
    pub(super) fn nothing() -> Self {
        Opened {
            #[cfg(feature = "cuda")]
            cuda: Vec::new(),
        }
    }

    #[cfg_attr(not(feature = "cuda"), allow(unused_variables, clippy::unnecessary_wraps))]
    pub(super) fn new(devices: &[DeviceInfo]) -> Result<Self> {
        #[cfg(feature = "cuda")]
        let numbers = devices.iter().filter_map(|device| device.id.strip_prefix("cuda:")?.parse().ok());
        Ok(Opened {
            #[cfg(feature = "cuda")]
            cuda: numbers.map(|number| CudaDevice::open(number).map(Arc::new)).collect::<Result<_>>()?,
        })
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
