//! Arrays of Zarr stores. The crate zarrs says what a store holds and decodes chunks.
//!
//! <https://zarr-specs.readthedocs.io> has the format, versions 2 and 3.

mod codecs;
mod described;
mod folder;
mod grid;
mod new_store;
#[cfg(feature = "remote")]
mod objects;
mod shards;
mod slabs;
mod store;

use self::described::{described, dtype_of, names_of};
use self::folder::DESCRIPTIONS;
use self::grid::Grid;
pub(super) use self::new_store::{NewStore, grain_bytes, may_replace};
use self::shards::Shards;
use self::slabs::{Chunks, Slabs};
use self::store::{Store, file_in, state_of};
use super::direct::memory;
use super::file::{io_error, too_many_open};
use super::file_layout::FileFormat;
use super::storage::{copy_of, error_within, read_error};
use super::table_file::names;
#[cfg(not(feature = "remote"))]
use super::url::refused;
use super::{Dtype, NewFile, ReadMode, Source, StoredArray, is_url};
use crate::error::{Error, Result};
use std::fmt;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;
use twox_hash::XxHash3_128;
use zarrs::array::CodecOptions;
use zarrs::array::{Array, ArrayBytes, ArrayError, ArrayMetadata, ArrayMetadataV2, ArrayShardedExt, CodecError};
use zarrs::metadata::v2::ArrayMetadataV2Order;
use zarrs::plugin::{ExtensionName, ZarrVersion};
use zarrs::storage::StorageError;

/// Decoded bytes that are worth their memory if slabs are small: the rows that all workers read at a time are in them.
const SPAN: u64 = 1 << 30;

/// An array of a Zarr store in a folder or at a URL, of version 2 or 3 of the format: numbers or booleans of any rank,
/// in any order, in regular chunks and shards.
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
    /// Its name in the group that was opened.
    name: Option<String>,
    dtype: Dtype,
    shape: Vec<u64>,
    is_direct: bool,
    slabs: Slabs<Decoder>,
    description: Description,
    /// Why no more rows are read: the array was described in another way when the last run began.
    refused: Mutex<Option<Error>>,
    /// Whether nobody could list the chunks when a run asked.
    is_unlisted: AtomicBool,
}

/// What an array was described as when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Description {
    /// The file.
    name: &'static str,
    checksum: u128,
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
    array: Array<Store>,
    /// Shards, if chunks are parts of them.
    shards: Option<Shards>,
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

    /// Returns an array of version 3 to be written by a job: a folder with this path. If several outputs of rows have
    /// the same path, it is a group, and each has an array with the name of the job's output. Nothing is created until
    /// the job runs.
    ///
    /// The rows are in chunks ([`NewFile::chunks`]), compressed with Zstandard unless [`NewFile::codec`] says
    /// otherwise, and in [shards](NewFile::shards) on request. Chunks whose values are all 0 are left out. The memory
    /// in which rows wait for others of their chunks is in the plan. The folder gets its name when all outputs of the
    /// job are complete. It replaces another store if all of its outputs are [forced](NewFile::force), and no other
    /// folder but an empty one.
    ///
    /// Jobs in parts, runs with a journal, and checksums need files whose rows have known places, such as `.npy`.
    ///
    /// ```
    /// use overshot::{Engine, Job, Zarr};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("y.zarr");
    /// let job = Job::eval("y = x / 2")?.input("x", &[1.0, 3.0]);
    /// Engine::builder().build()?.run(job.output("y", Zarr::create(&path).chunks(&[1])))?;
    /// let y = Zarr::open(&path)?;
    /// # Ok::<(), overshot::Error>(())
    /// ```
    pub fn create(path: impl AsRef<Path>) -> NewFile {
        NewFile::new(path.as_ref(), FileFormat::Zarr)
    }

    /// Opens an array of a group, or the array itself if there is no name.
    pub(super) fn of(path: &Path, name: Option<&str>, reading: ReadMode) -> Result<Zarr> {
        let (group, path) = (path, place(path, name)?);
        let name = path.strip_prefix(group).ok().map(|name| name.to_string_lossy().into_owned());
        let name = name.filter(|name| !name.is_empty());
        let (array, description) = opened(&path)?;
        let dtype = dtype_of(array.data_type()).map_err(|kind| {
            let problem = format!("has values of {kind}, which are no numbers that a job can read");
            Error::file(&path, problem, "write them as numbers, as in array.astype('f8')")
        })?;
        let (parts, outer) = (parts(&array), regular(&array));
        let shards = parts.as_ref().zip(outer.as_ref()).map(|(part, shard)| Shards::new(part, shard));
        let Some(chunk) = parts.filter(|_| shards.is_some()).or(outer) else {
            return Err(Error::file(path, "has chunks that are not regular", "write it with chunks of one shape"));
        };
        let shape = array.shape().to_vec();
        let grid = Grid::new(&shape, &chunk, dtype.size());
        let grid = grid.ok_or_else(|| damaged(&path, "it has more elements than can be counted"))?;
        let window = window(&path, &grid)?;
        // The threads that read decode, each another chunk.
        let options =
            apart(|| Ok(CodecOptions::default().with_concurrent_target(1))).map_err(|e| damaged(&path, &e))?;
        let decoder = Decoder { path: path.clone(), array, shards, bytes: grid.chunk_bytes(), options };
        let slabs = Slabs::new(decoder, grid, dtype.size(), window);
        let (is_direct, refused, is_unlisted) = (reading == ReadMode::Direct, Mutex::default(), AtomicBool::default());
        Ok(Zarr { path, name, dtype, shape, is_direct, slabs, description, refused, is_unlisted })
    }

    /// See [`StoredArray::all`].
    pub(super) fn described(path: &Path) -> Result<Option<Vec<StoredArray>>> {
        Node::find(path)?.map(|_| described(path)).transpose()
    }

    /// Returns whether a path is that of an array or a group, or should be by its name. That of a server that cannot be
    /// asked is not: who opens it has the error.
    pub(super) fn is_at(path: &Path) -> bool {
        Zarr::is_found(path).unwrap_or(false)
    }

    /// Returns what [`is_at`](Zarr::is_at) does.
    ///
    /// # Errors
    /// If a server cannot be asked.
    pub(super) fn is_found(path: &Path) -> Result<bool> {
        // A server is not asked about every file whose name says what it is.
        if is_url(path) && path.extension().is_some() && !path.ancestors().any(Zarr::is_named) {
            return Ok(false);
        }
        Ok(Node::find(path)?.is_some() || (Zarr::is_named(path) && path.is_dir()))
    }

    /// Returns whether a path has the name of a store.
    pub(super) fn is_named(path: &Path) -> bool {
        path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("zarr"))
    }

    /// Returns its name in the group that was opened; `None` if it is the array that was opened.
    pub(super) fn name_in_group(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the size in bytes of the elements.
    pub(super) fn bytes(&self) -> u64 {
        self.slabs.grid.elements() * self.dtype.size() as u64
    }

    /// Checks that the array is described as it was when it was opened: its chunks mean something else otherwise.
    fn check(&self) -> Result<()> {
        match Description::read(&self.path, self.description.name)? {
            Some((_, now)) if now == self.description => Ok(()),
            _ => Err(Error::file(&self.path, "changed after it was opened", "do not change a file while it is read")),
        }
    }
}

impl Description {
    /// Reads a description; `None` if there is no such file.
    fn read(path: &Path, name: &'static str) -> Result<Option<(Vec<u8>, Description)>> {
        let text = file_in(path, name).map_err(|error| match error_within(&error) {
            Some(error) => error,
            None => io_error(&path.join(name), "cannot be read", "check the path and its permissions", error),
        })?;
        Ok(text.map(|text| {
            let checksum = XxHash3_128::oneshot(&text);
            (text, Description { name, checksum })
        }))
    }
}

impl Node {
    /// Returns what a folder on a disk holds.
    fn of(path: &Path) -> Option<Node> {
        Node::find(path).ok().flatten()
    }

    /// Returns what a folder or a URL holds; `None` if it is no store.
    ///
    /// # Errors
    /// If a server cannot be asked.
    fn find(path: &Path) -> Result<Option<Node>> {
        if let Some(text) = found(path, "zarr.json")? {
            // A damaged description is that of an array, whose error says so.
            let described: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
            return Ok(Some(if described["node_type"] == "group" { Node::Group } else { Node::Array }));
        }
        if found(path, ".zarray")?.is_some() {
            return Ok(Some(Node::Array));
        }
        let is_group = found(path, ".zgroup")?.is_some() || found(path, ".zmetadata")?.is_some();
        Ok(is_group.then_some(Node::Group))
    }
}

/// Returns a description in a folder; `None` if there is none. One on a disk that cannot be read is empty here.
///
/// # Errors
/// If a server cannot be asked.
fn found(folder: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    if !is_url(folder) {
        let is_there = folder.join(name).is_file();
        return Ok(is_there.then(|| file_in(folder, name).ok().flatten().unwrap_or_default()));
    }
    match file_in(folder, name).map_err(|error| read_error(folder, error)) {
        // Web servers may have a page for every name.
        Ok(text) => Ok(text.filter(|text| text.trim_ascii_start().starts_with(b"{"))),
        // Who may not list a store gets this answer for what is not there.
        Err(Error::File { cause: Some(cause), .. }) if cause.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        // What was asked for is the folder, whose name may be that of a file.
        Err(Error::File { problem, remedy, cause, .. }) => {
            Err(Error::File { path: folder.into(), problem, remedy, cause })
        }
        Err(error) => Err(error),
    }
}

/// Returns the folder of an array: of a group, by its name; or the path itself.
fn place(path: &Path, name: Option<&str>) -> Result<PathBuf> {
    match (Node::find(path)?, name) {
        (None, _) => {
            #[cfg(not(feature = "remote"))]
            if is_url(path) {
                return refused(path);
            }
            if is_url(path) {
                file_in(path, DESCRIPTIONS[0]).map_err(|error| read_error(path, error))?;
            } else if let Err(error) = fs::read_dir(path) {
                return Err(io_error(path, "cannot be opened", "check the path and its permissions", error));
            }
            let problem = "is no Zarr array, because it has neither zarr.json nor .zarray";
            Err(Error::file(path, problem, "name the folder of an array"))
        }
        (Some(Node::Array), None) => Ok(path.to_owned()),
        (Some(Node::Array), Some(name)) => {
            let problem = format!("is a Zarr array, so that it has no array '{name}'");
            Err(Error::file(path, problem, "leave the name out"))
        }
        (Some(Node::Group), name) => array_of(path, name),
    }
}

/// Returns the folder of an array of a group, or that of the only one without a name.
fn array_of(group: &Path, name: Option<&str>) -> Result<PathBuf> {
    // Not one that leads elsewhere.
    let is_inside = |name: &str| Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if let Some(name) = name.filter(|name| is_inside(name))
        && Node::find(&group.join(name))? == Some(Node::Array)
    {
        return Ok(group.join(name));
    }
    let all = names_of(group)?;
    let known: Vec<_> = all.iter().map(|name| name.to_string_lossy()).collect();
    match (name, &all[..]) {
        (_, []) if is_url(group) => {
            let problem = "is a Zarr group in which no array was found; web servers do not list what they have";
            Err(Error::file(group, problem, "name an array by its URL"))
        }
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
fn opened(path: &Path) -> Result<(Array<Store>, Description)> {
    let [newer, older] = DESCRIPTIONS;
    let name = if found(path, newer)?.is_none() && found(path, older)?.is_some() { older } else { newer };
    let (text, description) = Description::read(path, name)?.ok_or_else(|| {
        let gone = io::ErrorKind::NotFound.into();
        io_error(&path.join(name), "cannot be read", "check the path and its permissions", gone)
    })?;
    let store = Store::of(path).map_err(|error| io_error(path, "has no place", "check the path", error))?;
    let store = Arc::new(store);
    let open = || {
        let mut described: serde_json::Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
        codecs::complete(&mut described)?;
        let described = match name {
            ".zarray" => {
                let mut described: ArrayMetadataV2 = serde_json::from_value(described).map_err(|e| e.to_string())?;
                if described.shape.is_empty() {
                    // The crate does not expect that an array without axes has Fortran order, which is the same there.
                    described.order = ArrayMetadataV2Order::C;
                }
                ArrayMetadata::V2(described)
            }
            _ => ArrayMetadata::V3(serde_json::from_value(described).map_err(|e| e.to_string())?),
        };
        Array::new_with_metadata(store, "/", described).map_err(|e| e.to_string())
    };
    let array = apart(open);
    array.map(|array| (array, description)).map_err(|what| {
        let remedy = "write it with the codecs and the types that the guide to formats lists, or write it again";
        Error::file(path, format!("is a Zarr array that cannot be read: {}", one_line(&what)), remedy)
    })
}

/// Returns the shape of the chunks that are parts of shards and are decoded one by one; `None` if shards are decoded as
/// a whole, or there are none.
fn parts(array: &Array<Store>) -> Option<Vec<u64>> {
    // What follows a shard's index in the file would have to be decoded as a whole for each of its chunks.
    if !array.is_sharded() || !array.codecs().bytes_to_bytes_codecs().is_empty() {
        return None;
    }
    let parts = without_panic(|| Ok(array.effective_subchunk_shape())).ok().flatten()?;
    (parts.len() == array.dimensionality()).then(|| parts.iter().map(|length| length.get()).collect())
}

/// Returns the shape of the chunks, if all have the same one.
fn regular(array: &Array<Store>) -> Option<Vec<u64>> {
    let is_regular = array.chunk_grid().name(ZarrVersion::V3).is_some_and(|name| name == "regular");
    let shape = array.chunk_shape(&vec![0; array.dimensionality()]).ok().filter(|_| is_regular)?;
    Some(shape.iter().map(|length| length.get()).collect())
}

/// Returns how many slabs are in memory: enough for all cores, and not more than a quarter of the memory, but two.
fn window(path: &Path, grid: &Grid) -> Result<usize> {
    let (chunks, slab) = (grid.chunks() as u64, grid.slab_memory().max(1));
    let (all, slabs) = (memory(), grid.slabs().max(1));
    let least = slabs.min(2);
    let needed = slab.saturating_mul(least);
    if needed > all / 2 {
        let problem = format!(
            "needs {needed} bytes of memory for the chunks of {least} of its slabs along the first axis, which is more \
             than half of the machine's memory of {all} bytes"
        );
        return Err(Error::file(path, problem, "write it with chunks that are shorter along the first axis"));
    }
    let wanted = (1 + cores().div_ceil(chunks.max(1))).max(SPAN / slab);
    Ok(wanted.min(all / 4 / slab).min(slabs).max(least) as usize)
}

/// Returns how many threads decode at a time, unless a job has more workers.
fn cores() -> u64 {
    available_parallelism().map_or(1, usize::from) as u64
}

/// Calls the crate zarrs on a thread of a pool that it may ask for its size. Elsewhere, this would start the threads of
/// rayon's global pool, which belongs to the program that uses this library.
fn apart<T: Send>(call: impl FnOnce() -> std::result::Result<T, String> + Send) -> std::result::Result<T, String> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(|e| e.to_string())?;
    pool.install(|| without_panic(call))
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
                Some(shards) => shards.decode(&self.array, indices, &self.options),
                None => self.array.retrieve_chunk_opt(indices, &self.options),
            }
        };
        let (mut failure, mut named) = (None, None);
        let decoded = without_panic(|| {
            let bytes = decode().map_err(|error| {
                failure = io_failure(&error);
                named = named_failure(&error);
                error.to_string()
            })?;
            let bytes = bytes.into_fixed().map_err(|error| error.to_string())?.into_owned();
            match bytes.len() as u64 == self.bytes {
                true => Ok(bytes),
                false => Err(format!("it has {} bytes instead of {}", bytes.len(), self.bytes)),
            }
        });
        decoded.map_err(|what| match failure {
            _ if named.is_some() => named.unwrap_or_else(|| damaged(&self.path, &what)),
            Some(error) => {
                let remedy = too_many_open(&error).unwrap_or("check the disk, and the permissions of the file");
                io_error(&self.path, format!("its chunk {indices:?} cannot be read"), remedy, error)
            }
            None => damaged(&self.path, &format!("its chunk {indices:?} cannot be decoded: {}", one_line(&what))),
        })
    }
}

/// Returns the error of the operating system, if that is what it is.
fn io_failure(error: &ArrayError) -> Option<io::Error> {
    let error = read_failure(error).filter(|error| error.kind() != io::ErrorKind::UnexpectedEof)?;
    Some(error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error))
}

/// Returns an error that names its file or URL, if that is what it is.
fn named_failure(error: &ArrayError) -> Option<Error> {
    error_within(read_failure(error)?)
}

/// Returns the error with which a file could not be read.
fn read_failure(error: &ArrayError) -> Option<&io::Error> {
    match error {
        ArrayError::StorageError(StorageError::IOError(error))
        | ArrayError::CodecError(CodecError::StorageError(StorageError::IOError(error))) => Some(error),
        _ => None,
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
        if let Some(error) = &*self.refused.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(copy_of(error));
        }
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
        // While a chunk is decoded, it is in memory as it is in the store, too, and between two codecs. The crate zarrs
        // copies what it has read and decoded of a shard.
        let codecs = self.slabs.chunks.array.codecs();
        let steps = codecs.array_to_array_codecs().len() + codecs.bytes_to_bytes_codecs().len();
        let copies = match steps {
            _ if self.slabs.chunks.array.is_sharded() => 4,
            0 | 1 => 1,
            _ => 2,
        };
        self.slabs.memory(cores(), copies)
    }

    fn version(&self) -> Option<u128> {
        // A run asks when it begins: what is in memory is of a run before.
        self.slabs.clear();
        self.slabs.chunks.shards.iter().for_each(Shards::clear);
        self.slabs.chunks.array.storage().begin();
        let checked = self.check();
        let version = checked.is_ok().then_some(self.description.checksum);
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = checked.err();
        let state = state_of(&self.path).ok().flatten();
        self.is_unlisted.store(state.is_none(), Ordering::Relaxed);
        Some(state.map_or(0, |(state, _)| state).wrapping_add(version?))
    }

    fn warning(&self) -> Option<String> {
        let unlisted = "has chunks that cannot be listed, so a change of them may not be noticed";
        let notes = [
            (self.is_direct, "is not read with direct I/O, because it is decoded chunk by chunk"),
            (self.is_unlisted.load(Ordering::Relaxed), unlisted),
        ];
        let notes: Vec<&str> = notes.into_iter().filter(|(is_so, _)| *is_so).map(|(_, note)| note).collect();
        (!notes.is_empty()).then(|| format!("{} {}", self.name(), notes.join("; it ")))
    }
}
