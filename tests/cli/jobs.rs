//! Jobs that succeed: their files, results and reports.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::tools::{CaseFolder, RAN, binary, done, not_run, npy, results, rows};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("files in, files and results out", product),
    ("the same bytes and results as on the CPU", same_as_cpu),
    ("no rows and one row", few_rows),
    ("the report as JSON", json),
    ("a trace has every stage of every chunk", trace),
    ("a trace that exists is replaced", old_trace),
    ("pages of a report and a plan", pages),
    ("quiet prints only the results", quiet),
    ("numbers for names", numbers),
    ("the examples of the help", examples),
    ("the headings of the help", headings),
    ("a plan shows its formulas and makes nothing", plan),
    ("rows without inputs", generated),
    ("names that are not UTF-8", odd_names),
    ("several files as one input", several_files),
    ("fields of records", fields),
    ("a file in Fortran order", fortran_order),
    ("a reader that goes away", broken_pipe),
    ("devices", devices),
    ("examples/batch.sh", batch),
];

fn product(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let a: Vec<f64> = (0..100_000).map(f64::from).collect();
    place.npy("a.npy", &a);
    place.npy("b.npy", &vec![2.0; a.len()]);
    let report = place.report(&["t = a * b; c = t + 1; max(t), n = count(a > 9)", "a=a.npy", "b=b.npy", "c=c.npy"]);
    assert_eq!(results(&report), serde_json::json!({"max(t)": 199_998.0, "n": 99_990}));
    let expected: Vec<f64> = a.iter().map(|a| a * 2.0 + 1.0).collect();
    assert_eq!(rows(&fs::read(place.path("c.npy")).unwrap()), expected);
    assert_eq!(place.names(), ["a.npy", "b.npy", "c.npy"]);
    RAN
}

fn several_files(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let x: Vec<f64> = (0..200_000).map(|row| f64::from(row) * 0.7 - 1e4).collect();
    place.npy("x.npy", &x);
    fs::create_dir(place.path("parts")).unwrap();
    // Chunks cross the borders of files, which are no multiples of anything.
    for (part, rows) in [&x[..70_001], &[], &x[70_001..70_002], &x[70_002..]].into_iter().enumerate() {
        place.npy(&format!("parts/{}.npy", 8 + part), rows);
    }
    place.raw("parts/.9.npy.journal", b"what another job left");
    let text = "y = x * 0.5 + i; sum(x), argmax(y)";
    let limits = ["--chunk", "300KiB", "--workers", "3"];
    let expected = place.report(&[&[text, "x=x.npy", "y=y.npy"], &limits[..]].concat());
    for input in ["x=parts", "x=parts/*.npy", "x=./parts/"] {
        let report = place.report(&[&[text, input, "y=z.npy", "--force"], &limits[..]].concat());
        assert_eq!(results(&report), results(&expected), "{input}");
        assert_eq!(report["inputs"][0]["path"], input[2..], "{input}");
        assert!(fs::read(place.path("z.npy")).unwrap() == fs::read(place.path("y.npy")).unwrap(), "{input}");
    }
    place.run(&["sum(x)", "x=parts", "--part", "0/2", "--partial", "p0"]);
    place.run(&["sum(x)", "x=parts", "--part", "1/2", "--partial", "p1"]);
    let merged = place.overshot(&["merge", "p0", "p1", "--json"]);
    let merged: Value = serde_json::from_str(&merged.stdout).unwrap();
    assert_eq!(results(&merged)["sum(x)"], results(&expected)["sum(x)"]);
    // Another process sees that one of the files is another one.
    place.npy("parts/10.npy", &[1.0]);
    place.run(&["sum(x)", "x=parts", "--part", "1/2", "--partial", "p1"]);
    place.overshot(&["merge", "p0", "p1"]).is_error(2, &["the input x: the size or the time of a file of it"]);
    let output = "y=parts/10.npy";
    place.refused(2, &["10.npy is both 'x' and the output 'y'"], &["y = x", "x=parts", output, "--force"]);
    place.refused(2, &["is both the trace and 'x'"], &["sum(x)", "x=parts", "--trace", "parts/9.npy"]);
    place.npy("parts/11.npy", &[2.0]);
    fs::rename(place.path("parts/11.npy"), place.path("parts/11.f64")).unwrap();
    place.refused(1, &["parts/11.f64: is a .npy file under another name"], &["sum(x)", "x=parts"]);
    place.refused(1, &["none-*.npy: no file has a name of this pattern"], &["sum(x)", "x=none-*.npy"]);
    RAN
}

fn fields(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    // An f64 that is not aligned, and a big-endian u16.
    let descr = "[('side', '|u1'), ('price', '<f8'), ('size', '>u2')]";
    let record =
        |row: u16| [&[(row % 2) as u8][..], &(f64::from(row) * 0.25).to_le_bytes(), &row.to_be_bytes()].concat();
    let records = |rows: std::ops::Range<u16>| {
        npy(descr, "False", &format!("({},)", rows.len()), &rows.flat_map(record).collect::<Vec<_>>())
    };
    place.raw("trades.npy", &records(0..50_000));
    place.raw("part-1.npy", &records(0..20_001));
    place.raw("part-2.npy", &records(20_001..50_000));
    let price: Vec<f64> = (0..50_000u16).map(|row| f64::from(row) * 0.25).collect();
    place.npy("price.npy", &price);
    let sum: f64 = price.iter().zip(0u16..).map(|(price, row)| price * f64::from(row)).sum();
    let text = "v = t.price * t.size; n = count(t.side == 1), s = sum(v)";
    for (input, mode) in [("trades", "map"), ("trades", "pread"), ("trades", "direct"), ("part-*", "map")] {
        let file = format!("t={input}.npy");
        let limits = ["--chunk", "100KiB", "--read-mode", mode, "--force"];
        let report = place.report(&[&[text, &file, "v=v.npy"], &limits[..]].concat());
        let results = results(&report);
        assert_eq!((&results["n"], results["s"].as_f64()), (&25_000.into(), Some(sum)), "{input} {mode}");
        let expected: Vec<f64> = price.iter().zip(0u16..).map(|(price, row)| price * f64::from(row)).collect();
        assert_eq!(rows(&fs::read(place.path("v.npy")).unwrap()), expected, "{input} {mode}");
    }
    let other = place.report(&["max(t.price - t.size)", "t=trades.npy", "t.size=price.npy"]);
    assert_eq!(results(&other)["max(t.price - t.size)"], 0.0, "a field with a file of its own");
    place.refused(1, &["trades.npy: has no field 'prize', only side, price, size"], &["sum(t.prize)", "t=trades.npy"]);
    place.refused(1, &["price.npy: holds no records"], &["sum(t.price)", "t=price.npy"]);
    place.refused(1, &["trades.npy: holds records", "t.price is the field"], &["sum(t)", "t=trades.npy"]);
    place.refused(2, &["the job has no name 's', only t.price"], &["sum(t.price)", "s=trades.npy"]);
    place.refused(2, &["'t.price'"], &["sum(t.price)"]);
    RAN
}

fn fortran_order(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let (high, wide) = (3001, 70);
    let x = |row: usize| (row as f64).sqrt() - 99.0;
    let data = |place: fn(usize, usize) -> usize| -> Vec<u8> {
        (0..high * wide).flat_map(|at| x(place(at / high, at % high)).to_le_bytes()).collect()
    };
    // The numbers of rows of the elements, as they lie in the file.
    let columns = data(|column, row| row * 70 + column);
    let rows: Vec<u8> = (0..high * wide).flat_map(|row| x(row).to_le_bytes()).collect();
    place.raw("f.npy", &npy("<f8", "True", "(3001, 70)", &columns));
    place.raw("c.npy", &npy("<f8", "False", "(3001, 70)", &rows));
    // Elementwise, chunks begin anywhere in a row; otherwise they have whole ones.
    for text in ["y = x * 2 + 1; sum(x), argmax(y)", "y = x - mean(x, axis=0); min(y)", "s = sum(x, axis=1)"] {
        let output = if text.starts_with('y') { "y=y" } else { "s=y" };
        let limits = ["--chunk", "100KiB", "--workers", "3", "--force"];
        let expected = place.report(&[&[text, "x=c.npy", &format!("{output}c.npy")], &limits[..]].concat());
        for mode in ["map", "pread", "direct"] {
            let modes = ["--read-mode", mode];
            let output = format!("{output}f.npy");
            let report = place.report(&[&[text, "x=f.npy", &output], &limits[..], &modes[..]].concat());
            assert_eq!(results(&report), results(&expected), "{text} {mode}");
            let [own, other] = ["yf.npy", "yc.npy"].map(|name| fs::read(place.path(name)).unwrap());
            assert!(own == other, "{text} {mode}");
            let notes = report["notes"].to_string();
            assert!(notes.contains("f.npy is in Fortran order, so its rows are gathered"), "{notes}");
        }
    }
    RAN
}

fn same_as_cpu(device: &str) -> Outcome {
    // Enough rows for several chunks, among them all kinds of floats.
    let mut a: Vec<f64> = (0..300_001).map(|row| f64::from(row) * 0.7 - 1e5).collect();
    (a[7], a[70_000], a[200_000]) = (f64::NAN, f64::INFINITY, -0.0);
    let places = [CaseFolder::new(device), CaseFolder::new("cpu")];
    for text in [
        "c = sqrt(a * a + 1) / 3; mean(c), min(c), argmax(a), sum(a), std(a - 5)",
        "c = i32(a) // 7 % 5; sum(c), any(c > 3), all(c < 5)",
        "c = where(a > 0, a, i); t = isnan(a); count(t)",
        "c = u8(i) << 1; var(c), count(a > 0)",
    ] {
        let [here, cpu] = places.each_ref().map(|place| {
            place.npy("a.npy", &a);
            let limits = ["--chunk", "300KiB", "--workers", "3", "--force"];
            let report = place.report(&[&[text, "a=a.npy", "c=c.npy"], &limits[..]].concat());
            (results(&report), fs::read(place.path("c.npy")).unwrap())
        });
        assert_eq!(here.0, cpu.0, "{text}");
        assert!(here.1 == cpu.1, "{text}: the files differ");
    }
    RAN
}

fn few_rows(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    for values in [&[][..], &[4.0]] {
        place.npy("a.npy", values);
        let report = place.report(&["c = sqrt(a); sum(c), max(c)", "a=a.npy", "c=c.npy", "--force"]);
        assert_eq!(report["rows"], values.len());
        assert_eq!(results(&report)["sum(c)"], values.first().map_or(0.0, |value| value.sqrt()));
        assert_eq!(results(&report)["max(c)"].as_f64(), values.first().map(|value| value.sqrt()));
        assert_eq!(rows(&fs::read(place.path("c.npy")).unwrap()).len(), values.len());
    }
    place.raw("x.f32", &[]);
    place.report(&["y = x", "x=x.f32:f32", "y=y.f32"]);
    assert!(fs::read(place.path("y.f32")).unwrap().is_empty());
    RAN
}

fn json(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.npy("a.npy", &[1.0; 10_000]);
    let report = place.report(&["c = a + 1; sum(c), min(log(0 * c))", "a=a.npy", "c=c.npy"]);
    assert_eq!((&report["rows"], &results(&report)["sum(c)"]), (&10_000.into(), &20_000.0.into()));
    // JSON has no infinity.
    assert_eq!(results(&report)["min(log(0 * c))"], "-inf");
    let output = &report["outputs"][0];
    assert_eq!((&output["name"], &output["dtype"], &output["path"]), (&"c".into(), &"f64".into(), &"c.npy".into()));
    for key in ["chunks", "chunk_rows", "bytes_to_device", "bytes_from_device", "peak_pinned_bytes"] {
        assert!(report[key].is_u64(), "{key}: {report}");
    }
    assert!(report["seconds"].as_f64().is_some_and(|seconds| seconds >= 0.0));
    for part in report["devices"].as_array().unwrap() {
        assert!(part["name"].is_string() && part["kind"].is_string());
        assert!(part["chunks"].is_u64() && part["peak_device_bytes"].is_u64());
        // A device on which nothing takes time has no stages.
        for stage in ["fill", "copy_in", "kernel", "copy_out", "drain"].iter().filter(|_| !part["stages"].is_null()) {
            for time in ["busy_seconds", "waiting_seconds"] {
                assert!(part["stages"][stage][time].as_f64().is_some_and(|seconds| seconds >= 0.0), "{stage} {time}");
            }
        }
    }
    let moved = if device == "cpu" { 0 } else { 80_000 };
    assert!(report["bytes_to_device"].as_u64() >= Some(moved) && report["bytes_from_device"].as_u64() >= Some(moved));
    RAN
}

fn trace(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let rows = 200_000;
    place.npy("a.npy", &vec![1.0; rows]);
    let report = place.report(&["c = a + 1", "a=a.npy", "c=c.npy", "--trace", "t.json", "--chunk", "256KiB"]);
    let events: Vec<Value> = serde_json::from_slice(&fs::read(place.path("t.json")).unwrap()).unwrap();
    let named = |name: &'static str| events.iter().filter(move |event| event["ph"] == "X" && event["name"] == name);
    let stages = if device == "cpu" { &["compute"][..] } else { &["fill", "copy in", "kernel", "copy out", "drain"] };
    for stage in stages {
        let rows_of = |event: &Value| event["args"]["rows"].as_u64().unwrap();
        assert_eq!(named(stage).map(rows_of).sum::<u64>(), rows as u64, "{stage}");
        assert!(named(stage).all(|event| event["ts"].as_f64() >= Some(0.0) && event["dur"].as_f64() >= Some(0.0)));
    }
    if device.starts_with("emulated") {
        // Its time is virtual, but not zero, and copies overlap kernels.
        let times = |name| named(name).map(|event| (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap()));
        assert!(stages.iter().all(|stage| times(stage).all(|(_, duration)| duration > 0.0)), "{events:?}");
        let overlap = |(a, long): (f64, f64)| times("kernel").any(|(b, wide)| a < b + wide && b < a + long);
        assert!(times("copy in").any(overlap), "{events:?}");
        let virtual_seconds = report["devices"][0]["virtual_seconds"].as_f64();
        assert!(virtual_seconds > Some(0.0), "{report}");
        assert!(report["devices"][0]["stages"]["kernel"]["busy_seconds"].as_f64() > Some(0.0), "{report}");
    }
    let names = || events.iter().filter(|event| event["name"] == "thread_name").map(|event| &event["args"]["name"]);
    for row in if device == "cpu" { &["worker "][..] } else { &["copy in", "kernels", "copy out"] } {
        assert!(names().any(|name| name.as_str().is_some_and(|name| name.starts_with(row))), "{row}");
    }
    // Workers have the numbers that errors and logs give them.
    let workers = report["devices"][0]["workers"].as_u64().unwrap();
    let numbers = names().filter_map(|name| name.as_str()?.strip_prefix("worker ")?.parse::<u64>().ok());
    assert!(numbers.max() < Some(workers), "{events:?}");
    assert!(report["chunks"].as_u64() > Some(4));
    RAN
}

/// An existing trace is replaced through its link, and keeps its permissions.
fn old_trace(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.npy("a.npy", &[1.0; 10]);
    place.raw("t.json", b"the trace of an earlier job");
    fs::set_permissions(place.path("t.json"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("t.json", place.path("link.json")).unwrap();
    place.report(&["sum(a)", "a=a.npy", "--trace", "link.json"]);
    assert!(fs::symlink_metadata(place.path("link.json")).unwrap().is_symlink());
    let metadata = fs::metadata(place.path("t.json")).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
    serde_json::from_slice::<Vec<Value>>(&fs::read(place.path("t.json")).unwrap()).unwrap();
    assert_eq!(place.names(), ["a.npy", "link.json", "t.json"]);
    RAN
}

/// `tests/html/check.py` examines pages in a browser.
fn pages(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.npy("a.npy", &vec![1.0; 200_000]);
    place.raw("p.html", b"the page of an earlier job");
    fs::set_permissions(place.path("p.html"), fs::Permissions::from_mode(0o640)).unwrap();
    let read = |name: &str| fs::read_to_string(place.path(name)).unwrap();
    let args = ["c = a + 1; max(c)", "a=a.npy", "c=c.npy", "--html", "p.html", "--trace", "t.json"];
    let report = place.report(&args);
    let page = read("p.html");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<title>c = a + 1; max(c)</title>"), "{page}");
    for part in ["200,000", "max(c)", "2.0", "c.npy", "Timeline", report["devices"][0]["name"].as_str().unwrap()] {
        assert!(page.contains(part), "no '{part}' in {page}");
    }
    assert_eq!(fs::metadata(place.path("p.html")).unwrap().permissions().mode() & 0o777, 0o640);
    serde_json::from_slice::<Vec<Value>>(&fs::read(place.path("t.json")).unwrap()).unwrap();
    // What is printed is the same, and a plan makes nothing but its page.
    let args = ["plan", "c = a * a", "a=a.npy", "c=d.npy", "--device", device];
    let printed = place.overshot(&args);
    let drawn = place.overshot(&[&args[..], &["--html", "plan.html"]].concat());
    assert_eq!((drawn.code, &drawn.stdout, drawn.stderr.as_str()), (Some(0), &printed.stdout, ""));
    let page = read("plan.html");
    assert!(page.contains("c = a * a</title>") && page.contains("200,000") && page.contains("worker"), "{page}");
    assert_eq!(place.names(), ["a.npy", "c.npy", "p.html", "plan.html", "t.json"]);
    RAN
}

fn quiet(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.npy("a.npy", &[1.0, 2.0]);
    // Said twice, it means the same.
    let done = place.run(&["sum(a), m = max(a)", "a=a.npy", "--quiet", "--quiet"]);
    assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (Some(0), "sum(a) = 3.0\nm = 2.0\n", ""));
    // Control characters in a path do not reach the terminal.
    let done = place.run(&["c = a", "a=a.npy", "c=c\u{1b}[31m\n.npy"]);
    assert!(done.code == Some(0) && done.stdout.contains("-> c\\u{1b}[31m\\n.npy\n"), "{done:?}");
    // A line break in the text is none in the result.
    let done = place.run(&["sum(a *\n\t2)", "a=a.npy", "--quiet"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "sum(a * 2) = 6.0\n"), "{done:?}");
    RAN
}

fn numbers(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.npy("x.npy", &[1.0, 2.0]);
    place.raw("f.f32", &[0, 0, 128, 63]);
    // A file with such a name is a file if the path says so.
    place.raw("5", &3f32.to_le_bytes());
    let report = place.report(&[
        "z = (x - m) / s; t = where(on, x, n); sum(z), max(t)",
        "x=x.npy",
        "m=5.0",
        "s=-1",
        "on=false",
        "n=1e-3",
        "z=z.npy",
    ]);
    assert_eq!(results(&report), serde_json::json!({"sum(z)": 7.0, "max(t)": 0.001}));
    assert_eq!(rows(&place.files()["z.npy"]), [4.0, 3.0]);
    // A number with a dtype keeps it; one without adapts to the column.
    for (number, dtype) in [("2.5:f64", "f64"), ("2.5:f32", "f32"), ("2.5", "f32"), ("2", "f32")] {
        let report = place.report(&["y = x * m", "x=f.f32:f32", &format!("m={number}"), "y=y.raw", "--force"]);
        assert_eq!(report["outputs"][0]["dtype"], dtype, "{number}");
    }
    let report = place.report(&["sum(x * m)", "x=f.f32:f32", "m=./5:f32"]);
    assert_eq!(results(&report)["sum(x * m)"], 3.0);
    RAN
}

fn examples(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    for name in ["a.npy", "b.npy", "x.npy"] {
        place.npy(name, &[1.0, 2.0, 3.0]);
    }
    place.raw("x.f32", &[0; 8]);
    let job =
        format!("options.device = \"{device}\"\n[[step]]\nname = \"one\"\nrun = \"sum(a)\"\nfiles.a = \"a.npy\"\n");
    place.raw("job.toml", job.as_bytes());
    let help = place.overshot(&["run", "--help"]).stdout;
    let examples = help.lines().filter_map(|line| line.strip_prefix("  overshot run "));
    // A kernel needs a GPU.
    let examples: Vec<_> = examples.filter(|example| !example.contains(".cu")).collect();
    assert!(examples.len() >= 4, "{help}");
    for example in examples {
        let mut command = Command::new("sh");
        // A job file names the device itself.
        let device = if example.ends_with(".toml") { String::new() } else { format!("--device {device}") };
        command.arg("-c").arg(format!("\"$0\" run {device} {example}")).arg(binary());
        let done = done(command.current_dir(place.folder.path()).output().unwrap());
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{example}: {done:?}");
    }
    RAN
}

fn headings(device: &str) -> Outcome {
    let help = CaseFolder::new(device).overshot(&["run", "--help"]).stdout;
    let mut heading = "";
    let mut found = Vec::new();
    for line in help.lines() {
        match line.trim_start().strip_prefix("--") {
            Some(option) => found.push((heading, option.split(' ').next().unwrap())),
            None if line.ends_with(':') && !line.starts_with(' ') => heading = line,
            None => {}
        }
    }
    for (heading, option) in [
        ("Data:", "rows"),
        ("Data:", "force"),
        ("Report:", "json"),
        ("Report:", "trace"),
        ("Report:", "html"),
        ("Device and memory:", "device"),
        ("Device and memory:", "chunk"),
        ("Options for kernels:", "threads"),
    ] {
        assert!(found.contains(&(heading, option)), "--{option} is not under {heading} {found:?}");
    }
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    let help = CaseFolder::new(device).overshot(&["--help"]).stdout;
    assert!(["Exit codes: 0", "130", "--json"].iter().all(|part| help.contains(part)), "{help}");
    RAN
}

fn plan(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.npy("a.npy", &[1.0; 1000]);
    let before = place.files();
    let args = ["plan", "c = a * a", "a=a.npy", "c=c.npy", "--device", device];
    let text = place.overshot(&args);
    assert_eq!(text.code, Some(0), "{text:?}");
    for word in ["chunk rows", "workers", "slots", "other", " x ", " = "] {
        assert!(text.stdout.contains(word), "{word}: {}", text.stdout);
    }
    let json: Value = serde_json::from_str(&place.overshot(&[&args[..], &["--json"]].concat()).stdout).unwrap();
    let part = &json["devices"][0];
    assert_eq!(json["rows"], 1000);
    assert_eq!(part["blocks"].as_u64().unwrap() * part["block_bytes"].as_u64().unwrap(), part["device_bytes"]);
    place.overshot(&["plan", "c = a * b", "a=a.npy", "--device", device]).is_error(2, &["'b'"]);
    assert_eq!(place.files(), before);
    RAN
}

fn generated(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let report = place.report(&["x = f64(i) / 2; max(x)", "x=x.npy", "--rows", "5"]);
    assert_eq!(results(&report)["max(x)"], 2.0);
    assert_eq!(rows(&place.files()["x.npy"]), [0.0, 0.5, 1.0, 1.5, 2.0]);
    place.refused(2, &["number of rows is unknown"], &["y = f64(i)", "y=y.npy"]);
    // A column may have the name of a constant.
    assert_eq!(results(&place.report(&["mean(i + e)", "i=x.npy", "e=x.npy"]))["mean(i + e)"], 2.0);
    assert_eq!(results(&place.report(&["max(i)", "--rows", "1e3"]))["max(i)"], 999);
    // More than a file can hold, and more than a number of bytes can say.
    for rows in ["4611686018427387904", "18446744073709551615"] {
        place.refused(1, &["y.npy", rows], &["y = f64(i)", "y=y.npy", "--rows", rows]);
    }
    RAN
}

fn odd_names(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.npy("a:b=c.npy", &[9.0]);
    let output = std::ffi::OsStr::from_bytes(b"c=\xff.npy");
    let args = ["run", "--json", "--device", device, "c = sqrt(a)", "a=a:b=c.npy"].map(std::ffi::OsStr::new);
    let done = place.overshot(&[&args[..], &[output]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(place.folder.path().join(std::ffi::OsStr::from_bytes(b"\xff.npy")).exists());
    RAN
}

fn broken_pipe(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.npy("a.npy", &[1.0]);
    let mut child = place
        .command(&["run", "c = a; sum(a)", "a=a.npy", "c=c.npy", "--device", device])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let done = done(child.wait_with_output().unwrap());
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    assert_eq!(place.names(), ["a.npy", "c.npy"]);
    RAN
}

fn devices(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let kind = device.split(':').next().unwrap();
    let text = place.overshot(&["devices"]);
    assert!(text.code == Some(0) && text.stdout.lines().any(|line| line.starts_with(kind)), "{text:?}");
    let json: Value = serde_json::from_str(&place.overshot(&["devices", "--json"]).stdout).unwrap();
    let listed = json["devices"].as_array().unwrap();
    assert!(listed.iter().any(|listed| listed["kind"] == kind), "{json}");
    let cuda = listed.iter().any(|listed| listed["kind"] == "cuda");
    assert!(cuda || json["notes"][0].as_str().is_some_and(|note| note.contains("cuda")), "{json}");
    // A note says why a property of a GPU is not known.
    let known = listed.iter().all(|listed| listed["kind"] != "cuda" || !listed["details"]["free_bytes"].is_null());
    assert!(known || text.stdout.contains("(NVML)"), "{text:?}");
    assert!(!known || !cuda || text.stdout.contains(" free, "), "{text:?}");
    RAN
}

fn batch(device: &str) -> Outcome {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/batch.sh");
    if !script.exists() {
        return not_run("the sources are not on this machine");
    }
    let place = CaseFolder::new(device);
    fs::create_dir(place.path("in")).unwrap();
    place.npy("in/one.npy", &[1.0, 4.0]);
    place.npy("in/two.npy", &[9.0]);
    place.raw("in/bad.npy", b"not a file of numbers");
    let mut command = Command::new("sh");
    command.arg(script).args(["in", "out"]).current_dir(place.folder.path());
    let done = done(command.env("OVERSHOT", binary()).env("OVERSHOT_DEVICE", device).output().unwrap());
    assert_eq!(done.code, Some(1), "one file is bad: {done:?}");
    assert!(done.stderr.contains("bad.npy"), "{done:?}");
    let written = |name| rows(&fs::read(place.path(name)).unwrap());
    assert_eq!((written("out/one.npy"), written("out/two.npy")), (vec![1.0, 2.0], vec![3.0]));
    assert!(!place.path("out/bad.npy").exists());
    RAN
}
