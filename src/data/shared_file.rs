//! An output file that several processes write in place, each its own rows: [`Engine::run_rows`](crate::Engine).
//!
//! It has a hidden name beside its target, which all of them derive from the job. It is as long as the output, and
//! behind the rows it has a mark, a random number that its first process chose. Partials remember it. So rows of one
//! file are never taken for those of another that was made later for the same job.
//!
//! Rows are written with system calls, not through a memory map: on a network file system, two hosts must not write
//! the page at the border between their rows. The descriptor cannot read, so that no such page gets into a cache.

use super::checksum::checksum;
use super::file::{directory, io_error, names_error, sync_names, write_error};
use super::file_layout::FileLayout;
use super::gate::Gate;
use super::new_file::{FileSink, writers};
use super::sink::rows_of;
use super::stamp::Stamp;
use super::temporary::{LONGEST_NAME, MERGE_SUFFIX, SHARED_SUFFIX};
use super::unfinished_file::{Abilities, UnfinishedFile, cannot_create, draft, name_draft, reserve_range, target};
use super::{Dtype, Sink};
use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use twox_hash::XxHash3_128;

/// The mark begins at a multiple of this: no cache that reads it reads rows, too.
const MARK_ALIGN: u64 = 64 << 10;
const MARK: usize = 16;
/// Rows that a compacting kernel kept are copied in pieces of so many bytes.
const PIECE: u64 = 8 << 20;

/// What tells a shared file from others of the same job.
pub(crate) type Mark = u128;

/// The rows that a compacting kernel kept of a range of rows. They are at its begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) first: u64,
    pub(crate) rows: u64,
    pub(crate) kept: u64,
}

/// A shared file, whether it exists or not.
#[derive(Clone, Debug)]
pub(crate) struct SharedFile {
    /// The path that the file will have, absolute and without links.
    target: PathBuf,
    hidden: PathBuf,
    layout: FileLayout,
    force: bool,
}

impl SharedFile {
    /// Returns the file of the output `target`, an absolute path. Other jobs have other files.
    pub(crate) fn new(target: PathBuf, layout: FileLayout, force: bool, job: u128) -> Self {
        let key = [&job.to_le_bytes(), target.as_os_str().as_bytes()].concat();
        let name = target.file_name().unwrap_or_default();
        let mut hidden = OsString::from(".");
        if name.len() <= LONGEST_NAME {
            hidden.push(name);
            hidden.push(".");
        }
        hidden.push(format!("{:016x}{SHARED_SUFFIX}", XxHash3_128::oneshot(&key) as u64));
        let hidden = directory(&target).join(hidden);
        SharedFile { target, hidden, layout, force }
    }

    /// Returns the hidden name, without the directory.
    pub(crate) fn hidden_name(&self) -> &OsStr {
        self.hidden.file_name().unwrap_or_default()
    }

    /// Returns where the mark begins.
    fn mark_offset(&self) -> Result<u64> {
        Ok(self.layout.len(&self.target)?.next_multiple_of(MARK_ALIGN))
    }

    /// Opens the file to write the elements `own`, and reserves their space. Creates it if this is the first process.
    ///
    /// # Errors
    /// Returns an error if the target appeared, the file cannot be created, is not one of this job, or has no space.
    /// The rows are on the disk when the sink is committed, or when `unsynced` is synced, if that is given.
    pub(crate) fn open(&self, own: Range<u64>, unsynced: Option<Unsynced>) -> Result<SharedSink> {
        target(&self.target, self.force)?;
        let (file, mark) = loop {
            match self.open_existing()? {
                Some(found) => break found,
                None => self.create()?,
            }
        };
        let (offset, size) = (self.layout.header().len() as u64, self.layout.dtype.size() as u64);
        let bytes = offset + own.start * size..offset + own.end * size;
        let reserved = reserve_range(&file, bytes.clone());
        reserved.map_err(|e| write_error(&self.target, bytes.end - bytes.start, e))?;
        let (shared, writers) = (self.clone(), Gate::new(writers()));
        Ok(SharedSink { shared, file, mark, own, offset, writers, unsynced })
    }

    /// Opens the file for writing if it exists, and reads its mark.
    fn open_existing(&self) -> Result<Option<(File, Mark)>> {
        let cannot = |e| io_error(&self.hidden, "cannot be opened", "check its directory and its permissions", e);
        let file = match File::options().write(true).open(&self.hidden) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(cannot(e)),
        };
        let reader = match File::open(&self.hidden) {
            Ok(reader) => reader,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(cannot(e)),
        };
        let [one, other] =
            [&file, &reader].map(|file| file.metadata().map(|file| (file.dev(), file.ino(), file.len())));
        let (one, other) = (one.map_err(cannot)?, other.map_err(cannot)?);
        if one != other {
            // Another one took its place in between.
            return Ok(None);
        }
        if one.2 == self.layout.len(&self.target)? {
            let problem = "has all rows of the job, because a merge of its partials was interrupted";
            return Err(Error::file(&self.hidden, problem, "merge them again, or remove it to run all parts again"));
        }
        Ok(Some((file, self.read_mark(&reader)?)))
    }

    /// Reads the mark of an open file.
    fn read_mark(&self, file: &File) -> Result<Mark> {
        let (at, mut mark) = (self.mark_offset()?, [0; MARK]);
        let len = file.metadata().map_err(|e| unreadable(&self.hidden, e))?.len();
        if len != at + MARK as u64 {
            let problem = format!("has {len} bytes, and not the {} of this job", at + MARK as u64);
            return Err(Error::file(&self.hidden, problem, "remove it, and run all parts again"));
        }
        file.read_exact_at(&mut mark, at).map_err(|e| unreadable(&self.hidden, e))?;
        Ok(Mark::from_le_bytes(mark))
    }

    /// Creates the file with its header, its trailer and a mark, unless another process was faster.
    fn create(&self) -> Result<()> {
        let (len, at) = (self.layout.len(&self.target)?, self.mark_offset()?);
        let mode = if self.target.exists() { 0o600 } else { 0o666 };
        let made = draft(&self.target, mode, Abilities::default());
        let (file, temporary) = made.map_err(|e| cannot_create(&self.target, &self.target, len, e))?;
        let written = file.set_len(at + MARK as u64).and_then(|()| {
            let header = self.layout.header();
            file.write_all_at(&header, 0)?;
            file.write_all_at(&self.layout.trailer(), header.len() as u64 + self.layout.row_bytes())?;
            file.write_all_at(&new_mark().to_le_bytes(), at)?;
            file.sync_data()
        });
        written.map_err(|e| write_error(&self.target, at, e))?;
        match name_draft(&file, temporary, &self.hidden) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(cannot_create(&self.target, &self.target, len, e)),
        }
        sync_names(&self.hidden).map_err(|e| names_error(&self.target, e))?;
        Ok(())
    }

    /// Returns whether this is the file with the mark.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, or is no file of this job.
    pub(crate) fn has_mark(&self, mark: Mark) -> Result<bool> {
        match File::open(&self.hidden) {
            Ok(file) => Ok(self.read_mark(&file)? == mark),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(io_error(&self.hidden, "cannot be opened", "check its permissions", e)),
        }
    }

    /// Opens the file after all rows were written, to be named when it is committed. If a kernel kept some of the
    /// rows, those are copied to a new file.
    ///
    /// # Errors
    /// Returns an error if the file is missing, is not the one that was written, or if the target exists and is not to
    /// be replaced.
    pub(crate) fn complete(&self, mark: Mark, kept: Option<&[Kept]>, elements: u64) -> Result<FileSink> {
        let len = self.layout.len(&self.target)?;
        let file = match File::options().read(true).write(true).open(&self.hidden) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let problem = format!("the rows that the parts wrote are not there: {}", self.hidden.display());
                let remedy = "if they were merged already, use that file; otherwise run all parts again";
                return Err(Error::file(&self.target, problem, remedy));
            }
            Err(e) => return Err(io_error(&self.hidden, "cannot be opened", "check its permissions", e)),
        };
        // A merge that was interrupted has found all rows before, and has taken the mark away.
        let is_checked = kept.is_none() && file.metadata().is_ok_and(|metadata| metadata.len() == len);
        if !is_checked && self.read_mark(&file)? != mark {
            let problem = "is not the file that the parts wrote: it was removed and made again since then";
            return Err(Error::file(&self.hidden, problem, "run all parts again"));
        }
        match kept {
            Some(kept) => self.compacted(&file, kept, elements),
            None => {
                let hidden = self.hidden.clone();
                let file = UnfinishedFile::adopt(&self.target, hidden, file, len, self.force)?;
                Ok(FileSink::complete(file, self.layout.clone()))
            }
        }
    }

    /// Copies the rows that a kernel kept of each range, in order, to a new file.
    fn compacted(&self, file: &File, kept: &[Kept], elements: u64) -> Result<FileSink> {
        let (size, offset) = (self.layout.dtype.size() as u64, self.layout.header().len() as u64);
        let rows: u64 = kept.iter().map(|range| range.kept).sum();
        let sink = FileSink::create(&self.target, self.layout.truncated(rows * elements), self.force)?;
        let mut next = 0;
        let mut buffer = vec![0; PIECE.min(rows * elements * size) as usize];
        for range in kept {
            let (mut first, end) = (range.first * elements, (range.first + range.kept) * elements);
            while first < end {
                let count = (end - first).min((PIECE / size).max(1));
                let piece = &mut buffer[..(count * size) as usize];
                file.read_exact_at(piece, offset + first * size).map_err(|e| unreadable(&self.hidden, e))?;
                sink.write(next, piece)?;
                (first, next) = (first + count, next + count);
            }
        }
        Ok(sink)
    }

    /// Returns the path of the journal of a merge of which this is the first output.
    pub(crate) fn merge_journal(&self) -> PathBuf {
        // The hidden name ends with the other suffix.
        self.hidden.with_extension(&MERGE_SUFFIX[1..])
    }

    /// Returns the path that the file will have.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Returns the [checksum](super::checksum()) of the file, which has its name.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be read.
    pub(crate) fn checksum(&self) -> Result<String> {
        let cannot = |e| unreadable(&self.target, e);
        let file = File::open(&self.target).map_err(cannot)?;
        let bytes = file.metadata().map_err(cannot)?.len();
        checksum(bytes, |offset, to| file.read_exact_at(to, offset).map_err(cannot))
    }

    /// Returns whether the output has its name already: there is a file with this stamp.
    ///
    /// # Errors
    /// Returns an error if it cannot be read.
    pub(crate) fn is_named(&self, stamp: &Stamp) -> Result<bool> {
        let cannot = |e| unreadable(&self.target, e);
        // To open a pipe would wait for its other end.
        match fs::symlink_metadata(&self.target) {
            Ok(there) if there.is_file() => {}
            Ok(_) => return Ok(false),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(cannot(e)),
        }
        let file = File::open(&self.target).map_err(cannot)?;
        if Stamp::of(&file).map_err(cannot)? != *stamp {
            return Ok(false);
        }
        // Where files cannot be renamed without replacing others, they have two names for a moment.
        let (named, hidden) = (file.metadata().map_err(cannot)?, fs::metadata(&self.hidden));
        if hidden.is_ok_and(|hidden| (hidden.dev(), hidden.ino()) == (named.dev(), named.ino())) {
            fs::remove_file(&self.hidden).map_err(|e| unreadable(&self.hidden, e))?;
        }
        Ok(true)
    }

    /// Makes the name of the output last. Returns a note if nobody can tell whether it does.
    ///
    /// # Errors
    /// Returns an error if it cannot be written to the disk.
    pub(crate) fn sync_name(&self) -> Result<Option<String>> {
        let lasts = sync_names(&self.target).map_err(|e| names_error(&self.target, e))?;
        let note = "its folder cannot be synced, so its name may be lost if the machine stops";
        Ok((!lasts).then(|| format!("{}: {note}", self.target.display())))
    }

    /// Removes the shared file after its rows were copied. Returns a note if that fails.
    pub(crate) fn remove(&self) -> Option<String> {
        let removed = fs::remove_file(&self.hidden);
        removed.err().map(|e| format!("{} is not needed any more, but cannot be removed ({e})", self.hidden.display()))
    }
}

fn unreadable(path: &Path, e: io::Error) -> Error {
    io_error(path, "cannot be read", "check the disk", e)
}

/// Returns a random number.
fn new_mark() -> Mark {
    // The keys of the standard library's hash maps are the random numbers that it has.
    let [one, other] = [(); 2].map(|()| RandomState::new().build_hasher().finish());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let key = [one, other, now.as_nanos() as u64, u64::from(std::process::id())].map(u64::to_le_bytes).concat();
    XxHash3_128::oneshot(&key)
}

/// A file with rows that may not be on the disk yet: its path, and the bytes of the rows.
type WrittenFile = (PathBuf, u64, File);

/// Files with rows that may not be on the disk yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsynced(Arc<Mutex<Vec<WrittenFile>>>);

impl Unsynced {
    fn files(&self) -> MutexGuard<'_, Vec<WrittenFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the rows are on the disk.
    ///
    /// # Errors
    /// Returns an error if they cannot be written there.
    pub(crate) fn sync(&self) -> Result<()> {
        std::mem::take(&mut *self.files()).iter().try_for_each(sync)
    }
}

fn sync((path, bytes, file): &WrittenFile) -> Result<()> {
    file.sync_data().map_err(|e| write_error(path, *bytes, e))
}

/// The rows of one part of a shared file.
#[derive(Debug)]
pub(crate) struct SharedSink {
    shared: SharedFile,
    file: File,
    mark: Mark,
    /// The elements of this part.
    own: Range<u64>,
    offset: u64,
    writers: Gate,
    unsynced: Option<Unsynced>,
}

impl SharedSink {
    pub(crate) fn mark(&self) -> Mark {
        self.mark
    }

    fn dtype(&self) -> Dtype {
        self.shared.layout.dtype
    }
}

impl Sink for SharedSink {
    fn write(&self, first_row: u64, bytes: &[u8]) -> Result<()> {
        let size = self.dtype().size();
        let rows =
            rows_of(first_row, bytes, size).filter(|rows| self.own.start <= rows.start && rows.end <= self.own.end);
        let Some(rows) = rows else {
            let problem = format!("{} bytes from row {first_row} on are not rows of this part", bytes.len());
            return Err(Error::file(&self.shared.target, problem, "this is a bug in the caller of Sink::write"));
        };
        let _pass = self.writers.enter();
        let written = self.file.write_all_at(bytes, self.offset + rows.start * size as u64);
        written.map_err(|e| write_error(&self.shared.target, bytes.len() as u64, e))
    }

    /// The file keeps its length: the rows of other parts follow.
    fn truncate(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    /// Checks that the file still has its name.
    fn check(&self) -> Result<()> {
        let (named, own) = (fs::metadata(&self.shared.hidden), self.file.metadata());
        match (named, own) {
            (Ok(named), Ok(own)) if (named.dev(), named.ino()) == (own.dev(), own.ino()) => Ok(()),
            _ => {
                let problem = "was merged or removed while a part wrote its rows";
                Err(Error::file(&self.shared.hidden, problem, "run all parts again, and merge them when they are done"))
            }
        }
    }

    /// Waits until the rows are on the disk, so that a partial that exists stands for rows that do.
    fn commit(self: Box<Self>) -> Result<()> {
        let bytes = (self.own.end - self.own.start) * self.dtype().size() as u64;
        let written = (self.shared.target, bytes, self.file);
        match self.unsynced {
            Some(unsynced) => {
                unsynced.files().push(written);
                Ok(())
            }
            None => sync(&written),
        }
    }
}
