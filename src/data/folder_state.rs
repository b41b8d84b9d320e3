//! What tells that something in a folder has changed.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_128;

/// Returns a number that is another one after a file of a folder, or of a folder in it, has changed, appeared or gone;
/// and the bytes of all files. Links to folders are not followed: they may lead back.
///
/// # Errors
/// Returns an error if the names of the files cannot be read.
pub fn folder_state(folder: &Path) -> io::Result<(u128, u64)> {
    let (mut state, mut bytes) = (0u128, 0u64);
    let mut folders = vec![PathBuf::new()];
    while let Some(own) = folders.pop() {
        for entry in fs::read_dir(folder.join(&own))? {
            let entry = entry?;
            let name = own.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(name);
                continue;
            }
            // Of a link, what it leads to.
            let path = folder.join(&name);
            let Ok(metadata) = fs::metadata(&path).or_else(|_| fs::symlink_metadata(&path)) else { continue };
            bytes = bytes.saturating_add(metadata.len());
            // In any order: systems list names in different ones.
            state = state.wrapping_add(number(&name, &metadata));
        }
    }
    Ok((state, bytes))
}

fn number(name: &Path, file: &Metadata) -> u128 {
    let numbers = [file.len(), file.mtime() as u64, file.mtime_nsec() as u64];
    let text = [name.as_os_str().as_encoded_bytes(), bytemuck::cast_slice(&numbers)].concat();
    XxHash3_128::oneshot(&text)
}
