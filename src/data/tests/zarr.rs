//! Arrays of Zarr stores, which are written here byte by byte. `python/tests/test_zarr.py` reads those of zarr-python
//! and tensorstore, with all codecs.

use super::tables::{bits, expected};
use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const DTYPES: [(&str, &str, Dtype); 12] = [
    ("bool", "b1", Dtype::Bool),
    ("int8", "i1", Dtype::I8),
    ("int16", "i2", Dtype::I16),
    ("int32", "i4", Dtype::I32),
    ("int64", "i8", Dtype::I64),
    ("uint8", "u1", Dtype::U8),
    ("uint16", "u2", Dtype::U16),
    ("uint32", "u4", Dtype::U32),
    ("uint64", "u8", Dtype::U64),
    ("float16", "f2", Dtype::F16),
    ("float32", "f4", Dtype::F32),
    ("float64", "f8", Dtype::F64),
];

/// How an array is written.
#[derive(Clone, Debug)]
struct How {
    dtype: usize,
    is_v2: bool,
    is_big: bool,
    /// Fortran order of version 2, and a transposition of version 3.
    is_reversed: bool,
    separator: char,
    /// Every n-th chunk is left out.
    missing: usize,
}

impl How {
    fn plain(dtype: usize) -> How {
        How { dtype, is_v2: false, is_big: false, is_reversed: false, separator: '/', missing: usize::MAX }
    }

    fn description(&self, shape: &[u64], chunk: &[u64]) -> (&'static str, Value) {
        let (name, numpy, dtype) = DTYPES[self.dtype];
        let separator = self.separator.to_string();
        let order = if self.is_big { ">" } else { "<" };
        let fill = if dtype == Dtype::Bool { json!(true) } else { json!(1) };
        if self.is_v2 {
            let dtype = format!("{}{numpy}", if dtype.size() == 1 { "|" } else { order });
            let description = json!({
                "zarr_format": 2, "shape": shape, "chunks": chunk, "dtype": dtype, "fill_value": fill,
                "order": if self.is_reversed { "F" } else { "C" }, "compressor": null, "filters": null,
                "dimension_separator": separator,
            });
            return (".zarray", description);
        }
        let mut codecs = vec![];
        if self.is_reversed {
            let order: Vec<usize> = (0..shape.len()).rev().collect();
            codecs.push(json!({"name": "transpose", "configuration": {"order": order}}));
        }
        let endian = if self.is_big { "big" } else { "little" };
        codecs.push(json!({"name": "bytes", "configuration": {"endian": endian}}));
        let description = json!({
            "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": separator}},
            "fill_value": fill, "codecs": codecs, "attributes": {"units": "K"},
        });
        ("zarr.json", description)
    }
}

/// The bits of 1, which is the fill value.
fn one(dtype: Dtype) -> u64 {
    Scalar::parse(if dtype == Dtype::Bool { "true" } else { "1" }, dtype).unwrap().bits()
}

/// Calls `with` with all indices below these lengths, in C order.
fn each_index(lengths: &[u64], mut with: impl FnMut(&[u64])) {
    for mut number in 0..lengths.iter().product::<u64>() {
        let mut index = vec![0; lengths.len()];
        for (own, length) in index.iter_mut().zip(lengths).rev() {
            (number, *own) = (number / length, number % length);
        }
        with(&index);
    }
}

/// Writes an array and returns its elements in C order.
fn write(folder: &Path, how: &How, shape: &[u64], chunk: &[u64]) -> Vec<u8> {
    let dtype = DTYPES[how.dtype].2;
    let (name, description) = how.description(shape, chunk);
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join(name), description.to_string()).unwrap();
    let rows = shape.iter().product();
    let mut values = expected(dtype, rows, None, Scalar::Bool(false));
    let size = dtype.size();
    let number = |index: &[u64]| index.iter().zip(shape).fold(0, |sum, (own, length)| sum * length + own) as usize;
    let counts: Vec<u64> = shape.iter().zip(chunk).map(|(length, chunk)| length.div_ceil(*chunk)).collect();
    let mut written = 0;
    each_index(&counts, |place| {
        written += 1;
        let is_missing = written % how.missing == 0;
        let mut bytes = vec![];
        let lengths: Vec<u64> = if how.is_reversed { chunk.iter().rev().copied().collect() } else { chunk.to_vec() };
        each_index(&lengths, |own| {
            let own: Vec<u64> = if how.is_reversed { own.iter().rev().copied().collect() } else { own.to_vec() };
            let index: Vec<u64> = place.iter().zip(chunk).zip(&own).map(|((c, l), own)| c * l + own).collect();
            let is_inside = index.iter().zip(shape).all(|(own, length)| own < length);
            let at = if is_inside { number(&index) * size } else { 0 };
            if is_inside && is_missing {
                values[at..at + size].copy_from_slice(&one(dtype).to_le_bytes()[..size]);
            }
            let mut value = if is_inside { values[at..at + size].to_vec() } else { vec![0; size] };
            if how.is_big {
                value.reverse();
            }
            bytes.extend(value);
        });
        if !is_missing {
            let parts: Vec<String> = place.iter().map(u64::to_string).collect();
            let key = match (how.is_v2, &parts[..]) {
                (true, []) => "0".into(),
                (true, parts) => parts.join(&how.separator.to_string()),
                (false, parts) => ["c"]
                    .into_iter()
                    .chain(parts.iter().map(String::as_str))
                    .collect::<Vec<_>>()
                    .join(&how.separator.to_string()),
            };
            let path = folder.join(key);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    });
    values
}

fn how() -> impl Strategy<Value = How> {
    let parts = (0..DTYPES.len(), any::<[bool; 3]>(), prop::sample::select(vec!['.', '/']), 2..6usize);
    parts.prop_map(|(dtype, [is_v2, is_big, is_reversed], separator, missing)| How {
        dtype,
        is_v2,
        is_big,
        is_reversed,
        separator,
        missing,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Any read gives the elements that were written, whatever the chunks.
    #[test]
    fn elements_are_those_that_were_written(
        how in how(),
        axes in prop::collection::vec((1u64..9, 1u64..6), 0..4),
        reads in prop::collection::vec((any::<u64>(), any::<u64>()), 1..6),
    ) {
        let (shape, chunk): (Vec<u64>, Vec<u64>) = axes.into_iter().unzip();
        // Version 3 has no transposition of no axes.
        let how = How { is_reversed: how.is_reversed && (how.is_v2 || !shape.is_empty()), ..how };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let values = write(&path, &how, &shape, &chunk);
        let array = Zarr::open(&path).unwrap();
        let dtype = DTYPES[how.dtype].2;
        prop_assert_eq!((array.dtype(), array.shape()), (dtype, Some(&shape[..])));
        prop_assert_eq!(read_all(&array, 7), &values[..]);
        for (first, len) in reads {
            let first = first % (array.rows() + 1);
            let len = len % (array.rows() - first + 1);
            let mut rows = vec![0; len as usize * dtype.size()];
            array.read(first, &mut rows).unwrap();
            prop_assert_eq!(&rows[..], &values[first as usize * dtype.size()..][..rows.len()]);
        }
    }

    /// A damaged store is an error, or reads as other numbers. It never panics.
    #[test]
    fn damaged_stores_never_panic(
        how in how(),
        file in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &how, &[5, 7], &[2, 3]);
        let mut files = Vec::new();
        let mut folders = vec![folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        files.sort();
        let path = file.get(&files);
        let mut bytes = fs::read(path).unwrap();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        fs::write(path, bytes).unwrap();
        let read = || -> Result<()> {
            let array = Zarr::open(folder.path())?;
            let rows = array.rows().min(100) as usize;
            array.read(0, &mut vec![0; rows * array.dtype().size()])
        };
        if let Err(error) = read() {
            prop_assert!(!error.to_string().contains('\n'), "{}", error);
        }
    }
}

#[test]
fn groups_have_arrays_with_names() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let group = json!({"zarr_format": 3, "node_type": "group"}).to_string();
    fs::create_dir_all(at("s.zarr/deep")).unwrap();
    fs::write(at("s.zarr/zarr.json"), &group).unwrap();
    fs::write(at("s.zarr/deep/zarr.json"), &group).unwrap();
    says(Zarr::open(at("s.zarr")), &["s.zarr: is a Zarr group without arrays"]);
    let values = write(&at("s.zarr/deep/x"), &How::plain(4), &[6, 2], &[4, 1]);
    assert_eq!(read_all(&Zarr::open(at("s.zarr")).unwrap(), 5), values, "the only one");
    write(&at("s.zarr/y"), &How::plain(2), &[3], &[3]);
    assert_eq!(read_all(&Zarr::array(at("s.zarr"), "deep/x").unwrap(), 5), values);
    let input = NamedFile::from(&*at("s.zarr")).with_field("y").open(ReadMode::default()).unwrap();
    assert_eq!(input.source().dtype(), Dtype::I16);
    says(Zarr::open(at("s.zarr")), &["is a Zarr group with the arrays deep/x, y; name one of them, as in", "deep/x"]);
    says(Zarr::array(at("s.zarr"), "z"), &["has no array 'z', only deep/x, y; check the name"]);
    says(Zarr::array(at("s.zarr/y"), "z"), &["is a Zarr array, so that it has no array 'z'"]);
    let arrays = StoredArray::all(at("s.zarr")).unwrap().unwrap();
    assert_eq!((&*arrays[0].name, &arrays[0].shape[..], &arrays[0].chunks[..]), ("deep/x", &[6, 2][..], &[4, 1][..]));
    assert_eq!((&*arrays[1].kind, arrays[1].dtype, arrays[1].format), ("int16", Some(Dtype::I16), "zarr 3"));
    assert_eq!(StoredArray::all(folder.path()).unwrap(), None);
}

#[test]
fn what_is_no_array_of_numbers_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.zarr");
    fs::create_dir(&path).unwrap();
    let opened = || open(&path, None);
    says(opened(), &["x.zarr: is no Zarr array, because it has neither zarr.json nor .zarray"]);
    let (_, good) = How::plain(11).description(&[4, 4], &[2, 2]);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut description = good.clone();
        change(&mut description);
        fs::write(path.join("zarr.json"), description.to_string()).unwrap();
    };
    with(&|d| d["codecs"] = json!([{"name": "bytes"}, {"name": "magic"}]));
    says(opened(), &["x.zarr: is a Zarr array that cannot be read", "magic"]);
    with(&|d| (d["data_type"], d["fill_value"]) = (json!("complex64"), json!([0.0, 0.0])));
    says(opened(), &["has values of complex64, which are no numbers that a job can read"]);
    with(&|d| d["shape"] = json!([4]));
    says(opened(), &["cannot be read"]);
    with(&|d| (d["shape"], d["chunk_grid"]["configuration"]["chunk_shape"]) = (json!([4, 1u64 << 38]), json!([2, 4])));
    says(
        opened(),
        &["bytes of memory for the chunks of 2 of its slabs along the first axis", "shorter along the first axis"],
    );
    with(&|d| d["shape"] = json!([1u64 << 62, 1u64 << 62]));
    says(opened(), &["more elements than can be counted"]);
    fs::write(path.join("zarr.json"), "{").unwrap();
    says(opened(), &["cannot be read"]);
}

#[test]
fn a_chunk_of_a_wrong_length_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &How::plain(10), &[10, 4], &[5, 2]);
    let array = Zarr::open(folder.path()).unwrap();
    fs::write(folder.path().join("c/1/0"), [0; 39]).unwrap();
    array.read(0, &mut [0; 80]).unwrap();
    says(array.read(20, &mut [0; 80]), &["is not a complete Zarr array: its chunk [1, 0] cannot be decoded"]);
}

#[test]
fn a_change_of_any_file_changes_the_version() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &How::plain(10), &[10, 4], &[5, 2]);
    let array = Zarr::open(folder.path()).unwrap();
    let before = array.version().unwrap();
    assert_eq!(array.version(), Some(before));
    fs::rename(folder.path().join("c/1/1"), folder.path().join("c/1/7")).unwrap();
    let renamed = array.version().unwrap();
    fs::remove_file(folder.path().join("c/1/7")).unwrap();
    let removed = array.version().unwrap();
    fs::write(folder.path().join("c/0/0"), [0; 3]).unwrap();
    let written = array.version().unwrap();
    let all = std::collections::HashSet::from([before, renamed, removed, written]);
    assert_eq!(all.len(), 4);
}

#[test]
fn files_that_cannot_be_read_are_not_missing_chunks() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &How::plain(10), &[10, 4], &[5, 2]);
    let array = Zarr::open(folder.path()).unwrap();
    let chunk = folder.path().join("c/1/0");
    fs::remove_file(&chunk).unwrap();
    array.read(20, &mut [0; 80]).unwrap();
    array.version();
    std::os::unix::fs::symlink("nowhere", &chunk).unwrap();
    says(array.read(20, &mut [0; 80]), &["its chunk [1, 0] cannot be read", "check the disk"]);
    array.version();
    fs::remove_dir_all(folder.path()).unwrap();
    says(array.read(0, &mut [0; 80]), &["its chunk [0, 0] cannot be read"]);
}

#[test]
fn pipes_are_no_chunks_and_no_descriptions() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = |name: &str| {
        let made = std::process::Command::new("mkfifo").arg(folder.path().join(name)).status();
        assert!(made.unwrap().success());
    };
    write(folder.path(), &How { is_v2: true, ..How::plain(10) }, &[10, 4], &[5, 2]);
    let array = Zarr::open(folder.path()).unwrap();
    fs::remove_file(folder.path().join("1/0")).unwrap();
    pipe("1/0");
    says(array.read(20, &mut [0; 80]), &["1/0: is not a regular file", "copy the array"]);
    // The other version of a description.
    pipe("zarr.json");
    assert_eq!(StoredArray::all(folder.path()).unwrap().unwrap()[0].dtype, Some(Dtype::F32));
}

#[test]
fn what_changes_between_two_runs_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let values = write(folder.path(), &How::plain(10), &[10, 4], &[5, 2]);
    let array = Zarr::open(folder.path()).unwrap();
    let read = || {
        let mut rows = vec![0; 40];
        array.read(0, &mut rows).unwrap();
        rows
    };
    array.version();
    assert_eq!(read(), values[..40]);
    fs::write(folder.path().join("c/0/0"), [0; 40]).unwrap();
    array.version();
    assert_ne!(read(), values[..40]);
}

#[test]
fn links_that_lead_back_are_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &How::plain(10), &[10, 4], &[5, 2]);
    for name in ["loop", "again"] {
        std::os::unix::fs::symlink(".", folder.path().join(name)).unwrap();
    }
    assert!(Zarr::open(folder.path()).unwrap().version().is_some());
}

#[test]
fn an_array_that_cannot_be_read_does_not_hide_others() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
    let values = write(&at("a"), &How { is_v2: true, ..How::plain(11) }, &[6, 2], &[4, 1]);
    let delta = json!({
        "zarr_format": 2, "shape": [5], "chunks": [2], "dtype": "<i4", "fill_value": 0, "order": "C",
        "compressor": null, "filters": [{"id": "delta", "dtype": "<i4"}],
    });
    fs::create_dir(at("b")).unwrap();
    fs::write(at("b/.zarray"), delta.to_string()).unwrap();
    let arrays = StoredArray::all(folder.path()).unwrap().unwrap();
    assert_eq!((arrays.len(), arrays[0].dtype, arrays[1].dtype), (2, Some(Dtype::F64), None));
    assert_eq!(
        (&*arrays[1].kind, &arrays[1].shape[..], &arrays[1].codecs[..]),
        ("<i4", &[5][..], &["delta".into()][..])
    );
    assert_eq!(read_all(&Zarr::array(folder.path(), "a").unwrap(), 5), values);
    says(Zarr::array(folder.path(), "b"), &["b: is a Zarr array that cannot be read", "delta"]);
    says(Zarr::array(folder.path(), "c"), &["has no array 'c', only a, b"]);
    for outside in ["../a", at("a").to_str().unwrap(), "a/../a"] {
        says(Zarr::array(folder.path(), outside), &["has no array"]);
    }
}

#[test]
fn codecs_that_the_guide_does_not_list_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |name: &str, described: &Value, codec: &str| {
        fs::write(folder.path().join(name), described.to_string()).unwrap();
        says(Zarr::open(folder.path()), &["is a Zarr array that cannot be read", codec, "the guide to formats lists"]);
        fs::remove_file(folder.path().join(name)).unwrap();
    };
    // The crate decodes this one, but confuses the byte orders of the two dtypes.
    let settings = json!({"scale": 10.0, "offset": 0.0, "dtype": "<f8", "astype": ">i2"});
    let (name, mut described) = How::plain(11).description(&[4], &[4]);
    let bytes = described["codecs"][0].clone();
    for codec in ["numcodecs.fixedscaleoffset", "packbits", "reshape", "zarrs.squeeze", "numcodecs.delta"] {
        described["codecs"] = json!([{"name": codec, "configuration": settings}, bytes]);
        refused(name, &described, codec);
    }
    let parts = json!({"chunk_shape": [2], "codecs": described["codecs"], "index_codecs": [bytes, "crc32c"]});
    described["codecs"] = json!([{"name": "sharding_indexed", "configuration": parts}]);
    refused(name, &described, "numcodecs.delta");
    let (name, mut described) = How { is_v2: true, ..How::plain(11) }.description(&[4], &[4]);
    let mut filter = settings.clone();
    filter["id"] = json!("fixedscaleoffset");
    described["filters"] = json!([filter]);
    refused(name, &described, "fixedscaleoffset");
}

#[test]
fn a_level_that_is_left_out_is_the_usual_one() {
    let folder = tempfile::tempdir().unwrap();
    let (name, plain) = How::plain(11).description(&[4], &[4]);
    for codec in ["numcodecs.zlib", "numcodecs.bz2"] {
        for added in [json!(codec), json!({"name": codec}), json!({"name": codec, "configuration": {}})] {
            let mut described = plain.clone();
            described["codecs"].as_array_mut().unwrap().push(added);
            fs::write(folder.path().join(name), described.to_string()).unwrap();
            // No chunk is stored.
            assert_eq!(read_all(&Zarr::open(folder.path()).unwrap(), 4), [1.0f64.to_le_bytes(); 4].concat());
        }
    }
    fs::remove_file(folder.path().join(name)).unwrap();
    let (name, mut described) = How { is_v2: true, ..How::plain(11) }.description(&[4], &[4]);
    described["compressor"] = json!({"id": "zlib"});
    fs::write(folder.path().join(name), described.to_string()).unwrap();
    Zarr::open(folder.path()).unwrap();
}

#[test]
fn parts_of_shards_have_as_many_axes_as_the_array() {
    let folder = tempfile::tempdir().unwrap();
    for inner in [json!([2]), json!([2, 2, 1]), json!([0, 2]), json!([3, 2])] {
        let (name, mut described) = How::plain(11).description(&[4, 4], &[4, 4]);
        let index = json!([{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]);
        let codecs = described["codecs"].take();
        let parts = json!({"chunk_shape": inner, "codecs": codecs, "index_codecs": index});
        described["codecs"] = json!([{"name": "sharding_indexed", "configuration": parts}]);
        fs::write(folder.path().join(name), described.to_string()).unwrap();
        let read = Zarr::open(folder.path()).and_then(|array| array.read(0, &mut [0; 128]));
        // Nothing is stored, which is no error in the eyes of the crate for some.
        if let Err(error) = read {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
        assert!(StoredArray::all(folder.path()).unwrap().is_some());
    }
}

#[test]
fn several_arrays_are_one_input() {
    let folder = tempfile::tempdir().unwrap();
    let mut values = Vec::new();
    for (part, rows) in [4, 1, 6].into_iter().enumerate() {
        values.extend(write(&folder.path().join(format!("p{part}.zarr")), &How::plain(5), &[rows, 3], &[2, 2]));
    }
    let input = open(folder.path().join("p*.zarr"), None).unwrap();
    let source = input.source();
    assert_eq!((source.shape(), source.decodes()), (Some(&[11, 3][..]), true));
    assert!(source.decode_memory() > 0);
    assert_eq!(read_all(source, 4), values);
    assert_eq!(bits(Dtype::U8, 1), u64::from(values[1]));
    for (group, name) in [("q0.zarr", "price"), ("q1.zarr", "size")] {
        let group = folder.path().join(group);
        write(&group.join(name), &How::plain(5), &[4, 3], &[2, 2]);
        fs::write(group.join(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
    }
    says(open(folder.path().join("q*.zarr"), None), &["q0.zarr/price holds 'price', but", "size holds 'size'"]);
}
