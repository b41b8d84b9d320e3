//! Calls on files that fail in runs without a journal: a run is an error that names the file and leaves no output, or
//! it has the right bytes. Two processes with one output: it has the rows of one of them.
//!
//! `OVERSHOT_FAULTS=all` lets each call of a kind fail, also where there are many.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write, stdin, stdout};
use std::path::Path;
use std::process::Stdio;
use std::sync::Once;

use libtest_mimic::{Failed, Trial};
use overshot::io::Generator;
use overshot::{DeviceChoice, Engine, Job, Npy, Raw};

use crate::jobs::{Done, LostJob};
use crate::{Place, library, watchdog};

pub const JOBS: &[LostJob] = &[
    LostJob { name: "files on the CPU", run: |folder, _| files(folder, "cpu", false), ..JOB },
    LostJob { name: "a mapped file on the CPU", run: |folder, _| files(folder, "cpu", true), ..JOB },
    LostJob { name: "files on a device", run: |folder, _| files(folder, "emulated", false), ..JOB },
    LostJob { name: "files on the stand-in", run: |folder, _| files(folder, "cuda", false), ..JOB },
    MEETS,
    REPLACES,
];
#[cfg(all(feature = "parquet", feature = "zarr"))]
pub const FORMATS: &[LostJob] = crate::formats::JOBS;
#[cfg(not(all(feature = "parquet", feature = "zarr")))]
pub const FORMATS: &[LostJob] = &[];

const JOB: LostJob = LostJob { name: "", prepare: input, run: |_, _| Ok(()), replaces: false, writes: true };
const MEETS: LostJob = LostJob { name: "one output", prepare: empty, run: |folder, _| meets(folder, false), ..JOB };
const REPLACES: LostJob = LostJob { name: "one replaced output", run: |folder, _| meets(folder, true), ..MEETS };

pub const ROWS: usize = 50_000;
pub const TEXT: &str = "y = x * 0.5 + i; t = u8(i); sum(y)";

pub fn trials() -> Vec<Trial> {
    let plain = if cfg!(feature = "cuda") { &JOBS[..4] } else { &JOBS[..3] };
    // Encoded outputs are written by calls alone.
    let all = plain.iter().flat_map(|job| [(job, false), (job, true)]).chain(FORMATS.iter().map(|job| (job, false)));
    let faults = all.map(|(job, is_mapped)| {
        let name = format!("{}, {}, each call fails", job.name, if is_mapped { "maps" } else { "no maps" });
        Trial::test(name.clone(), move || watchdog::watched(&name, || each(job, is_mapped)))
    });
    let both = [&MEETS, &REPLACES].map(|job| {
        let name = format!("two processes with {}", job.name);
        Trial::test(name.clone(), move || watchdog::watched(&name, || both(job)))
    });
    faults.chain(both).collect()
}

fn empty(_: &Path, _: &Path) -> Done {
    Ok(())
}

fn input(folder: &Path, _: &Path) -> Done {
    let rows: Vec<u8> = (0..ROWS).flat_map(|row| ((row * 7919 % 101) as f64).to_le_bytes()).collect();
    let header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({ROWS},), }}");
    let head = [b"\x93NUMPY\x01\x00\x76\x00", format!("{header:<117}\n").as_bytes()].concat();
    Ok(fs::write(folder.join("x.npy"), [head, rows].concat())?)
}

pub fn engine(device: &str) -> overshot::Result<Engine> {
    Engine::builder().device(device.parse::<DeviceChoice>()?).chunk(100_000).workers(2).build()
}

fn files(folder: &Path, device: &str, is_mapped: bool) -> Done {
    let x = folder.join("x.npy");
    // SAFETY: nobody writes to the file.
    let x = if is_mapped { unsafe { Npy::map(x)? } } else { Npy::open(x)? };
    let (y, t) = (Npy::create(folder.join("y.npy")).fsync(true), Raw::create(folder.join("t.raw")).fsync(true));
    engine(device)?.run(Job::eval(TEXT)?.input("x", x).output("y", y).output("t", t))?;
    Ok(())
}

/// The texts of two processes with one output, no row of which is the same.
const TEXTS: [&str; 2] = [TEXT, "y = x * 0.25 - i - 1; t = u8(i + 1); sum(y)"];
/// Which of them a process has.
const WHICH: &str = "LOSSES_TEXT";

/// Has its outputs open when it says so, and goes on when it is told.
fn meets(folder: &Path, force: bool) -> Done {
    let once = Once::new();
    let fill = |first: u64, rows: &mut [f64]| {
        once.call_once(|| {
            println!("ready");
            stdout().flush().unwrap();
            // Also at the end of the input, if whoever tells it is gone.
            let _ = stdin().read(&mut [0]);
        });
        rows.iter_mut().zip(first..).for_each(|(x, row)| *x = (row % 101) as f64);
    };
    let x = Generator::new(ROWS as u64, fill);
    let (y, t) = (Npy::create(folder.join("y.npy")).force(force), Raw::create(folder.join("t.raw")).force(force));
    let text = TEXTS[env::var(WHICH)?.parse::<usize>()?];
    engine("cpu")?.run(Job::eval(text)?.input("x", x).output("y", y).output("t", t))?;
    Ok(())
}

/// How calls fail, and whether some runs must be errors or none may.
const FAULTS: [(&str, &str, bool); 20] = [
    ("open", "EIO", true),
    ("open", "EROFS", true),
    ("open", "EROFS:always", true),
    ("read", "EIO", true),
    ("read", "EIO:always", true),
    ("read", "short", false),
    ("read", "short:always", false),
    ("read", "EINTR", false),
    ("write", "EIO", true),
    ("write", "ENOSPC:always", true),
    ("write", "EROFS", true),
    ("write", "short", false),
    ("write", "short:always", false),
    ("allocate", "EDQUOT", true),
    ("link", "EIO", true),
    ("link", "EROFS:always", true),
    ("rename", "EIO", true),
    ("sync", "EIO", true),
    ("sync-names", "EIO", true),
    // It is written with system calls then.
    ("map", "EIO:always", false),
];

/// Returns the call that fails after this one: each of the first, and some of the others.
fn next(nth: u64) -> u64 {
    let all = env::var("OVERSHOT_FAULTS").is_ok_and(|which| which == "all");
    if all || nth < 6 { nth + 1 } else { nth + nth / 3 }
}

fn each(job: &LostJob, is_mapped: bool) -> Result<(), Failed> {
    let run = |fault: &str| {
        let place = Place::new(job);
        let (before, fired) = (place.files(), place.beside.path().join("fired"));
        let mut command = place.command(job);
        command.env("LD_PRELOAD", library()).env("OVERSHOT_FILES_FAIL", fault).env("OVERSHOT_FILES_FIRED", &fired);
        if !is_mapped {
            // With a log, nothing is mapped for writing.
            command.env("OVERSHOT_FILES_LOG", place.beside.path().join("log"));
        }
        let done = command.output().unwrap();
        (done.status, String::from_utf8_lossy(&done.stderr).into_owned(), before, place.files(), fired.exists())
    };
    let (status, text, before, whole, _) = run("any:1000000:EIO");
    if !status.success() || whole.len() < before.len() + 2 {
        return Err(format!("fails without a fault: {text}").into());
    }
    let (mut errors, mut runs) = (BTreeMap::<&str, [u64; 2]>::new(), 0);
    for (kind, how, fails) in FAULTS {
        let (mut here, mut nth) = ([0; 2], 1);
        let (how, always) = how.split_once(':').map_or((how, ""), |(how, _)| (how, ":always"));
        loop {
            let fault = format!("{kind}:{nth}:{how}{always}");
            let (status, text, before, after, fired) = run(&fault);
            runs += 1;
            let wrong = |what: &str| Err(format!("{fault}: {status}: {what}: {text}: {:?}", after.keys()).into());
            if status.success() && after != whole {
                return wrong("other bytes without an error");
            }
            if !status.success() {
                let is_told = NAMES.iter().any(|name| text.contains(name));
                if !fired || !fails || status.code() != Some(1) || !is_told || text.trim_end().contains('\n') {
                    return wrong("not the error for this");
                }
                // Who cannot open a folder cannot remove it.
                let cannot_remove = kind == "open" && !always.is_empty() && job.name.contains("Zarr");
                if after.iter().filter(|(name, _)| !cannot_remove || !name.starts_with('.')).ne(before.iter()) {
                    return wrong("files are left");
                }
            }
            if !fired {
                break;
            }
            here = [here[0] + 1, here[1] + u64::from(!status.success())];
            nth = next(nth);
        }
        let all = errors.entry(kind).or_default();
        *all = [all[0] + here[0], all[1] + here[1]];
        if fails && here[0] > 0 && here[1] == 0 {
            return Err(format!("no error of {} calls of {kind} that fail with {how}", here[0]).into());
        }
    }
    eprintln!("{}, maps: {is_mapped}: {runs} runs, calls and errors: {errors:?}", job.name);
    let never: Vec<_> = ["open", "read", "write"].into_iter().filter(|kind| errors[kind][1] == 0).collect();
    // What is mapped is not read.
    let is_read = |kind: &&str| *kind != "read" || !job.name.contains("mapped");
    if never.iter().any(is_read) || errors["link"][1] + errors["rename"][1] == 0 {
        return Err(format!("no errors: {never:?}, or none of names").into());
    }
    Ok(())
}

/// The files that errors name.
const NAMES: [&str; 7] = ["x.npy: ", "y.npy: ", "t.raw: ", ".parquet: ", ".parquet, ", ".zarr: ", ".zarr/"];

/// Both have their outputs open before one of them can name them.
fn both(job: &LostJob) -> Result<(), Failed> {
    let place = Place::new(job);
    let start = |which: usize| {
        let mut command = place.command(job);
        command.env(WHICH, which.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        (child, line)
    };
    let children = [start(0), start(1)];
    if children.iter().any(|(_, line)| line != "ready\n") {
        return Err("one ended before it had read a row".into());
    }
    let mut ends = children.map(|(mut child, _)| {
        drop(child.stdin.take());
        child
    });
    let ends = ends.each_mut().map(|child| {
        let mut text = String::new();
        child.stderr.as_mut().unwrap().read_to_string(&mut text).unwrap();
        (child.wait().unwrap().success(), text)
    });
    let is_told =
        ends.iter().all(|(is_success, text)| *is_success || text.contains("y.npy: appeared while the job ran"));
    let files = place.files();
    // Whose rows each file has, all of them.
    let owners = ["y.npy", "t.raw"].map(|name| {
        let (found, header) = (files.get(name)?, if name == "y.npy" { 128 } else { 0 });
        (0..2).find(|which| found.get(header..) == Some(&right(*which, name)[..]))
    });
    let successes = [0, 1].map(|which| ends[which].0);
    let is_right = match job.name == REPLACES.name {
        // The last one has the name. Each file is replaced by itself.
        true => successes == [true; 2] && owners.iter().all(Option::is_some),
        // The first one has both names.
        false => {
            let winner = owners[0];
            owners[1] == winner && winner.is_some() && successes == [0, 1].map(|which| winner == Some(which))
        }
    };
    if !is_right || !is_told || files.len() != 2 {
        return Err(format!("{ends:?}: {owners:?} of {:?}", files.keys()).into());
    }
    Ok(())
}

/// Returns the rows of a file that one of the two processes writes.
fn right(which: usize, name: &str) -> Vec<u8> {
    let rows = (0..ROWS).map(|row| ((row % 101) as f64, row));
    match (name, which) {
        ("t.raw", _) => rows.map(|(_, row)| (row + which) as u8).collect(),
        (_, 0) => rows.flat_map(|(x, row)| (x * 0.5 + row as f64).to_le_bytes()).collect(),
        _ => rows.flat_map(|(x, row)| (x * 0.25 - row as f64 - 1.0).to_le_bytes()).collect(),
    }
}
