//! Unfinished files, which are removed before a process ends at once: incomplete outputs, the directory of the demo,
//! and the draft of a trace or a page.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

static PATHS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Registers a file, or a directory with its contents, for removal if a second signal ends the process.
pub fn path(path: &Path) {
    PATHS.lock().unwrap_or_else(PoisonError::into_inner).push(path.into());
}

/// Removes all registered files and unfinished outputs. Files that no longer exist are skipped.
pub fn remove() {
    overshot::io::remove_unfinished_outputs();
    for path in PATHS.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    }
}
