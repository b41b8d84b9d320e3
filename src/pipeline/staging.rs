//! The run of a device with its own memory: its memory, its kernel, and its workers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::handover::{Waiting, connect};
use super::meter::Meter;
use super::multiply::{ByMatrix, OverRows};
use super::panels::Panels;
use super::slot::Idle;
use super::staged::StagingWorker;
use super::streams::{Loaded, Streams};
use super::submitter::Submitter;
use super::{Arbiter, DeviceRun, Work, Worker, WorkerName};
use crate::device::kernel::{ColumnProduct, Kernel, SharedKernel};
use crate::device::product::MatrixProduct;
use crate::device::{Device, Schedule};
use crate::error::Result;
use crate::memory::{Charge, DevicePool, Layout, MemoryBudget, MemoryCache, PanelLayout, PanelMemory, StagingSlab};
use crate::plan::DevicePlan;

/// The run of a device with its own memory: the block pool, the loaded kernel, and the staging slab, which is divided
/// into the slots of the workers.
pub(crate) struct Staging<D: Device> {
    // Dropped in this order: everything allocated on the device before the device.
    pool: DevicePool<D>,
    /// That of each layer, if the kernel has several.
    kernels: Vec<D::Kernel>,
    resident: Vec<D::Memory>,
    /// What multiplies rows with each matrix.
    by_matrices: Vec<ByMatrix<D>>,
    /// `Some` if the kernel multiplies rows by a matrix.
    workspace: Option<D::Memory>,
    _charged: [Charge; 2],
    slab: StagingSlab,
    /// `Some` if the kernel has products over the rows.
    panels: Option<PanelMemory<D>>,
    /// What multiplies the rows of panels, for each product.
    over_rows: Vec<OverRows<D>>,
    layout: Layout,
    workers: usize,
    slots: usize,
    /// The most rows that a worker claims at a time.
    chunk_rows: usize,
    device: Arc<D>,
    setup: (Duration, Duration),
}

impl<D: Device> Staging<D> {
    /// Loads the kernel and allocates the memory of the plan.
    pub(crate) fn new(
        cache: &MemoryCache<D>,
        plan: &DevicePlan,
        kernel: &SharedKernel,
        memory: &Arc<MemoryBudget>,
        pinned: &Arc<MemoryBudget>,
    ) -> Result<Self> {
        let device = cache.device().clone();
        let begin = Instant::now();
        let kernels = kernel.launched().iter().map(|own| device.load(own)).collect::<Result<_>>()?;
        let ready = Instant::now();
        let layout = plan.layout.clone();
        let arrays = || kernel.resident.iter().map(|array| array.len());
        let bytes = kernel.resident_bytes();
        let charged = [memory.charge(bytes)?, cache.device_budget().charge(bytes)?];
        let resident = arrays().map(|bytes| device.allocate(bytes.max(1))).collect::<Result<_>>()?;
        let workspace = kernel.workspace_bytes().map(|bytes| device.allocate(bytes)).transpose()?;
        let precision = kernel.columns.precision.on(device.info());
        let by_matrix = |product: &MatrixProduct| ByMatrix::load(&*device, product, precision);
        let by_matrices = kernel.by_matrices().map(by_matrix).collect::<Result<_>>()?;
        // It makes do with fewer blocks, so all other memory comes first.
        let pool = DevicePool::new(cache, plan.blocks, layout.block_bytes, memory)?;
        let slab = StagingSlab::new(cache, plan.workers * plan.slots, layout.slot_bytes, pinned)?;
        let panels = PanelLayout::new(&kernel.columns);
        let panel_rows = panels.as_ref().map_or(0, |layout| layout.rows);
        let over_rows = |product: &ColumnProduct| OverRows::load(&*device, product, precision, panel_rows);
        let over_rows = kernel.columns.products.iter().map(over_rows).collect::<Result<_>>()?;
        let panels = panels.map(|layout| PanelMemory::new(cache, layout, plan.panels, memory, pinned)).transpose()?;
        let setup = (ready - begin, ready.elapsed());
        let (workers, slots, chunk_rows) = (plan.workers, plan.slots, plan.max_chunk_rows as usize);
        Ok(Staging {
            pool,
            kernels,
            resident,
            by_matrices,
            workspace,
            _charged: charged,
            slab,
            panels,
            over_rows,
            layout,
            workers,
            slots,
            chunk_rows,
            device,
            setup,
        })
    }
}

impl<D: Device> DeviceRun for Staging<D> {
    fn workers<'r>(&'r mut self, number: usize, work: &'r Work<'r>) -> Result<Vec<Box<dyn Worker + 'r>>> {
        let Staging {
            pool,
            kernels,
            resident,
            workspace,
            slab,
            panels,
            over_rows,
            by_matrices,
            layout,
            workers,
            slots,
            chunk_rows,
            device,
            ..
        } = self;
        let (device, layout, slots, chunk_rows) = (&**device, &*layout, *slots, *chunk_rows);
        let Kernel { columns, values, .. } = &**work.operator.kernel();
        let (panels, sums) = match panels {
            Some(memory) => {
                let (parts, pieces) = memory.split();
                let (panels, sums) = Panels::new((parts, over_rows), pieces, (device, number), work)?;
                (Some(panels), sums)
            }
            None => (None, vec![]),
        };
        // Those of chunks that were copied ahead or in part, if the round before ended early.
        pool.reclaim(device)?;
        let loaded = Loaded { kernels, resident, by_matrices, workspace: workspace.as_ref() };
        let streams = Streams::open(device, pool, panels, loaded, slab.bytes(), work)?;
        // Without staged columns, workers have nothing to do and chunks are long, so that a late wake-up costs nothing.
        let stages = layout.in_slot.iter().take(columns.inputs.len() + columns.outputs.len()).any(Option::is_some);
        let shares = work.arbiter.as_ref().is_some_and(Arbiter::shares_cores);
        let waiting = match device.schedule() {
            Schedule::Threads if shares || !stages => Waiting::Sleeps,
            Schedule::Threads => Waiting::Polls,
            Schedule::Seeded(_) => Waiting::TakesTurns,
        };
        let (ends, submitter) = connect((*workers, slots), values, waiting);
        let mut all: Vec<Box<dyn Worker + 'r>> = Vec::with_capacity(*workers + 1);
        let mut memory = slab.slots();
        for (worker, end) in ends.into_iter().enumerate() {
            let idle = memory.by_ref().take(slots).map(|memory| Idle::new(memory, layout, columns, device));
            let idle = idle.collect::<Result<Vec<_>>>()?;
            let name = WorkerName { device: device.info().id.clone(), worker };
            all.push(Box::new(StagingWorker::new(
                idle,
                device,
                number,
                Meter::new(name, number, work.timeline),
                end,
                work,
                (chunk_rows, layout.resident_chunk_rows),
            )?));
        }
        // Workers begin in this order. The other workers have nothing to drain before the submitter begins.
        all.insert(1, Box::new(Submitter::new(streams, number, submitter)));
        all.extend(sums.into_iter().map(|sums| Box::new(sums) as Box<dyn Worker + 'r>));
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

    fn recycle_memory(self: Box<Self>) {
        // No work uses the memory any more: the streams waited for it when they were dropped with the workers, which
        // borrowed `self`.
        self.pool.keep();
        self.slab.keep();
    }
}
