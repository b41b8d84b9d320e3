//! What the operating system sees: memory, signals.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crate::tools::{Place, RAN, binary, done, not_run, results};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("a file of 3 GiB in 512 MiB of memory", memory),
    ("Ctrl-C leaves nothing behind", interrupt),
    ("the second Ctrl-C ends it at once", second_interrupt),
    ("Ctrl-C ends the demo, which cleans up", interrupt_demo),
    ("a process that is killed leaves nothing behind", kill),
];

const GIB: u64 = 1 << 30;
const NO_SPARSE: &str = "the file system takes no sparse file";

fn memory(device: &str) -> Outcome {
    if device.starts_with("cuda") {
        return not_run("the driver takes memory of its own, which the limit would count");
    }
    let place = Place::new(device);
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

/// A job that is at work: its log says so. As nobody reads on, it stands still once the pipe is full, so it cannot end
/// before it is told to.
struct Running {
    child: Child,
    log: BufReader<ChildStderr>,
}

impl Running {
    fn start(mut command: Command) -> Running {
        let mut child =
            command.env("OVERSHOT_LOG", "debug").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !["compute{", "drain{"].iter().any(|span| line.contains(span)) {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "it ended before it worked");
        }
        Running { child, log }
    }

    fn job(place: &Place, device: &str) -> Running {
        Running::start(place.command(&["run", "y = x > 0", "x=x.f64:f64", "y=y.bool", "--device", device]))
    }

    fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    /// Reads on until it ends. Returns what it said last.
    fn end(mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest.lines().last().unwrap_or_default().into())
    }
}

/// Why Ctrl-C cannot be tested, if it cannot.
fn cannot_interrupt(place: &Place) -> Option<&'static str> {
    // Signal 2 is bit 1. Who ignores it hands that down to all children, as shells do to background jobs.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    if ignored.is_none_or(|mask| mask & 2 != 0) {
        return Some("SIGINT is ignored here, as in a background job");
    }
    (!place.sparse("x.f64", 4 * GIB)).then_some(NO_SPARSE)
}

fn interrupt(device: &str) -> Outcome {
    let place = Place::new(device);
    if let Some(why) = cannot_interrupt(&place) {
        return not_run(why);
    }
    let job = Running::job(&place, device);
    job.signal("INT");
    let (status, last) = job.end();
    assert_eq!(status.code(), Some(1), "{last}");
    assert!(last.starts_with("overshot: error: stopped after") && last.contains("no output"), "{last}");
    assert_eq!(place.names(), ["x.f64"]);
    RAN
}

fn second_interrupt(device: &str) -> Outcome {
    let place = Place::new(device);
    if let Some(why) = cannot_interrupt(&place) {
        return not_run(why);
    }
    // If the first signal comes before the pipe is full, the job may stop in good order before the second one comes.
    for attempt in 0..20 {
        let mut job = Running::job(&place, device);
        thread::sleep(Duration::from_millis(10) * attempt);
        // Signals that come together count as one, so how many it takes is not known.
        let status = loop {
            match job.child.try_wait().unwrap() {
                Some(status) => break status,
                None => job.signal("INT"),
            }
        };
        assert!(!place.names().contains(&"y.bool".into()));
        match status.code() {
            Some(130) => return RAN,
            Some(1) => {}
            _ => panic!("{status}"),
        }
    }
    panic!("it never ended with 130");
}

fn interrupt_demo(device: &str) -> Outcome {
    let place = Place::new(device);
    if let Some(why) = cannot_interrupt(&place) {
        return not_run(why);
    }
    let job = Running::start(place.command(&["demo", "--size", "256MiB", "--device", device]));
    job.signal("INT");
    let (status, last) = job.end();
    assert_eq!(status.code(), Some(1), "{last}");
    assert_eq!(place.names(), ["x.f64"]);
    RAN
}

fn kill(device: &str) -> Outcome {
    let place = Place::new(device);
    if !place.sparse("x.f64", 4 * GIB) {
        return not_run(NO_SPARSE);
    }
    let unnamed = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
    if rustix::fs::open(place.folder.path(), unnamed, rustix::fs::Mode::RUSR).is_err() {
        return not_run("the file system has no files without a name");
    }
    for signal in ["TERM", "KILL"] {
        let job = Running::job(&place, device);
        assert_eq!(place.names(), ["x.f64"], "the output has no name yet");
        job.signal(signal);
        job.end();
        assert_eq!(place.names(), ["x.f64"]);
    }
    RAN
}
