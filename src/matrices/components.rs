//! Principal components.

use std::f64::consts::TAU;

use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, concatenate, s};

use super::solve::{eigen, orthonormal};
use super::start::uniform;
use super::table::Table;
use super::{Matrices, matrix, not_negative, numbers, possible, shape_error, small, small_row};
use crate::data::{Input, Output};
use crate::error::{MatrixError, Result};
use crate::job::Job;
use crate::report::Report;

/// The most columns for which the covariance of all columns is computed, unless the method is given.
const NARROW: usize = 4096;
/// Directions that are searched besides those that are wanted.
const MORE: usize = 10;

/// How components are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Exactly up to 4096 columns, otherwise from random directions.
    #[default]
    Auto,
    /// From the covariance of all columns, which has `d * d` elements. Two passes.
    Exact,
    /// From random directions, which passes over the rows turn towards the components.
    Randomized,
}

/// The first principal components.
#[derive(Clone, Debug)]
#[must_use]
pub struct Pca {
    count: usize,
    method: Method,
    tolerance: f64,
    iterations: usize,
    seed: u64,
}

impl Pca {
    /// The first `count` components.
    pub fn new(count: usize) -> Self {
        Pca { count, method: Method::Auto, tolerance: 1e-6, iterations: 12, seed: 0 }
    }

    /// Sets how they are found.
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Sets by how much the space of the components may turn in the last iteration: the sine of an angle, by default
    /// 1e-6. For [`Method::Randomized`].
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Sets the largest number of iterations, by default 12, each of which is a pass. For [`Method::Randomized`].
    pub fn iterations(mut self, iterations: usize) -> Self {
        self.iterations = iterations;
        self
    }

    /// Sets the seed of the first directions. For [`Method::Randomized`].
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

/// What [`Matrices::pca`] found: the directions in which the rows vary most.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PrincipalComponents {
    /// A direction in each row, of length 1, with the largest variance first. Its largest element is positive.
    pub components: Array2<f64>,
    /// The variance along each of them.
    pub variance: Array1<f64>,
    /// The mean of the rows, from which directions are counted.
    pub mean: Array1<f64>,
    /// By how much the space of the components turned in the last iteration, the sine of an angle; 0 if they are exact.
    /// If it is larger than the tolerance, give more iterations, or leave out components whose variances are close to
    /// those of others.
    pub turn: f64,
}

/// Eigenvalues in ascending order, the vectors of the last ones as columns, the mean, and the last turn.
type Found = (Array1<f64>, Array2<f64>, Array1<f64>, f64);

/// Returns the job that multiplies the covariance by directions, but for its divisor.
fn multiply<'a>(table: &'a Table<'_>, mean: &Array1<f64>, directions: &Array2<f64>) -> Result<Job<'a>> {
    let job = Job::eval("u = f64(x) - m; z = u.T @ (u @ w)")?.input("x", table.input());
    Ok(job.input("m", small_row(mean.view(), false)).input("w", small(directions.view(), false)))
}

impl Matrices<'_> {
    /// The first principal components, in `f64`.
    ///
    /// [`Method::Randomized`] takes a pass for the means, and passes that multiply the covariance by `count + 10`
    /// directions. The components are the best ones in the space of all directions so far (a block Krylov method:
    /// Musco and Musco, 2015), so that a few passes are enough.
    ///
    /// # Errors
    /// As [`gram`](Matrices::gram), and if `x` has fewer columns than there should be components, or one row.
    pub fn pca(&self, x: &Input<'_>, how: Pca) -> Result<PrincipalComponents> {
        let table = Table::new("x", x)?;
        possible("components", how.count as u64, table.width as u64)?;
        possible("iterations", how.iterations as u64, u64::MAX)?;
        not_negative("tolerance", how.tolerance)?;
        let exact = match how.method {
            Method::Auto => table.width <= NARROW,
            method => method == Method::Exact,
        };
        let (values, vectors, mean, turn) = if exact {
            let (mean, covariance) = self.moments(&table, 1)?;
            let (values, vectors) = eigen(&covariance.view())?;
            (values, vectors, mean, 0.0)
        } else {
            self.krylov(table, &how)?
        };
        let mut components = vectors.slice(s![.., ..;-1]).t().slice(s![..how.count, ..]).to_owned();
        for mut direction in components.rows_mut() {
            let largest = direction.iter().fold(0.0_f64, |most, &x| if x.abs() > most.abs() { x } else { most });
            direction *= largest.signum();
        }
        let variance = values.slice(s![..;-1]).slice(s![..how.count]).mapv(|variance| variance.max(0.0));
        Ok(PrincipalComponents { components, variance, mean, turn })
    }

    /// Writes the coordinates of each row along some directions, the rows of `components`, counted from `mean`:
    /// `(x - mean) @ components.T`, of the shape `(n, count)`, in `f64`. One pass.
    ///
    /// # Errors
    /// As [`Engine::run`](crate::Engine::run), and if shapes do not fit.
    pub fn project<'o>(
        &self,
        x: &Input<'_>,
        components: ArrayView2<'_, f64>,
        mean: Option<ArrayView1<'_, f64>>,
        y: impl Into<Output<'o>>,
    ) -> Result<Report> {
        let table = Table::new("x", x)?;
        let width = table.width;
        if components.ncols() != width || components.is_empty() {
            return Err(shape_error("components", components.shape(), &["k".into(), width.to_string()]).into());
        }
        if let Some(mean) = mean.filter(|mean| mean.len() != width) {
            return Err(shape_error("mean", mean.shape(), &[width.to_string()]).into());
        }
        let text = if mean.is_some() { "y = (f64(x) - m) @ c.T" } else { "y = f64(x) @ c.T" };
        let y: Output<'_> = y.into();
        let mut job = Job::eval(text)?.input("x", table.input()).input("c", small(components, false)).output("y", y);
        if let Some(mean) = mean {
            job = job.input("m", small_row(mean, false));
        }
        self.run(job)
    }

    fn krylov(&self, table: Table<'_>, how: &Pca) -> Result<Found> {
        let (rows, width) = (table.rows, table.width);
        if rows < 2 {
            return Err(MatrixError::TooFewRows { rows, ddof: 1 }.into());
        }
        let mut following = self.normal(width, how.count + MORE, how.seed)?;
        let kept = self.keep(&table, multiply(&table, &Array1::zeros(width), &following)?)?;
        let kept = kept.as_ref().map(Input::from);
        let table = table.kept(kept.as_ref());
        let report = self.run(Job::eval("m = mean(f64(x), axis=0)")?.input("x", table.input()))?;
        let mean = numbers(&report, "m")?;
        // Orthonormal directions, and their products with the covariance.
        let (mut basis, mut products) = (Array2::zeros((width, 0)), Array2::zeros((width, 0)));
        let (mut values, mut vectors, mut turn) = (Array1::zeros(0), Array2::zeros((width, 0)), f64::INFINITY);
        for _ in 0..how.iterations {
            let block = orthonormal(following, &basis);
            following = &matrix(&self.run(multiply(&table, &mean, &block)?)?, "z", width)? / (rows - 1) as f64;
            basis = beside(&basis, &block);
            products = beside(&products, &following);
            let inner = basis.t().dot(&products);
            let (found, places) = eigen(&((&inner + &inner.t()) / 2.0).view())?;
            let first = places.ncols() - how.count.min(places.ncols());
            let before = std::mem::replace(&mut vectors, basis.dot(&places.slice(s![.., first..])));
            values = found;
            if before.ncols() > 0 {
                let rest = &before - &vectors.dot(&vectors.t().dot(&before));
                let (squares, _) = eigen(&rest.t().dot(&rest).view())?;
                turn = squares.last().map_or(0.0, |square| square.max(0.0).sqrt());
            }
            if basis.ncols() == width {
                turn = 0.0;
            }
            if turn < how.tolerance || basis.ncols() == width {
                break;
            }
        }
        Ok((values, vectors, mean, turn))
    }

    /// Returns random numbers of the normal distribution, by the method of Box and Muller.
    fn normal(&self, rows: usize, columns: usize, seed: u64) -> Result<Array2<f64>> {
        let drawn = uniform(self.engine, 2 * rows * columns, seed)?;
        let normal = |k: usize| (-2.0 * (1.0 - drawn[2 * k]).ln()).sqrt() * (TAU * drawn[2 * k + 1]).cos();
        Ok(Array2::from_shape_fn((rows, columns), |(row, column)| normal(row * columns + column)))
    }
}

/// Returns the columns of one matrix, and then those of another one.
fn beside(one: &Array2<f64>, other: &Array2<f64>) -> Array2<f64> {
    concatenate(Axis(1), &[one.view(), other.view()]).unwrap_or_default()
}
