//! The bytes of an output file: a header, then the rows, then a trailer.

#[cfg(feature = "arrow")]
use super::arrow::NewTable;
use super::{Dtype, npy, numpy_shape};
use crate::error::{Error, Result};
use std::path::Path;

/// A format of output files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileFormat {
    #[cfg(feature = "arrow")]
    Arrow,
    Npy,
    #[cfg(feature = "parquet")]
    Parquet,
    Raw,
    #[cfg(feature = "zarr")]
    Zarr,
}

impl FileFormat {
    const ALL: &[FileFormat] = &[
        #[cfg(feature = "arrow")]
        FileFormat::Arrow,
        FileFormat::Npy,
        #[cfg(feature = "parquet")]
        FileFormat::Parquet,
        FileFormat::Raw,
        #[cfg(feature = "zarr")]
        FileFormat::Zarr,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "arrow")]
            FileFormat::Arrow => "arrow",
            FileFormat::Npy => "npy",
            #[cfg(feature = "parquet")]
            FileFormat::Parquet => "parquet",
            FileFormat::Raw => "raw",
            #[cfg(feature = "zarr")]
            FileFormat::Zarr => "zarr",
        }
    }

    /// Returns whether a file, or a folder, may have several outputs.
    pub(super) fn has_names(self) -> bool {
        !matches!(self, FileFormat::Npy | FileFormat::Raw)
    }

    /// Returns whether all outputs of a file have the same number of rows.
    pub(super) fn has_columns(self) -> bool {
        match self {
            #[cfg(feature = "arrow")]
            FileFormat::Arrow => true,
            #[cfg(feature = "parquet")]
            FileFormat::Parquet => true,
            _ => false,
        }
    }

    /// Returns whether values are encoded, so that the places of rows are not known before they are written.
    pub(super) fn is_encoded(self) -> bool {
        match self {
            #[cfg(feature = "parquet")]
            FileFormat::Parquet => true,
            #[cfg(feature = "zarr")]
            FileFormat::Zarr => true,
            _ => false,
        }
    }

    /// Returns whether an output is an array in chunks, which has any number of dimensions.
    pub(super) fn is_array(self) -> bool {
        match self {
            #[cfg(feature = "zarr")]
            FileFormat::Zarr => true,
            _ => false,
        }
    }

    /// Returns the format with this name, if the places of rows are known.
    pub(crate) fn parse(name: &str) -> Option<FileFormat> {
        FileFormat::ALL.iter().copied().find(|format| format.name() == name && !format.is_encoded())
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
    /// The name of the output, which is that of its column in a table.
    name: String,
}

impl FileLayout {
    pub(crate) fn new(format: FileFormat, dtype: Dtype, rows: u64, shape: Option<&[u64]>) -> Self {
        FileLayout { format, dtype, rows, shape: shape.map(<[u64]>::to_vec), name: String::new() }
    }

    /// Returns the layout of the file of the output `name`.
    pub(crate) fn named(self, name: &str) -> Self {
        FileLayout { name: name.into(), ..self }
    }

    /// Returns the header. That of a shorter file has the same length. Encoded files have none of a known length.
    pub(super) fn header(&self) -> Vec<u8> {
        match self.format {
            #[cfg(feature = "arrow")]
            FileFormat::Arrow => self.column().header(),
            FileFormat::Npy => npy::header(self.dtype, self.rows, self.shape.as_deref()),
            _ => vec![],
        }
    }

    /// Returns what is behind the rows.
    pub(super) fn trailer(&self) -> Vec<u8> {
        match self.format {
            #[cfg(feature = "arrow")]
            FileFormat::Arrow => self.column().trailer(),
            _ => vec![],
        }
    }

    #[cfg(feature = "arrow")]
    fn column(&self) -> NewTable<'_> {
        NewTable { columns: vec![(&self.name, self.dtype)], rows: self.rows }
    }

    /// Returns the number of bytes that the rows take. That of a layout that has a [length](FileLayout::len) fits.
    pub(super) fn row_bytes(&self) -> u64 {
        self.rows * self.dtype.size() as u64
    }

    /// Returns the layout of the first `rows` rows.
    pub(super) fn truncated(&self, rows: u64) -> Self {
        let mut shape = self.shape.clone();
        shape.iter_mut().for_each(|shape| shorten(shape, rows));
        FileLayout { rows, shape, name: self.name.clone(), ..*self }
    }

    /// Returns the length of the file that `path` names, in bytes.
    ///
    /// # Errors
    /// Returns an error if no file can be so long, or if its format has no such dtype or no such shape.
    pub(super) fn len(&self, path: &Path) -> Result<u64> {
        self.check(path)?;
        // No file system supports files whose size exceeds an `i64`.
        let fits = |&n: &u64| i64::try_from(n).is_ok();
        let bytes = self.rows.checked_mul(self.dtype.size() as u64).filter(fits);
        let bytes = bytes.map(|n| n + self.header().len() as u64 + self.trailer().len() as u64).filter(fits);
        bytes.ok_or_else(|| {
            let problem = format!("cannot hold {} rows of {}", self.rows, self.dtype);
            Error::file(path, problem, "write fewer rows")
        })
    }

    /// Checks that the format has the dtype and the shape.
    fn check(&self, path: &Path) -> Result<()> {
        let (problem, remedy) = match (self.format, self.dtype, self.shape.as_deref()) {
            (FileFormat::Npy, Dtype::Bf16, _) => (
                "cannot hold bf16, because NumPy has no such dtype".to_owned(),
                "write a raw file, such as y.bf16, or convert to f32(y)",
            ),
            #[cfg(feature = "arrow")]
            (FileFormat::Arrow, Dtype::Bf16, _) => (
                "cannot hold bf16, because Arrow has no such type".to_owned(),
                "write a raw file, such as y.bf16, or convert to f32(y)",
            ),
            #[cfg(feature = "arrow")]
            (FileFormat::Arrow, Dtype::Bool, _) => (
                "cannot hold bool, because Overshot does not write the bits of Arrow's booleans".to_owned(),
                "write a .npy file, or convert to u8(y)",
            ),
            #[cfg(feature = "parquet")]
            (FileFormat::Parquet, Dtype::Bf16, _) => (
                "cannot hold bf16, because Parquet has no such type".to_owned(),
                "write a raw file, such as y.bf16, or convert to f32(y)",
            ),
            (format, _, Some(shape @ [_, _, ..])) if format.has_columns() => (
                format!("cannot hold the shape {}, because a column has one dimension", numpy_shape(shape)),
                "write a .npy file",
            ),
            _ => return Ok(()),
        };
        Err(Error::file(path, problem, remedy))
    }
}
