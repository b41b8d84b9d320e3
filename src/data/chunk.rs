//! The unit of scheduling.

use std::ops::Range;

/// A range of rows that one worker of a run carries through a device. The queue of the run creates each chunk once,
/// so that no two chunks share a row.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    index: u64,
    rows: Range<u64>,
}

impl Chunk {
    /// Creates the chunk with number `index`, in claim order. `rows` must not run backwards.
    pub(crate) fn new(index: u64, rows: Range<u64>) -> Self {
        debug_assert!(rows.start <= rows.end);
        Chunk { index, rows }
    }

    /// Returns the number of the chunk, counted from 0 in claim order.
    pub(crate) fn index(&self) -> u64 {
        self.index
    }

    /// Returns the rows of the chunk in the dataset.
    pub(crate) fn rows(&self) -> Range<u64> {
        self.rows.clone()
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        // A chunk fits in memory several times over, so its length fits a `usize`.
        (self.rows.end - self.rows.start) as usize
    }
}
