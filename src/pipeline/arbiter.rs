//! The arbiter: holds back workers that would not make a run faster.
//!
//! A policy sets the limits: how many workers may compute, how many may stage, and the size of their chunks. In a run
//! with CPU workers and staging workers, the [`Policy`] shares the cores between them. In a run with staging workers
//! alone, the [`Crew`] adapts them to the measured times. The arbiter counts the workers and holds back those over
//! their limit. Every GPU has the same part of the staging workers.
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

use super::crew::{Crew, CrewSize};
use super::policy::{Limits, Policy};
use super::trials::Trials;
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The arbiter of one run.
pub(crate) struct Arbiter {
    /// Whether workers take turns on one thread.
    takes_turns: bool,
    /// Whether the run has CPU workers.
    shares_cores: bool,
    state: Mutex<State>,
    may_compute: Condvar,
    may_stage: Condvar,
}

/// The policy of a run.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a run has one")]
enum Rule {
    Share(Policy),
    Crew(Crew),
}

impl Rule {
    fn limits(&self) -> Limits {
        match self {
            Rule::Share(policy) => policy.limits(),
            Rule::Crew(crew) => crew.limits(),
        }
    }
}

#[derive(Debug)]
struct State {
    rule: Rule,
    /// Workers that compute now.
    computing: usize,
    /// Workers of each device that stage now, by number of the device in the run.
    staging: Vec<usize>,
    /// The queue has no more chunks.
    over: bool,
    /// Whether each device is lost, by number of the device in the run.
    lost: Vec<bool>,
    /// The GPUs that are left.
    gpus: usize,
    /// When a worker that was refused was last permitted to go on.
    resumed: Duration,
}

impl State {
    fn may_compute(&self) -> bool {
        self.computing < self.rule.limits().compute || self.over || self.gpus == 0
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
    /// The worker may stage another chunk, whose size is halved so often.
    Granted { halved: u32 },
    /// The worker may not: it has chunks in flight to drain first, or the queue has no more chunks.
    Denied,
    /// The worker takes turns and must ask again.
    AskAgain,
}

impl Arbiter {
    /// Creates the arbiter of a run of `rows` rows with CPU workers on `cores` cores and `stagers` staging workers of
    /// `gpus` GPUs. `takes_turns` tells whether all of them run on one thread, in virtual time. The run begins
    /// with the limits `known`; if they are far slower than the `fastest` of earlier runs, which had so many rows per
    /// second, it goes on with those.
    pub(crate) fn sharing(
        (cores, stagers, gpus): (usize, usize, usize),
        rows: u64,
        takes_turns: bool,
        known: Option<Limits>,
        fastest: Option<(Limits, f64)>,
    ) -> Arbiter {
        Arbiter::new(Rule::Share(Policy::new(cores, stagers, rows, known).rather(fastest)), gpus, takes_turns)
    }

    /// Creates the arbiter of a run without CPU workers.
    pub(crate) fn crew(size: CrewSize, rows: u64, takes_turns: bool, known: Option<Limits>) -> Arbiter {
        Arbiter::new(Rule::Crew(Crew::new(size, rows, known)), size.gpus, takes_turns)
    }

    fn new(rule: Rule, gpus: usize, takes_turns: bool) -> Arbiter {
        // Besides the GPUs, a run has at most the CPU.
        let staging = vec![0; gpus + 1];
        Arbiter {
            takes_turns,
            shares_cores: matches!(rule, Rule::Share(_)),
            state: Mutex::new(State {
                rule,
                computing: 0,
                lost: vec![false; staging.len()],
                staging,
                over: false,
                gpus,
                resumed: Duration::ZERO,
            }),
            may_compute: Condvar::new(),
            may_stage: Condvar::new(),
        }
    }

    /// Returns whether the run has CPU workers, which use the cores that staging leaves idle.
    pub(crate) fn shares_cores(&self) -> bool {
        self.shares_cores
    }

    /// Ends the caller's `finished` chunk, waits until one more worker may compute, and counts the caller as computing.
    /// Returns the time from then on, which is that of `now`; `None` if the caller takes turns and must ask again,
    /// without a finished chunk. There is one call for each chunk, because many workers contend for the lock.
    pub(super) fn start_computing(&self, finished: Option<Finished>, now: impl Fn() -> Duration) -> Option<Duration> {
        let mut state = self.state();
        if let Some(Finished { rows, busy, begun, now }) = finished {
            // The caller goes on in its own place, so nobody else has to wake.
            state.computing -= 1;
            self.update(&mut state, now, |rule| {
                if let Rule::Share(policy) = rule {
                    policy.computed(rows, busy, begun, now);
                }
            });
        }
        if self.takes_turns && !state.may_compute() {
            return None;
        }
        let waits = |state: &mut State| !state.may_compute();
        state = self.may_compute.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        state.computing += 1;
        let now = now();
        if let Rule::Share(policy) = &mut state.rule {
            policy.begin(now);
        }
        Some(now)
    }

    /// Ends what `start_computing` began, because at `now` the queue has no more chunks.
    pub(super) fn stop_computing(&self, now: Duration) {
        self.state().computing -= 1;
        self.end(now);
    }

    /// Asks whether a worker of a device may stage another chunk. `stages` tells whether the worker counts as staging;
    /// this call updates it. A worker over the limit is denied as long as it has chunks in flight, so that it drains
    /// them; after that, this call waits until it may stage again, or until the end of the queue.
    pub(super) fn try_admit(&self, device: usize, stages: &mut bool, in_flight: bool) -> Admission {
        let mut state = self.state();
        let Limits { halved, .. } = state.rule.limits();
        let limit = self.limit(&state);
        if *stages && (state.staging[device] <= limit || in_flight) {
            let is_granted = state.staging[device] <= limit;
            return if is_granted { Admission::Granted { halved } } else { Admission::Denied };
        }
        if *stages {
            *stages = false;
            state.staging[device] -= 1;
        }
        if !self.may_stage(&state, device) {
            // Rows that only this device processes need no admission, so they can be in flight. Others may wait for
            // them, so the worker must drain them before it waits.
            if in_flight {
                return Admission::Denied;
            }
            if self.takes_turns {
                return Admission::AskAgain;
            }
        }
        let waits = |state: &mut State| !self.may_stage(state, device);
        state = self.may_stage.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        if state.lost[device] || state.staging[device] >= self.limit(&state) {
            return Admission::Denied;
        }
        *stages = true;
        state.staging[device] += 1;
        Admission::Granted { halved: state.rule.limits().halved }
    }

    /// Returns how many workers of each GPU may stage.
    fn limit(&self, state: &State) -> usize {
        state.rule.limits().stage.div_ceil(state.gpus.max(1))
    }

    fn may_stage(&self, state: &State, device: usize) -> bool {
        state.over || state.lost[device] || state.staging[device] < self.limit(state)
    }

    /// Returns the virtual time from which a worker that takes turns may compute; `None` if it may not yet.
    pub(super) fn computing_resumes(&self) -> Option<Duration> {
        let state = self.state();
        state.may_compute().then_some(state.resumed)
    }

    /// Returns the virtual time from which a worker of a device that takes turns may stage; `None` if it may not yet.
    pub(super) fn staging_resumes(&self, device: usize) -> Option<Duration> {
        let state = self.state();
        self.may_stage(&state, device).then_some(state.resumed)
    }

    /// Records that, at `now`, a slot was filled with `rows` rows in `busy`.
    pub(super) fn end_filling(&self, rows: u64, busy: Duration, now: Duration) {
        if self.shares_cores {
            self.update(&mut self.state(), now, |rule| {
                if let Rule::Share(policy) = rule {
                    policy.filled(rows, busy, now);
                }
            });
        }
    }

    /// Records that, at `now`, a chunk of `rows` rows was drained. Filling and draining took `busy`.
    pub(super) fn end_staging(&self, rows: u64, busy: Duration, now: Duration) {
        self.update(&mut self.state(), now, |rule| match rule {
            Rule::Share(policy) => policy.staged(rows, busy, now),
            Rule::Crew(crew) => crew.staged(rows, busy, now),
        });
    }

    /// Records in `trials` a run of so many rows per second that began with the limits `known`.
    pub(crate) fn record(&self, trials: &mut Trials, known: Option<Limits>, rate: f64) {
        match &self.state().rule {
            Rule::Share(policy) => trials.record(known, &policy.found(), policy.given_up().unwrap_or(rate)),
            // A crew wants few workers, too, so it adapts within a run.
            Rule::Crew(crew) => {
                if let Some(found) = crew.found() {
                    trials.replace(found);
                }
            }
        }
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

    /// Records that, at `now`, a device is lost. Its workers no longer wait, and the CPU's have all cores if no GPU is
    /// left.
    pub(super) fn lose(&self, device: usize, now: Duration) {
        let mut state = self.state();
        state.lost[device] = true;
        state.gpus = state.gpus.saturating_sub(1);
        state.resumed = state.resumed.max(now);
        drop(state);
        self.may_compute.notify_all();
        self.may_stage.notify_all();
    }

    /// Passes a measurement to the policy, and wakes all workers whose limit is raised by it.
    fn update(&self, state: &mut State, now: Duration, measure: impl FnOnce(&mut Rule)) {
        let Limits { compute, stage, .. } = state.rule.limits();
        measure(&mut state.rule);
        let limits = state.rule.limits();
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
        let arbiter = Arbiter::sharing((4, 2, 1), 1_000_000, takes_turns, None, None);
        let ms = Duration::from_millis(1);
        let mut finished = None;
        for _ in 0..3 {
            let begun = arbiter.start_computing(finished, || ms).expect("a core is free");
            finished = Some(Finished { rows: 1000, busy: ms, begun, now: 2 * ms });
            arbiter.end_filling(1000, 10 * ms, ms);
        }
        arbiter.state().computing = 0;
        assert_eq!(arbiter.state().rule.limits(), Limits::of(4, 0));
        arbiter
    }

    #[test]
    fn throttled_workers_wake_at_the_end() {
        let arbiter = that_prefers_computing(false);
        let mut stages = true;
        arbiter.state().staging[0] = 1;
        assert_eq!(arbiter.try_admit(0, &mut stages, true), Admission::Denied);
        assert!(stages, "the worker has chunks in flight");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| arbiter.try_admit(0, &mut stages, false));
            arbiter.end(Duration::ZERO);
            assert_eq!(waiting.join().unwrap(), Admission::Denied);
        });
        assert_eq!(arbiter.state().staging[0], 0, "a throttled worker does not count");
    }

    #[test]
    fn every_gpu_has_the_same_part_of_a_crew() {
        let size = CrewSize { gpus: 2, first: 3, most: 3, halvings: 0 };
        let arbiter = Arbiter::crew(size, 1_000_000_000, true, None);
        let granted = Admission::Granted { halved: 0 };
        let mut stages = [[false; 3]; 2];
        let mut admit = |arbiter: &Arbiter, device: usize, worker: usize, in_flight: bool| {
            arbiter.try_admit(device, &mut stages[device][worker], in_flight)
        };
        for (device, worker) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)] {
            assert_eq!(admit(&arbiter, device, worker, false), granted);
        }
        // The workers are idle for most of the time, so one of each GPU stands aside.
        let ms = Duration::from_millis(1);
        for chunk in 1..=100 {
            arbiter.end_staging(1000, ms / 10, chunk * ms);
        }
        assert_eq!(arbiter.state().rule.limits().stage, 4);
        for device in [0, 1] {
            assert_eq!(admit(&arbiter, device, 0, true), Admission::Denied, "it drains what is in flight");
            assert_eq!(admit(&arbiter, device, 0, false), Admission::AskAgain);
            assert_eq!([1, 2].map(|worker| admit(&arbiter, device, worker, true)), [granted; 2]);
            assert_eq!(arbiter.staging_resumes(device), None);
        }
        // A worker that stands aside may have rows in flight that need no admission.
        assert_eq!(admit(&arbiter, 0, 0, true), Admission::Denied);
        arbiter.end(200 * ms);
        assert_eq!(arbiter.staging_resumes(0), Some(200 * ms));
        assert_eq!(admit(&arbiter, 0, 0, false), Admission::Denied);
    }

    #[test]
    fn the_workers_of_a_lost_device_wake_and_others_take_their_cores() {
        let arbiter = that_prefers_computing(false);
        let mut stages = false;
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| arbiter.try_admit(0, &mut stages, false));
            arbiter.lose(0, Duration::ZERO);
            assert_eq!(waiting.join().unwrap(), Admission::Denied);
        });
        let arbiter = Arbiter::sharing((4, 2, 1), 1_000_000, true, Some(Limits::of(0, 2)), None);
        let start = || arbiter.start_computing(None, || Duration::ZERO).is_some();
        assert!(!start() && arbiter.computing_resumes().is_none(), "staging is better");
        arbiter.lose(0, Duration::from_secs(1));
        assert_eq!(arbiter.computing_resumes(), Some(Duration::from_secs(1)));
        assert!((0..4).all(|_| start()));
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
        assert_eq!(arbiter.try_admit(0, &mut stages, false), Admission::AskAgain);
        assert!(!stages && arbiter.staging_resumes(0).is_none());
        arbiter.stop_computing(2 * second);
        assert_eq!((arbiter.computing_resumes(), arbiter.staging_resumes(0)), (Some(2 * second), Some(2 * second)));
        assert_eq!(arbiter.try_admit(0, &mut stages, false), Admission::Denied);
    }
}
