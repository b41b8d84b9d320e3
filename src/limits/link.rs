//! A device with pinned memory and a stream for each direction, as the pipeline has them: copies to and fro, and launches.
//!
//! All that this room asks of devices is here, and with it all `unsafe` of this room.

use std::time::Instant;

use crate::device::{Device, Host, Stream};
use crate::error::{Error, Result};
use crate::memory::PinnedMemory;

/// Device memory that is asked for at most, and pinned memory.
pub(super) const MOST_BYTES: usize = 256 << 20;
/// The least that there must be of either.
const LEAST_BYTES: usize = 2 << 20;

/// What goes over the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    In,
    Out,
    /// One in and one out.
    Duplex,
    /// Two in and one out.
    TwoInOneOut,
}

impl Traffic {
    /// Copies of one round.
    pub(super) fn copies(self) -> usize {
        let (ins, outs) = self.each_way();
        ins + outs
    }

    /// Of them, those in and those out.
    fn each_way(self) -> (usize, usize) {
        match self {
            Traffic::In => (1, 0),
            Traffic::Out => (0, 1),
            Traffic::Duplex => (1, 1),
            Traffic::TwoInOneOut => (2, 1),
        }
    }
}

/// Two halves each of pinned and of device memory: one for each direction.
pub(super) struct Link<D: Device> {
    // Dropped in this order: streams first, which wait for their work; only then what that work uses.
    inward: D::Stream,
    outward: D::Stream,
    /// The last round's copies in.
    came_in: D::Event,
    inward_done: D::Event,
    outward_done: D::Event,
    host: D::Host,
    kernel: D::Kernel,
    source: PinnedMemory,
    target: PinnedMemory,
    memory: D::Memory,
    /// Bytes of half the device memory.
    half: usize,
}

impl<D: Device> Link<D> {
    /// Takes at most `pinned` bytes of pinned memory, and 256 MiB of the device's or, where there is less, what there is.
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

    /// Bytes per second of the pinning of its memory.
    pub(super) fn pin_rate(&self) -> f64 {
        let rate = |memory: &PinnedMemory| memory.bytes.len() as f64 / memory.pinning.as_secs_f64().max(1e-9);
        rate(&self.source).max(rate(&self.target))
    }

    /// The largest copy that it has memory for.
    pub(super) fn most_bytes(&self) -> usize {
        self.half.min(self.source.bytes.len()).min(self.target.bytes.len())
    }

    /// Enqueues so many rounds of copies of `bytes` and waits for all of them. On a thread of ours: the device may become
    /// the current one of the thread.
    ///
    /// # Panics
    /// If `bytes` is 0 or more than [`most_bytes`](Link::most_bytes).
    pub(super) fn copy(&mut self, traffic: Traffic, bytes: usize, rounds: usize) -> Result<()> {
        assert!((1..=self.most_bytes()).contains(&bytes), "copies of {bytes} bytes");
        let (ins, outs) = traffic.each_way();
        let (source, target) = (self.source.bytes.as_ptr(), self.target.bytes.as_mut_ptr());
        // Copies go through all the memory there is, as those of a job do.
        let places = self.most_bytes() / bytes;
        for round in 0..rounds {
            if traffic == Traffic::TwoInOneOut {
                // A chunk comes out when the next one comes in, and not before.
                self.outward.wait(&self.came_in)?;
            }
            for copy in 0..ins {
                let offset = (round * ins + copy) % places * bytes;
                // SAFETY: `offset + bytes` is at most `places * bytes`, so inside the source and the first half of the
                // device memory, which live until the stream has done its work and which no one else touches.
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

    /// Enqueues so many launches of the kernel that copies `rows` words from one half of the device memory to the other, and
    /// waits for them. On a thread of ours, too.
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

    /// The words of half the device memory.
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
