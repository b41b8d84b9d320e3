//! Rows that k-means begins with.

use ndarray::{Array1, Array2, ArrayView2, Axis};
use rayon::prelude::*;

use super::solve::times_transposed;
use super::table::Table;
use super::{Matrices, largest, possible, scale};
use crate::engine::Engine;
use crate::error::{MatrixError, Result};
use crate::job::Job;

/// The least and the most rows among which a start is searched, and how many there are for each center otherwise.
const SAMPLE: (u64, u64) = (16_384, 65_536);
const PER_CENTER: u64 = 16;
/// Rows that a thread takes at a time.
const BLOCK: usize = 512;

/// Returns random numbers from 0 to below 1.
pub(super) fn uniform(engine: &Engine, count: usize, seed: u64) -> Result<Vec<f64>> {
    let mut numbers = vec![0.0; count];
    engine.run(Job::eval(&format!("r = rand({seed})"))?.rows(count as u64).output("r", &mut numbers))?;
    Ok(numbers)
}

/// Returns `count` rows that are far from each other, among some that are spread over all rows: k-means++ (Arthur and
/// Vassilvitskii, 2007). Each time it draws some rows, with a probability that is proportional to their squared
/// distance from those chosen before, and takes the one that leaves the least inertia, as scikit-learn does.
pub(super) fn plus_plus(matrices: &Matrices<'_>, table: &Table<'_>, count: u64, seed: u64) -> Result<Array2<f64>> {
    possible("centers", count, table.rows.min(SAMPLE.1))?;
    let rows = table.rows.min((count * PER_CENTER).clamp(SAMPLE.0, SAMPLE.1));
    // One row of each of as many ranges of rows.
    let (all, sample) = (u128::from(table.rows), u128::from(rows));
    let first = |range: u64| (u128::from(range) * all / sample) as u64;
    let trials = 2 + (count as f64).ln() as u64;
    let drawn = uniform(matrices.engine, (rows + 1 + trials * (count - 1)) as usize, seed)?;
    let numbers: Vec<u64> = (0..rows)
        .map(|range| first(range) + ((first(range + 1) - first(range)) as f64 * drawn[range as usize]) as u64)
        .collect();
    let sample = read_rows(matrices.engine, table, &numbers)?;
    if !sample.iter().all(|value| value.is_finite()) {
        return Err(MatrixError::NotFinite { name: "x" }.into());
    }
    let middle = sample.mean_axis(Axis(0)).unwrap_or_default();
    let go_on = || matrices.go_on(table.rows);
    let mut near = &sample - &middle;
    near *= scale(largest(&near));
    let chosen = far_apart(&near, trials as usize, &drawn[rows as usize..], go_on)?;
    Ok(sample.select(Axis(0), &chosen))
}

/// Reads the rows with these numbers.
pub(super) fn read_rows(engine: &Engine, table: &Table<'_>, numbers: &[u64]) -> Result<Array2<f64>> {
    let mut rows = Array2::zeros((numbers.len(), table.width));
    engine.run(Job::eval("y = f64(x)")?.input("x", table.some(numbers)).output("y", rows.view_mut()))?;
    Ok(rows)
}

/// Returns the numbers of the chosen rows. The first random number chooses the first row, and the next ones `trials`
/// rows each time. It ends when `go_on` returns an error.
fn far_apart(sample: &Array2<f64>, trials: usize, drawn: &[f64], go_on: impl Fn() -> Result<()>) -> Result<Vec<usize>> {
    let norms = sample.map_axis(Axis(1), |row| row.dot(&row));
    let last = sample.nrows() - 1;
    let (one, more) = drawn.split_at(1);
    let mut chosen = vec![((one[0] * sample.nrows() as f64) as usize).min(last)];
    let mut left = squares(sample, &norms, &chosen).column(0).to_owned();
    for draws in more.chunks_exact(trials) {
        go_on()?;
        let mut sums = left.to_vec();
        sums.iter_mut().fold(0.0, |sum, square| {
            *square += sum;
            *square
        });
        let place = |draw: &f64| sums.partition_point(|sum| *sum <= draw * sums[last]).min(last);
        let rows: Vec<usize> = draws.iter().map(place).collect();
        let near = squares(sample, &norms, &rows);
        let inertia = |column: usize| -> f64 { left.iter().zip(near.column(column)).map(|(a, b)| a.min(*b)).sum() };
        let best = (0..trials).map(|column| (column, inertia(column)));
        let Some((best, _)) = best.reduce(|one, other| if other.1 < one.1 { other } else { one }) else { break };
        left.zip_mut_with(&near.column(best), |left, near| *left = left.min(*near));
        chosen.push(rows[best]);
    }
    Ok(chosen)
}

/// Returns the squared distances of all rows from some of them, one of these in each column.
fn squares(sample: &Array2<f64>, norms: &Array1<f64>, rows: &[usize]) -> Array2<f64> {
    let (picked, own) = (sample.select(Axis(0), rows), norms.select(Axis(0), rows));
    let mut all = Array2::zeros((sample.nrows(), rows.len()));
    let blocks = all.axis_chunks_iter_mut(Axis(0), BLOCK).zip(sample.axis_chunks_iter(Axis(0), BLOCK));
    let blocks: Vec<_> = blocks.zip(norms.axis_chunks_iter(Axis(0), BLOCK)).collect();
    blocks.into_par_iter().for_each(|((mut squares, block), norms)| {
        let block: ArrayView2<'_, f64> = block;
        let products = times_transposed(&block, &picked.view());
        for ((row, column), square) in squares.indexed_iter_mut() {
            *square = (norms[row] - 2.0 * products[[row, column]] + own[column]).max(0.0);
        }
    });
    all
}
