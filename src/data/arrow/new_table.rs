//! What a new Arrow file has around the values of its columns: the bytes before them and those behind them.
//!
//! | bytes | |
//! | --- | --- |
//! | 8 | `ARROW1` and two zeros |
//! | 64 m - 8 | the description of the columns |
//! | 64 n | the description of the only record batch |
//! | … | the values of each column, and zeros up to a multiple of 64 |
//! | 8 | the end of the messages |
//! | … | the footer, which repeats the columns and says where the batch is |
//! | 10 | the length of the footer, and `ARROW1` |

use super::footer::{CONTINUATION, MAGIC};
use crate::data::Dtype;
use arrow_ipc::{
    Block, Buffer, Endianness, Field, FieldArgs, FieldNode, FloatingPoint, FloatingPointArgs, Footer, FooterArgs, Int,
    IntArgs, Message, MessageArgs, MessageHeader, MetadataVersion, Precision, RecordBatch, RecordBatchArgs, Schema,
    SchemaArgs, Type,
};
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};

/// Values and descriptions begin at multiples of this, as Arrow's libraries prefer.
const ALIGN: usize = 64;
const VERSION: MetadataVersion = MetadataVersion::V5;

/// A table of so many rows.
#[derive(Clone, Debug)]
pub(in crate::data) struct NewTable<'a> {
    /// The name and the dtype of each column, which is not `bool` or `bf16`.
    pub columns: Vec<(&'a str, Dtype)>,
    pub rows: u64,
}

impl NewTable<'_> {
    /// Returns the bytes before the values. Their number does not depend on that of the rows.
    pub(in crate::data) fn header(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.resize(8, 0);
        push(&mut bytes, &self.description());
        push(&mut bytes, &self.batch());
        bytes
    }

    /// Returns where the values of a column begin, from the end of the header on; of none, where those of all end.
    pub(in crate::data) fn offset(&self, column: usize) -> u64 {
        self.columns[..column].iter().map(|(_, dtype)| self.padded(*dtype)).sum()
    }

    /// Returns where the values of the last column end, from the end of the header on.
    pub(in crate::data) fn last_end(&self) -> u64 {
        let last = self.columns.len().saturating_sub(1);
        self.offset(last) + self.columns.last().map_or(0, |(_, dtype)| self.bytes(*dtype))
    }

    /// Returns the bytes behind the values of the last column.
    pub(in crate::data) fn trailer(&self) -> Vec<u8> {
        let mut bytes = self.columns.last().map_or(vec![], |(_, dtype)| self.padding(*dtype));
        bytes.extend(CONTINUATION);
        bytes.extend([0; 4]);
        let footer = self.footer();
        bytes.extend(&footer);
        bytes.extend((footer.len() as u32).to_le_bytes());
        bytes.extend(MAGIC);
        bytes
    }

    /// Returns the zeros behind the values of a column.
    pub(in crate::data) fn padding(&self, dtype: Dtype) -> Vec<u8> {
        vec![0; (self.padded(dtype) - self.bytes(dtype)) as usize]
    }

    /// Returns the number of bytes that the values of a column take.
    fn bytes(&self, dtype: Dtype) -> u64 {
        self.rows * dtype.size() as u64
    }

    fn padded(&self, dtype: Dtype) -> u64 {
        self.bytes(dtype).next_multiple_of(ALIGN as u64)
    }

    /// Returns the number of bytes that the record batch takes, without its description.
    fn body(&self) -> u64 {
        self.offset(self.columns.len())
    }

    fn description(&self) -> Vec<u8> {
        let mut builder = builder();
        let schema = self.schema(&mut builder).as_union_value();
        message(builder, MessageHeader::Schema, schema, 0)
    }

    fn batch(&self) -> Vec<u8> {
        let mut builder = builder();
        let nodes = builder.create_vector(&vec![FieldNode::new(self.rows as i64, 0); self.columns.len()]);
        let mut buffers = Vec::with_capacity(2 * self.columns.len());
        for (column, (_, dtype)) in self.columns.iter().enumerate() {
            let at = self.offset(column) as i64;
            // The first buffer would say which rows are null.
            buffers.extend([Buffer::new(at, 0), Buffer::new(at, self.bytes(*dtype) as i64)]);
        }
        let buffers = builder.create_vector(&buffers);
        let parts = RecordBatchArgs {
            length: self.rows as i64,
            nodes: Some(nodes),
            buffers: Some(buffers),
            compression: None,
            variadicBufferCounts: None,
        };
        let batch = RecordBatch::create(&mut builder, &parts).as_union_value();
        message(builder, MessageHeader::RecordBatch, batch, self.body() as i64)
    }

    fn footer(&self) -> Vec<u8> {
        let mut builder = builder();
        let schema = self.schema(&mut builder);
        let dictionaries = builder.create_vector::<Block>(&[]);
        let mut described = vec![0; 8];
        push(&mut described, &self.description());
        let at = described.len();
        push(&mut described, &self.batch());
        let block = Block::new(at as i64, (described.len() - at) as i32, self.body() as i64);
        let batches = builder.create_vector(&[block]);
        let parts = FooterArgs {
            version: VERSION,
            schema: Some(schema),
            dictionaries: Some(dictionaries),
            recordBatches: Some(batches),
            custom_metadata: None,
        };
        let footer = Footer::create(&mut builder, &parts);
        builder.finish(footer, None);
        builder.finished_data().to_vec()
    }

    fn schema<'f>(&self, builder: &mut FlatBufferBuilder<'f>) -> WIPOffset<Schema<'f>> {
        let fields: Vec<_> = self.columns.iter().map(|(name, dtype)| field(builder, name, *dtype)).collect();
        let fields = builder.create_vector(&fields);
        let endianness = if cfg!(target_endian = "big") { Endianness::Big } else { Endianness::Little };
        Schema::create(builder, &SchemaArgs { endianness, fields: Some(fields), custom_metadata: None, features: None })
    }
}

/// Returns what describes a column.
fn field<'f>(builder: &mut FlatBufferBuilder<'f>, name: &str, dtype: Dtype) -> WIPOffset<Field<'f>> {
    let name = builder.create_string(name);
    let (type_type, type_) = kind(builder, dtype);
    let children = builder.create_vector::<WIPOffset<Field<'_>>>(&[]);
    let parts = FieldArgs {
        name: Some(name),
        // As of all columns that PyArrow and Polars write. Tables whose columns differ in it cannot be joined.
        nullable: true,
        type_type,
        type_: Some(type_),
        dictionary: None,
        children: Some(children),
        custom_metadata: None,
    };
    Field::create(builder, &parts)
}

/// Returns a builder that also stores what is 0, so that a description has the same length for every number of rows.
fn builder<'f>() -> FlatBufferBuilder<'f> {
    let mut builder = FlatBufferBuilder::new();
    builder.force_defaults(true);
    builder
}

/// Returns the type of the values of a dtype.
fn kind(builder: &mut FlatBufferBuilder<'_>, dtype: Dtype) -> (Type, WIPOffset<UnionWIPOffset>) {
    if dtype.is_float() {
        let precision = match dtype.size() {
            2 => Precision::HALF,
            4 => Precision::SINGLE,
            _ => Precision::DOUBLE,
        };
        let float = FloatingPoint::create(builder, &FloatingPointArgs { precision });
        return (Type::FloatingPoint, float.as_union_value());
    }
    let parts = IntArgs { bitWidth: 8 * dtype.size() as i32, is_signed: dtype.is_signed() };
    (Type::Int, Int::create(builder, &parts).as_union_value())
}

/// Returns the description of what is behind it: `body` bytes.
fn message(
    mut builder: FlatBufferBuilder<'_>,
    header_type: MessageHeader,
    header: WIPOffset<UnionWIPOffset>,
    body: i64,
) -> Vec<u8> {
    let parts =
        MessageArgs { version: VERSION, header_type, header: Some(header), bodyLength: body, custom_metadata: None };
    let message = Message::create(&mut builder, &parts);
    builder.finish(message, None);
    builder.finished_data().to_vec()
}

/// Adds a description to the bytes of the file, which then end at a multiple of [`ALIGN`].
fn push(bytes: &mut Vec<u8>, description: &[u8]) {
    let first = bytes.len() + 8;
    let end = (first + description.len()).next_multiple_of(ALIGN);
    bytes.extend(CONTINUATION);
    bytes.extend(((end - first) as u32).to_le_bytes());
    bytes.extend(description);
    bytes.resize(end, 0);
}
