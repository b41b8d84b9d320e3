//! The lane of a device with memory of its own: **the** loop.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{debug_span, trace};

use super::slot::{Idle, InFlight, Route};
use super::{Lane, LaneName, LaneOutcome, Part, Work};
use crate::data::Chunk;
use crate::device::kernel::SharedKernel;
use crate::device::{Device, Schedule, Stream};
use crate::error::{Error, Result};
use crate::memory::{Account, DevicePool, Layout, PinnedRing};
use crate::plan::DevicePlan;

/// The part of a device with memory of its own: its block freelist, its loaded kernel, and the ring, of which each
/// lane gets its slots.
pub(crate) struct Staging<D: Device> {
    // Dropped in this order: what the device gave, before the device.
    pool: DevicePool<D>,
    kernel: D::Kernel,
    ring: PinnedRing,
    layout: Layout,
    lanes: usize,
    slots: usize,
    device: Arc<D>,
}

impl<D: Device> Staging<D> {
    /// Loads the kernel and takes the memory of the plan.
    pub(crate) fn new(
        device: Arc<D>,
        plan: &DevicePlan,
        kernel: &SharedKernel,
        memory: &Arc<Account>,
        pinned: &Arc<Account>,
    ) -> Result<Self> {
        let loaded = device.load(kernel)?;
        let layout = plan.layout.clone();
        let pool = DevicePool::new(&*device, plan.blocks, layout.block_bytes, memory)?;
        let ring = PinnedRing::new(&*device, plan.lanes * plan.slots, layout.slot_bytes, pinned)?;
        Ok(Staging { pool, kernel: loaded, ring, layout, lanes: plan.lanes, slots: plan.slots, device })
    }
}

impl<D: Device> Part for Staging<D> {
    fn lanes<'r>(&'r mut self, number: usize, work: &'r Work<'r>) -> Result<Vec<Box<dyn Lane + 'r>>> {
        let mut slots = self.ring.slots();
        let mut lanes: Vec<Box<dyn Lane + 'r>> = Vec::with_capacity(self.lanes);
        for lane in 0..self.lanes {
            let stream = self.device.open_stream()?;
            let idle = slots.by_ref().take(self.slots).map(|memory| Idle::new(memory, &self.layout, &stream));
            lanes.push(Box::new(StagedLane::<D> {
                idle: idle.collect::<Result<_>>()?,
                in_flight: VecDeque::with_capacity(self.slots),
                stream,
                pool: &self.pool,
                kernel: &self.kernel,
                work,
                name: LaneName { device: self.device.info().id.clone(), lane },
                outcome: LaneOutcome { device: number, ..LaneOutcome::default() },
            }));
        }
        Ok(lanes)
    }

    fn schedule(&self) -> Schedule {
        self.device.schedule()
    }

    fn shortage(&self, plan: &DevicePlan) -> Option<String> {
        let (given, planned) = (self.pool.blocks(), plan.blocks);
        let note = || format!("{} had memory for {given} of {planned} blocks of {} bytes", plan.id, plan.block_bytes);
        (given < planned).then(note)
    }
}

/// One lane: a stream and its slots.
struct StagedLane<'r, D: Device> {
    // Before the slots: its drop ends the copies.
    stream: D::Stream,
    idle: Vec<Idle<'r, D>>,
    /// Oldest first.
    in_flight: VecDeque<InFlight<'r, D>>,
    pool: &'r DevicePool<D>,
    kernel: &'r D::Kernel,
    work: &'r Work<'r>,
    name: LaneName,
    outcome: LaneOutcome,
}

impl<'r, D: Device> Lane for StagedLane<'r, D> {
    /// Gets a slot free, claims a chunk, fills the slot and enqueues its work; at the end drains what is in flight.
    fn turn(&mut self) -> Result<bool> {
        let slot = match self.idle.pop() {
            Some(slot) => slot,
            None => match self.in_flight.pop_front() {
                Some(oldest) => self.drain(oldest)?,
                None => return Ok(false),
            },
        };
        if let Some(chunk) = self.work.queue.claim() {
            let in_flight = self.send(slot, chunk)?;
            self.in_flight.push_back(in_flight);
        } else if let Some(oldest) = self.in_flight.pop_front() {
            self.idle.push(slot);
            let slot = self.drain(oldest)?;
            self.idle.push(slot);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn ready_at(&self) -> Duration {
        match self.in_flight.front() {
            Some(oldest) if self.idle.is_empty() => oldest.done_at(&self.stream).max(self.stream.now()),
            _ => self.stream.now(),
        }
    }

    fn outcome(&self) -> LaneOutcome {
        LaneOutcome { virtual_end: self.stream.now(), ..self.outcome.clone() }
    }
}

impl<'r, D: Device> StagedLane<'r, D> {
    /// Fills the slot with the chunk's rows and enqueues copy in, kernel and copy out.
    fn send(&mut self, mut slot: Idle<'r, D>, chunk: Chunk) -> Result<InFlight<'r, D>> {
        let LaneName { device, lane } = &self.name;
        let span =
            debug_span!("send", chunk = chunk.index(), row = chunk.rows().start, rows = chunk.len(), device, lane);
        let _entered = span.enter();
        let columns = &self.work.operator.kernel().columns;
        let begin = Instant::now();
        for (column, (&size, input)) in columns.inputs.iter().zip(&self.work.inputs).enumerate() {
            let bytes = chunk.len() * size;
            if let Some(memory) = slot.column_mut(column, bytes) {
                input.source.read(chunk.rows().start, memory).map_err(|error| self.name.blame(&chunk, error))?;
            }
            self.outcome.bytes_in += bytes as u64;
        }
        let filled = Instant::now();
        self.outcome.times.fill.busy += filled - begin;
        let Self { stream, pool, kernel, work, .. } = self;
        let sent = slot.submit(chunk, Route { lane: *lane, stream, pool, kernel, work });
        self.outcome.times.fill.waiting += filled.elapsed();
        sent.map_err(|(chunk, error)| self.name.blame(&chunk, error))
    }

    /// Waits for a chunk and hands its rows to the sinks.
    fn drain(&mut self, in_flight: InFlight<'r, D>) -> Result<Idle<'r, D>> {
        let begin = Instant::now();
        let done = in_flight.wait(&mut self.stream).map_err(|(chunk, error)| self.name.blame(&chunk, error))?;
        let back = Instant::now();
        let chunk = &done.chunk;
        let LaneName { device, lane } = &self.name;
        let span =
            debug_span!("drain", chunk = chunk.index(), row = chunk.rows().start, rows = chunk.len(), device, lane);
        let _entered = span.enter();
        let columns = &self.work.operator.kernel().columns;
        let blame = |error: Error| self.name.blame(chunk, error);
        for (k, (&size, output)) in columns.outputs.iter().zip(&self.work.outputs).enumerate() {
            let bytes = chunk.len() * size;
            if let Some(memory) = done.column(columns.inputs.len() + k, bytes) {
                output.sink.write(chunk, memory).map_err(blame)?;
            }
            self.outcome.bytes_out += bytes as u64;
        }
        let bytes = columns.partial_bytes(chunk.len());
        if bytes > 0
            && let Some(partials) = done.column(columns.inputs.len() + columns.outputs.len(), bytes)
        {
            self.work.operator.absorb(chunk.rows().start, chunk.len(), partials);
            self.outcome.bytes_out += bytes as u64;
        }
        self.work.queue.finish(chunk);
        self.outcome.chunks += 1;
        let (times, t) = (&mut self.outcome.times, done.times);
        times.copy_in.busy += t.copy_in;
        // Only what a lane saw: it cannot tell how long a chunk had been back when it came to look.
        if done.awaited {
            times.copy_in.waiting += t.in_flight.saturating_sub(t.copy_in + t.kernel + t.copy_out);
        }
        times.kernel.busy += t.kernel;
        times.copy_out.busy += t.copy_out;
        times.drain.waiting += back - begin;
        times.drain.busy += back.elapsed();
        trace!(copy_in = ?t.copy_in, kernel = ?t.kernel, copy_out = ?t.copy_out, "done");
        Ok(done.recycle())
    }
}
