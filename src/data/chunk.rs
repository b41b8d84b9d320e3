//! The unit of scheduling.

use std::ops::Range;

/// A range of rows that exactly one lane of one run carries.
///
/// Only the pipeline makes chunks, and no two of one run of a sink have rows in common, so that writes do not overlap. A sink that
/// hands out its memory checks that all the same ([`SinkMemory`](super::SinkMemory)).
#[derive(Debug)]
pub struct Chunk {
    index: u64,
    rows: Range<u64>,
}

impl Chunk {
    /// The chunk number `index`, in claim order. `rows` must not run backwards.
    pub(crate) fn new(index: u64, rows: Range<u64>) -> Self {
        debug_assert!(rows.start <= rows.end);
        Chunk { index, rows }
    }

    /// The same rows of a dataset that has `elements` for each of the job's.
    pub(crate) fn times(&self, elements: u64) -> Chunk {
        Chunk { index: self.index, rows: self.rows.start * elements..self.rows.end * elements }
    }

    /// Its number, counted from 0 in the order in which chunks were claimed.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Its rows in the dataset.
    pub fn rows(&self) -> Range<u64> {
        self.rows.clone()
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        // A chunk fits in memory several times over.
        (self.rows.end - self.rows.start) as usize
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
