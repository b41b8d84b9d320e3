//! Output files.

use super::direct::memory;
#[cfg(any(feature = "parquet", feature = "zarr"))]
use super::encoded_sink;
use super::file::{announce_map, names_error, sync_names, write_error};
use super::file_layout::{FileFormat, FileLayout};
use super::gate::Gate;
#[cfg(feature = "parquet")]
use super::parquet::{self, NewParquet};
use super::signal_list::Entry;
use super::sink::rows_of;
use super::stamp::Stamp;
#[cfg(feature = "arrow")]
use super::table_sink;
use super::unfinished_file::{UnfinishedFile, resolve, target};
#[cfg(feature = "zarr")]
use super::unfinished_folder;
#[cfg(feature = "zarr")]
use super::zarr::{self, NewStore};
use super::{Codec, Dtype, Output, Parts, Sink, SinkMemory, Target};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// A file to be written by a job, created by [`Npy::create`](super::Npy::create), [`Raw::create`](super::Raw::create),
/// `Arrow::create` or `Parquet::create`; or a folder, created by `Zarr::create`.
///
/// The rows are written to an unnamed file in the same directory, whose space is reserved before any work starts.
/// The file gets its name when all outputs of the job are complete. If the job fails, is stopped or is killed,
/// nothing of it remains.
///
/// On file systems without unnamed files (NFS, for example), the rows are written to a hidden file
/// `.NAME.xxxxxx.partial` instead, which is removed when the job ends. A process that is killed cannot remove it; a
/// later job that writes to the same path reports it in a note. A folder has such a name everywhere.
///
/// The operating system decides when the data reaches the disk, as after any `write`, unless
/// [`fsync`](NewFile::fsync) is set.
///
/// If the path is a symbolic link, the file that it leads to is written.
///
/// ```
/// use overshot::{Dtype, Engine, Job, Npy};
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("y.npy");
/// let engine = Engine::builder().build()?;
/// let file = Npy::create(&path).dtype(Dtype::F32).force(true);
/// engine.run(Job::eval("y = x / 2")?.input("x", &[1.0f64, 3.0]).output("y", file))?;
/// assert!(path.exists());
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "no file is written until a job has it as an output"]
pub struct NewFile {
    path: PathBuf,
    format: FileFormat,
    /// The name of the output.
    output: String,
    dtype: Option<Dtype>,
    encoding: Encoding,
    force: bool,
    fsync: bool,
}

/// How rows are encoded, as far as the caller says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Encoding {
    pub codec: Option<Codec>,
    pub chunks: Option<Vec<u64>>,
    pub shards: Option<Vec<u64>>,
    /// The names of the dimensions.
    pub dimensions: Option<Vec<String>>,
}

/// An output that is to be in a file with others.
pub(super) struct NewColumn {
    pub name: String,
    pub dtype: Dtype,
    pub rows: u64,
    pub shape: Option<Vec<u64>>,
}

impl NewFile {
    pub(super) fn new(path: &Path, format: FileFormat) -> Self {
        let (output, encoding) = (String::new(), Encoding::default());
        NewFile { path: path.into(), format, output, dtype: None, encoding, force: false, fsync: false }
    }

    pub(crate) fn format(&self) -> FileFormat {
        self.format
    }

    /// Returns the path, absolute and without links, whether there is a file or not.
    ///
    /// # Errors
    /// Returns an error if no file can be created there.
    pub(crate) fn target(&self) -> Result<PathBuf> {
        match self.format {
            #[cfg(feature = "zarr")]
            FileFormat::Zarr => unfinished_folder::resolve(&self.path),
            _ => Ok(resolve(&self.path)?.0),
        }
    }

    /// Returns the path of the file, absolute and without links, and its format, if other outputs may be in it, too.
    #[doc(hidden)]
    pub fn table(&self) -> Option<(PathBuf, &'static str)> {
        // The folder of a later step of a job file may be missing still.
        let path = || self.target().unwrap_or_else(|_| self.path.clone());
        self.format.has_names().then(|| (path(), self.format.name()))
    }

    /// Checks that the file can be created, without doing so.
    ///
    /// # Errors
    /// Returns an error if no file can be created there, there is one that is not to be replaced, or its name cannot be
    /// brought to the disk as requested.
    pub fn check(&self) -> Result<()> {
        self.check_encoding()?;
        let target = match self.format {
            #[cfg(feature = "zarr")]
            FileFormat::Zarr => unfinished_folder::target(&self.path, self.force, zarr::may_replace)?,
            _ => target(&self.path, self.force)?.0,
        };
        if self.fsync { require_sync(&self.path, &target) } else { Ok(()) }
    }

    /// Returns whether it is an array in chunks, which may have shards and names of dimensions.
    #[doc(hidden)]
    pub fn is_array(&self) -> bool {
        self.format.is_array()
    }

    /// Returns whether values are encoded, as a codec and chunks say.
    #[doc(hidden)]
    pub fn is_encoded(&self) -> bool {
        self.format.is_encoded()
    }

    /// Returns whether an existing file is replaced.
    pub(crate) fn is_forced(&self) -> bool {
        self.force
    }

    /// Casts the result to `dtype`. Without this call, the file has the dtype of the result.
    pub fn dtype(self, dtype: Dtype) -> Self {
        NewFile { dtype: Some(dtype), ..self }
    }

    /// Sets whether an existing file is replaced. If not, an existing file is an error, which is detected before
    /// any work is done and again before the file gets its name.
    ///
    /// The new file has the permissions, owner, group and access control list of the file that it replaces. The
    /// report has a note about every attribute that could not be kept; in that case the group gets no more
    /// permissions than other users have. A file that may not be written to is not replaced.
    pub fn force(self, force: bool) -> Self {
        NewFile { force, ..self }
    }

    /// Sets whether the run waits until the file is on the disk: its bytes and its length before any output of the job
    /// gets its name, and its name before the run ends. So the output survives if the machine stops after the run, and
    /// whatever has the name after it stopped at any moment is complete. If the disk fails or is full, the run returns
    /// an error and no output appears.
    ///
    /// Jobs in parts and runs with a journal always wait.
    ///
    /// ```
    /// use overshot::{Engine, Job, Npy};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("y.npy");
    /// let file = Npy::create(&path).fsync(true);
    /// Engine::builder().build()?.run(Job::eval("y = x / 2")?.input("x", &[1.0f64, 3.0]).output("y", file))?;
    /// # Ok::<(), overshot::Error>(())
    /// ```
    pub fn fsync(self, fsync: bool) -> Self {
        NewFile { fsync, ..self }
    }

    /// Sets how the values of a Parquet file or a Zarr array are compressed. Without this call, it is
    /// [`Codec::default`].
    pub fn codec(self, codec: Codec) -> Self {
        NewFile { encoding: Encoding { codec: Some(codec), ..self.encoding }, ..self }
    }

    /// Sets the pieces that are encoded, and mostly read, as a whole: the shape of the chunks of a Zarr array, or
    /// `[rows]`, the rows of a row group of a Parquet file. Without this call, a row group has 1 048 576 rows, and a
    /// chunk has about 8 MiB: whole rows, as many as fit.
    ///
    /// The last row group has the rows that are left.
    pub fn chunks(self, chunks: &[u64]) -> Self {
        NewFile { encoding: Encoding { chunks: Some(chunks.into()), ..self.encoding }, ..self }
    }

    /// Sets the shape of the shards of a Zarr array: all chunks of a shard are in one file, so that an array of many
    /// small chunks has few files. A shard has a whole number of chunks along each axis, whose shape
    /// [`chunks`](NewFile::chunks) sets. Without this call, each chunk has a file of its own.
    ///
    /// All shards that begin at the same index along the first axis wait in memory until they are complete.
    ///
    /// ```
    /// use overshot::{Engine, Job, Zarr};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("y.zarr");
    /// let file = Zarr::create(&path).chunks(&[100]).shards(&[1000]);
    /// Engine::builder().build()?.run(Job::eval("y = f32(i)")?.rows(5000).output("y", file))?;
    /// assert_eq!(std::fs::read_dir(path.join("c")).unwrap().count(), 5);
    /// # Ok::<(), overshot::Error>(())
    /// ```
    pub fn shards(self, shards: &[u64]) -> Self {
        NewFile { encoding: Encoding { shards: Some(shards.into()), ..self.encoding }, ..self }
    }

    /// Sets the names of the dimensions of a Zarr array, one for each axis. Without this call, they are `dim_0`,
    /// `dim_1`, …
    pub fn dimensions<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        NewFile { encoding: Encoding { dimensions: Some(names), ..self.encoding }, ..self }
    }

    /// Checks that the format has what the caller says of the encoding.
    fn check_encoding(&self) -> Result<()> {
        let Encoding { codec, chunks, shards, dimensions } = &self.encoding;
        let wrong = |problem: String, remedy: &str| Err(Error::file(&self.path, problem, remedy));
        if !self.format.is_array() {
            if shards.is_some() {
                return wrong("has no shards".into(), "write a Zarr array, or leave them out");
            }
            if dimensions.is_some() {
                return wrong("has no names of dimensions".into(), "write a Zarr array, or leave them out");
            }
        }
        if !self.format.is_encoded() {
            return match (codec, chunks) {
                (None, None) => Ok(()),
                (Some(codec), _) => {
                    wrong(format!("cannot be compressed with {codec}"), "write a Parquet file or a Zarr array")
                }
                (None, Some(_)) => wrong("has no chunks".into(), "write a Parquet file or a Zarr array"),
            };
        }
        match (self.format, codec, chunks.as_deref()) {
            #[cfg(feature = "zarr")]
            (FileFormat::Zarr, Some(Codec::Snappy), _) => {
                wrong("cannot be compressed with snappy".into(), "use zstd, lz4, gzip or none")
            }
            #[cfg(feature = "parquet")]
            (FileFormat::Parquet, _, Some(chunks)) if !matches!(chunks, [rows] if *rows > 0) => {
                let problem = format!("cannot have row groups of {chunks:?}");
                wrong(problem, "give a number of rows, such as 1000000")
            }
            (_, _, Some(chunks)) if chunks.contains(&0) => wrong(
                format!("cannot have chunks of the shape {chunks:?}"),
                "give a length of at least 1 for each axis",
            ),
            (_, _, chunks) => {
                let whole = |shards: &&Vec<u64>| {
                    let chunks = chunks.filter(|chunks| chunks.len() == shards.len());
                    let mut each = chunks.into_iter().flatten().zip(shards.iter());
                    chunks.is_some() && each.all(|(chunk, shard)| *shard > 0 && shard.is_multiple_of(*chunk))
                };
                if let Some(shards) = shards.as_ref().filter(|shards| !whole(shards)) {
                    let problem = match chunks {
                        Some(chunks) => format!("cannot have shards of the shape {shards:?} with chunks of {chunks:?}"),
                        None => format!("cannot have shards of the shape {shards:?} without the shape of the chunks"),
                    };
                    return wrong(problem, "give both, and shards that are a multiple of the chunks along each axis");
                }
                let mut names = dimensions.iter().flatten().enumerate();
                match names.find(|(k, name)| dimensions.iter().flatten().take(*k).any(|other| other == *name)) {
                    Some((_, name)) => {
                        wrong(format!("cannot have two dimensions called '{name}'"), "give each another name")
                    }
                    None => Ok(()),
                }
            }
        }
    }
}

impl Target for NewFile {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn set_output(&mut self, name: &str) {
        self.output = name.into();
    }

    fn dtype(&self) -> Option<Dtype> {
        self.dtype
    }

    fn cast(&self) -> bool {
        true
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn can_read_back(&self) -> bool {
        !self.format.is_encoded()
    }

    fn parts(&self) -> Parts<'_> {
        if self.format.is_encoded() { Parts::Refused } else { Parts::File(self) }
    }

    fn new_file(&self) -> Option<&NewFile> {
        Some(self)
    }

    #[cfg_attr(not(feature = "zarr"), allow(unused_variables, reason = "only arrays have shapes that matter"))]
    fn grain_bytes(&self, dtype: Dtype, rows: u64, shape: Option<&[u64]>) -> Result<u64> {
        self.check_encoding()?;
        let bytes: u64 = match self.format {
            #[cfg(feature = "parquet")]
            FileFormat::Parquet => parquet::group_bytes(&self.encoding, dtype, rows),
            #[cfg(feature = "zarr")]
            FileFormat::Zarr => zarr::grain_bytes(&self.path, &self.encoding, dtype, shape.unwrap_or(&[rows]))?,
            _ => 0,
        };
        let all = memory();
        if bytes > all / 4 {
            let problem = format!(
                "needs memory for {bytes} bytes of rows that are encoded as a whole, which is more than a quarter of \
                 the machine's memory of {all} bytes"
            );
            let smaller =
                if self.encoding.shards.is_some() { "choose smaller shards" } else { "choose smaller chunks" };
            return Err(Error::file(&self.path, problem, smaller));
        }
        Ok(bytes)
    }

    fn open<'s>(self: Box<Self>, dtype: Dtype, rows: u64, shape: Option<&[u64]>) -> Result<Box<dyn Sink + 's>>
    where
        Self: 's,
    {
        if self.format.is_encoded() {
            let shape = shape.map(<[u64]>::to_vec);
            let column = NewColumn { name: self.output.clone(), dtype, rows, shape };
            return Ok(open_together(&[&self], vec![column])?.remove(0));
        }
        self.check_encoding()?;
        let layout = FileLayout::new(self.format, dtype, rows, shape).named(&self.output);
        let sink = FileSink::create(&self.path, layout, self.force)?;
        if self.fsync {
            // An error now is better than one after the work.
            require_sync(&self.path, sink.unfinished.target())?;
        }
        Ok(Box::new(FileSink { fsync: self.fsync, ..sink }))
    }
}

/// An output with its dtype, its number of rows, and the dimensions to record.
pub(crate) type Opening<'a> = (Output<'a>, Dtype, u64, Option<Vec<u64>>);

/// Opens all outputs, and returns their sinks in the same order. Those that are columns of one file share it.
///
/// # Errors
/// Those of [`Target::open`]. Outputs that were opened before are dropped and leave nothing behind.
pub(crate) fn open_all<'a>(outputs: Vec<Opening<'a>>) -> Result<Vec<Box<dyn Sink + 'a>>> {
    let mut tables: Vec<((PathBuf, &str), Vec<usize>)> = Vec::new();
    for (k, (output, ..)) in outputs.iter().enumerate() {
        let Some(table) = output.target().new_file().and_then(NewFile::table) else { continue };
        match tables.iter_mut().find(|(own, _)| *own == table) {
            Some((_, columns)) => columns.push(k),
            None => tables.push((table, vec![k])),
        }
    }
    let mut sinks: Vec<Option<Box<dyn Sink + 'a>>> = outputs.iter().map(|_| None).collect();
    for (_, columns) in tables.into_iter().filter(|(_, columns)| columns.len() > 1) {
        let (mut files, mut new) = (Vec::new(), Vec::new());
        for (output, dtype, rows, shape) in columns.iter().map(|k| &outputs[*k]) {
            let Some(file) = output.target().new_file() else { continue };
            new.push(NewColumn { name: file.output.clone(), dtype: *dtype, rows: *rows, shape: shape.clone() });
            files.push(file);
        }
        let opened = open_together(&files, new)?;
        columns.iter().zip(opened).for_each(|(k, sink)| sinks[*k] = Some(sink));
    }
    let each = sinks.into_iter().zip(outputs);
    each.map(|(sink, (output, dtype, rows, shape))| match sink {
        Some(sink) => Ok(sink),
        None => output.open(dtype, rows, shape.as_deref()),
    })
    .collect()
}

/// Opens outputs that are in one file. It replaces another one if all of them may.
#[cfg_attr(
    not(any(feature = "arrow", feature = "parquet", feature = "zarr")),
    allow(unused_variables, reason = "no file has several outputs")
)]
fn open_together(files: &[&NewFile], columns: Vec<NewColumn>) -> Result<Vec<Box<dyn Sink>>> {
    let file = files[0];
    if files.iter().any(|other| other.encoding != file.encoding) {
        let problem = "has outputs with different codecs, chunks, shards or dimensions";
        return Err(Error::file(&file.path, problem, "give the same ones to all outputs of a file"));
    }
    let marks = (files.iter().all(|file| file.force), files.iter().any(|file| file.fsync));
    check_columns(file, &columns)?;
    match file.format {
        #[cfg(feature = "arrow")]
        FileFormat::Arrow => table_sink::create(&file.path, columns, marks),
        #[cfg(feature = "parquet")]
        FileFormat::Parquet => {
            let (file, outputs) = NewParquet::create(&file.path, columns, &file.encoding, marks)?;
            Ok(encoded_sink::sinks(file, outputs))
        }
        #[cfg(feature = "zarr")]
        FileFormat::Zarr => {
            let (store, outputs) = NewStore::create(&file.path, columns, &file.encoding, marks)?;
            Ok(encoded_sink::sinks(store, outputs))
        }
        FileFormat::Npy | FileFormat::Raw => {
            Err(Error::file(&file.path, "has one output", "report this as a bug of Overshot"))
        }
    }
}

/// Checks that the format of a file has the dtypes and the shapes of its outputs, that these can be encoded as the
/// caller says, and that columns are equally long.
fn check_columns(file: &NewFile, columns: &[NewColumn]) -> Result<()> {
    let rows = columns[0].rows;
    for column in columns {
        FileLayout::new(file.format, column.dtype, column.rows, column.shape.as_deref()).len(&file.path)?;
        file.grain_bytes(column.dtype, column.rows, column.shape.as_deref())?;
        if file.format.has_columns() && column.rows != rows {
            return Err(unequal(&file.path, &columns[0].name, rows, &column.name, column.rows));
        }
    }
    Ok(())
}

/// Returns the error for columns of different lengths.
pub(super) fn unequal(path: &Path, first: &str, rows: u64, other: &str, other_rows: u64) -> Error {
    let problem = format!("its column '{other}' has {other_rows} rows, and '{first}' has {rows}");
    Error::file(path, problem, "write columns of different lengths to different files")
}

/// Makes the names beside `target` last.
///
/// # Errors
/// Returns an error if they cannot be written to the disk, or nobody can tell whether they are.
pub(super) fn require_sync(path: &Path, target: &Path) -> Result<()> {
    if sync_names(target).map_err(|e| names_error(path, e))? {
        return Ok(());
    }
    let remedy = "allow reading the folder (chmod u+r), choose another one, or leave out 'fsync'";
    Err(Error::file(path, "its folder cannot be synced, so its name might be lost", remedy))
}

/// Gives a file its name, and with `fsync` waits until the name is on the disk. A file that has it already is left
/// alone: when it is committed, other outputs may be so, and an error would take away its name and not theirs.
pub(super) fn publish(file: &mut UnfinishedFile, fsync: bool) -> Result<()> {
    let was_named = file.is_named();
    file.publish()?;
    if fsync && !was_named { require_sync(file.path(), file.target()) } else { Ok(()) }
}

#[derive(Debug)]
pub(crate) struct FileSink {
    unfinished: UnfinishedFile,
    layout: FileLayout,
    /// The offset of the first row, in bytes.
    offset: u64,
    map: Option<(SinkMemory<'static>, Entry)>,
    writers: Gate,
    /// Whether the bytes and the name are to be on the disk.
    fsync: bool,
}

/// Returns the number of threads that write to one new file concurrently. Every page of the file is new, and
/// creating small pages does not scale: 16 threads are slower than one, and four are fastest. With large pages,
/// which the map requests, all threads may write; ext4 supports them since Linux 6.16.
pub(super) fn writers() -> usize {
    const FEW: usize = 4;
    #[cfg(target_os = "linux")]
    if let Ok(release) = rustix::system::uname().release().to_str()
        && version(release).is_some_and(|version| version >= (6, 16))
    {
        return usize::MAX;
    }
    FEW
}

/// Returns the first two numbers of a kernel release.
#[cfg(target_os = "linux")]
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

impl FileSink {
    /// Creates a file with reserved space for its rows.
    ///
    /// # Errors
    /// Those of [`UnfinishedFile::create`].
    pub(super) fn create(path: &Path, layout: FileLayout, force: bool) -> Result<Self> {
        let unfinished = UnfinishedFile::create(path, layout.len(path)?, force)?;
        FileSink::new(unfinished, layout)
    }

    /// Creates a sink for a file that is as long as its layout says.
    pub(super) fn new(unfinished: UnfinishedFile, layout: FileLayout) -> Result<Self> {
        let first = layout.header();
        let end = first.len() as u64 + layout.row_bytes();
        unfinished.write_at(&first, 0)?;
        unfinished.write_at(&layout.trailer(), end)?;
        let map = match unfinished.is_reserved() {
            true => SinkMemory::map(unfinished.file(), first.len() as u64..end, layout.dtype),
            false => None,
        };
        let map = map.map(|map| {
            let entry = announce_map(unfinished.path(), map.address());
            (map, entry)
        });
        let (offset, writers) = (first.len() as u64, Gate::new(writers()));
        Ok(FileSink { unfinished, layout, offset, map, writers, fsync: false })
    }

    /// Creates a sink for a file that has all its rows, its header and its trailer.
    pub(super) fn complete(unfinished: UnfinishedFile, layout: FileLayout) -> Self {
        let (offset, writers) = (layout.header().len() as u64, Gate::new(1));
        FileSink { unfinished, layout, offset, map: None, writers, fsync: false }
    }

    /// Waits until the file is on the disk, and returns its stamp. No rows may be written after that.
    ///
    /// # Errors
    /// Returns an error if the disk is full or fails.
    pub(crate) fn seal(&mut self) -> Result<Stamp> {
        // A write through the map would change the time of the file.
        self.map = None;
        self.unfinished.seal()
    }

    fn misfit(&self, first_row: u64, bytes: &[u8]) -> Error {
        misfit(self.unfinished.path(), first_row, bytes)
    }
}

/// Returns the error for bytes that are not whole free rows of a file.
pub(super) fn misfit(path: &Path, first_row: u64, bytes: &[u8]) -> Error {
    let problem = format!("{} bytes from row {first_row} on do not fit, or these rows are in use", bytes.len());
    Error::file(path, problem, "this is a bug in the caller of Sink::write")
}

/// Returns the note for the report about how a file is written; `is_slow` if it has rows and no map.
pub(super) fn note(file: &UnfinishedFile, is_slow: bool) -> Option<String> {
    let slow =
        is_slow.then_some("it cannot be memory-mapped with reserved space, so it was written with slower system calls");
    let notes: Vec<&str> = [slow, file.warning()].into_iter().flatten().collect();
    (!notes.is_empty()).then(|| format!("{}: {}", file.path().display(), notes.join("; ")))
}

impl Sink for FileSink {
    fn write(&self, first_row: u64, bytes: &[u8]) -> Result<()> {
        let size = self.layout.dtype.size();
        let rows = rows_of(first_row, bytes, size).filter(|rows| rows.end <= self.layout.rows);
        let rows = rows.ok_or_else(|| self.misfit(first_row, bytes))?;
        let _pass = self.writers.enter();
        let Some((map, _)) = &self.map else {
            return self.unfinished.write_at(bytes, self.offset + rows.start * size as u64);
        };
        let mut claim = map.try_claim(rows).ok_or_else(|| self.misfit(first_row, bytes))?;
        map.copy(&mut claim, bytes);
        Ok(())
    }

    fn warning(&self) -> Option<String> {
        note(&self.unfinished, self.map.is_none() && self.layout.rows > 0)
    }

    fn truncate(&mut self, rows: u64) -> Result<()> {
        let layout = self.layout.truncated(rows);
        let header = layout.header();
        if header.len() as u64 != self.offset {
            let problem = format!("its header does not fit {rows} rows");
            return Err(Error::file(self.unfinished.path(), problem, "report this as a bug of Overshot"));
        }
        // The map must be gone first, because nobody may touch pages that the file no longer has.
        self.map = None;
        self.unfinished.write_at(&header, 0)?;
        self.unfinished.write_at(&layout.trailer(), self.offset + layout.row_bytes())?;
        let bytes = layout.len(self.unfinished.path())?;
        self.layout = layout;
        self.unfinished.file().set_len(bytes).map_err(|e| write_error(self.unfinished.path(), bytes, e))
    }

    fn header_bytes(&self) -> u64 {
        self.offset
    }

    fn trailer_bytes(&self) -> u64 {
        self.layout.trailer().len() as u64
    }

    fn read_back(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        self.unfinished.read_at(to, offset)
    }

    fn check(&self) -> Result<()> {
        self.unfinished.check()?;
        if self.fsync { self.unfinished.sync() } else { Ok(()) }
    }

    fn publish(&mut self) -> Result<()> {
        self.map = None;
        publish(&mut self.unfinished, self.fsync)
    }

    fn commit(mut self: Box<Self>) -> Result<()> {
        self.publish()?;
        self.unfinished.commit()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::version;

    #[test]
    fn versions_of_kernels() {
        assert_eq!(version("6.18.44-fc-v310"), Some((6, 18)));
        assert_eq!(version("5.15.0-91-generic"), Some((5, 15)));
        assert_eq!(version("odd"), None);
    }
}
