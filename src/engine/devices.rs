//! The devices of an engine. They are opened once, and made ready for each run.

use std::sync::Arc;

use super::precision;
use crate::arrays::PinnedBuffer;
use crate::data::Element;
#[cfg(feature = "cuda")]
use crate::device::cuda::CudaDevice as Gpu;
#[cfg(feature = "cuda")]
pub(super) use crate::device::cuda::load_products;
use crate::device::emulated::{self, EmulatedDevice};
// Without CUDA there are no GPUs, so any type of device serves.
#[cfg(not(feature = "cuda"))]
use crate::device::emulated::EmulatedDevice as Gpu;
use crate::device::kernel::SharedKernel;
use crate::device::{Device, DeviceChoice, DeviceInfo, DeviceKind, Emulated, Pinned};
use crate::error::{Error, Result};
use crate::memory::{self, DeviceMemory, MemoryBudget, MemoryCache, MemoryUse};
use crate::pipeline::{CpuRun, DeviceRun, Staging};
use crate::plan::{DevicePlan, Plan, RunLimits};

/// Open devices, which are costly to open and therefore kept for later runs, with their cached memory.
#[derive(Clone, Default)]
pub(super) struct Opened {
    gpus: Vec<Arc<MemoryCache<Gpu>>>,
    /// Emulated devices that hold resident rows. Each run creates fresh emulated devices for its work.
    emulated: Vec<Arc<MemoryCache<EmulatedDevice>>>,
    /// The GPUs that were lost, and their problems. They are not opened again.
    lost: Vec<(String, String)>,
}

/// A device that holds rows longer than a run.
pub(super) struct PlacementDevice {
    pub(super) memory: Arc<dyn memory::DeviceAllocator>,
    /// The size of its memory.
    pub(super) memory_bytes: u64,
    /// The memory of such rows.
    pub(super) stays: Arc<MemoryBudget>,
    /// All memory in use, and the memory that runs have reserved.
    pub(super) device: Arc<MemoryBudget>,
}

/// A device that cannot be used, and the reason.
pub(super) type Absent = (String, Error);

impl Opened {
    /// Opens those GPUs among the devices that are not open yet. Returns the ones that were lost, that have no memory
    /// for a context, or, if any device may be left out, that cannot be opened. `budgets` are the engine's budgets of
    /// the devices.
    pub(super) fn open(
        &mut self,
        choice: &DeviceChoice,
        devices: &[DeviceInfo],
        budgets: &[Budgets],
    ) -> Result<Vec<Absent>> {
        self.lose_failed();
        let mut absent = Vec::new();
        let is_optional = *choice == DeviceChoice::Auto;
        for (device, budgets) in devices.iter().zip(budgets) {
            if self.cache_of(&device.id).is_some() {
                continue;
            }
            if let Some((id, problem)) = self.lost.iter().find(|(id, _)| *id == device.id) {
                absent.push((id.clone(), was_lost(id, problem)));
                continue;
            }
            match open(device) {
                None => {}
                Some(Ok(gpu)) => self.gpus.push(MemoryCache::new(gpu, &budgets.device, &budgets.pinned)),
                Some(Err(error @ Error::OutOfMemory { .. })) => absent.push((device.id.clone(), error)),
                Some(Err(error)) if is_optional => absent.push((device.id.clone(), error)),
                Some(Err(error)) => return Err(error),
            }
        }
        Ok(absent)
    }

    /// Forgets a GPU that failed with this problem, unless it still answers. Also forgets the others that do not answer
    /// then: after an illegal access of a kernel, the driver fails all calls of the process.
    pub(super) fn lose(&mut self, id: &str, problem: &str) {
        let Some(cache) = self.cache_of(id).filter(|cache| cache.device().free_bytes().is_err()) else { return };
        let is_given_up = cache.device().is_given_up();
        let (lost, left) = std::mem::take(&mut self.gpus).into_iter().partition::<Vec<_>, _>(|cache| {
            // A driver that waits for one GPU may let others wait, too.
            cache.device().info().id == id || (!is_given_up && cache.device().free_bytes().is_err())
        });
        self.gpus = left;
        self.lost.extend(lost.iter().map(|cache| (cache.device().info().id.clone(), problem.into())));
    }

    /// Forgets the GPUs that failed outside of runs, unless they still answer.
    fn lose_failed(&mut self) {
        let failed = |cache: &Arc<MemoryCache<Gpu>>| Some((cache.device().info().id.clone(), cache.failure().take()?));
        let failed: Vec<_> = self.gpus.iter().filter_map(failed).collect();
        failed.iter().for_each(|(id, problem)| self.lose(id, problem));
    }

    /// Returns those of the devices that can hold rows: emulated devices, and open GPUs. `budgets` are the engine's
    /// budgets of the devices.
    pub(super) fn placement_devices(
        &mut self,
        choice: &DeviceChoice,
        devices: &[DeviceInfo],
        budgets: &[Budgets],
    ) -> Vec<PlacementDevice> {
        if self.emulated.is_empty() {
            let caches = devices.iter().zip(budgets).filter_map(|(info, budgets)| {
                let device = EmulatedDevice::named(info.id.clone(), options_of(choice, &info.id)?);
                Some(MemoryCache::new(device, &budgets.device, &budgets.pinned))
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

    /// Returns whether no GPU is open.
    pub(super) fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }

    /// Creates an array in memory that a GPU pins; in ordinary memory if no GPU is open. Memory that is pinned on one
    /// GPU is pinned for all GPUs.
    pub(super) fn pinned<T: Element>(&self, rows: usize) -> Result<PinnedBuffer<T>> {
        let Some(cache) = self.gpus.first() else { return PinnedBuffer::on_host(rows) };
        cache.failure().watch(PinnedBuffer::new(&**cache.device(), cache.pinned_budget(), rows))
    }

    /// Returns how much of `memory` every open GPU reports as pinned, whether Overshot or other code pinned it. Does
    /// not open devices; returns [`Pinned::No`] if none is open.
    pub(super) fn find_pinned(&self, memory: *const [u8], is_written: bool) -> Pinned {
        let found = self.gpus.iter().map(|cache| cache.device().pinned(memory, is_written));
        found.min().unwrap_or(Pinned::No)
    }

    /// Makes a device ready for a run: loads the kernel and allocates memory. `run` and `engine` are the budgets of the
    /// device in the run and in the engine.
    pub(super) fn ready(
        &self,
        choice: &DeviceChoice,
        plan: &DevicePlan,
        kernel: &SharedKernel,
        run: &Budgets,
        engine: &Budgets,
    ) -> Result<Box<dyn DeviceRun>> {
        Ok(match plan.kind {
            // A fresh device for every run, so that a seed gives the same order in every run.
            DeviceKind::Emulated => {
                let Some(options) = options_of(choice, &plan.id) else {
                    unreachable!("the plan is for devices of the engine")
                };
                // Resident rows are on another device of the same name.
                let options = options.clone().taken(options.taken_bytes.saturating_add(engine.stays.in_use()));
                let device = EmulatedDevice::named(plan.id.clone(), &options);
                let cache = MemoryCache::new(device, &engine.device, &engine.pinned);
                Box::new(Staging::new(&cache, plan, kernel, &run.device, &run.pinned)?)
            }
            DeviceKind::Cuda => {
                let Some(cache) = self.cache_of(&plan.id) else { unreachable!("every GPU of the engine was opened") };
                Box::new(Staging::new(cache, plan, kernel, &run.device, &run.pinned)?)
            }
            DeviceKind::Cpu => {
                Box::new(CpuRun::new(plan.workers, plan.max_chunk_rows as usize, choice.emulated().first()))
            }
        })
    }

    /// Returns the notes of the devices of a plan on this kernel, for the report.
    pub(super) fn notes(&self, plan: &Plan, kernel: &SharedKernel) -> Vec<String> {
        let gpus = plan.devices.iter().filter_map(|device| self.cache_of(&device.id));
        let mut notes: Vec<_> = gpus.flat_map(|cache| cache.device().notes(kernel)).collect();
        notes.dedup();
        notes.extend(precision::notes(plan, kernel, |id| Some(self.cache_of(id)?.device().info())));
        notes
    }

    /// Returns the memory use of a device with these budgets.
    pub(super) fn memory_of(&self, info: &DeviceInfo, budgets: &Budgets) -> DeviceMemory {
        let (device, pinned) = match self.cache_of(&info.id) {
            Some(cache) => cache.usage(),
            // A device that is not open has no cached memory.
            None => (MemoryUse::new(&budgets.device, 0), MemoryUse::new(&budgets.pinned, 0)),
        };
        DeviceMemory { id: info.id.clone(), device, pinned }
    }

    /// Frees the cached memory, and returns the number of bytes.
    pub(super) fn trim(&self) -> u64 {
        self.gpus.iter().map(|cache| cache.trim()).sum()
    }

    /// Frees the memory that other engines keep on the same devices, and returns the number of bytes.
    pub(super) fn trim_others(&self) -> u64 {
        self.gpus.iter().map(|cache| cache.trim_others()).sum()
    }

    fn cache_of(&self, id: &str) -> Option<&Arc<MemoryCache<Gpu>>> {
        self.gpus.iter().find(|cache| cache.device().info().id == id)
    }
}

fn was_lost(id: &str, problem: &str) -> Error {
    Error::Device {
        device: id.into(),
        problem: format!("was lost before: {problem}"),
        remedy: "start the program again, or choose another device".into(),
    }
}

/// Returns the options of the emulated device with this id.
pub(super) fn options_of<'c>(choice: &'c DeviceChoice, id: &str) -> Option<&'c Emulated> {
    emulated::named(choice.emulated()).find(|(name, _)| name == id).map(|(_, options)| options)
}

/// Opens a device if it is a GPU.
#[cfg(feature = "cuda")]
fn open(device: &DeviceInfo) -> Option<Result<Gpu>> {
    Some(Gpu::open(device.id.strip_prefix("cuda:")?.parse().ok()?))
}

/// Loads the library for products of GPUs.
#[cfg(not(feature = "cuda"))]
pub(super) fn load_products() {}

#[cfg(not(feature = "cuda"))]
fn open(_: &DeviceInfo) -> Option<Result<Gpu>> {
    None
}

/// The budgets of one device in one run, or in an engine.
pub(super) struct Budgets {
    pub(super) device: Arc<MemoryBudget>,
    pub(super) pinned: Arc<MemoryBudget>,
    /// The part of the device memory that holds resident rows. It is 0 in a run.
    pub(super) stays: Arc<MemoryBudget>,
}

impl Budgets {
    /// Creates the budgets of a run with these limits.
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

    /// Creates the budgets of an engine, whose runs share these limits.
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
            let _stays = budgets.stays.charge(100).unwrap();
            assert_eq!(budgets.device.for_runs(), expected - 100, "an array takes its part");
        }
        let id = &devices[0].id;
        let stays = [(id.clone(), 100)].into();
        assert_eq!(Budgets::of_run(&RunLimits { stays, ..limits(Some(300)) }, id).device.limit(), 200);
    }
}
