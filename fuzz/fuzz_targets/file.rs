//! Damaged files of all formats. The input says which bytes of a good file are others, and where it ends.
#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use overshot::io::{Codec, NamedFile, NewFile, ReadMode, StoredArray, TableFile, commit_all};
use overshot::{Arrow, Dtype, Npy, Output, Parquet, Zarr};
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;
use tempfile::TempDir;

/// The rows of good files, and those that are read of damaged ones, which may say that they have many.
const ROWS: u64 = 300;

#[derive(Debug)]
struct Damage {
    kind: u8,
    /// Bytes that are others, by their place from the begin of the file, or from its end.
    bytes: Vec<(i16, u8)>,
    /// How many bytes are cut off or added.
    end: Option<i8>,
}

impl<'a> Arbitrary<'a> for Damage {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Damage> {
        Ok(Damage { kind: u.arbitrary()?, end: u.arbitrary()?, bytes: u.arbitrary()? })
    }
}

/// A good file, or the files of a store.
struct Good {
    name: &'static str,
    files: Vec<(PathBuf, Vec<u8>)>,
}

thread_local! {
    static GOOD: RefCell<Option<(TempDir, Vec<Good>)>> = const { RefCell::new(None) };
}

static QUIET: Once = Once::new();

fuzz_target!(|damage: Damage| {
    // Crates that decode may panic, which becomes an error. libFuzzer would end the process before.
    QUIET.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            if info.location().is_some_and(|place| !place.file().contains("registry")) {
                eprintln!("{info}");
            }
        }));
    });
    GOOD.with_borrow_mut(|good| {
        let (folder, all) = good.get_or_insert_with(|| {
            let folder = tempfile::tempdir().expect("a folder");
            let all = good_files(folder.path());
            (folder, all)
        });
        check(folder.path(), &all[usize::from(damage.kind) % all.len()], &damage);
    });
});

fn check(folder: &Path, good: &Good, damage: &Damage) {
    let mut files = good.files.clone();
    for (place, byte) in &damage.bytes {
        // The place decides about the file, too.
        let count = files.len();
        let bytes = &mut files[place.unsigned_abs() as usize % count].1;
        let len = bytes.len();
        let at = (*place as isize).rem_euclid(len.max(1) as isize) as usize;
        if let Some(own) = bytes.get_mut(at) {
            *own = *byte;
        }
    }
    if let (Some(end), Some((_, bytes))) = (damage.end, files.last_mut()) {
        let len = bytes.len().saturating_add_signed(end.into());
        bytes.resize(len, 0);
    }
    for (path, bytes) in &files {
        fs::write(path, bytes).expect("a file");
    }
    let path = folder.join(good.name);
    let mut names = vec![None];
    if let Ok(Some(table)) = TableFile::open(&path) {
        names.extend(table.columns.into_iter().map(|column| Some(column.name)));
    }
    if let Ok(Some(arrays)) = StoredArray::all(&path) {
        names.extend(arrays.into_iter().map(|array| Some(array.name)));
    }
    for name in names {
        let file = NamedFile { field: name, nulls: Some("0".into()), timestamps: true, ..NamedFile::from(&*path) };
        match file.open(ReadMode::Pread) {
            Ok(input) => read(input.source()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// Reads rows at both ends, and what is known of all of them.
fn read(source: &dyn overshot::Source) {
    let (rows, size) = (source.rows(), source.dtype().size());
    if let Some(shape) = source.shape() {
        let product = if shape.contains(&0) { 0 } else { shape.iter().fold(1, |n: u128, len| n * u128::from(*len)) };
        assert_eq!(product, u128::from(rows));
    }
    source.decode_memory();
    match source.bounds() {
        Ok(bounds) => {
            let are_ranges = bounds.iter().all(|own| own.rows.start < own.rows.end && own.rows.end <= rows);
            let follow = bounds.is_sorted_by(|one, next| one.rows.end <= next.rows.start);
            assert!(are_ranges && follow, "{bounds:?} of {rows} rows");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    for first in [0, rows.saturating_sub(ROWS)] {
        let mut to = vec![0; (rows - first).min(ROWS) as usize * size];
        for (k, piece) in to.chunks_mut(37 * size).enumerate() {
            if let Err(error) = source.read(first + 37 * k as u64, piece) {
                assert!(!error.to_string().is_empty());
                return;
            }
        }
    }
}

fn good_files(folder: &Path) -> Vec<Good> {
    let file = |name: &'static str, new: fn(&Path) -> NewFile, columns: &[Dtype]| {
        let path = folder.join(name);
        for (k, dtype) in columns.iter().enumerate() {
            // One at a time: files of several columns need a job.
            let path = if columns.len() > 1 { path.join(format!("c{k}")) } else { path.clone() };
            if columns.len() > 1 {
                fs::create_dir_all(&folder.join(name)).expect("a folder");
                fs::write(folder.join(name).join("zarr.json"), r#"{"zarr_format": 3, "node_type": "group"}"#)
                    .expect("a file");
            }
            let bytes: Vec<u8> = (0..ROWS as usize * dtype.size()).map(|byte| (byte % 7 % 2) as u8).collect();
            let sink = Output::from(new(&path)).open(*dtype, ROWS, None).expect("an output");
            sink.write(0, &bytes).expect("rows");
            commit_all(vec![sink]).expect("a name");
        }
        Good { name, files: files(&path) }
    };
    vec![
        file("a.npy", |path| Npy::create(path), &[Dtype::F64]),
        file("a.arrow", |path| Arrow::create(path), &[Dtype::F32]),
        file("plain.parquet", |path| Parquet::create(path).codec(Codec::None).chunks(&[100]), &[Dtype::F64]),
        file("keys.parquet", |path| Parquet::create(path).chunks(&[70]), &[Dtype::I32]),
        file("bool.parquet", |path| Parquet::create(path).codec(Codec::Snappy), &[Dtype::Bool]),
        file("half.parquet", |path| Parquet::create(path).codec(Codec::Lz4), &[Dtype::F16]),
        file("gzip.parquet", |path| Parquet::create(path).codec(Codec::Gzip(1)), &[Dtype::U16]),
        file("a.zarr", |path| Zarr::create(path).chunks(&[70]), &[Dtype::F32]),
        file("b.zarr", |path| Zarr::create(path).codec(Codec::Lz4).chunks(&[200]), &[Dtype::I64]),
        file("c.zarr", |path| Zarr::create(path).codec(Codec::None), &[Dtype::Bool, Dtype::U16]),
    ]
}

/// All files at a path, with their bytes.
fn files(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    if path.is_file() {
        return vec![(path.to_owned(), fs::read(path).expect("a file"))];
    }
    let mut names: Vec<PathBuf> = fs::read_dir(path).expect("a folder").flatten().map(|entry| entry.path()).collect();
    names.sort();
    names.iter().flat_map(|path| files(path)).collect()
}
