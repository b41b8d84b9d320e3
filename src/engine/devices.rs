//! The devices of an engine: opened once, and made ready for each run.

use std::sync::Arc;

#[cfg(feature = "cuda")]
use crate::device::cuda::CudaDevice as Gpu;
use crate::device::emulated::{self, EmulatedDevice};
// Without CUDA there are none, of whatever type.
#[cfg(not(feature = "cuda"))]
use crate::device::emulated::EmulatedDevice as Gpu;
use crate::device::kernel::SharedKernel;
use crate::device::{Device, DeviceChoice, DeviceInfo, DeviceKind, Pinned};
use crate::error::{Error, Result};
use crate::memory::{self, DeviceMemory, MemoryBudget, MemoryCache, MemoryUse};
use crate::pipeline::{CpuRun, DeviceRun, Staging};
use crate::plan::{DevicePlan, Plan, RunLimits};

/// Devices that are costly to open and so are kept for the next run, with what runs left of their memory.
#[derive(Clone, Default)]
pub(super) struct Opened {
    gpus: Vec<Arc<MemoryCache<Gpu>>>,
    /// Emulated devices, as places for rows that stay; runs have new ones.
    emulated: Vec<Arc<MemoryCache<EmulatedDevice>>>,
}

/// A device as a place for rows that outlive a run.
pub(super) struct PlacementDevice {
    pub(super) memory: Arc<dyn memory::DeviceAllocator>,
    /// All of its memory.
    pub(super) memory_bytes: u64,
    /// What such rows have of it.
    pub(super) stays: Arc<MemoryBudget>,
    /// All that is in use of it, and what runs have reserved.
    pub(super) device: Arc<MemoryBudget>,
}

/// A device that has no memory for being opened, and the error that says so.
pub(super) type Full = (String, Error);

impl Opened {
    /// Opens those GPUs among the devices that are not open yet, and returns those that cannot be for want of memory.
    /// `budgets` are the engine's of each device.
    pub(super) fn open(&mut self, devices: &[DeviceInfo], budgets: &[Budgets]) -> Result<Vec<Full>> {
        let mut full = Vec::new();
        for (device, budgets) in devices.iter().zip(budgets) {
            if self.cache_of(&device.id).is_some() {
                continue;
            }
            match open(device) {
                None => {}
                Some(Ok(gpu)) => self.gpus.push(MemoryCache::new(gpu, &budgets.device, &budgets.pinned)),
                Some(Err(error @ Error::OutOfMemory { .. })) => full.push((device.id.clone(), error)),
                Some(Err(error)) => return Err(error),
            }
        }
        Ok(full)
    }

    /// Of these devices, those that rows can stay on: emulated ones, and GPUs that are open. `budgets` are the
    /// engine's of each.
    pub(super) fn placement_devices(
        &mut self,
        choice: &DeviceChoice,
        devices: &[DeviceInfo],
        budgets: &[Budgets],
    ) -> Vec<PlacementDevice> {
        if let (DeviceChoice::Emulated(all), true) = (choice, self.emulated.is_empty()) {
            let caches = emulated::named(all).zip(budgets).map(|((id, options), budgets)| {
                MemoryCache::new(EmulatedDevice::named(id, options), &budgets.device, &budgets.pinned)
            });
            self.emulated = caches.collect();
        }
        let device_of = |(info, budgets): (&DeviceInfo, &Budgets)| {
            let emulated = self.emulated.iter().find(|cache| cache.device().info().id == info.id);
            let memory: Arc<dyn memory::DeviceAllocator> = match (emulated, self.cache_of(&info.id)) {
                (Some(emulated), _) => emulated.clone(),
                (None, Some(gpu)) => gpu.clone(),
                (None, None) => return None,
            };
            let (stays, device) = (budgets.stays.clone(), budgets.device.clone());
            Some(PlacementDevice { memory, memory_bytes: info.memory_bytes, stays, device })
        };
        devices.iter().zip(budgets).filter_map(device_of).collect()
    }

    /// Whether none is open.
    pub(super) fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }

    /// The device that pinned arrays are registered with, if any, and the budget that they are booked on. Memory
    /// pinned on one GPU is pinned for all of them.
    pub(super) fn pins_with(&self) -> Option<(&Gpu, &Arc<MemoryBudget>)> {
        self.gpus.first().map(|cache| (&**cache.device(), cache.pinned_budget()))
    }

    /// How far all GPUs find this memory pinned, by whomever: by other code of the program's that uses CUDA, say.
    /// Nothing is opened for that, so without an opened GPU nothing is.
    pub(super) fn find_pinned(&self, memory: *const [u8], is_written: bool) -> Pinned {
        let found = self.gpus.iter().map(|cache| cache.device().pinned(memory, is_written));
        found.min().unwrap_or(Pinned::No)
    }

    /// Makes a device of the engine ready for a run: its kernel loaded, its memory taken. `run` and `engine` are the
    /// device's budgets in both.
    pub(super) fn ready(
        &self,
        choice: &DeviceChoice,
        plan: &DevicePlan,
        kernel: &SharedKernel,
        run: &Budgets,
        engine: &Budgets,
    ) -> Result<Box<dyn DeviceRun>> {
        Ok(match (plan.kind, choice) {
            // A new one for every run, so that a seed means the same in every run.
            (DeviceKind::Emulated, DeviceChoice::Emulated(all)) => {
                let Some((id, options)) = emulated::named(all).find(|(id, _)| *id == plan.id) else {
                    unreachable!("the plan is of the engine's devices")
                };
                // Rows that stay are in memory of another device of that name.
                let options = options.clone().taken(options.taken_bytes.saturating_add(engine.stays.in_use()));
                let cache = MemoryCache::new(EmulatedDevice::named(id, &options), &engine.device, &engine.pinned);
                Box::new(Staging::new(&cache, plan, kernel, &run.device, &run.pinned)?)
            }
            (DeviceKind::Cuda, _) => {
                let Some(cache) = self.cache_of(&plan.id) else { unreachable!("every GPU of the engine was opened") };
                Box::new(Staging::new(cache, plan, kernel, &run.device, &run.pinned)?)
            }
            _ => Box::new(CpuRun::new(plan.workers, plan.max_chunk_rows as usize)),
        })
    }

    /// What a report should say of how the devices of a plan run this kernel.
    pub(super) fn notes(&self, plan: &Plan, kernel: &SharedKernel) -> Vec<String> {
        let gpus = plan.devices.iter().filter_map(|device| self.cache_of(&device.id));
        let mut notes: Vec<_> = gpus.flat_map(|cache| cache.device().notes(kernel)).collect();
        notes.dedup();
        notes
    }

    /// What there is of the memory of a device, whose budgets these are.
    pub(super) fn memory_of(&self, info: &DeviceInfo, budgets: &Budgets) -> DeviceMemory {
        let (device, pinned) = match self.cache_of(&info.id) {
            Some(cache) => cache.usage(),
            // Nothing is kept.
            None => (MemoryUse::new(&budgets.device, 0), MemoryUse::new(&budgets.pinned, 0)),
        };
        DeviceMemory { id: info.id.clone(), device, pinned }
    }

    /// Gives back what no run uses, and returns how many bytes.
    pub(super) fn trim(&self) -> u64 {
        self.gpus.iter().map(|cache| cache.trim()).sum()
    }

    fn cache_of(&self, id: &str) -> Option<&Arc<MemoryCache<Gpu>>> {
        self.gpus.iter().find(|cache| cache.device().info().id == id)
    }
}

/// Opens a device if it is a GPU.
#[cfg(feature = "cuda")]
fn open(device: &DeviceInfo) -> Option<Result<Gpu>> {
    Some(Gpu::open(device.id.strip_prefix("cuda:")?.parse().ok()?))
}

#[cfg(not(feature = "cuda"))]
fn open(_: &DeviceInfo) -> Option<Result<Gpu>> {
    None
}

/// The budgets of one device: in one run, or in an engine.
pub(super) struct Budgets {
    pub(super) device: Arc<MemoryBudget>,
    pub(super) pinned: Arc<MemoryBudget>,
    /// Of the device memory, what rows have that outlive runs. A run has none.
    pub(super) stays: Arc<MemoryBudget>,
}

impl Budgets {
    /// For a run, within its limits.
    pub(super) fn of_run(limits: &RunLimits, id: &str) -> Self {
        Budgets {
            device: MemoryBudget::new(
                "device memory",
                limits.device_memory.map_or(u64::MAX, |limit| limits.left(id, limit)),
            ),
            pinned: MemoryBudget::new("pinned memory", limits.pinned()),
            stays: MemoryBudget::new("device memory", 0),
        }
    }

    pub(super) fn reset_peak(&self) {
        self.device.reset_peak();
        self.pinned.reset_peak();
    }

    /// For an engine, whose runs have these limits together.
    pub(super) fn of_engine(limits: &RunLimits, info: &DeviceInfo) -> Self {
        let stays = MemoryBudget::new("device memory", u64::MAX);
        let bytes = limits.device_memory.map_or(info.memory_bytes, |limit| limit.min(info.memory_bytes));
        let device = MemoryBudget::of_engine("device memory", bytes, Some(&stays));
        let pinned = MemoryBudget::of_engine("pinned memory", limits.pinned(), None);
        Budgets { device, pinned, stays }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_keep_the_limits_and_the_memory_of_the_device() {
        let devices = DeviceChoice::from(emulated::Emulated::new().memory(1000)).resolve().unwrap().0;
        let limits = |device_memory| RunLimits { device_memory, ..RunLimits::default() };
        for (limit, expected) in [(None, 1000), (Some(300), 300), (Some(5000), 1000)] {
            let budgets = Budgets::of_engine(&limits(limit), &devices[0]);
            assert_eq!(budgets.device.for_runs(), expected, "{limit:?}");
            let _stays = budgets.stays.reserve(100).unwrap();
            assert_eq!(budgets.device.for_runs(), expected - 100, "an array takes its part");
        }
        let id = &devices[0].id;
        let stays = [(id.clone(), 100)].into();
        assert_eq!(Budgets::of_run(&RunLimits { stays, ..limits(Some(300)) }, id).device.limit(), 200);
    }
}
