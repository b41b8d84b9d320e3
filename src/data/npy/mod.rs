//! NumPy's `.npy` files.

mod header;
mod literal;

use super::file::{FileRows, Opened};
use super::{Dtype, Memory, NewFile, ReadMode, Source};
use crate::error::{Error, Result};
use std::path::Path;

pub(super) use header::Header;
pub use header::NpyFields;
#[cfg(test)]
pub(super) use header::header;

/// A `.npy` file.
///
/// The elements of an array of any rank are its rows, in C order. The file is of version 1, 2 or 3, its elements of
/// either byte order.
#[derive(Debug)]
pub struct Npy {
    rows: FileRows,
    shape: Vec<u64>,
}

impl Npy {
    /// Opens a `.npy` file, to be read by calls. Only the header is read.
    ///
    /// # Errors
    /// When the file cannot be opened, is no `.npy` file or shorter than its header says, or holds what is no
    /// [`Dtype`], or columns before rows (Fortran order).
    pub fn open(path: impl AsRef<Path>) -> Result<Npy> {
        Npy::open_with(path, ReadMode::default())
    }

    /// Opens a `.npy` file, to be read as `reading` says.
    ///
    /// # Errors
    /// As [`open`](Npy::open).
    pub fn open_with(path: impl AsRef<Path>, reading: ReadMode) -> Result<Npy> {
        let opened = Opened::new(path.as_ref())?;
        let head = opened.head(header::MAX_LEN)?;
        let refused = |(problem, remedy): header::Refusal| Error::file(&opened.path, problem, remedy);
        let Header { dtype, swapped, shape, rows, offset } = Header::parse(&head).map_err(refused)?;
        // Header::parse has made sure that this is no overflow.
        let needed = offset + rows * dtype.size() as u64;
        if opened.len < needed {
            let problem = format!("short file: {} bytes, its header says {needed}", opened.len);
            return Err(Error::file(opened.path, problem, "copy or save it again"));
        }
        Ok(Npy { rows: FileRows::new(opened, dtype, rows, offset, swapped, reading), shape })
    }

    /// Opens a `.npy` file, to be used in place through a memory map; to be read by calls where the system cannot map
    /// it. That saves a copy on the CPU, and memory for it.
    ///
    /// # Safety
    /// Nobody may write to the file or truncate it as long as this exists: results may then be any mixture of old and
    /// new, slices of the file's bytes change while they are borrowed, and touching a page that is gone kills the
    /// process (`SIGBUS`); so does a disk that fails under a page. Replacing the file is fine, as programs do that
    /// write a new one and rename it.
    ///
    /// # Errors
    /// As [`open`](Npy::open).
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Npy> {
        let Npy { rows, shape } = Npy::open(path)?;
        // SAFETY: passed on to the caller.
        Ok(Npy { rows: unsafe { rows.mapped() }, shape })
    }

    /// A `.npy` file to be written, with the dimensions of the job's first input. Nothing happens until the job runs.
    pub fn create(path: impl AsRef<Path>) -> NewFile {
        NewFile::new(path.as_ref(), header::header)
    }
}

impl Source for Npy {
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

    fn memory(&self) -> Option<Memory<'_>> {
        self.rows.memory()
    }

    fn shape(&self) -> Option<&[u64]> {
        Some(&self.shape)
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.rows.path)
    }

    fn is_cached(&self, first: u64, rows: u64) -> bool {
        self.rows.is_cached(first, rows)
    }

    fn bytes_read_direct(&self) -> u64 {
        self.rows.bytes_read_direct()
    }

    fn warning(&self) -> Option<String> {
        self.rows.warning()
    }
}
