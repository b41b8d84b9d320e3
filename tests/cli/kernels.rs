//! Custom kernels.

use std::fs;
use std::process::Command;

use libtest_mimic::Completion;
use overshot::testing::custom;

use crate::tools::{CaseFolder, RAN, rows};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("a compacting kernel, from its text", keep),
    ("a kernel with scalars, resident arrays and scratch", everything),
    ("a kernel that reads neighbours", around),
    ("errors in the arguments of a kernel", refused),
    ("a plan shows an input whose const was forgotten", forgotten_const),
    ("a kernel with an illegal address, or that does not compile", faulty),
];

/// Returns whether the device runs CUDA C++. Other devices need a function for the host, which the command cannot give.
fn runs_cuda(device: &str) -> bool {
    device.contains("cuda")
}

fn keep(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.raw("keep.cu", custom::KEEP.as_bytes());
    let x: Vec<f64> = (0..10_000).map(|i| f64::from(i * 7919 % 101)).collect();
    place.npy("x.npy", &x);
    let args = ["keep.cu:keep", "x=x.npy", "big=big.npy", "where=w.raw", "--threads", "32", "--rows-per-block", "512"];
    if !runs_cuda(device) {
        place.refused(2, &["'keep'", "no host kernel"], &args);
        let plan = place.overshot(&[&["plan", "--device", device], &args[..]].concat());
        assert_eq!((plan.code, plan.stderr.as_str()), (Some(0), ""));
        assert!(plan.stdout.contains("note: this can be planned but not run: the kernel 'keep'"), "{plan:?}");
        return RAN;
    }
    let report = place.report(&args);
    let big: Vec<f64> = x.into_iter().filter(|x| *x > 50.0).collect();
    assert_eq!(report["outputs"][0]["rows"], big.len());
    assert_eq!(rows(&fs::read(place.path("big.npy")).unwrap()), big);
    RAN
}

fn around(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.raw("around.cu", custom::AROUND.as_bytes());
    let x: Vec<u8> = (0..600u16).flat_map(|i| f32::from(i % 7).to_le_bytes()).collect();
    place.raw("x.f32", &x);
    place.raw("w.i32", &(0..300i32).flat_map(i32::to_le_bytes).collect::<Vec<_>>());
    place.npy("v.npy", &[0.5; 300]);
    let args = ["around.cu:around", "x=x.f32:f32", "w=w.i32:i32", "v=v.npy", "y=y.npy", "--halo", "w=0:1"];
    let refused = |halo: &str, words: &[&str]| place.refused(2, words, &[&args[..], &["--halo", halo]].concat());
    refused("x=1:", &["--halo", "x=1:0"]);
    refused("y=1", &["'y' has a halo, but is no input"]);
    refused("70000", &["a halo of 70000 rows is larger than 65536"]);
    place.refused(2, &["--halo", "kernels"], &["y = v + 1", "v=v.npy", "--halo", "1"]);
    // That of `w` is its own.
    let args = [&args[..], &["--halo", "20:30"]].concat();
    if !runs_cuda(device) {
        let plan = place.overshot(&[&["plan", "--device", device], &args[..]].concat());
        assert_eq!((plan.code, plan.stderr.as_str()), (Some(0), ""));
        return RAN;
    }
    place.report(&args);
    let y = rows(&fs::read(place.path("y.npy")).unwrap());
    let expected = |row: i32| {
        let near = (row - 20).max(0)..=(row + 30).min(299);
        let sum: i32 = near.map(|near| 2 * near % 7 - (2 * near + 1) % 7).sum();
        f64::from(sum) + 0.5 * f64::from(if row < 299 { row + 1 } else { -1 })
    };
    assert_eq!(y, (0..300).map(expected).collect::<Vec<_>>());
    RAN
}

fn forgotten_const(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.raw(
        "k.cu",
        b"extern \"C\" __global__ void k(double *x, float a, long long rows, double *y, float (*z)[3]) {}",
    );
    place.npy("x.npy", &[1.0; 100]);
    let args = ["k.cu:k", "x=x.npy", "y=y.npy", "z=z.raw", "a=2.5", "--rows", "100"];
    place.refused(1, &["x.npy", "'x' is an output", "declare it const"], &args);
    let plan = |more: &[&str]| place.overshot(&[&["plan", "--device", device, "--force"], &args[..], more].concat());
    let before = place.files();
    let text = plan(&[]).stdout;
    for line in [
        "output         x: f64 = x.npy (exists already)",
        "output         y: f64 = y.npy\n",
        "value          a: f32 = 2.5\n",
    ] {
        assert!(text.contains(line), "no '{line}' in {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&plan(&["--json"]).stdout).unwrap();
    let columns = json["columns"].as_array().unwrap();
    assert_eq!(columns.len(), 4, "{columns:?}");
    let z = serde_json::json!({
        "name": "z", "role": "output", "dtype": "f32", "elements": 3, "shape": [100, 3], "place": "z.raw",
        "exists": false
    });
    assert!(columns.contains(&z), "{columns:?}");
    assert_eq!(place.files(), before, "a plan touches nothing");
    RAN
}

fn everything(device: &str) -> Outcome {
    if !runs_cuda(device) {
        return Ok(Completion::ignored_with("runs on CUDA only"));
    }
    let place = CaseFolder::new(device);
    place.raw("all.cu", custom::EVERYTHING.as_bytes());
    let x: Vec<u8> = (0..300u16).flat_map(|i| f32::from(i).to_le_bytes()).collect();
    place.raw("x.f32", &x);
    place.npy("table.npy", &custom::TABLE);
    let files = ["all.cu:everything", "x=x.f32:f32", "y=y.npy", "z=z.npy", "table=table.npy", "a=2.5"];
    let options = ["--resident", "table", "--scratch", "work", "--threads", "64", "--rows-per-block", "100"];
    let report = place.report(&[&files[..], &options].concat());
    assert_eq!(report["rows"], 100);
    let y = rows(&fs::read(place.path("y.npy")).unwrap());
    assert_eq!(y[5], custom::TABLE[5] + f64::from((15 + 16) as f32) * 2.5);
    let z = fs::read(place.path("z.npy")).unwrap();
    assert!(String::from_utf8_lossy(&z[..128]).contains("'shape': (100, 2)"), "rows of two elements");
    RAN
}

fn faulty(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let devices = place.overshot(&["devices"]).stdout;
    if !runs_cuda(device) || !devices.lines().any(|line| line.starts_with("cuda") && line.contains("NVIDIA")) {
        return Ok(Completion::ignored_with("needs a real GPU"));
    }
    place.npy("x.npy", &vec![1.0; 1 << 20]);
    place.raw(
        "bad.cu",
        b"extern \"C\" __global__ void bad(const double *x, long long first_row, long long rows, double *y)
{
    long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < rows) y[i + (first_row + i == 600000 ? 1ll << 45 : 0)] = x[i];
}",
    );
    place.raw("wrong.cu", b"extern \"C\" __global__ void wrong(const double *x, double *y)\n{\n    y[0] = z;\n}");
    let done = place.run(&["bad.cu:bad", "x=x.npy", "y=y.npy", "--chunk", "64KiB"]);
    done.is_error(1, &["chunk", "(rows ", "illegal", "restart the program"]);
    // The rows of all chunks that it may have been: the right one is among them.
    let rows = done.stderr.split("(rows ").nth(1).and_then(|text| text.split(')').next()).unwrap();
    let (first, end) = rows.split_once(" to ").unwrap();
    let rows = first.parse::<u64>().unwrap()..end.parse().unwrap();
    assert!(rows.contains(&600_000) && rows.end - rows.start < 1 << 19, "{rows:?}");
    place.refused(2, &["wrong.cu, line 3", "`y[0] = z;`"], &["wrong.cu:wrong", "x=x.npy", "y=y.npy"]);
    RAN
}

fn refused(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.raw("keep.cu", custom::KEEP.as_bytes());
    place.raw("k.ptx", b"//");
    place.npy("x.npy", &[1.0]);
    let refused = |words: &[&str], args: &[&str]| place.refused(2, words, args);
    refused(&["no kernel 'other'", "check the name"], &["keep.cu:other", "x=x.npy"]);
    place.raw("rows.cu", b"extern \"C\" __global__ void k(const double *x, double *y, int rows) {}");
    refused(&["rows.cu", "'int rows'", "long long rows"], &["rows.cu:k", "x=x.npy", "y=y.npy", "rows=1"]);
    place.raw("mangled.cu", b"__global__ void k(const double *x, double *y, long long rows) {}");
    refused(&["mangled.cu", "extern \"C\""], &["mangled.cu:k", "x=x.npy", "y=y.npy"]);
    refused(&["--parameters"], &["k.ptx:keep", "x=x.npy"]);
    refused(&["no name 'v'", "x, big, where"], &["keep.cu:keep", "v=x.npy"]);
    for text in ["keep.cu", "keep.cu:", "no.ptx"] {
        refused(
            &["the name of the kernel is missing", &format!("{}:NAME", text.trim_end_matches(':'))],
            &[text, "x=x.npy"],
        );
    }
    refused(&["first_row=a", "a number of i64"], &["keep.cu:keep", "x=x.npy", "first_row=a"]);
    refused(&["--resident t", "no file"], &["keep.cu:keep", "x=x.npy", "--resident", "t"]);
    refused(&["--threads", "kernels"], &["y = x + 1", "x=x.npy", "--threads", "32"]);
    place.refused(1, &["no.cu", "check the path"], &["no.cu:keep", "x=x.npy"]);
    if Command::new("mkfifo").arg(place.path("pipe.cu")).status().is_ok_and(|status| status.success()) {
        place.refused(1, &["pipe.cu: is not a regular file"], &["pipe.cu:keep", "x=x.npy"]);
    }
    // Without a GPU, auto says why there is none; it does not send one to a device that cannot run the kernel.
    let found = place.overshot(&["devices", "--json"]).stdout;
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    if found["devices"].as_array().unwrap().iter().all(|device| device["kind"] != "cuda") {
        let done = place.overshot(&["run", "keep.cu:keep", "x=x.npy", "big=big.npy", "where=w.raw"]);
        done.is_error(2, &["no host kernel", "no GPU was found: "]);
        assert!(!done.stderr.contains("emulated"), "{done:?}");
    }
    RAN
}
