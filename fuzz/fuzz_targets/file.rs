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
    /// Another name of the first folder with a key.
    key: Option<String>,
}

impl<'a> Arbitrary<'a> for Damage {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Damage> {
        Ok(Damage { kind: u.arbitrary()?, end: u.arbitrary()?, bytes: u.arbitrary()?, key: u.arbitrary()? })
    }
}

/// A good file, or the files of a store or a folder.
struct Good {
    name: String,
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
            let mut all = good_files(folder.path());
            all.extend(files_of_others(folder.path()));
            for good in &all {
                let damage = Damage { kind: 0, bytes: vec![], end: None, key: None };
                // A file of several columns is none itself.
                assert!(check(folder.path(), good, &damage) <= 1, "{} cannot be read", good.name);
            }
            (folder, all)
        });
        check(folder.path(), &all[usize::from(damage.kind) % all.len()], &damage);
    });
});

/// Damages a file and reads all that it has. Returns how many of its columns, arrays and keys could not be read.
fn check(folder: &Path, good: &Good, damage: &Damage) -> usize {
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
    let path = folder.join(&good.name);
    if path.is_dir() {
        fs::remove_dir_all(&path).expect("a folder");
    }
    let is_name =
        |name: &&String| !name.contains(['/', '\0']) && name.len() < 200 && !matches!(&***name, "." | ".." | "");
    if let (Some(name), Some(first)) = (damage.key.as_ref().filter(is_name), key_folder(&path, &files)) {
        for (path, _) in &mut files {
            if let Ok(rest) = path.strip_prefix(&first) {
                *path = first.with_file_name(name).join(rest);
            }
        }
    }
    for (path, bytes) in &files {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }
    let whole = NamedFile { nulls: Some("0".into()), timestamps: true, ..NamedFile::from(&*path) };
    let mut all = vec![whole.clone()];
    let first = whole.files().first().cloned().unwrap_or(path);
    if let Ok(Some(table)) = TableFile::open(&first) {
        all.extend(table.columns.iter().map(|column| whole.with_field(&column.name)));
    }
    if let Ok(Some(arrays)) = StoredArray::all(&first) {
        all.extend(arrays.iter().map(|array| whole.with_field(&array.name)));
    }
    if let Ok(keys) = whole.keys() {
        all.extend(keys.iter().map(|key| whole.with_field(&key.name)));
    }
    if good.name.ends_with(".npz") {
        let member = |name: &str| NamedFile { member: Some(name.into()), ..whole.clone() };
        all.extend([member("a"), member("b"), member("records").with_field("size")]);
    }
    let is_read = |file: &NamedFile| match file.open(ReadMode::Pread) {
        Ok(input) => read(input.source()),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    };
    all.iter().filter(|file| !is_read(file)).count()
}

/// The folder with a key in which the first file is.
fn key_folder(path: &Path, files: &[(PathBuf, Vec<u8>)]) -> Option<PathBuf> {
    let name = files.first()?.0.strip_prefix(path).ok()?.iter().next()?;
    Some(path.join(name)).filter(|_| name.to_string_lossy().contains('='))
}

/// Reads rows at both ends, and what is known of all of them. Returns whether there was no error.
fn read(source: &dyn overshot::Source) -> bool {
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
                return false;
            }
        }
    }
    true
}

fn good_files(folder: &Path) -> Vec<Good> {
    let file = |name: &'static str, new: fn(&Path) -> NewFile, columns: &[Dtype]| {
        let path = folder.join(name);
        for (k, dtype) in columns.iter().enumerate() {
            // One at a time: files of several columns need a job.
            let path = if columns.len() > 1 { path.join(format!("c{k}")) } else { path.clone() };
            if columns.len() > 1 {
                fs::create_dir_all(folder.join(name)).expect("a folder");
                fs::write(folder.join(name).join("zarr.json"), r#"{"zarr_format": 3, "node_type": "group"}"#)
                    .expect("a file");
            }
            let bytes: Vec<u8> = (0..ROWS as usize * dtype.size()).map(|byte| (byte % 7 % 2) as u8).collect();
            let sink = Output::from(new(&path)).open(*dtype, ROWS, None).expect("an output");
            sink.write(0, &bytes).expect("rows");
            commit_all(vec![sink]).expect("a name");
        }
        Good { name: name.into(), files: files(&path) }
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

/// Files that others write, and no job: what `fuzz/files/generate.py` has written.
fn files_of_others(folder: &Path) -> Vec<Good> {
    let from = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/files"));
    let moved = |(path, bytes): (PathBuf, Vec<u8>)| {
        let path = path.strip_prefix(from).expect("a path of it").to_owned();
        (folder.join(path), bytes)
    };
    let good =
        |name: &&str| Good { name: (*name).into(), files: files(&from.join(name)).into_iter().map(moved).collect() };
    let names =
        ["lz4.arrow", "zstd.arrow", "nulls.arrow", "encodings.parquet", "v2.zarr", "shards.zarr", "arrays.npz", "keys"];
    names.iter().map(good).collect()
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
