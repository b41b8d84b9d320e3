//! Calls on files that fail in runs without a journal: a run is an error that names the file and leaves no output, or
//! it has the right bytes. Two processes with one output: one of them has it.

use std::collections::{BTreeMap, BTreeSet};
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
    MEETS,
    REPLACES,
];
const JOB: LostJob = LostJob { name: "", prepare: input, run: |_, _| Ok(()), replaces: false, writes: true };
const MEETS: LostJob = LostJob { name: "one output", prepare: empty, run: |folder, _| meets(folder, false), ..JOB };
const REPLACES: LostJob = LostJob { name: "one replaced output", run: |folder, _| meets(folder, true), ..MEETS };

const ROWS: usize = 50_000;
const TEXT: &str = "y = x * 0.5 + i; t = u8(i); sum(y)";

pub fn trials() -> Vec<Trial> {
    let faults = JOBS[..3].iter().flat_map(|job| {
        [false, true].map(|is_mapped| {
            let name = format!("{}, {}, each call fails", job.name, if is_mapped { "maps" } else { "no maps" });
            Trial::test(name.clone(), move || watchdog::watched(&name, || each(job, is_mapped)))
        })
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

fn engine(device: &str) -> overshot::Result<Engine> {
    Engine::builder().device(device.parse::<DeviceChoice>()?).chunk(100_000).workers(2).build()
}

fn files(folder: &Path, device: &str, is_mapped: bool) -> Done {
    let x = folder.join("x.npy");
    // SAFETY: nobody writes to the file.
    let x = if is_mapped { unsafe { Npy::map(x)? } } else { Npy::open(x)? };
    let (y, t) = (Npy::create(folder.join("y.npy")), Raw::create(folder.join("t.raw")));
    engine(device)?.run(Job::eval(TEXT)?.input("x", x).output("y", y).output("t", t))?;
    Ok(())
}

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
    engine("cpu")?.run(Job::eval(TEXT)?.input("x", x).output("y", y).output("t", t))?;
    Ok(())
}

/// How calls fail, and whether some runs must be errors or none may.
const FAULTS: [(&str, &str, bool); 17] = [
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
    // It is written with system calls then.
    ("map", "EIO:always", false),
];

fn each(job: &LostJob, is_mapped: bool) -> Result<(), Failed> {
    let run = |fault: &str| {
        let place = Place::new(job);
        let before = place.files();
        let mut command = place.command(job);
        command.env("LD_PRELOAD", library()).env("OVERSHOT_FILES_FAIL", fault);
        if !is_mapped {
            // With a log, nothing is mapped for writing.
            command.env("OVERSHOT_FILES_LOG", place.beside.path().join("log"));
        }
        let done = command.output().unwrap();
        (done.status, String::from_utf8_lossy(&done.stderr).into_owned(), before, place.files())
    };
    let (status, text, _, whole) = run("any:1000000:EIO");
    if !status.success() || whole.len() != 3 {
        return Err(format!("fails without a fault: {text}").into());
    }
    let (mut errors, mut runs) = (BTreeMap::<&str, u64>::new(), 0);
    for (kind, how, fails) in FAULTS {
        let mut here = 0;
        for nth in [1, 2, 3, 4, 5, 6, 8, 11, 15, 20] {
            let (how, always) = how.split_once(':').map_or((how, ""), |(how, _)| (how, ":always"));
            let fault = format!("{kind}:{nth}:{how}{always}");
            let (status, text, before, after) = run(&fault);
            runs += 1;
            let wrong = |what: &str| Err(format!("{fault}: {status}: {what}: {text}: {:?}", after.keys()).into());
            if status.success() {
                if after != whole {
                    return wrong("other bytes without an error");
                }
                continue;
            }
            here += 1;
            let is_told = ["x.npy: ", "y.npy: ", "t.raw: "].iter().any(|name| text.contains(name));
            if !fails || status.code() != Some(1) || !is_told || text.trim_end().contains('\n') {
                return wrong("not the error for this");
            }
            if after != before {
                return wrong("files are left");
            }
        }
        *errors.entry(kind).or_default() += here;
    }
    let kinds: BTreeSet<&str> = FAULTS.iter().filter(|fault| fault.2).map(|fault| fault.0).collect();
    let never: Vec<_> = kinds.into_iter().filter(|kind| errors[kind] == 0).collect();
    eprintln!("{}, maps: {is_mapped}: {runs} runs, errors: {errors:?}", job.name);
    if !never.is_empty() { Err(format!("no errors: {never:?}").into()) } else { Ok(()) }
}

/// Both have their outputs open before one of them can name them.
fn both(job: &LostJob) -> Result<(), Failed> {
    let place = Place::new(job);
    let start = || {
        let mut command = place.command(job);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        (child, line)
    };
    let children = [start(), start()];
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
    let is_replaced = job.name == REPLACES.name;
    let successes = ends.iter().filter(|(is_success, _)| *is_success).count();
    let is_told =
        ends.iter().all(|(is_success, text)| *is_success || text.contains("y.npy: appeared while the job ran"));
    let t: Vec<u8> = (0..ROWS).map(|row| row as u8).collect();
    let files = place.files();
    let y = files.get("y.npy").and_then(|y| y.get(128..)).unwrap_or_default();
    let right = (0..ROWS).map(|row| ((row % 101) as f64).mul_add(0.5, row as f64));
    let is_right = y.len() == 8 * ROWS && y.as_chunks().0.iter().map(|y| f64::from_le_bytes(*y)).eq(right);
    if successes != 1 + usize::from(is_replaced) || !is_told || files.len() != 2 || !is_right || files["t.raw"] != t {
        return Err(format!("{ends:?}: {:?}", files.keys()).into());
    }
    Ok(())
}
