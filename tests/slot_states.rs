//! Checks that programs which misuse the states of a slot do not compile, each for the expected reason.
//!
//! Compiles the library once, with the programs of `src/pipeline/tests/slot_states.rs`, and compares the errors: they
//! must be exactly those that the comments `//~` announce, each in its line and with its code.
#![allow(clippy::unwrap_used, reason = "in tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

const PROGRAMS: &str = "src/pipeline/tests/slot_states.rs";

/// The file, line and code of an error.
type Place = (String, u64, String);

fn programs() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PROGRAMS)).unwrap()
}

fn announced() -> BTreeSet<Place> {
    let line = |(number, line): (u64, &str)| Some((PROGRAMS.into(), number, line.split_once("//~ ")?.1.into()));
    (1..).zip(programs().lines()).filter_map(line).collect()
}

/// Compiles the library with the programs, and returns its errors.
fn found() -> BTreeSet<Place> {
    let output = Command::new(env!("CARGO"))
        .args(["check", "--lib", "--no-default-features", "--offline", "--message-format", "json", "--target-dir"])
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("slot_states"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTFLAGS", "--cfg slot_states")
        .output()
        .unwrap();
    assert!(!output.status.success(), "the programs compile");
    let messages = str::from_utf8(&output.stdout).unwrap().lines();
    let messages = messages.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let errors = messages.map(|line| line["message"].clone()).filter(|message| message["level"] == "error");
    // The last error, which has no place, counts the others.
    let spans = errors.flat_map(|error| {
        let code = error["code"]["code"].as_str().unwrap_or("no code").to_owned();
        let spans = error["spans"].as_array().unwrap().iter().filter(|span| span["is_primary"] == true).cloned();
        spans.map(|span| (span, code.clone())).collect::<Vec<_>>()
    });
    let place = |(span, code): (serde_json::Value, String)| {
        (span["file_name"].as_str().unwrap().to_owned(), span["line_start"].as_u64().unwrap(), code)
    };
    let found: BTreeSet<_> = spans.map(place).collect();
    assert!(!found.is_empty(), "no error of the compiler: {}", String::from_utf8_lossy(&output.stderr));
    found
}

#[test]
fn misuse_of_a_slot_does_not_compile() {
    assert_eq!(found(), announced());
}

#[test]
fn every_program_has_a_twin_that_differs_in_one_line() {
    let text = programs();
    let functions: BTreeMap<&str, Vec<&str>> = text
        .split("\nfn ")
        .skip(1)
        .map(|function| {
            let body = function.split("\n}").next().unwrap();
            let name = body.split(['<', '(']).next().unwrap();
            let lines = body.strip_prefix(name).unwrap().lines();
            (name, lines.map(|line| line.split(" //~").next().unwrap()).collect())
        })
        .collect();
    let mut twins = 0;
    for (name, wrong) in functions.iter().filter(|(name, _)| name.starts_with("wrong_")) {
        let right = &functions[&*name.replace("wrong_", "right_")];
        let differing = wrong.iter().zip(right).filter(|(wrong, right)| wrong != right).count();
        assert_eq!((wrong.len(), differing), (right.len(), 1), "{name}");
        twins += 1;
    }
    assert_eq!((2 * twins, twins), (functions.len() - 1, announced().len()), "all but `keep` are twins");
}
