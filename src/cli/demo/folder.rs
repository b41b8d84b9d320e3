//! The directory for the files of the demo.

use std::io;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use overshot::Error;
use tempfile::TempDir;

use crate::cli::{Result, unfinished};

/// A new directory, which is removed with its contents when dropped, unless `keep` is set.
pub struct Folder {
    directory: TempDir,
    keep: bool,
}

impl Folder {
    /// Creates a directory in `parent`, or in the current directory. At least `needed` bytes must be free.
    pub fn new(parent: Option<&Path>, keep: bool, needed: u64) -> Result<Folder> {
        let parent = parent.unwrap_or(Path::new("."));
        let cannot = |problem: String, remedy: &str, cause| Error::File {
            path: parent.into(),
            problem,
            remedy: remedy.into(),
            cause,
        };
        let unusable = |error: io::Error| cannot("cannot be used".into(), "check --dir", Some(error));
        let space = rustix::fs::statvfs(parent).map_err(|error| unusable(error.into()))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        // A file system that cannot report its space has 0 blocks.
        if space.f_blocks > 0 && free < needed {
            let problem = format!("the demo needs {} but {} are free", ByteSize(needed), ByteSize(free));
            let remedy = "use a smaller --size, or a --dir on another disk";
            return Err(cannot(problem, remedy, None).into());
        }
        let directory = tempfile::Builder::new()
            .prefix("overshot-demo-")
            // Absolute, so that printed paths are valid in every directory.
            .tempdir_in(parent.canonicalize().map_err(unusable)?)
            .map_err(|error| cannot("directories cannot be created in it".into(), "use another --dir", Some(error)))?;
        unfinished::path(directory.path());
        Ok(Folder { directory, keep })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Removes the directory and returns `false`, or keeps it and returns `true`.
    pub fn finish(self) -> Result<bool> {
        if self.keep {
            let _ = self.directory.keep();
            return Ok(true);
        }
        let path: PathBuf = self.path().into();
        match self.directory.close() {
            Ok(()) => Ok(false),
            Err(error) => Err(Error::File {
                path,
                problem: "cannot be removed".into(),
                remedy: "remove it by hand".into(),
                cause: Some(error),
            }
            .into()),
        }
    }
}
