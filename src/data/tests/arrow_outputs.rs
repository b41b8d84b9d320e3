//! Arrow files that jobs write, which the crate arrow-ipc reads here. `python/tests/test_arrow.py` reads them with
//! PyArrow.

use super::tables::expected;
use super::*;
use crate::data::new_file::open_all;
use crate::data::shared_file::{Kept, SharedFile};
use ::arrow_ipc::reader::FileReader;
use arrow_array::Array;
use proptest::prelude::*;
use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;

/// The dtypes that can be written.
fn dtypes() -> Vec<Dtype> {
    Dtype::ALL.iter().copied().filter(|dtype| ![Dtype::Bool, Dtype::Bf16].contains(dtype)).collect()
}

fn rows_of(dtype: Dtype, rows: u64) -> Vec<u8> {
    expected(dtype, rows, None, Scalar::U8(0))
}

fn open_sink(path: &Path, name: &str, dtype: Dtype, rows: u64) -> Box<dyn Sink> {
    Output::from(Arrow::create(path)).named(name).open(dtype, rows, None).unwrap()
}

/// Writes the first rows in pieces, from the last one on, and then keeps some of them.
fn write(path: &Path, (name, dtype): (&str, Dtype), rows: u64, kept: u64, step: u64) {
    let mut sink = open_sink(path, name, dtype, rows);
    let (all, size) = (rows_of(dtype, rows), dtype.size() as u64);
    for first in (0..rows.div_ceil(step)).rev().map(|piece| piece * step) {
        let end = rows.min(first + step);
        sink.write(first, &all[(first * size) as usize..(end * size) as usize]).unwrap();
    }
    if kept < rows {
        sink.truncate(kept).unwrap();
    }
    let bytes = sink.header_bytes() + kept * size + sink.trailer_bytes();
    let mut stored = vec![0; bytes as usize];
    sink.read_back(0, &mut stored).unwrap();
    sink.commit().unwrap();
    assert!(fs::read(path).unwrap() == stored, "the bytes of the checksum are those of the file");
}

/// Returns the values that another reader finds.
fn read_elsewhere(path: &Path, name: &str, dtype: Dtype) -> Vec<u8> {
    let reader = FileReader::try_new(File::open(path).unwrap(), None).unwrap();
    let schema = reader.schema();
    assert_eq!(schema.fields().len(), 1);
    assert_eq!((schema.field(0).name().as_str(), schema.field(0).is_nullable()), (name, true));
    let batches: Vec<_> = reader.collect::<std::result::Result<_, _>>().unwrap();
    assert_eq!(batches.len(), 1);
    let values = batches[0].column(0).to_data();
    assert_eq!((values.null_count(), values.data_type().primitive_width()), (0, Some(dtype.size())));
    values.buffers()[0].as_slice()[..values.len() * dtype.size()].to_vec()
}

/// Returns the bytes behind the values that only fill up.
fn padding(path: &Path, values: usize) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    let footer = u32::from_le_bytes(*bytes[bytes.len() - 10..].first_chunk().unwrap()) as usize;
    let end = bytes.len() - 10 - footer;
    assert_eq!((&bytes[end - 8..end], end % 64), (&[255, 255, 255, 255, 0, 0, 0, 0][..], 8));
    let header = FileLayout::new(FileFormat::Arrow, Dtype::U8, 0, None).named("c").header().len();
    assert_eq!(header % 64, 0);
    bytes[header + values..end - 8].to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn others_read_what_was_written(
        dtype in prop::sample::select(dtypes()),
        name in ".{0,90}",
        rows in 0u64..1500,
        kept in prop::option::of(0u64..1500),
        step in 1u64..700,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (path, whole) = (dir.path().join("t.arrow"), dir.path().join("whole.arrow"));
        let kept = kept.map_or(rows, |kept| kept.min(rows));
        write(&path, (&name, dtype), rows, kept, step);
        let values = rows_of(dtype, kept);
        prop_assert!(read_elsewhere(&path, &name, dtype) == values);
        write(&whole, (&name, dtype), kept, kept, 1500);
        prop_assert!(fs::read(&path).unwrap() == fs::read(&whole).unwrap(), "nothing is left of the other rows");

        let column = Arrow::column(&path, &name).unwrap();
        prop_assert_eq!((column.dtype(), column.rows()), (dtype, kept));
        prop_assert!(read_all(&column, 77) == values);
        // SAFETY: nobody changes the file.
        let mapped = unsafe { Arrow::map_column(&path, &name) }.unwrap();
        let place = |memory: Memory<'_>| (memory.bytes().as_ptr().addr() % 64, memory.bytes() == values);
        let memory = mapped.piece(0, kept).map(place);
        prop_assert!(kept == 0 || memory == Some((0, true)), "the values are used in place: {memory:?}");
    }

    /// All lengths of a record batch are described by as many bytes.
    #[test]
    fn headers_have_one_length(dtype in prop::sample::select(dtypes()), name in ".{0,90}", bits in 0u32..56) {
        let layout = |rows| FileLayout::new(FileFormat::Arrow, dtype, rows, None).named(&name);
        let (empty, long) = (layout(0), layout(1 << bits));
        prop_assert_eq!(empty.header().len(), long.header().len());
        prop_assert_eq!(empty.header().len() % 64, 0);
    }
}

/// Opens a file with columns `c0`, `c1`, … of these dtypes.
fn open_table(path: &Path, dtypes: &[Dtype], rows: u64) -> Vec<Box<dyn Sink + 'static>> {
    let output =
        |(k, dtype): (usize, &Dtype)| (Output::from(Arrow::create(path)).named(&format!("c{k}")), *dtype, rows, None);
    open_all(dtypes.iter().enumerate().map(output).collect()).unwrap()
}

/// Writes the columns at the same time, and keeps some of the rows.
fn write_table(path: &Path, dtypes: &[Dtype], rows: u64, kept: u64, step: u64) {
    let mut sinks = open_table(path, dtypes, rows);
    std::thread::scope(|scope| {
        for (sink, dtype) in sinks.iter().zip(dtypes) {
            scope.spawn(move || {
                let (all, size) = (rows_of(*dtype, rows), dtype.size() as u64);
                for first in (0..rows.div_ceil(step)).rev().map(|piece| piece * step) {
                    let end = rows.min(first + step);
                    sink.write(first, &all[(first * size) as usize..(end * size) as usize]).unwrap();
                }
            });
        }
    });
    if kept < rows {
        sinks.iter_mut().for_each(|sink| sink.truncate(kept).unwrap());
    }
    let stored = |sink: &dyn Sink, dtype: Dtype| {
        let mut stored = vec![0; (sink.header_bytes() + kept * dtype.size() as u64 + sink.trailer_bytes()) as usize];
        sink.read_back(0, &mut stored).unwrap();
        stored
    };
    let stored: Vec<_> = sinks.iter().zip(dtypes).map(|(sink, dtype)| stored(&**sink, *dtype)).collect();
    assert!(!path.exists());
    commit_all(sinks).unwrap();
    let bytes = fs::read(path).unwrap();
    assert!(stored.iter().all(|stored| *stored == bytes), "the bytes of each checksum are those of the file");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn columns_of_one_file(
        dtypes in prop::collection::vec(prop::sample::select(dtypes()), 2..6),
        rows in 0u64..1500,
        kept in prop::option::of(0u64..1500),
        step in 1u64..700,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (path, whole) = (dir.path().join("t.arrow"), dir.path().join("whole.arrow"));
        let kept = kept.map_or(rows, |kept| kept.min(rows));
        write_table(&path, &dtypes, rows, kept, step);
        let reader = FileReader::try_new(File::open(&path).unwrap(), None).unwrap();
        let batches: Vec<_> = reader.collect::<std::result::Result<_, _>>().unwrap();
        let sizes = (batches.len(), batches[0].num_columns(), batches[0].num_rows());
        prop_assert_eq!(sizes, (1, dtypes.len(), kept as usize));
        for (k, dtype) in dtypes.iter().enumerate() {
            let (name, expected) = (format!("c{k}"), rows_of(*dtype, kept));
            let values = batches[0].column_by_name(&name).unwrap().to_data();
            prop_assert!(values.buffers()[0].as_slice()[..values.len() * dtype.size()] == expected);
            // SAFETY: nobody changes the file.
            let own = unsafe { Arrow::map_column(&path, &name) }.unwrap();
            prop_assert_eq!((own.dtype(), own.rows()), (*dtype, kept));
            let place = |memory: Memory<'_>| (memory.bytes().as_ptr().addr() % 64, memory.bytes() == expected);
            let memory = own.piece(0, kept).map(place);
            prop_assert!(kept == 0 || memory == Some((0, true)), "the values are used in place: {memory:?}");
        }
        write_table(&whole, &dtypes, kept, kept, 1500);
        prop_assert!(fs::read(&path).unwrap() == fs::read(&whole).unwrap(), "nothing is left of the other rows");
    }
}

/// Columns whose values take several of the pieces in which they are moved.
#[test]
fn long_columns_move_together() {
    let dir = tempfile::tempdir().unwrap();
    let (path, whole) = (dir.path().join("t.arrow"), dir.path().join("whole.arrow"));
    let (dtypes, rows, kept) = ([Dtype::U8, Dtype::F64, Dtype::U16], 2_500_000, 2_400_001);
    write_table(&path, &dtypes, rows, kept, 100_000);
    write_table(&whole, &dtypes, kept, kept, 100_000);
    assert!(fs::read(&path).unwrap() == fs::read(&whole).unwrap());
}

#[test]
fn a_table_is_complete_or_absent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let dtypes = [Dtype::U8, Dtype::F64];
    let names = || fs::read_dir(dir.path()).unwrap().count();
    let mut sinks = open_table(&path, &dtypes, 10);
    sinks[1].truncate(3).unwrap();
    says(commit_all(sinks), &["t.arrow: its column 'c1' has 3 rows, and 'c0' has 10", "different files"]);
    let mut sinks = open_table(&path, &dtypes, 10);
    sinks[0].publish().unwrap();
    assert!(path.exists());
    drop(sinks);
    assert_eq!(names(), 0, "what was published is taken back");
    let sinks = open_table(&path, &dtypes, 10);
    says(sinks[1].write(9, &[0; 16]), &["t.arrow: 16 bytes from row 9 on do not fit"]);
    fs::write(&path, b"mine").unwrap();
    says(commit_all(sinks), &["t.arrow: appeared while the job ran"]);
    assert_eq!((names(), fs::read(&path).unwrap()), (1, b"mine".to_vec()));

    let open = |forces: [bool; 2], rows: [u64; 2], dtype| {
        let output = |k: usize| {
            let file = Arrow::create(&path).force(forces[k]).fsync(k == 1);
            (Output::from(file).named(["a", "b"][k]), dtype, rows[k], None)
        };
        open_all(vec![output(0), output(1)])
    };
    says(open([true, false], [1, 1], Dtype::U8), &["t.arrow: exists already"]);
    says(open([true, true], [1, 2], Dtype::U8), &["t.arrow: its column 'b' has 2 rows, and 'a' has 1"]);
    says(open([true, true], [1, 1], Dtype::Bool), &["t.arrow: cannot hold bool"]);
    let most = i64::MAX as u64 / 16;
    says(open([true, true], [most + 1, most + 1], Dtype::F64), &["t.arrow: cannot hold", "rows of f64, f64"]);
    commit_all(open([true, true], [1, 1], Dtype::U8).unwrap()).unwrap();
    assert_eq!((names(), Arrow::column(&path, "b").unwrap().rows()), (1, 1));
}

#[test]
fn what_fills_up_is_zero() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    for (rows, kept) in [(0, 0), (1, 1), (64, 64), (65, 65), (300, 65), (300, 0), (300, 1)] {
        write(&path, ("c", Dtype::U8), rows, kept, 7);
        let padding = padding(&path, kept as usize);
        assert_eq!(padding, vec![0; kept.next_multiple_of(64) as usize - kept as usize], "{kept} of {rows} rows");
        fs::remove_file(&path).unwrap();
    }
}

/// Runs parts of 1000 rows, which write the row numbers, and completes the file.
fn in_parts(path: &Path, parts: &[Range<u64>], kept: Option<&[Kept]>) {
    let target = path.parent().unwrap().canonicalize().unwrap().join(path.file_name().unwrap());
    let layout = FileLayout::new(FileFormat::Arrow, Dtype::U32, 1000, None).named("y");
    let file = SharedFile::new(target, layout, false, 7);
    let mut mark = 0;
    for rows in parts {
        let sink = file.open(rows.clone(), None).unwrap();
        let values: Vec<u32> = rows.clone().map(|row| row as u32).collect();
        sink.write(rows.start, bytemuck::cast_slice(&values)).unwrap();
        mark = sink.mark();
        commit_all(vec![Box::new(sink)]).unwrap();
    }
    let mut sink = file.complete(mark, kept, 1).unwrap();
    sink.seal().unwrap();
    commit_all(vec![Box::new(sink)]).unwrap();
}

#[test]
fn parts_write_one_column() {
    let dir = tempfile::tempdir().unwrap();
    let numbers = |rows: &mut dyn Iterator<Item = u32>| rows.flat_map(u32::to_ne_bytes).collect::<Vec<u8>>();
    let path = dir.path().join("all.arrow");
    in_parts(&path, &[500..1000, 3..500, 0..3], None);
    assert_eq!(read_elsewhere(&path, "y", Dtype::U32), numbers(&mut (0..1000)));
    let path = dir.path().join("kept.arrow");
    let kept = [Kept { first: 0, rows: 500, kept: 20 }, Kept { first: 500, rows: 500, kept: 1 }];
    in_parts(&path, &[500..1000, 0..500], Some(&kept));
    assert_eq!(read_elsewhere(&path, "y", Dtype::U32), numbers(&mut (0..20).chain([500])));
}

#[test]
fn what_is_no_column_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("y.arrow");
    let open = |dtype, rows, shape: Option<&[u64]>| Output::from(Arrow::create(&path)).open(dtype, rows, shape);
    says(open(Dtype::Bool, 5, None), &["y.arrow: cannot hold bool", "bits", "convert to u8(y)"]);
    says(open(Dtype::Bf16, 5, None), &["y.arrow: cannot hold bf16, because Arrow has no such type", "f32(y)"]);
    says(open(Dtype::F64, 6, Some(&[2, 3])), &["y.arrow: cannot hold the shape (2, 3)", "write a .npy file"]);
    for rows in [u64::MAX, u64::MAX / 8, i64::MAX as u64 / 8] {
        says(open(Dtype::F64, rows, None), &[&format!("y.arrow: cannot hold {rows} rows of f64")]);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    for shape in [&[][..], &[1]] {
        open(Dtype::F64, 1, Some(shape)).unwrap();
    }
}

#[test]
fn names_tell_which_files_are_arrow_files() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["y.arrow", "y.feather", "y.IPC"] {
        let path = dir.path().join(name);
        let file = create(&path, Some(Dtype::F32)).unwrap();
        assert_eq!(
            (file.format(), file.path(), Target::dtype(&file)),
            (FileFormat::Arrow, Some(&*path), Some(Dtype::F32))
        );
        let raw = NamedFile { is_raw: true, dtype: Some(Dtype::F64), ..NamedFile::from(&*path) };
        assert_eq!(raw.create().unwrap().format(), FileFormat::Raw);
    }
    assert_eq!(FileFormat::parse("arrow"), Some(FileFormat::Arrow));
}
