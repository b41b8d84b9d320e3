//! The permit of a staging worker: its interface to the arbiter. Only runs on both the CPU and GPUs have an arbiter.

use std::time::Duration;

use super::arbiter::Arbiter;

/// The interface of one worker to the [`Arbiter`]. Without an arbiter, the worker may always stage.
pub(super) struct Permit<'r> {
    arbiter: Option<&'r Arbiter>,
    /// Whether the arbiter counts this worker as staging.
    stages: bool,
    /// The part of the staging time that was reported to the arbiter.
    reported: Duration,
}

impl<'r> Permit<'r> {
    pub(super) fn new(arbiter: Option<&'r Arbiter>) -> Self {
        Permit { arbiter, stages: false, reported: Duration::ZERO }
    }

    /// Returns whether the worker shares the cores with CPU workers, and so may have to wait.
    pub(super) fn is_shared(&self) -> bool {
        self.arbiter.is_some()
    }

    /// Returns whether the worker may claim another common chunk, which the CPU could compute. If nothing is in
    /// flight, waits until it may.
    pub(super) fn admit(&mut self, in_flight: bool) -> bool {
        self.arbiter.is_none_or(|arbiter| arbiter.try_admit(&mut self.stages, in_flight))
    }

    /// Reports that a slot was filled with `rows` rows in `time`.
    pub(super) fn filled(&self, rows: usize, time: Duration) {
        if let Some(arbiter) = self.arbiter {
            arbiter.end_filling(rows as u64, time);
        }
    }

    /// Reports a drained chunk. `staging_time` is the total host time that the worker has spent on chunks. `awaited`
    /// tells whether it had to wait for the device. `rows` is `None` for a chunk with resident columns, whose time is
    /// not comparable.
    pub(super) fn drained(&mut self, rows: Option<usize>, staging_time: Duration, awaited: bool) {
        if let (Some(arbiter), Some(rows)) = (self.arbiter, rows) {
            arbiter.end_staging(rows as u64, staging_time - self.reported, awaited);
        }
        self.reported = staging_time;
    }

    /// Reports that there are no more chunks.
    pub(super) fn end(&self) {
        if let Some(arbiter) = self.arbiter {
            arbiter.end();
        }
    }
}
