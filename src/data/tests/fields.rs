//! Fields of structured `.npy` files.

use super::*;
use crate::data::npy::Header;
use proptest::prelude::*;
use std::fs;

/// Opens a field in every way; a map gathers from the memory of the file.
fn opened(path: &std::path::Path, field: &str) -> Vec<Input<'static>> {
    let named = NamedFile::parse(path.as_os_str()).unwrap().with_field(field);
    let read = |reading| Npy::field_with(path, field, reading).unwrap().into();
    // SAFETY: nobody writes to the file.
    vec![read(ReadMode::Pread), read(ReadMode::Direct), unsafe { named.map() }.unwrap()]
}

#[test]
fn fields_that_numpy_wrote() {
    fn bytes<T: Element>(rows: [T; 3]) -> Vec<u8> {
        bytemuck::cast_slice(&rows).to_vec()
    }
    for (name, dtype, rows) in [
        ("id", Dtype::U16, bytes([1u16, 2, 65535])),
        ("price", Dtype::F64, bytes([0.5, -1.0, f64::INFINITY])),
        ("flag", Dtype::Bool, vec![1, 0, 1]),
        ("größe", Dtype::I32, bytes([-1i32, 0, 7])),
        ("last", Dtype::U8, vec![3, 2, 1]),
    ] {
        for input in opened(&fixture("records"), name) {
            let source = input.source();
            assert_eq!((source.dtype(), source.rows(), source.shape()), (dtype, 3, Some(&[3][..])), "{name}");
            assert!((1..4).all(|step| read_all(source, step) == rows), "{name}");
            assert!(source.memory().is_none() && source.path() == Some(&fixture("records")));
            // Some file systems have no direct I/O.
            let notes = ["a file of the field alone is read faster", "so it is read through the page cache"];
            assert!(notes.iter().any(|note| source.warning().unwrap().ends_with(note)));
            says(source.read(2, &mut vec![0; 2 * dtype.size()]), &["records.npy", "it has 3 rows"]);
        }
    }
    assert_eq!(Npy::field(fixture("structured_v3"), "größe").unwrap().rows(), 1);
}

#[test]
fn fields_that_cannot_be_read_are_refused_by_name() {
    for (file, field, parts) in [
        ("records", "prize", &["has no field 'prize', only id, price, flag, name, pos, inner, z, größe, last"][..]),
        ("records", "name", &["its field 'name' holds text ('|S3'), which is not supported; save numbers"]),
        ("records", "pos", &["its field 'pos' is an array in each record (a sub-array)", "save the field separately"]),
        ("records", "inner", &["its field 'inner' has fields itself (a nested dtype)"]),
        ("records", "inner.a", &["has no field 'inner.a'"]),
        ("records", "z", &["its field 'z' holds complex numbers ('<c8')"]),
        ("records", "", &["has no field ''"]),
        ("records_of_objects", "x", &["holds Python objects in a field"]),
        ("le_f64", "x", &["holds no records, so that it has no field 'x'; leave the field out"]),
    ] {
        let error = says(Npy::field(fixture(file), field), parts);
        assert!(error.to_string().contains(&format!("{file}.npy: ")), "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let raw = dir.path().join("x.raw");
    fs::write(&raw, [0; 8]).unwrap();
    let named = |dtype| NamedFile { dtype, ..NamedFile::from(&*raw).with_field("price") };
    says(named(Some(Dtype::F64)).open(ReadMode::Pread), &["x.raw: is a raw file, so that it has no field 'price'"]);
    says(NamedFile { path: fixture("records"), ..named(Some(Dtype::F32)) }.open(ReadMode::Pread), &["holds f64, not"]);
}

/// A file of records: `before` bytes, an `i32`, and `after` bytes.
fn records(rows: usize, before: usize, after: usize) -> (Vec<u8>, Vec<u8>) {
    let descr = format!("[('a', '|V{before}'), ('x', '<i4'), ('b', '|u1', ({after},))]");
    let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': ({rows},)}}\n");
    let mut file = [&b"\x93NUMPY\x01\x00"[..], &(text.len() as u16).to_le_bytes(), text.as_bytes()].concat();
    let mut expected = Vec::new();
    for row in 0..rows {
        let value = (row as i32).wrapping_mul(0x9e37_79b1_u32 as i32);
        file.extend(std::iter::repeat_n(0xaa, before));
        file.extend(value.to_le_bytes());
        file.extend(std::iter::repeat_n(0xbb, after));
        expected.extend(value.to_ne_bytes());
    }
    (file, expected)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// Records of all sizes, from a single field to more than is read at once.
    #[test]
    fn a_field_is_gathered_from_any_records(
        (rows, before, after) in prop_oneof![
            (0usize..3000, 0usize..40, 0usize..40),
            (0usize..12, 0usize..90_000, 0usize..90_000),
            (20_000usize..40_000, 0usize..9, 0usize..9),
        ],
        ranges in prop::collection::vec((0usize..40_000, 0usize..40_000), 5),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        let (file, expected) = records(rows, before, after);
        fs::write(&path, file).unwrap();
        for input in opened(&path, "x") {
            let source = input.source();
            prop_assert_eq!(source.rows(), rows as u64);
            let whole = [(0, rows)];
            for (first, len) in ranges.iter().map(|(a, b)| (a % (rows + 1), b % (rows + 1))).chain(whole) {
                let mut dst = vec![0; len * 4];
                let read = source.read(first as u64, &mut dst);
                match expected.get(first * 4..(first + len) * 4) {
                    Some(expected) => prop_assert!(read.is_ok() && dst == expected, "{first} {len} {read:?}"),
                    None => prop_assert!(read.is_err()),
                }
            }
            if before + after == 0 && rows > 0 && source.memory().is_some() {
                prop_assert_eq!(source.memory().unwrap().bytes(), &expected[..]);
            }
        }
    }

    #[test]
    fn a_field_is_behind_those_before_it(before in prop::collection::vec(0usize..4, 0..5),
        after in prop::collection::vec(0usize..4, 0..5)) {
        const OTHERS: [(&str, u64); 4] =
            [("('b', '>u2')", 2), ("('', '|V3')", 3), ("('d', '<i8', (2,))", 16), ("('c', [('a', '<f4')])", 4)];
        let of = |fields: &[usize]| fields.iter().map(|field| OTHERS[*field]).collect::<Vec<_>>();
        let all = [of(&before), vec![("('a', '<f4')", 4)], of(&after)].concat();
        let descr = all.iter().map(|(text, _)| *text).collect::<Vec<_>>().join(", ");
        let text = format!("{{'descr': [{descr}], 'fortran_order': False, 'shape': (3,)}}");
        let head = [&b"\x93NUMPY\x01\x00"[..], &(text.len() as u16).to_le_bytes(), text.as_bytes()].concat();
        let header = Header::parse_field(&head, "a").unwrap();
        prop_assert_eq!(header.in_record, of(&before).iter().map(|(_, bytes)| bytes).sum::<u64>());
        prop_assert_eq!((header.stride, header.dtype), (all.iter().map(|(_, bytes)| bytes).sum::<u64>(), Dtype::F32));
    }
}

#[test]
fn a_file_of_records_that_is_cut_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.npy");
    let (file, _) = records(100, 6, 6);
    fs::write(&path, &file[..file.len() - 1]).unwrap();
    says(Npy::field(&path, "x"), &["x.npy: short file: ", "its header says"]);
    fs::write(&path, &file).unwrap();
    let npy = Npy::field(&path, "x").unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(file.len() as u64 - 7).unwrap();
    says(npy.read(0, &mut [0; 400]), &["x.npy: it became shorter than 100 rows"]);
    npy.read(0, &mut [0; 396]).unwrap();
}

#[test]
fn the_same_field_of_several_files_is_one_input() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for (name, rows) in [("t-1.npy", 50), ("t-2.npy", 0), ("t-10.npy", 30)] {
        let (file, expected) = records(rows, 3, 1);
        fs::write(dir.path().join(name), file).unwrap();
        all.extend(expected);
    }
    let named = NamedFile::parse(dir.path().join("t-*.npy").as_os_str()).unwrap().with_field("x");
    assert_eq!(read_all(named.open(ReadMode::Pread).unwrap().source(), 7), all);
    says(named.with_field("y").open(ReadMode::Pread), &["t-1.npy: has no field 'y', only a, x, b"]);
}
