//! The properties of the CPU. The CPU is not a `Device`: its workers run host kernels directly.

use std::fs;
use std::sync::OnceLock;

use super::{DeviceDetails, DeviceInfo, DeviceKind};
use crate::cgroup;

/// Returns the number of cores that this process may use.
pub(crate) fn cores() -> usize {
    // Asked once, because every answer reads files of the system.
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |cores| cores.get()))
}

pub(crate) fn info() -> DeviceInfo {
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let memory = field("/proc/meminfo", "MemTotal").and_then(|kib| kib.trim_end_matches(" kB").parse::<u64>().ok());
    DeviceInfo {
        id: "cpu".into(),
        name: format!("{model}, {} cores", cores()),
        kind: DeviceKind::Cpu,
        memory_bytes: (memory.unwrap_or(0) * 1024).min(cgroup::memory_bytes().unwrap_or(u64::MAX)),
        compute_capability: None,
        details: DeviceDetails::default(),
    }
}

/// Returns the bytes of memory that this process can have without swapping; `None` if unknown.
pub(crate) fn available_memory() -> Option<u64> {
    let kib = field("/proc/meminfo", "MemAvailable")?.trim_end_matches(" kB").parse::<u64>().ok()?;
    let limit = cgroup::memory().map_or(u64::MAX, |limit| limit.available);
    Some(limit.min(kib.saturating_mul(1024)))
}

/// Returns the value of the first line `name : value` of a system file; `None` if there is no such file or line.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}
