//! New Zarr stores of version 3: an array, or a group with an array for each output.

use super::super::encoded_sink::{Container, NewOutput};
use super::super::file::{io_error, too_many_open, write_error};
use super::super::new_file::{Encoding, NewColumn, require_sync};
use super::super::unfinished_folder::UnfinishedFolder;
use super::described::name_of;
use super::folder::{DESCRIPTIONS, Folder};
use super::grid::Grid;
use super::{Node, apart, damaged, one_line};
use crate::data::{Codec, Dtype, shorten};
use crate::error::{Error, Result};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zarrs::array::{Array, ArrayBytes, ArrayMetadata, ArrayToBytesCodecTraits, CodecOptions};

/// The bytes of a chunk, unless the caller sets its shape.
const CHUNK_BYTES: u64 = 8 << 20;

/// A folder that becomes a store.
pub(in crate::data) struct NewStore {
    folder: UnfinishedFolder,
    arrays: Vec<NewArray>,
    fsync: bool,
}

struct NewArray {
    /// Where it is in the store; nothing if it is the store.
    name: Option<String>,
    shape: Vec<u64>,
    /// The chunks, or the shards.
    grid: Grid,
    /// What describes an array of this shape.
    description: Value,
    /// What encodes chunks.
    array: Array<Folder>,
    options: CodecOptions,
}

/// Checks that a folder is a store, which a new one may replace, or is empty.
pub(in crate::data) fn may_replace(folder: &Path) -> Result<()> {
    let is_empty = || fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    // Its name does not tell.
    if Node::of(folder).is_some() || is_empty() {
        return Ok(());
    }
    let remedy = "choose another name, or remove the folder first";
    Err(Error::file(folder, "is a folder that is no Zarr store, so that it is not replaced", remedy))
}

/// The most bytes that Blosc compresses at a time.
const MOST_OF_BLOSC: u64 = i32::MAX as u64 - 16;

/// Returns the bytes of the files that begin at the same index along the first axis.
///
/// # Errors
/// Returns an error if the array cannot have such chunks.
pub(in crate::data) fn grain_bytes(path: &Path, encoding: &Encoding, dtype: Dtype, shape: &[u64]) -> Result<u64> {
    if let Some(chunks) = encoding.chunks.as_ref().filter(|chunks| chunks.len() != shape.len()) {
        let problem = format!("has the shape {shape:?}, to which chunks of the shape {chunks:?} do not fit");
        return Err(Error::file(path, problem, "give a length for each axis"));
    }
    if let Some(names) = encoding.dimensions.as_ref().filter(|names| names.len() != shape.len()) {
        let problem = format!("has the shape {shape:?}, to which dimensions called {} do not fit", names.join(", "));
        return Err(Error::file(path, problem, "give a name for each axis"));
    }
    let chunk = chunk_shape(encoding, dtype, shape);
    let of_blosc = |grid: &Grid| encoding.codec != Some(Codec::Lz4) || grid.chunk_bytes() <= MOST_OF_BLOSC;
    if !Grid::new(shape, &chunk, dtype.size()).is_some_and(|grid| of_blosc(&grid)) {
        return Err(Error::file(path, format!("cannot have chunks of the shape {chunk:?}"), "choose smaller ones"));
    }
    let grid = file_grid(path, encoding, dtype, shape)?;
    let bytes = grain(encoding, dtype, shape).saturating_mul(dtype.size() as u64);
    // Shards have whole chunks, of which those at the end of an axis reach behind the array.
    Ok(if encoding.shards.is_some() { bytes.max(grid.slab_memory()) } else { bytes })
}

/// Returns the pieces of an array that have a file each.
fn file_grid(path: &Path, encoding: &Encoding, dtype: Dtype, shape: &[u64]) -> Result<Grid> {
    let own = file_shape(encoding, dtype, shape);
    Grid::new(shape, &own, dtype.size()).ok_or_else(|| {
        let problem = match encoding.shards {
            Some(_) => format!("cannot have shards of the shape {own:?}"),
            None => format!("cannot have chunks of the shape {own:?}"),
        };
        Error::file(path, problem, "choose smaller ones")
    })
}

/// Returns the elements of the files that begin at the same index along the first axis.
fn grain(encoding: &Encoding, dtype: Dtype, shape: &[u64]) -> u64 {
    let inner = shape.iter().skip(1).fold(1u64, |product, length| product.saturating_mul(*length));
    let own = file_shape(encoding, dtype, shape);
    own.first().map_or(1, |length| length.saturating_mul(inner))
}

/// Returns the shape of the chunks. None is longer than the array.
fn chunk_shape(encoding: &Encoding, dtype: Dtype, shape: &[u64]) -> Vec<u64> {
    if let Some(chunks) = &encoding.chunks {
        return chunks.iter().zip(shape).map(|(chunk, length)| *chunk.min(length).max(&1)).collect();
    }
    let mut left = CHUNK_BYTES / dtype.size() as u64;
    let mut chunk = vec![1; shape.len()];
    for (chunk, length) in chunk.iter_mut().zip(shape).rev() {
        *chunk = (*length).min(left).max(1);
        left /= *chunk;
    }
    chunk
}

/// Returns the shape of what has a file of its own: a shard, or a chunk if there are none. No shard has chunks that are
/// behind the end of the array.
fn file_shape(encoding: &Encoding, dtype: Dtype, shape: &[u64]) -> Vec<u64> {
    let chunk = chunk_shape(encoding, dtype, shape);
    let Some(shards) = &encoding.shards else { return chunk };
    let own = |((chunk, shard), length): ((&u64, &u64), &u64)| {
        length.checked_next_multiple_of(*chunk).map_or(*shard, |length| length.min(*shard)).max(*chunk)
    };
    chunk.iter().zip(shards).zip(shape).map(own).collect()
}

impl NewStore {
    /// Creates a store without chunks, and returns what is to be encoded for each array.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be created, or an array cannot have such chunks.
    pub(in crate::data) fn create(
        path: &Path,
        outputs: Vec<NewColumn>,
        encoding: &Encoding,
        (force, fsync): (bool, bool),
    ) -> Result<(NewStore, Vec<NewOutput>)> {
        let folder = UnfinishedFolder::create(path, force, may_replace)?;
        let is_group = outputs.len() > 1;
        if is_group {
            let group = json!({ "zarr_format": 3, "node_type": "group", "attributes": {} });
            describe(&folder, &folder.place().join(DESCRIPTIONS[0]), &group, fsync)?;
        }
        let (mut arrays, mut new) = (Vec::new(), Vec::new());
        for NewColumn { name, dtype, rows, shape } in outputs {
            let shape = shape.unwrap_or_else(|| vec![rows]);
            new.push(NewOutput {
                name: name.clone(),
                dtype,
                rows,
                grain: grain(encoding, dtype, &shape),
                is_column: false,
            });
            arrays.push(NewArray::new(path, is_group.then_some(name), shape, dtype, encoding)?);
        }
        Ok((NewStore { folder, arrays, fsync }, new))
    }

    fn place(&self, array: &NewArray) -> PathBuf {
        array.name.as_ref().map_or_else(|| self.folder.place().to_owned(), |name| self.folder.place().join(name))
    }
}

impl NewArray {
    fn new(path: &Path, name: Option<String>, shape: Vec<u64>, dtype: Dtype, encoding: &Encoding) -> Result<NewArray> {
        let own = file_shape(encoding, dtype, &shape);
        let grid = file_grid(path, encoding, dtype, &shape)?;
        let description = description(dtype, &shape, &own, encoding);
        let opened = || {
            let described = serde_json::from_value(description.clone()).map_err(|e| e.to_string())?;
            // Nothing is read or written by it.
            let nowhere = Arc::new(Folder(PathBuf::new()));
            let array = Array::new_with_metadata(nowhere, "/", ArrayMetadata::V3(described));
            Ok((array.map_err(|e| e.to_string())?, CodecOptions::default().with_concurrent_target(1)))
        };
        let (array, options) = apart(opened).map_err(|what| damaged(path, &one_line(&what)))?;
        Ok(NewArray { name, shape, grid, description, array, options })
    }

    /// Returns the bytes of a chunk or a shard as they are stored.
    fn encoded<'b>(&self, indices: &[u64], bytes: &'b [u8]) -> std::result::Result<Cow<'b, [u8]>, String> {
        let (array, bytes) = (&self.array, ArrayBytes::new_flen(bytes));
        let shape = array.chunk_shape(indices).map_err(|e| e.to_string())?;
        let encoded = array.codecs().encode(bytes, &shape, array.data_type(), array.fill_value(), &self.options);
        encoded.map_err(|e| e.to_string())
    }
}

impl Container for NewStore {
    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn encode(&self, output: usize, slab: u64, rows: &[u8]) -> Result<()> {
        let array = &self.arrays[output];
        let (grid, place) = (&array.grid, self.place(array));
        let len = grid.chunk_bytes() as usize;
        for chunk in 0..grid.chunks() {
            let bytes = match grid.chunks() {
                1 if rows.len() == len => Cow::Borrowed(rows),
                // Behind the end of the array are zeros.
                _ => {
                    let mut bytes = vec![0; len];
                    grid.gather(slab, chunk, rows, grid.slab(slab).start, &mut bytes);
                    Cow::Owned(bytes)
                }
            };
            // A chunk that is not there has the fill value.
            if bytes.iter().all(|byte| *byte == 0) {
                continue;
            }
            let indices = grid.indices(slab, chunk);
            let encoded = array.encoded(&indices, &bytes).map_err(|what| {
                let problem = format!("its chunk {indices:?} cannot be encoded: {}", one_line(&what));
                Error::file(self.path(), problem, "choose another codec")
            })?;
            let file = place.join(array.array.chunk_key(&indices).as_str());
            write(&file, &encoded, self.fsync).map_err(|e| failed(self.path(), encoded.len(), e))?;
        }
        Ok(())
    }

    fn describe(&self, rows: &[u64]) -> Result<()> {
        for (array, rows) in self.arrays.iter().zip(rows) {
            let (mut shape, mut description) = (array.shape.clone(), array.description.clone());
            if *rows != shape.iter().product::<u64>() {
                shorten(&mut shape, *rows);
            }
            description["shape"] = json!(shape);
            describe(&self.folder, &self.place(array).join(DESCRIPTIONS[0]), &description, self.fsync)?;
        }
        if self.fsync { self.folder.sync() } else { Ok(()) }
    }

    fn warning(&self) -> Option<String> {
        self.folder.warning().map(|note| format!("{}: {note}", self.path().display()))
    }

    fn check(&self) -> Result<()> {
        self.folder.check()
    }

    fn publish(&mut self) -> Result<()> {
        // As for files: once.
        let was_named = self.folder.is_named();
        self.folder.publish()?;
        if self.fsync && !was_named { require_sync(self.path(), self.folder.place()) } else { Ok(()) }
    }

    fn commit(self) -> Result<()> {
        self.folder.commit()
    }
}

/// Returns what describes an array whose files have pieces of the shape `own`.
fn description(dtype: Dtype, shape: &[u64], own: &[u64], encoding: &Encoding) -> Value {
    let fill = match dtype {
        Dtype::Bool => json!(false),
        dtype if dtype.is_float() => json!(0.0),
        _ => json!(0),
    };
    let bytes = match dtype.size() {
        1 => json!({ "name": "bytes" }),
        _ => json!({ "name": "bytes", "configuration": { "endian": "little" } }),
    };
    let compressed = match encoding.codec.unwrap_or_default() {
        Codec::None | Codec::Snappy => None,
        Codec::Zstd(level) => Some(json!({ "name": "zstd", "configuration": { "level": level, "checksum": false } })),
        Codec::Gzip(level) => Some(json!({ "name": "gzip", "configuration": { "level": level } })),
        Codec::Lz4 => Some(json!({ "name": "blosc", "configuration": {
            "cname": "lz4",
            "clevel": 5,
            "shuffle": if dtype.size() > 1 { "shuffle" } else { "noshuffle" },
            "typesize": dtype.size(),
            "blocksize": 0,
        } })),
    };
    let mut codecs: Vec<Value> = [bytes].into_iter().chain(compressed).collect();
    if encoding.shards.is_some() {
        let index = json!([{ "name": "bytes", "configuration": { "endian": "little" } }, { "name": "crc32c" }]);
        codecs = vec![json!({ "name": "sharding_indexed", "configuration": {
            "chunk_shape": chunk_shape(encoding, dtype, shape),
            "codecs": codecs,
            "index_codecs": index,
            "index_location": "end",
        } })];
    }
    // As xarray names those that have no name. It opens no array without names.
    let names = || (0..shape.len()).map(|axis| format!("dim_{axis}")).collect();
    let names: Vec<String> = encoding.dimensions.clone().unwrap_or_else(names);
    json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": name_of(dtype),
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": own } },
        "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
        "fill_value": fill,
        "codecs": codecs,
        "attributes": {},
        "dimension_names": names,
    })
}

fn describe(folder: &UnfinishedFolder, file: &Path, description: &Value, fsync: bool) -> Result<()> {
    let text = format!("{description:#}\n");
    write(file, text.as_bytes(), fsync).map_err(|e| failed(folder.path(), text.len(), e))
}

/// Writes a file, and makes its folder if there is none.
fn write(path: &Path, bytes: &[u8], fsync: bool) -> io::Result<()> {
    let mut file = match (File::create_new(path), path.parent()) {
        (Err(e), Some(folder)) if e.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(folder)?;
            File::create_new(path)?
        }
        (file, _) => file?,
    };
    file.write_all(bytes)?;
    if fsync { file.sync_all() } else { Ok(()) }
}

fn failed(path: &Path, needed: usize, error: io::Error) -> Error {
    match too_many_open(&error) {
        Some(remedy) => io_error(path, "cannot be written", remedy, error),
        None => write_error(path, needed as u64, error),
    }
}
