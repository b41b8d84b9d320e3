//! Memory, standard output and standard error, as the operating system sees them.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::tools::{CaseFolder, RAN, binary, done, not_run, results, rows};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("a file of 3 GiB in 512 MiB of memory", memory),
    ("a user who may lock no memory", no_locked_memory),
    ("threads that cannot be started are an error", no_threads),
    ("a log that nobody reads does not stop a job", lost_log),
    ("standard output that is closed is an error", closed_output),
    ("a help that cannot be written is an error", full_output),
];

/// A user who owns nothing.
const NOBODY: u32 = 65_534;
const GIB: u64 = 1 << 30;
const NO_SPARSE: &str = "the file system takes no sparse file";

fn memory(device: &str) -> Outcome {
    if device.starts_with("cuda") {
        return not_run("the driver takes memory of its own, which the limit would count");
    }
    let place = CaseFolder::new(device);
    if !place.sparse("x.f64", 3 * GIB) {
        return not_run(NO_SPARSE);
    }
    // RLIMIT_DATA counts all private writable memory, and nothing of mapped files.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -d 524288 && exec \"$0\" \"$@\""]).arg(binary());
    command.args(["run", "--json", "--device", device, "y = x > 0; sum(y), max(x)", "x=x.f64:f64", "y=y.bool"]);
    let done = done(command.current_dir(place.folder.path()).output().unwrap());
    assert_eq!(done.code, Some(0), "{done:?}");
    let report: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(results(&report), serde_json::json!({"sum(y)": 0, "max(x)": 0.0}));
    assert_eq!(fs::metadata(place.path("y.bool")).unwrap().len(), 3 * GIB / 8);
    RAN
}

/// The CPU and emulated devices lock none. A driver that counts what it locks may refuse: an error says what to raise.
fn no_locked_memory(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.npy("a.npy", &[2.0; 100_000]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -l 0 && exec \"$0\" \"$@\""]).arg(binary());
    command.args(["run", "c = a; sum(a)", "a=a.npy", "c=c.npy", "--quiet", "--device", device]);
    let done = done(command.current_dir(place.folder.path()).output().unwrap());
    if device.contains("cuda") && done.code == Some(1) {
        done.is_error(1, &["cannot be page-locked", "ulimit -l"]);
    } else {
        assert_eq!((done.code, done.stdout.as_str()), (Some(0), "sum(a) = 200000.0\n"), "{done:?}");
    }
    RAN
}

/// The system lets the user have so many threads and processes, and does not count them for root.
fn no_threads(device: &str) -> Outcome {
    if device.contains("cuda") {
        return not_run("the driver starts threads of its own");
    }
    let place = CaseFolder::new(device);
    place.npy("a.npy", &vec![1.0; 1_000_000]);
    let limited = |most: u32, args: &[&str]| {
        let mut command = Command::new("sh");
        // Bash has `-u`, dash has `-p`.
        let limit = format!("{{ ulimit -u {most} 2>/dev/null || ulimit -p {most}; }} && exec \"$0\" \"$@\"");
        command.args(["-c", &limit]).arg(place.path("overshot")).args(args).env("OVERSHOT_CACHE", "");
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            command.uid(NOBODY).gid(NOBODY);
        }
        done(command.current_dir(place.folder.path()).output().unwrap())
    };
    // Another user can run this one.
    fs::copy(binary(), place.path("overshot")).unwrap();
    fs::set_permissions(place.folder.path(), Permissions::from_mode(0o777)).unwrap();
    let before = place.names();
    if limited(1000, &["--version"]).code != Some(0) {
        return not_run("no other user can run the command");
    }
    let words = ["cannot start a thread", "ulimit -u"];
    let (mut cases, mut errors) = (0, 0);
    for more in [&[][..], &["--checksum"], &["--verify", "1"], &["--resume"]] {
        let job = ["run", "c = a; sum(a)", "a=a.npy", "c=c.npy", "--workers", "8", "--quiet", "--device", device];
        // Each start of a thread fails, and all after it; with one more thread, the next one.
        for most in 1.. {
            let done = limited(most, &[&job[..], more].concat());
            cases += 1;
            if done.code == Some(0) {
                break;
            }
            errors += 1;
            done.is_error(1, &words);
            assert!(!place.names().contains(&"c.npy".into()), "{most} threads: an output has its name");
        }
        assert!(rows(&fs::read(place.path("c.npy")).unwrap()) == vec![1.0; 1_000_000], "{more:?}: wrong rows");
        fs::remove_file(place.path("c.npy")).unwrap();
        assert_eq!(place.names(), before, "{more:?}");
    }
    // All workers of an emulated device run on one thread.
    assert!(errors > if device == "cpu" { 20 } else { 0 }, "only {errors} of {cases} starts failed");
    std::io::stderr().write_all(format!("cases: starts of threads on {device}: {cases}\n").as_bytes()).unwrap();
    // With one core, no thread is needed.
    let demo = limited(1, &["demo", "--size", "1MB", "--device", device]);
    let is_error = demo.code == Some(1) && words.iter().all(|word| demo.stderr.contains(word));
    assert!(is_error || demo.code == Some(0), "{demo:?}");
    assert_eq!(place.names(), before);
    RAN
}

fn lost_log(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.npy("a.npy", &[1.0; 1000]);
    let job = |stderr: Stdio| {
        let mut command = place.command(&["run", "c = a; sum(a)", "a=a.npy", "c=c.npy", "--force", "--device", device]);
        let child = command.args(["--quiet", "--chunk", "4KiB"]).env("OVERSHOT_LOG", "trace").stderr(stderr);
        let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stderr.take());
        done(child.wait_with_output().unwrap())
    };
    let full = File::options().write(true).open("/dev/full").map(Stdio::from);
    for stderr in [Stdio::piped()].into_iter().chain(full) {
        let done = job(stderr);
        assert_eq!((done.code, done.stdout.as_str()), (Some(0), "sum(a) = 1000.0\n"), "{done:?}");
        assert_eq!(place.names(), ["a.npy", "c.npy"]);
    }
    RAN
}

fn closed_output(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.npy("a.npy", &[1.0]);
    let closed = |args: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" >&-"]).arg(binary()).args(args);
        done(command.current_dir(place.folder.path()).output().unwrap())
    };
    for args in [&["run", "sum(a)", "a=a.npy", "--device", device][..], &["devices"], &["--help"]] {
        closed(args).is_error(1, &["standard output cannot be written"]);
    }
    // Without output, nothing is lost.
    let done = closed(&["run", "c = a", "a=a.npy", "c=c.npy", "--quiet", "--device", device]);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    RAN
}

fn full_output(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    for args in [&["--help"][..], &["run", "--help"], &["--version"], &["devices"]] {
        let Ok(full) = File::options().write(true).open("/dev/full") else { return not_run("there is no /dev/full") };
        let done = done(place.command(args).stdout(full).output().unwrap());
        done.is_error(1, &["standard output cannot be written"]);
    }
    RAN
}
