//! Results that are arrays, written to files.

use std::fs;

use serde_json::Value;

use crate::tools::{CaseFolder, RAN, not_run, npy, results, rows};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("results are files with their dtype and shape", written),
    ("plans show shapes", shapes),
    ("results of several passes get their names with the rows", together),
    ("--precision is for products of f32, and is told", precision),
    ("what cannot be written is refused, and leaves nothing", refused),
];

/// Numbers of 3000 rows, and keys from 0 to 9.
fn place(device: &str) -> CaseFolder {
    let place = CaseFolder::new(device);
    place.npy("x.npy", &(0..3000_u64).map(|row| (row * 7919 % 101) as f64 - 50.0).collect::<Vec<_>>());
    place.raw("k.u8", &(0..3000_u64).map(|row| (row * row % 10) as u8).collect::<Vec<_>>());
    place
}

/// The numbers of a result of a report.
fn numbers(report: &Value, name: &str) -> Vec<f64> {
    let of_name = report["arrays"].as_array().unwrap().iter().find(|array| array["name"] == name).unwrap();
    of_name["values"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

fn written(device: &str) -> Outcome {
    let place = place(device);
    let text = "n = bincount(k, 10); s = bincount(k, 10, x); y = x * 2; sum(x)";
    let plain = place.report(&[text, "x=x.npy", "k=k.u8:u8", "y=plain.npy"]);
    let args = [text, "x=x.npy", "k=k.u8:u8", "y=y.npy", "n=n.i64", "s=s.npy", "--checksum"];
    let plan = place.overshot(&[&["plan"][..], &args[..6]].concat());
    assert!(plan.code == Some(0) && ["n.i64", "s.npy"].iter().all(|name| plan.stdout.contains(name)), "{plan:?}");
    let report = place.report(&args);
    assert_eq!((results(&report), &report["arrays"]), (results(&plain), &plain["arrays"]));
    let counts: Vec<u8> = numbers(&report, "n").iter().flat_map(|count| (*count as i64).to_le_bytes()).collect();
    assert_eq!(fs::read(place.path("n.i64")).unwrap(), counts);
    let file = fs::read(place.path("s.npy")).unwrap();
    assert_eq!(rows(&file), numbers(&report, "s"));
    assert!(file.windows(16).any(|bytes| bytes == b"'shape': (10,), "), "{}", String::from_utf8_lossy(&file[..128]));
    assert_eq!(fs::read(place.path("y.npy")).unwrap(), fs::read(place.path("plain.npy")).unwrap());
    for output in report["outputs"].as_array().unwrap() {
        let file = fs::read(place.path(output["path"].as_str().unwrap())).unwrap();
        assert_eq!(output["blake3"], blake3::hash(&file).to_string(), "{output}");
    }
    RAN
}

fn shapes(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let floats = |count: usize| vec![0; count * 4];
    place.raw("t.npy", &npy("<f4", "False", "(30, 4, 5)", &floats(600)));
    place.raw("m.npy", &npy("<f4", "False", "(4, 5)", &floats(20)));
    place.raw("u.npy", &npy("<f4", "False", "(30, 20)", &floats(600)));
    place.raw("k.npy", &npy("<f4", "False", "(30, 1)", &floats(30)));
    place.npy("x.npy", &[1.0; 30]);
    for (args, lines) in [
        (
            &["y = t - m; mean(t, axis=0), std(y, axis=0), max(t)", "t=t.npy", "m=m.npy", "y=y.npy"][..],
            &[
                "input          t: f32 of shape (30, 4, 5) = t.npy",
                "resident       m: f32 of shape (4, 5) = m.npy",
                "output         y: f32 of shape (30, 4, 5) = y.npy",
                "result         mean(t, axis=0): f32 of shape (4, 5)",
                "result         std(y, axis=0): f32 of shape (4, 5)",
            ][..],
        ),
        (
            &["y = max(u, axis=1, keepdims=True) - k; z = sum(u, axis=1)", "u=u.npy", "k=k.npy", "y=y.npy", "z=z.npy"],
            &[
                "input          k: f32 of shape (30, 1) = k.npy",
                "output         y: f32 of shape (30, 1) = y.npy",
                "output         z: f32 = z.npy",
            ],
        ),
        (
            &["m = mean(u, axis=0); s = sum(u, axis=0)", "u=u.npy", "s=s.npy"],
            &["output         s: f32 of shape (20,) = s.npy", "result         m: f32 of shape (20,)"],
        ),
        // In several passes.
        (
            &["y = (t - mean(t, axis=0)) / 2; s = sum(y, axis=0)", "t=t.npy", "y=y.npy"],
            &["output         y: f32 of shape (30, 4, 5) = y.npy", "result         s: f32 of shape (4, 5)"],
        ),
        // How many elements are kept is not known.
        (&["y = t[t > 0]", "t=t.npy", "y=y.npy"], &["output         y: f32 = y.npy"]),
        (&["y = u[all(u > 0, axis=1)]", "u=u.npy", "y=y.npy"], &["output         y: 20 x f32 = y.npy"]),
        (
            &["y = x * 2; sum(x)", "x=x.npy", "y=y.npy"],
            &["input          x: f64 = x.npy\noutput         y: f64 = y.npy"],
        ),
    ] {
        let plan = place.overshot(&[&["plan", "--device", device], args].concat());
        if plan.stderr.contains("device memory is limited") {
            return not_run("the device has no room for these rows");
        }
        assert!(lines.iter().all(|line| plan.stdout.contains(&format!("{line}\n"))), "{lines:?} {plan:?}");
        assert_eq!(plan.stdout.lines().filter(|line| line.starts_with("result ")).count(), {
            lines.iter().filter(|line| line.starts_with("result ")).count()
        });
        let json = place.overshot(&[&["plan", "--json", "--device", device], args].concat());
        let json: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!((&json["schema_version"], json["overshot_version"].is_string()), (&1.into(), true));
        let shape = |name: &str| {
            json["columns"].as_array().unwrap().iter().find(|column| column["name"] == name).unwrap()["shape"].clone()
        };
        if args[1] == "t=t.npy" {
            assert_eq!(shape("t"), serde_json::json!([30, 4, 5]));
        }
    }
    RAN
}

fn together(device: &str) -> Outcome {
    let place = place(device);
    let text =
        "h = histogram(x, 8, -50, 50); p = h / sum(x * 0 + 1); q = quantile(x, 0.5); t = topk(x, 3); y = x - mean(x)";
    let args = [text, "x=x.npy", "y=y.npy", "p=p.npy", "t=t.npy", "--force", "--fsync"];
    let report = place.report(&args);
    // The JSON reader of the test rounds twice.
    let shares = rows(&fs::read(place.path("p.npy")).unwrap());
    assert!(shares.iter().zip(numbers(&report, "p")).all(|(own, other)| (own - other).abs() < 1e-15), "{shares:?}");
    assert!(shares.len() == 8 && (shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    assert_eq!(rows(&fs::read(place.path("t.npy")).unwrap()), [50.0; 3]);
    // A name that cannot be given leaves all outputs without theirs.
    for name in ["p.npy", "t.npy", "y.npy"] {
        fs::remove_file(place.path(name)).unwrap();
    }
    fs::create_dir(place.path("t.npy")).unwrap();
    let done = place.run(&args);
    assert!(done.code != Some(0) && !place.path("p.npy").exists() && !place.path("y.npy").exists(), "{done:?}");
    RAN
}

fn precision(device: &str) -> Outcome {
    let place = place(device);
    let floats: Vec<u8> = (0..3000_u32).flat_map(|k| (1.0 + k as f32 / 4096.0).to_le_bytes()).collect();
    place.raw("t.npy", &npy("<f4", "False", "(1000, 3)", &floats));
    let plan = place.overshot(&["plan", "--device", device, "t.T @ t", "t=t.npy"]);
    if plan.stderr.contains("device memory is limited") {
        return not_run("the device has no room for a product");
    }
    let parts = [" panels and sums of ", " for sums = "];
    assert_eq!(parts.map(|part| plan.stdout.contains(part)), [device != "cpu"; 2], "{plan:?}");
    let [full, tf32] =
        ["full", "tf32"].map(|precision| place.report(&["t.T @ t", "t=t.npy", "--precision", precision]));
    let notes = |report: &Value| {
        report["notes"].as_array().unwrap().iter().filter(|note| note.as_str().unwrap().contains("TF32")).count()
    };
    assert_eq!((notes(&full), notes(&tf32)), (0, tf32["devices"].as_array().unwrap().len()), "{tf32}");
    let sums = |report: &Value| -> Vec<f64> {
        let rows = report["arrays"][0]["values"].as_array().unwrap().iter();
        rows.flat_map(|row| row.as_array().unwrap()).map(|sum| sum.as_f64().unwrap()).collect()
    };
    let sums = [&full, &tf32].map(sums);
    assert_eq!(sums[0].len(), 9);
    assert!(sums[0].iter().zip(&sums[1]).all(|(one, other)| (one - other).abs() < 0.002 * one), "{sums:?}");
    place.refused(
        2,
        &["the precision tf32 is for products of f32, and the job has none: leave it out"],
        &["sum(x)", "x=x.npy", "--precision", "tf32"],
    );
    place.refused(
        2,
        &["no precision 'half': use full, tf32 or bf16x3"],
        &["t.T @ t", "t=t.npy", "--precision", "half"],
    );
    RAN
}

fn refused(device: &str) -> Outcome {
    let place = place(device);
    let inputs = ["x=x.npy", "k=k.u8:u8"];
    let refused = |words: &[&str], args: &[&str]| {
        let before = place.names();
        place.refused(2, words, args);
        assert_eq!(place.names(), before, "{args:?}");
    };
    refused(&["'m' is one number of all rows", "leave its output out"], &["m = mean(x)", inputs[0], "m=m.npy"]);
    refused(&["'m' is one number", "leave"], &["m = mean(x - mean(x))", inputs[0], "m=m.npy"]);
    let text = "n = bincount(k, 10)";
    refused(&["n.raw", "f32", "i64", "cast it in the expression (n = f32(…))"], &[text, inputs[1], "n=n.raw:f32"]);
    refused(&["is known when all parts are merged"], &[text, inputs[1], "n=n.npy", "--resume=journal"]);
    let part = ["--part", "0/2", "--partial", "p"];
    refused(&["is known when all parts are merged"], &[&[text, inputs[1], "n=n.npy"], &part[..]].concat());
    place.raw("old.npy", b"mine");
    let before = place.files();
    let done = place.run(&["n = bincount(k, 10); y = k * 2", inputs[1], "y=y.npy", "n=old.npy"]);
    assert!(done.code == Some(1) && done.stderr.contains("old.npy") && done.stderr.contains("force"), "{done:?}");
    let done = place.run(&["n = bincount(k, 10); y = k * 2", inputs[1], "y=y.npy", "n=y.npy"]);
    assert!(done.code == Some(2) && done.stderr.contains("y.npy"), "{done:?}");
    // A key outside ends the run.
    let done = place.run(&["n = bincount(k, 9); y = k * 2", inputs[1], "y=y.npy", "n=n.npy"]);
    assert!(done.code != Some(0), "{done:?}");
    place.raw("none.u8", b"");
    let done = place.run(&["t = topk(k, 3); y = k * 2", "k=none.u8:u8", "y=y.npy", "t=t.npy"]);
    assert!(done.code != Some(0), "{done:?}");
    let files = place.files();
    assert!(files.keys().filter(|name| *name != "none.u8").eq(before.keys()), "{:?}", files.keys());
    assert_eq!(files["old.npy"], b"mine");
    RAN
}
