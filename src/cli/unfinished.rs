//! What a process that must end at once removes first: outputs that are not complete, the folder of the demo, the draft of a
//! trace.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

static PATHS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Has a file, or a folder with all that is in it, removed if the process ends by a second signal.
pub fn path(path: &Path) {
    PATHS.lock().unwrap_or_else(PoisonError::into_inner).push(path.into());
}

/// Removes all of them, and the outputs. What is not there any more is done with.
pub fn remove() {
    overshot::io::remove_unfinished_outputs();
    for path in PATHS.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    }
}
