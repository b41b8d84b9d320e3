//! Errors of settings: devices, dtypes and limits that a caller names.

use std::path::PathBuf;

/// Why a setting of an engine, or a text that names a device or a dtype, is not valid.
///
/// ```
/// use overshot::{DeviceChoice, Engine, Error, SettingError};
/// let result = "cuda:0,0".parse::<DeviceChoice>();
/// assert!(matches!(result, Err(Error::InvalidSetting(SettingError::GpuNamedTwice { .. }))));
/// let result = Engine::builder().workers(0).build();
/// assert!(matches!(result, Err(Error::InvalidSetting(SettingError::Workers { workers: 0, .. }))));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// There are no workers, or far too many.
    #[error("the number of workers must be 1 to {most}")]
    #[non_exhaustive]
    Workers {
        /// The number that was set.
        workers: usize,
        /// The largest number that is valid.
        most: usize,
    },

    /// The time limit of devices is zero.
    #[error("the time limit of devices must be more than zero: leave it out for none")]
    DeviceTimeout,

    /// A text is not the name of a device choice.
    #[error("no device '{text}': use {known}")]
    #[non_exhaustive]
    UnknownDevice {
        /// The text.
        text: String,
        /// The forms that there are.
        known: &'static str,
    },

    /// A text is not the name of a precision.
    #[error("no precision '{text}': use full, tf32 or bf16x3")]
    #[non_exhaustive]
    UnknownPrecision {
        /// The text.
        text: String,
    },

    /// A text is not the name of a codec.
    #[error("no codec '{text}': use {known}")]
    #[non_exhaustive]
    UnknownCodec {
        /// The text.
        text: String,
        /// The codecs that there are.
        known: &'static str,
    },

    /// A choice of GPUs names none.
    #[error("no GPU was named: name at least one, or use cuda for all")]
    NoGpuNamed,

    /// A choice of GPUs names one of them twice.
    #[error("{device} was named twice: name each GPU once")]
    #[non_exhaustive]
    GpuNamedTwice {
        /// The device, as `--device` names it.
        device: String,
    },

    /// A choice of emulated devices names none.
    #[error("no emulated device was named: name at least one")]
    NoEmulatedNamed,

    /// The limits of an emulated device are to be measured.
    #[error("the emulated device cannot be measured, as its time is virtual; measure cpu or cuda")]
    EmulatedMeasured,

    /// Measured limits are to be saved, and there is no folder for them.
    #[error(
        "the limits cannot be saved, because OVERSHOT_CACHE is empty or the user has no home directory; set \
         OVERSHOT_CACHE to a folder"
    )]
    NoCacheFolder,

    /// A text is not the name of a dtype.
    #[error("'{name}' is not a dtype: write one of {known}")]
    #[non_exhaustive]
    UnknownDtype {
        /// The text.
        name: String,
        /// The names that there are.
        known: String,
    },

    /// The text after the last colon of a path is not the name of a dtype.
    #[error(
        "{path}: '{name}' is not a dtype: write one of {known}, or NumPy's name for one, such as float32; if the path \
         of a raw file ends like this, add its dtype, as in {path}:f64",
        path = path.display()
    )]
    #[non_exhaustive]
    UnknownFileDtype {
        /// The path and the text after it.
        path: PathBuf,
        /// The text after the last colon.
        name: String,
        /// The names that there are.
        known: String,
    },
}
