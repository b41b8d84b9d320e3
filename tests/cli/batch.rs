//! Job files: `overshot run job.toml`, and the ones in `examples/jobs/`.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::tools::{CaseFolder, Done, RAN, binary, done, not_run, results, rows};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("steps run in their order, and are skipped the next time", steps),
    ("what changes a step, and what does not", changes),
    ("outputs of a step that others changed", changed_outputs),
    ("a step for each file", each),
    ("a step whose input is a folder or a pattern", sets_of_files),
    ("a job file in another folder", other_folder),
    ("a step that fails, and the next run", failure),
    ("what a job file says on standard output", printed),
    ("the plan of a job file", plan),
    ("job files with mistakes", mistakes),
    ("arguments beside a job file", arguments),
    ("expressions that end like a job file", not_a_job_file),
    ("damaged job files and states are no defects", damaged),
    ("a state that is damaged or of another version", damaged_state),
    ("a folder without a place for the state", no_state),
    ("two processes with one job file", locked),
    ("names that are not UTF-8 in a job file", odd_names),
    ("a trace and a page of a step", pictures),
    ("a page that cannot be written", stale_picture),
    ("the output of a later step that can be continued", foreign_output),
    ("a step that continues does not begin to replace files", forced_journal),
    ("files that come by another path", other_paths),
    ("arrays of a store that an earlier step writes", arrays_of_stores),
    ("a job file that is killed goes on", killed),
    ("Ctrl-C ends a job file, and it goes on", interrupted),
    ("examples/jobs/standardise.toml", standardise),
    ("examples/jobs/monthly.toml", monthly),
    ("examples/jobs/nightly.toml", nightly),
];

/// A user who owns nothing.
const NOBODY: u32 = 65_534;

/// Three steps: `make` writes x.npy, `root` reads it and writes y.npy, and `sums` reads y.npy.
const STEPS: &str = r#"
[[step]]
name = "make"
run = "x = f64(i) ** 2"
files = { x = "x.npy" }
options = { rows = "1e4" }

[[step]]
name = "root"
run = "y = sqrt(x) * m; max(y)"
files = { x = "x.npy", y = "y.npy", m = 2.0 }

[[step]]
name = "sums"
run = "mean(y), n = count(y > 100)"
files = { y = "y.npy" }
"#;

fn write(place: &CaseFolder, device: &str, steps: &str) {
    place.raw("job.toml", format!("[options]\ndevice = \"{device}\"\n{steps}").as_bytes());
}

fn place(device: &str, steps: &str) -> CaseFolder {
    let place = CaseFolder::new(device);
    write(&place, device, steps);
    place
}

fn job(place: &CaseFolder, args: &[&str]) -> Done {
    place.overshot(&[&["run", "job.toml"], args].concat())
}

/// Runs the job file, and expects success.
fn document(place: &CaseFolder, args: &[&str]) -> Value {
    let done = job(place, &[&["--json"], args].concat());
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
    serde_json::from_str(&done.stdout).unwrap()
}

fn statuses_of(document: &Value) -> Vec<String> {
    let steps = document["steps"].as_array().unwrap();
    steps.iter().map(|step| step["status"].as_str().unwrap().to_owned()).collect()
}

/// Runs the job file, expects success, and returns what became of each step.
fn statuses(place: &CaseFolder) -> Vec<String> {
    statuses_of(&document(place, &[]))
}

/// Sets another modification time.
fn touch(place: &CaseFolder, name: &str) {
    let file = File::options().write(true).open(place.path(name)).unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    file.set_modified(before - Duration::from_nanos(1_000_000_001)).unwrap();
}

fn steps(device: &str) -> Outcome {
    let place = place(device, STEPS);
    let first = document(&place, &[]);
    assert_eq!(statuses_of(&first), ["ran"; 3]);
    let sums = &first["steps"][2];
    assert_eq!(results(&sums["report"]), json!({ "mean(y)": 9999.0, "n": 9949 }));
    let expected: Vec<f64> = (0..10_000).map(|row| f64::from(row) * 2.0).collect();
    assert_eq!(rows(&fs::read(place.path("y.npy")).unwrap()), expected);
    assert_eq!(place.names(), [".job.toml.state", "job.toml", "x.npy", "y.npy"]);
    let before = place.files();
    let second = document(&place, &[]);
    assert_eq!(statuses_of(&second), ["skipped"; 3]);
    assert_eq!(second["steps"][2]["values"]["results"], sums["report"]["results"]);
    assert_eq!(second["steps"][2]["report"], Value::Null);
    assert_eq!(place.files(), before);
    assert_eq!(statuses_of(&document(&place, &["--all"])), ["ran"; 3]);
    assert_eq!(statuses(&place), ["skipped"; 3]);
    RAN
}

fn arrays_of_stores(device: &str) -> Outcome {
    let write = "[[step]]\nname = \"write\"\nrun = \"y = x; z = x * 2\"\n\
                 files = { x = \"x.npy\", y = \"s.zarr\", z = \"s.zarr\" }\n";
    let read = "[[step]]\nname = \"read\"\nrun = \"sum(q)\"\nfiles = { q = \"s.zarr/z\" }\n";
    let place = place(device, &format!("{write}{read}"));
    place.npy("x.npy", &[1.0, 2.0]);
    assert_eq!(results(&document(&place, &[])["steps"][1]["report"]), json!({ "sum(q)": 6.0 }));
    assert_eq!(statuses(&place), ["skipped"; 2]);
    place.npy("x.npy", &[1.0, 3.0]);
    let plan = place.overshot(&["plan", "job.toml"]);
    assert_eq!(plan.stdout.matches("would run").count(), 2, "{plan:?}");
    assert_eq!(results(&document(&place, &[])["steps"][1]["report"]), json!({ "sum(q)": 8.0 }));
    self::write(&place, device, &format!("{read}{write}"));
    job(&place, &[]).is_error(2, &["step 'read'", "the later step 'write' writes: put that step first"]);
    RAN
}

fn changes(device: &str) -> Outcome {
    let place = place(device, STEPS);
    assert_eq!(statuses(&place), ["ran"; 3]);
    for (old, new, expected) in [
        ("m = 2.0", "m = 3.0", ["skipped", "ran", "ran"]),
        ("sqrt(x) * m", "sqrt(x) + m", ["skipped", "ran", "ran"]),
        ("\"1e4\"", "\"2e4\"", ["ran", "ran", "ran"]),
        ("m = 2.0 }", "m = 2.0 }\noptions = { checksum = true }", ["skipped", "ran", "ran"]),
        ("n = count", "many = count", ["skipped", "skipped", "ran"]),
        // What cannot change a result.
        ("\"1e4\"", "\"1e4\", chunk = \"64KiB\", workers = 1, fsync = true", ["skipped"; 3]),
        ("\"1e4\"", "\"1e4\", force = false", ["skipped"; 3]),
        ("name = \"make\"", "name = \"make\" # a comment", ["skipped"; 3]),
    ] {
        write(&place, device, &STEPS.replace(old, new));
        assert_eq!(statuses(&place), expected, "{new}");
        assert_eq!(statuses(&place), ["skipped"; 3], "{new}");
        write(&place, device, STEPS);
        statuses(&place);
    }
    // The input of a step alone.
    let x = r#"
[[step]]
name = "sum"
run = "sum(a)"
files = { a = "a.npy" }
"#;
    write(&place, device, x);
    place.npy("a.npy", &[1.0, 2.0]);
    let sum = |document: &Value| results(&document["steps"][0]["report"])["sum(a)"].clone();
    assert_eq!(sum(&document(&place, &[])), 3.0);
    place.npy("a.npy", &[1.0, 2.0, 3.0]);
    assert_eq!(sum(&document(&place, &[])), 6.0);
    assert_eq!(statuses(&place), ["skipped"]);
    touch(&place, "a.npy");
    assert_eq!(sum(&document(&place, &[])), 6.0);
    // Steps that were not in the file for a while still have what they wrote, and their values are forgotten.
    write(&place, device, STEPS);
    assert_eq!(statuses(&place), ["skipped", "skipped", "ran"]);
    RAN
}

fn changed_outputs(device: &str) -> Outcome {
    let place = place(device, STEPS);
    assert_eq!(statuses(&place), ["ran"; 3]);
    fs::remove_file(place.path("y.npy")).unwrap();
    assert_eq!(statuses(&place), ["skipped", "ran", "ran"]);
    // It could be the work of somebody else.
    for change in [&|| place.npy("y.npy", &[1.0]), &|| touch(&place, "y.npy")] as [&dyn Fn(); 2] {
        change();
        let before = place.files();
        job(&place, &[]).is_error(1, &["job.toml: step 'root': y.npy: exists already", "force"]);
        job(&place, &["--all"]).is_error(1, &["job.toml: step 'root': y.npy: exists already", "force"]);
        assert_eq!(place.files(), before);
    }
    write(&place, device, &STEPS.replace("m = 2.0 }", "m = 2.0 }\noptions = { force = true }"));
    assert_eq!(statuses(&place), ["skipped", "ran", "ran"]);
    assert_eq!(rows(&fs::read(place.path("y.npy")).unwrap()).len(), 10_000);
    RAN
}

const EACH: &str = r#"
[[step]]
name = "night"
each = "in/*.npy"
run = "y = sqrt(x); sum(y)"
files = { x = "{path}", y = "out/{stem}-of-{name}" }
"#;

fn each(device: &str) -> Outcome {
    let place = place(device, EACH);
    fs::create_dir_all(place.path("in/folder.npy")).unwrap();
    for (name, value) in [("in/2.npy", 4.0), ("in/10.npy", 9.0)] {
        place.npy(name, &[value; 10]);
    }
    let items = |document: &Value| -> Vec<(String, String)> {
        let steps = document["steps"].as_array().unwrap().iter();
        let text = |step: &Value, field| step[field].as_str().unwrap().to_owned();
        steps.map(|step| (text(step, "item"), text(step, "status"))).collect()
    };
    let expected = |all: &[(&str, &str)]| -> Vec<(String, String)> {
        all.iter().map(|(item, status)| ((*item).into(), (*status).into())).collect()
    };
    assert_eq!(items(&document(&place, &[])), expected(&[("in/2.npy", "ran"), ("in/10.npy", "ran")]));
    assert_eq!(rows(&fs::read(place.path("out/10-of-10.npy")).unwrap()), [3.0; 10]);
    place.npy("in/9.npy", &[16.0; 10]);
    touch(&place, "in/10.npy");
    let third = expected(&[("in/2.npy", "skipped"), ("in/9.npy", "ran"), ("in/10.npy", "ran")]);
    assert_eq!(items(&document(&place, &[])), third);
    fs::remove_file(place.path("out/9-of-9.npy")).unwrap();
    let done = job(&place, &[]);
    assert!(done.stdout.starts_with("[1/3] night: in/2.npy: unchanged, skipped\nsum(y) = 20.0\n"), "{done:?}");
    assert!(done.stdout.contains("\n[2/3] night: in/9.npy\nsum(y) = 40.0\n"), "{done:?}");
    // Files that are gone take what was known of them along.
    fs::remove_dir_all(place.path("in/")).unwrap();
    fs::remove_dir_all(place.path("out")).unwrap();
    fs::create_dir(place.path("in")).unwrap();
    place.npy("in/new.npy", &[1.0]);
    assert_eq!(statuses(&place), ["ran"]);
    assert!(!fs::read_to_string(place.path(".job.toml.state")).unwrap().contains("10.npy"));
    // A folder, and what earlier steps will write into it.
    let made = r#"
[[step]]
name = "make"
run = "a = i; b = i + 1"
files = { a = "made/a.npy", b = "./made/b.npy" }
options = { rows = 5 }
"#;
    for names in ["made", "made/*.npy"] {
        write(&place, device, &(made.to_owned() + &EACH.replace("in/*.npy", names)));
        assert_eq!(statuses(&place).len(), 3, "{names}");
        assert_eq!(statuses(&place), ["skipped"; 3], "{names}");
    }
    RAN
}

fn sets_of_files(device: &str) -> Outcome {
    let step = "[[step]]\nname = \"sum\"\nrun = \"sum(x)\"\nfiles = { x = \"in/*.npy\" }\n";
    let place = place(device, step);
    fs::create_dir(place.path("in")).unwrap();
    place.npy("in/a.npy", &[1.0]);
    place.npy("in/b.npy", &[2.0]);
    assert_eq!(statuses(&place), ["ran"]);
    assert_eq!(statuses(&place), ["skipped"]);
    let why = |place: &CaseFolder| place.overshot(&["plan", "job.toml"]).stdout.lines().next().unwrap().to_owned();
    assert_eq!(why(&place), "[1/1] sum: would be skipped");
    place.npy("in/c.npy", &[4.0]);
    assert_eq!(why(&place), "[1/1] sum: would run (input in/c.npy is new)");
    assert_eq!(statuses(&place), ["ran"]);
    fs::remove_file(place.path("in/a.npy")).unwrap();
    assert_eq!(why(&place), "[1/1] sum: would run (input in/a.npy is gone)");
    assert_eq!(results(&document(&place, &[])["steps"][0]["report"])["sum(x)"], 6.0);
    RAN
}

fn other_folder(device: &str) -> Outcome {
    let place = place(device, STEPS);
    fs::create_dir(place.path("sub")).unwrap();
    fs::rename(place.path("job.toml"), place.path("sub/job.toml")).unwrap();
    let ended = place.overshot(&["run", "sub/job.toml", "--quiet"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(place.names(), ["sub"]);
    assert!(place.path("sub/y.npy").exists() && place.path("sub/.job.toml.state").exists());
    let inside = place.command(&["run", "job.toml"]).current_dir(place.path("sub")).output()?;
    assert!(done(inside).stdout.starts_with("[1/3] make: unchanged, skipped\n[2/3] root: unchanged, skipped\n"));
    RAN
}

fn failure(device: &str) -> Outcome {
    let later = r#"
[[step]]
name = "later"
each = "in"
run = "sum(x)"
files = { x = "{path}" }
"#;
    let place = place(device, &(STEPS.to_owned() + later));
    fs::create_dir(place.path("in")).unwrap();
    place.npy("in/a.npy", &[1.0]);
    place.npy("in/b.npy", &[2.0]);
    place.npy("x.npy", &[1.0]);
    // The steps that write and read x.npy no longer fit.
    let wrong = STEPS.replace("x = \"x.npy\", y", "x = \"z.npy\", y");
    place.raw("z.npy", b"no numbers");
    fs::remove_file(place.path("x.npy")).unwrap();
    write(&place, device, &(wrong + later));
    let done = job(&place, &["--quiet"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(1), ""));
    let lines: Vec<_> = done.stderr.lines().collect();
    assert!(lines[0].starts_with("overshot: error: job.toml: step 'root': z.npy: "), "{done:?}");
    assert_eq!(lines[1..], ["did not run: sums, later (2 files)"]);
    let done = job(&place, &["--json"]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(statuses_of(&document), ["skipped", "failed", "not run", "not run", "not run"]);
    assert_eq!(document["steps"][1]["error"]["kind"], "file");
    let error: Value = serde_json::from_str(&done.stderr).unwrap();
    assert_eq!((&error["error"]["step"], &error["error"]["kind"]), (&"root".into(), &"file".into()));
    assert_eq!(error["error"]["not_run"], json!(["sums", "later (2 files)"]));
    // The next run goes on with the step that failed.
    place.npy("z.npy", &[4.0; 10]);
    assert_eq!(statuses(&place), ["skipped", "ran", "ran", "ran", "ran"]);
    // A job that cannot run as requested has the code for that.
    let types = STEPS.replace("count(y > 100)", "count(y & 1)");
    write(&place, device, &types);
    let done = job(&place, &[]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.stderr.contains("job.toml: step 'sums': column "), "{done:?}");
    RAN
}

fn printed(device: &str) -> Outcome {
    let place = place(device, STEPS);
    let first = job(&place, &[]);
    assert_eq!((first.code, first.stderr.as_str()), (Some(0), ""));
    for text in ["[1/3] make\nx: 10,000 rows of f64 -> x.npy\n", "\n[2/3] root\nmax(y) = 19998.0\n", "\n[3/3] sums\n"] {
        assert!(first.stdout.contains(text), "{text}: {}", first.stdout);
    }
    let skipped = "[1/3] make: unchanged, skipped\n[2/3] root: unchanged, skipped\nmax(y) = 19998.0\n\
                   [3/3] sums: unchanged, skipped\nmean(y) = 9999.0\nn = 9949\n";
    assert_eq!(job(&place, &[]).stdout, skipped);
    let quiet = "root: max(y) = 19998.0\nsums: mean(y) = 9999.0\nsums: n = 9949\n";
    assert_eq!(job(&place, &["--quiet"]).stdout, quiet);
    assert_eq!(job(&place, &["--quiet", "--all"]).stdout, quiet);
    assert!(job(&place, &["--verbose", "--all"]).stdout.contains("stage "));
    // Values keep their digits.
    let digits = "[[step]]\nname = \"d\"\noptions = { rows = 99 }\n\
                  run = \"a = sum(f32(i) / 3), b = sum(sin(i)), c = max(u64(i) + 9007199254740993)\"\n";
    write(&place, device, digits);
    let ran = document(&place, &[])["steps"][0]["report"]["results"].to_string();
    assert_eq!(document(&place, &[])["steps"][0]["values"]["results"].to_string(), ran);
    RAN
}

fn plan(device: &str) -> Outcome {
    let place = place(device, &(STEPS.to_owned() + &EACH.replace("in/*.npy", "?.npy").replace("out/", "out/of-")));
    let plan = |args: &[&str]| {
        let done = place.overshot(&[&["plan", "job.toml"], args].concat());
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
        done.stdout
    };
    let before = place.files();
    let text = plan(&[]);
    for line in [
        "[1/5] make: would run (never ran)",
        "[2/5] root: would run (never ran)",
        "no plan yet, because 'make' writes its input x.npy first",
        "[4/5] night: 2 files, of which x.npy is the first: would run (never ran)",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}: {text}");
    }
    assert!(text.contains("chunk rows"), "{text}");
    assert_eq!(place.files(), before);
    assert_eq!(statuses(&place), ["ran"; 5]);
    let titles = |args: &[&str]| -> Vec<String> {
        plan(args).lines().filter(|line| line.starts_with('[')).map(str::to_owned).collect()
    };
    assert_eq!(titles(&[])[1], "[2/5] root: would be skipped");
    assert_eq!(titles(&["--all"])[1], "[2/5] root: would run (--all)");
    write(&place, device, &STEPS.replace("\"1e4\"", "\"2e4\""));
    let expected = [
        "[1/3] make: would run (the options changed)",
        "[2/3] root: would run ('make' writes its input first)",
        "[3/3] sums: would run ('root' writes its input first)",
    ];
    assert_eq!(titles(&[]), expected);
    let json: Value = serde_json::from_str(&plan(&["--json"])).unwrap();
    assert_eq!(json["steps"][0]["plan"]["rows"], 20_000);
    assert_eq!((&json["steps"][1]["runs"], &json["steps"][1]["items"]), (&1.into(), &Value::Null));
    for (change, why) in
        [("sqrt(x) * m|cbrt(x) * m", "the expression changed"), ("m = 2.0|m = 2.5", "the files changed")]
    {
        let (old, new) = change.split_once('|').unwrap();
        write(&place, device, &STEPS.replace(old, new));
        assert_eq!(titles(&[])[1], format!("[2/3] root: would run ({why})"));
    }
    write(&place, device, STEPS);
    fs::remove_file(place.path("y.npy")).unwrap();
    assert_eq!(titles(&[])[1], "[2/3] root: would run (output y.npy is missing)");
    RAN
}

fn mistakes(device: &str) -> Outcome {
    let place = place(device, "");
    place.npy("a.npy", &[1.0]);
    place.npy("b.npy", &[1.0]);
    fs::create_dir(place.path("in")).unwrap();
    let step = |name: &str, run: &str, files: &str, options: &str| {
        format!("[[step]]\nname = \"{name}\"\nrun = \"{run}\"\nfiles = {{ {files} }}\noptions = {{ {options} }}\n")
    };
    let one = |run: &str, files: &str, options: &str| step("one", run, files, options);
    let copy = |name: &str, from: &str, to: &str| step(name, "y = x", &format!("x = \"{from}\", y = \"{to}\""), "");
    let each = |each: &str, to: &str| copy("one", "{path}", to).replace("run =", &format!("each = \"{each}\"\nrun ="));
    let many_deep = format!("[[step]]\nname = \"a\"\nrun = {}", "[".repeat(5000));
    let at_one = "job.toml: step 'one': ";
    let cases: Vec<(String, i32, Vec<&str>)> = vec![
        ("".into(), 2, vec!["job.toml: has no step", "[[step]]"]),
        ("[[step]\n".into(), 2, vec!["job.toml: line 3, column "]),
        ("[[step]]\nname = \"one\"\nrun = 5\n".into(), 2, vec!["job.toml: line 5, column 7: ", "a string"]),
        ("[[step]]\nname = \"one\"\nruns = \"x\"\n".into(), 2, vec!["job.toml: line 5, column 1: ", "`runs`"]),
        ("[[steps]]\n".into(), 2, vec!["job.toml: line 3, ", "`steps`", "`step`"]),
        (many_deep, 2, vec!["job.toml: line "]),
        (step("a b", "sum(i)", "", ""), 2, vec!["the name of a step is 'a b'", "letters, digits, - and _"]),
        (one("sum(i)", "", "rows = 5").repeat(2), 2, vec!["two steps have the name 'one'"]),
        (one("sum(a", "a = \"a.npy\"", ""), 2, vec![at_one, "column 4", "never closed"]),
        (one("sum(a)", "a = \"a.npy\", c = \"b.npy\"", ""), 2, vec![at_one, "the job has no name 'c'"]),
        (one("sum(a + c)", "a = \"a.npy\"", ""), 2, vec![at_one, "reads 'c'", "add it to files"]),
        (one("sum(a)", "a = [1]", ""), 2, vec![at_one, "'a' is neither a path nor a number"]),
        (one("sum(a)", "a = \"none.npy\"", ""), 1, vec![at_one, "none.npy: does not exist, and no earlier step"]),
        (one("sum(a)", "a = \"none*.npy\"", ""), 1, vec![at_one, "none*.npy: does not exist"]),
        (one("sum(a)", "a = \"{stem}.npy\"", ""), 2, vec![at_one, "{stem} stands for a file of 'each'"]),
        (one("y = a", "a = 1.0, y = 2.0", "rows = 5"), 2, vec![at_one, "assigns 'y', so it cannot be a number"]),
        (one("other.toml", "", ""), 2, vec![at_one, "not the job file other.toml"]),
        (one("none.cu:k", "a = \"a.npy\"", ""), 1, vec![at_one, "none.cu: the kernel cannot be read"]),
        (one("sum(a)", "a = \"a.npy\"", "devise = \"cpu\""), 2, vec![at_one, "--devise", "--device"]),
        (one("sum(a)", "a = \"a.npy\"", "workers = \"many\""), 2, vec![at_one, "--workers", "many"]),
        (one("sum(a)", "a = \"a.npy\"", "verify = 2"), 2, vec![at_one, "--verify", "a fraction from 0 to 1"]),
        (one("sum(a)", "a = \"a.npy\"", "device = [\"cpu\", \"cpu\"]"), 2, vec![at_one, "--device"]),
        (one("sum(a)", "a = \"a.npy\"", "threads = 5"), 2, vec![at_one, "--threads applies only to kernels"]),
        (one("sum(a)", "a = \"a.npy\"", "rows = \"0..4096\""), 2, vec![at_one, "--rows A..B needs --partial"]),
        (one("sum(a)", "a = \"a.npy\"", "\"force=1\" = true"), 2, vec![at_one, "no option 'force=1'"]),
        (one("sum(a)", "a = \"a.npy\"", "trace = { a = 1 }"), 2, vec![at_one, "'trace' has a value of another kind"]),
        (copy("one", "a.npy", "a.npy"), 2, vec![at_one, "reads a.npy", "the step writes itself"]),
        (copy("one", "a.npy", "c.npy") + &copy("two", "b.npy", "./c.npy"), 2, vec!["'two'", "and so does 'one'"]),
        (copy("one", "c.npy", "d.npy") + &copy("two", "a.npy", "c.npy"), 2, vec![at_one, "later step 'two'"]),
        (copy("one", "*.npy", "in/d.npy") + &copy("two", "a.npy", "c.npy"), 2, vec![at_one, "later step 'two'"]),
        (copy("one", "a.npy", "job.toml:f64!"), 2, vec![at_one, "belongs to the job file"]),
        (copy("one", "a.npy", ".job.toml.state"), 2, vec![at_one, "belongs to the job file"]),
        (copy("one", "a.npy", ".job.toml.lock"), 2, vec![at_one, "belongs to the job file"]),
        (copy("one", "a.npy", "b.npy"), 1, vec![at_one, "b.npy: exists already"]),
        (copy("one", "a.npy", "c.csv"), 1, vec![at_one, "c.csv", "cannot be written"]),
        (each("in/*.npy", "in/{stem}"), 2, vec![at_one, "each = \"in/*.npy\" names no file"]),
        (each("*.npy", "c.npy"), 2, vec!["step 'one', b.npy", "writes c.npy, and so does 'one: a.npy'"]),
        (each("*.npy", "{stem}-new.npy"), 2, vec!["step 'one'", "reads a-new.npy", "the step writes itself"]),
    ];
    for (text, code, words) in cases {
        write(&place, device, &text);
        let before = place.files();
        job(&place, &[]).is_error(code, &words);
        assert_eq!(place.files(), before, "{text}");
        let plan = place.overshot(&["plan", "job.toml"]);
        // A plan says of outputs that they exist.
        assert!(plan.code == Some(code) || words[1].contains("exists") || words[1].contains("csv"), "{text} {plan:?}");
    }
    for option in ["all", "help", "json", "part", "partial", "quiet", "verbose", "version"] {
        write(&place, device, &one("sum(a)", "a = \"a.npy\"", &format!("{option} = true")));
        job(&place, &[]).is_error(2, &[at_one, &format!("the option '{option}' is not one of a step")]);
    }
    place.raw("job.toml", b"\xff");
    job(&place, &[]).is_error(2, &["job.toml: is not UTF-8"]);
    place.overshot(&["run", "none.toml"]).is_error(1, &["none.toml: the job file cannot be read"]);
    fs::create_dir(place.path("folder.toml")).unwrap();
    place.overshot(&["run", "folder.toml"]).is_error(1, &["folder.toml: is not a regular file"]);
    RAN
}

fn arguments(device: &str) -> Outcome {
    let place = place(device, STEPS);
    let before = place.files();
    let in_file = "write it in the file";
    for (args, word, remedy) in [
        (&["x=x.npy"][..], "NAME=PATH", in_file),
        (&["--force"], "--force", in_file),
        (&["--device", device], "--device", in_file),
        (&["--partial", "p", "--part", "0/2"], "--part", "leave it out"),
        (&["--html", "p.html"], "--html", in_file),
    ] {
        job(&place, args).is_error(2, &["job.toml: ", word, "is not for job files", remedy]);
        let plan = place.overshot(&[&["plan", "job.toml"], args].concat());
        plan.is_error(2, &["job.toml: ", word, "is not for job files"]);
    }
    place.overshot(&["plan", "job.toml", "--quiet"]).is_error(2, &["--quiet is not for job files", "leave it out"]);
    place.refused(2, &["--all applies only to job files"], &["sum(i)", "--rows", "5", "--all"]);
    assert_eq!(place.files(), before);
    RAN
}

fn not_a_job_file(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let record = crate::tools::npy("[('toml', '<f8')]", "False", "(2,)", &[0; 16]);
    place.raw("t.npy", &record);
    let report = place.report(&["y = t.toml", "t=t.npy", "y=y.npy"]);
    assert_eq!(report["rows"], 2);
    // A path may look like a statement.
    fs::remove_file(place.path("y.npy")).unwrap();
    place.raw("a=1.toml", STEPS.as_bytes());
    assert_eq!(place.overshot(&["run", "a=1.toml", "--quiet"]).code, Some(0));
    RAN
}

fn damaged(device: &str) -> Outcome {
    let place = place(device, STEPS);
    assert_eq!(statuses(&place), ["ran"; 3]);
    let good = ["job.toml", ".job.toml.state"].map(|name| (name, fs::read(place.path(name)).unwrap()));
    let mut runner = TestRunner::new(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() });
    let damage = (0..2_usize, any::<prop::sample::Index>(), 0..20_usize, "[\\[\\]{}=\"',.:0-9a-c\n\\\\-]{0,4}");
    let outcome = runner.run(&damage, |(which, at, cut, text)| {
        let (name, bytes) = &good[which];
        let start = at.index(bytes.len());
        let end = (start + cut).min(bytes.len());
        place.raw(name, &[&bytes[..start], text.as_bytes(), &bytes[end..]].concat());
        let done = place.overshot(&["plan", "job.toml"]);
        prop_assert!(matches!(done.code, Some(0..=2)), "{:?}", done);
        let done = job(&place, &["--quiet"]);
        prop_assert!(matches!(done.code, Some(0..=2)), "{:?}", done);
        for (name, bytes) in &good {
            place.raw(name, bytes);
        }
        Ok(())
    });
    outcome.map_err(|error| error.to_string().into()).and(RAN)
}

fn damaged_state(device: &str) -> Outcome {
    let place = place(device, "[[step]]\nname = \"sum\"\nrun = \"sum(i)\"\noptions = { rows = 10 }\n");
    for state in ["", "{", "[]", "{\"format\": 2, \"steps\": {}}", "{\"format\": 1, \"steps\": {\"sum\": 5}}"] {
        place.raw(".job.toml.state", state.as_bytes());
        let done = job(&place, &["--quiet"]);
        assert_eq!((done.code, done.stdout.as_str()), (Some(0), "sum: sum(i) = 45\n"), "{state}");
        assert!(done.stderr.starts_with("overshot: warning: .job.toml.state is damaged or of another"), "{done:?}");
        assert_eq!(done.stderr.lines().count(), 1);
        assert_eq!(statuses(&place), ["skipped"]);
    }
    // A step of another version runs again.
    let state = fs::read_to_string(place.path(".job.toml.state")).unwrap();
    let version = format!("\"overshot\":\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(state.contains(&version), "{state}");
    place.raw(".job.toml.state", state.replace(&version, "\"overshot\":\"0.0.1\"").as_bytes());
    let plan = place.overshot(&["plan", "job.toml"]).stdout;
    assert!(plan.starts_with("[1/1] sum: would run (Overshot 0.0.1 ran it)\n"), "{plan}");
    assert_eq!(statuses(&place), ["ran"]);
    RAN
}

fn no_state(device: &str) -> Outcome {
    let place = place(device, STEPS);
    fs::create_dir(place.path(".job.toml.state")).unwrap();
    job(&place, &[]).is_error(1, &[".job.toml.state: is not a regular file", "remove it"]);
    fs::remove_dir(place.path(".job.toml.state")).unwrap();
    // Root may write anywhere.
    fs::copy(binary(), place.path("overshot")).unwrap();
    fs::set_permissions(place.folder.path(), Permissions::from_mode(0o555)).unwrap();
    let mut command = Command::new(place.path("overshot"));
    command.args(["run", "job.toml"]).current_dir(place.folder.path()).env("OVERSHOT_CACHE", "");
    if rustix::process::getuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let mut ended = command.output();
    // Another case may start a process while this one writes its copy, and so hold it open for a moment.
    while ended.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::ExecutableFileBusy) {
        ended = command.output();
    }
    fs::set_permissions(place.folder.path(), Permissions::from_mode(0o755)).unwrap();
    let Ok(ended) = ended else { return not_run("no other user can run the command") };
    done(ended).is_error(1, &[".job.toml.lock: the lock of the job file cannot be opened", "copy the job file"]);
    assert_eq!(place.names(), ["job.toml", "overshot"]);
    RAN
}

fn locked(device: &str) -> Outcome {
    let place = place(device, STEPS);
    let lock = place.path(".job.toml.lock");
    let file = File::create(&lock).unwrap();
    if file.try_lock().is_err() {
        return not_run("the file system has no locks");
    }
    let is_refused = || {
        job(&place, &[]).is_error(2, &["job.toml: another process runs this job file", "wait for it"]);
    };
    is_refused();
    assert_eq!(place.overshot(&["plan", "job.toml"]).code, Some(0), "a plan only reads");
    // An editor may save the file under another name, and rename it.
    fs::copy(place.path("job.toml"), place.path("new")).unwrap();
    fs::rename(place.path("new"), place.path("job.toml")).unwrap();
    is_refused();
    assert!(lock.exists());
    // Not by closing it: a process that another test is just starting may have it, too.
    file.unlock().unwrap();
    // What a process that was killed has left is used again.
    assert_eq!(statuses(&place), ["ran"; 3]);
    assert!(!lock.exists());
    fs::create_dir(&lock).unwrap();
    job(&place, &[]).is_error(1, &["job.toml.lock: the lock of the job file cannot be opened", "may write to"]);
    RAN
}

fn odd_names(device: &str) -> Outcome {
    use std::os::unix::ffi::OsStrExt;
    let place = place(device, EACH);
    fs::create_dir(place.path("in")).unwrap();
    place.npy("in/a:b {name}.npy", &[4.0]);
    let odd = |bytes: &[u8]| place.folder.path().join(std::ffi::OsStr::from_bytes(bytes));
    // The last one has a backslash, and looks like the escape of the one before it.
    for name in [&b"in/\xfe.npy"[..], b"in/\xff.npy", br"in/\xff.npy"] {
        fs::copy(place.path("in/a:b {name}.npy"), odd(name)).unwrap();
    }
    assert_eq!(statuses(&place), ["ran"; 4]);
    assert!(odd(b"out/\xff-of-\xff.npy").exists() && place.path("out/a:b {name}-of-a:b {name}.npy").exists());
    assert_eq!(statuses(&place), ["skipped"; 4]);
    fs::remove_file(odd(b"out/\xff-of-\xff.npy")).unwrap();
    assert_eq!(statuses(&place).iter().filter(|status| *status == "ran").count(), 1);
    // A step that is taken out of the file for a while still owns an output of such a name.
    fs::remove_dir_all(place.path("out")).unwrap();
    let one = EACH.replace("in/*.npy", "in/?.npy").replace("{stem}-of-", "");
    write(&place, device, &one);
    assert_eq!(statuses(&place), ["ran"; 2]);
    write(&place, device, "[[step]]\nname = \"other\"\nrun = \"sum(i)\"\noptions = { rows = 5 }\n");
    assert_eq!(statuses(&place), ["ran"]);
    write(&place, device, &one);
    assert_eq!(statuses(&place), ["skipped"; 2]);
    RAN
}

fn pictures(device: &str) -> Outcome {
    let step = "[[step]]\nname = \"sum\"\nrun = \"sum(i)\"\n\
                options = { rows = 10, trace = \"new/t.json\", html = \"p.html\" }\n";
    let place = place(device, step);
    assert_eq!(statuses(&place), ["ran"]);
    assert!(place.path("new/t.json").exists() && place.path("p.html").exists());
    assert_eq!(statuses(&place), ["skipped"]);
    fs::remove_file(place.path("p.html")).unwrap();
    assert_eq!(statuses(&place), ["ran"]);
    // A picture that cannot be written is an error, and its step runs again.
    fs::remove_file(place.path("new/t.json")).unwrap();
    fs::create_dir(place.path("new/t.json")).unwrap();
    let done = job(&place, &[]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.starts_with("overshot: error: job.toml: step 'sum': new/t.json: is not a regular"), "{done:?}");
    RAN
}

fn stale_picture(device: &str) -> Outcome {
    let step = |run: &str| {
        let options = "options = { rows = 10, html = \"p.html\" }";
        format!("[[step]]\nname = \"sum\"\nrun = \"{run}\"\n{options}\n")
    };
    let place = place(device, &step("sum(i)"));
    assert_eq!(statuses(&place), ["ran"]);
    write(&place, device, &step("sum(i * 17)"));
    let page = || fs::read_to_string(place.path("p.html")).unwrap();
    let old = page();
    // 4 KiB: enough for the state, and too little for the page.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 8 && exec \"$0\" \"$@\""]).arg(binary()).args(["run", "job.toml"]);
    let done = done(command.current_dir(place.folder.path()).env("OVERSHOT_CACHE", "").output()?);
    assert_eq!(done.code, Some(1), "{done:?}");
    let error = "overshot: error: job.toml: step 'sum': p.html: the page cannot be written";
    assert!(done.stderr.starts_with(error), "{done:?}");
    assert_eq!(page(), old);
    assert_eq!(statuses(&place), ["ran"]);
    assert!(page() != old && page().contains("sum(i * 17)"));
    assert_eq!(statuses(&place), ["skipped"]);
    RAN
}

fn foreign_output(device: &str) -> Outcome {
    let place = place(device, &STEPS.replace("m = 2.0 }", "m = 2.0 }\noptions = { resume = true }"));
    place.npy("y.npy", &[1.0]);
    let before = place.files();
    job(&place, &[]).is_error(1, &["job.toml: step 'root': y.npy: exists already"]);
    assert_eq!(place.files(), before, "no step ran");
    RAN
}

fn forced_journal(device: &str) -> Outcome {
    let expected = whole(device);
    for _ in 0..10 {
        let place = long(device);
        document(&place, &[]);
        // The step replaces its own output, and so does its journal.
        touch(&place, "in/b.npy");
        let mut command = place.command(&["run", "job.toml", "--quiet"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let journal = place.path("out/.b.npy.journal");
        while fs::metadata(&journal).map_or(0, |file| file.len()) == 0 && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if !journal.exists() {
            continue;
        }
        // What is there now is the file of somebody else.
        fs::write(place.path("out/b.npy"), b"other").unwrap();
        job(&place, &[]).is_error(1, &["job.toml: step 'night', in/b.npy: out/b.npy: exists already"]);
        assert_eq!(fs::read(place.path("out/b.npy")).unwrap(), b"other");
        fs::remove_file(place.path("out/b.npy")).unwrap();
        let document = document(&place, &[]);
        assert_eq!(statuses_of(&document), ["skipped", "ran", "ran"]);
        assert_eq!((outputs(&place), results(&document["steps"][2]["report"])), expected);
        assert!(document["steps"][1]["report"]["notes"].to_string().contains("were complete in an earlier run"));
        return RAN;
    }
    not_run("no run was killed in time")
}

fn other_paths(device: &str) -> Outcome {
    let place = place(device, "");
    fs::create_dir(place.path("in")).unwrap();
    fs::create_dir(place.path("real")).unwrap();
    std::os::unix::fs::symlink("real", place.path("link")).unwrap();
    let clean = place.path("real/a.npy");
    let make =
        format!("[[step]]\nname = \"make\"\nrun = \"a = i\"\noptions = {{ rows = 5 }}\nfiles = {{ a = {clean:?} }}\n");
    for (count, names) in ["in/../real/*.npy", "link/*.npy", "link", "l*/*.npy"].into_iter().enumerate() {
        let each = EACH.replace("in/*.npy", names).replace("out/", &format!("out/{count}"));
        write(&place, device, &(make.clone() + &each));
        let _ = fs::remove_file(&clean);
        let document = document(&place, &[]);
        assert_eq!(statuses_of(&document), ["ran"; 2], "{names}");
        let item = document["steps"][1]["item"].as_str().unwrap();
        assert_eq!(item, names.trim_end_matches("/*.npy").replace("l*", "link") + "/a.npy");
        assert_eq!(statuses(&place), ["skipped"; 2], "{names}");
    }
    RAN
}

/// A small file, and one of which a run takes a while, with a step after them.
fn long(device: &str) -> CaseFolder {
    let steps = EACH.replace("{stem}-of-{name}", "{name}").replace("sqrt(x)", "sqrt(x) + sin(i)")
        + "options = { resume = true, resume-every = 0 }\n[[step]]\nname = \"last\"\nrun = \"sum(y)\"\n\
           files = { y = \"out\" }\n";
    let place = place(device, &steps);
    fs::create_dir(place.path("in")).unwrap();
    place.npy("in/a.npy", &[4.0; 10]);
    place.npy("in/b.npy", &(0..200_011).map(f64::from).collect::<Vec<_>>());
    place
}

/// The outputs of a run that is not interrupted, and the result of its last step.
fn whole(device: &str) -> ([Vec<u8>; 2], Value) {
    let place = long(device);
    let document = document(&place, &["--all"]);
    (outputs(&place), results(&document["steps"][2]["report"]))
}

fn outputs(place: &CaseFolder) -> [Vec<u8>; 2] {
    ["out/a.npy", "out/b.npy"].map(|name| fs::read(place.path(name)).unwrap())
}

/// Starts a run, and returns it when the second file is at work or done.
fn started(place: &CaseFolder) -> std::process::Child {
    let mut command = place.command(&["run", "job.toml", "--quiet"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let journal = place.path("out/.b.npy.journal");
    // An empty one would not be kept.
    while !place.path("out/b.npy").exists() && fs::metadata(&journal).map_or(0, |file| file.len()) == 0 {
        std::thread::yield_now();
    }
    child
}

fn killed(device: &str) -> Outcome {
    let expected = whole(device);
    let mut in_time = 0;
    for _ in 0..10 {
        let place = long(device);
        let mut child = started(&place);
        child.kill().unwrap();
        child.wait().unwrap();
        // It may have been killed when the output had its name and the state did not know of it.
        if !place.path("out/.b.npy.journal").exists() {
            continue;
        }
        let document = document(&place, &[]);
        assert_eq!(statuses_of(&document), ["skipped", "ran", "ran"]);
        assert_eq!((outputs(&place), results(&document["steps"][2]["report"])), expected);
        in_time += 1;
    }
    if in_time == 0 { not_run("no run was killed in time") } else { RAN }
}

fn interrupted(device: &str) -> Outcome {
    let expected = whole(device);
    for _ in 0..10 {
        let place = long(device);
        let child = started(&place);
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
        let output = child.wait_with_output()?;
        if output.status.success() {
            continue;
        }
        assert_eq!(output.status.signal(), Some(2), "{output:?}");
        let was_in_b = place.path("out/.b.npy.journal").exists();
        let ended = done(output);
        let (error, not_run) = match was_in_b {
            true => ("step 'night', in/b.npy: stopped after", "did not run: last"),
            false => ("step 'last': stopped after", ""),
        };
        assert!(ended.stderr.contains(error) && ended.stderr.contains(not_run), "{ended:?}");
        let document = document(&place, &[]);
        assert_eq!(statuses_of(&document)[0], "skipped");
        assert_eq!((outputs(&place), results(&document["steps"][2]["report"])), expected);
        if was_in_b {
            return RAN;
        }
    }
    not_run("no run was stopped in time")
}

/// Copies an example into a folder, if the sources are on this machine, with a device for its steps.
fn example(name: &str, device: &str) -> Option<CaseFolder> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/jobs").join(name);
    let text = fs::read_to_string(path).ok()?;
    Some(place(device, &text))
}

fn standardise(device: &str) -> Outcome {
    let Some(place) = example("standardise.toml", device) else { return not_run("the sources are not here") };
    let document = document(&place, &[]);
    let checked = results(&document["steps"][3]["report"]);
    for (name, value) in
        [("n", 900_000.0), ("mean(s.h)", 0.0), ("std(s.h)", 1.0), ("mean(s.w)", 0.0), ("std(s.w)", 1.0)]
    {
        assert!((checked[name].as_f64().unwrap() - value).abs() < 1e-9, "{name}: {checked}");
    }
    // The heights of nine people of ten are in the file, the tallest of whom have 190.
    let heights: Vec<f64> = (0..9).map(|i| f64::from(150 + 10 * (i % 5))).collect();
    let mean = heights.iter().sum::<f64>() / 9.0;
    let std = (heights.iter().map(|own| (own - mean).powi(2)).sum::<f64>() / 9.0).sqrt();
    let largest = results(&place.report(&["max(s.h)", "s=standard.parquet"]))["max(s.h)"].as_f64().unwrap();
    assert!((largest - (190.0 - mean) / std).abs() < 1e-9, "{largest}");
    assert_eq!(statuses(&place), ["skipped"; 4]);
    RAN
}

fn monthly(device: &str) -> Outcome {
    let Some(place) = example("monthly.toml", device) else { return not_run("the sources are not here") };
    let document = document(&place, &[]);
    for month in 0..12 {
        // The mean of the days of a month is 14.5, and the cells have the numbers from 0 to 4049.
        let least = 14.5 + 10.0 * f64::from(month);
        let checked = results(&document["steps"][4 + month as usize]["report"]);
        let expected = json!({"min(m)": least, "max(m)": least + 4049.0, "mean(m)": least + 2024.5});
        assert_eq!(checked, expected, "month {month}: {document}");
    }
    assert_eq!(statuses(&place), ["skipped"; 16]);
    let done = place.overshot(&["info", "year.zarr"]);
    assert!(done.stdout.contains("shape (360, 45, 90)\n  zarr 3, chunks (30, 45, 45); bytes, zstd"), "{done:?}");
    RAN
}

fn nightly(device: &str) -> Outcome {
    let Some(place) = example("nightly.toml", device) else { return not_run("the sources are not here") };
    let first = job(&place, &["--quiet"]);
    let expected = "clean: in/day-9.npy: mean(y) = 4.5\nclean: in/day-9.npy: kept = 1000000\n\
                    clean: in/day-10.npy: mean(y) = 49.5\nclean: in/day-10.npy: kept = 1000000\n\
                    clean: in/day-11.npy: mean(y) = 94.05\nclean: in/day-11.npy: kept = 100000\n\
                    summary: max(y) = 99.0\nsummary: mean(y) = 49.35\n";
    assert_eq!((first.code, first.stdout.as_str(), first.stderr.as_str()), (Some(0), expected, ""));
    place.npy("in/day-12.npy", &[5.0; 1000]);
    assert_eq!(statuses(&place), ["skipped", "skipped", "skipped", "skipped", "ran", "ran"]);
    RAN
}
