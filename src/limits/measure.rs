//! The whole measurement: all parts in order.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bytesize::ByteSize;

use super::host::Ordinary;
use super::{MachineLimits, Versions, device, disk, host, store, versions};
use crate::cpu_cache::last_level_cache_bytes;
#[cfg(feature = "cuda")]
use crate::device::cuda::CudaDevice as Gpu;
// Without CUDA there are no devices, so the type does not matter.
#[cfg(not(feature = "cuda"))]
use crate::device::emulated::EmulatedDevice as Gpu;
use crate::device::{DeviceChoice, DeviceInfo, cpu};
use crate::error::{Error, Result, SettingError};

/// The most memory that is used, if it is [`CACHES`] times as large as the cache.
const MOST_MEMORY: u64 = 512 << 20;
/// So many times the last-level cache does not stay in it. More than [`MOST_MEMORY`] is used if necessary.
const CACHES: u64 = 4;
/// The memory that is used if the free memory is unknown.
const SOME_MEMORY: u64 = 64 << 20;
/// The least memory that is used, even if less is free.
const LEAST_MEMORY: u64 = 8 << 20;

pub(super) fn machine(choice: &DeviceChoice, folder: &Path, mut progress: impl FnMut(&str)) -> Result<MachineLimits> {
    let progress: &mut dyn FnMut(&str) = &mut progress;
    if !choice.emulated().is_empty() {
        return Err(SettingError::EmulatedMeasured.into());
    }
    if !folder.is_dir() {
        return Err(Error::file(folder, "is not a folder", "name one on the disk to measure"));
    }
    let mut notes = Vec::new();
    let chosen = match choice {
        DeviceChoice::Auto => DeviceChoice::Cuda.resolve().unwrap_or_else(|error| {
            notes.push(format!("no GPU was measured ({error})"));
            (Vec::new(), None)
        }),
        choice => choice.resolve()?,
    };
    // An eighth of the free memory, so that nothing else is evicted from memory.
    let budget = cpu::available_memory().map_or(SOME_MEMORY, |free| free / 8).max(LEAST_MEMORY);
    let budget = usize::try_from(budget).unwrap_or(usize::MAX);

    progress("memory");
    let most = MOST_MEMORY.max(CACHES * last_level_cache_bytes());
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut memory = Ordinary::new(budget.min(most), cpu::cores()).map_err(device::host_error)?;
    let mut host = host::measure(&mut memory, progress).map_err(device::host_error)?;
    notes.extend(too_little(memory.bytes().len() as u64, host.last_level_cache_bytes));
    disk::measure(&mut host, &memory, folder, &mut notes, progress);
    drop(memory);

    let gpus = open(&chosen.0)?;
    let driver = if gpus.is_empty() { None } else { versions::driver(Path::new("/")) }.unwrap_or_default();
    let mut devices = Vec::with_capacity(gpus.len());
    for gpu in &gpus {
        devices.push(device::measure(gpu, &driver, budget, progress)?);
    }
    let all_devices = device::measure_together(&gpus, budget, progress)?;
    Ok(MachineLimits {
        version: MachineLimits::VERSION,
        key: store::key(),
        versions: Versions::of(Path::new("/")),
        date: today(),
        host,
        devices,
        all_devices,
        notes,
    })
}

/// Returns a note if the memory that was used may have stayed in the cache.
fn too_little(bytes: u64, cache_bytes: u64) -> Option<String> {
    let used = ByteSize(bytes);
    (bytes < cache_bytes.saturating_mul(CACHES)).then(|| {
        format!("only {used} of memory were used, because little is free: memory rates may be those of the cache")
    })
}

#[cfg(feature = "cuda")]
fn open(devices: &[DeviceInfo]) -> Result<Vec<Gpu>> {
    devices.iter().filter_map(|device| device.id.strip_prefix("cuda:")?.parse().ok()).map(Gpu::open).collect()
}

#[cfg(not(feature = "cuda"))]
#[allow(clippy::unnecessary_wraps, reason = "with CUDA it may fail")]
fn open(_: &[DeviceInfo]) -> Result<Vec<Gpu>> {
    Ok(Vec::new())
}

/// Returns the current day in UTC, such as `2026-12-31`.
fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date(since.as_secs() / 86_400)
}

/// Returns the date of a day counted from 1970-01-01. In this calculation years begin in March, so that the leap day
/// is the last day of a year.
fn date(day: u64) -> String {
    let day = day + 719_468; // from 0000-03-01 on
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", 400 * era + year + next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        for (day, text) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (789, "1972-02-29"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_453, "2025-12-31"),
            (20_454, "2026-01-01"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(date(day), text, "day {day}");
        }
    }

    #[test]
    fn little_memory_is_noted() {
        assert_eq!(too_little(512 << 20, 32 << 20), None);
        assert_eq!(too_little(8 << 20, 0), None);
        assert!(too_little(64 << 20, 32 << 20).unwrap().contains("64.0 MiB"));
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let measure = |choice: &str, folder: &str| machine(&choice.parse().unwrap(), Path::new(folder), |_| {});
        let error = measure("emulated", ".").unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("virtual"), "{error}");
        let error = measure("cpu", "Cargo.toml").unwrap_err();
        assert!(error.to_string().contains("Cargo.toml: is not a folder"), "{error}");
    }
}
