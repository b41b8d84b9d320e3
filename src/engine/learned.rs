//! What an engine learned about jobs of one kind: the best limits of the arbiter.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::pipeline::{Limits, Work};

/// The most kinds of jobs that are remembered. A program with more kinds begins anew.
const MOST: usize = 1024;

/// Runs that use what an earlier one found before the next one probes again. Without this, a probe that was disturbed
/// would keep the GPUs idle for ever.
const USES: u32 = 7;

/// The best limits of each kind of job, and the runs that have used them.
#[derive(Debug, Default)]
pub(super) struct Learned(Mutex<HashMap<String, (Limits, u32)>>);

impl Learned {
    /// Returns the limits that were best for a kind of job; `None` if they are not known, or used up.
    pub(super) fn get(&self, kind: &str) -> Option<Limits> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (limits, uses) = all.get_mut(kind)?;
        let limits = *limits;
        *uses += 1;
        if *uses > USES {
            all.remove(kind);
            return None;
        }
        Some(limits)
    }

    /// Remembers the best limits that a run of this kind found.
    pub(super) fn put(&self, kind: String, limits: Limits) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST {
            all.clear();
        }
        let (known, uses) = all.entry(kind).or_insert((limits, 0));
        if *known != limits {
            (*known, *uses) = (limits, 0);
        }
    }
}

/// Returns the kind of a job: its computation, where its columns are, and the workers of each device.
pub(super) fn kind_of(computation: &str, work: &Work<'_>, workers: &[usize]) -> String {
    let inputs =
        work.inputs.iter().map(|input| (input.memory.is_some(), input.pinned.is_some(), input.sharded.is_some()));
    let outputs =
        work.outputs.iter().map(|output| (output.memory.is_some(), output.pinned.is_some(), output.sharded.is_some()));
    let places: Vec<_> = inputs.chain(outputs).collect();
    format!("{computation} {places:?} {workers:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_forgotten_before_they_fill_the_memory() {
        let learned = Learned::default();
        let limits = Limits { compute: 3, stage: 1 };
        for kind in 0..MOST {
            learned.put(kind.to_string(), limits);
        }
        assert_eq!((learned.get("0"), learned.get("other")), (Some(limits), None));
        learned.put("other".into(), limits);
        assert_eq!((learned.get("0"), learned.get("other")), (None, Some(limits)));
    }

    #[test]
    fn what_was_learned_is_asked_again_after_some_runs() {
        let learned = Learned::default();
        let [found, other] = [0, 1].map(|stage| Limits { compute: 3, stage });
        learned.put("job".into(), found);
        for _ in 0..USES {
            assert_eq!(learned.get("job"), Some(found));
            learned.put("job".into(), found);
        }
        assert_eq!((learned.get("job"), learned.get("job")), (None, None));
        learned.put("job".into(), found);
        learned.put("job".into(), other);
        assert!((0..USES).all(|_| learned.get("job") == Some(other)) && learned.get("job").is_none());
    }
}
