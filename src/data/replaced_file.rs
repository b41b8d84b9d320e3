//! A small file whose content is replaced again and again, such as a journal.

use super::file::{directory, sync_names};
use super::temporary::{SUFFIX, is_in_use, target_of};
use super::unfinished_file::named;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Replaces the content, and returns the file open and locked. If the process or the machine stops, the file has either
/// the old or the new content.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<File> {
    let (temporary, mut file) = named(path, 0o666)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(temporary.path(), path)?;
    temporary.keep();
    sync_names(path)?;
    Ok(file)
}

/// Removes new contents that killed processes left. Only who has the file locked may do so.
pub(crate) fn remove_abandoned(path: &Path) {
    let Some(name) = path.file_name() else { return };
    for entry in fs::read_dir(directory(path)).into_iter().flatten().flatten() {
        if target_of(&entry.file_name(), SUFFIX, 6) == Some(name) && !is_in_use(&entry.path()) {
            // It is in nobody's way.
            let _ = fs::remove_file(entry.path());
        }
    }
}
