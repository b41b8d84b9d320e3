//! Compiled kernels on disk, so that a program that starts again does not compile again.
//!
//! One file an entry: a header, the key, the image. The key stands in the file in full, so two keys of the same hash never
//! mix; a file that is cut off or damaged in any way counts as absent. Whatever goes wrong here costs a compilation, never
//! the job.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::cache_folder::{cache_folder, fnv1a, write_whole};

/// First in every file; another format gets another one.
const MAGIC: &[u8; 8] = b"ovrcub01";
/// Magic, length of the key, length of the image, hash of both.
const HEADER: usize = 32;

/// A folder of entries.
pub(super) struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// The cache of this user. `None` when `$OVERSHOT_CACHE` is empty, which turns it off, or there is no home.
    pub(super) fn from_env() -> Option<Cache> {
        cache_folder().map(Cache::at)
    }

    /// The cache in a folder, which need not exist yet.
    pub(super) fn at(folder: impl Into<PathBuf>) -> Cache {
        Cache { folder: folder.into() }
    }

    /// The image stored under a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let path = self.path(key);
        match fs::read(&path) {
            Ok(file) => {
                let image = decode(&file, key).map(<[u8]>::to_vec);
                if image.is_none() {
                    tracing::debug!(path = %path.display(), "cached kernel is damaged: compiling it again");
                }
                image
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::debug!(path = %path.display(), %error, "cached kernel cannot be read");
                }
                None
            }
        }
    }

    /// Stores an image. Another process sees all of it or nothing.
    pub(super) fn put(&self, key: &[u8], image: &[u8]) {
        let path = self.path(key);
        if let Err(error) = write_whole(&path, &encode(key, image)) {
            tracing::debug!(path = %path.display(), %error, "kernel cannot be cached");
        }
    }

    fn path(&self, key: &[u8]) -> PathBuf {
        self.folder.join(format!("{:016x}.kernel", fnv1a(&[key])))
    }
}

fn encode(key: &[u8], image: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(HEADER + key.len() + image.len());
    file.extend_from_slice(MAGIC);
    for number in [key.len() as u64, image.len() as u64, fnv1a(&[key, image])] {
        file.extend_from_slice(&number.to_le_bytes());
    }
    file.extend_from_slice(key);
    file.extend_from_slice(image);
    file
}

fn decode<'a>(file: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let (header, body) = file.split_at_checked(HEADER)?;
    let (stored, image) = body.split_at_checked(key.len())?;
    let mut expected = [0; HEADER];
    expected[..8].copy_from_slice(MAGIC);
    for (field, number) in [key.len() as u64, image.len() as u64, fnv1a(&[key, image])].into_iter().enumerate() {
        expected[8 + 8 * field..][..8].copy_from_slice(&number.to_le_bytes());
    }
    (header == expected && stored == key).then_some(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_damage_is_noticed() {
        let file = encode(b"key", b"image");
        assert_eq!(decode(&file, b"key"), Some(&b"image"[..]));
        assert_eq!(decode(&file, b"kez"), None);
        for length in 0..file.len() {
            assert_eq!(decode(&file[..length], b"key"), None, "cut off at {length}");
        }
        for position in 0..file.len() {
            let mut damaged = file.clone();
            damaged[position] ^= 1;
            assert_eq!(decode(&damaged, b"key"), None, "damaged at {position}");
        }
        assert_eq!(decode(&[file, vec![0]].concat(), b"key"), None);
    }

    #[test]
    fn what_was_put_is_got_and_a_damaged_entry_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::at(home.path().join("a/b"));
        assert_eq!(cache.get(b"key"), None);
        cache.put(b"key", b"image");
        assert_eq!(cache.get(b"key").as_deref(), Some(&b"image"[..]));
        fs::write(cache.path(b"key"), b"rubbish").unwrap();
        assert_eq!(cache.get(b"key"), None);
        cache.put(b"key", b"again");
        assert_eq!(cache.get(b"key").as_deref(), Some(&b"again"[..]));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cache = Cache::at(file.path().join("below-a-file"));
        cache.put(b"key", b"image");
        assert_eq!(cache.get(b"key"), None);
    }
}
