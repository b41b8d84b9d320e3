//! The lane of a device with memory of its own: **the** loop.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug_span, trace};

use super::slot::{Done, Filled, Idle, InFlight};
use super::streams::Streams;
use super::{Lane, LaneName, LaneOutcome, Work};
use crate::data::Chunk;
use crate::device::{Device, Host, HostWork};
use crate::error::{Error, Result};
use crate::trace::{Span, Track};

/// One lane: a thread of the host and its slots.
pub(super) struct StagedLane<'r, D: Device> {
    idle: Vec<Idle<'r, D>>,
    /// Oldest first: until the kernel's values are known.
    ahead: VecDeque<Filled<'r, D>>,
    /// Oldest first.
    in_flight: VecDeque<InFlight<'r, D>>,
    /// A chunk that is back and waits for its place.
    held: Option<Done<'r, D>>,
    device: &'r D,
    /// Of the device in the run.
    number: usize,
    streams: Arc<Streams<'r, D>>,
    host: D::Host,
    work: &'r Work<'r>,
    chunk_rows: usize,
    name: LaneName,
    outcome: LaneOutcome,
    /// Of the time spent on filling and draining, what was told.
    told: Duration,
    /// Whether this lane is one of those that stage now.
    stages: bool,
}

impl<'r, D: Device> Lane for StagedLane<'r, D> {
    /// Gets a slot free, claims a chunk, fills the slot and enqueues its work; at the end drains what is in flight. As long as the
    /// kernel's values are not known, all its slots are filled and copied ahead.
    fn turn(&mut self) -> Result<bool> {
        if let Some(done) = self.held.take() {
            let slot = self.drain(done)?;
            self.idle.push(slot);
            return Ok(true);
        }
        if !self.ahead.is_empty() && (self.idle.is_empty() || self.knows_values()) {
            self.launch()?;
            return Ok(true);
        }
        let slot = match self.idle.pop() {
            Some(slot) => slot,
            None => match self.in_flight.pop_front() {
                Some(oldest) => match self.receive(oldest)? {
                    Some(slot) => slot,
                    None => return Ok(true),
                },
                None => return Ok(false),
            },
        };
        if let Some(chunk) = self.claim() {
            self.send(slot, chunk)?;
        } else if !self.ahead.is_empty() {
            self.idle.push(slot);
            self.launch()?;
        } else if let Some(oldest) = self.in_flight.pop_front() {
            self.idle.push(slot);
            let slot = self.receive(oldest)?;
            self.idle.extend(slot);
        } else {
            self.work.share.end();
            return Ok(false);
        }
        Ok(true)
    }

    fn ready_at(&self) -> Duration {
        if let (Some(done), Some(kept)) = (&self.held, &self.work.kept) {
            return if kept.is_known(done.chunk.index()) { self.host.now() } else { Duration::MAX };
        }
        if self.idle.is_empty() && !self.ahead.is_empty() && !self.knows_values() {
            // It has to wait: after all others, which are on the same thread.
            return Duration::MAX;
        }
        match self.in_flight.front() {
            Some(oldest) if self.idle.is_empty() => oldest.done_at(&self.host).max(self.host.now()),
            _ => self.host.now(),
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
        streams: Arc<Streams<'r, D>>,
        work: &'r Work<'r>,
        chunk_rows: usize,
    ) -> Self {
        StagedLane {
            ahead: VecDeque::with_capacity(idle.len()),
            in_flight: VecDeque::with_capacity(idle.len()),
            idle,
            held: None,
            device,
            number,
            streams,
            host: device.host(work.epoch),
            work,
            chunk_rows,
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
        self.work.queue.claim_own(self.number, self.chunk_rows)
    }

    /// Claims rows that any lane may, once this lane may stage.
    fn claim_common(&mut self) -> Option<Chunk> {
        let begin = self.host.now();
        let has_chunks = !self.in_flight.is_empty() || !self.ahead.is_empty();
        let may_claim = self.work.share.may_stage(&mut self.stages, has_chunks);
        self.outcome.aside += self.host.now() - begin;
        if may_claim { self.work.queue.claim(self.chunk_rows) } else { None }
    }

    /// Whether rows of the chunk stay on this device: nothing can be learnt from it about how fast others are staged.
    fn is_own(&self, chunk: &Chunk) -> bool {
        let inputs = self.work.inputs.iter().filter_map(|input| input.sharded);
        let mut all = inputs.chain(self.work.outputs.iter().filter_map(|output| output.sharded));
        all.any(|sharded| sharded.on(self.device, chunk).is_some())
    }

    /// Fills the slot with the chunk's rows and enqueues copy in, kernel and copy out; if the kernel's values are not known yet, copy
    /// in alone.
    fn send(&mut self, mut slot: Idle<'r, D>, chunk: Chunk) -> Result<()> {
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
        let mut slot = slot.filled(chunk);
        let is_known = self.knows_values();
        if !is_known {
            let (copied, is_copied) = slot
                .copy_ahead(&self.streams, &mut self.host)
                .map_err(|(chunk, error)| self.streams.blame(&self.name, &chunk, error))?;
            slot = copied;
            self.outcome.bytes_ahead += if is_copied { bytes_in } else { 0 };
            self.outcome.times.fill.waiting += self.host.now() - filled;
        }
        self.ahead.push_back(slot);
        if is_known { self.launch() } else { Ok(()) }
    }

    fn knows_values(&self) -> bool {
        self.work.operator.kernel().values.are_known()
    }

    /// Enqueues all that is left of the chunks whose slots are filled, once the kernel's values are known.
    fn launch(&mut self) -> Result<()> {
        let begin = self.host.now();
        // Outside the lock of the streams: other lanes go on.
        self.work.operator.kernel().values.wait().ok_or(Error::Abandoned)?;
        for slot in self.ahead.drain(..) {
            let sent = slot.submit(&self.streams, &mut self.host);
            let sent = sent.map_err(|(chunk, error)| self.streams.blame(&self.name, &chunk, error))?;
            self.in_flight.push_back(sent);
        }
        self.outcome.times.fill.waiting += self.host.now() - begin;
        Ok(())
    }

    /// Waits for a chunk and drains it. `None` if it is held, for another turn, until its place is known.
    fn receive(&mut self, in_flight: InFlight<'r, D>) -> Result<Option<Idle<'r, D>>> {
        let begin = self.host.now();
        let done = in_flight
            .wait(&self.streams, &mut self.host)
            .map_err(|(chunk, error)| self.streams.blame(&self.name, &chunk, error))?;
        self.outcome.times.drain.waiting += self.host.now() - begin;
        let Some(kept) = &self.work.kept else { return self.drain(done).map(Some) };
        let partials = self.partials(&done).unwrap_or_default();
        self.work.count(kept, &done.chunk, partials).map_err(|error| self.name.blame(&done.chunk, error))?;
        self.held = Some(done);
        Ok(None)
    }

    /// The partials of a chunk, if there are any.
    fn partials<'d>(&self, done: &'d Done<'r, D>) -> Option<&'d [u8]> {
        let columns = &self.work.operator.kernel().columns;
        let bytes = columns.partial_bytes(done.chunk.len());
        if bytes > 0 { done.column(columns.inputs.len() + columns.outputs.len(), bytes) } else { None }
    }

    /// Hands the rows of a chunk to the sinks.
    fn drain(&mut self, done: Done<'r, D>) -> Result<Idle<'r, D>> {
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
        Ok(done.recycle())
    }

    /// Takes down how long a timed chunk was in each stage on the device.
    fn note_device(&mut self, done: &Done<'r, D>) {
        let Some(taken) = done.taken else { return };
        let mut before = done.enqueued;
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
