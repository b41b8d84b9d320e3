//! The pipeline: lanes that carry chunks from the sources through a device to the sinks.
//!
//! ```text
//!                  one lane: a thread, one to three slots
//!  Source ──▶ fill slot ──▶ copy in ──▶ kernel ──▶ copy out ──▶ drain slot ──▶ Sink
//!      ▲          (host)      (DMA)      (GPU)       (DMA)        (host)
//!      └── every lane of every device claims its next chunk from the same queue
//! ```
//!
//! The loop is [`staged::StagedLane::turn`], which fills and drains, and [`submitter::Submitter::turn`], the one thread that speaks to
//! the device; on the CPU, where nothing is staged, [`host::HostLane::turn`]. A turn is one chunk's work at most, so that they run on a
//! thread each or take turns on one thread (see [`drive`]).

mod compact;
mod drive;
mod host;
mod kept;
mod meter;
mod permit;
mod queue;
mod route;
mod segments;
mod share;
mod slot;
mod staged;
mod staging;
mod streams;
mod submitter;

pub(crate) use compact::Compaction;
pub(crate) use drive::drive;
pub(crate) use host::HostPart;
pub(crate) use queue::{Queue, Segment};
pub(crate) use segments::{Sharded, segments};
pub(crate) use share::Share;
pub(crate) use staging::Staging;

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::data::{Chunk, Lent, Memory, Sink, SinkMemory, Source};
use crate::device::Schedule;
use crate::error::{Error, Result};
use crate::ops::Operator;
use crate::plan::DevicePlan;
use crate::report::StageTimes;
use crate::trace::Span;

/// What the lanes of a run share.
pub(crate) struct Work<'w> {
    pub(crate) operator: &'w dyn Operator,
    pub(crate) inputs: Vec<InputColumn<'w>>,
    pub(crate) outputs: Vec<OutputColumn<'w>>,
    pub(crate) queue: Queue<'w>,
    /// If the kernel keeps some of the rows only.
    pub(crate) compaction: Option<Compaction<'w>>,
    /// How lanes of the CPU and of GPUs share the cores, where there are both.
    pub(crate) share: Option<Share>,
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
    /// Ends the run early: a lane failed. Nobody claims another chunk, or waits to.
    fn stop(&self) {
        self.queue.stop();
        if let Some(share) = &self.share {
            share.end();
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
    pub(crate) lent: Option<Lent>,
}

impl InputColumn<'_> {
    /// Whether this run copies the rows that stay on devices there.
    pub(crate) fn fills(&self) -> bool {
        self.sharded.as_ref().is_some_and(|sharded| sharded.fills)
    }

    /// Reads the rows of a chunk.
    fn read(&self, chunk: &Chunk, to: &mut [u8]) -> Result<()> {
        self.source.read(chunk.rows().start * self.elements, to)
    }

    /// Says that the rows of a chunk were copied to the device that they stay on.
    fn filled(&self, chunk: &Chunk) {
        if let Some(lent) = &self.lent {
            lent.fill(chunk.len() as u64 * self.elements);
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

/// One device's part in a run: what its lanes share.
pub(crate) trait Part {
    /// The lanes, `number` being the device's place in the run.
    fn lanes<'r>(&'r mut self, number: usize, work: &'r Work<'r>) -> Result<Vec<Box<dyn Lane + 'r>>>;

    /// How the lanes want to be driven.
    fn schedule(&self) -> Schedule;

    /// How long it took to get the kernel ready, and the memory.
    fn setup(&self) -> (Duration, Duration) {
        (Duration::ZERO, Duration::ZERO)
    }

    /// A note if the device gave less memory than planned.
    fn shortage(&self, plan: &DevicePlan) -> Option<String>;

    /// Keeps its memory for the next run, after one that went well. Otherwise it is dropped, and given back.
    fn keep_memory(self: Box<Self>) {}
}

/// One lane of any device, or its submitter.
pub(crate) trait Lane: Send {
    /// Does the host work of one chunk, or finishes one, or looks whether it can. False when there is nothing left to do.
    fn turn(&mut self) -> Result<bool>;

    /// The virtual time at which the next turn can begin.
    fn ready_at(&self) -> Duration;

    /// What the lane did, after its last turn.
    fn outcome(&mut self) -> LaneOutcome;
}

/// What one lane did.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneOutcome {
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
    pub(crate) aside: Duration,
    /// When it was done, on its clock.
    pub(crate) end: Duration,
    pub(crate) spans: Vec<Span>,
}

/// Names a lane in errors and spans.
#[derive(Clone, Debug)]
pub(crate) struct LaneName {
    pub(crate) device: String,
    pub(crate) lane: usize,
}

impl LaneName {
    /// Names this lane and a chunk in an error.
    pub(crate) fn with_chunk(&self, chunk: &Chunk, cause: Error) -> Error {
        Error::Chunk {
            device: self.device.clone(),
            lane: self.lane,
            chunk: chunk.index(),
            rows: chunk.rows(),
            cause: Box::new(cause),
        }
    }
}
