//! Which devices an engine uses.

use std::fmt;
use std::str::FromStr;

use super::emulated::{self, Emulated};
use super::{DeviceInfo, cpu};
use crate::error::{Error, Result};

/// Which devices an engine uses. As text: `auto`, `cpu`, `cuda`, `cuda:0`, `cpu+cuda`, `emulated`,
/// `emulated:SEED`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum DeviceChoice {
    /// The CPU and all GPUs if there are any, which share the rows as fits them best: a job for which opening a GPU takes
    /// longer than the work, or which the cores do better by themselves, is the CPU's. The report says what happened.
    #[default]
    Auto,
    /// The cores of this machine.
    Cpu,
    /// All CUDA GPUs.
    Cuda,
    /// The CUDA GPU of this number.
    CudaDevice(usize),
    /// The CPU and all CUDA GPUs, which share the rows of every job.
    CpuAndCuda,
    /// An emulated device.
    Emulated(Emulated),
}

impl DeviceChoice {
    /// The devices chosen, as they look without touching them, and a note if something was not there.
    pub(crate) fn resolve(&self) -> Result<(Vec<DeviceInfo>, Option<String>)> {
        match self {
            DeviceChoice::Cpu => Ok((vec![cpu::info()], None)),
            DeviceChoice::Emulated(options) => Ok((vec![emulated::info(options)], None)),
            DeviceChoice::Cuda => Ok((usable_cuda_devices()?, None)),
            DeviceChoice::CpuAndCuda => Ok((with_cpu(usable_cuda_devices()?), None)),
            DeviceChoice::CudaDevice(number) => {
                let mut devices = usable_cuda_devices()?;
                if *number >= devices.len() {
                    return Err(Error::Device {
                        device: format!("cuda:{number}"),
                        problem: format!("there is no such device, only {} of them", devices.len()),
                        remedy: "'overshot devices' lists them, counted from 0".into(),
                    });
                }
                Ok((vec![devices.swap_remove(*number)], None))
            }
            DeviceChoice::Auto => match usable_cuda_devices() {
                Ok(devices) => Ok((with_cpu(devices), None)),
                Err(error) => {
                    Ok((vec![cpu::info()], Some(format!("no usable GPU, so this runs on the CPU ({error})"))))
                }
            },
        }
    }
}

/// With the CPU first, whose lanes can start at once.
fn with_cpu(mut devices: Vec<DeviceInfo>) -> Vec<DeviceInfo> {
    devices.insert(0, cpu::info());
    devices
}

/// The version of the driver that all CUDA devices share, such as `CUDA 13.0`; `None` without one.
pub(crate) fn driver_version() -> Option<String> {
    #[cfg(feature = "cuda")]
    return super::cuda::version().ok();
    #[cfg(not(feature = "cuda"))]
    None
}

/// The CUDA devices, at least one.
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

/// The CUDA devices, if kernels can be compiled for them.
fn usable_cuda_devices() -> Result<Vec<DeviceInfo>> {
    let devices = cuda_devices()?;
    check_cuda_compiler().map(|()| devices)
}

#[cfg(not(feature = "cuda"))]
fn cuda_devices() -> Result<Vec<DeviceInfo>> {
    Err(Error::Device {
        device: "cuda".into(),
        problem: "this build of overshot has no CUDA".into(),
        remedy: "build it with the feature 'cuda'".into(),
    })
}

/// Every device of this machine, found without creating a context on any GPU, and notes on what was not found and why.
pub fn devices() -> (Vec<DeviceInfo>, Vec<String>) {
    let mut devices = vec![cpu::info(), emulated::info(&Emulated::new())];
    match cuda_devices() {
        Ok(cuda) => {
            devices.extend(cuda);
            (devices, check_cuda_compiler().err().iter().map(ToString::to_string).collect())
        }
        Err(error) => (devices, vec![error.to_string()]),
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cpu => f.write_str("cpu"),
            DeviceChoice::Cuda => f.write_str("cuda"),
            DeviceChoice::CpuAndCuda => f.write_str("cpu+cuda"),
            DeviceChoice::CudaDevice(number) => write!(f, "cuda:{number}"),
            DeviceChoice::Emulated(options) => write!(f, "emulated:{}", options.seed),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (kind, number) = match text.split_once(':') {
            Some((kind, number)) => (kind, Some(number)),
            None => (text, None),
        };
        let unknown = || {
            Error::Job(format!("no device '{text}': use auto, cpu, cuda, cuda:0, cpu+cuda, emulated or emulated:SEED"))
        };
        match (kind, number) {
            ("auto", None) => Ok(DeviceChoice::Auto),
            ("cpu", None) => Ok(DeviceChoice::Cpu),
            ("cuda", None) => Ok(DeviceChoice::Cuda),
            ("cpu+cuda", None) => Ok(DeviceChoice::CpuAndCuda),
            ("cuda", Some(number)) => number.parse().map(DeviceChoice::CudaDevice).map_err(|_| unknown()),
            ("emulated", None) => Ok(DeviceChoice::Emulated(Emulated::new())),
            ("emulated", Some(seed)) => {
                seed.parse().map(|seed| DeviceChoice::Emulated(Emulated::new().seed(seed))).map_err(|_| unknown())
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
        for text in ["auto", "cpu", "cuda", "cuda:3", "cpu+cuda", "emulated:7"] {
            assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), text);
        }
        for text in ["", "gpu", "cpu:1", "cuda:x", "cuda:", "emulated:-1", "CUDA"] {
            assert!(text.parse::<DeviceChoice>().is_err(), "{text}");
        }
    }
}
