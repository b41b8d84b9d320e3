//! The linearizer: gives each chunk of a compacted output its place, in the order of chunks.
//!
//! A kernel that compacts selects some rows of each chunk. The selected rows of chunk *n* follow those of chunks 0 to
//! *n* − 1, although chunks finish in any order:
//!
//! 1. When a chunk is back from its device, its worker **counts** its selected rows ([`Linearizer::count`]).
//! 2. The place of a chunk is **known** once all chunks before it are counted. It is the sum of their counts.
//! 3. The worker waits for the place ([`Linearizer::place`]) and writes the rows there.
//!
//! This cannot deadlock: a worker waits only if it has counted all of its chunks. So the first chunk that is not
//! counted always belongs to a worker that does not wait.

use std::collections::BTreeMap;

use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The places of all chunks of a run.
#[derive(Default)]
pub(crate) struct Linearizer {
    state: Mutex<State>,
    known: Condvar,
}

#[derive(Default)]
struct State {
    /// The first chunk that is not counted, and the selected rows of all chunks before it.
    next: u64,
    rows: u64,
    /// The counts of later chunks.
    later: BTreeMap<u64, u64>,
    /// Known places that were not taken yet.
    places: BTreeMap<u64, u64>,
    stopped: bool,
}

impl Linearizer {
    /// Records the number of selected rows of a chunk.
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

    /// Returns whether the place of a chunk is known, or the run was stopped.
    pub(super) fn is_known(&self, chunk: u64) -> bool {
        let state = self.state();
        state.next > chunk || state.stopped
    }

    /// Waits for the place of a counted chunk: the number of its first selected row in the output. `None` once the
    /// run was stopped.
    pub(super) fn place(&self, chunk: u64) -> Option<u64> {
        let waits = |state: &mut State| state.next <= chunk && !state.stopped;
        let mut state = self.known.wait_while(self.state(), waits).unwrap_or_else(PoisonError::into_inner);
        state.places.remove(&chunk)
    }

    /// Ends the run early, and wakes all workers that wait.
    pub(super) fn stop(&self) {
        self.state().stopped = true;
        self.known.notify_all();
    }

    /// Returns the selected rows of all counted chunks up to the first gap.
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
                .prop_flat_map(|counts| {
                    let chunks: Vec<usize> = (0..counts.len()).collect();
                    (Just(counts), Just(chunks).prop_shuffle())
                }),
        ) {
            let linearizer = Linearizer::default();
            for &chunk in &order {
                prop_assert!(!linearizer.is_known(chunk as u64));
                linearizer.count(chunk as u64, counts[chunk]);
            }
            for &chunk in &order {
                prop_assert_eq!(linearizer.place(chunk as u64).unwrap(), counts[..chunk].iter().sum::<u64>());
            }
            prop_assert_eq!(linearizer.rows(), counts.iter().sum::<u64>());
        }
    }

    #[test]
    fn a_worker_waits_for_the_chunks_before_and_no_longer_than_the_run() {
        let linearizer = Linearizer::default();
        linearizer.count(1, 5);
        linearizer.count(3, 5);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| linearizer.place(1));
            linearizer.count(0, 7);
            assert_eq!(waiting.join().unwrap().unwrap(), 7);
            let waiting = scope.spawn(|| linearizer.place(3));
            linearizer.stop();
            assert!(waiting.join().unwrap().is_none());
        });
    }
}
