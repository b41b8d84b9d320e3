//! Tiles of rows with any number of elements, and the turns of a block of threads over them.
//!
//! A block of 256 threads makes 16 turns. In each turn it covers whole rows of up to 256 elements, a power of two of
//! them, or 256 columns of one row. So a thread has the same column in all turns. With rows of one element, a tile has
//! 4096 rows. With very wide rows it has fewer turns. The tiles of jobs with reductions depend on the width alone, and
//! so do their results.

use std::ops::Range;

use crate::device::kernel::{TILE_ROWS, TILE_THREADS};

/// The elements of a host block: few enough that several registers fit in the L1 cache, and enough that the cost of
/// dispatch is negligible.
pub(super) const BLOCK_ELEMENTS: usize = 1024;

/// The turns of a block.
const TURNS: usize = TILE_ROWS / TILE_THREADS;

/// The elements of a tile of very wide rows whose columns are reduced: 32 MiB of f64. Each tile has states to combine.
const MOST_REDUCED: usize = 1 << 22;

/// The elements of a tile of very wide rows without reductions. A chunk is whole tiles, and should fit into the caches
/// of the host.
const MOST_ELEMENTS: usize = 1 << 16;

/// The elements of a tile of which one block computes whole rows.
const MOST_OF_BLOCK: usize = 1 << 14;

/// How rows of one width are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiling {
    /// The elements of a row.
    pub(super) width: usize,
    /// The rows that a block covers in a turn: a power of two.
    pub(super) rows_at_once: usize,
    /// The turns of a block.
    pub(super) turns: usize,
    /// The strips of columns of a tile, which have 256 columns each, but for the last one. Each is the work of a block.
    /// If elements are reduced within rows, one block computes whole rows, as one strip.
    pub(super) strips: usize,
}

/// Some elements of a tile that the host computes at a time. They are contiguous in columns with all elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The row of the first element.
    pub(super) row: usize,
    /// The column of the first element.
    pub(super) column: usize,
    pub(super) elements: Range<usize>,
}

impl Tiling {
    /// The tiles of rows of this width, for a program that reduces rows, or has none but outputs.
    pub(super) fn of(width: usize, reduces: bool) -> Tiling {
        if width <= TILE_THREADS {
            // The largest power of two that is not larger.
            let rows_at_once = 1 << (TILE_THREADS / width.max(1)).ilog2();
            return Tiling { width, rows_at_once, turns: TURNS, strips: 1 };
        }
        let most = if reduces { MOST_REDUCED } else { MOST_ELEMENTS };
        let turns = (most / width).clamp(1, TURNS);
        Tiling { width, rows_at_once: 1, turns, strips: width.div_ceil(TILE_THREADS) }
    }

    /// The same for a program that reduces elements within rows. A block covers 256 columns after the other.
    pub(super) fn of_whole_rows(width: usize, reduces: bool) -> Tiling {
        let tiling = Tiling::of(width, reduces);
        let turns = match reduces {
            true => tiling.turns,
            // Few turns, for many blocks.
            false => tiling.turns.min((MOST_OF_BLOCK / width).max(1)),
        };
        if width > TILE_THREADS { Tiling { turns, strips: 1, ..tiling } } else { tiling }
    }

    /// The same with as many turns as make the rows of a tile a power of two.
    pub(super) fn with_power_of_two(self) -> Tiling {
        Tiling { turns: 1 << self.turns.ilog2(), ..self }
    }

    /// The same with as few turns as make the rows of a tile at most these, which are at least those of a turn.
    pub(super) fn with_at_most(self, rows: usize) -> Tiling {
        Tiling { turns: self.turns.min((rows / self.rows_at_once).max(1)), ..self }
    }

    pub(super) fn tile_rows(self) -> usize {
        self.rows_at_once * self.turns
    }

    /// The most elements of a block of threads.
    pub(super) fn elements_of_block(self) -> usize {
        let at_once = if self.strips == 1 { self.rows_at_once * self.width } else { TILE_THREADS };
        self.turns * at_once
    }

    /// The threads of a block that have an element.
    pub(super) fn lanes(self) -> usize {
        if self.width <= TILE_THREADS { self.width * self.rows_at_once } else { TILE_THREADS }
    }

    /// The columns that the host accumulates at a time: whole rows, or whole strips.
    pub(super) fn columns_at_once(self) -> usize {
        if self.strips == 1 && self.has_small_rows() { self.width } else { BLOCK_ELEMENTS }
    }

    /// Whether the host computes whole rows at a time, if it has to.
    pub(super) fn has_small_rows(self) -> bool {
        self.width <= BLOCK_ELEMENTS
    }

    /// The spans of some rows of a tile and these columns, in order. Each begins where a turn does.
    pub(super) fn spans(self, rows: Range<usize>, columns: Range<usize>) -> impl Iterator<Item = Span> {
        let is_narrow = self.width <= TILE_THREADS;
        let rows_of_span = if is_narrow { BLOCK_ELEMENTS / self.lanes() * self.rows_at_once } else { 1 };
        let end = rows.end;
        rows.step_by(rows_of_span).map(move |row| {
            let last = end.min(row + rows_of_span) - 1;
            Span {
                row,
                column: columns.start,
                elements: row * self.width + columns.start..last * self.width + columns.end,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_element_have_tiles_of_4096_rows() {
        let tiling = Tiling::of(1, true);
        assert_eq!((tiling.tile_rows(), tiling.lanes(), tiling.strips), (TILE_ROWS, TILE_THREADS, 1));
    }

    #[test]
    fn wide_rows_without_reductions_have_small_tiles() {
        for width in [1, 100, 256, 1000, 4096] {
            assert_eq!(Tiling::of(width, false), Tiling::of(width, true), "{width}");
        }
        let rows = |width| (Tiling::of(width, false).tile_rows(), Tiling::of(width, true).tile_rows());
        assert_eq!((rows(8192), rows(100_000), rows(1 << 23)), ((8, 16), (1, 16), (1, 1)));
    }

    #[test]
    fn a_block_of_whole_rows_has_one_strip() {
        for reduces in [false, true] {
            for width in [1, 2, 255, 256] {
                assert_eq!(Tiling::of_whole_rows(width, reduces), Tiling::of(width, reduces), "{width}");
            }
            let of = |width| {
                let tiling = Tiling::of_whole_rows(width, reduces);
                (tiling.tile_rows(), tiling.strips, tiling.lanes())
            };
            let rows = |few: usize| if reduces { 16 } else { few };
            assert_eq!((of(257), of(4096), of(100_000)), ((16, 1, 256), (rows(4), 1, 256), (rows(1), 1, 256)));
        }
    }

    /// Every element of a tile is in one span, in which columns are contiguous.
    #[test]
    fn spans_cover_every_element_once() {
        let widths = [1, 2, 3, 5, 64, 127, 128, 129, 255, 256, 257, 1000, 1024, 1025, 4097, 300_000];
        for (width, reduces) in widths.into_iter().flat_map(|width| [(width, false), (width, true)]) {
            let tiling = Tiling::of(width, reduces);
            assert!(tiling.lanes() <= TILE_THREADS && tiling.rows_at_once.is_power_of_two());
            for rows in [1, 2, tiling.tile_rows() - tiling.tile_rows() / 3, tiling.tile_rows()] {
                let mut seen = vec![0_u8; rows * width];
                for start in (0..width).step_by(tiling.columns_at_once()) {
                    let columns = start..width.min(start + tiling.columns_at_once());
                    for span in tiling.spans(0..rows, columns) {
                        assert!(span.elements.len() <= BLOCK_ELEMENTS);
                        assert_eq!(span.elements.start, span.row * width + span.column);
                        assert!(tiling.strips > 1 || span.row.is_multiple_of(tiling.rows_at_once));
                        seen[span.elements].iter_mut().for_each(|count| *count += 1);
                    }
                }
                assert!(seen.iter().all(|count| *count == 1), "width {width}, {rows} rows");
            }
        }
    }
}
