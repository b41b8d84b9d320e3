//! The precision of products of matrices: what a job asks for, and what its devices do.

use crate::device::kernel::SharedKernel;
use crate::device::{DeviceInfo, DeviceKind, Precision};
use crate::error::{JobError, Result};
use crate::job::Job;
use crate::plan::Plan;

/// Checks that one of the kernels of a job multiplies what its precision is for.
///
/// # Errors
/// [`JobError::Precision`] if none does.
pub(super) fn check<'k>(job: &Job<'_>, kernels: impl IntoIterator<Item = &'k SharedKernel>) -> Result<()> {
    match job.precision == Precision::Full || kernels.into_iter().any(|kernel| kernel.multiplies_f32()) {
        true => Ok(()),
        false => Err(JobError::Precision { precision: job.precision.to_string() }.into()),
    }
}

/// Returns notes on how the devices of a plan multiply matrices, if they were asked not to have full precision.
/// `info_of` returns the properties of the GPU with an id.
pub(super) fn notes<'d>(
    plan: &Plan,
    kernel: &SharedKernel,
    info_of: impl Fn(&str) -> Option<&'d DeviceInfo>,
) -> Vec<String> {
    if kernel.columns.precision == Precision::Full || !kernel.multiplies_f32() {
        return vec![];
    }
    let note = |(id, kind): (&str, DeviceKind)| match kind {
        DeviceKind::Cpu => "the CPU has no TF32: it multiplied matrices of f32 with full precision".to_owned(),
        DeviceKind::Cuda if !info_of(id).is_none_or(has_tf32) => {
            format!("{id} has no TF32, which begins with compute capability 8.0: it multiplied with full precision")
        }
        DeviceKind::Cuda | DeviceKind::Emulated => {
            format!("{id} multiplied matrices of f32 as TF32: their elements were rounded to 11 bits")
        }
    };
    plan.devices.iter().map(|device| note((&device.id, device.kind))).collect()
}

/// Whether tensor cores of a GPU multiply TF32, which those of Ampere and later do.
fn has_tf32(info: &DeviceInfo) -> bool {
    let major = info.compute_capability.as_ref().and_then(|capability| capability.split('.').next()?.parse().ok());
    major.is_none_or(|major: u32| major >= 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cpu;

    #[test]
    fn tensor_cores_have_tf32_since_ampere() {
        for (capability, expected) in [("7.5", false), ("8.0", true), ("9.0", true), ("12.0", true)] {
            let info = DeviceInfo { compute_capability: Some(capability.into()), ..cpu::info() };
            assert_eq!(has_tf32(&info), expected, "{capability}");
        }
    }
}
