//! Files that are open, their names, and their errors.

#[cfg(feature = "remote")]
use super::remote::RemoteObject;
use super::signal_list::{Entry, SignalList};
use super::storage::{Storage, read_error};
use super::url::is_url;
#[cfg(not(feature = "remote"))]
use super::url::refused;
use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io;
#[cfg(feature = "arrow")]
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
#[cfg(feature = "arrow")]
use std::sync::Arc;

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

/// See [`Source::version`](super::Source::version).
pub(super) fn version_of(file: &File) -> Option<u128> {
    let metadata = file.metadata().ok()?;
    let modified = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    Some((u128::from(modified as u64) << 64) | u128::from(metadata.len()))
}

/// Returns the length of a file in bytes, and its first `n` bytes, or all of a shorter one.
///
/// # Errors
/// Returns an error if the path is not that of a regular file or of an object, or it cannot be read.
#[doc(hidden)]
pub fn length_and_head(path: &Path, n: u64) -> Result<(u64, Vec<u8>)> {
    let opened = Opened::new(path)?;
    Ok((opened.len, opened.head(n)?))
}

/// A file opened for reading, before its format is known.
#[derive(Clone)]
pub(super) struct Opened {
    pub path: PathBuf,
    pub storage: Storage,
    /// Where it begins: at 0, or at the place of a file in an archive.
    pub start: u64,
    /// The length of the file in bytes.
    pub len: u64,
}

impl Opened {
    /// Opens a regular file, or the object of a URL. Other kinds are refused: the rows of a pipe cannot be read in any
    /// order.
    pub(super) fn new(path: &Path) -> Result<Self> {
        if is_url(path) {
            return Opened::of_url(path);
        }
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
        Ok(Opened { path: path.into(), storage: Storage::Disk(file.into()), start: 0, len })
    }

    #[cfg(feature = "remote")]
    fn of_url(url: &Path) -> Result<Self> {
        let object = RemoteObject::open(url)?;
        let len = object.len();
        Ok(Opened { path: url.into(), storage: Storage::Remote(object.into()), start: 0, len })
    }

    #[cfg(not(feature = "remote"))]
    fn of_url(url: &Path) -> Result<Self> {
        refused(url)
    }

    /// Reads `n` bytes at the start of the file, or all of a shorter file.
    pub(super) fn head(&self, n: u64) -> Result<Vec<u8>> {
        let n = usize::try_from(n.min(self.len)).unwrap_or(usize::MAX);
        let mut head = vec![0; n];
        self.read_at(&mut head, 0).map_err(|e| read_error(&self.path, e))?;
        Ok(head)
    }

    /// See [`Source::version`](super::Source::version).
    #[cfg(any(feature = "arrow", feature = "parquet"))]
    pub(super) fn version(&self) -> Option<u128> {
        self.storage.version()
    }

    /// Returns the note of a file that is decoded `by_what`. See [`Source::warning`](super::Source::warning).
    #[cfg(any(feature = "arrow", feature = "parquet"))]
    pub(super) fn warning(&self, is_direct: bool, by_what: &str) -> Option<String> {
        let direct = is_direct.then(|| format!("is not read with direct I/O, because it is decoded {by_what}"));
        let notes: Vec<String> = direct.into_iter().chain(self.storage.note().map(str::to_owned)).collect();
        (!notes.is_empty()).then(|| format!("{} {}", self.path.display(), notes.join("; it ")))
    }

    /// Returns what reads the file from an offset on, to its end.
    #[cfg(feature = "arrow")]
    pub(super) fn from(file: &Arc<Opened>, at: u64) -> OpenedFrom {
        OpenedFrom { file: file.clone(), at, end: file.len }
    }

    /// Returns how many bytes should be read at once, of some that are read one after the other: `usual` of a file on a
    /// disk, and more of a server, which takes a long time to begin an answer.
    #[cfg(any(feature = "arrow", feature = "parquet"))]
    pub(super) fn step(&self, usual: usize) -> usize {
        /// As many bytes arrive while a server begins some answers.
        const REMOTE: usize = 4 << 20;
        if self.storage.file().is_some() { usual } else { REMOTE }
    }

    /// Returns the most bytes that are in memory before they are needed, for someone who reads so many bytes in order.
    #[cfg(feature = "parquet")]
    pub(super) fn ahead_memory(&self, bytes: u64) -> u64 {
        if self.storage.file().is_some() { 0 } else { bytes.min(self.step(0) as u64) }
    }

    /// Fills `dst` with the bytes at an offset.
    pub(super) fn read_at(&self, dst: &mut [u8], at: u64) -> io::Result<()> {
        self.storage.read_at(dst, self.start + at)
    }
}

/// Reads a file from an offset on.
#[cfg(feature = "arrow")]
pub(super) struct OpenedFrom {
    file: Arc<Opened>,
    at: u64,
    end: u64,
}

#[cfg(feature = "arrow")]
impl OpenedFrom {
    /// Returns what reads no further than to this offset.
    pub(super) fn up_to(self, end: u64) -> OpenedFrom {
        OpenedFrom { end: self.end.min(end), ..self }
    }
}

#[cfg(feature = "arrow")]
impl Read for OpenedFrom {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let len = buf.len().min(left);
        self.file.read_at(&mut buf[..len], self.at)?;
        self.at += len as u64;
        Ok(len)
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
