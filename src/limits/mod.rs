//! Calibration: the measured limits of this machine. `overshot bench --limits` measures them once and saves them for
//! the user; plans and reports are based on them.
//!
//! | | |
//! | --- | --- |
//! | `rates.rs` | rates, by size and by threads, and interpolation between them (pure) |
//! | `measure.rs`, `host.rs`, `disk.rs`, `device.rs` | the measurements, by subject |
//! | `team.rs`, `link.rs`, `kernel.rs` | the tools: threads, copies to and from a device, a kernel |
//! | `versions.rs`, `store.rs` | what the rates depend on besides the machine; the saved file |
//! | `show.rs` | the printed form |

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
mod versions;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::device::{DeviceChoice, DeviceInfo};
use crate::error::Result;
#[cfg(feature = "testing")]
pub(crate) use disk::bare_direct_read;
pub(crate) use kernel::copy_kernel;
#[cfg(feature = "testing")]
pub(crate) use kernel::rebuild;
pub use rates::{Rate, RateBySize, RateByThreads};
pub use versions::Versions;

/// The measured limits of a machine. Rates are in bytes per second, times in seconds. `Display` is for people.
///
/// Every value is the best of several runs, on a machine that may have had other work. It is an upper bound for jobs,
/// which is not always reached. Each rate has its spread over the runs.
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
    /// The software that the rates depend on.
    pub versions: Versions,
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

/// The limits of memory, files and disk. Lists are by threads; unless stated otherwise, they start at 1 and go in
/// powers of two up to the number of cores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HostLimits {
    /// Cores that the process may use.
    pub cores: usize,
    /// Bytes of the last-level cache, as seen by one core; 0 if unknown.
    pub last_level_cache_bytes: u64,
    /// Copying from pageable memory to pageable memory, past the cache. Counts the bytes copied, which are half of the
    /// bytes that memory moves.
    pub copy: Vec<RateByThreads>,
    /// Reading two arrays in pageable memory and writing a third one past the cache, as in `c = a * b` on the CPU.
    /// Counts all bytes read and written.
    pub two_in_one_out: Vec<RateByThreads>,
    /// Copying from pageable memory to a few slots of 2 MiB that stay in the cache: the limit of filling slots. Counts
    /// the bytes copied.
    pub stage: Vec<RateByThreads>,
    /// Copying from such slots to pageable memory, past the cache: the limit of draining slots. Counts the bytes
    /// copied.
    pub drain: Vec<RateByThreads>,
    /// Reading pageable memory (summing words). Counts the bytes read.
    pub read: Vec<RateByThreads>,
    /// Copying from a new mapping of a file in the page cache to slots as in `stage`. Counts the bytes copied. Empty if
    /// no file could be created.
    pub page_cache: Vec<RateByThreads>,
    /// Copying from the first-level cache to the mapping of one new, preallocated file, whose pages this creates.
    /// Counts the bytes copied. Few threads may be faster than many. Empty if no such file could be created.
    pub new_file: Vec<RateByThreads>,
    /// Reading a file without the page cache (`O_DIRECT`), in pieces of 512 KiB by 4, 16 and 64 threads. Counts the
    /// bytes read. Empty if the file system of the folder does not permit it or is not on a disk.
    pub direct_read: Vec<RateByThreads>,
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
    /// The version of the driver, such as `580.159.04`; if the system does not tell it, the newest CUDA version that
    /// the driver supports, such as `CUDA 13.0`.
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
    pub pin: Rate,
    /// Allocating pinned memory as [`Engine::pinned`](crate::Engine::pinned) does, and freeing it.
    pub pin_new: Rate,
    /// Allocating pinned memory with the driver's allocator, and freeing it; `None` if there is no such allocator.
    pub pin_driver: Option<Rate>,
    /// Bandwidth of the device memory: bytes that a kernel reads and writes, together.
    pub memory: Rate,
    /// Seconds per launch, for many launches of a small kernel in a row.
    pub launch_seconds: f64,
}

/// The limits of all GPUs at the same time, with the fastest copy size: bytes of all GPUs together per second, while
/// every link is busy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AggregateLimits {
    /// Copies to the devices.
    pub copy_in: Rate,
    /// Copies from the devices.
    pub copy_out: Rate,
    /// Equally many copies in and out at the same time: bytes of both directions together.
    pub duplex: Rate,
    /// Two copies in for each copy out: bytes of both directions together.
    pub two_in_one_out: Rate,
}

impl MachineLimits {
    /// The version of the format and of the measurements that this build reads and writes.
    pub const VERSION: u32 = 5;

    /// Measures the machine and the chosen devices. This takes a few seconds, and a few more for each GPU. Temporary
    /// files are created in `folder` without a name, so that they cannot be left behind. `progress` is called with
    /// the name of each step before it starts.
    ///
    /// The measurement uses at most 512 MiB of memory, or four times the last-level cache if this is more, and 256 MiB
    /// each of pinned and of device memory (with several GPUs, 128 MiB of pinned memory for each); less if an eighth
    /// of the free memory is less.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`](crate::Error::InvalidSetting) for an emulated device, whose time is virtual;
    /// [`Error::File`](crate::Error::File) if the folder does not exist; [`Error::Device`](crate::Error::Device) if a
    /// device is missing or fails. If the file system of the folder does not support a measurement, the result has a
    /// note and there is no error.
    pub fn measure(choice: &DeviceChoice, folder: &Path, progress: impl FnMut(&str)) -> Result<MachineLimits> {
        measure::machine(choice, folder, progress)
    }

    /// Loads the saved limits of this machine with exactly these GPUs; `None` if there are none. Limits that were
    /// measured with another kernel, firmware or driver are not used, and neither is a file that other users could have
    /// written.
    pub fn load(devices: &[DeviceInfo]) -> Option<MachineLimits> {
        Self::load_or_note(devices).0
    }

    /// As [`load`](Self::load), with a note for the report if there are limits that are not used.
    pub(crate) fn load_or_note(devices: &[DeviceInfo]) -> (Option<MachineLimits>, Option<String>) {
        match store::load(devices) {
            Ok(limits) => (limits, None),
            Err(unusable) => (None, Some(format!("the measured limits of this machine are not used: {unusable}"))),
        }
    }

    /// Loads the saved limits of this machine, whatever changed since, with all GPUs that were measured.
    pub fn saved() -> Option<MachineLimits> {
        store::saved()
    }

    /// Tells which of the kernel, the firmware and the driver of GPUs changed between an earlier measurement and this
    /// one, such as `the kernel changed from 6.8.0-51 to 6.8.0-52`.
    pub fn changes_since(&self, earlier: &MachineLimits) -> Vec<String> {
        store::changes(earlier, self)
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
        let host = &self.host;
        let by_threads = [
            &host.copy,
            &host.two_in_one_out,
            &host.stage,
            &host.drain,
            &host.read,
            &host.page_cache,
            &host.new_file,
            &host.direct_read,
        ];
        let by_size = |device: &DeviceLimits| {
            let DeviceLimits { copy_in, copy_out, duplex, two_in_one_out, .. } = device;
            let lists = [copy_in, copy_out, duplex, two_in_one_out];
            lists.iter().all(|list| !list.is_empty() && list.is_sorted_by(|a, b| a.bytes < b.bytes))
        };
        let ascending = by_threads.iter().all(|list| list.is_sorted_by(|a, b| a.threads < b.threads))
            && self.devices.iter().all(by_size);

        let of_host = by_threads.into_iter().flatten().map(RateByThreads::rate);
        let of_devices = self.devices.iter().flat_map(|device| {
            let DeviceLimits { copy_in, copy_out, duplex, two_in_one_out, .. } = device;
            let sizes = [copy_in, copy_out, duplex, two_in_one_out].into_iter().flatten().map(RateBySize::rate);
            sizes.chain([device.pin, device.pin_new, device.memory]).chain(device.pin_driver)
        });
        let of_all = self.all_devices.iter();
        let of_all = of_all.flat_map(|all| [all.copy_in, all.copy_out, all.duplex, all.two_in_one_out]);
        let is_positive = |value: f64| value.is_finite() && value > 0.0;
        let mut rates = of_host.chain(of_devices).chain(of_all);
        ascending
            && self.devices.iter().all(|device| is_positive(device.launch_seconds))
            && rates.all(|rate| is_positive(rate.bytes_per_second) && (0.0..=1.0).contains(&rate.spread))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Limits in which every field has a different value.
    pub(crate) fn example() -> MachineLimits {
        let one = |bytes_per_second: f64, spread: f64| Rate { bytes_per_second, spread };
        let rates = |first: f64| {
            let spread = |threads| if threads == 4 { 0.125 } else { 0.03125 };
            let rate = |threads| RateByThreads::new(threads, one(first * threads as f64, spread(threads)));
            [1, 2, 4].map(rate).to_vec()
        };
        let sizes = |most: f64| {
            let sizes = [64 << 10, 1 << 20, 64 << 20];
            // Whole numbers, which come back from JSON as they were to the last bit.
            let rate = |bytes: u64| (most * bytes as f64 / (bytes as f64 + 1e5)).round();
            sizes.map(|bytes| RateBySize::new(bytes, one(rate(bytes), 0.0625))).to_vec()
        };
        let device = DeviceLimits {
            id: "cuda:0".into(),
            name: "NVIDIA Test".into(),
            driver: "580.159.04".into(),
            copy_in: sizes(55e9),
            copy_out: sizes(52e9),
            duplex: sizes(95e9),
            two_in_one_out: sizes(80e9),
            pin: one(5e9, 0.25),
            pin_new: one(3e9, 0.0),
            pin_driver: Some(one(1e9, 0.0)),
            memory: one(4e12, 0.015625),
            launch_seconds: 2.5e-6,
        };
        MachineLimits {
            version: MachineLimits::VERSION,
            key: "Test CPU, 4 cores, 24 GiB".into(),
            versions: Versions {
                kernel: Some("6.8.0-51".into()),
                firmware: Some("1.4 (05/06/2026)".into()),
                gpu_firmware: [("Video BIOS of 0000:1b:00.0".into(), "96.00.A5.00.03".into())].into(),
            },
            date: "2026-12-31".into(),
            host: HostLimits {
                cores: 4,
                last_level_cache_bytes: 32 << 20,
                copy: rates(8e9),
                two_in_one_out: rates(13e9),
                stage: rates(11e9),
                drain: rates(9e9),
                read: rates(12e9),
                page_cache: rates(7e9),
                new_file: rates(0.375e9),
                direct_read: vec![],
            },
            devices: vec![device.clone(), DeviceLimits { id: "cuda:1".into(), ..device }],
            all_devices: Some(AggregateLimits {
                copy_in: one(1e11, 0.0),
                copy_out: one(9e10, 0.5),
                duplex: one(1.8e11, 0.0),
                two_in_one_out: one(1.5e11, 0.0),
            }),
            notes: vec!["a note".into()],
        }
    }

    #[test]
    fn soundness_is_that_of_every_value() {
        assert!(example().is_sound());
        for spoil in [
            |limits: &mut MachineLimits| limits.host.copy[1].bytes_per_second = 0.0,
            |limits: &mut MachineLimits| limits.host.new_file[0].bytes_per_second = f64::NAN,
            |limits: &mut MachineLimits| limits.devices[1].launch_seconds = -1.0,
            |limits: &mut MachineLimits| limits.host.drain[0].spread = -0.1,
            |limits: &mut MachineLimits| limits.devices[0].pin_driver = Some(Rate::of_runs(&[])),
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
