//! Raw files: rows in native byte order and nothing else.

use super::file::{FileRows, Opened};
use super::{Dtype, Memory, NewFile, ReadMode, Source};
use crate::error::{Error, Result};
use std::path::Path;

/// A file of rows in native byte order, without any header.
#[derive(Debug)]
pub struct Raw(FileRows);

impl Raw {
    /// Opens a file of elements of `dtype`, to be read by calls. Whatever it holds is taken for rows: that it is of
    /// another format is found out only by [`open`](crate::io::open), which goes by names and first bytes.
    ///
    /// # Errors
    /// When the file cannot be opened, or its length is not a whole number of elements.
    pub fn open(path: impl AsRef<Path>, dtype: Dtype) -> Result<Raw> {
        Raw::open_with(path, dtype, ReadMode::default())
    }

    /// Opens a file, to be read as `reading` says.
    ///
    /// # Errors
    /// As [`open`](Raw::open).
    pub fn open_with(path: impl AsRef<Path>, dtype: Dtype, reading: ReadMode) -> Result<Raw> {
        let opened = Opened::new(path.as_ref())?;
        let size = dtype.size() as u64;
        if !opened.len.is_multiple_of(size) {
            let problem = format!("its {} bytes are no whole number of {dtype} ({size} bytes each)", opened.len);
            return Err(Error::file(opened.path, problem, "check the dtype and that the file is complete"));
        }
        let rows = opened.len / size;
        Ok(Raw(FileRows::new(opened, dtype, rows, 0, false, reading)))
    }

    /// Opens a file, to be used in place through a memory map; to be read by calls where the system cannot map it.
    ///
    /// # Safety
    /// As for [`Npy::map`](super::Npy::map): nobody may write to the file or truncate it as long as this exists.
    ///
    /// # Errors
    /// As [`open`](Raw::open).
    pub unsafe fn map(path: impl AsRef<Path>, dtype: Dtype) -> Result<Raw> {
        let Raw(rows) = Raw::open(path, dtype)?;
        // SAFETY: passed on to the caller.
        Ok(Raw(unsafe { rows.mapped() }))
    }

    /// A raw file to be written. Nothing happens until the job runs.
    pub fn create(path: impl AsRef<Path>) -> NewFile {
        NewFile::new(path.as_ref(), no_header)
    }
}

/// Before the rows of a raw file stands nothing.
pub(super) fn no_header(_: Dtype, _: u64, _: Option<&[u64]>) -> Vec<u8> {
    Vec::new()
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

    fn is_cached(&self, first: u64, rows: u64) -> bool {
        self.0.is_cached(first, rows)
    }

    fn bytes_read_direct(&self) -> u64 {
        self.0.bytes_read_direct()
    }

    fn warning(&self) -> Option<String> {
        self.0.warning()
    }
}
