//! Columns of Arrow files, which are also called Feather files. The values of a column that is not compressed are used
//! where they are in the file; others are decompressed, batch by batch.
//!
//! Files that are written have one record batch and no compression.
//!
//! <https://arrow.apache.org/docs/format/Columnar.html#ipc-file-format> is the format.

mod footer;
mod new_table;
mod types;
mod values;

use self::footer::Footer;
pub(super) use self::new_table::NewTable;
use self::values::Cursor;
use super::column::{Column, Named, Values, found, incomplete};
use super::decoded::{Decode, Decoded};
use super::file::Opened;
use super::file_layout::FileFormat;
use super::file_rows::{FileRows, Piece, Place};
use super::storage::error_within;
use super::table_file::only;
use super::{ColumnOptions, Dtype, Memory, NewFile, ReadMode, Scalar, Source, TableColumn, TableFile};
use crate::error::{Error, Result};
use crate::units;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The name of the format, for messages.
const FORMAT: &str = "Arrow";

/// A column of an Arrow file: numbers or booleans that are not nested. Nulls are refused, or filled on request.
///
/// The values are used where they are in the file, as those of a `.npy` file, if none of its record batches is
/// compressed and none has nulls. Booleans are bits there, so that they are always decoded. Decoding takes the time of
/// the threads that read: a record batch is a [grain](Source::grains) then, and batches are decoded in parallel.
///
/// ```no_run
/// use overshot::{Arrow, Engine, Job};
/// let job = Job::eval("sum(price * size)")?
///     .input("price", Arrow::column("trades.arrow", "price")?)
///     .input("size", Arrow::column("trades.arrow", "size")?);
/// let report = Engine::builder().build()?.run(job)?;
/// # Ok::<(), overshot::Error>(())
/// ```
pub struct Arrow {
    column: Arc<Column>,
    rows: Rows,
}

/// How the rows are read.
enum Rows {
    /// Values that are stored as they are used.
    Stored(FileRows),
    Decoded {
        rows: Decoded<Decoder>,
        is_direct: bool,
    },
}

/// Decodes a column.
struct Decoder {
    column: Arc<Column>,
    file: Arc<Opened>,
    /// The batches with rows.
    parts: Vec<Part>,
    is_swapped: bool,
}

/// The part of a column that is in a record batch.
struct Part {
    rows: u64,
    nulls: u64,
    /// A bit for every row: whether it has a value. Of no meaning if there are no nulls.
    present: Span,
    values: Span,
    codec: Option<Codec>,
}

/// Bytes of the file.
#[derive(Clone, Copy, Default)]
struct Span {
    at: u64,
    len: u64,
}

/// How the buffers of a batch are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Codec {
    Lz4,
    Zstd,
}

impl Part {
    /// Returns whether the buffers have the bytes of so many rows, as far as their lengths tell.
    fn is_long_enough(&self, dtype: Dtype) -> bool {
        let bits = self.rows.div_ceil(8);
        let needed = if dtype == Dtype::Bool { Some(bits) } else { self.rows.checked_mul(dtype.size() as u64) };
        let has_bits = self.nulls == 0 || self.present.len >= bits;
        self.codec.is_some() || (has_bits && needed.is_some_and(|needed| self.values.len >= needed))
    }

    fn codec_name(&self) -> &'static str {
        match self.codec {
            None => "uncompressed",
            Some(Codec::Lz4) => "lz4",
            Some(Codec::Zstd) => "zstd",
        }
    }
}

impl Arrow {
    /// Opens a column, to be read with system calls. Only what describes the columns and the record batches is read.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened or is not an Arrow file; if it has no such column; and if the
    /// column has nulls, or values that are not of a [`Dtype`]: texts, decimals, dates, times, nested ones, or those
    /// of a dictionary.
    pub fn column(path: impl AsRef<Path>, name: &str) -> Result<Arrow> {
        Arrow::column_with(path, name, &ColumnOptions::new())
    }

    /// Opens a column that may have nulls or timestamps, as the options say.
    ///
    /// ```no_run
    /// use overshot::{Arrow, io::ColumnOptions};
    /// let time = Arrow::column_with("trades.arrow", "time", &ColumnOptions::new().timestamps(true))?;
    /// # Ok::<(), overshot::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`column`](Arrow::column), but for what the options allow. Also returns an error if
    /// there are nulls and the column's dtype has no such value as the one for their place.
    pub fn column_with(path: impl AsRef<Path>, name: &str, options: &ColumnOptions) -> Result<Arrow> {
        let path = path.as_ref();
        only(path, Arrow::of(Opened::new(path)?, &[Some(name)], ReadMode::default(), options)?)
    }

    /// Opens a column that may have nulls, and has this value in the place of each.
    ///
    /// ```no_run
    /// use overshot::Arrow;
    /// let size = Arrow::column_filled("trades.arrow", "size", 0)?;
    /// let price = Arrow::column_filled("trades.arrow", "price", f64::NAN)?;
    /// # Ok::<(), overshot::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`column`](Arrow::column), but for nulls. Also returns an error if there are nulls
    /// and the column's dtype has no such value: a NaN, for example, among integers.
    pub fn column_filled(path: impl AsRef<Path>, name: &str, value: impl Into<Scalar>) -> Result<Arrow> {
        Arrow::column_with(path, name, &ColumnOptions::new().nulls(value))
    }

    /// Opens a column, to be used in place through a memory map if its values are stored as they are used. If the
    /// system cannot map the file, it is read with system calls.
    ///
    /// # Safety
    /// The contract of [`Npy::map`](crate::Npy::map): nobody may write to the file or truncate it while this value
    /// exists.
    ///
    /// # Errors
    /// Returns the same errors as [`column`](Arrow::column).
    pub unsafe fn map_column(path: impl AsRef<Path>, name: &str) -> Result<Arrow> {
        // SAFETY: the caller upholds the same contract.
        Ok(unsafe { Arrow::column(path, name)?.mapped() })
    }

    /// Returns an Arrow file to be written by a job. It has a column with the name of the job's output. Several outputs
    /// of rows with the same path are columns of one file. Nothing is created until the job runs.
    ///
    /// The file replaces another one if all of its outputs are [forced](NewFile::force), and is on the disk if one of
    /// them [asks for it](NewFile::fsync). Jobs in parts and runs with a journal write one column to a file.
    ///
    /// The rows have one dimension. They are not `bool` or `bf16`: [`NewFile::dtype`] casts them, to `u8` for example.
    /// The values are not compressed, and there are no nulls, so that every program can use them in place.
    ///
    /// ```
    /// use overshot::{Arrow, Engine, Job};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("prices.arrow");
    /// let job = Job::eval("gross = net * 1.19")?.input("net", &[1.0, 3.0]);
    /// Engine::builder().build()?.run(job.output("gross", Arrow::create(&path)))?;
    /// let gross = Arrow::column(&path, "gross")?;
    /// # Ok::<(), overshot::Error>(())
    /// ```
    pub fn create(path: impl AsRef<Path>) -> NewFile {
        NewFile::new(path.as_ref(), FileFormat::Arrow)
    }

    /// Opens columns, each by its name or, without one, the only one that can be read.
    pub(super) fn of(
        opened: Opened,
        names: &[Option<&str>],
        reading: ReadMode,
        options: &ColumnOptions,
    ) -> Result<Vec<Arrow>> {
        let footer = Footer::read(&opened)?;
        let is_read = |own: &footer::Field| own.values.dtype(options.timestamps).is_some();
        // Those in other columns are not among them.
        let named = |own: &footer::Field| Named { name: own.name.clone(), is_readable: is_read(own), is_inner: false };
        let columns: Vec<_> = footer.columns.iter().map(named).collect();
        let field = |name: &Option<&str>| Ok(&footer.columns[found(&opened.path, &columns, *name)?]);
        let fields = names.iter().map(field).collect::<Result<Vec<_>>>()?;
        let column = |field: &&footer::Field| Column::new(&opened, &field.name, &field.values, options);
        let columns = fields.iter().map(column).collect::<Result<Vec<_>>>()?;
        // Each has a part for each column.
        let mut batches: Vec<_> = footer.parts(&opened, &fields)?.into_iter().map(Vec::into_iter).collect();
        let open = |column: Column| {
            let parts = batches.iter_mut().filter_map(Iterator::next).filter(|part| part.rows > 0).collect();
            Arrow::column_of(opened.clone(), column, parts, footer.is_swapped, reading)
        };
        columns.into_iter().map(open).collect()
    }

    /// Opens the column of these parts.
    fn column_of(
        opened: Opened,
        column: Column,
        parts: Vec<Part>,
        is_swapped: bool,
        reading: ReadMode,
    ) -> Result<Arrow> {
        let column = Arc::new(column);
        let dtype = column.dtype;
        let count = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.nulls));
        if count > 0 {
            column.refuse_nulls(&units::counted(count, "null"))?;
        }
        let total = parts.iter().try_fold(0u64, |sum, part| sum.checked_add(part.rows));
        let Some(total) = total.filter(|rows| rows.checked_mul(dtype.size() as u64).is_some()) else {
            return Err(damaged(&opened.path, "it has more rows than can be counted"));
        };
        let is_stored = dtype != Dtype::Bool && parts.iter().all(|part| part.codec.is_none() && part.nulls == 0);
        let rows = if is_stored {
            let mut row = 0;
            let piece = |part: &Part| {
                row += part.rows;
                Piece { row: row - part.rows, at: part.values.at }
            };
            let pieces = parts.iter().map(piece).collect();
            let place = Place { pieces, stride: dtype.size() as u64, swapped: is_swapped };
            Rows::Stored(FileRows::new(opened, dtype, total, place, reading))
        } else {
            let rows: Vec<u64> = parts.iter().map(|part| part.rows).collect();
            let decoder = Decoder { column: column.clone(), file: Arc::new(opened), parts, is_swapped };
            Rows::Decoded { rows: Decoded::new(decoder, rows), is_direct: reading == ReadMode::Direct }
        };
        Ok(Arrow { column, rows })
    }

    /// Returns the column, to be used in place if its values are stored as they are used.
    ///
    /// # Safety
    /// The contract of [`map_column`](Arrow::map_column).
    pub(super) unsafe fn mapped(self) -> Arrow {
        let rows = match self.rows {
            // SAFETY: the caller upholds the same contract.
            Rows::Stored(rows) => Rows::Stored(unsafe { rows.mapped() }),
            decoded @ Rows::Decoded { .. } => decoded,
        };
        Arrow { rows, ..self }
    }

    /// Reads the rows as some of a dataset of this many bytes, which may be too large for the page cache.
    pub(super) fn among(self, bytes: u64) -> Arrow {
        let rows = match self.rows {
            Rows::Stored(rows) => Rows::Stored(rows.among(bytes)),
            decoded @ Rows::Decoded { .. } => decoded,
        };
        Arrow { rows, ..self }
    }

    /// See [`FileRows::forget`].
    pub(super) fn forget(&self) {
        match &self.rows {
            Rows::Stored(rows) => rows.forget(),
            Rows::Decoded { rows, .. } => rows.forget(),
        }
    }

    /// Returns the size in bytes of the column in the file.
    pub(super) fn bytes(&self) -> u64 {
        match &self.rows {
            Rows::Stored(rows) => rows.bytes(),
            Rows::Decoded { rows, .. } => {
                let sizes = rows.decoder.parts.iter().map(|part| part.values.len.saturating_add(part.present.len));
                sizes.fold(0, u64::saturating_add)
            }
        }
    }

    /// Returns what is known of the column.
    pub(super) fn meta(&self) -> &Column {
        &self.column
    }

    /// Returns what a file says of itself.
    pub(super) fn table(opened: Opened) -> Result<TableFile> {
        let footer = Footer::read(&opened)?;
        let fields: Vec<_> = footer.columns.iter().collect();
        let (mut grains, mut codecs, mut nulls) = (Vec::new(), Vec::new(), vec![0u64; fields.len()]);
        for parts in footer.parts(&opened, &fields)? {
            grains.push(parts.first().map_or(0, |part| part.rows));
            codecs.extend(parts.first().map(Part::codec_name));
            nulls.iter_mut().zip(&parts).for_each(|(sum, part)| *sum = sum.saturating_add(part.nulls));
        }
        codecs.sort_unstable();
        codecs.dedup();
        let codec = codecs.join(", ");
        let columns = footer.columns.into_iter().zip(nulls).map(|(own, nulls)| TableColumn {
            name: own.name,
            kind: own.kind,
            dtype: own.values.dtype(false),
            is_timestamp: matches!(own.values, Values::Timestamps(..)),
            codec: codec.clone(),
            nulls: Some(nulls),
        });
        Ok(TableFile { format: "arrow", columns: columns.collect(), grains })
    }
}

impl fmt::Debug for Arrow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Column { path, name, dtype, .. } = &*self.column;
        f.debug_struct("Arrow").field("path", path).field("column", name).field("dtype", dtype).finish_non_exhaustive()
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
        self.cursor(grain, 0)
    }

    fn skip(&self, cursor: &mut Cursor, row: u64, rows: u64) -> Result<()> {
        if self.parts[cursor.batch].codec.is_some() {
            return self.decode_past(cursor, rows);
        }
        *cursor = self.cursor(cursor.batch, row + rows)?;
        Ok(())
    }

    fn cursor_memory(&self) -> u64 {
        let largest = self.parts.iter().max_by_key(|part| part.rows);
        largest.map_or(0, |part| values::memory(&self.file, part))
    }

    fn decode(&self, cursor: &mut Cursor, dst: &mut [u8]) -> Result<()> {
        let Column { dtype, .. } = *self.column;
        cursor.next(self.is_swapped, dtype, self.column.fill(), dst).map_err(|e| self.failed(cursor.batch, &e))
    }
}

impl Decoder {
    /// Returns a cursor at a row of a batch, which is 0 if the batch is compressed.
    fn cursor(&self, batch: usize, row: u64) -> Result<Cursor> {
        let cursor = Cursor::new(&self.file, self.column.dtype, batch, &self.parts[batch], row);
        cursor.map_err(|e| self.failed(batch, &e))
    }

    fn failed(&self, batch: usize, error: &io::Error) -> Error {
        if let Some(error) = error_within(error) {
            return error;
        }
        let what = match error.kind() {
            io::ErrorKind::UnexpectedEof => "ends too early".to_owned(),
            _ => format!("cannot be decoded: {error}"),
        };
        self.column.damaged(&self.file, FORMAT, &format!("record batch {batch}"), &what)
    }
}

impl Source for Arrow {
    fn dtype(&self) -> Dtype {
        self.column.dtype
    }

    fn rows(&self) -> u64 {
        match &self.rows {
            Rows::Stored(rows) => rows.rows,
            Rows::Decoded { rows, .. } => rows.rows,
        }
    }

    fn name(&self) -> String {
        self.column.path.display().to_string()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        match &self.rows {
            Rows::Stored(rows) => rows.read(first, dst),
            Rows::Decoded { rows, .. } => rows.read(first, dst),
        }
    }

    fn memory(&self) -> Option<Memory<'_>> {
        match &self.rows {
            Rows::Stored(rows) => rows.memory(),
            Rows::Decoded { .. } => None,
        }
    }

    fn piece(&self, first: u64, rows: u64) -> Option<Memory<'_>> {
        match &self.rows {
            Rows::Stored(own) => own.piece(first, rows),
            Rows::Decoded { .. } => None,
        }
    }

    fn grains(&self) -> &[u64] {
        match &self.rows {
            Rows::Stored(_) => &[],
            Rows::Decoded { rows, .. } => &rows.grains,
        }
    }

    fn decode_memory(&self) -> u64 {
        match &self.rows {
            Rows::Stored(rows) => rows.memory_ahead(),
            Rows::Decoded { rows, .. } => rows.memory(),
        }
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.column.path)
    }

    fn variant(&self) -> String {
        self.column.variant()
    }

    fn is_cached(&self, first: u64, rows: u64) -> bool {
        match &self.rows {
            Rows::Stored(own) => own.is_cached(first, rows),
            Rows::Decoded { .. } => true,
        }
    }

    fn bytes_read_direct(&self) -> u64 {
        match &self.rows {
            Rows::Stored(rows) => rows.bytes_read_direct(),
            Rows::Decoded { .. } => 0,
        }
    }

    fn version(&self) -> Option<u128> {
        match &self.rows {
            Rows::Stored(rows) => rows.version(),
            Rows::Decoded { rows, .. } => {
                rows.forget();
                rows.decoder.file.version()
            }
        }
    }

    fn warning(&self) -> Option<String> {
        match &self.rows {
            Rows::Stored(rows) => rows.warning(),
            Rows::Decoded { rows, is_direct } => rows.decoder.file.warning(*is_direct, "batch by batch"),
        }
    }
}

fn damaged(path: &Path, what: &str) -> Error {
    incomplete(path, FORMAT, what)
}
