//! Compaction: kernels that select some of the rows. Their outputs contain the selected rows contiguously, in the
//! order of rows.

use super::OutputColumn;
use super::linearizer::Linearizer;
use crate::data::Chunk;
use crate::device::kernel::Columns;
use crate::error::{Error, KernelError, Result};
use crate::ops::Operator;

/// The bytes of selected rows that are written at a time, unless a tile has more. A call of a sink takes a lock or
/// calls the system, which takes longer than to copy the rows of a tile; and so many bytes stay in the cache of a core.
const GATHERED: usize = 256 << 10;

/// The compaction of one run. The first word of the partial results of each tile is the number of its selected rows.
pub(crate) struct Compaction<'w> {
    operator: &'w dyn Operator,
    /// Where the selected rows begin in the outputs.
    first_row: u64,
    order: Linearizer,
}

impl<'w> Compaction<'w> {
    /// Creates the compaction for a run of this operator, whose selected rows begin at `first_row` of the outputs;
    /// `None` if the operator does not compact.
    pub(crate) fn of(operator: &'w dyn Operator, first_row: u64) -> Option<Self> {
        operator.compacts().then(|| Compaction { operator, first_row, order: Linearizer::default() })
    }

    /// Counts the selected rows of a chunk, on which the places of later chunks depend.
    ///
    /// # Errors
    /// [`Error::InvalidKernel`] if the kernel reports more selected rows than a tile has.
    pub(super) fn count(&self, chunk: &Chunk, partials: &[u8]) -> Result<()> {
        let columns = &self.operator.kernel().columns;
        let (tile_rows, mut rows) = (columns.tile_rows, 0);
        for (tile, count) in tiles(columns, chunk, partials).enumerate() {
            let len = tile_rows.min(chunk.len() - tile * tile_rows) as u64;
            if count > len {
                let kernel = self.operator.kernel().entry.clone();
                return Err(KernelError::TooManySelected { kernel, selected: count, rows: len }.into());
            }
            rows += count;
        }
        self.order.count(chunk.index(), rows);
        Ok(())
    }

    /// Returns whether any of the rows of a chunk are selected.
    pub(super) fn keeps(&self, first_row: u64, rows: usize, partials: &[u8]) -> bool {
        let chunk = Chunk::new(0, first_row..first_row + rows as u64);
        tiles(&self.operator.kernel().columns, &chunk, partials).any(|count| count > 0)
    }

    /// Waits until the place of a counted chunk is known, and returns it: the row of the outputs where its selected
    /// rows begin.
    ///
    /// # Errors
    /// [`Error::abandoned`] if the run was stopped.
    pub(super) fn place(&self, chunk: &Chunk) -> Result<u64> {
        Ok(self.first_row + self.order.place(chunk.index()).ok_or_else(Error::abandoned)?)
    }

    /// Writes the selected rows of a counted chunk to their place, and returns their size in bytes. `column` returns
    /// the staged rows of each output.
    ///
    /// # Errors
    /// Those of the sinks.
    pub(super) fn write<'c>(
        &self,
        (chunk, place): (&Chunk, u64),
        partials: &[u8],
        outputs: &[OutputColumn<'_>],
        column: impl Fn(usize) -> Option<&'c [u8]>,
    ) -> Result<u64> {
        let columns = &self.operator.kernel().columns;
        let Columns { outputs: sizes, tile_rows, .. } = columns;
        let (mut written, mut gathered) = (0, Vec::with_capacity(GATHERED));
        for (k, (&size, output)) in sizes.iter().zip(outputs).enumerate() {
            let Some(rows) = column(k) else { continue };
            let mut first = place;
            let mut write = |gathered: &mut Vec<u8>| -> Result<()> {
                if !gathered.is_empty() {
                    output.write_elements(first * output.elements, gathered)?;
                    first += (gathered.len() / size) as u64;
                    written += gathered.len() as u64;
                    gathered.clear();
                }
                Ok(())
            };
            for (tile, count) in tiles(columns, chunk, partials).enumerate() {
                let from = tile * tile_rows * size;
                let selected = &rows[from..from + count as usize * size];
                if gathered.len() + selected.len() > GATHERED {
                    write(&mut gathered)?;
                }
                gathered.extend_from_slice(selected);
            }
            write(&mut gathered)?;
        }
        Ok(written)
    }

    /// Returns whether the place of a chunk is known, or the run was stopped. If so, [`place`](Compaction::place)
    /// does not wait.
    pub(super) fn is_known(&self, chunk: &Chunk) -> bool {
        self.order.is_known(chunk.index())
    }

    /// Ends the run early, and wakes all workers that wait.
    pub(super) fn stop(&self) {
        self.order.stop();
    }

    /// Forgets all chunks. No worker may be waiting.
    pub(super) fn restart(&mut self) {
        self.order = Linearizer::default();
    }

    /// Returns the selected rows of all chunks.
    pub(crate) fn rows(&self) -> u64 {
        self.order.rows()
    }
}

/// Returns the number of selected rows of each tile of a chunk.
fn tiles(columns: &Columns, chunk: &Chunk, partials: &[u8]) -> impl Iterator<Item = u64> {
    let words = columns.partial_words;
    partials[columns.tile_partials(0..chunk.len())]
        .as_chunks::<8>()
        .0
        .iter()
        .step_by(words.max(1))
        .map(|word| u64::from_ne_bytes(*word))
}
