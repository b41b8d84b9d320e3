//! Arrays of `.npz` archives.

use super::*;
use proptest::prelude::*;
use std::fs;
use std::path::Path;

/// Writes a zip archive as Python does; each member has a name, data and a method of compression. Returns also the
/// ranges of the data.
fn archive(members: &[(&str, &[u8], u16)], is_zip64: bool, comment: &[u8]) -> (Vec<u8>, Vec<std::ops::Range<usize>>) {
    let (mut file, mut directory, mut data) = (Vec::new(), Vec::new(), Vec::new());
    let two = |number: usize| (number as u16).to_le_bytes();
    let four = |number: usize| (number as u32).to_le_bytes();
    let eight = |number: usize| (number as u64).to_le_bytes();
    for (name, content, method) in members {
        let (at, len) = (file.len(), content.len());
        let [size, offset] = if is_zip64 { [u32::MAX as usize; 2] } else { [len, at] };
        let extra = [two(1), two(16)].concat().into_iter().chain(eight(len)).chain(eight(len)).collect::<Vec<_>>();
        let common =
            [&method.to_le_bytes()[..], &[0; 4], &four(7), &four(size), &four(size), &two(name.len())].concat();
        file.extend([&b"PK\x03\x04"[..], &two(45), &two(0), &common, &two(extra.len())].concat());
        file.extend([name.as_bytes(), &extra].concat());
        data.push(file.len()..file.len() + len);
        file.extend_from_slice(content);
        // Something else comes first, as in the archives of other programs.
        let extra = match is_zip64 {
            true => [&two(9)[..], &two(1), &[5], &two(1), &two(24), &eight(len), &eight(len), &eight(at)].concat(),
            false => [&two(9)[..], &two(1), &[5]].concat(),
        };
        directory.extend([&b"PK\x01\x02"[..], &two(45), &two(45), &two(0), &common, &two(extra.len())].concat());
        directory.extend([&two(0)[..], &[0; 8], &four(offset), name.as_bytes(), &extra].concat());
    }
    let (start, count) = (file.len(), members.len());
    file.extend_from_slice(&directory);
    if is_zip64 {
        let end = file.len();
        let counts = [eight(count), eight(count), eight(directory.len()), eight(start)].concat();
        file.extend([&b"PK\x06\x06"[..], &eight(44), &[45, 0, 45, 0], &[0; 8], &counts].concat());
        file.extend([&b"PK\x06\x07"[..], &four(0), &eight(end), &four(1)].concat());
    }
    let (count, size, start) =
        if is_zip64 { (0xffff, u32::MAX as usize, u32::MAX as usize) } else { (count, directory.len(), start) };
    file.extend([&b"PK\x05\x06"[..], &[0; 4], &two(count), &two(count), &four(size), &four(start)].concat());
    file.extend([&two(comment.len())[..], comment].concat());
    (file, data)
}

fn named(path: &Path, member: &str) -> NamedFile {
    NamedFile::parse(format!("{}:{member}", path.display()).as_ref()).unwrap()
}

/// Reads an array of an archive in every way.
fn read(path: &Path, member: &str) -> Result<Vec<u8>> {
    let named = named(path, member);
    // SAFETY: nobody writes to the file.
    let all = [named.open(ReadMode::Pread)?, named.open(ReadMode::Direct)?, unsafe { named.map() }?];
    let [rows, others @ ..] = all.each_ref().map(|input| read_all(input.source(), 3));
    assert!(others.iter().all(|other| *other == rows));
    Ok(rows)
}

#[test]
fn arrays_of_archives() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.npz");
    let of = |name: &str| fs::read(fixture(name)).unwrap();
    let (x, w, records, grid) = (of("le_f64"), of("be_i16"), of("records"), of("fortran_rank3"));
    let members = [
        ("x.npy", &x[..], 0),
        ("model/w.npy", &w, 0),
        ("trades.npy", &records, 0),
        ("grid.npy", &grid, 0),
        ("z.npy", &x, 8),
    ];
    for (is_zip64, comment) in [(false, &b""[..]), (true, b""), (false, b"PK\x05\x06 a comment"), (true, &[0; 40_000])]
    {
        fs::write(&path, archive(&members, is_zip64, comment).0).unwrap();
        assert_eq!(read(&path, "x").unwrap(), values(Dtype::F64));
        assert_eq!(read(&path, "model/w").unwrap(), values(Dtype::I16));
        let npy = Npy::member(&path, "x").unwrap();
        assert_eq!((npy.rows(), npy.shape(), npy.path()), (5, Some(&[5][..]), Some(&*path)));
        let id = named(&path, "trades").with_field("id").open(ReadMode::Pread).unwrap();
        assert_eq!(read_all(id.source(), 2), bytemuck::cast_slice::<u16, u8>(&[1, 2, 65535]));
        assert_eq!(
            read(&path, "grid").unwrap(),
            (0..24u8).flat_map(|k| f32::from(k).to_ne_bytes()).collect::<Vec<_>>()
        );
        says(
            Npy::member(&path, "y"),
            &["data.npz: has no array 'y', only x, model/w, trades, grid, z; check the name"],
        );
        says(Npy::member(&path, "z"), &["its array 'z' is compressed; save it again with numpy.savez, which does not"]);
        says(Npy::member(&path, "trades"), &["data.npz: holds records of several fields"]);
        let names = "is a .npz archive of the arrays x, model/w, trades, grid, z; name one of them, as in ";
        says(open(&path, None), &[names]);
    }
    says(NamedFile { dtype: Some(Dtype::F32), ..named(&path, "x") }.open(ReadMode::Pread), &["holds f64, not f32"]);
    let other = dir.path().join("data2.npz");
    fs::copy(&path, &other).unwrap();
    let both = named(&dir.path().join("data*.npz"), "x").open(ReadMode::Pread).unwrap();
    assert_eq!(read_all(both.source(), 3), [values(Dtype::F64), values(Dtype::F64)].concat());
    // An array whose header says more than the member has.
    fs::write(&path, archive(&[("x.npy", &x[..160], 0), ("y.npy", &x, 0)], false, b"").0).unwrap();
    says(Npy::member(&path, "x"), &["short file: 160 bytes, its header says 168"]);
    says(Npy::member(fixture("le_f64"), "x"), &["is not a complete .npz archive: the record at its end is missing"]);
    fs::write(&path, b"").unwrap();
    says(Npy::member(&path, "x"), &["is not a complete .npz archive"]);
}

#[test]
fn the_words_behind_an_archive_are_a_name() {
    let parse = |text: &str| NamedFile::parse(text.as_ref()).unwrap();
    for (text, member) in [("a.npz:x", "x"), ("a.NPZ:f64", "f64"), ("d:1/a.npz:model/w", "model/w"), ("a.npz:0", "0")] {
        assert_eq!((parse(text).member.as_deref(), parse(text).dtype), (Some(member), None), "{text}");
    }
    assert_eq!((parse("a.npz:f64!").member, parse("a.npz:f64!").dtype), (None, Some(Dtype::F64)));
    assert_eq!((parse("a.npz").member, parse("x.npy:f64").member), (None, None));
}

#[test]
fn a_damaged_length_never_gives_the_next_array() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.npz");
    let x = fs::read(fixture("le_f64")).unwrap();
    let (mut file, _) = archive(&[("x.npy", &x, 0), ("y.npy", &x, 0)], false, b"");
    // The length of the extra field of the first member: its data would begin at that of the second.
    let to_next = (x.len() + 30 + "y.npy".len()) as u16;
    file[28..30].copy_from_slice(&to_next.to_le_bytes());
    fs::write(&path, file).unwrap();
    says(Npy::member(&path, "x"), &["the header of a member is not where the directory says"]);
}

#[test]
fn an_archive_that_is_cut_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.npz");
    let x = fs::read(fixture("le_f64")).unwrap();
    for is_zip64 in [false, true] {
        let (file, _) = archive(&[("x.npy", &x, 0), ("y.npy", &x, 0)], is_zip64, b"some comment");
        for len in 0..file.len() {
            fs::write(&path, &file[..len]).unwrap();
            says(Npy::member(&path, "x"), &["data.npz: is not a complete .npz archive", "copy or save it again"]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Damage is an error, or it does not matter. Only the data itself is not checked.
    #[test]
    fn damage_never_gives_other_rows(is_zip64: bool, at in 0usize..100_000, byte: u8, then in 0usize..100_000) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.npz");
        // Two members of the same size, whose last value differs in its sign.
        let (x, negative) = (fs::read(fixture("le_f64")).unwrap(), |bytes: &[u8]| {
            let (last, before) = bytes.split_last().unwrap();
            [before, &[last ^ 0x80]].concat()
        });
        let y = negative(&x);
        let (mut file, data) = archive(&[("x.npy", &x, 0), ("y.npy", &y, 0)], is_zip64, b"");
        let others: Vec<usize> = (0..file.len()).filter(|at| !data.iter().any(|data| data.contains(at))).collect();
        file[others[at % others.len()]] = byte;
        if then % 2 == 0 {
            file[others[then / 2 % others.len()]] ^= 0xff;
        }
        fs::write(&path, file).unwrap();
        let rows = values(Dtype::F64);
        for (name, expected) in [("x", &rows), ("y", &negative(&rows))] {
            if let Ok(npy) = Npy::member(&path, name) {
                prop_assert_eq!(&read_all(&npy, 5), expected);
            }
        }
    }

    #[test]
    fn any_bytes_are_no_archive(mut bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..200) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.npz");
        let end = [&b"PK\x05\x06"[..], &[0; 18]].concat();
        bytes.truncate(at.max(22));
        let place = bytes.len().saturating_sub(22);
        bytes.splice(place..place, end.into_iter().take(4));
        fs::write(&path, bytes).unwrap();
        prop_assert!(Npy::member(&path, "x").is_err());
    }
}
