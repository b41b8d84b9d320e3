//! Slices, generators, raw files, and other inputs of a job.

use super::*;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Stands in for `Job::input`.
fn input<'a>(input: impl Into<Input<'a>>) -> Input<'a> {
    input.into()
}

#[test]
fn inputs_of_many_kinds() {
    let vec = vec![1.0f64, 2.0, 3.0];
    let dir = tempfile::tempdir().unwrap();
    let raw = dir.path().join("a.f64");
    fs::write(&raw, bytemuck::cast_slice::<f64, u8>(&vec)).unwrap();
    let raw = Raw::open(&raw, Dtype::F64).unwrap();
    let generator = || {
        Generator::new(3, |first, rows: &mut [f64]| {
            rows.fill_with({
                let mut at = first;
                move || {
                    at += 1;
                    at as f64
                }
            })
        })
    };
    let boxed: Box<dyn Source> = Box::new(generator());
    for input in [
        input(&vec),
        input(&vec[..]),
        input(&[1.0, 2.0, 3.0]),
        input(vec.clone()),
        input(std::sync::Arc::<[f64]>::from(&vec[..])),
        input(&raw),
        input(generator()),
        input(boxed),
        input(Raw::open(dir.path().join("a.f64"), Dtype::F64).unwrap()),
    ] {
        let source = input.source();
        assert_eq!((source.dtype(), source.rows()), (Dtype::F64, 3), "{input:?}");
        for step in [1, 2, 3] {
            assert_eq!(read_all(source, step), bytemuck::cast_slice::<f64, u8>(&vec), "{input:?}");
        }
        if let Some(memory) = memory_of(source).unwrap() {
            assert_eq!(memory.bytes(), bytemuck::cast_slice::<f64, u8>(&vec));
        }
    }
    assert_eq!(input(&vec).source().memory().unwrap().bytes().as_ptr(), vec.as_ptr().cast());
    let npy = Npy::open(fixture("le_f64")).unwrap();
    assert_eq!(input(&npy).source().shape(), npy.shape());
    assert_eq!(input(&npy).source().path(), npy.path());
}

#[test]
fn slices_of_bool_are_bytes() {
    let flags = vec![true, false, true];
    let shared = std::sync::Arc::<[bool]>::from(&flags[..]);
    for input in [input(&flags), input(&flags[..]), input(&[true, false, true]), input(flags.clone()), input(shared)] {
        assert_eq!((input.source().dtype(), input.source().rows()), (Dtype::Bool, 3));
        assert_eq!(memory_of(input.source()).unwrap().unwrap().bytes(), [1, 0, 1]);
    }
}

#[test]
fn nothing_is_a_dataset_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("empty");
    fs::write(&path, b"").unwrap();
    for input in [
        input(&[0f64; 0]),
        input(Raw::open(&path, Dtype::F64).unwrap()),
        input(Npy::open(fixture("empty")).unwrap()),
        input(Generator::new(0, |_, _: &mut [f64]| {})),
    ] {
        assert_eq!(input.source().rows(), 0);
        input.source().read(0, &mut []).unwrap();
        memory_of(input.source()).unwrap();
    }
}

#[test]
fn reading_beyond_the_end_is_an_error() {
    let values = [1u16, 2, 3];
    says(input(&values).source().read(2, &mut [0; 4]), &["slice", "has 3 rows"]);
    for reading in [ReadMode::Pread, ReadMode::Direct] {
        let npy = Npy::open_with(fixture("le_i16"), reading).unwrap();
        for (first, len) in [(5, 2), (0, 12), (u64::MAX, 2), (u64::MAX / 2, 4)] {
            says(npy.read(first, &mut vec![0; len]), &["le_i16.npy", "it has 5 rows"]);
        }
    }
}

#[test]
fn generators_fill_any_buffer() {
    let calls = AtomicUsize::new(0);
    let generator = Generator::new(100, |first, rows: &mut [u32]| {
        calls.fetch_add(1, Ordering::Relaxed);
        for (value, row) in (first as u32..).zip(rows) {
            *row = value;
        }
    });
    let mut buffer = [0u64; 4];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut buffer);
    for at in 0..8 {
        generator.read(7, &mut bytes[at..at + 8]).unwrap();
        assert_eq!(bytes[at..at + 8], bytemuck::cast::<[u32; 2], [u8; 8]>([7, 8]));
    }
    assert_eq!(calls.load(Ordering::Relaxed), 8);
    says(generator.read(0, &mut bytes[..5]), &["generator: 5 bytes"]);
}

#[test]
fn sources_from_outside_are_checked() {
    struct Wrong(Vec<u64>, u64);
    impl Source for Wrong {
        fn dtype(&self) -> Dtype {
            Dtype::U64
        }
        fn rows(&self) -> u64 {
            self.1
        }
        fn name(&self) -> String {
            "wrong".into()
        }
        fn read(&self, _: u64, _: &mut [u8]) -> Result<()> {
            Ok(())
        }
        fn memory(&self) -> Option<Memory<'_>> {
            Memory::new(bytemuck::cast_slice(&self.0), self.dtype())
        }
    }
    assert!(memory_of(&Wrong(vec![1, 2], 2)).unwrap().is_some());
    says(memory_of(&Wrong(vec![1, 2], 3)), &["wrong: its Source says 3 rows of u64", "16 bytes"]);
    says(memory_of(&Wrong(vec![1, 2], u64::MAX)), &["wrong"]);
}

#[test]
fn raw_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.bin");
    for &dtype in Dtype::ALL {
        fs::write(&path, values(dtype)).unwrap();
        // SAFETY: nobody else knows the file.
        let mapped = unsafe { Raw::map(&path, dtype) }.unwrap();
        assert!(mapped.memory().is_some());
        let read = [ReadMode::Pread, ReadMode::Direct].map(|reading| Raw::open_with(&path, dtype, reading).unwrap());
        assert!(read.iter().all(|raw| raw.memory().is_none()));
        for raw in [mapped].iter().chain(&read) {
            assert_eq!(raw.rows(), 5);
            assert_eq!(read_all(raw, 2), values(dtype));
        }
    }
    fs::write(&path, [0; 10]).unwrap();
    says(
        Raw::open(&path, Dtype::F32),
        &["x.bin: its 10 bytes are not a whole number of f32 (4 bytes each); check the dtype"],
    );
}

#[test]
fn what_cannot_be_opened() {
    let dir = tempfile::tempdir().unwrap();
    says(Npy::open(dir.path().join("no.npy")), &["no.npy: cannot be opened (No such file", "; check the path"]);
    says(Npy::open(dir.path()), &["is a directory; name a file"]);
    says(Raw::open("/dev/null", Dtype::U8), &["/dev/null: is not a regular file"]);
    let fifo = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    if made.is_ok_and(|status| status.success()) {
        says(Raw::open(&fifo, Dtype::U8), &["pipe: is not a regular file"]);
    }
}

#[test]
fn formats_go_by_the_name() {
    let dir = tempfile::tempdir().unwrap();
    let raw = dir.path().join("x.bin");
    fs::write(&raw, [0; 8]).unwrap();
    let error = says(open(&raw, None), &["x.bin: not .npy: add the dtype, such as f32, or write ", "x.bin:f32"]);
    assert!(error.is_usage());
    assert_eq!(open(&raw, Some(Dtype::F32)).unwrap().source().rows(), 2);
    assert_eq!(open(fixture("le_i16"), None).unwrap().source().dtype(), Dtype::I16);
    assert_eq!(open(fixture("le_i16"), Some(Dtype::I16)).unwrap().source().dtype(), Dtype::I16);
    assert!(says(open(fixture("le_i16"), Some(Dtype::F32)), &["holds i16, not f32"]).is_usage());

    for (name, dtype, npy) in [("y.NPY", Some(Dtype::F32), true), ("y.bin", None, false)] {
        let path = dir.path().join(name);
        let output = Output::from(create(&path, dtype).unwrap());
        assert_eq!((output.target().dtype(), output.target().path()), (dtype, Some(path.as_path())));
        assert!(output.target().cast());
        output.open(Dtype::F32, 0, None).unwrap().commit().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), if npy { 128 } else { 0 });
        says(Output::from(create(&path, dtype).unwrap()).open(Dtype::F32, 0, None), &["exists already"]);
        let forced = Output::from(create(&path, dtype).unwrap().force(true));
        forced.open(Dtype::F32, 0, None).unwrap().commit().unwrap();
    }
}

#[test]
fn files_of_other_formats_are_not_raw() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let rows = [0; 16];
    for (name, bytes, what) in [
        ("t.CSV", &rows[..], "is a CSV or TSV file"),
        ("t.raw.gz", &rows, "is a compressed file, not a raw file; decompress it first"),
        ("noext", b"\x93NUMPY\x01\x00........", "is a .npy file under another name, not a raw file; rename it"),
        ("a.raw", b"PK\x03\x04............", "is a .npz or other archive"),
        ("c.raw", b"Obj\x01............", "is an Avro file"),
        ("d.raw", b"\x1f\x8b\x08.............", "is compressed by gzip"),
        ("e.raw", b"\x28\xb5\x2f\xfd............", "is compressed by zstd"),
        ("f.raw", b"\x89HDF\r\n\x1a\n........", "is an HDF5 file"),
    ] {
        let path = file(name, bytes);
        let insist =
            format!("to read its bytes as rows anyway, open it as a raw file, or write {}:f64!", path.display());
        for dtype in [None, Some(Dtype::F64)] {
            says(open(&path, dtype), &[name, what, &insist]);
        }
        let named = NamedFile::parse(format!("{}:f64!", path.display()).as_ref()).unwrap();
        assert_eq!(named.open(ReadMode::Pread).unwrap().source().rows(), 2, "{name}");
        assert_eq!(Raw::open(&path, Dtype::F64).unwrap().rows(), 2, "{name}");
    }
    for name in ["x.raw", "x.bin", "x.f64", "x"] {
        open(file(name, &rows), Some(Dtype::F64)).unwrap();
    }
    for (name, what) in [("o.h5", "an HDF5 file"), ("o.npz", "a .npz archive"), ("o.csv", "a CSV or TSV file")] {
        let path = dir.path().join(name);
        says(
            create(&path, None),
            &[name, &format!("has the name of {what}, which cannot be written; write a .npy file")],
        );
        let _ = NamedFile::parse(format!("{}:f64!", path.display()).as_ref()).unwrap().create().unwrap();
    }
}

#[test]
fn what_is_no_file_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let read = |path: &Path| open(path, Some(Dtype::F64));
    says(read(Path::new("-")), &["-: standard input and output cannot be used; name a file"]);
    says(create("-", None), &["-: standard input and output cannot be used"]);
    let kind = if cfg!(feature = "remote") { "of another kind than those" } else { "which this build" };
    says(read(Path::new("ftp://b/x.npy")), &["ftp://b/x.npy: is a URL", kind, "copy the data to a disk first"]);
    says(create("s3://b/x", None), &["s3://b/x: is a URL, and outputs are files; write a file"]);
    says(create("s3://b/x.npy", None), &["is a URL, and outputs are files"]);
    says(read(&at("*.npy")), &["*.npy: no file has a name of this pattern; check the path"]);
    says(open(dir.path(), None), &["is a folder without files; check the path"]);
    says(Raw::open(dir.path(), Dtype::U8), &["is a directory; name a file"]);
    says(open(at("none.raw"), None), &["none.raw: cannot be opened (No such file", "check the path"]);
    says(create(at("new/"), None), &["new/: ends with '/'"]);
    fs::write(at("[1]*.raw"), [0; 8]).unwrap();
    read(&at("[1]*.raw")).unwrap();
}

#[test]
fn a_word_behind_the_last_colon_is_a_dtype() {
    let parse = |text: &str| {
        let NamedFile { path, dtype, is_raw, .. } = NamedFile::parse(text.as_ref())?;
        Ok((path.to_str().unwrap().to_owned(), dtype, is_raw))
    };
    for (text, path, dtype, is_raw) in [
        ("x.f32:f32", "x.f32", Some(Dtype::F32), false),
        ("x.raw:float64", "x.raw", Some(Dtype::F64), false),
        ("x.raw:float16", "x.raw", Some(Dtype::F16), false),
        ("x.raw:bfloat16", "x.raw", Some(Dtype::Bf16), false),
        ("x.raw:uint8!", "x.raw", Some(Dtype::U8), true),
        ("a:b:i8", "a:b", Some(Dtype::I8), false),
        ("a:b=c.npy", "a:b=c.npy", None, false),
        ("run_10:30", "run_10:30", None, false),
        ("s3://b/x", "s3://b/x", None, false),
        ("x.npy", "x.npy", None, false),
    ] {
        assert_eq!(parse(text).unwrap(), (path.to_owned(), dtype, is_raw), "{text}");
    }
    let shape = |text: &str| {
        let NamedFile { path, dtype, shape, .. } = NamedFile::parse(text.as_ref()).unwrap();
        (path.to_str().unwrap().to_owned(), dtype, shape)
    };
    for (text, path, lengths) in [
        ("x.raw:f32:2x30", "x.raw", &[2, 30][..]),
        ("a:b:f32!:6", "a:b", &[6]),
        ("x.raw:float32:0x1x2", "x.raw", &[0, 1, 2]),
    ] {
        assert_eq!(shape(text), (path.to_owned(), Some(Dtype::F32), Some(lengths.to_vec())), "{text}");
    }
    for text in ["x.raw:2x3", "a:b:2", "x:f32:2x", "x:f32:+2", "x:f32:99999999999999999999", "x:f32:2-3", "x:f32:3:12"]
    {
        assert_eq!(shape(text), (text.to_owned(), None, None));
    }
    for text in ["c2.npy:float128", "x.raw:f8", "x:f64x!", "a:b"] {
        let error = says(parse(text), &[text, "is not a dtype: write one of bool i8", "f64, or NumPy's name", ":f64"]);
        assert!(error.is_usage());
    }
}

#[test]
fn raw_files_may_have_a_shape() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, [1u8; 24]).unwrap();
        path.display().to_string()
    };
    let open = |text: &str| NamedFile::parse(text.as_ref())?.open(ReadMode::Pread);
    let path = file("a.raw");
    let shape = |text: &str| open(text).unwrap().source().shape().map(<[u64]>::to_vec);
    assert_eq!(shape(&format!("{path}:f32:2x3")), Some(vec![2, 3]));
    assert_eq!(shape(&format!("{path}:f32!:1x6x1")), Some(vec![1, 6, 1]));
    assert_eq!(shape(&format!("{path}:f32")), None);
    let words = ["a.raw: has 6 elements, and not those of the shape (2, 4)", "check the shape"];
    says(open(&format!("{path}:f32:2x4")), &words);
    says(open(&format!("{path}:f32:4294967296x4294967296")), &["has 6 elements"]);
    file("b.raw");
    let pattern = dir.path().join("*.raw").display().to_string();
    assert_eq!(shape(&format!("{pattern}:f32:2x3")), Some(vec![4, 3]), "each file has it");
    let own = fixture("le_f64").display().to_string();
    let length = Npy::open(&own).unwrap().rows();
    open(&format!("{own}:f64:{length}")).unwrap();
    says(open(&format!("{own}:f64:{length}x1")), &["has the shape", "leave the shape out"]);
    let output = NamedFile::parse("y.raw:f32:2x3".as_ref()).unwrap().create();
    says(output, &["y.raw: is written with the shape of its rows, and not as (2, 3)", "leave the shape out"]);
}
