//! What tells a complete file from others.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use twox_hash::XxHash3_128;

/// A file is sampled at this many places, with this many bytes at each.
const SAMPLES: u64 = 64;
const SAMPLE: u64 = 1024;

/// What tells a complete file from others, under any name: its length, the time of its last change, and samples of its
/// bytes. The number of its inode would say less: file systems give it to another file when this one is removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    bytes: u64,
    /// Seconds and nanoseconds since 1970.
    modified: (i64, i64),
    sample: String,
}

impl Stamp {
    /// Returns the stamp of a file. It lasts if the file was synced.
    pub(crate) fn of(file: &File) -> io::Result<Stamp> {
        let metadata = file.metadata()?;
        let bytes = metadata.len();
        // From the first bytes to the last ones; of a small file, all bytes.
        let (count, samples) = (bytes.min(SAMPLE), bytes.div_ceil(SAMPLE).min(SAMPLES));
        let mut sample = vec![0; (count * samples) as usize];
        for (place, piece) in sample.chunks_exact_mut(count.max(1) as usize).enumerate() {
            let first = u128::from(bytes - count) * place as u128 / u128::from(samples.saturating_sub(1).max(1));
            file.read_exact_at(piece, first as u64)?;
        }
        let sample = format!("{:032x}", XxHash3_128::oneshot(&sample));
        Ok(Stamp { bytes, modified: (metadata.mtime(), metadata.mtime_nsec()), sample })
    }
}
