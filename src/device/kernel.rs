//! What a device computes: one kernel as CUDA C++ and as its plain twin on the host.

use std::sync::Arc;

/// Rows of one **tile**, the unit in which reductions are shaped: every tile starts at a multiple of this row number and
/// is reduced by itself in a fixed order, so that no result depends on where chunks begin or end. Chunks are whole
/// tiles, except the last.
pub const TILE_ROWS: usize = 4096;

/// Threads of the block that computes one tile on a GPU, and lanes of a reduction inside a tile everywhere.
pub const TILE_LANES: usize = 256;

/// Where a kernel's columns lie: inputs, then outputs, then the partials.
///
/// The order is the same everywhere: in kernel arguments, in slots and in device blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Bytes per row of each input.
    pub inputs: Vec<usize>,
    /// Bytes per row of each output.
    pub outputs: Vec<usize>,
    /// Eight-byte words that the kernel writes per **tile** for its reductions, 0 if there are none. The words of
    /// one tile stand together.
    pub partial_words: usize,
}

impl Columns {
    /// Bytes of the partials of `rows` rows.
    pub fn partial_bytes(&self, rows: usize) -> usize {
        rows.div_ceil(TILE_ROWS) * self.partial_words * 8
    }
}

/// A kernel, device-neutral.
///
/// # Calling convention on CUDA
/// `extern "C" __global__ void ENTRY(long long first_row, long long rows, in0, in1, …, out0, …, partials)`: device pointers
/// in the order of [`Columns`], the partials pointer only when `partial_words > 0`. One block of [`TILE_LANES`]
/// threads computes one tile: the grid has `rows.div_ceil(TILE_ROWS)` blocks, no dynamic shared memory.
pub struct Kernel {
    /// The name of the entry point.
    pub entry: String,
    /// CUDA C++ for NVRTC, complete: no includes.
    pub source: String,
    /// The columns.
    pub columns: Columns,
    /// Makes a twin with scratch memory of its own; called once a lane.
    pub twin: Box<dyn Fn() -> Box<dyn HostKernel> + Send + Sync>,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").field("entry", &self.entry).field("columns", &self.columns).finish_non_exhaustive()
    }
}

/// The twin of a kernel: the same function of the same bytes, on the host.
pub trait HostKernel: Send {
    /// Computes `rows` rows that start at global row `first_row`, a multiple of [`TILE_ROWS`].
    ///
    /// Each slice of `inputs` and `outputs` holds exactly `rows` elements in native byte order, aligned to its
    /// element; `partials` holds [`Columns::partial_bytes`]`(rows)` bytes, aligned to 8 if it is not empty. Every byte of `outputs` and
    /// `partials` is written, none is read.
    ///
    /// # Panics
    /// If a slice is of another length or alignment.
    fn run(&mut self, first_row: u64, rows: usize, inputs: &[&[u8]], outputs: &mut [&mut [u8]], partials: &mut [u8]);
}

/// A kernel as it is shared by the lanes.
pub type SharedKernel = Arc<Kernel>;
