//! The journal of a resumable run: a file with the partial of all rows that are on the disk.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{JobId, Partial};
use crate::data::{JOURNAL_SUFFIX, remove_abandoned, replace, sync_names};
use crate::error::{Error, Result};

/// Where a run keeps what it needs to continue, for [`Engine::run_resumable`](crate::Engine::run_resumable).
///
/// ```
/// use overshot::Journal;
/// use std::{path::Path, time::Duration};
/// let journal = Journal::beside("results/y.npy").every(Duration::from_secs(5));
/// assert_eq!(journal.path(), Path::new("results/.y.npy.journal"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    path: PathBuf,
    every: Duration,
}

impl Journal {
    /// A journal at this path. The file is made when the run begins, and removed when it is complete.
    pub fn at(path: impl Into<PathBuf>) -> Journal {
        Journal { path: path.into(), every: Duration::from_secs(1) }
    }

    /// The journal of a job with the output file `output`: `.NAME.journal`, beside it.
    pub fn beside(output: impl AsRef<Path>) -> Journal {
        let output = output.as_ref();
        let mut name = std::ffi::OsString::from(".");
        name.push(output.file_name().unwrap_or_default());
        name.push(JOURNAL_SUFFIX);
        Journal::at(output.with_file_name(name))
    }

    /// Sets about how often the journal is written: every second, unless set. A run that is interrupted repeats the
    /// work of at most about twice this time.
    #[must_use]
    pub fn every(self, every: Duration) -> Journal {
        Journal { every, ..self }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the time between two writes.
    pub(crate) fn interval(&self) -> Duration {
        self.every
    }
}

/// A journal that this run alone writes.
#[derive(Debug)]
pub(crate) struct OpenJournal {
    path: PathBuf,
    /// Locked as long as it is open. Its name is `path`.
    file: File,
    /// An empty file is of no use to a later run. It is removed if nothing else is.
    is_empty: bool,
}

impl OpenJournal {
    /// Opens a journal, or makes an empty one, and returns what an earlier run of this job has written.
    ///
    /// # Errors
    /// Returns an error if another run has the journal open, it is of another job or damaged, or cannot be made.
    pub(crate) fn open(journal: &Journal, job: &JobId) -> Result<(OpenJournal, Option<Partial>)> {
        let path = journal.path.clone();
        let file = lock(&path)?;
        let content = fs::read(&path).map_err(|error| cannot(&path, "the journal cannot be read", error))?;
        remove_abandoned(&path);
        let open = OpenJournal { path, file, is_empty: content.is_empty() };
        if open.is_empty {
            return Ok((open, None));
        }
        let partial = Partial::from_bytes(&content).map_err(|error| {
            let problem = format!("the run cannot continue from this journal: {error}");
            Error::file(&open.path, problem, "remove it to begin anew")
        })?;
        match partial.job.difference(job) {
            None => Ok((open, Some(partial))),
            Some(difference) => {
                let problem = format!("this journal is of another run: they differ in {difference}");
                Err(Error::file(&open.path, problem, "repeat the job of the journal, or remove it to begin anew"))
            }
        }
    }

    /// Replaces the content. It is on the disk when this returns. If the process or the machine stops, the journal has
    /// either the old or the new content.
    pub(crate) fn write(&mut self, partial: &Partial) -> Result<()> {
        let written = replace(&self.path, &partial.to_bytes());
        self.file = written.map_err(|error| cannot(&self.path, "the journal cannot be written", error))?;
        self.is_empty = false;
        Ok(())
    }

    /// Removes the file, because the run is complete. Returns a note if that fails.
    pub(crate) fn remove(mut self) -> Option<String> {
        self.is_empty = false;
        // If the machine stops now and the journal is back, it says that all outputs have their names.
        let removed = fs::remove_file(&self.path).and_then(|()| sync_names(&self.path));
        removed.err().map(|error| format!("{} is not needed any more, but stays ({error})", self.path.display()))
    }
}

impl Drop for OpenJournal {
    fn drop(&mut self) {
        if self.is_empty {
            // An error was returned already, and it says more than an error from here would.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Opens a file and locks it.
fn lock(path: &Path) -> Result<File> {
    let unusable = |error| cannot(path, "the journal cannot be opened", error);
    // To read a pipe waits for a writer.
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(Error::file(path, "is not a regular file", "give the run another journal"));
    }
    loop {
        let options = File::options().read(true).append(true).create(true).open(path);
        let file = options.map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let remedy = "wait until that run has ended, or give this one another journal";
                return Err(Error::file(path, "another run has this journal open", remedy));
            }
            // Without locks, nobody can tell whether another run uses the journal.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        let named = fs::metadata(path).and_then(|named| Ok((named, file.metadata()?)));
        match named {
            Ok((named, own)) if (named.dev(), named.ino()) == (own.dev(), own.ino()) => return Ok(file),
            // Another run has replaced or removed it in between.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(unusable(error)),
        }
    }
}

fn cannot(path: &Path, problem: &str, cause: io::Error) -> Error {
    Error::File {
        path: path.into(),
        problem: problem.into(),
        remedy: "check its folder, or give the run another journal".into(),
        cause: Some(cause),
    }
}
