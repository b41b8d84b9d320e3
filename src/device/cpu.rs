//! What the CPU says of itself. It runs kernels' twins and needs nothing more of this room.

use std::fs;

use super::{DeviceInfo, DeviceKind};

/// Cores that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

pub(crate) fn info() -> DeviceInfo {
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let memory = field("/proc/meminfo", "MemTotal").and_then(|kib| kib.trim_end_matches(" kB").parse::<u64>().ok());
    DeviceInfo {
        id: "cpu".into(),
        name: format!("{model}, {} cores", cores()),
        kind: DeviceKind::Cpu,
        memory_bytes: memory.unwrap_or(0) * 1024,
        compute_capability: None,
    }
}

/// The value of the first line `name : value` of a file of the system; `None` where there is no such file.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}
