//! Bad input ends in one line that names the file, the reason and the remedy, and touches no file.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::tools::{CaseFolder, RAN, not_run, npy, rows};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("a missing file", missing_file),
    ("a path that is not a regular file", no_file),
    ("a short file", short_file),
    ("a wrong magic", wrong_magic),
    ("a dtype that Overshot does not have", odd_dtypes),
    ("a raw file without a dtype", raw_dtype),
    ("a file of another format", other_formats),
    ("too many files", too_many_files),
    ("row counts that differ", mismatched_rows),
    ("an unknown name", unknown_name),
    ("an expression with a mistake", expressions),
    ("an output that is an input", output_is_input),
    ("an output that exists", output_exists),
    ("an output that cannot be made", output_impossible),
    ("no space", no_space),
    ("a budget too small for one chunk", small_budget),
    ("invalid arguments", arguments),
    ("names with another meaning", other_names),
    ("a trace that is a file of the job", trace_is_data),
    ("a page that is a file of the job", page_is_data),
    ("an invalid number", numbers),
    ("errors as JSON", json),
    ("a file name with a line break", line_break),
];

fn place(device: &str) -> CaseFolder {
    let place = CaseFolder::new(device);
    place.npy("a.npy", &[1.0, 2.0, 3.0]);
    place.npy("b.npy", &[4.0, 5.0, 6.0]);
    place
}

fn missing_file(device: &str) -> Outcome {
    let place = place(device);
    place.refused(1, &["none.npy", "check the path"], &["c = a * b", "a=a.npy", "b=none.npy", "c=c.npy"]);
    place.refused(1, &["none.f32", "check the path"], &["sum(a)", "a=none.f32:f32"]);
    RAN
}

fn no_file(device: &str) -> Outcome {
    let place = place(device);
    std::fs::create_dir(place.path("empty")).unwrap();
    place.refused(1, &["empty: is a folder without files"], &["sum(a)", "a=empty:f32"]);
    place.refused(1, &["/dev/zero", "is not a regular file"], &["sum(a)", "a=/dev/zero:f32"]);
    if !Command::new("mkfifo").arg(place.path("pipe.npy")).status().is_ok_and(|status| status.success()) {
        return not_run("no mkfifo");
    }
    place.refused(1, &["pipe.npy", "is not a regular file"], &["sum(a)", "a=pipe.npy"]);
    RAN
}

fn short_file(device: &str) -> Outcome {
    let place = place(device);
    let whole = npy("<f8", "False", "(3,)", &[0; 24]);
    for len in [0, 3, 9, 50, whole.len() - 1] {
        place.raw("short.npy", &whole[..len]);
        place.refused(1, &["short.npy"], &["c = a + b", "a=a.npy", "b=short.npy", "c=c.npy"]);
    }
    place.refused(1, &["short.npy", "short file"], &["c = a + b", "a=a.npy", "b=short.npy", "c=c.npy"]);
    place.raw("x.f32", &[0; 7]);
    place.refused(1, &["x.f32", "7 bytes", "check the dtype"], &["y = x", "x=x.f32:f32", "y=y.npy"]);
    RAN
}

fn wrong_magic(device: &str) -> Outcome {
    let place = place(device);
    place.raw("text.npy", &b"1,2,3\n".repeat(100));
    place.refused(1, &["text.npy"], &["c = a", "a=text.npy", "c=c.npy"]);
    RAN
}

fn odd_dtypes(device: &str) -> Outcome {
    let place = place(device);
    for descr in ["|O", "<c16", "<U4", "<M8[s]"] {
        place.raw("odd.npy", &npy(descr, "False", "(1,)", &[0; 16]));
        place.refused(1, &["odd.npy", descr], &["c = a", "a=odd.npy", "c=c.npy"]);
    }
    RAN
}

fn raw_dtype(device: &str) -> Outcome {
    let place = place(device);
    place.raw("x.f32", &[0; 8]);
    place.refused(2, &["x.f32", "add the dtype"], &["sum(x)", "x=x.f32"]);
    place.refused(2, &["a.npy", "f64", "f32"], &["sum(a)", "a=a.npy:f32"]);
    RAN
}

fn other_formats(device: &str) -> Outcome {
    let place = place(device);
    place.raw("t.parquet", &[0; 16]);
    place.raw("noext", &npy("<f8", "False", "(2,)", &[0; 16]));
    place.refused(1, &["t.parquet", "is not a complete Parquet file"], &["sum(a)", "a=t.parquet:f64"]);
    place.refused(1, &["noext", "is a .npy file", "rename it"], &["sum(a)", "a=noext:f64"]);
    place.refused(1, &["out.csv", "write a .npy file"], &["c = a", "a=a.npy", "c=out.csv"]);
    place.refused(2, &["c2.npy:float128", "not a dtype", "float32"], &["c = a", "a=a.npy", "c=c2.npy:float128"]);
    place.refused(1, &["new/", "name a file"], &["c = a", "a=a.npy", "c=new/"]);
    place.refused(1, &["standard input"], &["sum(a)", "a=-"]);
    let report = place.report(&["c = a; sum(c)", "a=t.parquet:float64!", "c=out.csv:f32!"]);
    assert_eq!((&report["rows"], place.files()["out.csv"].len()), (&2.into(), 8));
    RAN
}

fn too_many_files(device: &str) -> Outcome {
    if device != "cpu" {
        return not_run("a device opens files of its own");
    }
    let place = place(device);
    let names: Vec<String> = (0..30).map(|k| format!("c{k}")).collect();
    let text: Vec<String> = names.iter().map(|name| format!("{name} = a")).collect();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 24 && exec \"$0\" \"$@\""]).arg(crate::tools::binary());
    command.args(["run", "--device", device, &text.join("; "), "a=a.npy"]);
    command.args(names.iter().map(|name| format!("{name}={name}.npy"))).current_dir(place.folder.path());
    crate::tools::done(command.output().unwrap()).is_error(1, &["Too many open files", "ulimit -n"]);
    assert_eq!(place.names(), ["a.npy", "b.npy"]);
    RAN
}

fn mismatched_rows(device: &str) -> Outcome {
    let place = place(device);
    place.npy("long.npy", &[0.0; 4]);
    let words = ["a.npy", "3", "long.npy", "4", "one value for all rows is given as a number"];
    place.refused(2, &words, &["c = a * b", "a=a.npy", "b=long.npy", "c=c.npy"]);
    RAN
}

fn unknown_name(device: &str) -> Outcome {
    let place = place(device);
    place.refused(2, &["'b'"], &["c = a * b", "a=a.npy", "c=c.npy"]);
    // The file does not exist, but the error is about something else.
    place.refused(2, &["'d'", "d.npy", "a, b, c"], &["c = a * b", "a=a.npy", "b=b.npy", "d=d.npy"]);
    place.refused(2, &["'a'", "twice"], &["sum(a)", "a=a.npy", "a=b.npy"]);
    place.refused(2, &["column 1", "frobnicate"], &["frobnicate(a)", "a=a.npy"]);
    RAN
}

fn expressions(device: &str) -> Outcome {
    let place = place(device);
    for text in ["", ";", "c = ", "c = (a", "c = a)", "c = a +* b", "c = 'a'", "c = a b", "sum(sum(a))", "c = a & 1.5"]
    {
        place.refused(2, &[], &[text, "a=a.npy"]);
    }
    place.refused(2, &["column "], &["c = a & b", "a=a.npy", "b=b.npy", "c=c.npy"]);
    place.refused(2, &["column "], &["c = a +\n* b", "a=a.npy", "b=b.npy", "c=c.npy"]);
    RAN
}

fn output_is_input(device: &str) -> Outcome {
    let place = place(device);
    symlink("a.npy", place.path("link.npy")).unwrap();
    std::fs::hard_link(place.path("a.npy"), place.path("hard.npy")).unwrap();
    for output in ["c=a.npy", "c=./a.npy", "c=link.npy", "c=hard.npy"] {
        place.refused(2, &["'a'", "'c'"], &["c = a * b", "a=a.npy", "b=b.npy", output, "--force"]);
    }
    place.refused(2, &["'c'", "'d'"], &["c = a; d = a", "a=a.npy", "c=new.npy", "d=./new.npy"]);
    RAN
}

fn output_exists(device: &str) -> Outcome {
    let place = place(device);
    place.raw("c.npy", b"precious");
    let args = ["c = a * b", "a=a.npy", "b=b.npy", "c=c.npy"];
    place.refused(1, &["c.npy", "exists", "'force'"], &args);
    place.report(&[&args[..], &["--force"]].concat());
    assert_eq!(rows(&place.files()["c.npy"]), [4.0, 10.0, 18.0]);
    RAN
}

fn output_impossible(device: &str) -> Outcome {
    let place = place(device);
    place.refused(1, &["no/c.npy", "mkdir"], &["c = a", "a=a.npy", "c=no/c.npy"]);
    place.refused(1, &["a.npy/c.npy"], &["c = a", "a=a.npy", "c=a.npy/c.npy"]);
    place.refused(1, &[".: does not name a file"], &["c = a", "a=a.npy", "c=.", "--force"]);
    std::fs::create_dir(place.path("folder")).unwrap();
    place.refused(1, &["folder: is a directory"], &["c = a", "a=a.npy", "c=folder", "--force"]);
    place.refused(1, &["/dev/null", "not a regular file"], &["c = a", "a=a.npy", "c=/dev/null", "--force"]);
    RAN
}

fn no_space(device: &str) -> Outcome {
    let place = place(device);
    let space = rustix::fs::statvfs(place.folder.path()).unwrap();
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    // Every byte of it becomes eight.
    if free == 0 || !place.sparse("x.u8", free / 4) {
        return not_run("the file system tells no free space, or takes no sparse file of a quarter of it");
    }
    place.refused(1, &["y.npy", "no space", "free some"], &["y = f64(x)", "x=x.u8:u8", "y=y.npy"]);
    RAN
}

fn small_budget(device: &str) -> Outcome {
    if device == "cpu" {
        return not_run("the CPU has no budget for device and pinned memory");
    }
    let place = place(device);
    let args = ["c = a * b", "a=a.npy", "b=b.npy", "c=c.npy"];
    for (option, name) in [("--device-memory", "device memory"), ("--pinned-memory", "pinned memory")] {
        place.refused(
            1,
            &[name, "1024", &format!("set the {name} limit to at least")],
            &[&args[..], &[option, "1KiB"]].concat(),
        );
    }
    RAN
}

fn arguments(device: &str) -> Outcome {
    let place = place(device);
    let misspelled = place.run(&["--nothing", "sum(a)", "a=a.npy"]);
    misspelled.is_error(2, &["unexpected argument '--nothing' found; see --help"]);
    for (option, value) in [
        ("--chunk", "0"),
        ("--chunk", "many"),
        ("--device-memory", "0GiB"),
        ("--pinned-memory", "1 apple"),
        ("--workers", "x"),
        ("--device-timeout", "soon"),
        ("--device", "gpu"),
        ("--device", "emulated:x"),
    ] {
        // Alone, because clap reports a second --device before a wrong one.
        let done = place.overshot(&["run", "sum(a)", "a=a.npy", option, value]);
        done.is_error(2, &[option, value, "--help"]);
    }
    place.refused(2, &["number of workers", "1 to 1024"], &["sum(a)", "a=a.npy", "--workers", "0"]);
    place.refused(2, &["time limit of devices"], &["sum(a)", "a=a.npy", "--device-timeout", "0"]);
    place.refused(2, &["NAME=PATH"], &["sum(a)", "a.npy"]);
    place.refused(2, &["--frobnicate"], &["sum(a)", "a=a.npy", "--frobnicate"]);
    place.refused(2, &["EXPR"], &[]);
    place.overshot(&["frobnicate"]).is_error(2, &["frobnicate", "there are run, plan, merge, matrices, devices"]);
    place.overshot(&["run", "sum(a)", "a=a.npy", "--qiet"]).is_error(2, &["--qiet", "'--quiet'"]);
    place.overshot(&["run", "x = i", "x=x.npy", "--rows", "many"]).is_error(2, &["'many'", "1e6 or 1M"]);
    let log = place.command(&["devices"]).env("OVERSHOT_LOG", "a=b=c").output().unwrap();
    crate::tools::done(log).is_error(2, &["OVERSHOT_LOG", "debug"]);
    RAN
}

fn line_break(device: &str) -> Outcome {
    place(device).refused(1, &["no\\nne.npy"], &["sum(a)", "a=no\nne.npy"]);
    RAN
}

fn other_names(device: &str) -> Outcome {
    let place = place(device);
    place.refused(2, &["x=a.npy", "no name 'x', and no other"], &["sum(1)", "x=a.npy", "--rows", "3"]);
    place.refused(
        2,
        &["'y' is one number of all rows, which the report has: leave its output out"],
        &["y = mean(a)", "a=a.npy", "y=m.npy"],
    );
    place.refused(2, &["'b'", "no input of that name", "no value"], &["c = a * b", "a=a.npy", "c=c.npy"]);
    place.refused(2, &["column 1", "`c`", "give 'c' an output"], &["c = a * 2", "a=a.npy"]);
    RAN
}

fn trace_is_data(device: &str) -> Outcome {
    let place = place(device);
    place.raw("k.cu", b"extern \"C\" __global__ void k(const double *x, double *y, long long rows) {}");
    place.raw("old.json", b"[]");
    place.raw("table.npy", b"table");
    symlink("a.npy", place.path("link.json")).unwrap();
    std::fs::hard_link(place.path("a.npy"), place.path("hard.json")).unwrap();
    for trace in ["a.npy", "./a.npy", "link.json", "hard.json"] {
        place.refused(2, &[trace, "both the trace and 'a'"], &["sum(a)", "a=a.npy", "--trace", trace]);
    }
    for force in [&[][..], &["--force"]] {
        let args = ["c = a", "a=a.npy", "c=c.raw", "--trace", "./c.raw"];
        place.refused(2, &["./c.raw", "both the trace and 'c'"], &[&args[..], force].concat());
    }
    // A refused job does not touch an existing trace.
    place.refused(1, &["b.npy", "exists"], &["c = a", "a=a.npy", "c=b.npy", "--trace", "old.json"]);
    place.refused(1, &["no/such/t.json"], &["sum(a)", "a=a.npy", "--trace", "no/such/t.json"]);
    place.refused(1, &["/dev/full: is not a regular file"], &["sum(a)", "a=a.npy", "--trace", "/dev/full"]);
    place.refused(1, &[".: is not a regular file"], &["sum(a)", "a=a.npy", "--trace", "."]);
    symlink("nowhere", place.path("dangling")).unwrap();
    place.refused(1, &["dangling: cannot be created"], &["sum(a)", "a=a.npy", "--trace", "dangling"]);
    if Command::new("mkfifo").arg(place.path("pipe")).status().is_ok_and(|status| status.success()) {
        place.refused(1, &["pipe: is not a regular file"], &["sum(a)", "a=a.npy", "--trace", "pipe"]);
    }
    // The files of a run of a kernel, on any machine: with a GPU the trace is checked, without one the kernel
    // is refused.
    for trace in ["k.cu", "a.npy"] {
        let before = place.files();
        let done = place.run(&["k.cu:k", "x=a.npy", "y=y.npy", "--trace", trace]);
        done.is_error(2, &[]);
        assert_eq!(place.files(), before, "--trace {trace}");
    }
    RAN
}

/// `--html` refuses what `--trace` refuses, and the file of the trace.
fn page_is_data(device: &str) -> Outcome {
    let place = place(device);
    symlink("a.npy", place.path("link.html")).unwrap();
    for page in ["a.npy", "./a.npy", "link.html"] {
        place.refused(2, &[page, "both the page and 'a'"], &["sum(a)", "a=a.npy", "--html", page]);
    }
    place.refused(2, &["both the page and 'c'"], &["c = a", "a=a.npy", "c=c.raw", "--html", "./c.raw"]);
    for page in ["t.json", "./t.json"] {
        let args = ["sum(a)", "a=a.npy", "--trace", "t.json", "--html", page];
        place.refused(2, &[page, "both the page and the trace"], &args);
    }
    place.refused(1, &["no/such/p.html", "the path of the page"], &["sum(a)", "a=a.npy", "--html", "no/such/p.html"]);
    place.refused(1, &[".: is not a regular file"], &["sum(a)", "a=a.npy", "--html", "."]);
    // So does a plan.
    let before = place.files();
    for (page, code) in [("a.npy", 2), ("no/such/p.html", 1)] {
        let done = place.overshot(&["plan", "sum(a)", "a=a.npy", "--device", device, "--html", page]);
        done.is_error(code, &[page]);
    }
    assert_eq!(place.files(), before);
    RAN
}

fn numbers(device: &str) -> Outcome {
    let place = place(device);
    place.raw("5", b"12345678");
    place.refused(
        2,
        &["m=5: is a number, but a file of that name exists", "m=./5 for"],
        &["sum(a * m)", "a=a.npy", "m=5"],
    );
    place.refused(2, &["m=./5:f32 for"], &["sum(a * m)", "a=a.npy", "m=5:f32"]);
    place.refused(2, &["m=5.5:i32", "a number of i32"], &["sum(a * m)", "a=a.npy", "m=5.5:i32"]);
    place.refused(2, &["m=1e400", "too large for f64"], &["sum(a * m)", "a=a.npy", "m=1e400"]);
    place.refused(2, &["c=7", "assigns 'c'"], &["c = a", "a=a.npy", "c=7"]);
    place.refused(2, &["given twice"], &["sum(a * m)", "a=a.npy", "m=2", "m=3"]);
    RAN
}

fn json(device: &str) -> Outcome {
    let place = place(device);
    let error = |code: i32, args: &[&str]| {
        let done = place.overshot(args);
        assert_eq!((done.code, done.stdout.as_str(), done.stderr.lines().count()), (Some(code), "", 1), "{done:?}");
        let json: serde_json::Value = serde_json::from_str(&done.stderr).unwrap();
        assert!(json["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{json}");
        json["error"].clone()
    };
    let run = |code, args: &[&str]| error(code, &[&["run", "--json", "--device", device], args].concat());
    assert_eq!(run(2, &["sum(a)", "a=a.npy", "--frobnicate"])["kind"], "arguments");
    assert_eq!(run(2, &["sum(a)", "a=a.npy", "b=a.npy"])["kind"], "arguments");
    let expression = run(2, &["c = a & 1.5", "a=a.npy", "c=c.npy"]);
    assert_eq!((&expression["kind"], &expression["column"]), (&"expression".into(), &7.into()));
    assert_eq!(run(2, &["sum(a)"])["kind"], "job");
    let file = run(1, &["sum(a)", "a=no\nne.npy"]);
    assert_eq!(
        (&file["kind"], &file["path"], &file["remedy"]),
        (&"file".into(), &"no\nne.npy".into(), &"check the path".into())
    );
    RAN
}
