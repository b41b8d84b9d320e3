//! The disk cache of compiled kernels, so that a restarted program does not compile them again.
//!
//! Each entry is a file: a header, the key, the image. The file contains the full key, so keys with the same hash are
//! not confused. A truncated or damaged file counts as absent. An error of the cache costs a compilation but never
//! fails the job; the report has a note about it.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::cache_folder::{Refused, cache_folder, fnv1a, read, write_whole};

/// The magic number at the start of every file. It identifies the version of the format.
const MAGIC: &[u8; 8] = b"ovrcub01";
/// The header: magic, length of the key, length of the image, hash of both.
const HEADER: usize = 32;
/// The most bytes of an entry. Compiled kernels are far smaller.
const MOST: u64 = 256 << 20;

/// A folder of entries.
pub(super) struct Cache {
    folder: PathBuf,
    /// The first error.
    problem: OnceLock<String>,
}

impl Cache {
    /// Returns the cache of this user; `None` if `$OVERSHOT_CACHE` is empty, which disables the cache, or the user
    /// has no home directory.
    pub(super) fn from_env() -> Option<Cache> {
        cache_folder().map(Cache::at)
    }

    /// Returns the cache in a folder, which need not exist yet.
    pub(super) fn at(folder: impl Into<PathBuf>) -> Cache {
        Cache { folder: folder.into(), problem: OnceLock::new() }
    }

    /// Returns the image stored under a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let path = self.path(key);
        let file = read(&path, MOST).unwrap_or_else(|refused| {
            self.remember(&refused);
            None
        })?;
        let image = decode(&file, key).map(<[u8]>::to_vec);
        if image.is_none() {
            tracing::debug!(path = %path.display(), "cached kernel is damaged: compiling it again");
        }
        image
    }

    /// Stores an image. Other processes see either the whole entry or none.
    pub(super) fn put(&self, key: &[u8], image: &[u8]) {
        if let Err(refused) = write_whole(&self.path(key), &encode(key, image)) {
            self.remember(&refused);
        }
    }

    fn remember(&self, refused: &Refused) {
        tracing::debug!(%refused, "kernel cache not used");
        self.problem.get_or_init(|| refused.to_string());
    }

    /// Returns a note for the report if the cache had an error.
    pub(super) fn note(&self) -> Option<String> {
        let problem = self.problem.get()?;
        Some(format!("compiled kernels are not cached for later runs: {problem}"))
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
        std::fs::write(cache.path(b"key"), b"rubbish").unwrap();
        assert_eq!(cache.get(b"key"), None);
        cache.put(b"key", b"again");
        assert_eq!(cache.get(b"key").as_deref(), Some(&b"again"[..]));
        assert_eq!(cache.note(), None);
    }

    #[test]
    fn an_entry_that_others_could_have_written_is_not_used_and_a_note_says_so() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("cache");
        Cache::at(&folder).put(b"key", b"image");
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o1777)).unwrap();
        let cache = Cache::at(&folder);
        assert_eq!(cache.get(b"key"), None);
        let note = cache.note().unwrap();
        assert!(note.contains(&folder.display().to_string()) && note.contains("others may write"), "{note}");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cache = Cache::at(file.path().join("below-a-file"));
        cache.put(b"key", b"image");
        assert_eq!(cache.get(b"key"), None);
        assert!(cache.note().unwrap().contains("below-a-file"));
    }
}
