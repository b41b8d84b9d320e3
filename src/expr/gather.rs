//! Reads inputs on the host, in the rows of a block or in others.

use bytemuck::{Pod, cast_slice};

use super::apply::Block;
use super::shape::Extent;
use super::view::View;

/// An input on the host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InputRows<'a> {
    /// Its rows of a chunk, with those of its halo, or the row that is the same for all rows.
    pub(super) rows: &'a [u8],
    /// How many of its rows are before the first one of the chunk.
    pub(super) front: usize,
    /// The rows at both ends of the job, as many of each; empty unless it is read around the ends.
    pub(super) ends: &'a [u8],
}

impl<'a> Block<'a> {
    /// The elements of an input that has all of each row, so many rows away.
    pub(super) fn input<T: Pod>(&self, input: usize, moved: i64) -> &'a [T] {
        let InputRows { rows, front, .. } = self.inputs[input];
        // A view that moves all rows of the block alike stays in the window of the input.
        let first = (front * self.width + self.start).wrapping_add_signed(moved as isize * self.width as isize);
        &cast_slice(rows)[first..first + self.elements]
    }

    /// By how many rows a view moves the rows of the block, if it moves all of them alike.
    pub(super) fn moves(&self, view: usize) -> Option<i64> {
        self.views[view].moves(&self.rows(), self.total_rows)
    }

    /// Copies the elements of an input that are in the block, in the rows that a view gives. An input that has one for
    /// each row, or one for each column, is broadcast.
    pub(super) fn gather<T: Pod>(&self, (input, extent): (usize, Extent), view: Option<usize>, out: &mut [T]) {
        let InputRows { rows, front, ends } = self.inputs[input];
        // An empty slice may have any address.
        let (values, ends): (&[T], &[T]) = (cast_slice(rows), if ends.is_empty() { &[] } else { cast_slice(ends) });
        let width = if extent == Extent::PerRow { 1 } else { self.width };
        let view = view.map(|view| &self.views[view]);
        self.each_row(out, |row, column, own: &mut [T]| {
            if extent == Extent::PerColumn {
                return own.copy_from_slice(&values[column..column + own.len()]);
            }
            let there = self.row_of(view, row);
            let first = self.first_row - front as u64;
            let at = there.checked_sub(first).map(|at| at as usize * width);
            let of_row = match at.and_then(|at| values.get(at..at + width)) {
                Some(of_row) => of_row,
                None => &ends[self.row_of_ends(there, ends.len() / width) * width..][..width],
            };
            match extent {
                Extent::PerRow => own.fill(of_row[0]),
                _ => own.copy_from_slice(&of_row[column..column + own.len()]),
            }
        });
    }

    /// Writes the numbers of the rows that a view gives.
    pub(super) fn row_numbers(&self, view: usize, out: &mut [u64]) {
        self.each_row(out, |row, _, own| own.fill(self.row_of(Some(&self.views[view]), row)));
    }

    fn row_of(&self, view: Option<&View>, row: u64) -> u64 {
        view.map_or(row, |view| view.row(row, self.total_rows))
    }

    /// The place of a row among those of both ends: so many rows together.
    fn row_of_ends(&self, row: u64, rows: usize) -> usize {
        let half = rows as u64 / 2;
        (if row < half { row } else { row + 2 * half - self.total_rows }) as usize
    }

    /// Divides the elements of the block into those of its rows, each with the number of the row and the first column.
    fn each_row<T>(&self, out: &mut [T], mut each: impl FnMut(u64, usize, &mut [T])) {
        let (mut row, mut column, mut rest) = (self.first_row(), self.column, &mut out[..self.elements]);
        while !rest.is_empty() {
            let own;
            (own, rest) = rest.split_at_mut(rest.len().min(self.width - column));
            each(row, column, own);
            (row, column) = (row + 1, 0);
        }
    }
}
