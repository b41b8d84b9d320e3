//! What a file says of its columns and record batches.

use super::types::{Extent, extent, kind, values_of};
use super::{Codec, Part, Span, damaged};
use crate::data::column::Values;
use crate::data::file::Opened;
use crate::data::storage::error_within;
use crate::error::{Error, Result};
use crate::threads;
use arrow_ipc::{
    Buffer, CompressionType, Endianness, Footer as Root, Message, MetadataVersion, RecordBatch, root_as_footer,
    root_as_message,
};
use std::num::NonZero;
use std::thread::available_parallelism;

/// The first and the last bytes of a file.
pub(super) const MAGIC: &[u8; 6] = b"ARROW1";
/// The first bytes of a message, since version 5 of the format, and so of a stream.
pub(super) const CONTINUATION: [u8; 4] = [0xff; 4];
/// Where the first version of PyArrow that compressed batches says how.
const OLD_COMPRESSION: &str = "ARROW:experimental_compression";

/// What the end of a file says.
pub(super) struct Footer {
    pub columns: Vec<Field>,
    pub batches: Vec<Block>,
    /// Whether the byte order of the values differs from the machine's.
    pub is_swapped: bool,
}

/// A column.
pub(super) struct Field {
    pub name: String,
    pub kind: String,
    pub values: Values,
    /// What belongs to the columns before.
    before: Extent,
}

/// Where a record batch is in the file.
pub(super) struct Block {
    /// The offset of its description.
    at: u64,
    description: u64,
    values: u64,
}

impl Footer {
    pub(super) fn read(file: &Opened) -> Result<Footer> {
        let wrong = |what: &str| damaged(&file.path, what);
        let end = file.len.checked_sub(MAGIC.len() as u64 + 4).ok_or_else(|| wrong("it is too short"))?;
        let tail = bytes(file, end, MAGIC.len() as u64 + 4)?;
        if file.head(4)? == CONTINUATION {
            let remedy = "write a file instead, as with pyarrow.ipc.new_file";
            return Err(Error::file(&file.path, "is a stream of Arrow's, not a file", remedy));
        }
        let len = tail.first_chunk().filter(|_| tail.ends_with(MAGIC)).ok_or_else(|| wrong("its end is missing"))?;
        let len = u64::from(u32::from_le_bytes(*len));
        let start = end.checked_sub(len).ok_or_else(|| wrong("its end says that it is longer"))?;
        let footer = bytes(file, start, len)?;
        let root = root_as_footer(&footer).map_err(|_| wrong("its end makes no sense"))?;
        Footer::of(&root).ok_or_else(|| wrong("its end has no schema"))
    }

    fn of(root: &Root<'_>) -> Option<Footer> {
        let schema = root.schema()?;
        // Some writers leave it out, which stands for the first version. Each record batch has its own, too.
        let version = root.version().max(MetadataVersion::V4);
        let (mut columns, mut before) = (Vec::new(), Extent::default());
        for field in schema.fields()? {
            let name = field.name().unwrap_or_default().to_owned();
            columns.push(Field { name, kind: kind(&field), values: values_of(&field), before });
            before += extent(&field, version)?;
        }
        let block = |block: &arrow_ipc::Block| {
            let [at, description, values] =
                [block.offset(), i64::from(block.metaDataLength()), block.bodyLength()].map(u64::try_from);
            Some(Block { at: at.ok()?, description: description.ok()?, values: values.ok()? })
        };
        let batches = root.recordBatches().into_iter().flatten().map(block).collect::<Option<_>>()?;
        let is_big = schema.endianness() == Endianness::Big;
        Some(Footer { columns, batches, is_swapped: is_big != cfg!(target_endian = "big") })
    }

    /// Returns the parts of some columns that are in each record batch.
    pub(super) fn parts(&self, file: &Opened, columns: &[&Field]) -> Result<Vec<Vec<Part>>> {
        /// To read so many descriptions takes several times as long as to start a thread.
        const BATCHES: usize = 256;
        /// So many threads wait for a server, each for another description.
        const WAITING: usize = 32;
        let (threads, least) = match file.storage.file() {
            Some(_) => (available_parallelism().map_or(1, NonZero::get), BATCHES),
            None => (WAITING, 1),
        };
        let each = self.batches.len().div_ceil(threads).max(least);
        let mut found: Vec<Vec<Part>> = Vec::new();
        found.resize_with(self.batches.len(), Vec::new);
        let pieces = found.chunks_mut(each).zip((0..).step_by(each)).collect();
        threads::each(pieces, |(found, first): (&mut [Vec<Part>], usize)| {
            for (number, found) in (first..).zip(found) {
                *found = self.parts_in(number, file, columns)?;
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Returns the parts of some columns that are in a record batch.
    fn parts_in(&self, number: usize, file: &Opened, columns: &[&Field]) -> Result<Vec<Part>> {
        let block = &self.batches[number];
        let wrong = |what: &str| damaged(&file.path, &format!("record batch {number} {what}"));
        let values = block.at.checked_add(block.description);
        let is_inside = |at: &u64| at.checked_add(block.values).is_some_and(|end| end <= file.len);
        let Some(values) = values.filter(is_inside) else {
            return Err(wrong("is not inside the file"));
        };
        let description = bytes(file, block.at, block.description)?;
        let message = message(&description).ok_or_else(|| wrong("has no description"))?;
        let batch = message.header_as_record_batch().ok_or_else(|| wrong("is something else"))?;
        let codec = codec(&message, &batch).map_err(wrong)?;
        let part = |column: &&Field| {
            let part = part(&batch, column, Span { at: values, len: block.values }, codec);
            part.map_err(|what| wrong(&format!("{what} of column '{}'", column.name)))
        };
        columns.iter().map(part).collect()
    }
}

/// Returns the description of a record batch. Since version 5 of the format, eight bytes are in front of it and not
/// four.
fn message(bytes: &[u8]) -> Option<Message<'_>> {
    let behind = if bytes.starts_with(&CONTINUATION) { 8 } else { 4 };
    root_as_message(bytes.get(behind..)?).ok().filter(|message| is_known(message.version()))
}

/// Returns whether descriptions of this version have the layout that is read here.
fn is_known(version: MetadataVersion) -> bool {
    matches!(version, MetadataVersion::V4 | MetadataVersion::V5)
}

/// Returns how a record batch is compressed, or what is wrong.
fn codec(message: &Message<'_>, batch: &RecordBatch<'_>) -> Result<Option<Codec>, &'static str> {
    if let Some(compression) = batch.compression() {
        return match compression.codec() {
            CompressionType::LZ4_FRAME => Ok(Some(Codec::Lz4)),
            CompressionType::ZSTD => Ok(Some(Codec::Zstd)),
            _ => Err("has an unknown codec"),
        };
    }
    let mut notes = message.custom_metadata().into_iter().flatten();
    let name = notes.find(|note| note.key() == Some(OLD_COMPRESSION)).and_then(|note| note.value());
    match name.map(str::to_ascii_lowercase).as_deref() {
        None | Some("uncompressed") => Ok(None),
        Some("lz4" | "lz4_frame") => Ok(Some(Codec::Lz4)),
        Some("zstd") => Ok(Some(Codec::Zstd)),
        Some(_) => Err("has an unknown codec"),
    }
}

/// Returns the part of a column that is in a record batch, whose buffers are in `values`; or what is wrong.
fn part(batch: &RecordBatch<'_>, column: &Field, values: Span, codec: Option<Codec>) -> Result<Part, &'static str> {
    let Extent { nodes, buffers, counts } = column.before;
    let node = batch.nodes().filter(|all| nodes < all.len()).map(|all| *all.get(nodes)).ok_or("has no rows")?;
    let rows = u64::try_from(node.length()).ok().filter(|_| node.length() == batch.length()).ok_or("has other rows")?;
    let nulls = u64::try_from(node.null_count()).ok().filter(|nulls| *nulls <= rows).ok_or("has other nulls")?;
    let counted = batch.variadicBufferCounts();
    let counted = (0..counts).map(|k| counted.filter(|all| k < all.len()).map(|all| all.get(k)));
    let mut counted = counted.map(|count| usize::try_from(count?).ok());
    let more = counted.try_fold(0usize, |sum, count| sum.checked_add(count?)).ok_or("lacks a number of buffers")?;
    let span = |k: usize| {
        let k = buffers.checked_add(more)?.checked_add(k)?;
        let buffer: Buffer = batch.buffers().filter(|all| k < all.len()).map(|all| *all.get(k))?;
        let [at, len] = [buffer.offset(), buffer.length()].map(u64::try_from);
        let (at, len) = (at.ok()?, len.ok()?);
        at.checked_add(len).filter(|end| *end <= values.len)?;
        Some(Span { at: values.at + at, len })
    };
    // Other types have other buffers.
    let Some(dtype) = column.values.dtype(true) else {
        return Ok(Part { rows, nulls, present: Span::default(), values: Span::default(), codec });
    };
    let (present, values) = span(0).zip(span(1)).ok_or("has a buffer that is not inside the file")?;
    let part = Part { rows, nulls, present, values, codec };
    if part.is_long_enough(dtype) { Ok(part) } else { Err("has too few bytes") }
}

/// Reads bytes of the file, which has them.
fn bytes(file: &Opened, at: u64, len: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    let read = file.read_at(&mut bytes, at);
    read.map_err(|e| match error_within(&e) {
        Some(error) => error,
        None => damaged(&file.path, &format!("its end cannot be read: {e}")),
    })?;
    Ok(bytes)
}
