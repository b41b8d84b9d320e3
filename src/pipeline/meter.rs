//! The stopwatch of a worker. The loops say what begins and ends; what is kept of it, as times, bytes, tracing spans and
//! the timeline, is here.

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
    /// What was measured so far. The loops add the bytes they move.
    pub(super) outcome: WorkerOutcome,
}

/// What a worker does with a chunk, as tracing spans name it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    Send,
    Drain,
    Compute,
}

/// A stage that runs on the worker's own thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum HostStage {
    Fill,
    Compute,
    Drain,
}

impl Meter {
    /// The meter of a worker on the device with this number in the run.
    pub(super) fn new(name: WorkerName, device: usize, timeline: bool) -> Self {
        Meter { name, timeline, outcome: WorkerOutcome { device, ..WorkerOutcome::default() } }
    }

    /// The number of the worker on its device.
    pub(super) fn worker(&self) -> usize {
        self.name.worker
    }

    /// Opens the tracing span of a step.
    pub(super) fn span(&self, step: Task, chunk: &Chunk) -> EnteredSpan {
        // The name of a span is a constant of the place that opens it.
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
        match step {
            Task::Send => span!("send"),
            Task::Drain => span!("drain"),
            Task::Compute => span!("compute"),
        }
        .entered()
    }

    /// Records a stage of a chunk that ran on the worker's own thread.
    pub(super) fn ran(&mut self, stage: HostStage, chunk: &Chunk, begin: Duration, end: Duration) {
        let times = &mut self.outcome.times;
        let (name, time) = match stage {
            HostStage::Fill => ("fill", &mut times.fill),
            HostStage::Compute => ("compute", &mut times.kernel),
            HostStage::Drain => ("drain", &mut times.drain),
        };
        time.busy += end - begin;
        if self.timeline {
            self.outcome.spans.push(Span::new(Track::Worker, name, chunk, begin, end));
        }
    }

    /// Records the stages of a chunk on the device, which were timed there; the chunk was filled at that time.
    pub(super) fn ran_on_device(&mut self, chunk: &Chunk, filled_at: Duration, stages: &Stages<StageTiming>) {
        let mut before = filled_at;
        let sample = &mut self.outcome.sample;
        for (name, track, taken, time) in [
            ("copy in", Track::CopyIn, stages.copy_in, &mut sample.copy_in),
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

    /// Counts a chunk that went all the way.
    pub(super) fn finished(&mut self, chunk: &Chunk) {
        self.outcome.chunks += 1;
        self.outcome.rows += chunk.len() as u64;
    }

    /// Host time spent on filling and draining so far.
    pub(super) fn staging_time(&self) -> Duration {
        self.outcome.times.fill.busy + self.outcome.times.drain.busy
    }

    /// Names this worker and a chunk in an error.
    pub(super) fn with_chunk(&self, chunk: &Chunk, error: Error) -> Error {
        self.name.with_chunk(chunk, error)
    }

    /// What was measured, at the end.
    pub(super) fn take(&mut self, end: Duration) -> WorkerOutcome {
        WorkerOutcome { end, ..std::mem::take(&mut self.outcome) }
    }
}
