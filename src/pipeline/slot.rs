//! Slots: the pinned memory that stages one chunk, as four types that exclude each other.
//!
//! ```text
//!  Idle ──filled──▶ Filled ──submit──▶ InFlight ──wait──▶ Done ──recycle──▶ Idle
//! ```
//! Only an [`Idle`] slot can be filled and only a [`Done`] one read; while copies run, the slot is a [`Filled`], whose rows may be
//! copied ahead of the kernel, or an [`InFlight`], which both give access to nothing. So no program that compiles touches memory
//! under a copy.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::time::Duration;

use super::copies::{Copy, here};
use super::streams::{Order, Streams};
use crate::data::{Chunk, Claim};
use crate::device::{Device, Host, Stream};
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
    chunk: Chunk,
    /// If the copies in were enqueued.
    copied: Option<Copied<D>>,
}

/// A chunk whose copies in are enqueued, and what else has to know of them.
struct Copied<D: Device> {
    block: Block<D>,
    /// When, on the host's clock.
    enqueued: Duration,
    timed: bool,
}

/// A slot whose chunk is on its way.
///
/// Dropping it early is fine for the memory (it belongs to the ring, which outlives the streams, and those wait for their
/// copies when they are dropped), but loses the chunk.
pub(super) struct InFlight<'r, D: Device> {
    slot: Slot<'r, D>,
    chunk: Chunk,
    enqueued: Duration,
    timed: bool,
    /// The rows of pinned outputs that the device writes directly: given back when the chunk is back, else never.
    in_place: ManuallyDrop<Vec<Claim<'r>>>,
}

/// A slot whose chunk came back.
pub(super) struct Done<'r, D: Device> {
    slot: Slot<'r, D>,
    pub(super) chunk: Chunk,
    /// When it was enqueued, on the host's clock.
    pub(super) enqueued: Duration,
    /// How long it was in each stage, if it was timed.
    pub(super) taken: Option<Stages<Taken>>,
    /// Whether it was not back yet when the lane came to wait for it.
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
    pub(super) fn filled(self, chunk: Chunk) -> Filled<'r, D> {
        Filled { slot: self.0, chunk, copied: None }
    }
}

impl<'r, D: Device> Filled<'r, D> {
    /// Enqueues the copies in alone, if a block can be spared; returns whether it could.
    pub(super) fn copy_ahead(
        mut self,
        streams: &Streams<'r, D>,
        host: &mut D::Host,
    ) -> Result<(Self, bool), (Chunk, Error)> {
        let Filled { slot, chunk, copied } = &mut self;
        streams.sends(chunk);
        let sent = streams.enqueue(host, |order| {
            if order.pool.can_spare() {
                *copied = Some(slot.copy_in(chunk, order)?);
            }
            Ok(copied.is_some())
        });
        match sent {
            Ok(copied) => Ok((self, copied)),
            Err(error) => Err((self.chunk, error)),
        }
    }

    /// Enqueues copy in, unless it was copied ahead, kernel and copy out.
    pub(super) fn submit(
        self,
        streams: &Streams<'r, D>,
        host: &mut D::Host,
    ) -> Result<InFlight<'r, D>, (Chunk, Error)> {
        let Filled { slot, chunk, copied } = self;
        // Copies that were enqueued before an error may still write there, so that they are never given back then.
        let mut in_place = ManuallyDrop::new(Vec::new());
        streams.sends(&chunk);
        let sent = streams.enqueue(host, |order| {
            let Copied { block, enqueued, timed } = match copied {
                Some(copied) => copied,
                None => slot.copy_in(&chunk, order)?,
            };
            slot.compute(&chunk, order, block, timed, &mut in_place)?;
            Ok((enqueued, timed))
        });
        match sent {
            Ok((enqueued, timed)) => Ok(InFlight { slot, chunk, enqueued, timed, in_place }),
            Err(error) => Err((chunk, error)),
        }
    }
}

impl<'r, D: Device> Slot<'r, D> {
    /// Takes a block and enqueues the copies in.
    fn copy_in(&self, chunk: &Chunk, order: &mut Order<'_, 'r, D>) -> Result<Copied<D>> {
        let timed = order.is_next_timed();
        let Order { device, copy_in, pool, work, host, .. } = order;
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
            // they are dropped, which is with the last lane, before the ring and the sources are. The block has the same layout, so
            // the offset fits it, and it is this chunk's alone until it is retired; and memory of rows that stay on the device has
            // room for these, which nobody reads before this run has copied them.
            unsafe { copy_in.copy_in(host.cast_const(), to, offset, bytes)? };
        }
        end::<D>(copy_in, timed, &pairs.copy_in, copied_in)?;
        Ok(Copied { block, enqueued: host.now(), timed })
    }

    /// Enqueues the kernel and the copies out, each on its stream behind the stage before, and gives the block back. The rows of
    /// outputs that the device writes in place are in `in_place`, also after an error.
    fn compute(
        &self,
        chunk: &Chunk,
        order: &mut Order<'_, 'r, D>,
        block: Block<D>,
        timed: bool,
        in_place: &mut Vec<Claim<'r>>,
    ) -> Result<()> {
        let Order { device, compute, copy_out, pool, kernel, resident, work, .. } = order;
        let here = here(*device, chunk, work);
        let outputs = self.copies_out(chunk, work, &here, in_place)?;
        let Marks { copied_in, computed, copied_out, timed: pairs } = &self.marks;
        let (memory, start) = pool.memory(&block);

        compute.wait(copied_in)?;
        begin::<D>(compute, timed, &pairs.kernel)?;
        let in_block = self.layout.in_block.iter().enumerate();
        let columns: Vec<_> =
            in_block.map(|(k, offset)| here.get(k).copied().flatten().unwrap_or((memory, start + offset))).collect();
        // SAFETY: the layout was made for these columns and at least as many rows: they fit the block, which is this chunk's, aligned as
        // that is, without overlap. Rows that stay on the device are all there, from a multiple of eight bytes on, and no output has
        // them in common with another column (`Engine::run` checks that), nor with another chunk. The resident arrays were
        // made for this kernel. Kernels of Overshot's own stay within all these, and whoever made another one vouched for it.
        unsafe { compute.launch(kernel, &columns, resident, chunk.rows().start, chunk.len())? };
        end::<D>(compute, timed, &pairs.kernel, computed)?;

        copy_out.wait(computed)?;
        begin::<D>(copy_out, timed, &pairs.copy_out)?;
        for Copy { host, offset, bytes, .. } in outputs {
            // SAFETY: all are in the block. `host` is writable for these bytes: this slot's memory, as above, where inputs may lie that are on the
            // device by then, as this stream waits for the kernel and that for them; or rows of a pinned sink that are
            // claimed until the chunk is back, and that outlive the lanes.
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
    /// Waits until the chunk is back.
    pub(super) fn wait(self, streams: &Streams<'r, D>, host: &mut D::Host) -> Result<Done<'r, D>, (Chunk, Error)> {
        let InFlight { slot, chunk, enqueued, timed, in_place } = self;
        let end = &slot.marks.copied_out;
        let back = host.query(end).and_then(|back| {
            host.synchronize(end)?;
            let pairs = &slot.marks.timed;
            let taken = |pair| streams.taken(host, pair);
            let stages = || -> Result<_> {
                Ok(Stages {
                    copy_in: taken(&pairs.copy_in)?,
                    kernel: taken(&pairs.kernel)?,
                    copy_out: taken(&pairs.copy_out)?,
                })
            };
            Ok((timed.then(stages).transpose()?, !back))
        });
        match back {
            Ok((taken, awaited)) => {
                streams.is_back(&chunk);
                drop(ManuallyDrop::into_inner(in_place));
                Ok(Done { slot, chunk, enqueued, taken, awaited })
            }
            Err(error) => Err((chunk, error)),
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
