//! The GPUs that the environment leaves visible, for error messages.

use crate::error::Error;

/// Returns the error for a GPU that is not among the `count` visible ones.
pub(super) fn not_visible(number: usize, count: usize) -> Error {
    Error::Device {
        device: format!("cuda:{number}"),
        problem: format!("no such device: {count} visible, counted from 0{}", visible_devices()),
        remedy: "choose one of the visible devices, or change CUDA_VISIBLE_DEVICES".into(),
    }
}

/// Returns the setting of `CUDA_VISIBLE_DEVICES` for error messages; empty if it is not set.
pub(super) fn visible_devices() -> String {
    match std::env::var_os("CUDA_VISIBLE_DEVICES") {
        Some(value) => format!(", with CUDA_VISIBLE_DEVICES='{}'", value.to_string_lossy()),
        None => String::new(),
    }
}
