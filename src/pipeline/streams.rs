//! The streams of a device, shared by all its workers: one for copies in, one for kernels, one for copies out.
//!
//! ```text
//!  copy in   │ chunk 3 │ chunk 4 │ chunk 5 │ …
//!  compute             │ 3 │     │ 4 │     │ 5 │ …
//!  copy out                │ chunk 3 │ chunk 4 │ …
//! ```
//! The alternative, one stream per worker, would let chunks overtake each other, but the copy engines lose time at
//! every switch between streams.

use std::time::Duration;

use super::Work;
use crate::device::{Device, Host, Stream};
use crate::error::Result;
use crate::memory::DevicePool;

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

/// The streams, and the resources that their work uses. On drop, streams wait for their work.
pub(super) struct Streams<'r, D: Device> {
    pub(super) copy_in: D::Stream,
    pub(super) compute: D::Stream,
    pub(super) copy_out: D::Stream,
    pub(super) pool: &'r mut DevicePool<D>,
    pub(super) kernel: &'r D::Kernel,
    pub(super) resident: &'r [D::Memory],
    pub(super) work: &'r Work<'r>,
    pub(super) device: &'r D,
    /// The event from which times on the device count, and the host time when it was done.
    epoch: (D::Event, Option<Duration>),
    /// Chunks enqueued so far.
    chunks: u64,
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
        Ok(Streams {
            copy_in: device.open_stream()?,
            compute: device.open_stream()?,
            copy_out: device.open_stream()?,
            pool,
            kernel,
            resident,
            work,
            device,
            epoch: (device.event(true)?, None),
            chunks: 0,
        })
    }

    /// Copies the resident arrays to the device and waits for the copies. Does nothing if it was called before. Must
    /// run on the submitter's thread, which has entered the device.
    pub(super) fn start(&mut self, host: &mut D::Host) -> Result<()> {
        let (event, at) = &mut self.epoch;
        if at.is_none() {
            for (array, memory) in self.work.operator.kernel().resident.iter().zip(self.resident) {
                let bytes = array.bytes();
                // SAFETY: the kernel keeps the bytes unchanged until after the run; the memory was allocated with
                // this size.
                unsafe { self.copy_in.copy_in(bytes.as_ptr(), memory, 0, bytes.len())? };
            }
            self.copy_in.record(event)?;
            host.synchronize(event)?;
            *at = Some(host.now());
        }
        Ok(())
    }

    /// Begins a chunk at this host time. Returns whether it is timed.
    pub(super) fn next(&mut self, at: Duration) -> bool {
        [&mut self.copy_in, &mut self.compute, &mut self.copy_out].into_iter().for_each(|stream| stream.at(at));
        self.chunks += 1;
        (self.chunks - 1).is_multiple_of(self.work.timed_every)
    }

    /// Returns when a stage began and how long it took, from the events around it.
    pub(super) fn taken(&self, host: &D::Host, (begin, end): &(D::Event, D::Event)) -> Result<StageTiming> {
        let (epoch, at) = &self.epoch;
        Ok(StageTiming { begin: at.unwrap_or_default() + host.elapsed(epoch, begin)?, busy: host.elapsed(begin, end)? })
    }
}
