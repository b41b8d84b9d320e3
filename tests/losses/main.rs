//! Jobs that lose power at any moment, again and again: the same call ends with the same bytes.
//!
//! Each run is recorded (`tests/files`), and ends. Then one moment of it is chosen, and the folder is made one that may
//! be found if the machine stopped then (`disk.rs`). The next run begins with that folder. Seeds choose the moments and
//! what is lost. `OVERSHOT_LOSSES` sets the number of power losses of all jobs together. `kills.rs` kills the process
//! instead, which loses nothing of what it has written.
#![allow(clippy::unwrap_used, reason = "in tests")]

mod disk;
#[path = "../files/event.rs"]
mod event;
#[cfg(all(feature = "parquet", feature = "zarr"))]
mod formats;
mod jobs;
mod kills;
mod plain;
mod random;
#[path = "../watchdog/mod.rs"]
mod watchdog;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use tempfile::TempDir;

use disk::{Disk, Loss};
use event::Event;
use jobs::{COUNTED, DURABLE, JOBS, LostJob};
use random::Random;

/// Power losses of all jobs together.
const LOSSES: u64 = 200;
/// Larger writes are those of rows, or of a journal.
const ROWS: usize = 512;

fn main() -> ExitCode {
    if let Ok(name) = env::var("LOSSES_JOB") {
        let [folder, beside] = ["OVERSHOT_FILES_FOLDER", "LOSSES_BESIDE"].map(|name| env::var_os(name).unwrap());
        let mut all = JOBS.iter().chain([&DURABLE, &COUNTED]).chain(plain::JOBS).chain(plain::FORMATS);
        let job = all.find(|job| job.name == name).unwrap();
        return match (job.run)(folder.as_ref(), beside.as_ref()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let count = env::var("OVERSHOT_LOSSES").ok().and_then(|count| count.parse().ok()).unwrap_or(LOSSES);
    let trials = JOBS.iter().enumerate().map(|(k, job)| {
        let (number, jobs) = (k as u64, JOBS.len() as u64);
        let count = (count + jobs - 1 - number) / jobs;
        Trial::test(job.name, move || watchdog::watched(job.name, || lose(job, count, number)))
    });
    let faults = JOBS.iter().map(|job| {
        let name = format!("{}, after a call that failed", job.name);
        Trial::test(name, || watchdog::watched(job.name, || repeated(job)))
    });
    let durable = [
        Trial::test(DURABLE.name, || watchdog::watched(DURABLE.name, durable)),
        Trial::test("a sync that fails", || watchdog::watched("a sync that fails", failed_syncs)),
    ];
    let all = trials.chain(faults).chain(durable).chain(kills::trials()).chain(plain::trials());
    libtest_mimic::run(&Arguments::from_args(), all.collect()).exit_code()
}

/// A folder for a job, which loses power, and one that does not.
struct Place {
    folder: TempDir,
    beside: TempDir,
    replaces: bool,
}

impl Place {
    fn new(job: &LostJob) -> Place {
        // A sync takes no time in memory, and what it is good for is known from the log.
        let memory = Path::new("/dev/shm");
        let at = if memory.is_dir() { memory.to_path_buf() } else { env::temp_dir().canonicalize().unwrap() };
        let [folder, beside] = [(); 2].map(|()| tempfile::tempdir_in(&at).unwrap());
        fs::create_dir(folder.path().join("journals")).unwrap();
        (job.prepare)(folder.path(), beside.path()).unwrap();
        Place { folder, beside, replaces: job.replaces }
    }

    /// Runs the job to its end, and returns what it changed.
    fn run(&self, job: &LostJob) -> Result<Vec<Event>, String> {
        self.run_with(job, None)
    }

    /// Runs the job, with a call that fails.
    fn run_with(&self, job: &LostJob, fault: Option<&str>) -> Result<Vec<Event>, String> {
        let log = self.beside.path().join("log");
        let _ = fs::remove_file(&log);
        let mut command = self.command(job);
        command.env("LD_PRELOAD", library()).env("OVERSHOT_FILES_LOG", &log);
        if let Some(fault) = fault {
            command.env("OVERSHOT_FILES_FAIL", fault);
        }
        let done = command.output().unwrap();
        if !done.status.success() {
            return Err(format!("{}: {}", done.status, String::from_utf8_lossy(&done.stderr)));
        }
        let bytes = fs::read(&log).unwrap_or_default();
        let mut rest = &bytes[..];
        let events = std::iter::from_fn(|| Event::take(&mut rest)).collect();
        assert!(rest.is_empty(), "the log is damaged");
        Ok(events)
    }

    /// The process of the job.
    fn command(&self, job: &LostJob) -> Command {
        let mut command = Command::new(env::current_exe().unwrap());
        command.env("LOSSES_JOB", job.name).env("LOSSES_BESIDE", self.beside.path());
        command.env("OVERSHOT_FILES_FOLDER", self.folder.path());
        // The stand-ins for the libraries of CUDA, which only jobs on a GPU load.
        command.env("LD_LIBRARY_PATH", examples()).env("OVERSHOT_CACHE", "");
        command
    }

    /// The files that are not hidden.
    fn outputs(&self) -> BTreeMap<String, Vec<u8>> {
        let is_shown = |name: &str| !name.starts_with('.') && !name.contains('/');
        self.files().into_iter().filter(|(name, _)| is_shown(name)).collect()
    }

    /// The files in the folder, but for old ones with temporary names.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let names = disk::names(self.folder.path()).into_iter();
        let files = names.map(|name| (name.clone(), fs::read(self.folder.path().join(&name)).unwrap()));
        files.filter(|(name, _)| !(self.replaces && name.ends_with(".partial"))).collect()
    }
}

/// Returns the library that records and fails calls.
fn library() -> PathBuf {
    let library = examples().join("libfiles.so");
    assert!(library.exists(), "no {}: run `cargo build --examples`", library.display());
    library
}

/// Returns where the examples are.
fn examples() -> PathBuf {
    env::current_exe().unwrap().parent().and_then(Path::parent).unwrap().join("examples")
}

fn lose(job: &LostJob, count: u64, seed: u64) -> Result<(), Failed> {
    let place = Place::new(job);
    let folder = place.folder.path();
    let mut random = Random(seed);
    let initial = Disk::of(folder);
    place.run(job)?;
    let expected = place.files();
    initial.lose(Loss::Kill, &mut random, folder);

    let (mut ends, mut sectors, mut changes) = (0, 0, 0);
    for number in 0..=count {
        let mut disk = Disk::of(folder);
        let before: Vec<String> = place.files().into_keys().collect();
        let mut events = place.run(job).map_err(|error| format!("loss {number}, then {before:?}: {error}"))?;
        if place.files() != expected {
            return Err(format!("loss {number}, then {before:?}: {:?}", place.files().keys()).into());
        }
        if random.below(2) == 0 {
            // Not only runs that continue lose power.
            initial.lose(Loss::Kill, &mut random, folder);
            disk = Disk::of(folder);
            events = place.run(job)?;
        }
        let all = events.len() as u64;
        changes += all;
        let rows = |(at, event): (usize, &Event)| match event {
            Event::Write { bytes, .. } if bytes.len() > ROWS => Some(at),
            _ => None,
        };
        let written: Vec<usize> = events.iter().enumerate().filter_map(rows).collect();
        let end = match random.below(3) {
            // Some run must be complete.
            _ if number == count => events.len(),
            0 => random.below(all + 1) as usize,
            // At a moment when rows are not synced.
            1 if !written.is_empty() => 1 + written[random.below(written.len() as u64) as usize],
            // While the outputs get their names.
            _ => events.len() - random.below(all.min(40) + 1) as usize,
        };
        events[..end].iter().for_each(|event| disk.change(event));
        let loss = match random.below(8) {
            0 => Loss::Kill,
            1 => Loss::All,
            _ => Loss::Some,
        };
        sectors += disk.lose(loss, &mut random, folder);
        if place.files() == expected {
            // It was complete, and would be refused as such.
            ends += 1;
            initial.lose(Loss::Kill, &mut random, folder);
        }
    }
    if count > 20 && (ends == 0 || (job.writes && sectors == 0)) {
        return Err(format!("{ends} runs were complete and {sectors} sectors were lost").into());
    }
    let each = changes / (count + 1);
    let name = job.name;
    eprintln!(
        "{name}: {count} power losses in runs of {each} changes, {sectors} sectors lost, {ends} runs were complete"
    );
    Ok(())
}

/// With `fsync`, what has its name is complete at any moment, and what a run has written stays.
fn durable() -> Result<(), Failed> {
    let place = Place::new(&DURABLE);
    let folder = place.folder.path();
    let initial = Disk::of(folder);
    let events = place.run(&DURABLE)?;
    let expected = place.files();
    let mut random = Random(1);
    for end in 0..=events.len() {
        let mut disk = initial.clone();
        events[..end].iter().for_each(|event| disk.change(event));
        for loss in [Loss::Kill, Loss::All, Loss::Some, Loss::Some] {
            disk.lose(loss, &mut random, folder);
            let found = place.files();
            let is_whole = found.iter().all(|(name, bytes)| expected.get(name) == Some(bytes));
            if !is_whole || (end == events.len() && found != expected) {
                return Err(format!("{loss:?} after {end} of {} changes: {:?}", events.len(), found.keys()).into());
            }
        }
    }
    Ok(())
}

/// A call that fails is an error that names the file, and no output appears.
fn failed_syncs() -> Result<(), Failed> {
    let is_sync = |event: &&Event| matches!(event, Event::Sync { .. } | Event::SyncNames { .. });
    if Place::new(&DURABLE).run(&DURABLE)?.iter().filter(is_sync).count() < 4 {
        return Err("two outputs are not synced with their names".into());
    }
    let data = ["sync:1:EIO", "sync:2:ENOSPC", "link:1:EIO", "link:2:EDQUOT"];
    let names = ["sync-names:1:EIO", "sync-names:1:EINVAL", "sync-names:3:EIO", "sync-names:4:EIO"];
    for fault in data.into_iter().chain(names) {
        let place = Place::new(&DURABLE);
        let Err(error) = place.run_with(&DURABLE, Some(fault)) else {
            return Err(format!("{fault} is no error").into());
        };
        let is_told = error.contains("y.npy: ") || error.contains("t.raw: ");
        if !is_told || !place.files().is_empty() {
            return Err(format!("{fault}: {error}: {:?}", place.files().keys()).into());
        }
    }
    Ok(())
}

/// After any call failed, all outputs appear or none, and the same call ends with the same bytes.
fn repeated(job: &LostJob) -> Result<(), Failed> {
    let whole = Place::new(job);
    whole.run(job)?;
    for kind in ["open", "write", "resize", "allocate", "sync", "sync-names", "rename", "link", "unlink"] {
        for nth in [1, 2, 3, 5, 8, 13] {
            let place = Place::new(job);
            let before = place.outputs();
            let Err(error) = place.run_with(job, Some(&format!("{kind}:{nth}:EIO"))) else { continue };
            let wrong = |what: &str| format!("{kind}:{nth}: {error}: {what}: {:?}", place.files().keys());
            let found = place.outputs();
            if found != before && found != whole.outputs() {
                return Err(wrong("one output appeared").into());
            }
            place.run(job).map_err(|again| wrong(&again))?;
            if place.files() != whole.files() {
                return Err(wrong("other files").into());
            }
        }
    }
    Ok(())
}
