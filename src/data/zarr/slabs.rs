//! Decoded chunks that all threads share. Rows go through all chunks of a slab, so that every thread needs all of
//! them, and each is decoded once.
//!
//! A thread that reads rows of a slab copies from the chunks that are decoded, and decodes those that nobody has begun.
//! While the others that it needs are being decoded, it decodes chunks that are needed next, up to the end of a
//! **window** of a few slabs. So all threads decode, whether a slab has many chunks or one.
//!
//! A slab whose elements have all been read is of no use. One such slab stays, because a chunk of a job that reads
//! neighbours may need its last elements once more; at the end of the array, none does. If a slab that does not fit
//! into the window is needed, one that no thread reads goes, and is decoded again if somebody comes back to it.

use super::super::sink::wanted_rows;
use super::grid::Grid;
use crate::error::Result;
use std::collections::{BTreeMap, BTreeSet};
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
    /// A chunk is decoded, or cannot be; or no thread reads a slab any more.
    changed: Condvar,
}

/// The slabs in memory.
#[derive(Default)]
struct State {
    slabs: BTreeMap<u64, Slab>,
    /// The slabs whose elements have all been read since the array is read from its begin.
    read: BTreeSet<u64>,
}

struct Slab {
    cells: Vec<Cell>,
    /// No cell before is [`Cell::Empty`].
    first: usize,
    /// The elements that nobody has read, in order.
    unread: Vec<Range<u64>>,
    /// The number of the last read.
    used: u64,
    /// The threads that read it or decode a chunk of it. Until there is none, it stays.
    users: usize,
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

    /// Returns the most bytes that the slabs in memory take, and what so many threads need to decode some of their
    /// chunks: `copies` times the bytes of a chunk each, and some more, because codecs add to what does not compress.
    pub(super) fn memory(&self, threads: u64, copies: u64) -> u64 {
        let slabs = (self.window as u64).min(self.grid.slabs());
        let decoding = slabs.saturating_mul(self.grid.chunks() as u64).min(threads).saturating_mul(copies);
        let chunk = self.grid.chunk_bytes();
        let of_decoding = chunk.saturating_add(chunk / 16).saturating_mul(decoding);
        self.grid.slab_memory().saturating_mul(slabs).saturating_add(of_decoding)
    }

    /// Forgets the slabs that no thread reads.
    pub(super) fn clear(&self) {
        let mut state = self.lock();
        let all = std::mem::take(&mut state.slabs);
        let (used, unused) = all.into_iter().partition(|(_, slab)| slab.users > 0);
        state.slabs = used;
        state.read.clear();
        drop(state);
        let _: BTreeMap<u64, Slab> = unused;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`Source::read`](crate::Source::read).
    pub(super) fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        let own_rows = self.grid.elements();
        let wanted = wanted_rows(first, dst, self.size, own_rows, || self.chunks.name())?;
        let (mut at, mut rest) = (wanted.start, dst);
        while !rest.is_empty() {
            let slab = self.grid.slab_of(at);
            let end = self.grid.slab(slab).end.min(wanted.end);
            let (own, after) = rest.split_at_mut((end - at) as usize * self.size);
            self.begin(slab);
            let copied = self.copy(slab, &(at..end), own);
            self.end(slab, copied.is_ok().then_some(at..end));
            copied?;
            (at, rest) = (end, after);
        }
        Ok(())
    }

    /// Waits until there is room for a slab. It is in memory then, and stays until [`end`](Slabs::end).
    fn begin(&self, slab: u64) {
        let mut state = self.lock();
        // A neighbour of a slab that is read once more has not been read itself. So the array is read from its begin,
        // such as by the next pass of a job.
        let is_read = |slab: u64| state.read.contains(&slab);
        if is_read(slab) && (slab + 1 == self.grid.slabs() || is_read(slab + 1)) {
            state.read.clear();
            state.slabs.iter_mut().for_each(|(number, own)| own.unread = vec![self.grid.slab(*number)]);
        }
        loop {
            let State { slabs, read } = &mut *state;
            let used = slabs.values().map(|slab| slab.used).max().unwrap_or(0) + 1;
            if let Some(own) = slabs.get_mut(&slab) {
                (own.used, own.users) = (used, own.users + 1);
                return;
            }
            if slabs.len() < self.window {
                let mut own = Slab { used, users: 1, ..self.empty(slab) };
                if read.contains(&slab) {
                    own.unread.clear();
                }
                slabs.insert(slab, own);
                return;
            }
            let unused = slabs.iter().filter(|(_, slab)| slab.users == 0);
            let oldest = unused.min_by_key(|(_, slab)| (!slab.is_read(), slab.used)).map(|(number, _)| *number);
            state = match oldest.and_then(|number| slabs.remove(&number)) {
                Some(gone) => {
                    // To give large memory back takes long.
                    drop(state);
                    drop(gone);
                    self.lock()
                }
                None => self.decode_ahead(state, 0),
            };
        }
    }

    /// Ends what [`begin`](Slabs::begin) began, after elements of the slab have been read.
    fn end(&self, slab: u64, elements: Option<Range<u64>>) {
        let mut state = self.lock();
        let State { slabs, read } = &mut *state;
        if let Some(own) = slabs.get_mut(&slab) {
            own.users -= 1;
            let Range { start, end } = elements.unwrap_or_default();
            let rest = |gap: &Range<u64>| [gap.start..gap.end.min(start), gap.start.max(end)..gap.end];
            if start < end {
                own.unread = own.unread.iter().flat_map(rest).filter(|gap| !gap.is_empty()).collect();
            }
        }
        let mut gone = Vec::new();
        if slabs.get(&slab).is_some_and(Slab::is_read) {
            read.insert(slab);
            let is_next_unread = slab + 1 < self.grid.slabs() && !read.contains(&(slab + 1));
            let stays = |number: u64| number == slab && is_next_unread;
            let is_done = |(number, own): &(&u64, &Slab)| own.is_read() && own.users == 0 && !stays(**number);
            let done: Vec<u64> = slabs.iter().filter(is_done).map(|(number, _)| *number).collect();
            gone.extend(done.iter().filter_map(|number| slabs.remove(number)));
        }
        drop(state);
        drop(gone);
        // A read may wait for room.
        self.changed.notify_all();
    }

    /// Fills `dst` with elements of a slab that is in memory.
    fn copy(&self, slab: u64, wanted: &Range<u64>, dst: &mut [u8]) -> Result<()> {
        let mut rest = self.grid.chunks_with(wanted);
        // Those that other threads were decoding.
        let mut waiting = Vec::new();
        let mut state = self.lock();
        loop {
            let (mut decoded, mut free) = (Vec::new(), None);
            let cells = state.slabs.get(&slab).map_or(&[][..], |own| &own.cells);
            let is_sweep = rest.is_empty();
            let mut others = if is_sweep { std::mem::take(&mut waiting) } else { vec![] }.into_iter();
            while let Some(chunk) = rest.next().or_else(|| others.next()) {
                match cells.get(chunk) {
                    Some(Cell::Decoded(bytes)) => decoded.push((chunk, bytes.clone())),
                    Some(Cell::Busy) | None => waiting.push(chunk),
                    Some(Cell::Empty | Cell::Failed) => {
                        free = Some(chunk);
                        break;
                    }
                }
            }
            waiting.extend(others);
            if let Some(chunk) = free {
                let bytes;
                (state, bytes) = self.decode(state, slab, chunk)?;
                decoded.push((chunk, bytes));
            } else if decoded.is_empty() {
                if waiting.is_empty() {
                    return Ok(());
                }
                if is_sweep {
                    state = self.decode_ahead(state, slab);
                }
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

    fn empty(&self, slab: u64) -> Slab {
        let cells = vec![Cell::Empty; self.grid.chunks()];
        Slab { cells, first: 0, unread: vec![self.grid.slab(slab)], used: 0, users: 0 }
    }

    /// Decodes a chunk of a slab that is in memory.
    fn decode<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        slab: u64,
        chunk: usize,
    ) -> Result<(MutexGuard<'s, State>, Arc<Vec<u8>>)> {
        state.set(slab, chunk, Cell::Busy, 1);
        drop(state);
        let decoded = self.chunks.decode(&self.grid.indices(slab, chunk)).map(Arc::new);
        let mut state = self.lock();
        let cell = decoded.as_ref().map_or(Cell::Failed, |bytes| Cell::Decoded(bytes.clone()));
        state.set(slab, chunk, cell, -1);
        self.changed.notify_all();
        decoded.map(|bytes| (state, bytes))
    }

    /// Decodes a chunk that will be needed soon, of this slab or one behind; if there is none, waits until something
    /// changes.
    fn decode_ahead<'s>(&'s self, mut state: MutexGuard<'s, State>, slab: u64) -> MutexGuard<'s, State> {
        let State { slabs, read } = &mut *state;
        let ahead = slabs.range_mut(slab..).find_map(|(number, own)| Some((*number, own.first_empty()?)));
        let end = slab.saturating_add(self.window as u64).min(self.grid.slabs());
        let found = ahead.or_else(|| {
            let is_new = |number: &u64| !slabs.contains_key(number) && !read.contains(number);
            let number = (slab..end).find(is_new).filter(|_| slabs.len() < self.window)?;
            // As recent as the last read, so that it does not go first.
            let used = slabs.values().map(|slab| slab.used).max().unwrap_or(0);
            slabs.insert(number, Slab { used, ..self.empty(number) });
            Some((number, 0))
        });
        match found {
            // The read that needs the chunk has the error, too.
            Some((slab, chunk)) => self.decode(state, slab, chunk).map_or_else(|_| self.lock(), |(state, _)| state),
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl Slab {
    /// Returns whether all elements have been read.
    fn is_read(&self) -> bool {
        self.unread.is_empty()
    }

    /// Returns the first chunk that nobody has begun.
    fn first_empty(&mut self) -> Option<usize> {
        while !matches!(self.cells.get(self.first)?, Cell::Empty) {
            self.first += 1;
        }
        Some(self.first)
    }
}

impl State {
    /// Sets what is known of a chunk, and adds to the number of users of its slab.
    fn set(&mut self, slab: u64, chunk: usize, cell: Cell, users: isize) {
        if let Some(own) = self.slabs.get_mut(&slab) {
            own.cells[chunk] = cell;
            own.users = own.users.saturating_add_signed(users);
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

    /// A window of two slabs is enough, also for threads that are in more slabs than fit: they wait for room.
    #[test]
    fn a_small_window_is_kept_to() {
        for (chunk, threads) in [([10, 7], 4), ([5, 60], 8)] {
            let slabs = numbers([1000, 60], chunk, 2);
            assert_eq!(slabs.memory(0, 1), 2 * slabs.grid.chunks() as u64 * (chunk[0] * chunk[1] * 8 + 96));
            let next = AtomicUsize::new(0);
            thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        loop {
                            let first = next.fetch_add(100, Ordering::Relaxed) as u64;
                            if first >= 60_000 {
                                return;
                            }
                            assert!(read(&slabs, first, 100).into_iter().eq(first..first + 100));
                            assert!(slabs.lock().slabs.len() <= 2);
                        }
                    });
                }
            });
        }
    }

    /// Each pass decodes each chunk once, also of a few slabs.
    #[test]
    fn each_pass_is_like_the_first() {
        for window in [2, 20] {
            let slabs = numbers([100, 10], [10, 5], window);
            for pass in 1..4 {
                for end in (40..=1000).step_by(40) {
                    // With neighbours.
                    let first = (end - 40_u64).saturating_sub(5);
                    assert!(read(&slabs, first, (end - first) as usize).into_iter().eq(first..end));
                }
                assert_eq!(slabs.chunks.decoded.load(Ordering::Relaxed), 20 * pass, "window {window}");
            }
        }
    }

    #[test]
    fn slabs_that_nobody_reads_are_forgotten() {
        let slabs = numbers([100, 10], [10, 5], 4);
        read(&slabs, 0, 50);
        assert_eq!(slabs.lock().slabs.len(), 1);
        slabs.clear();
        assert!(slabs.lock().slabs.is_empty());
        assert!(read(&slabs, 50, 50).into_iter().eq(50..100));
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
