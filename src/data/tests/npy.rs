//! Reading what NumPy writes, and writing what NumPy would.

use super::*;
use std::fs;

/// Opens a file in every way.
fn opened(name: &str) -> [(bool, Npy); 3] {
    let path = fixture(name);
    // SAFETY: nobody writes to fixtures.
    let mapped = unsafe { Npy::map(&path) }.unwrap();
    let read = |reading| (false, Npy::open_with(&path, reading).unwrap());
    [(true, mapped), read(ReadMode::Pread), read(ReadMode::Direct)]
}

#[test]
fn every_dtype_in_both_byte_orders() {
    for &dtype in Dtype::ALL.iter().filter(|dtype| **dtype != Dtype::Bf16) {
        for order in ["le", "be"] {
            for (is_mapped, npy) in opened(&format!("{order}_{dtype}")) {
                assert_eq!((npy.dtype(), npy.rows(), npy.shape()), (dtype, 5, Some(&[5][..])));
                for step in [1, 2, 5, 9] {
                    assert_eq!(read_all(&npy, step), values(dtype), "{order} {dtype}, mapped: {is_mapped}");
                }
                let native = dtype.size() == 1 || order == if cfg!(target_endian = "little") { "le" } else { "be" };
                let in_place = native && is_mapped;
                assert_eq!(memory_of(&npy).unwrap().is_some(), in_place, "{order} {dtype}");
                if let Some(memory) = npy.memory() {
                    assert_eq!(memory.bytes(), values(dtype));
                    assert!(!memory.is_pinned());
                }
            }
        }
    }
}

#[test]
fn every_version_and_rank() {
    let cases: [(&str, Dtype, &[u64]); 11] = [
        ("v2", Dtype::F64, &[5]),
        ("v3", Dtype::F64, &[5]),
        ("rank0", Dtype::F64, &[]),
        ("rank2", Dtype::I16, &[2, 3]),
        ("rank3", Dtype::F32, &[2, 3, 4]),
        ("rank3_be", Dtype::F32, &[2, 3, 4]),
        ("empty", Dtype::F64, &[0]),
        ("empty_rank2", Dtype::U8, &[0, 3]),
        ("python2", Dtype::I32, &[3]),
        ("fortran", Dtype::F64, &[2, 3]),
        ("fortran_rank3", Dtype::F32, &[2, 3, 4]),
    ];
    for (name, dtype, shape) in cases {
        for (_, npy) in opened(name) {
            assert_eq!(npy.dtype(), dtype, "{name}");
            assert_eq!(npy.shape(), Some(shape), "{name}");
            assert_eq!(npy.rows(), shape.iter().product::<u64>(), "{name}");
            assert_eq!(npy.path(), Some(fixture(name).as_path()));
            let bytes = read_all(&npy, 2);
            match name {
                "v2" | "v3" => assert_eq!(bytes, values(dtype)),
                "rank0" => assert_eq!(bytes, 7.5f64.to_ne_bytes()),
                "rank2" => assert_eq!(bytes, bytemuck::cast_slice::<i16, u8>(&[0, 1, 2, 3, 4, 5])),
                "python2" => assert_eq!(bytes, bytemuck::cast_slice::<i32, u8>(&[0, 1, 2])),
                "fortran" => assert_eq!(bytes, bytemuck::cast_slice::<f64, u8>(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])),
                "rank3" | "rank3_be" | "fortran_rank3" => {
                    let expected: Vec<f32> = (0..24u8).map(f32::from).collect();
                    assert_eq!(bytes, bytemuck::cast_slice::<f32, u8>(&expected));
                }
                _ => assert!(bytes.is_empty()),
            }
        }
    }
}

#[test]
fn a_signal_handler_finds_the_file_of_a_map() {
    let mut path = [0; 4096];
    let [(_, mapped), (_, read), _] = opened("le_f64");
    assert!(read.memory().is_none(), "the safe way does not map");
    let at = mapped.memory().unwrap().bytes().as_ptr().addr();
    let len = mapped_path(at, &mut path).unwrap();
    assert_eq!(&path[..len], fixture("le_f64").as_os_str().as_encoded_bytes());
    assert_eq!((mapped_path(at, &mut path[..3]), mapped_path(8, &mut path)), (Some(3), None));
}

#[test]
fn rows_that_are_not_aligned_are_copied() {
    for (_, npy) in opened("misaligned") {
        assert!(npy.memory().is_none());
        assert_eq!(read_all(&npy, 2), values(Dtype::F64));
    }
}

#[test]
fn written_files_are_numpys_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let mut cases: Vec<String> = Dtype::ALL.iter().map(|dtype| format!("le_{dtype}")).collect();
    cases.retain(|name| name != "le_bf16");
    cases.extend(["rank0", "rank2", "rank3", "empty", "empty_rank2"].map(String::from));
    for name in cases {
        let source = Npy::open(fixture(&name)).unwrap();
        let path = dir.path().join(&name);
        let output: Output = Npy::create(&path).into();
        let sink = output.open(source.dtype(), source.rows(), source.shape()).unwrap();
        sink.write(0, &read_all(&source, 5)).unwrap();
        sink.commit().unwrap();
        assert!(fs::read(&path).unwrap() == fs::read(fixture(&name)).unwrap(), "{name}");
    }
}

#[test]
fn shapes_that_do_not_fit_are_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.npy");
    for shape in [None, Some(&[2, 3][..]), Some(&[1; 65][..]), Some(&[u64::MAX, 2][..])] {
        let sink = Output::from(Npy::create(&path).force(true)).open(Dtype::U8, 1, shape).unwrap();
        sink.write(0, &[7]).unwrap();
        sink.commit().unwrap();
        let npy = Npy::open(&path).unwrap();
        assert_eq!(npy.shape(), Some(&[1][..]));
    }
}

#[test]
fn other_dtypes_are_refused() {
    for (name, parts) in [
        ("object", &["Python objects ('|O')", "astype"][..]),
        ("structured", &["structured dtype", "t.price is the field 'price' of t"]),
        ("structured_v3", &["structured dtype"]),
        ("bfloat16", &["plain bytes, as NumPy writes bfloat16 ('|V2')", "x.bf16"]),
        ("long_double", &["long double", "astype('f8')"]),
        ("complex", &["complex numbers ('<c8')", "array.real"]),
        ("datetime", &["dates or times ('<M8[ns]')", "view('i8')"]),
        ("timedelta", &["dates or times ('<m8[s]')"]),
        ("text", &["text ('<U2')"]),
        ("bytes", &["text ('|S2')"]),
        ("void", &["plain bytes ('|V3')", "view('u1')"]),
    ] {
        let error = says(Npy::open(fixture(name)), parts);
        assert!(error.to_string().contains(&format!("{name}.npy: ")), "{error}");
        assert!(!error.is_usage());
    }
    // Other programs may write the name of the type, without a byte order.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.npy");
    let header = "{'descr': 'float64', 'fortran_order': False, 'shape': (0,), }";
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    fs::write(&path, [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes()].concat()).unwrap();
    says(Npy::open(&path), &["holds an unknown dtype ('float64')", "save it again with numpy.save"]);
}

#[test]
fn broken_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.npy");
    let whole = fs::read(fixture("le_f64")).unwrap();
    let open = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        Npy::open(&path)
    };
    says(open(b""), &["x.npy: is not a .npy file; save it with numpy.save"]);
    says(open(b"text"), &["is not a .npy file"]);
    says(open(b"PK\x03\x04zip"), &["is a .npz archive"]);
    for n in 6..128 {
        says(
            open(&whole[..n]),
            &["x.npy: its header ends early", &format!("after {n} bytes"), "copy or save it again"],
        );
    }
    for n in 128..168 {
        says(open(&whole[..n]), &[&format!("short file: {n} bytes, its header says 168")]);
    }
    // Bytes after the rows are not read; NumPy does not read them either.
    let npy = open(&[&whole[..], b"more"].concat()).unwrap();
    assert_eq!((npy.rows(), read_all(&npy, 5)), (5, values(Dtype::F64)));
}

#[test]
fn a_file_that_shrinks_is_an_error_when_it_is_read_by_calls() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.npy");
    fs::copy(fixture("le_f64"), &path).unwrap();
    let npy = Npy::open_with(&path, ReadMode::Pread).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(150).unwrap();
    says(npy.read(0, &mut [0; 40]), &["x.npy: it became shorter than 5 rows"]);
    npy.read(0, &mut [0; 16]).unwrap();
}

#[test]
fn bf16_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("y.npy");
    says(Output::from(Npy::create(&path)).open(Dtype::Bf16, 3, None), &["NumPy has no such dtype", "y.bf16"]);
    assert!(!path.exists());
}
