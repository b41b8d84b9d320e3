//! Shards: files that hold several chunks, with an index that says where each is.

use super::Store;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use zarrs::array::{Array, ArrayBytes, ArrayError, ArrayPartialDecoderTraits, ArraySubset, CodecError, CodecOptions};

/// The most shards whose indexes are in memory.
const INDEXES: usize = 256;

/// The shards of an array, whose chunks are decoded one by one.
pub(super) struct Shards {
    /// The lengths of a chunk, and the chunks of a shard along each axis.
    chunk: Vec<u64>,
    counts: Vec<u64>,
    /// By the indices of shards.
    indexes: Mutex<HashMap<Vec<u64>, Arc<dyn ArrayPartialDecoderTraits>>>,
}

impl Shards {
    /// Shards of these lengths, which are whole numbers of chunks.
    pub(super) fn new(chunk: &[u64], shard: &[u64]) -> Shards {
        let counts = shard.iter().zip(chunk).map(|(shard, chunk)| (shard / chunk).max(1)).collect();
        Shards { chunk: chunk.to_vec(), counts, indexes: Mutex::default() }
    }

    /// Forgets the indexes.
    pub(super) fn clear(&self) {
        self.indexes.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Decodes a chunk.
    pub(super) fn decode(
        &self,
        array: &Array<Store>,
        indices: &[u64],
        options: &CodecOptions,
    ) -> Result<ArrayBytes<'static>, ArrayError> {
        let axes = || indices.iter().zip(&self.counts);
        let shard: Vec<u64> = axes().map(|(index, count)| index / count).collect();
        let starts: Vec<u64> = axes().zip(&self.chunk).map(|((index, count), length)| index % count * length).collect();
        let failed = |error: &dyn std::fmt::Display| ArrayError::from(CodecError::Other(error.to_string()));
        let chunk = ArraySubset::new_with_start_shape(starts, self.chunk.clone()).map_err(|e| failed(&e))?;
        Ok(self.index(array, shard, options)?.partial_decode(&chunk, options)?.into_owned())
    }

    /// Returns a shard whose index has been read.
    fn index(
        &self,
        array: &Array<Store>,
        shard: Vec<u64>,
        options: &CodecOptions,
    ) -> Result<Arc<dyn ArrayPartialDecoderTraits>, ArrayError> {
        let lock = || self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&shard) {
            return Ok(known.clone());
        }
        let read = array.partial_decoder_opt(&shard, options)?;
        let mut indexes = lock();
        if indexes.len() >= INDEXES {
            indexes.clear();
        }
        indexes.insert(shard, read.clone());
        Ok(read)
    }
}
