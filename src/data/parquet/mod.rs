//! Columns of Parquet files. The crate parquet decodes them, a page at a time, so that no row group is in memory as a
//! whole.
//!
//! <https://parquet.apache.org/docs/file-format/> is the format.

mod bytes;
mod cursor;
mod pages;
mod types;

use self::bytes::FileBytes;
use self::cursor::{Cursor, Put, put};
use self::pages::CheckedPages;
use super::decoded::{Decode, Decoded};
use super::file::Opened;
use super::table_file::{names, no_name};
use super::{Dtype, ReadMode, Scalar, Source, TableColumn, TableFile};
use crate::error::{Error, Result};
use parquet::column::reader::get_column_reader;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::serialized_reader::SerializedPageReader;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    decoded: Decoded<Column>,
    is_direct: bool,
}

/// Decodes a column.
struct Column {
    path: PathBuf,
    name: String,
    dtype: Dtype,
    file: Arc<FileBytes>,
    metadata: Arc<ParquetMetaData>,
    /// The place among the columns of a row group.
    index: usize,
    /// The row groups with rows.
    groups: Vec<usize>,
    /// What the user wants in the place of nulls, and its bytes if that is a value of the dtype.
    nulls: Option<(String, Option<[u8; 8]>)>,
    /// The version of the file when it was opened.
    version: Option<u128>,
}

impl Parquet {
    /// Opens a column. Only the end of the file is read, where its columns and row groups are described.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened or is not a Parquet file; if it has no such column; and if the
    /// column has nulls, or values that are not of a [`Dtype`]: texts, decimals, dates, times, or nested ones. If the
    /// file does not say how many nulls there are, they are an error when they are read.
    pub fn column(path: impl AsRef<Path>, name: &str) -> Result<Parquet> {
        Parquet::of(Opened::new(path.as_ref())?, Some(name), ReadMode::default(), None)
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
        let value = value.into().to_string();
        Parquet::of(Opened::new(path.as_ref())?, Some(name), ReadMode::default(), Some(&value))
    }

    /// Opens a column, or the only one that can be read. `nulls` is a value for the place of nulls.
    pub(super) fn of(opened: Opened, name: Option<&str>, reading: ReadMode, nulls: Option<&str>) -> Result<Parquet> {
        let (path, version) = (opened.path.clone(), opened.version());
        let file = Arc::new(FileBytes::new(opened));
        let metadata = Arc::new(metadata(&path, &file)?);
        let index = found(&path, &metadata, name)?;
        let descr = metadata.file_metadata().schema_descr().column(index);
        let name = descr.path().string();
        let refused = |problem: String, remedy: &str| Err(Error::file(&path, problem, remedy));
        let dtype = match types::dtype_of(&descr) {
            Ok(dtype) => dtype,
            Err(what) => {
                return refused(format!("its column '{name}' {what}"), "write it as numbers, as in pyarrow's cast");
            }
        };
        // The row groups with rows, and their rows.
        let (mut groups, mut rows, mut count) = (Vec::new(), Vec::new(), 0u64);
        for (number, group) in metadata.row_groups().iter().enumerate() {
            let what = || format!("column '{name}' of row group {number}");
            let Some(chunk) = group.columns().get(index).filter(|chunk| is_inside(chunk, &file)) else {
                return Err(damaged(&path, &format!("{} is not inside the file", what())));
            };
            let (own, values) = (group.num_rows(), chunk.num_values());
            let Some(own) = u64::try_from(own).ok().filter(|_| own == values) else {
                return Err(damaged(&path, &format!("{} has {values} values for {own} rows", what())));
            };
            if own > 0 {
                groups.push(number);
                rows.push(own);
            }
            let nulls = chunk.statistics().and_then(|statistics| statistics.null_count_opt());
            count = count.saturating_add(nulls.unwrap_or(0));
        }
        let bytes = |text: &str| Scalar::parse(text, dtype).map(|value| value.bits().to_ne_bytes());
        let nulls = nulls.map(|text| (text.to_owned(), bytes(text)));
        let total = rows.iter().try_fold(0u64, |sum, rows| sum.checked_add(*rows));
        if total.and_then(|rows| rows.checked_mul(dtype.size() as u64)).is_none() {
            return Err(damaged(&path, "it has more rows than can be counted"));
        }
        let column = Column { path, name, dtype, file, metadata, index, groups, nulls, version };
        if count > 0 && column.fill().is_none() {
            return Err(column.has_nulls(&format!("{count} nulls")));
        }
        // A codec that is missing is an error now and not in the run.
        if !column.groups.is_empty() {
            column.begin(0)?;
        }
        Ok(Parquet { decoded: Decoded::new(column, rows), is_direct: reading == ReadMode::Direct })
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
                dtype: types::dtype_of(descr).ok(),
                codec: codecs.join(", "),
                nulls: nulls.unwrap_or(Some(0)),
            }
        });
        let grains = metadata.row_groups().iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0));
        Ok(TableFile { format: "parquet", columns: columns.collect(), grains: grains.collect() })
    }

    /// Returns the size in bytes of the column in the file.
    pub(super) fn bytes(&self) -> u64 {
        let Column { metadata, index, .. } = &self.decoded.decoder;
        let sizes = metadata.row_groups().iter().map(|group| group.column(*index).compressed_size());
        sizes.filter_map(|size| u64::try_from(size).ok()).fold(0, u64::saturating_add)
    }
}

impl fmt::Debug for Parquet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Column { path, name, dtype, .. } = &self.decoded.decoder;
        f.debug_struct("Parquet")
            .field("path", path)
            .field("column", name)
            .field("dtype", dtype)
            .finish_non_exhaustive()
    }
}

impl Decode for Column {
    type Cursor = Cursor;

    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn version(&self) -> Option<u128> {
        self.file.version()
    }

    fn begin(&self, grain: usize) -> Result<Cursor> {
        let number = self.groups[grain];
        let group = self.metadata.row_group(number);
        let rows = usize::try_from(group.num_rows()).unwrap_or(usize::MAX);
        let descr = self.metadata.file_metadata().schema_descr().column(self.index);
        let chunk = group.column(self.index);
        let pages = without_panic(|| SerializedPageReader::new(self.file.clone(), chunk, rows, None));
        let pages = CheckedPages::new(pages.map_err(|e| self.failed(number, &e))?, &descr);
        Ok(Cursor::new(number, get_column_reader(descr, Box::new(pages))))
    }

    fn skip(&self, cursor: &mut Cursor, rows: u64) -> Result<()> {
        match without_panic(|| cursor.skip(rows)) {
            Ok(skipped) if skipped == rows => return Ok(()),
            Ok(_) => return Err(self.damaged(cursor.group, "ends too early")),
            // The crate cannot skip integers whose differences overflow, but it can decode them.
            Err(_) => {}
        }
        let grain = self.groups.partition_point(|group| *group < cursor.group);
        *cursor = self.begin(grain)?;
        let mut step = vec![0; 4096 * self.dtype.size()];
        let mut left = rows;
        while left > 0 {
            let rows = left.min(4096);
            self.decode(cursor, &mut step[..rows as usize * self.dtype.size()])?;
            left -= rows;
        }
        Ok(())
    }

    fn decode(&self, cursor: &mut Cursor, dst: &mut [u8]) -> Result<()> {
        let decoded = without_panic(|| put(cursor, self.dtype, self.fill(), dst));
        match decoded.map_err(|e| self.failed(cursor.group, &e))? {
            Put::All => Ok(()),
            Put::Null => Err(self.has_nulls("nulls")),
            Put::Ended => Err(self.damaged(cursor.group, "ends too early")),
            Put::TooLarge => Err(self.damaged(cursor.group, &format!("has values beyond {}", self.dtype))),
        }
    }
}

impl Column {
    /// Returns the bytes of the value for the place of nulls.
    fn fill(&self) -> Option<&[u8]> {
        let (_, bytes) = self.nulls.as_ref()?;
        // Native byte order: the low bytes of the word.
        let bytes = bytes.as_ref()?;
        Some(if cfg!(target_endian = "little") { &bytes[..self.dtype.size()] } else { &bytes[8 - self.dtype.size()..] })
    }

    fn has_nulls(&self, nulls: &str) -> Error {
        let (name, dtype) = (&self.name, self.dtype);
        match &self.nulls {
            None => {
                let problem = format!("its column '{name}' has {nulls}, which are no numbers");
                let remedy = "say which value to take instead (--nulls VALUE, ov.open(..., nulls=VALUE), \
                              Parquet::column_filled)";
                Error::file(&self.path, problem, remedy)
            }
            Some((text, _)) => {
                let problem = format!("its column '{name}' of {dtype} has {nulls}, and {text} is no value of {dtype}");
                Error::file(&self.path, problem, "take another value instead of nulls")
            }
        }
    }

    /// Returns an error of the crate parquet.
    fn failed(&self, group: usize, error: &ParquetError) -> Error {
        self.damaged(group, &format!("cannot be decoded: {error}"))
    }

    /// Returns the error for a row group of which the file says one thing and holds another.
    fn damaged(&self, group: usize, what: &str) -> Error {
        if self.file.version() != self.version {
            return Error::file(&self.path, "changed while it was read", "do not change a file while it is read");
        }
        damaged(&self.path, &format!("column '{}' of row group {group} {what}", self.name))
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
        self.decoded.dtype()
    }

    fn rows(&self) -> u64 {
        self.decoded.rows()
    }

    fn name(&self) -> String {
        self.decoded.name()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        self.decoded.read(first, dst)
    }

    fn grains(&self) -> &[u64] {
        self.decoded.grains()
    }

    fn path(&self) -> Option<&Path> {
        self.decoded.path()
    }

    fn variant(&self) -> String {
        let Column { name, nulls, .. } = &self.decoded.decoder;
        match nulls {
            None => format!("column {name}"),
            Some((text, _)) => format!("column {name}, nulls {text}"),
        }
    }

    fn version(&self) -> Option<u128> {
        self.decoded.version()
    }

    fn warning(&self) -> Option<String> {
        let note = || format!("{} is not read with direct I/O, because it is decoded page by page", self.name());
        self.is_direct.then(note)
    }
}

/// Reads the description of a file.
fn metadata(path: &Path, file: &FileBytes) -> Result<ParquetMetaData> {
    let wrong = |e: ParquetError| damaged(path, &e.to_string());
    without_panic(|| ParquetMetaDataReader::new().parse_and_finish(file)).map_err(wrong)
}

/// Returns the place of a column in the schema.
fn found(path: &Path, metadata: &ParquetMetaData, name: Option<&str>) -> Result<usize> {
    let columns = metadata.file_metadata().schema_descr().columns();
    let all: Vec<String> = columns.iter().map(|descr| descr.path().string()).collect();
    match name {
        Some(name) => all.iter().position(|own| own == name).ok_or_else(|| {
            Error::file(path, format!("has no column '{name}', only {}", names(&all)), "check the name")
        }),
        None => {
            let readable = |k: &usize| types::dtype_of(&columns[*k]).is_ok();
            let readable: Vec<usize> = (0..columns.len()).filter(readable).collect();
            match readable[..] {
                [only] => Ok(only),
                _ => Err(no_name(path, &readable.iter().map(|k| &*all[*k]).collect::<Vec<_>>())),
            }
        }
    }
}

/// Returns whether a column of a row group is inside the file, and not in another one.
fn is_inside(chunk: &ColumnChunkMetaData, file: &FileBytes) -> bool {
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
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
    Error::file(path, format!("is not a complete Parquet file: {what}"), "copy or write it again")
}
