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
    let wanted = kernel.columns.precision;
    let (name, bits) = match wanted {
        _ if !kernel.multiplies_f32() => return vec![],
        Precision::Full => return vec![],
        Precision::Tf32 => ("TF32", 11),
        Precision::Bf16x3 => ("BF16x3", 16),
    };
    let note = |(id, kind): (&str, DeviceKind)| match kind {
        DeviceKind::Cpu => format!("the CPU has no {name}: it multiplied matrices of f32 with full precision"),
        DeviceKind::Cuda if info_of(id).is_some_and(|info| wanted.on(info) != wanted) => {
            format!("{id} has no {name}, which begins with compute capability 8.0: it multiplied with full precision")
        }
        DeviceKind::Cuda | DeviceKind::Emulated => {
            format!("{id} multiplied matrices of f32 as {name}: their elements were rounded to {bits} bits")
        }
    };
    plan.devices.iter().map(|device| note((&device.id, device.kind))).collect()
}
