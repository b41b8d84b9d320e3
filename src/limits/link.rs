//! The link of a device, with pinned memory and one stream per direction, as in the pipeline. Runs copies and
//! launches.
//!
//! All calls from the measurements to devices are here, and so is all their `unsafe` code.

use std::time::Instant;

use crate::device::{Device, Host, Stream};
use crate::error::{Error, Result};
use crate::memory::PinnedMemory;

/// The most device memory and pinned memory that is requested.
pub(super) const MOST_BYTES: usize = 256 << 20;
/// The least device memory and pinned memory that is required.
const LEAST_BYTES: usize = 2 << 20;

/// The traffic on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    In,
    Out,
    /// One copy in for each copy out.
    Duplex,
    /// Two copies in for each copy out.
    TwoInOneOut,
}

impl Traffic {
    /// Returns the number of copies in one round.
    pub(super) fn copies(self) -> usize {
        let (ins, outs) = self.each_way();
        ins + outs
    }

    /// Returns how many of them are copies in, and how many copies out.
    fn each_way(self) -> (usize, usize) {
        match self {
            Traffic::In => (1, 0),
            Traffic::Out => (0, 1),
            Traffic::Duplex => (1, 1),
            Traffic::TwoInOneOut => (2, 1),
        }
    }
}

/// Pinned memory and device memory, each in two halves: one half per direction.
pub(super) struct Link<D: Device> {
    // Dropped in this order: first the streams, which wait for their work, then the memory that the work uses.
    inward: D::Stream,
    outward: D::Stream,
    /// The copies in of the last round.
    came_in: D::Event,
    inward_done: D::Event,
    outward_done: D::Event,
    host: D::Host,
    kernel: D::Kernel,
    source: PinnedMemory,
    target: PinnedMemory,
    memory: D::Memory,
    /// Bytes of one half of the device memory.
    half: usize,
}

impl<D: Device> Link<D> {
    /// Allocates at most `pinned` bytes of pinned memory, and 256 MiB of device memory, or as much as there is.
    pub(super) fn open(device: &D, pinned: usize) -> Result<Link<D>> {
        let pinned = pinned.clamp(LEAST_BYTES, MOST_BYTES) / LEAST_BYTES * (LEAST_BYTES / 2);
        let mut half = MOST_BYTES / 2;
        let memory = loop {
            match device.allocate(2 * half) {
                Err(Error::OutOfMemory { .. }) if half > LEAST_BYTES / 2 => half /= 2,
                memory => break memory?,
            }
        };
        Ok(Link {
            came_in: device.event(false)?,
            inward_done: device.event(false)?,
            outward_done: device.event(false)?,
            host: device.host(Instant::now()),
            inward: device.open_stream()?,
            outward: device.open_stream()?,
            kernel: device.load(&super::copy_kernel().into())?,
            source: PinnedMemory::new(Some(device), pinned)?,
            target: PinnedMemory::new(Some(device), pinned)?,
            memory,
            half,
        })
    }

    /// Returns the bytes per second at which its memory was pinned.
    pub(super) fn pin_rate(&self) -> f64 {
        let rate = |memory: &PinnedMemory| memory.bytes.len() as f64 / memory.pinning.as_secs_f64().max(1e-9);
        rate(&self.source).max(rate(&self.target))
    }

    /// Returns the bytes of the largest copy for which there is memory.
    pub(super) fn most_bytes(&self) -> usize {
        self.half.min(self.source.bytes.len()).min(self.target.bytes.len())
    }

    /// Enqueues `rounds` rounds of copies of `bytes` and waits for all of them. Must be called on a thread of
    /// Overshot, because the device may become current on the thread.
    ///
    /// # Panics
    /// If `bytes` is 0 or more than [`most_bytes`](Link::most_bytes).
    pub(super) fn copy(&mut self, traffic: Traffic, bytes: usize, rounds: usize) -> Result<()> {
        assert!((1..=self.most_bytes()).contains(&bytes), "copies of {bytes} bytes");
        let (ins, outs) = traffic.each_way();
        let (source, target) = (self.source.bytes.as_ptr(), self.target.bytes.as_mut_ptr());
        // Copies use all of the memory in turn, as those of a job do.
        let places = self.most_bytes() / bytes;
        for round in 0..rounds {
            if traffic == Traffic::TwoInOneOut {
                // The copy out of a chunk runs during the copies in of the next one, and not before.
                self.outward.wait(&self.came_in)?;
            }
            for copy in 0..ins {
                let offset = (round * ins + copy) % places * bytes;
                // SAFETY: `offset + bytes` is at most `places * bytes`, so the range is inside the source and the
                // first half of the device memory. Both live until the stream has done its work, and nothing else
                // accesses them.
                unsafe { self.inward.copy_in(source.add(offset), &self.memory, offset, bytes)? };
            }
            if traffic == Traffic::TwoInOneOut {
                self.inward.record(&self.came_in)?;
            }
            for copy in 0..outs {
                let offset = (round * outs + copy) % places * bytes;
                // SAFETY: as above, with the target and the second half of the device memory.
                unsafe { self.outward.copy_out(&self.memory, self.half + offset, target.add(offset), bytes)? };
            }
        }
        self.wait()
    }

    /// Enqueues `launches` launches of the kernel that copies `rows` words from one half of the device memory to the
    /// other, and waits for them. Must be called on a thread of Overshot, too.
    ///
    /// # Panics
    /// If `rows` is 0 or more than [`most_rows`](Link::most_rows).
    pub(super) fn launch(&mut self, rows: usize, launches: usize) -> Result<()> {
        assert!((1..=self.most_rows()).contains(&rows), "launches of {rows} rows");
        for _ in 0..launches {
            // SAFETY: `rows` words fit each half, the halves do not overlap, and `half` is a multiple of 8.
            unsafe { self.inward.launch(&self.kernel, &[(&self.memory, 0), (&self.memory, self.half)], &[], 0, rows)? };
        }
        self.wait()
    }

    /// Returns the words of one half of the device memory.
    pub(super) fn most_rows(&self) -> usize {
        self.half / 8
    }

    fn wait(&mut self) -> Result<()> {
        self.inward.record(&self.inward_done)?;
        self.outward.record(&self.outward_done)?;
        self.host.synchronize(&self.inward_done)?;
        self.host.synchronize(&self.outward_done)
    }
}
