//! A device with memory of its own: what its lanes share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::bounded;

use super::meter::Meter;
use super::slot::Idle;
use super::staged::StagedLane;
use super::streams::Streams;
use super::submitter::Submitter;
use super::{Lane, LaneName, Part, Work};
use crate::device::kernel::SharedKernel;
use crate::device::{Device, Schedule};
use crate::error::Result;
use crate::memory::{Account, Booked, DevicePool, Layout, MemoryCache, PinnedRing};
use crate::plan::DevicePlan;

/// The part of a device with memory of its own: its block freelist, its loaded kernel, and the ring, of which each
/// lane gets its slots.
pub(crate) struct Staging<D: Device> {
    // Dropped in this order: what the device gave, before the device.
    pool: DevicePool<D>,
    kernel: D::Kernel,
    resident: Vec<D::Memory>,
    _booked: [Booked; 2],
    ring: PinnedRing,
    layout: Layout,
    lanes: usize,
    slots: usize,
    /// Rows that a lane claims at most.
    chunk_rows: usize,
    device: Arc<D>,
    setup: (Duration, Duration),
}

impl<D: Device> Staging<D> {
    /// Loads the kernel and takes the memory of the plan.
    pub(crate) fn new(
        cache: &MemoryCache<D>,
        plan: &DevicePlan,
        kernel: &SharedKernel,
        memory: &Arc<Account>,
        pinned: &Arc<Account>,
    ) -> Result<Self> {
        let device = cache.device().clone();
        let begin = Instant::now();
        let loaded = device.load(kernel)?;
        let ready = Instant::now();
        let layout = plan.layout.clone();
        let arrays = || kernel.resident.iter().map(|array| array.bytes().len());
        let bytes = arrays().sum::<usize>() as u64;
        let booked = [memory.book(bytes)?, cache.device_account().book(bytes)?];
        let resident = arrays().map(|bytes| device.allocate(bytes.max(1))).collect::<Result<_>>()?;
        let pool = DevicePool::new(cache, plan.blocks, layout.block_bytes, memory)?;
        let ring = PinnedRing::new(cache, plan.lanes * plan.slots, layout.slot_bytes, pinned)?;
        let setup = (ready - begin, ready.elapsed());
        let (lanes, slots, chunk_rows) = (plan.lanes, plan.slots, plan.lane_rows as usize);
        Ok(Staging {
            pool,
            kernel: loaded,
            resident,
            _booked: booked,
            ring,
            layout,
            lanes,
            slots,
            chunk_rows,
            device,
            setup,
        })
    }
}

impl<D: Device> Part for Staging<D> {
    fn lanes<'r>(&'r mut self, number: usize, work: &'r Work<'r>) -> Result<Vec<Box<dyn Lane + 'r>>> {
        let Staging { pool, kernel, resident, ring, layout, lanes, slots, chunk_rows, device, .. } = self;
        let (device, layout, slots, chunk_rows) = (&**device, &*layout, *slots, *chunk_rows);
        let columns = &work.operator.kernel().columns;
        let streams = Streams::open(device, pool, kernel, resident, work)?;
        // Room for all slots, so that nobody ever waits to hand one over.
        let (to_submitter, filled) = bounded(*lanes * slots);
        let mut to_lanes = Vec::with_capacity(*lanes);
        let mut all: Vec<Box<dyn Lane + 'r>> = Vec::with_capacity(*lanes + 1);
        let mut memory = ring.slots();
        for lane in 0..*lanes {
            let idle = memory.by_ref().take(slots).map(|memory| Idle::new(memory, layout, columns, device));
            let idle = idle.collect::<Result<Vec<_>>>()?;
            let name = LaneName { device: device.info().id.clone(), lane };
            let (to_lane, done) = bounded(slots);
            to_lanes.push(to_lane);
            let ends = (to_submitter.clone(), done);
            all.push(Box::new(StagedLane::new(
                idle,
                device,
                number,
                Meter::new(name, number, work.timeline),
                ends,
                work,
                (chunk_rows, layout.whole_rows),
            )));
        }
        all.push(Box::new(Submitter::new(streams, number, filled, to_lanes)));
        Ok(all)
    }

    fn schedule(&self) -> Schedule {
        self.device.schedule()
    }

    fn setup(&self) -> (Duration, Duration) {
        self.setup
    }

    fn shortage(&self, plan: &DevicePlan) -> Option<String> {
        let (given, planned) = (self.pool.blocks(), plan.blocks);
        let note = || format!("{} had memory for {given} of {planned} blocks of {} bytes", plan.id, plan.block_bytes);
        (given < planned).then(note)
    }

    fn keep_memory(self: Box<Self>) {
        // The streams waited for their work when they were dropped with the lanes, which borrowed the part.
        self.pool.keep();
        self.ring.keep();
    }
}
