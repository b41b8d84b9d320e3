//! Columns of Arrow files, which the crate arrow-ipc writes here. `python/tests/test_arrow.py` reads those of PyArrow.

use super::tables::{bits, expected};
use super::*;
use crate::data::new_file::open_all;
use ::arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use ::arrow_ipc::{
    self as ipc, Block, CompressionType, Endianness, FieldArgs, FieldNode, FloatingPoint, FloatingPointArgs, Footer,
    FooterArgs, KeyValue, KeyValueArgs, Message, MessageArgs, MessageHeader, MetadataVersion, Precision,
    RecordBatchArgs, SchemaArgs, Type,
};
use arrow_array::builder::{Int32Builder, ListBuilder, StringRunBuilder};
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, FixedSizeBinaryArray, Int32Array, NullArray, RecordBatch, StringArray,
    StringViewArray, StructArray, UnionArray, make_array,
};
use arrow_buffer::{BooleanBuffer, Buffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit, UnionFields};
use flatbuffers::FlatBufferBuilder;
use proptest::prelude::*;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

/// The types that have a dtype; at the end those that have one on request.
const KINDS: [(DataType, Dtype); 16] = [
    (DataType::Boolean, Dtype::Bool),
    (DataType::Int8, Dtype::I8),
    (DataType::Int16, Dtype::I16),
    (DataType::Int32, Dtype::I32),
    (DataType::Int64, Dtype::I64),
    (DataType::UInt8, Dtype::U8),
    (DataType::UInt16, Dtype::U16),
    (DataType::UInt32, Dtype::U32),
    (DataType::UInt64, Dtype::U64),
    (DataType::Float16, Dtype::F16),
    (DataType::Float32, Dtype::F32),
    (DataType::Float64, Dtype::F64),
    (DataType::Timestamp(TimeUnit::Second, None), Dtype::I64),
    (DataType::Timestamp(TimeUnit::Millisecond, None), Dtype::I64),
    (DataType::Timestamp(TimeUnit::Microsecond, None), Dtype::I64),
    (DataType::Timestamp(TimeUnit::Nanosecond, None), Dtype::I64),
];

/// How a file is written.
#[derive(Clone, Debug)]
struct How {
    kind: usize,
    codec: Option<CompressionType>,
    version: MetadataVersion,
    /// Whether four bytes and not eight are in front of a description.
    is_legacy: bool,
    alignment: usize,
    /// The columns before and behind the one that is read, which have other types.
    others: Vec<usize>,
}

fn how() -> impl Strategy<Value = How> {
    let codecs = [None, None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)];
    let parts = (
        0..KINDS.len(),
        prop::sample::select(codecs.to_vec()),
        any::<bool>(),
        any::<bool>(),
        prop::sample::select(vec![8usize, 16, 32, 64]),
        prop::collection::vec(0..OTHERS, 0..4),
    );
    parts.prop_map(|(kind, codec, is_old, is_legacy, alignment, others)| {
        // Version 4 has no compression, but for what PyArrow did at first.
        let is_old = is_old && codec.is_none();
        let version = if is_old { MetadataVersion::V4 } else { MetadataVersion::V5 };
        How { kind, codec, version, is_legacy: is_old && is_legacy, alignment, others }
    })
}

/// The columns that `other` can make.
const OTHERS: usize = 10;

/// A column that cannot be read, or is not, of so many rows.
fn other(which: usize, rows: usize) -> ArrayRef {
    let text = |k: usize| (!k.is_multiple_of(3)).then(|| format!("text {k} that is longer than what a view has"));
    let texts = || (0..rows).map(text);
    let child = |name: &str| Field::new(name, DataType::Int32, false);
    let numbers = || Int32Array::from_iter_values(0..rows as i32);
    match which {
        0 => Arc::new(StringArray::from_iter(texts())),
        // Each has buffers that the batch counts.
        1 => Arc::new(StringViewArray::from_iter(texts())),
        2 => Arc::new(NullArray::new(rows)),
        3 => Arc::new(StructArray::from(vec![
            (Arc::new(child("a")), Arc::new(numbers()) as ArrayRef),
            (Arc::new(Field::new("b", DataType::Utf8View, true)), Arc::new(StringViewArray::from_iter(texts()))),
        ])),
        4 => {
            let mut lists = ListBuilder::new(Int32Builder::new());
            (0..rows).for_each(|k| lists.append_value((0..k as i32 % 3).map(Some)));
            Arc::new(lists.finish())
        }
        5 => {
            let keys = (0..rows).map(|k| (k % 2) as i8).collect::<Vec<_>>();
            let words: ArrayRef = Arc::new(StringArray::from_iter_values(["a", "b"]));
            Arc::new(DictionaryArray::<Int8Type>::new(keys.into(), words))
        }
        6 | 7 => {
            let fields: UnionFields = [(0, Arc::new(child("a")))].into_iter().collect();
            let ids = ScalarBuffer::from(vec![0i8; rows]);
            let places = (which == 6).then(|| ScalarBuffer::from_iter(0..rows as i32));
            Arc::new(UnionArray::try_new(fields, ids, places, vec![Arc::new(numbers())]).unwrap())
        }
        8 => {
            let mut runs = StringRunBuilder::<Int32Type>::new();
            (0..rows).for_each(|k| runs.append_value(if k / 5 % 2 == 0 { "a" } else { "b" }));
            Arc::new(runs.finish())
        }
        _ => Arc::new(
            FixedSizeBinaryArray::try_from_iter((0..rows.max(1)).map(|k| [k as u8; 3])).unwrap().slice(0, rows),
        ),
    }
}

/// Writes a column `c` in batches of so many rows. Rows whose number is a multiple of `null_every` are null.
fn write(path: &Path, how: &How, batches: &[u64], null_every: Option<u64>) {
    let (kind, dtype) = &KINDS[how.kind];
    let kinds: Vec<DataType> = how.others.iter().map(|which| other(*which, 4).data_type().clone()).collect();
    let own = Field::new("c", kind.clone(), null_every.is_some());
    let at = how.others.len() / 2;
    let mut fields: Vec<Field> =
        kinds.iter().enumerate().map(|(k, kind)| Field::new(format!("o{k}"), kind.clone(), true)).collect();
    fields.insert(at, own);
    let schema = Arc::new(Schema::new(Fields::from(fields)));
    let options = IpcWriteOptions::try_new(how.alignment, how.is_legacy, how.version).unwrap();
    let options = options.try_with_compression(how.codec).unwrap();
    let file = File::create(path).unwrap();
    let mut writer = FileWriter::try_new_with_options(file, &schema, options).unwrap();
    let mut first = 0;
    for rows in batches.iter().map(|rows| *rows as usize) {
        let numbers = first..first + rows as u64;
        let bytes: Vec<u8> =
            numbers.clone().flat_map(|row| bits(*dtype, row).to_le_bytes()[..dtype.size()].to_vec()).collect();
        let buffer = match dtype {
            Dtype::Bool => BooleanBuffer::from_iter(bytes.iter().map(|bit| *bit == 1)).into_inner(),
            _ => Buffer::from_vec(bytes),
        };
        let present = null_every
            .map(|every| BooleanBuffer::from_iter(numbers.map(|row| !row.is_multiple_of(every))).into_inner());
        let array =
            ArrayData::builder(kind.clone()).len(rows).add_buffer(buffer).null_bit_buffer(present).align_buffers(true);
        let mut columns: Vec<ArrayRef> = how.others.iter().map(|which| other(*which, rows)).collect();
        columns.insert(at, make_array(array.build().unwrap()));
        writer.write(&RecordBatch::try_new(schema.clone(), columns).unwrap()).unwrap();
        first += rows as u64;
    }
    writer.finish().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// All dtypes, codecs and neighbours; read in steps, and then from anywhere; with calls and through a map.
    #[test]
    fn columns_hold_what_was_written(
        how in how(),
        batches in prop::collection::vec(0u64..700, 0..5),
        null_every in prop::option::of(2u64..50),
        step in 1usize..900,
        reads in prop::collection::vec((any::<u64>(), any::<u64>()), 5),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.arrow");
        write(&path, &how, &batches, null_every);
        let (_, dtype) = KINDS[how.kind];
        let rows: u64 = batches.iter().sum();
        let text = if dtype == Dtype::Bool { "true" } else { "7" };
        let fill = Scalar::parse(text, dtype).unwrap();
        let has_nulls = null_every.is_some() && rows > 0;
        let options = ColumnOptions::new().timestamps(true);
        let source = match has_nulls {
            true => {
                let refused = Arrow::column_with(&path, "c", &options);
                says(refused, &["t.arrow", "its column 'c' has", "nulls", "--nulls VALUE"]);
                Arrow::column_with(&path, "c", &options.nulls(fill)).unwrap()
            }
            false => Arrow::column_with(&path, "c", &options).unwrap(),
        };
        let all = expected(dtype, rows, null_every, fill);
        let is_stored = dtype != Dtype::Bool && how.codec.is_none() && !has_nulls;
        let named = NamedFile::from(&*path).with_field("c");
        let named = NamedFile { nulls: Some(text.into()), timestamps: true, ..named };
        // SAFETY: nobody changes the file.
        let mapped = unsafe { named.map() }.unwrap();
        let mapped = mapped.source();
        for source in [&source as &dyn Source, mapped] {
            prop_assert_eq!((source.dtype(), source.rows()), (dtype, rows));
            prop_assert!(read_all(source, step) == all);
        }
        for (first, len) in reads {
            let first = first % (rows + 1);
            let len = len % (rows - first + 1);
            let mut part = vec![0xAA; len as usize * dtype.size()];
            source.read(first, &mut part).unwrap();
            let place = first as usize * dtype.size();
            prop_assert!(part == all[place..place + part.len()], "{first} + {len}");
            if let Some(memory) = mapped.piece(first, len) {
                prop_assert!(is_stored && memory.bytes() == part);
            }
        }
        let starts = batches.iter().scan(0, |end, rows| { *end += rows; Some((*end - rows, *rows)) });
        let starts: Vec<(u64, u64)> = starts.filter(|(_, rows)| *rows > 0).collect();
        match is_stored {
            true => for (first, rows) in &starts {
                prop_assert!(mapped.piece(*first, *rows).is_some(), "a batch is in memory as one piece");
            },
            false => prop_assert!(source.grains().iter().eq(starts.iter().map(|(first, _)| first))),
        }
        let table = TableFile::open(&path).unwrap().unwrap();
        let column = table.columns.iter().find(|column| column.name == "c").unwrap();
        let nulls = null_every.map_or(0, |every| rows.div_ceil(every));
        let is_timestamp = matches!(KINDS[how.kind].0, DataType::Timestamp(..));
        let own = (!is_timestamp).then_some(dtype);
        prop_assert_eq!((table.rows(), column.dtype, column.nulls), (rows, own, Some(nulls)));
        prop_assert_eq!(column.is_timestamp, is_timestamp);
    }

    /// A damaged file is an error, or is read as other rows.
    #[test]
    fn damaged_files_are_errors(
        how in how(),
        null_every in prop::option::of(2u64..50),
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        part in 0..3,
        skipped in 0u64..900,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.arrow");
        write(&path, &how, &[700, 300], null_every);
        let mut bytes = fs::read(&path).unwrap();
        let footer = u32::from_le_bytes(*bytes[bytes.len() - 10..].first_chunk().unwrap()) as usize;
        let is_batch = |place: &usize| bytes[*place..].starts_with(&[0xff; 4]);
        // The end, or the description of the last batch, or anything.
        let range = match part {
            0 => bytes.len() - 10 - footer..bytes.len(),
            1 => {
                let end = bytes.len() - 10 - footer - 8;
                let batch = (0..end).rev().step_by(8).map(|place| place / 8 * 8).find(is_batch).unwrap_or(0);
                batch..(batch + 300).min(bytes.len())
            }
            _ => 0..bytes.len(),
        };
        for (place, bits) in damages {
            bytes[range.start + place.index(range.len())] ^= bits;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(&path, bytes).unwrap();
        let _ = TableFile::open(&path);
        let fill = if how.kind == 0 { Scalar::Bool(true) } else { Scalar::U8(7) };
        let options = ColumnOptions::new().nulls(fill).timestamps(true);
        if let Ok(source) = Arrow::column_with(&path, "c", &options) {
            let rows = source.rows().min(2000);
            for first in [0, skipped.min(rows)] {
                let _ = source.read(first, &mut vec![0; (rows - first) as usize * source.dtype().size()]);
            }
        }
    }
}

#[test]
fn columns_that_hold_no_numbers_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.feather");
    let how = How {
        kind: 11,
        codec: None,
        version: MetadataVersion::V5,
        is_legacy: false,
        alignment: 64,
        others: (0..OTHERS).collect(),
    };
    write(&path, &how, &[10], None);
    for (name, what) in [
        ("o0", "is of the type string"),
        ("o1", "is of the type string_view"),
        ("o2", "is of the type null"),
        ("o3", "is nested"),
        ("o4", "is nested"),
        ("o5", "has a dictionary"),
        ("o6", "is of the type union"),
        ("o7", "is of the type union"),
        ("o8", "is of the type run_end_encoded"),
        ("o9", "is of the type fixed_size_binary"),
    ] {
        says(Arrow::column(&path, name), &["t.feather: its column", &format!("'{name}' {what}"), "cast"]);
    }
    says(Arrow::column(&path, "d"), &["has no column 'd', only o0, o1", "check the name"]);
    assert_eq!(open(&path, None).unwrap().source().rows(), 10, "one column can be read");
    says(open(&path, Some(Dtype::F32)), &["holds f64, not f32"]);
    fs::write(&path, b"FEA1 is version 1").unwrap();
    says(open(&path, None), &["is a Feather file", "numpy.save"]);
    fs::write(&path, b"something else").unwrap();
    says(open(&path, None), &["t.feather: is not a complete Arrow file: its end is missing", "copy or write it again"]);
}

#[test]
fn timestamps_are_integers_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let version = MetadataVersion::V5;
    let how = How { kind: 14, codec: None, version, is_legacy: false, alignment: 64, others: vec![] };
    write(&path, &how, &[10], None);
    let message = ["'c' is of the type timestamp[us]; read the integers", "--timestamps", "timestamps=True"];
    says(Arrow::column(&path, "c"), &message);
    says(open(&path, None), &["has no column of numbers"]);
    // The only column needs no name.
    let input = NamedFile { timestamps: true, ..NamedFile::from(&*path) }.open(ReadMode::Pread).unwrap();
    assert!(read_all(input.source(), 3) == expected(Dtype::I64, 10, None, Scalar::U8(0)));
}

#[test]
fn several_files_are_one_column() {
    let dir = tempfile::tempdir().unwrap();
    let how =
        How { kind: 7, codec: None, version: MetadataVersion::V5, is_legacy: false, alignment: 64, others: vec![0] };
    for (part, batches) in [(1, &[300, 20][..]), (2, &[]), (10, &[50])] {
        write(&dir.path().join(format!("part-{part}.arrow")), &how, batches, None);
    }
    // SAFETY: nobody changes the files.
    let input = unsafe { map(dir.path(), None) }.unwrap();
    let source = input.source();
    assert_eq!((source.rows(), source.files().len()), (370, 3));
    let [first, last] = [320, 50].map(|rows| expected(Dtype::U32, rows, None, Scalar::U32(0)));
    assert!(read_all(source, 33) == [first, last].concat());
    assert!(source.piece(0, 300).is_some() && source.piece(300, 20).is_some() && source.piece(320, 50).is_some());
    assert!(source.piece(299, 2).is_none(), "two batches");
}

#[test]
fn files_of_other_units_and_ambiguous_names_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let of = |kind: usize| {
        let version = MetadataVersion::V5;
        How { kind, codec: None, version, is_legacy: false, alignment: 64, others: vec![] }
    };
    for (part, kind) in [12, 13].into_iter().enumerate() {
        write(&dir.path().join(format!("part-{part}.arrow")), &of(kind), &[10], None);
    }
    let all = NamedFile { timestamps: true, ..NamedFile::from(dir.path()) };
    says(
        all.open(ReadMode::Pread),
        &["part-0.arrow holds timestamps in s, but", "part-1.arrow holds timestamps in ms"],
    );
    let path = dir.path().join("t.arrow");
    let schema = Schema::new(["x", "x", "y"].map(|name| Field::new(name, DataType::Int32, false)).to_vec());
    FileWriter::try_new(File::create(&path).unwrap(), &schema).unwrap().finish().unwrap();
    says(Arrow::column(&path, "x"), &["has 2 columns with the name 'x', which is ambiguous"]);
    assert_eq!(Arrow::column(&path, "y").unwrap().dtype(), Dtype::I32);
}

#[test]
fn a_file_that_changes_is_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let how = How {
        kind: 11,
        codec: Some(CompressionType::ZSTD),
        version: MetadataVersion::V5,
        is_legacy: false,
        alignment: 8,
        others: vec![],
    };
    write(&path, &how, &[5000], Some(100));
    let open = |fill: f64| Arrow::column_filled(&path, "c", fill).unwrap();
    let (zero, one) = (open(0.0), open(1.0));
    assert!(zero.variant() != one.variant() && zero.variant() == open(0.0).variant());
    let before = zero.version();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(100).unwrap();
    assert_ne!(zero.version(), before);
    says(zero.read(0, &mut [0; 8]), &["t.arrow", "changed while it was read"]);
}

/// Writes a file of a column `c` of `f64`, whose only batch has this buffer and, in its description, this note.
fn write_by_hand(path: &Path, version: MetadataVersion, order: Endianness, note: Option<[&str; 2]>, values: &[u8]) {
    let mut builder = FlatBufferBuilder::new();
    let nodes = builder.create_vector(&[FieldNode::new(3, 0)]);
    let buffers = builder.create_vector(&[ipc::Buffer::new(0, 0), ipc::Buffer::new(0, values.len() as i64)]);
    let batch = RecordBatchArgs { length: 3, nodes: Some(nodes), buffers: Some(buffers), ..Default::default() };
    let batch = ipc::RecordBatch::create(&mut builder, &batch).as_union_value();
    let note = note.map(|[key, value]| {
        let [key, value] = [key, value].map(|text| Some(builder.create_string(text)));
        let note = KeyValue::create(&mut builder, &KeyValueArgs { key, value });
        builder.create_vector(&[note])
    });
    let message = MessageArgs {
        version,
        header_type: MessageHeader::RecordBatch,
        header: Some(batch),
        bodyLength: values.len() as i64,
        custom_metadata: note,
    };
    let message = Message::create(&mut builder, &message);
    builder.finish(message, None);
    let message =
        [&[0xff; 4][..], &(builder.finished_data().len() as i32).to_le_bytes(), builder.finished_data()].concat();

    let mut builder = FlatBufferBuilder::new();
    let double = FloatingPoint::create(&mut builder, &FloatingPointArgs { precision: Precision::DOUBLE });
    let field = FieldArgs {
        name: Some(builder.create_string("c")),
        type_type: Type::FloatingPoint,
        type_: Some(double.as_union_value()),
        ..Default::default()
    };
    let field = ipc::Field::create(&mut builder, &field);
    let fields = Some(builder.create_vector(&[field]));
    let schema = ipc::Schema::create(&mut builder, &SchemaArgs { endianness: order, fields, ..Default::default() });
    let blocks = builder.create_vector(&[Block::new(8, message.len() as i32, values.len() as i64)]);
    // As writers before version 5 that leave it out.
    let version = if version == MetadataVersion::V4 { MetadataVersion::V1 } else { version };
    let footer = FooterArgs { version, schema: Some(schema), recordBatches: Some(blocks), ..Default::default() };
    let footer = Footer::create(&mut builder, &footer);
    builder.finish(footer, None);
    let footer = builder.finished_data();
    let len = (footer.len() as i32).to_le_bytes();
    fs::write(path, [b"ARROW1\0\0", &message[..], values, footer, &len, b"ARROW1"].concat()).unwrap();
}

#[test]
fn files_of_other_machines_and_other_times_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let rows = [1.5, -2.0, 1e300];
    let read = || -> Result<Vec<f64>> {
        let source = Arrow::column(&path, "c")?;
        let mut rows = vec![0.0; 3];
        source.read(0, bytemuck::cast_slice_mut(&mut rows))?;
        Ok(rows)
    };
    let (old, new, little) = (MetadataVersion::V4, MetadataVersion::V5, Endianness::Little);
    let plain = rows.map(f64::to_le_bytes).concat();
    write_by_hand(&path, new, little, None, &plain);
    assert_eq!(read().unwrap(), rows);
    write_by_hand(&path, new, Endianness::Big, None, &rows.map(f64::to_be_bytes).concat());
    assert_eq!(read().unwrap(), rows);
    // As PyArrow 0.17 compressed.
    let with_length = |bytes: Vec<u8>| [&24i64.to_le_bytes()[..], &bytes].concat();
    let zstd = with_length(zstd::encode_all(&plain[..], 1).unwrap());
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(vec![]);
    std::io::Write::write_all(&mut lz4, &plain).unwrap();
    let lz4 = with_length(lz4.finish().unwrap());
    let key = "ARROW:experimental_compression";
    for (name, values) in [("ZSTD", &zstd), ("lz4", &lz4), ("LZ4_FRAME", &lz4), ("UNCOMPRESSED", &plain)] {
        write_by_hand(&path, old, little, Some([key, name]), values);
        assert_eq!(read().unwrap(), rows, "{name}");
    }
    write_by_hand(&path, old, little, Some([key, "BROTLI"]), &zstd);
    says(read(), &["record batch 0 has an unknown codec"]);
    write_by_hand(&path, MetadataVersion::V3, little, None, &plain);
    says(read(), &["record batch 0 has no description"]);
    fs::write(&path, [&[0xff; 4][..], &[0; 60]].concat()).unwrap();
    says(read(), &["t.arrow: is a stream of Arrow's, not a file", "pyarrow.ipc.new_file"]);
}

/// Columns of a file that are read at the same time are in one map, which the next version of the file does not have.
#[test]
fn columns_of_a_file_share_its_map() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let write = |first: f64| {
        let sinks: Vec<_> = ["a", "b"].map(|name| Output::from(Arrow::create(&path).force(true)).named(name)).into();
        let sinks = open_all(sinks.into_iter().map(|output| (output, Dtype::F64, 4, None)).collect()).unwrap();
        for (k, sink) in sinks.iter().enumerate() {
            sink.write(0, bytemuck::cast_slice(&[first + k as f64; 4])).unwrap();
        }
        commit_all(sinks).unwrap();
    };
    // SAFETY: nobody changes the file as long as it is mapped: another one gets its name.
    let open = |name| unsafe { Arrow::map_column(&path, name) }.unwrap();
    let values = |column: &Arrow| bytemuck::pod_collect_to_vec::<u8, f64>(column.memory().unwrap().bytes());
    let place = |column: &Arrow| column.memory().unwrap().bytes().as_ptr();
    write(1.0);
    let (a, again, b) = (open("a"), open("a"), open("b"));
    assert_eq!(place(&a), place(&again), "one map");
    assert_eq!((values(&a), values(&b)), (vec![1.0; 4], vec![2.0; 4]));
    write(7.0);
    let newer = open("a");
    assert_eq!((values(&newer), values(&a)), (vec![7.0; 4], vec![1.0; 4]));
}
