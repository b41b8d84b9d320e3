//! Which limits a run begins with: those with which whole runs of the same kind were fastest.
//!
//! A run of a tenth of a second has ten windows, whose rates vary by a third. It cannot compare many limits. The rates
//! of whole runs vary by a tenth, and include what beginning costs. So limits are compared from run to run:
//!
//! 1. The first run of a kind probes ([`Policy`](super::policy::Policy)) and finds limits, which the next run tries.
//! 2. The next runs try others, once each: first computing alone, twice, and staging alone, if that can be fast. Then,
//!    if some workers stage with the fastest limits so far: fewer and more cores that compute, and all staging workers.
//!    If nobody does: half of the cores, and all staging workers.
//!    A run gives up limits that are far slower than the fastest so far, and goes on with those.
//! 3. Then every run begins with the fastest limits. Now and then a run tries the second fastest again, because a
//!    disturbed run seems slow, or probes again.

use serde::{Deserialize, Serialize};

use super::policy::Limits;

/// The weight of a new rate of limits that were measured before, if it is lower. A higher one replaces the old one: a
/// disturbed run is slower, and none is faster than it can be.
const WEIGHT: f64 = 0.5;
/// The most limits that are remembered.
const MOST: usize = 8;
/// Of so many runs, the last one probes again, and the one in the middle tries the second fastest limits, if they reach
/// this part of the best rate.
const AGAIN: u32 = 16;
const NEARLY: f64 = 0.8;

/// The limits that runs of one kind have begun with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trials {
    tried: Vec<Trial>,
    /// Runs so far.
    runs: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Trial {
    limits: Limits,
    /// Rows per second of runs that began with them; 0 if there was none.
    rate: f64,
    /// Runs that began with them.
    runs: u32,
}

impl Trials {
    /// Returns the limits that the next run begins with; `None` if it probes. The numbers of workers are at most those
    /// of `most`.
    pub(crate) fn next(&mut self, most: Limits) -> Option<Limits> {
        self.tried.retain(|Trial { limits, .. }| limits.compute <= most.compute && limits.stage <= most.stage);
        let turn = (self.runs + 1) % AGAIN;
        if turn == 0 {
            return None;
        }
        if let Some(new) = self.tried.iter().find(|trial| trial.rate == 0.0) {
            return Some(new.limits);
        }
        let mut sorted = self.tried.clone();
        sorted.sort_by(|a, b| b.rate.total_cmp(&a.rate));
        let best = sorted.first()?;
        let second = sorted.get(1).filter(|second| second.rate >= NEARLY * best.rate);
        if turn == AGAIN / 2
            && let Some(second) = second
        {
            return Some(second.limits);
        }
        // It is the one that must not be missed, and that nothing else is like.
        let alone = Limits::of(most.compute, 0);
        if self.tried.iter().any(|trial| trial.limits == alone && trial.runs == 1 && trial.rate < best.rate) {
            return Some(alone);
        }
        // Whole runs on a slow device could take many times as long. There, half of the cores are slow already.
        let is_fast = |Trial { limits, rate, .. }: &Trial| {
            limits.stage > 0 && limits.compute <= most.compute / 2 && *rate >= NEARLY * best.rate
        };
        let staging = self.tried.iter().any(is_fast).then_some(Limits::of(0, most.stage));
        let mut others = [alone].into_iter().chain(staging).chain(neighbours(best.limits, most));
        let is_new =
            |limits: &Limits| self.tried.len() < MOST && self.tried.iter().all(|trial| trial.limits != *limits);
        Some(others.find(is_new).unwrap_or(best.limits))
    }

    /// Returns the limits with which runs were fastest so far, and their rows per second.
    pub(crate) fn fastest(&self) -> Option<(Limits, f64)> {
        let measured = self.tried.iter().filter(|trial| trial.rate > 0.0);
        let fastest = measured.max_by(|a, b| a.rate.total_cmp(&b.rate))?;
        Some((fastest.limits, fastest.rate))
    }

    /// Records that a run with `began` had so many rows per second, or what a run that probed has found. What a run
    /// finds beside the limits that it began with is not tried: there would be no end to it.
    pub(crate) fn record(&mut self, began: Option<Limits>, found: &[Limits], rate: f64) {
        self.runs += 1;
        let Some(limits) = began else {
            for limits in found {
                match self.tried.iter_mut().find(|trial| trial.limits == *limits) {
                    // It is measured again: the run that measured it may have been disturbed.
                    Some(trial) => trial.rate = 0.0,
                    None => self.add(*limits, 0.0),
                }
            }
            return;
        };
        match self.tried.iter_mut().find(|trial| trial.limits == limits) {
            Some(trial) => {
                trial.rate = if rate > trial.rate { rate } else { trial.rate + WEIGHT * (rate - trial.rate) };
                trial.runs += 1;
            }
            None => self.add(limits, rate),
        }
    }

    /// Replaces all limits by those that a run found.
    pub(crate) fn replace(&mut self, found: Limits) {
        self.runs += 1;
        self.tried = vec![Trial { limits: found, rate: 0.0, runs: 0 }];
    }

    /// Adds limits, if there is room. Nothing makes room: what was forgotten would be tried again, for ever.
    fn add(&mut self, limits: Limits, rate: f64) {
        if self.tried.len() < MOST {
            self.tried.push(Trial { limits, rate, runs: u32::from(rate > 0.0) });
        }
    }
}

/// Returns what is tried beside these limits.
fn neighbours(limits: Limits, most: Limits) -> Vec<Limits> {
    let Limits { compute, stage, .. } = limits;
    if stage == 0 {
        // Even if a probe has found computing clearly better, because it may have been disturbed.
        return vec![Limits::of(compute / 2, most.stage)];
    }
    let more = (compute + (compute / 2).max(1)).min(most.compute);
    // A short run may end in its probe, in which few stage.
    let stages_more = Limits::of(compute, most.stage);
    vec![stages_more, Limits::of(compute / 2, stage), Limits::of(more, stage)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Limits = Limits { compute: 16, stage: 9, halved: 0 };
    const CPU: Limits = Limits { compute: 16, stage: 0, halved: 0 };

    /// Runs with these rates until the limits stay the same, and returns all limits.
    fn runs(trials: &mut Trials, count: u32, rate: impl Fn(Limits) -> f64) -> Vec<Option<Limits>> {
        let mut all = Vec::new();
        for _ in 0..count {
            let began = trials.next(ALL);
            let found = began.unwrap_or(Limits::of(8, 9));
            trials.record(began, &[found], rate(found));
            all.push(began);
        }
        all
    }

    #[test]
    fn what_a_probe_found_is_compared_with_others_once_each() {
        // The fewer cores compute, the better.
        let fewer = |Limits { compute, .. }: Limits| 100.0 - compute as f64;
        let all = runs(&mut Trials::default(), AGAIN, fewer);
        let at = |compute| Some(Limits::of(compute, 9));
        assert_eq!(all[..7], [None, at(8), Some(CPU), Some(CPU), at(0), at(1), at(0)]);
        assert_eq!(all[7], at(1), "the second fastest");
        assert!(all[8..15].iter().all(|limits| *limits == at(0)), "{all:?}");
        assert_eq!(all[15], None, "it probes again");
    }

    #[test]
    fn the_fastest_limits_are_among_those_that_were_measured() {
        let mut trials = Trials::default();
        assert_eq!(trials.fastest(), None);
        trials.record(None, &[Limits::of(8, 9)], 9.0);
        assert_eq!(trials.fastest(), None, "no run has begun with what the probe found");
        trials.record(Some(CPU), &[CPU], 3.0);
        trials.record(Some(Limits::of(0, 9)), &[], 5.0);
        trials.record(Some(Limits::of(4, 9)), &[], 4.0);
        assert_eq!(trials.fastest(), Some((Limits::of(0, 9), 5.0)));
    }

    #[test]
    fn nobody_computes_only_if_few_cores_are_fast() {
        let first = |rate: fn(Limits) -> f64, limits| {
            runs(&mut Trials::default(), 40, rate).iter().position(|own| *own == Some(limits))
        };
        let staging = Limits::of(0, ALL.stage);
        // As fast as the device and some cores, and slower than the cores.
        for rate in [|_| 5.0, |Limits { stage, .. }: Limits| if stage == 0 { 6.0 } else { 5.0 }] {
            assert!(first(rate, staging).is_some_and(|run| run < 6), "{:?}", first(rate, staging));
        }
        // The device adds a tenth of what a core does.
        let slow = |Limits { compute, stage, .. }: Limits| compute as f64 + if stage == 0 { 0.0 } else { 0.1 };
        assert_eq!(first(slow, staging), None);
        assert!(first(slow, CPU).is_some());
    }

    #[test]
    fn a_run_that_ended_in_its_probe_is_not_the_last_word_on_staging() {
        let mut trials = Trials::default();
        trials.record(None, &[Limits::of(15, 1)], 1.0);
        let rate = |Limits { compute, stage, .. }: Limits| (1 + compute * stage) as f64;
        let all = runs(&mut trials, 6, rate);
        assert!(all.iter().flatten().any(|limits| limits.stage == ALL.stage), "{all:?}");
    }

    #[test]
    fn computing_alone_is_kept_if_it_is_faster_than_what_was_found() {
        let alone = |Limits { stage, .. }: Limits| if stage == 0 { 3.0 } else { 1.0 };
        let all = runs(&mut Trials::default(), 7, alone);
        assert_eq!(all[..3], [None, Some(Limits::of(8, 9)), Some(CPU)]);
        assert!(all[3..].iter().all(|limits| *limits == Some(CPU)), "{all:?}");
    }

    #[test]
    fn one_disturbed_run_does_not_hide_that_computing_alone_is_faster() {
        let mut trials = Trials::default();
        let disturbed = std::cell::Cell::new(true);
        let all = runs(&mut trials, 15, |Limits { stage, .. }| {
            if stage == 0 && disturbed.replace(stage != 0) {
                1.0
            } else if stage == 0 {
                3.0
            } else {
                2.5
            }
        });
        assert_eq!(all[8..].iter().filter(|limits| **limits == Some(CPU)).count(), 7, "{all:?}");
    }

    #[test]
    fn limits_that_became_slow_are_left() {
        let mut trials = Trials::default();
        runs(&mut trials, 9, |Limits { stage, .. }| if stage == 0 { 3.0 } else { 2.5 });
        let all = runs(&mut trials, 6, |Limits { stage, .. }| if stage == 0 { 1.0 } else { 2.5 });
        assert_ne!(all[5], Some(CPU), "{all:?}");
    }

    #[test]
    fn limits_of_another_machine_are_forgotten() {
        let mut trials = Trials::default();
        trials.record(None, &[Limits::of(32, 1), Limits::of(4, 12)], 1.0);
        assert_eq!(trials.next(ALL), None);
    }

    #[test]
    fn the_number_of_limits_is_bounded_and_the_fastest_are_used() {
        let mut trials = Trials::default();
        let rate = |Limits { compute, stage, .. }: Limits| {
            if (compute, stage) == (8, 8) { 10.0 } else { 4.0 + compute as f64 / 9.0 }
        };
        let mut best = 0;
        for run in 0..500 {
            let began = trials.next(ALL);
            // Every probe finds other limits.
            trials.record(began, &[Limits::of(8 - run % 7, 8)], rate(began.unwrap_or(CPU)));
            best += usize::from(began == Some(Limits::of(8, 8)));
            assert!(trials.tried.len() <= MOST);
        }
        assert!(best >= 400, "{best}");
    }
}
