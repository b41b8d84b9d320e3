//! Rates: single ones, by size and by threads.

use serde::{Deserialize, Serialize};

/// A measured rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Rate {
    /// Bytes per second, in the best of several runs.
    pub bytes_per_second: f64,
    /// How much slower the slowest run was, as a fraction of the best: 0 if all runs were equally fast, 0.25 if the
    /// slowest reached three quarters of the best.
    pub spread: f64,
}

impl Rate {
    /// Returns the rate of a measurement, from the rates of its runs.
    pub(super) fn of_runs(runs: &[f64]) -> Rate {
        let best = runs.iter().copied().fold(0.0, f64::max);
        let slowest = runs.iter().copied().fold(best, f64::min);
        let spread = if best > 0.0 { ((best - slowest) / best).clamp(0.0, 1.0) } else { 0.0 };
        Rate { bytes_per_second: best, spread }
    }
}

/// The rate that a number of threads reach together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RateByThreads {
    /// The number of threads.
    pub threads: usize,
    /// Bytes per second of all threads together, in the best of several runs.
    pub bytes_per_second: f64,
    /// How much slower the slowest run was, as in [`Rate::spread`].
    pub spread: f64,
}

impl RateByThreads {
    pub(super) fn new(threads: usize, Rate { bytes_per_second, spread }: Rate) -> RateByThreads {
        RateByThreads { threads, bytes_per_second, spread }
    }

    /// Returns the rate without the number of threads.
    pub fn rate(&self) -> Rate {
        Rate { bytes_per_second: self.bytes_per_second, spread: self.spread }
    }

    /// Returns the highest rate; `None` if the list is empty.
    pub fn best(rates: &[RateByThreads]) -> Option<RateByThreads> {
        rates.iter().copied().max_by(|a, b| a.bytes_per_second.total_cmp(&b.bytes_per_second))
    }

    /// Returns the rate for this number of threads. Interpolates linearly between measured numbers of threads, and
    /// uses the nearest one outside of their range. The list must be in ascending order of threads.
    pub fn with(rates: &[RateByThreads], threads: usize) -> Option<f64> {
        let (below, above) = neighbours(rates, |rate| rate.threads <= threads)?;
        if above.threads == below.threads {
            return Some(below.bytes_per_second);
        }
        let share = (threads as f64 - below.threads as f64) / (above.threads - below.threads) as f64;
        let share = share.clamp(0.0, 1.0);
        Some(below.bytes_per_second + share * (above.bytes_per_second - below.bytes_per_second))
    }

    /// Returns the smallest number of threads that reaches a rate; `None` if there is none. The list must be in
    /// ascending order of threads.
    pub fn fewest_threads(rates: &[RateByThreads], bytes_per_second: f64) -> Option<usize> {
        let most = rates.last()?.threads;
        (1..=most).find(|&threads| RateByThreads::with(rates, threads).is_some_and(|rate| rate >= bytes_per_second))
    }
}

/// The rate of copies of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RateBySize {
    /// Bytes of one copy.
    pub bytes: u64,
    /// Bytes per second, in the best of several runs.
    pub bytes_per_second: f64,
    /// How much slower the slowest run was, as in [`Rate::spread`].
    pub spread: f64,
}

impl RateBySize {
    pub(super) fn new(bytes: u64, Rate { bytes_per_second, spread }: Rate) -> RateBySize {
        RateBySize { bytes, bytes_per_second, spread }
    }

    /// Returns the rate without the size.
    pub fn rate(&self) -> Rate {
        Rate { bytes_per_second: self.bytes_per_second, spread: self.spread }
    }

    /// Returns the size with the highest rate; `None` if the list is empty.
    pub fn best(sizes: &[RateBySize]) -> Option<RateBySize> {
        sizes.iter().copied().max_by(|a, b| a.bytes_per_second.total_cmp(&b.bytes_per_second))
    }

    /// Returns the rate of copies of `bytes`. A copy takes a fixed time plus a time per byte, so the *time* is
    /// interpolated linearly between measured sizes. Below the smallest size, the line of the first two sizes is
    /// extended; above the largest, the rate of the largest is used. The list must be in ascending order of bytes.
    pub fn rate_at(sizes: &[RateBySize], bytes: u64) -> Option<f64> {
        let bytes = bytes.max(1);
        let (below, above) = neighbours(sizes, |size| size.bytes <= bytes)?;
        if bytes >= above.bytes {
            return Some(above.bytes_per_second);
        }
        let slope = (above.seconds() - below.seconds()) / (above.bytes as f64 - below.bytes as f64);
        let seconds = below.seconds() + slope * (bytes as f64 - below.bytes as f64);
        // Noise can make the line cross zero. So the rate is bounded by the higher rate of the two sizes.
        let seconds = seconds.max(bytes as f64 / below.bytes_per_second.max(above.bytes_per_second));
        Some(bytes as f64 / seconds)
    }

    /// Seconds for one copy.
    fn seconds(&self) -> f64 {
        self.bytes as f64 / self.bytes_per_second
    }
}

/// Returns the two entries around a value, or the nearest two; the same entry twice if there is only one.
fn neighbours<T: Copy>(list: &[T], is_below: impl Fn(&T) -> bool) -> Option<(T, T)> {
    let (first, last) = (0, list.len().checked_sub(1)?);
    let below = list.partition_point(is_below).saturating_sub(1).clamp(first, last.saturating_sub(1));
    Some((list[below], list[(below + 1).min(last)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(pairs: &[(u64, f64)]) -> Vec<RateBySize> {
        pairs.iter().map(|&(bytes, rate)| RateBySize::new(bytes, Rate::of_runs(&[rate]))).collect()
    }

    fn rates(pairs: &[(usize, f64)]) -> Vec<RateByThreads> {
        pairs.iter().map(|&(threads, rate)| RateByThreads::new(threads, Rate::of_runs(&[rate]))).collect()
    }

    /// A link with 10 µs for a copy and 1 GB/s.
    fn link(bytes: u64) -> (u64, f64) {
        (bytes, bytes as f64 / (10e-6 + bytes as f64 / 1e9))
    }

    #[test]
    fn the_spread_is_that_of_the_slowest_run() {
        for (runs, best, spread) in [(&[][..], 0.0, 0.0), (&[5.0], 5.0, 0.0), (&[6.0, 8.0, 7.0], 8.0, 0.25)] {
            assert_eq!(Rate::of_runs(runs), Rate { bytes_per_second: best, spread }, "{runs:?}");
        }
    }

    #[test]
    fn the_time_of_a_copy_is_on_a_line() {
        let measured = sizes(&[link(1000), link(8000), link(64_000)]);
        for bytes in [1, 500, 1000, 3000, 8000, 20_000, 64_000] {
            let rate = RateBySize::rate_at(&measured, bytes).unwrap();
            assert!((rate / link(bytes).1 - 1.0).abs() < 1e-9, "{bytes} bytes: {rate}");
        }
        assert_eq!(RateBySize::rate_at(&measured, 1 << 40), Some(link(64_000).1));
        assert_eq!(RateBySize::best(&measured).unwrap().bytes, 64_000);
    }

    #[test]
    fn noise_and_short_lists_give_a_rate_of_the_list() {
        assert_eq!(RateBySize::rate_at(&[], 1), None);
        assert_eq!(RateBySize::best(&[]), None);
        assert_eq!(RateBySize::rate_at(&sizes(&[(100, 5.0)]), 7), Some(5.0));
        assert_eq!(RateBySize::rate_at(&sizes(&[(100, 5.0)]), 700), Some(5.0));
        // The larger copy took less time: the line falls, and meets zero above.
        let odd = sizes(&[(100, 10.0), (200, 1000.0)]);
        for bytes in [0, 1, 100, 150, 199, 200, 1000] {
            let rate = RateBySize::rate_at(&odd, bytes).unwrap();
            assert!(rate > 0.0 && rate <= 1000.0, "{bytes} bytes: {rate}");
        }
        // The smaller copy is the faster one: below it the line would meet zero.
        assert_eq!(RateBySize::rate_at(&sizes(&[(100, 1000.0), (200, 10.0)]), 1), Some(1000.0));
    }

    #[test]
    fn rates_between_threads() {
        let measured = rates(&[(1, 10.0), (2, 18.0), (4, 30.0), (8, 28.0)]);
        let expected = [(0, 10.0), (1, 10.0), (2, 18.0), (3, 24.0), (4, 30.0), (6, 29.0), (8, 28.0), (100, 28.0)];
        for (threads, rate) in expected {
            assert_eq!(RateByThreads::with(&measured, threads), Some(rate), "{threads} threads");
        }
        assert_eq!(RateByThreads::with(&[], 1), None);
        assert_eq!(RateByThreads::with(&measured[..1], 5), Some(10.0));
        assert_eq!(RateByThreads::best(&measured), Some(measured[2]));
        assert_eq!(RateByThreads::best(&[]), None);
    }

    #[test]
    fn the_fewest_threads_that_reach_a_rate() {
        let measured = rates(&[(1, 10.0), (2, 18.0), (4, 30.0), (8, 28.0)]);
        for (rate, threads) in [(0.0, 1), (10.0, 1), (10.1, 2), (20.0, 3), (30.0, 4)] {
            assert_eq!(RateByThreads::fewest_threads(&measured, rate), Some(threads), "{rate}");
        }
        assert_eq!(RateByThreads::fewest_threads(&measured, 30.1), None);
        assert_eq!(RateByThreads::fewest_threads(&[], 1.0), None);
    }
}
