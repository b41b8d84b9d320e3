//! Lists the devices of this host without touching them: it creates no context and allocates no memory on a GPU.
//!
//! `cargo run --release --example devices`

use overshot::device::DeviceKind;

fn main() {
    let (devices, notes) = overshot::device::devices();
    for device in devices {
        println!("{} ({}): {} MiB of memory", device.id, device.name, device.memory_bytes >> 20);
        if device.kind != DeviceKind::Cuda {
            continue;
        }
        // A value that is not known is `None`.
        let of = |value: Option<u64>| value.map_or("unknown".to_owned(), |value| value.to_string());
        let details = device.details;
        println!("  on the bus at        {}", details.pci_bus_id.as_deref().unwrap_or("unknown"));
        println!("  free memory, MiB     {}", of(details.free_bytes.map(|bytes| bytes >> 20)));
        println!("  busy, percent        {}", of(details.busy_percent.map(u64::from)));
        println!("  PCIe generation      {}", of(details.pcie_generation.map(u64::from)));
        println!("  PCIe workers           {}", of(details.pcie_width.map(u64::from)));
        println!("  NUMA node            {}", of(details.numa_node.map(u64::from)));
    }
    notes.iter().for_each(|note| println!("note: {note}"));
}

#[test]
fn runs() {
    main();
}
