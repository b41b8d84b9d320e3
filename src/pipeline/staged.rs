//! The staging worker: the host side of a device with its own memory. This is **the** loop.
//!
//! A worker is a host thread with one to three slots. Each [`step`](StagingWorker::step) does the first of these that
//! is possible:
//!
//! 1. **Drain** the oldest chunk that waited for its place in a compacted output, if the place is known.
//! 2. **Receive**, if no slot is idle or no chunk is left to claim: take the oldest chunk that came back, and drain
//!    it. With compaction, count its rows, and hold it until its place is known.
//! 3. **Send**: claim a chunk, read its rows into an idle slot, and send the slot to the submitter. If a chunk is
//!    larger than a slot, read as many rows as there is room for; the following steps send the others.
//! 4. **Wait** for the chunks in flight, or for the place of a chunk: the following steps receive or drain.
//! 5. **End**, when there are no chunks to claim, none in flight and none held.
//!
//! So a worker fills all of its slots before it waits for a chunk, and while it waits the device works on them.
//! Chunks come back in the order in which they were sent. A worker never calls the driver; see
//! [`submitter`](super::submitter) for the reason. If the device is lost and the run goes on, or if it begins anew, the
//! worker gives its chunks back to the queue and ends.

use std::collections::VecDeque;
use std::time::Duration;

use super::handover::WorkerEnd;
use super::meter::{HostStage, Meter, Task};
use super::permit::Permit;
use super::slot::{Back, Done, Idle};
use super::submitter::Enqueuer;
use super::verify::Verifier;
use super::{Work, Worker, WorkerOutcome};
use crate::data::Chunk;
use crate::device::{Device, Host, HostWork, SpinThenSleep};
use crate::error::{Error, Result};

/// A staging worker: one host thread and its slots.
pub(super) struct StagingWorker<'r, D: Device> {
    idle: Vec<Idle<'r, D>>,
    /// Chunks that were claimed and are not finished, oldest first.
    claimed: VecDeque<Chunk>,
    /// The newest of them, and how many of its rows were sent, if others are left.
    rest: Option<(Chunk, usize)>,
    /// Slots that were sent to the submitter and have not been received.
    in_flight: usize,
    /// The channels to and from the submitter.
    submitter: WorkerEnd<'r, Enqueuer<'r, D>>,
    /// The time since which the worker has had nothing to do but wait for a chunk.
    waits: Option<Duration>,
    backoff: SpinThenSleep,
    /// Chunks that came back and wait for their places in a compacted output, oldest first. Their rows are counted.
    held: VecDeque<Done<'r, D>>,
    device: &'r D,
    /// The number of the device in the run.
    number: usize,
    host: D::Host,
    work: &'r Work<'r>,
    /// The most rows of a chunk.
    chunk_rows: usize,
    /// The most rows of a chunk whose columns are all resident on the device.
    resident_chunk_rows: usize,
    permit: Permit<'r>,
    verifier: Option<Verifier<'r>>,
    meter: Meter,
}

impl<'r, D: Device> Worker for StagingWorker<'r, D> {
    /// Fills and sends a chunk, or receives and drains one.
    fn step(&mut self) -> Result<bool> {
        if !self.is_lost() {
            match self.advance() {
                // The device has just been lost: there is no submitter, or no permission of the arbiter.
                Err(error) if error.is_abandoned() && self.is_lost() => {}
                went_on => return went_on,
            }
        }
        Ok(!self.gave_back())
    }

    fn ready_at(&self) -> Duration {
        if self.is_lost() {
            // The submitter must end first.
            return if self.submitter.is_closed() { self.host.now() } else { Duration::MAX };
        }
        if self.has_place() || self.rest.is_some() && !self.is_waiting() {
            return self.host.now();
        }
        if self.is_waiting() && !self.submitter.has_done() {
            // The submitter must step first, or the worker of a chunk before those that are held.
            return Duration::MAX;
        }
        self.permit.refusal().map_or(self.host.now(), |(_, resumes)| resumes)
    }

    fn outcome(&mut self) -> WorkerOutcome {
        self.meter.take(self.host.now())
    }
}

impl<'r, D: Device> StagingWorker<'r, D> {
    /// Creates a worker with these slots on the device with this number in the run.
    pub(super) fn new(
        idle: Vec<Idle<'r, D>>,
        device: &'r D,
        number: usize,
        meter: Meter,
        submitter: WorkerEnd<'r, Enqueuer<'r, D>>,
        work: &'r Work<'r>,
        (chunk_rows, resident_chunk_rows): (usize, usize),
    ) -> Result<Self> {
        Ok(StagingWorker {
            idle,
            claimed: VecDeque::new(),
            rest: None,
            in_flight: 0,
            submitter,
            waits: None,
            backoff: SpinThenSleep::new(),
            held: VecDeque::new(),
            device,
            number,
            host: device.host(work.epoch),
            work,
            chunk_rows,
            resident_chunk_rows,
            permit: Permit::new(work.arbiter.as_ref(), number),
            verifier: Verifier::of(work, &device.info().id, false)?,
            meter,
        })
    }

    /// Returns whether the run goes on without the device, or begins anew.
    fn is_lost(&self) -> bool {
        self.work.losses.end(self.number)
    }

    /// Gives all chunks back to the queue, once the submitter is gone, and with it the device's access to their rows.
    /// Returns whether it is.
    fn gave_back(&mut self) -> bool {
        self.submitter.end();
        if !self.submitter.is_closed() {
            self.backoff.pause();
            return false;
        }
        self.held.clear();
        self.rest = None;
        for chunk in self.claimed.drain(..) {
            for output in &self.work.outputs {
                if let Some(memory) = output.pinned {
                    // SAFETY: slots forget their claims on pinned rows if the device fails (`To::Pinned`). The
                    // submitter is gone, and it waits for its streams before it goes, so no copy writes to these
                    // rows any more. Runs with pinned columns have no time limit, so it never abandons them.
                    unsafe { memory.end_forgotten_claim(output.rows(&chunk)) };
                }
            }
            self.work.queue.give_back(&chunk);
        }
        true
    }

    /// Does the first of the steps that is possible.
    fn advance(&mut self) -> Result<bool> {
        if self.has_place() || self.is_waiting() && self.in_flight == 0 {
            self.drain_held()?;
        } else if self.is_waiting() {
            self.receive()?;
        } else if let Some((chunk, sent)) = self.rest.take().or_else(|| Some((self.claim()?, 0))) {
            self.send(chunk, sent)?;
        } else if self.in_flight > 0 || !self.held.is_empty() {
            self.waits = Some(self.host.now());
        } else if self.is_lost() {
            // It was not permitted to claim a chunk.
            return Err(Error::abandoned());
        } else if !self.permit.is_refused() {
            self.permit.end(self.host.now());
            self.submitter.end();
            return Ok(false);
        }
        Ok(true)
    }

    /// Returns whether the worker can do nothing but wait for a chunk: no slot is idle, or no chunk is left.
    fn is_waiting(&self) -> bool {
        self.idle.is_empty() || self.waits.is_some()
    }

    /// Returns whether the place of the oldest held chunk is known.
    fn has_place(&self) -> bool {
        let oldest = self.held.front().zip(self.work.compaction.as_ref());
        oldest.is_some_and(|(done, compaction)| compaction.is_known(done.chunk()))
    }

    /// Claims a chunk. Half of the workers prefer rows that are resident on this device, the other half prefer common
    /// rows, so that both the device and the link are busy. Until the kernel's values are known, the device cannot
    /// compute, so all workers of a run without CPU workers prefer common rows, which keep the link busy. In a run
    /// with CPU workers, claiming common rows may wait for the arbiter; the first worker claims the device's resident
    /// rows before it does.
    fn claim(&mut self) -> Option<Chunk> {
        let is_device_idle = !self.work.operator.kernel().values.are_known() && !self.permit.is_shared();
        if self.meter.worker().is_multiple_of(2) && !is_device_idle {
            self.claim_own().or_else(|| self.claim_common())
        } else {
            self.claim_common().or_else(|| self.claim_own())
        }
    }

    /// Claims rows that are resident on this device. Only workers of this device process them.
    fn claim_own(&mut self) -> Option<Chunk> {
        let chunk = self.work.queue.claim_own(self.number, (self.chunk_rows, self.resident_chunk_rows))?;
        self.permit.claimed(false);
        Some(chunk)
    }

    /// Claims rows that any worker may process, after the arbiter permits this worker to stage.
    fn claim_common(&mut self) -> Option<Chunk> {
        let mut begin = self.host.now();
        if let Some((since, resumes)) = self.permit.refusal() {
            begin = since;
            self.host.reach(resumes);
        }
        let may_claim = self.permit.admit(self.in_flight > 0 || !self.held.is_empty(), begin);
        if !self.permit.is_refused() {
            self.meter.outcome.throttled += self.host.now() - begin;
        }
        if !may_claim {
            return None;
        }
        let tile = self.work.operator.kernel().columns.tile_rows;
        let most = self.permit.chunk_rows(self.chunk_rows, tile);
        let chunk = self.work.queue.claim_for((self.number, self.meter.worker()), (most, self.resident_chunk_rows))?;
        self.permit.claimed(true);
        Some(chunk)
    }

    /// Reads rows of the chunk into an idle slot and sends the slot to the submitter: all rows, or as many as the slot
    /// has room for behind the first ones, which were sent before.
    fn send(&mut self, chunk: Chunk, sent: usize) -> Result<()> {
        if sent == 0 {
            self.claimed.push_back(chunk.clone());
        }
        let mut slot = self.idle.pop().ok_or_else(Error::abandoned)?;
        let _span = self.meter.span(Task::Send, &chunk);
        let begin = self.host.now();
        let part = slot.route((&chunk, sent), self.device, self.work);
        let part = part.map_err(|error| self.meter.with_chunk(&chunk, error))?;
        let columns = &self.work.operator.kernel().columns;
        let mut staged = 0;
        for (k, input) in self.work.inputs.iter().enumerate() {
            let Some(rows) = slot.input_mut(k) else { continue };
            let first = columns.window(k, &part.rows()).start;
            input.read(first, rows).map_err(|error| self.meter.with_chunk(&part, error))?;
            staged += rows.len();
        }
        self.host.worked(HostWork::Fill, staged);
        self.meter.outcome.staged_in += staged as u64;
        self.meter.outcome.bytes_in += slot.upload_bytes();
        let filled = self.host.now();
        self.meter.ran(HostStage::Fill, &part, begin, filled);
        self.permit.filled(part.len(), filled - begin, filled);
        self.submitter.send(slot.filled(self.meter.worker(), filled))?;
        self.in_flight += 1;
        let sent = sent + part.len();
        self.rest = (sent < chunk.len()).then_some((chunk, sent));
        Ok(())
    }

    /// Takes the oldest chunk if it is back, and drains it. With compaction, counts its rows and holds it, because its
    /// place may not be known yet. If it is only some rows of a chunk, frees their slot.
    fn receive(&mut self) -> Result<()> {
        let begin = *self.waits.get_or_insert(self.host.now());
        let Some(back) = self.submitter.receive()? else {
            self.backoff.pause();
            return Ok(());
        };
        self.in_flight -= 1;
        self.host.reach(match &back {
            Back::Chunk(done) => done.back_at,
            Back::Fill(copied) => copied.back_at,
        });
        self.waited(begin);
        let done = match back {
            Back::Chunk(done) => done,
            Back::Fill(copied) => {
                if let Some(taken) = copied.taken {
                    self.meter.copied_in(&copied.part(), copied.filled_at, taken);
                }
                self.idle.push(copied.recycle());
                return Ok(());
            }
        };
        let Some(compaction) = &self.work.compaction else { return self.drain(done, None) };
        let counted = compaction.count(done.chunk(), done.partials());
        counted.map_err(|error| self.meter.with_chunk(done.chunk(), error))?;
        self.held.push_back(done);
        Ok(())
    }

    /// Drains the oldest held chunk, once its place is known.
    fn drain_held(&mut self) -> Result<()> {
        let oldest = self.held.pop_front().zip(self.work.compaction.as_ref());
        let (done, compaction) = oldest.ok_or_else(Error::abandoned)?;
        let begin = self.waits.unwrap_or(self.host.now());
        let place = compaction.place(done.chunk())?;
        self.waited(begin);
        self.drain(done, Some(place))
    }

    /// Ends a wait for a chunk that began at this time.
    fn waited(&mut self, begin: Duration) {
        (self.waits, self.backoff) = (None, SpinThenSleep::new());
        self.meter.outcome.times.drain.waiting += self.host.now() - begin;
    }

    /// Writes the outputs of a chunk to the sinks, absorbs its partial results, and recycles its slot. With
    /// compaction, its place is given.
    fn drain(&mut self, done: Done<'r, D>, place: Option<u64>) -> Result<()> {
        let chunk = done.chunk();
        let _span = self.meter.span(Task::Drain, chunk);
        if let Some(verifier) = &mut self.verifier {
            verifier.check(chunk, |output| done.output(output), done.partials(), &mut self.meter)?;
        }
        let begin = self.host.now();
        let written = self.write(&done, place).map_err(|error| self.meter.with_chunk(chunk, error))?;
        self.host.worked(HostWork::Drain, written as usize);
        self.meter.outcome.staged_out += written;
        self.meter.outcome.bytes_out += done.download_bytes();
        if !done.partials().is_empty() {
            self.work.operator.absorb(chunk.rows().start, chunk.len(), done.partials());
        }
        for input in done.filled_inputs() {
            self.work.inputs[input].filled(chunk);
        }
        self.work.queue.finish(chunk).map_err(|error| self.meter.with_chunk(chunk, error))?;
        self.claimed.pop_front();
        self.meter.finished(chunk);
        let drained = self.host.now();
        self.meter.ran(HostStage::Drain, chunk, begin, drained);
        self.permit.drained(chunk.len(), self.meter.staging_time(), drained);
        if let Some(stages) = &done.taken {
            self.meter.ran_on_device((chunk, &done.part()), done.filled_at, stages);
        }
        self.idle.push(done.recycle());
        Ok(())
    }

    /// Writes the staged outputs of a chunk, and returns their size in bytes.
    fn write(&self, done: &Done<'r, D>, place: Option<u64>) -> Result<u64> {
        let (chunk, outputs) = (done.chunk(), &self.work.outputs);
        if let Some((compaction, place)) = self.work.compaction.as_ref().zip(place) {
            return compaction.write((chunk, place), done.partials(), outputs, |k| done.output(k));
        }
        let staged = outputs.iter().enumerate().filter_map(|(k, output)| Some((output, done.output(k)?)));
        staged.map(|(output, rows)| output.write(chunk, rows)).sum()
    }
}
