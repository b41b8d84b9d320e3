//! The saved limits: one file for each machine, in the user's cache folder.
//!
//! The file name contains a hash of the key of the machine. GPUs are compared one by one, by number and name. So one
//! measurement with all GPUs serves jobs on any of them, and jobs without GPUs. Limits measured with other versions of
//! the kernel, the firmware or the driver are not used.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use super::versions::{self, Versions};
use super::{DeviceLimits, MachineLimits};
use crate::cache_folder::{self, Refused, cache_folder, fnv1a, write_whole};
use crate::device::{DeviceInfo, DeviceKind, cpu};
use crate::error::{Error, Result, SettingError};

/// Returns the key that identifies this machine and its memory.
pub(super) fn key() -> String {
    let info = cpu::info();
    let gib = (info.memory_bytes as f64 / f64::from(1 << 30)).round();
    format!("{}, {gib} GiB", info.name)
}

/// The most bytes of a file. The limits of hundreds of GPUs are smaller.
const MOST: u64 = 16 << 20;

/// What saved limits must fit.
struct Identity {
    key: String,
    versions: Versions,
    /// The version of the GPU driver; `None` if there is none, or if it does not matter.
    driver: Option<String>,
}

/// Why saved limits are not used.
#[derive(Debug)]
pub(super) enum Unusable {
    /// Others could have written the file, or it cannot be read.
    File(Refused),
    /// What changed since the measurement.
    Changed(Vec<String>),
}

impl From<Refused> for Unusable {
    fn from(refused: Refused) -> Self {
        Unusable::File(refused)
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::File(refused) => refused.fmt(f),
            Unusable::Changed(changes) => {
                write!(f, "{}; run 'overshot bench --limits' to measure them again", changes.join(", "))
            }
        }
    }
}

pub(super) fn load(devices: &[DeviceInfo]) -> Result<Option<MachineLimits>, Unusable> {
    let Some(folder) = cache_folder() else { return Ok(None) };
    let root = Path::new("/");
    // Queried only if the job uses a GPU; otherwise the driver should not be loaded.
    let gpus = devices.iter().any(|device| device.kind == DeviceKind::Cuda);
    let driver = if gpus { versions::driver(root) } else { None };
    load_from(&folder, &Identity { key: key(), versions: Versions::of(root), driver }, devices)
}

/// Returns the saved limits of this machine, whatever changed since.
pub(super) fn saved() -> Option<MachineLimits> {
    read(&cache_folder()?, &key()).ok().flatten()
}

pub(super) fn save(limits: &MachineLimits) -> Result<PathBuf> {
    let folder = cache_folder().ok_or(SettingError::NoCacheFolder)?;
    save_to(&folder, limits)
}

fn path(folder: &Path, key: &str) -> PathBuf {
    folder.join(format!("{:016x}.limits.json", fnv1a(&[key.as_bytes()])))
}

/// Returns the saved limits of a machine, if the file is valid.
fn read(folder: &Path, key: &str) -> Result<Option<MachineLimits>, Refused> {
    let path = path(folder, key);
    let Some(text) = cache_folder::read(&path, MOST)? else { return Ok(None) };
    let unusable = |why: &dyn std::fmt::Display| tracing::debug!(path = %path.display(), %why, "limits not loaded");
    let limits = serde_json::from_slice(&text).inspect_err(|error| unusable(error)).ok();
    let is_right =
        |limits: &MachineLimits| limits.version == MachineLimits::VERSION && limits.key == key && limits.is_sound();
    let right = limits.filter(is_right);
    if right.is_none() {
        unusable(&"another version, another machine, or damaged");
    }
    Ok(right)
}

fn load_from(folder: &Path, now: &Identity, devices: &[DeviceInfo]) -> Result<Option<MachineLimits>, Unusable> {
    let Some(mut limits) = read(folder, &now.key)? else { return Ok(None) };
    let measured = limits.devices.len();
    let mut chosen: Vec<DeviceLimits> = Vec::new();
    for device in devices.iter().filter(|device| device.kind != DeviceKind::Cpu) {
        let same = limits.devices.iter().find(|of| of.id == device.id && of.name == device.name);
        let Some(same) = same else {
            tracing::debug!(device = %device.id, "not measured on this machine");
            return Ok(None);
        };
        chosen.push(same.clone());
    }
    let mut changes = now.versions.changes_since(&limits.versions, !chosen.is_empty());
    let driver = now.driver.as_deref().unwrap_or("an unknown one");
    changes.extend(driver_changes(&chosen, |device| (device.driver != driver).then_some(driver)));
    if !changes.is_empty() {
        return Err(Unusable::Changed(changes));
    }
    limits.devices = chosen;
    // The aggregate limits of all GPUs do not apply to some of them.
    limits.all_devices = limits.all_devices.filter(|_| limits.devices.len() == measured);
    Ok(Some(limits))
}

/// Returns what changed between two measurements of a machine.
pub(super) fn changes(earlier: &MachineLimits, now: &MachineLimits) -> Vec<String> {
    let mut changes = now.versions.changes_since(&earlier.versions, !now.devices.is_empty());
    let other = |device: &DeviceLimits| {
        let same = now.devices.iter().find(|of| of.id == device.id)?;
        (same.driver != device.driver).then_some(&*same.driver)
    };
    changes.extend(driver_changes(&earlier.devices, other));
    changes
}

/// Returns how the driver changed, once for all GPUs with the same one. `other` returns another driver of a GPU.
fn driver_changes<'a>(devices: &[DeviceLimits], other: impl Fn(&DeviceLimits) -> Option<&'a str>) -> Vec<String> {
    let changes = devices.iter().filter_map(|of| Some(versions::change("the GPU driver", &of.driver, other(of)?)));
    let mut changes: Vec<_> = changes.collect();
    changes.sort();
    changes.dedup();
    changes
}

fn save_to(folder: &Path, limits: &MachineLimits) -> Result<PathBuf> {
    let path = path(folder, &limits.key);
    // Earlier limits that other users could have written are replaced, if the folder belongs to this user.
    let all = with_earlier(limits, read(folder, &limits.key).unwrap_or_default());
    let cannot = |problem: String| Error::File {
        path: path.clone(),
        problem: format!("cannot be written ({problem})"),
        remedy: "set OVERSHOT_CACHE to a writable folder".into(),
        cause: None,
    };
    let text = serde_json::to_vec_pretty(&all).map_err(|error| cannot(error.to_string()))?;
    write_whole(&path, &text).map_err(|refused| cannot(refused.to_string()))?;
    Ok(path)
}

/// Returns the limits, with the GPUs that are only in an earlier measurement added, unless the versions changed since.
fn with_earlier(limits: &MachineLimits, earlier: Option<MachineLimits>) -> MachineLimits {
    let mut all = limits.clone();
    let fitting = |earlier: &MachineLimits| limits.versions.changes_since(&earlier.versions, true).is_empty();
    let Some(earlier) = earlier.filter(fitting) else { return all };
    let measured: HashSet<_> = limits.devices.iter().map(|device| device.id.as_str()).collect();
    all.devices.extend(earlier.devices.iter().filter(|device| !measured.contains(device.id.as_str())).cloned());
    all.devices.sort_by(|a, b| (a.id.len(), &a.id).cmp(&(b.id.len(), &b.id)));
    let name = |all: &MachineLimits| -> Vec<_> {
        all.devices.iter().map(|device| [device.id.clone(), device.name.clone(), device.driver.clone()]).collect()
    };
    if name(&all) == name(&earlier) {
        all.all_devices = all.all_devices.or(earlier.all_devices);
    } else if all.devices.len() != limits.devices.len() {
        all.all_devices = None;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::tests::example;

    fn identity() -> Identity {
        let MachineLimits { key, versions, mut devices, .. } = example();
        Identity { key, versions, driver: devices.pop().map(|device| device.driver) }
    }

    fn cpu() -> DeviceInfo {
        cpu::info()
    }

    fn gpu(number: usize) -> DeviceInfo {
        let (id, name) = (format!("cuda:{number}"), "NVIDIA Test".into());
        DeviceInfo {
            id,
            name,
            kind: DeviceKind::Cuda,
            memory_bytes: 1 << 30,
            compute_capability: None,
            details: Default::default(),
        }
    }

    fn load(folder: &Path, devices: &[DeviceInfo]) -> Option<MachineLimits> {
        load_from(folder, &identity(), devices).unwrap()
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("not/yet");
        assert_eq!(load(&folder, &[gpu(0)]), None);
        let path = save_to(&folder, &example()).unwrap();
        assert_eq!(path.parent(), Some(&*folder));
        assert_eq!(load(&folder, &[gpu(0), gpu(1)]), Some(example()));
    }

    #[test]
    fn it_serves_some_of_the_devices_and_none() {
        let folder = tempfile::tempdir().unwrap();
        save_to(folder.path(), &example()).unwrap();
        let one = load(folder.path(), &[gpu(1)]).unwrap();
        assert_eq!(one.devices, [example().devices[1].clone()]);
        assert_eq!((one.all_devices, &one.host), (None, &example().host));
        assert_eq!(load(folder.path(), &[cpu()]).unwrap().devices, []);
    }

    #[test]
    fn other_machines_and_devices_have_none() {
        let folder = tempfile::tempdir().unwrap();
        save_to(folder.path(), &example()).unwrap();
        let load = |key: &str, device: DeviceInfo| {
            load_from(folder.path(), &Identity { key: key.into(), ..identity() }, &[device]).unwrap()
        };
        let key = &example().key;
        assert!(load(key, gpu(0)).is_some());
        assert!(load("another", gpu(0)).is_none());
        assert!(load(key, gpu(2)).is_none());
        assert!(load(key, DeviceInfo { name: "Other".into(), ..gpu(0) }).is_none());
        // A file that was renamed to the name of another machine's file.
        std::fs::copy(path(folder.path(), key), path(folder.path(), "another")).unwrap();
        assert!(load("another", gpu(0)).is_none());
    }

    #[test]
    fn limits_from_before_a_change_are_not_used_and_the_change_is_told() {
        let folder = tempfile::tempdir().unwrap();
        save_to(folder.path(), &example()).unwrap();
        let load = |now: &Identity, devices: &[DeviceInfo]| {
            load_from(folder.path(), now, devices).map_err(|unusable| unusable.to_string())
        };
        let remedy = "run 'overshot bench --limits' to measure them again";

        let driver = Identity { driver: Some("580.200.01".into()), ..identity() };
        let why = load(&driver, &[gpu(0), gpu(1)]).unwrap_err();
        assert_eq!(why, format!("the GPU driver changed from 580.159.04 to 580.200.01; {remedy}"));
        // A job without GPUs does not depend on it, and does not ask for it.
        assert!(load(&Identity { driver: None, ..driver }, &[cpu()]).unwrap().is_some());

        let mut versions = identity();
        versions.versions.kernel = Some("6.8.0-52".into());
        versions.versions.firmware = Some("1.5".into());
        let why = load(&versions, &[cpu()]).unwrap_err();
        let kernel = "the kernel changed from 6.8.0-51 to 6.8.0-52";
        let firmware = "the firmware of the system changed from 1.4 (05/06/2026) to 1.5";
        assert_eq!(why, format!("{kernel}, {firmware}; {remedy}"));

        let mut bios = identity();
        bios.versions.gpu_firmware.values_mut().for_each(|version| *version = "97".into());
        assert!(load(&bios, &[gpu(1)]).unwrap_err().contains("the Video BIOS of 0000:1b:00.0 changed"));
        assert!(load(&bios, &[cpu()]).unwrap().is_some());
    }

    #[test]
    fn two_measurements_are_compared() {
        let mut now = example();
        assert_eq!(changes(&example(), &now), [""; 0]);
        now.versions.kernel = Some("6.8.0-52".into());
        now.devices.iter_mut().for_each(|device| device.driver = "580.200.01".into());
        let expected =
            ["the kernel changed from 6.8.0-51 to 6.8.0-52", "the GPU driver changed from 580.159.04 to 580.200.01"];
        assert_eq!(changes(&example(), &now), expected);
    }

    #[test]
    fn devices_measured_before_a_change_do_not_stay() {
        let folder = tempfile::tempdir().unwrap();
        save_to(folder.path(), &example()).unwrap();
        let mut now = example();
        now.versions.kernel = Some("6.8.0-52".into());
        now.devices.truncate(1);
        save_to(folder.path(), &now).unwrap();
        let all = read(folder.path(), &example().key).unwrap().unwrap();
        assert_eq!((all.versions, all.devices.len(), all.all_devices), (now.versions, 1, now.all_devices));
    }

    #[test]
    fn damage_is_noticed_and_mended() {
        let folder = tempfile::tempdir().unwrap();
        let path = save_to(folder.path(), &example()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let damaged = [
            String::new(),
            text[..text.len() / 2].to_owned(),
            text.replace(&format!("\"version\": {}", MachineLimits::VERSION), "\"version\": 1"),
            text.replace("\"bytes_per_second\": 5", "\"bytes_per_second\": -5"),
            text.replace("copy_out", "copy_over"),
        ];
        for damaged in damaged {
            assert_ne!(damaged, text);
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(load(folder.path(), &[cpu()]), None);
            save_to(folder.path(), &example()).unwrap();
            assert_eq!(load(folder.path(), &[gpu(0), gpu(1)]), Some(example()));
        }
    }

    #[test]
    fn devices_that_were_not_measured_again_stay() {
        let folder = tempfile::tempdir().unwrap();
        save_to(folder.path(), &example()).unwrap();
        let mut only = example();
        only.date = "2027-01-01".into();
        only.devices.truncate(1);
        only.devices[0].pin.bytes_per_second = 7e9;
        only.all_devices = None;
        save_to(folder.path(), &only).unwrap();
        let all = load(folder.path(), &[gpu(0), gpu(1)]).unwrap();
        assert_eq!((all.devices[0].pin.bytes_per_second, &all.devices[1]), (7e9, &example().devices[1]));
        assert_eq!((all.date.as_str(), &all.all_devices), ("2027-01-01", &example().all_devices));
        // With a third GPU, the aggregate limits of the two are not those of all.
        let mut third = only.clone();
        third.devices[0].id = "cuda:10".into();
        save_to(folder.path(), &third).unwrap();
        let all = read(folder.path(), &example().key).unwrap().unwrap();
        let ids: Vec<_> = all.devices.iter().map(|device| device.id.as_str()).collect();
        assert_eq!((&ids[..], all.all_devices), (&["cuda:0", "cuda:1", "cuda:10"][..], None));
    }

    #[test]
    fn limits_that_others_could_have_written_are_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = save_to(folder.path(), &example()).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        let refused = load_from(folder.path(), &identity(), &[gpu(0)]).unwrap_err().to_string();
        assert!(refused.contains("others may write"), "{refused}");
        save_to(folder.path(), &example()).unwrap();
        assert!(load(folder.path(), &[gpu(0)]).is_some());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error_that_helps() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = save_to(&file.path().join("below-a-file"), &example()).unwrap_err().to_string();
        assert!(error.contains("below-a-file") && error.contains("OVERSHOT_CACHE"), "{error}");
    }
}
