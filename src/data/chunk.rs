//! The unit of scheduling.

use std::ops::Range;

/// A range of rows that one worker of a run carries through a device. The queue of the run makes each chunk once, so that no two
/// have rows in common.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    index: u64,
    rows: Range<u64>,
}

impl Chunk {
    /// The chunk number `index`, in claim order. `rows` must not run backwards.
    pub(crate) fn new(index: u64, rows: Range<u64>) -> Self {
        debug_assert!(rows.start <= rows.end);
        Chunk { index, rows }
    }

    /// Its number, counted from 0 in the order in which chunks were claimed.
    pub(crate) fn index(&self) -> u64 {
        self.index
    }

    /// Its rows in the dataset.
    pub(crate) fn rows(&self) -> Range<u64> {
        self.rows.clone()
    }

    /// How many rows it has.
    pub(crate) fn len(&self) -> usize {
        // A chunk fits in memory several times over.
        (self.rows.end - self.rows.start) as usize
    }
}
