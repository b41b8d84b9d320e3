//! Several files as one input.

use super::*;
use proptest::prelude::*;
use std::fs;
use std::path::Path;

/// Writes a `.npy` file of `u16` with this shape, in one of the byte orders.
fn write_npy(path: &Path, shape: &[u64], rows: &[u16], is_big: bool) {
    let mut bytes = super::super::npy::header(Dtype::U16, rows.len() as u64, Some(shape));
    if is_big {
        let order = bytes.iter().position(|byte| *byte == b'<').unwrap();
        bytes[order] = b'>';
    }
    bytes.extend(rows.iter().flat_map(|row| if is_big { row.to_be_bytes() } else { row.to_le_bytes() }));
    fs::write(path, bytes).unwrap();
}

fn write_raw(path: &Path, rows: &[u16]) {
    fs::write(path, bytemuck::cast_slice::<u16, u8>(rows)).unwrap();
}

/// The first `rows` numbers from `first` on.
fn numbers(first: u64, rows: u64) -> Vec<u16> {
    (first..first + rows).map(|row| row as u16).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The naive twin is the concatenation of all rows.
    #[test]
    fn files_are_read_as_one(
        files in proptest::collection::vec((0u64..40, 0u8..3), 1..12),
        ranges in proptest::collection::vec((0u64..400, 0u64..400), 20),
        reading in 0..3,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut all = Vec::new();
        for (part, (rows, kind)) in files.iter().enumerate() {
            let (own, path) = (numbers(all.len() as u64, *rows), dir.path().join(format!("part-{part}")));
            match kind {
                0 => write_raw(&path.with_extension("raw"), &own),
                kind => write_npy(&path.with_extension("npy"), &[*rows], &own, *kind == 1),
            }
            all.extend(own);
        }
        let input = match reading {
            0 => open_with(dir.path(), Some(Dtype::U16), ReadMode::Pread),
            1 => open_with(dir.path(), Some(Dtype::U16), ReadMode::Direct),
            // SAFETY: nobody writes to the files.
            _ => unsafe { map(dir.path().join("part-*"), Some(Dtype::U16)) },
        }.unwrap();
        let source = input.source();
        let rows = all.len() as u64;
        prop_assert_eq!((source.dtype(), source.rows(), source.files().len()), (Dtype::U16, rows, files.len()));
        let is_flat = files.iter().all(|(_, kind)| *kind == 0);
        let flat = [rows];
        prop_assert_eq!(source.shape(), (!is_flat).then_some(&flat[..]));
        for (first, len) in ranges {
            let mut dst = vec![0u16; len as usize];
            let read = source.read(first, bytemuck::cast_slice_mut(&mut dst));
            match all.get(first as usize..(first + len) as usize) {
                Some(expected) => {
                    prop_assert!(read.is_ok(), "{:?}", read);
                    prop_assert_eq!(&dst, expected);
                    if let Some(piece) = source.piece(first, len) {
                        prop_assert!(reading == 2 && piece.bytes() == bytemuck::cast_slice::<u16, u8>(expected));
                    }
                }
                None => prop_assert!(read.is_err()),
            }
        }
        prop_assert!(source.is_cached(0, rows) || reading == 1);
    }
}

#[test]
fn files_are_joined_along_the_first_dimension_in_natural_order() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (name, first, length) in [("p-10.npy", 18, 1), ("p-1.npy", 0, 2), ("p-9.npy", 12, 1), ("p-2.npy", 12, 0)] {
        write_npy(&at(name), &[length, 2, 3], &numbers(first, 6 * length), false);
    }
    let input = open(at("p-*.npy"), None).unwrap();
    let source = input.source();
    assert_eq!((source.rows(), source.shape()), (24, Some(&[4, 2, 3][..])));
    assert_eq!(read_all(source, 5), bytemuck::cast_slice::<u16, u8>(&numbers(0, 24)));
    assert_eq!(source.files(), ["p-1.npy", "p-2.npy", "p-9.npy", "p-10.npy"].map(at));
    assert_eq!((source.path(), source.name()), (Some(&*at("p-*.npy")), at("p-*.npy").display().to_string()));
    assert!(source.memory().is_none() && source.warning().is_none());
    // Rows of one of the files may be used in place, if the files are mapped.
    // SAFETY: nobody writes to the files.
    let mapped = unsafe { map(at("p-*.npy"), None) }.unwrap();
    let piece = |first, rows| mapped.source().piece(first, rows).map(|piece| piece.bytes().to_vec());
    assert!(mapped.source().memory().is_none() && source.piece(2, 3).is_none());
    assert_eq!(piece(13, 5).as_deref(), Some(bytemuck::cast_slice::<u16, u8>(&numbers(13, 5))));
    assert_eq!((piece(11, 2), piece(23, 2)), (None, None));
    // One file is as it is by its own name: it may be used in place.
    // SAFETY: nobody writes to the file.
    let only = unsafe { map(at("p-1?.npy"), None) }.unwrap();
    assert!(only.source().memory().is_some());
    assert_eq!(only.source().path(), Some(&*at("p-10.npy")));
    let named = NamedFile::parse(at("p-*.npy").as_os_str()).unwrap();
    assert_eq!((named.files().len(), named.open(ReadMode::Pread).unwrap().source().rows()), (4, 24));
    let raw = NamedFile::parse(format!("{}:u8!", at("p-*.npy").display()).as_ref()).unwrap();
    assert_eq!(raw.open(ReadMode::Pread).unwrap().source().rows(), 4 * 128 + 48);
    // SAFETY: nobody writes to the files.
    assert_eq!(unsafe { raw.map() }.unwrap().source().rows(), 4 * 128 + 48);
}

#[test]
fn files_that_do_not_fit_together_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let of = |pattern: &str| open(at(pattern), None);
    write_npy(&at("a1.npy"), &[2, 3], &numbers(0, 6), false);
    write_npy(&at("a2.npy"), &[3, 2], &numbers(0, 6), false);
    write_npy(&at("a3.npy"), &[6], &numbers(0, 6), false);
    fs::copy(fixture("le_f64"), at("a4.npy")).unwrap();
    fs::copy(fixture("rank0"), at("r1.npy")).unwrap();
    fs::copy(fixture("rank0"), at("r2.npy")).unwrap();
    write_raw(&at("a3.raw"), &numbers(0, 6));
    let error = says(
        of("a[34].npy"),
        &["a3.npy holds u16, but ", "a4.npy holds f64, and they are read as one input: convert one"],
    );
    assert!(error.is_usage());
    let error = says(of("a[12].npy"), &["a1.npy has the shape (2, 3), but ", "a2.npy has (3, 2)", "reshape one"]);
    assert!(error.is_usage());
    says(of("a[13].npy"), &["a1.npy has the shape (2, 3), but ", "a3.npy has (6,)"]);
    says(open(at("a[23].*"), Some(Dtype::U16)), &["a2.npy has the shape (3, 2), but ", "has (6,)"]);
    says(of("r?.npy"), &["r1.npy: has no dimension along which it can be joined", "reshape(1)"]);
    says(open(at("a[34].npy"), Some(Dtype::U16)), &["a4.npy: holds f64, not u16"]);
    says(of("a3.*"), &["a3.raw: not .npy: add the dtype"]);
    fs::create_dir(at("a5.npy")).unwrap();
    says(of("a[35].npy"), &["a5.npy: is a directory; name a file"]);
    fs::create_dir(at("x.n5")).unwrap();
    says(of("x.n5"), &["x.n5: is a Zarr array, not a raw file"]);
    // Files without rows and bytes have as many rows as any others, up to what can be counted.
    for huge in ["h1.u8", "h2.u8", "h3.u8"] {
        if fs::File::create(at(huge)).unwrap().set_len(i64::MAX as u64).is_err() {
            return;
        }
    }
    says(open(at("h*.u8"), Some(Dtype::U8)), &["h*.u8: its files have more rows than can be counted"]);
}

#[test]
fn what_happens_to_one_file_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["x1.u16", "x2.u16", "x3.u16"].map(|name| dir.path().join(name));
    for reading in [ReadMode::Pread, ReadMode::Direct] {
        for changed in &paths {
            paths.iter().for_each(|path| write_raw(path, &numbers(0, 4000)));
            let input = open_with(dir.path(), Some(Dtype::U16), reading).unwrap();
            let (source, mut rows) = (input.source(), vec![0; 24_000]);
            let before = source.version();
            assert!(before.is_some() && source.version() == before);
            source.read(0, &mut rows).unwrap();
            let direct = if reading == ReadMode::Direct && source.warning().is_none() { 24_000 } else { 0 };
            assert_eq!(source.bytes_read_direct(), direct);
            fs::File::options().write(true).open(changed).unwrap().set_len(4000).unwrap();
            assert_ne!(source.version(), before);
            let name = changed.file_name().unwrap().to_str().unwrap();
            says(source.read(0, &mut rows), &[&format!("{name}: it became shorter than 4000 rows")]);
        }
    }
}

#[test]
fn the_files_of_an_input_are_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    ["x1.raw", "x2.raw"].iter().for_each(|name| write_raw(&at(name), &[1, 2]));
    let input = open(dir.path(), Some(Dtype::U16)).unwrap();
    let mut files = FileSet::new();
    input.source().files().into_iter().for_each(|path| files.read(path, "x").unwrap());
    assert_eq!(files.write(&at("x2.raw"), "y"), Err(Clash("x".into())));
    assert_eq!(files.write(&at("x3.raw"), "y"), Ok(()));
}
