//! Files in memory.
//!
//! The columns of a file that are read at the same time share a map. A page of the page cache may be large, and have
//! rows of all columns: with a map for each column, it would take a page fault for each.

use super::file::{announce_map, version_of};
use super::memory::map_file;
use super::signal_list::Entry;
use memmap2::Mmap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

/// The bytes of a file.
#[derive(Debug)]
pub(super) struct FileMap {
    pub bytes: Mmap,
    /// Whose file it is, should a page of it be lost.
    _entry: Entry,
}

/// A file: its path as it was given, its device and its number there, and its version.
type Key = (PathBuf, u64, u64, Option<u128>);

/// The maps that exist.
static MAPS: Mutex<Vec<(Key, Weak<FileMap>)>> = Mutex::new(Vec::new());

impl FileMap {
    /// Returns a map of a file that has the bytes before `end`; `None` if there are none, or the system cannot map it.
    ///
    /// # Safety
    /// Nobody may write to the file or truncate it while the map exists.
    pub(super) unsafe fn of(path: &Path, file: &File, end: u64) -> Option<Arc<FileMap>> {
        let metadata = file.metadata().ok().filter(|_| end > 0)?;
        let new = || {
            // SAFETY: the caller upholds the contract; the file has the bytes before `end`.
            let bytes = unsafe { map_file(file, metadata.len().max(end)) }?;
            let entry = announce_map(path, &bytes[..]);
            Some(Arc::new(FileMap { bytes, _entry: entry }))
        };
        // In a process that was forked meanwhile, nobody may unlock it.
        let Ok(mut maps) = MAPS.try_lock() else { return new() };
        maps.retain(|(_, map)| map.strong_count() > 0);
        let key = (path.to_owned(), metadata.dev(), metadata.ino(), version_of(file));
        let mut known = maps.iter().filter(|(own, _)| *own == key).filter_map(|(_, map)| map.upgrade());
        if let Some(map) = known.find(|map| map.bytes.len() as u64 >= end) {
            return Some(map);
        }
        let map = new()?;
        maps.push((key, Arc::downgrade(&map)));
        Some(map)
    }
}
