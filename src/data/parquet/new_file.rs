//! New Parquet files. The columns of a row group are encoded by the threads that have written their last rows, and have
//! their places in the file in order, so that its bytes do not depend on the schedule.

use super::super::encoded_sink::{Container, NewOutput, not_written};
use super::super::file::{directory, io_error, write_error};
use super::super::gate::Gate;
use super::super::new_file::{Encoding, NewColumn, note, publish, require_sync, writers};
use super::super::unfinished_file::UnfinishedFile;
use crate::data::{Codec, Dtype};
use crate::error::{Error, Result};
use bytes::Bytes;
use parquet::basic::{Compression, GzipLevel, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::writer::{ColumnCloseResult, ColumnWriter, get_column_writer, get_typed_column_writer};
use parquet::data_type::{
    BoolType, ByteArray, DataType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, FloatType, Int32Type,
    Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::types::{ColumnPath, SchemaDescPtr, SchemaDescriptor, Type};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The rows of a row group, unless the caller sets them.
const GROUP_ROWS: u64 = 1 << 20;

/// Values that are brought to the form in which they are encoded, at a time.
const STEP: usize = 1 << 14;

type Written<T> = std::result::Result<T, ParquetError>;

/// A new file, whose columns have the same number of rows.
pub(in crate::data) struct NewParquet {
    unfinished: UnfinishedFile,
    dtypes: Vec<Dtype>,
    schema: SchemaDescPtr,
    properties: WriterPropertiesPtr,
    order: Mutex<Order>,
    writers: Gate,
    fsync: bool,
}

/// The file as the crate parquet writes it, one byte after the other. It only counts the bytes of encoded columns:
/// the threads that have them write them at the same time.
struct Tail {
    file: File,
    at: u64,
    only_counts: Arc<AtomicBool>,
}

impl Write for Tail {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.only_counts.load(Ordering::Relaxed) {
            self.file.write_all_at(bytes, self.at)?;
        }
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes, and their place in the file.
type Piece = (u64, Bytes);

/// What is written to the file, in order, and what waits until all before it is written.
struct Order {
    /// `None` when the file is complete.
    writer: Option<SerializedFileWriter<Tail>>,
    only_counts: Arc<AtomicBool>,
    /// The row group that is written next.
    next: u64,
    waiting: BTreeMap<(u64, usize), Waiting>,
    /// The bytes that wait in memory, and the most. More wait in a file.
    bytes: u64,
    most: u64,
    /// A file without a name for what waits, and its length.
    beside: Option<(File, u64)>,
}

/// An encoded column of a row group, and what it says of itself.
struct Waiting {
    bytes: Held,
    close: ColumnCloseResult,
}

/// Where an encoded column waits.
enum Held {
    Memory(Vec<u8>),
    Beside(Range<u64>),
}

/// Returns the bytes of a column of a row group.
pub(in crate::data) fn group_bytes(encoding: &Encoding, dtype: Dtype, rows: u64) -> u64 {
    // Small integers are stored as larger ones.
    let size = if dtype.is_integer() { dtype.size().max(4) } else { dtype.size() };
    group_rows(encoding).min(rows).saturating_mul(size as u64)
}

fn group_rows(encoding: &Encoding) -> u64 {
    encoding.chunks.as_deref().and_then(<[u64]>::first).copied().unwrap_or(GROUP_ROWS)
}

impl NewParquet {
    /// Creates a file without rows, and returns what is to be encoded for each column.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created.
    pub(in crate::data) fn create(
        path: &Path,
        columns: Vec<NewColumn>,
        encoding: &Encoding,
        (force, fsync): (bool, bool),
    ) -> Result<(NewParquet, Vec<NewOutput>)> {
        let unfinished = UnfinishedFile::create(path, 0, force)?;
        if fsync {
            require_sync(path, unfinished.target())?;
        }
        let dtypes: Vec<Dtype> = columns.iter().map(|column| column.dtype).collect();
        let only_counts = Arc::new(AtomicBool::new(false));
        let begin = || {
            let fields = columns.iter().map(field).collect::<Written<Vec<_>>>()?;
            let root = Arc::new(Type::group_type_builder("schema").with_fields(fields).build()?);
            let properties = Arc::new(properties(&columns, encoding.codec.unwrap_or_default())?);
            let tail = Tail { file: unfinished.file().try_clone()?, at: 0, only_counts: only_counts.clone() };
            let writer = SerializedFileWriter::new(tail, root.clone(), properties.clone())?;
            Ok((Arc::new(SchemaDescriptor::new(root)), properties, writer))
        };
        let (schema, properties, writer) = begin().map_err(|e| failed(path, 0, e))?;
        // Two grains of each column, as the plan has it.
        let most = columns.iter().map(|own| group_bytes(encoding, own.dtype, own.rows)).fold(0, u64::saturating_add);
        let most = most.saturating_mul(2);
        let (writer, waiting) = (Some(writer), BTreeMap::new());
        let order = Order { writer, only_counts, next: 0, waiting, bytes: 0, most, beside: None };
        let grain = group_rows(encoding);
        let output = |column: NewColumn| NewOutput {
            name: column.name,
            dtype: column.dtype,
            rows: column.rows,
            grain,
            is_column: true,
        };
        let outputs = columns.into_iter().map(output).collect();
        let (order, writers) = (Mutex::new(order), Gate::new(writers()));
        Ok((NewParquet { unfinished, dtypes, schema, properties, order, writers, fsync }, outputs))
    }

    /// Returns the bytes of a column of a row group.
    fn encoded(&self, column: usize, rows: &[u8]) -> Written<(Vec<u8>, ColumnCloseResult)> {
        let mut to = TrackedWrite::new(Vec::with_capacity(rows.len() / 2));
        let pages = Box::new(SerializedPageWriter::new(&mut to));
        let writer = get_column_writer(self.schema.column(column), self.properties.clone(), pages);
        let close = write(writer, self.dtypes[column], rows)?;
        Ok((to.into_inner()?, close))
    }
}

impl Order {
    /// Adds a column of a row group, and returns what no longer waits for another one.
    fn add(
        &mut self,
        at: (u64, usize),
        columns: usize,
        target: &Path,
        encoded: (Vec<u8>, ColumnCloseResult),
    ) -> Written<Vec<Piece>> {
        let (bytes, close) = encoded;
        let len = bytes.len() as u64;
        let is_next = at.0 == self.next;
        let bytes = match is_next || self.bytes + len <= self.most {
            true => {
                self.bytes += len;
                Held::Memory(bytes)
            }
            false => self.put_beside(&bytes, target)?,
        };
        self.waiting.insert(at, Waiting { bytes, close });
        let mut pieces = Vec::new();
        while self.waiting.range((self.next, 0)..(self.next + 1, 0)).count() == columns {
            self.place_next(columns, &mut pieces)?;
        }
        Ok(pieces)
    }

    fn put_beside(&mut self, bytes: &[u8], target: &Path) -> Written<Held> {
        let (file, end) = match &mut self.beside {
            Some(beside) => beside,
            None => self.beside.insert((tempfile::tempfile_in(directory(target))?, 0)),
        };
        let start = *end;
        file.write_all_at(bytes, start)?;
        *end += bytes.len() as u64;
        Ok(Held::Beside(start..*end))
    }

    /// Gives the next row group, whose columns all wait, its place.
    fn place_next(&mut self, columns: usize, pieces: &mut Vec<Piece>) -> Written<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.flush()?;
        self.only_counts.store(true, Ordering::Relaxed);
        let mut at = writer.bytes_written() as u64;
        let mut group = writer.next_row_group()?;
        for column in 0..columns {
            let Some(Waiting { bytes, close }) = self.waiting.remove(&(self.next, column)) else { continue };
            let bytes = match (bytes, &self.beside) {
                (Held::Memory(bytes), _) => {
                    self.bytes -= bytes.len() as u64;
                    bytes
                }
                (Held::Beside(range), Some((file, _))) => {
                    let mut bytes = vec![0; (range.end - range.start) as usize];
                    file.read_exact_at(&mut bytes, range.start)?;
                    bytes
                }
                (Held::Beside(_), None) => return Err(io::Error::from(io::ErrorKind::NotFound).into()),
            };
            let bytes = Bytes::from(bytes);
            group.append_column(&bytes, close)?;
            pieces.push((at, bytes.clone()));
            at += bytes.len() as u64;
        }
        group.close()?;
        writer.flush()?;
        self.only_counts.store(false, Ordering::Relaxed);
        self.next += 1;
        Ok(())
    }
}

impl Container for NewParquet {
    fn path(&self) -> &Path {
        self.unfinished.path()
    }

    fn encode(&self, output: usize, grain: u64, rows: &[u8]) -> Result<()> {
        let path = self.path();
        let encoded = self.encoded(output, rows).map_err(|e| failed(path, rows.len() as u64, e))?;
        let len = encoded.0.len() as u64;
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let added = order.add((grain, output), self.dtypes.len(), self.unfinished.target(), encoded);
        drop(order);
        let _pass = self.writers.enter();
        for (at, bytes) in added.map_err(|e| failed(path, len, e))? {
            let written = self.unfinished.file().write_all_at(&bytes, at);
            written.map_err(|e| write_error(path, bytes.len() as u64, e))?;
        }
        Ok(())
    }

    fn describe(&self, _: &[u64]) -> Result<()> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut writer) = order.writer.take() else { return Ok(()) };
        if !order.waiting.is_empty() {
            return Err(not_written(self.path()));
        }
        writer.finish().map_err(|e| failed(self.path(), 0, e))?;
        if self.fsync { self.unfinished.sync() } else { Ok(()) }
    }

    fn warning(&self) -> Option<String> {
        note(&self.unfinished, false)
    }

    fn check(&self) -> Result<()> {
        self.unfinished.check()
    }

    fn publish(&mut self) -> Result<()> {
        publish(&mut self.unfinished, self.fsync)
    }

    fn commit(self) -> Result<()> {
        self.unfinished.commit()
    }
}

/// Returns what the file says of a column.
fn field(column: &NewColumn) -> Written<Arc<Type>> {
    let integer = |bits, is_signed| Some(LogicalType::integer(bits, is_signed));
    let (physical, logical) = match column.dtype {
        Dtype::Bool => (Physical::BOOLEAN, None),
        Dtype::I8 => (Physical::INT32, integer(8, true)),
        Dtype::I16 => (Physical::INT32, integer(16, true)),
        Dtype::I32 => (Physical::INT32, None),
        Dtype::I64 => (Physical::INT64, None),
        Dtype::U8 => (Physical::INT32, integer(8, false)),
        Dtype::U16 => (Physical::INT32, integer(16, false)),
        Dtype::U32 => (Physical::INT32, integer(32, false)),
        Dtype::U64 => (Physical::INT64, integer(64, false)),
        Dtype::F16 | Dtype::Bf16 => (Physical::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Float16)),
        Dtype::F32 => (Physical::FLOAT, None),
        Dtype::F64 => (Physical::DOUBLE, None),
    };
    let length = if physical == Physical::FIXED_LEN_BYTE_ARRAY { 2 } else { -1 };
    let builder = Type::primitive_type_builder(&column.name, physical).with_logical_type(logical);
    Ok(Arc::new(builder.with_repetition(Repetition::REQUIRED).with_length(length).build()?))
}

fn properties(columns: &[NewColumn], codec: Codec) -> Written<WriterProperties> {
    let compression = match codec {
        Codec::None => Compression::UNCOMPRESSED,
        Codec::Snappy => Compression::SNAPPY,
        Codec::Lz4 => Compression::LZ4_RAW,
        Codec::Zstd(level) => Compression::ZSTD(ZstdLevel::try_new(level.into())?),
        Codec::Gzip(level) => Compression::GZIP(GzipLevel::try_new(level.into())?),
    };
    let created_by = concat!("overshot version ", env!("CARGO_PKG_VERSION"));
    let builder = WriterProperties::builder().set_compression(compression).set_created_by(created_by.into());
    // Floats are rarely the same, and to look each of them up takes longer than to compress it.
    let integers = columns.iter().filter(|column| column.dtype.is_integer());
    let builder = integers.fold(builder.set_dictionary_enabled(false), |builder, column| {
        builder.set_column_dictionary_enabled(ColumnPath::from(&*column.name), true)
    });
    Ok(builder.build())
}

/// Writes the rows of a column.
fn write(writer: ColumnWriter<'_>, dtype: Dtype, rows: &[u8]) -> Written<ColumnCloseResult> {
    match dtype {
        Dtype::Bool => typed::<BoolType, u8>(writer, rows, |byte| byte != 0),
        Dtype::I8 => typed::<Int32Type, i8>(writer, rows, i32::from),
        Dtype::U8 => typed::<Int32Type, u8>(writer, rows, i32::from),
        Dtype::I16 => typed::<Int32Type, i16>(writer, rows, i32::from),
        Dtype::U16 => typed::<Int32Type, u16>(writer, rows, i32::from),
        // Unsigned integers are stored as signed ones of the same bits.
        Dtype::I32 | Dtype::U32 => typed::<Int32Type, i32>(writer, rows, |value| value),
        Dtype::I64 | Dtype::U64 => typed::<Int64Type, i64>(writer, rows, |value| value),
        Dtype::F32 => typed::<FloatType, f32>(writer, rows, |value| value),
        Dtype::F64 => typed::<DoubleType, f64>(writer, rows, |value| value),
        Dtype::F16 | Dtype::Bf16 => typed::<FixedLenByteArrayType, u16>(writer, rows, |bits| {
            FixedLenByteArray::from(ByteArray::from(bits.to_le_bytes().to_vec()))
        }),
    }
}

/// Writes values as those of a type of Parquet's.
fn typed<T: DataType, V: bytemuck::Pod>(
    writer: ColumnWriter<'_>,
    rows: &[u8],
    stored: impl Fn(V) -> T::T,
) -> Written<ColumnCloseResult> {
    let mut writer = get_typed_column_writer::<T>(writer);
    let mut values = Vec::with_capacity(STEP.min(rows.len() / size_of::<V>()));
    for step in rows.chunks(STEP * size_of::<V>()) {
        values.clear();
        // The rows may be anywhere in memory.
        values.extend(step.chunks_exact(size_of::<V>()).map(|bytes| stored(bytemuck::pod_read_unaligned(bytes))));
        writer.write_batch(&values, None, None)?;
    }
    writer.close()
}

/// Returns the error for bytes that could not be written.
fn failed(path: &Path, needed: u64, error: ParquetError) -> Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(error) => write_error(path, needed, *error),
            Err(cause) => io_error(path, "cannot be written", "check the disk", io::Error::other(cause)),
        },
        other => io_error(path, "cannot be written", "check the disk", io::Error::other(other.to_string())),
    }
}
