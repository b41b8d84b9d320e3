//! The link of a device, with pinned memory and one stream per direction, as in the pipeline. Runs copies and
//! launches.
//!
//! All calls from the measurements to devices are here, and so is all their `unsafe` code.

use std::ops::Range;
use std::time::Instant;

use super::rates::Rate;
use super::team::per_second;
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

/// Bytes in each direction of a batch, after which the host looks whether it is done. A round that is larger is a batch
/// of its own.
const BATCH_BYTES: usize = 8 << 20;
/// Batches that are enqueued before the host waits for the oldest one. While it waits and wakes up, the link has work
/// for a few hundred microseconds.
const AHEAD: usize = 4;

/// Pinned memory and device memory, each in two halves: one half per direction.
pub(super) struct Link<D: Device> {
    // Dropped in this order: first the streams, which wait for their work, then the memory that the work uses.
    inward: D::Stream,
    outward: D::Stream,
    /// The copies in of the last round.
    came_in: D::Event,
    /// The end of each enqueued batch, in both directions.
    ends: Vec<[D::Event; 2]>,
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
            ends: (0..AHEAD).map(|_| Ok([device.event(false)?, device.event(false)?])).collect::<Result<_>>()?,
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

    /// Returns the rate at which its memory was pinned.
    pub(super) fn pin_rate(&self) -> Rate {
        let rate = |memory: &PinnedMemory| per_second(memory.bytes.len(), memory.pinning.as_secs_f64());
        Rate::of_runs(&[rate(&self.source), rate(&self.target)])
    }

    /// Returns the bytes of the largest copy for which there is memory.
    pub(super) fn most_bytes(&self) -> usize {
        self.half.min(self.source.bytes.len()).min(self.target.bytes.len())
    }

    /// Returns the bytes of one batch of copies of `bytes`, in both directions together.
    pub(super) fn batch_bytes(traffic: Traffic, bytes: usize) -> usize {
        Self::batch_rounds(bytes) * traffic.copies() * bytes
    }

    fn batch_rounds(bytes: usize) -> usize {
        (BATCH_BYTES / bytes).max(1)
    }

    /// Copies batch after batch, without a pause between them, while `goes_on` permits. `goes_on` is called after each
    /// batch with the number of batches that are done. Returns when each of them was done, except for those that were
    /// enqueued already when `goes_on` ended it, during which other links may have less work. Must be called on a
    /// thread of Overshot, because the device may become current on the thread.
    ///
    /// # Panics
    /// If `bytes` is 0 or more than [`most_bytes`](Link::most_bytes).
    pub(super) fn copy(
        &mut self,
        traffic: Traffic,
        bytes: usize,
        mut goes_on: impl FnMut(usize) -> bool,
    ) -> Result<Vec<Instant>> {
        let rounds = Self::batch_rounds(bytes);
        let mut done = Vec::new();
        let mut enqueued = 0;
        loop {
            while enqueued < done.len() + AHEAD {
                self.enqueue(traffic, bytes, enqueued * rounds..(enqueued + 1) * rounds)?;
                self.record(enqueued % AHEAD)?;
                enqueued += 1;
            }
            self.wait(done.len() % AHEAD)?;
            done.push(Instant::now());
            if !goes_on(done.len()) {
                for batch in done.len()..enqueued {
                    self.wait(batch % AHEAD)?;
                }
                return Ok(done);
            }
        }
    }

    /// Enqueues some rounds of copies.
    fn enqueue(&mut self, traffic: Traffic, bytes: usize, rounds: Range<usize>) -> Result<()> {
        assert!((1..=self.most_bytes()).contains(&bytes), "copies of {bytes} bytes");
        let (ins, outs) = traffic.each_way();
        let (source, target) = (self.source.bytes.as_ptr(), self.target.bytes.as_mut_ptr());
        // Copies use all of the memory in turn, as those of a job do.
        let places = self.most_bytes() / bytes;
        for round in rounds {
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
        Ok(())
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
        self.record(0)?;
        self.wait(0)
    }

    /// Returns the words of one half of the device memory.
    pub(super) fn most_rows(&self) -> usize {
        self.half / 8
    }

    fn record(&mut self, batch: usize) -> Result<()> {
        let [inward, outward] = &self.ends[batch];
        self.inward.record(inward)?;
        self.outward.record(outward)
    }

    fn wait(&mut self, batch: usize) -> Result<()> {
        self.ends[batch].iter().try_for_each(|end| self.host.synchronize(end))
    }
}
