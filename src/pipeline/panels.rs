//! Products over the rows on a device: panels are put together from chunks, multiplied, and their sums come back.
//!
//! ```text
//!  chunks ──▶ panel ──▶ panel ──▶ panel       filled in any order, multiplied in order
//!                └─────────┴─────────┴──▶ sum of a tile ──▶ pieces of pinned memory ──▶ SumsWorker ──▶ operator
//! ```
//! A device claims whole **tiles** of [`DEVICE_ROWS`](crate::device::product::DEVICE_ROWS) rows, whose products are
//! added in the order of their panels, on the device. So results depend neither on chunks nor on the number of devices.
//! A chunk is *accepted* if its panel is one of the next ones. Else its slot is not free until it is, which holds back
//! workers that are too far ahead.
//!
//! Products have a stream of their own, and so have copies of sums, so that kernels and copies of chunks go on
//! meanwhile. The rows of a panel are complete when the compute stream has reached them; a panel is filled again when
//! its product is done; and a sum is used again when it is copied.

use std::collections::VecDeque;
use std::ops::Range;
use std::ptr::NonNull;
use std::time::Duration;

use super::multiply::OverRows;
use super::queue::Queue;
use super::{Work, Worker, WorkerOutcome};
use crate::data::Chunk;
use crate::device::kernel::{ColumnProduct, Side};
use crate::device::product::{AnyProduct, DEVICE_LEVEL, DEVICE_ROWS};
use crate::device::{Device, Host, Precision, Schedule, Stream, cpu};
use crate::error::{Error, Result};
use crate::memory::{PanelLayout, PanelParts};
use crate::ops::Operator;
use crate::sync::{Receiver, Sender, TryRecvError, bounded};
use crate::trace::{Span, Track};

/// A panel that is being filled, or waits for those before it.
struct Panel {
    rows: Range<u64>,
    tile: Range<u64>,
    /// The rows that have not come.
    missing: u64,
    buffer: usize,
}

impl Panel {
    /// Whether it has all rows of a chunk.
    fn has(&self, chunk: &Chunk) -> bool {
        self.rows.start <= chunk.rows().start && chunk.rows().end <= self.rows.end
    }
}

/// A sum on the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sum {
    Free,
    /// Of the panels so far of a tile that begins with this row.
    Adding(u64),
    /// Of this tile, for the worker with this number. The bytes before the other number are copied.
    Copying(u64, usize, usize),
}

/// A piece of pinned memory. It is a pointer, because the device writes to the memory while a piece is moved.
struct Piece<D: Device> {
    memory: NonNull<u8>,
    bytes: usize,
    copied: D::Event,
}

// SAFETY: it is the only owner of its memory, as a `&mut [u8]` would be, which is Send.
unsafe impl<D: Device> Send for Piece<D> {}

/// A piece with a part of the sum of a tile.
struct Part<D: Device> {
    piece: Piece<D>,
    tile: u64,
    worker: usize,
    begin: usize,
    len: usize,
}

/// Work of a stream between two events that keep time.
pub(super) struct Timed<D: Device> {
    pub(super) track: Track,
    pub(super) name: &'static str,
    /// The number and the rows of a panel or of a tile.
    pub(super) chunk: Chunk,
    pub(super) events: (D::Event, D::Event),
}

/// Threads that absorb sums: to absorb one may take longer than to copy the next one.
const ABSORBERS: usize = 2;
/// The threads on which an absorber converts and adds large sums. One could not keep up with the link: memory that is
/// new takes long to write to. The last sums hold up the end of a run.
const THREADS: usize = 4;

/// The panels of a device.
pub(super) struct Panels<'r, D: Device> {
    memory: PanelParts<'r, D>,
    products: &'r [ColumnProduct],
    /// What multiplies, for each product.
    over_rows: &'r [OverRows<D>],
    queue: &'r Queue<'r>,
    device: usize,
    stream: D::Stream,
    /// Sums have a stream of their own: in that of chunks, their copies would wait for the copies in of all chunks
    /// that were enqueued before.
    copy_out: D::Stream,
    /// The panels that are open, which have buffers, in the order in which they are multiplied.
    next: VecDeque<Panel>,
    /// The tile and the end of the last panel that was opened.
    last: Option<(Range<u64>, u64)>,
    /// The number of tiles of the device of which panels were opened.
    tiles: usize,
    /// The buffers of no panel, in the order in which their products were enqueued: the first one is the likeliest to
    /// be done.
    free: VecDeque<usize>,
    /// For each buffer: its rows are complete; its product is done.
    filled: Vec<D::Event>,
    multiplied: Vec<D::Event>,
    sums: Vec<Sum>,
    /// For each sum: all of its products are done; it is copied.
    added: Vec<D::Event>,
    copied: Vec<D::Event>,
    pieces: Vec<Piece<D>>,
    /// Parts whose copies are enqueued, oldest first.
    in_flight: VecDeque<Part<D>>,
    /// To the workers that absorb sums, which take turns.
    to_workers: Vec<Sender<Part<D>>>,
    next_worker: usize,
    from_workers: Receiver<Piece<D>>,
    is_prepared: bool,
    /// The rows of the first panel.
    rows_at_first: usize,
    /// Whether copies in write to panels, because inputs are multiplied as they are.
    are_copied: bool,
    precision: Precision,
    on: &'r D,
    /// Products and copies of sums so far, if the run has a timeline.
    timed: Option<Vec<Timed<D>>>,
}

impl<'r, D: Device> Panels<'r, D> {
    /// Creates the panels of the device with this number in the run, and the workers that absorb their sums.
    pub(super) fn new(
        (memory, over_rows): (PanelParts<'r, D>, &'r [OverRows<D>]),
        pieces: impl Iterator<Item = &'r mut [u8]>,
        (device, number): (&'r D, usize),
        work: &'r Work<'r>,
    ) -> Result<(Self, Vec<SumsWorker<'r, D>>)> {
        let columns = &work.operator.kernel().columns;
        let events = |count: usize| (0..count).map(|_| device.event(false)).collect::<Result<Vec<_>>>();
        let pieces = pieces.map(|memory| {
            Ok(Piece { bytes: memory.len(), memory: NonNull::from(memory).cast(), copied: device.event(false)? })
        });
        let pieces = pieces.collect::<Result<Vec<_>>>()?;
        let (back, from_workers) = bounded(pieces.len());
        let (to_workers, parts): (Vec<_>, Vec<_>) = (0..ABSORBERS).map(|_| bounded(pieces.len())).unzip();
        let worker = |(absorber, parts)| SumsWorker {
            operator: work.operator,
            layout: memory.layout,
            products: &columns.products,
            sums: Box::default(),
            parts,
            back: back.clone(),
            host: device.host(work.epoch),
            takes_turns: device.schedule() != Schedule::Threads,
            number,
            absorber,
            spans: work.timeline.then(Vec::new),
        };
        let workers = parts.into_iter().enumerate().map(worker).collect();
        let (buffers, sums) = (memory.panels.len(), memory.sums.len());
        let rows_at_first = columns.rows_at_first(memory.layout.rows);
        let panels = Panels {
            memory,
            products: &columns.products,
            over_rows,
            queue: &work.queue,
            device: number,
            stream: device.open_stream()?,
            copy_out: device.open_stream()?,
            next: VecDeque::new(),
            last: None,
            tiles: 0,
            free: (0..buffers).collect(),
            filled: events(buffers)?,
            multiplied: events(buffers)?,
            sums: vec![Sum::Free; sums],
            added: events(sums)?,
            copied: events(sums)?,
            pieces,
            in_flight: VecDeque::new(),
            to_workers,
            next_worker: 0,
            from_workers,
            is_prepared: false,
            rows_at_first,
            are_copied: (0..columns.inputs.len()).any(|input| columns.is_multiplied(input)),
            precision: columns.precision.on(device.info()),
            on: device,
            timed: work.timeline.then(Vec::new),
        };
        Ok((panels, workers))
    }

    /// Makes the stream ready to multiply. Must run on the submitter's thread, which has entered the device.
    pub(super) fn prepare(&mut self) -> Result<()> {
        if !self.is_prepared {
            // SAFETY: the workspace is used by this stream alone, and outlives it.
            unsafe { self.stream.prepare_products(self.memory.workspace, self.precision)? };
            self.is_prepared = true;
            self.multiply_first()?;
        }
        Ok(())
    }

    /// Multiplies the rows of a panel, if the device has not multiplied such rows before: a library loads its code
    /// then, which would hold up chunks. The rows are whatever the panel holds. The first product of a tile overwrites
    /// their sum.
    fn multiply_first(&mut self) -> Result<()> {
        let PanelParts { layout, panels, sums, workspace } = &self.memory;
        let (Some(panel), Some(sum)) = (panels.first(), sums.first()) else { return Ok(()) };
        for ((product, over_rows), place) in self.products.iter().zip(self.over_rows).zip(&layout.sums) {
            let [Some((left, _)), Some((right, _))] = product.sides.map(|side| layout.side(side)) else { continue };
            // Sums by key need no library.
            let is_first =
                || self.on.is_first(AnyProduct::OverRows(product.product), self.rows_at_first, self.precision);
            if product.by_key || self.rows_at_first == 0 || !is_first() {
                continue;
            }
            let (on, operands) = ((&mut self.stream, *workspace), [(panel, left), (panel, right)]);
            // SAFETY: the layout has room for the operands and the sum, as in `multiply`. Kernels may write rows to the
            // panel meanwhile; nobody reads what becomes of them here.
            unsafe {
                over_rows.multiply(on, product, (0, self.rows_at_first), operands, (sum, place.start), true)?;
            }
        }
        Ok(())
    }

    /// Makes the drop of its streams return at once. For [`Streams`](super::streams::Streams), which abandons its own.
    pub(super) fn abandon(&mut self) {
        for stream in [&mut self.stream, &mut self.copy_out] {
            // SAFETY: by the contract of `Streams`, which abandons its streams with these.
            unsafe { stream.abandon() };
        }
    }

    /// Returns whether a chunk can be put into its panel now.
    pub(super) fn accepts(&self, chunk: &Chunk) -> bool {
        let has = |panel: &Panel| panel.has(chunk);
        let mut more = self.further();
        let free = self.free.len();
        self.next.iter().any(has) || more.by_ref().take(free).any(|panel| has(&panel))
    }

    /// The panels behind the last one that was opened, without buffers.
    fn further(&self) -> impl Iterator<Item = Panel> {
        let rows = self.memory.layout.rows as u64;
        let rest = self.last.clone().into_iter();
        let others =
            (self.tiles..).map_while(|k| self.queue.tile(self.device, k)).map(|tile| (tile.clone(), tile.start));
        rest.chain(others).flat_map(move |(tile, first)| {
            let end = tile.end;
            let starts = (first..end).step_by(rows as usize);
            starts.map(move |start| {
                let own = start..end.min(start + rows);
                Panel { missing: own.end - own.start, rows: own, tile: tile.clone(), buffer: 0 }
            })
        })
    }

    /// Gives the panel of an accepted chunk a buffer, and those before it. Whatever writes to the panel does so behind
    /// the last product of the buffer. Copies to blocks wait for no product.
    pub(super) fn open(&mut self, chunk: &Chunk, copy_in: &mut D::Stream, compute: &mut D::Stream) -> Result<()> {
        while !self.next.iter().any(|panel| panel.has(chunk)) {
            let panel = self.further().next();
            let (Some(panel), Some(buffer)) = (panel, self.free.pop_front()) else { return Err(Error::abandoned()) };
            if panel.rows.start == panel.tile.start {
                self.tiles += 1;
            }
            self.last = Some((panel.tile.clone(), panel.rows.end));
            if self.are_copied {
                copy_in.wait(&self.multiplied[buffer])?;
            }
            compute.wait(&self.multiplied[buffer])?;
            self.next.push_back(Panel { buffer, ..panel });
        }
        Ok(())
    }

    /// Returns where the rows of an operand of a chunk belong, whose panel is open; `None` if it is no operand.
    pub(super) fn place(&self, chunk: &Chunk, side: Side) -> Option<(&'r D::Memory, usize)> {
        let panel = self.next.iter().find(|panel| panel.has(chunk))?;
        let (offset, bytes) = self.memory.layout.side(side)?;
        let at = offset + (chunk.rows().start - panel.rows.start) as usize * bytes;
        Some((&self.memory.panels[panel.buffer], at))
    }

    /// Records that the rows of a chunk are in its panel when the compute stream has done its work so far.
    pub(super) fn add(&mut self, chunk: &Chunk, compute: &mut D::Stream) -> Result<()> {
        if let Some(panel) = self.next.iter_mut().find(|panel| panel.has(chunk)) {
            panel.missing = panel.missing.saturating_sub(chunk.len() as u64);
            if panel.missing == 0 {
                compute.record(&self.filled[panel.buffer])?;
            }
        }
        Ok(())
    }

    /// Multiplies panels that are complete, and copies sums. Returns whether there was anything to do.
    pub(super) fn advance(&mut self, now: Duration) -> Result<bool> {
        let mut advanced = false;
        while self.multiply(now)? {
            advanced = true;
        }
        while let Ok(piece) = self.from_workers.try_recv() {
            self.pieces.push(piece);
            advanced = true;
        }
        while self.copy(now)? {
            advanced = true;
        }
        Ok(advanced)
    }

    /// Multiplies the next panel, if it is complete and there is a sum to add to.
    fn multiply(&mut self, now: Duration) -> Result<bool> {
        let Some(panel) = self.next.front().filter(|panel| panel.missing == 0) else { return Ok(false) };
        let tile = panel.tile.start;
        let is_first = panel.rows.start == tile;
        let wanted = if is_first { Sum::Free } else { Sum::Adding(tile) };
        let Some(sum) = self.sums.iter().position(|sum| *sum == wanted) else { return Ok(false) };
        let (buffer, is_last) = (panel.buffer, panel.rows.end == panel.tile.end);
        let first_row = panel.rows.start;
        let rows = (panel.rows.end - panel.rows.start) as usize;
        self.stream.at(now);
        self.stream.wait(&self.filled[buffer])?;
        if is_first {
            self.stream.wait(&self.copied[sum])?;
        }
        let begin = begin::<D>(self.on, &mut self.stream, self.timed.is_some())?;
        let PanelParts { layout, panels, sums, workspace } = &self.memory;
        let products = self.products.iter().zip(self.over_rows).zip(&layout.sums);
        for ((product, over_rows), place) in products {
            let side = |side: Side| layout.side(side).map(|(offset, _)| (&panels[buffer], offset));
            let [Some(left), Some(right)] = product.sides.map(side) else {
                return Err(no_place());
            };
            let to = (&sums[sum], place.start);
            let on = (&mut self.stream, *workspace);
            // SAFETY: the layout has room for the rows of each operand in a panel, which has no more rows, for the sum
            // of each product, at multiples of 256 bytes, and for split rows behind the workspace of the stream. All of
            // them are in other memory.
            unsafe { over_rows.multiply(on, product, (first_row, rows), [left, right], to, is_first)? };
        }
        if let Some((begin, timed)) = begin.zip(self.timed.as_mut()) {
            let chunk = Chunk::new(first_row / layout.rows as u64, first_row..first_row + rows as u64);
            timed.push(end(self.on, &mut self.stream, (Track::Products, "product", chunk), begin)?);
        }
        self.stream.record(&self.multiplied[buffer])?;
        self.next.pop_front();
        self.free.push_back(buffer);
        self.sums[sum] = Sum::Adding(tile);
        if is_last {
            self.stream.record(&self.added[sum])?;
            self.sums[sum] = Sum::Copying(tile, self.next_worker, 0);
            self.next_worker = (self.next_worker + 1) % ABSORBERS;
        }
        Ok(true)
    }

    /// Copies a part of a sum, if there is one and a piece for it.
    fn copy(&mut self, now: Duration) -> Result<bool> {
        let copying = self.sums.iter().enumerate().filter_map(|(sum, state)| match state {
            Sum::Copying(tile, worker, begin) => Some((*tile, *worker, sum, *begin)),
            _ => None,
        });
        // A part of another sum must not come between those of one.
        let oldest = copying.min_by_key(|(tile, _, _, begin)| (*begin == 0, *tile));
        let Some((tile, worker, sum, begin)) = oldest else { return Ok(false) };
        let Some(piece) = self.pieces.pop() else { return Ok(false) };
        let all = self.memory.layout.sum_bytes;
        let len = piece.bytes.min(all - begin);
        self.copy_out.at(now);
        if begin == 0 {
            self.copy_out.wait(&self.added[sum])?;
        }
        let started = self::begin::<D>(self.on, &mut self.copy_out, self.timed.is_some())?;
        // SAFETY: the range is inside the sum, and inside the piece, which nobody accesses until its event is done:
        // it is in `in_flight` until then, or is dropped after the streams.
        unsafe { self.copy_out.copy_out(&self.memory.sums[sum], begin, piece.memory.as_ptr(), len)? };
        if let Some((started, timed)) = started.zip(self.timed.as_mut()) {
            let chunk = Chunk::new(tile / DEVICE_ROWS as u64, tile..tile);
            timed.push(end(self.on, &mut self.copy_out, (Track::Sums, "copy sum", chunk), started)?);
        }
        self.copy_out.record(&piece.copied)?;
        self.sums[sum] = Sum::Copying(tile, worker, begin + len);
        if begin + len == all {
            self.copy_out.record(&self.copied[sum])?;
            self.sums[sum] = Sum::Free;
        }
        self.in_flight.push_back(Part { piece, tile, worker, begin, len });
        Ok(true)
    }

    /// Returns the event after which the oldest part is copied, if one is in flight.
    pub(super) fn oldest(&self) -> Option<&D::Event> {
        self.in_flight.front().map(|part| &part.piece.copied)
    }

    /// Hands the oldest part over, which is copied.
    pub(super) fn hand_over(&mut self) {
        if let Some(part) = self.in_flight.pop_front() {
            // The channel has capacity for all pieces. A worker that has ended failed, and the run fails with it.
            let _ = self.to_workers[part.worker].try_send(part);
        }
    }

    /// Returns whether nothing is left to multiply, to copy or to hand over. Panels that are not complete are not
    /// counted: their chunks come.
    pub(super) fn is_idle(&self) -> bool {
        let is_complete = self.next.front().is_some_and(|panel| panel.missing == 0);
        let copies = self.sums.iter().any(|sum| matches!(sum, Sum::Copying(..)));
        !is_complete && !copies && self.in_flight.is_empty()
    }

    /// Returns the first row whose products have not come back.
    pub(super) fn first_row(&self) -> Option<u64> {
        let of_sums = self.sums.iter().filter_map(|sum| match sum {
            Sum::Free => None,
            Sum::Adding(tile) | Sum::Copying(tile, ..) => Some(*tile),
        });
        let of_parts = self.in_flight.iter().map(|part| part.tile);
        of_sums.chain(of_parts).chain(self.next.front().map(|panel| panel.rows.start)).min()
    }

    /// Returns what was timed, if the run has a timeline.
    pub(super) fn take_timed(&mut self) -> Vec<Timed<D>> {
        self.timed.take().unwrap_or_default()
    }

    /// Returns whether a piece is back from the worker.
    pub(super) fn has_piece(&self) -> bool {
        !self.from_workers.is_empty()
    }
}

/// Begins to time work of a stream, if it is timed.
fn begin<D: Device>(device: &D, stream: &mut D::Stream, is_timed: bool) -> Result<Option<D::Event>> {
    let event = is_timed.then(|| device.event(true)).transpose()?;
    event.iter().try_for_each(|event| stream.record(event))?;
    Ok(event)
}

/// Ends the timing of work that began with this event.
fn end<D: Device>(
    device: &D,
    stream: &mut D::Stream,
    (track, name, chunk): (Track, &'static str, Chunk),
    begin: D::Event,
) -> Result<Timed<D>> {
    let end = device.event(true)?;
    stream.record(&end)?;
    Ok(Timed { track, name, chunk, events: (begin, end) })
}

/// Returns the error for an operand without a place. This cannot happen, because panels are laid out for the kernel.
pub(super) fn no_place() -> Error {
    Error::Internal("an operand of a product has no place in panels".into())
}

/// Puts the sums of tiles together from pieces, and gives them to the operator: a thread of its own, because large sums
/// take long to add.
pub(super) struct SumsWorker<'r, D: Device> {
    operator: &'r dyn Operator,
    layout: &'r PanelLayout,
    products: &'r [ColumnProduct],
    /// The sums of a tile, as far as they have come.
    sums: Box<[u64]>,
    parts: Receiver<Part<D>>,
    back: Sender<Piece<D>>,
    host: D::Host,
    takes_turns: bool,
    /// The number of the device in the run, and its own number on the device.
    number: usize,
    absorber: usize,
    /// What it did, if the run has a timeline.
    spans: Option<Vec<Span>>,
}

impl<D: Device> SumsWorker<'_, D> {
    /// Records what was done with a part of the sum of a tile since `begin`. Returns the time.
    fn did(&mut self, name: &'static str, tile: u64, begin: Duration) -> Duration {
        let end = self.host.now();
        if let Some(spans) = &mut self.spans {
            let chunk = Chunk::new(tile / DEVICE_ROWS as u64, tile..tile);
            spans.push(Span::new(Track::Absorber(self.absorber), name, &chunk, begin, end));
        }
        end
    }
}

impl<D: Device> Worker for SumsWorker<'_, D> {
    fn step(&mut self) -> Result<bool> {
        let part = match self.takes_turns {
            true => match self.parts.try_recv() {
                Err(TryRecvError::Empty) => return Ok(true),
                received => received.ok(),
            },
            false => self.parts.recv().ok(),
        };
        // Without a submitter there are no more.
        let Some(Part { piece, tile, begin, len, .. }) = part else { return Ok(false) };
        let started = self.host.now();
        if begin == 0 {
            self.sums = self.operator.product_sums();
        }
        // SAFETY: the piece has these bytes, which belong to it alone, and their copy is done.
        let part = unsafe { std::slice::from_raw_parts(piece.memory.as_ptr(), len) };
        let threads = THREADS.min(cpu::cores());
        let mut rest = &mut self.sums[..];
        for (ColumnProduct { product, .. }, range) in self.products.iter().zip(&self.layout.sums) {
            let (own, behind) = rest.split_at_mut(product.elements());
            rest = behind;
            let shared = range.start.max(begin)..range.end.min(begin + len);
            if !shared.is_empty() {
                let first = (shared.start - range.start) / product.float.size();
                product.widen_on(threads, &part[shared.start - begin..shared.end - begin], &mut own[first..]);
            }
        }
        let _ = self.back.try_send(piece);
        let collected = self.did("collect", tile, started);
        if begin + len == self.layout.sum_bytes {
            let node = (DEVICE_LEVEL, tile / DEVICE_ROWS as u64);
            self.operator.absorb_products(node, std::mem::take(&mut self.sums), threads);
            self.did("absorb", tile, collected);
        }
        Ok(true)
    }

    fn ready_at(&self) -> Duration {
        if self.parts.is_empty() { Duration::MAX } else { self.host.now() }
    }

    fn outcome(&mut self) -> WorkerOutcome {
        let spans = self.spans.take().unwrap_or_default();
        WorkerOutcome { device: self.number, spans, ..WorkerOutcome::default() }
    }
}
