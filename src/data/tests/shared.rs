//! Files that several processes write: one of them makes the file, and nothing else is taken for it.

use super::*;
use crate::data::FileSink;
use crate::data::shared_file::{Kept, SharedFile};
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::Barrier;
use std::thread;

const ROWS: u64 = 1000;

fn shared(path: &Path, rows: u64, force: bool) -> SharedFile {
    let target = path.parent().unwrap().canonicalize().unwrap().join(path.file_name().unwrap());
    SharedFile::new(target, FileLayout::new(FileFormat::Npy, Dtype::U32, rows, None), force, 7)
}

/// Writes the row numbers of these rows.
fn write(file: &SharedFile, rows: std::ops::Range<u64>) -> u128 {
    let sink = file.open(rows.clone(), None).unwrap();
    let values: Vec<u32> = rows.clone().map(|row| row as u32).collect();
    sink.write(rows.start, bytemuck::cast_slice(&values)).unwrap();
    let mark = sink.mark();
    commit_all(vec![Box::new(sink)]).unwrap();
    mark
}

fn commit(mut sink: FileSink) {
    sink.seal().unwrap();
    commit_all(vec![Box::new(sink)]).unwrap();
}

fn expected(rows: impl Iterator<Item = u64> + Clone) -> Vec<u8> {
    let header = FileLayout::new(FileFormat::Npy, Dtype::U32, rows.clone().count() as u64, None).header();
    header.into_iter().chain(rows.flat_map(|row| (row as u32).to_ne_bytes())).collect()
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn one_of_many_makes_the_file() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("y.npy");
        let begin = Barrier::new(8);
        let marks: Vec<u128> = thread::scope(|scope| {
            let write = |part: u64| {
                let (path, begin) = (&path, &begin);
                scope.spawn(move || {
                    let file = shared(path, ROWS, false);
                    begin.wait();
                    write(&file, part * 125..(part + 1) * 125)
                })
            };
            let threads: Vec<_> = (0..8).map(write).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(marks.iter().all(|mark| *mark == marks[0]), "{marks:?}");
        assert_eq!(names(dir.path()).len(), 1);
        let done = shared(&path, ROWS, false).complete(marks[0], None, 1).unwrap();
        commit(done);
        assert!(fs::read(&path).unwrap() == expected(0..ROWS));
        assert_eq!(names(dir.path()), ["y.npy"]);
    }
}

#[test]
fn a_merge_that_was_interrupted_is_completed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("y.npy");
    let file = shared(&path, ROWS, false);
    let mark = write(&file, 0..ROWS);
    let hidden = dir.path().join(&names(dir.path())[0]);
    // The merge had taken away what is behind the rows, and then its process was killed.
    let length = expected(0..ROWS).len() as u64;
    OpenOptions::new().write(true).open(&hidden).unwrap().set_len(length).unwrap();
    says(file.open(0..125, None), &["has all rows of the job", "merge them again"]);
    commit(file.complete(mark, None, 1).unwrap());
    assert!(fs::read(&path).unwrap() == expected(0..ROWS));
}

#[test]
fn a_merge_that_is_undone_can_be_repeated() {
    for force in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("y.npy");
        if force {
            fs::write(&path, b"old").unwrap();
        }
        let file = shared(&path, ROWS, force);
        let mark = write(&file, 0..ROWS);
        let mut before = names(dir.path());
        before.sort();
        for _ in 0..2 {
            let mut sink = file.complete(mark, None, 1).unwrap();
            sink.seal().unwrap();
            sink.publish().unwrap();
            assert!(fs::read(&path).unwrap() == expected(0..ROWS));
            drop(sink);
            let mut after = names(dir.path());
            after.sort();
            assert_eq!(after, before);
            assert_eq!(fs::read(&path).ok(), force.then(|| b"old".to_vec()));
        }
        commit(file.complete(mark, None, 1).unwrap());
        assert_eq!(names(dir.path()), ["y.npy"]);
    }
}

#[test]
fn a_name_is_known_by_the_stamp_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("y.npy");
    let file = shared(&path, ROWS, false);
    let mark = write(&file, 0..ROWS);
    let hidden = dir.path().join(&names(dir.path())[0]);
    let stamp = file.complete(mark, None, 1).unwrap().seal().unwrap();
    assert!(!file.is_named(&stamp).unwrap());
    // As where files cannot be renamed without replacing others.
    fs::hard_link(&hidden, &path).unwrap();
    assert!(file.is_named(&stamp).unwrap());
    assert_eq!(names(dir.path()), ["y.npy"], "the second name is gone");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let content = expected(0..ROWS);
    for byte in [0, content.len() / 2, content.len() - 1] {
        let mut other = content.clone();
        other[byte] ^= 1;
        fs::write(&path, other).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        assert!(!file.is_named(&stamp).unwrap(), "byte {byte}");
    }
    fs::write(&path, &content).unwrap();
    assert!(!file.is_named(&stamp).unwrap(), "it was written at another time");
    OpenOptions::new().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    assert!(file.is_named(&stamp).unwrap());
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(!file.is_named(&stamp).unwrap());
}

#[test]
fn selected_rows_are_moved_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("y.npy");
    let file = shared(&path, ROWS, false);
    let mark = write(&file, 0..ROWS);
    let kept = [(0, 10, 3), (10, 90, 0), (100, 900, 900)].map(|(first, rows, kept)| Kept { first, rows, kept });
    commit(file.complete(mark, Some(&kept), 1).unwrap());
    assert!(fs::read(&path).unwrap() == expected((0..3).chain(100..1000)));
    assert_eq!(names(dir.path()).len(), 2, "until it is removed");
    assert_eq!(file.remove(), None);
    assert_eq!(names(dir.path()), ["y.npy"]);
    assert!(file.remove().is_some_and(|note| note.contains("cannot be removed")));
}

#[test]
fn only_own_rows_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = shared(&dir.path().join("y.npy"), ROWS, false);
    let sink = file.open(100..200, None).unwrap();
    for (first, bytes) in [(99, 4), (199, 8), (200, 4), (100, 3), (u64::MAX, 4)] {
        says(sink.write(first, &vec![0; bytes]), &["y.npy", "are not rows of this part"]);
    }
    sink.write(199, &[0; 4]).unwrap();
    fs::remove_file(dir.path().join(&names(dir.path())[0])).unwrap();
    says(commit_all(vec![Box::new(sink)]), &["was merged or removed while a part wrote its rows"]);
}

#[test]
fn space_is_asked_for_before_any_row() {
    let dir = tempfile::tempdir().unwrap();
    // The file has holes and fits; the rows of the part do not.
    let rows = 1 << 41;
    match shared(&dir.path().join("y.npy"), rows, false).open(0..rows, None) {
        Err(error) => assert!(error.to_string().contains("needs"), "{error}"),
        Ok(_) => panic!("eight terabytes are there"),
    }
}

#[test]
fn names_of_any_length_and_of_several_outputs() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a".repeat(230), "a".repeat(231), "b".repeat(255)].map(|name| dir.path().join(name));
    for (number, path) in paths.iter().enumerate() {
        write(&shared(path, ROWS, false), 0..ROWS);
        assert_eq!(names(dir.path()).len(), number + 1);
    }
}
