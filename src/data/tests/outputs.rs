//! Sinks: what is written stands there, what is not finished leaves no trace.

use super::*;
use crate::data::new_file::FileSink;
use crate::data::npy;
use crate::data::partial::Partial;
use crate::data::raw::no_header;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::thread;

/// Stands for `Job::output`.
fn output<'a>(output: impl Into<Output<'a>>) -> Output<'a> {
    output.into()
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A file system that cannot reserve space.
fn unreserved(file: &File, len: u64) -> io::Result<bool> {
    file.set_len(len).map(|()| false)
}

fn full(_: &File, _: u64) -> io::Result<bool> {
    Err(io::ErrorKind::StorageFull.into())
}

/// Writes the row numbers 0 to `rows` as u32 from several threads, each chunk in place or by a call.
fn write_rows(sink: &dyn Sink, rows: u64, chunk_rows: u64) {
    let next = std::sync::atomic::AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let start = index * chunk_rows;
                    if start >= rows {
                        break;
                    }
                    let chunk = start..rows.min(start + chunk_rows);
                    let values: Vec<u32> = chunk.clone().map(|row| row as u32).collect();
                    match sink.memory() {
                        Some(memory) if index.is_multiple_of(2) => {
                            memory.claim(chunk).copy_from_slice(bytemuck::cast_slice(&values));
                        }
                        _ => sink.write(start, bytemuck::cast_slice(&values)).unwrap(),
                    }
                }
            });
        }
    });
}

fn row_numbers(rows: u64) -> Vec<u8> {
    (0..rows as u32).flat_map(u32::to_ne_bytes).collect()
}

#[test]
fn slices_of_every_kind() {
    let rows = 1000;
    let (mut vec, mut array) = (vec![0u32; rows], [0u32; 1000]);
    for output in [output(&mut vec), output(&mut array)] {
        assert_eq!((output.target().dtype(), output.target().rows()), (Some(Dtype::U32), Some(1000)));
        assert!(!output.target().cast());
        let sink = output.open(Dtype::U32, 1000, Some(&[10, 100])).unwrap();
        write_rows(&*sink, 1000, 7);
        sink.commit().unwrap();
    }
    assert_eq!(bytemuck::cast_slice::<u32, u8>(&vec), row_numbers(1000));
    assert_eq!(vec, array);

    let mut flags = [false; 5];
    let sink = output(&mut flags[..]).open(Dtype::Bool, 5, None).unwrap();
    assert!(sink.memory().is_none(), "a byte is not a bool");
    sink.write(3, &[0, 255]).unwrap();
    sink.write(0, &[1, 0, 2]).unwrap();
    says(sink.write(0, &[1; 6]), &["do not fit the output slice"]);
    sink.commit().unwrap();
    assert_eq!(flags, [true, false, true, false, true]);
    output(&mut vec![true]).open(Dtype::Bool, 1, None).unwrap();
}

#[test]
fn slices_that_do_not_fit() {
    let mut values = [0f32; 4];
    says(output(&mut values).open(Dtype::F64, 4, None), &["slice holds f32 but the result is f64"]);
    says(output(&mut values).open(Dtype::F32, 5, None), &["slice has 4 elements but the result has 5"]);
    says(output(&mut [false; 2]).open(Dtype::U8, 2, None), &["slice holds bool but the result is u8"]);
    let sink = output(&mut values).open(Dtype::F32, 4, None).unwrap();
    says(sink.write(3, &[0; 8]), &["8 bytes from row 3 on do not fit"]);
    let _claim = sink.memory().unwrap().claim(0..1);
    says(sink.write(0, &[0; 8]), &["another thread writes these rows"]);
}

#[test]
fn files_written_by_many_threads() {
    let dir = tempfile::tempdir().unwrap();
    for (rows, chunk_rows) in [(0, 5), (1, 5), (10_000, 7), (10_000, 4096)] {
        for reserved in [true, false] {
            let path = dir.path().join(format!("{rows}-{chunk_rows}-{reserved}"));
            let header = if reserved { 0 } else { npy::header(Dtype::U32, rows, None).len() };
            let sink: Box<dyn Sink> = if reserved {
                output(Raw::create(&path)).open(Dtype::U32, rows, None).unwrap()
            } else {
                let partial = Partial::create_with(&path, header as u64 + rows * 4, false, unreserved).unwrap();
                Box::new(FileSink::new(partial, npy::header, Dtype::U32, rows, None).unwrap())
            };
            assert!(!path.exists());
            assert!(sink.memory().is_none(), "files are written through their gate");
            assert_eq!(sink.note().is_some(), !reserved && rows > 0);
            write_rows(&*sink, rows, chunk_rows);
            sink.commit().unwrap();
            let written = fs::read(&path).unwrap();
            assert!(written[header..] == row_numbers(rows), "{}", path.display());
        }
    }
    assert!(names(dir.path()).iter().all(|name| !name.starts_with('.')));
}

#[test]
fn a_file_that_is_shortened_keeps_its_dimensions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.npy");
    for (shape, shorter) in [(Some(&[1000, 2][..]), Some(&[3, 2][..])), (None, Some(&[6][..]))] {
        let mut sink = output(Npy::create(&path).force(true)).open(Dtype::U32, 2000, shape).unwrap();
        write_rows(&*sink, 2000, 7);
        sink.shorten(6).unwrap();
        sink.commit().unwrap();
        let npy = Npy::open(&path).unwrap();
        assert_eq!((npy.rows(), npy.shape()), (6, shorter));
        assert!(fs::read(&path).unwrap().ends_with(&row_numbers(6)));
    }
}

#[test]
fn writes_that_do_not_fit_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c");
    for reserve in [|_: &File, _| Ok(true), unreserved] {
        let partial = Partial::create_with(&path, 8, false, reserve).unwrap();
        partial.file().set_len(8).unwrap();
        let sink = FileSink::new(partial, no_header, Dtype::U32, 2, None).unwrap();
        says(sink.write(0, &[0; 6]), &["c: 6 bytes from row 0 on do not fit"]);
        says(sink.write(1, &[0; 8]), &["c: 8 bytes from row 1 on do not fit"]);
    }
}

#[test]
fn a_file_without_commit_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.npy");
    fs::write(&path, b"old").unwrap();
    let sink = output(Npy::create(&path).force(true)).open(Dtype::U32, 10, None).unwrap();
    write_rows(&*sink, 10, 3);
    let partial = names(dir.path()).into_iter().find(|name| name != "c.npy").unwrap();
    assert!(partial.starts_with(".c.npy.") && partial.ends_with(".partial"), "{partial}");
    drop(sink);
    assert_eq!(names(dir.path()), ["c.npy"]);
    assert_eq!(fs::read(&path).unwrap(), b"old");
}

#[test]
fn files_are_replaced_only_by_force() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c");
    let open = |force| output(Raw::create(&path).force(force)).open(Dtype::U8, 1, None);

    // It appears while the job runs.
    let sink = open(false).unwrap();
    fs::write(&path, b"old").unwrap();
    says(sink.commit(), &["c: appeared while the job ran", "--force"]);
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(dir.path()), ["c"]);

    says(open(false), &["c: exists already; replace it with --force or .force(true)"]);
    assert_eq!(names(dir.path()), ["c"], "refused before anything is made");
    let sink = open(true).unwrap();
    sink.write(0, b"n").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    sink.commit().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"n");
}

#[test]
fn new_files_have_the_usual_mode() {
    let dir = tempfile::tempdir().unwrap();
    let (usual, ours) = (dir.path().join("usual"), dir.path().join("ours"));
    fs::write(&usual, b"").unwrap();
    output(Raw::create(&ours)).open(Dtype::U8, 0, None).unwrap().commit().unwrap();
    assert_eq!(fs::metadata(ours).unwrap().mode(), fs::metadata(usual).unwrap().mode());
}

#[test]
fn links_stand_for_what_they_lead_to() {
    let dir = tempfile::tempdir().unwrap();
    let (file, link, lost) = (dir.path().join("file"), dir.path().join("link"), dir.path().join("lost"));
    fs::write(&file, b"old").unwrap();
    symlink(&file, &link).unwrap();
    symlink("nowhere", &lost).unwrap();
    says(output(Raw::create(&link)).open(Dtype::U8, 0, None), &["link: exists already"]);
    output(Raw::create(&link).force(true)).open(Dtype::U8, 0, None).unwrap().commit().unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    says(output(Raw::create(&lost)).open(Dtype::U8, 0, None), &["lost: is a symbolic link that leads nowhere"]);
}

#[test]
fn places_where_no_file_can_be() {
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path| output(Raw::create(path).force(true)).open(Dtype::U8, 1, None);
    says(open(dir.path()), &["is a directory; name a file in it"]);
    says(open(&dir.path().join("no/c")), &["no/c: its directory ", "cannot be used (No such file", "mkdir -p"]);
    says(open(Path::new("/dev/full")), &["/dev/full: is not a regular file"]);
    says(open(Path::new("..")), &["..: names no file"]);
    says(open(&dir.path().join("n".repeat(300))), &["cannot be looked up"]);
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    says(open(&file.join("c")), &["file/c: ", "file is not a directory; check the path"]);
    // Not even root may make files there.
    if Path::new("/sys/kernel").is_dir() {
        says(open(Path::new("/sys/kernel/c")), &["/sys/kernel/c: no file can be made in its directory /sys/kernel"]);
    }
    // Long names are fine as long as the system takes them.
    open(&dir.path().join("n".repeat(255))).unwrap().commit().unwrap();
}

#[test]
fn a_disk_without_room() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.npy");
    let open = |rows| output(Npy::create(&path)).open(Dtype::F64, rows, None);
    let needed = (1u64 << 60) + 128;
    says(open(1 << 57), &["c.npy: no space: needs ", &needed.to_string(), "free some"]);
    for rows in [u64::MAX, 1 << 60] {
        says(open(rows), &["c.npy: cannot hold", "rows of f64"]);
    }
    says(Partial::create_with(&path, 5, false, full), &["c.npy: no space: needs 5 bytes"]);
    assert!(names(dir.path()).is_empty());
}

#[test]
#[ignore = "mounts a tmpfs, which takes root"]
fn a_disk_that_is_really_full() {
    let dir = tempfile::tempdir().unwrap();
    let run = |program: &str, args: &[&str]| {
        let status = std::process::Command::new(program).args(args).arg(dir.path()).status().unwrap();
        assert!(status.success(), "{program}");
    };
    run("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs"]);
    let result = std::panic::catch_unwind(|| {
        let path = dir.path().join("c");
        let open = || output(Raw::create(&path)).open(Dtype::U8, 700_000, None);
        let first = open().unwrap();
        // The space is taken by the first, though nothing is written yet.
        says(open(), &["c: no space: needs 700000 bytes"]);
        first.write(0, &vec![1; 700_000]).unwrap();
        assert_eq!(names(dir.path()).len(), 1);
        // Without a reservation, the write finds out.
        let partial = Partial::create_with(&dir.path().join("d"), 700_000, false, unreserved).unwrap();
        let sink = FileSink::new(partial, no_header, Dtype::U8, 700_000, None).unwrap();
        says(sink.write(0, &vec![1; 700_000]), &["d: no space: needs 700000 bytes"]);
        drop((first, sink));
        assert!(names(dir.path()).is_empty());
    });
    run("umount", &[]);
    result.unwrap();
}
