//! Sinks: what is written is stored, and an unfinished output leaves no trace.

use super::*;
use crate::data::file_layout::{FileFormat, FileLayout};
use crate::data::new_file::FileSink;
use crate::data::npy;
use crate::data::temporary::{leftovers, remove_unfinished};
use crate::data::unfinished_file::{Abilities, UnfinishedFile, reserve_with};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Mutex;
use std::thread;

/// Stands in for `Job::output`.
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

fn reserve_by(reserve: fn(&File, u64) -> io::Result<bool>) -> Abilities {
    Abilities { reserve, ..Abilities::default() }
}

/// Returns file systems of all kinds.
fn file_systems() -> impl Iterator<Item = Abilities> {
    let kinds = [(true, true), (true, false), (false, true), (false, false)];
    kinds.into_iter().map(|(unnamed, exchange)| Abilities { unnamed, exchange, ..Abilities::default() })
}

/// Writes the row numbers 0 to `rows` as u32 from several threads, each chunk in place or with a call.
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
    for rows in [3, 5] {
        let what = format!("slice has 4 elements but the result has {rows}");
        says(output(&mut values).open(Dtype::F32, rows, None), &[&what]);
    }
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
                let file = UnfinishedFile::create_with(&path, header as u64 + rows * 4, false, reserve_by(unreserved))
                    .unwrap();
                Box::new(FileSink::new(file, FileLayout::new(FileFormat::Npy, Dtype::U32, rows, None)).unwrap())
            };
            assert!(!path.exists());
            assert!(sink.memory().is_none(), "files are written through their gate");
            assert_eq!(sink.warning().is_some(), !reserved && rows > 0);
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
        sink.truncate(6).unwrap();
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
        let file = UnfinishedFile::create_with(&path, 8, false, reserve_by(reserve)).unwrap();
        file.file().set_len(8).unwrap();
        let sink = FileSink::new(file, FileLayout::new(FileFormat::Raw, Dtype::U32, 2, None)).unwrap();
        says(sink.write(0, &[0; 6]), &["c: 6 bytes from row 0 on do not fit"]);
        says(sink.write(1, &[0; 8]), &["c: 8 bytes from row 1 on do not fit"]);
    }
}

/// Returns the temporary names in a directory.
fn temporary_names(dir: &Path) -> Vec<String> {
    names(dir).into_iter().filter(|name| name.starts_with('.')).collect()
}

#[test]
fn a_file_without_commit_leaves_no_trace() {
    for abilities in file_systems() {
        for published in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let (path, new) = (dir.path().join("c"), dir.path().join("d"));
            fs::write(&path, b"old").unwrap();
            for path in [&path, &new] {
                let mut file = UnfinishedFile::create_with(path, 3, true, abilities).unwrap();
                file.write_at(b"new", 0).unwrap();
                let temporary = temporary_names(dir.path());
                assert_eq!(temporary.len(), usize::from(!abilities.unnamed), "{temporary:?}");
                assert!(temporary.iter().all(|name| name.ends_with(".partial")), "{temporary:?}");
                if published {
                    file.publish().unwrap();
                    assert_eq!(fs::read(path).unwrap(), b"new");
                }
                drop(file);
                assert_eq!(
                    (names(dir.path()), fs::read(dir.path().join("c")).unwrap()),
                    (vec!["c".into()], b"old".into())
                );
            }
        }
    }
}

#[test]
fn what_is_published_is_taken_back_if_it_is_still_there() {
    for (abilities, replaces) in file_systems().flat_map(|kind| [(kind, false), (kind, true)]) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c");
        if replaces {
            fs::write(&path, b"old").unwrap();
        }
        let mut file = UnfinishedFile::create_with(&path, 0, replaces, abilities).unwrap();
        file.publish().unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, b"another's").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"another's");
    }
}

/// A sink that notes which of its methods are called.
struct Noted<'a>(&'a str, &'a Mutex<Vec<String>>);

impl Noted<'_> {
    fn note(&self, call: &str) -> Result<()> {
        self.1.lock().unwrap().push(format!("{call} {}", self.0));
        Ok(())
    }
}

impl Sink for Noted<'_> {
    fn write(&self, _: u64, _: &[u8]) -> Result<()> {
        self.note("write")
    }
    fn check(&self) -> Result<()> {
        self.note("check")
    }
    fn publish(&mut self) -> Result<()> {
        self.note("publish")
    }
    fn commit(self: Box<Self>) -> Result<()> {
        self.note("commit")
    }
}

#[test]
fn all_outputs_are_checked_before_one_appears() {
    let calls = Mutex::new(Vec::new());
    commit_all(vec![Box::new(Noted("a", &calls)), Box::new(Noted("b", &calls))]).unwrap();
    assert_eq!(calls.into_inner().unwrap(), ["check a", "check b", "publish a", "publish b", "commit a", "commit b"]);
}

#[test]
fn outputs_of_a_job_appear_together_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let [new, old, blocked] = ["new", "old", "blocked"].map(|name| dir.path().join(name));
    fs::write(&old, b"old").unwrap();
    let open = |path: &Path| output(Raw::create(path).force(true)).open(Dtype::U8, 3, None).unwrap();
    let sinks = || [&new, &old, &blocked].map(|path| open(path)).into();
    let failing: Vec<_> = sinks();
    fs::create_dir(&blocked).unwrap();
    says(commit_all(failing), &["blocked: cannot take its name"]);
    assert!(!new.exists() && fs::read(&old).unwrap() == b"old" && names(dir.path()).len() == 2);
    fs::remove_dir(&blocked).unwrap();
    commit_all(sinks()).unwrap();
    assert!([new, old, blocked].iter().all(|path| fs::read(path).unwrap() == [0; 3]));
    assert_eq!(names(dir.path()).len(), 3);
}

#[test]
fn files_are_replaced_only_by_force() {
    for abilities in file_systems() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c");
        let create = |force| UnfinishedFile::create_with(&path, 1, force, abilities);

        // The file appears while the job runs.
        let file = create(false).unwrap();
        fs::write(&path, b"old").unwrap();
        says(file.check(), &["c: appeared while the job ran"]);
        says(file.commit(), &["c: appeared while the job ran", "'force'"]);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(dir.path()), ["c"]);

        says(create(false), &["c: exists already; choose another name, or set 'force' to replace it"]);
        assert_eq!(names(dir.path()), ["c"], "refused before anything is made");
        let file = create(true).unwrap();
        file.write_at(b"n", 0).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        file.commit().unwrap();
        assert_eq!((names(dir.path()), fs::read(&path).unwrap()), (vec!["c".into()], b"n".into()));

        // The file exists when the job begins and not when it ends, and the other way round.
        let file = create(true).unwrap();
        fs::remove_file(&path).unwrap();
        file.commit().unwrap();
        fs::remove_file(&path).unwrap();
        let file = create(true).unwrap();
        fs::write(&path, b"old").unwrap();
        file.commit().unwrap();
        assert_eq!((names(dir.path()), fs::read(&path).unwrap()), (vec!["c".into()], b"\0".into()));

        // A directory has taken the name.
        let file = create(true).unwrap();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        says(file.commit(), &["c: cannot take its name (it is no longer a regular file)"]);
        assert_eq!(names(dir.path()), ["c"]);
    }
}

#[test]
fn a_file_that_replaces_another_has_its_rights_from_the_start() {
    for abilities in file_systems() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c");
        for mode in [0o600, 0o640, 0o666, 0o755, 0o4711] {
            fs::write(&path, b"old").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            // Only root may change the owner of a file.
            let given = std::os::unix::fs::chown(&path, Some(12_345), Some(54_321)).is_ok();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let old = fs::metadata(&path).unwrap();
            let file = UnfinishedFile::create_with(&path, 3, true, abilities).unwrap();
            let of = |new: fs::Metadata| (new.mode() & 0o7777, new.uid(), new.gid());
            let expected = (mode & 0o777, old.uid(), old.gid());
            assert_eq!(of(file.file().metadata().unwrap()), expected, "before a byte is written");
            assert_eq!(file.warning(), None);
            file.commit().unwrap();
            assert_eq!(of(fs::metadata(&path).unwrap()), expected);
            assert!(!given || old.uid() == 12_345);
            fs::remove_file(&path).unwrap();
        }
    }
}

/// Runs a function as a user without any permissions. Returns `None` if we do not have the permission to do so.
fn as_nobody<T: Send>(run: impl FnOnce() -> T + Send) -> Option<T> {
    use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
    const NOBODY: u32 = 65_534;
    // This changes only this thread, which ends afterwards.
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            set_thread_groups(&[]).ok()?;
            set_thread_gid(rustix::fs::Gid::from_raw(NOBODY)).ok()?;
            set_thread_uid(rustix::fs::Uid::from_raw(NOBODY)).ok()?;
            Some(run())
        });
        thread.join().unwrap()
    })
}

#[test]
fn what_cannot_be_kept_is_said_and_opens_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let path = dir.path().join("c");
    fs::write(&path, b"old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o662)).unwrap();
    let replaced = as_nobody(|| {
        let sink = output(Raw::create(&path).force(true)).open(Dtype::U8, 0, None).unwrap();
        let note = sink.warning().unwrap();
        sink.commit().unwrap();
        note
    });
    if let Some(note) = replaced {
        assert!(
            note.ends_with("its owner was user 0 and is now user 65534, its group was 0 and is now 65534"),
            "{note}"
        );
        let new = fs::metadata(&path).unwrap();
        assert_eq!((new.mode() & 0o777, new.uid()), (0o622, 65_534), "a new group may do what everybody may");
    }
}

#[test]
fn what_may_not_be_written_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let path = dir.path().join("c");
    fs::write(&path, b"old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let open = || output(Raw::create(&path).force(true)).open(Dtype::U8, 0, None).map(drop);
    // Root may write to every file.
    let opened = as_nobody(open).unwrap_or_else(open);
    says(opened, &["c: may not be written to (Permission denied", "chmod u+w"]);
    assert_eq!(fs::read(&path).unwrap(), b"old");
}

#[test]
fn a_signal_handler_can_remove_temporary_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c");
    let named = Abilities { unnamed: false, ..Abilities::default() };
    let done = UnfinishedFile::create_with(&dir.path().join("done"), 1, false, named).unwrap();
    done.commit().unwrap();
    let file = UnfinishedFile::create_with(&path, 1, false, named).unwrap();
    assert_eq!(temporary_names(dir.path()).len(), 1);
    // Other tests have temporary files of their own, which must stay.
    remove_unfinished(|path| path.starts_with(dir.path().as_os_str().as_bytes()));
    assert_eq!(names(dir.path()), ["done"]);
    says(file.commit(), &["c: cannot take its name (No such file"]);
}

#[test]
fn what_killed_jobs_left_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.npy");
    let named = Abilities { unnamed: false, ..Abilities::default() };
    let file = UnfinishedFile::create_with(&path, 1, false, named).unwrap();
    let own = [std::ffi::OsStr::new(".c.npy.0123456789abcdef.parts")];
    let notes = || leftovers([path.as_path(), &dir.path().join("d"), Path::new("/no/such/e")].into_iter(), &own);
    assert_eq!(notes(), [""; 0], "it is in use");
    drop(file);
    for name in [".c.npy.yWftqi.partial", ".d.000000.partial", ".other.npy.yWftqi.partial", ".c.npy.partial", "c.npy"] {
        fs::write(dir.path().join(name), b"").unwrap();
    }
    let left = |name: &str| format!("{}/{name} was left by a job that was killed: remove it", dir.path().display());
    let mut expected = vec![left(".c.npy.yWftqi.partial"), left(".d.000000.partial")];
    assert_eq!(notes(), expected);
    for name in ["0123456789abcdef", "0123456789abcdee", "0123456789abcde"] {
        fs::write(dir.path().join(format!(".c.npy.{name}.parts")), b"").unwrap();
    }
    let shared = dir.path().join(".c.npy.0123456789abcdee.parts");
    let note = "has rows of a job that is not complete: merge its partials or continue it, or remove it";
    expected.insert(0, format!("{} {note}", shared.display()));
    assert_eq!(notes(), expected);
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
    says(output(Raw::create(&lost)).open(Dtype::U8, 0, None), &["lost: is a symbolic link to a missing file"]);
}

#[test]
fn places_where_no_file_can_be() {
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path| output(Raw::create(path).force(true)).open(Dtype::U8, 1, None);
    says(open(dir.path()), &["is a directory; name a file in it"]);
    says(open(&dir.path().join("no/c")), &["no/c: its directory ", "cannot be used (No such file", "mkdir -p"]);
    says(open(Path::new("/dev/full")), &["/dev/full: is not a regular file"]);
    says(open(Path::new("..")), &["..: does not name a file"]);
    says(open(&dir.path().join("n".repeat(300))), &["cannot be looked up"]);
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    says(open(&file.join("c")), &["file/c: ", "file is not a directory; check the path"]);
    let slash = |name: &str| PathBuf::from(format!("{}/{name}/", dir.path().display()));
    says(open(&slash("new")), &["new/: ends with '/', as the path of a directory does; name a file"]);
    says(open(&slash("file")), &["file/: ends with '/'"]);
    // Not even root may create files there.
    if Path::new("/sys/kernel").is_dir() {
        says(open(Path::new("/sys/kernel/c")), &["/sys/kernel/c: no file can be created in its directory /sys/kernel"]);
    }
    // Long names are accepted as long as the system accepts them, also beside a temporary name.
    for abilities in file_systems() {
        let path = dir.path().join("n".repeat(255));
        UnfinishedFile::create_with(&path, 1, true, abilities).unwrap().commit().unwrap();
    }
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
    let full = reserve_by(|_, _| Err(io::ErrorKind::StorageFull.into()));
    says(UnfinishedFile::create_with(&path, 5, false, full), &["c.npy: no space: needs 5 bytes"]);
    assert!(names(dir.path()).is_empty());
}

#[test]
fn space_is_reserved_where_the_file_system_can() {
    let file = tempfile::tempfile().unwrap();
    let unsupported = |_: &File, _| Err(io::ErrorKind::Unsupported.into());
    assert!(!reserve_with(&file, 5, unsupported).unwrap());
    assert_eq!(file.metadata().unwrap().len(), 5, "it has its length, but no space");
    assert!(reserve_with(&file, 6, |_, _| Ok(())).unwrap());
    let refused = reserve_with(&file, 1 << 60, |_, _| panic!("there is not as much space"));
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::StorageFull);
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
        // The first file has reserved the space, although nothing is written yet.
        says(open(), &["c: no space: needs 700000 bytes"]);
        first.write(0, &vec![1; 700_000]).unwrap();
        assert!(names(dir.path()).is_empty());
        // Without a reservation, the write fails.
        let file = UnfinishedFile::create_with(&dir.path().join("d"), 700_000, false, reserve_by(unreserved)).unwrap();
        let sink = FileSink::new(file, FileLayout::new(FileFormat::Raw, Dtype::U8, 700_000, None)).unwrap();
        says(sink.write(0, &vec![1; 700_000]), &["d: no space: needs 700000 bytes"]);
        drop((first, sink));
        assert!(names(dir.path()).is_empty());
    });
    run("umount", &[]);
    result.unwrap();
}
