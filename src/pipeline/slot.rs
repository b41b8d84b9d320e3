//! Slots: the pinned memory that stages one chunk, as four types that exclude each other.
//!
//! ```text
//!       lane                 submitter                    lane
//!  Idle ──hand_over──▶ Filled ──submit──▶ InFlight ──finish──▶ Done ──recycle──▶ Idle
//! ```
//! Only an [`Idle`] slot can be filled and only a [`Done`] one read; while copies run, the slot is an [`InFlight`],
//! which gives access to nothing. So no program that compiles touches memory under a copy.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::time::Duration;

use super::Work;
use super::copies::{Copies, Copy, here, push};
use super::streams::Streams;
use crate::data::{Chunk, Claim};
use crate::device::{Device, Host, Schedule, Stream};
use crate::error::{Error, Result};
use crate::memory::Layout;

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
    layout: &'r Layout,
    _memory: PhantomData<&'r mut [u8]>,
}

// SAFETY: a slot is the only owner of its part of the ring, as a `&mut [u8]` would be, and that is Send.
unsafe impl<D: Device> Send for Slot<'_, D> {}

/// A slot that nobody uses.
pub(super) struct Idle<'r, D: Device>(Slot<'r, D>);

/// A slot with the rows of a chunk.
pub(super) struct Filled<'r, D: Device> {
    slot: Slot<'r, D>,
    chunk: Chunk,
    /// The lane that it is of.
    lane: usize,
    /// When, on the host's clock.
    at: Duration,
}

/// A slot whose chunk is on its way.
///
/// Dropping it early is fine for the memory (it belongs to the ring, which outlives the streams, and those wait for their
/// copies when they are dropped), but loses the chunk.
pub(super) struct InFlight<'r, D: Device> {
    slot: Slot<'r, D>,
    pub(super) chunk: Chunk,
    /// The lane that it is of.
    pub(super) lane: usize,
    filled_at: Duration,
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

    /// With the rows of `chunk`, whose staged inputs were filled, by this lane at this time.
    pub(super) fn hand_over(self, chunk: Chunk, lane: usize, at: Duration) -> Filled<'r, D> {
        Filled { slot: self.0, chunk, lane, at }
    }
}

impl<'r, D: Device> Filled<'r, D> {
    /// Enqueues copy in, kernel and copy out.
    pub(super) fn submit(
        self,
        streams: &mut Streams<'r, D>,
        host: &mut D::Host,
    ) -> Result<InFlight<'r, D>, (usize, Chunk, Error)> {
        let Filled { slot, chunk, lane, at } = self;
        // Copies that were enqueued before an error may still write there, so that they are never given back then.
        let mut in_place = ManuallyDrop::new(Vec::new());
        match slot.enqueue(&chunk, at, streams, host, &mut in_place) {
            Ok(timed) => Ok(InFlight { slot, chunk, lane, filled_at: at, timed, in_place }),
            Err(error) => Err((lane, chunk, error)),
        }
    }
}

impl<'r, D: Device> Slot<'r, D> {
    /// Enqueues everything, each stage on its stream behind the stage before; returns whether it is timed. The rows of outputs
    /// that the device writes in place are in `in_place`, also after an error.
    fn enqueue(
        &self,
        chunk: &Chunk,
        at: Duration,
        streams: &mut Streams<'r, D>,
        host: &mut D::Host,
        in_place: &mut Vec<Claim<'r>>,
    ) -> Result<bool> {
        let timed = streams.next(at);
        let Streams { copy_in, compute, copy_out, pool, kernel, resident, work, device, .. } = streams;
        let here = here(*device, chunk, work);
        let (inputs, outputs) = self.copies(chunk, work, &here, in_place)?;
        let Marks { copied_in, computed, copied_out, timed: pairs } = &self.marks;
        let lease = pool.take(copy_in, host)?;
        let (memory, start) = lease.memory();

        begin::<D>(copy_in, timed, &pairs.copy_in)?;
        for Copy { host, memory: stays, offset, bytes, .. } in inputs {
            let (to, offset) = stays.map_or((memory, start + offset), |stays| (stays, offset));
            // SAFETY: `host` is readable for these bytes: either this slot's memory, big enough by its layout, which
            // no safe code reaches before the copy is done; or pinned memory that the source lends for the whole run,
            // shared, so nobody writes it. The streams end their copies when they are dropped, which is with the last
            // lane, before the ring and the sources are. The block has the same layout, so the offset fits it; and memory of rows
            // that stay on the device has room for these, which nobody reads before this run has copied them.
            unsafe { copy_in.copy_in(host.cast_const(), to, offset, bytes)? };
        }
        end::<D>(copy_in, timed, &pairs.copy_in, copied_in)?;

        compute.wait(copied_in)?;
        begin::<D>(compute, timed, &pairs.kernel)?;
        let in_block = self.layout.in_block.iter().enumerate();
        let columns: Vec<_> =
            in_block.map(|(k, offset)| here.get(k).copied().flatten().unwrap_or((memory, start + offset))).collect();
        // SAFETY: the layout was made for these columns and at least as many rows: they fit the block, aligned as that is,
        // without overlap. Rows that stay on the device are all there, from a multiple of eight bytes on, and no output has
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
        lease.retire(copy_out)?;
        Ok(timed)
    }

    /// The copies to the device and back. Columns that are `here` need none, unless they have to be brought first.
    fn copies<'c>(
        &self,
        chunk: &Chunk,
        work: &Work<'r>,
        here: &[Option<(&'c D::Memory, usize)>],
        in_place: &mut Vec<Claim<'r>>,
    ) -> Result<(Copies<'c, D>, Copies<'c, D>)> {
        let columns = &work.operator.kernel().columns;
        let (rows, first) = (chunk.len(), chunk.rows().start as usize);
        let mut inputs = Vec::with_capacity(columns.inputs.len());
        for (column, (&size, input)) in columns.inputs.iter().zip(&work.inputs).enumerate() {
            if here[column].is_some() && !input.fills() {
                continue;
            }
            let (host, staged) = match (self.staged(column), input.memory) {
                (Some(staged), _) => (staged, true),
                (None, Some(memory)) if input.pinned => {
                    (memory.bytes()[first * size..][..rows * size].as_ptr().cast_mut(), false)
                }
                (None, _) => return Err(not_pinned()),
            };
            let (memory, offset) = match here[column] {
                Some((memory, offset)) => (Some(memory), offset),
                None => (None, self.layout.in_block[column]),
            };
            push(&mut inputs, Copy { host, memory, offset, bytes: rows * size, staged });
        }
        let mut outputs = Vec::with_capacity(columns.outputs.len() + 1);
        let sizes = columns.outputs.iter().map(|size| rows * size);
        let partials = Some(columns.partial_bytes(rows)).filter(|bytes| *bytes > 0);
        for (k, bytes) in sizes.chain(partials).enumerate() {
            let column = columns.inputs.len() + k;
            if here.get(column).is_some_and(Option::is_some) {
                continue;
            }
            let (host, staged) = match self.staged(column) {
                Some(staged) => (staged, true),
                None => {
                    let output = &work.outputs[k];
                    let memory = output.memory.filter(|_| output.pinned).ok_or_else(not_pinned)?;
                    let mut claim = memory.claim(chunk.times(output.elements).rows());
                    assert_eq!(claim.len(), bytes, "rows of an output in place");
                    let start = claim.as_mut_ptr();
                    in_place.push(claim);
                    (start, false)
                }
            };
            push(&mut outputs, Copy { host, memory: None, offset: self.layout.in_block[column], bytes, staged });
        }
        Ok((inputs, outputs))
    }

    fn staged(&self, column: usize) -> Option<*mut u8> {
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

/// The plan does not stage columns that are pinned. Sources and sinks of a caller's own may say what is not so, and other code of
/// the program's may unregister what it registered.
fn not_pinned() -> Error {
    Error::Job(
        "a column that was planned as pinned is not: its Source or Target must say the same every time, and memory that was \
         registered must stay so until the job is done"
            .into(),
    )
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
                let InFlight { slot, chunk, filled_at, in_place, .. } = self;
                drop(ManuallyDrop::into_inner(in_place));
                Ok(Ok(Done { slot, chunk, filled_at, back_at: host.now(), taken, awaited: false }))
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
