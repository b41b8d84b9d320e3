//! Raw files: rows in native byte order, without a header.

use super::file::Opened;
use super::file_layout::FileFormat;
use super::file_rows::{FileRows, Place};
use super::{Dtype, Memory, NewFile, ReadMode, Source, numpy_shape};
use crate::error::{Error, Result};
use std::path::Path;

/// A file of rows in native byte order, without a header.
///
/// ```
/// use overshot::{Dtype, Engine, Job, Raw};
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("x.raw");
/// std::fs::write(&path, [1u8, 2, 3]).unwrap();
/// let engine = Engine::builder().build()?;
/// let report = engine.run(Job::eval("max(x)")?.input("x", Raw::open(&path, Dtype::U8)?))?;
/// assert_eq!(report.value("max(x)")?.map(|v| v.as_f64()), Some(3.0));
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Debug)]
pub struct Raw {
    pub(super) rows: FileRows,
    shape: Option<Vec<u64>>,
}

impl Raw {
    /// Opens a file of elements of `dtype`, to be read with system calls.
    ///
    /// The content is not checked: any file is read as rows. [`open`](crate::io::open) rejects files of other formats
    /// by their names and first bytes.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened, or its length is not a whole number of elements.
    pub fn open(path: impl AsRef<Path>, dtype: Dtype) -> Result<Raw> {
        Raw::open_with(path, dtype, ReadMode::default())
    }

    /// Opens a file, to be read as `reading` specifies.
    ///
    /// # Errors
    /// Returns the same errors as [`open`](Raw::open).
    pub fn open_with(path: impl AsRef<Path>, dtype: Dtype, reading: ReadMode) -> Result<Raw> {
        Raw::of(Opened::new(path.as_ref())?, dtype, reading)
    }

    /// The rows of a file.
    pub(super) fn of(opened: Opened, dtype: Dtype, reading: ReadMode) -> Result<Raw> {
        let size = dtype.size() as u64;
        if !opened.len.is_multiple_of(size) {
            let problem = format!("its {} bytes are not a whole number of {dtype} ({size} bytes each)", opened.len);
            return Err(Error::file(opened.path, problem, "check the dtype and that the file is complete"));
        }
        let rows = opened.len / size;
        let place = Place::one(0, size, false);
        Ok(Raw { rows: FileRows::new(opened, dtype, rows, place, reading), shape: None })
    }

    /// Opens a file, to be used in place through a memory map. If the system cannot map it, it is read with system
    /// calls.
    ///
    /// # Safety
    /// The contract of [`Npy::map`](super::Npy::map): nobody may write to the file or truncate it while this value
    /// exists.
    ///
    /// # Errors
    /// Returns the same errors as [`open`](Raw::open).
    pub unsafe fn map(path: impl AsRef<Path>, dtype: Dtype) -> Result<Raw> {
        // SAFETY: the caller upholds the same contract.
        Ok(unsafe { Raw::open(path, dtype)?.mapped() })
    }

    /// Returns the file as an array of this shape, in C order. Without this call, it has only elements.
    ///
    /// ```
    /// use overshot::{Dtype, Engine, Job, Raw};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("x.raw");
    /// std::fs::write(&path, [1u8, 2, 3, 4, 5, 6]).unwrap();
    /// let x = Raw::open(&path, Dtype::U8)?.with_shape(&[2, 3])?;
    /// let report = Engine::builder().build()?.run(Job::eval("s = sum(x, axis=0)")?.input("x", x))?;
    /// assert_eq!(report.array("s")?.map(|sums| sums.shape()), Some(&[3][..]));
    /// # Ok::<(), overshot::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the file has another number of elements.
    pub fn with_shape(self, shape: &[u64]) -> Result<Raw> {
        let elements = shape.iter().try_fold(1u64, |product, length| product.checked_mul(*length));
        if elements != Some(self.rows.rows) {
            let problem = format!("has {} elements, and not those of the shape {}", self.rows.rows, numpy_shape(shape));
            return Err(Error::file(&self.rows.path, problem, "check the shape and the dtype"));
        }
        Ok(Raw { shape: Some(shape.to_vec()), ..self })
    }

    /// Returns the file among others, as one of a dataset of this many bytes.
    pub(super) fn among(self, bytes: u64) -> Raw {
        Raw { rows: self.rows.among(bytes), ..self }
    }

    /// Returns the file, to be used in place if the system can map it.
    ///
    /// # Safety
    /// The contract of [`map`](Raw::map).
    pub(super) unsafe fn mapped(self) -> Raw {
        // SAFETY: the caller upholds the same contract.
        Raw { rows: unsafe { self.rows.mapped() }, ..self }
    }

    /// Returns a raw file to be written by a job. Nothing is created until the job runs.
    pub fn create(path: impl AsRef<Path>) -> NewFile {
        NewFile::new(path.as_ref(), FileFormat::Raw)
    }
}

impl Source for Raw {
    fn dtype(&self) -> Dtype {
        self.rows.dtype
    }

    fn rows(&self) -> u64 {
        self.rows.rows
    }

    fn name(&self) -> String {
        self.rows.path.display().to_string()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        self.rows.read(first, dst)
    }

    fn shape(&self) -> Option<&[u64]> {
        self.shape.as_deref()
    }

    fn memory(&self) -> Option<Memory<'_>> {
        self.rows.memory()
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.rows.path)
    }

    fn decode_memory(&self) -> u64 {
        self.rows.memory_ahead()
    }

    fn is_cached(&self, first: u64, rows: u64) -> bool {
        self.rows.is_cached(first, rows)
    }

    fn bytes_read_direct(&self) -> u64 {
        self.rows.bytes_read_direct()
    }

    fn version(&self) -> Option<u128> {
        self.rows.version()
    }

    fn warning(&self) -> Option<String> {
        self.rows.warning()
    }
}
