//! The properties of the CPU. The CPU is not a `Device`: its workers run host kernels directly.

use std::fs;
use std::sync::OnceLock;

use super::{DeviceDetails, DeviceInfo, DeviceKind};

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
        memory_bytes: memory.unwrap_or(0) * 1024,
        compute_capability: None,
        details: DeviceDetails::default(),
    }
}

/// Returns the bytes of memory that are available without swapping; `None` if unknown.
pub(crate) fn available_memory() -> Option<u64> {
    let kib = field("/proc/meminfo", "MemAvailable")?.trim_end_matches(" kB").parse::<u64>().ok()?;
    // The limit of a container may be smaller than the memory of the machine. Its inactive page cache counts as
    // available, because the system reclaims it when needed.
    let read = |name| fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok();
    let number = |name| read(name)?.trim().parse::<u64>().ok();
    let files = read("memory.stat").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("inactive_file "))?;
        line.trim().parse::<u64>().ok()
    });
    let used = number("memory.current").unwrap_or(0).saturating_sub(files.unwrap_or(0));
    let limit = number("memory.max").map(|limit| limit.saturating_sub(used));
    Some(limit.unwrap_or(u64::MAX).min(kib.saturating_mul(1024)))
}

/// Returns the value of the first line `name : value` of a system file; `None` if there is no such file or line.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}
