//! Arrays of Zarr stores.

use std::fs;

use serde_json::{Value, json};

use crate::tools::{CaseFolder, RAN, results};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("arrays of a store are inputs", inputs),
    ("info shows the arrays of a store", info),
    ("no output is in a store that is read", no_output_inside),
    ("plans show the memory for decoding", plan),
    ("a step of a job file runs again if a chunk changed", changed),
    ("outputs are arrays of a store", outputs),
    ("kept rows are arrays of a store", kept),
    ("steps of a job file write and read stores", steps),
    ("a store is complete or absent", complete_or_absent),
];

/// Writes an array of `f32` of this many rows and 10 columns, the numbers of the elements, in chunks of 4 rows and 5
/// columns. Returns the elements.
fn array(place: &CaseFolder, name: &str, rows: u64) -> Vec<f64> {
    let folder = place.path(name);
    fs::create_dir_all(&folder).unwrap();
    let described = json!({
        "zarr_format": 3, "node_type": "array", "shape": [rows, 10], "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 5]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}}, "fill_value": -1.0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}], "attributes": {},
    });
    fs::write(folder.join("zarr.json"), described.to_string()).unwrap();
    for (i, j) in (0..rows.div_ceil(4)).flat_map(|i| [(i, 0), (i, 1)]) {
        let rows = i * 4..i * 4 + 4;
        let values = rows.flat_map(|row| (j * 5..j * 5 + 5).map(move |column| (row * 10 + column) as f32));
        let bytes: Vec<u8> = values.flat_map(f32::to_be_bytes).collect();
        fs::write(folder.join(format!("c.{i}.{j}")), bytes).unwrap();
    }
    (0..rows * 10).map(|number| number as f64).collect()
}

/// A group of the arrays `t` and `p`.
fn group(place: &CaseFolder) -> Vec<f64> {
    let values = array(place, "s.zarr/t", 1001);
    array(place, "s.zarr/p", 1001);
    fs::write(place.path("s.zarr/zarr.json"), r#"{"zarr_format": 3, "node_type": "group"}"#).unwrap();
    values
}

fn inputs(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let t = group(&place);
    let done = place.overshot(&["run", "--device", device, "sum(f64(s.t)), max(s.t - s.p)", "s=s.zarr"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let sum: f64 = t.iter().sum();
    assert!(done.stdout.starts_with(&format!("sum(f64(s.t)) = {sum:.1}\nmax(s.t - s.p) = 0.0\n")), "{done:?}");
    let done = place.overshot(&["run", "--device", device, "y = t + 1", "t=s.zarr/t", "y=y.npy", "--force"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let y = fs::read(place.path("y.npy")).unwrap();
    assert!(String::from_utf8_lossy(&y[..128]).contains("(1001, 10)"), "the shape of the array");
    let y: Vec<f64> = y[128..].chunks_exact(4).map(|own| f32::from_le_bytes(own.try_into().unwrap()).into()).collect();
    assert!(y.iter().zip(&t).all(|(y, t)| *y == t + 1.0));
    let done = place.overshot(&["run", "--device", device, "max(s)", "s=s.zarr"]);
    assert!(done.stderr.contains("s.zarr: is a Zarr group with the arrays p, t; name one of them"), "{done:?}");
    fs::write(place.path("s.zarr/t/c.3.1"), [0; 5]).unwrap();
    let done = place.overshot(&["run", "--device", device, "max(s.t)", "s=s.zarr"]);
    assert_eq!(done.code, Some(1));
    assert!(done.stderr.contains("s.zarr/t: is not a complete Zarr array: its chunk [3, 1]"), "{done:?}");
    RAN
}

fn info(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    group(&place);
    let done = place.overshot(&["info", "s.zarr", "s.zarr/t"]);
    let expected = "\
s.zarr: 81.0 kB
  array p: f32, shape (1001, 10); zarr 3, chunks (4, 5); bytes
  array t: f32, shape (1001, 10); zarr 3, chunks (4, 5); bytes
s.zarr/t: 10,010 rows of f32, 40.0 kB, shape (1001, 10)
  zarr 3, chunks (4, 5); bytes
";
    assert_eq!((done.code, &*done.stdout), (Some(0), expected), "{done:?}");
    let done = place.overshot(&["info", "--json", "--stats", "--device", device, "s.zarr/t"]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let file = &document["files"][0];
    assert_eq!(
        (&file["format"], &file["shape"], &file["dtype"]),
        (&json!("zarr 3"), &json!([1001, 10]), &json!("f32"))
    );
    assert_eq!(file["stats"]["max"], 10_009.0);
    let own = json!({
        "name": "", "format": "zarr 3", "kind": "float32", "dtype": "f32", "shape": [1001, 10], "chunks": [4, 5],
        "shards": null, "codecs": ["bytes"], "file_bytes": file["arrays"][0]["file_bytes"],
    });
    assert_eq!(file["arrays"], json!([own]));
    // An array without axes has one chunk, which has no lengths.
    let path = place.path("t/zarr.json");
    fs::create_dir(place.path("t")).unwrap();
    let mut described: Value = serde_json::from_slice(&fs::read(place.path("s.zarr/t/zarr.json")).unwrap()).unwrap();
    described["shape"] = json!([]);
    described["chunk_grid"]["configuration"]["chunk_shape"] = json!([]);
    fs::write(path, described.to_string()).unwrap();
    let done = place.overshot(&["info", "t"]);
    let text = "\n  zarr 3, chunks (); bytes\n";
    assert!(
        done.code == Some(0) && done.stdout.starts_with("t: 1 row of f32") && done.stdout.ends_with(text),
        "{done:?}"
    );
    fs::create_dir(place.path("empty.zarr")).unwrap();
    let done = place.overshot(&["info", "empty.zarr"]);
    assert!(done.code == Some(1) && done.stdout.contains("is no Zarr array"), "{done:?}");
    RAN
}

fn no_output_inside(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    array(&place, "t", 10);
    for output in ["t/c.0.0:f32!", "t/./y.npy", "t/zarr.json:f32!"] {
        place.refused(
            2,
            &["is both 't' and the output 'y'"],
            &["y = f32(t)", "t=t", &format!("y={output}"), "--force"],
        );
    }
    RAN
}

fn plan(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    array(&place, "t", 1000);
    let done = place.overshot(&["plan", "--device", device, "--json", "max(t)", "t=t"]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    // The array is small, so that all of its 500 chunks may be in memory, and each core may have one as it is stored.
    let cores = std::thread::available_parallelism().unwrap().get().min(500);
    let bytes = 500 * (80 + 96) + cores * (80 + 80 / 16);
    assert_eq!(document["decode_bytes"], bytes, "{done:?}");
    let done = place.overshot(&["plan", "--device", device, "max(t)", "t=t"]);
    let kib = bytes as f64 / 1024.0;
    let line = format!("decoding       at most {kib:.1} KiB of rows in memory, decoded or read ahead\n");
    assert!(done.stdout.contains(&line), "{done:?}");
    RAN
}

fn changed(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    array(&place, "in/a.zarr", 10);
    array(&place, "in/b.zarr", 10);
    let job = format!(
        "[[step]]\nname = \"sums\"\neach = \"in/*.zarr\"\nrun = \"sum(t)\"\nfiles = {{ t = \"{{path}}\" }}\n\
         options = {{ device = \"{device}\" }}\n"
    );
    place.raw("job.toml", job.as_bytes());
    let statuses = || -> Vec<String> {
        let done = place.overshot(&["run", "--json", "job.toml"]);
        let document: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"));
        document["steps"].as_array().unwrap().iter().map(|step| step["status"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(statuses(), ["ran", "ran"]);
    assert_eq!(statuses(), ["skipped", "skipped"]);
    fs::remove_file(place.path("in/b.zarr/c.1.1")).unwrap();
    assert_eq!(statuses(), ["skipped", "ran"]);
    // Of the same length, and older than others.
    let chunk = fs::File::options().write(true).open(place.path("in/b.zarr/c.0.0")).unwrap();
    chunk.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(statuses(), ["skipped", "ran"]);
    RAN
}

fn outputs(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let t = group(&place);
    let sum: f64 = t.iter().sum();
    let in_shards = ["--chunks=10,3", "--shards=200,6", "--dimensions=time,place"];
    for options in [
        &[][..],
        &["--chunks=100,3", "--codec=lz4"],
        &["--codec", "none", "--fsync"],
        &in_shards,
        &["--chunks=2000,10"],
    ] {
        let given = ["y = f64(t) * 2; n = i64(t); sum(f64(t))", "t=s.zarr/t", "y=o.zarr", "n=./o.zarr", "--force"];
        let report = place.report(&[&given[..], options].concat());
        assert_eq!(results(&report)["sum(f64(t))"], json!(sum));
        let again = place.report(&["sum(o.y) / 2, sum(o.n), max(abs(o.y - o.n * 2))", "o=o.zarr"]);
        let values = results(&again);
        assert_eq!((&values["sum(o.y) / 2"], &values["sum(o.n)"]), (&json!(sum), &json!(sum as i64)), "{again}");
        assert_eq!(values["max(abs(o.y - o.n * 2))"], json!(0.0), "{again}");
    }
    let done = place.overshot(&["info", "o.zarr"]);
    let expected = "  array n: i64, shape (1001, 10); zarr 3, chunks (1001, 10); bytes, zstd\n";
    assert!(done.stdout.contains(expected), "no chunk is longer than the array: {done:?}");
    place.report(&[&["y = t", "t=s.zarr/t", "y=sharded.zarr"], &in_shards[..]].concat());
    let done = place.overshot(&["info", "sharded.zarr"]);
    assert!(done.stdout.contains("chunks (10, 3) in shards of (200, 6)"), "{done:?}");
    assert!(fs::read_to_string(place.path("sharded.zarr/zarr.json")).unwrap().contains("\"place\""));
    place.report(&["y = t / 2", "t=s.zarr/t", "y=half.zarr"]);
    assert_eq!(place.report(&["max(y)", "y=half.zarr"])["results"][0]["value"], json!(5004.5), "the only array");
    // A result that is an array.
    place.report(&["m = mean(f64(t), axis=0)", "t=s.zarr/t", "m=m.zarr", "--chunks=4"]);
    let means = place.report(&["max(m) - min(m), sum(m)", "m=m.zarr"]);
    assert_eq!((&means["results"][0]["value"], &means["results"][1]["value"]), (&json!(9.0), &json!(50_045.0)));
    // Zeros are the fill value, so that there are no chunks of them.
    place.report(&["y = t * 0", "t=s.zarr/t", "y=zeros.zarr"]);
    assert_eq!(fs::read_dir(place.path("zeros.zarr")).unwrap().count(), 1);
    assert_eq!(place.report(&["count(y == 0)", "y=zeros.zarr"])["results"][0]["value"], json!(10_010));
    let plan = place.overshot(&["plan", "--device", device, "y = t", "t=s.zarr/t", "y=p.zarr"]);
    assert!(plan.stdout.contains("encoding       at most 234.6 KiB of rows in memory\n"), "{plan:?}");
    RAN
}

fn kept(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    array(&place, "t.zarr", 1001);
    place.report(&["y = t[all(t >= 5000, axis=1)]", "t=t.zarr", "y=y.zarr", "--chunks=7,4"]);
    place.report(&["y = t[t >= 5000]", "t=t.zarr", "y=flat.zarr", "--chunks=64"]);
    let done = place.overshot(&["info", "y.zarr", "flat.zarr"]);
    assert!(done.stdout.contains("y.zarr: 5,010 rows of f32"), "{done:?}");
    assert!(done.stdout.contains("shape (501, 10)") && done.stdout.contains("chunks (64,)"), "{done:?}");
    for name in ["y.zarr", "flat.zarr"] {
        let report = place.report(&["sum(f64(y))", &format!("y={name}")]);
        let expected: f64 = (5000..10_010).map(f64::from).sum();
        assert_eq!(results(&report)["sum(f64(y))"], json!(expected), "{report}");
    }
    place.report(&["y = t[t < 0]", "t=t.zarr", "y=none.zarr"]);
    let done = place.overshot(&["info", "none.zarr"]);
    assert!(done.stdout.contains("none.zarr: 0 rows of f32"), "{done:?}");
    RAN
}

fn steps(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let job = format!(
        r#"
[options]
device = "{device}"

[[step]]
name = "make"
run = "y = f64(i) ** 2; z = i"
files = {{ y = "made/t.zarr", z = "made/t.zarr" }}
options = {{ rows = "1e4", chunks = 999 }}

[[step]]
name = "cut"
run = "y = t.y[t.z < 5000]"
files = {{ t = "made/t.zarr", y = "cut.zarr" }}

[[step]]
name = "use"
run = "s = max(y)"
files = {{ y = "cut.zarr" }}
"#
    );
    place.raw("job.toml", job.as_bytes());
    let run = |more: &[&str]| {
        let done = place.overshot(&[&["run", "--json", "job.toml"], more].concat());
        let report: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"));
        let status = |step: &Value| step["status"].as_str().unwrap_or_default().to_owned();
        report["steps"].as_array().unwrap().iter().map(status).collect::<Vec<_>>()
    };
    assert_eq!(place.overshot(&["plan", "job.toml"]).code, Some(0));
    assert_eq!(run(&[]), ["ran", "ran", "ran"]);
    assert_eq!(run(&[]), ["skipped", "skipped", "skipped"]);
    fs::remove_dir_all(place.path("cut.zarr")).unwrap();
    assert_eq!(run(&[]), ["skipped", "ran", "ran"]);
    assert_eq!(run(&["--all"]), ["ran", "ran", "ran"], "a step replaces its own store");
    assert_eq!(place.report(&["max(y)", "y=cut.zarr"])["results"][0]["value"], json!(4999.0 * 4999.0));
    RAN
}

fn complete_or_absent(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    array(&place, "t.zarr", 101);
    let run = ["y = t", "t=t.zarr", "y=y.zarr"];
    place.report(&run);
    place.refused(1, &["y.zarr: exists already"], &run);
    place.refused(2, &["is both 't' and the output 'y'"], &["y = t", "t=y.zarr", "y=y.zarr", "--force"]);
    let inside = ["y = t; z = t", "t=t.zarr", "y=y.zarr", "z=y.zarr/z.npy", "--force"];
    place.refused(2, &["is both 'y' and the output 'z'"], &inside);
    for options in [&["--part=0/2", "--partial=p"][..], &["--resume"], &["--checksum"]] {
        place.refused(2, &["'y'"], &[&["y = t", "t=t.zarr", "y=new.zarr"], options].concat());
    }
    // A chunk that is missing in the middle of the run: nothing is left.
    fs::write(place.path("t.zarr/c.20.1"), [0; 3]).unwrap();
    place.refused(1, &["t.zarr: is not a complete Zarr array"], &["y = t", "t=t.zarr", "y=new.zarr"]);
    place.refused(1, &["t.zarr: is not a complete Zarr array"], &[&run[..], &["--force"]].concat());
    assert_eq!(place.report(&["max(y)", "y=y.zarr"])["results"][0]["value"], json!(1009.0), "the old one is there");
    let names = place.names();
    assert!(names.iter().all(|name| !name.contains("partial")), "{names:?}");
    RAN
}
