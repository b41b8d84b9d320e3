//! Compaction: kernels that keep some of the rows only, whose outputs have these rows one behind the other.

use super::OutputColumn;
use super::linearizer::Linearizer;
use crate::data::Chunk;
use crate::device::kernel::Columns;
use crate::error::{Error, Result};
use crate::ops::Operator;

/// The compaction of one run. The partial results of a chunk are the numbers of rows that the kernel kept, one for
/// each tile.
pub(crate) struct Compaction<'w> {
    operator: &'w dyn Operator,
    order: Linearizer,
}

impl<'w> Compaction<'w> {
    /// The compaction of a run of this operator, if it compacts.
    pub(crate) fn of(operator: &'w dyn Operator) -> Option<Self> {
        operator.compacts().then(|| Compaction { operator, order: Linearizer::default() })
    }

    /// Counts the rows kept of a chunk, so that the place of later chunks is known.
    ///
    /// # Errors
    /// [`Error::Job`] if the kernel claims more rows than a tile has.
    pub(super) fn count(&self, chunk: &Chunk, partials: &[u8]) -> Result<()> {
        let tile_rows = self.operator.kernel().columns.tile_rows;
        let mut rows = 0;
        for (tile, count) in tiles(partials).enumerate() {
            let most = tile_rows.min(chunk.len() - tile * tile_rows) as u64;
            if count > most {
                let entry = &self.operator.kernel().entry;
                return Err(Error::Job(format!(
                    "the kernel '{entry}' says that it kept {count} rows of a tile of {most}"
                )));
            }
            rows += count;
        }
        self.order.count(chunk.index(), rows);
        Ok(())
    }

    /// Writes the rows kept of a chunk, which was counted, to their place, and returns how many bytes they are. Waits
    /// until the place is known. `column` gives the staged rows of each output.
    ///
    /// # Errors
    /// Those of the sinks; [`Error::Abandoned`] if the run was stopped.
    pub(super) fn write<'c>(
        &self,
        chunk: &Chunk,
        partials: &[u8],
        outputs: &[OutputColumn<'_>],
        column: impl Fn(usize) -> Option<&'c [u8]>,
    ) -> Result<u64> {
        let place = self.order.place(chunk.index())?;
        let Columns { outputs: sizes, tile_rows, .. } = &self.operator.kernel().columns;
        let mut written = 0;
        for (k, (&size, output)) in sizes.iter().zip(outputs).enumerate() {
            let Some(rows) = column(k) else { continue };
            let mut first = place;
            for (tile, count) in tiles(partials).enumerate().filter(|(_, count)| *count > 0) {
                let from = tile * tile_rows * size;
                output.sink.write(first * output.elements, &rows[from..from + count as usize * size])?;
                first += count;
                written += count * size as u64;
            }
        }
        Ok(written)
    }

    /// Whether the place of a chunk is known, or never will be: [`write`](Compaction::write) does not wait then.
    pub(super) fn is_known(&self, chunk: &Chunk) -> bool {
        self.order.is_known(chunk.index())
    }

    /// Ends the run early: nobody waits any more.
    pub(super) fn stop(&self) {
        self.order.stop();
    }

    /// Rows kept of all chunks.
    pub(crate) fn rows(&self) -> u64 {
        self.order.rows()
    }
}

/// One word for each tile.
fn tiles(partials: &[u8]) -> impl Iterator<Item = u64> {
    partials.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word))
}
