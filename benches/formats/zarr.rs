//! Zarr arrays, as the crate zarrs writes them and decodes them alone.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rayon::prelude::*;
use zarrs::array::codec::BloscCodec;
use zarrs::array::codec::bytes_to_bytes::zstd::ZstdCodec;
use zarrs::array::{
    Array, ArrayBuilder, ArrayBytes, ArrayShardedExt, ArrayShardedReadableExt, ArrayShardedReadableExtCache,
    BytesToBytesCodecTraits, CodecOptions, data_type,
};
use zarrs::filesystem::FilesystemStore;

use crate::{Outcome, on_all_cores};

/// The values of a row: each array has this many behind the first axis.
pub const ROW: usize = 64 * 64;

/// How arrays are written.
#[derive(Clone, Copy)]
pub struct How {
    codec: Codec,
    chunk: [u64; 3],
    shard: Option<[u64; 3]>,
}

#[derive(Clone, Copy)]
enum Codec {
    None,
    Zstd,
    Lz4,
}

/// With their names: chunks of 2 MiB, and of 64 MiB.
pub const ALL: [(&str, How); 5] = {
    let how = How { codec: Codec::Zstd, chunk: [128, 64, 32], shard: None };
    [
        ("zarr, zstd", how),
        ("zarr, zstd, shards", How { shard: Some([512, 64, 64]), ..how }),
        ("zarr, zstd, large chunks", How { chunk: [2048, 64, 64], ..how }),
        ("zarr, blosc lz4", How { codec: Codec::Lz4, ..how }),
        ("zarr, not compressed", How { codec: Codec::None, ..how }),
    ]
};

/// Writes the arrays `a` and `b` into a folder.
pub fn write(folder: &Path, columns: [&Vec<f64>; 2], how: How) -> Outcome {
    let codec: Option<Arc<dyn BytesToBytesCodecTraits>> = match how.codec {
        Codec::None => None,
        Codec::Zstd => Some(Arc::new(ZstdCodec::new(1, false))),
        Codec::Lz4 => {
            use zarrs::metadata_ext::codec::blosc::{BloscCompressionLevel, BloscCompressor, BloscShuffleMode};
            let level = BloscCompressionLevel::try_from(5u8).map_err(|_| "no level")?;
            Some(Arc::new(BloscCodec::new(BloscCompressor::LZ4, level, None, BloscShuffleMode::Shuffle, Some(8))?))
        }
    };
    for (name, values) in ["a", "b"].into_iter().zip(columns) {
        if values.len() % ROW != 0 {
            return Err(format!("the size is no multiple of {} bytes", 16 * ROW).into());
        }
        let rows = (values.len() / ROW) as u64;
        let outer = how.shard.unwrap_or(how.chunk);
        let mut builder = ArrayBuilder::new(vec![rows, 64, 64], outer.to_vec(), data_type::float64(), 0.0);
        builder.bytes_to_bytes_codecs(codec.iter().cloned().collect());
        if how.shard.is_some() {
            builder.subchunk_shape(how.chunk.to_vec());
        }
        std::fs::create_dir_all(folder.join(name))?;
        let array = builder.build(Arc::new(FilesystemStore::new(folder.join(name))?), "/")?;
        array.store_metadata()?;
        let slabs = rows.div_ceil(outer[0]);
        (0..slabs).into_par_iter().try_for_each(|slab| {
            let (begin, end) = (slab * outer[0], ((slab + 1) * outer[0]).min(rows));
            let own = &values[begin as usize * ROW..end as usize * ROW];
            array.store_array_subset(&[begin..end, 0..64, 0..64], own).map_err(|e| e.to_string())
        })?;
    }
    Ok(())
}

/// Decodes both arrays with the crate zarrs alone: each core takes the next chunk.
pub fn decode(folder: &Path) -> Outcome {
    for name in ["a", "b"] {
        let array = Array::open(Arc::new(FilesystemStore::new(folder.join(name))?), "/")?;
        let counts = array.subchunk_grid_shape();
        let shards = ArrayShardedReadableExtCache::new(&array);
        let options = CodecOptions::default().with_concurrent_target(1);
        on_all_cores(|next| {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed) as u64;
                let place = [number / counts[2] / counts[1], number / counts[2] % counts[1], number % counts[2]];
                if place[0] >= counts[0] {
                    return Ok(());
                }
                let chunk: ArrayBytes<'_> =
                    array.retrieve_subchunk_opt(&shards, &place, &options).map_err(|e| e.to_string())?;
                std::hint::black_box(chunk);
            }
        })?;
    }
    Ok(())
}

/// Decodes both arrays with the crate zarrs alone: each core takes the next rows of a chunk or shard, in whole.
pub fn decode_rows(folder: &Path, how: How) -> Outcome {
    let step = how.shard.unwrap_or(how.chunk)[0];
    for name in ["a", "b"] {
        let array = Array::open(Arc::new(FilesystemStore::new(folder.join(name))?), "/")?;
        let options = CodecOptions::default().with_concurrent_target(1);
        on_all_cores(|next| {
            loop {
                let begin = next.fetch_add(1, Ordering::Relaxed) as u64 * step;
                if begin >= array.shape()[0] {
                    return Ok(());
                }
                let rows = [begin..(begin + step).min(array.shape()[0]), 0..64, 0..64];
                let values: ArrayBytes<'_> =
                    array.retrieve_array_subset_opt(&rows, &options).map_err(|e| e.to_string())?;
                std::hint::black_box(values);
            }
        })?;
    }
    Ok(())
}

/// Returns the bytes of the files.
pub fn bytes(folder: &Path) -> Outcome<u64> {
    let mut bytes = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            match entry.metadata()? {
                metadata if metadata.is_dir() => folders.push(entry.path()),
                metadata => bytes += metadata.len(),
            }
        }
    }
    Ok(bytes)
}
