//! The streams of a device, which all its lanes share: one for copies in, one for kernels, one for copies out.
//!
//! ```text
//!  copy in   │ chunk 3 │ chunk 4 │ chunk 5 │ …
//!  compute             │ 3 │     │ 4 │     │ 5 │ …
//!  copy out                │ chunk 3 │ chunk 4 │ …
//! ```
//! A stream for each lane instead would let chunks overtake each other, but the copy engines lose time whenever they go from
//! one stream to another. One lane at a time enqueues a whole chunk, so that the streams
//! have all chunks in the same order; but those whose rows are copied ahead of the kernel's values have their copies in before all
//! kernels.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::slot::Taken;
use super::{LaneName, Work};
use crate::data::Chunk;
use crate::device::{Device, Host, Stream};
use crate::error::{Error, Result};
use crate::memory::DevicePool;

/// The streams, for as long as there are lanes. Dropped with the last of them, they wait for their work.
pub(super) struct Streams<'r, D: Device> {
    device: &'r D,
    queues: Mutex<Queues<'r, D>>,
    kernel: &'r D::Kernel,
    resident: &'r [D::Memory],
    work: &'r Work<'r>,
    /// Times on the device count from this event, which was done at that time of the host. It is recorded by the first
    /// lane, behind the copies of resident arrays, on its thread: streams are for threads of ours, on which the device may stay current.
    epoch: (D::Event, OnceLock<Duration>),
    /// The rows of chunks that were enqueued and are not known to be back, by their numbers: after a fault of the device all of
    /// these are lost, and nobody can tell which one it was.
    sent: Mutex<BTreeMap<u64, Range<u64>>>,
}

struct Queues<'r, D: Device> {
    copy_in: D::Stream,
    compute: D::Stream,
    copy_out: D::Stream,
    pool: &'r mut DevicePool<D>,
    /// Chunks enqueued so far.
    chunks: u64,
}

/// What a lane enqueues a chunk with, while no other lane does.
pub(super) struct Order<'s, 'r, D: Device> {
    pub(super) device: &'r D,
    pub(super) copy_in: &'s mut D::Stream,
    pub(super) compute: &'s mut D::Stream,
    pub(super) copy_out: &'s mut D::Stream,
    pub(super) pool: &'s mut DevicePool<D>,
    pub(super) kernel: &'r D::Kernel,
    pub(super) resident: &'r [D::Memory],
    pub(super) work: &'r Work<'r>,
    pub(super) host: &'s mut D::Host,
    chunks: &'s mut u64,
}

impl<D: Device> Order<'_, '_, D> {
    /// Counts a chunk, and says whether it is one of those that are timed.
    pub(super) fn is_next_timed(&mut self) -> bool {
        let timed = self.chunks.is_multiple_of(self.work.timed_every);
        *self.chunks += 1;
        timed
    }
}

impl<'r, D: Device> Streams<'r, D> {
    /// Opens the streams.
    pub(super) fn open(
        device: &'r D,
        pool: &'r mut DevicePool<D>,
        kernel: &'r D::Kernel,
        resident: &'r [D::Memory],
        work: &'r Work<'r>,
    ) -> Result<Self> {
        let queues = Queues {
            copy_in: device.open_stream()?,
            compute: device.open_stream()?,
            copy_out: device.open_stream()?,
            pool,
            chunks: 0,
        };
        Ok(Streams {
            device,
            queues: Mutex::new(queues),
            kernel,
            resident,
            work,
            epoch: (device.event(true)?, OnceLock::new()),
            sent: Mutex::default(),
        })
    }

    /// Lets `order` enqueue a chunk, or a part of it, at the host's time.
    pub(super) fn enqueue<T>(
        &self,
        host: &mut D::Host,
        order: impl FnOnce(&mut Order<'_, 'r, D>) -> Result<T>,
    ) -> Result<T> {
        // A lane that panicked here has no block any more, and its chunk ends the run.
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let Queues { copy_in, compute, copy_out, pool, chunks } = &mut *queues;
        let (event, at) = &self.epoch;
        if at.get().is_none() {
            for (array, memory) in self.work.operator.kernel().resident.iter().zip(self.resident) {
                let bytes = array.bytes();
                // SAFETY: the kernel keeps the bytes unchanged until after the run; the memory was made for as many.
                unsafe { copy_in.copy_in(bytes.as_ptr(), memory, 0, bytes.len())? };
            }
            copy_in.record(event)?;
            host.synchronize(event)?;
            let _ = at.set(host.now());
        }
        let now = host.now();
        [&mut *copy_in, &mut *compute, &mut *copy_out].into_iter().for_each(|stream| stream.at(now));
        order(&mut Order {
            device: self.device,
            copy_in,
            compute,
            copy_out,
            pool,
            kernel: self.kernel,
            resident: self.resident,
            work: self.work,
            host,
            chunks,
        })
    }

    /// Takes down that a chunk is about to be enqueued.
    pub(super) fn sends(&self, chunk: &Chunk) {
        self.sent().insert(chunk.index(), chunk.rows());
    }

    /// Takes down that a chunk is back.
    pub(super) fn is_back(&self, chunk: &Chunk) {
        self.sent().remove(&chunk.index());
    }

    /// Puts an error of the device into its place: one of the chunks that are there.
    pub(super) fn blame(&self, name: &LaneName, chunk: &Chunk, error: Error) -> Error {
        let sent = self.sent();
        match (sent.first_key_value(), sent.last_key_value(), error) {
            (Some((&first, first_rows)), Some((&last, _)), Error::Device { device, problem, remedy })
                if first < last =>
            {
                let problem =
                    format!("{problem}; it was one of the chunks {first} to {last}, which were on the device");
                let end = sent.values().map(|rows| rows.end).max().unwrap_or(first_rows.end);
                let chunk = Chunk::new(first, first_rows.start..end);
                name.blame(&chunk, Error::Device { device, problem, remedy })
            }
            (.., error) => name.blame(chunk, error),
        }
    }

    fn sent(&self) -> MutexGuard<'_, BTreeMap<u64, Range<u64>>> {
        // A map that a panic elsewhere leaves whole.
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When a stage began and how long it took, from the events around it.
    pub(super) fn taken(&self, host: &D::Host, (begin, end): &(D::Event, D::Event)) -> Result<Taken> {
        let (epoch, at) = &self.epoch;
        let at = at.get().copied().unwrap_or_default();
        Ok(Taken { begin: at + host.elapsed(epoch, begin)?, busy: host.elapsed(begin, end)? })
    }
}
