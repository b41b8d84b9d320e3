//! What servers do wrong: it is made up for, or an error, and never a wrong row.

use super::server::{Fault, Server};
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
