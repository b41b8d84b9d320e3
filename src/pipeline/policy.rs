//! The policy of the arbiter: a pure state machine that turns measurements into two limits.
//!
//! A core can **compute** rows itself, or **stage** rows for a GPU, which means to fill and drain slots. Two limits say
//! how many workers may do each. The policy looks for the limits with the most rows per second of the whole machine.
//!
//! # Phases
//!
//! 1. **Probe.** All cores but one compute, and one worker stages. This tells how many rows per second a core computes
//!    and how many it stages, with the memory as busy as it will be. It costs little, whichever side is better. If a
//!    core computes clearly more than it stages, all cores compute, and nobody stages.
//! 2. **Settle.** Otherwise all staging workers may stage. They do not keep a core each busy, because they wait for the
//!    link or the device. The cores that they leave idle compute, so the limit on computing follows from the time that
//!    staging takes. If the rows per second of both sides are fewer than all cores would compute, nobody stages.
//! 3. **Keep** the limits, and **try** others now and then, because cores share the memory bandwidth and the link:
//!    the rows per second of a core do not tell what another core would add. If the rate changes much, because other
//!    programs began or ended, probe again.
//!
//! A job that is like an earlier one begins with phase 3 and the limits that were best, or others to compare
//! ([`Trials`](super::trials::Trials)).
//!
//! # Windows
//!
//! In phase 3, time is divided into windows, during which the limits stay the same and finished rows are counted. After
//! other limits are set, a window begins when as many chunks are finished as there were workers, or after the time of a
//! window: most chunks that were begun with the limits before do not count. If more workers stage than before, it also
//! waits for their first chunks, as long as the rate can be better with all rows that they have sent to the device. If
//! fewer stage, it waits until the device has sent back as many rows more than it got as those that left had there.
//! Some chunks may still come back in the first window, so a try that seems better is measured in a second one.
//!
//! # Warming up
//!
//! The first chunk that is staged takes two to three times as long as later ones: its slot is not in the cache, and the
//! threads have just been woken. So it does not count in phase 1, nor does the first window of a run.

use std::time::Duration;

/// Chunks of each side that a probe takes at least, and fills that are enough if computing is clearly better: draining
/// can only make staging slower.
const PROBE: u64 = 2;
/// Computing is clearly better if a core computes so many times as many rows as it stages. Below, only the rate of the
/// whole machine tells which side is better.
const CLEARLY: f64 = 1.15;
/// Staging is as good as free if a core computes this fraction of the rows that it stages.
const FREE: f64 = 0.1;
/// Rounds of phase 2, and staged chunks of a round per staging worker.
const ROUNDS: u32 = 3;
const ROUND: u64 = 2;
/// Both sides together must get this fraction of the rows per second that all cores would compute; below the second
/// one, later runs need not compare.
const WORTHWHILE: f64 = 0.98;
const HARDLY: f64 = 0.92;
/// A round of phase 2 may end early after so many chunks for each core that all cores would compute, and also after so
/// many rounds of staged rows or this part of all rows.
const PATIENCE: u64 = 8;
const PATIENT_ROUNDS: u64 = 3;
const MOST_PATIENCE: f64 = 1.0 / 16.0;
/// A device that adds this fraction of the best rate, or less, is seldom tried again.
const NEGLIGIBLE: f64 = 0.02;
/// The least seconds of a window: chunks come back in bunches, so that shorter ones vary by a third.
const LEAST_SPAN: f64 = 8e-3;
/// Chunks of a window, per active worker.
const CHUNKS_PER_WORKER: u64 = 4;
/// The least number of chunks of a window, and of staged ones among them if fewer workers stage.
const LEAST_CHUNKS: u64 = 24;
const LEAST_STAGED: u64 = 4;
/// After other limits are set, a window begins after so many times the time of one at the latest.
const LONGEST_CHANGE: f64 = 2.0;
/// A window does not wait for staged chunks longer than for this many times its chunks.
const MOST_CHUNKS: u64 = 6;
/// Other limits are better if they raise the rate by this factor.
const BETTER: f64 = 1.01;
/// A try ends early if its rate is below this fraction of the best one.
const HOPELESS: f64 = 0.8;
/// So many windows in a row must be hopeless in a run that tries limits while some workers stage: the first chunks of a
/// device come back late.
const HOPELESS_STAGING: u32 = 3;
/// The rate has changed much if it is outside of this factor in [`CONFIRM`] windows in a row.
const CHANGED: f64 = 1.2;
const CONFIRM: u32 = 2;
/// Nothing is tried if the rest of the run has fewer windows.
const LATE: f64 = 16.0;
/// Windows between two tries, doubled with each try that was not better: up to the second number until all of [`TRIES`]
/// were made, then up to the third.
const REST: u32 = 2;
const LONG_REST: u32 = 16;
const LONGEST_REST: u32 = 64;
/// As many tries count as made if it is clear that nobody should stage, and if an earlier run has tried.
const CLEAR: u32 = 2;
const KNOWN: u32 = 3;

/// The largest numbers of workers that may compute and stage at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Limits {
    pub(crate) compute: usize,
    pub(crate) stage: usize,
    /// How often the chunks of staging workers are halved.
    pub(crate) halved: u32,
}

impl Limits {
    /// Returns limits with whole chunks.
    pub(crate) fn of(compute: usize, stage: usize) -> Limits {
        Limits { compute, stage, halved: 0 }
    }

    /// Returns the limits of phase 1.
    fn probing(cores: usize) -> Limits {
        Limits::of(cores.saturating_sub(1).max(1), 1)
    }
}

/// The two sides, as indices of tallies.
const COMPUTED: usize = 0;
const STAGED: usize = 1;

/// The policy of one run.
#[derive(Debug)]
pub(super) struct Policy {
    cores: usize,
    /// The number of staging workers.
    stagers: usize,
    limits: Limits,
    /// The limits before, until the chunks that were begun with them are finished.
    before: Option<Limits>,
    tallies: [Tally; 2],
    /// The rows of filled slots, and the seconds that filling them took.
    filled: Tally,
    window: Window,
    phase: Phase,
    best: Limits,
    /// What phase 2 has found, if it was not clearly worse than computing alone.
    settled: Option<Limits>,
    /// Rows of the run.
    rows: f64,
    /// Rows per second with the best limits; 0 if they were not measured yet.
    rate: f64,
    /// Seconds of the last complete window.
    span: f64,
    /// Whether a window of this run has ended.
    is_warm: bool,
    /// What is tried next, as an index of [`TRIES`].
    next: usize,
    /// Tries that were not better, since one was.
    failed: u32,
    /// The limits with which earlier runs were fastest, and their rows per second, for as long as the run tries others.
    fastest: Option<(Limits, f64)>,
    /// The windows so far of a run that tries limits, all of which were hopeless.
    hopeless: u32,
    /// The rows per second of limits that the run gave up.
    given_up: Option<f64>,
}

#[derive(Debug)]
enum Phase {
    /// Phase 1, and the tallies of both sides and of the fills at its begin.
    Probe([Tally; 3]),
    /// Phase 2: the rounds so far, when the last one began, the tallies at that time, and the rows per second of all
    /// cores if they compute.
    Settle { rounds: u32, begin: f64, before: [Tally; 2], alone: f64 },
    /// Keeps the best limits for so many windows. `changed` counts windows in a row with another rate.
    Keep { left: u32, changed: u32 },
    /// Tries other limits: a second time if they seemed better.
    Try { again: bool },
}

/// The chunks of one side.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Chunks that are begun and not finished, and the sum of the seconds at which they began. Only those that are
    /// computed count: chunks on a device wait in a queue, so the time since they were begun tells nothing.
    active: usize,
    begun: f64,
    /// Finished chunks, their rows, and the sum of the seconds that a core spent on them.
    pub(super) chunks: u64,
    pub(super) rows: f64,
    pub(super) busy: f64,
}

impl Tally {
    pub(super) fn add(&mut self, rows: u64, busy: Duration) {
        self.chunks += 1;
        self.rows += rows as f64;
        self.busy += busy.as_secs_f64();
    }

    /// Returns the rows of a chunk on average.
    fn rows_of_chunk(&self) -> f64 {
        self.rows / self.chunks.max(1) as f64
    }

    /// Returns the rows per second of a core since `before`.
    fn core_rate_since(&self, before: &Tally) -> f64 {
        (self.rows - before.rows) / (self.busy - before.busy).max(1e-9)
    }
}

/// When a window began, in seconds, and the tallies at that time.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    begin: f64,
    tallies: [Tally; 2],
    filled: Tally,
}

/// Limits that are tried: neighbours, and others that no sequence of better neighbours may lead to, because cores that
/// compute and cores that stage can need different parts of the memory bandwidth.
#[derive(Clone, Copy, Debug)]
enum Try {
    /// What a step adds to the numbers of workers that compute and stage.
    Step(isize, isize),
    /// All staging workers, and the cores that they leave idle if all of them are always busy.
    AllStage,
    /// All staging workers, and this part of the cores: all divided by it, or none if it is 0.
    Beside(usize),
    /// All cores, and nobody stages.
    AllCompute,
}

/// What is tried, in turn.
const TRIES: [Try; 10] = [
    Try::AllCompute,
    // In the model of the tests, the best limits of most hosts on which both sides help.
    Try::Beside(1),
    Try::AllStage,
    Try::Beside(2),
    Try::Beside(0),
    Try::Beside(4),
    Try::Step(-1, 0),
    Try::Step(1, 0),
    Try::Step(0, -1),
    Try::Step(0, 1),
];

impl Policy {
    /// Creates the policy of a run of `rows` rows with CPU workers on `cores` cores and `stagers` staging workers, at
    /// least one of each. `known` are the limits that were best in an earlier run of the same kind.
    pub(super) fn new(cores: usize, stagers: usize, rows: u64, known: Option<Limits>) -> Policy {
        let known = known.filter(|known| known.compute <= cores && known.stage <= stagers);
        let probe = Limits::probing(cores);
        let (limits, phase, failed) = match known {
            Some(known) => (known, Phase::Keep { left: rest(KNOWN), changed: 0 }, KNOWN),
            None => (probe, Phase::Probe([Tally::default(); 3]), 0),
        };
        Policy {
            cores,
            stagers,
            limits,
            before: None,
            tallies: [Tally::default(); 2],
            filled: Tally::default(),
            window: Window::default(),
            phase,
            best: limits,
            settled: None,
            rows: rows as f64,
            rate: 0.0,
            span: 0.0,
            is_warm: known.is_none(),
            next: 0,
            failed,
            fastest: None,
            hopeless: 0,
            given_up: None,
        }
    }

    /// Lets a run that begins with other limits give them up if they are far slower than these, which had so many rows
    /// per second.
    pub(super) fn rather(self, fastest: Option<(Limits, f64)>) -> Policy {
        let tries = |(limits, _): &(Limits, f64)| {
            let fits = limits.compute <= self.cores && limits.stage <= self.stagers;
            matches!(self.phase, Phase::Keep { .. }) && *limits != self.limits && fits
        };
        Policy { fastest: fastest.filter(tries), ..self }
    }

    /// Returns the rows per second of the limits that the run began with, if it gave them up.
    pub(super) fn given_up(&self) -> Option<f64> {
        self.given_up
    }

    /// Returns the limits, which every measurement may change.
    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the limits that later runs should compare.
    pub(super) fn found(&self) -> Vec<Limits> {
        match self.phase {
            // A run that is so short has found nothing better.
            Phase::Probe(_) | Phase::Settle { .. } => vec![self.limits],
            Phase::Keep { .. } | Phase::Try { .. } => {
                [Some(self.best), self.settled.filter(|settled| *settled != self.best)].into_iter().flatten().collect()
            }
        }
    }

    /// Records that a CPU worker begins a chunk at `now`.
    pub(super) fn begin(&mut self, now: Duration) {
        let tally = &mut self.tallies[COMPUTED];
        tally.active += 1;
        tally.begun += now.as_secs_f64();
    }

    /// Records that, at `now`, a slot was filled with `rows` rows in `busy`.
    pub(super) fn filled(&mut self, rows: u64, busy: Duration, now: Duration) {
        self.filled.add(rows, busy);
        if let Phase::Probe(before) = &mut self.phase
            && self.filled.chunks == 1
        {
            before[2] = self.filled;
        }
        self.advance(now.as_secs_f64());
    }

    /// Records that, at `now`, a CPU worker has computed a chunk of `rows` rows that it began at `begun`. It has spent
    /// `busy` on it.
    pub(super) fn computed(&mut self, rows: u64, busy: Duration, begun: Duration, now: Duration) {
        let tally = &mut self.tallies[COMPUTED];
        tally.active = tally.active.saturating_sub(1);
        tally.begun -= begun.as_secs_f64();
        tally.add(rows, busy);
        self.advance(now.as_secs_f64());
    }

    /// Records that, at `now`, a chunk of `rows` rows was drained. Filling and draining took `busy`.
    pub(super) fn staged(&mut self, rows: u64, busy: Duration, now: Duration) {
        self.tallies[STAGED].add(rows, busy);
        if let Phase::Probe(before) = &mut self.phase
            && self.tallies[STAGED].chunks == 1
        {
            before[STAGED] = self.tallies[STAGED];
        }
        self.advance(now.as_secs_f64());
    }

    /// Goes on after a measurement.
    fn advance(&mut self, now: f64) {
        match self.phase {
            Phase::Probe(before) => self.probe(&before, now),
            Phase::Settle { rounds, begin, before, alone } => self.settle(rounds, (begin, &before), alone, now),
            Phase::Keep { .. } | Phase::Try { .. } => self.measure(now),
        }
    }

    /// Ends phase 1 if both sides are measured.
    fn probe(&mut self, before: &[Tally; 3], now: f64) {
        let [computed, staged] = &self.tallies;
        let has = |tally: &Tally, before: &Tally, chunks: u64| tally.chunks >= before.chunks + chunks;
        if !has(computed, &before[0], (self.cores as u64 / 2).max(PROBE)) {
            return;
        }
        let compute = computed.core_rate_since(&before[0]);
        let fill = self.filled.core_rate_since(&before[2]);
        if has(&self.filled, &before[2], PROBE) && compute >= CLEARLY * fill {
            return self.keep_all_computing(true, now);
        }
        if has(staged, &before[1], PROBE) {
            if compute >= CLEARLY * staged.core_rate_since(&before[1]) {
                return self.keep_all_computing(true, now);
            }
            let alone = compute * self.cores as f64;
            // Staging takes next to no time if the columns are in pinned memory.
            let is_free = compute < FREE * staged.core_rate_since(&before[1]);
            let staging = if is_free { 0 } else { self.stagers };
            self.limits = Limits::of(self.idle_cores(staging as f64), self.stagers);
            self.phase = Phase::Settle { rounds: 0, begin: now, before: self.tallies, alone };
        }
    }

    /// Ends a round of phase 2 if it has enough chunks.
    fn settle(&mut self, rounds: u32, (begin, before): (f64, &[Tally; 2]), alone: f64, now: f64) {
        let staged = self.tallies[STAGED].chunks - before[STAGED].chunks;
        if staged < (ROUND * self.stagers as u64).max(LEAST_STAGED) || now <= begin {
            // A weak device would keep the cores that stage for long.
            let [computed, staged] = &self.tallies;
            let all_cores = (PATIENCE * self.cores as u64) as f64 * computed.rows_of_chunk();
            // Slots may hold many times the rows that a core computes at a time.
            let rounds = (PATIENT_ROUNDS * ROUND * self.stagers as u64) as f64 * staged.rows_of_chunk();
            let patience = all_cores.max(rounds.min(MOST_PATIENCE * self.rows));
            if alone * (now - begin) > patience && self.rate_since(begin, before, now) < HOPELESS * alone {
                self.keep_all_computing(true, now);
            }
            return;
        }
        if rounds + 1 == ROUNDS {
            let rate = self.rate_since(begin, before, now);
            let is_clear = rate < HARDLY * alone;
            self.settled = (!is_clear).then_some(self.limits);
            if rate < WORTHWHILE * alone {
                return self.keep_all_computing(is_clear, now);
            }
            (self.best, self.rate, self.failed) = (self.limits, 0.0, 0);
            return self.keep(now);
        }
        let busy = self.tallies[STAGED].busy - before[STAGED].busy;
        self.limits.compute = self.idle_cores(busy / (now - begin));
        self.phase = Phase::Settle { rounds: rounds + 1, begin: now, before: self.tallies, alone };
    }

    /// Returns the cores that compute if staging keeps so many busy. The submitter of a GPU keeps
    /// one more busy; those of further GPUs are not counted.
    fn idle_cores(&self, staging: f64) -> usize {
        (self.cores as f64 - staging - 1.0).round().max(0.0) as usize
    }

    fn keep_all_computing(&mut self, is_clear: bool, now: f64) {
        (self.best, self.rate) = (Limits::of(self.cores, 0), 0.0);
        self.failed = if is_clear { CLEAR } else { 0 };
        self.keep(now);
    }

    /// Ends the window if it has enough chunks.
    fn measure(&mut self, now: f64) {
        let Window { begin, tallies: before, .. } = self.window;
        if now <= begin {
            return;
        }
        if let Some(before) = self.before {
            if self.is_changed_from(before, now) {
                self.set(self.limits, now);
            }
            return;
        }
        let seconds = now - begin;
        let [computed, staged] = self.chunks_of_window();
        let all = computed + staged;
        let Limits { compute, stage, .. } = self.limits;
        let enough = (CHUNKS_PER_WORKER * (compute + stage) as u64).max(LEAST_CHUNKS);
        let enough_staged = if stage == 0 { 0 } else { LEAST_STAGED.max(stage as u64) };
        let is_long = all >= enough && seconds >= LEAST_SPAN;
        let is_complete = is_long && (staged >= enough_staged || all >= MOST_CHUNKS * enough);
        let rate = self.rate_since(begin, &before, now);
        let is_hopeless = self.with_all_sent(rate, now) < HOPELESS * self.rate
            && seconds >= 0.35 * self.span
            && self.limits != self.best;
        if is_complete {
            self.span = seconds;
        }
        if is_complete || is_hopeless {
            self.judge(rate, now);
        }
    }

    /// Returns whether a window may begin after the limits `before` were replaced.
    fn is_changed_from(&self, before: Limits, now: f64) -> bool {
        let Window { begin, tallies, filled } = &self.window;
        let (seconds, span) = (now - begin, self.span.max(LEAST_SPAN));
        let [computed, staged] = self.chunks_of_window();
        let workers = self.limits.compute.max(before.compute) + self.limits.stage.max(before.stage);
        if computed + staged < (workers as u64).max(LEAST_STAGED) && seconds < span {
            return false;
        }
        if seconds >= LONGEST_CHANGE * span {
            return true;
        }
        let (stage, staging) = (self.limits.stage, before.stage);
        if stage < staging {
            let on_device = filled.rows - tallies[STAGED].rows;
            return on_device + self.sent_in_window() <= on_device * stage as f64 / staging as f64;
        }
        let joined = (stage - staging) as u64;
        if staged >= joined {
            return true;
        }
        // A slow device shows when all have been filled.
        let rate = self.rate_since(*begin, tallies, now);
        self.filled.chunks - filled.chunks >= joined && self.with_all_sent(rate, now) < self.rate
    }

    /// Returns the chunks that were finished in the window: computed and staged.
    fn chunks_of_window(&self) -> [u64; 2] {
        [COMPUTED, STAGED].map(|side| self.tallies[side].chunks - self.window.tallies[side].chunks)
    }

    /// Returns the rows that were sent to the device in the window, less those that came back.
    fn sent_in_window(&self) -> f64 {
        let Window { tallies, filled, .. } = &self.window;
        (self.filled.rows - filled.rows) - (self.tallies[STAGED].rows - tallies[STAGED].rows)
    }

    /// Returns the rows per second of the window, which are `rate` so far, if all rows that it sent to the device came
    /// back now: slots can take longer than a window.
    fn with_all_sent(&self, rate: f64, now: f64) -> f64 {
        rate + self.sent_in_window().max(0.0) / (now - self.window.begin)
    }

    /// Returns the rows per second of both sides since `begin`, when the tallies were `before`.
    fn rate_since(&self, begin: f64, before: &[Tally; 2], now: f64) -> f64 {
        let [computed, staged] = [0, 1].map(|side| (&before[side], &self.tallies[side]));
        // Workers that compute finish in bunches, so the parts of chunks that they have done are counted too.
        let age = |tally: &Tally, now: f64| tally.active as f64 * now - tally.begun;
        let (before, after) = computed;
        // If no chunk was finished, a part counts as much as on average before.
        let recent = if after.chunks > before.chunks { *before } else { Tally::default() };
        let parts = (age(after, now) - age(before, begin)) * after.core_rate_since(&recent);
        let rows = (after.rows - before.rows + parts).max(0.0) + staged.1.rows - staged.0.rows;
        rows / (now - begin)
    }

    /// Decides what follows a window with so many rows per second.
    fn judge(&mut self, rate: f64, now: f64) {
        let is_hopeless = self.is_hopeless(rate);
        match &mut self.phase {
            Phase::Probe(_) | Phase::Settle { .. } => {}
            Phase::Keep { .. } if !self.is_warm => {
                self.is_warm = true;
                self.set(self.limits, now);
            }
            Phase::Keep { .. } if is_hopeless => {
                self.hopeless += 1;
                let enough = if self.limits.stage == 0 { 1 } else { HOPELESS_STAGING };
                if self.hopeless < enough {
                    return self.set(self.limits, now);
                }
                self.given_up = Some(rate);
                if let Some((limits, _)) = self.fastest.take() {
                    (self.best, self.rate, self.failed) = (limits, 0.0, KNOWN);
                }
                self.keep(now);
            }
            Phase::Keep { left, changed } => {
                self.fastest = None;
                let is_first = self.rate == 0.0;
                let is_changed = !is_first && !(self.rate / CHANGED..self.rate * CHANGED).contains(&rate);
                *changed = if is_changed { *changed + 1 } else { 0 };
                if *changed == CONFIRM {
                    return self.probe_again();
                }
                if !is_changed {
                    self.rate += if is_first { rate } else { 0.25 * (rate - self.rate) };
                }
                *left = left.saturating_sub(1);
                let is_over = *left == 0;
                let done: f64 = self.tallies.iter().map(|tally| tally.rows).sum();
                let is_late = self.rows - done < LATE * self.rate * self.span;
                if !is_over || is_late {
                    return self.set(self.limits, now);
                }
                self.try_next(now);
            }
            Phase::Try { .. } if rate <= BETTER * self.rate => {
                let Window { begin, tallies: before, .. } = self.window;
                let staged = (self.tallies[STAGED].rows - before[STAGED].rows) / (now - begin);
                let is_idle = self.limits.stage == self.stagers && staged < NEGLIGIBLE * self.rate;
                self.next += 1;
                self.failed = if is_idle { TRIES.len() as u32 } else { self.failed.saturating_add(1) };
                self.keep(now);
            }
            Phase::Try { again } if !*again => {
                *again = true;
                self.set(self.limits, now);
            }
            Phase::Try { .. } => {
                // Once more in the same direction.
                (self.best, self.rate, self.failed) = (self.limits, rate, 0);
                self.try_next(now);
            }
        }
    }

    /// Returns whether the run tries limits, with which a window had this rate, that are far slower than the fastest.
    fn is_hopeless(&self, rate: f64) -> bool {
        self.fastest.is_some_and(|(_, fastest)| rate < HOPELESS * fastest)
    }

    fn probe_again(&mut self) {
        let [computed, staged] = self.tallies;
        self.limits = Limits::probing(self.cores);
        self.phase = Phase::Probe([computed, staged, self.filled]);
    }

    fn keep(&mut self, now: f64) {
        self.phase = Phase::Keep { left: rest(self.failed), changed: 0 };
        self.set(self.best, now);
    }

    /// Tries the next limits.
    fn try_next(&mut self, now: f64) {
        for _ in 0..TRIES.len() {
            if let Some(other) = self.other() {
                self.phase = Phase::Try { again: false };
                return self.set(other, now);
            }
            self.next += 1;
        }
        self.keep(now);
    }

    /// Returns the limits that are tried next, if they differ from the best ones.
    fn other(&self) -> Option<Limits> {
        let step = (self.cores / 8).max(1) as isize;
        let moved = |from: usize, by: isize, most: usize| from.saturating_add_signed(by * step).min(most);
        let (cores, stagers) = (self.cores, self.stagers);
        let limits = match TRIES[self.next % TRIES.len()] {
            Try::Step(compute, stage) => {
                Limits::of(moved(self.best.compute, compute, cores), moved(self.best.stage, stage, stagers))
            }
            Try::AllStage => Limits::of(self.idle_cores(stagers as f64), stagers),
            Try::Beside(part) => Limits::of(cores.checked_div(part).unwrap_or(0), stagers),
            Try::AllCompute => Limits::of(cores, 0),
        };
        (limits != self.best && limits.compute + limits.stage > 0).then_some(limits)
    }

    /// Sets the limits of the next window.
    fn set(&mut self, limits: Limits, now: f64) {
        self.window = Window { begin: now, tallies: self.tallies, filled: self.filled };
        self.before = Some(self.limits).filter(|before| *before != limits);
        self.limits = limits;
    }
}

/// Returns the windows before the next try, after so many that were not better.
fn rest(failed: u32) -> u32 {
    let longest = if failed < TRIES.len() as u32 { LONG_REST } else { LONGEST_REST };
    (REST << failed.min(8)).min(longest)
}

#[cfg(test)]
#[path = "tests/policy.rs"]
mod tests;
