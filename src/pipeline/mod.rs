//! The pipeline: workers that carry chunks from the sources through a device to the sinks.
//!
//! ```text
//!                  one worker: a thread, one to three slots
//!  Source ──▶ fill slot ──▶ copy in ──▶ kernel ──▶ copy out ──▶ drain slot ──▶ Sink
//!      ▲          (host)      (DMA)      (GPU)       (DMA)        (host)
//!      └── every worker of every device claims its next chunk from the same queue
//! ```
//!
//! The loop is [`staged::StagingWorker::step`], which fills and drains, and [`submitter::Submitter::step`], the one thread that speaks to
//! the device; on the CPU, where nothing is staged, [`cpu::CpuWorker::step`]. A turn is one chunk's work at most, so that they run on a
//! thread each or take turns on one thread (see [`drive`]).

mod arbiter;
mod compact;
mod cpu;
mod drive;
mod linearizer;
mod meter;
mod permit;
mod queue;
mod route;
mod segments;
mod slot;
mod staged;
mod staging;
mod streams;
mod submitter;

pub(crate) use arbiter::Arbiter;
pub(crate) use compact::Compaction;
pub(crate) use cpu::CpuRun;
pub(crate) use drive::drive;
pub(crate) use queue::{Queue, Segment};
pub(crate) use segments::{Sharded, segments};
pub(crate) use staging::Staging;

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::data::{Chunk, FillGuard, Memory, Sink, SinkMemory, Source};
use crate::device::Schedule;
use crate::error::{Error, Result};
use crate::ops::Operator;
use crate::plan::DevicePlan;
use crate::report::StageTimes;
use crate::trace::Span;

/// What the workers of a run share.
pub(crate) struct Work<'w> {
    pub(crate) operator: &'w dyn Operator,
    pub(crate) inputs: Vec<InputColumn<'w>>,
    pub(crate) outputs: Vec<OutputColumn<'w>>,
    pub(crate) queue: Queue<'w>,
    /// If the kernel keeps some of the rows only.
    pub(crate) compaction: Option<Compaction<'w>>,
    /// How workers of the CPU and of GPUs share the cores, where there are both.
    pub(crate) arbiter: Option<Arbiter>,
    /// Time zero of the run.
    pub(crate) epoch: Instant,
    /// Of so many chunks of a device, one is timed there: events that keep time slow it down.
    pub(crate) timed_every: u64,
    /// Whether every stage of every timed chunk is taken down.
    pub(crate) timeline: bool,
}

/// Chunks of a device for each one that is timed, where timing costs.
pub(crate) const TIMED_EVERY: u64 = 16;

impl Work<'_> {
    /// Ends the run early: a worker failed. Nobody claims another chunk, or waits to.
    fn stop(&self) {
        self.queue.stop();
        if let Some(arbiter) = &self.arbiter {
            arbiter.end();
        }
        if let Some(compaction) = &self.compaction {
            compaction.stop();
        }
    }
}

/// An input of a run. What it is was asked of its source once, before the plan was made.
pub(crate) struct InputColumn<'w> {
    pub(crate) source: &'w dyn Source,
    /// Its rows, if all of them stand in memory.
    pub(crate) memory: Option<Memory<'w>>,
    /// These, if devices may copy from there.
    pub(crate) pinned: Option<&'w [u8]>,
    /// Elements of the source that make a row of the job.
    pub(crate) elements: u64,
    /// If some rows lie on devices.
    pub(crate) sharded: Option<Sharded>,
    /// These rows, in the hands of this run.
    pub(crate) guard: Option<FillGuard>,
}

impl InputColumn<'_> {
    /// Whether this run copies the rows that stay on devices there.
    pub(crate) fn is_filling(&self) -> bool {
        self.sharded.as_ref().is_some_and(|sharded| sharded.is_filling)
    }

    /// Reads the rows of a chunk.
    fn read(&self, chunk: &Chunk, to: &mut [u8]) -> Result<()> {
        self.source.read(chunk.rows().start * self.elements, to)
    }

    /// Says that the rows of a chunk were copied to the device that they stay on.
    fn filled(&self, chunk: &Chunk) {
        if let Some(guard) = &self.guard {
            guard.record_filled(chunk.len() as u64 * self.elements);
        }
    }
}

/// An output of a run.
pub(crate) struct OutputColumn<'w> {
    pub(crate) sink: &'w dyn Sink,
    /// Its memory, if it is written in place.
    pub(crate) memory: Option<&'w SinkMemory<'w>>,
    /// The same, if devices may copy to it.
    pub(crate) pinned: Option<&'w SinkMemory<'w>>,
    /// Elements of the sink that make a row of the job.
    pub(crate) elements: u64,
    /// If some rows lie on devices.
    pub(crate) sharded: Option<Sharded>,
}

impl OutputColumn<'_> {
    /// The rows of the sink that a chunk has.
    fn rows(&self, chunk: &Chunk) -> Range<u64> {
        let rows = chunk.rows();
        rows.start * self.elements..rows.end * self.elements
    }

    /// Writes the rows of a chunk; returns how many bytes they are.
    fn write(&self, chunk: &Chunk, bytes: &[u8]) -> Result<u64> {
        self.sink.write(self.rows(chunk).start, bytes)?;
        Ok(bytes.len() as u64)
    }
}

/// One device's part in a run: what its workers share.
pub(crate) trait DeviceRun {
    /// The workers, `number` being the device's place in the run.
    fn workers<'r>(&'r mut self, number: usize, work: &'r Work<'r>) -> Result<Vec<Box<dyn Worker + 'r>>>;

    /// How the workers want to be driven.
    fn schedule(&self) -> Schedule;

    /// How long it took to get the kernel ready, and the memory.
    fn setup(&self) -> (Duration, Duration) {
        (Duration::ZERO, Duration::ZERO)
    }

    /// A note if the device gave less memory than planned.
    fn shortage(&self, plan: &DevicePlan) -> Option<String>;

    /// Keeps its memory for the next run, after one that went well. Otherwise it is dropped, and given back.
    fn recycle_memory(self: Box<Self>) {}
}

/// One worker of any device, or its submitter.
pub(crate) trait Worker: Send {
    /// Does the host work of one chunk, or finishes one, or looks whether it can. False when there is nothing left to do.
    fn step(&mut self) -> Result<bool>;

    /// The virtual time at which the next turn can begin.
    fn ready_at(&self) -> Duration;

    /// What the worker did, after its last turn.
    fn outcome(&mut self) -> WorkerOutcome;
}

/// What one worker did.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerOutcome {
    /// Which device of the run.
    pub(crate) device: usize,
    pub(crate) chunks: u64,
    pub(crate) rows: u64,
    /// What was measured on the host, for all chunks.
    pub(crate) times: StageTimes,
    /// What was measured on the device, for the chunks that were timed, and how many rows these had.
    pub(crate) sample: StageTimes,
    pub(crate) sampled_rows: u64,
    /// Bytes copied to and from the device.
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// Of those to the device, what was enqueued before the kernel's values were known.
    pub(crate) bytes_ahead: u64,
    /// Bytes filled into and drained from slots.
    pub(crate) staged_in: u64,
    pub(crate) staged_out: u64,
    /// Time in which it stood aside, so that others might use the cores.
    pub(crate) throttled: Duration,
    /// When it was done, on its clock.
    pub(crate) end: Duration,
    pub(crate) spans: Vec<Span>,
}

/// Names a worker in errors and spans.
#[derive(Clone, Debug)]
pub(crate) struct WorkerName {
    pub(crate) device: String,
    pub(crate) worker: usize,
}

impl WorkerName {
    /// Names this worker and a chunk in an error.
    pub(crate) fn with_chunk(&self, chunk: &Chunk, cause: Error) -> Error {
        Error::Chunk {
            device: self.device.clone(),
            worker: self.worker,
            chunk: chunk.index(),
            rows: chunk.rows(),
            cause: Box::new(cause),
        }
    }
}
