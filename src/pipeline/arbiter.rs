//! How workers of the CPU and workers that stage for GPUs share the cores of one machine, where a job has both.
//!
//! A core can compute rows itself, or stage rows for a GPU: fill and drain slots. Which is the better use of it is measured
//! while the job runs, as rows per second of a core's work; until that is known, a few workers stage and the others compute.
//! If staging is better, GPUs come first: as few workers compute as leave the GPUs with work, and one more whenever staging
//! workers have to wait for a device that is busy. If computing is better, staging workers finish what they have and stand
//! aside.
//!
//! What a worker may do is decided under one lock, once a chunk. There are two conditions that workers wait for: that one more
//! may compute, which the end of a chunk that was computed wakes one worker for and a higher number all; and that staging
//! is allowed, which a verdict to that end wakes all for. The end of the queue makes both true for good.

use std::time::Duration;

use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Chunks of each kind before a verdict is given.
const ENOUGH: u64 = 6;
/// Fills before the verdict that computing is better: draining can only make staging slower than that.
const ENOUGH_FILLS: u64 = 4;
/// Between two changes of the number of workers that compute, chunks that were staged.
const ROUND: u64 = 16;
/// Computing is preferred if a core computes at least this share of the rows that it could stage: workers of the CPU need
/// neither the link nor the memory of slots.
const PREFER_COMPUTING: f64 = 0.9;

/// The share-out of one run.
pub(crate) struct Arbiter {
    state: Mutex<State>,
    may_compute: Condvar,
    may_stage: Condvar,
}

#[derive(Debug)]
struct State {
    cores: usize,
    /// Workers that stage.
    stagers: usize,
    /// Workers that compute now, and how many may.
    computing: usize,
    may_compute: usize,
    /// Workers that stage now, and how many may.
    staging: usize,
    may_stage: usize,
    computed: Tally,
    staged: Tally,
    filled: Tally,
    /// Of the latest chunks that were staged, how many had to be waited for.
    awaited: u64,
    drains: u64,
    /// The queue has no more chunks.
    over: bool,
}

/// Rows, and the time that cores worked for them.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    chunks: u64,
    rows: u64,
    busy: Duration,
}

impl Tally {
    fn add(&mut self, rows: u64, busy: Duration) {
        *self = Tally { chunks: self.chunks + 1, rows: self.rows + rows, busy: self.busy + busy };
    }

    /// Rows per second of one core's work.
    fn rate(&self) -> f64 {
        self.rows as f64 / self.busy.as_secs_f64().max(1e-9)
    }
}

impl Arbiter {
    /// The share-out of `cores` cores, with so many workers that stage; there are some of both.
    pub(crate) fn new(cores: usize, stagers: usize) -> Arbiter {
        let first = stagers.div_ceil(5);
        let state = State {
            cores,
            stagers,
            computing: 0,
            may_compute: cores.saturating_sub(first).max(1),
            staging: 0,
            may_stage: first,
            computed: Tally::default(),
            staged: Tally::default(),
            filled: Tally::default(),
            awaited: 0,
            drains: 0,
            over: false,
        };
        Arbiter { state: Mutex::new(state), may_compute: Condvar::new(), may_stage: Condvar::new() }
    }

    /// Waits until one more worker may compute a chunk, and counts it.
    pub(super) fn start_computing(&self) {
        let waits = |state: &mut State| state.computing >= state.may_compute && !state.over;
        let mut state = self.may_compute.wait_while(self.state(), waits).unwrap_or_else(PoisonError::into_inner);
        state.computing += 1;
    }

    /// Says that the worker is done with the chunk: `rows` rows (0 if there was no chunk) in so much time.
    pub(super) fn end_computing(&self, rows: u64, busy: Duration) {
        let mut state = self.state();
        state.computing -= 1;
        if rows > 0 {
            state.computed.add(rows, busy);
            self.judge(&mut state);
        }
        let one_more = state.computing < state.may_compute;
        drop(state);
        if one_more {
            self.may_compute.notify_one();
        }
    }

    /// Whether a worker may stage another chunk. `stages` is whether it is one of those that stage now, which changes here. A
    /// worker that is one too many drains what it has in flight, and then waits until it may again.
    pub(super) fn try_admit(&self, stages: &mut bool, in_flight: bool) -> bool {
        let mut state = self.state();
        if *stages && (state.staging <= state.may_stage || in_flight) {
            return state.staging <= state.may_stage;
        }
        if *stages {
            *stages = false;
            state.staging -= 1;
        }
        let waits = |state: &mut State| state.staging >= state.may_stage && !state.over;
        let mut state = self.may_stage.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        if state.staging < state.may_stage {
            *stages = true;
            state.staging += 1;
        }
        *stages
    }

    /// Says that a slot was filled with `rows` rows in so much time.
    pub(super) fn end_filling(&self, rows: u64, busy: Duration) {
        let mut state = self.state();
        if state.staged.chunks < ENOUGH {
            state.filled.add(rows, busy);
            self.judge(&mut state);
        }
    }

    /// Says that a chunk of `rows` rows was filled and drained in so much time, and whether it had to be waited for.
    pub(super) fn end_staging(&self, rows: u64, busy: Duration, awaited: bool) {
        let mut state = self.state();
        state.staged.add(rows, busy);
        state.drains += 1;
        state.awaited += u64::from(awaited);
        self.judge(&mut state);
    }

    /// Says that there are no more chunks, so that nobody waits for any.
    pub(super) fn end(&self) {
        let was_over = std::mem::replace(&mut self.state().over, true);
        if !was_over {
            self.may_compute.notify_all();
            self.may_stage.notify_all();
        }
    }

    /// Judges anew, and wakes those that may do more than before.
    fn judge(&self, state: &mut State) {
        let (computed, staged) = (state.may_compute, state.may_stage);
        state.judge();
        if state.may_compute > computed {
            self.may_compute.notify_all();
        }
        if state.may_stage > staged {
            self.may_stage.notify_all();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Numbers that a panic elsewhere cannot leave inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn judge(&mut self) {
        if self.computed.chunks < ENOUGH {
            return;
        }
        let is_known = self.staged.chunks >= ENOUGH;
        let staged = if is_known { self.staged } else { self.filled };
        if (is_known || staged.chunks >= ENOUGH_FILLS) && self.computed.rate() >= PREFER_COMPUTING * staged.rate() {
            (self.may_stage, self.may_compute) = (0, self.cores);
            return;
        }
        if !is_known {
            return;
        }
        if self.may_stage < self.stagers {
            self.may_stage = self.stagers;
            self.may_compute = self.cores.saturating_sub(self.stagers).max(1);
            (self.drains, self.awaited) = (0, 0);
        } else if self.drains >= ROUND {
            let awaited = self.awaited as f64 / self.drains as f64;
            (self.drains, self.awaited) = (0, 0);
            // One core is left to those that stage in any case.
            let most = self.cores.saturating_sub(1).max(1);
            if awaited > 0.75 {
                self.may_compute = (self.may_compute + 1).min(most);
            } else if awaited < 0.5 {
                self.may_compute = (self.may_compute.saturating_sub(1)).clamp(1, most);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(compute: f64, stage: f64, awaited: bool, rounds: usize) -> (usize, usize) {
        let arbiter = Arbiter::new(16, 14);
        for _ in 0..rounds {
            arbiter.start_computing();
            arbiter.end_computing(1000, Duration::from_secs_f64(1000.0 / compute));
            arbiter.end_filling(1000, Duration::from_secs_f64(500.0 / stage));
            arbiter.end_staging(1000, Duration::from_secs_f64(1000.0 / stage), awaited);
        }
        let state = arbiter.state();
        (state.may_stage, state.may_compute)
    }

    #[test]
    fn nothing_is_judged_by_a_few_chunks() {
        assert_eq!(after(2e6, 1e6, false, 5), (3, 13));
    }

    #[test]
    fn filling_alone_tells_that_computing_is_better() {
        let arbiter = Arbiter::new(16, 14);
        for _ in 0..ENOUGH {
            arbiter.start_computing();
            arbiter.end_computing(1000, Duration::from_millis(1));
        }
        (1..ENOUGH_FILLS).for_each(|_| arbiter.end_filling(1000, Duration::from_millis(2)));
        assert_eq!(arbiter.state().may_stage, 3);
        arbiter.end_filling(1000, Duration::from_millis(2));
        let state = arbiter.state();
        assert_eq!((state.may_stage, state.may_compute), (0, 16));
    }

    #[test]
    fn where_computing_is_better_all_cores_compute() {
        assert_eq!(after(2e6, 1e6, true, 100), (0, 16));
        assert_eq!(after(0.95e6, 1e6, true, 100), (0, 16));
    }

    #[test]
    fn where_staging_is_better_the_cores_that_it_leaves_compute() {
        assert_eq!(after(1e5, 1e6, true, 1000), (14, 15));
        assert_eq!(after(1e5, 1e6, false, 1000), (14, 1));
    }

    #[test]
    fn workers_that_stand_aside_wake_at_the_end() {
        let arbiter = Arbiter::new(4, 2);
        for _ in 0..ENOUGH {
            arbiter.start_computing();
            arbiter.end_computing(1000, Duration::from_millis(1));
            arbiter.end_staging(1000, Duration::from_secs(1), true);
        }
        let mut stages = true;
        arbiter.state().staging = 1;
        assert!(!arbiter.try_admit(&mut stages, true) && stages, "may not stage, but has chunks in flight");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| arbiter.try_admit(&mut stages, false));
            arbiter.end();
            assert!(!waiting.join().unwrap());
        });
        assert_eq!(arbiter.state().staging, 0, "a worker that stands throttled does not count");
    }
}
