//! Jobs that lose power at any moment, again and again: the same call ends with the same bytes.
//!
//! Each run is recorded (`tests/files`), and ends. Then one moment of it is chosen, and the folder is made one that may
//! be found if the machine stopped then (`disk.rs`). The next run begins with that folder. Seeds choose the moments and
//! what is lost. `OVERSHOT_LOSSES` sets the number of power losses of all jobs together.
#![allow(clippy::unwrap_used, reason = "in tests")]

mod disk;
#[path = "../files/event.rs"]
mod event;
mod jobs;
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
use jobs::{JOBS, LostJob};
use random::Random;

/// Power losses of all jobs together.
const LOSSES: u64 = 200;

fn main() -> ExitCode {
    if let Ok(name) = env::var("LOSSES_JOB") {
        let [folder, beside] = ["OVERSHOT_FILES_FOLDER", "LOSSES_BESIDE"].map(|name| env::var_os(name).unwrap());
        let job = JOBS.iter().find(|job| job.name == name).unwrap();
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
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
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
        (job.prepare)(folder.path(), beside.path()).unwrap();
        Place { folder, beside, replaces: job.replaces }
    }

    /// Runs the job to its end, and returns what it changed.
    fn run(&self, job: &LostJob) -> Result<Vec<Event>, String> {
        let library = examples().join("libfiles.so");
        assert!(library.exists(), "no {}: run `cargo build --examples`", library.display());
        let log = self.beside.path().join("log");
        let _ = fs::remove_file(&log);
        let mut command = Command::new(env::current_exe().unwrap());
        command.env("LOSSES_JOB", job.name).env("LOSSES_BESIDE", self.beside.path()).env("LD_PRELOAD", library);
        command.env("OVERSHOT_FILES_FOLDER", self.folder.path()).env("OVERSHOT_FILES_LOG", &log);
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

    /// The files in the folder, but for old ones with temporary names.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let files = fs::read_dir(self.folder.path()).unwrap().map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
        });
        files.filter(|(name, _)| !(self.replaces && name.ends_with(".partial"))).collect()
    }
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
        let mut end = random.below(all + 1) as usize;
        match random.below(3) {
            0 => end = events.len() - random.below(all.min(40) + 1) as usize,
            // At a moment when rows are not synced.
            1 => end += events[end..].iter().take_while(|event| !matches!(event, Event::Sync { .. })).count(),
            _ => {}
        }
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
    eprintln!("{name}: {count} power losses in runs of {each} changes, {sectors} sectors lost, {ends} runs were complete");
    Ok(())
}
