//! Columns of Parquet files, which the crate parquet writes here. `python/tests/test_parquet.py` reads those of Arrow.

use super::tables::{bits, expected};
use super::*;
use ::parquet::basic::{Compression, Encoding};
use ::parquet::column::writer::ColumnWriter;
use ::parquet::data_type::{ByteArray, FixedLenByteArray};
use ::parquet::file::metadata::{ParquetMetaDataReader, ParquetMetaDataWriter};
use ::parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use std::cmp::Ordering;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

/// The types that have a dtype, as a schema writes them; at the end those that have one on request.
const KINDS: [(&str, Dtype); 17] = [
    ("BOOLEAN c", Dtype::Bool),
    ("INT32 c (INTEGER(8, true))", Dtype::I8),
    ("INT32 c (INTEGER(16, true))", Dtype::I16),
    ("INT32 c", Dtype::I32),
    ("INT64 c", Dtype::I64),
    ("INT32 c (INTEGER(8, false))", Dtype::U8),
    ("INT32 c (INTEGER(16, false))", Dtype::U16),
    ("INT32 c (INTEGER(32, false))", Dtype::U32),
    ("INT64 c (INTEGER(64, false))", Dtype::U64),
    ("FIXED_LEN_BYTE_ARRAY(2) c (FLOAT16)", Dtype::F16),
    ("FLOAT c", Dtype::F32),
    ("DOUBLE c", Dtype::F64),
    ("INT64 c (TIMESTAMP(MILLIS, true))", Dtype::I64),
    ("INT64 c (TIMESTAMP(MICROS, false))", Dtype::I64),
    ("INT64 c (TIMESTAMP(NANOS, true))", Dtype::I64),
    ("INT64 c (TIMESTAMP_MILLIS)", Dtype::I64),
    ("INT64 c (TIMESTAMP_MICROS)", Dtype::I64),
];

/// How a file is written.
#[derive(Clone, Debug)]
struct How {
    kind: usize,
    codec: Compression,
    /// `None` for a dictionary.
    encoding: Option<Encoding>,
    version: WriterVersion,
    page_rows: usize,
    has_statistics: bool,
}

fn how() -> impl Strategy<Value = How> {
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::BROTLI(Default::default()),
        Compression::LZ4_RAW,
        Compression::ZSTD(Default::default()),
    ];
    let versions = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
    let parts = (
        0..KINDS.len(),
        prop::sample::select(codecs.to_vec()),
        0..4usize,
        prop::sample::select(versions.to_vec()),
        1..700usize,
        any::<bool>(),
    );
    parts.prop_map(|(kind, codec, encoding, version, page_rows, has_statistics)| {
        let encodings: &[Encoding] = match KINDS[kind].1 {
            Dtype::Bool => &[Encoding::PLAIN, Encoding::RLE],
            Dtype::F16 => &[Encoding::PLAIN, Encoding::BYTE_STREAM_SPLIT],
            Dtype::F32 | Dtype::F64 => &[Encoding::PLAIN, Encoding::BYTE_STREAM_SPLIT],
            _ => &[Encoding::PLAIN, Encoding::DELTA_BINARY_PACKED, Encoding::BYTE_STREAM_SPLIT],
        };
        How { kind, codec, encoding: encodings.get(encoding).copied(), version, page_rows, has_statistics }
    })
}

/// Writes a column in row groups of so many rows. Rows whose number is a multiple of `null_every` are null.
fn write(path: &Path, how: &How, groups: &[u64], null_every: Option<u64>) {
    let (kind, dtype) = KINDS[how.kind];
    let repetition = if null_every.is_some() { "OPTIONAL" } else { "REQUIRED" };
    let schema = parse_message_type(&format!("message m {{ {repetition} {kind}; }}")).unwrap();
    let mut properties = WriterProperties::builder()
        .set_compression(how.codec)
        .set_writer_version(how.version)
        .set_data_page_row_count_limit(how.page_rows)
        .set_write_batch_size(how.page_rows.min(64))
        .set_dictionary_enabled(how.encoding.is_none())
        .set_statistics_enabled(if how.has_statistics { EnabledStatistics::Page } else { EnabledStatistics::None });
    if let Some(encoding) = how.encoding {
        properties = properties.set_encoding(encoding);
    }
    let properties = Arc::new(properties.build());
    let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), Arc::new(schema), properties).unwrap();
    let mut first = 0;
    for rows in groups {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let is_null = |row: &u64| null_every.is_some_and(|every| row.is_multiple_of(every));
        let numbers = || first..first + rows;
        let levels: Vec<i16> = numbers().map(|row| i16::from(!is_null(&row))).collect();
        let levels = null_every.map(|_| &levels[..]);
        let values = || numbers().filter(|row| !is_null(row)).map(|row| bits(dtype, row));
        match column.untyped() {
            ColumnWriter::BoolColumnWriter(column) => {
                column.write_batch(&values().map(|bits| bits == 1).collect::<Vec<_>>(), levels, None).unwrap()
            }
            ColumnWriter::Int32ColumnWriter(column) => {
                let signed = |bits: u64| match dtype {
                    Dtype::I8 => i32::from(bits as i8),
                    Dtype::I16 => i32::from(bits as i16),
                    _ => bits as i32,
                };
                column.write_batch(&values().map(signed).collect::<Vec<_>>(), levels, None).unwrap()
            }
            ColumnWriter::Int64ColumnWriter(column) => {
                column.write_batch(&values().map(|bits| bits as i64).collect::<Vec<_>>(), levels, None).unwrap()
            }
            ColumnWriter::FloatColumnWriter(column) => {
                let values = values().map(|bits| f32::from_bits(bits as u32));
                column.write_batch(&values.collect::<Vec<_>>(), levels, None).unwrap()
            }
            ColumnWriter::DoubleColumnWriter(column) => {
                column.write_batch(&values().map(f64::from_bits).collect::<Vec<_>>(), levels, None).unwrap()
            }
            ColumnWriter::FixedLenByteArrayColumnWriter(column) => {
                let value = |bits: u64| FixedLenByteArray::from(ByteArray::from((bits as u16).to_le_bytes().to_vec()));
                column.write_batch(&values().map(value).collect::<Vec<_>>(), levels, None).unwrap()
            }
            _ => unreachable!("no such kind"),
        };
        column.close().unwrap();
        group.close().unwrap();
        first += rows;
    }
    writer.close().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// All dtypes, encodings and codecs; read in steps, and then from anywhere.
    #[test]
    fn columns_hold_what_was_written(
        how in how(),
        groups in prop::collection::vec(0u64..1500, 0..5),
        null_every in prop::option::of(2u64..50),
        step in 1usize..900,
        reads in prop::collection::vec((any::<u64>(), any::<u64>()), 5),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        write(&path, &how, &groups, null_every);
        let (_, dtype) = KINDS[how.kind];
        let rows: u64 = groups.iter().sum();
        let fill = Scalar::parse(if dtype == Dtype::Bool { "true" } else { "7" }, dtype).unwrap();
        let has_nulls = null_every.is_some() && rows > 0;
        if has_nulls {
            let message = ["t.parquet", "its column 'c' has", "nulls", "--nulls VALUE"];
            match Parquet::column_with(&path, "c", &ColumnOptions::new().timestamps(true)) {
                Ok(source) => {
                    prop_assert!(!how.has_statistics, "the file says that there are nulls");
                    let mut all = vec![0; rows as usize * dtype.size()];
                    says(source.read(0, &mut all), &message);
                }
                error => { says(error, &message); }
            }
        }
        let is_timestamp = KINDS[how.kind].0.contains("TIMESTAMP");
        let source = match has_nulls {
            _ if is_timestamp => {
                let options = ColumnOptions::new().nulls(fill).timestamps(true);
                Parquet::column_with(&path, "c", &options).unwrap()
            }
            true => Parquet::column_filled(&path, "c", fill).unwrap(),
            false => Parquet::column(&path, "c").unwrap(),
        };
        prop_assert_eq!((source.dtype(), source.rows()), (dtype, rows));
        let all = expected(dtype, rows, null_every, fill);
        prop_assert!(read_all(&source, step) == all);
        check_bounds(&source, &all, how.has_statistics);
        for (first, len) in reads {
            let first = first % (rows + 1);
            let len = len % (rows - first + 1);
            let mut part = vec![0xAA; len as usize * dtype.size()];
            source.read(first, &mut part).unwrap();
            let place = first as usize * dtype.size();
            prop_assert!(part == all[place..place + part.len()], "{first} + {len}");
        }
        let starts = groups.iter().filter(|rows| **rows > 0).scan(0, |end, rows| { *end += rows; Some(*end - rows) });
        prop_assert!(source.grains().iter().copied().eq(starts));
        let table = TableFile::open(&path).unwrap().unwrap();
        prop_assert_eq!((table.rows(), table.columns[0].dtype), (rows, (!is_timestamp).then_some(dtype)));
        prop_assert_eq!(table.columns[0].is_timestamp, is_timestamp);
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
        let path = dir.path().join("t.parquet");
        write(&path, &how, &[700, 300], null_every);
        let mut bytes = fs::read(&path).unwrap();
        let footer = u32::from_le_bytes(*bytes[bytes.len() - 8..].first_chunk().unwrap()) as usize;
        // The footer, or the header of the first page, or anything.
        let range = match part {
            0 => bytes.len() - 8 - footer..bytes.len(),
            1 => 4..40.min(bytes.len()),
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
        if let Ok(source) = Parquet::column_with(&path, "c", &options) {
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
    let path = dir.path().join("t.parquet");
    let schema = "message m {
        REQUIRED BYTE_ARRAY s (STRING); REQUIRED INT32 date (DATE); REQUIRED INT64 time (TIMESTAMP(MICROS, true));
        REQUIRED INT64 clock (TIME(MICROS, true));
        REQUIRED INT32 money (DECIMAL(9, 2)); REQUIRED INT96 old; REQUIRED FIXED_LEN_BYTE_ARRAY(3) three;
        REQUIRED GROUP point { REQUIRED DOUBLE x; } REPEATED DOUBLE list; REQUIRED DOUBLE price; REQUIRED INT32 size;
    }";
    let file = File::create(&path).unwrap();
    let schema = Arc::new(parse_message_type(schema).unwrap());
    SerializedFileWriter::new(file, schema, Arc::default()).unwrap().close().unwrap();
    for (name, what) in [
        ("s", "is of the type string"),
        ("date", "is of the type date"),
        ("clock", "is of the type time(micros)"),
        ("money", "is of the type decimal(9, 2)"),
        ("old", "is of the type int96"),
        ("three", "is of the type fixed_len_byte_array(3)"),
        ("point.x", "is nested"),
        ("list", "is nested"),
    ] {
        says(Parquet::column(&path, name), &["t.parquet: its column", &format!("'{name}' {what}"), "cast"]);
    }
    // Timestamps are none, but on request.
    let time = Parquet::column(&path, "time");
    says(time, &["its column 'time' is of the type timestamp(micros); read the integers", "--timestamps"]);
    let options = ColumnOptions::new().timestamps(true);
    assert_eq!(Parquet::column_with(&path, "time", &options).unwrap().dtype(), Dtype::I64);
    for name in ["date", "clock", "old"] {
        says(Parquet::column_with(&path, name, &options), &[&format!("'{name}' is of the type"), "cast"]);
    }
    says(Parquet::column(&path, "prices"), &["has no column 'prices', only s, date, time", "check the name"]);
    says(open(&path, None), &["is a table of the columns price, size; name one of them", "t.price"]);
    let file = NamedFile::from(&*path).with_field("size");
    assert_eq!(file.open(ReadMode::Pread).unwrap().source().dtype(), Dtype::I32);
    says(NamedFile { dtype: Some(Dtype::F64), ..file }.open(ReadMode::Pread), &["holds i32, not f64"]);
}

/// The crate refuses to skip these values: the differences between them overflow if they are multiplied.
#[test]
fn integers_of_any_differences_are_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    for dtype in [Dtype::I64, Dtype::U64, Dtype::I32, Dtype::U16] {
        let how = How {
            kind: KINDS.iter().position(|(_, own)| *own == dtype).unwrap(),
            codec: Compression::UNCOMPRESSED,
            encoding: Some(Encoding::DELTA_BINARY_PACKED),
            version: WriterVersion::PARQUET_2_0,
            // All differences of some of these pages are equal.
            page_rows: 20,
            has_statistics: true,
        };
        write(&path, &how, &[300, 6000], None);
        let all = expected(dtype, 6300, None, Scalar::U8(0));
        for first in (0..6300).step_by(13) {
            let source = Parquet::column(&path, "c").unwrap();
            let mut rows = vec![0; 10.min(6300 - first) * dtype.size()];
            source.read(first as u64, &mut rows).unwrap();
            assert_eq!(rows, all[first * dtype.size()..][..rows.len()], "{dtype} from row {first} on");
        }
    }
}

/// Some writers say that a dictionary is at 0 if there is none.
#[test]
fn a_dictionary_that_is_nowhere_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let kind = KINDS.iter().position(|(_, dtype)| *dtype == Dtype::F64).unwrap();
    let how = How {
        kind,
        codec: Compression::SNAPPY,
        encoding: Some(Encoding::PLAIN),
        version: WriterVersion::PARQUET_1_0,
        page_rows: 100,
        has_statistics: true,
    };
    write(&path, &how, &[500, 300], None);
    let bytes = fs::read(&path).unwrap();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&File::open(&path).unwrap()).unwrap();
    let footer = u32::from_le_bytes(*bytes[bytes.len() - 8..].first_chunk().unwrap()) as usize;
    for at in [0, -1, bytes.len() as i64] {
        let mut builder = metadata.clone().into_builder();
        for group in builder.take_row_groups() {
            let columns = group
                .columns()
                .iter()
                .map(|column| column.clone().into_builder().set_dictionary_page_offset(Some(at)).build().unwrap());
            let columns = columns.collect();
            builder = builder.add_row_group(group.into_builder().set_column_metadata(columns).build().unwrap());
        }
        let mut file = bytes[..bytes.len() - 8 - footer].to_vec();
        ParquetMetaDataWriter::new(&mut file, &builder.build()).finish().unwrap();
        fs::write(&path, file).unwrap();
        let source = Parquet::column(&path, "c").unwrap();
        assert!(read_all(&source, 70) == expected(Dtype::F64, 800, None, Scalar::U8(0)), "at {at}");
    }
}

#[test]
fn several_files_are_one_column() {
    let dir = tempfile::tempdir().unwrap();
    let kind = KINDS.iter().position(|(_, dtype)| *dtype == Dtype::U32).unwrap();
    let how = How {
        kind,
        codec: Compression::SNAPPY,
        encoding: None,
        version: WriterVersion::PARQUET_1_0,
        page_rows: 100,
        has_statistics: true,
    };
    for (part, groups) in [(1, &[300, 20][..]), (2, &[]), (10, &[50])] {
        write(&dir.path().join(format!("part-{part}.parquet")), &how, groups, None);
    }
    // Programs that write tables in folders put such a mark beside them.
    fs::write(dir.path().join("_SUCCESS"), "").unwrap();
    let input = open(dir.path(), None).unwrap();
    let source = input.source();
    assert_eq!((source.rows(), source.grains(), source.files().len()), (370, &[0, 300, 320][..], 3));
    let [first, last] = [320, 50].map(|rows| expected(Dtype::U32, rows, None, Scalar::U32(0)));
    assert!(read_all(source, 33) == [first, last].concat());
    let other = How { kind: 0, ..how };
    write(&dir.path().join("part-11.parquet"), &other, &[1], None);
    says(open(dir.path().join("part-*.parquet"), None), &["part-1.parquet", "u32", "part-11.parquet", "bool"]);
}

#[test]
fn booleans_take_the_place_of_nulls_in_all_spellings() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let how = How {
        kind: 0,
        codec: Compression::UNCOMPRESSED,
        encoding: None,
        version: WriterVersion::PARQUET_1_0,
        page_rows: 100,
        has_statistics: true,
    };
    write(&path, &how, &[50], Some(3));
    let of = |text: &str| NamedFile { nulls: Some(text.into()), ..NamedFile::from(&*path) }.open(ReadMode::Pread);
    for (text, value) in [("True", true), ("true", true), ("1", true), ("False", false), ("false", false), ("0", false)]
    {
        let expected = expected(Dtype::Bool, 50, Some(3), Scalar::Bool(value));
        assert!(read_all(of(text).unwrap().source(), 7) == expected, "{text}");
    }
    says(of("2"), &["'c' of bool has 17 nulls, and 2 is no value of bool"]);
    write(&path, &How { kind: 10, ..how }, &[50], Some(3));
    says(of("1e39"), &["'c' of f32 has 17 nulls, and 1e39 is no value of f32"]);
    says(of("True"), &["True is no value of f32"]);
}

/// Writes a file with these columns and no rows.
fn write_schema(path: &Path, columns: &str) {
    let schema = Arc::new(parse_message_type(&format!("message m {{ {columns} }}")).unwrap());
    SerializedFileWriter::new(File::create(path).unwrap(), schema, Arc::default()).unwrap().close().unwrap();
}

#[test]
fn timestamps_of_two_units_are_not_one_input() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    write_schema(&at("a-1.parquet"), "REQUIRED INT64 t (TIMESTAMP(MICROS, true));");
    write_schema(&at("a-2.parquet"), "REQUIRED INT64 t (TIMESTAMP_MICROS);");
    let all = |pattern: &str| NamedFile { timestamps: true, ..NamedFile::from(&*at(pattern)) }.open(ReadMode::Pread);
    assert_eq!(all("a-*").unwrap().source().dtype(), Dtype::I64, "one unit, written in two ways");
    write_schema(&at("a-3.parquet"), "REQUIRED INT64 t (TIMESTAMP(NANOS, true));");
    says(all("a-*"), &["a-1.parquet holds timestamps in us, but", "a-3.parquet holds timestamps in ns"]);
    write_schema(&at("b-1.parquet"), "REQUIRED INT64 t;");
    fs::copy(at("a-1.parquet"), at("b-2.parquet")).unwrap();
    says(all("b-*"), &["b-1.parquet holds i64, but", "b-2.parquet holds timestamps in us"]);
    fs::write(at("c-1.npy"), super::super::npy::header(Dtype::I64, 0, None)).unwrap();
    fs::copy(at("a-1.parquet"), at("c-2.parquet")).unwrap();
    says(all("c-*"), &["c-1.npy holds i64, but", "c-2.parquet holds timestamps in us"]);
}

#[test]
fn files_with_columns_of_other_names_are_not_one_input() {
    let dir = tempfile::tempdir().unwrap();
    write_schema(&dir.path().join("1.parquet"), "REQUIRED DOUBLE price; REQUIRED BYTE_ARRAY name (STRING);");
    write_schema(&dir.path().join("2.parquet"), "REQUIRED DOUBLE size;");
    let words = ["1.parquet holds 'price', but", "2.parquet holds 'size'", "name files with the same columns"];
    says(open(dir.path(), None), &words);
    let column = NamedFile::from(dir.path()).with_field("price");
    says(column.open(ReadMode::Pread), &["2.parquet: has no column 'price', only size"]);
}

#[test]
fn names_say_which_column_is_meant() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    write_schema(&path, "REQUIRED DOUBLE x; REQUIRED INT32 x; REQUIRED INT64 y;");
    says(Parquet::column(&path, "x"), &["has 2 columns with the name 'x', which is ambiguous", "a name for each"]);
    assert_eq!(Parquet::column(&path, "y").unwrap().dtype(), Dtype::I64, "no other one has this name");
    write_schema(&path, "REQUIRED GROUP s { REQUIRED DOUBLE x; REQUIRED DOUBLE z; } REQUIRED INT32 s.x;");
    assert_eq!(Parquet::column(&path, "s.x").unwrap().dtype(), Dtype::I32, "the one that is not nested");
    assert_eq!(open(&path, None).unwrap().source().dtype(), Dtype::I32, "the only one");
    says(Parquet::column(&path, "s.z"), &["its column 's.z' is nested"]);
    says(Parquet::column(&path, "s"), &["its column 's.x' is nested"]);
    says(Parquet::column(&path, "z"), &["has no column 'z', only s.x; check the name"]);
    write_schema(&path, "");
    says(Parquet::column(&path, "x"), &["is a table without columns; name a file that has some"]);
    says(open(&path, None), &["has no column of numbers"]);
}

#[test]
fn a_file_that_changes_is_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let kind = KINDS.iter().position(|(_, dtype)| *dtype == Dtype::F64).unwrap();
    let how = How {
        kind,
        codec: Compression::UNCOMPRESSED,
        encoding: Some(Encoding::PLAIN),
        version: WriterVersion::PARQUET_2_0,
        page_rows: 1000,
        has_statistics: false,
    };
    write(&path, &how, &[5000], Some(100));
    let open = |fill: f64| Parquet::column_filled(&path, "c", fill).unwrap();
    let (zero, one) = (open(0.0), open(1.0));
    assert!(zero.variant() != one.variant() && zero.variant() == open(0.0).variant());
    let before = zero.version();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(100).unwrap();
    assert_ne!(zero.version(), before);
    says(zero.read(0, &mut [0; 8]), &["t.parquet", "changed while it was read"]);
}

/// Every row is within its bounds, or is NaN. All rows have bounds if the file has statistics, and no row is NaN.
fn check_bounds(column: &Parquet, rows: &[u8], has_statistics: bool) {
    let (dtype, mut end) = (column.dtype(), 0);
    let value = |row: &[u8]| {
        let mut word = [0; 8];
        word[..row.len()].copy_from_slice(row);
        Scalar::of_bits(dtype, u64::from_le_bytes(word))
    };
    let values: Vec<Scalar> = rows.chunks_exact(dtype.size()).map(value).collect();
    // A row group of NaN has no bounds, and pages in it have none.
    let is_number = |value: &Scalar| value.order(*value).is_some();
    let has_all = has_statistics && values.iter().all(is_number);
    for own in column.bounds().unwrap() {
        assert!(own.are_of(dtype, end, values.len() as u64), "{own:?} behind row {end}");
        assert!(!has_all || own.rows.start == end, "no bounds before {own:?}");
        for value in &values[own.rows.start as usize..own.rows.end as usize] {
            let is_within = value.order(own.least).is_none_or(Ordering::is_ge)
                && value.order(own.greatest).is_none_or(Ordering::is_le);
            assert!(is_within, "{value} in {own:?}");
        }
        end = own.rows.end;
    }
    assert!(has_statistics || end == 0);
    assert!(!has_all || end == values.len() as u64, "no bounds at the end");
}
