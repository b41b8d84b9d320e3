//! Clusters of rows around centers: k-means.

use ndarray::{Array1, Array2, ArrayView2, Axis, Zip};

use super::table::Table;
use super::{
    Matrices, array, largest, matrix, not_negative, number, possible, scale, shape_error, small, small_row, start,
};
use crate::data::{Input, Output};
use crate::error::{MatrixError, Result};
use crate::job::Job;
use crate::report::Report;

/// K-means by Lloyd's algorithm.
#[derive(Debug)]
#[must_use]
pub struct KMeans<'o> {
    start: Start,
    iterations: usize,
    tolerance: f64,
    labels: Option<Output<'o>>,
}

/// The centers that the first iteration begins with.
#[derive(Debug)]
enum Start {
    Centers(Array2<f64>),
    PlusPlus { count: usize, seed: u64 },
}

impl<'o> KMeans<'o> {
    /// Begins with `count` rows that are far from each other (k-means++), among at most 65 536 rows that are spread
    /// over the table. They are the same each time.
    pub fn plus_plus(count: usize) -> Self {
        KMeans::new(Start::PlusPlus { count, seed: 0 })
    }

    /// Begins with these centers, one in each row.
    pub fn from_centers(centers: impl Into<Array2<f64>>) -> Self {
        KMeans::new(Start::Centers(centers.into()))
    }

    fn new(start: Start) -> Self {
        KMeans { start, iterations: 20, tolerance: 0.0, labels: None }
    }

    /// Sets the seed with which [`plus_plus`](KMeans::plus_plus) draws rows, by default 0.
    pub fn seed(mut self, seed: u64) -> Self {
        if let Start::PlusPlus { seed: own, .. } = &mut self.start {
            *own = seed;
        }
        self
    }

    /// Sets the largest number of iterations, by default 20.
    pub fn iterations(mut self, iterations: usize) -> Self {
        self.iterations = iterations;
        self
    }

    /// Sets the tolerance, by default 0. Iterations end when the squared movements of the centers add up to no more
    /// than this times the mean variance of the columns, as in scikit-learn.
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Sets an output for the number of the center of each row, as `i64`.
    pub fn labels(mut self, labels: impl Into<Output<'o>>) -> Self {
        self.labels = Some(labels.into());
        self
    }
}

/// What [`Matrices::kmeans`] found. All but the centers is about the nearest center of each row.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Clusters {
    /// A center in each row.
    pub centers: Array2<f64>,
    /// The sum of the squared distances of all rows from their centers.
    pub inertia: f64,
    /// The number of rows of each center.
    pub counts: Array1<u64>,
    /// How many times the centers were computed.
    pub iterations: usize,
    /// Whether the centers moved no more than the tolerance in the last iteration.
    pub converged: bool,
}

/// The text that finds the nearest center of each row. The squared norm of the row is the same for all centers, so it
/// is left out.
fn nearest(is_f32: bool, name: &str) -> String {
    let cast = if is_f32 { "f32" } else { "f64" };
    format!("u = ({cast}(x) - m) * z; e = h - 2 * (u @ c.T); {name} = argmin(e, axis=1)")
}

/// Centers as inputs of a job, counted from the point `shift` and multiplied by `scale`, as rows are, too. Differences
/// of large squares lose digits.
struct Near {
    shift: Array1<f64>,
    scale: f64,
    centers: Array2<f64>,
    norms: Array1<f64>,
    is_f32: bool,
}

impl Near {
    fn new(centers: &Array2<f64>, shift: Array1<f64>, is_f32: bool) -> Near {
        let mut near = Zip::from(centers).and_broadcast(&shift).par_map_collect(|center, shift| center - shift);
        let mut scale = scale(largest(&near));
        if is_f32 {
            // The kernel multiplies by an `f32`.
            scale = scale.clamp(2.0_f64.powi(-100), 2.0_f64.powi(100));
        }
        near.par_mapv_inplace(|value| value * scale);
        let norms = Zip::from(near.rows()).par_map_collect(|center| center.dot(&center));
        Near { shift, scale, centers: near, norms, is_f32 }
    }

    fn inputs<'a>(&self, text: &str, table: &'a Table<'_>) -> Result<Job<'a>> {
        let job = Job::eval(text)?.input("x", table.input()).input("m", small_row(self.shift.view(), self.is_f32));
        let job = job.input("c", small(self.centers.view(), self.is_f32));
        let job = if self.is_f32 { job.scalar("z", self.scale as f32) } else { job.scalar("z", self.scale) };
        Ok(job.input("h", small_row(self.norms.view(), self.is_f32)))
    }

    /// Returns the job of an iteration.
    fn lloyd<'a>(&self, table: &'a Table<'_>, with_squares: bool) -> Result<Job<'a>> {
        let (nearest, count) = (nearest(self.is_f32, "labels"), self.centers.nrows());
        let text = format!("{nearest}; n = bincount(labels, {count}); s = onehot(labels, {count}).T @ f64(u)");
        if !with_squares {
            return self.inputs(&text, table);
        }
        // A product with ones is a sum within rows.
        let job = self.inputs(&(text + "; squares = sum((f64(u) * f64(u)) @ ones)"), table)?;
        Ok(job.input("ones", vec![1.0; table.width]))
    }
}

/// Returns the median of the centers in each column, in the dtype of products. A few centers that are far from all rows
/// do not move it.
fn middle(centers: &Array2<f64>, is_f32: bool) -> Array1<f64> {
    Zip::from(centers.columns()).par_map_collect(|column| {
        let mut values = column.to_vec();
        let half = values.len() / 2;
        let median = *values.select_nth_unstable_by(half, f64::total_cmp).1;
        if is_f32 { f64::from(median as f32) } else { median }
    })
}

/// What a pass finds.
struct Sums<'r> {
    counts: Array1<u64>,
    /// The sums of the rows of each center, counted from the shift and scaled.
    sums: ArrayView2<'r, f64>,
    /// The sum of the squares of all rows, counted from the shift and scaled; NaN if it was not asked for.
    squares: f64,
}

impl<'r> Sums<'r> {
    /// Takes them from the report of a pass.
    fn of(report: &'r Report, near: &Near, with_squares: bool) -> Result<Sums<'r>> {
        let sums = matrix(report, "s", near.centers.nrows())?;
        if !Zip::from(sums).par_fold(|| true, |all, sum| all & sum.is_finite(), |one, other| one & other) {
            return Err(MatrixError::NotFinite { name: "x" }.into());
        }
        let counts = array(report, "n")?.values().map(|count| count.as_f64() as u64).collect();
        Ok(Sums { counts, sums, squares: if with_squares { number(report, "squares")? } else { f64::NAN } })
    }

    /// Returns the means of the rows of each center; those without rows stay.
    fn means(&self, near: &Near, centers: &Array2<f64>) -> Array2<f64> {
        let counts = self.counts.view().insert_axis(Axis(1));
        let all = Zip::from(centers).and(&self.sums).and_broadcast(&counts).and_broadcast(&near.shift);
        all.par_map_collect(|&center, &sum, &count, &shift| match count {
            0 => center,
            _ => sum / count as f64 / near.scale + shift,
        })
    }

    /// Returns the mean of the variances of the columns, scaled.
    fn variance(&self) -> f64 {
        let rows = self.counts.sum().max(1) as f64;
        let mean = self.sums.sum_axis(Axis(0)) / rows;
        (self.squares / rows - mean.dot(&mean)) / mean.len() as f64
    }

    /// Returns the sum of the squared distances of the rows from their centers.
    fn inertia(&self, near: &Near) -> f64 {
        let norms: f64 = self.counts.iter().zip(&near.norms).map(|(&count, norm)| count as f64 * norm).sum();
        (self.squares - 2.0 * (&near.centers * &self.sums).sum() + norms).max(0.0) / near.scale / near.scale
    }
}

impl Matrices<'_> {
    /// Clusters of rows, each around the mean of its rows, by Lloyd's algorithm. An iteration is one pass over the
    /// rows, and one more pass counts the rows of the last centers. A center without rows stays where it is.
    ///
    /// Products have the dtype of `x`, `f32` or `f64`; sums, centers and the inertia are `f64`. With
    /// [`Precision::Tf32`](crate::Precision::Tf32) or [`Bf16x3`](crate::Precision::Bf16x3), GPUs find the nearest
    /// centers of `f32` rows on tensor cores.
    ///
    /// # Errors
    /// As [`gram`](Matrices::gram), and if `x` or the centers are not finite, or k-means++ would draw more centers than
    /// there are rows.
    pub fn kmeans(&self, x: &Input<'_>, how: KMeans<'_>) -> Result<Clusters> {
        let table = Table::new("x", x)?;
        possible("iterations", how.iterations as u64, u64::MAX)?;
        not_negative("tolerance", how.tolerance)?;
        // Not at last, when all iterations have run.
        if let Some(labels) = how.labels.as_ref().and_then(|labels| labels.target().new_file()) {
            labels.check()?;
        }
        let mut centers = match how.start {
            Start::Centers(centers) => centers,
            Start::PlusPlus { count, seed } => start::plus_plus(self, &table, count as u64, seed)?,
        };
        check(&centers.view(), &table)?;
        // The shift stays the same, so that centers whose rows stay the same do not move at all.
        let shift = middle(&centers, table.is_f32());
        let kept = match how.iterations {
            0 => None,
            _ => self.keep(&table, Near::new(&centers, shift.clone(), table.is_f32()).lloyd(&table, true)?)?,
        };
        let kept = kept.as_ref().map(Input::from);
        let table = table.kept(kept.as_ref());
        let (mut converged, mut iterations) = (false, 0);
        // The scale of the first iteration, and the squared movements of scaled centers with which iterations end.
        let mut end = None;
        while !converged && iterations < how.iterations {
            let near = Near::new(&centers, shift.clone(), table.is_f32());
            let needs_variance = how.tolerance > 0.0 && end.is_none();
            let report = self.lloyd(&table, &near, needs_variance, None)?;
            let found = Sums::of(&report, &near, needs_variance)?;
            if needs_variance {
                end = Some((near.scale, how.tolerance * found.variance()));
            }
            let moved = found.means(&near, &centers);
            let is_small =
                |(scale, most): (f64, f64)| ((&moved - &centers) * scale).mapv(|step| step * step).sum() <= most;
            converged = moved == centers || end.is_some_and(is_small);
            centers = moved;
            iterations += 1;
        }
        let near = Near::new(&centers, middle(&centers, table.is_f32()), table.is_f32());
        let report = self.lloyd(&table, &near, true, how.labels)?;
        let last = Sums::of(&report, &near, true)?;
        Ok(Clusters { inertia: last.inertia(&near), counts: last.counts, centers, iterations, converged })
    }

    /// Writes the number of the nearest center of each row, as `i64`, and its distance from it, as `f64`. Of two
    /// centers at the same distance it is the first one. Labels are those of [`kmeans`](Matrices::kmeans). A row with
    /// NaN or infinities, or with infinite squares, which `kmeans` refuses, has the label -1. One pass.
    ///
    /// # Errors
    /// As [`Engine::run`](crate::Engine::run), and if shapes do not fit, or the centers are not finite.
    pub fn assign<'o>(
        &self,
        x: &Input<'_>,
        centers: ArrayView2<'_, f64>,
        labels: impl Into<Output<'o>>,
        distances: impl Into<Output<'o>>,
    ) -> Result<Report> {
        let table = Table::new("x", x)?;
        check(&centers, &table)?;
        let centers = centers.to_owned();
        let near = Near::new(&centers, middle(&centers, table.is_f32()), table.is_f32());
        // Distances are of `f64`, even of rows that are multiplied as `f32`.
        let squares = if table.is_f32() { "norms - 2 * (f64(u) @ near.T)" } else { "e" };
        let text = format!(
            "{}; f = {squares}; distances = sqrt(maximum((f64(u) * f64(u)) @ ones + min(f, axis=1), 0)) / scale; \
             labels = where(isfinite(distances), first, -1)",
            nearest(table.is_f32(), "first"),
        );
        let mut job = near.inputs(&text, &table)?.input("ones", vec![1.0; table.width]).scalar("scale", near.scale);
        if table.is_f32() {
            job = job
                .input("near", small(near.centers.view(), false))
                .input("norms", small_row(near.norms.view(), false));
        }
        let (labels, distances): (Output<'_>, Output<'_>) = (labels.into(), distances.into());
        self.run(job.output("labels", labels).output("distances", distances))
    }

    /// Reads all rows once.
    fn lloyd(&self, table: &Table<'_>, near: &Near, with_squares: bool, labels: Option<Output<'_>>) -> Result<Report> {
        let mut job = near.lloyd(table, with_squares)?;
        if let Some(labels) = labels {
            job = job.output("labels", labels);
        }
        self.run(job)
    }
}

fn check(centers: &ArrayView2<'_, f64>, table: &Table<'_>) -> Result<(), MatrixError> {
    if centers.ncols() != table.width || centers.is_empty() {
        return Err(shape_error("centers", centers.shape(), &["k".into(), table.width.to_string()]));
    }
    let is_finite = centers.iter().all(|value| value.is_finite());
    if is_finite { Ok(()) } else { Err(MatrixError::NotFinite { name: "centers" }) }
}
