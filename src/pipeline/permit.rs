//! The permit of a staging worker: its interface to the arbiter.

use std::collections::VecDeque;
use std::time::Duration;

use super::arbiter::{Admission, Arbiter};

/// The interface of one worker to the [`Arbiter`]. Without an arbiter, the worker may always stage.
pub(super) struct Permit<'r> {
    arbiter: Option<&'r Arbiter>,
    /// The number of the worker's device in the run.
    device: usize,
    /// How often the chunks are halved.
    halved: u32,
    /// Whether the arbiter counts this worker as staging.
    stages: bool,
    /// The time since which the arbiter has refused the worker, which must ask again.
    refused: Option<Duration>,
    /// Whether each chunk in flight is a common one, which the CPU could compute, oldest first. The arbiter does not
    /// count chunks that only this device may process.
    are_common: VecDeque<bool>,
    /// The part of the staging time that was reported to the arbiter.
    reported: Duration,
}

impl<'r> Permit<'r> {
    pub(super) fn new(arbiter: Option<&'r Arbiter>, device: usize) -> Self {
        Permit {
            arbiter,
            device,
            halved: 0,
            stages: false,
            refused: None,
            are_common: VecDeque::new(),
            reported: Duration::ZERO,
        }
    }

    /// Returns whether the worker shares the cores with CPU workers.
    pub(super) fn is_shared(&self) -> bool {
        self.arbiter.is_some_and(Arbiter::shares_cores)
    }

    /// Returns the rows of a common chunk, in whole tiles, if a full one has `most` rows.
    pub(super) fn chunk_rows(&self, most: usize, tile: usize) -> usize {
        ((most / tile) >> self.halved).max(1) * tile
    }

    /// Returns whether the worker may claim another common chunk, which the CPU could compute. If the worker has no
    /// chunks, waits until it may; one that takes turns is refused instead. `now` is the time of the call.
    pub(super) fn admit(&mut self, has_chunks: bool, now: Duration) -> bool {
        let Some(arbiter) = self.arbiter else { return true };
        let admission = arbiter.try_admit(self.device, &mut self.stages, has_chunks);
        self.refused = (admission == Admission::AskAgain).then(|| *self.refused.get_or_insert(now));
        if let Admission::Granted { halved } = admission {
            self.halved = halved;
        }
        matches!(admission, Admission::Granted { .. })
    }

    /// Returns whether the worker has been refused and must ask again.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Returns since when the worker has been refused, and from when it may go on: [`Duration::MAX`] if that is not
    /// known yet. `None` if it has not been refused.
    pub(super) fn refusal(&self) -> Option<(Duration, Duration)> {
        let resumes = self.arbiter?.staging_resumes(self.device).unwrap_or(Duration::MAX);
        self.refused.map(|since| (since, resumes.max(since)))
    }

    /// Reports that a chunk was claimed, and whether it is a common one.
    pub(super) fn claimed(&mut self, is_common: bool) {
        self.are_common.push_back(is_common);
    }

    /// Reports that, at `now`, the slot of the newest chunk was filled with `rows` rows in `busy`.
    pub(super) fn filled(&self, rows: usize, busy: Duration, now: Duration) {
        if let (Some(arbiter), Some(true)) = (self.arbiter, self.are_common.back()) {
            arbiter.end_filling(rows as u64, busy, now);
        }
    }

    /// Reports that the oldest chunk, of `rows` rows, was drained at `now`. `staging_time` is the total host time that
    /// the worker has spent on chunks.
    pub(super) fn drained(&mut self, rows: usize, staging_time: Duration, now: Duration) {
        if let (Some(arbiter), Some(true)) = (self.arbiter, self.are_common.pop_front()) {
            arbiter.end_staging(rows as u64, staging_time - self.reported, now);
        }
        self.reported = staging_time;
    }

    /// Reports that, at `now`, there are no more chunks.
    pub(super) fn end(&self, now: Duration) {
        if let Some(arbiter) = self.arbiter {
            arbiter.end(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_halved_in_whole_tiles() {
        let rows = |halved| Permit { halved, ..Permit::new(None, 0) }.chunk_rows(10 * 4096, 4096);
        assert_eq!([0, 1, 2, 5].map(rows), [10 * 4096, 5 * 4096, 2 * 4096, 4096]);
    }
}
