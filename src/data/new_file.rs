//! Files to be written.

use super::file::{announce_map, write_error};
use super::gate::Gate;
use super::memory::copy_past_cache;
use super::partial::Partial;
use super::signal_list::Entry;
use super::sink::rows_of;
use super::{Dtype, Sink, SinkMemory, Target};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// A file to be written by a job: [`Npy::create`](super::Npy::create) and [`Raw::create`](super::Raw::create) make one.
///
/// The rows go into a file without a name in the same directory, whose space is reserved before any work starts. It
/// takes its name when all outputs of the job are complete. When the job fails, is stopped or is killed, nothing of it
/// remains. File systems without such files (NFS, for example) get a hidden file `.NAME.xxxxxx.partial` instead, which
/// is removed when the job ends; a process that is killed cannot remove it, and a later job that writes to the same
/// path says so in a note of its report. The data is on the disk when the system writes it back, as after any `write`.
///
/// A path that is a symbolic link stands for the file it leads to.
#[derive(Debug)]
#[must_use = "no file is written until a job has it as an output"]
pub struct NewFile {
    path: PathBuf,
    header: Header,
    dtype: Option<Dtype>,
    force: bool,
}

/// What stands before the rows of so many rows of this dtype and shape. A shorter file has a header of the same length.
pub(super) type Header = fn(Dtype, u64, Option<&[u64]>) -> Vec<u8>;

impl NewFile {
    pub(super) fn new(path: &Path, header: Header) -> Self {
        NewFile { path: path.into(), header, dtype: None, force: false }
    }

    /// Casts the result to `dtype`. Without it the file has the dtype of the result.
    pub fn dtype(self, dtype: Dtype) -> Self {
        NewFile { dtype: Some(dtype), ..self }
    }

    /// Whether to replace a file that exists. Otherwise it is an error, found before any work is done and again before
    /// the file gets its name.
    ///
    /// The new file has the permissions, owner, group and access control list of the one that it replaces. What cannot
    /// be kept is a note in the report, and then the group may do no more than everybody may. A file that may not be
    /// written to is not replaced.
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
        // No file system holds more than an i64 can count.
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
    /// Where the rows start.
    offset: u64,
    header: Header,
    /// Dimensions, if there are more than one.
    shape: Vec<u64>,
    map: Option<(SinkMemory<'static>, Entry)>,
    writers: Gate,
}

/// Threads that write to one new file at a time. Every page of it is new, and making small pages does not scale: 16 threads
/// are slower at it than one, four are fastest. With large pages, which the map asks for, all may write: since Linux 6.16
/// also ext4 has them.
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

/// The first two numbers of a kernel's release.
#[cfg(target_os = "linux")]
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

impl FileSink {
    /// Writes `rows` rows of `dtype` behind the header, which together are as long as the file.
    pub fn new(partial: Partial, header: Header, dtype: Dtype, rows: u64, shape: Option<&[u64]>) -> Result<Self> {
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
        Error::file(self.partial.path(), problem, "this is a mistake in the caller of Sink::write")
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
        copy_past_cache(&mut claim, bytes);
        Ok(())
    }

    fn warning(&self) -> Option<String> {
        let is_slow = self.map.is_none() && self.rows > 0;
        let slow =
            is_slow.then_some("it cannot be mapped there with its space reserved, so it was written by slower calls");
        let notes: Vec<&str> = [slow, self.partial.warning()].into_iter().flatten().collect();
        (!notes.is_empty()).then(|| format!("{}: {}", self.partial.path().display(), notes.join("; ")))
    }

    fn truncate(&mut self, rows: u64) -> Result<()> {
        // Of the dimensions, the first one is that of the rows.
        if let [first, rest @ ..] = &mut self.shape[..] {
            *first = rows.checked_div(rest.iter().product()).unwrap_or(0);
        }
        let header =
            (self.header)(self.dtype, rows, Some(&self.shape).filter(|shape| !shape.is_empty()).map(Vec::as_slice));
        if header.len() as u64 != self.offset {
            let problem = format!("its header does not fit {rows} rows");
            return Err(Error::file(self.partial.path(), problem, "report this as a bug of Overshot"));
        }
        // Nobody may touch pages that the file has no more.
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
