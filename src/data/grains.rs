//! Rows of outputs that are encoded some at a time: the grains of a file, such as the row groups of Parquet.
//!
//! Workers write their chunks in any order. The rows of a grain that one write has as a whole are encoded from there.
//! Others are put together in memory first. Each grain in memory has rows that are not written yet, which are those of
//! a chunk under way or of a next one. So there are at most two for each chunk under way, and one for the next ones of
//! each kind of device.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The rows of an output in grains of the same length, but the last one.
#[derive(Debug)]
pub(super) struct Grains {
    /// The rows of a grain.
    len: u64,
    /// The bytes of a row.
    size: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// All rows.
    rows: u64,
    /// How many of them are encoded.
    encoded: u64,
    /// The grains of which some rows are written.
    begun: BTreeMap<u64, Arc<Mutex<Begun>>>,
}

#[derive(Debug)]
struct Begun {
    /// Empty before the first row is written.
    bytes: Vec<u8>,
    /// How many of them are written.
    filled: usize,
}

impl Grains {
    /// `rows` rows of `size` bytes, in grains of `len` rows.
    pub(super) fn new(rows: u64, len: u64, size: usize) -> Grains {
        Grains { len: len.max(1), size, state: Mutex::new(State { rows, encoded: 0, begun: BTreeMap::new() }) }
    }

    /// Returns the number of all rows.
    pub(super) fn rows(&self) -> u64 {
        lock(&self.state).rows
    }

    fn grain(&self, grain: u64, rows: u64) -> Range<u64> {
        grain * self.len..((grain + 1).saturating_mul(self.len)).min(rows)
    }

    /// Adds the bytes of these rows, which exist. `encode` gets each grain whose rows are all written then.
    ///
    /// # Errors
    /// Those of `encode`.
    pub(super) fn write<E>(
        &self,
        rows: Range<u64>,
        bytes: &[u8],
        encode: impl Fn(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut at, mut rest) = (rows.start, bytes);
        while at < rows.end {
            let grain = at / self.len;
            let own = self.grain(grain, self.rows());
            let end = own.end.min(rows.end);
            let (now, after) = rest.split_at((end - at) as usize * self.size);
            let whole = if (at..end) == own { None } else { self.add(grain, &own, at, now) };
            if (at..end) == own || whole.is_some() {
                encode(grain, whole.as_deref().unwrap_or(now))?;
                lock(&self.state).encoded += own.end - own.start;
            }
            (at, rest) = (end, after);
        }
        Ok(())
    }

    /// Adds some rows of a grain, and returns all of them if none is missing.
    fn add(&self, grain: u64, own: &Range<u64>, at: u64, bytes: &[u8]) -> Option<Vec<u8>> {
        let new = || Arc::new(Mutex::new(Begun { bytes: vec![], filled: 0 }));
        // Threads copy to different grains at the same time.
        let begun = lock(&self.state).begun.entry(grain).or_insert_with(new).clone();
        let mut begun = lock(&begun);
        let len = (own.end - own.start) as usize * self.size;
        begun.bytes.resize(len, 0);
        let first = (at - own.start) as usize * self.size;
        begun.bytes[first..first + bytes.len()].copy_from_slice(bytes);
        begun.filled += bytes.len();
        if begun.filled < len {
            return None;
        }
        lock(&self.state).begun.remove(&grain);
        Some(std::mem::take(&mut begun.bytes))
    }

    /// Leaves the first rows.
    pub(super) fn truncate(&self, rows: u64) {
        lock(&self.state).rows = rows;
    }

    /// Encodes the last grain if there are fewer rows than there was room for. Returns whether all rows are encoded.
    ///
    /// # Errors
    /// Those of `encode`.
    pub(super) fn finish<E>(&self, encode: impl Fn(u64, &[u8]) -> Result<(), E>) -> Result<bool, E> {
        let mut state = lock(&self.state);
        for (grain, begun) in std::mem::take(&mut state.begun) {
            let (own, begun) = (self.grain(grain, state.rows), lock(&begun));
            let rows = own.end.saturating_sub(own.start);
            if begun.filled == rows as usize * self.size {
                encode(grain, &begun.bytes[..begun.filled])?;
                state.encoded += rows;
            }
        }
        Ok(state.encoded == state.rows)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    proptest! {
        /// Each grain is encoded once, with its rows, in whatever pieces and order they are written.
        #[test]
        fn grains_are_whole(
            room in 0u64..60,
            len in 1u64..20,
            cuts in prop::collection::vec(0u64..60, 0..8),
            kept in 0u64..60,
            seed in any::<u64>(),
        ) {
            let kept = kept.min(room);
            let grains = Grains::new(room, len, 2);
            let encoded = Mutex::new(BTreeMap::new());
            let encode = |grain: u64, bytes: &[u8]| {
                let values: Vec<u16> = bytemuck::pod_collect_to_vec(bytes);
                prop_assert!(encoded.lock().unwrap().insert(grain, values).is_none(), "grain {grain} is encoded twice");
                Ok(())
            };
            let mut cuts: Vec<u64> = cuts.into_iter().filter(|cut| *cut < kept).chain([0, kept]).collect();
            cuts.sort_unstable();
            let mut pieces: Vec<Range<u64>> = cuts.windows(2).map(|cut| cut[0]..cut[1]).collect();
            pieces.sort_by_key(|piece| piece.start.wrapping_mul(seed | 1));
            for piece in pieces {
                let values: Vec<u16> = piece.clone().map(|row| row as u16).collect();
                grains.write(piece, bytemuck::cast_slice(&values), encode)?;
            }
            if kept < room {
                grains.truncate(kept);
            }
            prop_assert!(grains.finish(encode)?);
            prop_assert_eq!(grains.rows().div_ceil(len), encoded.lock().unwrap().len() as u64);
            let all: Vec<u16> = encoded.into_inner().unwrap().into_values().flatten().collect();
            prop_assert!(all.into_iter().map(u64::from).eq(0..kept));
        }
    }

    #[test]
    fn a_missing_row_is_noticed() {
        let grains = Grains::new(4, 4, 1);
        let encode = |_: u64, _: &[u8]| Ok::<(), Infallible>(());
        grains.write(1..3, &[1, 2], encode).unwrap();
        assert!(!grains.finish(encode).unwrap());
        let grains = Grains::new(12, 4, 1);
        grains.write(0..4, &[1; 4], encode).unwrap();
        grains.write(8..12, &[1; 4], encode).unwrap();
        assert!(!grains.finish(encode).unwrap(), "no row of the second grain was written");
    }

    #[test]
    fn few_grains_are_in_memory() {
        let grains = Grains::new(1000, 10, 1);
        let encode = |_: u64, _: &[u8]| Ok::<(), Infallible>(());
        for chunk in [0..25u64, 50..75, 25..50, 75..100] {
            grains.write(chunk.clone(), &[0; 25], encode).unwrap();
            assert!(lock(&grains.state).begun.len() <= 3, "behind {chunk:?}");
        }
        assert!(lock(&grains.state).begun.is_empty());
    }
}
