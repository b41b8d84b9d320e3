//! Keys in the names of folders, as columns. `python/tests/test_partitions.py` reads those that PyArrow writes.

use super::*;
use proptest::prelude::*;
use std::fs;
use std::path::Path;

const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// Writes a file of bytes, and the folders in which it is.
fn write(path: &Path, rows: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, rows).unwrap();
}

/// A key of raw files of bytes.
fn key(name: &Path, key: &str) -> NamedFile {
    NamedFile { dtype: Some(Dtype::U8), ..NamedFile::from(name).with_field(key) }
}

fn of(name: &Path, own: &str) -> Result<Input<'static>> {
    key(name, own).open(ReadMode::Pread)
}

fn integers(source: &dyn Source) -> Vec<i64> {
    assert_eq!(source.dtype(), Dtype::I64);
    read_all(source, 3).chunks_exact(8).map(|row| i64::from_ne_bytes(row.try_into().unwrap())).collect()
}

fn floats(source: &dyn Source) -> Vec<f64> {
    assert_eq!(source.dtype(), Dtype::F64);
    read_all(source, 3).chunks_exact(8).map(|row| f64::from_ne_bytes(row.try_into().unwrap())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The rows of each file are its number, by which the naive twin finds the values of its keys.
    #[test]
    fn keys_are_constant_in_each_file(
        files in proptest::collection::vec((-12i64..12, proptest::option::of(0u8..4), 0usize..30), 1..20),
        ranges in proptest::collection::vec((any::<u64>(), any::<u64>()), 10),
    ) {
        let dir = tempfile::tempdir().unwrap();
        for (number, (year, share, rows)) in files.iter().enumerate() {
            let share = share.map_or(NULL.to_owned(), |share| format!("{}", f64::from(share) / 4.0));
            let path = dir.path().join(format!("year={year}/share={share}/part-{number}.u8"));
            write(&path, &vec![number as u8; *rows]);
        }
        let numbers = open(dir.path(), Some(Dtype::U8)).unwrap();
        let numbers = read_all(numbers.source(), 7);
        let year = of(dir.path(), "year").unwrap();
        let expected: Vec<i64> = numbers.iter().map(|number| files[usize::from(*number)].0).collect();
        prop_assert_eq!(integers(year.source()), &*expected);
        let filled = NamedFile { nulls: Some("-1".into()), ..key(dir.path(), "share") };
        let share = filled.open(ReadMode::Pread).unwrap();
        let own = |number: &u8| files[usize::from(*number)].1.map_or(-1.0, |share| f64::from(share) / 4.0);
        let is_whole = files.iter().all(|(_, share, _)| share.is_none_or(|share| share.is_multiple_of(4)));
        match is_whole {
            true => prop_assert!(integers(share.source()).into_iter().eq(numbers.iter().map(|n| own(n) as i64))),
            false => prop_assert!(floats(share.source()).into_iter().eq(numbers.iter().map(own))),
        }
        let has_nulls = files.iter().any(|(_, share, rows)| share.is_none() && *rows > 0);
        prop_assert_eq!(of(dir.path(), "share").is_err(), has_nulls);
        for (first, len) in ranges {
            let first = first % (expected.len() as u64 + 1);
            let len = len % (expected.len() as u64 - first + 1);
            let mut rows = vec![0i64; len as usize];
            year.source().read(first, bytemuck::cast_slice_mut(&mut rows)).unwrap();
            prop_assert_eq!(rows, &expected[first as usize..(first + len) as usize]);
        }
        prop_assert!(year.source().read(expected.len() as u64, &mut [0; 8]).is_err());
    }
}

#[test]
fn the_keys_are_those_of_the_part_that_the_name_stands_for() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (name, row) in [("2/m=10", 4), ("2/m=9", 3), ("10/m=1", 5), ("1/m=01", 1), ("1/m=2", 2)] {
        write(&at(&format!("t/y={name}/part-0.u8")), &[row]);
    }
    write(&at("t/y=2/m=9/.part-1.u8"), &[99]);
    write(&at("t/y=2/m=9/_SUCCESS"), &[]);
    write(&at("t/.y=3/m=1/part-0.u8"), &[99]);
    for (name, rows, y, m) in [
        ("t", &[1, 2, 3, 4, 5][..], Some(&[1, 1, 2, 2, 10][..]), Some(&[1, 2, 9, 10, 1][..])),
        ("t/", &[1, 2, 3, 4, 5], Some(&[1, 1, 2, 2, 10]), Some(&[1, 2, 9, 10, 1])),
        ("t/y=2", &[3, 4], None, Some(&[9, 10])),
        ("t/y=2/m=10", &[4], None, None),
        ("t/y=2/*/*.u8", &[3, 4], None, Some(&[9, 10])),
        ("t/y=[2]*", &[3, 4], Some(&[2, 2]), Some(&[9, 10])),
        ("t/*/m=*1/*", &[1, 5], Some(&[1, 10]), Some(&[1, 1])),
        ("?/*=10/*/*", &[5], Some(&[10]), Some(&[1])),
    ] {
        let name = at(name);
        let all = open(&name, Some(Dtype::U8)).unwrap();
        assert_eq!(read_all(all.source(), 2), rows, "{name:?}");
        for (own, expected) in [("y", y), ("m", m)] {
            match expected {
                Some(values) => assert_eq!(integers(of(&name, own).unwrap().source()), values, "{own} of {name:?}"),
                None => drop(says(of(&name, own), &["is a raw file, so that it has no field"])),
            }
        }
    }
    let named = |name: &str| NamedFile::from(&*at(name));
    let year = of(&at("t"), "y").unwrap();
    let year = year.source();
    assert_eq!((year.path(), year.files().len(), &*year.variant()), (Some(&*at("t")), 5, "column y"));
    assert_eq!(year.files(), named("t").files());
    let keys = named("t").keys().unwrap().into_iter().map(|key| (key.name, key.dtype));
    assert!(keys.eq([("y".into(), Some(Dtype::I64)), ("m".into(), Some(Dtype::I64))]));
    assert!(named("t/y=2/m=9").keys().unwrap().is_empty() && named("t/y=2/m=9/part-0.u8").keys().unwrap().is_empty());
    // What is read is not written.
    let mut files = FileSet::new();
    year.files().into_iter().for_each(|path| files.read(path, "t.y").unwrap());
    assert_eq!(files.write(&at("t/y=2/m=9/part-0.u8"), "y"), Err(Clash("t.y".into())));
    assert_eq!(files.write(&at("t/y=2/m=9/part-1.u8"), "y"), Ok(()));
}

#[test]
fn values_are_integers_or_else_numbers_or_else_refused() {
    for (values, expected) in [
        (&["1", "+02", "-3"][..], Some(&[1.0, 2.0, -3.0][..])),
        (&["1", "9223372036854775808"], Some(&[1.0, 9_223_372_036_854_775_808.0])),
        (&["1", "0.5"], Some(&[1.0, 0.5])),
        (&["1%2E5", "%2d2"], Some(&[1.5, -2.0])),
        (&["1", "inf"], None),
        (&["1", "nan"], None),
        (&["1", "1e999"], None),
        (&["1", ""], None),
        (&["1", "eu"], None),
        (&["2024-01-01"], None),
        (&["1", "%zz"], None),
    ] {
        let dir = tempfile::tempdir().unwrap();
        for (number, value) in values.iter().enumerate() {
            write(&dir.path().join(format!("t/n={number}/key={value}/a.u8")), &[0]);
        }
        let key = of(&dir.path().join("t"), "key");
        let Some(expected) = expected else {
            let text = values.last().unwrap();
            let problem = format!("t: its key 'key' has the value '{text}', which is no number; choose its folders");
            says(key, &[&problem, &format!("as in 'key={text}/*'")]);
            continue;
        };
        let key = key.unwrap();
        let is_whole = values.iter().all(|value| value.parse::<i64>().is_ok());
        let given = match is_whole {
            true => integers(key.source()).iter().map(|value| *value as f64).collect(),
            false => floats(key.source()),
        };
        assert_eq!(given, expected, "{values:?}");
    }
}

#[test]
fn nulls_of_keys_are_refused_or_filled() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("t/k=1/a.u8"), &[0]);
    write(&dir.path().join(format!("t/k={NULL}/a.u8")), &[0, 0]);
    let t = dir.path().join("t");
    says(of(&t, "k"), &["t: its column 'k' has 2 nulls, and nulls are no numbers", "--nulls VALUE"]);
    let filled = |value: &str| NamedFile { nulls: Some(value.into()), ..key(&t, "k") }.open(ReadMode::Pread);
    says(filled("nan"), &["t: its column 'k' of i64 has 2 nulls, and nan is no value of i64"]);
    assert_eq!(integers(filled("7").unwrap().source()), [1, 7, 7]);
    assert_eq!(filled("7").unwrap().source().variant(), "column k, nulls 7");
    let only = open_column(t.join(format!("*{NULL}")), "k", &ColumnOptions::new());
    says(only, &["a.u8: not .npy: add the dtype"]);
}

#[test]
fn files_with_other_keys_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    write(&at("t/y=1/a.u8"), &[1]);
    write(&at("t/y=2/m=1/b.u8"), &[2]);
    let message = ["b.u8: is in folders with other keys (y, m) than ", "a.u8 (y), and they are read as one input"];
    says(of(&at("t"), "y"), &message);
    says(open(at("t"), Some(Dtype::U8)), &message);
    says(NamedFile::from(&*at("t")).keys(), &message);
    // A pattern may stand for files of any folders, as long as no key of them is read.
    let pattern = at("t/*");
    assert_eq!(read_all(open(&pattern, Some(Dtype::U8)).unwrap().source(), 1), [1, 2]);
    says(of(&pattern, "y"), &message);
    assert!(NamedFile::from(&*pattern).keys().unwrap().is_empty());
    write(&at("t/c.u8"), &[3]);
    says(open(at("t"), Some(Dtype::U8)), &["folders with other keys (y) than ", "c.u8 (none)"]);
    // Other folders are refused as ever, and so is a folder that leads back to itself.
    write(&at("u/y=1/deeper/a.u8"), &[1]);
    says(open(at("u"), Some(Dtype::U8)), &["y=1/deeper: is a directory"]);
    fs::create_dir_all(at("v")).unwrap();
    std::os::unix::fs::symlink(at("v"), at("v/y=1")).unwrap();
    assert!(open(at("v"), Some(Dtype::U8)).is_err());
    fs::create_dir_all(at("w/y=1")).unwrap();
    says(open(at("w"), Some(Dtype::U8)), &["w: is a folder without files"]);
}

#[test]
fn all_formats_have_keys() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let records = "{'descr': [('s', '|S3'), ('a', '<u2')], 'fortran_order': False, 'shape': (2,), }\n";
    let head = [b"\x93NUMPY\x01\x00", &(records.len() as u16).to_le_bytes()[..], records.as_bytes()].concat();
    write(&at("r/y=5/a.npy"), &[&head[..], &[0; 10]].concat());
    let plain = super::super::npy::header(Dtype::U8, 6, Some(&[3, 2]));
    write(&at("n/y=7/a.npy"), &[&plain[..], &[0; 6]].concat());
    let year = |name: &str| open_column(at(name), "y", &ColumnOptions::new()).unwrap();
    assert_eq!(integers(year("r").source()), [5; 2]);
    assert_eq!(integers(year("n").source()), [7; 6]);
}
