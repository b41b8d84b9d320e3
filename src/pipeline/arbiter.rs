//! The arbiter: shares the cores of a machine between CPU workers and staging workers, if a run has both.
//!
//! The [`Policy`] sets two limits: how many workers may compute, and how many may stage. The arbiter counts the
//! workers of both kinds and holds back those over their limit.
//!
//! # Waiting
//!
//! Every worker asks once per chunk, under one lock. On threads, a worker over its limit waits on one of two
//! conditions:
//!
//! * `may_compute`, which a higher limit notifies: a worker that has finished a chunk goes on itself;
//! * `may_stage`, which a higher limit notifies, too.
//!
//! Both wake all workers that wait. So does the end of the queue, and then nobody waits any more.
//!
//! Workers that take turns on one thread must not wait. They are refused instead, and ask again at the virtual time
//! that [`Arbiter::computing_resumes`] or [`Arbiter::staging_resumes`] returns.

use std::time::Duration;

use super::policy::{Limits, Policy};
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The arbiter of one run.
pub(crate) struct Arbiter {
    /// Whether workers take turns on one thread.
    takes_turns: bool,
    state: Mutex<State>,
    may_compute: Condvar,
    may_stage: Condvar,
}

#[derive(Debug)]
struct State {
    policy: Policy,
    /// Workers that compute now.
    computing: usize,
    /// Workers that stage now.
    staging: usize,
    /// The queue has no more chunks.
    over: bool,
    /// When a worker that was refused was last permitted to go on.
    resumed: Duration,
}

impl State {
    fn may_compute(&self) -> bool {
        self.computing < self.policy.limits().compute || self.over
    }

    fn may_stage(&self) -> bool {
        self.staging < self.policy.limits().stage || self.over
    }
}

/// A chunk that a CPU worker has finished.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finished {
    pub(super) rows: u64,
    /// The time that the worker has spent on it.
    pub(super) busy: Duration,
    /// When the worker began, and when it ended.
    pub(super) begun: Duration,
    pub(super) now: Duration,
}

/// The answer to a staging worker that asks for another chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The worker may stage another chunk.
    Granted,
    /// The worker may not: it has chunks in flight to drain first, or the queue has no more chunks.
    Denied,
    /// The worker takes turns and must ask again.
    AskAgain,
}

impl Arbiter {
    /// Creates the arbiter of a run of `rows` rows with CPU workers on `cores` cores and `stagers` staging workers.
    /// `takes_turns` tells whether all of them run on one thread, in virtual time. `known` are the limits that were
    /// best in an earlier run of the same kind.
    pub(crate) fn new(
        (cores, stagers): (usize, usize),
        rows: u64,
        takes_turns: bool,
        known: Option<Limits>,
    ) -> Arbiter {
        let policy = Policy::new(cores, stagers, rows, known);
        let state = State { policy, computing: 0, staging: 0, over: false, resumed: Duration::ZERO };
        Arbiter { takes_turns, state: Mutex::new(state), may_compute: Condvar::new(), may_stage: Condvar::new() }
    }

    /// Ends the caller's `finished` chunk, waits until one more worker may compute, and counts the caller as computing.
    /// Returns the time from then on, which is that of `now`; `None` if the caller takes turns and must ask again,
    /// without a finished chunk. There is one call for each chunk, because many workers contend for the lock.
    pub(super) fn start_computing(&self, finished: Option<Finished>, now: impl Fn() -> Duration) -> Option<Duration> {
        let mut state = self.state();
        if let Some(Finished { rows, busy, begun, now }) = finished {
            // The caller goes on in its own place, so nobody else has to wake.
            state.computing -= 1;
            self.update(&mut state, now, |policy| policy.computed(rows, busy, begun, now));
        }
        if self.takes_turns && !state.may_compute() {
            return None;
        }
        let waits = |state: &mut State| !state.may_compute();
        state = self.may_compute.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        state.computing += 1;
        let now = now();
        state.policy.begin(now);
        Some(now)
    }

    /// Ends what `start_computing` began, because at `now` the queue has no more chunks.
    pub(super) fn stop_computing(&self, now: Duration) {
        self.state().computing -= 1;
        self.end(now);
    }

    /// Asks whether a worker may stage another chunk. `stages` tells whether the worker counts as staging; this
    /// call updates it. A worker over the limit is denied as long as it has chunks in flight, so that it drains
    /// them; after that, this call waits until it may stage again, or until the end of the queue.
    pub(super) fn try_admit(&self, stages: &mut bool, in_flight: bool) -> Admission {
        let mut state = self.state();
        let limit = state.policy.limits().stage;
        if *stages && (state.staging <= limit || in_flight) {
            return if state.staging <= limit { Admission::Granted } else { Admission::Denied };
        }
        if *stages {
            *stages = false;
            state.staging -= 1;
        }
        if self.takes_turns && !state.may_stage() {
            return Admission::AskAgain;
        }
        let waits = |state: &mut State| !state.may_stage();
        state = self.may_stage.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        if state.staging >= state.policy.limits().stage {
            return Admission::Denied;
        }
        *stages = true;
        state.staging += 1;
        Admission::Granted
    }

    /// Returns the virtual time from which a worker that takes turns may compute; `None` if it may not yet.
    pub(super) fn computing_resumes(&self) -> Option<Duration> {
        let state = self.state();
        state.may_compute().then_some(state.resumed)
    }

    /// Returns the virtual time from which a worker that takes turns may stage; `None` if it may not yet.
    pub(super) fn staging_resumes(&self) -> Option<Duration> {
        let state = self.state();
        state.may_stage().then_some(state.resumed)
    }

    /// Records that, at `now`, a slot was filled with `rows` rows in `busy`.
    pub(super) fn end_filling(&self, rows: u64, busy: Duration, now: Duration) {
        self.update(&mut self.state(), now, |policy| policy.filled(rows, busy, now));
    }

    /// Records that, at `now`, a chunk of `rows` rows was drained. Filling and draining took `busy`.
    pub(super) fn end_staging(&self, rows: u64, busy: Duration, now: Duration) {
        self.update(&mut self.state(), now, |policy| policy.staged(rows, busy, now));
    }

    /// Returns the best limits so far, after the first phases of the policy, if they are worth trying in a later run.
    pub(crate) fn found(&self) -> Option<Limits> {
        self.state().policy.found()
    }

    /// Records that, at `now`, the queue has no more chunks, and wakes all workers.
    pub(super) fn end(&self, now: Duration) {
        let mut state = self.state();
        if !state.over {
            state.over = true;
            state.resumed = state.resumed.max(now);
            drop(state);
            self.may_compute.notify_all();
            self.may_stage.notify_all();
        }
    }

    /// Passes a measurement to the policy, and wakes all workers whose limit is raised by it.
    fn update(&self, state: &mut State, now: Duration, measure: impl FnOnce(&mut Policy)) {
        let Limits { compute, stage } = state.policy.limits();
        measure(&mut state.policy);
        let limits = state.policy.limits();
        if limits.compute > compute {
            self.may_compute.notify_all();
        }
        if limits.stage > stage {
            self.may_stage.notify_all();
        }
        if limits.compute > compute || limits.stage > stage {
            state.resumed = state.resumed.max(now);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing can panic between changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An arbiter whose policy prefers computing, so that nobody may stage.
    fn that_prefers_computing(takes_turns: bool) -> Arbiter {
        let arbiter = Arbiter::new((4, 2), 1_000_000, takes_turns, None);
        let ms = Duration::from_millis(1);
        let mut finished = None;
        for _ in 0..3 {
            let begun = arbiter.start_computing(finished, || ms).expect("a core is free");
            finished = Some(Finished { rows: 1000, busy: ms, begun, now: 2 * ms });
            arbiter.end_filling(1000, 10 * ms, ms);
        }
        arbiter.state().computing = 0;
        assert_eq!(arbiter.state().policy.limits(), Limits { compute: 4, stage: 0 });
        arbiter
    }

    #[test]
    fn throttled_workers_wake_at_the_end() {
        let arbiter = that_prefers_computing(false);
        let mut stages = true;
        arbiter.state().staging = 1;
        assert_eq!(arbiter.try_admit(&mut stages, true), Admission::Denied);
        assert!(stages, "the worker has chunks in flight");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| arbiter.try_admit(&mut stages, false));
            arbiter.end(Duration::ZERO);
            assert_eq!(waiting.join().unwrap(), Admission::Denied);
        });
        assert_eq!(arbiter.state().staging, 0, "a throttled worker does not count");
    }

    #[test]
    fn workers_that_take_turns_ask_again() {
        let arbiter = that_prefers_computing(true);
        let second = Duration::from_secs(1);
        let start = |finished| arbiter.start_computing(finished, || second);
        assert!((0..4).all(|_| start(None) == Some(second)));
        assert!(start(None).is_none() && arbiter.computing_resumes().is_none());
        let finished = Finished { rows: 1000, busy: second, begun: second, now: 2 * second };
        assert_eq!(start(Some(finished)), Some(second));
        assert!(start(None).is_none() && arbiter.computing_resumes().is_none(), "it goes on in its own place");

        let mut stages = false;
        assert_eq!(arbiter.try_admit(&mut stages, false), Admission::AskAgain);
        assert!(!stages && arbiter.staging_resumes().is_none());
        arbiter.stop_computing(2 * second);
        assert_eq!((arbiter.computing_resumes(), arbiter.staging_resumes()), (Some(2 * second), Some(2 * second)));
        assert_eq!(arbiter.try_admit(&mut stages, false), Admission::Denied);
    }
}
