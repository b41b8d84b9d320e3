//! Columns of Parquet files. The crate parquet decodes them, a page at a time, so that no row group is in memory as a
//! whole.
//!
//! <https://parquet.apache.org/docs/file-format/> is the format.

mod bytes;
mod cursor;
mod new_file;
mod pages;
mod statistics;
mod types;

use self::bytes::FileBytes;
use self::cursor::{Cursor, Put, put};
pub(super) use self::new_file::{NewParquet, group_bytes};
use self::pages::CheckedPages;
use self::statistics::Statistical;
use super::column::{Column, Named, Values, found, incomplete};
use super::decoded::{Decode, Decoded};
use super::file::Opened;
use super::file_layout::FileFormat;
use super::storage::error_within;
use super::table_file::only;
use super::{Bounds, ColumnOptions, Dtype, NewFile, ReadMode, Scalar, Source, TableColumn, TableFile};
use crate::error::{Error, Result};
use crate::units;
use parquet::column::reader::get_column_reader;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::serialized_reader::SerializedPageReader;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The name of the format, for messages.
const FORMAT: &str = "Parquet";

/// A column of a Parquet file: numbers or booleans that are not nested. Nulls are refused, or filled on request.
///
/// Decoding takes the time of the threads that read. A row group is a [grain](Source::grains), and row groups are
/// decoded in parallel. Memory holds a page of each column that a worker reads, and never a whole row group.
///
/// ```no_run
/// use overshot::{Engine, Job, Parquet};
/// let job = Job::eval("sum(price * size)")?
///     .input("price", Parquet::column("trades.parquet", "price")?)
///     .input("size", Parquet::column("trades.parquet", "size")?);
/// let report = Engine::builder().build()?.run(job)?;
/// # Ok::<(), overshot::Error>(())
/// ```
pub struct Parquet {
    decoded: Decoded<Decoder>,
    is_direct: bool,
}

/// The size in bytes at which most writers end a page or a dictionary.
const PAGE: u64 = 1 << 20;

/// Decodes a column.
struct Decoder {
    column: Column,
    file: Arc<FileBytes>,
    metadata: Arc<ParquetMetaData>,
    /// The place among the columns of a row group.
    index: usize,
    /// The row groups with rows.
    groups: Vec<usize>,
    /// See [`Decode::cursor_memory`].
    cursor_memory: OnceLock<u64>,
}

impl Parquet {
    /// Opens a column. Only the end of the file is read, where its columns and row groups are described.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened or is not a Parquet file; if it has no such column; and if the
    /// column has nulls, or values that are not of a [`Dtype`]: texts, decimals, dates, times, or nested ones. If the
    /// file does not say how many nulls there are, they are an error when they are read.
    pub fn column(path: impl AsRef<Path>, name: &str) -> Result<Parquet> {
        Parquet::column_with(path, name, &ColumnOptions::new())
    }

    /// Opens a column that may have nulls or timestamps, as the options say.
    ///
    /// ```no_run
    /// use overshot::{Parquet, io::ColumnOptions};
    /// let time = Parquet::column_with("trades.parquet", "time", &ColumnOptions::new().timestamps(true))?;
    /// # Ok::<(), overshot::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`column`](Parquet::column), but for what the options allow. Also returns an error
    /// if there are nulls and the column's dtype has no such value as the one for their place.
    pub fn column_with(path: impl AsRef<Path>, name: &str, options: &ColumnOptions) -> Result<Parquet> {
        let path = path.as_ref();
        only(path, Parquet::of(Opened::new(path)?, &[Some(name)], ReadMode::default(), options)?)
    }

    /// Opens a column that may have nulls, and has this value in the place of each.
    ///
    /// ```no_run
    /// use overshot::Parquet;
    /// let size = Parquet::column_filled("trades.parquet", "size", 0)?;
    /// let price = Parquet::column_filled("trades.parquet", "price", f64::NAN)?;
    /// # Ok::<(), overshot::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`column`](Parquet::column), but for nulls. Also returns an error if there are nulls
    /// and the column's dtype has no such value: a NaN, for example, among integers.
    pub fn column_filled(path: impl AsRef<Path>, name: &str, value: impl Into<Scalar>) -> Result<Parquet> {
        Parquet::column_with(path, name, &ColumnOptions::new().nulls(value))
    }

    /// Returns a Parquet file to be written by a job. It has a column with the name of the job's output. Several
    /// outputs of rows with the same path are columns of one file. Nothing is created until the job runs.
    ///
    /// The file has row groups of 1 048 576 rows ([`NewFile::chunks`]), compressed with Zstandard unless
    /// [`NewFile::codec`] says otherwise, with statistics, and with dictionaries of integers. There are no nulls. Its
    /// bytes do not depend on how the job was run. The memory in which rows wait for others of their row group is in
    /// the plan.
    ///
    /// The file replaces another one if all of its outputs are [forced](NewFile::force), and is on the disk if one of
    /// them [asks for it](NewFile::fsync). The rows have one dimension and are not `bf16`. Jobs in parts, runs with a
    /// journal, and checksums need files whose rows have known places, such as Arrow files.
    ///
    /// ```
    /// use overshot::{Engine, Job, Parquet};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("prices.parquet");
    /// let job = Job::eval("gross = net * 1.19")?.input("net", &[1.0, 3.0]);
    /// Engine::builder().build()?.run(job.output("gross", Parquet::create(&path)))?;
    /// let gross = Parquet::column(&path, "gross")?;
    /// # Ok::<(), overshot::Error>(())
    /// ```
    pub fn create(path: impl AsRef<Path>) -> NewFile {
        NewFile::new(path.as_ref(), FileFormat::Parquet)
    }

    /// Opens columns, each by its name or, without one, the only one that can be read.
    pub(super) fn of(
        opened: Opened,
        names: &[Option<&str>],
        reading: ReadMode,
        options: &ColumnOptions,
    ) -> Result<Vec<Parquet>> {
        let path = opened.path.clone();
        let file = Arc::new(FileBytes::new(opened));
        let metadata = Arc::new(metadata(&path, &file)?);
        let columns = metadata.file_metadata().schema_descr().columns().iter();
        let is_read = |values: Values| values.dtype(options.timestamps).is_some();
        let columns = columns.map(|descr| Named {
            name: descr.path().string(),
            is_readable: is_read(types::values_of(descr)),
            is_inner: descr.path().parts().len() > 1,
        });
        let columns: Vec<_> = columns.collect();
        let open = |name: &Option<&str>| {
            let index = found(&path, &columns, *name)?;
            Parquet::column_of(file.clone(), metadata.clone(), (index, &columns[index].name), reading, options)
        };
        names.iter().map(open).collect()
    }

    /// Opens the column with this index and name.
    fn column_of(
        file: Arc<FileBytes>,
        metadata: Arc<ParquetMetaData>,
        (index, name): (usize, &str),
        reading: ReadMode,
        options: &ColumnOptions,
    ) -> Result<Parquet> {
        let path = &file.opened().path;
        let descr = metadata.file_metadata().schema_descr().column(index);
        let column = Column::new(file.opened(), name, &types::values_of(&descr), options)?;
        let dtype = column.dtype;
        // The row groups with rows, and their rows.
        let (mut groups, mut rows, mut count) = (Vec::new(), Vec::new(), 0u64);
        for (number, group) in metadata.row_groups().iter().enumerate() {
            let what = || format!("column '{name}' of row group {number}");
            let Some(chunk) = group.columns().get(index).filter(|chunk| is_inside(chunk, &file)) else {
                return Err(damaged(path, &format!("{} is not inside the file", what())));
            };
            let (own, values) = (group.num_rows(), chunk.num_values());
            let Some(own) = u64::try_from(own).ok().filter(|_| own == values) else {
                return Err(damaged(path, &format!("{} has {values} values for {own} rows", what())));
            };
            if own > 0 {
                groups.push(number);
                rows.push(own);
            }
            let nulls = chunk.statistics().and_then(|statistics| statistics.null_count_opt());
            count = count.saturating_add(nulls.unwrap_or(0));
        }
        let total = rows.iter().try_fold(0u64, |sum, rows| sum.checked_add(*rows));
        if total.and_then(|rows| rows.checked_mul(dtype.size() as u64)).is_none() {
            return Err(damaged(path, "it has more rows than can be counted"));
        }
        if count > 0 {
            column.refuse_nulls(&units::counted(count, "null"))?;
        }
        let decoder = Decoder { column, file, metadata, index, groups, cursor_memory: OnceLock::new() };
        // A codec that is missing is an error now and not in the run.
        if !decoder.groups.is_empty() {
            decoder.begin(0)?;
        }
        Ok(Parquet { decoded: Decoded::new(decoder, rows), is_direct: reading == ReadMode::Direct })
    }

    /// Returns what a file says of itself.
    pub(super) fn table(opened: Opened) -> Result<TableFile> {
        let path = opened.path.clone();
        let metadata = metadata(&path, &FileBytes::new(opened))?;
        let columns = metadata.file_metadata().schema_descr().columns().iter().enumerate();
        let columns = columns.map(|(index, descr)| {
            let chunks = || metadata.row_groups().iter().filter_map(move |group| group.columns().get(index));
            let mut codecs: Vec<String> = chunks().map(codec_name).collect();
            codecs.sort();
            codecs.dedup();
            let counts = chunks().map(|chunk| chunk.statistics().and_then(|own| own.null_count_opt()));
            let nulls = counts.reduce(|sum, own| sum.zip(own).map(|(sum, own): (u64, u64)| sum.saturating_add(own)));
            TableColumn {
                name: descr.path().string(),
                kind: types::kind(descr),
                dtype: types::values_of(descr).dtype(false),
                is_timestamp: matches!(types::values_of(descr), Values::Timestamps(..)),
                codec: codecs.join(", "),
                nulls: nulls.unwrap_or(Some(0)),
            }
        });
        let grains = metadata.row_groups().iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0));
        Ok(TableFile { format: "parquet", columns: columns.collect(), grains: grains.collect() })
    }

    /// Returns what is known of the column.
    pub(super) fn meta(&self) -> &Column {
        &self.decoded.decoder.column
    }

    /// Forgets what was decoded and not read.
    pub(super) fn forget(&self) {
        self.decoded.forget();
    }

    /// Returns the size in bytes of the column in the file.
    pub(super) fn bytes(&self) -> u64 {
        let Decoder { metadata, index, .. } = &self.decoded.decoder;
        let sizes = metadata.row_groups().iter().map(|group| group.column(*index).compressed_size());
        sizes.filter_map(|size| u64::try_from(size).ok()).fold(0, u64::saturating_add)
    }
}

impl fmt::Debug for Parquet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Column { path, name, dtype, .. } = self.meta();
        f.debug_struct("Parquet")
            .field("path", path)
            .field("column", name)
            .field("dtype", dtype)
            .finish_non_exhaustive()
    }
}

impl Decode for Decoder {
    type Cursor = Cursor;

    fn dtype(&self) -> Dtype {
        self.column.dtype
    }

    fn path(&self) -> &Path {
        &self.column.path
    }

    fn begin(&self, grain: usize) -> Result<Cursor> {
        let number = self.groups[grain];
        let descr = self.metadata.file_metadata().schema_descr().column(self.index);
        let pages = self.pages(number).map_err(|e| self.failed(number, &e))?;
        let cursor = Cursor::new(number, get_column_reader(descr, Box::new(pages)));
        cursor.ok_or_else(|| self.damaged(number, "has values of another type"))
    }

    fn cursor_memory(&self) -> u64 {
        *self.cursor_memory.get_or_init(|| {
            let size = |group: &&usize| self.metadata.row_group(**group).column(self.index).uncompressed_size();
            let Some(largest) = self.groups.iter().max_by_key(size) else { return 0 };
            let place = place_of(self.metadata.row_group(*largest).column(self.index));
            let ahead = self.file.opened().ahead_memory(place.end - place.start);
            // The run tells what is wrong with them. Those of a server are taken for usual ones.
            let first_pages = match self.file.is_remote() {
                true => 4 * PAGE,
                false => without_panic(|| self.first_pages(*largest)).unwrap_or_default(),
            };
            first_pages.saturating_add(ahead).saturating_add((cursor::STEP * (self.column.dtype.size() + 2)) as u64)
        })
    }

    fn skip(&self, cursor: &mut Cursor, row: u64, rows: u64) -> Result<()> {
        match without_panic(|| cursor.skip(rows)) {
            Ok(skipped) if skipped == rows => return Ok(()),
            Ok(_) => return Err(self.damaged(cursor.group, "ends too early")),
            // The crate cannot skip integers whose differences overflow, but it can decode them.
            Err(_) => {}
        }
        let grain = self.groups.partition_point(|group| *group < cursor.group);
        *cursor = self.begin(grain)?;
        self.decode_past(cursor, row + rows)
    }

    fn decode(&self, cursor: &mut Cursor, dst: &mut [u8]) -> Result<()> {
        let decoded = without_panic(|| put(cursor, self.column.dtype, self.column.fill(), dst));
        match decoded.map_err(|e| self.failed(cursor.group, &e))? {
            Put::All => Ok(()),
            Put::Null => self.column.refuse_nulls("nulls"),
            Put::Ended => Err(self.damaged(cursor.group, "ends too early")),
            Put::TooLarge => Err(self.damaged(cursor.group, &format!("has values beyond {}", self.column.dtype))),
        }
    }
}

impl Decoder {
    /// Returns the pages of a row group.
    fn pages(&self, number: usize) -> parquet::errors::Result<CheckedPages> {
        let group = self.metadata.row_group(number);
        let rows = usize::try_from(group.num_rows()).unwrap_or(usize::MAX);
        let descr = self.metadata.file_metadata().schema_descr().column(self.index);
        let chunk = chunk_of(group.column(self.index));
        let file = Arc::new(self.file.in_order(place_of(&chunk)));
        let pages = without_panic(|| SerializedPageReader::new(file, &chunk, rows, None))?;
        Ok(CheckedPages::new(pages, &descr))
    }

    /// Returns the bytes of memory for a dictionary and a page, as large as the first ones of a row group: as they are
    /// in the file, and decompressed.
    fn first_pages(&self, number: usize) -> parquet::errors::Result<u64> {
        let mut all = 0;
        for page in self.pages(number)? {
            let page = page?;
            let (bytes, count) = (page.buffer().len() as u64, u64::from(page.num_values()));
            if page.is_data_page() {
                // If the dictionary becomes too large, plain pages follow.
                let plain = count.saturating_mul(self.column.dtype.size() as u64).min(PAGE);
                return Ok(all + 2 * bytes.max(plain));
            }
            all += 2 * bytes;
        }
        Ok(all)
    }

    /// Returns an error of the crate parquet.
    fn failed(&self, group: usize, error: &ParquetError) -> Error {
        if let Some(error) = error_within(error) {
            return error;
        }
        self.damaged(group, &format!("cannot be decoded: {error}"))
    }

    /// Returns the error for a row group of which the file says one thing and holds another.
    fn damaged(&self, group: usize, what: &str) -> Error {
        self.column.damaged(self.file.opened(), FORMAT, &format!("row group {group}"), what)
    }
}

/// Calls the crate parquet. It has assertions about what it reads, so a damaged file may make it panic where it returns
/// no error. The values that it was working on are not used again then.
fn without_panic<T>(call: impl FnOnce() -> parquet::errors::Result<T>) -> parquet::errors::Result<T> {
    let panicked = |_| Err(ParquetError::General("it makes no sense".into()));
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(panicked)
}

impl Source for Parquet {
    fn dtype(&self) -> Dtype {
        self.meta().dtype
    }

    fn rows(&self) -> u64 {
        self.decoded.rows
    }

    fn name(&self) -> String {
        self.meta().path.display().to_string()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        self.decoded.read(first, dst)
    }

    fn grains(&self) -> &[u64] {
        &self.decoded.grains
    }

    fn decode_memory(&self) -> u64 {
        self.decoded.memory()
    }

    fn bounds(&self) -> Result<Vec<Bounds>> {
        let Decoder { column, file, metadata, index, groups, .. } = &self.decoded.decoder;
        let (index, dtype, null) = (*index, column.dtype, column.null());
        let statistical = Statistical { file, metadata, index, dtype, null };
        let bounds = without_panic(|| statistical.bounds(groups, &self.decoded.grains, self.decoded.rows));
        bounds.map_err(|e| {
            let what = || format!("the index of the pages of its column '{}' cannot be read: {e}", column.name);
            error_within(&e).unwrap_or_else(|| damaged(&column.path, &what()))
        })
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.meta().path)
    }

    fn variant(&self) -> String {
        self.meta().variant()
    }

    fn version(&self) -> Option<u128> {
        self.forget();
        self.decoded.decoder.file.opened().version()
    }

    fn warning(&self) -> Option<String> {
        self.decoded.decoder.file.opened().warning(self.is_direct, "page by page")
    }
}

/// Reads the description of a file.
fn metadata(path: &Path, file: &FileBytes) -> Result<ParquetMetaData> {
    let wrong = |e: ParquetError| error_within(&e).unwrap_or_else(|| damaged(path, &e.to_string()));
    without_panic(|| ParquetMetaDataReader::new().parse_and_finish(file)).map_err(wrong)
}

/// Returns where the dictionary of a column of a row group is. Some writers give an offset that is none, such as 0, if
/// there is no dictionary, which other readers ignore.
fn dictionary_at(chunk: &ColumnChunkMetaData) -> Option<i64> {
    chunk.dictionary_page_offset().filter(|at| (1..chunk.data_page_offset()).contains(at))
}

/// Returns a column of a row group as the crate parquet can read it.
fn chunk_of(chunk: &ColumnChunkMetaData) -> Cow<'_, ColumnChunkMetaData> {
    let at = dictionary_at(chunk);
    if at == chunk.dictionary_page_offset() {
        return Cow::Borrowed(chunk);
    }
    // All that is built was valid before.
    let built = chunk.clone().into_builder().set_dictionary_page_offset(at).build();
    built.map_or(Cow::Borrowed(chunk), Cow::Owned)
}

/// Returns where a column of a row group is, which is inside the file.
fn place_of(chunk: &ColumnChunkMetaData) -> Range<u64> {
    let start = dictionary_at(chunk).unwrap_or(chunk.data_page_offset());
    let (start, len) = (u64::try_from(start).unwrap_or(0), u64::try_from(chunk.compressed_size()).unwrap_or(0));
    start..start.saturating_add(len)
}

/// Returns whether a column of a row group is inside the file, and not in another one.
fn is_inside(chunk: &ColumnChunkMetaData, file: &FileBytes) -> bool {
    let start = dictionary_at(chunk).unwrap_or(chunk.data_page_offset());
    let place = u64::try_from(start).ok().zip(u64::try_from(chunk.compressed_size()).ok());
    let end = place.and_then(|(start, len)| start.checked_add(len));
    chunk.file_path().is_none() && end.is_some_and(|end| end <= file.len)
}

/// Returns the name of a codec in lower case, without its level.
fn codec_name(chunk: &ColumnChunkMetaData) -> String {
    let shown = chunk.compression().to_string().to_ascii_lowercase();
    shown.split('(').next().unwrap_or_default().to_owned()
}

fn damaged(path: &Path, what: &str) -> Error {
    incomplete(path, FORMAT, what)
}
