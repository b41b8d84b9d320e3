//! Runs the policy in virtual time against a model of a host, of which it sees nothing but drained chunks.

use super::super::random::{Random, sorted};
use super::*;

/// A host with GPUs. Rates are rows per second.
#[derive(Clone, Copy, Debug)]
struct Host {
    size: CrewSize,
    /// What a worker stages, what the memory permits all of them, and what the links of all GPUs copy.
    worker: f64,
    memory: f64,
    link: f64,
    /// The factor of `worker` and `memory` with every halving of the chunks, up to the best one.
    halving: f64,
    best_halvings: u32,
    /// The factor of `link` with every halving, because short copies are slower.
    short: f64,
    chunk: f64,
}

impl Host {
    fn random(random: &mut Random) -> Host {
        let most = 2 + random.below(15);
        let size = CrewSize { gpus: 1 + random.below(2), first: 1 + random.below(most), most, halvings: 2 };
        let link = 10e9;
        Host {
            size,
            worker: link / (size.gpus * most) as f64 * random.scale(0.7, 3.0),
            memory: link * random.scale(0.7, 2.0),
            link,
            halving: random.scale(0.95, 1.3),
            best_halvings: random.below(3) as u32,
            short: random.scale(0.85, 1.0),
            chunk: 5e5,
        }
    }

    /// Returns the rows per second with these limits, and the load of the workers.
    fn rate(&self, limits: Limits) -> (f64, f64) {
        let (gained, lost) = (limits.halved.min(self.best_halvings), limits.halved.saturating_sub(self.best_halvings));
        let factor = self.halving.max(1.0).powi(gained as i32) * 0.97f64.powi(lost as i32);
        let staged = (limits.stage as f64 * self.worker * factor).min(self.memory * factor);
        let rate = staged.min(self.link * self.short.powi(limits.halved as i32));
        (rate, rate / staged)
    }

    /// Returns the best rate, and the fewest workers that reach 0.97 of it with any chunks.
    fn best(&self) -> (f64, usize) {
        let all = || {
            (1..=self.size.most).flat_map(|workers| {
                (0..=self.size.halvings).map(move |halved| Limits {
                    compute: 0,
                    stage: workers * self.size.gpus,
                    halved,
                })
            })
        };
        let best = all().map(|limits| self.rate(limits).0).fold(0.0, f64::max);
        let enough = all().filter(|limits| self.rate(*limits).0 >= 0.97 * best);
        (best, enough.map(|limits| limits.stage).min().expect("one is the best"))
    }
}

/// Runs a job of so many rows. The host becomes the second one when half of the rows are finished. Returns the mean
/// rate and the mean number of workers of both halves, without the first third of each.
fn run(hosts: [Host; 2], rows: f64, crew: &mut Crew, random: &mut Random) -> [(f64, f64); 2] {
    let (mut now, mut done) = (0.0, 0.0);
    let mut halves = [(0.0, 0.0, 0.0); 2];
    while done < rows {
        let half = usize::from(done > rows / 2.0);
        let host = hosts[half];
        let limits = crew.limits();
        let (rate, load) = host.rate(limits);
        let chunk = host.chunk / f64::from(1 << limits.halved);
        let seconds = chunk / rate * (0.7 + 0.6 * random.unit());
        now += seconds;
        done += chunk;
        if done / rows - half as f64 / 2.0 > 1.0 / 6.0 {
            let (all_rows, all_seconds, workers) = &mut halves[half];
            (*all_rows, *all_seconds) = (*all_rows + chunk, *all_seconds + seconds);
            *workers += seconds * limits.stage as f64;
        }
        let busy = Duration::from_secs_f64(load * limits.stage as f64 * seconds);
        crew.staged(chunk as u64, busy, Duration::from_secs_f64(now));
    }
    halves.map(|(rows, seconds, workers)| (rows / seconds, workers / seconds))
}

#[test]
fn the_crew_reaches_the_best_rate_with_few_workers() {
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
    for seed in 0..2000 {
        let random = &mut Random::new(seed);
        let host = Host::random(random);
        let rows = 40e9;
        let [_, (rate, workers)] = run([host; 2], rows, &mut Crew::new(host.size, rows as u64, None), random);
        let (best, fewest) = host.best();
        rates.push(rate / best);
        // A single worker more is a large fraction of few.
        costs.push((workers - host.size.gpus as f64) / (fewest.max(LEAST_WORKERS * host.size.gpus)) as f64);
    }
    let (rates, costs) = (sorted(rates.into_iter()), sorted(costs.into_iter()));
    let at = |sorted: &[f64], fraction: f64| sorted[(fraction * sorted.len() as f64) as usize];
    assert!(
        rates[0] > 0.93 && at(&rates, 0.05) > 0.95 && at(&rates, 0.5) > 0.98,
        "{:?} {}",
        &rates[..50],
        at(&rates, 0.5)
    );
    assert!(at(&costs, 0.5) < 1.2 && at(&costs, 0.95) < 1.5, "{} {}", at(&costs, 0.5), at(&costs, 0.95));
}

#[test]
fn the_crew_follows_a_change() {
    for seed in 0..500 {
        let random = &mut Random::new(seed);
        let before = Host::random(random);
        // Another program takes a part of the cores or of the link.
        let part = random.scale(0.4, 2.0);
        let after = match random.below(2) {
            0 => Host { worker: before.worker * part, memory: before.memory * part, ..before },
            _ => Host { link: before.link * part, ..before },
        };
        let rows = 80e9;
        let [_, (rate, _)] = run([before, after], rows, &mut Crew::new(before.size, rows as u64, None), random);
        let (best, _) = after.best();
        assert!(rate > 0.88 * best, "{rate} of {best}: {before:?}, then {after:?}");
    }
}

#[test]
fn a_run_that_knows_the_limits_begins_with_them() {
    let size = CrewSize { gpus: 2, first: 3, most: 8, halvings: 1 };
    let limits = |stage, halved| Limits { compute: 0, stage, halved };
    assert_eq!(Crew::new(size, 1, None).limits(), limits(6, 0));
    assert_eq!(Crew::new(size, 1, None).found(), None, "nothing was measured");
    assert_eq!(Crew::new(size, 1, Some(limits(10, 1))).limits(), limits(10, 1));
    for unfit in [limits(18, 0), limits(0, 0), limits(4, 2)] {
        assert_eq!(Crew::new(size, 1, Some(unfit)).limits(), limits(6, 0));
    }
}

#[test]
fn a_short_run_is_left_alone() {
    let host = Host::random(&mut Random::new(1));
    let mut crew = Crew::new(CrewSize { first: 5, most: 12, ..host.size }, 1000, None);
    let before = crew.limits();
    // Six windows.
    for k in 1..=100 {
        crew.staged(10, Duration::ZERO, Duration::from_millis(k));
        assert_eq!(crew.limits(), before);
    }
    assert!(crew.found().is_some(), "the rate was measured");
}
