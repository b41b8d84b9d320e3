//! Checksums of outputs: the BLAKE3 hash of what an output stores.
//!
//! BLAKE3 is the hash of a binary tree over kibibytes. So threads hash pieces of the output, each a subtree, and the
//! hashes of the pieces are merged to that of the whole.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use blake3::Hasher;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root};

use crate::error::Result;
use crate::threads;

/// The bytes of a piece, a power of two.
const PIECE: u64 = 4 << 20;
/// The bytes that are read at once.
const BUFFER: u64 = 512 << 10;

/// Reads some of the bytes that an output stores, from a byte on.
pub(crate) trait Read: Fn(u64, &mut [u8]) -> Result<()> + Sync {}

impl<F: Fn(u64, &mut [u8]) -> Result<()> + Sync> Read for F {}

/// Returns the BLAKE3 hash, in hexadecimal, of the `bytes` bytes that an output stores. Reads them with one thread per
/// core.
///
/// # Errors
/// Those of `read`.
pub(crate) fn checksum(bytes: u64, read: impl Read) -> Result<String> {
    if bytes <= PIECE {
        let mut hasher = Hasher::new();
        feed(&read, 0, bytes, &mut hasher)?;
        return Ok(hasher.finalize().to_string());
    }
    let count = bytes.div_ceil(PIECE) as usize;
    let (next, pieces) = (AtomicUsize::new(0), Mutex::new(vec![[0; 32]; count]));
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    threads::each((0..cores.min(count)).collect(), |_| {
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= count {
                return Ok(());
            }
            let (mut hasher, first) = (Hasher::new(), piece as u64 * PIECE);
            hasher.set_input_offset(first);
            feed(&read, first, PIECE.min(bytes - first), &mut hasher)?;
            pieces.lock().unwrap_or_else(PoisonError::into_inner)[piece] = hasher.finalize_non_root();
        }
    })?;
    let pieces = pieces.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (left, right) = halves(&pieces, bytes);
    Ok(merge_subtrees_root(&left, &right, Mode::Hash).to_string())
}

/// Hashes `bytes` bytes of an output from `first` on.
fn feed(read: &impl Read, first: u64, bytes: u64, hasher: &mut Hasher) -> Result<()> {
    let mut buffer = vec![0; bytes.min(BUFFER) as usize];
    for offset in (0..bytes).step_by(BUFFER as usize) {
        let part = &mut buffer[..(bytes - offset).min(BUFFER) as usize];
        read(first + offset, part)?;
        hasher.update(part);
    }
    Ok(())
}

/// Returns the hashes of both halves of the tree over several pieces, which have so many bytes together.
fn halves(pieces: &[ChainingValue], bytes: u64) -> (ChainingValue, ChainingValue) {
    let left = left_subtree_len(bytes);
    let (first, second) = pieces.split_at((left / PIECE) as usize);
    (merged(first, left), merged(second, bytes - left))
}

/// Returns the hash of the tree over pieces, which is not the whole output. The tree is as deep as a number has bits.
fn merged(pieces: &[ChainingValue], bytes: u64) -> ChainingValue {
    if let [piece] = pieces {
        return *piece;
    }
    let (left, right) = halves(pieces, bytes);
    merge_subtrees_non_root(&left, &right, Mode::Hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn of(bytes: &[u8]) -> String {
        let read = |offset: u64, to: &mut [u8]| {
            to.copy_from_slice(&bytes[offset as usize..][..to.len()]);
            Ok(())
        };
        checksum(bytes.len() as u64, read).unwrap()
    }

    #[test]
    fn pieces_give_the_hash_of_the_whole() {
        let piece = PIECE as usize;
        let mut all: Vec<u8> = (0..9 * piece as u64 + 77).map(|k| (k * k / 7) as u8).collect();
        for bytes in [0, 1, 1000, piece - 1, piece, piece + 1, 2 * piece, 3 * piece + 5, 8 * piece, all.len()] {
            let expected = blake3::hash(&all[..bytes]).to_string();
            assert_eq!(of(&all[..bytes]), expected, "{bytes} bytes");
        }
        let before = of(&all);
        all[7 * piece + 123] ^= 4;
        assert_ne!(of(&all), before);
    }

    #[test]
    fn bytes_that_cannot_be_read_are_an_error() {
        for bytes in [8, 3 * PIECE] {
            let error = checksum(bytes, |_, _| Err(Error::file("y", "is gone", "look for it"))).unwrap_err();
            assert_eq!(error.to_string(), "y: is gone; look for it");
        }
    }
}
