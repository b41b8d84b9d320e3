//! Slots: the pinned memory that stages one chunk, as three types that exclude each other.
//!
//! ```text
//!  Idle ──submit──▶ InFlight ──wait──▶ Done ──recycle──▶ Idle
//! ```
//! Only an [`Idle`] slot can be filled and only a [`Done`] one read; while copies run, the slot is an [`InFlight`],
//! which gives access to nothing. So no program that compiles touches memory under a copy.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::time::Duration;

use super::Work;
use crate::data::{Chunk, Claim};
use crate::device::{Device, Stream};
use crate::error::{Error, Result};
use crate::memory::{DevicePool, Layout};

/// The events around the stages of one chunk.
struct Marks<E> {
    begin: E,
    copied_in: E,
    computed: E,
    copied_out: E,
}

/// What every state of a slot holds.
struct Slot<'r, D: Device> {
    /// A pointer and not a reference, because the device writes here while an [`InFlight`] is moved about.
    memory: NonNull<u8>,
    marks: Marks<<D::Stream as Stream>::Event>,
    layout: &'r Layout,
    _memory: PhantomData<&'r mut [u8]>,
}

// SAFETY: a slot is the only owner of its part of the ring, as a `&mut [u8]` would be, and that is Send.
unsafe impl<D: Device> Send for Slot<'_, D> {}

/// A slot that nobody uses.
pub(super) struct Idle<'r, D: Device>(Slot<'r, D>);

/// A slot whose chunk is on its way.
///
/// Dropping it early is fine for the memory (it belongs to the ring, which outlives the lane, and a stream waits for
/// its copies when it is dropped), but loses the chunk.
pub(super) struct InFlight<'r, D: Device> {
    slot: Slot<'r, D>,
    chunk: Chunk,
    enqueued: Duration,
    /// The rows of pinned outputs that the device writes directly.
    in_place: Vec<Claim<'r>>,
}

/// A slot whose chunk came back.
pub(super) struct Done<'r, D: Device> {
    slot: Slot<'r, D>,
    pub(super) chunk: Chunk,
    pub(super) times: DeviceTimes,
    /// Whether it was not back yet when the lane came to wait for it.
    pub(super) awaited: bool,
}

/// What a chunk passes on its way: the lane with its stream, and what the lanes of the device share.
pub(super) struct Route<'s, 'r, D: Device> {
    pub(super) lane: usize,
    pub(super) stream: &'s mut D::Stream,
    pub(super) pool: &'r DevicePool<D>,
    pub(super) kernel: &'r D::Kernel,
    pub(super) work: &'r Work<'r>,
}

/// How long a chunk was in each stage on the device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceTimes {
    /// From the moment it was enqueued to its return, on the host's clock.
    pub(super) in_flight: Duration,
    pub(super) copy_in: Duration,
    pub(super) kernel: Duration,
    pub(super) copy_out: Duration,
}

impl<'r, D: Device> Idle<'r, D> {
    /// A slot in `memory`, which has room for `layout`.
    pub(super) fn new(memory: &'r mut [u8], layout: &'r Layout, stream: &D::Stream) -> Result<Self> {
        debug_assert!(memory.len() >= layout.slot_bytes);
        let marks = Marks {
            begin: stream.event()?,
            copied_in: stream.event()?,
            computed: stream.event()?,
            copied_out: stream.event()?,
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

    /// Enqueues copy in, kernel and copy out of `chunk`, whose staged inputs were filled.
    pub(super) fn submit(self, chunk: Chunk, route: Route<'_, 'r, D>) -> Result<InFlight<'r, D>, (Chunk, Error)> {
        let slot = self.0;
        let mut in_place = Vec::new();
        match slot.enqueue(&chunk, route, &mut in_place) {
            Ok(enqueued) => Ok(InFlight { slot, chunk, enqueued, in_place }),
            Err(error) => {
                // Copies that were enqueued may still write there: never given back.
                std::mem::forget(in_place);
                Err((chunk, error))
            }
        }
    }
}

impl<'r, D: Device> Slot<'r, D> {
    /// Enqueues everything; returns the time. The rows of outputs that the device writes in place are in `in_place`, also
    /// after an error.
    fn enqueue(&self, chunk: &Chunk, route: Route<'_, 'r, D>, in_place: &mut Vec<Claim<'r>>) -> Result<Duration> {
        let Route { lane, stream, pool, kernel, work } = route;
        let columns = &work.operator.kernel().columns;
        let (rows, first) = (chunk.len(), chunk.rows().start as usize);
        let lease = pool.take(lane, stream)?;
        let block = lease.memory();
        stream.record(&self.marks.begin)?;
        for (column, (&size, input)) in columns.inputs.iter().zip(&work.inputs).enumerate() {
            let from = match (self.staged(column), input.memory) {
                (Some(staged), _) => staged.cast_const(),
                (None, Some(memory)) if memory.is_pinned() => memory.bytes()[first * size..][..rows * size].as_ptr(),
                (None, _) => return Err(not_pinned()),
            };
            // SAFETY: `from` is readable for these bytes: either this slot's memory, big enough by its layout, which
            // no safe code reaches before the copy is done; or pinned memory that the source lends for the whole run,
            // shared, so nobody writes it. On an error the stream ends its copies when the lane is dropped, which is
            // before the ring and the sources are. The block has the same layout, so the offset fits it.
            unsafe { stream.copy_in(from, block, self.layout.in_block[column], rows * size)? };
        }
        stream.record(&self.marks.copied_in)?;
        // SAFETY: the layout was made for these columns and at least as many rows: they fit, aligned, without overlap.
        unsafe { stream.launch(kernel, block, &self.layout.in_block, chunk.rows().start, rows)? };
        stream.record(&self.marks.computed)?;
        let outputs = columns.outputs.iter().map(|size| rows * size);
        let partials = Some(columns.partial_bytes(rows)).filter(|bytes| *bytes > 0);
        for (k, bytes) in outputs.chain(partials).enumerate() {
            let column = columns.inputs.len() + k;
            let to = match self.staged(column) {
                Some(staged) => staged,
                None => {
                    let memory = work.outputs[k].memory.filter(|memory| memory.is_pinned()).ok_or_else(not_pinned)?;
                    let mut claim = memory.claim(chunk.rows());
                    assert_eq!(claim.len(), bytes, "rows of an output in place");
                    let start = claim.as_mut_ptr();
                    in_place.push(claim);
                    start
                }
            };
            // SAFETY: `to` is writable for these bytes: this slot's memory, as above; or rows of a pinned sink that are
            // claimed until the chunk is back, and that outlive the lane.
            unsafe { stream.copy_out(block, self.layout.in_block[column], to, bytes)? };
        }
        stream.record(&self.marks.copied_out)?;
        lease.retire(lane, stream)?;
        Ok(stream.now())
    }

    fn staged(&self, column: usize) -> Option<*mut u8> {
        // SAFETY: the offset is inside the slot's memory.
        self.layout.in_slot[column].map(|offset| unsafe { self.memory.as_ptr().add(offset) })
    }
}

/// The plan does not stage columns that said they are pinned. Sources and sinks of a caller's own may say what is not so.
fn not_pinned() -> Error {
    Error::Job("a column that was planned as pinned is not: its Source or Target must say the same every time".into())
}

impl<'r, D: Device> InFlight<'r, D> {
    /// Waits until the chunk is back.
    pub(super) fn wait(self, stream: &mut D::Stream) -> Result<Done<'r, D>, (Chunk, Error)> {
        let marks = &self.slot.marks;
        let times = stream.query(&marks.copied_out).and_then(|back| {
            stream.synchronize(&marks.copied_out)?;
            let times = DeviceTimes {
                in_flight: stream.now().saturating_sub(self.enqueued),
                copy_in: stream.elapsed(&marks.begin, &marks.copied_in)?,
                kernel: stream.elapsed(&marks.copied_in, &marks.computed)?,
                copy_out: stream.elapsed(&marks.computed, &marks.copied_out)?,
            };
            Ok((times, !back))
        });
        match times {
            Ok((times, awaited)) => Ok(Done { slot: self.slot, chunk: self.chunk, times, awaited }),
            Err(error) => {
                // The device may still write there: never given back.
                std::mem::forget(self.in_place);
                Err((self.chunk, error))
            }
        }
    }

    /// The virtual time at which the chunk will be back.
    pub(super) fn done_at(&self, stream: &D::Stream) -> Duration {
        stream.done_at(&self.slot.marks.copied_out)
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
