//! `.npy` files in Fortran order.

use super::*;
use proptest::prelude::*;
use std::fs;
use std::path::Path;

/// The row with this number in the bytes of a file, in one of the byte orders.
fn element(row: u64, dtype: Dtype, is_big: bool) -> Vec<u8> {
    let mixed = row.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let little = mixed[..dtype.size()].iter().copied();
    if is_big { little.rev().collect() } else { little.collect() }
}

/// Returns the rows from number `first` on in the byte order of this machine.
fn rows(first: u64, rows: u64, dtype: Dtype) -> Vec<u8> {
    (first..first + rows).flat_map(|row| element(row, dtype, cfg!(target_endian = "big"))).collect()
}

/// How the rows of an array are stored.
#[derive(Clone, Debug)]
struct Layout {
    dtype: Dtype,
    is_big: bool,
    is_fortran: bool,
    version: u8,
    /// Bytes around each element, which is then the field `x` of a record.
    around: Option<(usize, usize)>,
}

impl Layout {
    /// Returns a file with the rows of an array of this shape. In Fortran order, the first index changes first.
    fn file(&self, first: u64, shape: &[u64]) -> Vec<u8> {
        let Layout { dtype, is_big, is_fortran, version, around } = self;
        let rows: u64 = shape.iter().product();
        let kind = match dtype {
            Dtype::U8 => "u1",
            Dtype::F16 => "f2",
            Dtype::I32 => "i4",
            _ => "f8",
        };
        let order = if dtype.size() == 1 { '|' } else { ['<', '>'][usize::from(*is_big)] };
        let (before, after) = around.unwrap_or_default();
        let descr = match around {
            None => format!("'{order}{kind}'"),
            Some(_) => format!("[('a', '|V{before}'), ('x', '{order}{kind}'), ('b', '|V{after}')]"),
        };
        let lengths: String = shape.iter().map(|length| format!("{length}, ")).collect();
        let fortran = if *is_fortran { "True" } else { "False" };
        let text = format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': ({lengths}), }}\n");
        let len = (text.len() as u32).to_le_bytes();
        let len = if *version == 1 { &len[..2] } else { &len[..] };
        let mut file = [b"\x93NUMPY", &[*version, 0][..], len, text.as_bytes()].concat();
        for stored in 0..rows {
            let (mut rest, mut row, mut stride) = (stored, 0, rows);
            // In C order, the index along the first dimension counts most, and along each next one less.
            for length in shape.iter().filter(|_| *is_fortran) {
                stride /= length;
                row += rest % length * stride;
                rest /= length;
            }
            let row = if *is_fortran { row } else { stored };
            file.extend(std::iter::repeat_n(0xbb, before));
            file.extend(element(first + row, *dtype, *is_big));
            file.extend(std::iter::repeat_n(0xcc, after));
        }
        file
    }
}

fn layouts() -> impl Strategy<Value = Layout> {
    let dtypes = &[Dtype::U8, Dtype::F16, Dtype::I32, Dtype::F64];
    let around = prop_oneof![2 => Just(None), 1 => (1usize..20, 1usize..20).prop_map(Some)];
    (prop::sample::select(&dtypes[..]), any::<bool>(), any::<bool>(), 1u8..=3, around)
        .prop_map(|(dtype, is_big, is_fortran, version, around)| Layout { dtype, is_big, is_fortran, version, around })
}

fn shapes() -> impl Strategy<Value = Vec<u64>> {
    prop_oneof![
        prop::collection::vec(0u64..7, 0..=4),
        (50u64..900, 1u64..40).prop_map(|(high, wide)| vec![high, wide]),
        (1u64..4, 500u64..3000, 1u64..4).prop_map(|(high, wide, deep)| vec![high, wide, deep]),
    ]
}

/// Opens a file, or the files of a pattern, in every way: with system calls, past the page cache, and by a map.
fn opened(name: &Path, is_field: bool) -> Vec<Input<'static>> {
    let named = NamedFile::parse(name.as_os_str()).unwrap();
    let named = if is_field { named.with_field("x") } else { named };
    let read = |reading| named.open(reading).unwrap();
    // SAFETY: nobody writes to the files.
    vec![read(ReadMode::Pread), read(ReadMode::Direct), unsafe { named.map() }.unwrap()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn rows_are_elements_in_c_order(
        (layout, shape) in (layouts(), shapes()),
        ranges in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 5),
    ) {
        let layout = Layout { is_fortran: true, ..layout };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        fs::write(&path, layout.file(0, &shape)).unwrap();
        let (all, size): (u64, _) = (shape.iter().product(), layout.dtype.size());
        let expected = rows(0, all, layout.dtype);
        for input in opened(&path, layout.around.is_some()) {
            let source = input.source();
            prop_assert_eq!((source.dtype(), source.rows(), source.shape()), (layout.dtype, all, Some(&shape[..])));
            prop_assert!(read_all(source, 1000) == expected);
            for (a, b) in &ranges {
                let (a, b) = (a.index(all as usize + 1), b.index(all as usize + 1));
                let (first, end) = (a.min(b), a.max(b));
                let mut dst = vec![0xaa; (end - first) * size];
                source.read(first as u64, &mut dst).unwrap();
                prop_assert!(dst == expected[first * size..end * size], "{first} {end} of {shape:?}");
            }
            prop_assert!(source.read(all, &mut vec![0; size]).is_err());
            prop_assert!(source.read(0, &mut []).is_ok());
            let is_other = all > 0 && shape.iter().filter(|length| **length > 1).count() > 1;
            prop_assert!(!is_other || memory_of(source).unwrap().is_none());
            let warning = source.warning().unwrap_or_default();
            prop_assert_eq!(warning.contains("is in Fortran order"), is_other, "{}", warning);
        }
    }

    /// Files in both orders are joined along the first dimension.
    #[test]
    fn files_in_both_orders_are_one_input(
        parts in prop::collection::vec((layouts(), 0u64..40), 2..6),
        inner in prop::collection::vec(1u64..8, 0..3),
        dtype in prop::sample::select(&[Dtype::U8, Dtype::F64][..]),
        ranges in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 10),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut all = 0;
        for (part, (layout, length)) in parts.iter().enumerate() {
            let shape = [&[*length], &inner[..]].concat();
            let layout = Layout { dtype, around: None, ..layout.clone() };
            fs::write(dir.path().join(format!("x-{part}.npy")), layout.file(all, &shape)).unwrap();
            all += shape.iter().product::<u64>();
        }
        let (expected, size) = (rows(0, all, dtype), dtype.size());
        let shape = [&[parts.iter().map(|(_, length)| length).sum()], &inner[..]].concat();
        for input in opened(&dir.path().join("x-*.npy"), false) {
            let source = input.source();
            prop_assert_eq!((source.rows(), source.shape()), (all, Some(&shape[..])));
            for (a, b) in &ranges {
                let (a, b) = (a.index(all as usize + 1), b.index(all as usize + 1));
                let (first, end) = (a.min(b), a.max(b));
                let mut dst = vec![0xaa; (end - first) * size];
                source.read(first as u64, &mut dst).unwrap();
                prop_assert!(dst == expected[first * size..end * size], "{first} {end} of {shape:?}");
            }
        }
    }
}

#[test]
fn fields_that_numpy_wrote_in_fortran_order() {
    for (field, expected) in [
        ("id", (0..6u16).flat_map(u16::to_ne_bytes).collect::<Vec<_>>()),
        ("größe", (0..6u8).flat_map(|k| (f64::from(k) / 2.0).to_ne_bytes()).collect()),
    ] {
        let npy = Npy::field(fixture("fortran_records"), field).unwrap();
        assert_eq!((npy.shape(), (1..7).all(|step| read_all(&npy, step) == expected)), (Some(&[2, 3][..]), true));
    }
}

#[test]
fn the_report_says_why_a_map_is_not_used_in_place() {
    // SAFETY: nobody writes to fixtures.
    let npy = unsafe { Npy::map(fixture("fortran")) }.unwrap();
    assert!(npy.memory().is_none());
    let note = "fortran.npy is in Fortran order, so its rows are gathered and not used in place; for repeated use, \
                save it with numpy.save(path, numpy.ascontiguousarray(array))";
    assert!(npy.warning().unwrap().ends_with(note), "{:?}", npy.warning());
    let warning = Npy::field(fixture("fortran_records"), "id").unwrap().warning().unwrap();
    let notes = ["holds records, of which", "; it is in Fortran order, so"];
    assert!(notes.iter().all(|note| warning.contains(note)), "{warning}");
}

#[test]
fn a_file_that_is_cut_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.npy");
    let layout = Layout { dtype: Dtype::F64, is_big: false, is_fortran: true, version: 1, around: None };
    let file = layout.file(0, &[1000, 5]);
    fs::write(&path, &file[..file.len() - 1]).unwrap();
    says(Npy::open(&path), &["x.npy: short file: ", "its header says"]);
    fs::write(&path, &file).unwrap();
    let npy = Npy::open(&path).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(file.len() as u64 - 8).unwrap();
    // The last element of the file is that of the last row.
    says(npy.read(0, &mut vec![0; 40_000]), &["x.npy: it became shorter than 5000 rows"]);
    npy.read(0, &mut vec![0; 39_992]).unwrap();
    says(npy.read(4999, &mut [0; 16]), &["x.npy: rows from 4999 on were requested, but it has 5000 rows"]);
}
