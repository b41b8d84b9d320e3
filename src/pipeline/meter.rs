//! The meter of a worker: it records times, byte counts, tracing spans and the timeline.
//!
//! The loops take the time at the begin and the end of each stage and pass both to the meter. All other bookkeeping
//! is here, so that the loops stay readable. There are two kinds of times:
//!
//! * Stages on the worker's thread ([`Meter::ran`]) are measured for every chunk, on the clock of the host.
//! * Stages on the device ([`Meter::ran_on_device`]) are measured by events, only for the chunks that are timed.

use std::time::Duration;

use tracing::span::EnteredSpan;
use tracing::{debug_span, trace};

use super::streams::{StageTiming, Stages};
use super::{WorkerName, WorkerOutcome};
use crate::data::Chunk;
use crate::error::Error;
use crate::trace::{Span, Track};

/// Measures one worker of a run.
pub(super) struct Meter {
    name: WorkerName,
    /// Whether every stage of every timed chunk is recorded.
    timeline: bool,
    /// The measurements so far. The loops add the bytes that they move.
    pub(super) outcome: WorkerOutcome,
}

/// The task of a worker with a chunk, which names its tracing span.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    Send,
    Drain,
    Compute,
}

/// A stage that runs on the worker's thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum HostStage {
    Fill,
    Compute,
    Drain,
}

impl Meter {
    /// Creates the meter of a worker on the device with this number in the run.
    pub(super) fn new(name: WorkerName, device: usize, timeline: bool) -> Self {
        Meter { name, timeline, outcome: WorkerOutcome { device, ..WorkerOutcome::default() } }
    }

    /// Returns the number of the worker on its device.
    pub(super) fn worker(&self) -> usize {
        self.name.worker
    }

    /// Opens the tracing span of a task.
    pub(super) fn span(&self, task: Task, chunk: &Chunk) -> EnteredSpan {
        // `debug_span!` accepts only a constant name, so there is one call for each name.
        macro_rules! span {
            ($name:literal) => {
                debug_span!(
                    $name,
                    chunk = chunk.index(),
                    row = chunk.rows().start,
                    rows = chunk.len(),
                    device = self.name.device,
                    worker = self.name.worker
                )
            };
        }
        match task {
            Task::Send => span!("send"),
            Task::Drain => span!("drain"),
            Task::Compute => span!("compute"),
        }
        .entered()
    }

    /// Records a stage of a chunk that ran on the worker's thread.
    pub(super) fn ran(&mut self, stage: HostStage, chunk: &Chunk, begin: Duration, end: Duration) {
        let times = &mut self.outcome.times;
        let (name, time) = match stage {
            HostStage::Fill => ("fill", &mut times.fill),
            HostStage::Compute => ("compute", &mut times.kernel),
            HostStage::Drain => ("drain", &mut times.drain),
        };
        time.busy += end - begin;
        if self.timeline {
            self.outcome.spans.push(Span::new(Track::Worker(self.name.worker), name, chunk, begin, end));
        }
    }

    /// Records the stages of a timed chunk on the device. `filled_at` is when its slot was filled with the rows of
    /// `part`, from which the wait for the copy in counts.
    pub(super) fn ran_on_device(
        &mut self,
        (chunk, part): (&Chunk, &Chunk),
        filled_at: Duration,
        stages: &Stages<StageTiming>,
    ) {
        self.copied_in(part, filled_at, stages.copy_in);
        let mut before = stages.copy_in.begin + stages.copy_in.busy;
        let sample = &mut self.outcome.sample;
        for (name, track, taken, time) in [
            ("kernel", Track::Compute, stages.kernel, &mut sample.kernel),
            ("copy out", Track::CopyOut, stages.copy_out, &mut sample.copy_out),
        ] {
            let end = taken.begin + taken.busy;
            time.busy += taken.busy;
            time.waiting += taken.begin.saturating_sub(before);
            before = end;
            if self.timeline {
                self.outcome.spans.push(Span::new(track, name, chunk, taken.begin, end));
            }
            trace!(name, busy = ?taken.busy, "done");
        }
        self.outcome.sampled_rows += chunk.len() as u64;
    }

    /// Records the copy in of the rows of `part`, of a timed chunk.
    pub(super) fn copied_in(&mut self, part: &Chunk, filled_at: Duration, taken: StageTiming) {
        let StageTiming { begin, busy } = taken;
        self.outcome.sample.copy_in.busy += busy;
        self.outcome.sample.copy_in.waiting += begin.saturating_sub(filled_at);
        if self.timeline {
            self.outcome.spans.push(Span::new(Track::CopyIn, "copy in", part, begin, begin + busy));
        }
        trace!(name = "copy in", busy = ?busy, "done");
    }

    /// Counts a finished chunk.
    pub(super) fn finished(&mut self, chunk: &Chunk) {
        self.outcome.chunks += 1;
        self.outcome.rows += chunk.len() as u64;
    }

    /// Returns the host time spent on filling and draining so far.
    pub(super) fn staging_time(&self) -> Duration {
        self.outcome.times.fill.busy + self.outcome.times.drain.busy
    }

    /// Wraps an error with the names of this worker and of a chunk.
    pub(super) fn with_chunk(&self, chunk: &Chunk, error: Error) -> Error {
        self.name.with_chunk(chunk, error)
    }

    /// Returns the measurements, at the end of the worker.
    pub(super) fn take(&mut self, end: Duration) -> WorkerOutcome {
        WorkerOutcome { end, ..std::mem::take(&mut self.outcome) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_waits_from_the_end_of_the_stage_before() {
        let name = WorkerName { device: "a".into(), worker: 0 };
        let (mut meter, chunk) = (Meter::new(name, 0, false), Chunk::new(0, 0..1000));
        let ms = Duration::from_millis;
        let stage = |begin, busy| StageTiming { begin: ms(begin), busy: ms(busy) };
        let stages = Stages { copy_in: stage(11, 10), kernel: stage(23, 20), copy_out: stage(47, 5) };
        meter.ran_on_device((&chunk, &chunk), ms(10), &stages);
        let times = meter.take(ms(60)).sample;
        let waits = [times.copy_in, times.kernel, times.copy_out].map(|time| (time.waiting, time.busy));
        assert_eq!(waits, [(ms(1), ms(10)), (ms(2), ms(20)), (ms(4), ms(5))]);
    }
}
