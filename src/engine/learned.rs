//! What runs learned about jobs of one kind: with which limits of the arbiter they were fast. Kept in the engine, and
//! for long runs in the cache folder, where the next process on this machine finds it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::cache_folder::{self, cache_folder, fnv1a, write_whole};
use crate::device::cpu;
use crate::job::JobBody;
use crate::pipeline::{Limits, Trials, Work};
use crate::plan::Plan;

/// The most kinds of jobs that are remembered. A program with more kinds begins anew.
const MOST: usize = 1024;
/// Only runs that take longer write to the file.
const WORTH_SAVING: Duration = Duration::from_millis(50);
/// The most bytes of the file.
const MOST_BYTES: u64 = 1 << 20;

/// The trials of each kind of job.
#[derive(Debug)]
pub(super) struct Learned {
    /// `None` if nothing is kept from one process to the next.
    path: Option<PathBuf>,
    kinds: Mutex<Kinds>,
}

#[derive(Debug, Default)]
struct Kinds {
    known: Known,
    is_loaded: bool,
}

/// The trials of each kind, by hash of the kind. Two kinds with the same hash would only be slower.
type Known = HashMap<u64, Trials>;

impl Learned {
    /// Returns what is known in this user's cache folder, which is read when it is first needed.
    pub(super) fn of_user() -> Learned {
        let name = || {
            let info = cpu::info();
            let version = env!("CARGO_PKG_VERSION");
            format!("{:016x}.learned.json", fnv1a(&[info.name.as_bytes(), &[0], version.as_bytes()]))
        };
        Learned { path: cache_folder().map(|folder| folder.join(name())), kinds: Mutex::default() }
    }

    /// Returns the limits that a run of this kind begins with, at most those of `most`, `None` if it probes; and those
    /// with which runs were fastest so far, with their rows per second.
    pub(super) fn next(&self, kind: &str, most: Limits) -> (Option<Limits>, Option<(Limits, f64)>) {
        let mut kinds = self.kinds();
        let Some(trials) = kinds.known.get_mut(&hash(kind)) else { return (None, None) };
        (trials.next(most), trials.fastest())
    }

    /// Lets a run of this kind, which took `time`, record what it has learned.
    pub(super) fn record(&self, kind: &str, time: Duration, record: impl FnOnce(&mut Trials)) {
        let mut kinds = self.kinds();
        let hash = hash(kind);
        if kinds.known.len() >= MOST && !kinds.known.contains_key(&hash) {
            kinds.known.clear();
        }
        let trials = kinds.known.entry(hash).or_default();
        record(trials);
        let trials = trials.clone();
        drop(kinds);
        if time >= WORTH_SAVING
            && let Some(path) = &self.path
        {
            // Other processes may have written it since.
            let mut all = self.load();
            all.insert(hash, trials);
            let saved = serde_json::to_vec(&all).map_err(|error| error.to_string());
            let saved = saved.and_then(|text| write_whole(path, &text).map_err(|error| error.to_string()));
            if let Err(error) = saved {
                tracing::debug!(%error, "what was learned is not kept");
            }
        }
    }

    /// Returns all kinds, with those of the file.
    fn kinds(&self) -> MutexGuard<'_, Kinds> {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut kinds.is_loaded, true) {
            kinds.known = self.load();
        }
        kinds
    }

    /// Returns the content of the file; nothing if there is none, or it is not valid or not trusted.
    fn load(&self) -> Known {
        let text = self.path.as_ref().and_then(|path| cache_folder::read(path, MOST_BYTES).ok().flatten());
        let mut known: Known = text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        if known.len() >= MOST {
            known.clear();
        }
        known
    }
}

fn hash(kind: &str) -> u64 {
    fnv1a(&[kind.as_bytes()])
}

/// Returns the kind of a job: its computation, where its columns are, the magnitude of the rows that workers claim, and
/// the devices with their workers. A short job may end before it has found what is best for a long one.
pub(super) fn kind_of(what: &JobBody, work: &Work<'_>, plan: &Plan, claimed: u64) -> String {
    let inputs =
        work.inputs.iter().map(|input| (input.memory.is_some(), input.pinned.is_some(), input.sharded.is_some()));
    let outputs =
        work.outputs.iter().map(|output| (output.memory.is_some(), output.pinned.is_some(), output.sharded.is_some()));
    let places: Vec<_> = inputs.chain(outputs).collect();
    let devices: Vec<_> =
        plan.devices.iter().map(|own| (&own.id, &own.name, own.workers, own.max_chunk_rows, own.slot_bytes)).collect();
    let magnitude = claimed.max(1).ilog2();
    let pass = match what {
        JobBody::Expression(expression) => expression.pass_number(),
        JobBody::Kernel(_) => None,
    };
    let computation = what.text();
    format!("{computation} {pass:?} {places:?} {magnitude} {devices:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: Option<PathBuf>) -> Learned {
        Learned { path, kinds: Mutex::default() }
    }

    /// The most workers of the tests.
    const ALL: Limits = Limits { compute: 16, stage: 9, halved: 0 };

    fn find(learned: &Learned, kind: &str, limits: Limits, time: Duration) {
        learned.record(kind, time, |trials| trials.replace(limits));
    }

    #[test]
    fn kinds_are_forgotten_before_they_fill_the_memory() {
        let learned = of(None);
        let limits = Limits::of(3, 1);
        for kind in 0..MOST {
            find(&learned, &kind.to_string(), limits, Duration::ZERO);
        }
        assert_eq!((learned.next("0", ALL).0, learned.next("other", ALL).0), (Some(limits), None));
        find(&learned, "0", limits, Duration::ZERO);
        assert_eq!(learned.next("1", ALL).0, Some(limits));
        find(&learned, "other", limits, Duration::ZERO);
        assert_eq!((learned.next("0", ALL).0, learned.next("other", ALL).0), (None, Some(limits)));
    }

    #[test]
    fn the_next_process_knows_what_long_runs_learned() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("learned.json");
        let process = || of(Some(path.clone()));
        let (found, long) = (Limits { halved: 1, ..Limits::of(0, 9) }, WORTH_SAVING);
        let first = process();
        find(&first, "short", found, long / 2);
        find(&first, "long", found, long);
        find(&first, "other", Limits::of(1, 2), long);
        assert_eq!(["short", "long"].map(|kind| process().next(kind, ALL).0), [None, Some(found)]);
        std::fs::write(&path, b"{").unwrap();
        assert_eq!(process().next("other", ALL).0, None);
        find(&process(), "long", found, long);
        assert_eq!(process().next("long", ALL).0, Some(found));
    }
}
