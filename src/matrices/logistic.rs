//! Logistic regression.

use std::f64::consts::LN_2;

use ndarray::{Array1, Array2, s};

use super::solve::solve;
use super::table::{Table, per_row};
use super::{Matrices, matrix, not_negative, number, numbers, possible, small, small_row};
use crate::data::Input;
use crate::error::{MatrixError, Result};
use crate::job::Job;

/// One pass. `q` is at most 1, so nothing overflows, whatever `z` is. The Hessian is a product of rows with themselves,
/// which takes half of the multiplications of others, and `r` times `r` is `p * (1 - p)`.
const PASS: &str = "
u = f64(x) - m; y = f64(t); z = u @ w + b; q = exp(-abs(z)); p = where(z < 0, q, 1) / (1 + q); r = sqrt(q) / (1 + q);
v = u * r; e = p - y;
hessian = v.T @ v; mixed = v.T @ r; weight = sum(r * r);
gradient = u.T @ e; rest = sum(e);
loss = sum(maximum(z, 0) - z * y + log1p(q))
";

/// Logistic regression.
#[derive(Clone, Debug)]
#[must_use]
pub struct Logistic {
    penalty: f64,
    tolerance: f64,
    iterations: usize,
}

impl Logistic {
    /// A regression without a penalty.
    pub fn new() -> Self {
        Logistic { penalty: 0.0, tolerance: 1e-8, iterations: 25 }
    }

    /// Sets the penalty: this times half of the squares of the weights, but not of the intercept, is added to the
    /// negative logarithm of the likelihood. In scikit-learn it is `1 / C`.
    pub fn penalty(mut self, penalty: f64) -> Self {
        self.penalty = penalty;
        self
    }

    /// Sets the tolerance, by default 1e-8. Iterations end when the next step is expected to gain at most this times
    /// the logarithm of the likelihood, or this if that is less; that step is taken, too.
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Sets the largest number of iterations, by default 25, each of which is a pass.
    pub fn iterations(mut self, iterations: usize) -> Self {
        self.iterations = iterations;
        self
    }
}

impl Default for Logistic {
    fn default() -> Self {
        Logistic::new()
    }
}

/// What [`Matrices::logistic`] found: `t` is 1 with the probability `1 / (1 + exp(-(x @ weights + intercept)))`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LogisticModel {
    /// A weight for each column.
    pub weights: Array1<f64>,
    /// What is added to the products of a row with the weights.
    pub intercept: f64,
    /// The number of passes after the first one, which finds the means.
    pub iterations: usize,
    /// Whether the last step was as small as the tolerance asks.
    pub converged: bool,
}

impl Matrices<'_> {
    /// Logistic regression: the weights with the largest likelihood of `t`, which has 0 or 1, or a bool, for each row
    /// of `x`.
    ///
    /// Newton's method, in `f64`: each iteration is one pass that computes the likelihood, its gradient and its
    /// Hessian, after one pass for the means. A step is halved until the likelihood does not fall. If some plane
    /// divides the classes, weights without a penalty would grow without end. Iterations end at such a plane, and the
    /// model has not converged.
    ///
    /// # Errors
    /// As [`linear`](Matrices::linear), and if `t` has other values than 0 and 1, or only one of them.
    pub fn logistic(&self, x: &Input<'_>, t: &Input<'_>, how: Logistic) -> Result<LogisticModel> {
        not_negative("penalty", how.penalty)?;
        not_negative("tolerance", how.tolerance)?;
        possible("iterations", how.iterations as u64, u64::MAX)?;
        let table = Table::new("x", x)?;
        if table.rows == 0 {
            return Err(MatrixError::NoRows.into());
        }
        let kept = self.keep(&table, pass(&table, t, &Array1::zeros(table.width), &Array1::zeros(table.width + 1))?)?;
        let kept = kept.as_ref().map(Input::from);
        let table = table.kept(kept.as_ref());
        let text = "m = mean(f64(x), axis=0); k = mean(f64(t)); other = count((t != 0) & (t != 1))";
        let job = Job::eval(text)?.input("x", table.input()).input("t", per_row("t", t, table.rows)?);
        let report = self.run(job)?;
        let (mean, share, others) = (numbers(&report, "m")?, number(&report, "k")?, number(&report, "other")?);
        two_classes(others as u64, share)?;
        // Columns are counted from their means, so that those with large means lose no digits. The last parameter is
        // the intercept.
        let width = table.width;
        let mut penalties = Array1::from_elem(width + 1, how.penalty);
        penalties[width] = 0.0;
        let mut next = Array1::zeros(width + 1);
        next[width] = (share / (1.0 - share)).ln();
        let mut best: Option<Point> = None;
        let (mut step, mut iterations, mut converged) = (Array1::zeros(width + 1), 0, false);
        while iterations < how.iterations && !converged {
            let trial = self.measure(&table, t, &mean, next, &penalties)?;
            iterations += 1;
            // Rounding may add a little to a loss that is the least one. NaN is no success.
            let is_worse = |best: &Point| trial.loss.is_nan() || trial.loss > best.loss + 1e-12 * best.loss.abs();
            let kept = match best.take() {
                Some(best) if is_worse(&best) => {
                    step /= 2.0;
                    best
                }
                // A row on the wrong side of the plane, or on it, has a loss of at least the logarithm of 2.
                _ if how.penalty == 0.0 && trial.loss < LN_2 => {
                    next = trial.parameters;
                    break;
                }
                _ => {
                    step = -solve(&trial.hessian.view(), &trial.gradient)?;
                    let gain = -trial.gradient.dot(&step) / 2.0;
                    converged = gain <= how.tolerance * trial.loss.min(1.0);
                    trial
                }
            };
            next = &kept.parameters + &step;
            best = Some(kept);
        }
        let parameters = match best {
            Some(best) if !converged => best.parameters,
            _ => next,
        };
        let weights = parameters.slice(s![..width]).to_owned();
        let intercept = parameters[width] - mean.dot(&weights);
        Ok(LogisticModel { weights, intercept, iterations, converged })
    }

    /// Runs the pass.
    fn measure(
        &self,
        table: &Table<'_>,
        t: &Input<'_>,
        mean: &Array1<f64>,
        parameters: Array1<f64>,
        penalties: &Array1<f64>,
    ) -> Result<Point> {
        let width = table.width;
        let report = self.run(pass(table, t, mean, &parameters)?)?;
        let loss = number(&report, "loss")? + (penalties * &parameters * &parameters).sum() / 2.0;
        let (own, rest) = (numbers(&report, "gradient")?, number(&report, "rest")?);
        let gradient =
            Array1::from_shape_fn(width + 1, |k| own.get(k).copied().unwrap_or(rest)) + penalties * &parameters;
        let (inner, mixed) = (matrix(&report, "hessian", width)?, numbers(&report, "mixed")?);
        let corner = number(&report, "weight")?;
        let hessian =
            Array2::from_shape_fn((width + 1, width + 1), |(row, column)| match (row < width, column < width) {
                (true, true) => inner[[row, column]],
                (true, false) => mixed[row],
                (false, true) => mixed[column],
                (false, false) => corner,
            });
        let hessian = hessian + Array2::from_diag(penalties);
        Ok(Point { parameters, loss, gradient, hessian })
    }
}

/// Returns the job of an iteration.
fn pass<'a>(table: &'a Table<'_>, t: &'a Input<'_>, mean: &Array1<f64>, parameters: &Array1<f64>) -> Result<Job<'a>> {
    let weights = Array2::from_shape_fn((table.width, 1), |(row, _)| parameters[row]);
    let job = Job::eval(PASS)?.input("x", table.input()).input("t", per_row("t", t, table.rows)?);
    let job = job.input("m", small_row(mean.view(), false)).input("w", small(weights.view(), false));
    Ok(job.scalar("b", parameters[table.width]))
}

/// Checks that some rows have the class 0 and some the class 1. `others` have neither, and `share` has the class 1.
fn two_classes(others: u64, share: f64) -> Result<(), MatrixError> {
    match others {
        0 if share > 0.0 && share < 1.0 => Ok(()),
        0 => Err(MatrixError::OneClass),
        others => Err(MatrixError::NotAClass { others }),
    }
}

/// Parameters, with what a pass finds for them.
struct Point {
    parameters: Array1<f64>,
    loss: f64,
    gradient: Array1<f64>,
    hessian: Array2<f64>,
}
