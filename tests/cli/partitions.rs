//! Tables in folders whose names have keys: `sales/year=2024/part-0.parquet`.

use std::fs;

use serde_json::json;

use crate::tables::table;
use crate::tools::{CaseFolder, RAN, results};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("keys of folders are columns", keys),
    ("info shows the keys of folders", info),
    ("parts know the keys of folders", parts),
    ("a step that reads folders with keys runs again if a file in them changes", steps),
];

/// The files, each with its rows.
const FILES: [(&str, i32); 4] = [
    ("sales/year=2023/month=12/part-0.parquet", 90),
    ("sales/year=2024/month=2/part-0.parquet", 100),
    ("sales/year=2024/month=2/part-1.parquet", 50),
    ("sales/year=2024/month=10/part-0.parquet", 70),
];

/// Writes the files. Returns the year, the month and the price of each row.
fn sales(place: &CaseFolder) -> Vec<(i64, i64, f64)> {
    let mut rows = Vec::new();
    for (name, count) in FILES {
        fs::create_dir_all(place.path(name).parent().unwrap()).unwrap();
        let value = |place: usize| name.split(['=', '/']).nth(place).unwrap().parse().unwrap();
        rows.extend(table(place, name, count).into_iter().map(|price| (value(2), value(4), price)));
    }
    place.raw("sales/_SUCCESS", b"");
    rows
}

fn keys(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let rows = sales(&place);
    let sum = |keep: fn(&(i64, i64, f64)) -> bool| rows.iter().filter(|row| keep(row)).map(|row| row.2).sum::<f64>();
    for t in ["t=sales", "t=sales/*/*/*.parquet", "t=sales/year*"] {
        let text = "sum(t.price), sum(t.price[t.year == 2024]), sum(t.price[t.month > 9]), max(t.year), sum(t.month)";
        let report = place.report(&["--chunk", "32KiB", text, t]);
        let expected = json!({
            "sum(t.price)": sum(|_| true),
            "sum(t.price[t.year == 2024])": sum(|row| row.0 == 2024),
            "sum(t.price[t.month > 9])": sum(|row| row.1 > 9),
            "max(t.year)": 2024,
            "sum(t.month)": rows.iter().map(|row| row.1).sum::<i64>(),
        });
        assert_eq!(results(&report), expected, "{t}");
    }
    let report = place.report(&["sum(t.price[t.year == 2024])", "t=sales"]);
    let note = "on them: 90 of 't.price', 310 of 't.year'\"";
    assert!(report["notes"].to_string().contains(note), "files of other years are not decoded: {report}");
    // The rows have their own values.
    let months = place.report(&["y = t.month * 1000 + t.year", "t=sales", "y=y.npy"]);
    assert_eq!(months["rows"], json!(rows.len()));
    let bytes: Vec<u8> = rows.iter().flat_map(|row| (row.1 * 1000 + row.0).to_le_bytes()).collect();
    assert!(place.files()["y.npy"].ends_with(&bytes));
    place.refused(1, &["has no column 'year'", "price, size, side"], &["sum(t.year)", "t=sales/year=2024"]);
    place.refused(1, &["has no column 'day'"], &["sum(t.day)", "t=sales"]);
    let output = "y=sales/year=2024/month=2/part-1.parquet";
    let clash = ["part-1.parquet", "is both 't.price' and the output 'y'"];
    place.refused(2, &clash, &["y = t.price", "t=sales", output, "--force"]);
    place.refused(2, &["is both 't.year'"], &["y = t.year", "t=sales", output, "--force"]);
    // A key goes before a column of the same name.
    fs::create_dir_all(place.path("both/price=7")).unwrap();
    table(&place, "both/price=7/t.parquet", 10);
    let report = place.report(&["sum(t.price), count(t.size >= 0)", "t=both", "--nulls=-1"]);
    assert_eq!(results(&report), json!({ "sum(t.price)": 70, "count(t.size >= 0)": 9 }));
    // Texts are refused by name, and files with other keys.
    fs::create_dir_all(place.path("texts/region=eu")).unwrap();
    table(&place, "texts/region=eu/t.parquet", 10);
    place.refused(1, &["texts: its key 'region' has the value 'eu'"], &["sum(t.region)", "t=texts"]);
    table(&place, "texts/t.parquet", 10);
    let other = ["t.parquet: is in folders with other keys (none) than texts/region=eu/t.parquet (region)"];
    place.refused(1, &other, &["sum(t.price)", "t=texts"]);
    RAN
}

fn info(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let rows = sales(&place);
    let done = place.overshot(&["info", "sales"]);
    let keys = "  key year: i64\n  key month: i64\n";
    assert!(done.code == Some(0) && done.stdout.ends_with(keys), "{done:?}");
    assert!(done.stdout.starts_with(&format!("sales: {} rows, ", rows.len())), "{done:?}");
    let info = |name: &str| -> serde_json::Value {
        serde_json::from_str(&place.overshot(&["info", "--json", name]).stdout).unwrap()
    };
    let month = json!([{ "name": "month", "dtype": "i64" }]);
    assert_eq!(info("sales/year=2024")["files"][0]["keys"], month);
    assert_eq!(info(FILES[0].0)["files"][0]["keys"], json!([]));
    fs::rename(place.path("sales/year=2023"), place.path("sales/year=old")).unwrap();
    let done = place.overshot(&["info", "sales"]);
    assert!(done.stdout.contains("  key year: texts, which a job cannot read\n  key month: i64\n"), "{done:?}");
    table(&place, "sales/part-0.parquet", 10);
    let done = place.overshot(&["info", "sales"]);
    assert_eq!(done.code, Some(1));
    assert!(done.stdout.contains("is in folders with other keys"), "{done:?}");
    RAN
}

/// The same files in other folders are other values.
fn parts(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    fs::create_dir_all(place.path("t/key=1")).unwrap();
    table(&place, "t/key=1/t.parquet", 20_000);
    let part = |part: &str, partial: &str| {
        assert_eq!(place.run(&["--part", part, "--partial", partial, "sum(t.key)", "t=t"]).code, Some(0));
    };
    part("0/2", "a.partial");
    part("1/2", "b.partial");
    let done = place.overshot(&["merge", "--quiet", "a.partial", "b.partial"]);
    assert_eq!((done.code, &*done.stdout), (Some(0), "sum(t.key) = 20000\n"), "{done:?}");
    fs::rename(place.path("t/key=1"), place.path("t/key=2")).unwrap();
    part("1/2", "b.partial");
    place.overshot(&["merge", "a.partial", "b.partial"]).is_error(2, &["b.partial", "they differ in the input t.key"]);
    RAN
}

fn steps(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    sales(&place);
    fs::create_dir_all(place.path("made/k=1")).unwrap();
    let job = r#"
[[step]]
name = "sum"
run = "sum(t.price[t.year == 2024])"
files = { t = "sales" }

[[step]]
name = "make"
run = "y = f64(i)"
files = { y = "made/k=1/y.parquet" }
options = { rows = "10" }

[[step]]
name = "use"
run = "sum(t.y * t.k)"
files = { t = "made" }
"#;
    place.raw("job.toml", job.as_bytes());
    let why = || {
        let done = place.overshot(&["plan", "job.toml"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let titles = done.stdout.lines().filter(|line| line.starts_with('['));
        titles.map(|title| title.split_once(": would ").unwrap().1.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(why(), ["run (never ran)", "run (never ran)", "run (never ran)"]);
    let done = place.overshot(&["run", "job.toml"]);
    assert!(done.code == Some(0) && done.stdout.contains("sum(t.y * t.k) = 45.0"), "{done:?}");
    assert_eq!(why(), ["be skipped"; 3]);
    table(&place, FILES[2].0, 60);
    assert_eq!(why()[0], format!("run (input {} changed)", FILES[2].0));
    fs::remove_file(place.path(FILES[2].0)).unwrap();
    assert_eq!(why()[0], format!("run (input {} is gone)", FILES[2].0));
    table(&place, FILES[2].0, 50);
    assert_eq!(place.overshot(&["run", "job.toml"]).code, Some(0));
    fs::create_dir_all(place.path("sales/year=2025/month=1")).unwrap();
    table(&place, "sales/year=2025/month=1/part-0.parquet", 10);
    assert_eq!(why()[0], "run (input sales/year=2025/month=1/part-0.parquet is new)");
    RAN
}
