//! The choice of devices for an engine.

use std::fmt;
use std::str::FromStr;

use super::emulated::{self, Emulated};
use super::visible::not_visible;
use super::{DeviceInfo, cpu};
use crate::error::{Error, Result, SettingError};

/// The devices that an engine uses. The text form is `auto`, `cpu`, `cuda`, `cuda:0`, `cuda:0,2`, `cpu+cuda`,
/// `emulated`, `emulated:SEED`, `emulated:SEED*3`, or `cpu+` and one of the last three.
///
/// ```
/// use overshot::{DeviceChoice, Engine};
/// let choice: DeviceChoice = "emulated:7*2".parse()?;
/// let engine = Engine::builder().device(choice).build()?;
/// let ids: Vec<&str> = engine.devices().iter().map(|device| device.id.as_str()).collect();
/// assert_eq!(ids, ["emulated:0", "emulated:1"]);
/// assert_eq!(DeviceChoice::CudaDevices(vec![0, 2]).to_string(), "cuda:0,2");
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum DeviceChoice {
    /// The CPU and all GPUs, if there are any. Overshot divides the rows among them as it measures their speed. The
    /// CPU runs a job alone if opening a GPU would take longer than the job, or if the cores are faster without GPUs.
    /// The report says what was done.
    #[default]
    Auto,
    /// The cores of this machine.
    Cpu,
    /// All CUDA GPUs that the process sees.
    Cuda,
    /// The CUDA GPUs with these numbers, each at most once. CUDA numbers the GPUs that `CUDA_VISIBLE_DEVICES` leaves
    /// visible.
    CudaDevices(Vec<usize>),
    /// The CPU and all CUDA GPUs, which share the rows of every job.
    CpuAndCuda,
    /// Emulated devices, each with its own size and speed. The text form creates equal devices with consecutive
    /// seeds.
    Emulated(Vec<Emulated>),
    /// The CPU and emulated devices, which share the rows of every job in virtual time. The result is the same in
    /// every run, as is the part of the rows that each device computes, if the number of workers is set.
    CpuAndEmulated(Vec<Emulated>),
}

impl DeviceChoice {
    /// Returns the options of the emulated devices; empty if there are none.
    pub(crate) fn emulated(&self) -> &[Emulated] {
        match self {
            DeviceChoice::Emulated(all) | DeviceChoice::CpuAndEmulated(all) => all,
            _ => &[],
        }
    }

    /// Returns the options of the emulated devices, to change them.
    pub(crate) fn emulated_mut(&mut self) -> &mut [Emulated] {
        match self {
            DeviceChoice::Emulated(all) | DeviceChoice::CpuAndEmulated(all) => all,
            _ => &mut [],
        }
    }

    /// Describes the chosen devices without opening them. Returns a note if a device is missing.
    pub(crate) fn resolve(&self) -> Result<(Vec<DeviceInfo>, Option<String>)> {
        match self {
            DeviceChoice::Cpu => Ok((vec![cpu::info()], None)),
            DeviceChoice::Emulated(all) => Ok((emulated_devices(all)?, None)),
            DeviceChoice::CpuAndEmulated(all) => Ok((with_cpu(emulated_devices(all)?), None)),
            DeviceChoice::Cuda => Ok((usable_cuda_devices()?, None)),
            DeviceChoice::CpuAndCuda => Ok((with_cpu(usable_cuda_devices()?), None)),
            DeviceChoice::CudaDevices(numbers) => {
                check_numbers(numbers)?;
                let devices = usable_cuda_devices()?;
                let chosen = numbers
                    .iter()
                    .map(|&number| devices.get(number).cloned().ok_or_else(|| not_visible(number, devices.len())));
                Ok((chosen.collect::<Result<_>>()?, None))
            }
            DeviceChoice::Auto => match usable_cuda_devices() {
                Ok(devices) => Ok((with_cpu(devices), None)),
                Err(error) => {
                    // The remedy is in the notes of `devices`.
                    let why = match error {
                        Error::Device { problem, .. } => problem,
                        error => error.to_string(),
                    };
                    Ok((vec![cpu::info()], Some(format!("no GPU: {why}; ran on the CPU"))))
                }
            },
        }
    }
}

/// Checks that at least one GPU is named, and each at most once.
fn check_numbers(numbers: &[usize]) -> Result<()> {
    if numbers.is_empty() {
        return Err(SettingError::NoGpuNamed.into());
    }
    match numbers.iter().enumerate().find(|(k, number)| numbers[..*k].contains(number)) {
        Some((_, number)) => Err(SettingError::GpuNamedTwice { device: format!("cuda:{number}") }.into()),
        None => Ok(()),
    }
}

/// Describes emulated devices, at least one.
fn emulated_devices(all: &[Emulated]) -> Result<Vec<DeviceInfo>> {
    if all.is_empty() {
        return Err(SettingError::NoEmulatedNamed.into());
    }
    Ok(emulated::named(all).map(|(id, options)| emulated::info(id, options)).collect())
}

/// Adds the CPU as the first device, because its workers can start at once.
fn with_cpu(mut devices: Vec<DeviceInfo>) -> Vec<DeviceInfo> {
    devices.insert(0, cpu::info());
    devices
}

/// Returns the newest CUDA version that the driver supports, such as `CUDA 13.0`; `None` if there is no driver.
pub(crate) fn driver_version() -> Option<String> {
    #[cfg(feature = "cuda")]
    return super::cuda::version().ok();
    #[cfg(not(feature = "cuda"))]
    None
}

/// Returns the CUDA devices, at least one.
#[cfg(feature = "cuda")]
fn cuda_devices() -> Result<Vec<DeviceInfo>> {
    super::cuda::devices()
}

#[cfg(feature = "cuda")]
fn check_cuda_compiler() -> Result<()> {
    super::cuda::check_compiler()
}

#[cfg(not(feature = "cuda"))]
fn check_cuda_compiler() -> Result<()> {
    Ok(())
}

/// Returns the CUDA devices, if kernels can be compiled for them.
fn usable_cuda_devices() -> Result<Vec<DeviceInfo>> {
    let devices = cuda_devices()?;
    check_cuda_compiler().map(|()| devices)
}

#[cfg(not(feature = "cuda"))]
fn cuda_devices() -> Result<Vec<DeviceInfo>> {
    Err(Error::Device {
        device: "cuda".into(),
        problem: "overshot was built without CUDA".into(),
        remedy: "build it with the feature 'cuda'".into(),
    })
}

#[cfg(feature = "cuda")]
fn look(devices: &mut [DeviceInfo]) -> Option<String> {
    super::cuda::look(devices)
}

#[cfg(not(feature = "cuda"))]
fn look(_: &mut [DeviceInfo]) -> Option<String> {
    None
}

/// Lists all devices of this machine with their [`details`](DeviceInfo::details), without creating a context on any
/// GPU. Also returns notes about what was not found, and why.
pub fn devices() -> (Vec<DeviceInfo>, Vec<String>) {
    let mut devices = vec![cpu::info(), emulated::info("emulated".into(), &Emulated::new())];
    match cuda_devices() {
        Ok(mut cuda) => {
            let note = look(&mut cuda);
            devices.extend(cuda);
            (devices, check_cuda_compiler().err().map(|error| error.to_string()).into_iter().chain(note).collect())
        }
        Err(error) => (devices, vec![error.to_string()]),
    }
}

/// The text forms, for error messages.
const TEXT_FORMS: &str = "auto, cpu, cuda, cuda:0, cuda:0,2, cpu+cuda, emulated, emulated:SEED, emulated:SEED*3, or \
                          cpu+emulated with or without a seed";

/// The text form does not accept more emulated devices than this, which are probably a mistake.
const MOST_EMULATED: u64 = 64;

impl From<Emulated> for DeviceChoice {
    /// Chooses this emulated device.
    fn from(device: Emulated) -> Self {
        DeviceChoice::Emulated(vec![device])
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cpu => f.write_str("cpu"),
            DeviceChoice::Cuda => f.write_str("cuda"),
            DeviceChoice::CpuAndCuda => f.write_str("cpu+cuda"),
            DeviceChoice::CudaDevices(numbers) => {
                let numbers: Vec<_> = numbers.iter().map(ToString::to_string).collect();
                write!(f, "cuda:{}", numbers.join(","))
            }
            DeviceChoice::Emulated(all) => fmt_emulated(f, all),
            DeviceChoice::CpuAndEmulated(all) => {
                f.write_str("cpu+")?;
                fmt_emulated(f, all)
            }
        }
    }
}

fn fmt_emulated(f: &mut fmt::Formatter<'_>, all: &[Emulated]) -> fmt::Result {
    match all {
        [] => f.write_str("emulated:0*0"),
        [one] => write!(f, "emulated:{}", one.seed),
        [first, ..] => write!(f, "emulated:{}*{}", first.seed, all.len()),
    }
}

impl FromStr for DeviceChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (kind, number) = match text.split_once(':') {
            Some((kind, number)) => (kind, Some(number)),
            None => (text, None),
        };
        let unknown = || Error::from(SettingError::UnknownDevice { text: text.into(), known: TEXT_FORMS });
        match (kind, number) {
            ("auto", None) => Ok(DeviceChoice::Auto),
            ("cpu", None) => Ok(DeviceChoice::Cpu),
            ("cuda", None) => Ok(DeviceChoice::Cuda),
            ("cpu+cuda", None) => Ok(DeviceChoice::CpuAndCuda),
            ("cuda", Some(numbers)) => {
                let numbers = numbers.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>();
                let numbers = numbers.map_err(|_| unknown())?;
                check_numbers(&numbers).map(|()| DeviceChoice::CudaDevices(numbers))
            }
            ("emulated", None) => Ok(Emulated::new().into()),
            ("cpu+emulated", None) => Ok(DeviceChoice::CpuAndEmulated(vec![Emulated::new()])),
            ("emulated" | "cpu+emulated", Some(seed)) => {
                let (seed, count) = seed.split_once('*').unwrap_or((seed, "1"));
                let (Ok(seed), Ok(count)) = (seed.parse::<u64>(), count.parse::<u64>()) else { return Err(unknown()) };
                if !(1..=MOST_EMULATED).contains(&count) {
                    return Err(unknown());
                }
                let devices = (0..count).map(|k| Emulated::new().seed(seed.wrapping_add(k))).collect();
                let beside_cpu = kind.starts_with("cpu+");
                Ok(if beside_cpu { DeviceChoice::CpuAndEmulated(devices) } else { DeviceChoice::Emulated(devices) })
            }
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let gpus = ["auto", "cpu", "cuda", "cuda:3", "cuda:2,0,1", "cpu+cuda"];
        for text in gpus.iter().chain(&["emulated:7", "emulated:7*3", "cpu+emulated:7", "cpu+emulated:7*3"]) {
            assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), *text);
        }
        for text in [
            "",
            "gpu",
            "cpu:1",
            "cuda:x",
            "cuda:",
            "cuda:0,",
            "cuda:0, 1",
            "cuda:-1",
            "emulated:-1",
            "emulated:1*0",
            "emulated:*3",
            "emulated:1*",
            "emulated:1*1000000000",
            "CUDA",
            "cpu+",
            "cpu+emulated:",
            "cpu+emulated:1*0",
        ] {
            assert!(text.parse::<DeviceChoice>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_gpu_is_named_once() {
        let error = "cuda:1,0,1".parse::<DeviceChoice>().unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("cuda:1 was named twice"), "{error}");
        for (choice, problem) in [
            (DeviceChoice::CudaDevices(vec![0, 0]), "twice"),
            (DeviceChoice::CudaDevices(vec![]), "no GPU"),
            (DeviceChoice::Emulated(vec![]), "no emulated device"),
        ] {
            let error = choice.resolve().unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn several_emulated_devices_have_ids_and_seeds_of_their_own() {
        let found = |text: &str| text.parse::<DeviceChoice>().unwrap().resolve().unwrap().0;
        assert_eq!(found("emulated:5")[0].id, "emulated");
        let three: Vec<_> = found("emulated:5*3").into_iter().map(|device| (device.id, device.name)).collect();
        let expected = [0, 1, 2].map(|k| (format!("emulated:{k}"), format!("emulated device, seed {}", 5 + k)));
        assert_eq!(three, expected);
    }
}
