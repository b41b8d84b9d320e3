//! The submitter: the only thread that calls the driver of a device.
//!
//! ```text
//!  workers ──Filled──▶ submitter ──Done──▶ the worker that filled the slot
//! ```
//! Each [`step`](Submitter::step) does two things: it enqueues the copies and the kernel of the next filled slot, and
//! it checks whether the oldest chunk in flight is done. A done slot goes back to its worker. If there is neither,
//! the thread backs off.
//!
//! Why a separate thread: a driver call takes a few microseconds on a thread that does nothing else. On a thread that
//! has just moved megabytes through its caches it takes several times as long, and all other threads that call the
//! driver wait meanwhile. So staging workers never call it.
//!
//! Chunks **ahead**: a pass may begin before its values are known (see [`ScalarArgs`]). Until then the submitter
//! enqueues only copies in, as long as there are free blocks, and holds the chunks in `ahead`. Once the values are
//! known, it launches these chunks first, in the same order.

use std::collections::VecDeque;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, TryRecvError};

use super::slot::{Done, Filled, InFlight};
use super::streams::Streams;
use super::{Worker, WorkerName, WorkerOutcome};
use crate::data::Chunk;
use crate::device::kernel::ScalarArgs;
use crate::device::{Device, Schedule, SpinThenSleep};
use crate::error::{Error, Result};

/// The submitter of a device. It ends when all workers of the device have ended and nothing is in flight.
pub(super) struct Submitter<'r, D: Device> {
    /// Chunks whose work is enqueued, oldest first. They finish in this order, because every stream has them in this
    /// order.
    in_flight: VecDeque<InFlight<'r, D>>,
    /// Chunks that wait for the kernel's values, oldest first. The copies in of the first ones are enqueued.
    ahead: VecDeque<Filled<'r, D>>,
    streams: Streams<'r, D>,
    filled: Receiver<Filled<'r, D>>,
    /// The channels to the workers, by number of the worker.
    done: Vec<Sender<Done<'r, D>>>,
    values: &'r ScalarArgs,
    device: &'r D,
    host: D::Host,
    backoff: SpinThenSleep,
    outcome: WorkerOutcome,
}

impl<'r, D: Device> Submitter<'r, D> {
    /// Creates a submitter for the device with this number in the run. It takes slots from `filled` and returns each
    /// through the channel of its worker in `done`.
    pub(super) fn new(
        streams: Streams<'r, D>,
        number: usize,
        filled: Receiver<Filled<'r, D>>,
        done: Vec<Sender<Done<'r, D>>>,
    ) -> Self {
        let slots = filled.capacity().unwrap_or_default();
        let (device, work) = (streams.device, streams.work);
        Submitter {
            in_flight: VecDeque::with_capacity(slots),
            ahead: VecDeque::new(),
            streams,
            filled,
            done,
            values: &work.operator.kernel().values,
            device,
            host: device.host(work.epoch),
            backoff: SpinThenSleep::new(),
            outcome: WorkerOutcome { device: number, ..WorkerOutcome::default() },
        }
    }

    /// Enqueues a chunk; only its copies in, if the kernel's values are not known.
    fn submit(&mut self, mut filled: Filled<'r, D>, has_values: bool) -> Result<()> {
        let worker = filled.worker;
        if !has_values {
            let copied = filled.copy_ahead(&mut self.streams, &mut self.host);
            self.outcome.bytes_ahead += copied.map_err(|error| self.with_chunk(worker, filled.chunk(), error))?;
            self.ahead.push_back(filled);
            return Ok(());
        }
        match filled.submit(&mut self.streams, &mut self.host) {
            Ok(in_flight) => {
                self.in_flight.push_back(in_flight);
                Ok(())
            }
            Err(lost) => {
                let (chunk, error) = *lost;
                Err(self.with_chunk(worker, &chunk, error))
            }
        }
    }

    /// Returns the oldest chunk to its worker if it is done. Returns whether it was.
    fn look(&mut self) -> Result<bool> {
        let Some(oldest) = self.in_flight.pop_front() else { return Ok(false) };
        let worker = oldest.worker;
        match oldest.finish(&self.streams, &mut self.host) {
            Ok(Ok(done)) => {
                // The channel has capacity for all slots of the worker. If the worker has ended, it failed, and the
                // run fails with it.
                let _ = self.done[worker].try_send(done);
                Ok(true)
            }
            Ok(Err(oldest)) => {
                self.in_flight.push_front(oldest);
                Ok(false)
            }
            Err(lost) => {
                let (chunk, error) = *lost;
                Err(self.with_chunk(worker, &chunk, error))
            }
        }
    }

    /// Wraps an error with the chunk. After a fault of the device all chunks on it are lost, and it is unknown which
    /// one caused the fault, so the error names all of them.
    fn with_chunk(&self, worker: usize, chunk: &Chunk, error: Error) -> Error {
        let name = WorkerName { device: self.device.info().id.clone(), worker };
        let there = || self.in_flight.iter().map(InFlight::chunk).chain([chunk]);
        let first = there().min_by_key(|chunk| chunk.index()).unwrap_or(chunk);
        let last = there().map(Chunk::index).max().unwrap_or(chunk.index());
        match error {
            Error::Device { device, problem, remedy } if first.index() < last => {
                let problem = format!(
                    "{problem}; it was one of the chunks {} to {last}, which were on the device",
                    first.index()
                );
                let end = there().map(|chunk| chunk.rows().end).max().unwrap_or(chunk.rows().end);
                let all = Chunk::new(first.index(), first.rows().start..end);
                name.with_chunk(&all, Error::Device { device, problem, remedy })
            }
            error => name.with_chunk(chunk, error),
        }
    }
}

impl<D: Device> Worker for Submitter<'_, D> {
    /// Enqueues a chunk, and returns one that is done.
    fn step(&mut self) -> Result<bool> {
        self.streams.start(&mut self.host)?;
        // Read once per step: a chunk must not overtake the chunks ahead of it, which hold blocks.
        let has_values = self.values.are_known();
        let launches = if has_values { self.ahead.pop_front() } else { None };
        let next = launches.map_or_else(|| self.filled.try_recv(), Ok);
        if next.as_ref().is_err_and(TryRecvError::is_disconnected) && self.in_flight.is_empty() && self.ahead.is_empty()
        {
            return Ok(false);
        }
        let submits = next.is_ok();
        if let Ok(filled) = next {
            self.submit(filled, has_values)?;
        }
        let is_cooperative = self.device.schedule() != Schedule::Threads;
        // In a cooperative schedule `look` advances virtual time, so it must not run in the step that submits.
        let finds = if submits && is_cooperative { false } else { self.look()? };
        if submits || finds {
            self.backoff = SpinThenSleep::new();
        } else if self.values.are_abandoned() {
            return Err(Error::abandoned());
        } else if is_cooperative && !self.ahead.is_empty() || Some(self.ahead.len()) == self.filled.capacity() {
            // Nothing can proceed without the values: all slots are here, or all workers share this thread.
            self.values.wait();
        } else {
            self.backoff.pause();
        }
        Ok(true)
    }

    fn ready_at(&self) -> Duration {
        match self.in_flight.front() {
            _ if !self.filled.is_empty() || !self.ahead.is_empty() && self.values.are_known() => Duration::ZERO,
            Some(oldest) => oldest.done_at(&self.host),
            None => Duration::MAX,
        }
    }

    fn outcome(&mut self) -> WorkerOutcome {
        std::mem::take(&mut self.outcome)
    }
}
