//! The submitter: the only thread that calls the driver of a device.
//!
//! Each [`step`](Submitter::step) does two things: it enqueues the copies and the kernel of the next filled slot, and
//! it checks whether the oldest chunk in flight is done. A done slot goes back to its worker. If there is neither,
//! the thread backs off. The order of chunks, and what happens before the kernel's values are known, is in
//! [`handover`](super::handover).
//!
//! Why a separate thread: a driver call takes a few microseconds on a thread that does nothing else. On a thread that
//! has just moved megabytes through its caches it takes several times as long, and all other threads that call the
//! driver wait meanwhile. So staging workers never call it.

use std::any::Any;
use std::collections::VecDeque;
use std::time::Duration;

use super::handover::{Enqueue, Finished, Step, SubmitterEnd};
use super::panels::Panels;
use super::slot::{Back, Filled, InFlight};
use super::streams::Streams;
use super::{Worker, WorkerName, WorkerOutcome};
use crate::data::Chunk;
use crate::device::{Device, Host, SpinThenSleep};
use crate::error::{Error, Result};

/// The submitter of a device. It ends when all workers of the device have ended and nothing is in flight.
pub(super) struct Submitter<'r, D: Device> {
    // Dropped in this order: the streams wait for their work before the chunks in flight are dropped, unless the device
    // was given up.
    enqueuer: Enqueuer<'r, D>,
    workers: SubmitterEnd<'r, Enqueuer<'r, D>>,
    backoff: SpinThenSleep,
}

impl<'r, D: Device> Submitter<'r, D> {
    /// Creates a submitter for the device with this number in the run.
    pub(super) fn new(streams: Streams<'r, D>, number: usize, workers: SubmitterEnd<'r, Enqueuer<'r, D>>) -> Self {
        let (device, work) = (streams.device, streams.work);
        let outcome = WorkerOutcome { device: number, ..WorkerOutcome::default() };
        let enqueuer = Enqueuer { streams, device, number, host: device.host(work.epoch), last: None, outcome };
        Submitter { enqueuer, workers, backoff: SpinThenSleep::new() }
    }

    /// Enqueues a chunk, and returns one that is done.
    fn advance(&mut self) -> Result<bool> {
        let Enqueuer { streams, host, .. } = &mut self.enqueuer;
        streams.start(host)?;
        if let Some(panels) = &mut streams.panels {
            panels.prepare()?;
        }
        match self.workers.step(&mut self.enqueuer)? {
            Step::Advanced => self.backoff = SpinThenSleep::new(),
            Step::Idle => self.backoff.pause(),
            Step::Ended => return Ok(false),
        }
        Ok(true)
    }

    /// Waits for what is in flight, because the run begins anew without another device: a drop of the streams would
    /// wait longer than the time limit of devices. Returns whether anything is.
    fn end_early(&mut self) -> Result<bool> {
        let goes_on = self.workers.end_early(&mut self.enqueuer)?;
        self.backoff.pause();
        Ok(goes_on)
    }

    /// Tells the run that the device is lost.
    ///
    /// # Errors
    /// The same error if the run cannot go on without the device.
    fn lose(&self, error: Error) -> Result<()> {
        let Enqueuer { streams, number, host, .. } = &self.enqueuer;
        streams.work.lose(*number, error, host.now())
    }
}

impl<D: Device> Worker for Submitter<'_, D> {
    fn enter(&self) -> Result<Box<dyn Any>> {
        self.enqueuer.device.enter().or_else(|error| {
            self.lose(error)?;
            Ok(Box::new(()))
        })
    }

    /// Enqueues a chunk, and returns one that is done. Ends if the device fails and the run goes on without it, or if
    /// the run begins anew without another one.
    fn step(&mut self) -> Result<bool> {
        let Enqueuer { streams, number, .. } = &self.enqueuer;
        if streams.work.losses.has(*number) {
            return Ok(false);
        }
        let went_on = if self.enqueuer.ends() { self.end_early() } else { self.advance() };
        went_on.or_else(|error| self.lose(error).map(|()| false))
    }

    fn ready_at(&self) -> Duration {
        let Enqueuer { streams, host, number, .. } = &self.enqueuer;
        let (panels, ends) = (streams.panels.as_ref(), self.enqueuer.ends());
        if streams.work.losses.has(*number) {
            return Duration::ZERO;
        }
        if !ends && self.workers.has_next(&self.enqueuer) || panels.is_some_and(Panels::has_piece) {
            return Duration::ZERO;
        }
        let oldest = self.workers.oldest().map(|oldest| oldest.done_at(host));
        let part = panels.and_then(Panels::oldest).map(|event| host.done_at(event));
        match oldest.into_iter().chain(part).min() {
            Some(done) => done.min(streams.deadline()),
            None if ends && self.enqueuer.is_idle() => Duration::ZERO,
            None => Duration::MAX,
        }
    }

    fn outcome(&mut self) -> WorkerOutcome {
        let Enqueuer { streams, host, outcome, .. } = &mut self.enqueuer;
        outcome.spans.extend(streams.spans_of_products(host));
        std::mem::take(outcome)
    }
}

/// The device of a submitter.
pub(super) struct Enqueuer<'r, D: Device> {
    streams: Streams<'r, D>,
    device: &'r D,
    /// The number of the device in the run.
    number: usize,
    host: D::Host,
    /// The worker of the last chunk that was enqueued, and the chunk, if there are products.
    last: Option<(usize, Chunk)>,
    outcome: WorkerOutcome,
}

impl<'r, D: Device> Enqueue for Enqueuer<'r, D> {
    type Filled = Filled<'r, D>;
    type InFlight = InFlight<'r, D>;
    type Done = Back<'r, D>;

    fn accepts(&self, filled: &Filled<'r, D>) -> bool {
        // After a failure, the chunks before it may never come. If the run begins anew, none of them is enqueued.
        let has_failed = || self.streams.work.queue.has_failed() && !self.ends();
        let has_panel = || self.streams.panels.as_ref().is_none_or(|panels| panels.accepts(filled.chunk()));
        // A chunk in several fills holds a block until the last one. What needs another block does not keep that one
        // waiting.
        has_panel() && filled.has_block(&self.streams) || has_failed()
    }

    fn advance(&mut self, may_look: bool) -> Result<bool> {
        let advanced = self.streams.advance_products(&mut self.host, may_look);
        advanced.map_err(|error| {
            let first = self.streams.panels.as_ref().and_then(Panels::first_row);
            let Some(((worker, chunk), first)) = self.last.as_ref().zip(first) else { return error };
            let rows = first.min(chunk.rows().start)..chunk.rows().end;
            self.with_chunk(*worker, &Chunk::new(chunk.index(), rows), error, &VecDeque::new())
        })
    }

    fn is_idle(&self) -> bool {
        self.streams.panels.as_ref().is_none_or(Panels::is_idle)
    }

    fn copy_ahead(&mut self, filled: &mut Filled<'r, D>, in_flight: &VecDeque<InFlight<'r, D>>) -> Result<()> {
        if !self.accepts(filled) {
            return Ok(());
        }
        let copied = filled.copy_ahead(&mut self.streams, &mut self.host);
        let copied = copied.map_err(|error| self.with_chunk(filled.worker, filled.chunk(), error, in_flight))?;
        self.outcome.bytes_ahead += copied;
        Ok(())
    }

    fn submit(&mut self, filled: Filled<'r, D>, in_flight: &VecDeque<InFlight<'r, D>>) -> Result<InFlight<'r, D>> {
        let worker = filled.worker;
        if self.streams.panels.is_some() {
            self.last = Some((worker, filled.chunk().clone()));
        }
        if in_flight.is_empty() {
            self.streams.begin(self.host.now());
        }
        filled.submit(&mut self.streams, &mut self.host).map_err(|lost| {
            let (chunk, error) = *lost;
            self.with_chunk(worker, &chunk, error, in_flight)
        })
    }

    fn finish(&mut self, oldest: InFlight<'r, D>, in_flight: &VecDeque<InFlight<'r, D>>) -> Result<Finished<Self>> {
        let worker = oldest.worker;
        let done = oldest.finish(&self.streams, &mut self.host).map_err(|lost| {
            let (chunk, error) = *lost;
            self.with_chunk(worker, &chunk, error, in_flight)
        })?;
        if done.is_ok() {
            self.streams.begin(self.host.now());
        }
        Ok(done.map(|done| (worker, done)))
    }
}

impl<'r, D: Device> Enqueuer<'r, D> {
    /// Returns whether a device was lost so that this one ends.
    fn ends(&self) -> bool {
        self.streams.work.losses.end(self.number)
    }

    /// Wraps an error with the chunk. After a fault of the device all chunks on it are lost, and it is unknown which
    /// one caused the fault, so the error names all of them.
    fn with_chunk(&self, worker: usize, chunk: &Chunk, error: Error, in_flight: &VecDeque<InFlight<'r, D>>) -> Error {
        let name = WorkerName { device: self.device.info().id.clone(), worker };
        let there = || in_flight.iter().map(InFlight::chunk).chain([chunk]);
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
