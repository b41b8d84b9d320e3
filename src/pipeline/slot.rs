//! Slots: the pinned memory that stages one chunk, as four types that exclude each other.
//!
//! ```text
//!       lane               submitter                    lane
//!  Idle ──filled──▶ Filled ──submit──▶ InFlight ──finish──▶ Done ──recycle──▶ Idle
//! ```
//! Only an [`Idle`] slot can be filled and only a [`Done`] one read; while copies run, the slot is a [`Filled`], whose rows may be
//! copied ahead of the kernel, or an [`InFlight`], which both give access to nothing. So no program that compiles touches memory
//! under a copy.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::time::Duration;

use super::copies::{Copy, here};
use super::streams::Streams;
use crate::data::{Chunk, Claim};
use crate::device::{Device, Host, Schedule, Stream};
use crate::error::{Error, Result};
use crate::memory::{Block, Layout};

/// The events of one chunk.
struct Marks<E> {
    /// The ends of the first stages, for which the next stream waits, and of the last, for which the host does.
    copied_in: E,
    computed: E,
    copied_out: E,
    /// The begin and the end of each stage for chunks that are timed.
    timed: Stages<(E, E)>,
}

/// Something for each stage on the device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stages<T> {
    pub(super) copy_in: T,
    pub(super) kernel: T,
    pub(super) copy_out: T,
}

/// When a stage of a chunk began on the device, on the host's clock, and how long it took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    pub(super) begin: Duration,
    pub(super) busy: Duration,
}

/// What every state of a slot holds.
pub(super) struct Slot<'r, D: Device> {
    /// A pointer and not a reference, because the device writes here while an [`InFlight`] is moved about.
    memory: NonNull<u8>,
    marks: Marks<D::Event>,
    pub(super) layout: &'r Layout,
    _memory: PhantomData<&'r mut [u8]>,
}

// SAFETY: a slot is the only owner of its part of the ring, as a `&mut [u8]` would be, and that is Send.
unsafe impl<D: Device> Send for Slot<'_, D> {}

/// A slot that nobody uses.
pub(super) struct Idle<'r, D: Device>(Slot<'r, D>);

/// A slot whose chunk is to be enqueued: all of it, or, if its rows were copied ahead, the rest.
///
/// Dropping it is as for [`InFlight`].
pub(super) struct Filled<'r, D: Device> {
    slot: Slot<'r, D>,
    pub(super) chunk: Chunk,
    pub(super) of: Of,
    /// If the copies in were enqueued: where to, and whether they are timed.
    copied: Option<(Block<D>, bool)>,
}

/// What a lane says of a slot that it filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Of {
    /// The lane.
    pub(super) lane: usize,
    /// When, on the host's clock.
    pub(super) filled_at: Duration,
    /// Bytes that are copied to the device.
    pub(super) bytes_in: u64,
}

/// A slot whose chunk is on its way.
///
/// Dropping it early is fine for the memory (it belongs to the ring, which outlives the streams, and those wait for their
/// copies when they are dropped), but loses the chunk.
pub(super) struct InFlight<'r, D: Device> {
    slot: Slot<'r, D>,
    pub(super) chunk: Chunk,
    pub(super) of: Of,
    timed: bool,
    /// The rows of pinned outputs that the device writes directly: given back when the chunk is back, else never.
    in_place: ManuallyDrop<Vec<Claim<'r>>>,
}

/// A slot whose chunk came back.
pub(super) struct Done<'r, D: Device> {
    slot: Slot<'r, D>,
    pub(super) chunk: Chunk,
    /// When it was filled, and when it was found to be back, on the host's clock.
    pub(super) filled_at: Duration,
    pub(super) back_at: Duration,
    /// How long it was in each stage, if it was timed.
    pub(super) taken: Option<Stages<Taken>>,
    /// Whether its lane had to wait for it.
    pub(super) awaited: bool,
}

impl<'r, D: Device> Idle<'r, D> {
    /// A slot in `memory`, which has room for `layout`.
    pub(super) fn new(memory: &'r mut [u8], layout: &'r Layout, device: &D) -> Result<Self> {
        debug_assert!(memory.len() >= layout.slot_bytes);
        let end = || device.event(false);
        let pair = || Ok::<_, Error>((device.event(true)?, device.event(true)?));
        let marks = Marks {
            copied_in: end()?,
            computed: end()?,
            copied_out: end()?,
            timed: Stages { copy_in: pair()?, kernel: pair()?, copy_out: pair()? },
        };
        Ok(Idle(Slot { memory: NonNull::from(memory).cast(), marks, layout, _memory: PhantomData }))
    }

    /// The first `bytes` of a staged column, for filling; `None` if the column is not staged.
    pub(super) fn column_mut(&mut self, column: usize, bytes: usize) -> Option<&mut [u8]> {
        let offset = self.0.layout.in_slot[column]?;
        assert!(offset + bytes <= self.0.layout.slot_bytes);
        // SAFETY: inside the slot's memory, which this slot alone owns, and no copy runs in the state Idle.
        Some(unsafe { std::slice::from_raw_parts_mut(self.0.memory.as_ptr().add(offset), bytes) })
    }

    /// Says that the staged inputs are those of `chunk`.
    pub(super) fn filled(self, chunk: Chunk, of: Of) -> Filled<'r, D> {
        Filled { slot: self.0, chunk, of, copied: None }
    }
}

impl<'r, D: Device> Filled<'r, D> {
    /// Enqueues the copies in alone, if there is a block; returns how many bytes they are.
    pub(super) fn copy_ahead(&mut self, streams: &mut Streams<'r, D>, host: &mut D::Host) -> Result<u64> {
        if !streams.pool.has_free() {
            return Ok(0);
        }
        self.copied = Some(self.slot.copy_in(&self.chunk, self.of.filled_at, streams, host)?);
        Ok(self.of.bytes_in)
    }

    /// Enqueues copy in, unless it was copied ahead, kernel and copy out.
    pub(super) fn submit(
        self,
        streams: &mut Streams<'r, D>,
        host: &mut D::Host,
    ) -> Result<InFlight<'r, D>, (Chunk, Error)> {
        let Filled { slot, chunk, of, copied } = self;
        // Copies that were enqueued before an error may still write there, so that they are never given back then.
        let mut in_place = ManuallyDrop::new(Vec::new());
        let copied = copied.map_or_else(|| slot.copy_in(&chunk, of.filled_at, streams, host), Ok);
        let submitted = copied.and_then(|(block, timed)| {
            slot.compute(&chunk, streams, block, timed, &mut in_place)?;
            Ok(timed)
        });
        match submitted {
            Ok(timed) => Ok(InFlight { slot, chunk, of, timed, in_place }),
            Err(error) => Err((chunk, error)),
        }
    }
}

impl<'r, D: Device> Slot<'r, D> {
    /// Takes a block and enqueues the copies in; returns whether the chunk is timed, too.
    fn copy_in(
        &self,
        chunk: &Chunk,
        at: Duration,
        streams: &mut Streams<'r, D>,
        host: &mut D::Host,
    ) -> Result<(Block<D>, bool)> {
        let timed = streams.next(at);
        let Streams { device, copy_in, pool, work, .. } = streams;
        let here = here(*device, chunk, work);
        let inputs = self.copies_in(chunk, work, &here)?;
        let Marks { copied_in, timed: pairs, .. } = &self.marks;
        let block = pool.take(copy_in, host)?;
        let (memory, start) = pool.memory(&block);

        begin::<D>(copy_in, timed, &pairs.copy_in)?;
        for Copy { host, memory: stays, offset, bytes, .. } in inputs {
            let (to, offset) = stays.map_or((memory, start + offset), |stays| (stays, offset));
            // SAFETY: `host` is readable for these bytes: either this slot's memory, big enough by its layout, which
            // no safe code reaches before the copy is done, as the slot is a `Filled` or an `InFlight` until then or is dropped; or
            // pinned memory that the source lends for the whole run, shared, so nobody writes it. The streams end their copies when
            // they are dropped, which is with the submitter, before the ring and the sources are. The block has the same layout, so
            // the offset fits it, and it is this chunk's alone until it is retired; and memory of rows that stay on the device has
            // room for these, which nobody reads before this run has copied them.
            unsafe { copy_in.copy_in(host.cast_const(), to, offset, bytes)? };
        }
        end::<D>(copy_in, timed, &pairs.copy_in, copied_in)?;
        Ok((block, timed))
    }

    /// Enqueues the kernel and the copies out, each on its stream behind the stage before, and gives the block back. The rows of
    /// outputs that the device writes in place are in `in_place`, also after an error.
    fn compute(
        &self,
        chunk: &Chunk,
        streams: &mut Streams<'r, D>,
        block: Block<D>,
        timed: bool,
        in_place: &mut Vec<Claim<'r>>,
    ) -> Result<()> {
        let Streams { device, compute, copy_out, pool, kernel, resident, work, .. } = streams;
        let here = here(*device, chunk, work);
        let outputs = self.copies_out(chunk, work, &here, in_place)?;
        let Marks { copied_in, computed, copied_out, timed: pairs } = &self.marks;
        let (memory, start) = pool.memory(&block);

        compute.wait(copied_in)?;
        begin::<D>(compute, timed, &pairs.kernel)?;
        let in_block = self.layout.in_block.iter().enumerate();
        let columns: Vec<_> =
            in_block.map(|(k, offset)| here.get(k).copied().flatten().unwrap_or((memory, start + offset))).collect();
        // SAFETY: the columns fit the block, which is this chunk's, aligned as that is, without overlap: the layout was made for at
        // least as many rows, or, if all inputs and outputs lie on the device and only partials are in the block, for these
        // (`Layout::whole_rows`). Rows that stay on the device are all there, from a multiple of eight bytes on, and no output has
        // them in common with another column (`Engine::run` checks that), nor with another chunk. The resident arrays were
        // made for this kernel. Kernels of Overshot's own stay within all these, and whoever made another one vouched for it.
        unsafe { compute.launch(kernel, &columns, resident, chunk.rows().start, chunk.len())? };
        end::<D>(compute, timed, &pairs.kernel, computed)?;

        copy_out.wait(computed)?;
        begin::<D>(copy_out, timed, &pairs.copy_out)?;
        for Copy { host, offset, bytes, .. } in outputs {
            // SAFETY: all are in the block. `host` is writable for these bytes: this slot's memory, as above, where inputs may lie
            // that are on the device by then, as this stream waits for the kernel and that for them; or rows of a pinned sink
            // that are claimed until the chunk is back, and that outlive the lanes and the submitter.
            unsafe { copy_out.copy_out(memory, start + offset, host, bytes)? };
        }
        end::<D>(copy_out, timed, &pairs.copy_out, copied_out)?;
        pool.retire(block, copy_out)
    }

    /// Where a column lies in the slot, if it is staged.
    pub(super) fn staged(&self, column: usize) -> Option<*mut u8> {
        // SAFETY: the offset is inside the slot's memory.
        self.layout.in_slot[column].map(|offset| unsafe { self.memory.as_ptr().add(offset) })
    }
}

fn begin<D: Device>(stream: &mut D::Stream, timed: bool, pair: &(D::Event, D::Event)) -> Result<()> {
    if timed { stream.record(&pair.0) } else { Ok(()) }
}

fn end<D: Device>(stream: &mut D::Stream, timed: bool, pair: &(D::Event, D::Event), end: &D::Event) -> Result<()> {
    if timed {
        stream.record(&pair.1)?;
    }
    stream.record(end)
}

impl<'r, D: Device> InFlight<'r, D> {
    /// The slot of a chunk that is back, else the same again. Where time is virtual, it passes until the chunk is back.
    pub(super) fn finish(
        self,
        streams: &Streams<'r, D>,
        host: &mut D::Host,
    ) -> Result<Result<Done<'r, D>, Self>, (Chunk, Error)> {
        let end = &self.slot.marks.copied_out;
        let is_back = match streams.device.schedule() {
            Schedule::Threads => host.query(end),
            Schedule::Seeded(_) => host.synchronize(end).map(|()| true),
        };
        let pairs = &self.slot.marks.timed;
        let taken = |pair| streams.taken(host, pair);
        let stages = || -> Result<_> {
            Ok(Stages {
                copy_in: taken(&pairs.copy_in)?,
                kernel: taken(&pairs.kernel)?,
                copy_out: taken(&pairs.copy_out)?,
            })
        };
        match is_back.and_then(|is_back| (is_back && self.timed).then(stages).transpose().map(|taken| (is_back, taken)))
        {
            Ok((false, _)) => Ok(Err(self)),
            Ok((true, taken)) => {
                let InFlight { slot, chunk, of, in_place, .. } = self;
                drop(ManuallyDrop::into_inner(in_place));
                Ok(Ok(Done { slot, chunk, filled_at: of.filled_at, back_at: host.now(), taken, awaited: false }))
            }
            Err(error) => Err((self.chunk, error)),
        }
    }

    /// The virtual time at which the chunk will be back.
    pub(super) fn done_at(&self, host: &D::Host) -> Duration {
        host.done_at(&self.slot.marks.copied_out)
    }
}

impl<'r, D: Device> Done<'r, D> {
    /// The first `bytes` of a staged column; `None` if the column is not staged.
    pub(super) fn column(&self, column: usize, bytes: usize) -> Option<&[u8]> {
        let offset = self.slot.layout.in_slot[column]?;
        assert!(offset + bytes <= self.slot.layout.slot_bytes);
        // SAFETY: inside the slot's memory, which this slot alone owns, and its copies are done.
        Some(unsafe { std::slice::from_raw_parts(self.slot.memory.as_ptr().add(offset), bytes) })
    }

    /// Makes the slot free for the next chunk.
    pub(super) fn recycle(self) -> Idle<'r, D> {
        Idle(self.slot)
    }
}
