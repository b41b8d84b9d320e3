//! `overshot matrices`. The library's tests check the algorithms; these check files, arguments and output.

use std::fs::{self, File};
use std::sync::Arc;

use parquet::data_type::Int64Type;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::Value;

use crate::tools::{CaseFolder, Done, RAN, not_run, npy, rows};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("matrices: every algorithm prints its results and writes its files", all),
    ("matrices: text has results, passes and the rate", text),
    ("matrices: what does not fit is refused before any work", refused),
    ("matrices: an error leaves no file", failed),
    ("matrices: nulls and timestamps of tables are read on request", tables),
];

/// A folder with a table `x.npy` of 600 rows in three clusters, and a column `t.npy`.
struct Place {
    folder: CaseFolder,
    device: String,
}

const ROWS: usize = 600;

fn element(row: usize, column: usize) -> f64 {
    let cluster = [0.0, 10.0, -10.0][row % 3];
    cluster + ((row * 31 + column * 17) * 7919 % 1009) as f64 / 1009.0
}

impl Place {
    fn new(device: &str) -> Place {
        let place = Place { folder: CaseFolder::new(device), device: device.into() };
        let x: Vec<f64> = (0..ROWS).flat_map(|row| [element(row, 0), element(row, 1)]).collect();
        place.table("x.npy", 2, &x);
        let t: Vec<f64> = (0..ROWS).map(|row| 3.0 * element(row, 0) - element(row, 1) + 7.0).collect();
        place.folder.npy("t.npy", &t);
        place
    }

    fn table(&self, name: &str, columns: usize, values: &[f64]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.folder.raw(name, &npy("<f8", "False", &format!("({}, {columns})", values.len() / columns), &bytes));
    }

    fn run(&self, args: &[&str]) -> Done {
        // The emulated device has less by default.
        let limits = ["--device", &self.device, "--device-memory", "256MiB"];
        self.folder.overshot(&[&["matrices"], args, &limits].concat())
    }

    fn json(&self, args: &[&str]) -> Value {
        let done = self.run(&[args, &["--json"]].concat());
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{args:?}: {done:?}");
        serde_json::from_str(&done.stdout).unwrap()
    }

    fn numbers(&self, file: &str) -> Vec<f64> {
        rows(&fs::read(self.folder.path(file)).unwrap())
    }

    /// Whether the device has room for products.
    fn has_room(&self) -> bool {
        !self.run(&["gram", "x=x.npy"]).stderr.contains("device memory is limited")
    }
}

/// A result of a report.
fn value<'j>(report: &'j Value, name: &str) -> &'j Value {
    &report["results"].as_array().unwrap().iter().find(|result| result["name"] == name).unwrap()["value"]
}

fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-6
}

fn all(device: &str) -> Outcome {
    let place = Place::new(device);
    if !place.has_room() {
        return not_run("the device has no room for a product");
    }
    let column = |j: usize| (0..ROWS).map(move |row| element(row, j));
    let dot = |i, j| column(i).zip(column(j)).map(|(a, b)| a * b).sum::<f64>();
    place.json(&["gram", "x=x.npy", "gram=g.npy"]);
    let gram = place.numbers("g.npy");
    assert!(is_near(gram[0], dot(0, 0)) && is_near(gram[1], dot(0, 1)) && gram.len() == 4, "{gram:?}");
    let mean = |j| column(j).sum::<f64>() / ROWS as f64;
    let covariance = place.json(&["covariance", "x=x.npy", "--ddof", "0", "covariance=c.npy"]);
    assert_eq!(covariance["arrays"][0]["shape"], serde_json::json!([2, 2]));
    assert_eq!((&covariance["passes"], &covariance["rows"]), (&2.into(), &1200.into()));
    assert!(is_near(place.numbers("c.npy")[1], dot(0, 1) / ROWS as f64 - mean(0) * mean(1)));

    let pca = place.json(&["pca", "--count", "1", "x=x.npy", "components=p.npy", "variance=v.npy", "mean=m.npy"]);
    assert_eq!(*value(&pca, "turn"), 0.0);
    let (p, m) = (place.numbers("p.npy"), place.numbers("m.npy"));
    assert!(is_near(p[0] * p[0] + p[1] * p[1], 1.0) && is_near(m[1], mean(1)) && place.numbers("v.npy")[0] > 100.0);
    place.json(&["project", "x=x.npy", "components=p.npy", "mean=m.npy", "y=y.npy"]);
    let y = place.numbers("y.npy");
    assert!(y.len() == ROWS && is_near(y[5], (element(5, 0) - m[0]) * p[0] + (element(5, 1) - m[1]) * p[1]));

    let linear = place.json(&["linear", "x=x.npy", "t=t.npy", "weights=w.npy"]);
    let w = place.numbers("w.npy");
    assert!(is_near(w[0], 3.0) && is_near(w[1], -1.0) && is_near(value(&linear, "intercept").as_f64().unwrap(), 7.0));
    let ridge = place.json(&["linear", "x=x.npy", "t=t.npy", "--ridge", "1e9", "--no-intercept"]);
    assert!(ridge["arrays"][0]["values"][0].as_f64().unwrap() < 0.1 && *value(&ridge, "intercept") == 0.0);
    let classes: Vec<f64> = (0..ROWS).map(|row| f64::from(u8::from(row * 37 % 101 > 50))).collect();
    place.folder.npy("k.npy", &classes);
    let logistic = place.json(&["logistic", "x=x.npy", "t=k.npy", "--penalty", "0.5"]);
    assert!(*value(&logistic, "converged") == true && logistic["arrays"][0]["shape"] == serde_json::json!([2]));

    let files = ["x=x.npy", "centers=k3.npy", "labels=l.npy", "counts=n.npy"];
    let kmeans = place.json(&[&["kmeans", "--count", "3"], &files[..]].concat());
    assert_eq!((value(&kmeans, "converged"), &kmeans["arrays"][1]["values"]), (&true.into(), &[200, 200, 200].into()));
    let labels = rows(&fs::read(place.folder.path("l.npy")).unwrap());
    assert!((0..ROWS).all(|row| labels[row] == labels[row % 3]) && labels[0] != labels[1] && labels[1] != labels[2]);
    let again = place.json(&["kmeans", "x=x.npy", "start=k3.npy"]);
    let inertia = |report| value(report, "inertia").as_f64().unwrap();
    assert!(value(&again, "iterations").as_u64() <= Some(2) && is_near(inertia(&again), inertia(&kmeans)));
    place.json(&["assign", "x=x.npy", "centers=k3.npy", "labels=l2.npy", "distances=d.npy"]);
    assert_eq!(fs::read(place.folder.path("l.npy")).unwrap(), fs::read(place.folder.path("l2.npy")).unwrap());
    let squares: f64 = place.numbers("d.npy").iter().map(|distance| distance * distance).sum();
    assert!(is_near(squares, inertia(&kmeans)));

    place.table("q.npy", 2, &[element(77, 0), element(77, 1), 1e3, 1e3]);
    let nearest =
        place.json(&["nearest", "--count", "2", "base=x.npy", "queries=q.npy", "indices=i.npy", "distances=e.npy"]);
    assert_eq!(nearest["arrays"][0]["values"][0][0], 77);
    assert_eq!((place.numbers("e.npy")[0], nearest["algorithm"].as_str()), (0.0, Some("nearest")));
    RAN
}

fn text(device: &str) -> Outcome {
    let place = Place::new(device);
    if !place.has_room() {
        return not_run("the device has no room for a product");
    }
    let done = place.run(&["kmeans", "--count", "3", "x=x.npy"]);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(done.code == Some(0) && lines[0].starts_with("centers = [["), "{done:?}");
    assert!(lines.contains(&"counts = [200 200 200]") && lines.contains(&"converged = true"), "{done:?}");
    let count: u64 = lines.iter().find_map(|line| line.strip_prefix("iterations = ")).unwrap().parse().unwrap();
    assert!(lines[5].starts_with(&format!("{} passes over ", count + 1)), "{done:?}");
    let quiet = place.run(&["covariance", "x=x.npy", "--quiet"]);
    assert!(quiet.stdout.starts_with("covariance = [[") && quiet.stdout.lines().count() == 1, "{quiet:?}");
    RAN
}

fn refused(device: &str) -> Outcome {
    let place = Place::new(device);
    fs::write(place.folder.path("old.npy"), "old").unwrap();
    let cases: [(&[&str], &str); 13] = [
        (&["gram", "gram=g.npy"], "'x' is missing: add x=FILE"),
        (&["gram", "x=x.npy", "y=y.npy"], "there is no name 'y' here, only x, gram; check the spelling"),
        (&["gram", "x=x.npy", "x=x.npy"], "'x' is given twice: leave one out"),
        (&["gram", "x=x.npy", "gram=x.npy", "--force"], "is both 'x' and 'gram': give the output another file"),
        (&["kmeans", "x=x.npy"], "give the number of centers with --count, or start=FILE, and not both"),
        (
            &["kmeans", "--count", "3", "x=x.npy", "start=x.npy"],
            "give the number of centers with --count, or start=FILE, and not both",
        ),
        (&["assign", "x=x.npy", "centers=x.npy", "labels=l.npy"], "'distances' is missing: add distances=FILE"),
        (&["pca", "--count", "3", "x=x.npy"], "there are from 1 to 2 components, and not 3"),
        (&["linear", "x=x.npy", "t=x.npy"], "t has the shape (600, 2), and not (600,); reshape it"),
        (
            &["linear", "x=x.npy", "t=t.npy", "--ridge", "-1"],
            "ridge is -1; give a number that is finite and not negative",
        ),
        (
            &["nearest", "--count", "2", "base=x.npy", "queries=t.npy"],
            "queries has the shape (1, 600), and not (q, 2); reshape it",
        ),
        (&["gram", "x=t.npy"], "x has the shape (600,), and not (n, d); reshape it"),
        (&["gram", "x=x.npy", "gram=g.f32:f32"], "'gram' has the dtype of its result: leave out that of its file"),
    ];
    for (args, words) in cases {
        let before = place.folder.files();
        let done = place.run(args);
        if !done.stderr.contains("device memory is limited") {
            done.is_error(2, &[words]);
        }
        assert_eq!(place.folder.files(), before, "{args:?}");
    }
    place.run(&["kmeans", "--count", "3", "x=x.npy", "centers=old.npy"]).is_error(1, &["old.npy", "exists"]);
    let json = place.run(&["pca", "--count", "0", "x=x.npy", "--json"]);
    assert!(json.code == Some(2) && json.stderr.contains("\"kind\":\"table\""), "{json:?}");
    RAN
}

/// A target that is the column of a Parquet file has the weights of the same values in a `.npy` file.
fn tables(device: &str) -> Outcome {
    let place = Place::new(device);
    if !place.has_room() {
        return not_run("the device has no room for a product");
    }
    let time = |row: usize| 1_700_000_000_000_000 + row as i64 * 1_000_001;
    let is_null = |row: usize| row % 7 == 3;
    let schema = Arc::new(parse_message_type("message t { OPTIONAL INT64 time (TIMESTAMP(MICROS, true)); }").unwrap());
    let mut file =
        SerializedFileWriter::new(File::create(place.folder.path("t.parquet")).unwrap(), schema, Arc::default())
            .unwrap();
    let mut group = file.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let times: Vec<i64> = (0..ROWS).filter(|row| !is_null(*row)).map(time).collect();
    let levels: Vec<i16> = (0..ROWS).map(|row| i16::from(!is_null(row))).collect();
    column.typed::<Int64Type>().write_batch(&times, Some(&levels), None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    file.close().unwrap();
    let filled: Vec<f64> = (0..ROWS).map(|row| if is_null(row) { -5.0 } else { time(row) as f64 }).collect();
    place.folder.npy("filled.npy", &filled);

    let fit = ["linear", "x=x.npy", "t=t.parquet", "weights=w.npy"];
    place.run(&[&fit[..], &["--nulls", "-5"]].concat()).is_error(1, &["t.parquet: has no column of numbers"]);
    place.run(&[&fit[..], &["--timestamps"]].concat()).is_error(1, &["'time' has 86 nulls", "--nulls"]);
    place.json(&[&fit[..], &["--timestamps", "--nulls", "-5"]].concat());
    place.json(&["linear", "x=x.npy", "t=filled.npy", "weights=filled-weights.npy"]);
    assert_eq!(place.numbers("w.npy"), place.numbers("filled-weights.npy"));
    RAN
}

fn failed(device: &str) -> Outcome {
    let place = Place::new(device);
    let mut x: Vec<f64> = (0..ROWS).flat_map(|row| [element(row, 0), element(row, 1)]).collect();
    x[901] = f64::NAN;
    place.table("nan.npy", 2, &x);
    let before = place.folder.files();
    for args in [
        &["kmeans", "--count", "3", "x=nan.npy", "centers=c.npy", "labels=l.npy"][..],
        &["linear", "x=nan.npy", "t=t.npy", "weights=w.npy"],
        &["pca", "--count", "1", "x=nan.npy", "components=p.npy"],
    ] {
        let done = place.run(args);
        if !done.stderr.contains("device memory is limited") {
            done.is_error(2, &["x has values that are infinite or NaN"]);
        }
        assert_eq!(place.folder.files(), before, "{args:?}");
    }
    RAN
}
