//! Calibration: the measured limits of this machine. `overshot bench --limits` measures them once and saves them for
//! the user; plans and reports are based on them.
//!
//! | | |
//! | --- | --- |
//! | `rates.rs` | rates by size and by threads, and interpolation between them (pure) |
//! | `measure.rs`, `host.rs`, `disk.rs`, `device.rs` | the measurements, by subject |
//! | `team.rs`, `link.rs`, `kernel.rs` | the tools: threads, copies to and from a device, a kernel |
//! | `store.rs`, `show.rs` | the saved file; the printed form |

mod device;
mod disk;
mod host;
mod kernel;
mod link;
mod measure;
mod rates;
mod show;
mod store;
mod team;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::device::{DeviceChoice, DeviceInfo};
use crate::error::Result;
#[cfg(feature = "testing")]
pub(crate) use disk::bare_direct_read;
pub(crate) use kernel::copy_kernel;
#[cfg(feature = "testing")]
pub(crate) use kernel::rebuild;
pub use rates::{RateBySize, RateByThreads};

/// The measured limits of a machine. Rates are in bytes per second, times in seconds. `Display` is for people.
///
/// Every value is the best of a few short runs, on a machine that may have had other work. It is an upper bound for
/// jobs, which is not always reached.
///
/// ```
/// use overshot::limits::MachineLimits;
/// let (devices, _) = overshot::device::devices();
/// match MachineLimits::load(&devices) {
///     Some(limits) => println!("{limits}"),
///     None => println!("run `overshot bench`"),
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MachineLimits {
    /// The version of this format.
    pub version: u32,
    /// Identifies the machine: CPU model, cores, memory rounded to GiB. GPUs are identified in `devices`.
    pub key: String,
    /// The day of the measurement in UTC, such as `2026-12-31`.
    pub date: String,
    /// The limits of memory, files and disk.
    pub host: HostLimits,
    /// The limits of each GPU alone.
    pub devices: Vec<DeviceLimits>,
    /// The limits of all GPUs at the same time; `None` for fewer than two.
    pub all_devices: Option<AggregateLimits>,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
}

/// The limits of memory, files and disk. Lists by threads start at 1 and go in powers of two up to the number of
/// cores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HostLimits {
    /// Cores that the process may use.
    pub cores: usize,
    /// Bytes of the last-level cache, as seen by one core; 0 if unknown.
    pub last_level_cache_bytes: u64,
    /// Copying from pageable memory to pageable memory, by threads. Counts the bytes copied, which are half of the
    /// bytes that memory moves.
    pub copy: Vec<RateByThreads>,
    /// Copying from pageable memory to a few slots of 2 MiB that stay in the cache, by threads: the limit of filling
    /// slots.
    pub stage: Vec<RateByThreads>,
    /// Reading pageable memory (summing words), by threads.
    pub read: Vec<RateByThreads>,
    /// Copying from a new mapping of a file in the page cache to slots as in `stage`, by threads. Empty if no file
    /// could be created.
    pub page_cache: Vec<RateByThreads>,
    /// Copying from pageable memory to the mapping of a new, preallocated file, with the number of threads that is
    /// fastest. `None` if no such file could be created.
    pub new_file: Option<f64>,
    /// Reading a file without the page cache (`O_DIRECT`), in pieces of 512 KiB by several threads. `None` if the
    /// file system of the folder does not permit it or is not on a disk.
    pub direct_read: Option<f64>,
}

/// The limits of one GPU and its link, with pinned memory. Lists by size are for copies of 64 KiB to 64 MiB, many in
/// a row on one stream per direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// Its id, as [`DeviceChoice`] parses it, such as `cuda:0`.
    pub id: String,
    /// The product name.
    pub name: String,
    /// The newest CUDA version that the driver supports, such as `CUDA 13.0`.
    pub driver: String,
    /// Copies to the device.
    pub copy_in: Vec<RateBySize>,
    /// Copies from the device.
    pub copy_out: Vec<RateBySize>,
    /// Equally many copies in and out at the same time: bytes of both directions together.
    pub duplex: Vec<RateBySize>,
    /// Two copies in for each copy out, as in `c = a * b`: bytes of both directions together.
    pub two_in_one_out: Vec<RateBySize>,
    /// Registering host memory whose pages are already present with the device.
    pub pin: f64,
    /// Allocating pinned memory as [`Engine::pinned`](crate::Engine::pinned) does, and freeing it.
    pub pin_new: f64,
    /// Allocating pinned memory with the driver's allocator, and freeing it; `None` if there is no such allocator.
    pub pin_driver: Option<f64>,
    /// Bandwidth of the device memory: bytes that a kernel reads and writes, together.
    pub memory: f64,
    /// Seconds per launch, for many launches of a small kernel in a row.
    pub launch_seconds: f64,
}

/// The limits of all GPUs at the same time, with the fastest copy size: bytes of all GPUs together per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AggregateLimits {
    /// Copies to the devices.
    pub copy_in: f64,
    /// Copies from the devices.
    pub copy_out: f64,
    /// Equally many copies in and out at the same time: bytes of both directions together.
    pub duplex: f64,
    /// Two copies in for each copy out: bytes of both directions together.
    pub two_in_one_out: f64,
}

impl MachineLimits {
    /// The version of the format that this build reads and writes.
    pub const VERSION: u32 = 3;

    /// Measures the machine and the chosen devices. This takes a few seconds, and a few more for each GPU. Temporary
    /// files are created in `folder` without a name, so that they cannot be left behind. `progress` is called with
    /// the name of each step before it starts.
    ///
    /// The measurement uses at most 512 MiB of memory, and 256 MiB each of pinned and of device memory (with several
    /// GPUs, 128 MiB of pinned memory for each); less if an eighth of the free memory is less.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`](crate::Error::InvalidSetting) for an emulated device, whose time is virtual;
    /// [`Error::File`](crate::Error::File) if the folder does not exist; [`Error::Device`](crate::Error::Device) if a
    /// device is missing or fails. If the file system of the folder does not support a measurement, the result has a
    /// note and there is no error.
    pub fn measure(choice: &DeviceChoice, folder: &Path, progress: impl FnMut(&str)) -> Result<MachineLimits> {
        measure::machine(choice, folder, progress)
    }

    /// Loads the saved limits of this machine with exactly these GPUs; `None` if there are none. A file that other
    /// users could have written is not used.
    pub fn load(devices: &[DeviceInfo]) -> Option<MachineLimits> {
        Self::load_or_note(devices).0
    }

    /// As [`load`](Self::load), with a note for the report if a file was refused.
    pub(crate) fn load_or_note(devices: &[DeviceInfo]) -> (Option<MachineLimits>, Option<String>) {
        match store::load(devices) {
            Ok(limits) => (limits, None),
            Err(refused) => (None, Some(format!("the measured limits of this machine are not used: {refused}"))),
        }
    }

    /// Saves the limits for this user, and returns the path of the file. Saved limits of GPUs that were not measured
    /// this time are kept.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) if the file cannot be written;
    /// [`Error::InvalidSetting`](crate::Error::InvalidSetting) if there is no place to save it, because
    /// `OVERSHOT_CACHE` is empty or the user has no home directory.
    pub fn save(&self) -> Result<PathBuf> {
        store::save(self)
    }

    /// Returns whether all values are plausible: finite, positive, and in ascending order of threads and sizes.
    pub(crate) fn is_sound(&self) -> bool {
        let HostLimits { copy, stage, read, page_cache, new_file, direct_read, .. } = &self.host;
        let threads = [copy, stage, read, page_cache];
        let host = threads.iter().flat_map(|list| list.iter().map(|rate| rate.bytes_per_second));
        let devices = self.devices.iter().flat_map(|device| {
            let lists = [&device.copy_in, &device.copy_out, &device.duplex, &device.two_in_one_out];
            let rates = lists.into_iter().flat_map(|list| list.iter().map(|size| size.bytes_per_second));
            rates.chain([device.pin, device.pin_new, device.memory, device.launch_seconds]).chain(device.pin_driver)
        });
        let together =
            self.all_devices.iter().flat_map(|all| [all.copy_in, all.copy_out, all.duplex, all.two_in_one_out]);
        let ascending = threads.iter().all(|list| list.is_sorted_by(|a, b| a.threads < b.threads))
            && self.devices.iter().all(|device| {
                let lists = [&device.copy_in, &device.copy_out, &device.duplex, &device.two_in_one_out];
                lists.iter().all(|list| !list.is_empty() && list.is_sorted_by(|a, b| a.bytes < b.bytes))
            });
        let measured = host.chain(devices).chain(together).chain(*new_file).chain(*direct_read);
        ascending && measured.into_iter().all(|value| value.is_finite() && value > 0.0)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Limits in which every field has a different value.
    pub(crate) fn example() -> MachineLimits {
        let rates = |first: f64| {
            let rates = [1, 2, 4].map(|threads| RateByThreads { threads, bytes_per_second: first * threads as f64 });
            rates.to_vec()
        };
        let sizes = |most: f64| {
            let sizes = [64 << 10, 1 << 20, 64 << 20];
            // Whole numbers, which come back from JSON as they were to the last bit.
            let rate = |bytes: u64| (most * bytes as f64 / (bytes as f64 + 1e5)).round();
            sizes.map(|bytes| RateBySize { bytes, bytes_per_second: rate(bytes) }).to_vec()
        };
        let device = DeviceLimits {
            id: "cuda:0".into(),
            name: "NVIDIA Test".into(),
            driver: "CUDA 13.0".into(),
            copy_in: sizes(55e9),
            copy_out: sizes(52e9),
            duplex: sizes(95e9),
            two_in_one_out: sizes(80e9),
            pin: 5e9,
            pin_new: 3e9,
            pin_driver: Some(1e9),
            memory: 4e12,
            launch_seconds: 2.5e-6,
        };
        MachineLimits {
            version: MachineLimits::VERSION,
            key: "Test CPU, 4 cores, 24 GiB".into(),
            date: "2026-12-31".into(),
            host: HostLimits {
                cores: 4,
                last_level_cache_bytes: 32 << 20,
                copy: rates(8e9),
                stage: rates(11e9),
                read: rates(12e9),
                page_cache: rates(7e9),
                new_file: Some(1.5e9),
                direct_read: None,
            },
            devices: vec![device.clone(), DeviceLimits { id: "cuda:1".into(), ..device }],
            all_devices: Some(AggregateLimits {
                copy_in: 1e11,
                copy_out: 9e10,
                duplex: 1.8e11,
                two_in_one_out: 1.5e11,
            }),
            notes: vec!["a note".into()],
        }
    }

    #[test]
    fn soundness_is_that_of_every_value() {
        assert!(example().is_sound());
        for spoil in [
            |limits: &mut MachineLimits| limits.host.copy[1].bytes_per_second = 0.0,
            |limits: &mut MachineLimits| limits.host.direct_read = Some(f64::NAN),
            |limits: &mut MachineLimits| limits.devices[1].launch_seconds = -1.0,
            |limits: &mut MachineLimits| limits.devices[0].pin_driver = Some(0.0),
            |limits: &mut MachineLimits| limits.devices[0].duplex[2].bytes_per_second = f64::INFINITY,
            |limits: &mut MachineLimits| limits.devices[0].duplex.reverse(),
            |limits: &mut MachineLimits| limits.devices[0].copy_in.clear(),
            |limits: &mut MachineLimits| limits.host.page_cache[0].threads = 2,
        ] {
            let mut limits = example();
            spoil(&mut limits);
            assert!(!limits.is_sound(), "{limits:?}");
        }
    }
}
