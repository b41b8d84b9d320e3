//! How fast this machine is: measured once by `overshot bench --limits`, kept for the user, so that plans and reports can be
//! held against it.
//!
//! | | |
//! | --- | --- |
//! | `rates.rs` | rates by size and by threads, and what follows from them (pure) |
//! | `measure.rs`, `host.rs`, `disk.rs`, `device.rs` | the measurements, by what they measure |
//! | `team.rs`, `link.rs`, `kernel.rs` | what they measure with: threads, copies to and from a device, a kernel |
//! | `store.rs`, `show.rs` | where the result is kept; how it is printed |

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

/// How fast a machine is. Rates are in bytes per second, times in seconds. `Display` is for people.
///
/// All are the best of a few short runs on a machine that may have had other work: what can be reached, not what is
/// always there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MachineLimits {
    /// The version of this format.
    pub version: u32,
    /// The machine and its memory: CPU model, cores, memory rounded to GiB. The devices say themselves what they are.
    pub key: String,
    /// When it was measured: the day in UTC, as `2026-12-31`.
    pub date: String,
    /// Memory, files, disk.
    pub host: HostLimits,
    /// Each GPU by itself.
    pub devices: Vec<DeviceLimits>,
    /// All GPUs at the same time; `None` for fewer than two.
    pub all_devices: Option<AggregateLimits>,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
}

/// Memory, files and disk. Lists by threads go from 1 in powers of two to the number of cores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HostLimits {
    /// Cores that the process may use.
    pub cores: usize,
    /// Bytes of the last cache before memory that one core uses; 0 if unknown.
    pub last_level_cache_bytes: u64,
    /// Copying from ordinary memory to ordinary memory, by threads: bytes copied, so half of what memory moves.
    pub copy: Vec<RateByThreads>,
    /// Copying from ordinary memory to a few slots of 2 MiB that stay in the cache, by threads: what the filling of slots
    /// reaches.
    pub stage: Vec<RateByThreads>,
    /// ReadMode ordinary memory (summing words), by threads.
    pub read: Vec<RateByThreads>,
    /// Copying from a new mapping of a file that the system has in memory, to slots as in `stage`, by threads. Empty if no
    /// file could be made.
    pub page_cache: Vec<RateByThreads>,
    /// Copying from ordinary memory to the mapping of a new file whose space is set aside, with as many threads as are
    /// best at it. `None` if no such file could be made.
    pub new_file: Option<f64>,
    /// ReadMode a file past the system's cache (`O_DIRECT`), in pieces of 512 KiB by several threads. `None` if the file
    /// system of the folder does not permit that or is none of a disk.
    pub direct_read: Option<f64>,
}

/// One GPU and its link, with pinned memory. Lists by size are of copies from 64 KiB to 64 MiB, many in a row on one
/// stream for each direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// As `--device` names it.
    pub id: String,
    /// As its maker names it.
    pub name: String,
    /// The driver: the newest CUDA that it knows, as `CUDA 13.0`.
    pub driver: String,
    /// Copies to the device.
    pub copy_in: Vec<RateBySize>,
    /// Copies from the device.
    pub copy_out: Vec<RateBySize>,
    /// As many copies in as out, both at once: bytes in and out together.
    pub duplex: Vec<RateBySize>,
    /// Two copies in for one out, as in `c = a * b`: bytes in and out together.
    pub two_in_one_out: Vec<RateBySize>,
    /// Making host memory that is resident known to the device.
    pub pin: f64,
    /// Taking new pinned memory, as [`Engine::pinned`](crate::Engine::pinned) does, and giving it back.
    pub pin_new: f64,
    /// Taking new pinned memory of the driver, and giving it back; `None` if it has none.
    pub pin_driver: Option<f64>,
    /// The device's memory: bytes that a kernel reads and writes, together.
    pub memory: f64,
    /// Seconds for each of many launches of a small kernel in a row.
    pub launch_seconds: f64,
}

/// All GPUs at the same time, at the best size of a copy: bytes of all of them together per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AggregateLimits {
    /// Copies to the devices.
    pub copy_in: f64,
    /// Copies from the devices.
    pub copy_out: f64,
    /// As many copies in as out, both at once: bytes in and out together.
    pub duplex: f64,
    /// Two copies in for one out: bytes in and out together.
    pub two_in_one_out: f64,
}

impl MachineLimits {
    /// The version of the format that this build reads and writes.
    pub const VERSION: u32 = 3;

    /// Measures the machine and the devices chosen: a few seconds, and a few more for each GPU. Files for it are made in
    /// `folder`, without a name, so that nothing can be left of them. `progress` is told what comes next.
    ///
    /// It takes at most 512 MiB of memory and 256 MiB of pinned and of device memory (if there are several GPUs, 128 MiB of
    /// pinned memory for each), and less where an eighth of the free memory is less.
    ///
    /// # Errors
    /// [`Error::Job`](crate::Error::Job) for an emulated device, whose time is virtual;
    /// [`Error::File`](crate::Error::File) if there is no such folder; [`Error::Device`](crate::Error::Device) if a
    /// device is not there or fails. What the folder's file system cannot do is a note, not an error.
    pub fn measure(choice: &DeviceChoice, folder: &Path, progress: impl FnMut(&str)) -> Result<MachineLimits> {
        measure::machine(choice, folder, progress)
    }

    /// What was measured on this machine for these devices, if it was: with all of them, and with no others. A file that other users
    /// could have written is not used.
    pub fn load(devices: &[DeviceInfo]) -> Option<MachineLimits> {
        Self::load_or_note(devices).0
    }

    /// The same, and what a report should say of it.
    pub(crate) fn load_or_note(devices: &[DeviceInfo]) -> (Option<MachineLimits>, Option<String>) {
        match store::load(devices) {
            Ok(limits) => (limits, None),
            Err(refused) => (None, Some(format!("the measured limits of this machine are not used: {refused}"))),
        }
    }

    /// Keeps it for this user, and returns where. GPUs that were measured before and were not now stay as they are.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) if it cannot be written; [`Error::Job`](crate::Error::Job) if there is nowhere
    /// to keep it: `OVERSHOT_CACHE` is empty, or there is no home.
    pub fn save(&self) -> Result<PathBuf> {
        store::save(self)
    }

    /// Whether all that was measured makes sense.
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

    /// Limits with a value of its own in every place.
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
