//! File formats by file name, for the command.

use super::{Dtype, Input, Npy, Output, Raw, Reading, Source};
use crate::error::{Error, Result};
use std::path::Path;

/// Opens a file to be read: `.npy` as [`Npy`], every other name as [`Raw`].
///
/// # Errors
/// As [`Npy::open`] and [`Raw::open`]; and when `dtype` is missing for a raw file, or not the one of a `.npy` file.
pub fn open(path: impl AsRef<Path>, dtype: Option<Dtype>) -> Result<Input<'static>> {
    open_with(path, dtype, Reading::default())
}

/// Opens a file as [`open`] does, to be read as `reading` says.
///
/// # Errors
/// As [`open`].
pub fn open_with(path: impl AsRef<Path>, dtype: Option<Dtype>, reading: Reading) -> Result<Input<'static>> {
    let path = path.as_ref();
    let shown = path.display();
    if !is_npy(path) {
        let Some(dtype) = dtype else {
            return Err(Error::Job(format!("{shown}: not .npy: add the dtype, as in x={shown}:f32")));
        };
        return Ok(Raw::open_with(path, dtype, reading)?.into());
    }
    let npy = Npy::open_with(path, reading)?;
    match dtype {
        Some(dtype) if dtype != npy.dtype() => {
            let own = npy.dtype();
            Err(Error::Job(format!(
                "{shown}: holds {own}, not {dtype}; leave ':{dtype}' away, and cast in the expression"
            )))
        }
        _ => Ok(npy.into()),
    }
}

/// A file to be written: `.npy` as by [`Npy::create`], every other name as by [`Raw::create`]. The result is cast to
/// `dtype`, if given. A file that exists is replaced only if `force`.
pub fn create(path: impl AsRef<Path>, dtype: Option<Dtype>, force: bool) -> Output<'static> {
    let path = path.as_ref();
    let file = if is_npy(path) { Npy::create(path) } else { Raw::create(path) };
    match dtype {
        Some(dtype) => file.dtype(dtype).force(force).into(),
        None => file.force(force).into(),
    }
}

fn is_npy(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy"))
}
