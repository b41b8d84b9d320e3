//! Raw files: rows in native byte order, without a header.

use super::file::Opened;
use super::file_layout::FileFormat;
use super::file_rows::{FileRows, Place};
use super::{Dtype, Memory, NewFile, ReadMode, Source};
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
pub struct Raw(pub(super) FileRows);

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
        Ok(Raw(FileRows::new(opened, dtype, rows, place, reading)))
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

    /// Returns the file, to be used in place if the system can map it.
    ///
    /// # Safety
    /// The contract of [`map`](Raw::map).
    pub(super) unsafe fn mapped(self) -> Raw {
        // SAFETY: the caller upholds the same contract.
        Raw(unsafe { self.0.mapped() })
    }

    /// Returns a raw file to be written by a job. Nothing is created until the job runs.
    pub fn create(path: impl AsRef<Path>) -> NewFile {
        NewFile::new(path.as_ref(), FileFormat::Raw)
    }
}

impl Source for Raw {
    fn dtype(&self) -> Dtype {
        self.0.dtype
    }

    fn rows(&self) -> u64 {
        self.0.rows
    }

    fn name(&self) -> String {
        self.0.path.display().to_string()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        self.0.read(first, dst)
    }

    fn memory(&self) -> Option<Memory<'_>> {
        self.0.memory()
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.0.path)
    }

    fn decode_memory(&self) -> u64 {
        self.0.memory_ahead()
    }

    fn is_cached(&self, first: u64, rows: u64) -> bool {
        self.0.is_cached(first, rows)
    }

    fn bytes_read_direct(&self) -> u64 {
        self.0.bytes_read_direct()
    }

    fn version(&self) -> Option<u128> {
        self.0.version()
    }

    fn warning(&self) -> Option<String> {
        self.0.warning()
    }
}
