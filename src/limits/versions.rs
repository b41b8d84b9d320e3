//! The software that the rates depend on: kernel, firmware and driver. A machine may be faster or slower after an
//! update of any of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::device::driver_version;

/// The versions of the software that the rates depend on, as far as the system tells them. The driver of GPUs is in
/// [`DeviceLimits`](super::DeviceLimits).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Versions {
    /// The release of the kernel, as `uname -r` prints it.
    pub kernel: Option<String>,
    /// The version and the date of the system's firmware (BIOS). Virtual machines may have none.
    pub firmware: Option<String>,
    /// The versions of the firmware of GPUs, such as `Video BIOS of 0000:1b:00.0`, with the PCI address of the GPU.
    pub gpu_firmware: BTreeMap<String, String>,
}

impl Versions {
    /// Returns the versions of this machine. `root` is the folder that contains `proc` and `sys`: `/`, except in tests.
    pub(super) fn of(root: &Path) -> Versions {
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        let bios = |name: &str| text(&root.join("sys/class/dmi/id").join(name));
        let firmware = bios("bios_version").map(|version| match bios("bios_date") {
            Some(date) => format!("{version} ({date})"),
            None => version,
        });
        Versions { kernel: Some(kernel).filter(|kernel| !kernel.is_empty()), firmware, gpu_firmware: of_gpus(root) }
    }

    /// Tells what changed since `earlier`. What is unknown on either side did not change: a container may hide it. The
    /// firmware of GPUs counts only if the limits of GPUs do.
    pub(super) fn changes_since(&self, earlier: &Versions, with_gpus: bool) -> Vec<String> {
        let mut changes = Vec::new();
        let mut compare = |what: &str, from: Option<&String>, to: Option<&String>| {
            if let Some((from, to)) = from.zip(to).filter(|(from, to)| from != to) {
                changes.push(change(what, from, to));
            }
        };
        compare("the kernel", earlier.kernel.as_ref(), self.kernel.as_ref());
        compare("the firmware of the system", earlier.firmware.as_ref(), self.firmware.as_ref());
        for (name, version) in self.gpu_firmware.iter().filter(|_| with_gpus) {
            compare(&format!("the {name}"), earlier.gpu_firmware.get(name), Some(version));
        }
        changes
    }
}

/// Describes a change.
pub(super) fn change(what: &str, from: &str, to: &str) -> String {
    format!("{what} changed from {from} to {to}")
}

/// Returns the version of the GPU driver, if there is one. `root` is as in [`Versions::of`].
pub(super) fn driver(root: &Path) -> Option<String> {
    // The CUDA version, which the driver itself tells, is the same for many versions of the driver.
    let of_module = text(&root.join("proc/driver/nvidia/version")).and_then(|text| module_version(&text));
    of_module.or_else(driver_version)
}

/// Returns the version in a text such as `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue …`.
fn module_version(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        let mut parts = word.split('.');
        word.contains('.') && parts.all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

/// Returns the firmware of all GPUs that the driver tells.
fn of_gpus(root: &Path) -> BTreeMap<String, String> {
    let Ok(gpus) = root.join("proc/driver/nvidia/gpus").read_dir() else { return BTreeMap::new() };
    let mut all = BTreeMap::new();
    for gpu in gpus.flatten() {
        let address = gpu.file_name().to_string_lossy().into_owned();
        let information = text(&gpu.path().join("information")).unwrap_or_default();
        for (name, version) in information.lines().filter_map(|line| line.split_once(':')) {
            let (name, version) = (name.trim(), version.trim());
            // A GPU that nobody has used since the driver was loaded has question marks.
            let is_known = !version.is_empty() && version != "N/A" && !version.contains('?');
            if is_known && ["Video BIOS", "GPU Firmware"].contains(&name) {
                all.insert(format!("{name} of {address}"), version.to_owned());
            }
        }
    }
    all
}

/// Returns the text of a file, trimmed; `None` if there is none, or it is empty.
fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with files as a machine has below `/`.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const INFORMATION: &str = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 100\nVideo BIOS: \t 96.00.a5.00.03\n\
                               Bus Location: \t 0000:1b:00.0\nGPU Firmware: \t 580.159.04\nGPU Excluded:\t No\n";

    #[test]
    fn versions_are_read() {
        let root = machine(&[
            ("sys/class/dmi/id/bios_version", "2.5.4\n"),
            ("sys/class/dmi/id/bios_date", "08/21/2026\n"),
            ("proc/driver/nvidia/gpus/0000:1b:00.0/information", INFORMATION),
            (
                "proc/driver/nvidia/gpus/0000:3c:00.0/information",
                "Video BIOS: \t ??.??.??.??.??\nGPU Firmware: \t N/A\n",
            ),
        ]);
        let versions = Versions::of(root.path());
        assert_eq!(versions.firmware.as_deref(), Some("2.5.4 (08/21/2026)"));
        let gpus: Vec<_> = versions.gpu_firmware.iter().map(|(name, version)| (&**name, &**version)).collect();
        let expected =
            [("GPU Firmware of 0000:1b:00.0", "580.159.04"), ("Video BIOS of 0000:1b:00.0", "96.00.a5.00.03")];
        assert_eq!(gpus, expected);
        let nothing = Versions::of(machine(&[]).path());
        assert_eq!((nothing.firmware, nothing.gpu_firmware.len()), (None, 0));
    }

    #[test]
    fn the_driver_is_that_of_the_module() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Aug  5 21:23:22 UTC 2026\n\
                      GCC version:  gcc version 13.3.0 (Ubuntu)\n";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder)";
        for (text, version) in [(closed, Some("580.159.04")), (open, Some("570.86.15")), ("NVRM version: none", None)] {
            assert_eq!(module_version(text).as_deref(), version, "{text}");
        }
        let root = machine(&[("proc/driver/nvidia/version", closed)]);
        assert_eq!(driver(root.path()).as_deref(), Some("580.159.04"));
        // Without the file it is what the driver tells, which this machine may not have.
        assert_eq!(driver(machine(&[]).path()), driver_version());
    }

    #[test]
    fn changes_are_told() {
        let earlier = super::super::tests::example().versions;
        let changes = |change: fn(&mut Versions), with_gpus| {
            let mut now = earlier.clone();
            change(&mut now);
            now.changes_since(&earlier, with_gpus)
        };
        assert_eq!(changes(|_| {}, true), [""; 0]);
        assert_eq!(
            changes(|now| now.kernel = Some("6.8.0-52".into()), false),
            ["the kernel changed from 6.8.0-51 to 6.8.0-52"]
        );
        assert_eq!(
            changes(|now| now.firmware = Some("1.5".into()), false),
            ["the firmware of the system changed from 1.4 (05/06/2026) to 1.5"]
        );
        let gpu = |now: &mut Versions| {
            now.gpu_firmware.values_mut().for_each(|version| *version = "97".into());
            now.gpu_firmware.insert("Video BIOS of 0000:3c:00.0".into(), "97".into());
        };
        assert_eq!(changes(gpu, true), ["the Video BIOS of 0000:1b:00.0 changed from 96.00.A5.00.03 to 97"]);
        assert_eq!(changes(gpu, false), [""; 0]);
        assert_eq!(changes(|now| *now = Versions::default(), true), [""; 0]);
    }
}
