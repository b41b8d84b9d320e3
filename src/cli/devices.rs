//! `overshot devices`.

use std::fmt::Write;

use bytesize::ByteSize;
use overshot::device::{DeviceDetails, DeviceInfo};
use serde::Serialize;

use super::Result;
use super::args::DevicesArgs;
use super::output::{print, print_document};

#[derive(Serialize)]
struct Devices {
    devices: Vec<DeviceInfo>,
    /// Why devices are missing.
    notes: Vec<String>,
}

/// The properties of a GPU besides its name and memory size.
fn details(DeviceInfo { compute_capability, details, .. }: &DeviceInfo) -> String {
    let DeviceDetails { free_bytes, busy_percent, pcie_generation, pcie_width, numa_node, .. } = details;
    let parts = [
        compute_capability.as_ref().map(|capability| format!("compute capability {capability}")),
        free_bytes.map(|bytes| format!("{} free", ByteSize(bytes))),
        busy_percent.map(|percent| format!("{percent} % busy")),
        pcie_generation.zip(*pcie_width).map(|(generation, width)| format!("PCIe {generation} ×{width}")),
        numa_node.map(|node| format!("NUMA node {node}")),
    ];
    parts.into_iter().flatten().map(|part| format!(", {part}")).collect()
}

/// Lists the devices.
pub fn list(args: &DevicesArgs) -> Result {
    let (devices, notes) = overshot::device::devices();
    if args.json {
        return print_document(1, &Devices { devices, notes });
    }
    let mut text = String::new();
    for device in &devices {
        let DeviceInfo { id, name, memory_bytes, .. } = device;
        let _ = writeln!(text, "{id:10} {:>10}  {name}{}", ByteSize(*memory_bytes).to_string(), details(device));
    }
    for note in &notes {
        let _ = writeln!(text, "note: {note}");
    }
    print(text)
}
