//! Parquet files and Zarr stores that jobs write. `python/tests/test_encoded.py` reads them with PyArrow and
//! zarr-python.

use super::tables::expected;
use super::*;
use crate::data::new_file::open_all;
use proptest::prelude::*;
use std::fs;
use std::path::Path;

fn rows_of(dtype: Dtype, rows: u64) -> Vec<u8> {
    expected(dtype, rows, None, Scalar::U8(0))
}

/// All files of a folder, with their bytes.
#[cfg(feature = "zarr")]
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(own) = folders.pop() {
        for entry in fs::read_dir(own).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => {
                    let name = entry.path().strip_prefix(folder).unwrap().to_owned();
                    found.push((name, fs::read(entry.path()).unwrap()));
                }
            }
        }
    }
    found.sort();
    found
}

/// A file with outputs `c0`, `c1`, … of these dtypes.
#[derive(Clone, Debug)]
struct Table {
    file: NewFile,
    dtypes: Vec<Dtype>,
    rows: u64,
    shape: Option<Vec<u64>>,
}

impl Table {
    fn open(&self) -> Result<Vec<Box<dyn Sink + 'static>>> {
        let output = |(k, dtype): (usize, &Dtype)| {
            (Output::from(self.file.clone()).named(&format!("c{k}")), *dtype, self.rows, self.shape.clone())
        };
        open_all(self.dtypes.iter().enumerate().map(output).collect())
    }

    /// Writes the rows in pieces, all columns at the same time and in an order of their own, and keeps some of them.
    fn write(&self, kept: u64, step: u64, order: u64) {
        let mut sinks = self.open().unwrap();
        std::thread::scope(|scope| {
            for (k, (sink, dtype)) in sinks.iter().zip(&self.dtypes).enumerate() {
                scope.spawn(move || {
                    let (all, size) = (rows_of(*dtype, kept), dtype.size() as u64);
                    let mut pieces: Vec<u64> = (0..kept.div_ceil(step)).collect();
                    pieces.sort_by_key(|piece| (piece ^ k as u64).wrapping_mul(order | 1));
                    for first in pieces.into_iter().map(|piece| piece * step) {
                        let end = kept.min(first + step);
                        sink.write(first, &all[(first * size) as usize..(end * size) as usize]).unwrap();
                    }
                });
            }
        });
        if kept < self.rows {
            sinks.iter_mut().for_each(|sink| sink.truncate(kept).unwrap());
        }
        assert!(Target::path(&self.file).is_some_and(|path| !path.exists()));
        commit_all(sinks).unwrap();
    }
}

fn codec() -> impl Strategy<Value = Codec> {
    prop::sample::select(vec![Codec::None, Codec::Lz4, Codec::Zstd(1), Codec::Zstd(19), Codec::Gzip(6)])
}

#[cfg(feature = "parquet")]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn columns_of_a_parquet_file(
        dtypes in prop::collection::vec(prop::sample::select(Dtype::ALL), 1..5),
        codec in prop_oneof![codec(), Just(Codec::Snappy)],
        group in 1u64..400,
        rows in 0u64..1500,
        kept in prop::option::of(0u64..1500),
        step in 1u64..700,
        order in any::<u64>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let dtypes: Vec<Dtype> = dtypes.into_iter().filter(|dtype| *dtype != Dtype::Bf16).collect();
        prop_assume!(!dtypes.is_empty());
        let [path, again] = ["t.parquet", "again.parquet"].map(|name| dir.path().join(name));
        let kept = kept.map_or(rows, |kept| kept.min(rows));
        let table = |path: &Path| {
            let file = Parquet::create(path).codec(codec).chunks(&[group]);
            Table { file, dtypes: dtypes.clone(), rows, shape: None }
        };
        table(&path).write(kept, step, order);
        let found = TableFile::open(&path).unwrap().unwrap();
        let groups: Vec<u64> = (0..kept).step_by(group as usize).map(|first| group.min(kept - first)).collect();
        prop_assert_eq!((found.grains, found.columns.len()), (groups, dtypes.len()));
        for (k, dtype) in dtypes.iter().enumerate() {
            let column = Parquet::column(&path, &format!("c{k}")).unwrap();
            prop_assert_eq!((column.dtype(), column.rows()), (*dtype, kept));
            prop_assert!(read_all(&column, 77) == rows_of(*dtype, kept));
        }
        // The bytes do not depend on pieces and their order.
        table(&again).write(kept, 1500, 0);
        prop_assert!(fs::read(&path).unwrap() == fs::read(&again).unwrap());
        prop_assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}

#[cfg(feature = "zarr")]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn arrays_of_a_zarr_store(
        dtypes in prop::collection::vec(prop::sample::select(Dtype::ALL), 1..3),
        codec in codec(),
        axes in prop::collection::vec((0u64..12, 1u64..7), 1..4),
        is_default in any::<bool>(),
        times in prop::option::of(prop::collection::vec(1u64..4, 4)),
        is_shorter in any::<bool>(),
        step in 1u64..300,
        order in any::<u64>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let [path, again] = ["t.zarr", "again.zarr"].map(|name| dir.path().join(name));
        let (mut shape, chunks): (Vec<u64>, Vec<u64>) = axes.into_iter().unzip();
        let rows = shape.iter().product::<u64>();
        let table = |path: &Path, shape: &[u64]| {
            let file = Zarr::create(path).codec(codec);
            let file = if is_default { file } else { file.chunks(&chunks) };
            let shards = |times: &Vec<u64>| chunks.iter().zip(times).map(|(chunk, times)| chunk * times).collect();
            let shards: Option<Vec<u64>> = times.as_ref().filter(|_| !is_default).map(shards);
            let file = shards.map_or(file.clone(), |shards| file.shards(&shards));
            Table { file, dtypes: dtypes.to_vec(), rows, shape: Some(shape.to_vec()) }
        };
        let whole = table(&path, &shape);
        let inner: u64 = shape[1..].iter().product();
        let kept = if is_shorter { shape[0] / 2 * inner } else { rows };
        whole.write(kept, step, order);
        table(&again, &shape).write(kept, 1500, 0);
        prop_assert!(files(&path) == files(&again), "the bytes do not depend on pieces and their order");
        if kept < rows {
            shape[0] /= 2;
        }
        for (k, dtype) in dtypes.iter().enumerate() {
            let array = match dtypes.len() {
                1 => Zarr::open(&path).unwrap(),
                _ => Zarr::array(&path, &format!("c{k}")).unwrap(),
            };
            prop_assert_eq!((array.dtype(), array.shape()), (*dtype, Some(&*shape)));
            prop_assert!(read_all(&array, 77) == rows_of(*dtype, kept));
        }
        prop_assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}

/// Encoded columns that wait for a row group before them, more than fit the memory for them, come to the file in order.
#[test]
#[cfg(feature = "parquet")]
fn many_columns_wait_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let [path, again] = ["t.parquet", "again.parquet"].map(|name| dir.path().join(name));
    let (rows, group) = (5u64 << 16, 1u64 << 16);
    let values: Vec<u64> = (0..group).map(|row| row.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let write = |path: &Path, order: &[u64]| {
        let file = Parquet::create(path).codec(Codec::None).chunks(&[group]);
        let sinks = Table { file, dtypes: vec![Dtype::U64], rows, shape: None }.open().unwrap();
        for place in order {
            let moved: Vec<u64> = values.iter().map(|value| value ^ place).collect();
            sinks[0].write(place * group, bytemuck::cast_slice(&moved)).unwrap();
        }
        commit_all(sinks).unwrap();
    };
    write(&path, &[4, 3, 2, 1, 0]);
    write(&again, &[0, 1, 2, 3, 4]);
    assert!(fs::read(&path).unwrap() == fs::read(&again).unwrap());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
#[cfg(all(feature = "parquet", feature = "zarr"))]
fn what_is_encoded_is_complete_or_absent() {
    let dir = tempfile::tempdir().unwrap();
    let names = || fs::read_dir(dir.path()).unwrap().count();
    for name in ["t.parquet", "t.zarr"] {
        let path = dir.path().join(name);
        let table =
            Table { file: create(&path, None).unwrap(), dtypes: vec![Dtype::U8, Dtype::F64], rows: 10, shape: None };
        let write = |sinks: &[Box<dyn Sink>]| {
            sinks[0].write(0, &[1; 10]).unwrap();
            sinks[1].write(0, &[1; 80]).unwrap();
        };
        let mut sinks = table.open().unwrap();
        write(&sinks);
        sinks[0].publish().unwrap();
        assert!(path.exists());
        drop(sinks);
        assert_eq!(names(), 0, "what was published is taken back");
        let sinks = table.open().unwrap();
        says(sinks[1].write(9, &[0; 16]), &[name, "16 bytes from row 9 on do not fit"]);
        sinks[0].write(0, &[1; 9]).unwrap();
        says(commit_all(sinks), &[name, "rows were not written"]);
        assert_eq!(names(), 0);
        let sinks = table.open().unwrap();
        write(&sinks);
        fs::write(&path, b"mine").unwrap();
        says(commit_all(sinks), &[name, "appeared while the job ran"]);
        says(table.open(), &[name, "exists already"]);
        assert_eq!((names(), fs::read(&path).unwrap()), (1, b"mine".to_vec()));
        fs::remove_file(&path).unwrap();
        let table = Table { file: table.file.fsync(true), ..table };
        let sinks = table.open().unwrap();
        write(&sinks);
        commit_all(sinks).unwrap();
        let forced = Table { file: table.file.clone().force(true), ..table.clone() };
        drop(forced.open().unwrap());
        let before = files(dir.path());
        let sinks = forced.open().unwrap();
        write(&sinks);
        commit_all(sinks).unwrap();
        assert_eq!((names(), files(dir.path()) == before), (1, true), "the same outputs have the same bytes");
        if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }.unwrap();
    }
    // Only a store is replaced by a store.
    let path = dir.path().join("t.zarr");
    fs::write(&path, b"file").unwrap();
    let table = Table { file: Zarr::create(&path).force(true), dtypes: vec![Dtype::U8], rows: 1, shape: None };
    says(table.open(), &["t.zarr", "is a file"]);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("thesis.txt"), b"dear").unwrap();
    says(table.open(), &["t.zarr", "is a folder that is no Zarr store", "remove the folder first"]);
    fs::remove_file(path.join("thesis.txt")).unwrap();
    let written = || {
        let sinks = table.open().unwrap();
        sinks[0].write(0, &[1]).unwrap();
        sinks
    };
    commit_all(written()).unwrap();
    // The store makes way for something else during the run.
    let sinks = written();
    fs::remove_file(path.join("zarr.json")).unwrap();
    says(commit_all(sinks), &["t.zarr", "is a folder that is no Zarr store"]);
    fs::remove_dir_all(&path).unwrap();
    let sinks = written();
    fs::write(&path, b"file").unwrap();
    says(commit_all(sinks), &["t.zarr", "appeared while the job ran"]);
    assert_eq!((names(), fs::read(&path).unwrap()), (1, b"file".to_vec()));
}

#[test]
#[cfg(all(feature = "parquet", feature = "zarr"))]
fn what_cannot_be_encoded_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let [table, store, array] = ["y.parquet", "y.zarr", "y.npy"].map(|name| dir.path().join(name));
    let open = |file: NewFile, dtype, rows, shape: Option<&[u64]>| Output::from(file).open(dtype, rows, shape);
    let parquet = || Parquet::create(&table);
    says(open(parquet(), Dtype::Bf16, 5, None), &["y.parquet: cannot hold bf16, because Parquet", "f32(y)"]);
    says(open(parquet(), Dtype::F64, 6, Some(&[2, 3])), &["y.parquet: cannot hold the shape (2, 3)", ".npy"]);
    says(open(parquet().chunks(&[2, 3]), Dtype::F64, 6, None), &["y.parquet: cannot have row groups of [2, 3]"]);
    says(open(parquet().chunks(&[0]), Dtype::F64, 6, None), &["y.parquet: cannot have row groups of [0]"]);
    says(open(parquet(), Dtype::F64, u64::MAX / 8, None), &["y.parquet: cannot hold"]);
    let zarr = || Zarr::create(&store);
    says(open(zarr().codec(Codec::Snappy), Dtype::U8, 6, None), &["y.zarr: cannot be compressed with snappy", "zstd"]);
    says(
        open(zarr().chunks(&[2, 0]), Dtype::U8, 6, Some(&[2, 3])),
        &["y.zarr: cannot have chunks of the shape [2, 0]"],
    );
    says(open(zarr().chunks(&[2]), Dtype::U8, 6, Some(&[2, 3])), &["y.zarr: has the shape [2, 3], to which chunks"]);
    says(open(Npy::create(&array).codec(Codec::Lz4), Dtype::U8, 6, None), &["y.npy: cannot be compressed with lz4"]);
    says(open(Npy::create(&array).chunks(&[1]), Dtype::U8, 6, None), &["y.npy: has no chunks"]);
    for (chunks, shards) in [(2, &[3][..]), (2, &[0]), (2, &[4, 2]), (4, &[2])] {
        says(
            open(zarr().chunks(&[chunks]).shards(shards), Dtype::U8, 6, None),
            &["y.zarr: cannot have shards of", "both"],
        );
    }
    says(open(zarr().shards(&[2]), Dtype::U8, 6, None), &["y.zarr: cannot have shards of", "without", "both"]);
    says(open(parquet().shards(&[2]), Dtype::U8, 6, None), &["y.parquet: has no shards"]);
    says(open(parquet().dimensions(["x"]), Dtype::U8, 6, None), &["y.parquet: has no names of dimensions"]);
    says(open(zarr().dimensions(["x"]), Dtype::U8, 6, Some(&[2, 3])), &["y.zarr: has the shape [2, 3]", "called x do"]);
    says(open(zarr().dimensions(["x", "x"]), Dtype::U8, 6, Some(&[2, 3])), &["y.zarr: cannot have two dimensions"]);
    let large = zarr().chunks(&[1]).shards(&[u64::MAX >> 20]);
    says(open(large, Dtype::F64, u64::MAX >> 20, None), &["y.zarr: needs memory for", "smaller shards"]);
    let many = u64::MAX >> 20;
    says(open(parquet().chunks(&[many]), Dtype::F64, many, None), &["y.parquet: needs memory for", "smaller chunks"]);
    says(open(zarr().chunks(&[many]), Dtype::F64, many, None), &["y.zarr: needs memory for", "smaller chunks"]);
    says(open(zarr().codec(Codec::Lz4).chunks(&[1 << 31]), Dtype::U8, 1 << 31, None), &["choose smaller ones"]);
    says(open(parquet().chunks(&[]), Dtype::F64, 6, None), &["y.parquet: cannot have row groups of []"]);
    let outputs = [parquet(), parquet().codec(Codec::None)].into_iter().enumerate();
    let outputs = outputs.map(|(k, file)| (Output::from(file).named(["a", "b"][k]), Dtype::U8, 1, None)).collect();
    says(open_all(outputs), &["y.parquet: has outputs with different codecs, chunks,"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    assert!(!Target::can_read_back(&zarr()) && matches!(Target::parts(&zarr()), Parts::Refused));
}

#[test]
#[cfg(all(feature = "parquet", feature = "zarr"))]
fn names_tell_what_is_encoded() {
    let dir = tempfile::tempdir().unwrap();
    for (name, format) in [
        ("y.parquet", FileFormat::Parquet),
        ("y.PQ", FileFormat::Parquet),
        ("y.zarr", FileFormat::Zarr),
        ("y.Zarr", FileFormat::Zarr),
    ] {
        assert_eq!(create(dir.path().join(name), None).unwrap().format(), format);
    }
    assert_eq!(FileFormat::parse("zarr"), None, "partials have files whose rows have known places");
}

/// What is encoded as a whole is as large as the plan says.
#[test]
#[cfg(all(feature = "parquet", feature = "zarr"))]
fn grains_have_bytes() {
    let bytes =
        |file: NewFile, dtype, rows, shape: Option<&[u64]>| Target::grain_bytes(&file, dtype, rows, shape).unwrap();
    assert_eq!(bytes(Npy::create("y.npy"), Dtype::F64, 1 << 30, None), 0);
    assert_eq!(bytes(Parquet::create("y.parquet"), Dtype::F32, 1 << 30, None), 4 << 20);
    assert_eq!(bytes(Parquet::create("y.parquet").chunks(&[10]), Dtype::F32, 7, None), 28);
    assert_eq!(bytes(Parquet::create("y.parquet").chunks(&[10]), Dtype::I8, 70, None), 40, "as they are stored");
    let volume: &[u64] = &[1000, 180, 360];
    assert_eq!(bytes(Zarr::create("y.zarr"), Dtype::F32, 64_800_000, Some(volume)), 32 * 180 * 360 * 4);
    assert_eq!(bytes(Zarr::create("y.zarr").chunks(&[7, 9, 9]), Dtype::U8, 64_800_000, Some(volume)), 7 * 180 * 360);
    assert_eq!(bytes(Zarr::create("y.zarr"), Dtype::U8, 1 << 30, None), 8 << 20);
}
