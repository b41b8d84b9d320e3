//! The folder of an array, as the crate zarrs reads it.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use twox_hash::XxHash3_128;
use zarrs::storage::byte_range::{ByteRange, ByteRangeIterator};
use zarrs::storage::{Bytes, MaybeBytes, MaybeBytesIterator, ReadableStorageTraits, StorageError, StoreKey};

/// A folder, whose files are read with `pread`.
#[derive(Debug)]
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    fn path(&self, key: &StoreKey) -> PathBuf {
        self.0.join(key.as_str())
    }

    fn open(&self, key: &StoreKey) -> Result<Option<(File, u64)>, StorageError> {
        let opened = File::open(self.path(key)).and_then(|file| {
            let len = file.metadata()?.len();
            Ok((file, len))
        });
        match opened {
            Ok(opened) => Ok(Some(opened)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Arc::new(error).into()),
        }
    }
}

/// Reads bytes of a file of this length.
fn read(file: &File, len: u64, range: ByteRange) -> Result<Bytes, StorageError> {
    let (start, end) = match range {
        ByteRange::FromStart(start, None) => (Some(start), Some(len)),
        ByteRange::FromStart(start, Some(bytes)) => (Some(start), start.checked_add(bytes)),
        ByteRange::Suffix(bytes) => (len.checked_sub(bytes), Some(len)),
    };
    // A damaged index asks for what the file does not have.
    let Some((start, end)) = start.zip(end).filter(|(start, end)| start <= end && *end <= len) else {
        return Err(Arc::new(io::Error::from(io::ErrorKind::UnexpectedEof)).into());
    };
    let mut bytes = vec![0; usize::try_from(end - start).unwrap_or(usize::MAX)];
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

/// Returns a number that is another one after a file of a folder has changed, appeared or gone, and the bytes of all
/// files.
pub(super) fn state(folder: &Path) -> io::Result<(u128, u64)> {
    let (mut state, mut bytes) = (0u128, 0u64);
    let mut folders = vec![PathBuf::new()];
    while let Some(own) = folders.pop() {
        for entry in fs::read_dir(folder.join(&own))? {
            let name = own.join(entry?.file_name());
            let Ok(metadata) = fs::metadata(folder.join(&name)) else { continue };
            if metadata.is_dir() {
                folders.push(name);
            } else {
                bytes = bytes.saturating_add(metadata.len());
                // In any order: systems list names in different ones.
                state = state.wrapping_add(number(&name, &metadata));
            }
        }
    }
    Ok((state, bytes))
}

fn number(name: &Path, file: &Metadata) -> u128 {
    let numbers = [file.len(), file.mtime() as u64, file.mtime_nsec() as u64];
    let text = [name.as_os_str().as_encoded_bytes(), bytemuck::cast_slice(&numbers)].concat();
    XxHash3_128::oneshot(&text)
}
