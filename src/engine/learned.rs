//! What runs learned about jobs of one kind: the best limits of the arbiter. Kept in the engine, and for long runs in
//! the cache folder, where the next process on this machine finds it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cache_folder::{self, cache_folder, fnv1a, write_whole};
use crate::device::cpu;
use crate::pipeline::{Limits, Work};
use crate::plan::Plan;

/// The most kinds of jobs that are remembered. A program with more kinds begins anew.
const MOST: usize = 1024;
/// Runs that use what an earlier one found before the next one probes again. Without this, a probe that was disturbed
/// would keep the GPUs idle for ever.
const USES: u32 = 7;
/// Only runs that take longer write to the file.
const WORTH_SAVING: Duration = Duration::from_millis(100);
/// The most bytes of the file.
const MOST_BYTES: u64 = 1 << 20;

/// The best limits of each kind of job.
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

/// The limits of each kind, by hash of the kind. Two kinds with the same hash would only be slower.
type Known = HashMap<u64, Entry>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    limits: Limits,
    /// Runs that have used the limits.
    uses: u32,
}

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

    /// Returns the limits that were best for a kind of job; `None` if they are not known, or used up.
    pub(super) fn get(&self, kind: &str) -> Option<Limits> {
        let mut kinds = self.kinds();
        let entry = kinds.known.get_mut(&hash(kind))?;
        entry.uses += 1;
        let Entry { limits, uses } = *entry;
        if uses > USES {
            kinds.known.remove(&hash(kind));
            return None;
        }
        Some(limits)
    }

    /// Remembers the best limits that a run of this kind found in `time`.
    pub(super) fn put(&self, kind: &str, limits: Limits, time: Duration) {
        let mut kinds = self.kinds();
        let entry = insert(&mut kinds.known, kind, Entry { limits, uses: 0 });
        drop(kinds);
        if time >= WORTH_SAVING
            && let Some(path) = &self.path
        {
            // Other processes may have written it since.
            let mut all = self.load();
            all.insert(hash(kind), entry);
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

/// Inserts an entry. If the limits were known, their uses remain.
fn insert(known: &mut Known, kind: &str, entry: Entry) -> Entry {
    if known.len() >= MOST {
        known.clear();
    }
    let place = known.entry(hash(kind)).or_insert(entry);
    if place.limits != entry.limits {
        *place = entry;
    }
    *place
}

/// Returns the kind of a job: its computation, where its columns are, the magnitude of its rows, and the devices with
/// their workers. A short job may end before it has found what is best for a long one.
pub(super) fn kind_of(computation: &str, work: &Work<'_>, plan: &Plan) -> String {
    let inputs =
        work.inputs.iter().map(|input| (input.memory.is_some(), input.pinned.is_some(), input.sharded.is_some()));
    let outputs =
        work.outputs.iter().map(|output| (output.memory.is_some(), output.pinned.is_some(), output.sharded.is_some()));
    let places: Vec<_> = inputs.chain(outputs).collect();
    let devices: Vec<_> =
        plan.devices.iter().map(|device| (&device.id, &device.name, device.workers, device.slot_bytes)).collect();
    let magnitude = plan.rows.max(1).ilog2() / 2;
    format!("{computation} {places:?} {magnitude} {devices:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: Option<PathBuf>) -> Learned {
        Learned { path, kinds: Mutex::default() }
    }

    #[test]
    fn kinds_are_forgotten_before_they_fill_the_memory() {
        let learned = of(None);
        let limits = Limits::of(3, 1);
        for kind in 0..MOST {
            learned.put(&kind.to_string(), limits, Duration::ZERO);
        }
        assert_eq!((learned.get("0"), learned.get("other")), (Some(limits), None));
        learned.put("other", limits, Duration::ZERO);
        assert_eq!((learned.get("0"), learned.get("other")), (None, Some(limits)));
    }

    #[test]
    fn what_was_learned_is_asked_again_after_some_runs() {
        let learned = of(None);
        let [found, other] = [0, 1].map(|stage| Limits::of(3, stage));
        assert_eq!(learned.get("job"), None);
        learned.put("job", found, Duration::ZERO);
        for _ in 0..USES {
            assert_eq!(learned.get("job"), Some(found));
            learned.put("job", found, Duration::ZERO);
        }
        assert_eq!((learned.get("job"), learned.get("job")), (None, None));
        learned.put("job", found, Duration::ZERO);
        learned.put("job", other, Duration::ZERO);
        assert!((0..USES).all(|_| learned.get("job") == Some(other)) && learned.get("job").is_none());
    }

    #[test]
    fn the_next_process_knows_what_long_runs_learned() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("learned.json");
        let process = || of(Some(path.clone()));
        let (found, long) = (Limits { halved: 1, ..Limits::of(0, 9) }, WORTH_SAVING);
        let first = process();
        first.put("short", found, long / 2);
        first.put("long", found, long);
        first.put("other", Limits::of(1, 2), long);
        assert_eq!([process().get("short"), process().get("long")], [None, Some(found)]);
        // Uses count across processes, so that one of them probes again.
        for _ in 0..USES {
            let process = process();
            assert_eq!(process.get("long"), Some(found));
            process.put("long", found, long);
        }
        assert_eq!((process().get("long"), process().get("other")), (None, Some(Limits::of(1, 2))));
        std::fs::write(&path, b"{").unwrap();
        assert_eq!(process().get("other"), None);
        process().put("long", found, long);
        assert_eq!(process().get("long"), Some(found));
    }
}
