//! `--verify` and `--checksum`.

use std::fs;

use serde_json::Value;

use crate::tools::{CaseFolder, RAN, results};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("--verify says what was computed again", verify),
    ("--verify refuses what is no fraction, and kernels that the host cannot run", refused),
    ("--checksum is the BLAKE3 hash of each file, however it is written", checksum),
    ("--checksum is not that of a part", parts),
];

const TEXT: &str = "y = x * 2; t = u8(i); mean(y)";

fn place(device: &str) -> CaseFolder {
    let place = CaseFolder::new(device);
    place.npy("x.npy", &(0..700_000_u64).map(|row| (row * 7919 % 10_007) as f64).collect::<Vec<_>>());
    place
}

fn verify(device: &str) -> Outcome {
    let place = place(device);
    let plain = place.report(&[TEXT, "x=x.npy", "y=y.npy", "t=t.raw"]);
    assert!(plain["verification"].is_null() && plain["checksum_seconds"].is_null(), "{plain}");
    let report = place.report(&[TEXT, "x=x.npy", "y=y.npy", "t=t.raw", "--force", "--verify", "1"]);
    assert_eq!(results(&report), results(&plain));
    assert_eq!(report["verification"]["fraction"], 1.0);
    let devices = report["verification"]["devices"].as_array().unwrap();
    let rows = devices.iter().map(|device| device["rows"].as_u64().unwrap()).sum::<u64>();
    assert_eq!((rows, devices.len()), (700_000, report["devices"].as_array().unwrap().len()));
    let done = place.run(&["mean(x)", "x=x.npy", "--verify", "0.01"]);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
    assert!(done.stdout.contains("\nverified: ") && done.stdout.contains(", computed again "), "{done:?}");
    RAN
}

fn refused(device: &str) -> Outcome {
    let place = place(device);
    for fraction in ["-1", "1.01", "NaN", "1%"] {
        let value = format!("'{fraction}' for '--verify");
        place.refused(2, &[&value, "write a fraction from 0 to 1"], &["sum(x)", "x=x.npy", "--verify", fraction]);
    }
    place.raw("k.cu", b"extern \"C\" __global__ void k(const double *x, double *y, long long rows) {}");
    let words = ["'k' has no host kernel that could verify it", "run it without verification"];
    place.refused(2, &words, &["k.cu:k", "x=x.npy", "y=y.npy", "--verify", "0.5"]);
    RAN
}

/// The hash of a file, as `b3sum` prints it.
fn hash(place: &CaseFolder, name: &str) -> String {
    blake3::hash(&fs::read(place.path(name)).unwrap()).to_string()
}

fn hashes(report: &Value) -> Vec<&str> {
    report["outputs"].as_array().unwrap().iter().map(|output| output["blake3"].as_str().unwrap()).collect()
}

fn checksum(device: &str) -> Outcome {
    let place = place(device);
    let args = [TEXT, "x=x.npy", "y=y.npy", "t=t.raw", "--force"];
    let report = place.report(&[&args[..], &["--checksum"]].concat());
    let expected = [hash(&place, "y.npy"), hash(&place, "t.raw")];
    assert_eq!(hashes(&report), expected);
    assert!(report["checksum_seconds"].as_f64().unwrap() >= 0.0);
    for more in [&["--chunk", "100kB"][..], &["--workers", "1"], &["--resume"]] {
        let report = place.report(&[&args[..], &["--checksum"], more].concat());
        assert_eq!(hashes(&report), expected, "{more:?}");
    }
    let done = place.run(&[&args[..], &["--checksum", "--quiet"]].concat());
    let [y, t] = &expected;
    let mean = results(&report)["mean(y)"].clone();
    assert_eq!(done.stdout, format!("mean(y) = {mean}\nBLAKE3 (y.npy) = {y}\nBLAKE3 (t.raw) = {t}\n"));
    RAN
}

fn parts(device: &str) -> Outcome {
    let place = place(device);
    let args = [TEXT, "x=x.npy", "y=y.npy", "t=t.raw"];
    place.refused(2, &["--checksum"], &[&args[..], &["--part", "0/2", "--partial", "p0", "--checksum"]].concat());
    for part in ["0", "1"] {
        let (part, partial) = (format!("{part}/2"), format!("p{part}"));
        let done = place.run(&[&args[..], &["--part", &part, "--partial", &partial, "--verify", "0.5"]].concat());
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
    }
    let merged = place.overshot(&["merge", "p0", "p1", "--checksum", "--json"]);
    let report: Value = serde_json::from_str(&merged.stdout).unwrap();
    assert_eq!(hashes(&report), [hash(&place, "y.npy"), hash(&place, "t.raw")]);
    assert_eq!(report["verification"]["fraction"], 0.5);
    RAN
}
