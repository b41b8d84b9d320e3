//! Where the files of a store are: in a folder, or at a URL.

use super::folder::{Folder, refuse_others};
#[cfg(feature = "remote")]
use super::objects::Objects;
use crate::data::folder_state::folder_state;
#[cfg(feature = "remote")]
use crate::data::is_url;
use std::fs;
use std::io;
use std::path::Path;
use zarrs::storage::byte_range::ByteRangeIterator;
use zarrs::storage::{MaybeBytes, MaybeBytesIterator, ReadableStorageTraits, StorageError, StoreKey};

/// The files of an array.
#[derive(Debug)]
pub(super) enum Store {
    Folder(Folder),
    #[cfg(feature = "remote")]
    Objects(Objects),
}

impl Store {
    pub(super) fn of(path: &Path) -> io::Result<Store> {
        #[cfg(feature = "remote")]
        if is_url(path) {
            return Ok(Store::Objects(Objects::new(path)));
        }
        // The folder of the process may be another one during a run.
        Ok(Store::Folder(Folder(std::path::absolute(path)?)))
    }

    /// Forgets which versions of objects were read: a run begins.
    pub(super) fn begin(&self) {
        #[cfg(feature = "remote")]
        if let Store::Objects(objects) = self {
            objects.begin();
        }
    }

    fn own(&self) -> &dyn ReadableStorageTraits {
        match self {
            Store::Folder(folder) => folder,
            #[cfg(feature = "remote")]
            Store::Objects(objects) => objects,
        }
    }
}

impl ReadableStorageTraits for Store {
    fn get(&self, key: &StoreKey) -> Result<MaybeBytes, StorageError> {
        self.own().get(key)
    }

    fn get_partial_many<'a>(
        &'a self,
        key: &StoreKey,
        ranges: ByteRangeIterator<'a>,
    ) -> Result<MaybeBytesIterator<'a>, StorageError> {
        self.own().get_partial_many(key, ranges)
    }

    fn size_key(&self, key: &StoreKey) -> Result<Option<u64>, StorageError> {
        self.own().size_key(key)
    }

    fn supports_get_partial(&self) -> bool {
        true
    }
}

/// Returns a file of a folder; `None` if the folder has no such file.
pub(super) fn file_in(folder: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    let path = folder.join(name);
    #[cfg(feature = "remote")]
    if is_url(folder) {
        return crate::data::remote::whole(&path).map_err(io::Error::other);
    }
    match refuse_others(&path).and_then(|()| fs::read(path)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the names of what is in a folder; none of a folder on a disk that cannot be read.
///
/// # Errors
/// If a server cannot list it.
pub(super) fn names_in(folder: &Path) -> crate::error::Result<Vec<String>> {
    #[cfg(feature = "remote")]
    if is_url(folder) {
        return crate::data::remote::folders_in(folder);
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    Ok(entries.filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// Returns a number that is another one after a file of a folder has changed, and the bytes of all files; `None` if
/// nobody can list them.
pub(super) fn state_of(folder: &Path) -> io::Result<Option<(u128, u64)>> {
    #[cfg(feature = "remote")]
    if is_url(folder) {
        return crate::data::remote::state_of_all(folder).map_err(io::Error::other);
    }
    folder_state(folder).map(Some)
}
