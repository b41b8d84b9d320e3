//! Output files.

use super::file::{announce_map, write_error};
use super::gate::Gate;
use super::partial::Partial;
use super::signal_list::Entry;
use super::sink::rows_of;
use super::{Dtype, Sink, SinkMemory, Target};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// A file to be written by a job, created by [`Npy::create`](super::Npy::create) or
/// [`Raw::create`](super::Raw::create).
///
/// The rows are written to an unnamed file in the same directory, whose space is reserved before any work starts.
/// The file gets its name when all outputs of the job are complete. If the job fails, is stopped or is killed,
/// nothing of it remains.
///
/// On file systems without unnamed files (NFS, for example), the rows are written to a hidden file
/// `.NAME.xxxxxx.partial` instead, which is removed when the job ends. A process that is killed cannot remove it; a
/// later job that writes to the same path reports it in a note.
///
/// The operating system decides when the data reaches the disk, as after any `write`.
///
/// If the path is a symbolic link, the file that it leads to is written.
///
/// ```
/// use overshot::{Dtype, Engine, Job, Npy};
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("y.npy");
/// let engine = Engine::builder().build()?;
/// let file = Npy::create(&path).dtype(Dtype::F32).force(true);
/// engine.run(Job::eval("y = x / 2")?.input("x", &[1.0f64, 3.0]).output("y", file))?;
/// assert!(path.exists());
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "no file is written until a job has it as an output"]
pub struct NewFile {
    path: PathBuf,
    header: Header,
    dtype: Option<Dtype>,
    force: bool,
}

/// Returns the header for a dtype, a number of rows and a shape. The header of a shorter file has the same length.
pub(super) type Header = fn(Dtype, u64, Option<&[u64]>) -> Vec<u8>;

impl NewFile {
    pub(super) fn new(path: &Path, header: Header) -> Self {
        NewFile { path: path.into(), header, dtype: None, force: false }
    }

    /// Casts the result to `dtype`. Without this call, the file has the dtype of the result.
    pub fn dtype(self, dtype: Dtype) -> Self {
        NewFile { dtype: Some(dtype), ..self }
    }

    /// Sets whether an existing file is replaced. If not, an existing file is an error, which is detected before
    /// any work is done and again before the file gets its name.
    ///
    /// The new file has the permissions, owner, group and access control list of the file that it replaces. The
    /// report has a note about every attribute that could not be kept; in that case the group gets no more
    /// permissions than other users have. A file that may not be written to is not replaced.
    pub fn force(self, force: bool) -> Self {
        NewFile { force, ..self }
    }
}

impl Target for NewFile {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn dtype(&self) -> Option<Dtype> {
        self.dtype
    }

    fn cast(&self) -> bool {
        true
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn open<'s>(self: Box<Self>, dtype: Dtype, rows: u64, shape: Option<&[u64]>) -> Result<Box<dyn Sink + 's>>
    where
        Self: 's,
    {
        let header = (self.header)(dtype, rows, shape);
        let offset = header.len() as u64;
        let bytes = rows.checked_mul(dtype.size() as u64).and_then(|n| n.checked_add(offset));
        // No file system supports files whose size exceeds an `i64`.
        let Some(bytes) = bytes.filter(|&n| i64::try_from(n).is_ok()) else {
            let problem = format!("cannot hold {rows} rows of {dtype}");
            return Err(Error::file(self.path, problem, "write fewer rows"));
        };
        let partial = Partial::create(&self.path, bytes, self.force)?;
        Ok(Box::new(FileSink::new(partial, self.header, dtype, rows, shape)?))
    }
}

#[derive(Debug)]
pub(super) struct FileSink {
    partial: Partial,
    dtype: Dtype,
    rows: u64,
    /// The offset of the first row, in bytes.
    offset: u64,
    header: Header,
    /// The dimensions, if there is more than one.
    shape: Vec<u64>,
    map: Option<(SinkMemory<'static>, Entry)>,
    writers: Gate,
}

/// Returns the number of threads that write to one new file concurrently. Every page of the file is new, and
/// creating small pages does not scale: 16 threads are slower than one, and four are fastest. With large pages,
/// which the map requests, all threads may write; ext4 supports them since Linux 6.16.
fn writers() -> usize {
    const FEW: usize = 4;
    #[cfg(target_os = "linux")]
    if let Ok(release) = rustix::system::uname().release().to_str()
        && version(release).is_some_and(|version| version >= (6, 16))
    {
        return usize::MAX;
    }
    FEW
}

/// Returns the first two numbers of a kernel release.
#[cfg(target_os = "linux")]
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

impl FileSink {
    /// Creates a sink for `rows` rows of `dtype` after the header. Header and rows together are as long as the
    /// file.
    pub(super) fn new(
        partial: Partial,
        header: Header,
        dtype: Dtype,
        rows: u64,
        shape: Option<&[u64]>,
    ) -> Result<Self> {
        let first = header(dtype, rows, shape);
        partial.write_at(&first, 0)?;
        let map = if partial.is_reserved() { SinkMemory::map(partial.file(), first.len(), dtype) } else { None };
        let map = map.map(|map| {
            let entry = announce_map(partial.path(), map.address());
            (map, entry)
        });
        let (offset, writers) = (first.len() as u64, Gate::new(writers()));
        Ok(FileSink { partial, dtype, rows, offset, header, shape: shape.unwrap_or_default().to_vec(), map, writers })
    }

    fn misfit(&self, first_row: u64, bytes: &[u8]) -> Error {
        let problem = format!("{} bytes from row {first_row} on do not fit, or these rows are in use", bytes.len());
        Error::file(self.partial.path(), problem, "this is a bug in the caller of Sink::write")
    }
}

impl Sink for FileSink {
    fn write(&self, first_row: u64, bytes: &[u8]) -> Result<()> {
        let rows = rows_of(first_row, bytes, self.dtype.size()).filter(|rows| rows.end <= self.rows);
        let rows = rows.ok_or_else(|| self.misfit(first_row, bytes))?;
        let _pass = self.writers.enter();
        let Some((map, _)) = &self.map else {
            return self.partial.write_at(bytes, self.offset + rows.start * self.dtype.size() as u64);
        };
        let mut claim = map.try_claim(rows).ok_or_else(|| self.misfit(first_row, bytes))?;
        map.copy(&mut claim, bytes);
        Ok(())
    }

    fn warning(&self) -> Option<String> {
        let is_slow = self.map.is_none() && self.rows > 0;
        let slow = is_slow
            .then_some("it cannot be memory-mapped with reserved space, so it was written with slower system calls");
        let notes: Vec<&str> = [slow, self.partial.warning()].into_iter().flatten().collect();
        (!notes.is_empty()).then(|| format!("{}: {}", self.partial.path().display(), notes.join("; ")))
    }

    fn truncate(&mut self, rows: u64) -> Result<()> {
        // The first dimension is the number of rows.
        if let [first, rest @ ..] = &mut self.shape[..] {
            *first = rows.checked_div(rest.iter().product()).unwrap_or(0);
        }
        let header =
            (self.header)(self.dtype, rows, Some(&self.shape).filter(|shape| !shape.is_empty()).map(Vec::as_slice));
        if header.len() as u64 != self.offset {
            let problem = format!("its header does not fit {rows} rows");
            return Err(Error::file(self.partial.path(), problem, "report this as a bug of Overshot"));
        }
        // The map must be gone first, because nobody may touch pages that the file no longer has.
        self.map = None;
        self.rows = rows;
        self.partial.write_at(&header, 0)?;
        let bytes = self.offset + rows * self.dtype.size() as u64;
        self.partial.file().set_len(bytes).map_err(|e| write_error(self.partial.path(), bytes, e))
    }

    fn check(&self) -> Result<()> {
        self.partial.check()
    }

    fn publish(&mut self) -> Result<()> {
        self.map = None;
        self.partial.publish()
    }

    fn commit(mut self: Box<Self>) -> Result<()> {
        self.publish()?;
        self.partial.commit()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::version;

    #[test]
    fn versions_of_kernels() {
        assert_eq!(version("6.18.44-fc-v310"), Some((6, 18)));
        assert_eq!(version("5.15.0-91-generic"), Some((5, 15)));
        assert_eq!(version("odd"), None);
    }
}
