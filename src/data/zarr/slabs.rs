//! Decoded chunks that all threads share. Rows go through all chunks of a slab, so that every thread needs all of
//! them, and each is decoded once.
//!
//! A thread that reads rows of a slab copies from the chunks that are decoded, and decodes those that nobody has begun.
//! While the others that it needs are being decoded, it decodes chunks that are needed next, up to the end of a
//! **window** of a few slabs. So all threads decode, whether a slab has many chunks or one.
//!
//! A slab whose elements have all been read is of no use. One such slab stays, because a chunk of a job that reads
//! neighbours may need its last elements once more; at the end of the array, none does. If a slab that does not fit
//! into the window is needed, another one goes, and is decoded again if somebody comes back to it.

use super::super::sink::rows_of;
use super::grid::Grid;
use crate::error::{ColumnError, Result};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// An array in chunks.
pub(super) trait Chunks: Send + Sync {
    /// Returns the name of the array, for messages.
    fn name(&self) -> String;

    /// Returns the elements of a chunk in C order, also those beyond the end of the array. Must not panic: other
    /// threads wait for the chunk.
    fn decode(&self, indices: &[u64]) -> Result<Vec<u8>>;
}

/// An array that is decoded while it is read.
pub(super) struct Slabs<C> {
    pub(super) chunks: C,
    pub(super) grid: Grid,
    /// The bytes of an element.
    size: usize,
    /// The most slabs in memory.
    window: usize,
    state: Mutex<State>,
    /// A chunk is decoded, or cannot be; or a slab is of no use any more.
    changed: Condvar,
}

/// The slabs in memory.
#[derive(Default)]
struct State {
    slabs: BTreeMap<u64, Slab>,
    /// The slab that is decoded ahead next. Those before were in memory.
    next: u64,
}

struct Slab {
    cells: Vec<Cell>,
    /// No cell before is [`Cell::Empty`].
    next: usize,
    /// The elements that nobody has read, in order.
    unread: Vec<Range<u64>>,
    /// The number of the last read.
    used: u64,
}

#[derive(Clone)]
enum Cell {
    Empty,
    /// A thread decodes it.
    Busy,
    /// A thread that did not need it could not decode it. One that needs it tries again, and has the error.
    Failed,
    Decoded(Arc<Vec<u8>>),
}

impl<C: Chunks> Slabs<C> {
    /// An array, of which a few slabs are in memory.
    pub(super) fn new(chunks: C, grid: Grid, size: usize, window: usize) -> Slabs<C> {
        Slabs { chunks, grid, size, window, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Returns the most bytes of decoded chunks.
    pub(super) fn memory(&self) -> u64 {
        let slabs = (self.window as u64).min(self.grid.slabs());
        slabs.saturating_mul(self.grid.chunks() as u64).saturating_mul(self.grid.chunk_bytes())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`Source::read`](crate::Source::read).
    pub(super) fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        let own_rows = self.grid.elements();
        let wanted = rows_of(first, dst, self.size).filter(|wanted| wanted.end <= own_rows).ok_or_else(|| {
            let rows = (dst.len() / self.size) as u64;
            ColumnError::ReadBeyondEnd { column: self.chunks.name(), first, rows, own_rows }
        })?;
        let (mut at, mut rest) = (wanted.start, dst);
        while !rest.is_empty() {
            let slab = self.grid.slab_of(at);
            let end = self.grid.slab(slab).end.min(wanted.end);
            let (own, after) = rest.split_at_mut((end - at) as usize * self.size);
            self.read_slab(slab, at..end, own)?;
            (at, rest) = (end, after);
        }
        Ok(())
    }

    /// Fills `dst` with elements of a slab.
    fn read_slab(&self, slab: u64, wanted: Range<u64>, dst: &mut [u8]) -> Result<()> {
        let mut missing: Vec<usize> = self.grid.chunks_with(&wanted).collect();
        let mut gone = Vec::new();
        let mut state = self.lock();
        loop {
            let Some(own) = self.slab(&mut state, slab, &mut gone) else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if !gone.is_empty() {
                // To give large memory back takes long.
                drop(state);
                gone.clear();
                state = self.lock();
                continue;
            }
            let mut decoded = Vec::new();
            missing.retain(|chunk| match &own.cells[*chunk] {
                Cell::Decoded(bytes) => {
                    decoded.push((*chunk, bytes.clone()));
                    false
                }
                _ => true,
            });
            if decoded.is_empty() {
                if missing.is_empty() {
                    gone = self.end(&mut state, slab, &wanted);
                    drop(state);
                    drop(gone);
                    return Ok(());
                }
                let is_free = |chunk: &&usize| matches!(own.cells[**chunk], Cell::Empty | Cell::Failed);
                state = match missing.iter().find(is_free) {
                    Some(chunk) => self.decode(state, slab, *chunk)?,
                    None => self.decode_ahead(state, slab),
                };
                continue;
            }
            // Others go on while this thread copies.
            drop(state);
            for (chunk, bytes) in &decoded {
                self.grid.copy(slab, *chunk, bytes, wanted.start, dst);
            }
            state = self.lock();
        }
    }

    /// Returns a slab that a read needs, for which others may have to go; `None` if there is no room for it as long as
    /// chunks of all others are being decoded.
    fn slab<'s>(&self, state: &'s mut State, slab: u64, gone: &mut Vec<Slab>) -> Option<&'s mut Slab> {
        let State { slabs, next } = state;
        let used = slabs.values().map(|slab| slab.used).max().unwrap_or(0) + 1;
        if !slabs.contains_key(&slab) {
            // The array is read from another place on, such as by the next pass of a job.
            let is_elsewhere = slabs.is_empty() || slab.saturating_add(self.window as u64) < *next;
            while slabs.len() >= self.window {
                let idle = slabs.iter().filter(|(_, slab)| slab.is_idle());
                let oldest = idle.min_by_key(|(_, slab)| (!slab.is_read(), slab.used)).map(|(number, _)| *number)?;
                gone.extend(slabs.remove(&oldest));
            }
            if slab >= *next || is_elsewhere {
                *next = slab + 1;
            }
            slabs.insert(slab, self.empty(slab));
        }
        let own = slabs.get_mut(&slab)?;
        own.used = used;
        Some(own)
    }

    fn empty(&self, slab: u64) -> Slab {
        Slab { cells: vec![Cell::Empty; self.grid.chunks()], next: 0, unread: vec![self.grid.slab(slab)], used: 0 }
    }

    /// Decodes a chunk.
    fn decode<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        slab: u64,
        chunk: usize,
    ) -> Result<MutexGuard<'s, State>> {
        state.set(slab, chunk, Cell::Busy);
        drop(state);
        let decoded = self.chunks.decode(&self.grid.indices(slab, chunk));
        let mut state = self.lock();
        let (cell, result) = match decoded {
            Ok(bytes) => (Cell::Decoded(bytes.into()), Ok(())),
            Err(error) => (Cell::Failed, Err(error)),
        };
        state.set(slab, chunk, cell);
        self.changed.notify_all();
        result.map(|()| state)
    }

    /// Decodes a chunk that will be needed soon, of this slab or one behind; if there is none, waits until a chunk is
    /// decoded.
    fn decode_ahead<'s>(&'s self, mut state: MutexGuard<'s, State>, slab: u64) -> MutexGuard<'s, State> {
        let State { slabs, next } = &mut *state;
        let ahead = slabs.range_mut(slab..).find_map(|(number, own)| Some((*number, own.first_empty()?)));
        let end = slab.saturating_add(self.window as u64).min(self.grid.slabs());
        let found = ahead.or_else(|| {
            let number = *next;
            let has_room = number < end && slabs.len() < self.window && !slabs.contains_key(&number);
            has_room.then(|| {
                // As recent as the last read, so that it does not go first.
                let used = slabs.values().map(|slab| slab.used).max().unwrap_or(0);
                slabs.insert(number, Slab { used, ..self.empty(number) });
                *next += 1;
                (number, 0)
            })
        });
        match found {
            // The read that needs the chunk has the error, too.
            Some((slab, chunk)) => self.decode(state, slab, chunk).unwrap_or_else(|_| self.lock()),
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Records that elements of a slab have been read, and returns slabs that are of no use any more.
    fn end(&self, state: &mut State, slab: u64, read: &Range<u64>) -> Vec<Slab> {
        let Some(own) = state.slabs.get_mut(&slab) else { return vec![] };
        let rest = |gap: &Range<u64>| [gap.start..gap.end.min(read.start), gap.start.max(read.end)..gap.end];
        own.unread = own.unread.iter().flat_map(rest).filter(|gap| !gap.is_empty()).collect();
        if !own.is_read() {
            return vec![];
        }
        let State { slabs, next } = &*state;
        let is_next_unread = slabs.get(&(slab + 1)).map_or(slab + 1 >= *next, |own| !own.is_read());
        let stays = |number: u64| number == slab && number + 1 < self.grid.slabs() && is_next_unread;
        let is_done = |(number, own): &(&u64, &Slab)| own.is_read() && own.is_idle() && !stays(**number);
        let done: Vec<u64> = state.slabs.iter().filter(is_done).map(|(number, _)| *number).collect();
        // A read may wait for room.
        self.changed.notify_all();
        done.iter().filter_map(|number| state.slabs.remove(number)).collect()
    }
}

impl Slab {
    /// Returns whether all elements have been read.
    fn is_read(&self) -> bool {
        self.unread.is_empty()
    }

    /// Returns whether no thread decodes a chunk of it.
    fn is_idle(&self) -> bool {
        !self.cells.iter().any(|cell| matches!(cell, Cell::Busy))
    }

    /// Returns the first chunk that nobody has begun.
    fn first_empty(&mut self) -> Option<usize> {
        while !matches!(self.cells.get(self.next)?, Cell::Empty) {
            self.next += 1;
        }
        Some(self.next)
    }
}

impl State {
    /// Sets what is known of a chunk. Its slab is in memory: it stays while a thread decodes a chunk of it.
    fn set(&mut self, slab: u64, chunk: usize, cell: Cell) {
        if let Some(own) = self.slabs.get_mut(&slab) {
            own.cells[chunk] = cell;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use proptest::prelude::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    /// The numbers of the elements of an array of so many rows and columns. Counts the chunks that are decoded.
    struct Numbers {
        shape: [u64; 2],
        chunk: [u64; 2],
        decoded: AtomicUsize,
        /// This chunk cannot be decoded.
        bad: Option<[u64; 2]>,
    }

    impl Chunks for Numbers {
        fn name(&self) -> String {
            "numbers".into()
        }

        fn decode(&self, indices: &[u64]) -> Result<Vec<u8>> {
            self.decoded.fetch_add(1, Ordering::Relaxed);
            if self.bad.is_some_and(|bad| bad == *indices) {
                return Err(Error::file("numbers", format!("chunk {indices:?} is bad"), "none"));
            }
            let rows = (0..self.chunk[0]).map(|row| indices[0] * self.chunk[0] + row);
            let columns = |row: u64| (0..self.chunk[1]).map(move |own| (row, indices[1] * self.chunk[1] + own));
            Ok(rows.flat_map(columns).flat_map(|(row, own)| (row * self.shape[1] + own).to_ne_bytes()).collect())
        }
    }

    fn numbers(shape: [u64; 2], chunk: [u64; 2], window: usize) -> Slabs<Numbers> {
        let grid = Grid::new(&shape, &chunk, 8).unwrap();
        Slabs::new(Numbers { shape, chunk, decoded: AtomicUsize::new(0), bad: None }, grid, 8, window)
    }

    fn read(slabs: &Slabs<Numbers>, first: u64, len: usize) -> Vec<u64> {
        let mut rows = vec![0u64; len];
        slabs.read(first, bytemuck::cast_slice_mut(&mut rows)).unwrap();
        rows
    }

    proptest! {
        /// Any read gives the elements that it asks for, whatever was read before, and no more slabs are in memory than
        /// the window has.
        #[test]
        fn a_read_may_begin_anywhere(
            shape in [1u64..20, 1u64..20],
            chunk in [1u64..8, 1u64..8],
            window in 2usize..4,
            reads in prop::collection::vec((any::<u64>(), any::<u64>()), 0..40),
        ) {
            let slabs = numbers(shape, chunk, window);
            let elements = shape[0] * shape[1];
            for (first, len) in reads {
                let first = first % (elements + 1);
                let len = len % (elements - first + 1);
                prop_assert!(read(&slabs, first, len as usize).into_iter().eq(first..first + len));
                prop_assert!(slabs.lock().slabs.len() <= window);
            }
        }
    }

    /// Threads read pieces in turn, of slabs with many chunks, with one, and with several slabs to a piece.
    #[test]
    fn each_chunk_is_decoded_once_by_all_threads_together() {
        const THREADS: usize = 8;
        for (chunk, piece) in [([100, 3], 64), ([50, 60], 50), ([1, 60], 200), ([1, 7], 10), ([1000, 60], 999)] {
            let slabs = numbers([1000, 60], chunk, 60_000);
            let (next, barrier) = (AtomicUsize::new(0), Barrier::new(THREADS));
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        barrier.wait();
                        loop {
                            let first = next.fetch_add(piece, Ordering::Relaxed) as u64;
                            if first >= 60_000 {
                                return;
                            }
                            let len = piece.min(60_000 - first as usize);
                            assert!(read(&slabs, first, len).into_iter().eq(first..first + len as u64));
                        }
                    });
                }
            });
            let chunks = slabs.grid.slabs() as usize * slabs.grid.chunks();
            assert_eq!(slabs.chunks.decoded.load(Ordering::Relaxed), chunks, "chunks of {chunk:?}");
            assert!(slabs.lock().slabs.is_empty(), "slabs that have been read are of no use");
        }
    }

    /// A window of two slabs is enough, if threads read in order.
    #[test]
    fn a_small_window_is_kept_to() {
        let slabs = numbers([1000, 60], [10, 7], 2);
        assert_eq!(slabs.memory(), 2 * 9 * 70 * 8);
        let (next, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let first = next.fetch_add(100, Ordering::Relaxed) as u64;
                        if first >= 60_000 {
                            return;
                        }
                        assert!(read(&slabs, first, 100).into_iter().eq(first..first + 100));
                        most.fetch_max(slabs.lock().slabs.len(), Ordering::Relaxed);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 2);
    }

    /// Rows that two reads share are in the slab that stays.
    #[test]
    fn rows_that_two_reads_share_are_decoded_once() {
        let slabs = numbers([100, 10], [10, 5], 2);
        for first in (0..960).step_by(30) {
            assert!(read(&slabs, first, 40).into_iter().eq(first..first + 40));
        }
        assert_eq!(slabs.chunks.decoded.load(Ordering::Relaxed), 20);
    }

    #[test]
    fn a_chunk_that_cannot_be_decoded_is_an_error_for_those_that_need_it() {
        let mut slabs = numbers([40, 10], [10, 5], 4);
        slabs.chunks.bad = Some([1, 1]);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    assert!(read(&slabs, 0, 100).into_iter().eq(0..100));
                    assert!(read(&slabs, 200, 200).into_iter().eq(200..400));
                    assert!(read(&slabs, 130, 5).into_iter().eq(130..135), "the other chunk of the slab");
                    let error = slabs.read(100, &mut [0; 80]).unwrap_err().to_string();
                    assert!(error.contains("chunk [1, 1] is bad"), "{error}");
                });
            }
        });
        let beyond = slabs.read(399, &mut [0; 16]).unwrap_err().to_string();
        assert!(beyond.contains("400"), "{beyond}");
    }
}
