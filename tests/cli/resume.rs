//! `overshot run --resume`: a run that is killed at any moment continues, and ends with the bytes of one run.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::tools::{CaseFolder, RAN, done, results};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("a run that is killed continues", killed),
    ("a run that is stopped says how to continue", stopped),
    ("a run without --resume names what an interrupted one left", named),
    ("outputs with --fsync", fsync),
    ("arguments of --resume that make no sense", usage),
    ("a journal that is a file of the job", clashes),
];

// The rows of t.arrow do not end where a chunk does, and something is behind them.
const ROWS: usize = 150_011;
const TEXT: &str = "y = sqrt(x) + i; t = u8(i); mean(y), std(y)";
const ARGS: [&str; 6] = [TEXT, "x=x.npy", "y=y.npy", "t=t.arrow", "--resume", "--resume-every=0"];

/// Kills of a run, unless `OVERSHOT_KILLS` says how many.
const KILLS: usize = 30;

fn place(device: &str) -> CaseFolder {
    let place = CaseFolder::new(device);
    place.npy("x.npy", &(0..ROWS).map(|row| (row * 7919 % 10_007) as f64).collect::<Vec<_>>());
    place
}

fn journal(place: &CaseFolder) -> std::path::PathBuf {
    place.path(".y.npy.journal")
}

/// Starts the run, and kills it when it has written its journal so many times, or does nothing if it ends before.
/// Returns whether it was killed.
fn kill(command: &mut Command, journal: &Path, times: usize) -> bool {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (mut written, mut last) = (0, id(journal));
    while written < times {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        let now = id(journal);
        written += usize::from(now != last);
        last = now;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    true
}

/// What changes with every write of a file.
fn id(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().map(|file| (file.ino(), file.len()))
}

fn killed(device: &str) -> Outcome {
    let one = place(device);
    let report = one.report(&ARGS[..4]);
    let kills = std::env::var("OVERSHOT_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    let (mut count, mut runs) = (0, 0);
    while count < kills {
        let place = place(device);
        // Later and later, so that every stage of the run is met.
        while kill(&mut place.command(&[&["run"], &ARGS[..]].concat()), &journal(&place), 1 + (count * 7 + runs) % 45) {
            count += 1;
        }
        runs += 1;
        // The last run may have ended before it was to be killed; if so, it is complete. It may also have been killed
        // while the outputs got their names.
        if !place.path("y.npy").exists() || journal(&place).exists() {
            let last = place.report(&ARGS);
            assert_eq!(results(&last), results(&report));
        }
        for name in ["y.npy", "t.arrow"] {
            assert!(fs::read(place.path(name)).unwrap() == fs::read(one.path(name)).unwrap(), "{name}, {count} kills");
        }
        assert_eq!(place.names(), one.names(), "nothing else is left");
    }
    RAN
}

fn stopped(device: &str) -> Outcome {
    let place = place(device);
    let mut child = place.command(&[&["run"], &ARGS[..]].concat());
    let child = child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // An empty one would not be kept.
    while !place.path("y.npy").exists() && fs::metadata(journal(&place)).map_or(0, |file| file.len()) == 0 {
        std::thread::yield_now();
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)?;
    let ended = done(child.wait_with_output()?);
    // It may have ended before the signal.
    if !place.path("y.npy").exists() {
        let (text, words) = (&ended.stderr, "keeps the rows that are complete: repeat the command to continue");
        assert!(text.contains(words) && text.contains(".y.npy.journal"), "{text}");
        place.report(&ARGS);
    }
    assert!(place.path("y.npy").exists() && !journal(&place).exists());
    RAN
}

fn named(device: &str) -> Outcome {
    let place = loop {
        let place = place(device);
        let was_killed = kill(&mut place.command(&[&["run"], &ARGS[..]].concat()), &journal(&place), 3);
        // What was seen last may have been the end of the run.
        if was_killed && journal(&place).exists() && !place.path("y.npy").exists() {
            break place;
        }
    };
    let report = place.report(&ARGS[..4]);
    let notes = report["notes"].to_string();
    assert!(notes.contains(".y.npy.journal is of a run that was interrupted: continue that run, or remove it"));
    assert_eq!(notes.matches("has rows of a job that is not complete").count(), 2, "{notes}");
    // That run had another file, which it does not replace.
    place.run(&ARGS).is_error(1, &["y.npy", "exists"]);
    RAN
}

fn fsync(device: &str) -> Outcome {
    let (one, place) = (place(device), place(device));
    let bytes = |place: &CaseFolder| ["y.npy", "t.arrow"].map(|name| fs::read(place.path(name)).unwrap());
    one.report(&ARGS[..4]);
    // The rows of a run with a journal are synced anyway.
    for args in [&ARGS[..4], &ARGS[..]] {
        place.report(&[args, &["--fsync", "--force"]].concat());
        assert!(bytes(&place) == bytes(&one));
        assert_eq!(place.names(), one.names());
    }
    // Whoever owns the folder may forbid reading it, and root may read it nevertheless.
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(place.folder.path(), fs::Permissions::from_mode(0o300))?;
    if fs::read_dir(place.folder.path()).is_err() {
        let args = [&["sum(i); y = i", "--rows", "10", "y=z.npy", "--fsync"][..]].concat();
        place.run(&args).is_error(1, &["z.npy", "its folder cannot be synced", "chmod u+r"]);
    }
    fs::set_permissions(place.folder.path(), fs::Permissions::from_mode(0o700))?;
    RAN
}

fn usage(device: &str) -> Outcome {
    let place = place(device);
    place.refused(2, &["no output file", "--resume=FILE"], &["sum(x)", "x=x.npy", "--resume"]);
    place.refused(2, &["a number of seconds"], &["y = x", "x=x.npy", "y=y.npy", "--resume", "--resume-every=soon"]);
    place.refused(2, &["--resume"], &["y = x", "x=x.npy", "y=y.npy", "--resume-every=1"]);
    place.refused(2, &["--partial"], &["sum(x)", "x=x.npy", "--resume=j", "--part=0/2", "--partial=p"]);
    RAN
}

fn clashes(device: &str) -> Outcome {
    let place = place(device);
    let to_come = ["y = x", "x=x.npy", "y=y.npy", "--force", "--resume=y.npy"];
    place.refused(2, &["y.npy is both the journal and 'y'"], &to_come);
    place.npy("y.npy", &[7.0]);
    for name in ["x.npy", "y.npy"] {
        let words = [name, "is both the journal and", "give the run another journal"];
        for path in [name, &format!("./{name}")] {
            let resume = format!("--resume={path}");
            place.refused(2, &words, &["y = x", "x=x.npy", "y=y.npy", "--force", &resume]);
        }
    }
    // An empty file is taken for a journal that was not written yet, and the name may be that of the default.
    place.raw("empty.f64", &[]);
    let empty = ["y = x", "x=empty.f64:f64", "y=y.npy", "--force", "--resume=empty.f64"];
    place.refused(2, &["empty.f64", "both the journal and 'x'"], &empty);
    let beside = ["y = x; z = x", "x=x.npy", "y=y.npy", "z=.y.npy.journal:f64", "--resume", "--force"];
    place.refused(2, &[".y.npy.journal", "both the journal and 'z'"], &beside);
    let job = |journal: &str| {
        let files = r#"files = { x = "x.npy", y = "y.npy" }"#;
        let options = format!("options = {{ force = true, resume = \"{journal}\" }}");
        place.raw("job.toml", format!("[[step]]\nname = \"s\"\nrun = \"y = x\"\n{files}\n{options}\n").as_bytes());
    };
    job("./y.npy");
    let before = fs::read(place.path("y.npy"))?;
    let done = place.overshot(&["run", "job.toml"]);
    assert!(done.code == Some(2) && done.stderr.contains("y.npy is both the journal and 'y'"), "{done:?}");
    assert!(fs::read(place.path("y.npy"))? == before);

    let fifo = Command::new("mkfifo").arg(place.path("fifo")).status()?;
    assert!(fifo.success());
    let pipe = ["y = x", "x=x.npy", "y=y.npy", "--force", "--resume=fifo"];
    place.refused(1, &["fifo", "is not a regular file"], &pipe);
    job("fifo");
    let done = place.overshot(&["run", "job.toml"]);
    assert!(done.code == Some(1) && done.stderr.contains("fifo: is not a regular file"), "{done:?}");
    RAN
}
