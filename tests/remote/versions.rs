//! An object that changes is never taken for the one that was opened; where nobody can tell, a note says so.

use super::formats::{array, batches, table};
use super::server::{Says, Server};
use super::{npy, rows};
use arrow_ipc::CompressionType;
use overshot::{Arrow, Engine, Input, Job, Npy, Parquet, Zarr, io};
use parquet::basic::Compression;
use serde_json::json;
use std::fs;

/// What a report notes if the server says neither a tag nor a time.
const NO_VERSION: &str = "is on a server that does not say when a file changes, so a change may not be noticed";
const NO_LIST: &str = "has chunks that cannot be listed, so a change of them may not be noticed";

/// Opens small files of all formats.
fn small(server: &Server) -> Vec<Input<'static>> {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    npy(&path("x.npy"), 1000);
    table(&path("t.parquet"), 1000, Compression::SNAPPY);
    batches(&path("stored.arrow"), 1000, None);
    batches(&path("packed.arrow"), 1000, Some(CompressionType::LZ4_FRAME));
    let url = |name: &str| {
        server.put_path(&format!("b/{name}"), &path(name));
        server.url(&format!("b/{name}"))
    };
    vec![
        Npy::open(url("x.npy")).unwrap().into(),
        Parquet::column(url("t.parquet"), "price").unwrap().into(),
        Arrow::column(url("stored.arrow"), "price").unwrap().into(),
        Arrow::column(url("packed.arrow"), "price").unwrap().into(),
    ]
}

#[test]
fn small_objects_are_read_again_when_a_run_begins() {
    for is_run_before in [false, true] {
        let server = Server::start();
        for x in small(&server) {
            let name = x.source().name();
            let engine = Engine::builder().build().unwrap();
            let run = || engine.run(Job::eval("sum(x)").unwrap().input("x", x.source()));
            if is_run_before {
                run().unwrap();
            }
            server.put(name.split_once("/b/").map(|(_, own)| format!("b/{own}")).unwrap().as_str(), [7; 1000]);
            let error = run().unwrap_err().to_string();
            assert!(error.contains(&format!("{name}: changed while it was read")), "{error}");
        }
    }
}

#[test]
fn what_cannot_be_told_is_noted() {
    let server = Server::start();
    assert!(small(&server).iter().all(|x| x.source().version().is_some() && x.source().warning().is_none()));
    server.says(Says::Time);
    assert!(small(&server).iter().all(|x| x.source().version().is_some() && x.source().warning().is_none()));
    server.says(Says::Nothing);
    for x in small(&server) {
        let (name, warning) = (x.source().name(), x.source().warning());
        assert_eq!((x.source().version(), warning), (None, Some(format!("{name} {NO_VERSION}"))));
        assert!(!rows(&x).unwrap().is_empty());
        assert_eq!(io::url_state(name.as_ref()).unwrap(), None);
    }
    let direct = io::NamedFile::from(server.url("b/t.parquet").as_ref()).with_field("price");
    let warning = direct.open(io::ReadMode::Direct).unwrap().source().warning().unwrap();
    assert!(warning.contains("because it is decoded page by page; it is on a server"), "{warning}");
}

#[test]
fn a_store_of_a_web_server_has_no_version_but_that_of_its_description() {
    let dir = tempfile::tempdir().unwrap();
    array(&dir.path().join("t"), false);
    let server = Server::start();
    server.put_path("b/t", &dir.path().join("t"));
    let t = Zarr::open(server.url("b/t")).unwrap();
    let job = Job::eval("max(t)").unwrap().input("t", t);
    let report = Engine::builder().build().unwrap().run(job).unwrap();
    assert!(report.notes.iter().any(|note| note.ends_with(NO_LIST)), "{:?}", report.notes);
    assert_eq!(io::url_state(server.url("b/t").as_ref()).unwrap(), None);
    let local = Job::eval("max(t)").unwrap().input("t", Zarr::open(dir.path().join("t")).unwrap());
    let report = Engine::builder().build().unwrap().run(local).unwrap();
    assert!(!report.notes.iter().any(|note| note.ends_with(NO_LIST)), "{:?}", report.notes);
}

#[test]
fn an_array_of_another_description_is_not_the_one_that_was_opened() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t");
    array(&folder, false);
    let server = Server::start();
    server.put_path("b/t", &folder);
    let opened = [Zarr::open(server.url("b/t")).unwrap(), Zarr::open(&folder).unwrap()];
    let described = fs::read_to_string(folder.join("zarr.json")).unwrap().replace("float32", "int32");
    fs::write(folder.join("zarr.json"), described.replace("-1.0", "-1")).unwrap();
    server.put_path("b/t", &folder);
    for t in opened {
        let name = overshot::Source::name(&t);
        let job = Job::eval("max(t)").unwrap().input("t", t);
        let error = Engine::builder().build().unwrap().run(job).unwrap_err().to_string();
        assert!(error.contains(&format!("{name}: changed after it was opened")), "{error}");
    }
}

/// A job in parts samples its inputs. A change of other rows must be noticed, too.
#[test]
fn parts_of_a_job_have_the_same_version_of_an_input() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.npy");
    npy(&path, 1_500_000);
    let server = Server::start();
    server.put_path("b/x.npy", &path);
    let engine = Engine::builder().build().unwrap();
    let part = |rows| {
        let x = Npy::open(server.url("b/x.npy")).unwrap();
        engine.run_rows(Job::eval("sum(x)").unwrap().input("x", x), rows).unwrap()
    };
    let (mut first, same) = (part(0..409_600), part(409_600..819_200));
    first.merge(same).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    // A row that is no sample.
    bytes[128 + 10_000 * 8] ^= 1;
    server.put("b/x.npy", bytes);
    let error = first.merge(part(819_200..1_500_000)).unwrap_err().to_string();
    assert!(error.contains("the size or the time of a file"), "{error}");
}

/// The time of a folder is not that of the chunks in it.
#[test]
fn parts_of_a_job_have_the_same_version_of_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let described = json!({
        "zarr_format": 3, "node_type": "array", "shape": [40_960], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [20_480]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}}, "fill_value": 0,
        "codecs": [{"name": "bytes"}], "attributes": {},
    });
    fs::write(dir.path().join("zarr.json"), described.to_string()).unwrap();
    let mut bytes = vec![1; 20_480];
    fs::write(dir.path().join("c.0"), &bytes).unwrap();
    let engine = Engine::builder().build().unwrap();
    let part =
        |rows| engine.run_rows(Job::eval("sum(t)").unwrap().input("t", Zarr::open(dir.path()).unwrap()), rows).unwrap();
    let mut first = part(0..20_480);
    // A row that is no sample.
    bytes[300] = 2;
    fs::write(dir.path().join("c.0"), bytes).unwrap();
    let error = first.merge(part(20_480..40_960)).unwrap_err().to_string();
    assert!(error.contains("the size or the time of a file"), "{error}");
}
