//! Slots: the pinned memory that stages one chunk, or some of its rows. Each state of a slot is a type.
//!
//! ```text
//!       worker               submitter                    worker
//!  Idle ──filled──▶ Filled ──submit──▶ InFlight ──finish──▶ Done ──recycle──▶ Idle
//!                                              └──finish──▶ Idle, if other fills of the chunk follow
//! ```
//! | state | owner | host may | device may |
//! | --- | --- | --- | --- |
//! | [`Idle`] | worker | write inputs | nothing |
//! | [`Filled`] | submitter | nothing | read inputs, if they are copied ahead of the kernel |
//! | [`InFlight`] | submitter | nothing | read inputs, write outputs |
//! | [`Done`] | worker | read outputs | nothing |
//!
//! **Fills.** A chunk that is larger than a slot is staged in several fills: some of its rows at a time, each in the
//! next idle slot of its worker. All of them go to the block of the chunk, which waits among the [`Streams`] until the
//! last fill. Only that one has the kernel and the copies out behind it.
//!
//! A transition consumes the slot, and only [`Idle`] and [`Done`] give access to the memory. So no program that
//! compiles can access the memory during a copy.
//!
//! The `unsafe` code that enqueues copies and kernels is in [`Slot::copy_in`] and [`Slot::compute`]. They follow the
//! [`Route`] of the chunk.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::time::Duration;

use super::Work;
use super::panels::no_place;
use super::route::{From, In, Out, Route, To};
use super::streams::{StageTiming, Stages, Streams};
use crate::data::Chunk;
use crate::device::kernel::{Columns, Side};
use crate::device::{Device, Host, Stream};
use crate::error::{Error, Result};
use crate::memory::{Block, Layout};

/// Bytes between two parts of a slot that are copied with them: a copy of its own takes longer.
const SMALL_GAP: usize = 16 << 10;

/// A chunk that a device lost, and why.
pub(super) type Lost = Box<(Chunk, Error)>;

/// The events of one chunk.
struct ChunkEvents<E> {
    /// The ends of the three stages. The next stream waits for the first two, the host for the last.
    copied_in: E,
    computed: E,
    copied_out: E,
    /// The begin and the end of each stage, recorded for timed chunks only.
    timed: Stages<(E, E)>,
}

/// The part of the staging slab that belongs to a slot. It is a pointer and not a reference, because the device
/// writes to the memory while an [`InFlight`] is moved.
struct SlotMemory<'r>(NonNull<u8>, PhantomData<&'r mut [u8]>);

// SAFETY: it is the only owner of its part of the slab, as a `&mut [u8]` would be, which is Send.
unsafe impl Send for SlotMemory<'_> {}

/// The content of a slot in every state.
pub(super) struct Slot<'r, D: Device> {
    memory: SlotMemory<'r>,
    events: ChunkEvents<D::Event>,
    layout: &'r Layout,
    columns: &'r Columns,
    route: Route<'r, D>,
    /// The rows of the chunk, counted from its first one, whose staged inputs are in the slot.
    fill: Range<usize>,
}

/// A slot without a chunk, or one that is being filled.
pub(super) struct Idle<'r, D: Device>(Slot<'r, D>);

/// A slot whose chunk is not enqueued yet, or of which only the copies in are enqueued.
///
/// Dropping it has the same effect as dropping an [`InFlight`].
pub(super) struct Filled<'r, D: Device> {
    slot: Slot<'r, D>,
    /// The worker that filled it.
    pub(super) worker: usize,
    /// The time when it was filled, on the clock of the host.
    filled_at: Duration,
    /// If the copies in are enqueued: the block that they write to, and whether the chunk is timed.
    copied: Option<(Block<D>, bool)>,
}

/// A slot whose chunk is enqueued.
///
/// Dropping it is safe but loses the chunk. The memory belongs to the slab, which outlives the streams, and the
/// streams wait for their copies when they are dropped.
pub(super) struct InFlight<'r, D: Device> {
    slot: Slot<'r, D>,
    pub(super) worker: usize,
    filled_at: Duration,
    timed: bool,
}

/// A slot whose chunk is done: all copies have ended.
pub(super) struct Done<'r, D: Device> {
    slot: Slot<'r, D>,
    /// The times when it was filled and when it was found to be done, on the clock of the host.
    pub(super) filled_at: Duration,
    pub(super) back_at: Duration,
    /// The times of its stages on the device, if it was timed.
    pub(super) taken: Option<Stages<StageTiming>>,
}

/// What comes back to a worker.
pub(super) enum Back<'r, D: Device> {
    /// A chunk that is done.
    Chunk(Done<'r, D>),
    /// The slot of a fill behind which others of the same chunk follow.
    Fill(Copied<'r, D>),
}

/// A slot whose rows are on the device.
pub(super) struct Copied<'r, D: Device> {
    slot: Slot<'r, D>,
    pub(super) filled_at: Duration,
    pub(super) back_at: Duration,
    /// The time of the copy, if the chunk is timed.
    pub(super) taken: Option<StageTiming>,
}

impl<'r, D: Device> Idle<'r, D> {
    /// Creates a slot in `memory` for chunks of these columns.
    ///
    /// # Panics
    /// If `memory` is smaller than a slot of `layout`.
    pub(super) fn new(memory: &'r mut [u8], layout: &'r Layout, columns: &'r Columns, device: &D) -> Result<Self> {
        assert!(memory.len() >= layout.slot_bytes, "memory of a slot");
        let end = || device.event(false);
        let pair = || Ok::<_, Error>((device.event(true)?, device.event(true)?));
        let events = ChunkEvents {
            copied_in: end()?,
            computed: end()?,
            copied_out: end()?,
            timed: Stages { copy_in: pair()?, kernel: pair()?, copy_out: pair()? },
        };
        let memory = SlotMemory(NonNull::from(memory).cast(), PhantomData);
        Ok(Idle(Slot { memory, events, layout, columns, route: Route::new(), fill: 0..0 }))
    }

    /// Sets the route of a chunk, and returns the rows of it that the slot is to be filled with: all of them or, if the
    /// slot has no room for these, one of several equal parts, behind the first rows, which are in other slots.
    ///
    /// # Errors
    /// Those of [`Route::set`].
    pub(super) fn route(
        &mut self,
        (chunk, first): (&Chunk, usize),
        device: &'r D,
        work: &'r Work<'r>,
    ) -> Result<Chunk> {
        let Slot { route, layout, fill, .. } = &mut self.0;
        route.set(chunk, device, layout, work)?;
        let is_staged = route.inputs.iter().any(|input| matches!(input, In::Upload { from: From::Staged, .. }));
        let fills = if is_staged { chunk.len().div_ceil(layout.fill_rows).max(1) } else { 1 };
        *fill = first..chunk.len().min(first + chunk.len().div_ceil(fills));
        Ok(self.0.part())
    }

    /// Returns the bytes that are copied to the device.
    pub(super) fn upload_bytes(&self) -> u64 {
        self.0.upload_bytes()
    }

    /// Returns the memory to read the rows of an input into; `None` if the input is not staged.
    pub(super) fn input_mut(&mut self, input: usize) -> Option<&mut [u8]> {
        let slot = &self.0;
        let In::Upload { from: From::Staged, .. } = slot.route.inputs[input] else { return None };
        let (offset, bytes) = slot.staged_input(input)?;
        // SAFETY: `staged_input` checks that the range is in the slot's memory, which this slot alone owns. No copy
        // runs in the state Idle.
        Some(unsafe { std::slice::from_raw_parts_mut(slot.memory.0.as_ptr().add(offset), bytes) })
    }

    /// Marks the slot as filled by this worker at this time: it holds the rows of the chunk that it was to be filled
    /// with.
    pub(super) fn filled(self, worker: usize, filled_at: Duration) -> Filled<'r, D> {
        Filled { slot: self.0, worker, filled_at, copied: None }
    }
}

impl<'r, D: Device> Filled<'r, D> {
    /// The chunk.
    pub(super) fn chunk(&self) -> &Chunk {
        &self.slot.route.chunk
    }

    /// Returns whether there is a block for the rows: that of their chunk, or a free one if they are the first.
    pub(super) fn has_block(&self, streams: &Streams<'r, D>) -> bool {
        match self.slot.fill.start {
            0 => self.copied.is_some() || streams.pool.has_free(),
            _ => streams.begun.contains_key(&self.worker),
        }
    }

    /// Returns whether the chunk has several fills.
    fn is_part(&self) -> bool {
        self.slot.fill.len() < self.slot.route.chunk.len()
    }

    /// Enqueues only the copies in, if a block is free. Returns the bytes copied. A chunk in several fills is not
    /// copied ahead: its slots would not come back for the next fill before the values are known.
    pub(super) fn copy_ahead(&mut self, streams: &mut Streams<'r, D>, host: &mut D::Host) -> Result<u64> {
        if self.is_part() || !streams.pool.has_free() {
            return Ok(0);
        }
        self.copied = Some(self.slot.copy_in(self.worker, self.filled_at, streams, host)?);
        Ok(self.slot.upload_bytes())
    }

    /// Enqueues the copies in (unless they were copied ahead) and, behind the last fill of a chunk, the kernel and the
    /// copies out. On an error the slot is lost, because copies that were enqueued before may still use it.
    pub(super) fn submit(self, streams: &mut Streams<'r, D>, host: &mut D::Host) -> Result<InFlight<'r, D>, Lost> {
        let Filled { mut slot, worker, filled_at, copied } = self;
        let copied = copied.map_or_else(|| slot.copy_in(worker, filled_at, streams, host), Ok);
        let submitted = copied.and_then(|(block, timed)| {
            if slot.is_last() {
                slot.compute(streams, block, timed)?;
            } else {
                let before = streams.begun.insert(worker, (block, timed));
                debug_assert!(before.is_none(), "a worker fills one chunk at a time");
            }
            Ok(timed)
        });
        match submitted {
            Ok(timed) => Ok(InFlight { slot, worker, filled_at, timed }),
            Err(error) => Err(Box::new((slot.route.chunk, error))),
        }
    }
}

/// A range of bytes that is contiguous in the slot and in the block, so that it is one copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    in_slot: usize,
    in_block: usize,
    bytes: usize,
}

/// Rows of an input that are copied in.
struct Rows {
    input: usize,
    /// The first of them, counted from that of the chunk.
    first: usize,
    /// The bytes before it, and all bytes.
    front: usize,
    bytes: usize,
}

/// Joins pieces that follow each other in the slot and in the block.
fn joined(pieces: impl Iterator<Item = Piece>) -> impl Iterator<Item = Piece> {
    let mut pieces = pieces.peekable();
    std::iter::from_fn(move || {
        let mut piece = pieces.next()?;
        while let Some(next) = pieces.next_if(|next| {
            (next.in_slot, next.in_block) == (piece.in_slot + piece.bytes, piece.in_block + piece.bytes)
        }) {
            piece.bytes += next.bytes;
        }
        Some(piece)
    })
}

impl<'r, D: Device> Slot<'r, D> {
    /// Returns the rows of the chunk whose staged inputs are in the slot.
    fn part(&self) -> Chunk {
        let chunk = &self.route.chunk;
        let row = |row: usize| chunk.rows().start + row as u64;
        Chunk::new(chunk.index(), row(self.fill.start)..row(self.fill.end))
    }

    /// Returns whether no other fill of the chunk follows.
    fn is_last(&self) -> bool {
        self.fill.end == self.route.chunk.len()
    }

    /// Enqueues the copies in, to the block of the chunk: the one that its first fills have, or a free one. Returns the
    /// block, and whether the chunk is timed.
    fn copy_in(
        &self,
        worker: usize,
        at: Duration,
        streams: &mut Streams<'r, D>,
        host: &mut D::Host,
    ) -> Result<(Block<D>, bool)> {
        streams.at(at);
        let (block, timed) = if self.fill.start > 0 {
            streams.begun.remove(&worker).ok_or_else(Error::abandoned)?
        } else {
            let timed = streams.next();
            (streams.pool.take(&mut streams.copy_in, host)?, timed)
        };
        let Streams { copy_in, compute, pool, panels, .. } = streams;
        if let Some(panels) = panels {
            panels.open(&self.route.chunk, copy_in, compute)?;
        }
        // Inputs that are multiplied as they are belong into a panel.
        let in_panel =
            |input: usize| panels.as_ref().and_then(|panels| panels.place(&self.route.chunk, Side::Input(input)));
        let ChunkEvents { copied_in, timed: pairs, .. } = &self.events;
        let (memory, start) = pool.memory(&block);

        begin::<D>(copy_in, timed, &pairs.copy_in)?;
        for Piece { in_slot, in_block, bytes } in joined(self.staged_inputs()) {
            // SAFETY: `staged_input` checks that the bytes are in this slot's memory. No safe code can access that
            // memory before the copy is done, because until then the slot is a `Filled` or an `InFlight`, or was
            // dropped. The streams end their copies when they are dropped with the submitter, before the slab is
            // dropped. The block has the same layout, so the offset fits. It belongs to this chunk alone until it is
            // retired.
            unsafe {
                copy_in.copy_in(self.memory.0.as_ptr().add(in_slot).cast_const(), memory, start + in_block, bytes)?
            };
        }
        for Rows { input, first, front, bytes } in self.uploads() {
            let In::Upload { from, to } = &self.route.inputs[input] else { continue };
            let from = match from {
                From::Pinned(rows) => {
                    assert_eq!(rows.len(), bytes, "rows of an input in place");
                    rows.as_ptr()
                }
                From::Staged => match self.staged_input(input) {
                    // SAFETY: `staged_input` checks that the offset is in the slot's memory.
                    Some((offset, _)) => unsafe { self.memory.0.as_ptr().add(offset).cast_const() },
                    None => continue,
                },
            };
            let (to, offset) = match (to, self.columns.is_multiplied(input)) {
                (Some((to, at)), _) => (*to, at + first * self.columns.inputs[input]),
                // The block has no room for it.
                (None, true) => in_panel(input).ok_or_else(no_place)?,
                (None, false) => (memory, start + self.layout.in_block[input] - front),
            };
            // SAFETY: `from` is readable for these bytes: it is this slot's memory, as above, or pinned memory of
            // exactly these rows, which the source lends as a shared borrow for the whole run, so nobody writes to
            // it. The block fits as above, and has room for the halo in front of the column. Resident memory has space
            // for these rows, because `Sharded::on` found the chunk in it; a run fills no columns with halos, so there
            // are no others; and nobody reads them before this run has copied them. A panel has room for the rows of
            // the chunk, which are in it, and nothing else uses them until its product is enqueued.
            unsafe { copy_in.copy_in(from, to, offset, bytes)? };
        }
        end::<D>(copy_in, timed, &pairs.copy_in, copied_in)?;
        Ok((block, timed))
    }

    /// Enqueues the kernel and the copies out, if any, each on its stream behind the previous stage, and retires the
    /// block.
    fn compute(&mut self, streams: &mut Streams<'r, D>, block: Block<D>, timed: bool) -> Result<()> {
        let Streams { compute, copy_out, pool, loaded, panels, work, .. } = streams;
        let (memory, start) = pool.memory(&block);
        let chunk = &self.route.chunk;

        compute.wait(&self.events.copied_in)?;
        begin::<D>(compute, timed, &self.events.timed.kernel)?;
        let ins = self.route.inputs.iter().map(|input| match input {
            In::Resident(at) => Some(*at),
            In::Upload { to, .. } => *to,
        });
        let outs = self.route.outputs.iter().map(|output| match output {
            Out::Resident(at) => Some(*at),
            Out::Download(_) => None,
        });
        // Partials and scratch are in the block.
        let locations = ins.chain(outs).chain(std::iter::repeat(None)).zip(&self.layout.in_block);
        let mut columns: Vec<_> = locations.map(|(at, offset)| at.unwrap_or((memory, start + offset))).collect();
        if let Some(panels) = panels {
            for input in (0..self.columns.inputs.len()).filter(|input| self.columns.is_multiplied(*input)) {
                let to = panels.place(chunk, Side::Input(input)).ok_or_else(no_place)?;
                let bytes = self.columns.inputs[input] * chunk.len();
                match self.route.inputs[input] {
                    In::Upload { to: None, .. } => columns[input] = to,
                    // SAFETY: resident rows of the chunk are complete, and a panel has room for them.
                    _ => unsafe { compute.copy_within(columns[input], to, bytes)? },
                }
            }
            let places = (0..self.columns.operands.len()).map(|k| panels.place(chunk, Side::Operand(k)));
            columns.extend(places.collect::<Option<Vec<_>>>().ok_or_else(no_place)?);
        }
        let own = self.columns.chunk_partials();
        if !own.is_empty() {
            let (memory, offset) = columns[self.columns.inputs.len() + self.columns.outputs.len()];
            // SAFETY: the words of the chunk are in the partials, which fit the block, as below.
            unsafe { compute.zero(memory, offset, own.end)? };
        }
        if self.columns.computes() {
            // SAFETY: the columns fit the block, which belongs to this chunk, are aligned in it and do not overlap.
            // The layout was made for at least as many rows; if all inputs and outputs are resident, only partials and
            // scratch are in the block, which has space for those of this chunk (`Layout::resident_chunk_rows`).
            // Resident rows are complete and begin at a multiple of eight bytes. No output shares them with another
            // column (`Engine::run` checks this) or with another chunk. Operands have room in their panel, of which
            // these rows belong to this chunk. The resident arrays were made for this kernel. Built-in kernels access
            // nothing else; for a custom kernel, its author vouched for the same.
            unsafe { loaded.launch(work.operator.kernel(), compute, &columns, chunk)? };
        }
        if let Some(panels) = panels {
            panels.add(chunk, compute)?;
        }
        end::<D>(compute, timed, &self.events.timed.kernel, &self.events.computed)?;

        // Without copies out, the end is recorded on the compute stream. A copy engine would record it only once it has
        // no copies in left to do, so slots would come back late and all at once.
        let copies = self.staged_outputs().next().is_some()
            || self.route.outputs.iter().any(|output| matches!(output, Out::Download(To::Pinned(_))));
        let copy_out = if copies {
            copy_out.wait(&self.events.computed)?;
            copy_out
        } else {
            compute
        };
        begin::<D>(copy_out, timed, &self.events.timed.copy_out)?;
        for Piece { in_slot, in_block, bytes } in joined(self.staged_outputs()) {
            // SAFETY: the bytes are in the block, and in this slot's memory as above. Inputs may occupy the same
            // memory, but their copies are done by then: this stream waits for the kernel, which waits for them.
            unsafe { copy_out.copy_out(memory, start + in_block, self.memory.0.as_ptr().add(in_slot), bytes)? };
        }
        let (inputs, rows) = (self.columns.inputs.len(), self.route.chunk.len());
        for (k, (output, size)) in self.route.outputs.iter_mut().zip(&self.columns.outputs).enumerate() {
            if let Out::Download(To::Pinned(claim)) = output {
                assert_eq!(claim.len(), rows * size, "rows of an output in place");
                // SAFETY: the bytes are in the block. The bytes of the sink are claimed until the chunk is done or, if
                // it never is, at least until the streams are gone, and outlive the workers and the submitter.
                unsafe {
                    copy_out.copy_out(
                        memory,
                        start + self.layout.in_block[inputs + k],
                        claim.as_mut_ptr(),
                        claim.len(),
                    )?
                };
            }
        }
        end::<D>(copy_out, timed, &self.events.timed.copy_out, &self.events.copied_out)?;
        pool.retire(block, copy_out)
    }

    /// Returns the offset and size of the first `bytes` of a column in the slot; `None` if it is not staged.
    fn staged(&self, column: usize, bytes: usize) -> Option<(usize, usize)> {
        let offset = self.layout.in_slot[column]?;
        assert!(offset + bytes <= self.layout.slot_bytes, "rows of a slot");
        Some((offset, bytes))
    }

    /// Returns the offset in the slot and the size of the rows of an input, with those of its halo; `None` if it is not
    /// staged.
    fn staged_input(&self, input: usize) -> Option<(usize, usize)> {
        let (front, bytes) = self.columns.window_bytes(input, &self.part().rows());
        let offset = self.layout.in_slot[input]?;
        assert!(front <= offset && offset - front + bytes <= self.layout.slot_bytes, "rows of a slot");
        Some((offset - front, bytes))
    }

    /// Returns the part of a staged output, or of the partials, that is copied between slot and block.
    fn piece(&self, column: usize, bytes: usize) -> Option<Piece> {
        let (in_slot, bytes) = self.staged(column, bytes)?;
        Some(Piece { in_slot, in_block: self.layout.in_block[column], bytes })
    }

    /// Returns the rows of every input that are copied in: those of the fill, and behind the last fill all rows of the
    /// inputs in pinned memory.
    fn copied_inputs(&self) -> impl Iterator<Item = Rows> {
        self.route.inputs.iter().enumerate().filter_map(move |(input, way)| {
            let In::Upload { from, .. } = way else { return None };
            let (first, rows) = match from {
                From::Staged => (self.fill.start, self.part().rows()),
                From::Pinned(_) if self.is_last() => (0, self.route.chunk.rows()),
                From::Pinned(_) => return None,
            };
            let (front, bytes) = self.columns.window_bytes(input, &rows);
            Some(Rows { input, first, front, bytes })
        })
    }

    /// Returns the copied inputs that go from the slot to the block. Adjacent ones can be joined to one copy.
    fn staged_inputs(&self) -> impl Iterator<Item = Piece> {
        let inputs = self.copied_inputs().filter(|rows| self.goes_to_block(rows.input));
        inputs.filter_map(|Rows { input, first, front, .. }| {
            let (in_slot, bytes) = self.staged_input(input)?;
            let in_block = self.layout.in_block[input] + first * self.columns.inputs[input] - front;
            Some(Piece { in_slot, in_block, bytes })
        })
    }

    /// Returns all other copied inputs: those from pinned memory, and those to resident datasets or panels.
    fn uploads(&self) -> impl Iterator<Item = Rows> {
        self.copied_inputs().filter(|rows| !self.goes_to_block(rows.input))
    }

    /// Whether an input goes from the slot to the block.
    fn goes_to_block(&self, input: usize) -> bool {
        let is_staged = matches!(self.route.inputs[input], In::Upload { from: From::Staged, to: None });
        is_staged && !self.columns.is_multiplied(input)
    }

    /// Returns the partials and outputs that go from the block to the slot. The first output follows the room of the
    /// partials: if only a few bytes are between, they are copied, too, because another copy takes longer.
    fn staged_outputs(&self) -> impl Iterator<Item = Piece> {
        let (inputs, rows) = (self.columns.inputs.len(), self.route.chunk.len());
        let is_staged = |output: &Out<'_, D>| matches!(output, Out::Download(To::Staged));
        let outputs = self.route.outputs.iter().zip(&self.columns.outputs).enumerate();
        let outputs = outputs.filter(move |(_, (output, _))| is_staged(output));
        let mut outputs = outputs.map(move |(k, (_, size))| (inputs + k, rows * size)).peekable();
        let next = outputs.peek().and_then(|(column, _)| self.layout.in_slot[*column]);
        let partials = self.partials().map(|(column, bytes)| match next {
            Some(next) if next.saturating_sub(bytes) <= SMALL_GAP => (column, next),
            _ => (column, bytes),
        });
        partials.into_iter().chain(outputs).filter_map(|(column, bytes)| self.piece(column, bytes))
    }

    /// Returns the column of the partials and their bytes, if there are any.
    fn partials(&self) -> Option<(usize, usize)> {
        let Columns { inputs, outputs, .. } = self.columns;
        let bytes = self.columns.partial_bytes(self.route.chunk.len());
        (bytes > 0).then_some((inputs.len() + outputs.len(), bytes))
    }

    fn upload_bytes(&self) -> u64 {
        self.copied_inputs().map(|rows| rows.bytes as u64).sum()
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
    /// The chunk.
    pub(super) fn chunk(&self) -> &Chunk {
        &self.slot.route.chunk
    }

    /// Returns the slot if its chunk is done, or if its rows are copied and other fills of the chunk follow; otherwise
    /// the same slot. Virtual time advances until then.
    pub(super) fn finish(
        self,
        streams: &Streams<'r, D>,
        host: &mut D::Host,
    ) -> Result<Result<Back<'r, D>, Self>, Lost> {
        match self.taken(streams, host) {
            Ok(None) => Ok(Err(self)),
            Ok(Some(taken)) => {
                let (is_last, back_at) = (self.slot.is_last(), host.now());
                let InFlight { mut slot, filled_at, .. } = self;
                if !is_last {
                    let taken = taken.map(|stages| stages.copy_in);
                    return Ok(Ok(Back::Fill(Copied { slot, filled_at, back_at, taken })));
                }
                slot.route.release();
                Ok(Ok(Back::Chunk(Done { slot, filled_at, back_at, taken })))
            }
            Err(error) => Err(Box::new((self.slot.route.chunk, error))),
        }
    }

    /// Returns whether the last stage is done, and the times of all if the chunk is timed. Before the last fill, there
    /// is only the copy in.
    fn taken(&self, streams: &Streams<'r, D>, host: &mut D::Host) -> Result<Option<Option<Stages<StageTiming>>>> {
        if !streams.is_done(self.end(), host)? {
            return Ok(None);
        }
        if !self.timed {
            return Ok(Some(None));
        }
        let ChunkEvents { timed: pairs, .. } = &self.slot.events;
        let copy_in = streams.taken(host, &pairs.copy_in)?;
        if !self.slot.is_last() {
            return Ok(Some(Some(Stages { copy_in, ..Stages::default() })));
        }
        let [kernel, copy_out] = [&pairs.kernel, &pairs.copy_out].map(|pair| streams.taken(host, pair));
        Ok(Some(Some(Stages { copy_in, kernel: kernel?, copy_out: copy_out? })))
    }

    /// The end of the last stage.
    fn end(&self) -> &D::Event {
        let ChunkEvents { copied_in, copied_out, .. } = &self.slot.events;
        if self.slot.is_last() { copied_out } else { copied_in }
    }

    /// Returns the virtual time at which the chunk will be done.
    pub(super) fn done_at(&self, host: &D::Host) -> Duration {
        host.done_at(self.end())
    }
}

impl<'r, D: Device> Copied<'r, D> {
    /// The rows of a chunk that are copied.
    pub(super) fn part(&self) -> Chunk {
        self.slot.part()
    }

    /// Frees the slot for the next rows.
    pub(super) fn recycle(self) -> Idle<'r, D> {
        Idle(self.slot)
    }
}

impl<'r, D: Device> Done<'r, D> {
    /// The chunk.
    pub(super) fn chunk(&self) -> &Chunk {
        &self.slot.route.chunk
    }

    /// The rows of the chunk that were copied in last.
    pub(super) fn part(&self) -> Chunk {
        self.slot.part()
    }

    /// Returns the rows of an output; `None` if the output is not staged.
    pub(super) fn output(&self, output: usize) -> Option<&[u8]> {
        let Slot { route, columns, .. } = &self.slot;
        let Out::Download(To::Staged) = route.outputs[output] else { return None };
        Some(self.bytes(columns.inputs.len() + output, route.chunk.len() * columns.outputs[output]))
    }

    /// Returns the partials; empty if there are none.
    pub(super) fn partials(&self) -> &[u8] {
        self.slot.partials().map_or(&[], |(column, bytes)| self.bytes(column, bytes))
    }

    fn bytes(&self, column: usize, bytes: usize) -> &[u8] {
        let Some((offset, bytes)) = self.slot.staged(column, bytes) else { return &[] };
        // SAFETY: `staged` checks that the range is in the slot's memory, which this slot alone owns. Its copies are
        // done.
        unsafe { std::slice::from_raw_parts(self.slot.memory.0.as_ptr().add(offset), bytes) }
    }

    /// Returns the bytes that were copied from the device.
    pub(super) fn download_bytes(&self) -> u64 {
        let Slot { route, columns, .. } = &self.slot;
        let outputs = route.outputs.iter().zip(&columns.outputs);
        let outputs = outputs.filter(|(output, _)| matches!(output, Out::Download(_)));
        let bytes = outputs.map(|(_, size)| size * route.chunk.len()).sum::<usize>();
        (bytes + self.slot.partials().map_or(0, |(_, bytes)| bytes)) as u64
    }

    /// Returns the inputs whose rows of this chunk were copied to a resident dataset.
    pub(super) fn filled_inputs(&self) -> impl Iterator<Item = usize> {
        let inputs = self.slot.route.inputs.iter().enumerate();
        inputs.filter(|(_, input)| matches!(input, In::Upload { to: Some(_), .. })).map(|(input, _)| input)
    }

    /// Frees the slot for the next chunk.
    pub(super) fn recycle(self) -> Idle<'r, D> {
        Idle(self.slot)
    }
}

/// Set by `tests/slot_states.rs` alone: this module does not compile.
#[cfg(slot_states)]
#[path = "tests/slot_states.rs"]
mod slot_states;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_follow_each_other_on_both_sides_are_one_copy() {
        let piece = |in_slot, in_block, bytes| Piece { in_slot, in_block, bytes };
        let pieces =
            [piece(0, 256, 256), piece(256, 512, 100), piece(512, 768, 8), piece(520, 1024, 8), piece(528, 1032, 8)];
        let all: Vec<_> = joined(pieces.into_iter()).collect();
        assert_eq!(all, [piece(0, 256, 356), piece(512, 768, 8), piece(520, 1024, 16)]);
        // Next to each other in the block only: in the slot, another column is between them.
        let apart = [piece(0, 0, 256), piece(512, 256, 8)];
        assert_eq!(joined(apart.into_iter()).collect::<Vec<_>>(), apart);
        assert_eq!(joined(std::iter::empty()).next(), None);
    }
}
