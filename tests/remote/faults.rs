//! What servers do wrong: it is made up for, or an error, and never a wrong row.

use super::formats::array;
use super::server::{Fault, Says, Server};
use super::{npy, rows, rows_in};
use overshot::io;

const ROWS: u64 = 1_500_000;

/// A server with an object of 12 MB, which is read in two pieces; its rows.
fn served() -> (Server, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.npy");
    npy(&path, ROWS);
    let server = Server::start();
    server.put_path("b/x.npy", &path);
    (server, rows(&io::open(&path, None).unwrap()).unwrap())
}

#[test]
fn what_a_request_made_again_makes_up_for() {
    let (server, local) = served();
    for fault in
        [Fault::Status(503, 3), Fault::Status(500, 1), Fault::Cut(100_000, 3), Fault::Cut(0, 2), Fault::WeakTags]
    {
        server.set(fault);
        let x = io::open(server.url("b/x.npy"), None).unwrap();
        assert!(rows(&x).unwrap() == local, "{fault:?}");
        server.set(fault);
        let x = io::open(server.url("b/x.npy"), None).unwrap();
        assert!(rows_in(&x, 100).unwrap() == local, "{fault:?}, in small pieces");
    }
}

#[test]
fn what_is_an_error() {
    let (server, local) = served();
    for (fault, words) in [
        (Fault::OtherRange, "Requested"),
        (Fault::WholeObject, "does not send parts of files"),
        (Fault::Changed(2), "changed while it was read"),
        (Fault::ChangedAndIgnoresTags(2), "changed while it was read"),
        (Fault::ChangedTime(2), "changed while it was read"),
        (Fault::Status(403, usize::MAX), "credentials"),
        (Fault::Status(404, usize::MAX), "changed while it was read"),
    ] {
        server.set(Fault::None);
        let url = server.url("b/x.npy");
        if matches!(fault, Fault::ChangedTime(_)) {
            server.set(fault);
        }
        let x = io::open(&url, None).unwrap();
        server.set(fault);
        for pieces in [3, 100] {
            let error = rows_in(&x, pieces).map(|own| own == local).unwrap_err().to_string();
            assert!(error.starts_with(&url) && error.contains(words), "{fault:?}: {error}");
        }
    }
}

/// Returns the ranges that were asked for.
fn ranges(server: &Server) -> Vec<(u64, u64)> {
    server.requests().iter().filter_map(|request| request.range).collect()
}

#[test]
fn what_has_arrived_is_not_asked_for_again() {
    let (server, local) = served();
    for says in [Says::TagAndTime, Says::Time] {
        server.says(says);
        let x = io::open(server.url("b/x.npy"), None).unwrap();
        server.requests();
        server.set(Fault::Cut(100_000, 3));
        let mut bytes = vec![0; 4_000_000];
        x.source().read(0, &mut bytes).unwrap();
        assert!(bytes == local[..4_000_000]);
        let last = 128 + 4_000_000 - 1;
        let expected: Vec<_> = (0..4).map(|time| (128 + time * 100_000, last)).collect();
        assert_eq!(ranges(&server), expected, "{says:?}");
    }
}

/// Threads that wait for a block have the error that it has, and do not ask again.
#[test]
fn a_block_that_cannot_be_read_is_asked_for_once() {
    let (server, local) = served();
    let x = io::open(server.url("b/x.npy"), None).unwrap();
    let source = x.source();
    let mut bytes = vec![0; 8000];
    source.read(0, &mut bytes).unwrap();
    server.set(Fault::Status(403, usize::MAX));
    server.requests();
    let errors: Vec<String> =
        (1..4).map(|time| source.read(time * 1000, &mut bytes.clone()).unwrap_err().to_string()).collect();
    assert!(errors.iter().all(|error| *error == errors[0] && error.contains("credentials")), "{errors:?}");
    let asked = ranges(&server);
    assert_eq!(asked.iter().filter(|(first, _)| *first == 0).count(), 1, "{asked:?}");
    // A run begins.
    server.set(Fault::None);
    source.version();
    source.read(1000, &mut bytes).unwrap();
    assert!(bytes == local[8000..16_000]);
}

/// Chunks are asked for as a whole.
#[test]
fn objects_that_are_read_as_a_whole_are_asked_for_again() {
    let dir = tempfile::tempdir().unwrap();
    array(dir.path(), false);
    let server = Server::start();
    server.put_path("b/t", dir.path());
    let local = rows(&io::open(dir.path(), None).unwrap()).unwrap();
    for says in [Says::TagAndTime, Says::Time] {
        server.says(says);
        server.set(Fault::Cut(100, 2));
        let t = io::open(server.url("b/t"), None).unwrap();
        server.set(Fault::Cut(100, 2));
        assert!(rows(&t).unwrap() == local, "{says:?}");
    }
}
