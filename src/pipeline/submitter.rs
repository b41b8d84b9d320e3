//! The submitter of a device: the thread that speaks to it.
//!
//! ```text
//!  workers ──Filled──▶ submitter ──Done──▶ the worker it came from
//! ```
//! Workers fill and drain; the submitter takes what they filled, in order, enqueues it, and looks which chunk is back. A call of the
//! driver takes a few microseconds on a thread that does nothing else, and several times as long on one that has just moved
//! megabytes through its caches, while all others wait for it. So workers never call the driver.

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

/// The thread of a device. It goes on until all workers are gone and nothing is in flight.
pub(super) struct Submitter<'r, D: Device> {
    /// Oldest first: the streams have all chunks in the same order.
    in_flight: VecDeque<InFlight<'r, D>>,
    /// Chunks that wait for the kernel's values, those in front with their rows on the device.
    ahead: VecDeque<Filled<'r, D>>,
    streams: Streams<'r, D>,
    filled: Receiver<Filled<'r, D>>,
    /// To each worker.
    done: Vec<Sender<Done<'r, D>>>,
    values: &'r ScalarArgs,
    device: &'r D,
    host: D::Host,
    backoff: SpinThenSleep,
    outcome: WorkerOutcome,
}

impl<'r, D: Device> Submitter<'r, D> {
    /// A submitter that takes what comes from `filled` and hands it back to the worker that it is of, on the device that has this
    /// number in the run.
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

    /// Enqueues a chunk, or as much of it as can be if the kernel's values are not known.
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
            Err((chunk, error)) => Err(self.with_chunk(worker, &chunk, error)),
        }
    }

    /// Hands on the oldest chunk if it is back.
    fn look(&mut self) -> Result<bool> {
        let Some(oldest) = self.in_flight.pop_front() else { return Ok(false) };
        let worker = oldest.worker;
        match oldest.finish(&self.streams, &mut self.host) {
            Ok(Ok(done)) => {
                // There is room for all slots of a worker. One that is gone has failed, and its chunk is lost with the run.
                let _ = self.done[worker].try_send(done);
                Ok(true)
            }
            Ok(Err(oldest)) => {
                self.in_flight.push_front(oldest);
                Ok(false)
            }
            Err((chunk, error)) => Err(self.with_chunk(worker, &chunk, error)),
        }
    }

    /// Names the chunk in an error of the device: after a fault all chunks that are there are lost, and nobody can tell which one
    /// it was.
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
    /// Enqueues a chunk, and looks for one that is back.
    fn step(&mut self) -> Result<bool> {
        self.streams.start(&mut self.host)?;
        // Asked once: a chunk must not overtake those before it, which have blocks.
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
        // By turns it is one or the other, so that nothing is waited for before its time.
        let finds = if submits && is_cooperative { false } else { self.look()? };
        if submits || finds {
            self.backoff = SpinThenSleep::new();
        } else if self.values.are_abandoned() {
            return Err(Error::Abandoned);
        } else if is_cooperative && !self.ahead.is_empty() || Some(self.ahead.len()) == self.filled.capacity() {
            // Nobody can go on before they come: all slots are here, or all workers wait on this thread.
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
