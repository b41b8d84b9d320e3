//! The arbiter: shares the cores of a machine between CPU workers and staging workers, if a run has both.
//!
//! A core can **compute** rows itself, or **stage** rows for a GPU, which means to fill and drain slots. The arbiter
//! measures during the run which of the two gets more rows per second out of a core, and sets two limits: how many
//! workers may compute, and how many may stage.
//!
//! # Phases
//!
//! 1. **Measure.** A fifth of the staging workers may stage; CPU workers compute on the remaining cores. This phase
//!    ends after [`ENOUGH`] chunks of each kind; if computing is better, [`ENOUGH_FILLS`] fills are enough, because
//!    draining can only make staging slower.
//! 2. **Computing is better** (see [`PREFER_COMPUTING`]): nobody may stage, and all cores may compute. Staging
//!    workers finish their chunks in flight and wait.
//! 3. **Staging is better**: all staging workers may stage, and the remaining cores may compute. After every
//!    [`ROUND`] staged chunks the limit on computing is adjusted: one more worker if more than three quarters of the
//!    chunks had to be waited for (the GPUs are busy), one fewer if less than half of them had (the GPUs wait for
//!    rows).
//!
//! The verdict is renewed with every chunk, so a run can change between phases 2 and 3.
//!
//! # Waiting
//!
//! Every worker asks once per chunk, under one lock. A worker over its limit waits on one of two conditions:
//!
//! * `may_compute`: the end of a computed chunk wakes one worker; a higher limit wakes all.
//! * `may_stage`: a higher limit wakes all.
//!
//! The end of the queue wakes all workers, and nobody waits any more.

use std::time::Duration;

use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Chunks of each kind before the first verdict.
const ENOUGH: u64 = 6;
/// Fills before the verdict that computing is better. Fewer are needed, because draining can only make staging
/// slower.
const ENOUGH_FILLS: u64 = 4;
/// Staged chunks between two adjustments of the number of workers that may compute.
const ROUND: u64 = 16;
/// Computing counts as better if a core computes at least this fraction of the rows that it could stage. The margin
/// favours computing, because CPU workers need neither the link nor the memory of slots.
const PREFER_COMPUTING: f64 = 0.9;

/// The arbiter of one run.
pub(crate) struct Arbiter {
    state: Mutex<State>,
    may_compute: Condvar,
    may_stage: Condvar,
}

#[derive(Debug)]
struct State {
    cores: usize,
    /// The number of staging workers.
    stagers: usize,
    /// Workers that compute now, and the limit.
    computing: usize,
    may_compute: usize,
    /// Workers that stage now, and the limit.
    staging: usize,
    may_stage: usize,
    computed: Tally,
    staged: Tally,
    filled: Tally,
    /// Chunks staged since the last adjustment, and how many of them had to be waited for.
    awaited: u64,
    drains: u64,
    /// The queue has no more chunks.
    over: bool,
}

/// Chunks, rows, and the time of cores spent on them.
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

    /// Returns the rows per second of one core.
    fn rate(&self) -> f64 {
        self.rows as f64 / self.busy.as_secs_f64().max(1e-9)
    }
}

impl Arbiter {
    /// Creates the arbiter of a run with CPU workers on `cores` cores and `stagers` staging workers.
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

    /// Waits until one more worker may compute, and counts the caller as computing.
    pub(super) fn start_computing(&self) {
        let waits = |state: &mut State| state.computing >= state.may_compute && !state.over;
        let mut state = self.may_compute.wait_while(self.state(), waits).unwrap_or_else(PoisonError::into_inner);
        state.computing += 1;
    }

    /// Ends what `start_computing` began: the worker computed `rows` rows in `busy`. `rows` is 0 if there was no
    /// chunk.
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

    /// Returns whether a worker may stage another chunk. `stages` tells whether the worker counts as staging; this
    /// call updates it. A worker over the limit is refused as long as it has chunks in flight, so that it drains
    /// them; after that, this call waits until it may stage again, or until the end of the queue.
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

    /// Records that a slot was filled with `rows` rows in `busy`.
    pub(super) fn end_filling(&self, rows: u64, busy: Duration) {
        let mut state = self.state();
        if state.staged.chunks < ENOUGH {
            state.filled.add(rows, busy);
            self.judge(&mut state);
        }
    }

    /// Records that a chunk of `rows` rows was filled and drained in `busy`, and whether the worker had to wait for
    /// it.
    pub(super) fn end_staging(&self, rows: u64, busy: Duration, awaited: bool) {
        let mut state = self.state();
        state.staged.add(rows, busy);
        state.drains += 1;
        state.awaited += u64::from(awaited);
        self.judge(&mut state);
    }

    /// Records that the queue has no more chunks, and wakes all workers.
    pub(super) fn end(&self) {
        let was_over = std::mem::replace(&mut self.state().over, true);
        if !was_over {
            self.may_compute.notify_all();
            self.may_stage.notify_all();
        }
    }

    /// Renews the verdict, and wakes all workers whose limit was raised.
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
        // Nothing can panic between changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Sets the limits from the measurements so far.
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
            // At least one core is left to staging workers.
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
    fn throttled_workers_wake_at_the_end() {
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
        assert_eq!(arbiter.state().staging, 0, "a throttled worker does not count");
    }
}
