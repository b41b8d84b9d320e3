//! Every format has the same rows by its URL as in its file, with few requests.

use super::server::Server;
use super::{npy, rows, rows_in};
use arrow_array::{ArrayRef, Float64Array, Int32Array, RecordBatch};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use overshot::{Arrow, Dtype, Engine, Input, Job, Npy, Parquet, Raw, Zarr, io};
use parquet::basic::Compression;
use parquet::data_type::{DoubleType, Int32Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::json;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Compares an input by its URL with that of the file. Returns the number of requests.
fn same(server: &Server, local: Input<'_>, url: impl FnOnce() -> overshot::Result<Input<'static>>) -> usize {
    same_in(server, 3, local, url)
}

/// The same, read in so many pieces.
fn same_in(
    server: &Server,
    pieces: usize,
    local: Input<'_>,
    url: impl FnOnce() -> overshot::Result<Input<'static>>,
) -> usize {
    server.requests();
    let remote = url().unwrap();
    let [a, b] = [&local, &remote].map(|input| input.source());
    assert_eq!((a.dtype(), a.rows(), a.shape(), a.grains()), (b.dtype(), b.rows(), b.shape(), b.grains()));
    assert!(rows_in(&remote, pieces).unwrap() == rows(&local).unwrap(), "{}", b.name());
    assert!(b.version().is_some() && b.memory().is_none());
    let requests = server.requests();
    assert!(
        requests.iter().all(|request| request.method != "GET" || request.range.is_some() || is_zarr(&request.name))
    );
    println!("{}: {} requests, read in {pieces} pieces", b.name(), requests.len());
    requests.len()
}

fn is_zarr(name: &str) -> bool {
    name.contains(".zarr")
}

#[test]
fn npy_and_raw_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.npy");
    // Three pieces of 8 MiB.
    npy(&path, 2_500_000);
    let server = Server::start();
    server.put_path("b/x y.npy", &path);
    server.put_path("b/x.raw", &path);
    let url = server.url("b/x%20y.npy");
    let requests = same(&server, io::open(&path, None).unwrap(), || io::open(&url, None));
    assert!(requests <= 5, "{requests} requests: the length, the header, and three pieces");
    let requests = same_in(&server, 200, io::open(&path, None).unwrap(), || io::open(&url, None));
    assert!(requests <= 8, "{requests} requests: the length, the header, one read, and five blocks");
    let raw = || Ok(Raw::open(server.url("b/x.raw"), Dtype::U8)?.into());
    same(&server, Raw::open(&path, Dtype::U8).unwrap().into(), raw);
    // Rows that are several pieces of one request of the caller.
    let x = Npy::open(&url).unwrap();
    let (mut own, mut local) = (vec![0; 20_000_000], vec![0; 20_000_000]);
    overshot::Source::read(&x, 0, &mut own).unwrap();
    overshot::Source::read(&Npy::open(&path).unwrap(), 0, &mut local).unwrap();
    assert!(own == local);
    let report = Engine::builder().build().unwrap().run(Job::eval("sum(x)").unwrap().input("x", x)).unwrap();
    assert_eq!(report.value("sum(x)").unwrap().map(|sum| sum.as_f64()), Some(3_124_998_750_000.0));
    // A map is asked for, and there is none.
    // SAFETY: nobody writes to the file.
    let mapped = unsafe { io::map(&url, None) }.unwrap();
    assert!(mapped.source().memory().is_none() && mapped.source().warning().is_none());
    let direct = io::open_with(&url, None, io::ReadMode::Direct).unwrap();
    assert!(direct.source().warning().unwrap().contains("is not read with direct I/O, because it is on a server"));
}

/// Reads at any places, some of which are behind others, by several threads.
#[test]
fn rows_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.npy");
    npy(&path, 4_000_000);
    let server = Server::start();
    server.put_path("b/x.npy", &path);
    let x = Npy::open(server.url("b/x.npy")).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let x = &x;
            scope.spawn(move || {
                let mut first = thread * 900_000;
                for step in 0..120 {
                    let mut own = vec![0; 8 * (1 + (step * 7919 + thread as usize * 104_729) % 60_000)];
                    let rows = own.len() as u64 / 8;
                    first = if step % 20 == 19 { (first * 31 + 17) % 3_900_000 } else { first % 3_900_000 };
                    overshot::Source::read(x, first, &mut own).unwrap();
                    let expected = (first..first + rows).flat_map(|row| (row as f64).to_le_bytes());
                    assert!(own.into_iter().eq(expected), "{rows} rows from {first} on");
                    first += rows;
                }
            });
        }
    });
}

#[test]
fn arrays_of_archives_and_fields_of_records() {
    let dir = tempfile::tempdir().unwrap();
    let [path, archive, records] = ["x.npy", "x.npz", "t.npy"].map(|name| dir.path().join(name));
    npy(&path, 100_000);
    // An archive as `numpy.savez` writes it, with one member. Checksums are not compared.
    let member = fs::read(&path).unwrap();
    let fields = |signature: &[u8], version: &[u8]| {
        let size = (member.len() as u32).to_le_bytes();
        [signature, version, &[20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &size, &size, &[5, 0, 0, 0]].concat()
    };
    let local = [&fields(b"PK\x03\x04", &[])[..], b"a.npy", &member].concat();
    let directory = [&fields(b"PK\x01\x02", &[20, 0])[..], &[0; 14], b"a.npy"].concat();
    let [len, at] = [directory.len() as u32, local.len() as u32].map(u32::to_le_bytes);
    let end = [&b"PK\x05\x06"[..], &[0, 0, 0, 0, 1, 0, 1, 0], &len, &at, &[0, 0]].concat();
    fs::write(&archive, [local, directory, end].concat()).unwrap();
    let descr = "[('price', '<f4'), ('size', '<u2')]";
    let header = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (50000,), }}\n");
    let start = [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..]].concat();
    let values: Vec<u8> =
        (0..50_000u32).flat_map(|row| [(row as f32).to_le_bytes().as_slice(), &[7, 0]].concat()).collect();
    fs::write(&records, [&start, header.as_bytes(), &values].concat()).unwrap();
    let server = Server::start();
    server.put_path("b/x.npz", &archive);
    server.put_path("b/t.npy", &records);
    let url = server.url("b/x.npz");
    let requests = same(&server, Npy::member(&archive, "a").unwrap().into(), || Ok(Npy::member(&url, "a")?.into()));
    assert!(requests <= 8, "{requests} requests");
    let url = server.url("b/t.npy");
    same(&server, Npy::field(&records, "price").unwrap().into(), || Ok(Npy::field(&url, "price")?.into()));
}

/// Writes the columns `price` and `size`, with nulls, in row groups, with pages of some thousand rows.
pub fn table(path: &Path, rows: i32, codec: Compression) {
    let schema = Arc::new(parse_message_type("message t { REQUIRED DOUBLE price; OPTIONAL INT32 size; }").unwrap());
    let properties = WriterProperties::builder()
        .set_compression(codec)
        .set_dictionary_enabled(false)
        .set_data_page_row_count_limit(2000)
        .set_write_batch_size(1000)
        .build();
    let mut file = SerializedFileWriter::new(File::create(path).unwrap(), schema, Arc::new(properties)).unwrap();
    let rows: Vec<i32> = (0..rows).collect();
    for rows in rows.chunks(100_000) {
        let mut group = file.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let prices: Vec<f64> = rows.iter().map(|row| f64::from(*row).sqrt()).collect();
        column.typed::<DoubleType>().write_batch(&prices, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let sizes: Vec<i32> = rows.iter().copied().filter(|row| row % 10 > 0).collect();
        let levels: Vec<i16> = rows.iter().map(|row| i16::from(row % 10 > 0)).collect();
        column.typed::<Int32Type>().write_batch(&sizes, Some(&levels), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    file.close().unwrap();
}

#[test]
fn parquet_files() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start();
    for (name, codec) in [("u.parquet", Compression::UNCOMPRESSED), ("s.parquet", Compression::SNAPPY)] {
        let path = dir.path().join(name);
        table(&path, 300_000, codec);
        server.put_path(&format!("b/{name}"), &path);
        let url = server.url(&format!("b/{name}"));
        let local = Parquet::column(&path, "price").unwrap().into();
        // Each of three row groups has 50 pages, and thirds of the rows begin with row groups.
        let requests = same(&server, local, || Ok(Parquet::column(&url, "price")?.into()));
        assert!(requests <= 5, "{requests} requests: the length, the end, and three columns of row groups");
        let local = Parquet::column_filled(&path, "size", -1).unwrap().into();
        same(&server, local, || Ok(Parquet::column_filled(&url, "size", -1)?.into()));
        let table = io::TableFile::open(&url).unwrap().unwrap();
        assert_eq!(Some(table), io::TableFile::open(&path).unwrap());
        server.requests();
        let refused = Parquet::column(&url, "size").unwrap_err().to_string();
        assert!(refused.starts_with(&url) && refused.contains("nulls"), "{refused}");
    }
}

/// Writes the columns `price` and `size`, with nulls, in four record batches.
pub fn batches(path: &Path, rows: i32, codec: Option<CompressionType>) {
    let price: ArrayRef = Arc::new(Float64Array::from_iter_values((0..rows).map(|row| f64::from(row).sqrt())));
    let size: ArrayRef = Arc::new(Int32Array::from_iter((0..rows).map(|row| (row % 10 > 0).then_some(row))));
    let whole = RecordBatch::try_from_iter([("price", price), ("size", size)]).unwrap();
    let options = IpcWriteOptions::default().try_with_compression(codec).unwrap();
    let mut writer = FileWriter::try_new_with_options(File::create(path).unwrap(), &whole.schema(), options).unwrap();
    let batch = rows as usize / 4;
    for first in (0..rows as usize).step_by(batch) {
        writer.write(&whole.slice(first, batch)).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn arrow_files() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start();
    for codec in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        let path = dir.path().join("t.arrow");
        batches(&path, 200_000, codec);
        server.put_path("b/t.arrow", &path);
        let url = server.url("b/t.arrow");
        let local = Arrow::column(&path, "price").unwrap().into();
        let requests = same(&server, local, || Ok(Arrow::column(&url, "price")?.into()));
        // The length, the begin and the end; a description, a length and the values of each batch, some in two parts.
        assert!(requests <= 20, "{requests} requests");
        let local = Arrow::column_filled(&path, "size", -1).unwrap().into();
        same(&server, local, || Ok(Arrow::column_filled(&url, "size", -1)?.into()));
        assert_eq!(io::TableFile::open(&url).unwrap(), io::TableFile::open(&path).unwrap());
    }
}

/// Writes an array of 100 times 60 numbers in chunks of 10 times 20; one chunk is missing. With shards of four chunks
/// along the first axis if `is_sharded`, each of which is stored as it is.
pub fn array(folder: &Path, is_sharded: bool) {
    fs::create_dir_all(folder).unwrap();
    let plain = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    let index = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    let shards = json!([{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [10, 20], "codecs": plain, "index_codecs": index, "index_location": "end",
    }}]);
    let length = if is_sharded { 40 } else { 10 };
    let described = json!({
        "zarr_format": 3, "node_type": "array", "shape": [100, 60], "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [length, 20]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "fill_value": -1.0,
        "codecs": if is_sharded { shards } else { plain }, "attributes": {},
    });
    fs::write(folder.join("zarr.json"), described.to_string()).unwrap();
    for (i, j) in (0..100 / length).chain(is_sharded.then_some(2)).flat_map(|i| [(i, 0), (i, 1), (i, 2)]) {
        if (i, j) == (1, 1) {
            continue;
        }
        let (mut bytes, mut index) = (Vec::new(), Vec::new());
        for part in 0..length / 10 {
            index.extend([(bytes.len() as u64).to_le_bytes(), 800u64.to_le_bytes()].concat());
            let first = i * length + part * 10;
            let values = (first..first + 10).flat_map(|row| (j * 20..j * 20 + 20).map(move |k| (row * 60 + k) as f32));
            bytes.extend(values.flat_map(f32::to_le_bytes));
        }
        fs::create_dir_all(folder.join(format!("c/{i}"))).unwrap();
        let index = if is_sharded { index } else { vec![] };
        fs::write(folder.join(format!("c/{i}/{j}")), [bytes, index].concat()).unwrap();
    }
}

#[test]
fn zarr_arrays() {
    let dir = tempfile::tempdir().unwrap();
    let group = dir.path().join("s.zarr");
    array(&group.join("t"), false);
    array(&group.join("shards"), true);
    fs::write(group.join("zarr.json"), r#"{"zarr_format": 3, "node_type": "group"}"#).unwrap();
    let server = Server::start();
    server.put_path("b/s.zarr", &group);
    let url = server.url("b/s.zarr");
    for (name, most) in [("t", 50), ("shards", 90)] {
        let local = || Zarr::array(&group, name).unwrap().into();
        let requests = same(&server, local(), || Ok(Zarr::array(&url, name)?.into()));
        assert!(requests <= most, "{name}: {requests} requests for 30 chunks");
        same(&server, local(), || io::open(format!("{url}/{name}"), None));
    }
    let error = Zarr::open(&url).unwrap_err().to_string();
    assert!(error.starts_with(&url) && error.contains("web servers do not list"), "{error}");
    let error = Zarr::open(format!("{url}/none")).unwrap_err().to_string();
    assert!(error.contains("is no Zarr array"), "{error}");
    // What a job asks when it begins and ends.
    let t = Zarr::array(&url, "t").unwrap();
    let job = Job::eval("max(t)").unwrap().input("t", t);
    let report = Engine::builder().build().unwrap().run(job).unwrap();
    assert_eq!(report.value("max(t)").unwrap().map(|max| max.as_f64()), Some(5999.0));
}

/// Files of a pattern are read one after the other. Those that have been read keep nothing in memory, so they are asked
/// for again. The list of a pattern is that of S3, whose variables are those of a process of its own.
#[test]
fn files_that_have_been_read_keep_nothing() {
    const CHILD: &str = "FILES_OF_TEST";
    const ROWS: u64 = 150_000;
    let read = |x: &Input<'_>, first: u64| {
        let mut bytes = vec![0; 400_000];
        x.source().read(first, &mut bytes).unwrap();
        assert!(
            bytes.as_chunks().0.iter().zip(first % ROWS..).all(|(own, row)| f64::from_le_bytes(*own) == row as f64)
        );
    };
    if let Some(files) = std::env::var(CHILD).ok().and_then(|files| files.parse::<u64>().ok()) {
        let x = io::open("s3://b/x-*.npy", None).unwrap();
        assert_eq!(x.source().rows(), files * ROWS);
        for first in (0..files * ROWS).step_by(50_000).chain((0..ROWS).step_by(50_000)) {
            read(&x, first);
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    npy(&dir.path().join("x.npy"), ROWS);
    let server = Server::start();
    let files = std::thread::available_parallelism().unwrap().get() + 2;
    for file in 0..files {
        server.put_path(&format!("b/x-{file}.npy"), &dir.path().join("x.npy"));
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "formats::files_that_have_been_read_keep_nothing"]).env(CHILD, files.to_string());
    child.env("AWS_ENDPOINT", server.endpoint()).env("AWS_ALLOW_HTTP", "true").env("AWS_REGION", "us-east-1");
    child.env("AWS_ACCESS_KEY_ID", "user").env("AWS_SECRET_ACCESS_KEY", "secret");
    let done = child.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    let requests = server.requests();
    let bodies = |file: usize| {
        let is_one = |name: &str| name == format!("b/x-{file}.npy");
        requests.iter().filter(|request| request.method == "GET" && is_one(&request.name)).count()
    };
    assert_eq!((bodies(0), bodies(1)), (5, 3), "the header, and twice or once the first rows and a block");
}
