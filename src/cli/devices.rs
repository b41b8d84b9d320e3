//! `overshot devices`.

use std::fmt::Write;

use bytesize::ByteSize;
use overshot::DeviceInfo;
use serde::Serialize;

use super::Result;
use super::args::DevicesArgs;
use super::output::{print, print_json};

#[derive(Serialize)]
struct Devices {
    devices: Vec<DeviceInfo>,
    /// What is not there, and why.
    notes: Vec<String>,
}

/// Lists the devices.
pub fn list(args: &DevicesArgs) -> Result {
    let (devices, notes) = overshot::devices();
    if args.json {
        return print_json(&Devices { devices, notes });
    }
    let mut text = String::new();
    for DeviceInfo { id, name, memory_bytes, compute_capability, .. } in &devices {
        let _ = write!(text, "{id:10} {:>10}  {name}", ByteSize(*memory_bytes).to_string());
        let _ = match compute_capability {
            Some(capability) => writeln!(text, ", compute capability {capability}"),
            None => writeln!(text),
        };
    }
    for note in &notes {
        let _ = writeln!(text, "note: {note}");
    }
    print(text)
}
