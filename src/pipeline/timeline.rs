//! What happened when: every stage of every chunk, for `--trace`.

use std::ops::Range;
use std::time::Duration;

use crate::data::Chunk;

/// One stage of one chunk.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) track: Track,
    pub(crate) name: &'static str,
    pub(crate) chunk: u64,
    pub(crate) rows: Range<u64>,
    /// On the clock of the run, which begins at its epoch.
    pub(crate) begin: Duration,
    pub(crate) end: Duration,
}

/// Where a stage ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Track {
    /// On the engine of the device that copies in.
    CopyIn,
    /// On the device's stream of kernels.
    Compute,
    /// On the engine of the device that copies out.
    CopyOut,
    /// On the lane's own thread.
    Lane,
}

impl Span {
    pub(super) fn new(track: Track, name: &'static str, chunk: &Chunk, begin: Duration, end: Duration) -> Span {
        Span { track, name, chunk: chunk.index(), rows: chunk.rows(), begin, end }
    }
}
