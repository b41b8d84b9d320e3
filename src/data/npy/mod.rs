//! NumPy's `.npy` files.

mod fields;
mod header;
mod literal;

use super::file::Opened;
use super::file_layout::FileFormat;
use super::file_rows::{FileRows, Place};
use super::{Dtype, Memory, NewFile, ReadMode, Source, npz};
use crate::error::{Error, Result};
use std::path::Path;

pub use fields::{Field, Record};
pub use header::header;
pub use header::{Header, NpyFields};

/// A `.npy` file.
///
/// ```
/// use overshot::{Engine, Job, Npy};
/// # let dir = tempfile::tempdir().unwrap();
/// # let (x, y) = (dir.path().join("x.npy"), dir.path().join("y.npy"));
/// # let engine = Engine::builder().build()?;
/// # engine.run(Job::eval("x = f64(i)")?.rows(4).output("x", Npy::create(&x)))?;
/// let engine = Engine::builder().build()?;
/// let job = Job::eval("y = x * x; max(y)")?.input("x", Npy::open(&x)?).output("y", Npy::create(&y));
/// let report = engine.run(job)?;
/// assert_eq!(report.value("max(y)")?.map(|v| v.as_f64()), Some(9.0));
/// # Ok::<(), overshot::Error>(())
/// ```
///
/// The rows are the elements of an array of any rank, in C order. Versions 1, 2 and 3 of the format and both byte
/// orders are supported. An array that is stored in Fortran order is not used in place: its rows are gathered from the
/// file, which is slower, and the report says so.
#[derive(Debug)]
pub struct Npy {
    rows: FileRows,
    shape: Vec<u64>,
}

impl Npy {
    /// Opens a `.npy` file, to be read with system calls. Only the header is read.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened, is not a `.npy` file, is shorter than its header says, or
    /// has elements of a type that is not a [`Dtype`].
    pub fn open(path: impl AsRef<Path>) -> Result<Npy> {
        Npy::open_with(path, ReadMode::default())
    }

    /// Opens a `.npy` file, to be read as `reading` specifies.
    ///
    /// # Errors
    /// Returns the same errors as [`open`](Npy::open).
    pub fn open_with(path: impl AsRef<Path>, reading: ReadMode) -> Result<Npy> {
        Npy::of(Opened::new(path.as_ref())?, None, reading)
    }

    /// Opens a field of a structured `.npy` file, to be read with system calls. Its elements are gathered from the
    /// records.
    ///
    /// ```
    /// use overshot::{Engine, Job, Npy};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("trades.npy");
    /// # let descr = "[('price', '<f4'), ('size', '<u2')]";
    /// # let header = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (2,), }}\n");
    /// # let trades = [&1.5f32.to_le_bytes()[..], &[2, 0], &4f32.to_le_bytes(), &[3, 0]].concat();
    /// # let start = [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..]].concat();
    /// # std::fs::write(&path, [&start, header.as_bytes(), &trades].concat()).unwrap();
    /// // An expression may have a dot in a name, so that it says what it reads.
    /// let job = Job::eval("volume = sum(t.price * t.size)")?
    ///     .input("t.price", Npy::field(&path, "price")?)
    ///     .input("t.size", Npy::field(&path, "size")?);
    /// let report = Engine::builder().build()?.run(job)?;
    /// assert_eq!(report.value("volume")?.map(|volume| volume.as_f64()), Some(15.0));
    /// # Ok::<(), overshot::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`open`](Npy::open). Also returns an error if the file has no such field, or the
    /// field is a sub-array or has fields itself.
    pub fn field(path: impl AsRef<Path>, name: &str) -> Result<Npy> {
        Npy::field_with(path, name, ReadMode::default())
    }

    /// Opens a field of a structured `.npy` file, to be read as `reading` specifies.
    ///
    /// # Errors
    /// Returns the same errors as [`field`](Npy::field).
    pub fn field_with(path: impl AsRef<Path>, name: &str, reading: ReadMode) -> Result<Npy> {
        Npy::of(Opened::new(path.as_ref())?, Some(name), reading)
    }

    /// Opens an array of a `.npz` archive, as `numpy.savez` writes it, to be read with system calls. Only the headers
    /// are read. The checksum of the archive is not compared.
    ///
    /// ```no_run
    /// use overshot::{Engine, Job, Npy};
    /// let job = Job::eval("sum(x)")?.input("x", Npy::member("data.npz", "x")?);
    /// let report = Engine::builder().build()?.run(job)?;
    /// # Ok::<(), overshot::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`open`](Npy::open). Also returns an error if the archive is damaged or has no such
    /// array, or the array is compressed.
    pub fn member(path: impl AsRef<Path>, name: &str) -> Result<Npy> {
        Npy::member_with(path, name, ReadMode::default())
    }

    /// Opens an array of a `.npz` archive, to be read as `reading` specifies.
    ///
    /// # Errors
    /// Returns the same errors as [`member`](Npy::member).
    pub fn member_with(path: impl AsRef<Path>, name: &str, reading: ReadMode) -> Result<Npy> {
        Npy::of(npz::array(Opened::new(path.as_ref())?, name)?, None, reading)
    }

    /// The array of a file, or one of its fields.
    pub(super) fn of(opened: Opened, field: Option<&str>, reading: ReadMode) -> Result<Npy> {
        let head = opened.head(header::MAX_LEN)?;
        let refused = |(problem, remedy): header::Refusal| Error::file(&opened.path, problem, remedy);
        let header = match field {
            Some(name) => Header::parse_field(&head, name),
            None => Header::parse(&head),
        };
        let Header { dtype, swapped, shape, fortran, rows, offset, stride, in_record } = header.map_err(refused)?;
        // `Header` has checked that this does not overflow.
        let needed = offset + rows * stride;
        if opened.len < needed {
            let problem = format!("short file: {} bytes, its header says {needed}", opened.len);
            return Err(Error::file(opened.path, problem, "copy or save it again"));
        }
        // A file without records may end before the place of the field in one.
        let first = if rows > 0 { offset + in_record } else { offset };
        let place = Place::one(first, stride, swapped);
        let stored = FileRows::new(opened, dtype, rows, place, reading);
        Ok(Npy { rows: if fortran { stored.in_fortran_order(&shape) } else { stored }, shape })
    }

    /// Opens a `.npy` file, to be used in place through a memory map. If the system cannot map it, it is read with
    /// system calls. A map saves a copy on the CPU, and the memory for it. The rows of a file in Fortran order are
    /// copied from the map.
    ///
    /// # Safety
    /// Nobody may write to the file or truncate it while this value exists. Otherwise results may be any mixture of
    /// old and new rows, slices of the file's bytes change while they are borrowed, and access to a page that no
    /// longer exists kills the process (`SIGBUS`). A disk error under a page kills the process, too. Replacing the
    /// file is permitted, as programs do that write a new file and rename it.
    ///
    /// # Errors
    /// Returns the same errors as [`open`](Npy::open).
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Npy> {
        // SAFETY: the caller upholds the same contract.
        Ok(unsafe { Npy::open(path)?.mapped() })
    }

    /// Returns the file, to be used in place if the system can map it.
    ///
    /// # Safety
    /// The contract of [`map`](Npy::map).
    pub(super) unsafe fn mapped(self) -> Npy {
        // SAFETY: the caller upholds the same contract.
        Npy { rows: unsafe { self.rows.mapped() }, shape: self.shape }
    }

    /// Returns the size in bytes of the part of the file that is read.
    pub(super) fn bytes(&self) -> u64 {
        self.rows.bytes()
    }

    /// See [`FileRows::forget`].
    pub(super) fn forget(&self) {
        self.rows.forget();
    }

    /// Reads the rows as some of a dataset of this many bytes, which may be too large for the page cache.
    pub(super) fn among(self, bytes: u64) -> Npy {
        Npy { rows: self.rows.among(bytes), ..self }
    }

    /// Returns a `.npy` file to be written by a job, with the dimensions of the job's first input. Nothing is
    /// created until the job runs.
    pub fn create(path: impl AsRef<Path>) -> NewFile {
        NewFile::new(path.as_ref(), FileFormat::Npy)
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
