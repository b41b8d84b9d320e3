//! Products of tables larger than a GPU's memory, and what follows from them: covariances, principal components,
//! regressions, clusters and nearest neighbours. They need the feature `matrices`.
//!
//! A table is an [`Input`] of the shape `(n, d)`: an array of the crate ndarray, or a file that has a shape. Its rows
//! are read once or a few times, in jobs like any other; what is left is small, and the host computes it. [`Matrices`]
//! has a function for each algorithm.
//!
//! ```
//! use ndarray::array;
//! use overshot::matrices::{KMeans, Matrices};
//! use overshot::{Engine, Input};
//! let engine = Engine::builder().build()?;
//! let rows = array![[0.0, 0.0], [0.0, 1.0], [8.0, 8.0], [8.0, 9.0], [9.0, 8.0]];
//! let found = Matrices::on(&engine).kmeans(&Input::from(rows.view()), KMeans::plus_plus(2))?;
//! assert_eq!(found.counts.to_vec(), [2, 3]);
//! # Ok::<(), overshot::Error>(())
//! ```
//!
//! Results are the same bits for every chunk size and number of workers. Where the results of products differ between
//! GPUs and the CPU, those of the algorithms do, too; the notes of a [`Report`] say so.

mod clusters;
mod components;
mod logistic;
mod moments;
mod neighbors;
mod solve;
mod start;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;

use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Zip};

pub use clusters::{Clusters, KMeans};
pub use components::{Method, Pca, PrincipalComponents};
pub use logistic::{Logistic, LogisticModel};
pub use moments::{Linear, LinearModel};
pub use neighbors::Neighbors;

use self::table::Table;
use crate::arrays::Resident;
use crate::data::{ArrayValue, Dtype, Input};
use crate::device::Precision;
use crate::engine::Engine;
use crate::error::{Error, MatrixError, Result};
use crate::job::Job;
use crate::progress::{CancelToken, Progress};
use crate::report::Report;

/// The algorithms, on an engine, with what their jobs have in common.
///
/// On one GPU, rows of the table stay in its memory between the passes of an algorithm, as far as they fit. Nobody may
/// change the table meanwhile. [`nearest`](Matrices::nearest) keeps none, and neither does an engine with a
/// [time limit](crate::EngineBuilder::device_timeout).
///
/// ```
/// use overshot::matrices::{Matrices, Pca};
/// use overshot::{Engine, Input};
/// let engine = Engine::builder().build()?;
/// let rows = ndarray::array![[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]];
/// let matrices = Matrices::on(&engine).each_pass(|report| println!("{} rows", report.rows));
/// let found = matrices.pca(&Input::from(rows.view()), Pca::new(1))?;
/// assert!((found.variance[0] - 25.0).abs() < 1e-12);
/// # Ok::<(), overshot::Error>(())
/// ```
#[must_use = "it does nothing until an algorithm runs"]
pub struct Matrices<'e> {
    engine: &'e Engine,
    precision: Precision,
    cancel: Option<CancelToken>,
    progress: Option<Box<dyn Fn(Progress) + Send + Sync + 'e>>,
    each_pass: Option<EachPass<'e>>,
}

/// Gets the report of a pass.
type EachPass<'e> = Box<dyn Fn(&Report) + 'e>;

impl<'e> Matrices<'e> {
    /// The algorithms on this engine.
    pub fn on(engine: &'e Engine) -> Self {
        Matrices { engine, precision: Precision::Full, cancel: None, progress: None, each_pass: None }
    }

    /// Sets the precision of products of `f32`, as [`Job::precision`] does. Algorithms that multiply `f64` alone refuse
    /// another one than [`Precision::Full`].
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// Sets a token that stops the algorithm, as [`Job::cancel_token`] does.
    pub fn cancel_token(mut self, token: CancelToken) -> Self {
        self.cancel = Some(token);
        self
    }

    /// Sets a function that is told how far a pass over the rows is, as [`Job::progress`] does.
    pub fn progress(mut self, progress: impl Fn(Progress) + Send + Sync + 'e) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Sets a function that gets the report of each job, which is one pass over the rows or has
    /// [several](Report::passes).
    pub fn each_pass(mut self, each_pass: impl Fn(&Report) + 'e) -> Self {
        self.each_pass = Some(Box::new(each_pass));
        self
    }

    /// Returns an error if the algorithm is to stop: for the host's own work, between jobs.
    fn go_on(&self, rows: u64) -> Result<()> {
        match &self.cancel {
            Some(token) if token.is_cancelled() => Err(Error::Cancelled { done: 0, rows }),
            _ => Ok(()),
        }
    }

    /// Keeps rows of a table between jobs like this one, all of which read it: as far as they fit, they stay on the
    /// GPU.
    fn keep<'t>(&self, table: &Table<'t>, job: Job<'_>) -> Result<Option<Resident<'t>>> {
        self.engine.keep_between(table.whole(), &job.precision(self.precision))
    }

    /// Runs a job that reads all rows.
    fn run(&self, job: Job<'_>) -> Result<Report> {
        let mut job = job.precision(self.precision);
        if let Some(token) = &self.cancel {
            job = job.cancel_token(token.clone());
        }
        if let Some(progress) = &self.progress {
            job = job.progress(progress);
        }
        let report = self.engine.run(job)?;
        if let Some(each_pass) = &self.each_pass {
            each_pass(&report);
        }
        Ok(report)
    }
}

impl fmt::Debug for Matrices<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matrices").field("precision", &self.precision).finish_non_exhaustive()
    }
}

/// Returns a result that is an array.
fn array<'r>(report: &'r Report, name: &str) -> Result<&'r ArrayValue> {
    Ok(report.array(name)?.ok_or(MatrixError::NoRows)?)
}

/// Returns the numbers of a result, whatever their dtype and shape.
fn numbers(report: &Report, name: &str) -> Result<Array1<f64>> {
    Ok(array(report, name)?.values().map(|value| value.as_f64()).collect())
}

/// Returns the sums of a result with a row for each of `rows`. There may be millions of them, so they are not copied.
fn matrix<'r>(report: &'r Report, name: &str, rows: usize) -> Result<ArrayView2<'r, f64>> {
    let array = array(report, name)?;
    let sums: &[f64] = if array.dtype() == Dtype::F64 { bytemuck::cast_slice(array.bytes()) } else { &[] };
    ArrayView2::from_shape((rows, array.len() / rows), sums)
        .map_err(|error| Error::Internal(format!("{name}: {error}")))
}

/// Returns a number of all rows.
fn number(report: &Report, name: &str) -> Result<f64> {
    Ok(report.value(name)?.ok_or(MatrixError::NoRows)?.as_f64())
}

/// Returns the largest of all magnitudes that are finite.
fn largest(values: &Array2<f64>) -> f64 {
    let finite = |value: &f64| if value.is_finite() { value.abs() } else { 0.0 };
    Zip::from(values).par_fold(|| 0.0, |most: f64, value| most.max(finite(value)), f64::max)
}

/// Returns a power of two by which differences, of which this is the largest one, are multiplied before they are
/// squared, so that squares of large values are finite, and those of small values are not zero. This changes no digit.
fn scale(largest: f64) -> f64 {
    let exponent = if largest > 0.0 { (largest.log2().floor() as i32).clamp(-1000, 1000) } else { 0 };
    2.0_f64.powi(-exponent)
}

/// Returns small arrays as inputs that borrow nothing, as `f32` or as `f64`.
fn small(values: ArrayView2<'_, f64>, is_f32: bool) -> Input<'static> {
    match is_f32 {
        true => Zip::from(values).par_map_collect(|value| *value as f32).into_shared().into(),
        false => values.to_owned().into_shared().into(),
    }
}

/// As [`small`], for a row.
fn small_row(values: ArrayView1<'_, f64>, is_f32: bool) -> Input<'static> {
    if is_f32 { values.mapv(|value| value as f32).into_shared().into() } else { values.to_owned().into_shared().into() }
}

/// Returns the error of an array that has another shape.
fn shape_error(name: &'static str, shape: &[usize], expected: &[String]) -> MatrixError {
    let shape: Vec<u64> = shape.iter().map(|length| *length as u64).collect();
    MatrixError::shape(name, &shape, expected)
}

/// Checks that a number is neither negative, nor infinite, nor NaN.
fn not_negative(name: &'static str, value: f64) -> Result<(), MatrixError> {
    if value >= 0.0 && value.is_finite() { Ok(()) } else { Err(MatrixError::Negative { name, value }) }
}

/// Checks that as many are possible: of the rows of a table, or of its columns.
fn possible(what: &'static str, count: u64, most: u64) -> Result<(), MatrixError> {
    if most == 0 {
        return Err(MatrixError::NoRows);
    }
    if (1..=most).contains(&count) { Ok(()) } else { Err(MatrixError::Count { what, most, count }) }
}
