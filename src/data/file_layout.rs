//! The bytes of an output file: a header, then the rows.

use super::{Dtype, npy};
use crate::error::{Error, Result};
use std::path::Path;

/// A format of output files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileFormat {
    Npy,
    Raw,
}

impl FileFormat {
    pub(crate) fn name(self) -> &'static str {
        match self {
            FileFormat::Npy => "npy",
            FileFormat::Raw => "raw",
        }
    }

    /// Returns the format with this name.
    pub(crate) fn parse(name: &str) -> Option<FileFormat> {
        [FileFormat::Npy, FileFormat::Raw].into_iter().find(|format| format.name() == name)
    }
}

/// Makes an array of this shape have so many elements, by the length of its first dimension, which is that of rows.
pub(crate) fn shorten(shape: &mut [u64], elements: u64) {
    if let [first, rest @ ..] = shape {
        *first = elements.checked_div(rest.iter().product()).unwrap_or(0);
    }
}

/// What determines the bytes of a file, other than the values of its rows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FileLayout {
    pub(super) format: FileFormat,
    pub(super) dtype: Dtype,
    pub(super) rows: u64,
    /// The dimensions that the header records, outermost first.
    shape: Option<Vec<u64>>,
}

impl FileLayout {
    pub(crate) fn new(format: FileFormat, dtype: Dtype, rows: u64, shape: Option<&[u64]>) -> Self {
        FileLayout { format, dtype, rows, shape: shape.map(<[u64]>::to_vec) }
    }

    /// Returns the header. That of a shorter file has the same length.
    pub(super) fn header(&self) -> Vec<u8> {
        match self.format {
            FileFormat::Npy => npy::header(self.dtype, self.rows, self.shape.as_deref()),
            FileFormat::Raw => vec![],
        }
    }

    /// Returns the layout of the first `rows` rows.
    pub(super) fn truncated(&self, rows: u64) -> Self {
        let mut shape = self.shape.clone();
        shape.iter_mut().for_each(|shape| shorten(shape, rows));
        FileLayout { rows, shape, ..*self }
    }

    /// Returns the length of the file that `path` names, in bytes.
    ///
    /// # Errors
    /// Returns an error if no file can be so long, or if its format has no such dtype.
    pub(super) fn len(&self, path: &Path) -> Result<u64> {
        let FileLayout { dtype, rows, .. } = self;
        if (self.format, *dtype) == (FileFormat::Npy, Dtype::Bf16) {
            let problem = "cannot hold bf16, because NumPy has no such dtype";
            return Err(Error::file(path, problem, "write a raw file, such as y.bf16, or convert to f32(y)"));
        }
        let bytes = rows.checked_mul(dtype.size() as u64).and_then(|n| n.checked_add(self.header().len() as u64));
        // No file system supports files whose size exceeds an `i64`.
        bytes.filter(|&n| i64::try_from(n).is_ok()).ok_or_else(|| {
            let problem = format!("cannot hold {rows} rows of {dtype}");
            Error::file(path, problem, "write fewer rows")
        })
    }
}
