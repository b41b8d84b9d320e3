//! `overshot info`.

use std::fs;

use serde_json::{Value, json};

use crate::tools::{CaseFolder, Done, RAN, npy};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("info shows what files hold", files),
    ("info has the minimum, maximum and mean", stats),
    ("info of files that cannot be read", unreadable),
];

fn info(place: &CaseFolder, args: &[&str]) -> Done {
    place.overshot(&[&["info"], args].concat())
}

fn json_of(place: &CaseFolder, args: &[&str]) -> Value {
    let done = info(place, &[&["--json"], args].concat());
    assert_eq!(done.stderr, "", "{args:?}");
    serde_json::from_str(&done.stdout).unwrap()
}

fn files(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.raw("x.npy", &npy("<f8", "False", "(1000, 3)", &[0; 24_000]));
    place.raw("big.npy", &npy(">i4", "False", "(1,)", &[0; 4]));
    place.raw("f.npy", &npy("<f8", "True", "(2, 3)", &[0; 48]));
    place.raw("x.raw", &[0; 12]);
    let done = info(&place, &["x.npy", "big.npy", "f.npy", "x.raw:f32"]);
    let expected = "\
x.npy: 3,000 rows of f64, 24.0 kB, shape (1000, 3)
  .npy version 1.0, dtype '<f8', C order, little-endian; can be used in place
big.npy: 1 row of i32, 4 B
  .npy version 1.0, dtype '>i4', C order, big-endian; its bytes are swapped as it is read
f.npy: 6 rows of f64, 48 B, shape (2, 3)
  .npy version 1.0, dtype '<f8', Fortran order, little-endian; its rows are gathered as it is read
x.raw: 3 rows of f32, 12 B
  raw; can be used in place
";
    assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (Some(0), expected, ""));
    for part in [10, 9, 8] {
        place.npy(&format!("part-{part}.npy"), &[f64::from(part); 3]);
    }
    let done = info(&place, &["part-*.npy"]);
    assert_eq!((done.code, &*done.stdout), (Some(0), "part-*.npy: 9 rows of f64, 72 B\n  3 files as one input\n"));
    let json = json_of(&place, &["part-*.npy"]);
    assert_eq!((&json["files"][0]["files"], &json["files"][0]["file_bytes"]), (&json!(3), &json!(3 * (128 + 24))));
    let descr = "[('price', '>f4'), ('name', '|S3'), ('at', [('x', '<f8')])]";
    place.raw("trades.npy", &npy(descr, "False", "(2,)", &[0; 30]));
    let done = info(&place, &["--stats", "trades.npy"]);
    let expected = "\
trades.npy: 2 records, 30 B
  .npy version 1.0, C order
  field price: f32
  field name: holds text ('|S3'), which is not supported; save numbers
  field at: has fields itself (a nested dtype), which is not supported; save the field separately, as in \
                    numpy.save(path, array['field'])
  no statistics of fields and groups: overshot run 'min(t.NAME), max(t.NAME), mean(t.NAME)' t=trades.npy
";
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), expected));
    let json = json_of(&place, &["trades.npy"]);
    let price = json!({ "name": "price", "dtype": "f32", "descr": ">f4", "problem": null });
    assert_eq!((&json["files"][0]["fields"][0], &json["files"][0]["dtype"]), (&price, &Value::Null));
    let json = json_of(&place, &["x.npy"]);
    assert_eq!(json["schema_version"], 1);
    let expected = json!({
        "path": "x.npy",
        "files": 1,
        "format": "npy",
        "file_bytes": 24_128,
        "dtype": "f64",
        "rows": 3000,
        "shape": [1000, 3],
        "data_bytes": 24_000,
        "npy": { "version": "1.0", "descr": "<f8", "fortran_order": false, "byte_order": "little" },
        "fields": null,
        "table": null,
        "keys": [],
        "arrays": null,
        "stats": null,
        "problem": null,
    });
    assert_eq!(json["files"], json!([expected]));
    RAN
}

fn stats(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let of = |name: &str| json_of(&place, &["--stats", "--device", device, name])["files"][0]["stats"].clone();
    place.npy("x.npy", &[4.0, f64::NAN, -1.0, 3.0]);
    assert_eq!(of("x.npy"), json!({ "min": -1.0, "max": 4.0, "mean": 2.0, "nan": 1 }));
    let text = info(&place, &["--stats", "--device", device, "x.npy"]).stdout;
    assert!(text.contains("\n  min -1.0, max 4.0, mean 2.0, NaN in 1 row\n"), "{text}");
    place.npy("inf.npy", &[f64::INFINITY, 0.0]);
    assert_eq!(of("inf.npy"), json!({ "min": 0.0, "max": "inf", "mean": "inf", "nan": 0 }));
    place.npy("none.npy", &[f64::NAN]);
    assert_eq!(of("none.npy"), json!({ "min": null, "max": null, "mean": null, "nan": 1 }));
    place.npy("empty.npy", &[]);
    assert_eq!(of("empty.npy"), json!({ "min": null, "max": null, "mean": null, "nan": 0 }));
    // The sum of these does not fit an i8.
    place.raw("small.i8", &[100; 10]);
    assert_eq!(of("small.i8:i8"), json!({ "min": 100, "max": 100, "mean": 100.0, "nan": 0 }));
    place.raw("truth.bool", &[0, 1, 1, 1]);
    assert_eq!(of("truth.bool:bool"), json!({ "min": false, "max": true, "mean": 0.75, "nan": 0 }));
    place.raw("single.f32", &[1e38f32, 3e38, f32::NAN].map(f32::to_le_bytes).concat());
    let found = of("single.f32:f32");
    assert_eq!((&found["nan"], &found["min"]), (&json!(1), &json!(1e38)), "{found}");
    assert!(found["mean"].as_f64().is_some_and(|mean| (mean / 2e38 - 1.0).abs() < 1e-6), "{found}");
    RAN
}

fn unreadable(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.npy("good.npy", &[1.0]);
    for (name, bytes, problem) in [
        ("t.parquet", &b"PAR1........"[..], "is not a complete Parquet file: "),
        (
            "noext",
            b"PK\x03\x04....",
            "is a .npz or other archive, not a raw file; save each array separately with numpy.save",
        ),
        ("x.npy.gz", b"\x1f\x8b\x08...", "is compressed by gzip, not a raw file; decompress it first"),
        ("x.csv", b"a,b\n1,2\n", "is a CSV or TSV file, not a raw file; save each column with numpy.save"),
        ("a.dat", b"\x93NUMPY", "is a .npy file under another name"),
        ("x.raw", b"\0\0\0\0", "is not .npy: add the dtype, as in x.raw:f32"),
        ("h.npy", &npy("|V2", "False", "(2,)", &[0; 4]), "bfloat16"),
        ("short.npy", &npy("<f8", "False", "(9,)", &[0; 16]), "short file"),
    ] {
        place.raw(name, bytes);
        let done = info(&place, &["good.npy", name]);
        assert!(done.stdout.contains(problem), "no '{problem}' in {done:?}");
        assert!(done.stdout.starts_with("good.npy: 1 row of f64"), "{done:?}");
        assert_eq!(done.stderr, "overshot: error: 1 of 2 files cannot be read\n");
        assert_eq!(done.code, Some(1), "{done:?}");
    }
    let done = info(&place, &["none.npy", "."]);
    assert!(done.code == Some(1) && done.stdout.contains("none.npy\n  cannot be opened"), "{done:?}");
    assert!(done.stdout.contains("\n.\n") || done.stdout.contains(".: "), "{done:?}");
    assert!(done.stdout.contains("a.dat: is a .npy file under another name"), "the folder names its file: {done:?}");
    // With a dtype, a raw file is read as that dtype; a file of another format is refused.
    assert_eq!(info(&place, &["x.raw:i16"]).code, Some(0));
    assert_eq!(info(&place, &["t.parquet:u8"]).code, Some(1));
    assert_eq!(fs::read(place.path("x.raw")).unwrap(), [0; 4]);
    RAN
}
