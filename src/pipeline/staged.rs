//! The worker of a device with memory of its own: **the** loop.

use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, TryRecvError};

use super::meter::{HostStage, Meter, Task};
use super::permit::Permit;
use super::slot::{Done, Filled, Idle};
use super::{Work, Worker, WorkerOutcome};
use crate::data::Chunk;
use crate::device::{Device, Host, HostWork, Schedule, SpinThenSleep};
use crate::error::{Error, Result};

/// One worker: a thread of the host and its slots.
pub(super) struct StagingWorker<'r, D: Device> {
    idle: Vec<Idle<'r, D>>,
    /// Chunks that the submitter has.
    in_flight: usize,
    /// To the submitter; dropped at the end.
    submitter: Option<Sender<Filled<'r, D>>>,
    /// From the submitter, in the order in which they were handed over.
    done: Receiver<Done<'r, D>>,
    /// Since when it has nothing to do before a chunk is back.
    waits: Option<Duration>,
    backoff: SpinThenSleep,
    /// A chunk that is back and waits for its place, and whether this worker had to wait for it.
    held: Option<(Done<'r, D>, bool)>,
    device: &'r D,
    /// Of the device in the run.
    number: usize,
    host: D::Host,
    work: &'r Work<'r>,
    chunk_rows: usize,
    /// Of those that have all their columns on the device.
    resident_chunk_rows: usize,
    permit: Permit<'r>,
    meter: Meter,
}

impl<'r, D: Device> Worker for StagingWorker<'r, D> {
    /// Claims a chunk, fills a slot and hands it to the submitter; when there is no idle slot or no chunk, drains one that is back.
    fn step(&mut self) -> Result<bool> {
        if let Some((done, awaited)) = self.held.take() {
            self.drain(done, awaited)?;
        } else if self.idle.is_empty() || self.waits.is_some() {
            self.receive()?;
        } else if let Some(chunk) = self.claim() {
            self.send(&chunk)?;
        } else if self.in_flight > 0 {
            self.waits = Some(self.host.now());
        } else {
            self.permit.end();
            self.submitter = None;
            return Ok(false);
        }
        Ok(true)
    }

    fn ready_at(&self) -> Duration {
        if let (Some((done, _)), Some(compaction)) = (&self.held, &self.work.compaction) {
            return if compaction.is_known(done.chunk()) { self.host.now() } else { Duration::MAX };
        }
        match (self.idle.is_empty() || self.waits.is_some()) && self.done.is_empty() {
            // It is the submitter's turn before.
            true => Duration::MAX,
            false => self.host.now(),
        }
    }

    fn outcome(&mut self) -> WorkerOutcome {
        self.meter.take(self.host.now())
    }
}

impl<'r, D: Device> StagingWorker<'r, D> {
    /// A worker with these slots, on the device that has this number in the run.
    pub(super) fn new(
        idle: Vec<Idle<'r, D>>,
        device: &'r D,
        number: usize,
        meter: Meter,
        (submitter, done): (Sender<Filled<'r, D>>, Receiver<Done<'r, D>>),
        work: &'r Work<'r>,
        (chunk_rows, resident_chunk_rows): (usize, usize),
    ) -> Self {
        StagingWorker {
            idle,
            in_flight: 0,
            submitter: Some(submitter),
            done,
            waits: None,
            backoff: SpinThenSleep::new(),
            held: None,
            device,
            number,
            host: device.host(work.epoch),
            work,
            chunk_rows,
            resident_chunk_rows,
            permit: Permit::new(work.arbiter.as_ref()),
            meter,
        }
    }

    /// Claims a chunk. Half of the workers begin with the rows that lie on this device and half with those of everybody, so that the
    /// link and the device are both busy; before the kernel's values are known, only the link can be. The first worker never waits
    /// for the CPU before it has seen to the device's own.
    fn claim(&mut self) -> Option<Chunk> {
        let is_device_idle = !self.work.operator.kernel().values.are_known() && !self.permit.is_shared();
        if self.meter.worker().is_multiple_of(2) && !is_device_idle {
            self.claim_own().or_else(|| self.claim_common())
        } else {
            self.claim_common().or_else(|| self.claim_own())
        }
    }

    /// Claims rows that lie on this device: no other does them, nor the CPU.
    fn claim_own(&self) -> Option<Chunk> {
        self.work.queue.claim_own(self.number, self.chunk_rows, self.resident_chunk_rows)
    }

    /// Claims rows that any worker may, once this worker may stage.
    fn claim_common(&mut self) -> Option<Chunk> {
        let begin = self.host.now();
        let may_claim = self.permit.admit(self.in_flight > 0);
        self.meter.outcome.throttled += self.host.now() - begin;
        if may_claim { self.work.queue.claim(self.chunk_rows) } else { None }
    }

    /// Fills a slot with the chunk's rows and hands it to the submitter.
    fn send(&mut self, chunk: &Chunk) -> Result<()> {
        let mut slot = self.idle.pop().ok_or(Error::Abandoned)?;
        let _span = self.meter.span(Task::Send, chunk);
        let begin = self.host.now();
        slot.route(chunk, self.device, self.work).map_err(|error| self.meter.with_chunk(chunk, error))?;
        for (k, input) in self.work.inputs.iter().enumerate() {
            let Some(rows) = slot.input_mut(k) else { continue };
            input.read(chunk, rows).map_err(|error| self.meter.with_chunk(chunk, error))?;
            self.host.worked(HostWork::Fill, rows.len());
            self.meter.outcome.staged_in += rows.len() as u64;
        }
        self.meter.outcome.bytes_in += slot.upload_bytes();
        let filled = self.host.now();
        self.meter.ran(HostStage::Fill, chunk, begin, filled);
        if !slot.is_home() {
            self.permit.filled(chunk.len(), filled - begin);
        }
        let submitter = self.submitter.as_ref().ok_or(Error::Abandoned)?;
        // It is gone if the device failed, and there is room for all slots.
        submitter.try_send(slot.filled(self.meter.worker(), filled)).map_err(|_| Error::Abandoned)?;
        self.in_flight += 1;
        Ok(())
    }

    /// Drains the oldest chunk if it is back. It is held, for another turn, if its place is not known yet.
    fn receive(&mut self) -> Result<()> {
        let begin = *self.waits.get_or_insert(self.host.now());
        let done = match self.done.try_recv() {
            Ok(done) => done,
            Err(TryRecvError::Empty) => {
                let values = &self.work.operator.kernel().values;
                if self.device.schedule() == Schedule::Threads && !values.are_known() {
                    // Nothing comes back before, and the pass before this one needs the core.
                    values.wait();
                }
                self.backoff.pause();
                return Ok(());
            }
            // The device failed.
            Err(TryRecvError::Disconnected) => return Err(Error::Abandoned),
        };
        (self.waits, self.backoff) = (None, SpinThenSleep::new());
        self.in_flight -= 1;
        let awaited = done.back_at > begin;
        self.host.reach(done.back_at);
        self.meter.outcome.times.drain.waiting += self.host.now() - begin;
        let Some(compaction) = &self.work.compaction else { return self.drain(done, awaited) };
        let counted = compaction.count(done.chunk(), done.partials());
        counted.map_err(|error| self.meter.with_chunk(done.chunk(), error))?;
        self.held = Some((done, awaited));
        Ok(())
    }

    /// Hands the rows of a chunk to the sinks; its slot is idle then.
    fn drain(&mut self, done: Done<'r, D>, awaited: bool) -> Result<()> {
        let chunk = done.chunk();
        let _span = self.meter.span(Task::Drain, chunk);
        let begin = self.host.now();
        let written = self.write(&done).map_err(|error| self.meter.with_chunk(chunk, error))?;
        self.host.worked(HostWork::Drain, written as usize);
        self.meter.outcome.staged_out += written;
        self.meter.outcome.bytes_out += done.download_bytes();
        if !done.partials().is_empty() {
            self.work.operator.absorb(chunk.rows().start, chunk.len(), done.partials());
        }
        for input in done.filled_inputs() {
            self.work.inputs[input].filled(chunk);
        }
        self.work.queue.finish(chunk);
        self.meter.finished(chunk);
        self.meter.ran(HostStage::Drain, chunk, begin, self.host.now());
        self.permit.drained((!done.is_home()).then_some(chunk.len()), self.meter.staging_time(), awaited);
        if let Some(stages) = &done.taken {
            self.meter.ran_on_device(chunk, done.filled_at, stages);
        }
        self.idle.push(done.recycle());
        Ok(())
    }

    /// Writes the staged outputs of a chunk; returns how many bytes they are.
    fn write(&self, done: &Done<'r, D>) -> Result<u64> {
        let (chunk, outputs) = (done.chunk(), &self.work.outputs);
        if let Some(compaction) = &self.work.compaction {
            return compaction.write(chunk, done.partials(), outputs, |k| done.output(k));
        }
        let staged = outputs.iter().enumerate().filter_map(|(k, output)| Some((output, done.output(k)?)));
        staged.map(|(output, rows)| output.write(chunk, rows)).sum()
    }
}
