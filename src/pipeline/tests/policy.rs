//! Runs the policy in virtual time against a model of a host whose cores share the memory bandwidth and a link.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::super::random::{Random, sorted};
use super::super::trials::Trials;
use super::*;

/// A host with a device and a job. Rates count rows, bandwidths bytes per second of memory.
#[derive(Clone, Debug)]
struct Host {
    cores: usize,
    stagers: usize,
    bandwidth: f64,
    core_bandwidth: f64,
    /// Seconds of arithmetic and bytes of memory for a row: computed, and staged.
    work: [(f64, f64); 2],
    /// Rows per second of the device.
    device: f64,
    /// Rows of a chunk: computed, and staged.
    chunk: [f64; 2],
}

impl Host {
    /// Draws a host.
    fn random(random: &mut Random) -> Host {
        let cores = [2, 4, 8, 16, 16, 32, 64][random.below(7)];
        let bandwidth = random.scale(20e9, 400e9);
        let bytes = random.scale(8.0, 32.0);
        let rows = (1 << 20) as f64 / bytes;
        Host {
            cores,
            stagers: ((cores as f64 * random.scale(0.2, 0.9)) as usize).clamp(2, 16),
            bandwidth,
            core_bandwidth: (bandwidth / cores as f64 * random.scale(1.0, 6.0)).min(30e9),
            work: [
                (random.scale(1e-10, 2e-8), bytes),
                (random.scale(5e-10, 2e-9) * bytes / 8.0, bytes * random.scale(0.7, 2.5)),
            ],
            device: random.scale(5e8, 2e10) * 8.0 / bytes,
            chunk: [rows, rows * random.scale(0.5, 3.0)],
        }
    }

    /// Returns the seconds per row of each side if so many cores are active on each. If they need more than the
    /// memory's bandwidth, all accesses take longer by the same factor.
    fn seconds(&self, active: [usize; 2]) -> [f64; 2] {
        // The submitter polls, which keeps a core busy.
        let submitter = usize::from(active[1] > 0);
        let crowd = ((active[0] + active[1] + submitter) as f64 / self.cores as f64).max(1.0);
        let at = |factor: f64| self.work.map(|(cpu, bytes)| crowd * (cpu + bytes / self.core_bandwidth * factor));
        let fits = |factor: f64| {
            let [compute, stage] = at(factor);
            let [computed, staged] = [active[0] as f64 / compute, active[1] as f64 / stage];
            computed * self.work[0].1 + staged * self.work[1].1 <= self.bandwidth
        };
        if fits(1.0) {
            return at(1.0);
        }
        let (mut low, mut high) = (1.0f64, 1e5f64);
        for _ in 0..32 {
            let middle = (low * high).sqrt();
            *(if fits(middle) { &mut high } else { &mut low }) = middle;
        }
        at(high)
    }
}

/// Who sets the limits of a run.
enum Control {
    Fixed(Limits),
    Policy(Box<Policy>),
}

impl Control {
    fn limits(&self) -> Limits {
        match self {
            Control::Fixed(limits) => *limits,
            Control::Policy(policy) => policy.limits(),
        }
    }

    fn begin(&mut self, now: f64) {
        if let Control::Policy(policy) = self {
            policy.begin(Duration::from_secs_f64(now));
        }
    }

    fn filled(&mut self, rows: f64, busy: f64, now: f64) {
        if let Control::Policy(policy) = self {
            policy.filled(rows as u64, Duration::from_secs_f64(busy), Duration::from_secs_f64(now));
        }
    }

    fn computed(&mut self, rows: f64, begun: f64, now: f64) {
        if let Control::Policy(policy) = self {
            let [begun, now] = [begun, now].map(Duration::from_secs_f64);
            policy.computed(rows as u64, now.saturating_sub(begun), begun, now);
        }
    }

    fn staged(&mut self, rows: f64, busy: f64, now: f64) {
        if let Control::Policy(policy) = self {
            policy.staged(rows as u64, Duration::from_secs_f64(busy), Duration::from_secs_f64(now));
        }
    }
}

/// How many times as long the first chunk of a staging worker takes.
const COLD: f64 = 2.5;

/// A staging worker with two slots.
#[derive(Default)]
struct Stager {
    in_use: usize,
    is_warm: bool,
    /// When each chunk is back, and the time that filling took.
    in_flight: VecDeque<(f64, f64)>,
    stages: bool,
    is_active: bool,
}

#[derive(Clone, Copy)]
enum Event {
    Computed {
        begun: f64,
    },
    Filled {
        stager: usize,
        begun: f64,
    },
    Back,
    /// `busy` is the time of a core for filling and draining.
    Drained {
        stager: usize,
        busy: f64,
    },
}

/// When chunks were finished, and their rows.
type Log = Vec<(f64, f64)>;

/// Runs a job of so many rows. The host becomes the second one when half of the rows are finished.
fn run(hosts: [&Host; 2], rows: f64, control: &mut Control, random: &mut Random) -> Log {
    let mut host = hosts[0];
    let mut stagers: Vec<Stager> = (0..host.stagers).map(|_| Stager::default()).collect();
    let (mut now, mut left, mut done, mut device_free) = (0.0f64, rows, 0.0, 0.0f64);
    let (mut active, mut staging) = ([0, 0], 0);
    let (mut events, mut order, mut log) = (BinaryHeap::new(), Vec::new(), Log::new());
    loop {
        let limits = control.limits();
        let mut after = |events: &mut BinaryHeap<_>, seconds: f64, event: Event| {
            events.push(Reverse(((now + seconds).to_bits(), order.len())));
            order.push(event);
        };
        // The time of a chunk varies by 30 %.
        let mut takes = |active: [usize; 2], side: usize, rows: f64| {
            host.seconds(active)[side] * rows * (0.7 + 0.6 * random.unit())
        };
        while active[0] < limits.compute && left > 0.0 {
            left -= host.chunk[0];
            active[0] += 1;
            control.begin(now);
            let seconds = takes(active, COMPUTED, host.chunk[0]);
            after(&mut events, seconds, Event::Computed { begun: now });
        }
        for (k, stager) in stagers.iter_mut().enumerate().filter(|(_, stager)| !stager.is_active) {
            if stager.stages && staging > limits.stage && stager.in_flight.is_empty() {
                stager.stages = false;
                staging -= 1;
            }
            let may_stage = if stager.stages { staging <= limits.stage } else { staging < limits.stage };
            if stager.in_use < 2 && may_stage && left > 0.0 {
                staging += usize::from(!stager.stages);
                left -= host.chunk[1];
                (stager.stages, stager.is_active) = (true, true);
                stager.in_use += 1;
                active[1] += 1;
                let cold = if stager.is_warm { 1.0 } else { COLD };
                stager.is_warm = true;
                let seconds = cold * takes(active, STAGED, host.chunk[1] / 2.0);
                after(&mut events, seconds, Event::Filled { stager: k, begun: now });
            } else if stager.in_flight.front().is_some_and(|(back, ..)| *back <= now)
                && let Some((_, filling)) = stager.in_flight.pop_front()
            {
                stager.is_active = true;
                active[1] += 1;
                let seconds = takes(active, STAGED, host.chunk[1] / 2.0);
                after(&mut events, seconds, Event::Drained { stager: k, busy: filling + seconds });
            }
        }
        let Some(Reverse((bits, event))) = events.pop() else { return log };
        now = f64::from_bits(bits);
        let finished = match order[event] {
            Event::Computed { begun } => {
                active[0] -= 1;
                control.computed(host.chunk[0], begun, now);
                host.chunk[0]
            }
            Event::Filled { stager, begun } => {
                active[1] -= 1;
                stagers[stager].is_active = false;
                device_free = device_free.max(now) + host.chunk[1] / host.device;
                stagers[stager].in_flight.push_back((device_free, now - begun));
                control.filled(host.chunk[1], now - begun, now);
                events.push(Reverse((device_free.to_bits(), order.len())));
                order.push(Event::Back);
                0.0
            }
            Event::Back => 0.0,
            Event::Drained { stager, busy } => {
                active[1] -= 1;
                stagers[stager].is_active = false;
                stagers[stager].in_use -= 1;
                control.staged(host.chunk[1], busy, now);
                host.chunk[1]
            }
        };
        if finished > 0.0 {
            done += finished;
            log.push((now, finished));
            host = hosts[usize::from(done > rows / 2.0)];
        }
    }
}

/// Returns the time when this fraction of the rows was finished.
fn time_of(log: &Log, fraction: f64) -> f64 {
    let all: f64 = log.iter().map(|(_, rows)| rows).sum();
    let mut done = 0.0;
    let is_after = |(_, rows): &&(f64, f64)| {
        done += rows;
        done >= fraction * all
    };
    log.iter().find(is_after).map_or(0.0, |(time, _)| *time)
}

/// Returns the rows per second between two times.
fn rate(log: &Log, from: f64, to: f64) -> f64 {
    let rows: f64 = log.iter().filter(|(time, _)| (from..to).contains(time)).map(|(_, rows)| rows).sum();
    rows / (to - from)
}

/// Returns the rows per second with the best fixed limits.
fn best(host: &Host) -> f64 {
    let fixed = |limits: Limits, chunks: usize| {
        let rows = host.chunk[0] * chunks as f64;
        let log = run([host; 2], rows, &mut Control::Fixed(limits), &mut Random::new(7));
        rate(&log, time_of(&log, 0.15), time_of(&log, 0.85))
    };
    let chunks = 25 * host.cores.max(12);
    let steps = |most: usize| {
        let mut steps: Vec<usize> = (0..=4).map(|k| k * most / 4).chain([1, most - 1]).collect();
        steps.sort_unstable();
        steps.dedup();
        steps
    };
    let all = steps(host.cores)
        .into_iter()
        .flat_map(|compute| steps(host.stagers).into_iter().map(move |stage| Limits::of(compute, stage)));
    let rates = all.filter(|limits| limits.compute + limits.stage > 0).map(|limits| (fixed(limits, chunks), limits));
    let (_, limits) = rates.max_by(|a, b| a.0.total_cmp(&b.0)).expect("there are limits");
    // The best of many is a lucky one, so it runs again.
    fixed(limits, 4 * chunks)
}

/// The number of hosts, of which some tests take a part. Every host draws from its own seed.
fn hosts() -> u64 {
    std::env::var("OVERSHOT_HOSTS").map_or(300, |hosts| hosts.parse().expect("OVERSHOT_HOSTS is a number"))
}

fn policy(host: &Host, rows: f64, known: Option<Limits>) -> Control {
    Control::Policy(Box::new(Policy::new(host.cores, host.stagers, rows as u64, known)))
}

/// Runs a job of so many chunks on random hosts, whose devices are so many times as slow, with chunks that are up to so
/// many times as large. Returns the rates after the first 5 % of the rows, as parts of those with the best fixed
/// limits, in ascending order.
fn ratios(hosts: u64, chunks: f64, slow: f64, large: f64) -> Vec<f64> {
    sorted((0..hosts).map(|seed| {
        let random = &mut Random::new(seed);
        let mut host = Host::random(random);
        host.device /= slow;
        host.chunk[1] *= random.scale(1.0, large);
        let rows = chunks * host.chunk[0];
        let log = run([&host; 2], rows, &mut policy(&host, rows, None), random);
        rate(&log, time_of(&log, 0.05), time_of(&log, 0.97)) / best(&host)
    }))
}

/// Prints how good the policy was, for documents, and returns on how many hosts it was not.
fn under(ratios: &[f64]) -> usize {
    let under = ratios.iter().filter(|ratio| **ratio < 0.95).count();
    println!("{} hosts, the worst {:.3}, {under} of them under 0.95", ratios.len(), ratios[0]);
    under
}

/// A job of 64 GB, which takes 0.4 to 8 seconds.
#[test]
fn the_policy_finds_nearly_the_best_limits() {
    let ratios = ratios(hosts() / 3, 64_000.0, 1.0, 1.0);
    // On the worst host, fewer staging workers than all are best, and each step towards them gains less than a try can
    // tell.
    let under = under(&ratios) as f64 / ratios.len() as f64;
    assert!(ratios[0] > 0.92 && under < 0.003, "{ratios:?}");
    assert!(ratios[ratios.len() / 2] > 0.99, "{ratios:?}");
}

/// A job of 8 GB, which takes 0.05 to 1 second. It has time for few tries, so later jobs begin with what it found.
#[test]
fn a_short_job_has_good_limits() {
    let ratios = ratios(hosts(), 8000.0, 1.0, 1.0);
    let quantile = |fraction: f64| ratios[(fraction * ratios.len() as f64) as usize];
    // The worst are hosts whose memory bounds both sides and on which a staged row takes less of it than a computed
    // one.
    assert!(ratios[0] > 0.84 && quantile(0.01) > 0.9 && quantile(0.05) > 0.95 && quantile(0.5) > 0.99, "{ratios:?}");
}

/// As in arithmetic of `f64` on a GPU that is made for `f32`. On the worst hosts, of two to eight cores, half of the
/// cores or more are lost until the first chunks are back.
#[test]
fn a_slow_device_costs_little() {
    for (slow, worst, most) in [(10.0, 0.94, 0.96), (100.0, 0.88, 0.94)] {
        let ratios = ratios(hosts() / 4, 64_000.0, slow, 1.0);
        under(&ratios);
        assert!(ratios[0] > worst && ratios[ratios.len() / 20] > most, "{slow}: {ratios:?}");
    }
}

/// The slots of a GPU hold up to nine times the rows that a core computes at a time. They may take longer than a window
/// to come back, and fewer of them do in each.
#[test]
fn large_chunks_of_a_device_cost_little() {
    for (chunks, worst, most) in [(8000.0, 0.82, 0.94), (64_000.0, 0.92, 0.97)] {
        let ratios = ratios(hosts() / 3, chunks, 1.0, 3.0);
        under(&ratios);
        assert!(ratios[0] > worst && ratios[ratios.len() / 20] > most, "{chunks}: {ratios:?}");
    }
}

/// One of 16 cores with a GPU, on which staging alone is 1.7 times as fast as computing alone. A slot holds six times
/// as many rows as a core computes at a time, so few of them are back when all cores could have computed many chunks.
#[test]
fn a_device_with_large_chunks_is_not_given_up() {
    let host = Host {
        cores: 16,
        stagers: 14,
        bandwidth: 120e9,
        core_bandwidth: 10e9,
        work: [(6e-9, 24.0), (1.5e-9, 24.0)],
        device: 3.2e9,
        chunk: [43_700.0, 262_000.0],
    };
    let rows = (1_u64 << 29) as f64;
    let whole =
        |control: &mut Control, seed: u64| rows / time_of(&run([&host; 2], rows, control, &mut Random::new(seed)), 1.0);
    let staging = whole(&mut Control::Fixed(Limits::of(0, host.stagers)), 0);
    let ratios = sorted((0..hosts() / 3).map(|seed| whole(&mut policy(&host, rows, None), seed) / staging));
    assert!(ratios[0] > 0.95 && ratios[ratios.len() / 2] > 1.03, "{ratios:?}");
}

#[test]
fn a_run_that_knows_the_limits_begins_with_them() {
    let mut unclear = 0;
    for seed in 0..hosts() / 4 {
        let random = &mut Random::new(seed);
        let host = Host::random(random);
        let rows = 8000.0 * host.chunk[0];
        let mut first = policy(&host, rows, None);
        run([&host; 2], rows, &mut first, random);
        let Control::Policy(first) = first else { unreachable!() };
        for found in first.found() {
            let next = Policy::new(host.cores, host.stagers, 1, Some(found));
            assert_eq!((next.limits(), next.found()), (found, vec![found]));
        }
        // Computing alone was better, but not clearly, so what was found for both sides is compared.
        unclear += usize::from(first.found().len() > 1);
    }
    assert!(unclear > 0);
    // Limits of another machine are not used.
    let other = Limits::of(100, 1);
    assert_ne!(Policy::new(8, 4, 1, Some(other)).limits(), other);
}

/// Runs of about a tenth of a second, one after the other.
#[test]
fn later_runs_are_nearly_as_fast_as_the_best() {
    let (mut later, mut early) = (Vec::new(), Vec::new());
    for seed in 0..hosts() / 3 {
        let random = &mut Random::new(seed);
        let host = Host::random(random);
        let most = Limits::of(host.cores, host.stagers);
        let rows = 60.0 * host.cores.max(12) as f64 * host.chunk[0];
        let whole = |control: &mut Control, random: &mut Random| {
            let log = run([&host; 2], rows, control, random);
            rows / time_of(&log, 1.0)
        };
        let mut alone = |limits: Limits| median((0..5).map(|_| whole(&mut Control::Fixed(limits), random)).collect());
        let better = alone(Limits::of(host.cores, 0)).max(alone(Limits::of(0, host.stagers)));
        let mut trials = Trials::default();
        let mut rates = Vec::new();
        for _ in 0..20 {
            let known = trials.next(most);
            let policy = Policy::new(host.cores, host.stagers, rows as u64, known).rather(trials.fastest());
            let mut control = Control::Policy(Box::new(policy));
            let rate = whole(&mut control, random);
            let Control::Policy(policy) = control else { unreachable!() };
            trials.record(known, &policy.found(), policy.given_up().unwrap_or(rate));
            rates.push(rate / better);
        }
        later.push(median(rates.split_off(8)));
        early.extend(rates);
    }
    let quantile = |ratios: &[f64], fraction: f64| ratios[(fraction * ratios.len() as f64) as usize];
    let (later, early) = (sorted(later.into_iter()), sorted(early.into_iter()));
    // They try limits that may be far slower, and give them up.
    let at = [0.05, 0.1].map(|fraction| quantile(&early, fraction));
    assert!(at[0] > 0.55 && at[1] > 0.72, "{at:?}");
    assert!(later[0] > 0.97 && quantile(&later, 0.5) > 0.995 && quantile(&later, 0.9) > 1.1, "{later:?}");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn the_policy_follows_changes() {
    let ratios = sorted((0..hosts() / 2).map(|seed| {
        let random = &mut Random::new(seed);
        let host = Host::random(random);
        let mut later = host.clone();
        match seed % 3 {
            0 => later.bandwidth /= 2.0,
            1 => later.device /= 2.0,
            _ => later.work = later.work.map(|(cpu, bytes)| (2.0 * cpu, bytes)),
        }
        let rows = 32_000.0 * host.chunk[0];
        let log = run([&host, &later], rows, &mut policy(&host, rows, None), random);
        // A tenth of a second after the change.
        let from = (time_of(&log, 0.5) + 0.1).min(time_of(&log, 0.75));
        rate(&log, from, time_of(&log, 0.97)) / best(&later)
    }));
    assert!(ratios[0] > 0.8 && ratios[ratios.len() / 20] > 0.92, "{ratios:?}");
}

#[test]
fn a_short_job_stays_with_the_probe() {
    let mut policy = Policy::new(16, 6, 1_000_000, None);
    for chunk in 0..20 {
        let [begun, now] = [chunk, chunk + 1].map(Duration::from_millis);
        policy.begin(begun);
        policy.computed(1000, now - begun, begun, now);
    }
    assert_eq!(policy.limits(), Limits::of(15, 1));
}

#[test]
fn fills_alone_tell_that_computing_is_better() {
    let mut policy = Policy::new(4, 2, 1_000_000, None);
    let ms = Duration::from_millis;
    for chunk in 0..3 {
        policy.begin(ms(chunk));
        policy.computed(1000, ms(1), ms(chunk), ms(chunk + 1));
        assert_eq!(policy.limits(), Limits::of(3, 1));
        policy.filled(1000, ms(2), ms(chunk + 1));
    }
    assert_eq!((policy.limits(), policy.found()), (Limits::of(4, 0), vec![policy.limits()]));
}

#[test]
fn staging_takes_the_cores_that_it_keeps_busy() {
    let mut policy = Policy::new(8, 4, 1_000_000_000, None);
    let us = Duration::from_micros;
    for _ in 0..4 {
        policy.begin(us(0));
        policy.computed(1000, us(1000), us(0), us(1000));
    }
    // The first chunk takes long and does not count.
    policy.filled(1000, us(2000), us(1000));
    policy.staged(1000, us(4000), us(1000));
    for _ in 0..2 {
        policy.filled(1000, us(400), us(1000));
        policy.staged(1000, us(800), us(1000));
    }
    // All four staging workers may be busy, and the submitter.
    assert_eq!(policy.limits(), Limits::of(8 - 4 - 1, 4));
    // Eight chunks in two milliseconds keep two cores busy.
    for chunk in 1..=8 {
        policy.staged(1000, us(500), us(1000 + 250 * chunk));
    }
    assert_eq!(policy.limits(), Limits::of(8 - 2 - 1, 4));
}

/// Lets a policy measure so many windows of ten milliseconds, in which so many chunks of 1000 rows are finished.
fn windows(policy: &mut Policy, from: u64, count: u64, chunks: u64) {
    let us = Duration::from_micros;
    for window in from..from + count {
        for chunk in 1..=chunks {
            let now = us(10_000 * window + 10_000 * chunk / chunks);
            match policy.limits().stage {
                0 => {
                    policy.begin(now - us(10));
                    policy.computed(1000, us(10), now - us(10), now);
                }
                _ => policy.staged(1000, us(10), now),
            }
        }
    }
}

/// A policy with eight cores and four staging workers, and the time so far in microseconds.
struct Told {
    policy: Policy,
    now: u64,
}

impl Told {
    fn new(known: Limits) -> Told {
        Told { policy: Policy::new(8, 4, 1_000_000_000, Some(known)), now: 0 }
    }

    /// Computes a chunk of 1000 rows in this time.
    fn compute(&mut self, time: u64) {
        let us = Duration::from_micros;
        self.policy.begin(us(self.now));
        self.policy.computed(1000, us(time), us(self.now), us(self.now + time));
        self.now += time;
    }

    /// Fills so many slots of so many rows.
    fn fill(&mut self, slots: u64, rows: u64) {
        for _ in 0..slots {
            self.now += 1;
            self.policy.filled(rows, Duration::from_micros(100), Duration::from_micros(self.now));
        }
    }

    /// So many slots of so many rows come back.
    fn drain(&mut self, slots: u64, rows: u64) {
        for _ in 0..slots {
            self.now += 1;
            self.policy.staged(rows, Duration::from_micros(100), Duration::from_micros(self.now));
        }
    }

    /// Computes a chunk in every tenth of a millisecond until other limits are tried. A window takes 8 ms.
    fn compute_until_a_try(&mut self) {
        let kept = self.policy.limits();
        while self.policy.limits() == kept {
            if kept.stage > 0 && self.now % 1600 < 100 {
                self.fill(1, 1000);
                self.drain(1, 1000);
            }
            self.compute(100);
        }
    }

    fn measures(&self) -> bool {
        self.policy.before.is_none()
    }

    /// Computes a chunk in this time, again and again, until a window begins. Returns how many.
    fn computed_before_a_window(&mut self, time: u64) -> usize {
        let mut computed = 0;
        while !self.measures() {
            self.compute(time);
            computed += 1;
        }
        computed
    }
}

#[test]
fn a_window_waits_for_the_first_slots_if_they_can_make_up_for_the_time() {
    // All eight cores compute. Then four workers stage, too, and a chunk takes seven times as long.
    let computed = |slots, rows| {
        let mut told = Told::new(Limits::of(8, 0));
        told.compute_until_a_try();
        assert_eq!(told.policy.limits(), Limits::of(8, 4));
        told.fill(slots, rows);
        told.computed_before_a_window(700)
    };
    // One slot is still being filled: for two windows at most, of which each has nearly twelve chunks.
    assert_eq!(computed(3, 1), 23);
    // All are filled, but even with their rows the rate is lower than before.
    assert_eq!(computed(4, 1), 12);
    // It is higher, once they are back.
    assert_eq!(computed(4, 1_000_000), 23);
}

#[test]
fn a_window_does_not_count_slots_of_those_that_have_left() {
    let mut told = Told::new(Limits::of(3, 4));
    // Slots that the device has all the time.
    told.fill(8, 20_000);
    told.compute_until_a_try();
    assert_eq!(told.policy.limits(), Limits::of(8, 0));
    // Enough chunks for a window, but the slots would count in it.
    (0..16).for_each(|_| told.compute(100));
    told.drain(7, 20_000);
    assert!(!told.measures());
    told.drain(1, 20_000);
    assert!(told.measures());
    // The device never sends them back: two windows, and no more.
    let mut lost = Told::new(Limits::of(3, 4));
    lost.fill(8, 20_000);
    lost.compute_until_a_try();
    assert!((150..170).contains(&lost.computed_before_a_window(100)));
}

#[test]
fn a_try_is_not_given_up_before_the_first_slots_could_be_back() {
    // A window in which a chunk takes four times as long as before, while the device has so many rows. Returns whether
    // the try goes on for half of a window.
    let goes_on = |rows| {
        let mut told = Told::new(Limits::of(8, 0));
        told.compute_until_a_try();
        told.fill(4, 1);
        told.drain(4, 1);
        told.computed_before_a_window(100);
        let tried = told.policy.limits();
        told.fill(4, rows);
        (0..10).for_each(|_| told.compute(400));
        told.policy.limits() == tried
    };
    assert!(!goes_on(1));
    assert!(goes_on(10_000));
}

#[test]
fn a_run_gives_up_limits_that_are_far_slower_than_the_fastest() {
    let (alone, staging) = (Limits::of(8, 0), Limits::of(0, 4));
    // 100 chunks in ten milliseconds.
    let policy = |known, fastest| Policy::new(8, 4, 1_000_000_000, Some(known)).rather(Some((fastest, 1e7)));
    for (known, fastest, hopeless) in [(alone, staging, 1), (staging, alone, 3)] {
        // The first window never counts.
        let mut slow = policy(known, fastest);
        windows(&mut slow, 0, hopeless, 70);
        assert_eq!((slow.limits(), slow.given_up()), (known, None));
        windows(&mut slow, hopeless, 2, 70);
        assert_eq!(slow.limits(), fastest);
        let rate = slow.given_up().expect("the run gave them up");
        assert!((rate - 0.7e7).abs() < 0.05e7, "{rate}");

        let mut fast = policy(known, fastest);
        windows(&mut fast, 0, 6, 90);
        assert_eq!((fast.limits(), fast.given_up()), (known, None));
        // What is slow only later is not given up, but tried against others.
        windows(&mut fast, 6, 1, 70);
        assert_eq!((fast.limits(), fast.given_up()), (known, None));
    }
    // The run that begins with the fastest limits has none to go on with, and neither has a run that probes.
    let mut own = policy(staging, staging);
    windows(&mut own, 0, 4, 50);
    assert_eq!(own.given_up(), None);
    assert!(Policy::new(8, 4, 1_000_000_000, None).rather(Some((staging, 1e7))).fastest.is_none());
    // Those of another machine do not fit.
    assert!(policy(staging, Limits::of(16, 0)).fastest.is_none());
}

#[test]
fn the_first_window_of_a_run_does_not_count() {
    let known = Limits::of(4, 4);
    let mut policy = Policy::new(8, 4, 1_000_000_000, Some(known));
    // Windows of ten milliseconds with 100 chunks; the first one has half as many rows.
    for window in 0..8 {
        for chunk in 1..=100 {
            let rows = if window == 0 { 500 } else { 1000 };
            policy.staged(rows, Duration::from_micros(100), Duration::from_micros(10_000 * window + 100 * chunk));
        }
        assert_eq!(policy.limits(), known, "it does not probe again in window {window}");
    }
}
