//! Nearest neighbours, exactly.

use std::cmp::Ordering;

use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};
use rayon::prelude::*;

use super::solve::times_transposed;
use super::start::read_rows;
use super::table::Table;
use super::{Matrices, largest, possible, scale, shape_error, small, small_row};
use crate::data::Input;
use crate::device::Precision;
use crate::error::{MatrixError, Result};
use crate::job::Job;

/// Queries that are searched in one pass. In tests there are few, as there are few rows.
const QUERIES: usize = if cfg!(test) { 32 } else { 1024 };
/// Rows that the host searches before the first pass. Each pass has three times as many rows as all before it.
const FIRST: u64 = if cfg!(test) { 16 } else { 65_536 };
/// Rows that the host reads at a time, and rows of these that a thread compares at a time.
const ROWS: usize = 8192;
const BLOCK: usize = 1024;

/// What [`Matrices::nearest`] found: in each row, the neighbours of a query, the nearest one first.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Neighbors {
    /// The numbers of rows of the base; -1 if there are too few rows that are finite.
    pub indices: Array2<i64>,
    /// Their distances from the query; infinite where there is no row.
    pub distances: Array2<f64>,
}

impl Matrices<'_> {
    /// The `count` rows of `base` that are nearest to each of the queries, which are in rows. They are exact: distances
    /// are computed in `f64` from differences, and of rows at the same distance the first one counts.
    ///
    /// The base is read once for each 1024 queries, beginning with few rows, whose neighbours tell for the next rows
    /// how near a row must be. A row that is near enough for any query, with a margin for the rounding of products, is
    /// compared on the host. Rows with NaN or infinities are no neighbours.
    ///
    /// # Errors
    /// As [`gram`](Matrices::gram); if the queries have another number of columns or are not finite, or the base has
    /// fewer rows than there should be neighbours; and [`MatrixError::Inexact`] with a precision other than
    /// [`Precision::Full`].
    pub fn nearest(&self, base: &Input<'_>, queries: ArrayView2<'_, f64>, count: usize) -> Result<Neighbors> {
        if self.precision != Precision::Full {
            return Err(MatrixError::Inexact.into());
        }
        let table = Table::new("base", base)?;
        if queries.ncols() != table.width {
            return Err(shape_error("queries", queries.shape(), &["q".into(), table.width.to_string()]).into());
        }
        if !queries.iter().all(|value| value.is_finite()) {
            return Err(MatrixError::NotFinite { name: "queries" }.into());
        }
        possible("neighbours", count as u64, table.rows)?;
        let shape = (queries.nrows(), count);
        let (mut indices, mut distances) = (Array2::from_elem(shape, -1), Array2::from_elem(shape, f64::INFINITY));
        for (batch, part) in queries.axis_chunks_iter(Axis(0), QUERIES).enumerate() {
            let found = self.search(&table, part, count)?;
            for (query, near) in found.near.iter().enumerate() {
                for (place, pair) in near.iter().enumerate() {
                    indices[[batch * QUERIES + query, place]] = pair.row as i64;
                    distances[[batch * QUERIES + query, place]] = pair.square.root();
                }
            }
        }
        Ok(Neighbors { indices, distances })
    }

    /// Returns the neighbours of each of some queries.
    fn search<'q>(&self, table: &Table<'_>, queries: ArrayView2<'q, f64>, count: usize) -> Result<Best<'q>> {
        let mut end = table.rows.min(FIRST);
        let first: Vec<u64> = (0..end).collect();
        let rows = read_rows(self.engine, table, &first[..first.len().min(ROWS)])?;
        let mut best = Best::new(queries, &rows, table.is_f32(), count);
        self.compare(table, &first, &mut best)?;
        while end < table.rows {
            let (first, next) = (end, table.rows.min(4 * end));
            let rows: Vec<u64> = self.near(table, first, next, &best)?.iter().map(|row| first + *row as u64).collect();
            self.compare(table, &rows, &mut best)?;
            end = next;
        }
        Ok(best)
    }

    /// Compares the rows with these numbers on the host.
    fn compare(&self, table: &Table<'_>, numbers: &[u64], best: &mut Best<'_>) -> Result<()> {
        for numbers in numbers.chunks(ROWS) {
            self.go_on(table.rows)?;
            best.add(&read_rows(self.engine, table, numbers)?, numbers);
        }
        Ok(())
    }

    /// Returns the numbers of the rows from `first` to before `end` that may be nearer to a query than its neighbours
    /// so far, counted from `first`.
    fn near(&self, table: &Table<'_>, first: u64, end: u64, best: &Best<'_>) -> Result<Vec<i64>> {
        let is_f32 = table.is_f32();
        let (cast, epsilon, tiny, largest) = match is_f32 {
            true => ("f32", f64::from(f32::EPSILON), f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)),
            false => ("f64", f64::EPSILON, f64::MIN_POSITIVE, f64::MAX),
        };
        // Sums of so many products, in any order, and all other roundings are less than this times the squared norms
        // of the row and the query away from the exact value.
        let width = table.width as f64;
        let margin = (2.0 * width + 16.0) * epsilon;
        let norms = best.queries.map_axis(Axis(1), |query| query.dot(&query));
        let bounds = norms.iter().zip(&best.near).map(|(norm, near)| match best.last(near, 1.0) {
            // A squared norm may overflow although the distance is less than a bound like this.
            last if last > largest / 16.0 => f64::INFINITY,
            last => next_up(last - norm * (1.0 - margin) + 8.0 * width * tiny, is_f32),
        });
        let bounds: Array1<f64> = bounds.collect();
        // Comparisons with NaN are false, so such rows are among those that are near.
        let text = format!("u = {cast}(x) - m; e = ((u * u) @ v) - 2 * (u @ q.T); y = index()[any(~(e > b), axis=1)]");
        let shares = Array2::from_elem((table.width, 1), 1.0 - margin);
        let mut rows = vec![0_i64; (end - first) as usize];
        let job = Job::eval(&text)?.input("x", table.part(first, end)).input("b", small_row(bounds.view(), is_f32));
        let job = job.input("m", small_row(best.middle.view(), is_f32)).input("v", small(shares.view(), is_f32));
        let report = self.run(job.input("q", small(best.queries.view(), is_f32)).output("y", &mut rows))?;
        let count = report.outputs.first().map_or(0, |output| output.rows);
        rows.truncate(count as usize);
        Ok(rows)
    }
}

/// Returns a bound that no rounding makes smaller: the next larger number of the dtype.
fn next_up(bound: f64, is_f32: bool) -> f64 {
    if is_f32 { f64::from((bound as f32).next_up()) } else { bound.next_up() }
}

/// Returns a point in the middle of the rows, in the dtype of products. Distances are computed from squared norms,
/// which should be small.
fn middle(rows: &Array2<f64>, is_f32: bool) -> Array1<f64> {
    let of_column = |column: ArrayView1<'_, f64>| {
        let mean = column.mean().unwrap_or_default();
        let mean = if is_f32 { f64::from(mean as f32) } else { mean };
        if mean.is_finite() { mean } else { 0.0 }
    };
    rows.columns().into_iter().map(of_column).collect()
}

/// A row of the base, and its squared distance from a query.
#[derive(Clone, Copy)]
struct Pair {
    square: Square,
    row: u64,
}

/// The square of a distance, which may be beyond all floats, or smaller than all of them.
#[derive(Clone, Copy, Debug)]
struct Square {
    /// The square of the distance times `scale`. It is 0, or not far from 1.
    scaled: f64,
    /// A power of two.
    scale: f64,
}

impl Square {
    /// Returns that of the distance of two points; `None` if a difference is not finite.
    fn of(one: ArrayView1<'_, f64>, other: ArrayView1<'_, f64>) -> Option<Square> {
        let differences = || one.iter().zip(other).map(|(one, other)| one - other);
        let largest = differences().fold(0.0, |largest: f64, difference| largest.max(difference.abs()));
        let scale = scale(largest);
        let scaled: f64 = differences().map(|difference| (difference * scale) * (difference * scale)).sum();
        // NaN is no maximum, but it is in the sum.
        (largest.is_finite() && scaled.is_finite()).then_some(Square { scaled, scale })
    }

    /// Returns the square of the distance times this power of two: infinite or 0 if it is beyond all floats.
    fn at(self, scale: f64) -> f64 {
        let ratio = scale / self.scale;
        if self.scaled == 0.0 { 0.0 } else { self.scaled * ratio * ratio }
    }

    /// Compares two squares exactly.
    fn cmp(self, other: Square) -> Ordering {
        self.at(other.scale).total_cmp(&other.scaled)
    }

    /// Returns the distance.
    fn root(self) -> f64 {
        self.scaled.sqrt() / self.scale
    }
}

/// The neighbours of some queries so far.
struct Best<'q> {
    exact: ArrayView2<'q, f64>,
    middle: Array1<f64>,
    /// Counted from the middle.
    queries: Array2<f64>,
    /// By what differences are multiplied before they are squared, for estimates. Those that are much smaller or
    /// larger than others are lost in them, and only there.
    scale: f64,
    /// The queries, counted from the middle and scaled, and their squared norms.
    scaled: Array2<f64>,
    norms: Array1<f64>,
    count: usize,
    /// For each query at most `count` pairs, in the order of distances and then of rows.
    near: Vec<Vec<Pair>>,
}

impl<'q> Best<'q> {
    /// `rows` are the first ones of the base.
    fn new(exact: ArrayView2<'q, f64>, rows: &Array2<f64>, is_f32: bool, count: usize) -> Self {
        let middle = middle(rows, is_f32);
        let queries = &exact - &middle;
        let scale = scale(largest(&queries).max(largest(&(rows - &middle))));
        let scaled = &queries * scale;
        let norms = scaled.map_axis(Axis(1), |query| query.dot(&query));
        Best { exact, middle, queries, scale, scaled, norms, count, near: vec![vec![]; exact.nrows()] }
    }

    /// Returns the squared distance that a row must not exceed, of distances times a power of two.
    fn last(&self, near: &[Pair], scale: f64) -> f64 {
        near.get(self.count - 1).map_or(f64::INFINITY, |pair| pair.square.at(scale))
    }

    /// Compares rows with all queries. The numbers of the rows are larger than those of all rows before.
    fn add(&mut self, rows: &Array2<f64>, numbers: &[u64]) {
        let blocks: Vec<_> = rows.axis_chunks_iter(Axis(0), BLOCK).zip(numbers.chunks(BLOCK)).collect();
        let found: Vec<Vec<(usize, Pair)>> =
            blocks.into_par_iter().map(|(rows, numbers)| self.candidates(rows, numbers)).collect();
        for (query, pair) in found.into_iter().flatten() {
            self.near[query].push(pair);
        }
        for near in &mut self.near {
            // Pairs are in the order of rows, and the sort keeps it where distances are the same.
            near.sort_by(|one, other| one.square.cmp(other.square));
            near.truncate(self.count);
        }
    }

    /// Returns the pairs of a query and a row that may be neighbours, in the order of rows.
    fn candidates(&self, rows: ArrayView2<'_, f64>, numbers: &[u64]) -> Vec<(usize, Pair)> {
        let near = (&rows - &self.middle) * self.scale;
        let norms = near.map_axis(Axis(1), |row| row.dot(&row));
        let products = times_transposed(&near.view(), &self.scaled.view());
        let width = near.ncols() as f64;
        // All roundings together are less than this: a part of the squared norms, and what products lose that are
        // smaller than all floats.
        let (share, tiny) = ((2.0 * width + 16.0) * f64::EPSILON, 8.0 * width * f64::MIN_POSITIVE);
        let mut pairs = vec![];
        for (query, (own, neighbours)) in self.norms.iter().zip(&self.near).enumerate() {
            let squares = norms.iter().zip(products.column(query)).map(|(norm, product)| {
                let (square, margin) = (norm - 2.0 * product + own, share * (norm + own) + tiny);
                let most = square + margin;
                (square - margin, if most.is_nan() { f64::INFINITY } else { most })
            });
            let (least, mut most): (Vec<f64>, Vec<f64>) = squares.unzip();
            // The last neighbour is not farther than that of these rows alone.
            let mut last = self.last(neighbours, self.scale);
            if self.count <= most.len() {
                let (_, own, _) = most.select_nth_unstable_by(self.count - 1, f64::total_cmp);
                last = last.min(*own);
            }
            for (row, &number) in
                numbers.iter().enumerate().filter(|(row, _)| least[*row].is_nan() || least[*row] <= last)
            {
                if let Some(square) = Square::of(rows.row(row), self.exact.row(query)) {
                    pairs.push((query, Pair { square, row: number }));
                }
            }
        }
        pairs
    }
}
