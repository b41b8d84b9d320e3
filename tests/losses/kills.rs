//! Jobs that are killed at any call on files, again and again: the same call ends with the same bytes, on any device.
//!
//! A run with a journal changes files by calls only, so the moments before each of its calls are all that can be told
//! apart when it is killed: before the journal has its first entry, while rows are written, between the rows and the
//! journal, and while the outputs get their names. Seeds choose the calls. `OVERSHOT_KILLS` sets the number of kills of
//! all jobs together.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;

use libtest_mimic::{Failed, Trial};
use overshot::Partial;

use crate::disk::{Disk, Loss};
use crate::event::Event;
use crate::jobs::{COUNTED, JOBS, LostJob, TILE};
use crate::random::Random;
use crate::{Place, library, watchdog};

/// Kills of all jobs together.
const KILLS: u64 = 200;

pub fn trials() -> Vec<Trial> {
    let count = env::var("OVERSHOT_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(KILLS);
    let jobs = JOBS.len() as u64;
    let killed = JOBS.iter().zip(0..).map(|(job, number)| {
        let name = format!("{}, killed at any call", job.name);
        let kills = (count + jobs - 1 - number) / jobs;
        Trial::test(name.clone(), move || watchdog::watched(&name, || killed(job, kills, number)))
    });
    let name = "rows that are done again";
    killed.chain([Trial::test(name, move || watchdog::watched(name, || done_again(count.div_ceil(3))))]).collect()
}

/// The devices that a job runs and continues on.
fn devices() -> &'static [&'static str] {
    if cfg!(feature = "cuda") { &["cpu", "emulated", "cuda"] } else { &["cpu", "emulated"] }
}

/// Runs the job, and kills it before a call on a file of the folder. Returns whether it was killed.
fn kill(place: &Place, job: &LostJob, device: &str, call: &str) -> Result<bool, Failed> {
    let mut command = place.command(job);
    command.env("LOSSES_DEVICE", device).env("LD_PRELOAD", library());
    let done = command.env("OVERSHOT_FILES_FAIL", format!("{call}:kill")).output()?;
    match (done.status.success(), done.status.signal()) {
        (true, _) => Ok(false),
        (_, Some(libc::SIGKILL)) => Ok(true),
        _ => Err(format!("{} on {device}: {}", done.status, String::from_utf8_lossy(&done.stderr)).into()),
    }
}

/// The calls of a run from its begin, as `OVERSHOT_FILES_FAIL` names them.
struct Calls {
    /// Those that change something, in order.
    changes: Vec<String>,
}

impl Calls {
    fn of(events: &[Event]) -> Calls {
        let mut counts = BTreeMap::new();
        let kind = |event: &Event| match event {
            Event::Create { .. } => "open",
            Event::Write { .. } => "write",
            Event::Resize { .. } => "any",
            Event::Sync { .. } => "sync",
            Event::SyncNames { .. } => "sync-names",
            Event::Link { .. } => "link",
            Event::Rename { .. } => "rename",
            Event::Unlink { .. } => "unlink",
        };
        let name = |event| {
            let kind = kind(event);
            let nth = counts.entry(kind).or_insert(0);
            *nth += 1;
            format!("{kind}:{nth}")
        };
        Calls { changes: events.iter().map(name).collect() }
    }

    /// Chooses any call, one of the first, any change, or one of the last ones, which give the outputs their names.
    fn any(&self, random: &mut Random) -> String {
        let changes = self.changes.len() as u64;
        match random.below(4) {
            // There are about as many calls that change nothing.
            0 => format!("any:{}", 1 + random.below(2 * changes)),
            1 => {
                let first = 1 << (1 + random.below(5));
                format!("any:{}", 1 + random.below(first))
            }
            2 => self.changes[random.below(changes) as usize].clone(),
            _ => self.changes[(changes - 1 - random.below(changes.min(20))) as usize].clone(),
        }
    }
}

fn killed(job: &LostJob, kills: u64, seed: u64) -> Result<(), Failed> {
    let place = Place::new(job);
    let folder = place.folder.path();
    let mut random = Random(seed);
    let (initial, outputs) = (Disk::of(folder), place.outputs());
    let calls = Calls::of(&place.run(job)?);
    let expected = place.files();
    initial.lose(Loss::Kill, &mut random, folder);
    let (mut count, mut ends, mut first, mut naming) = (0, 0, 0, 0);
    while count < kills {
        let device = devices()[random.below(devices().len() as u64) as usize];
        let call = calls.any(&mut random);
        let before: Vec<String> = place.files().into_keys().collect();
        let at = || format!("kill {count} before {call} on {device}, with {before:?}");
        let was_killed = kill(&place, job, device, &call).map_err(|error| format!("{}: {error:?}", at()))?;
        let found = place.files();
        if !was_killed && found != expected {
            return Err(format!("{}: {:?}", at(), found.keys()).into());
        }
        count += u64::from(was_killed);
        ends += u64::from(found == expected);
        if was_killed && found != expected {
            let has_entry = found.iter().any(|(name, bytes)| is_journal(name) && !bytes.is_empty());
            first += u64::from(!has_entry);
            naming += u64::from(place.outputs() != outputs);
        }
        // What is complete would be refused as such. Some runs begin anew earlier, for the first entry.
        if found == expected || random.below(4) == 0 {
            initial.lose(Loss::Kill, &mut random, folder);
        }
    }
    eprintln!(
        "{}: {kills} kills in runs of {} changes: {first} before an entry of the journal, {naming} between the names, \
         {ends} runs were complete",
        job.name,
        calls.changes.len()
    );
    if kills > 30 && first == 0 {
        return Err("no kill came before the first entry".into());
    }
    Ok(())
}

fn is_journal(name: &str) -> bool {
    name.starts_with("journals/") || name.ends_with(".journal") || name.ends_with(".merge")
}

/// A run that continues begins with the first row that the journal does not have, and no run is further ahead of its
/// journal than the rows that are on their way to the disk and those that are computed meanwhile: with a journal that
/// is written after each tile, one tile each.
fn done_again(kills: u64) -> Result<(), Failed> {
    let place = Place::new(&COUNTED);
    let mut random = Random(5);
    let calls = Calls::of(&place.run(&COUNTED)?);
    let read = || -> Vec<(u64, u64)> {
        let text = fs::read_to_string(place.beside.path().join("read")).unwrap_or_default();
        text.lines().map(|line| line.split_once(' ').unwrap()).map(|(a, b)| (number(a), number(b))).collect()
    };
    let initial = {
        fs::remove_file(place.folder.path().join("y.npy"))?;
        Disk::of(place.folder.path())
    };
    let (mut again, mut most, mut count) = (0, 0, 0);
    let mut saved = 0;
    while count < kills {
        let _ = fs::remove_file(place.beside.path().join("read"));
        let call = calls.any(&mut random);
        let was_killed = kill(&place, &COUNTED, "cpu", &call)?;
        count += u64::from(was_killed);
        let rows = read();
        let begin = rows.iter().map(|rows| rows.0).min();
        let end = rows.iter().map(|rows| rows.1).max().unwrap_or(saved);
        let sum: u64 = rows.iter().map(|rows| rows.1 - rows.0).sum();
        if begin.is_some_and(|begin| begin != saved) || sum != end - saved {
            return Err(format!("{call}: the journal has {saved} rows, and {begin:?} to {end} were done").into());
        }
        let journal = fs::read(place.folder.path().join(".y.npy.journal")).unwrap_or_default();
        saved = match &journal[..] {
            [] => 0,
            bytes => Partial::from_bytes(bytes)?.rows().iter().map(|rows| rows.end).max().unwrap_or(0),
        };
        if !was_killed || place.folder.path().join("y.npy").exists() {
            // Complete, or about to be.
            initial.lose(Loss::Kill, &mut random, place.folder.path());
            saved = 0;
            continue;
        }
        if end > saved + 2 * TILE {
            return Err(format!("{call}: {end} rows were done, and the journal has {saved}").into());
        }
        again += end - saved;
        most = most.max(end - saved);
    }
    eprintln!("{kills} kills: {again} rows are done again, at most {most} after a kill");
    if again == 0 { Err("no row was done again".into()) } else { Ok(()) }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}
