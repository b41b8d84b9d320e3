//! The lane of a device with memory of its own: **the** loop.

use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, TryRecvError};
use tracing::{debug_span, trace};

use super::slot::{Done, Filled, Idle, Of};
use super::{Lane, LaneName, LaneOutcome, Work};
use crate::data::Chunk;
use crate::device::{Device, Host, HostWork, Patience, Schedule};
use crate::error::{Error, Result};
use crate::trace::{Span, Track};

/// One lane: a thread of the host and its slots.
pub(super) struct StagedLane<'r, D: Device> {
    idle: Vec<Idle<'r, D>>,
    /// Chunks that the submitter has.
    in_flight: usize,
    /// To the submitter; dropped at the end.
    submitter: Option<Sender<Filled<'r, D>>>,
    /// From the submitter, in the order in which they were handed over.
    done: Receiver<Done<'r, D>>,
    /// Since when it has nothing to do before a chunk is back.
    waits: Option<Duration>,
    patience: Patience,
    /// A chunk that is back and waits for its place.
    held: Option<Done<'r, D>>,
    device: &'r D,
    /// Of the device in the run.
    number: usize,
    host: D::Host,
    work: &'r Work<'r>,
    chunk_rows: usize,
    /// Of those that have all their columns on the device.
    whole_rows: usize,
    name: LaneName,
    outcome: LaneOutcome,
    /// Of the time spent on filling and draining, what was told.
    told: Duration,
    /// Whether this lane is one of those that stage now.
    stages: bool,
}

impl<'r, D: Device> Lane for StagedLane<'r, D> {
    /// Claims a chunk, fills a slot and hands it to the submitter; when there is no idle slot or no chunk, drains one that is back.
    fn turn(&mut self) -> Result<bool> {
        if let Some(done) = self.held.take() {
            self.drain(done)?;
        } else if self.idle.is_empty() || self.waits.is_some() {
            self.receive()?;
        } else if let Some(chunk) = self.claim() {
            self.send(chunk)?;
        } else if self.in_flight > 0 {
            self.waits = Some(self.host.now());
        } else {
            self.work.share.end();
            self.submitter = None;
            return Ok(false);
        }
        Ok(true)
    }

    fn ready_at(&self) -> Duration {
        if let (Some(done), Some(kept)) = (&self.held, &self.work.kept) {
            return if kept.is_known(done.chunk.index()) { self.host.now() } else { Duration::MAX };
        }
        match (self.idle.is_empty() || self.waits.is_some()) && self.done.is_empty() {
            // It is the submitter's turn before.
            true => Duration::MAX,
            false => self.host.now(),
        }
    }

    fn outcome(&mut self) -> LaneOutcome {
        LaneOutcome { end: self.host.now(), ..std::mem::take(&mut self.outcome) }
    }
}

impl<'r, D: Device> StagedLane<'r, D> {
    /// A lane with these slots, on the device that has this number in the run.
    pub(super) fn new(
        idle: Vec<Idle<'r, D>>,
        device: &'r D,
        number: usize,
        name: LaneName,
        (submitter, done): (Sender<Filled<'r, D>>, Receiver<Done<'r, D>>),
        work: &'r Work<'r>,
        (chunk_rows, whole_rows): (usize, usize),
    ) -> Self {
        StagedLane {
            idle,
            in_flight: 0,
            submitter: Some(submitter),
            done,
            waits: None,
            patience: Patience::new(),
            held: None,
            device,
            number,
            host: device.host(work.epoch),
            work,
            chunk_rows,
            whole_rows,
            name,
            outcome: LaneOutcome { device: number, ..LaneOutcome::default() },
            told: Duration::ZERO,
            stages: false,
        }
    }

    /// Claims a chunk. Half of the lanes begin with the rows that lie on this device and half with those of everybody, so that the
    /// link and the device are both busy; before the kernel's values are known, only the link can be. The first lane never waits
    /// for the CPU before it has seen to the device's own.
    fn claim(&mut self) -> Option<Chunk> {
        let Work { operator, share, .. } = self.work;
        let is_device_idle = !operator.kernel().values.are_known() && !share.is_shared();
        if self.name.lane.is_multiple_of(2) && !is_device_idle {
            self.claim_own().or_else(|| self.claim_common())
        } else {
            self.claim_common().or_else(|| self.claim_own())
        }
    }

    /// Claims rows that lie on this device: no other does them, nor the CPU.
    fn claim_own(&self) -> Option<Chunk> {
        self.work.queue.claim_own(self.number, self.chunk_rows, self.whole_rows)
    }

    /// Claims rows that any lane may, once this lane may stage.
    fn claim_common(&mut self) -> Option<Chunk> {
        let begin = self.host.now();
        let may_claim = self.work.share.may_stage(&mut self.stages, self.in_flight > 0);
        self.outcome.aside += self.host.now() - begin;
        if may_claim { self.work.queue.claim(self.chunk_rows) } else { None }
    }

    /// Whether rows of the chunk stay on this device: nothing can be learnt from it about how fast others are staged.
    fn is_own(&self, chunk: &Chunk) -> bool {
        let inputs = self.work.inputs.iter().filter_map(|input| input.sharded);
        let mut all = inputs.chain(self.work.outputs.iter().filter_map(|output| output.sharded));
        all.any(|sharded| sharded.on(self.device, chunk).is_some())
    }

    /// Fills a slot with the chunk's rows and hands it to the submitter.
    fn send(&mut self, chunk: Chunk) -> Result<()> {
        let mut slot = self.idle.pop().ok_or(Error::Abandoned)?;
        let LaneName { device, lane } = &self.name;
        let span =
            debug_span!("send", chunk = chunk.index(), row = chunk.rows().start, rows = chunk.len(), device, lane);
        let _entered = span.enter();
        let columns = &self.work.operator.kernel().columns;
        let begin = self.host.now();
        let mut bytes_in = 0;
        for (column, (&size, input)) in columns.inputs.iter().zip(&self.work.inputs).enumerate() {
            let bytes = chunk.len() * size;
            if !input.fills() && input.sharded.is_some_and(|sharded| sharded.on(self.device, &chunk).is_some()) {
                continue;
            }
            if let Some(memory) = slot.column_mut(column, bytes) {
                input
                    .source
                    .read(chunk.rows().start * input.elements, memory)
                    .map_err(|error| self.name.blame(&chunk, error))?;
                self.host.worked(HostWork::Fill, bytes);
                self.outcome.staged_in += bytes as u64;
            }
            bytes_in += bytes as u64;
        }
        self.outcome.bytes_in += bytes_in;
        let filled = self.host.now();
        self.outcome.times.fill.busy += filled - begin;
        if !self.is_own(&chunk) {
            self.work.share.end_filling(chunk.len() as u64, filled - begin);
        }
        if self.work.timeline {
            self.outcome.spans.push(Span::new(Track::Lane, "fill", &chunk, begin, filled));
        }
        let slot = slot.filled(chunk, Of { lane: self.name.lane, filled_at: filled, bytes_in });
        let submitter = self.submitter.as_ref().ok_or(Error::Abandoned)?;
        // It is gone if the device failed, and there is room for all slots.
        submitter.try_send(slot).map_err(|_| Error::Abandoned)?;
        self.in_flight += 1;
        Ok(())
    }

    /// Drains the oldest chunk if it is back. It is held, for another turn, if its place is not known yet.
    fn receive(&mut self) -> Result<()> {
        let begin = *self.waits.get_or_insert(self.host.now());
        let mut done = match self.done.try_recv() {
            Ok(done) => done,
            Err(TryRecvError::Empty) => {
                let values = &self.work.operator.kernel().values;
                if self.device.schedule() == Schedule::Threads && !values.are_known() {
                    // Nothing comes back before, and the pass before this one needs the core.
                    values.wait();
                }
                self.patience.pause();
                return Ok(());
            }
            // The device failed.
            Err(TryRecvError::Disconnected) => return Err(Error::Abandoned),
        };
        (self.waits, self.patience) = (None, Patience::new());
        self.in_flight -= 1;
        done.awaited = done.back_at > begin;
        self.host.reach(done.back_at);
        self.outcome.times.drain.waiting += self.host.now() - begin;
        let Some(kept) = &self.work.kept else { return self.drain(done) };
        let partials = self.partials(&done).unwrap_or_default();
        self.work.count(kept, &done.chunk, partials).map_err(|error| self.name.blame(&done.chunk, error))?;
        self.held = Some(done);
        Ok(())
    }

    /// The partials of a chunk, if there are any.
    fn partials<'d>(&self, done: &'d Done<'r, D>) -> Option<&'d [u8]> {
        let columns = &self.work.operator.kernel().columns;
        let bytes = columns.partial_bytes(done.chunk.len());
        if bytes > 0 { done.column(columns.inputs.len() + columns.outputs.len(), bytes) } else { None }
    }

    /// Hands the rows of a chunk to the sinks; its slot is idle then.
    fn drain(&mut self, done: Done<'r, D>) -> Result<()> {
        let back = self.host.now();
        let chunk = &done.chunk;
        let LaneName { device, lane } = &self.name;
        let span =
            debug_span!("drain", chunk = chunk.index(), row = chunk.rows().start, rows = chunk.len(), device, lane);
        let _entered = span.enter();
        let columns = &self.work.operator.kernel().columns;
        let blame = |error: Error| self.name.blame(chunk, error);
        let partials = self.partials(&done);
        if let Some(kept) = &self.work.kept {
            let column = |k| done.column(columns.inputs.len() + k, chunk.len() * columns.outputs[k]);
            let bytes = self.work.write_kept(kept, chunk, partials.unwrap_or_default(), column).map_err(blame)?;
            self.host.worked(HostWork::Drain, bytes as usize);
            self.outcome.staged_out += bytes;
        }
        for (k, (&size, output)) in columns.outputs.iter().zip(&self.work.outputs).enumerate() {
            let bytes = chunk.len() * size;
            if output.sharded.is_some_and(|sharded| sharded.on(self.device, chunk).is_some()) {
                continue;
            }
            self.outcome.bytes_out += bytes as u64;
            if self.work.kept.is_some() {
                continue;
            }
            if let Some(memory) = done.column(columns.inputs.len() + k, bytes) {
                output.sink.write(&chunk.times(output.elements), memory).map_err(blame)?;
                self.host.worked(HostWork::Drain, bytes);
                self.outcome.staged_out += bytes as u64;
            }
        }
        if let Some(partials) = partials {
            self.work.operator.absorb(chunk.rows().start, chunk.len(), partials);
            self.outcome.bytes_out += partials.len() as u64;
        }
        for input in &self.work.inputs {
            if let (Some(lent), Some(sharded)) = (input.lent, input.sharded)
                && sharded.on(self.device, chunk).is_some()
            {
                lent.fill(sharded.elements_of(chunk));
            }
        }
        self.work.queue.finish(chunk);
        self.outcome.chunks += 1;
        self.outcome.rows += chunk.len() as u64;
        let drained = self.host.now();
        self.outcome.times.drain.busy += drained - back;
        if self.work.timeline {
            self.outcome.spans.push(Span::new(Track::Lane, "drain", chunk, back, drained));
        }
        let busy = self.outcome.times.fill.busy + self.outcome.times.drain.busy;
        if !self.is_own(chunk) {
            self.work.share.end_staging(chunk.len() as u64, busy - self.told, done.awaited);
        }
        self.told = busy;
        self.note_device(&done);
        self.idle.push(done.recycle());
        Ok(())
    }

    /// Takes down how long a timed chunk was in each stage on the device.
    fn note_device(&mut self, done: &Done<'r, D>) {
        let Some(taken) = done.taken else { return };
        let mut before = done.filled_at;
        for (name, track, taken, time) in [
            ("copy in", Track::CopyIn, taken.copy_in, &mut self.outcome.sample.copy_in),
            ("kernel", Track::Compute, taken.kernel, &mut self.outcome.sample.kernel),
            ("copy out", Track::CopyOut, taken.copy_out, &mut self.outcome.sample.copy_out),
        ] {
            let end = taken.begin + taken.busy;
            time.busy += taken.busy;
            time.waiting += taken.begin.saturating_sub(before);
            before = end;
            if self.work.timeline {
                self.outcome.spans.push(Span::new(track, name, &done.chunk, taken.begin, end));
            }
            trace!(name, busy = ?taken.busy, "done");
        }
        self.outcome.sampled_rows += done.chunk.len() as u64;
    }
}
