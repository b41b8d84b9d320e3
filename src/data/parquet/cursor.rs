//! Decodes the rows of a column of a row group, in order.

use crate::data::Dtype;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::Result;

/// The values that are decoded at once, and stay in the cache until they are copied.
pub(super) const STEP: usize = 4096;

/// A position in a column of a row group.
pub(super) struct Cursor {
    pub(super) group: usize,
    values: Values,
    /// Of the rows of a step: whether each one has a value.
    levels: Vec<i16>,
}

/// A decoder, with memory for the values of a step.
enum Values {
    Bool(Box<Typed<parquet::data_type::BoolType>>),
    Int32(Box<Typed<parquet::data_type::Int32Type>>),
    Int64(Box<Typed<parquet::data_type::Int64Type>>),
    Float(Box<Typed<parquet::data_type::FloatType>>),
    Double(Box<Typed<parquet::data_type::DoubleType>>),
    Fixed(Box<Typed<parquet::data_type::FixedLenByteArrayType>>),
}

struct Typed<T: DataType> {
    reader: ColumnReaderImpl<T>,
    step: Vec<T::T>,
}

impl<T: DataType> Typed<T> {
    fn new(reader: ColumnReaderImpl<T>) -> Box<Self> {
        Box::new(Typed { reader, step: Vec::with_capacity(STEP) })
    }
}

/// What became of the rows that were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    All,
    /// A row has no value.
    Null,
    /// There are fewer rows.
    Ended,
    /// A value is beyond its dtype.
    TooLarge,
}

impl Cursor {
    /// A cursor at the first row of a row group; `None` if no dtype has values of this type.
    pub(super) fn new(group: usize, reader: ColumnReader) -> Option<Cursor> {
        let values = match reader {
            ColumnReader::BoolColumnReader(reader) => Values::Bool(Typed::new(reader)),
            ColumnReader::Int32ColumnReader(reader) => Values::Int32(Typed::new(reader)),
            ColumnReader::Int64ColumnReader(reader) => Values::Int64(Typed::new(reader)),
            ColumnReader::FloatColumnReader(reader) => Values::Float(Typed::new(reader)),
            ColumnReader::DoubleColumnReader(reader) => Values::Double(Typed::new(reader)),
            ColumnReader::FixedLenByteArrayColumnReader(reader) => Values::Fixed(Typed::new(reader)),
            ColumnReader::Int96ColumnReader(_) | ColumnReader::ByteArrayColumnReader(_) => return None,
        };
        Some(Cursor { group, values, levels: Vec::with_capacity(STEP) })
    }

    /// Skips rows, whole pages without decoding them, and returns how many there were.
    pub(super) fn skip(&mut self, rows: u64) -> Result<u64> {
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        let skipped = match &mut self.values {
            Values::Bool(values) => values.reader.skip_records(rows),
            Values::Int32(values) => values.reader.skip_records(rows),
            Values::Int64(values) => values.reader.skip_records(rows),
            Values::Float(values) => values.reader.skip_records(rows),
            Values::Double(values) => values.reader.skip_records(rows),
            Values::Fixed(values) => values.reader.skip_records(rows),
        };
        skipped.map(|rows| rows as u64)
    }
}

/// Fills `dst` with the next rows, as values of `dtype`, and with the bytes `fill` in the place of nulls.
pub(super) fn put(cursor: &mut Cursor, dtype: Dtype, fill: Option<&[u8]>, dst: &mut [u8]) -> Result<Put> {
    let Cursor { values, levels, .. } = cursor;
    match values {
        Values::Bool(values) => each(values, levels, (1, fill), dst, |from, to| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = u8::from(*from));
            true
        }),
        Values::Int32(values) => each(values, levels, (dtype.size(), fill), dst, |from, to| match dtype {
            Dtype::I8 => narrow(from, to, |value| i8::try_from(value).map(i8::to_ne_bytes)),
            Dtype::U8 => narrow(from, to, |value| u8::try_from(value).map(u8::to_ne_bytes)),
            Dtype::I16 => narrow(from, to, |value| i16::try_from(value).map(i16::to_ne_bytes)),
            Dtype::U16 => narrow(from, to, |value| u16::try_from(value).map(u16::to_ne_bytes)),
            // Unsigned integers of 32 bits are stored as signed ones of the same bits.
            _ => copied(bytemuck::cast_slice(from), to),
        }),
        Values::Int64(values) => {
            each(values, levels, (8, fill), dst, |from, to| copied(bytemuck::cast_slice(from), to))
        }
        Values::Float(values) => {
            each(values, levels, (4, fill), dst, |from, to| copied(bytemuck::cast_slice(from), to))
        }
        Values::Double(values) => {
            each(values, levels, (8, fill), dst, |from, to| copied(bytemuck::cast_slice(from), to))
        }
        Values::Fixed(values) => each(values, levels, (2, fill), dst, |from, to| {
            let rows = to.as_chunks_mut::<2>().0.iter_mut().zip(from);
            rows.into_iter().all(|(to, from)| {
                let bits = from.data().first_chunk().filter(|_| from.data().len() == 2);
                bits.map(|bits| *to = u16::from_le_bytes(*bits).to_ne_bytes()).is_some()
            })
        }),
    }
}

/// Decodes step by step. `put` stores the values of a step, and returns whether all of them fit the dtype.
fn each<T: DataType>(
    values: &mut Typed<T>,
    levels: &mut Vec<i16>,
    (size, fill): (usize, Option<&[u8]>),
    dst: &mut [u8],
    put: impl Fn(&[T::T], &mut [u8]) -> bool,
) -> Result<Put> {
    let mut rest = dst;
    while !rest.is_empty() {
        let wanted = (rest.len() / size).min(STEP);
        values.step.clear();
        levels.clear();
        let (rows, count, _) = values.reader.read_records(wanted, Some(levels), None, &mut values.step)?;
        if rows == 0 || rows > wanted || count > rows {
            return Ok(Put::Ended);
        }
        let (to, after) = rest.split_at_mut(rows * size);
        if !put(&values.step, &mut to[..count * size]) {
            return Ok(Put::TooLarge);
        }
        if count < rows {
            let Some(fill) = fill else { return Ok(Put::Null) };
            spread(to, count, levels, fill);
        }
        rest = after;
    }
    Ok(Put::All)
}

/// Moves the first `count` rows to the rows that have a value, and fills the others. Of a column that is not nested,
/// a row has a value if its level is 1.
fn spread(rows: &mut [u8], count: usize, levels: &[i16], fill: &[u8]) {
    let (size, mut left) = (fill.len(), count);
    for (row, level) in levels.iter().enumerate().rev() {
        let at = row * size;
        match (*level, left.checked_sub(1)) {
            (1.., Some(before)) => {
                rows.copy_within(before * size..left * size, at);
                left = before;
            }
            _ => rows[at..at + size].copy_from_slice(fill),
        }
    }
}

fn copied(from: &[u8], to: &mut [u8]) -> bool {
    let fits = from.len() == to.len();
    if fits {
        to.copy_from_slice(from);
    }
    fits
}

/// Stores integers as narrower ones.
fn narrow<const N: usize, E>(
    from: &[i32],
    to: &mut [u8],
    narrowed: impl Fn(i32) -> std::result::Result<[u8; N], E>,
) -> bool {
    let mut fits = true;
    for (to, from) in to.as_chunks_mut::<N>().0.iter_mut().zip(from) {
        match narrowed(*from) {
            Ok(value) => *to = value,
            Err(_) => fits = false,
        }
    }
    fits
}
