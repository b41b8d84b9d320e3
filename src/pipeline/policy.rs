//! The policy of the arbiter: a pure state machine that turns measurements into two limits.
//!
//! A core can **compute** rows itself, or **stage** rows for a GPU, which means to fill and drain slots. The policy
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

use std::time::Duration;

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

/// The policy of one run.
#[derive(Debug)]
pub(super) struct Policy {
    cores: usize,
    /// The number of staging workers.
    stagers: usize,
    limits: Limits,
    computed: Tally,
    staged: Tally,
    filled: Tally,
    /// Chunks staged since the last adjustment, and how many of them had to be waited for.
    awaited: u64,
    drains: u64,
}

/// The largest numbers of workers that may compute and stage at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) compute: usize,
    pub(super) stage: usize,
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

impl Policy {
    /// Creates the policy of a run with CPU workers on `cores` cores and `stagers` staging workers.
    pub(super) fn new(cores: usize, stagers: usize) -> Policy {
        let first = stagers.div_ceil(5);
        Policy {
            cores,
            stagers,
            limits: Limits { compute: cores.saturating_sub(first).max(1), stage: first },
            computed: Tally::default(),
            staged: Tally::default(),
            filled: Tally::default(),
            awaited: 0,
            drains: 0,
        }
    }

    /// Returns the limits, which every measurement may change.
    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// Records that a CPU worker computed `rows` rows in `busy`.
    pub(super) fn computed(&mut self, rows: u64, busy: Duration) {
        self.computed.add(rows, busy);
        self.judge();
    }

    /// Records that a slot was filled with `rows` rows in `busy`.
    pub(super) fn filled(&mut self, rows: u64, busy: Duration) {
        if self.staged.chunks < ENOUGH {
            self.filled.add(rows, busy);
            self.judge();
        }
    }

    /// Records that a chunk of `rows` rows was filled and drained in `busy`, and whether the worker had to wait for
    /// it.
    pub(super) fn staged(&mut self, rows: u64, busy: Duration, awaited: bool) {
        self.staged.add(rows, busy);
        self.drains += 1;
        self.awaited += u64::from(awaited);
        self.judge();
    }

    /// Sets the limits from the measurements so far.
    fn judge(&mut self) {
        if self.computed.chunks < ENOUGH {
            return;
        }
        let is_known = self.staged.chunks >= ENOUGH;
        let staged = if is_known { self.staged } else { self.filled };
        if (is_known || staged.chunks >= ENOUGH_FILLS) && self.computed.rate() >= PREFER_COMPUTING * staged.rate() {
            self.limits = Limits { compute: self.cores, stage: 0 };
            return;
        }
        if !is_known {
            return;
        }
        if self.limits.stage < self.stagers {
            self.limits = Limits { compute: self.cores.saturating_sub(self.stagers).max(1), stage: self.stagers };
            (self.drains, self.awaited) = (0, 0);
        } else if self.drains >= ROUND {
            let awaited = self.awaited as f64 / self.drains as f64;
            (self.drains, self.awaited) = (0, 0);
            // At least one core is left to staging workers.
            let most = self.cores.saturating_sub(1).max(1);
            let compute = &mut self.limits.compute;
            if awaited > 0.75 {
                *compute = (*compute + 1).min(most);
            } else if awaited < 0.5 {
                *compute = compute.saturating_sub(1).clamp(1, most);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(compute: f64, stage: f64, awaited: bool, rounds: usize) -> Limits {
        let mut policy = Policy::new(16, 14);
        for _ in 0..rounds {
            policy.computed(1000, Duration::from_secs_f64(1000.0 / compute));
            policy.filled(1000, Duration::from_secs_f64(500.0 / stage));
            policy.staged(1000, Duration::from_secs_f64(1000.0 / stage), awaited);
        }
        policy.limits()
    }

    #[test]
    fn nothing_is_judged_by_a_few_chunks() {
        assert_eq!(after(2e6, 1e6, false, 5), Limits { compute: 13, stage: 3 });
    }

    #[test]
    fn filling_alone_tells_that_computing_is_better() {
        let mut policy = Policy::new(16, 14);
        (0..ENOUGH).for_each(|_| policy.computed(1000, Duration::from_millis(1)));
        (1..ENOUGH_FILLS).for_each(|_| policy.filled(1000, Duration::from_millis(2)));
        assert_eq!(policy.limits().stage, 3);
        policy.filled(1000, Duration::from_millis(2));
        assert_eq!(policy.limits(), Limits { compute: 16, stage: 0 });
    }

    #[test]
    fn all_cores_compute_if_computing_is_better() {
        assert_eq!(after(2e6, 1e6, true, 100), Limits { compute: 16, stage: 0 });
        assert_eq!(after(0.95e6, 1e6, true, 100), Limits { compute: 16, stage: 0 });
    }

    #[test]
    fn the_remaining_cores_compute_if_staging_is_better() {
        assert_eq!(after(1e5, 1e6, true, 1000), Limits { compute: 15, stage: 14 });
        assert_eq!(after(1e5, 1e6, false, 1000), Limits { compute: 1, stage: 14 });
    }
}
