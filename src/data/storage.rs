//! Where the bytes of a file are: on a disk, or on a server.

use super::file::{io_error, version_of};
#[cfg(feature = "remote")]
use super::remote::{Ahead, RemoteObject};
use crate::error::Error;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The bytes of a file that is open. Clones share the file.
#[derive(Clone, Debug)]
pub(super) enum Storage {
    Disk(Arc<File>),
    #[cfg(feature = "remote")]
    Remote(Arc<RemoteObject>),
}

impl Storage {
    /// Returns the file, if it is on a disk: it can be mapped, and read past the page cache.
    pub(super) fn file(&self) -> Option<&File> {
        match self {
            Storage::Disk(file) => Some(file),
            #[cfg(feature = "remote")]
            Storage::Remote(_) => None,
        }
    }

    /// Fills `dst` with the bytes at an offset. See [`read_error`] for its errors.
    pub(super) fn read_at(&self, dst: &mut [u8], at: u64) -> io::Result<()> {
        match self {
            Storage::Disk(file) => file.read_exact_at(dst, at),
            #[cfg(feature = "remote")]
            Storage::Remote(object) => object.read_at(dst, at).map_err(io::Error::other),
        }
    }

    fn has_version(&self) -> bool {
        match self {
            Storage::Disk(_) => true,
            #[cfg(feature = "remote")]
            Storage::Remote(object) => object.has_version(),
        }
    }

    /// See [`Source::version`](super::Source::version). A run asks when it begins and ends. What was read of a server
    /// before is forgotten, so that no run has bytes of another version.
    pub(super) fn version(&self) -> Option<u128> {
        match self {
            Storage::Disk(file) => version_of(file),
            #[cfg(feature = "remote")]
            Storage::Remote(object) => {
                object.forget();
                object.version()
            }
        }
    }

    /// Returns a note if a change of the bytes is not noticed.
    pub(super) fn note(&self) -> Option<&'static str> {
        let note = "is on a server that does not say when a file changes, so a change may not be noticed";
        (!self.has_version()).then_some(note)
    }
}

/// The bytes of a file of which rows are read in order.
#[derive(Debug)]
pub(super) struct Ordered {
    pub storage: Storage,
    /// Reads before bytes are needed, if the file is on a server.
    #[cfg(feature = "remote")]
    ahead: Option<Ahead>,
}

impl Ordered {
    pub(super) fn new(storage: Storage) -> Ordered {
        #[cfg(feature = "remote")]
        let ahead = match &storage {
            Storage::Disk(_) => None,
            Storage::Remote(object) => {
                // It is known where the rows are.
                object.forget();
                Some(Ahead::new(object.clone()))
            }
        };
        Ordered {
            storage,
            #[cfg(feature = "remote")]
            ahead,
        }
    }

    /// Fills `dst` with the bytes at an offset. See [`read_error`] for its errors.
    pub(super) fn read_at(&self, dst: &mut [u8], at: u64) -> io::Result<()> {
        #[cfg(feature = "remote")]
        if let Some(ahead) = &self.ahead {
            return ahead.read_at(dst, at).map_err(io::Error::other);
        }
        self.storage.read_at(dst, at)
    }

    /// Returns the most bytes that are in memory before they are needed.
    pub(super) fn memory(&self) -> u64 {
        #[cfg(feature = "remote")]
        return self.ahead.as_ref().map_or(0, Ahead::memory);
        #[cfg(not(feature = "remote"))]
        0
    }

    /// Returns the version of the bytes, and forgets them as [`Storage::version`] does.
    pub(super) fn version(&self) -> Option<u128> {
        self.forget();
        self.storage.version()
    }

    /// Forgets what was read before it is needed.
    pub(super) fn forget(&self) {
        #[cfg(feature = "remote")]
        if let Some(ahead) = &self.ahead {
            ahead.clear();
        }
    }
}

/// Returns the error of a read. That of a server says everything itself.
pub(super) fn read_error(path: &Path, error: io::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => io_error(path, "cannot be read", "check the disk", error),
    }
}

/// Returns the error of a server that an error of another crate has as its cause, if it has one.
#[cfg(any(feature = "arrow", feature = "parquet", feature = "zarr"))]
pub(super) fn error_within(error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    match error.downcast_ref::<io::Error>() {
        Some(error) => Some(copy_of(error.get_ref()?.downcast_ref::<Error>()?)),
        None => error_within(error.source()?),
    }
}

/// Returns an error once more, for another reader.
#[cfg(any(feature = "arrow", feature = "parquet", feature = "remote", feature = "zarr"))]
pub(super) fn copy_of(error: &Error) -> Error {
    match error {
        Error::File { path, problem, remedy, cause } => {
            let cause = cause.as_ref().map(|cause| io::Error::other(cause.to_string()));
            Error::File { path: path.clone(), problem: problem.clone(), remedy: remedy.clone(), cause }
        }
        other => Error::other(other.to_string()),
    }
}
