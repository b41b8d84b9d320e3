//! Slices, generators, raw files, and what a job is given.

use super::*;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Stands for `Job::input`.
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
    for input in [input(&flags), input(&flags[..]), input(&[true, false, true])] {
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
    for reading in [Reading::Map, Reading::Pread, Reading::Direct] {
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
    for dtype in Dtype::ALL {
        fs::write(&path, values(dtype)).unwrap();
        for reading in [Reading::Map, Reading::Pread, Reading::Direct] {
            let raw = Raw::open_with(&path, dtype, reading).unwrap();
            assert_eq!((raw.rows(), raw.memory().is_some()), (5, reading == Reading::Map));
            assert_eq!(read_all(&raw, 2), values(dtype));
        }
    }
    fs::write(&path, [0; 10]).unwrap();
    says(
        Raw::open(&path, Dtype::F32),
        &["x.bin: its 10 bytes are no whole number of f32 (4 bytes each); check the dtype"],
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
    let error = says(open(&raw, None), &["x.bin: not .npy: add the dtype, as in x=", "x.bin:f32"]);
    assert!(error.is_usage());
    assert_eq!(open(&raw, Some(Dtype::F32)).unwrap().source().rows(), 2);
    assert_eq!(open(fixture("le_i16"), None).unwrap().source().dtype(), Dtype::I16);
    assert_eq!(open(fixture("le_i16"), Some(Dtype::I16)).unwrap().source().dtype(), Dtype::I16);
    assert!(says(open(fixture("le_i16"), Some(Dtype::F32)), &["holds i16, not f32"]).is_usage());

    for (name, dtype, npy) in [("y.NPY", Some(Dtype::F32), true), ("y.bin", None, false)] {
        let path = dir.path().join(name);
        let output = create(&path, dtype, false);
        assert_eq!((output.target().dtype(), output.target().path()), (dtype, Some(path.as_path())));
        assert!(output.target().cast());
        output.open(Dtype::F32, 0, None).unwrap().commit().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), if npy { 128 } else { 0 });
        says(create(&path, dtype, false).open(Dtype::F32, 0, None), &["exists already"]);
        create(&path, dtype, true).open(Dtype::F32, 0, None).unwrap().commit().unwrap();
    }
}

#[test]
fn one_file_under_two_names() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let around = dir.path().join("..").join(dir.path().file_name().unwrap()).join("a");
    assert!(same_file(&a, &a) && same_file(&a, &around), "files that are to come");
    assert!(!same_file(&a, &b) && !same_file(&a, Path::new("/no/such/directory/a")));
    fs::write(&a, b"a").unwrap();
    assert!(!same_file(&a, &b));
    assert!(same_file(&a, &around));
    fs::hard_link(&a, &b).unwrap();
    assert!(same_file(&a, &b));
    fs::remove_file(&b).unwrap();
    std::os::unix::fs::symlink(&a, &b).unwrap();
    assert!(same_file(&a, &b));
}
