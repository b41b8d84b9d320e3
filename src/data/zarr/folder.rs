//! The folder of an array, as the crate zarrs reads it.

use crate::error::Error;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zarrs::storage::byte_range::{ByteRange, ByteRangeIterator};
use zarrs::storage::{Bytes, MaybeBytes, MaybeBytesIterator, ReadableStorageTraits, StorageError, StoreKey};

/// The files that describe an array, in versions 3 and 2.
pub(super) const DESCRIPTIONS: [&str; 2] = ["zarr.json", ".zarray"];

/// A folder, whose files are read with `pread`.
#[derive(Debug)]
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    fn path(&self, key: &StoreKey) -> PathBuf {
        self.0.join(key.as_str())
    }

    fn open(&self, key: &StoreKey) -> Result<Option<(File, u64)>, StorageError> {
        let path = self.path(key);
        let opened = refuse_others(&path).and_then(|()| File::open(path)).and_then(|file| {
            let len = file.metadata()?.len();
            Ok((file, len))
        });
        match opened {
            Ok(opened) => Ok(Some(opened)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.lacks(key) => Ok(None),
            Err(error) => Err(Arc::new(error).into()),
        }
    }

    /// Returns whether the array has no such file. A link that leads nowhere is one that cannot be read, and so are the
    /// files of a folder that is gone.
    fn lacks(&self, key: &StoreKey) -> bool {
        let is_there = |path: PathBuf| path.symlink_metadata().is_ok();
        !is_there(self.path(key)) && DESCRIPTIONS.iter().any(|name| is_there(self.0.join(name)))
    }
}

/// Refuses what is there and is no regular file. To open a pipe waits for a writer.
pub(super) fn refuse_others(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => {
            let refused = Error::file(path, "is not a regular file", "copy the array or write it again");
            Err(io::Error::other(refused))
        }
        // To open it tells what else is wrong.
        _ => Ok(()),
    }
}

/// Returns the place of a range of a file of this length, and memory for its bytes.
pub(super) fn room(len: u64, range: ByteRange) -> Result<(u64, Vec<u8>), StorageError> {
    let (start, end) = match range {
        ByteRange::FromStart(start, None) => (Some(start), Some(len)),
        ByteRange::FromStart(start, Some(bytes)) => (Some(start), start.checked_add(bytes)),
        ByteRange::Suffix(bytes) => (len.checked_sub(bytes), Some(len)),
    };
    // A damaged index asks for what the file does not have.
    let Some((start, end)) = start.zip(end).filter(|(start, end)| start <= end && *end <= len) else {
        return Err(Arc::new(io::Error::from(io::ErrorKind::UnexpectedEof)).into());
    };
    Ok((start, vec![0; usize::try_from(end - start).unwrap_or(usize::MAX)]))
}

/// Reads bytes of a file of this length.
fn read(file: &File, len: u64, range: ByteRange) -> Result<Bytes, StorageError> {
    let (start, mut bytes) = room(len, range)?;
    file.read_exact_at(&mut bytes, start).map_err(Arc::new)?;
    Ok(bytes.into())
}

impl ReadableStorageTraits for Folder {
    fn get(&self, key: &StoreKey) -> Result<MaybeBytes, StorageError> {
        let Some((file, len)) = self.open(key)? else { return Ok(None) };
        read(&file, len, ByteRange::FromStart(0, None)).map(Some)
    }

    fn get_partial_many<'a>(
        &'a self,
        key: &StoreKey,
        ranges: ByteRangeIterator<'a>,
    ) -> Result<MaybeBytesIterator<'a>, StorageError> {
        let Some((file, len)) = self.open(key)? else { return Ok(None) };
        Ok(Some(Box::new(ranges.map(move |range| read(&file, len, range)))))
    }

    fn size_key(&self, key: &StoreKey) -> Result<Option<u64>, StorageError> {
        Ok(self.open(key)?.map(|(_, len)| len))
    }

    fn supports_get_partial(&self) -> bool {
        true
    }
}
