//! Columns side by side, against loops over their elements.

use super::*;
use crate::data::side_by_side::SideBySide;
use proptest::prelude::*;
use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// Rows of any dtype in memory, which are read and not used in place.
struct Own {
    dtype: Dtype,
    bytes: Vec<u8>,
    grains: Vec<u64>,
}

impl Source for Own {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn rows(&self) -> u64 {
        (self.bytes.len() / self.dtype.size()) as u64
    }

    fn name(&self) -> String {
        "own".into()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        assert!(dst.as_ptr().addr().is_multiple_of(self.dtype.size()), "a source may cast its rows");
        dst.copy_from_slice(&self.bytes[first as usize * self.dtype.size()..][..dst.len()]);
        Ok(())
    }

    fn grains(&self) -> &[u64] {
        &self.grains
    }
}

/// The value number `k` of a column, as its bits: five different ones.
fn value(dtype: Dtype, k: usize) -> Scalar {
    let size = dtype.size();
    let mut bits = [0; 8];
    bits[..size].copy_from_slice(&values(dtype)[k % 5 * size..][..size]);
    Scalar::of_bits(dtype, u64::from_le_bytes(bits))
}

/// The element of a row and a column, as the bits of the table.
fn element(dtypes: &[Dtype], (row, column): (usize, usize)) -> u64 {
    let own = value(dtypes[column], row + column);
    if dtypes.iter().all(|dtype| *dtype == dtypes[0]) { own.bits() } else { own.as_f64().to_bits() }
}

/// A table of such columns.
fn table(dtypes: &[Dtype], rows: usize, grains: &[u64]) -> Result<SideBySide> {
    let column = |(k, dtype): (usize, &Dtype)| {
        let bytes = (0..rows).flat_map(|row| value(*dtype, row + k).bits().to_le_bytes()[..dtype.size()].to_vec());
        let own = Own { dtype: *dtype, bytes: bytes.collect(), grains: grains.to_vec() };
        (format!("c{k}"), Input::from(own))
    };
    SideBySide::new(Path::new("t.parquet"), dtypes.iter().enumerate().map(column).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_range_has_the_elements_of_its_columns(
        dtypes in prop_oneof![
            prop::collection::vec(prop::sample::select(Dtype::ALL), 1..30),
            (prop::sample::select(Dtype::ALL), 1..30usize).prop_map(|(dtype, width)| vec![dtype; width]),
        ],
        rows in prop_oneof![0..40usize, 4000..5000usize],
        ends in (0.0..1.0f64, 0.0..1.0f64),
    ) {
        let table = table(&dtypes, rows, &[]).unwrap();
        let (size, width, count) = (table.dtype().size(), dtypes.len(), rows * dtypes.len());
        prop_assert_eq!(table.shape(), Some(&[rows as u64, width as u64][..]));
        prop_assert_eq!(table.rows(), count as u64);
        let place = |end: f64| (end * (count + 1) as f64) as usize;
        let (first, end) = (place(ends.0.min(ends.1)), place(ends.0.max(ends.1)));
        let mut read = vec![0xAA; (end - first) * size];
        table.read(first as u64, &mut read).unwrap();
        for (place, own) in (first..end).zip(read.chunks_exact(size)) {
            let bits = element(&dtypes, (place / width, place % width)).to_le_bytes();
            prop_assert_eq!(own, &bits[..size], "element {} of {:?}", place, &dtypes);
        }
    }
}

#[test]
fn grains_begin_at_the_first_element_of_their_rows() {
    let table = table(&[Dtype::F32; 3], 100, &[0, 40, 80]).unwrap();
    assert_eq!((table.grains(), table.decodes()), (&[0, 120, 240][..], true));
}

#[test]
fn columns_that_do_not_fit_together_are_refused() {
    let of = |columns: Vec<(&str, Input<'static>)>| {
        let columns = columns.into_iter().map(|(name, column)| (name.to_owned(), column)).collect();
        SideBySide::new(Path::new("t.parquet"), columns)
    };
    let list = |rows: usize| Input::from(vec![1.0; rows]);
    says(of(vec![]), &["t.parquet: has no columns to put side by side; name one column at least"]);
    let differ = ["'b' has 4 rows, but 'a' has 3; name columns with as many rows"];
    says(of(vec![("a", list(3)), ("b", list(4))]), &differ);
    let wide = Npy::open(fixture("rank2")).unwrap();
    assert_eq!(wide.shape().map(<[u64]>::len), Some(2), "what the test needs");
    says(of(vec![("a", wide.into())]), &["'a' has several dimensions"]);
    let beyond = table(&[Dtype::U8; 2], 5, &[]).unwrap().read(9, &mut [0; 2]);
    says(beyond, &["2 rows from 9 on were requested, but it has 10 rows"]);
}

#[test]
#[cfg(feature = "parquet")]
fn names_behind_the_last_colon_of_a_table_are_columns() {
    let parse = |text: &str| {
        let NamedFile { path, columns, dtype, .. } = NamedFile::parse(text.as_ref()).unwrap();
        (path.to_str().unwrap().to_owned(), columns, dtype)
    };
    let names = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect::<Vec<_>>());
    for (text, path, columns) in [
        ("t.parquet:price,size", "t.parquet", names(&["price", "size"])),
        ("t.pq:a,", "t.pq", names(&["a"])),
        ("s3://b/t.PARQUET:*", "s3://b/t.PARQUET", names(&["*"])),
        ("sales/*/*.parquet:a b,2,ä", "sales/*/*.parquet", names(&["a b", "2", "ä"])),
        ("t.parquet", "t.parquet", None),
        ("t.parquet:", "t.parquet:", None),
        ("a,b:1,2.npy", "a,b:1,2.npy", None),
    ] {
        assert_eq!(parse(text), (path.to_owned(), columns, None), "{text}");
    }
    let one = NamedFile::parse("t.pq:price".as_ref()).unwrap();
    assert_eq!((one.field.as_deref(), one.columns), (Some("price"), None));
    assert_eq!(parse("t.parquet:f64"), ("t.parquet".into(), None, Some(Dtype::F64)));
    let output = NamedFile::parse("t.parquet:price".as_ref()).unwrap();
    says(output.create(), &["t.parquet: is written with columns that have the names of the outputs; leave"]);
}

/// Columns of one file have the same version, which must be seen however many there are.
#[test]
fn a_change_of_the_file_is_a_change_of_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.u8");
    for count in [1, 2, 128, 256] {
        std::fs::write(&path, [1, 2, 3]).unwrap();
        let columns = (0..count).map(|k| (format!("c{k}"), crate::io::open(&path, Some(Dtype::U8)).unwrap()));
        let table = SideBySide::new(&path, columns.collect()).unwrap();
        let versions: HashSet<_> = (0..20)
            .map(|second| {
                let time = UNIX_EPOCH + Duration::from_secs(second);
                File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
                table.version().unwrap()
            })
            .collect();
        assert_eq!(versions.len(), 20, "{count} columns");
    }
}
