//! The pipeline: workers that carry chunks from the sources through a device to the sinks.
//!
//! ```text
//!                  one worker: a thread, one to three slots
//!  Source ──▶ fill slot ──▶ copy in ──▶ kernel ──▶ copy out ──▶ drain slot ──▶ Sink
//!      ▲          (host)      (DMA)      (GPU)       (DMA)        (host)
//!      └── every worker of every device claims its next chunk from the same queue
//! ```
//!
//! # The loop
//!
//! There are three kinds of [`Worker`], and the loop of each is its `step` method:
//!
//! * A **staging worker** ([`staged::StagingWorker::step`]) serves a device with its own memory. It claims a chunk
//!   from the queue, fills one of its slots with the rows of the inputs, and sends the slot to the submitter. When the
//!   slot comes back, it drains the slot: it writes the outputs to the sinks and combines the partial results.
//! * The **submitter** ([`submitter::Submitter::step`]) is the only thread that calls the driver of a device. It
//!   enqueues the copy in, the kernel and the copy out of each filled slot, and returns the slot to its worker when the
//!   copies are done.
//! * A **CPU worker** ([`cpu::CpuWorker::step`]) claims a chunk and computes it in place, without slots or copies. In
//!   a later step, it writes the outputs that are not in memory: in the next one, unless their place depends on chunks
//!   that are not counted yet.
//!
//! With products over the rows, two [`panels::SumsWorker`]s of each device absorb the sums that come back.
//!
//! A step does the host work of at most one chunk. So [`drive`] can run every worker on its own thread, or all
//! workers on one thread, one step at a time: the emulated device uses this to make runs repeatable. A run ends when
//! the queue is empty and every claimed chunk is drained. When a worker fails, [`Work::stop`] makes all others stop
//! at their next chunk.
//!
//! # The files
//!
//! | | |
//! | --- | --- |
//! | `staged.rs`, `submitter.rs`, `cpu.rs` | the three loops |
//! | `handover.rs` | the channels between workers and submitter, and the order of chunks in them |
//! | `drive.rs` | runs the workers, on threads or on one thread |
//! | `rounds.rs`, `losses.rs` | devices that fail during a run: others compute their rows |
//! | `queue.rs`, `segments.rs` | which rows a worker claims next |
//! | `alike.rs` | rows that no worker claims, because what they give is known |
//! | `route.rs`, `slot.rs`, `streams.rs` | the path of a chunk: where each column is copied; the slot; the streams |
//! | `staging.rs` | creates the workers, the submitter and the memory of a device |
//! | `panels.rs`, `products.rs` | products over the rows, on a device and on the CPU |
//! | `arbiter.rs`, `permit.rs` | holds back workers that would not make the run faster |
//! | `policy.rs` | how CPU workers and staging workers share the cores |
//! | `trials.rs` | with which limits a run begins, from the rates of earlier ones |
//! | `crew.rs` | how many workers stage, and the size of their chunks, in runs without CPU workers |
//! | `compact.rs`, `linearizer.rs` | kernels that select rows: where the selected rows of a chunk go |
//! | `verify.rs` | computes chosen chunks again and compares |
//! | `meter.rs`, `clock.rs` | time, bytes and spans |

mod alike;
mod arbiter;
mod clock;
mod compact;
mod cpu;
mod crew;
mod drive;
mod handover;
mod linearizer;
mod losses;
mod lots;
mod meter;
mod multiply;
mod panels;
mod permit;
mod policy;
mod products;
mod queue;
#[cfg(test)]
#[path = "tests/random.rs"]
mod random;
mod rounds;
mod route;
mod segments;
mod slot;
mod staged;
mod staging;
mod streams;
mod submitter;
mod trials;
mod verify;

pub(crate) use alike::without;
pub(crate) use arbiter::Arbiter;
pub(crate) use compact::Compaction;
pub(crate) use cpu::CpuRun;
pub(crate) use crew::CrewSize;
pub(crate) use losses::{Loss, Losses};
pub(crate) use lots::lots;
pub(crate) use policy::Limits;
pub(crate) use queue::{Queue, Segment};
pub(crate) use rounds::run;
pub(crate) use segments::{Sharded, in_tiles, segments};
pub(crate) use staging::Staging;
pub(crate) use trials::Trials;
pub(crate) use verify::{Verification, Verified, recomputation};

use std::any::Any;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::data::{Chunk, Dtype, FillGuard, Memory, Sink, SinkMemory, Source, Unread, piece_of};
use crate::device::Schedule;
use crate::error::{Error, Result};
use crate::ops::Operator;
use crate::panics;
use crate::plan::DevicePlan;
use crate::report::StageTimes;
use crate::trace::Span;

/// The state that all workers of a run share.
pub(crate) struct Work<'w> {
    pub(crate) operator: &'w dyn Operator,
    pub(crate) inputs: Vec<InputColumn<'w>>,
    pub(crate) outputs: Vec<OutputColumn<'w>>,
    pub(crate) queue: Queue<'w>,
    /// Ranges of rows that are not in the queue, in whole tiles. All rows with the same number give the same.
    pub(crate) alike: Vec<(Range<u64>, usize)>,
    /// `Some` if the kernel selects rows.
    pub(crate) compaction: Option<Compaction<'w>>,
    /// Shares the cores between CPU workers and staging workers; `None` unless the run has both.
    pub(crate) arbiter: Option<Arbiter>,
    /// The devices that were lost.
    pub(crate) losses: Losses,
    /// The chunks that are computed again; `None` if none are.
    pub(crate) verification: Option<Verification>,
    /// Time zero of the run.
    pub(crate) epoch: Instant,
    /// One in this many chunks is timed on a device, because events that keep time slow the device down.
    pub(crate) timed_every: u64,
    /// Whether every stage of every timed chunk is recorded as a span.
    pub(crate) timeline: bool,
    /// The most time that a device may take for a chunk. `None` if no limit was set, or if a device uses memory of the
    /// caller in place: the run must then wait for the device.
    pub(crate) device_timeout: Option<Duration>,
}

/// The value of [`Work::timed_every`] on devices that timing slows down.
pub(crate) const TIMED_EVERY: u64 = 16;

impl Work<'_> {
    /// Ends the run early because a worker failed. No worker claims another chunk or goes on waiting.
    fn stop(&self) {
        self.end_all(self.epoch.elapsed());
        // Values that come later would be in vain, and until then their workers would wait.
        self.operator.kernel().values.abandon();
    }

    /// Makes all workers end at `now`, on the clock of the run.
    fn end_all(&self, now: Duration) {
        self.queue.stop();
        if let Some(arbiter) = &self.arbiter {
            arbiter.end(now);
        }
        if let Some(compaction) = &self.compaction {
            compaction.stop();
        }
    }

    /// Returns whether all rows that workers claim are finished, after a round in which devices were lost or not.
    fn is_complete(&self, has_lost: bool) -> bool {
        let lacks_sums = has_lost && !self.operator.kernel().columns.products.is_empty();
        self.queue.done() == self.queue.claimed_rows() && !lacks_sums
    }

    /// Records that a device was lost at `at`, on the clock of the run. Its workers give their rows back and end. If
    /// the run begins anew, all workers end.
    ///
    /// # Errors
    /// The same error if the run cannot go on without the device.
    fn lose(&self, device: usize, error: Error, at: Duration) -> Result<()> {
        self.losses.record(device, error, at)?;
        if let Some(arbiter) = &self.arbiter {
            arbiter.lose(device, at);
        }
        if self.operator.begins_anew() {
            self.end_all(at);
        }
        Ok(())
    }

    /// Prepares another round: of all rows that are not finished, or of all rows.
    fn again(&mut self) {
        // Few rows are left, in most cases, so nobody is held back.
        self.arbiter = None;
        if let Some(compaction) = &mut self.compaction {
            compaction.restart();
        }
        if self.operator.begins_anew() {
            self.operator.restart();
            self.queue.restart();
        }
    }
}

/// An input of a run. Its properties were queried from the source once, before planning.
pub(crate) struct InputColumn<'w> {
    /// The name of the input, for errors.
    pub(crate) name: &'w str,
    pub(crate) source: &'w dyn Source,
    pub(crate) dtype: Dtype,
    /// Its rows, if all of them are in memory.
    pub(crate) memory: Option<Memory<'w>>,
    /// The same rows, if the memory is pinned, so that devices may copy from it.
    pub(crate) pinned: Option<&'w [u8]>,
    /// Elements of the source per row of the job.
    pub(crate) elements: u64,
    /// `Some` if some rows are resident on devices.
    pub(crate) sharded: Option<Sharded>,
    /// Keeps the resident rows in use by this run.
    pub(crate) guard: Option<FillGuard>,
    /// The rows that are not read.
    pub(crate) unread: Unread,
}

impl InputColumn<'_> {
    /// Returns whether this run copies the resident rows to their devices.
    pub(crate) fn is_filling(&self) -> bool {
        self.sharded.as_ref().is_some_and(|sharded| sharded.is_filling)
    }

    /// Returns rows of the job of `row_bytes` bytes each, if they are adjacent in memory and should be used there.
    fn in_place(&self, rows: &Range<u64>, row_bytes: usize) -> Result<Option<&[u8]>> {
        let (first, count) = (rows.start * self.elements, (rows.end - rows.start) * self.elements);
        let found = match self.memory {
            Some(memory) => Some(&memory.bytes()[rows.start as usize * row_bytes..rows.end as usize * row_bytes]),
            None => self.piece(rows, row_bytes)?,
        };
        match found {
            Some(_) if !self.is_cached(first, count)? => Ok(None),
            found => Ok(found),
        }
    }

    /// Returns whether rows of the job should be used in memory, of which parts are adjacent.
    fn is_in_pieces(&self, rows: &Range<u64>, row_bytes: usize) -> Result<bool> {
        let (first, count) = (rows.start * self.elements, (rows.end - rows.start) * self.elements);
        let one = rows.start..rows.end.min(rows.start + 1);
        Ok(self.memory.is_none() && self.piece(&one, row_bytes)?.is_some() && self.is_cached(first, count)?)
    }

    /// Returns rows of the job of `row_bytes` bytes each, if they are adjacent in memory. The source has no
    /// [`memory`](InputColumn::memory).
    fn piece(&self, rows: &Range<u64>, row_bytes: usize) -> Result<Option<&[u8]>> {
        let (first, count) = (rows.start * self.elements, (rows.end - rows.start) * self.elements);
        let piece = panics::caught(|| self.whose(), || piece_of(self.source, self.dtype, first, count))?;
        let piece = piece.map(|piece| piece.bytes());
        debug_assert!(piece.is_none_or(|piece| piece.len() == (rows.end - rows.start) as usize * row_bytes));
        Ok(piece)
    }

    /// Reads rows of the job from the source, from this one on.
    fn read(&self, first_row: u64, to: &mut [u8]) -> Result<()> {
        let read = |first, to: &mut [u8]| panics::caught(|| self.whose(), || self.source.read(first, to));
        self.unread.read(self.dtype, first_row * self.elements, to, read)
    }

    fn is_cached(&self, first: u64, count: u64) -> Result<bool> {
        panics::caught(|| self.whose(), || Ok(self.source.is_cached(first, count)))
    }

    /// Returns the name of the source for the error of a panic there.
    fn whose(&self) -> String {
        format!("the source of input '{}' ({})", self.name, self.source.name())
    }

    /// Records that the rows of a chunk were copied to the device on which they are resident.
    fn filled(&self, chunk: &Chunk) {
        if let Some(guard) = &self.guard {
            guard.record_filled(chunk.len() as u64 * self.elements);
        }
    }
}

/// An output of a run.
pub(crate) struct OutputColumn<'w> {
    /// The name of the output, for errors.
    pub(crate) name: &'w str,
    pub(crate) sink: &'w dyn Sink,
    /// Its memory, if it is written in place.
    pub(crate) memory: Option<&'w SinkMemory<'w>>,
    /// The same memory, if it is pinned, so that devices may copy to it.
    pub(crate) pinned: Option<&'w SinkMemory<'w>>,
    /// Elements of the sink per row of the job.
    pub(crate) elements: u64,
    /// `Some` if some rows are resident on devices.
    pub(crate) sharded: Option<Sharded>,
}

impl OutputColumn<'_> {
    /// Returns the elements of the sink that belong to a chunk.
    fn rows(&self, chunk: &Chunk) -> Range<u64> {
        let rows = chunk.rows();
        rows.start * self.elements..rows.end * self.elements
    }

    /// Writes the rows of a chunk, and returns their size in bytes.
    fn write(&self, chunk: &Chunk, bytes: &[u8]) -> Result<u64> {
        self.write_elements(self.rows(chunk).start, bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Writes elements of the sink, from this one on.
    fn write_elements(&self, first: u64, bytes: &[u8]) -> Result<()> {
        panics::caught(|| format!("the sink of output '{}'", self.name), || self.sink.write(first, bytes))
    }
}

/// The part of a run on one device: the state that its workers share.
pub(crate) trait DeviceRun {
    /// Creates the workers. `number` is the number of the device in the run.
    fn workers<'r>(&'r mut self, number: usize, work: &'r Work<'r>) -> Result<Vec<Box<dyn Worker + 'r>>>;

    /// Returns how the workers must be scheduled.
    fn schedule(&self) -> Schedule;

    /// Returns the times for preparing the kernel and for allocating memory.
    fn setup(&self) -> (Duration, Duration) {
        (Duration::ZERO, Duration::ZERO)
    }

    /// Returns a note if the device had less memory than planned.
    fn shortage(&self, plan: &DevicePlan) -> Option<String>;

    /// Recycles its memory for the next run. Called after a successful run; after a failed one the memory is freed on
    /// drop.
    fn recycle_memory(self: Box<Self>) {}
}

/// A worker of a device, or its submitter.
pub(crate) trait Worker: Send {
    /// Makes this thread ready for the steps of the worker, until the result is dropped on the same thread. Not needed
    /// for workers that take turns on one thread.
    fn enter(&self) -> Result<Box<dyn Any>> {
        Ok(Box::new(()))
    }

    /// Does one step: starts a chunk, finishes a chunk, or checks whether one can be finished. Returns false when
    /// nothing is left to do.
    fn step(&mut self) -> Result<bool>;

    /// Returns the virtual time at which the next step can begin.
    fn ready_at(&self) -> Duration;

    /// Returns whether this worker can do all of the work if all other workers are of its kind and do not begin.
    fn is_enough(&self) -> bool {
        false
    }

    /// Returns the measurements of the worker, after its last step.
    fn outcome(&mut self) -> WorkerOutcome;
}

/// The measurements of one worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerOutcome {
    /// The number of the device in the run.
    pub(crate) device: usize,
    pub(crate) chunks: u64,
    pub(crate) rows: u64,
    /// Times on the host, for all chunks.
    pub(crate) times: StageTimes,
    /// Times on the device for the timed chunks, and the rows of these chunks.
    pub(crate) sample: StageTimes,
    pub(crate) sampled_rows: u64,
    /// Bytes copied to and from the device.
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// The part of `bytes_in` that was enqueued before the kernel's values were known.
    pub(crate) bytes_ahead: u64,
    /// Bytes filled into and drained from slots.
    pub(crate) staged_in: u64,
    pub(crate) staged_out: u64,
    /// Rows that a CPU worker computed once more when they were in the cache, and the time that this took.
    pub(crate) in_cache: (u64, Duration),
    /// The chunks that were computed again.
    pub(crate) verified: Verified,
    /// Time for which the arbiter held the worker back, so that others could use the cores.
    pub(crate) throttled: Duration,
    /// Processor time of its thread; zero if all workers share one.
    pub(crate) processor: Duration,
    /// The time when it ended, on its clock.
    pub(crate) end: Duration,
    pub(crate) spans: Vec<Span>,
}

/// The name of a worker in errors and spans.
#[derive(Clone, Debug)]
pub(crate) struct WorkerName {
    pub(crate) device: String,
    pub(crate) worker: usize,
}

impl WorkerName {
    /// Wraps an error with the names of this worker and of a chunk, unless it has them. One of a source that runs a job
    /// of its own has other names.
    pub(crate) fn with_chunk(&self, chunk: &Chunk, cause: Error) -> Error {
        if let Error::Chunk { device, worker, chunk: index, rows, .. } = &cause
            && (device, *worker, *index, rows) == (&self.device, self.worker, chunk.index(), &chunk.rows())
        {
            return cause;
        }
        Error::Chunk {
            device: self.device.clone(),
            worker: self.worker,
            chunk: chunk.index(),
            rows: chunk.rows(),
            cause: Box::new(cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::kernel::{Kernel, ScalarArgs, TILE_ROWS};
    use crate::device::probe::probe;
    use crate::ops::CustomOp;

    #[test]
    fn a_run_that_is_stopped_abandons_its_late_values() {
        let values = ScalarArgs::late();
        let operator = CustomOp::new(Kernel { values: values.clone(), ..probe() });
        let work = Work {
            operator: &operator,
            inputs: vec![],
            outputs: vec![],
            queue: Queue::new(&[], TILE_ROWS, TILE_ROWS, TILE_ROWS, &[1]),
            alike: vec![],
            compaction: None,
            arbiter: None,
            losses: Losses::new(false, false),
            verification: None,
            epoch: Instant::now(),
            timed_every: 1,
            timeline: false,
            device_timeout: None,
        };
        work.stop();
        assert!(values.are_abandoned());
    }
}
