//! The policy of the arbiter in runs without CPU workers: a pure state machine that turns measurements into the number
//! of staging workers and the size of their chunks.
//!
//! The plan guesses how many workers fill and drain slots as fast as the link copies them. The right number differs
//! from host to host, and from minute to minute on a host that has other work. Too few workers leave the link idle. Too
//! many poll, which keeps cores busy for nothing, or take memory bandwidth and cache from each other.
//!
//! Time is divided into windows, during which the limits stay the same. A window gives two measurements: the rows per
//! second, and the **load**, which is the fraction of their time that the workers spend on filling and draining. After
//! a few windows one change is tried for the length of a window:
//!
//! * Above a load of [`BUSY`], in turn: more workers; chunks of half the size, of which more stay in the cache; fewer
//!   workers; chunks of twice the size.
//! * Below it, chunks of twice the size, if they were halved, because short copies are slow. Below [`IDLE`], in turn
//!   with fewer workers, so that the load becomes [`AIM`].
//!
//! If some rows of the run are on the device already, nothing is tried: the load tells nothing while the workers have
//! such rows.
//!
//! Fewer workers stay if the rate stays; every other change stays if the rate rises. After a change that did not stay,
//! the next one is tried after twice as many windows.

use std::time::Duration;

use super::policy::{Limits, Tally};

/// With a lower load, fewer workers are tried.
const IDLE: f64 = 0.85;
/// The load that fewer workers should have. A worker that always has work makes the link wait for it at times.
const AIM: f64 = 0.9;
/// With a higher load, more workers or other chunks are tried.
const BUSY: f64 = 0.94;
/// The least fraction of the rate that fewer workers must keep.
const KEEPS: f64 = 0.99;
/// Any other change must raise the rate by this factor.
const BETTER: f64 = 1.015;
/// The least seconds of a window, and its least number of chunks for each worker.
const LEAST_SPAN: f64 = 8e-3;
const CHUNKS_PER_WORKER: u64 = 3;
/// The least number of chunks of a window.
const LEAST_CHUNKS: u64 = 16;
/// Windows between two changes: doubled from the first number to the second.
const REST: u32 = 2;
const LONGEST_REST: u32 = 64;
/// A change is not tried if the rest of the run has fewer windows.
const LATE: f64 = 6.0;
/// The least number of workers of a GPU: with fewer slots, the copies of one chunk do not overlap those of another.
const LEAST_WORKERS: usize = 2;

/// The workers and chunks of a run without CPU workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CrewSize {
    pub(crate) gpus: usize,
    /// Workers of each GPU that stage at the beginning, and at most.
    pub(crate) first: usize,
    pub(crate) most: usize,
    /// How often the chunks may be halved.
    pub(crate) halvings: u32,
}

/// The policy of one run.
#[derive(Debug)]
pub(super) struct Crew {
    size: CrewSize,
    now: Choice,
    best: Choice,
    /// Drained chunks. When the window began, in seconds, and the chunks at that time.
    drained: Tally,
    window: (f64, Tally),
    phase: Phase,
    /// Rows of the run.
    rows: f64,
    /// Rows per second of the best choice; 0 if it was not measured yet.
    rate: f64,
    /// Windows to rest after the next change that does not stay.
    rest: u32,
    /// The number of changes that did not stay, which tells the next one to try.
    change: usize,
}

/// Workers of each GPU, and how often chunks are halved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    workers: usize,
    halved: u32,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The first window has the begin of the run in it, and counts for nothing.
    Begin,
    /// Keeps the best choice for so many windows.
    Keep(u32),
    /// Tries a change.
    Try,
}

impl Crew {
    /// Creates the policy of a run of `rows` rows. `known` are the limits that were best in an earlier run of the same
    /// kind.
    pub(super) fn new(size: CrewSize, rows: u64, known: Option<Limits>) -> Crew {
        let known = known.map(|known| Choice { workers: known.stage / size.gpus.max(1), halved: known.halved });
        let fits = |known: &Choice| (1..=size.most).contains(&known.workers) && known.halved <= size.halvings;
        let first = known.filter(fits).unwrap_or(Choice { workers: size.first, halved: 0 });
        Crew {
            size,
            now: first,
            best: first,
            drained: Tally::default(),
            window: Default::default(),
            phase: Phase::Begin,
            rows: rows as f64,
            rate: 0.0,
            rest: REST,
            change: 0,
        }
    }

    /// Returns the limits, which every measurement may change.
    pub(super) fn limits(&self) -> Limits {
        self.limits_of(self.now)
    }

    /// Returns the best limits so far, if a window was measured.
    pub(super) fn found(&self) -> Option<Limits> {
        (self.rate > 0.0).then(|| self.limits_of(self.best))
    }

    fn limits_of(&self, Choice { workers, halved }: Choice) -> Limits {
        Limits { compute: 0, stage: workers * self.size.gpus, halved }
    }

    /// Records that, at `now`, a chunk of `rows` rows was drained. Filling and draining took `busy`.
    pub(super) fn staged(&mut self, rows: u64, busy: Duration, now: Duration) {
        self.drained.add(rows, busy);
        let (begin, before) = self.window;
        let seconds = now.as_secs_f64() - begin;
        let workers = self.now.workers * self.size.gpus;
        let enough = (CHUNKS_PER_WORKER * workers as u64).max(LEAST_CHUNKS);
        if seconds >= LEAST_SPAN && self.drained.chunks - before.chunks >= enough {
            let rate = (self.drained.rows - before.rows) / seconds;
            let load = (self.drained.busy - before.busy) / (workers as f64 * seconds);
            let is_late = self.rows - self.drained.rows < LATE * rate * seconds;
            self.judge(rate, load, is_late);
            self.window = (now.as_secs_f64(), self.drained);
        }
    }

    /// Decides what follows a window.
    fn judge(&mut self, rate: f64, load: f64, is_late: bool) {
        self.phase = match self.phase {
            Phase::Begin => Phase::Keep(1),
            Phase::Keep(left) => {
                let share = if self.rate == 0.0 { 1.0 } else { 0.25 };
                self.rate += share * (rate - self.rate);
                match self.next(load) {
                    Some(choice) if left <= 1 && !is_late => {
                        self.now = choice;
                        Phase::Try
                    }
                    _ => Phase::Keep(left.saturating_sub(1)),
                }
            }
            Phase::Try => {
                let is_cheaper = self.now.workers < self.best.workers;
                let stays = rate > self.rate * if is_cheaper { KEEPS } else { BETTER };
                if stays {
                    (self.best, self.rate, self.rest) = (self.now, rate, REST);
                } else {
                    self.now = self.best;
                    self.rest = (2 * self.rest).min(LONGEST_REST);
                    self.change += 1;
                }
                Phase::Keep(self.rest)
            }
        };
    }

    /// Returns what to try after a window with this load.
    fn next(&self, load: f64) -> Option<Choice> {
        let CrewSize { most, halvings, .. } = self.size;
        let Choice { workers, halved } = self.best;
        let least = LEAST_WORKERS.min(workers);
        let step = (workers / 8).max(1);
        let with = |workers: usize| Choice { workers, halved };
        let larger = Choice { workers, halved: halved.saturating_sub(1) };
        let changes = if load > BUSY {
            let smaller = Choice { workers, halved: (halved + 1).min(halvings) };
            vec![with((workers + step).min(most)), smaller, with((workers - step.min(workers)).max(least)), larger]
        } else if load < IDLE {
            let needed = (workers as f64 * load / AIM).ceil() as usize;
            // A load that is low for a moment should not end most of the workers.
            let fewer = needed.max(workers - (workers / 4).max(1)).max(least).min(workers);
            vec![larger, with(fewer)]
        } else {
            vec![larger]
        };
        (0..changes.len()).map(|k| changes[(self.change + k) % changes.len()]).find(|choice| *choice != self.best)
    }
}

#[cfg(test)]
#[path = "tests/crew.rs"]
mod tests;
