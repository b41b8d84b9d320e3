//! Jobs in parts: `overshot run … --partial`, `overshot merge`, and the scripts in `examples/`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::tools::{CaseFolder, Done, RAN, binary, done, not_run, results};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("parts print and write what one run does", same),
    ("parts of a job without files", without_files),
    ("partials are merged in a tree", tree),
    ("processes at the same time", at_once),
    ("arguments of parts that make no sense", usage),
    ("partials that cannot be merged", bad_partials),
    ("a part without space", no_space),
    ("a partial that cannot be written", bad_target),
    ("examples/parts.sh", loop_of_shell),
    ("examples/slurm.sh", job_array),
];

const ROWS: usize = 30_007;
const TEXT: &str = "y = sqrt(x); t = u8(i); mean(y), argmax(y), n = count(t > 5)";

fn place(device: &str) -> CaseFolder {
    let place = CaseFolder::new(device);
    place.npy("x.npy", &(0..ROWS).map(|row| (row * 7919 % 10_007) as f64).collect::<Vec<_>>());
    place
}

/// Runs a part, and expects success.
fn part(place: &CaseFolder, args: &[&str]) -> String {
    let done = place.run(&[&[TEXT, "x=x.npy", "y=y.npy", "t=t.raw"], args].concat());
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{args:?}");
    done.stdout
}

/// Runs the whole job in a folder of its own; returns its report, and its files.
fn whole(device: &str) -> (Value, [Vec<u8>; 2]) {
    let place = place(device);
    let report = place.report(&[TEXT, "x=x.npy", "y=y.npy", "t=t.raw"]);
    (report, outputs(&place))
}

fn outputs(place: &CaseFolder) -> [Vec<u8>; 2] {
    ["y.npy", "t.raw"].map(|name| fs::read(place.path(name)).unwrap())
}

fn json(done: &Done) -> Value {
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    serde_json::from_str(&done.stdout).unwrap()
}

fn same(device: &str) -> Outcome {
    let (report, files) = whole(device);
    let place = place(device);
    assert_eq!(part(&place, &["--part", "1/3", "--partial", "p1"]), "rows 8,192 to 20,480 of 30,007 -> p1\n");
    assert_eq!(part(&place, &["--rows", "20480..30007", "--partial", "p2", "--quiet"]), "");
    let printed =
        json(&place.run(&[TEXT, "x=x.npy", "y=y.npy", "t=t.raw", "--rows", "0..8192", "--partial", "p0", "--json"]));
    assert_eq!((&printed["rows"], &printed["total_rows"]), (&serde_json::json!([[0, 8192]]), &30_007.into()));
    // A part that is run again replaces its partial.
    part(&place, &["--part", "1/3", "--partial", "p1"]);
    assert!(!place.path("y.npy").exists() && !place.path("t.raw").exists());
    let before = place.files();
    place.overshot(&["merge", "p2", "p0"]).is_error(2, &["the rows 8192 to 20480 of 30007 are in none", "run them"]);
    assert_eq!(place.files(), before);
    let merged = json(&place.overshot(&["merge", "p2", "p0", "p1", "--json"]));
    for field in ["expression", "kernel", "rows", "results", "inputs", "outputs", "input_bytes", "output_bytes"] {
        assert_eq!(merged[field], report[field], "{field}");
    }
    let computed = |report: &Value| -> u64 {
        report["devices"].as_array().unwrap().iter().map(|device| device["rows"].as_u64().unwrap()).sum()
    };
    // p1 was run twice, and counts once.
    assert_eq!((computed(&merged), computed(&report)), (ROWS as u64, ROWS as u64));
    assert!(outputs(&place) == files);
    assert_eq!(place.names(), ["p0", "p1", "p2", "t.raw", "x.npy", "y.npy"]);
    // What was merged cannot be merged again, and its parts are not run again by mistake.
    place.overshot(&["merge", "p2", "p0", "p1"]).is_error(1, &["the rows that the parts wrote are not there"]);
    let again = place.run(&[TEXT, "x=x.npy", "y=y.npy", "t=t.raw", "--part", "0/3", "--partial", "p0"]);
    again.is_error(1, &["y.npy: exists already"]);
    assert!(outputs(&place) == files);
    // For people.
    for name in ["y.npy", "t.raw"] {
        fs::remove_file(place.path(name)).unwrap();
    }
    for k in 0..3 {
        part(&place, &["--part", &format!("{k}/3"), "--partial", &format!("p{k}")]);
    }
    let text = place.overshot(&["merge", "p0", "p1", "p2"]).stdout;
    for line in ["y: 30,007 rows of f64 -> y.npy", "note: the job ran in 3 parts, and the times are the sums of theirs"]
    {
        assert!(text.lines().any(|other| other == line), "no '{line}' in {text}");
    }
    RAN
}

fn without_files(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let job = |args: &[&str]| place.run(&[&["sum(i), max(sin(i))", "--quiet"], args].concat());
    let one = job(&["--rows", "1e5"]).stdout;
    for k in 0..40 {
        // There are 25 blocks of 4096 rows, so some parts are empty.
        let done = job(&["--rows", "1e5", "--part", &format!("{k}/40"), "--partial", &format!("p{k}")]);
        assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (Some(0), "", ""));
    }
    let names: Vec<String> = (0..40).rev().map(|k| format!("p{k}")).collect();
    let merged = place.overshot(&[&["merge".to_owned(), "--quiet".to_owned()], &names[..]].concat());
    assert_eq!((merged.code, merged.stdout), (Some(0), one));
    RAN
}

fn tree(device: &str) -> Outcome {
    let (report, files) = whole(device);
    let place = place(device);
    for k in 0..8 {
        part(&place, &["--part", &format!("{k}/8"), "--partial", &format!("p{k}")]);
    }
    let merge = |args: &[&str]| json(&place.overshot(&[&["merge", "--json"], args].concat()));
    let rows = merge(&["p7", "p0", "p1", "--partial", "a"])["rows"].clone();
    assert_eq!(rows, serde_json::json!([[0, 4096 * 2], [4096 * 7, ROWS]]));
    merge(&["p2", "p4", "--partial", "b"]);
    merge(&["p6", "b", "--partial", "c"]);
    merge(&["p3", "p5", "--partial", "d"]);
    place.overshot(&["merge", "a", "b", "--partial", "a"]).is_error(2, &["a: is both the partial and a partial to be"]);
    place.overshot(&["merge", "c", "b", "--partial", "e"]).is_error(2, &["b: both partials have the rows"]);
    let merged = merge(&["d", "a", "c"]);
    assert_eq!(results(&merged), results(&report));
    assert!(outputs(&place) == files);
    RAN
}

fn at_once(device: &str) -> Outcome {
    let (report, files) = whole(device);
    let place = place(device);
    let begin = |k: usize| {
        let mut command = place.command(&["run", "--device", device, TEXT, "x=x.npy", "y=y.npy", "t=t.raw", "--quiet"]);
        command.args(["--part", &format!("{k}/6"), "--partial", &format!("p{k}")]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..6).map(begin).collect();
    for child in children {
        let done = done(child.wait_with_output().unwrap());
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    }
    let merged = json(&place.overshot(&["merge", "p0", "p1", "p2", "p3", "p4", "p5", "--json"]));
    assert_eq!(results(&merged), results(&report));
    assert!(outputs(&place) == files);
    assert_eq!(place.names().len(), 9);
    RAN
}

fn usage(device: &str) -> Outcome {
    let place = place(device);
    for (args, words) in [
        (&["mean(x)", "x=x.npy", "--rows", "0..4096"][..], &["needs --partial"][..]),
        (&["mean(x)", "x=x.npy", "--part", "0/2"], &["--partial"]),
        (&["mean(x)", "x=x.npy", "--partial", "p"], &["--part K/N", "--rows A..B"]),
        (&["mean(x)", "x=x.npy", "--partial", "p", "--part", "0/2", "--rows", "0..4096"], &["leave one out"]),
        (&["mean(x)", "x=x.npy", "--partial", "p", "--part", "2/2"], &["from 0 to one less than their count, 2"]),
        (&["mean(x)", "x=x.npy", "--partial", "p", "--part", "two"], &["such as 0/4"]),
        (&["mean(x)", "x=x.npy", "--partial", "p", "--rows", "9..4"], &["end before they begin"]),
        (&["mean(x)", "x=x.npy", "--partial", "p", "--rows", "0..4000"], &["rows 0 to 4000", "multiples of 4096"]),
        (&["mean(x)", "x=x.npy", "--partial", "p", "--rows", "0..40960"], &["rows 0 to 40960 of 30007"]),
        (&["sum(i)", "--partial", "p", "--rows", "0..4096"], &["--rows N", "--part K/N"]),
        (&["sum(i)", "--partial", "p", "--part", "0/2"], &["number of rows is unknown"]),
        (&["mean(x)", "x=x.npy", "--partial", "p", "--part", "0/2", "-v"], &["--partial", "--verbose"]),
        (&["mean(x)", "x=x.npy", "--partial", "p", "--part", "0/2", "--trace", "t"], &["--partial", "--trace"]),
        (&["mean(x)", "x=x.npy", "--partial", "p", "--part", "0/2", "--html", "t"], &["--partial", "--html"]),
        (&["mean(x)", "x=x.npy", "--partial", "x.npy", "--part", "0/2"], &["is both the partial and 'x'"]),
    ] {
        place.refused(2, words, args);
    }
    for args in [&["--rows", "0..4096"][..], &["--part", "0/2", "--partial", "p"]] {
        let done = place.overshot(&[&["plan", "mean(x)", "x=x.npy"], args].concat());
        done.is_error(2, &["a plan is one of all rows"]);
    }
    place.overshot(&["merge"]).is_error(2, &["FILE"]);
    RAN
}

fn bad_partials(device: &str) -> Outcome {
    let place = place(device);
    part(&place, &["--part", "0/2", "--partial", "p0"]);
    part(&place, &["--part", "1/2", "--partial", "p1"]);
    assert_eq!(place.run(&["mean(x)", "x=x.npy", "--part", "1/2", "--partial", "q1"]).code, Some(0));
    let mut bytes = fs::read(place.path("p1")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    place.raw("damaged", &bytes);
    bytes[middle] ^= 1;
    bytes[8] = 1;
    place.raw("old", &bytes);
    let before = place.files();
    for (other, code, words) in [
        ("q1", 2, &["q1: ", "different jobs", "the expression"][..]),
        ("p0", 2, &["p0: both partials have the rows 0 to 16384"]),
        ("damaged", 2, &["damaged: the partial is damaged", "run these rows again"]),
        ("old", 2, &["old: the partial has version 1"]),
        ("x.npy", 2, &["x.npy: these are not the bytes of a partial"]),
        ("nothing", 1, &["nothing: the partial cannot be read", "No such file"]),
        (".", 1, &["is not a regular file"]),
    ] {
        place.overshot(&["merge", "p0", other]).is_error(code, words);
        assert_eq!(place.files(), before);
    }
    // A partial replaces no other file.
    let done = place.overshot(&["merge", "p0", "--partial", "x.npy"]);
    done.is_error(1, &["x.npy: is no partial", "choose another file for the partial"]);
    let done = place.run(&["mean(y)", "y=p0:u8", "--part", "0/2", "--partial", "x.npy"]);
    assert_eq!((done.code, place.files()), (Some(1), before.clone()), "{done:?}");
    let error = place.overshot(&["merge", "p0", "damaged", "--json"]);
    let error: Value = serde_json::from_str(&error.stderr).unwrap();
    assert_eq!((&error["error"]["kind"], &error["error"]["path"]), (&"partial".into(), &"damaged".into()));
    // An input that changed is another one.
    let mut x = fs::read(place.path("x.npy")).unwrap();
    *x.last_mut().unwrap() ^= 1;
    place.raw("x.npy", &x);
    part(&place, &["--part", "1/2", "--partial", "p1"]);
    place.overshot(&["merge", "p0", "p1"]).is_error(2, &["p1: ", "the input x: "]);
    // A job of all rows says what is left.
    let report = place.report(&[TEXT, "x=x.npy", "y=y.npy", "t=t.raw"]);
    let notes = report["notes"].to_string();
    assert_eq!(notes.matches("has rows of a job that is not complete").count(), 4, "{notes}");
    RAN
}

fn no_space(device: &str) -> Outcome {
    let place = place(device);
    // Files of at most 64 KiB.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 128 && exec \"$0\" \"$@\""]).arg(binary()).args(["run", "--device", device]);
    command.args(["y = x", "x=x.npy", "y=y.npy", "--part", "0/2", "--partial", "p0"]);
    let done = done(command.current_dir(place.folder.path()).output().unwrap());
    done.is_error(1, &["y.npy", "ulimit -f"]);
    assert_eq!(place.names(), ["x.npy"]);
    RAN
}

fn bad_target(device: &str) -> Outcome {
    let place = place(device);
    fs::create_dir(place.path("folder")).unwrap();
    for (path, words) in [
        ("folder", &["folder: is not a regular file", "the partial"][..]),
        ("/no/such/p", &["/no/such/p: cannot be created"]),
        ("/dev/full", &["/dev/full: is not a regular file"]),
    ] {
        place.refused(1, words, &["y = x", "x=x.npy", "y=y.npy", "--part", "0/2", "--partial", path]);
    }
    RAN
}

/// The path of an example, if the sources are on this machine.
fn example(name: &str) -> Option<std::path::PathBuf> {
    Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)).filter(|path| path.exists())
}

/// Compares what a script wrote and printed last with one run.
fn is_one_run(place: &CaseFolder, device: &str, script: &Done) {
    assert_eq!((script.code, script.stderr.as_str()), (Some(0), ""));
    let written = fs::read(place.path("y.npy")).unwrap();
    fs::remove_file(place.path("y.npy")).unwrap();
    let one = place.run(&["y = sqrt(x); mean(y), max(y)", "x=x.npy", "y=y.npy", "--quiet"]);
    assert!(written == fs::read(place.path("y.npy")).unwrap(), "{device}: the rows differ");
    assert!(script.stdout.starts_with(&one.stdout), "{} is not {}", script.stdout, one.stdout);
    // The rows of all parts are as many as those of the job, so each was computed once.
    assert!(script.stdout.contains("y: 30,007 rows of f64 -> y.npy"), "{}", script.stdout);
}

fn loop_of_shell(device: &str) -> Outcome {
    let Some(script) = example("parts.sh") else { return not_run("the sources are not on this machine") };
    let place = place(device);
    let mut command = Command::new("sh");
    command.arg(script).args(["x.npy", "y.npy", "6", "3"]).current_dir(place.folder.path());
    let done = done(command.env("OVERSHOT", binary()).env("OVERSHOT_DEVICE", device).output().unwrap());
    assert!(done.stdout.contains("the job ran in 6 parts"), "{done:?}");
    is_one_run(&place, device, &done);
    assert_eq!(place.names(), ["x.npy", "y.npy"]);
    RAN
}

fn job_array(device: &str) -> Outcome {
    let Some(script) = example("slurm.sh") else { return not_run("the sources are not on this machine") };
    let place = place(device);
    let task = |args: &[&str], task: u32| {
        let mut command = Command::new("sh");
        command.arg(&script).args(args).current_dir(place.folder.path());
        command.env("OVERSHOT", binary()).env("OVERSHOT_DEVICE", device);
        command.env("SLURM_ARRAY_TASK_ID", task.to_string()).env("SLURM_ARRAY_TASK_COUNT", "5");
        done(command.output().unwrap())
    };
    // The second one is run twice, as after the failure of a node.
    for k in [4, 1, 0, 1, 3, 2] {
        let done = task(&[], k);
        assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (Some(0), "", ""));
    }
    let done = task(&["merge"], 0);
    assert!(done.stdout.contains("the job ran in 5 parts"), "{done:?}");
    is_one_run(&place, device, &done);
    RAN
}
