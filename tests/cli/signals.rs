//! Signals: what they stop, which files remain, and how the process ends.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::tools::{CaseFolder, RAN, binary, done, not_run};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("SIGINT, SIGTERM and SIGHUP end the process and leave nothing behind", stop),
    ("a second signal ends the process at once and leaves nothing behind", second),
    ("one signal ends a job that does not stop", stuck),
    ("SIGINT ends the demo, which cleans up", demo),
    ("a second signal ends the demo, which cleans up", second_demo),
    ("a signal that is ignored stays ignored", ignored),
    ("Ctrl-C stops the loop of a shell", shell_loop),
    ("a process that is killed leaves no output", kill),
    ("a limit on the size of files is an error", file_size_limit),
    ("an input that becomes shorter is an error", shorter),
];

/// The size of the pipe of the log: the smallest one.
const LOG_BYTES: usize = 4096;
const GIB: u64 = 1 << 30;
const NO_SPARSE: &str = "the file system takes no sparse file";
/// Enough for a second signal to come in time in one of them.
const ATTEMPTS: usize = 20;

/// Outputs that are removed: a file, and a folder.
const OUTPUTS: &[&str] = if cfg!(feature = "zarr") { &["y=y.bool", "y=y.zarr"] } else { &["y=y.bool"] };

/// A job that is at work: its log says so. As nobody reads on, it stands still once the pipe is full, so it cannot end
/// before it is told to.
struct Running {
    child: Child,
    log: BufReader<PipeReader>,
}

impl Running {
    fn start(mut command: Command) -> Running {
        // Small before anybody writes: a pipe that holds more cannot become smaller.
        let (log, writer) = std::io::pipe().unwrap();
        rustix::pipe::fcntl_setpipe_size(&log, LOG_BYTES).unwrap();
        let child = command.env("OVERSHOT_LOG", "debug").stderr(writer).spawn().unwrap();
        // It has the other end, too, without which the log would never end.
        drop(command);
        let mut log = BufReader::new(log);
        let mut line = String::new();
        while !["compute{", "drain{"].iter().any(|span| line.contains(span)) {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "it ended before it worked");
        }
        Running { child, log }
    }

    fn job(place: &CaseFolder, device: &str) -> Running {
        Running::job_to(place, device, "y=y.bool")
    }

    fn job_to(place: &CaseFolder, device: &str, output: &str) -> Running {
        let mut command = place.command(&["run", "y = x > 0", "x=x.f64:f64", output, "--device", device]);
        command.stdout(Stdio::null());
        Running::start(command)
    }

    fn demo(place: &CaseFolder, device: &str) -> Running {
        let mut command = place.command(&["demo", "--size", "256MiB", "--device", device]);
        command.stdout(Stdio::null());
        Running::start(command)
    }

    fn signal(&self, name: &str) {
        send(name, &self.child.id().to_string());
    }

    /// Sends two signals while the process is stopped, so that both are pending when it continues.
    fn signal_twice(&self) {
        ["STOP", "INT", "TERM", "CONT"].iter().for_each(|name| self.signal(name));
    }

    /// Reads its output until it ends, and returns the last line that is not of the log: while the process ends, other
    /// threads may still write to the log.
    fn end(mut self) -> (ExitStatus, String) {
        let mut rest = Vec::new();
        self.log.read_to_end(&mut rest).unwrap();
        let rest = String::from_utf8_lossy(&rest);
        let last = rest.lines().rfind(|line| !line.contains(" DEBUG "));
        (self.child.wait().unwrap(), last.unwrap_or_default().into())
    }
}

/// Sends a signal to a process, or with a minus to a group of them.
fn send(name: &str, process: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), "--", process]).status().unwrap().success());
}

/// Returns why signals cannot be tested, if they cannot.
fn cannot_signal(place: &CaseFolder) -> Option<&'static str> {
    // Signal 1 is bit 0. Children inherit ignored signals, for example the background jobs of a shell.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    if ignored.is_none_or(|mask| mask & (1 | 1 << 1 | 1 << 14) != 0) {
        return Some("SIGHUP, SIGINT or SIGTERM is ignored here, as in a background job");
    }
    (!place.sparse("x.f64", 4 * GIB)).then_some(NO_SPARSE)
}

fn stop(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    if let Some(why) = cannot_signal(&place) {
        return not_run(why);
    }
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let job = Running::job(&place, device);
        job.signal(name);
        let (status, last) = job.end();
        assert_eq!(status.signal(), Some(number), "{name}: {status}, {last}");
        assert!(last.starts_with("overshot: error: stopped after") && last.contains("no output"), "{last}");
        assert_eq!(place.names(), ["x.f64"], "{name}");
    }
    RAN
}

/// Two signals at once: it ends by one of them and leaves nothing, and without a word in at least one of the attempts.
fn ends_at_once(place: &CaseFolder, start: impl Fn() -> Running) -> Outcome {
    for _ in 0..ATTEMPTS {
        let job = start();
        job.signal_twice();
        let (status, last) = job.end();
        assert!(matches!(status.signal(), Some(2 | 15)), "{status}, {last}");
        assert_eq!(place.names(), ["x.f64"]);
        if !last.contains("stopped after") {
            return RAN;
        }
    }
    panic!("the second signal never ended it");
}

fn second(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    if let Some(why) = cannot_signal(&place) {
        return not_run(why);
    }
    for output in OUTPUTS {
        ends_at_once(&place, || Running::job_to(&place, device, output))?;
    }
    RAN
}

/// A read never ends, as a kernel might.
fn stuck(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    if let Some(why) = cannot_signal(&place) {
        return not_run(why);
    }
    let program = std::env::current_exe().unwrap();
    let library = program.parent().and_then(Path::parent).unwrap().join("examples/libfiles.so");
    assert!(library.exists(), "no {}: run `cargo build --examples`", library.display());
    let mut command = place.command(&["run", "y = x > 0", "x=x.f64:f64", "y=y.bool", "--device", device]);
    command.args(["--read-mode", "pread"]).env("LD_PRELOAD", library).env("OVERSHOT_FILES_FAIL", "read:3:hang");
    command.env("OVERSHOT_FILES_FOLDER", place.folder.path().canonicalize().unwrap());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.by_ref().any(|line| line == "hangs"), "it has read no rows");
    send("INT", &child.id().to_string());
    let said: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().signal(), Some(2), "{said:?}");
    let message = "overshot: error: the job did not stop, perhaps because a kernel never ends; no output was written";
    assert_eq!(said, [message]);
    assert_eq!(place.names(), ["x.f64"]);
    RAN
}

fn demo(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    if let Some(why) = cannot_signal(&place) {
        return not_run(why);
    }
    let job = Running::demo(&place, device);
    job.signal("INT");
    let (status, last) = job.end();
    assert_eq!(status.signal(), Some(2), "{last}");
    assert_eq!(place.names(), ["x.f64"]);
    RAN
}

fn second_demo(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    if let Some(why) = cannot_signal(&place) {
        return not_run(why);
    }
    ends_at_once(&place, || Running::demo(&place, device))
}

fn ignored(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    if let Some(why) = cannot_signal(&place) {
        return not_run(why);
    }
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(binary()).current_dir(place.folder.path());
    command.args(["run", "--json", "sum(x)", "x=x.f64:f64", "--device", device]).stdout(Stdio::null());
    let job = Running::start(command);
    job.signal("HUP");
    job.signal("TERM");
    let (status, last) = job.end();
    // Had SIGHUP counted, SIGTERM would have been the second one, which ends it without a word.
    assert_eq!(status.signal(), Some(15), "{last}");
    let error: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!((&error["error"]["kind"], &error["error"]["signal"]), (&"stopped".into(), &"SIGTERM".into()));
    RAN
}

/// Runs `examples/batch.sh` and its shell in a new process group, as a terminal does, where Ctrl-C goes to the whole
/// group.
fn shell_loop(device: &str) -> Outcome {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/batch.sh");
    if !script.exists() {
        return not_run("the sources are not on this machine");
    }
    let place = CaseFolder::new(device);
    if let Some(why) = cannot_signal(&place) {
        return not_run(why);
    }
    fs::create_dir(place.path("in")).unwrap();
    let rows: u64 = 1 << 26;
    for name in ["in/one.npy", "in/two.npy"] {
        let mut file = File::create(place.path(name)).unwrap();
        file.write_all(&crate::tools::npy("<f8", "False", &format!("({rows},)"), &[])).unwrap();
        file.set_len(128 + rows * 8).unwrap();
    }
    for shell in ["bash", "dash", "sh"] {
        if Command::new(shell).args(["-c", "exit"]).status().is_err() {
            continue;
        }
        let mut command = Command::new(shell);
        command.arg(&script).args(["in", "out"]).current_dir(place.folder.path()).process_group(0);
        command.env("OVERSHOT", binary()).env("OVERSHOT_DEVICE", device).stdout(Stdio::piped());
        let mut job = Running::start(command);
        let mut stdout = job.child.stdout.take().unwrap();
        send("INT", &format!("-{}", job.child.id()));
        let (status, last) = job.end();
        let mut names = String::new();
        stdout.read_to_string(&mut names).unwrap();
        assert_eq!(status.signal(), Some(2), "{shell}: {status}, {last}");
        assert_eq!(names, "in/one.npy\n", "{shell}");
        assert_eq!(fs::read_dir(place.path("out")).unwrap().count(), 0, "{shell}");
    }
    RAN
}

fn kill(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    if !place.sparse("x.f64", 4 * GIB) {
        return not_run(NO_SPARSE);
    }
    let unnamed = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
    if rustix::fs::open(place.folder.path(), unnamed, rustix::fs::Mode::RUSR).is_err() {
        return not_run("the file system has no files without a name");
    }
    let job = Running::job(&place, device);
    assert_eq!(place.names(), ["x.f64"], "the output has no name yet");
    job.signal("KILL");
    let (status, _) = job.end();
    assert_eq!(status.signal(), Some(9));
    assert_eq!(place.names(), ["x.f64"]);
    RAN
}

fn file_size_limit(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    place.npy("a.npy", &vec![1.0; 1 << 22]);
    let limited_to = |blocks: u32, args: &[&str]| {
        let mut command = Command::new("sh");
        let text = format!("ulimit -f {blocks} && exec \"$0\" \"$@\"");
        command.args(["-c", &text]).arg(binary()).args(["run", "--device", device]);
        done(command.args(args).current_dir(place.folder.path()).output().unwrap())
    };
    let limited = |args: &[&str]| limited_to(8, args);
    limited(&["c = a", "a=a.npy", "c=c.npy"]).is_error(1, &["c.npy", "ulimit -f"]);
    // The trace comes last: the results are there.
    let done = limited(&["sum(a)", "a=a.npy", "--quiet", "--trace", "t.json", "--chunk", "64KiB"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(1), "sum(a) = 4194304.0\n"), "{done:?}");
    assert!(done.stderr.starts_with("overshot: error: t.json: the trace cannot be written"), "{done:?}");
    assert_eq!(place.names(), ["a.npy"]);
    let done = limited(&["sum(a)", "a=a.npy", "--quiet", "--html", "p.html"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(1), "sum(a) = 4194304.0\n"), "{done:?}");
    assert!(done.stderr.starts_with("overshot: error: p.html: the page cannot be written"), "{done:?}");
    assert_eq!(place.names(), ["a.npy"]);
    // A page is written even if the trace cannot be. A block is of 512 or of 1024 bytes; the trace of 1024 chunks has
    // 400 kB or more, the page less than 100 kB.
    let both = ["sum(a)", "a=a.npy", "--quiet", "--trace", "t.json", "--html", "p.html", "--chunk", "32KiB"];
    let done = limited_to(300, &both);
    assert!(done.stderr.starts_with("overshot: error: t.json: the trace cannot be written"), "{done:?}");
    assert_eq!(place.names(), ["a.npy", "p.html"]);
    RAN
}

fn shorter(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    if !place.sparse("x.f64", GIB) {
        return not_run(NO_SPARSE);
    }
    let each = OUTPUTS.iter().flat_map(|output| [(output, &[][..]), (output, &["--json"])]);
    for (output, options) in each {
        File::options().write(true).open(place.path("x.f64")).unwrap().set_len(GIB).unwrap();
        let args = ["run", "y = x > 0", "x=x.f64:f64", output, "--device", device, "--chunk", "1MiB"];
        let mut command = place.command(&[&args[..], options].concat());
        command.stdout(Stdio::null());
        let job = Running::start(command);
        File::options().write(true).open(place.path("x.f64")).unwrap().set_len(0).unwrap();
        let (status, last) = job.end();
        assert_eq!(status.code(), Some(1), "{status}, {last}");
        assert!(last.contains("x.f64: was truncated"), "{last}");
        if options.is_empty() {
            assert!(last.starts_with("overshot: error: "), "{last}");
        } else {
            let error: serde_json::Value = serde_json::from_str(&last).unwrap();
            assert_eq!(error["error"]["kind"], "file", "{last}");
        }
        assert_eq!(place.names(), ["x.f64"]);
    }
    RAN
}
