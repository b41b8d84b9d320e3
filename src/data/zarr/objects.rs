//! The objects of an array, as the crate zarrs reads them.

use super::folder::room;
use crate::data::remote::{RemoteObject, whole};
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use zarrs::storage::byte_range::{ByteRange, ByteRangeIterator};
use zarrs::storage::{Bytes, MaybeBytes, MaybeBytesIterator, ReadableStorageTraits, StorageError, StoreKey};

/// The objects whose URLs begin with that of an array.
#[derive(Debug)]
pub(super) struct Objects {
    url: PathBuf,
    /// Objects that are read part by part, which are shards: what one part says of the others is true of this version
    /// alone.
    opened: Mutex<HashMap<StoreKey, Arc<RemoteObject>>>,
}

impl Objects {
    pub(super) fn new(url: &Path) -> Objects {
        Objects { url: url.into(), opened: Mutex::default() }
    }

    pub(super) fn begin(&self) {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn opened(&self, key: &StoreKey) -> Result<Option<Arc<RemoteObject>>> {
        let lock = || self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(key) {
            return Ok(Some(known.clone()));
        }
        let found = RemoteObject::find(&self.url.join(key.as_str()))?.map(Arc::new);
        Ok(found.map(|object| lock().entry(key.clone()).or_insert(object).clone()))
    }
}

fn failed(error: Error) -> StorageError {
    Arc::new(io::Error::other(error)).into()
}

/// Reads bytes of an object.
fn read(object: &RemoteObject, range: ByteRange) -> std::result::Result<Bytes, StorageError> {
    let (start, mut bytes) = room(object.len(), range)?;
    object.fetch(&mut bytes, start).map_err(failed)?;
    Ok(bytes.into())
}

impl ReadableStorageTraits for Objects {
    fn get(&self, key: &StoreKey) -> std::result::Result<MaybeBytes, StorageError> {
        Ok(whole(&self.url.join(key.as_str())).map_err(failed)?.map(Into::into))
    }

    fn get_partial_many<'a>(
        &'a self,
        key: &StoreKey,
        ranges: ByteRangeIterator<'a>,
    ) -> std::result::Result<MaybeBytesIterator<'a>, StorageError> {
        let Some(object) = self.opened(key).map_err(failed)? else { return Ok(None) };
        Ok(Some(Box::new(ranges.map(move |range| read(&object, range)))))
    }

    fn size_key(&self, key: &StoreKey) -> std::result::Result<Option<u64>, StorageError> {
        Ok(self.opened(key).map_err(failed)?.map(|object| object.len()))
    }

    fn supports_get_partial(&self) -> bool {
        true
    }
}
