//! The streams of a device, shared by all its workers: one for copies in, one for kernels, one for copies out.
//!
//! ```text
//!  copy in   │ chunk 3 │ chunk 4 │ chunk 5 │ …
//!  compute             │ 3 │     │ 4 │     │ 5 │ …
//!  copy out                │ chunk 3 │ chunk 4 │ …
//! ```
//! A chunk that has nothing to copy out ends on the compute stream.
//!
//! The alternative, one stream per worker, would let chunks overtake each other, but the copy engines lose time at
//! every switch between streams.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Work;
use super::multiply::ByMatrix;
use super::panels::{Panels, Timed};
use crate::data::Chunk;
use crate::device::kernel::{ColumnByMatrix, Kernel};
use crate::device::product::AnyProduct;
use crate::device::{Device, Host, Precision, Schedule, Stream};
use crate::error::{Error, Result};
use crate::memory::{Block, DevicePool};
use crate::trace::Span;
use crate::units;

/// The bytes of which the offsets of factors in a block are multiples.
const ALIGNMENT: usize = 256;

/// A value for each stage on the device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stages<T> {
    pub(super) copy_in: T,
    pub(super) kernel: T,
    pub(super) copy_out: T,
}

/// The time when a stage of a chunk began on the device, on the clock of the host, and its duration.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StageTiming {
    pub(super) begin: Duration,
    pub(super) busy: Duration,
}

/// The kernel on the device.
pub(super) struct Loaded<'r, D: Device> {
    /// That of each layer, if the kernel has several.
    pub(super) kernels: &'r [D::Kernel],
    pub(super) resident: &'r [D::Memory],
    /// What multiplies rows by the matrices, in the order of the layers.
    pub(super) by_matrices: &'r [ByMatrix<D>],
    /// What the compute stream needs to multiply rows by a matrix.
    pub(super) workspace: Option<&'r D::Memory>,
}

impl<D: Device> Loaded<'_, D> {
    /// Enqueues the kernel on a chunk: its layers, and the multiplications between them, a batch of rows at a time.
    /// `columns` gives the memory and the offset of each column.
    ///
    /// # Safety
    /// That of [`Stream::launch`], of the columns of the whole kernel.
    pub(super) unsafe fn launch(
        &self,
        kernel: &Kernel,
        stream: &mut D::Stream,
        columns: &[(&D::Memory, usize)],
        chunk: &Chunk,
    ) -> Result<()> {
        let (first, rows) = (chunk.rows().start, chunk.len());
        let mut loaded = self.kernels.iter();
        let mut next = || loaded.next().ok_or_else(|| Error::Internal("a layer of a kernel was not loaded".into()));
        if kernel.layers.is_empty() {
            // SAFETY: the caller vouches for it.
            return unsafe { stream.launch(next()?, columns, self.resident, first, rows) };
        }
        let mut by_matrices = self.by_matrices.iter();
        for layer in kernel.layers.iter() {
            if let Some(own) = &layer.kernel {
                let columns: Vec<_> = own.columns.iter().map(|column| columns[*column]).collect();
                let resident = &self.resident[own.resident.clone()];
                // SAFETY: its columns and arrays are some of those of the whole kernel.
                unsafe { stream.launch(next()?, &columns, resident, first, rows)? };
            }
            for ColumnByMatrix { product, from, matrix, to } in &layer.multiplied {
                let (Some(by_matrix), Some(workspace)) = (by_matrices.next(), self.workspace) else {
                    return Err(Error::Internal("a product with a matrix was not loaded".into()));
                };
                let (from_row, to_row) = (product.inner_bytes(), product.row_bytes());
                for begin in (0..rows).step_by(kernel.columns.batch_rows) {
                    let rows = kernel.columns.batch_rows.min(rows - begin);
                    let from = (columns[*from].0, columns[*from].1 + begin * from_row);
                    let to = (columns[*to].0, columns[*to].1 + begin * to_row);
                    // SAFETY: both columns have the rows of the chunk, with as many bytes as the factors of the
                    // product have; the result is a scratch column; and the array was made for the product.
                    unsafe {
                        by_matrix.multiply((stream, workspace), product, rows, from, &self.resident[*matrix], to)?
                    };
                }
            }
        }
        Ok(())
    }
}

/// The streams, and the resources that their work uses. On drop, streams wait for their work, unless the device was
/// given up.
pub(super) struct Streams<'r, D: Device> {
    pub(super) copy_in: D::Stream,
    pub(super) compute: D::Stream,
    pub(super) copy_out: D::Stream,
    /// `Some` if the kernel has products over the rows.
    pub(super) panels: Option<Panels<'r, D>>,
    pub(super) pool: &'r mut DevicePool<D>,
    /// The blocks of chunks of which other fills follow, by worker, and whether the chunk is timed. A worker fills one
    /// chunk at a time.
    pub(super) begun: BTreeMap<usize, (Block<D>, bool)>,
    pub(super) loaded: Loaded<'r, D>,
    pub(super) work: &'r Work<'r>,
    pub(super) device: &'r D,
    /// The event from which times on the device count, and the host time when it was done.
    epoch: (D::Event, Option<Duration>),
    /// Chunks enqueued so far.
    chunks: u64,
    /// The host time since which the device has worked on the oldest chunk in flight.
    since: Duration,
    /// The pinned memory of the run on this device.
    pinned_bytes: u64,
}

impl<'r, D: Device> Streams<'r, D> {
    /// Opens the streams.
    pub(super) fn open(
        device: &'r D,
        pool: &'r mut DevicePool<D>,
        panels: Option<Panels<'r, D>>,
        loaded: Loaded<'r, D>,
        pinned_bytes: u64,
        work: &'r Work<'r>,
    ) -> Result<Self> {
        Ok(Streams {
            copy_in: device.open_stream()?,
            compute: device.open_stream()?,
            copy_out: device.open_stream()?,
            panels,
            pool,
            begun: BTreeMap::new(),
            loaded,
            work,
            device,
            epoch: (device.event(true)?, None),
            chunks: 0,
            since: Duration::ZERO,
            pinned_bytes,
        })
    }

    /// Copies the resident arrays to the device and waits for the copies, and makes the compute stream ready to
    /// multiply if it has to. Does nothing if it was called before. Must run on the submitter's thread, which has
    /// entered the device.
    pub(super) fn start(&mut self, host: &mut D::Host) -> Result<()> {
        if self.epoch.1.is_none() {
            let event = &self.epoch.0;
            for (array, memory) in self.work.operator.kernel().resident.iter().zip(self.loaded.resident) {
                let bytes = array.bytes();
                // SAFETY: the kernel keeps the bytes unchanged until after the run; the memory was allocated with
                // this size.
                unsafe { self.copy_in.copy_in(bytes.as_ptr(), memory, 0, bytes.len())? };
            }
            self.copy_in.record(event)?;
            self.since = host.now();
            if !host.synchronize_until(event, self.deadline())? {
                return Err(self.give_up());
            }
            let done = host.now();
            self.prepare_products(host)?;
            self.epoch.1 = Some(done);
        }
        Ok(())
    }

    /// Makes the compute stream ready to multiply rows by the matrices, which are on the device, if it has to.
    fn prepare_products(&mut self, host: &mut D::Host) -> Result<()> {
        let Some(workspace) = self.loaded.workspace else { return Ok(()) };
        let kernel = self.work.operator.kernel();
        let precision = kernel.columns.precision.on(self.device.info());
        // SAFETY: the workspace is used by this stream alone, and outlives it.
        unsafe { self.compute.prepare_products(workspace, precision)? };
        let multiplied = kernel.layers.iter().flat_map(|layer| &layer.multiplied);
        for (by, by_matrix) in multiplied.zip(self.loaded.by_matrices) {
            // SAFETY: the array was made for the product, and its memory was allocated with its size.
            unsafe { by_matrix.prepare(&mut self.compute, &by.product, &self.loaded.resident[by.matrix])? };
        }
        self.multiply_first(precision, workspace, host)
    }

    /// Multiplies the rows of a batch with each matrix, if the device has not multiplied such rows before: a library
    /// loads its code then, which would count as the time of a chunk. The rows are whatever a block holds. If they and
    /// what they become do not fit a block, the first chunk has to wait.
    fn multiply_first(&mut self, precision: Precision, workspace: &D::Memory, host: &mut D::Host) -> Result<()> {
        let kernel = self.work.operator.kernel();
        let rows = kernel.columns.rows_at_first(kernel.columns.batch_rows);
        let multiplied = kernel.layers.iter().flat_map(|layer| &layer.multiplied);
        for (by, by_matrix) in multiplied.zip(self.loaded.by_matrices) {
            let product = &by.product;
            let end = (rows * product.inner_bytes()).next_multiple_of(ALIGNMENT);
            let fits = end + rows * product.row_bytes() <= self.pool.block_bytes();
            if rows == 0 || !fits || !self.device.is_first(AnyProduct::ByMatrix(*product), rows, precision) {
                continue;
            }
            let block = self.pool.take(&mut self.compute, host)?;
            let (memory, start) = self.pool.memory(&block);
            let (from, to, on) = ((memory, start), (memory, start + end), (&mut self.compute, workspace));
            // SAFETY: the block has room for both, one behind the other, and blocks begin at multiples of 256 bytes;
            // the array was made for the product, which was prepared.
            unsafe { by_matrix.multiply(on, product, rows, from, &self.loaded.resident[by.matrix], to)? };
            self.pool.retire(block, &mut self.compute)?;
        }
        Ok(())
    }

    /// Records that the device begins to work on the oldest chunk in flight at this host time.
    pub(super) fn begin(&mut self, at: Duration) {
        self.since = at;
    }

    /// Returns the host time at which the oldest chunk in flight is late.
    pub(super) fn deadline(&self) -> Duration {
        self.work.device_timeout.map_or(Duration::MAX, |limit| self.since.saturating_add(limit))
    }

    /// Returns whether the last event of the oldest chunk is done. Virtual time advances until it is.
    ///
    /// # Errors
    /// Those of the device, which is given up if the chunk is late.
    pub(super) fn is_done(&self, event: &D::Event, host: &mut D::Host) -> Result<bool> {
        let (is_late, is_done) = match self.device.schedule() {
            // The time is read first: a host that was stopped in between must not find the device late.
            Schedule::Threads => {
                (self.work.device_timeout.is_some() && host.now() > self.deadline(), host.query(event)?)
            }
            Schedule::Seeded(_) => (true, host.synchronize_until(event, self.deadline())?),
        };
        if is_late && !is_done { Err(self.give_up()) } else { Ok(is_done) }
    }

    /// Does what panels have left to do, and hands over a part of a sum that is copied, if it `may_look` for one.
    /// Returns whether there was anything.
    pub(super) fn advance_products(&mut self, host: &mut D::Host, may_look: bool) -> Result<bool> {
        let Some(panels) = &mut self.panels else { return Ok(false) };
        let advanced = panels.advance(host.now())?;
        let oldest = self.panels.as_ref().and_then(Panels::oldest).filter(|_| may_look);
        let Some(event) = oldest else { return Ok(advanced) };
        let is_copied = self.is_done(event, host)?;
        if let Some(panels) = self.panels.as_mut().filter(|_| is_copied) {
            panels.hand_over();
        }
        Ok(advanced || is_copied)
    }

    /// Returns the spans of products and of copies of their sums, at the end of a run with a timeline.
    pub(super) fn spans_of_products(&mut self, host: &D::Host) -> Vec<Span> {
        let timed = self.panels.as_mut().map(Panels::take_timed).unwrap_or_default();
        let span = |Timed { track, name, chunk, events }| {
            // After a failure, not all of them are done.
            let StageTiming { begin, busy } = self.taken(host, &events).ok()?;
            Some(Span::new(track, name, &chunk, begin, begin + busy))
        };
        timed.into_iter().filter_map(span).collect()
    }

    /// Gives the device up because it is late.
    fn give_up(&self) -> Error {
        self.device.give_up();
        let resident = self.work.operator.kernel().resident.iter().map(|array| array.len() as u64);
        let memory = units::memory(self.pool.bytes() + resident.sum::<u64>());
        let pinned = units::memory(self.pinned_bytes);
        let seconds = self.work.device_timeout.unwrap_or_default().as_secs_f64();
        Error::Device {
            device: self.device.info().id.clone(),
            problem: format!(
                "the device did not finish its work within the time limit of {seconds} s and was given up, so {memory} \
                 of its memory and {pinned} of pinned memory stay allocated until the process ends"
            ),
            remedy: "see `nvidia-smi` and the kernel log for the state of the GPU; if its chunks take so long, set a \
                     longer time limit or smaller chunks"
                .into(),
        }
    }

    /// Begins to enqueue work of this host time.
    pub(super) fn at(&mut self, at: Duration) {
        [&mut self.copy_in, &mut self.compute, &mut self.copy_out].into_iter().for_each(|stream| stream.at(at));
    }

    /// Begins a chunk. Returns whether it is timed.
    pub(super) fn next(&mut self) -> bool {
        self.chunks += 1;
        (self.chunks - 1).is_multiple_of(self.work.timed_every)
    }

    /// Returns when a stage began and how long it took, from the events around it.
    pub(super) fn taken(&self, host: &D::Host, (begin, end): &(D::Event, D::Event)) -> Result<StageTiming> {
        let (epoch, at) = &self.epoch;
        Ok(StageTiming { begin: at.unwrap_or_default() + host.elapsed(epoch, begin)?, busy: host.elapsed(begin, end)? })
    }
}

impl<D: Device> Drop for Streams<'_, D> {
    fn drop(&mut self) {
        // Also if another run has given the device up.
        if self.work.device_timeout.is_none() || !self.device.is_given_up() {
            return;
        }
        // The device may yet read the arrays of the kernel, which its owner may drop after the run.
        std::mem::forget(self.work.operator.kernel().clone());
        for stream in [&mut self.copy_in, &mut self.compute, &mut self.copy_out] {
            // SAFETY: a device that was given up releases neither its memory nor that of the slots, which is pinned;
            // the arrays of the kernel stay, too; and in a run with a time limit a device accesses no other memory.
            unsafe { stream.abandon() };
        }
        if let Some(panels) = &mut self.panels {
            panels.abandon();
        }
    }
}
