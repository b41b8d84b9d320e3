//! The management library (NVML), which tells of GPUs without a context on them: what it says of memory, link and
//! load.
//!
//! NVML numbers all GPUs of the machine and ignores `CUDA_VISIBLE_DEVICES`, so GPUs are identified by their PCI
//! address.

use std::fs;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use crate::device::{DeviceDetails, DeviceInfo};

/// Fills in the location and load of the devices without opening them. Returns a note if the library is missing or
/// does not know a device, whose fields are then `None`.
pub(crate) fn look(devices: &mut [DeviceInfo]) -> Option<String> {
    for DeviceDetails { pci_bus_id, numa_node, .. } in devices.iter_mut().map(|device| &mut device.details) {
        *numa_node = pci_bus_id.as_deref().and_then(numa_node_of);
    }
    let note = |device: &str, error| {
        format!(
            "the utilisation and the free memory of {device} are unknown: the driver's management library (NVML): \
             {error}"
        )
    };
    let library = match Nvml::init() {
        Ok(library) => library,
        Err(error) => return Some(note("a GPU", error)),
    };
    let mut problem = None;
    for device in devices {
        if let Err(error) = ask(&library, &mut device.details) {
            // The first one speaks for all.
            problem.get_or_insert_with(|| note(&device.id, error));
        }
    }
    problem
}

/// Queries all details. Those that this GPU does not report stay `None`.
fn ask(library: &Nvml, details: &mut DeviceDetails) -> Result<(), NvmlError> {
    let device = library.device_by_pci_bus_id(details.pci_bus_id.as_deref().unwrap_or_default())?;
    details.free_bytes = device.memory_info().ok().map(|memory| memory.free);
    details.busy_percent = device.utilization_rates().ok().map(|rates| rates.gpu);
    // An idle GPU lowers the generation to save power; the width stays.
    details.pcie_generation = device.max_pcie_link_gen().ok();
    details.pcie_width = device.current_pcie_link_width().ok();
    Ok(())
}

/// The node as Linux has it. (What NVML calls so is the GPU's own memory where that is a node.)
fn numa_node_of(pci_bus_id: &str) -> Option<u32> {
    let path = format!("/sys/bus/pci/devices/{}/numa_node", pci_bus_id.to_lowercase());
    // -1 on machines with one node.
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
