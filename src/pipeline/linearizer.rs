//! Where the rows of a chunk go when a kernel keeps some of them only: behind those that all chunks before it kept.
//!
//! A chunk is **counted** when it is back from its device; its place is known when all chunks before it are counted. Workers
//! wait for that before they write, with at most one chunk each. Every worker hands its chunks on in the order in which it
//! claimed them, so the first chunk that is not counted is always in the hands of a worker that does not wait.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The places of all chunks of a run.
#[derive(Default)]
pub(crate) struct Linearizer {
    state: Mutex<State>,
    known: Condvar,
}

#[derive(Default)]
struct State {
    /// All chunks before this one are counted, and kept so many rows.
    next: u64,
    rows: u64,
    /// What later chunks kept.
    later: BTreeMap<u64, u64>,
    /// The places of chunks that were not asked for yet.
    places: BTreeMap<u64, u64>,
    stopped: bool,
}

impl Linearizer {
    /// Says how many rows a chunk kept.
    pub(super) fn count(&self, chunk: u64, rows: u64) {
        let mut state = self.state();
        state.later.insert(chunk, rows);
        let before = state.next;
        while let Some(rows) = {
            let next = state.next;
            state.later.remove(&next)
        } {
            let (chunk, place) = (state.next, state.rows);
            state.places.insert(chunk, place);
            (state.next, state.rows) = (chunk + 1, place + rows);
        }
        if state.next > before {
            self.known.notify_all();
        }
    }

    /// Whether the place of a chunk is known, or never will be.
    pub(super) fn is_known(&self, chunk: u64) -> bool {
        let state = self.state();
        state.next > chunk || state.stopped
    }

    /// Waits for the place of a chunk, which was counted: the number of its first row among all that are kept.
    ///
    /// # Errors
    /// [`Error::Abandoned`] once the run was stopped.
    pub(super) fn place(&self, chunk: u64) -> Result<u64> {
        let waits = |state: &mut State| state.next <= chunk && !state.stopped;
        let mut state = self.known.wait_while(self.state(), waits).unwrap_or_else(PoisonError::into_inner);
        state.places.remove(&chunk).ok_or(Error::Abandoned)
    }

    /// Ends the run early: nobody waits any more.
    pub(super) fn stop(&self) {
        self.state().stopped = true;
        self.known.notify_all();
    }

    /// Rows that all chunks kept.
    pub(crate) fn rows(&self) -> u64 {
        self.state().rows
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_follow_each_other_whatever_the_order(
            (counts, order) in prop::collection::vec(0u64..100, 1..50)
                .prop_flat_map(|counts| { let chunks: Vec<usize> = (0..counts.len()).collect(); (Just(counts), Just(chunks).prop_shuffle()) }),
        ) {
            let kept = Linearizer::default();
            for &chunk in &order {
                prop_assert!(!kept.is_known(chunk as u64));
                kept.count(chunk as u64, counts[chunk]);
            }
            for &chunk in &order {
                prop_assert_eq!(kept.place(chunk as u64).unwrap(), counts[..chunk].iter().sum::<u64>());
            }
            prop_assert_eq!(kept.rows(), counts.iter().sum::<u64>());
        }
    }

    #[test]
    fn a_worker_waits_for_the_chunks_before_and_no_longer_than_the_run() {
        let kept = Linearizer::default();
        kept.count(1, 5);
        kept.count(3, 5);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| kept.place(1));
            kept.count(0, 7);
            assert_eq!(waiting.join().unwrap().unwrap(), 7);
            let waiting = scope.spawn(|| kept.place(3));
            kept.stop();
            assert!(waiting.join().unwrap().is_err());
        });
    }
}
