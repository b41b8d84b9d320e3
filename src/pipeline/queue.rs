//! The queue from which every lane claims its next chunk.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crossbeam::utils::CachePadded;

use crate::data::Chunk;
use crate::progress::{CancelToken, Progress};

/// Hands out the rows of a job as chunks: each row once, in order, in whole tiles.
///
/// The first chunks, as many as there are lanes, grow from one to the next, so that the first is on its way soon and lanes do
/// not all fill, and then all wait, at the same time. Chunks shrink towards the end, so that no lane waits long for the last one.
pub(crate) struct Queue<'w> {
    rows: u64,
    tile_rows: u64,
    chunk_rows: u64,
    /// Chunks do not shrink further: the cost of a chunk would outweigh the wait for it.
    least_rows: u64,
    lanes: u64,
    next: CachePadded<Mutex<Next>>,
    done: CachePadded<AtomicU64>,
    stopped: AtomicBool,
    cancel: Option<CancelToken>,
    progress: Option<&'w (dyn Fn(Progress) + Send + Sync)>,
}

#[derive(Default)]
struct Next {
    row: u64,
    index: u64,
}

impl<'w> Queue<'w> {
    /// A queue over `rows` rows in chunks of at most `chunk_rows`, a multiple of `tile_rows`, that shrink down to about
    /// `least_rows`, for `lanes` lanes in all.
    pub(crate) fn new(rows: u64, tile_rows: usize, chunk_rows: usize, least_rows: usize, lanes: usize) -> Self {
        debug_assert!(chunk_rows > 0 && chunk_rows.is_multiple_of(tile_rows));
        Queue {
            rows,
            tile_rows: tile_rows as u64,
            chunk_rows: chunk_rows as u64,
            least_rows: (least_rows / tile_rows * tile_rows).clamp(tile_rows, chunk_rows) as u64,
            lanes: lanes.max(1) as u64,
            next: CachePadded::default(),
            done: CachePadded::default(),
            stopped: AtomicBool::new(false),
            cancel: None,
            progress: None,
        }
    }

    /// Stops handing out chunks once the token says so, and tells how far the job is after every chunk.
    pub(crate) fn watched(
        mut self,
        cancel: Option<CancelToken>,
        progress: Option<&'w (dyn Fn(Progress) + Send + Sync)>,
    ) -> Self {
        (self.cancel, self.progress) = (cancel, progress);
        self
    }

    /// The next chunk, of at most `most` rows (at least a tile); `None` when all are claimed or the queue was stopped.
    pub(crate) fn claim(&self, most: usize) -> Option<Chunk> {
        if self.is_stopped() {
            return None;
        }
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = self.next_rows(&next, most);
        if rows.is_empty() {
            return None;
        }
        let chunk = Chunk::new(next.index, rows);
        next.row = chunk.rows().end;
        next.index += 1;
        Some(chunk)
    }

    /// The rows of the next chunk, in whole tiles: an even share of what is left for each lane, but not more than a full
    /// chunk; in the first round a part of it.
    fn next_rows(&self, next: &Next, most: usize) -> Range<u64> {
        let Next { row, index } = *next;
        let tile = self.tile_rows;
        let share = (self.rows - row) / self.lanes;
        let first = self.chunk_rows * (index + 1).min(self.lanes) / self.lanes;
        let rows = share.max(self.least_rows).min(first).min(self.chunk_rows).min(most as u64) / tile * tile;
        row..(row + rows.max(tile)).min(self.rows)
    }

    /// Says that a chunk went all the way.
    pub(crate) fn finish(&self, chunk: &Chunk) {
        let done = self.done.fetch_add(chunk.len() as u64, Ordering::Relaxed) + chunk.len() as u64;
        if let Some(progress) = self.progress {
            progress(Progress { done, rows: self.rows });
        }
    }

    /// Ends the run early: a lane failed.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Rows that went all the way.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Rows of the job.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::kernel::TILE_ROWS;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_row_once_in_whole_tiles(
            rows in 0u64..10_000_000, tiles in 1usize..100, least in 0usize..500_000, lanes in 1usize..40,
        ) {
            let queue = Queue::new(rows, TILE_ROWS, tiles * TILE_ROWS, least, lanes);
            let mut next = 0;
            while let Some(chunk) = queue.claim(usize::MAX) {
                prop_assert_eq!(chunk.rows().start, next);
                prop_assert!(!chunk.is_empty() && chunk.len() <= tiles * TILE_ROWS);
                next = chunk.rows().end;
                prop_assert!(next == rows || next.is_multiple_of(TILE_ROWS as u64));
                queue.finish(&chunk);
            }
            prop_assert_eq!((next, queue.done()), (rows, rows));
        }
    }

    #[test]
    fn chunks_grow_at_the_start_and_shrink_towards_the_end() {
        let queue = Queue::new(100 * TILE_ROWS as u64, TILE_ROWS, 16 * TILE_ROWS, 2 * TILE_ROWS, 4);
        let tiles: Vec<usize> =
            std::iter::from_fn(|| queue.claim(usize::MAX)).map(|chunk| chunk.len() / TILE_ROWS).collect();
        assert_eq!(tiles, [4, 8, 12, 16, 15, 11, 8, 6, 5, 3, 3, 2, 2, 2, 2, 1]);
    }

    #[test]
    fn a_stopped_queue_hands_out_nothing() {
        let queue = Queue::new(1 << 20, TILE_ROWS, TILE_ROWS, TILE_ROWS, 1);
        assert!(queue.claim(usize::MAX).is_some());
        queue.stop();
        assert!(queue.claim(usize::MAX).is_none());
    }
}
