//! Arrays of Zarr stores. The crate zarrs says what a store holds and decodes chunks.
//!
//! <https://zarr-specs.readthedocs.io> has the format, versions 2 and 3.

mod described;
mod folder;
mod grid;
mod slabs;

use self::described::{described, dtype_of};
use self::folder::{Folder, state};
use self::grid::Grid;
use self::slabs::{Chunks, Slabs};
use super::direct::memory;
use super::table_file::names;
use super::{Dtype, ReadMode, Source, StoredArray};
use crate::error::{Error, Result};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::available_parallelism;
use zarrs::array::{
    Array, ArrayBytes, ArrayError, ArrayMetadata, ArrayMetadataV2, ArrayShardedExt, ArrayShardedReadableExt,
};
use zarrs::array::{ArrayShardedReadableExtCache, CodecOptions};
use zarrs::metadata::v2::ArrayMetadataV2Order;
use zarrs::plugin::{ExtensionName, ZarrVersion};

/// Decoded bytes that are worth their memory if slabs are small: the rows that all workers read at a time are in them.
const SPAN: u64 = 1 << 30;

/// The most shards whose indexes are in memory.
const INDEXES: usize = 256;

/// An array of a Zarr store in a folder, of version 2 or 3 of the format: numbers or booleans of any rank, in any
/// order, in regular chunks and shards.
///
/// The rows are the elements of the array in C order. They are decoded while they are read, which takes the time of
/// the threads that read. All chunks that begin at the same index along the first axis are a slab. A few slabs are in
/// memory at a time, so that each chunk is decoded once.
///
/// ```no_run
/// use overshot::{Engine, Job, Zarr};
/// let job = Job::eval("mean(t)")?.input("t", Zarr::open("era5.zarr/temperature")?);
/// let report = Engine::builder().build()?.run(job)?;
/// # Ok::<(), overshot::Error>(())
/// ```
pub struct Zarr {
    path: PathBuf,
    dtype: Dtype,
    shape: Vec<u64>,
    is_direct: bool,
    slabs: Slabs<Decoder>,
}

/// What a folder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Array,
    Group,
}

/// Decodes the chunks of an array.
struct Decoder {
    path: PathBuf,
    array: Array<Folder>,
    /// The indexes of shards, if chunks are parts of them.
    shards: Option<ArrayShardedReadableExtCache>,
    bytes: u64,
    options: CodecOptions,
}

impl Zarr {
    /// Opens an array, or the only array of a group. Only what describes it is read.
    ///
    /// # Errors
    /// Returns an error if the folder is no Zarr array, and no group with one; if its values are not of a [`Dtype`],
    /// its chunks not regular, or a codec not supported; and if two of its slabs need more than half of the machine's
    /// memory.
    pub fn open(path: impl AsRef<Path>) -> Result<Zarr> {
        Zarr::of(path.as_ref(), None, ReadMode::default())
    }

    /// Opens an array of a group, by its name in it, such as `temperature` or `forecast/wind`.
    ///
    /// # Errors
    /// Returns the same errors as [`open`](Zarr::open).
    pub fn array(group: impl AsRef<Path>, name: &str) -> Result<Zarr> {
        Zarr::of(group.as_ref(), Some(name), ReadMode::default())
    }

    /// Opens an array of a group, or the array itself if there is no name.
    pub(super) fn of(path: &Path, name: Option<&str>, reading: ReadMode) -> Result<Zarr> {
        let path = match (Node::of(path), name) {
            (None, _) => {
                let problem = "is no Zarr array, because it has neither zarr.json nor .zarray";
                return Err(Error::file(path, problem, "name the folder of an array"));
            }
            (Some(Node::Array), None) => path.to_owned(),
            (Some(Node::Array), Some(name)) => {
                let problem = format!("is a Zarr array, so that it has no array '{name}'");
                return Err(Error::file(path, problem, "leave the name out"));
            }
            (Some(Node::Group), Some(name)) if Node::of(&path.join(name)) == Some(Node::Array) => path.join(name),
            (Some(Node::Group), name) => only_array(path, name)?,
        };
        let array = opened(&path)?;
        let dtype = dtype_of(array.data_type()).map_err(|kind| {
            let problem = format!("has values of {kind}, which are no numbers that a job can read");
            Error::file(&path, problem, "write them as numbers, as in array.astype('f8')")
        })?;
        // What follows a shard's index in the file would have to be decoded as a whole for each of its chunks.
        let has_parts = array.is_sharded() && array.codecs().bytes_to_bytes_codecs().is_empty();
        let parts = array.effective_subchunk_shape().filter(|_| has_parts);
        let shards = parts.is_some().then(|| ArrayShardedReadableExtCache::new(&array));
        let chunk = match parts {
            Some(shape) => shape,
            None => regular(&path, &array)?,
        };
        let chunk: Vec<u64> = chunk.iter().map(|length| length.get()).collect();
        let shape = array.shape().to_vec();
        let grid = Grid::new(&shape, &chunk, dtype.size());
        let grid = grid.ok_or_else(|| damaged(&path, "it has more elements than can be counted"))?;
        let window = window(&path, &grid)?;
        let mut options = CodecOptions::default();
        // The threads that read decode, each another chunk.
        options.set_concurrent_target(1);
        let decoder = Decoder { path: path.clone(), array, shards, bytes: grid.chunk_bytes(), options };
        let slabs = Slabs::new(decoder, grid, dtype.size(), window);
        Ok(Zarr { path, dtype, shape, is_direct: reading == ReadMode::Direct, slabs })
    }

    /// See [`StoredArray::all`].
    pub(super) fn described(path: &Path) -> Result<Option<Vec<StoredArray>>> {
        Node::of(path).map(|_| described(path)).transpose()
    }

    /// Returns whether a path is that of an array or a group, or should be by its name.
    pub(super) fn is_at(path: &Path) -> bool {
        let is_named = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("zarr"));
        Node::of(path).is_some() || (is_named && path.is_dir())
    }

    /// Returns the size in bytes of the elements.
    pub(super) fn bytes(&self) -> u64 {
        self.slabs.grid.elements() * self.dtype.size() as u64
    }
}

impl Node {
    fn of(path: &Path) -> Option<Node> {
        let has = |name: &str| path.join(name).is_file();
        if has("zarr.json") {
            // A damaged description is that of an array, whose error says so.
            let text = std::fs::read(path.join("zarr.json")).unwrap_or_default();
            let described: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
            return Some(if described["node_type"] == "group" { Node::Group } else { Node::Array });
        }
        if has(".zarray") {
            return Some(Node::Array);
        }
        (has(".zgroup") || has(".zmetadata")).then_some(Node::Group)
    }
}

/// Returns the array of a group that is not named, or the error for a name that the group does not have.
fn only_array(group: &Path, name: Option<&str>) -> Result<PathBuf> {
    let all = described(group)?;
    let known: Vec<&str> = all.iter().map(|array| &*array.name).collect();
    match (name, &known[..]) {
        (None, [only]) => Ok(group.join(only)),
        (_, []) => Err(Error::file(group, "is a Zarr group without arrays", "name a group that has some")),
        (Some(name), _) => {
            let problem = format!("has no array '{name}', only {}", names(&known));
            Err(Error::file(group, problem, "check the name"))
        }
        (None, [first, ..]) => {
            let problem = format!("is a Zarr group with the arrays {}", names(&known));
            Err(Error::file(group, problem, format!("name one of them, as in {}", group.join(first).display())))
        }
    }
}

/// Opens an array, whose folder has a description.
fn opened(path: &Path) -> Result<Array<Folder>> {
    let folder = Arc::new(Folder(path.into()));
    let open = || -> std::result::Result<Array<Folder>, String> {
        if path.join("zarr.json").exists() {
            return Array::open(folder, "/").map_err(|error| error.to_string());
        }
        let text = std::fs::read(path.join(".zarray")).map_err(|error| error.to_string())?;
        let mut described: ArrayMetadataV2 = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        if described.shape.is_empty() {
            // The crate does not expect that an array without axes has Fortran order, which is the same there.
            described.order = ArrayMetadataV2Order::C;
        }
        Array::new_with_metadata(folder, "/", ArrayMetadata::V2(described)).map_err(|error| error.to_string())
    };
    without_panic(open).map_err(|what| {
        let remedy = "write it with the codecs and the types that the guide to formats lists, or write it again";
        Error::file(path, format!("is a Zarr array that cannot be read: {}", one_line(&what)), remedy)
    })
}

/// Returns the shape of the chunks, which all have the same one.
fn regular(path: &Path, array: &Array<Folder>) -> Result<Vec<std::num::NonZeroU64>> {
    let is_regular = array.chunk_grid().name(ZarrVersion::V3).is_some_and(|name| name == "regular");
    let shape = array.chunk_shape(&vec![0; array.dimensionality()]).ok().filter(|_| is_regular);
    let remedy = "write it with chunks of one shape";
    shape.ok_or_else(|| Error::file(path, "has chunks that are not regular", remedy))
}

/// Returns how many slabs are in memory: enough for all cores, and not more than a quarter of the memory, but two.
fn window(path: &Path, grid: &Grid) -> Result<usize> {
    let chunks = grid.chunks() as u64;
    let slab = chunks.saturating_mul(grid.chunk_bytes()).max(1);
    let (all, slabs) = (memory(), grid.slabs().max(1));
    let least = slabs.min(2);
    let needed = slab.saturating_mul(least);
    if needed > all / 2 {
        let problem = format!(
            "needs {needed} bytes of memory for the chunks of two slabs along its first axis, which is more than half \
             of the machine's memory of {all} bytes"
        );
        return Err(Error::file(path, problem, "write it with chunks that are shorter along the first axis"));
    }
    let cores = available_parallelism().map_or(1, usize::from) as u64;
    let wanted = (1 + cores.div_ceil(chunks.max(1))).max(SPAN / slab);
    Ok(wanted.min(all / 4 / slab).min(slabs).max(least) as usize)
}

/// Calls the crate zarrs, and those that it calls. They have assertions about what they read, so a damaged chunk may
/// make them panic where they return no error. No value that they were working on is used again then.
fn without_panic<T>(call: impl FnOnce() -> std::result::Result<T, String>) -> std::result::Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err("it makes no sense".into()))
}

fn damaged(path: &Path, what: &str) -> Error {
    Error::file(path, format!("is not a complete Zarr array: {what}"), "copy or write it again")
}

/// Returns a message of another crate as one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Chunks for Decoder {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn decode(&self, indices: &[u64]) -> Result<Vec<u8>> {
        let decode = || -> std::result::Result<ArrayBytes<'static>, ArrayError> {
            match &self.shards {
                Some(shards) => {
                    if shards.len() > INDEXES {
                        shards.clear();
                    }
                    self.array.retrieve_subchunk_opt(shards, indices, &self.options)
                }
                None => self.array.retrieve_chunk_opt(indices, &self.options),
            }
        };
        let decoded = without_panic(|| {
            let bytes = decode().map_err(|error| error.to_string())?;
            let bytes = bytes.into_fixed().map_err(|error| error.to_string())?.into_owned();
            match bytes.len() as u64 == self.bytes {
                true => Ok(bytes),
                false => Err(format!("it has {} bytes instead of {}", bytes.len(), self.bytes)),
            }
        });
        decoded.map_err(|what| {
            damaged(&self.path, &format!("its chunk {indices:?} cannot be decoded: {}", one_line(&what)))
        })
    }
}

impl fmt::Debug for Zarr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Zarr { path, dtype, shape, .. } = self;
        f.debug_struct("Zarr").field("path", path).field("dtype", dtype).field("shape", shape).finish_non_exhaustive()
    }
}

impl Source for Zarr {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn rows(&self) -> u64 {
        self.slabs.grid.elements()
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        self.slabs.read(first, dst)
    }

    fn shape(&self) -> Option<&[u64]> {
        Some(&self.shape)
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn decodes(&self) -> bool {
        true
    }

    fn decode_memory(&self) -> u64 {
        self.slabs.memory()
    }

    fn version(&self) -> Option<u128> {
        state(&self.path).ok().map(|(state, _)| state)
    }

    fn warning(&self) -> Option<String> {
        let name = self.name();
        self.is_direct.then(|| format!("{name} is not read with direct I/O, because it is decoded chunk by chunk"))
    }
}
