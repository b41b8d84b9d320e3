//! Halos: rows around those of a chunk that a kernel reads, too.

use std::ops::Range;

/// How many rows before and behind those of a chunk a kernel reads of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Halo {
    /// Rows before the first one.
    pub before: usize,
    /// Rows behind the last one.
    pub after: usize,
}

impl Halo {
    /// Returns the rows that a kernel reads for these rows of a job of `total_rows`: those of the halo, too, as far as
    /// they exist.
    pub fn window(self, rows: &Range<u64>, total_rows: u64) -> Range<u64> {
        let end = rows.end.saturating_add(self.after as u64).min(total_rows);
        rows.start.saturating_sub(self.before as u64)..end.max(rows.end)
    }

    /// Returns the halo in a job of so many rows, of which it has no more; the same if their number is unknown: 0.
    pub(crate) fn of_rows(self, total_rows: u64) -> Halo {
        let most = if total_rows == 0 { usize::MAX } else { usize::try_from(total_rows).unwrap_or(usize::MAX) };
        Halo { before: self.before.min(most), after: self.after.min(most) }
    }

    /// Returns whether it has no rows.
    pub fn is_empty(self) -> bool {
        self == Halo::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_ends_where_the_job_does() {
        let halo = Halo { before: 5, after: 3 };
        for (rows, window) in [(0..10, 0..13), (4..10, 0..13), (10..90, 5..93), (90..98, 85..100), (99..100, 94..100)] {
            assert_eq!(halo.window(&rows, 100), window);
        }
        assert_eq!((halo.of_rows(4), halo.of_rows(0)), (Halo { before: 4, after: 3 }, halo));
        assert_eq!((Halo::default().window(&(7..9), 0), Halo::default().is_empty()), (7..9, true));
    }
}
