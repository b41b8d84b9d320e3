//! The queue from which every worker claims its next chunk.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

use crossbeam::utils::CachePadded;

use crate::data::Chunk;
use crate::error::Result;
use crate::panics;
use crate::progress::{CancelToken, Progress};

/// Divides the rows of a job into chunks: each row once, in whole tiles, and no chunk crosses the border of two
/// segments.
///
/// If there are **lots**, a worker claims one, and then the chunks in it. When none is left, it takes half of the rows
/// that another worker has left of its own.
///
/// Segments with an owner are claimed only by workers of that device. All workers claim from the other segments. Both
/// kinds, and lots, are claimed in order. If all columns of the rows are resident on the device of the worker, nothing
/// is copied and chunks are larger.
///
/// The first chunks, one per worker, increase in size, so that the first copy starts early and the workers do not all
/// fill, and then all wait, at the same time. Chunks shrink towards the end, so that no worker waits long for the
/// last one.
pub(crate) struct Queue<'w> {
    /// All rows, for a restart.
    segments: Vec<Segment>,
    rows: u64,
    /// Rows of the job that are in no segment.
    others: u64,
    tile_rows: u64,
    chunk_rows: u64,
    /// Chunks do not shrink below this: the overhead per chunk would cost more than the wait saved.
    min_chunk_rows: u64,
    /// How each device claims whole tiles; `None` if devices claim chunks alone.
    panels: Option<Panels>,
    /// The first rows of lots, except of the first one; `None` if workers claim chunks alone.
    lots: Option<Vec<u64>>,
    /// The number of the first worker of each device, among those of all devices.
    first_worker: Vec<usize>,
    next: CachePadded<Mutex<Next>>,
    done: CachePadded<AtomicU64>,
    stopped: AtomicBool,
    cancel: Option<CancelToken>,
    progress: Option<&'w (dyn Fn(Progress) + Send + Sync)>,
}

/// The rows of the tiles that a device claims, and of the panels in each of them.
#[derive(Debug)]
struct Panels {
    tile_rows: u64,
    panel_rows: u64,
    /// The first rows of segments, which no chunk has with rows before, and the device on which all columns are.
    borders: Vec<(u64, Option<usize>)>,
}

/// A contiguous range of rows that the same workers may claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) rows: Range<u64>,
    /// The number of the device whose workers alone may claim the rows; `None` if all workers may.
    pub(crate) owner: Option<usize>,
    /// The number of the device on which all columns of the rows are resident, so that its chunks need no slots, and of
    /// a block only partials and scratch. An owner is no other device, unless devices claim whole tiles.
    pub(crate) resident_on: Option<usize>,
}

/// The rows that are not claimed yet.
struct Next {
    index: u64,
    /// Rows for the workers of all devices.
    common: Portion,
    /// Rows for the workers of one device, by device.
    own: Vec<Portion>,
    /// The tiles that each device has claimed, in order, and the rows of the last one that are left.
    tiles: Vec<(Vec<Range<u64>>, Range<u64>)>,
    /// The rows that each worker has left of its lot.
    open: Vec<Range<u64>>,
    /// Gets a message when all rows are claimed.
    exhausted: Option<Sender<()>>,
}

impl Next {
    fn tell_if_exhausted(&mut self) {
        if self.common.rows == 0
            && self.tiles.iter().map(|(_, rest)| rest).chain(&self.open).all(Range::is_empty)
            && self.own.iter().all(|own| own.rows == 0)
            && let Some(exhausted) = self.exhausted.take()
        {
            // The receiver may be gone.
            let _ = exhausted.send(());
        }
    }
}

/// The rows that a group of workers may claim.
#[derive(Default)]
struct Portion {
    segments: VecDeque<Segment>,
    rows: u64,
    workers: u64,
    /// Chunks claimed so far.
    chunks: u64,
}

impl Portion {
    /// Returns the counts of the rows that all workers may yet claim: with these, which some workers may.
    fn with<'r>(&self, rest: impl Iterator<Item = &'r Range<u64>>) -> Portion {
        let rows = self.rows + rest.map(|rest| rest.end - rest.start).sum::<u64>();
        Portion { rows, workers: self.workers, chunks: self.chunks, ..Portion::default() }
    }

    /// Takes rows of the first segment: as far as `end` says for their first row.
    fn take_until(&mut self, end: impl FnOnce(u64) -> u64) -> Option<Range<u64>> {
        let segment = &mut self.segments.front_mut()?.rows;
        let taken = segment.start..end(segment.start).min(segment.end);
        segment.start = taken.end;
        if segment.is_empty() {
            self.segments.pop_front();
        }
        self.rows -= taken.end - taken.start;
        Some(taken)
    }
}

/// Takes a chunk of at most so many rows of those that a worker or a device has claimed.
fn take_chunk(rest: &mut Range<u64>, most: u64, index: &mut u64, common: &mut Portion) -> Chunk {
    let chunk = Chunk::new(*index, rest.start..(rest.start + most).min(rest.end));
    rest.start = chunk.rows().end;
    common.chunks += 1;
    *index += 1;
    chunk
}

/// Joins segments that follow each other.
fn join(segments: &mut Vec<Segment>) {
    segments.dedup_by(|next, before| {
        let follows = before.rows.end == next.rows.start;
        if follows {
            (before.rows.end, before.resident_on) = (next.rows.end, None);
        }
        follows
    });
}

impl<'w> Queue<'w> {
    /// Creates a queue over all rows. Segments begin at whole tiles of `tile_rows`. Chunks have at most `chunk_rows`
    /// rows, which is a multiple of `tile_rows`, and shrink to about `min_chunk_rows`. `workers` is the number of
    /// workers of each device.
    pub(crate) fn new(
        segments: &[Segment],
        tile_rows: usize,
        chunk_rows: usize,
        min_chunk_rows: usize,
        workers: &[usize],
    ) -> Self {
        debug_assert!(chunk_rows > 0 && chunk_rows.is_multiple_of(tile_rows));
        let portion = |owner: Option<usize>, workers: usize| {
            let segments = segments.iter().filter(|segment| segment.owner == owner && !segment.rows.is_empty());
            let segments: VecDeque<_> = segments.cloned().collect();
            let rows = segments.iter().map(|segment| segment.rows.end - segment.rows.start).sum();
            Portion { segments, rows, workers: workers.max(1) as u64, chunks: 0 }
        };
        let next = Next {
            index: 0,
            common: portion(None, workers.iter().sum()),
            own: workers.iter().enumerate().map(|(device, workers)| portion(Some(device), *workers)).collect(),
            tiles: vec![(vec![], 0..0); workers.len()],
            open: vec![0..0; workers.iter().sum()],
            exhausted: None,
        };
        let before = |workers: &mut usize, own: &usize| {
            let first = *workers;
            *workers += own;
            Some(first)
        };
        Queue {
            segments: segments.to_vec(),
            rows: segments.iter().map(|segment| segment.rows.end - segment.rows.start).sum(),
            others: 0,
            tile_rows: tile_rows as u64,
            chunk_rows: chunk_rows as u64,
            min_chunk_rows: (min_chunk_rows / tile_rows * tile_rows).clamp(tile_rows, chunk_rows) as u64,
            panels: None,
            lots: None,
            first_worker: workers.iter().scan(0, before).collect(),
            next: CachePadded::new(Mutex::new(next)),
            done: CachePadded::default(),
            stopped: AtomicBool::new(false),
            cancel: None,
            progress: None,
        }
    }

    /// Makes devices claim whole tiles of `tile_rows` rows, and chunks in panels of `panel_rows`, both of which are
    /// whole tiles of the queue. Each tile has one owner, or none. Tiles cross the borders of segments; chunks do not.
    pub(crate) fn in_panels(mut self, tile_rows: usize, panel_rows: usize) -> Self {
        debug_assert!(tile_rows.is_multiple_of(panel_rows) && (panel_rows as u64).is_multiple_of(self.tile_rows));
        let are_of_one =
            |pair: &[Segment]| (pair[0].rows.end - 1) / tile_rows as u64 == pair[1].rows.start / tile_rows as u64;
        let pairs = || self.segments.windows(2).filter(|pair| !pair[0].rows.is_empty());
        debug_assert!(pairs().all(|pair| pair[0].owner == pair[1].owner || !are_of_one(pair)));
        let borders = self.segments.iter().map(|segment| (segment.rows.start, segment.resident_on)).collect();
        self.panels = Some(Panels { tile_rows: tile_rows as u64, panel_rows: panel_rows as u64, borders });
        join(&mut self.segments);
        let next = self.next.get_mut().unwrap_or_else(PoisonError::into_inner);
        for portion in next.own.iter_mut().chain([&mut next.common]) {
            let mut segments = Vec::from(std::mem::take(&mut portion.segments));
            join(&mut segments);
            portion.segments = segments.into();
        }
        self
    }

    /// Makes workers claim lots, which begin at these rows, in whole tiles.
    pub(crate) fn in_lots(self, lots: Vec<u64>) -> Self {
        debug_assert!(lots.is_sorted() && lots.iter().all(|first| first.is_multiple_of(self.tile_rows)));
        Queue { lots: Some(lots), ..self }
    }

    /// Says that the job has so many rows that are in no segment.
    pub(crate) fn beside(self, others: u64) -> Self {
        Queue { others, ..self }
    }

    /// Stops handing out chunks when the token is cancelled, and reports progress after every chunk.
    pub(crate) fn watched(
        mut self,
        cancel: Option<CancelToken>,
        progress: Option<&'w (dyn Fn(Progress) + Send + Sync)>,
    ) -> Self {
        (self.cancel, self.progress) = (cancel, progress);
        self
    }

    /// Sends a message to `exhausted` when the last chunk is claimed. If the queue is stopped before, the sender is
    /// dropped with the queue.
    pub(crate) fn on_exhausted(self, exhausted: Option<Sender<()>>) -> Self {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        next.exhausted = exhausted;
        next.tell_if_exhausted();
        drop(next);
        self
    }

    /// Claims the next chunk of the common segments, with at most `most` rows (but at least a tile). Returns `None`
    /// if all are claimed or the queue was stopped.
    pub(crate) fn claim(&self, most: usize) -> Option<Chunk> {
        self.claim_of(|next| Some((&mut next.common, &mut next.index)), (most, most))
    }

    /// Claims the next chunk of the common segments for a worker, of its lot if there are lots.
    pub(crate) fn claim_by(&self, (device, worker): (usize, usize), most: usize) -> Option<Chunk> {
        let Some(lots) = &self.lots else { return self.claim(most) };
        if self.is_stopped() {
            return None;
        }
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let Next { index, common, open, .. } = &mut *next;
        let all = common.with(open.iter());
        let own = self.first_worker.get(device)? + worker;
        if open.get(own)?.is_empty() {
            let end = |row: u64| lots.get(lots.partition_point(|first| *first <= row)).copied();
            open[own] = match common.take_until(|row| end(row).unwrap_or(u64::MAX)) {
                Some(lot) => lot,
                None => self.half_of_longest(open)?,
            };
        }
        let chunk = take_chunk(&mut open[own], self.chunk_of(&all, most), index, common);
        next.tell_if_exhausted();
        Some(chunk)
    }

    /// Takes the second half of what a worker has left of its lot, or all of it if that is little. The worker may have
    /// ended.
    fn half_of_longest(&self, open: &mut [Range<u64>]) -> Option<Range<u64>> {
        let longest = open.iter_mut().max_by_key(|rest| rest.end - rest.start).filter(|rest| !rest.is_empty())?;
        let rows = longest.end - longest.start;
        let kept = if rows > 2 * self.min_chunk_rows { (rows / 2).next_multiple_of(self.tile_rows) } else { 0 };
        let taken = longest.start + kept..longest.end;
        longest.end = taken.start;
        Some(taken)
    }

    /// Claims the next chunk for a worker of a device: of the common segments or, if devices claim whole tiles, of the
    /// device's tile, which it owns or nobody does. `resident` is the largest chunk of a tile's rows that are resident
    /// on the device.
    pub(crate) fn claim_for(
        &self,
        (device, worker): (usize, usize),
        (most, resident): (usize, usize),
    ) -> Option<Chunk> {
        let Some(panels) = &self.panels else { return self.claim_by((device, worker), most) };
        if self.is_stopped() {
            return None;
        }
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let Next { index, common, own, tiles, .. } = &mut *next;
        let own = own.get_mut(device)?;
        let mut all = common.with(tiles.iter().map(|(_, rest)| rest));
        all.rows += own.rows;
        let (claimed, rest) = tiles.get_mut(device)?;
        if rest.is_empty() {
            let portion = if own.rows > 0 { own } else { &mut *common };
            let tile = portion.take_until(|row| (row / panels.tile_rows + 1) * panels.tile_rows)?;
            claimed.push(tile.clone());
            *rest = tile;
        }
        let end_of_panel = (rest.start / panels.panel_rows + 1) * panels.panel_rows;
        let (before, behind) = panels.borders.split_at(panels.borders.partition_point(|(row, _)| *row <= rest.start));
        let end = behind.first().map_or(end_of_panel, |(row, _)| end_of_panel.min(*row));
        let rows = match before.last() {
            Some((_, Some(on))) if *on == device => self.resident_chunk_of(&all, resident),
            _ => self.chunk_of(&all, most),
        };
        let chunk = take_chunk(rest, rows.min(end - rest.start), index, common);
        next.tell_if_exhausted();
        Some(chunk)
    }

    /// Returns the tile that a device was the `number`th to claim, from 0 on; `None` if it has not claimed so many.
    pub(super) fn tile(&self, device: usize, number: usize) -> Option<Range<u64>> {
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        next.tiles.get(device)?.0.get(number).cloned()
    }

    /// Claims the next chunk of the segments owned by `device`. `resident` is the largest chunk of rows that are all
    /// resident there, which need no staging. There are none if devices claim whole tiles: see
    /// [`claim_for`](Queue::claim_for).
    pub(crate) fn claim_own(&self, device: usize, (most, resident): (usize, usize)) -> Option<Chunk> {
        if self.panels.is_some() {
            return None;
        }
        self.claim_of(|next| Some((next.own.get_mut(device)?, &mut next.index)), (most, resident))
    }

    fn claim_of(
        &self,
        portion: impl FnOnce(&mut Next) -> Option<(&mut Portion, &mut u64)>,
        (most, resident): (usize, usize),
    ) -> Option<Chunk> {
        if self.is_stopped() {
            return None;
        }
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let (portion, index) = portion(&mut next)?;
        let Segment { owner, resident_on, .. } = *portion.segments.front()?;
        let rows = match owner.is_some() && owner == resident_on {
            true => self.resident_chunk_of(portion, resident),
            false => self.chunk_of(portion, most),
        };
        let segment = &mut portion.segments.front_mut()?.rows;
        let chunk = Chunk::new(*index, segment.start..(segment.start + rows).min(segment.end));
        segment.start = chunk.rows().end;
        if segment.is_empty() {
            portion.segments.pop_front();
        }
        portion.rows -= chunk.len() as u64;
        portion.chunks += 1;
        *index += 1;
        next.tell_if_exhausted();
        Some(chunk)
    }

    /// Returns the rows of the next chunk, in whole tiles: the remaining rows divided by the number of workers, at
    /// most a full chunk, and in the first round a growing fraction of a full chunk.
    fn chunk_of(&self, portion: &Portion, most: usize) -> u64 {
        let Portion { rows, workers, chunks, .. } = *portion;
        let tile = self.tile_rows;
        let first = self.chunk_rows * (chunks + 1).min(workers) / workers;
        let rows =
            (rows / workers).max(self.min_chunk_rows).min(first).min(self.chunk_rows).min(most as u64) / tile * tile;
        rows.max(tile)
    }

    /// Returns the rows of the next chunk if nothing has to be copied: as many as the device can take, and at the end
    /// the remaining rows divided by the number of workers.
    fn resident_chunk_of(&self, portion: &Portion, most: usize) -> u64 {
        let most = most as u64;
        let rows = (portion.rows / portion.workers).clamp((most / 8).max(self.min_chunk_rows).min(most), most);
        (rows / self.tile_rows * self.tile_rows).max(self.tile_rows)
    }

    /// Takes back rows that were claimed and not finished. Any worker may claim them.
    pub(super) fn give_back(&self, chunk: &Chunk) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        next.common.rows += chunk.len() as u64;
        next.common.segments.push_front(Segment { rows: chunk.rows(), owner: None, resident_on: None });
    }

    /// Begins anew, with all rows for all workers. No worker may be running.
    pub(super) fn restart(&mut self) {
        let next = self.next.get_mut().unwrap_or_else(PoisonError::into_inner);
        let all = self.segments.iter().map(|segment| Segment { owner: None, resident_on: None, ..segment.clone() });
        next.common = Portion {
            segments: all.collect(),
            rows: self.rows,
            ..Portion { workers: next.common.workers, ..Portion::default() }
        };
        next.own.iter_mut().for_each(|own| *own = Portion { workers: own.workers, ..Portion::default() });
        next.tiles.fill((vec![], 0..0));
        next.open.fill(0..0);
        next.index = 0;
        *self.done.get_mut() = 0;
        *self.stopped.get_mut() = false;
    }

    /// Records that a chunk is finished.
    ///
    /// # Errors
    /// [`Error::Panicked`](crate::Error::Panicked) if the progress function panics.
    pub(crate) fn finish(&self, chunk: &Chunk) -> Result<()> {
        let done = self.done.fetch_add(chunk.len() as u64, Ordering::Relaxed) + chunk.len() as u64;
        self.report(done)
    }

    /// Records that the rows in no segment are finished, too.
    ///
    /// # Errors
    /// Those of [`finish`](Queue::finish).
    pub(super) fn finish_others(&self) -> Result<()> {
        self.report(self.rows())
    }

    fn report(&self, done: u64) -> Result<()> {
        let Some(progress) = self.progress else { return Ok(()) };
        panics::catch(|| panics::PROGRESS.into(), || progress(Progress { done, rows: self.rows() }))?;
        Ok(())
    }

    /// Ends the run early because a worker failed.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Returns whether a worker failed.
    pub(super) fn has_failed(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Returns the finished rows of those that workers claim.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns the rows that workers claim.
    pub(super) fn claimed_rows(&self) -> u64 {
        self.rows
    }

    /// Returns the rows of the job.
    pub(crate) fn rows(&self) -> u64 {
        self.others + self.rows
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.is_cancelled()
    }

    /// Returns whether the user has cancelled the run.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::super::in_tiles;
    use super::*;
    use crate::device::kernel::TILE_ROWS;
    use proptest::prelude::*;

    fn all(rows: u64) -> Vec<Segment> {
        vec![Segment { rows: 0..rows, owner: None, resident_on: None }]
    }

    proptest! {
        #[test]
        fn every_row_once_in_whole_tiles(
            rows in 0u64..10_000_000, tiles in 1usize..100, least in 0usize..500_000, workers in 1usize..40,
        ) {
            let queue = Queue::new(&all(rows), TILE_ROWS, tiles * TILE_ROWS, least, &[workers]);
            let mut next = 0;
            while let Some(chunk) = queue.claim(usize::MAX) {
                prop_assert_eq!(chunk.rows().start, next);
                prop_assert!(chunk.len() > 0 && chunk.len() <= tiles * TILE_ROWS);
                next = chunk.rows().end;
                prop_assert!(next == rows || next.is_multiple_of(TILE_ROWS as u64));
                queue.finish(&chunk).unwrap();
            }
            prop_assert_eq!((next, queue.done()), (rows, rows));
        }

        #[test]
        fn devices_claim_whole_tiles_in_panels(
            rows in 0u64..3_000_000, tiles in 1usize..20, panels in 0u32..5,
            borders in prop::collection::btree_set(0u64..700, 0..9), order in prop::collection::vec(0usize..3, 1..50),
            on in prop::collection::vec(prop::option::of(0usize..3), 10), more in 1usize..9, are_owned in any::<bool>(),
        ) {
            let (panel, tile) = (TILE_ROWS << panels, TILE_ROWS << 4);
            let borders = borders.into_iter().map(|tiles| (tiles * TILE_ROWS as u64).min(rows));
            let borders: Vec<u64> = [0].into_iter().chain(borders).chain([rows]).collect();
            let segment = |(pair, on): (&[u64], &Option<usize>)| {
                Segment { rows: pair[0]..pair[1], owner: on.filter(|_| are_owned), resident_on: *on }
            };
            let segments: Vec<Segment> = borders.windows(2).zip(&on).map(segment).collect();
            let segments = in_tiles(&segments, tile as u64);
            let queue = Queue::new(&segments, TILE_ROWS, tiles * TILE_ROWS, TILE_ROWS, &[2, 1, 3]);
            let queue = queue.in_panels(tile, panel);
            let resident = more * tiles * TILE_ROWS;
            let mut claimed: Vec<Vec<Range<u64>>> = vec![vec![]; 3];
            // At last, each device claims what is left of its tile.
            for device in order.into_iter().cycle().take(10_000).chain([0, 1, 2].into_iter().cycle().take(30_000)) {
                // Workers look for rows of their device, too.
                prop_assert!(queue.claim_own(device, (usize::MAX, usize::MAX)).is_none());
                if let Some(chunk) = queue.claim_for((device, 0), (usize::MAX, resident)) {
                    let rows = chunk.rows();
                    let segment = segments.iter().find(|segment| segment.rows.contains(&rows.start)).unwrap();
                    prop_assert!(segment.owner.is_none_or(|owner| owner == device));
                    let home = segment.resident_on;
                    let most = if home == Some(device) { resident } else { tiles * TILE_ROWS };
                    prop_assert!(chunk.len() <= most, "{} rows on {home:?}", chunk.len());
                    prop_assert_eq!(rows.start / panel as u64, (rows.end - 1) / panel as u64, "within a panel");
                    prop_assert!(!borders.iter().any(|border| rows.start < *border && *border < rows.end));
                    claimed[device].push(rows);
                }
            }
            for (device, claimed) in claimed.iter().enumerate() {
                // A device has all rows of its tiles, in order.
                let tiles: Vec<_> = (0..).map_while(|number| queue.tile(device, number)).collect();
                let mut expected = tiles.iter().flat_map(|tile| tile.clone());
                prop_assert!(claimed.iter().flat_map(|rows| rows.clone()).eq(expected.by_ref()));
                prop_assert!(tiles.iter().all(|own| own.start.is_multiple_of(tile as u64)));
            }
            let all: u64 = claimed.iter().flatten().map(|rows| rows.end - rows.start).sum();
            prop_assert_eq!(all, rows);
        }

        #[test]
        fn workers_claim_lots(
            rows in 0u64..3_000_000, most in 1usize..20, lots in prop::collection::vec(0u64..700, 0..12),
            order in prop::collection::vec(0usize..5, 1..60),
        ) {
            let tile = TILE_ROWS as u64;
            let mut firsts: Vec<u64> = lots.iter().map(|tiles| tiles * tile).collect();
            firsts.sort_unstable();
            let queue = Queue::new(&all(rows), TILE_ROWS, most * TILE_ROWS, TILE_ROWS, &[2, 3]);
            let queue = queue.in_lots(firsts.clone());
            let (mut claimed, mut lost) = (Vec::<Range<u64>>::new(), Vec::<Range<u64>>::new());
            // The rows at which the last chunk of each worker has ended.
            let mut ends = [None; 5];
            let mut moves = 0;
            // At last, one worker claims what is left: all others may have ended.
            for worker in order.into_iter().cycle().take(3000).chain(std::iter::repeat_n(0, 3000)) {
                let place = if worker < 2 { (0, worker) } else { (1, worker - 2) };
                let Some(chunk) = queue.claim_by(place, usize::MAX) else { break };
                let rows = chunk.rows();
                prop_assert!(chunk.len() <= most * TILE_ROWS && rows.start.is_multiple_of(tile));
                let lot = |row: u64| firsts.partition_point(|first| *first <= row);
                prop_assert!(lot(rows.start) == lot(rows.end - 1), "within a lot");
                if claimed.len() == 5 && lost.len() < 3 {
                    // As a device that was lost.
                    queue.give_back(&chunk);
                    lost.push(rows);
                    continue;
                }
                moves += usize::from(ends[worker].is_some_and(|end| end != rows.start));
                ends[worker] = Some(rows.end);
                claimed.push(rows);
            }
            claimed.sort_unstable_by_key(|rows| rows.start);
            let all = claimed.iter().try_fold(0, |end, rows| (rows.start == end).then_some(rows.end));
            prop_assert_eq!(all, Some(rows));
            // A worker goes elsewhere only for another lot, or for the rest of one, which is halved each time; and for
            // rows that were given back.
            prop_assert!(moves <= (firsts.len() + 1) * 12 + 3 * lost.len(), "{moves} moves");
        }

        #[test]
        fn rows_of_a_device_go_to_its_workers(
            tiles in prop::collection::vec((0u64..50, prop::option::of((0usize..3, any::<bool>()))), 1..10),
            rest in 1u64..4096,
            most in prop::collection::vec(1usize..20, 3),
        ) {
            let tile = TILE_ROWS as u64;
            let mut end = 0;
            let mut segments: Vec<Segment> = tiles.iter().map(|&(tiles, owner)| {
                let start = end;
                end += tiles * tile;
                let (owner, is_resident) = owner.map_or((None, false), |(owner, resident)| (Some(owner), resident));
                Segment { rows: start..end, owner, resident_on: owner.filter(|_| is_resident) }
            }).collect();
            segments.push(Segment { rows: end..end + rest, owner: None, resident_on: None });
            let queue = Queue::new(&segments, TILE_ROWS, 16 * TILE_ROWS, TILE_ROWS, &[2, 1, 3]);
            let mut claimed = Vec::new();
            let mut exhausted = 0;
            for device in (0..3).cycle() {
                let most = most[device] * TILE_ROWS;
                let own = queue.claim_own(device, (most, 5 * most));
                let owner = own.is_some().then_some(device);
                let Some(chunk) = own.or_else(|| queue.claim(most)) else {
                    exhausted += 1;
                    if exhausted == 3 { break } else { continue }
                };
                exhausted = 0;
                let (start, end) = (chunk.rows().start, chunk.rows().end);
                let home = segments.iter().find(|segment| segment.rows.contains(&start)).unwrap();
                let most = if home.resident_on.is_some() { 5 * most } else { most };
                prop_assert!(chunk.len() <= most && chunk.index() == claimed.len() as u64);
                prop_assert!(home.owner == owner && end <= home.rows.end && start.is_multiple_of(tile));
                claimed.push((start, end));
            }
            claimed.sort_unstable();
            let ends = [0].into_iter().chain(claimed.iter().map(|rows| rows.1));
            prop_assert!(ends.zip(claimed.iter().map(|rows| rows.0).chain([end + rest])).all(|(a, b)| a == b));
        }
    }

    #[test]
    fn chunks_grow_at_the_start_and_shrink_towards_the_end() {
        let queue = Queue::new(&all(100 * TILE_ROWS as u64), TILE_ROWS, 16 * TILE_ROWS, 2 * TILE_ROWS, &[1, 3]);
        let tiles: Vec<usize> =
            std::iter::from_fn(|| queue.claim(usize::MAX)).map(|chunk| chunk.len() / TILE_ROWS).collect();
        assert_eq!(tiles, [4, 8, 12, 16, 15, 11, 8, 6, 5, 3, 3, 2, 2, 2, 2, 1]);
    }

    #[test]
    fn the_last_claim_is_told_and_nothing_else() {
        let segments =
            [all(4 * TILE_ROWS as u64), vec![Segment { rows: 16384..20000, owner: Some(0), resident_on: None }]]
                .concat();
        for stops in [false, true] {
            let (exhausted, is_exhausted) = std::sync::mpsc::channel();
            let queue = Queue::new(&segments, TILE_ROWS, 2 * TILE_ROWS, TILE_ROWS, &[1]).on_exhausted(Some(exhausted));
            while queue.claim(usize::MAX).is_some() {
                assert!(is_exhausted.try_recv().is_err());
            }
            if stops {
                queue.stop();
            }
            assert_eq!(queue.claim_own(0, (usize::MAX, usize::MAX)).is_none(), stops);
            drop(queue);
            assert_eq!(is_exhausted.recv().is_err(), stops);
        }
        let (exhausted, is_exhausted) = std::sync::mpsc::channel();
        let queue = Queue::new(&all(0), TILE_ROWS, TILE_ROWS, TILE_ROWS, &[1]).on_exhausted(Some(exhausted));
        assert!(is_exhausted.try_recv().is_ok() && queue.claim(usize::MAX).is_none());
    }

    #[test]
    fn rows_that_are_given_back_are_claimed_again() {
        let mut queue = Queue::new(&all(10 * TILE_ROWS as u64), TILE_ROWS, 2 * TILE_ROWS, 2 * TILE_ROWS, &[1]);
        let chunks: Vec<Chunk> = std::iter::from_fn(|| queue.claim(usize::MAX)).collect();
        for chunk in &chunks[1..3] {
            queue.give_back(chunk);
        }
        let again: Vec<Chunk> = std::iter::from_fn(|| queue.claim(usize::MAX)).collect();
        let mut rows: Vec<_> = again.iter().map(Chunk::rows).collect();
        rows.sort_by_key(|rows| rows.start);
        assert_eq!(rows, [chunks[1].rows(), chunks[2].rows()]);
        assert_eq!(again[0].index(), chunks.len() as u64, "a chunk of its own");
        queue.stop();
        queue.restart();
        assert!(queue.done() == 0 && queue.claim(usize::MAX).is_some_and(|first| first.rows() == chunks[0].rows()));
    }

    #[test]
    fn a_stopped_queue_hands_out_nothing() {
        let segments =
            [all(1 << 20), vec![Segment { rows: 1 << 20..1 << 21, owner: Some(0), resident_on: None }]].concat();
        let queue = Queue::new(&segments, TILE_ROWS, TILE_ROWS, TILE_ROWS, &[1]);
        let claim_own = || queue.claim_own(0, (usize::MAX, usize::MAX));
        assert!(queue.claim(usize::MAX).is_some() && claim_own().is_some());
        queue.stop();
        assert!(queue.claim(usize::MAX).is_none() && claim_own().is_none());
    }
}
