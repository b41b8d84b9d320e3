//! Files in memory.
//!
//! The columns of a file that are read at the same time share a map. A page of the page cache may be large, and have
//! rows of all columns: with a map for each column, it would take a page fault for each.

use super::file::{announce_map, version_of};
use super::memory::map_file;
use super::signal_list::Entry;
use memmap2::Mmap;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

/// The bytes of a file.
#[derive(Debug)]
pub(super) struct FileMap {
    pub bytes: Mmap,
    /// Names the file if a page of it is lost.
    _entry: Entry,
}

/// A file: its device, its number there, and its version.
type Key = (u64, u64, Option<u128>);

/// The maps that exist, by file and by its path as it was given.
#[derive(Default)]
struct Maps {
    by_file: HashMap<Key, Vec<(PathBuf, Weak<FileMap>)>>,
    /// With so many files, those without a map are forgotten.
    most: usize,
}

/// The maps, and the process that they are of. One that was forked shares none: nobody may be left who unlocks them.
static MAPS: LazyLock<(u32, Mutex<Maps>)> = LazyLock::new(|| (process::id(), Mutex::default()));

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
        let (process, maps) = &*MAPS;
        if *process != process::id() {
            return new();
        }
        let mut maps = maps.lock().unwrap_or_else(PoisonError::into_inner);
        if maps.by_file.len() >= maps.most {
            maps.by_file.retain(|_, of_file| of_file.iter().any(|(_, map)| map.strong_count() > 0));
            maps.most = 2 * maps.by_file.len() + 64;
        }
        let of_file = maps.by_file.entry((metadata.dev(), metadata.ino(), version_of(file))).or_default();
        of_file.retain(|(_, map)| map.strong_count() > 0);
        let mut known = of_file.iter().filter(|(own, _)| own == path).filter_map(|(_, map)| map.upgrade());
        if let Some(map) = known.find(|map| map.bytes.len() as u64 >= end) {
            return Some(map);
        }
        let map = new()?;
        of_file.push((path.to_owned(), Arc::downgrade(&map)));
        Some(map)
    }
}
