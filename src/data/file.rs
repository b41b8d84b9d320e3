//! Rows in a file, for all formats: adjacent ones, fields of records, and arrays in Fortran order.

use super::direct::{Direct, is_cached, memory};
use super::fortran::Fortran;
use super::memory::map_file;
use super::signal_list::{Entry, SignalList};
use super::{Dtype, Memory};
use crate::error::{Error, Result};
use memmap2::Mmap;
use std::cell::RefCell;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How a file is read. A run on a file that changes is an error ([`Source::version`](crate::Source::version)).
/// A file that is removed, or replaced by another one of its name, is read to its end.
///
/// ```
/// use overshot::{Npy, Source, io::ReadMode};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("x.npy");
/// # let engine = overshot::Engine::builder().build()?;
/// # engine.run(overshot::Job::eval("x = f64(i)")?.rows(1000).output("x", Npy::create(&path)))?;
/// let x = Npy::open_with(&path, ReadMode::Direct)?;
/// assert_eq!(x.rows(), 1000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadMode {
    /// Reads with `pread`, into memory of Overshot. If the file is larger than half of the machine's memory, rows
    /// that are not in the page cache are read as [`Direct`](ReadMode::Direct) does.
    #[default]
    Pread,
    /// Reads from the disk with direct I/O, bypassing the page cache, into memory of Overshot. The page cache then
    /// holds no copy for the next job, and pages that other programs need are not evicted. Falls back to
    /// [`Pread`](ReadMode::Pread) if the file system does not support direct I/O.
    Direct,
}

/// The memory maps of files that exist now.
static MAPPED: SignalList = SignalList::new();

/// Finds the file whose memory map contains an address.
///
/// This function is for handlers of `SIGBUS`: it takes no lock and allocates no memory. It copies as much of the
/// path to `path` as fits, and returns the number of bytes copied.
pub fn mapped_path(address: usize, path: &mut [u8]) -> Option<usize> {
    let mut len = None;
    MAPPED.each(
        |range| range.contains(&address),
        |found| {
            let fits = found.len().min(path.len());
            path[..fits].copy_from_slice(&found[..fits]);
            len = Some(fits);
        },
    );
    len
}

/// Registers a map, so that [`mapped_path`] finds it until the entry is dropped.
pub(super) fn announce_map(path: &Path, map: *const [u8]) -> Entry {
    let start = map.cast::<u8>().addr();
    MAPPED.add(path, start..start + map.len())
}

/// Files larger than 1/`LARGE` of the machine's memory do not stay in the page cache. Rows of them that are not
/// cached are read with direct I/O.
const LARGE: u64 = 2;

/// Where the rows are in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The offset of the first row, in bytes.
    pub first: u64,
    /// Bytes from a row to the next one: more than the size of a row if it is a field of a record.
    pub stride: u64,
    /// Whether the byte order differs from the machine's.
    pub swapped: bool,
}

/// A file, part of which is rows.
#[derive(Debug)]
pub(super) struct FileRows {
    pub path: PathBuf,
    pub dtype: Dtype,
    pub rows: u64,
    file: File,
    place: Place,
    /// The order in which the rows are stored, unless it is theirs.
    order: Option<Fortran>,
    map: Option<(Mmap, Entry)>,
    direct: Option<Direct>,
    /// Whether all reads bypass the page cache, and not only reads of rows that are not cached.
    is_direct: bool,
    /// Why the file is not read as requested, or not as fast as it could be.
    notes: Vec<&'static str>,
}

impl FileRows {
    /// The `rows` rows at `place` in the opened file. `len` is the length of the file, which contains them.
    pub(super) fn new(opened: Opened, dtype: Dtype, rows: u64, place: Place, reading: ReadMode) -> Self {
        let Opened { path, file, start, len } = opened;
        debug_assert!(end_of(place, rows, dtype) <= len);
        let place = Place { first: start + place.first, ..place };
        let is_direct = reading == ReadMode::Direct;
        let direct = if is_direct || len > memory() / LARGE { Direct::open(&path, &file) } else { None };
        let mut notes = Vec::new();
        if is_direct && rows > 0 && direct.is_none() {
            notes.push("cannot be read with direct I/O here, so it is read through the page cache");
        }
        if place.stride != dtype.size() as u64 {
            notes.push("holds records, of which a field is gathered; a file of the field alone is read faster");
        }
        FileRows { path, dtype, rows, file, place, order: None, map: None, direct, is_direct, notes }
    }

    /// Returns the rows as those of an array of this shape that is stored in Fortran order. The shape has as many
    /// elements as there are rows.
    pub(super) fn in_fortran_order(mut self, shape: &[u64]) -> Self {
        self.order = Fortran::new(shape, self.place.stride);
        if self.order.is_some() {
            self.notes.push(
                "is in Fortran order, so its rows are gathered and not used in place; for repeated use, save it with \
                 numpy.save(path, numpy.ascontiguousarray(array))",
            );
        }
        self
    }

    /// Uses the rows in place through a memory map, if the system can map the file.
    ///
    /// # Safety
    /// Nobody may write to the file or truncate it while this value exists.
    pub(super) unsafe fn mapped(mut self) -> Self {
        let end = end_of(self.place, self.rows, self.dtype);
        // SAFETY: the caller upholds the contract; the file is as long as its rows, as `new` requires.
        let map = unsafe { map_file(&self.file, end) };
        if self.rows > 0 && map.is_none() {
            self.notes.push("cannot be memory-mapped here, so it is read with system calls, which is slower");
        }
        self.map = map.map(|map| {
            let entry = announce_map(&self.path, &map[..]);
            (map, entry)
        });
        self
    }

    /// Reads the rows as some of a dataset of this many bytes, which may be too large for the page cache.
    pub(super) fn among(mut self, bytes: u64) -> Self {
        if self.direct.is_none() && bytes > memory() / LARGE {
            self.direct = Direct::open(&self.path, &self.file);
        }
        self
    }

    /// Returns the size in bytes of the part of the file that is read.
    pub(super) fn bytes(&self) -> u64 {
        self.rows * self.place.stride
    }

    pub(super) fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        let beyond = || {
            let problem = format!("rows from {first} on were requested, but it has {} rows", self.rows);
            Error::file(&self.path, problem, "this is a bug in the caller of Source::read")
        };
        let size = self.dtype.size() as u64;
        let fits = first.checked_mul(size).and_then(|at| at.checked_add(dst.len() as u64));
        if fits.is_none_or(|end| end > self.rows * size) {
            return Err(beyond());
        }
        if dst.is_empty() {
            return Ok(());
        }
        let failed = |e: io::Error| match e.kind() {
            io::ErrorKind::UnexpectedEof => {
                let remedy = "do not change a file while it is read";
                Error::file(&self.path, format!("it became shorter than {} rows", self.rows), remedy)
            }
            _ => io_error(&self.path, "cannot be read", "check the disk", e),
        };
        let direct = self.direct.as_ref().filter(|_| !self.is_cached(first, dst.len() as u64 / size));
        let read = |place: u64, stride: u64, dst: &mut [u8]| self.read_stored(place, stride, dst, direct);
        match &self.order {
            None => read(first * self.place.stride, self.place.stride, dst),
            Some(order) => order.read(first, dst, self.dtype.size(), read),
        }
        .map_err(failed)?;
        if self.place.swapped {
            swap_bytes(dst, self.dtype.size());
        }
        Ok(())
    }

    /// Fills `dst` with elements that are `stride` bytes apart. The first one is `place` bytes behind that of the file.
    fn read_stored(&self, place: u64, stride: u64, dst: &mut [u8], direct: Option<&Direct>) -> io::Result<()> {
        let read = |at: u64, dst: &mut [u8]| match direct {
            Some(direct) => direct.read(at, dst),
            None => self.file.read_exact_at(dst, at),
        };
        let (at, is_adjacent) = (self.place.first + place, stride == self.dtype.size() as u64);
        match self.bytes_in_place().filter(|_| direct.is_none()) {
            Some(bytes) => {
                let bytes = usize::try_from(place).ok().and_then(|place| bytes.get(place..));
                let bytes = bytes.ok_or(io::ErrorKind::UnexpectedEof)?;
                match is_adjacent {
                    true => copy_rows(bytes, 0, self.dtype, dst).ok_or(io::ErrorKind::UnexpectedEof)?,
                    false => gather(bytes, stride, self.dtype, dst),
                }
                Ok(())
            }
            None if is_adjacent => read(at, dst),
            None => gather_by(at, stride, self.dtype, dst, read),
        }
    }

    pub(super) fn memory(&self) -> Option<Memory<'_>> {
        let is_adjacent = self.place.stride == self.dtype.size() as u64 && self.order.is_none();
        let is_plain = !self.place.swapped && is_adjacent;
        if is_plain { Memory::new(self.bytes_in_place()?, self.dtype) } else { None }
    }

    /// Returns whether the rows can be read without a disk. An estimate is enough here.
    pub(super) fn is_cached(&self, first: u64, rows: u64) -> bool {
        match &self.direct {
            None => true,
            Some(_) if self.is_direct => false,
            Some(_) => {
                let Place { first: start, stride, .. } = self.place;
                let (skipped, spread) = match &self.order {
                    None => (first, rows),
                    // Each column has some of these rows, so a few columns are looked at.
                    Some(order) => (order.index_of(first), self.rows - order.index_of(first)),
                };
                is_cached(&self.file, start + skipped * stride, spread * stride)
            }
        }
    }

    /// Returns the number of bytes read with direct I/O so far.
    pub(super) fn bytes_read_direct(&self) -> u64 {
        self.direct.as_ref().map_or(0, Direct::bytes)
    }

    /// See [`Source::version`](super::Source::version).
    pub(super) fn version(&self) -> Option<u128> {
        version_of(&self.file)
    }

    /// Returns why the file is not read as requested.
    pub(super) fn warning(&self) -> Option<String> {
        let is_as_usual = self.notes.is_empty();
        (!is_as_usual).then(|| format!("{} {}", self.path.display(), self.notes.join("; it ")))
    }

    /// Returns the rows in the map, if they can be used as they are.
    fn bytes_in_place(&self) -> Option<&[u8]> {
        self.map.as_ref()?.0.get(usize::try_from(self.place.first).ok()?..)
    }
}

/// See [`Source::version`](super::Source::version).
fn version_of(file: &File) -> Option<u128> {
    let metadata = file.metadata().ok()?;
    let modified = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    Some((u128::from(modified as u64) << 64) | u128::from(metadata.len()))
}

/// Returns the offset behind the last row.
fn end_of(place: Place, rows: u64, dtype: Dtype) -> u64 {
    place.first + rows.checked_sub(1).map_or(0, |before| before * place.stride + dtype.size() as u64)
}

/// Bytes of records that are read at once, to gather a field of them. They stay in the cache of a core.
const RECORDS: u64 = 128 << 10;
/// Of longer records, the field alone is read: so many bytes take several times as long as a call, if they are cached.
const LONG: u64 = 16 << 10;

thread_local! {
    /// The records from which a field is gathered.
    static GATHERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Fills `dst` with rows that are `stride` bytes apart, from the offset `at` on.
fn gather_by(
    at: u64,
    stride: u64,
    dtype: Dtype,
    dst: &mut [u8],
    read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    let size = dtype.size();
    let count = if stride > LONG { 1 } else { (RECORDS / stride) as usize };
    GATHERED.with_borrow_mut(|records| {
        for (piece, rows) in dst.chunks_mut(count * size).enumerate() {
            records.resize((rows.len() / size - 1) * stride as usize * usize::from(count > 1) + size, 0);
            read(at + piece as u64 * count as u64 * stride, records)?;
            gather(records, stride, dtype, rows);
        }
        Ok(())
    })
}

/// Copies rows that are `stride` bytes apart.
fn gather(from: &[u8], stride: u64, dtype: Dtype, dst: &mut [u8]) {
    fn copy<const N: usize>(from: &[u8], stride: usize, dst: &mut [u8]) {
        for (row, record) in dst.as_chunks_mut::<N>().0.iter_mut().zip(from.chunks(stride)) {
            if let Some(field) = record.first_chunk() {
                *row = *field;
            }
        }
    }
    // A stride beyond `usize` has one row.
    let stride = usize::try_from(stride).unwrap_or(usize::MAX);
    match dtype.size() {
        1 => copy::<1>(from, stride, dst),
        2 => copy::<2>(from, stride, dst),
        4 => copy::<4>(from, stride, dst),
        _ => copy::<8>(from, stride, dst),
    }
}

/// Copies the rows that start at row `first` out of `bytes`, which holds all rows. Returns `None` if there are not
/// enough rows.
pub(super) fn copy_rows(bytes: &[u8], first: u64, dtype: Dtype, dst: &mut [u8]) -> Option<()> {
    let start = usize::try_from(first).ok()?.checked_mul(dtype.size())?;
    let end = start.checked_add(dst.len())?;
    dst.copy_from_slice(bytes.get(start..end)?);
    Some(())
}

/// Reverses the bytes of every element.
fn swap_bytes(rows: &mut [u8], size: usize) {
    fn swap<const N: usize>(rows: &mut [u8]) {
        for row in rows.as_chunks_mut::<N>().0 {
            row.reverse();
        }
    }
    match size {
        2 => swap::<2>(rows),
        4 => swap::<4>(rows),
        8 => swap::<8>(rows),
        _ => {}
    }
}

/// A file opened for reading, before its format is known.
pub(super) struct Opened {
    pub path: PathBuf,
    pub file: File,
    /// Where it begins: at 0, or at the place of a file in an archive.
    pub start: u64,
    /// The length of the file in bytes.
    pub len: u64,
}

impl Opened {
    /// Opens a regular file. Other kinds are refused: the rows of a pipe cannot be read in any order.
    pub(super) fn new(path: &Path) -> Result<Self> {
        let cannot = |e: io::Error| {
            let remedy = match e.kind() {
                io::ErrorKind::NotFound => "check the path",
                io::ErrorKind::PermissionDenied => "ask its owner for permission to read it",
                _ => too_many_open(&e).unwrap_or("check the path and the disk"),
            };
            io_error(path, "cannot be opened", remedy, e)
        };
        // The kind is checked before the file is opened, because opening a pipe waits for a writer.
        let metadata = fs::metadata(path).map_err(cannot)?;
        if metadata.is_dir() {
            return Err(Error::file(path, "is a directory", "name a file"));
        }
        if !metadata.is_file() {
            return Err(Error::file(path, "is not a regular file", "save its data in a file first"));
        }
        let file = File::open(path).map_err(cannot)?;
        let len = file.metadata().map_err(cannot)?.len();
        Ok(Opened { path: path.into(), file, start: 0, len })
    }

    /// Reads `n` bytes at the start of the file, or all of a shorter file.
    pub(super) fn head(&self, n: u64) -> Result<Vec<u8>> {
        let n = usize::try_from(n.min(self.len)).unwrap_or(usize::MAX);
        let mut head = vec![0; n];
        let cannot = |e| io_error(&self.path, "cannot be read", "check the disk", e);
        self.read_at(&mut head, 0).map_err(cannot)?;
        Ok(head)
    }

    /// See [`Source::version`](super::Source::version).
    #[cfg(feature = "parquet")]
    pub(super) fn version(&self) -> Option<u128> {
        version_of(&self.file)
    }

    /// Fills `dst` with the bytes at an offset.
    pub(super) fn read_at(&self, dst: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(dst, self.start + at)
    }
}

/// Returns an operating-system error with the problem and the remedy.
pub(super) fn io_error(path: &Path, problem: impl Into<String>, remedy: &str, e: io::Error) -> Error {
    Error::File { path: path.into(), problem: problem.into(), remedy: remedy.into(), cause: Some(e) }
}

/// Returns an error that occurred while `needed` bytes were written to a file.
pub(super) fn write_error(path: &Path, needed: u64, e: io::Error) -> Error {
    use io::ErrorKind as Kind;
    match e.kind() {
        Kind::StorageFull | Kind::QuotaExceeded => {
            let problem = format!("no space: needs {needed} bytes");
            io_error(path, problem, "free some, or choose another disk", e)
        }
        Kind::FileTooLarge => {
            let problem = format!("needs {needed} bytes, more than a file may have there");
            io_error(path, problem, "choose another file system, or raise the limit (ulimit -f)", e)
        }
        _ => io_error(path, "cannot be written", "check the disk", e),
    }
}

/// Returns the remedy if the error says that too many files are open.
pub(super) fn too_many_open(e: &io::Error) -> Option<&'static str> {
    use rustix::io::Errno;
    let is_one = matches!(Errno::from_io_error(e), Some(Errno::MFILE | Errno::NFILE));
    is_one.then_some("raise the limit of open files (ulimit -n), or use fewer files at once")
}

/// Returns whether a path ends with a slash, as the path of a directory may.
pub(super) fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

/// Makes the names in a file's directory last. Returns `Ok(false)` if nobody can tell whether they do: we may not read
/// the directory, or its file system has no such call.
pub(crate) fn sync_names(path: &Path) -> io::Result<bool> {
    use rustix::io::Errno;
    match File::open(directory(path)).and_then(|directory| directory.sync_all()) {
        Ok(()) => Ok(true),
        Err(e) => match Errno::from_io_error(&e) {
            Some(Errno::ACCESS | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            _ => Err(e),
        },
    }
}

/// Returns the error of [`sync_names`].
pub(crate) fn names_error(path: &Path, e: io::Error) -> Error {
    io_error(path, "its name cannot be written to the disk", "check the disk", e)
}

/// Returns the directory of a file's path.
pub(super) fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
