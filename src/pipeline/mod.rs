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

mod copies;
mod drive;
mod host;
mod kept;
mod queue;
mod segments;
mod share;
mod slot;
mod staged;
mod staging;
mod streams;
mod submitter;

pub(crate) use drive::drive;
pub(crate) use host::HostPart;
pub(crate) use kept::Kept;
pub(crate) use queue::{Queue, Segment};
pub(crate) use segments::{Sharded, segments};
pub(crate) use share::Share;
pub(crate) use staging::Staging;

use std::time::{Duration, Instant};

use crate::data::{Chunk, Lent, Memory, Sink, SinkMemory, Source};
use crate::device::Schedule;
use crate::device::kernel::Columns;
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
    /// Where rows go if the kernel keeps some of them only.
    pub(crate) kept: Option<Kept>,
    /// How lanes of the CPU and of GPUs share the cores.
    pub(crate) share: Share,
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
        self.share.end();
        if let Some(kept) = &self.kept {
            kept.stop();
        }
    }

    /// Counts what a chunk kept, by its partials.
    fn count(&self, kept: &Kept, chunk: &Chunk, partials: &[u8]) -> Result<()> {
        let tile_rows = self.operator.kernel().columns.tile_rows;
        let mut rows = 0;
        for (tile, count) in tiles(partials).enumerate() {
            let most = tile_rows.min(chunk.len() - tile * tile_rows) as u64;
            if count > most {
                let entry = &self.operator.kernel().entry;
                return Err(Error::Job(format!(
                    "the kernel '{entry}' says that it kept {count} rows of a tile of {most}"
                )));
            }
            rows += count;
        }
        kept.count(chunk.index(), rows);
        Ok(())
    }

    /// Writes what a chunk kept to its place. `column` are the rows of each output, `None` if it has none there.
    fn write_kept<'c>(
        &self,
        kept: &Kept,
        chunk: &Chunk,
        partials: &[u8],
        column: impl Fn(usize) -> Option<&'c [u8]>,
    ) -> Result<u64> {
        let place = kept.place(chunk.index())?;
        let Columns { outputs, tile_rows, .. } = &self.operator.kernel().columns;
        let mut written = 0;
        for (k, (&size, output)) in outputs.iter().zip(&self.outputs).enumerate() {
            let Some(rows) = column(k) else { continue };
            let mut first = place;
            for (tile, count) in tiles(partials).enumerate().filter(|(_, count)| *count > 0) {
                let from = tile * tile_rows * size;
                let part = Chunk::new(chunk.index(), first..first + count).times(output.elements);
                output.sink.write(&part, &rows[from..from + count as usize * size])?;
                first += count;
                written += count * size as u64;
            }
        }
        Ok(written)
    }
}

/// One word for each tile.
fn tiles(partials: &[u8]) -> impl Iterator<Item = u64> {
    partials.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word))
}

/// A source, and its memory if all of it stands in memory.
pub(crate) struct InputColumn<'w> {
    pub(crate) source: &'w dyn Source,
    pub(crate) memory: Option<Memory<'w>>,
    /// Whether that memory is pinned.
    pub(crate) pinned: bool,
    /// Elements of the source that make a row of the job.
    pub(crate) elements: u64,
    /// If some rows lie on devices.
    pub(crate) sharded: Option<&'w Sharded>,
    /// These rows, in the hands of this run.
    pub(crate) lent: Option<&'w Lent>,
}

impl InputColumn<'_> {
    /// Whether this run copies the rows that stay on devices there.
    pub(crate) fn fills(&self) -> bool {
        self.sharded.is_some_and(|sharded| sharded.fills)
    }
}

/// A sink, and its memory if it is written in place.
pub(crate) struct OutputColumn<'w> {
    pub(crate) sink: &'w dyn Sink,
    pub(crate) memory: Option<&'w SinkMemory<'w>>,
    /// Whether that memory is pinned.
    pub(crate) pinned: bool,
    /// Elements of the sink that make a row of the job.
    pub(crate) elements: u64,
    /// If some rows lie on devices.
    pub(crate) sharded: Option<&'w Sharded>,
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
    /// Puts an error into its place: this lane and that chunk.
    pub(crate) fn blame(&self, chunk: &crate::data::Chunk, cause: Error) -> Error {
        Error::Chunk {
            device: self.device.clone(),
            lane: self.lane,
            chunk: chunk.index(),
            rows: chunk.rows(),
            cause: Box::new(cause),
        }
    }
}
