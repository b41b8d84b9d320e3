//! The folder for the files of the demo.

use std::io;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use overshot::Error;
use tempfile::TempDir;

use crate::cli::{Result, unfinished};

/// A new folder, removed with everything in it when dropped, unless it is to be kept.
pub struct Folder {
    directory: TempDir,
    keep: bool,
}

impl Folder {
    /// A new folder inside `parent` (or the current one), where `needed` bytes are free.
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
        // A file system that cannot count its space says 0 blocks.
        if space.f_blocks > 0 && free < needed {
            let problem = format!("the demo needs {} but {} are free", ByteSize(needed), ByteSize(free));
            let remedy = "set a smaller --size, or --dir on another disk";
            return Err(cannot(problem, remedy, None).into());
        }
        let directory = tempfile::Builder::new()
            .prefix("overshot-demo-")
            // Absolute, so that what is printed can be used anywhere.
            .tempdir_in(parent.canonicalize().map_err(unusable)?)
            .map_err(|error| cannot("no folder can be made in it".into(), "set another --dir", Some(error)))?;
        unfinished::path(directory.path());
        Ok(Folder { directory, keep })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Removes the folder, or keeps it for good and returns `true`.
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
