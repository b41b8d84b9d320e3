//! Columns of Parquet and Arrow files.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt16Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int32Array, RecordBatch, StringArray};
use arrow_ipc::CompressionType;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};

use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::json;

use crate::tools::{CaseFolder, Done, RAN, npy, results};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("columns of tables are inputs", inputs),
    ("columns of Arrow files are inputs", arrow),
    ("nulls are an error or get a value", nulls),
    ("timestamps are integers on request", timestamps),
    ("info shows the columns of tables", columns),
    ("columns side by side are one array", side_by_side),
    ("outputs are Arrow files", outputs),
    ("kept rows are a whole Arrow file", kept),
    ("parts write an Arrow file, and a run continues with it", divided),
    ("outputs are columns of one Arrow file", columns_of_one),
    ("a step reads the Arrow file of another one", steps),
    ("outputs that are no column are refused", no_column),
    ("outputs are columns of one Parquet file", parquet_outputs),
    ("rows that a filter cannot keep are not read", left_out),
    ("options about encoding need an output that is encoded", encoding),
    ("parts know which columns and which values they have", parts),
];

/// Writes `price`, `size`, of which every tenth row is null, and `side`, in row groups of 40 rows. Returns the prices.
pub fn table(place: &CaseFolder, name: &str, rows: i32) -> Vec<f64> {
    table_with(place, name, rows, |row| row % 10 == 0)
}

/// Writes such a table, with other nulls.
fn table_with(place: &CaseFolder, name: &str, rows: i32, is_null: fn(i32) -> bool) -> Vec<f64> {
    let schema = "message t { REQUIRED DOUBLE price; OPTIONAL INT32 size; REQUIRED BYTE_ARRAY side (STRING); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut file = SerializedFileWriter::new(File::create(place.path(name)).unwrap(), schema, Arc::default()).unwrap();
    let rows: Vec<i32> = (0..rows).collect();
    let price = |row: &i32| f64::from(*row) / 4.0;
    for rows in rows.chunks(40) {
        let mut group = file.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let prices: Vec<f64> = rows.iter().map(price).collect();
        column.typed::<DoubleType>().write_batch(&prices, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let sizes: Vec<i32> = rows.iter().copied().filter(|row| !is_null(*row)).collect();
        let levels: Vec<i16> = rows.iter().map(|row| i16::from(!is_null(*row))).collect();
        column.typed::<Int32Type>().write_batch(&sizes, Some(&levels), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&vec!["a".into(); rows.len()], None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    file.close().unwrap();
    rows.iter().map(price).collect()
}

fn inputs(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let prices = table(&place, "t.parquet", 100);
    let report = place.report(&["y = t.price * 2; sum(y)", "t=t.parquet", "y=y.npy"]);
    assert_eq!(results(&report)["sum(y)"], json!(prices.iter().sum::<f64>() * 2.0), "{report}");
    assert_eq!(place.files()["y.npy"].len(), 128 + 800);
    place.refused(1, &["t.parquet", "'side' is of the type string"], &["sum(t.side)", "t=t.parquet"]);
    place.refused(1, &["t.parquet", "has no column 'prize', only price, size, side"], &["sum(t.prize)", "t=t.parquet"]);
    let words = ["is a table of the columns price, size", "t.price", "t.parquet:price,size"];
    place.refused(1, &words, &["sum(x)", "x=t.parquet"]);
    RAN
}

/// Writes the same columns, in batches of 40 rows, compressed or not.
fn arrow_table(path: &Path, rows: i32, codec: Option<CompressionType>) {
    let rows: Vec<i32> = (0..rows).collect();
    let batch = |rows: &[i32]| {
        let price: ArrayRef = Arc::new(Float64Array::from_iter_values(rows.iter().map(|row| f64::from(*row) / 4.0)));
        let size = rows.iter().map(|row| (row % 10 > 0).then_some(*row));
        let side: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|_| "a")));
        RecordBatch::try_from_iter_with_nullable([
            ("side", side, false),
            ("price", price, false),
            ("size", Arc::new(Int32Array::from_iter(size)), true),
        ])
    };
    let options = IpcWriteOptions::default().try_with_compression(codec).unwrap();
    let schema = batch(&[]).unwrap().schema();
    let mut file = FileWriter::try_new_with_options(File::create(path).unwrap(), &schema, options).unwrap();
    rows.chunks(40).for_each(|rows| file.write(&batch(rows).unwrap()).unwrap());
    file.finish().unwrap();
}

fn arrow(device: &str) -> Outcome {
    for (codec, name) in [(None, "uncompressed"), (Some(CompressionType::ZSTD), "zstd")] {
        let place = CaseFolder::new(device);
        arrow_table(&place.path("t.feather"), 100, codec);
        let args = ["y = t.price * 2; sum(y), sum(t.size)", "--nulls", "0", "t=t.feather", "y=y.npy"];
        let report = place.report(&args);
        let sizes: i32 = (0..100).filter(|row| row % 10 > 0).sum();
        assert_eq!(results(&report), json!({ "sum(y)": 2475.0, "sum(t.size)": sizes }), "{report}");
        let direct = place.report(&["sum(t.price)", "--read-mode", "direct", "t=t.feather"]);
        assert_eq!(results(&direct)["sum(t.price)"], json!(1237.5), "{direct}");
        place.refused(1, &["t.feather", "'size' has 10 nulls", "--nulls VALUE"], &["sum(t.size)", "t=t.feather"]);
        place.refused(1, &["t.feather", "'side' is of the type string"], &["sum(t.side)", "t=t.feather"]);
        let done = place.overshot(&["info", "t.feather"]);
        let expected = format!(
            "  arrow: 3 record batches of at most 40 rows
  column side: string, which a job cannot read; {name}
  column price: f64; {name}
  column size: i32 with 10 nulls; {name}
"
        );
        assert!(done.stdout.ends_with(&expected), "{}", done.stdout);
    }
    RAN
}

fn nulls(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    table(&place, "t.parquet", 100);
    place.refused(1, &["'size' has 10 nulls", "--nulls VALUE"], &["sum(t.size)", "t=t.parquet"]);
    let wrong = ["--nulls", "nan", "sum(t.size)", "t=t.parquet"];
    place.refused(1, &["'size' of i32 has 10 nulls, and nan is no value of i32"], &wrong);
    let stats = |args: &[&str]| place.overshot(&[&["info", "--stats", "t.parquet:size"], args].concat());
    assert!(stats(&[]).stdout.contains("'size' has 10 nulls"));
    let done = stats(&["--nulls", "-1"]);
    assert!(done.code == Some(0) && done.stdout.contains("min -1, max"), "{done:?}");
    let report = place.report(&["--nulls", "-1", "sum(t.size), count(t.size < 0)", "t=t.parquet"]);
    let sum: i32 = (0..100).filter(|row| row % 10 != 0).sum();
    assert_eq!(results(&report), json!({ "sum(t.size)": sum - 10, "count(t.size < 0)": 10 }), "{report}");
    RAN
}

fn timestamps(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let schema = "message t { OPTIONAL INT64 time (TIMESTAMP(MICROS, true)); REQUIRED INT32 day (DATE); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut file =
        SerializedFileWriter::new(File::create(place.path("t.parquet")).unwrap(), schema, Arc::default()).unwrap();
    let mut group = file.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let times = [-1, 1_700_000_000_000_001, i64::MAX];
    column.typed::<Int64Type>().write_batch(&times, Some(&[1, 1, 0, 1]), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&[1, 2, 3, 4], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    file.close().unwrap();
    let text = "y = t.time; min(t.time), max(t.time)";
    let time = ["t.parquet", "'time' is of the type timestamp(micros)", "--timestamps"];
    place.refused(1, &time, &[text, "t=t.parquet", "y=y.npy", "--nulls=0"]);
    place.refused(1, &["'time' has 1 null,"], &[text, "t=t.parquet", "y=y.npy", "--timestamps"]);
    place.refused(1, &["'day' is of the type date"], &["sum(t.day)", "t=t.parquet", "--timestamps"]);
    let report = place.report(&[text, "t=t.parquet", "y=y.npy", "--nulls=0", "--timestamps"]);
    assert_eq!(results(&report), json!({ "min(t.time)": -1, "max(t.time)": i64::MAX }), "{report}");
    let bytes: Vec<u8> = [times[0], times[1], 0, times[2]].iter().flat_map(|time| time.to_le_bytes()).collect();
    assert!(place.files()["y.npy"].ends_with(&bytes));
    // A step of a job file has the same options.
    let step = "[[step]]\nname = \"last\"\nrun = \"max(t.time)\"\nfiles = { t = \"t.parquet\" }\n";
    place.raw("job.toml", format!("{step}options = {{ timestamps = true, nulls = 0 }}\n").as_bytes());
    let done = place.overshot(&["run", "job.toml"]);
    assert!(done.code == Some(0) && done.stdout.contains("max(t.time) = 9223372036854775807"), "{done:?}");
    let done = place.overshot(&["info", "t.parquet"]);
    let expected = "\
  column time: timestamp(micros) with 1 null, i64 with --timestamps; uncompressed
  column day: date, which a job cannot read; uncompressed
";
    assert!(done.stdout.ends_with(expected), "{done:?}");
    RAN
}

fn columns(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    table(&place, "a.parquet", 100);
    table(&place, "b.parquet", 30);
    let info = |args: &[&str]| -> Done { place.overshot(&[&["info"], args].concat()) };
    let done = info(&["?.parquet"]);
    let size = place.files()["a.parquet"].len() + place.files()["b.parquet"].len();
    let expected = "  2 files as one input
  parquet: 4 row groups of at most 40 rows
  column price: f64; uncompressed
  column size: i32 with 13 nulls; uncompressed
  column side: string, which a job cannot read; uncompressed
";
    let (title, columns) = done.stdout.split_once('\n').unwrap();
    assert!(title.starts_with("?.parquet: 130 rows, "), "{title}");
    assert_eq!((done.code, columns, &*done.stderr), (Some(0), expected, ""));
    let json: serde_json::Value = serde_json::from_str(&info(&["--json", "?.parquet"]).stdout).unwrap();
    let file = &json["files"][0];
    assert_eq!((&file["format"], &file["rows"], &file["file_bytes"]), (&json!("parquet"), &json!(130), &json!(size)));
    let column = json!({
        "name": "size", "kind": "int32", "dtype": "i32", "is_timestamp": false, "codec": "uncompressed", "nulls": 13
    });
    assert_eq!((&file["table"]["columns"][1], &file["table"]["longest_grain"]), (&column, &json!(40)));
    place.raw("c.parquet", b"PAR1 damaged");
    let done = info(&["c.parquet"]);
    assert_eq!(done.code, Some(1));
    assert!(done.stdout.contains("is not a complete Parquet file"), "{done:?}");
    RAN
}

fn side_by_side(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let prices = table(&place, "t.parquet", 100);
    arrow_table(&place.path("t.feather"), 100, None);
    let sizes = (0..100).map(|row| if row % 10 == 0 { 7.0 } else { f64::from(row) });
    let rows: Vec<f64> = prices.iter().zip(sizes).flat_map(|(price, size)| [price * 2.0, size * 2.0]).collect();
    for name in ["t.parquet", "t.feather"] {
        let x = format!("x={name}:price,size");
        let report = place.report(&["y = x * 2; sum(y)", "--nulls", "7", "--force", &x, "y=y.npy"]);
        assert_eq!(results(&report)["sum(y)"], json!(rows.iter().sum::<f64>()), "{report}");
        assert_eq!(report["outputs"][0]["shape"], json!([100, 2]), "{report}");
        assert_eq!(&place.files()["y.npy"][128..], bytemuck::cast_slice::<f64, u8>(&rows));
        place.refused(1, &[name, "'size' has 10 nulls", "--nulls VALUE"], &["sum(x)", &x]);
        place.refused(1, &[name, "'side' is of the type string"], &["sum(x)", "--nulls", "7", &format!("x={name}:*")]);
        place.refused(1, &[name, "has no column ''"], &["sum(x)", &format!("x={name}:price,,")]);
        let fields = ["columns are named behind the file", "reads 't.price'"];
        place.refused(2, &fields, &["sum(t.price)", &format!("t={name}:size")]);
        place.refused(2, &fields, &["sum(t.price)", &format!("t={name}:size,price")]);
        let clash = format!("y={name}:price");
        place.refused(1, &["leave the names of columns out"], &["y = x", "--nulls", "7", &x, &clash, "--force"]);
        let done = place.overshot(&["info", "--stats", name]);
        assert!(done.stdout.contains(&format!("overshot info --stats {name}:NAME")), "{done:?}");
        let done = place.overshot(&["info", "--stats", &format!("{name}:price,price")]);
        let shown = format!("{name}:price,price: 200 rows of f64, 1.6 kB, shape (100, 2)\n");
        assert!(done.stdout.starts_with(&shown) && done.stdout.contains("max 24.75"), "{done:?}");
        let done = place.overshot(&["info", &format!("{name}:price"), &format!("{name}:price,")]);
        let [one, list] = [":price: 100 rows of f64, 800 B\n", ":price,: 100 rows of f64, 800 B, shape (100, 1)\n"];
        assert!(done.stdout.contains(one) && done.stdout.contains(list), "{done:?}");
    }
    place.report(&["a = f32(i); b = f32(i) + 1", "--rows", "5000", "a=ab.parquet", "b=ab.parquet"]);
    let report = place.report(&["sum(x), max(x)", "x=ab.parquet:*"]);
    assert_eq!(results(&report), json!({ "sum(x)": 4999.0 * 5000.0 + 5000.0, "max(x)": 5000.0 }), "{report}");
    RAN
}

/// No sample of the rows shows which value takes the place of nulls.
fn parts(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    // Partials compare 128 of each 315 rows, from the first ones on.
    table_with(&place, "t.parquet", 20_000, |row| row == 200);
    for (nulls, partial) in [("0", "a.partial"), ("1", "b.partial")] {
        let part = if nulls == "0" { "0/2" } else { "1/2" };
        let args = ["--nulls", nulls, "--part", part, "--partial", partial, "max(t.size)", "t=t.parquet"];
        assert_eq!(place.run(&args).code, Some(0));
    }
    let done = place.overshot(&["merge", "a.partial", "b.partial"]);
    done.is_error(2, &["b.partial", "they differ in the input t.size"]);
    RAN
}

/// The values of a file with one column `y`, as another reader finds them.
fn read_elsewhere(path: &Path) -> Vec<f64> {
    let mut file = FileReader::try_new(File::open(path).unwrap(), None).unwrap();
    let batch = file.next().unwrap().unwrap();
    assert!(file.next().is_none() && batch.num_columns() == 1);
    let column = batch.column_by_name("y").unwrap();
    assert_eq!(column.null_count(), 0);
    column.as_primitive::<Float64Type>().values().to_vec()
}

/// A folder with x.npy, whose rows go down and up again.
fn with_rows(device: &str, rows: i32) -> (CaseFolder, Vec<f64>) {
    let place = CaseFolder::new(device);
    let x: Vec<f64> = (0..rows).map(|row| f64::from(row * 7919 % 10_007)).collect();
    place.npy("x.npy", &x);
    (place, x)
}

fn outputs(device: &str) -> Outcome {
    let (place, x) = with_rows(device, 20_011);
    let twice: Vec<f64> = x.iter().map(|x| x * 2.0).collect();
    for name in ["y.arrow", "y.feather", "y.ipc"] {
        let report = place.report(&["y = x * 2; sum(y)", "x=x.npy", &format!("y={name}"), "--checksum"]);
        assert_eq!(read_elsewhere(&place.path(name)), twice, "{name}");
        let hash = blake3::hash(&place.files()[name]).to_hex();
        assert_eq!(report["outputs"][0]["blake3"], json!(hash.as_str()), "{report}");
        let again = place.report(&["s = sum(t.y)", &format!("t={name}")]);
        assert_eq!(results(&again)["s"], results(&report)["sum(y)"], "{again}");
    }
    place.refused(1, &["y.arrow: exists already"], &["y = x", "x=x.npy", "y=y.arrow"]);
    place.report(&["y = x / 2", "x=x.npy", "y=y.arrow:f32", "--force"]);
    assert_eq!(results(&place.report(&["max(y)", "y=y.arrow"]))["max(y)"], json!(5003.0), "the only column");
    let done = place.overshot(&["info", "y.arrow"]);
    let column = "  arrow: 1 record batch of at most 20,011 rows\n  column y: f32; uncompressed\n";
    assert!(done.stdout.ends_with(column), "{}", done.stdout);
    // A result that is an array.
    place.report(&["y = bincount(u8(x), 256, x)", "x=x.npy", "y=y.arrow", "--force"]);
    assert_eq!(read_elsewhere(&place.path("y.arrow")).len(), 256);
    RAN
}

fn kept(device: &str) -> Outcome {
    let (place, x) = with_rows(device, 20_011);
    for least in [5000, 10_005, 20_000] {
        let text = format!("y = x[x >= {least}]");
        place.report(&[&text, "x=x.npy", "y=y.arrow", "--force"]);
        let kept: Vec<f64> = x.iter().copied().filter(|x| *x >= f64::from(least)).collect();
        assert_eq!(kept.is_empty(), least == 20_000);
        place.npy("k.npy", &kept);
        assert_eq!(read_elsewhere(&place.path("y.arrow")), kept);
        place.report(&["y = k", "k=k.npy", "y=z.arrow", "--force"]);
        let files = place.files();
        assert!(files["y.arrow"] == files["z.arrow"], "nothing is left of other rows");
    }
    RAN
}

fn divided(device: &str) -> Outcome {
    for text in ["y = x * 2", "y = x[x > 5000]"] {
        let (place, _) = with_rows(device, 20_011);
        place.report(&[text, "x=x.npy", "y=whole.arrow"]);
        for (part, partial) in [("1/2", "b"), ("0/2", "a")] {
            let done = place.run(&[text, "x=x.npy", "y=y.arrow", "--part", part, "--partial", partial]);
            assert_eq!((done.code, &*done.stderr), (Some(0), ""));
        }
        assert!(!place.path("y.arrow").exists());
        let done = place.overshot(&["merge", "a", "b", "--json", "--checksum"]);
        let report: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
        let whole = std::fs::read(place.path("whole.arrow")).unwrap();
        assert_eq!(report["outputs"][0]["blake3"], json!(blake3::hash(&whole).to_hex().as_str()), "{report}");
        place.report(&[text, "x=x.npy", "y=resumed.arrow", "--resume", "--resume-every=0"]);
        let files = place.files();
        assert!(files["y.arrow"] == whole && files["resumed.arrow"] == whole, "{text}");
        assert_eq!(place.names(), ["a", "b", "resumed.arrow", "whole.arrow", "x.npy", "y.arrow"]);
    }
    RAN
}

fn columns_of_one(device: &str) -> Outcome {
    let (place, x) = with_rows(device, 20_011);
    let files = ["x=x.npy", "y=t.arrow", "n=./t.arrow"];
    for text in ["y = x * 2; n = u16(x)", "y = x[x > 5000] * 2; n = u16(x[x > 5000])"] {
        let report = place.report(&[&[text, "--checksum", "--force"][..], &files].concat());
        let kept: Vec<f64> = x.iter().copied().filter(|x| *x > 5000.0 || !text.contains('[')).collect();
        let mut file = FileReader::try_new(File::open(place.path("t.arrow")).unwrap(), None).unwrap();
        let batch = file.next().unwrap().unwrap();
        assert_eq!((batch.num_columns(), batch.num_rows()), (2, kept.len()));
        let numbers = batch.column_by_name("n").unwrap().as_primitive::<UInt16Type>().values().to_vec();
        assert_eq!(numbers, kept.iter().map(|x| *x as u16).collect::<Vec<_>>());
        let twice = batch.column_by_name("y").unwrap().as_primitive::<Float64Type>().values().to_vec();
        assert_eq!(twice, kept.iter().map(|x| x * 2.0).collect::<Vec<_>>());
        let hash = blake3::hash(&place.files()["t.arrow"]).to_hex();
        for output in report["outputs"].as_array().unwrap() {
            assert_eq!(output["blake3"], json!(hash.as_str()), "{report}");
        }
        let again = place.report(&["r = max(abs(t.y - t.n * 2))", "t=t.arrow"]);
        assert_eq!(results(&again)["r"], json!(0.0), "{again}");
    }
    let text = "y = x * 2; n = u16(x)";
    place.refused(1, &["t.arrow: exists already"], &[&[text], &files[..]].concat());
    let words = ["the outputs 'y' and 'n' are columns of one file", "without a journal"];
    let fresh = ["x=x.npy", "y=u.arrow", "n=u.arrow"];
    place.refused(2, &words, &[&[text, "--part=0/2", "--partial=p"], &fresh[..]].concat());
    place.refused(2, &words, &[&[text, "--resume"], &fresh[..]].concat());
    for others in [["y=u.npy", "n=u.npy"], ["y=u.arrow", "n=u.arrow:f64!"], ["y=u.arrow:f64!", "n=u.arrow"]] {
        let words = ["is both 'y' and the output 'n': write to another file"];
        place.refused(2, &words, &[&[text, "x=x.npy"], &others[..]].concat());
    }
    place.refused(
        2,
        &["is both 't.y' and the output 'y'"],
        &["y = t.y; n = t.n", "t=t.arrow", "y=t.arrow", "n=t.arrow"],
    );
    place.refused(1, &["u.arrow", "cannot hold bool"], &["y = x; n = x > 5", "x=x.npy", "y=u.arrow", "n=u.arrow"]);
    RAN
}

fn steps(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let job = r#"
[[step]]
name = "make"
run = "y = f64(i) ** 2"
files = { y = "t.arrow" }
options = { rows = "1e4" }

[[step]]
name = "use"
run = "s = sum(t.y)"
files = { t = "t.arrow" }
"#;
    place.raw("job.toml", job.as_bytes());
    let statuses = || {
        let done = place.overshot(&["run", "--json", "job.toml"]);
        let report: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
        let steps = report["steps"].as_array().unwrap();
        steps.iter().map(|step| step["status"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(statuses(), ["ran", "ran"]);
    assert_eq!(statuses(), ["skipped", "skipped"]);
    assert_eq!(read_elsewhere(&place.path("t.arrow")).len(), 10_000);
    RAN
}

fn no_column(device: &str) -> Outcome {
    let (place, x) = with_rows(device, 100);
    let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    place.raw("m.npy", &npy("<f8", "False", "(20, 5)", &bytes));
    let shape = ["y.arrow", "cannot hold the shape (20, 5), because a column has one dimension", ".npy"];
    place.refused(1, &shape, &["y = m + 1", "m=m.npy", "y=y.arrow"]);
    place.refused(1, &["y.feather", "cannot hold bool", "u8(y)"], &["y = x > 5", "x=x.npy", "y=y.feather"]);
    place.refused(1, &["y.arrow", "cannot hold bf16", "y.bf16"], &["y = bf16(x)", "x=x.npy", "y=y.arrow"]);
    let parts = ["y = x > 5", "x=x.npy", "y=y.arrow", "--part=0/2", "--partial=p"];
    place.refused(1, &["y.arrow", "cannot hold bool"], &parts);
    place.report(&["y = x > 5", "x=x.npy", "y=y.arrow:u8"]);
    assert_eq!(results(&place.report(&["sum(y)", "y=y.arrow"]))["sum(y)"], json!(99));
    RAN
}

/// Returns a column of doubles, as the crate parquet reads it.
fn doubles(path: &Path, column: usize) -> Vec<f64> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let of_group = |group: usize| {
        let group = reader.get_row_group(group).unwrap();
        let ColumnReader::DoubleColumnReader(mut values) = group.get_column_reader(column).unwrap() else { panic!() };
        let mut all = Vec::new();
        values.read_records(usize::MAX, None, None, &mut all).unwrap();
        all
    };
    (0..reader.num_row_groups()).flat_map(of_group).collect()
}

fn left_out(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let make = "day = i32(i // 500); sold = f64(i % 7)";
    place.report(&[make, "--rows=50000", "--chunks=5000", "day=s.parquet", "sold=s.parquet"]);
    let sold: Vec<f64> = (3500..4000).map(|row| f64::from(row % 7)).collect();
    for (text, value, note) in [
        // A page has the rows of ten days.
        ("r = sum(s.sold[s.day == 7])", sold.iter().sum(), "45,000 of 's.sold', 45,000 of 's.day'"),
        ("r = max(s.sold[s.day == 7] + s.day[s.day == 7])", 13.0, "45,000 of 's.sold', 45,000 of 's.day'"),
        ("r = sum(where(s.day > 1000, s.sold, 1))", 50_000.0, "50,000 of 's.day', 50,000 of 's.sold'"),
        ("r = count(s.day == 7) + max(s.sold)", 506.0, "45,000 of 's.day'"),
    ] {
        let report = place.report(&[text, "s=s.parquet", "--verify=1"]);
        assert_eq!(results(&report)["r"], json!(value), "{report}");
        assert!(report["notes"].to_string().contains(&format!("on them: {note}\"")), "{report}");
    }
    let report = place.report(&["r = sum(s.sold)", "s=s.parquet"]);
    assert!(!report["notes"].to_string().contains("were not read"), "{report}");
    RAN
}

fn parquet_outputs(device: &str) -> Outcome {
    let (place, x) = with_rows(device, 20_011);
    let files = ["x=x.npy", "y=t.parquet", "n=./t.parquet"];
    for text in ["y = x * 2; n = u16(x)", "y = x[x > 5000] * 2; n = u16(x[x > 5000])", "y = x[x < 0]; n = i[x < 0]"] {
        let kept: Vec<f64> = match text.find(['<', '>']) {
            Some(at) if text[at..].starts_with('<') => vec![],
            Some(_) => x.iter().copied().filter(|x| *x > 5000.0).collect(),
            None => x.clone(),
        };
        for options in [&["--chunks=777", "--codec=snappy"][..], &["--codec=zstd:9", "--fsync"]] {
            place.report(&[&[text, "--force"], &files[..], options].concat());
            assert_eq!(doubles(&place.path("t.parquet"), 0), kept.iter().map(|x| x * 2.0).collect::<Vec<_>>());
            let again = place.report(&["r = count(t.y == t.n * 2)", "t=t.parquet"]);
            assert_eq!(results(&again)["r"], json!(kept.len()), "{again}");
            let bytes = place.files()["t.parquet"].clone();
            place.report(&[&[text, "--force", "--chunk=32KiB"], &files[..], options].concat());
            assert!(place.files()["t.parquet"] == bytes, "the bytes do not depend on the chunks");
        }
    }
    place.report(&["y = x * 2; n = u16(x)", "x=x.npy", "y=s.parquet", "n=s.parquet", "--chunks=777"]);
    let done = place.overshot(&["info", "s.parquet"]);
    let expected = "\
  parquet: 26 row groups of at most 777 rows
  column y: f64; zstd
  column n: u16; zstd
";
    assert!(done.stdout.ends_with(expected), "{done:?}");
    place.refused(1, &["s.parquet: exists already"], &["y = x", "x=x.npy", "y=s.parquet"]);
    place.refused(2, &["is both 't.y' and the output 'y'"], &["y = t.y", "t=s.parquet", "y=s.parquet", "--force"]);
    place.refused(1, &["n.parquet", "cannot hold bf16"], &["y = bf16(x)", "x=x.npy", "y=n.parquet"]);
    for options in [&["--part=0/2", "--partial=p"][..], &["--resume"], &["--checksum"]] {
        place.refused(2, &["'y'"], &[&["y = x", "x=x.npy", "y=n.parquet"], options].concat());
    }
    // A result that is an array.
    place.report(&["y = bincount(u8(x), 256, x)", "x=x.npy", "y=counts.parquet"]);
    assert_eq!(doubles(&place.path("counts.parquet"), 0).iter().sum::<f64>(), x.iter().sum::<f64>());
    RAN
}

fn encoding(device: &str) -> Outcome {
    let (place, _) = with_rows(device, 100);
    let args = ["y = x; z = x + 1", "x=x.npy", "y=y.npy"];
    place.refused(
        2,
        &["--codec is for Parquet and Zarr outputs", "y=y.parquet"],
        &[&args[..], &["--codec=lz4"]].concat(),
    );
    place.refused(2, &["--chunks is for Parquet and Zarr outputs"], &[&args[..], &["--chunks=10"]].concat());
    place.refused(2, &["--shards is for Zarr outputs", "y=y.zarr"], &[&args[..], &["z=z.npy", "--shards=20"]].concat());
    place.refused(2, &["--dimensions is for Zarr outputs"], &[&args[..], &["--dimensions=t"]].concat());
    place.refused(2, &["no codec 'zip': use none, snappy, lz4, zstd"], &[&args[..], &["--codec=zip"]].concat());
    // They are for those outputs that are encoded.
    place.report(&[&args[..], &["z=z.parquet", "--codec=lz4", "--chunks=10"]].concat());
    let done = place.overshot(&["info", "z.parquet"]);
    assert!(done.stdout.contains("10 row groups of at most 10 rows\n  column z: f64; lz4_raw"), "{done:?}");
    RAN
}
