//! The leave of a staging worker to stage, and what it reports for that. Only jobs that both the CPU and GPUs run
//! need any.

use std::time::Duration;

use super::arbiter::Arbiter;

/// One worker's side of the [`Arbiter`]; without one the worker always may.
pub(super) struct Permit<'r> {
    arbiter: Option<&'r Arbiter>,
    /// Whether this worker is one of those that stage now.
    stages: bool,
    /// Of the time spent on filling and draining, what was reported.
    reported: Duration,
}

impl<'r> Permit<'r> {
    pub(super) fn new(arbiter: Option<&'r Arbiter>) -> Self {
        Permit { arbiter, stages: false, reported: Duration::ZERO }
    }

    /// Whether the worker may have to wait for workers of the CPU.
    pub(super) fn is_shared(&self) -> bool {
        self.arbiter.is_some()
    }

    /// Whether the worker may claim another chunk of those that the CPU could compute. Waits for that if nothing is
    /// in flight.
    pub(super) fn admit(&mut self, in_flight: bool) -> bool {
        self.arbiter.is_none_or(|arbiter| arbiter.try_admit(&mut self.stages, in_flight))
    }

    /// Reports that a slot was filled with so many rows in so much time.
    pub(super) fn filled(&self, rows: usize, time: Duration) {
        if let Some(arbiter) = self.arbiter {
            arbiter.end_filling(rows as u64, time);
        }
    }

    /// Reports a drained chunk. `staging_time` is all host time that the worker has spent on chunks; `awaited` says
    /// whether it had to wait for the device. Of a chunk whose rows lie on the device nothing can be learnt (`rows`
    /// is `None`).
    pub(super) fn drained(&mut self, rows: Option<usize>, staging_time: Duration, awaited: bool) {
        if let (Some(arbiter), Some(rows)) = (self.arbiter, rows) {
            arbiter.end_staging(rows as u64, staging_time - self.reported, awaited);
        }
        self.reported = staging_time;
    }

    /// Says that there are no more chunks.
    pub(super) fn end(&self) {
        if let Some(arbiter) = self.arbiter {
            arbiter.end();
        }
    }
}
