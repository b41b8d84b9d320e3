//! What a user sees of a run: the report as text and as JSON.

use serde_json::{Value, json};

use crate::tools::{CaseFolder, RAN, not_run};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("a report is the results and one line", short),
    ("verbose prints the whole report", verbose),
    ("the JSON of a report says what was run", golden),
    ("a job without data has no bytes and no rate", no_data),
    ("no GPU is a short note", no_gpu),
    ("a report in a pipe has no colour", no_colour),
    ("the functions are listed", functions),
    ("completions and manual pages", pages),
];

fn short(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.npy("x.npy", &[1.5; 20_000]);
    let done = place.run(&["mean(x), n = count(x > 1)", "x=x.npy"]);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
    let lines: Vec<_> = done.stdout.lines().filter(|line| !line.starts_with("note: ")).collect();
    let [mean, count, summary] = &lines[..] else { panic!("{done:?}") };
    assert_eq!((*mean, *count), ("mean(x) = 1.5", "n = 20000"));
    assert!(summary.starts_with("20,000 rows (160.0 kB) in "), "{done:?}");
    assert!(summary.contains("; bottleneck: ") || device != "cpu", "{done:?}");
    RAN
}

fn verbose(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.npy("x.npy", &vec![1.5; 300_000]);
    for flag in ["-v", "--verbose"] {
        let done = place.run(&["y = x * 2; mean(x)", "x=x.npy", "y=y.npy", "--force", flag]);
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
        assert!(
            done.stdout.starts_with("mean(x) = 1.5\ny: 300,000 rows of f64 -> y.npy\n300,000 rows (4.8 MB) in "),
            "{done:?}"
        );
        for part in [" chunks of up to ", "with setup", &format!("\n{device}")] {
            assert!(done.stdout.contains(part), "no '{part}' in {done:?}");
        }
    }
    RAN
}

/// Returns a report without the parts that differ between runs and machines.
fn steady(mut report: Value) -> Value {
    for key in [
        "seconds",
        "total_seconds",
        "processor_seconds",
        "setup",
        "overshot_version",
        "notes",
        "measured",
        "chunks",
        "chunk_rows",
    ] {
        assert!(!report[key].is_null(), "no '{key}' in {report}");
        report.as_object_mut().unwrap().remove(key);
    }
    for key in
        ["bytes_to_device", "bytes_from_device", "bytes_ahead", "bytes_read_directly", "peak_pinned_bytes", "devices"]
    {
        assert!(!report[key].is_null(), "no '{key}' in {report}");
        report.as_object_mut().unwrap().remove(key);
    }
    report
}

fn golden(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.npy("x.npy", &[1.0, 2.0, 4.0]);
    let report = place.report(&["y = x > 1; s = sum(x), min(log(x - 1)), max(i32(x)), any(y)", "x=x.npy", "y=y.npy"]);
    let expected = json!({
        "schema_version": 1,
        "expression": "y = x > 1; s = sum(x), min(log(x - 1)), max(i32(x)), any(y)",
        "kernel": null,
        "rows": 3,
        "results": [
            { "name": "s", "dtype": "f64", "value": 7.0 },
            { "name": "min(log(x - 1))", "dtype": "f64", "value": "-inf" },
            { "name": "max(i32(x))", "dtype": "i32", "value": 4 },
            { "name": "any(y)", "dtype": "bool", "value": true },
        ],
        "arrays": [],
        "inputs": [{ "name": "x", "path": "x.npy", "dtype": "f64", "shape": [3], "rows": 3, "bytes": 24 }],
        "outputs": [{ "name": "y", "path": "y.npy", "dtype": "bool", "shape": [3], "rows": 3, "bytes": 3,
                      "blake3": null }],
        "input_bytes": 24,
        "output_bytes": 3,
        "verification": null,
        "checksum_seconds": null,
        "passes": [],
    });
    assert_eq!(steady(report), expected);
    RAN
}

fn no_data(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let done = place.run(&["max(i)", "--rows", "100000"]);
    let summary = done.stdout.lines().nth(1).unwrap_or_default();
    assert!(summary.starts_with("100,000 rows in ") && !summary.contains("B/s"), "{done:?}");
    assert!(summary.contains("; bottleneck: ") || device != "cpu", "{done:?}");
    RAN
}

fn no_gpu(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.npy("x.npy", &[1.0]);
    if !place.overshot(&["devices"]).stdout.contains("libcuda.so.1") {
        return not_run("this machine has a CUDA driver");
    }
    let notes = |args: &[&str]| -> Vec<String> {
        let done = place.overshot(args);
        done.stdout.lines().filter(|line| line.starts_with("note: ")).map(str::to_owned).collect()
    };
    let of_small = notes(&["run", "sum(x)", "x=x.npy"]);
    assert!(of_small.len() == 1 && of_small[0].starts_with("note: no GPU was used: opening one takes"), "{of_small:?}");
    // More rows than a CPU of 64 cores computes while a GPU is opened.
    let of_large = notes(&["run", "max(i)", "--rows", "1.5e9"]);
    assert_eq!(of_large, ["note: no GPU: libcuda.so.1, the CUDA driver, was not found; ran on the CPU"]);
    assert!(of_large[0].len() < 80);
    RAN
}

fn no_colour(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.npy("x.npy", &[1.0]);
    for args in [&["sum(x)", "x=x.npy", "-v"][..], &["sum(x) +", "x=x.npy"]] {
        let done = place.run(args);
        assert!(!done.stdout.contains('\x1b') && !done.stderr.contains('\x1b'), "{done:?}");
    }
    RAN
}

fn functions(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let done = place.overshot(&["functions"]);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
    for part in ["  where(condition, ", "  sqrt(x) ", "  argmax(x) ", "  pi "] {
        assert!(done.stdout.contains(part), "no '{part}' in {done:?}");
    }
    let help = place.overshot(&["run", "--help"]).stdout;
    assert!(help.split_whitespace().collect::<Vec<_>>().join(" ").contains("'overshot functions'"), "{help}");
    RAN
}

fn pages(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let done = place.overshot(&["completions", shell]);
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{shell}");
        assert!(done.stdout.contains("overshot") && done.stdout.contains("device-memory"), "{shell}");
    }
    let page = place.overshot(&["man"]).stdout;
    assert!(page.contains(".TH overshot 1") && page.contains("overshot\\-run"), "{page}");
    let page = place.overshot(&["man", "run"]).stdout;
    assert!(page.contains(".TH overshot-run 1") && page.contains("\\-\\-device\\-memory"), "{page}");
    place.overshot(&["man", "walk"]).is_error(2, &["'walk'", "run, plan"]);
    RAN
}
