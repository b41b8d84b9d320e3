//! Moments of the columns, and least squares from them.

use ndarray::{Array1, Array2};

use super::solve::solve;
use super::table::{Table, per_row};
use super::{Matrices, array, matrix, not_negative, number, numbers};
use crate::data::{ArrayValue, Input};
use crate::error::{MatrixError, Result};
use crate::job::Job;

/// Least squares: the weights for which `x @ weights + intercept` is closest to `t`.
#[derive(Clone, Debug)]
#[must_use]
pub struct Linear {
    ridge: f64,
    intercept: bool,
}

impl Linear {
    /// Least squares with an intercept and without a penalty.
    pub fn new() -> Self {
        Linear { ridge: 0.0, intercept: true }
    }

    /// Sets the penalty for the squares of the weights, but not for the intercept.
    pub fn ridge(mut self, ridge: f64) -> Self {
        self.ridge = ridge;
        self
    }

    /// Sets whether there is an intercept.
    pub fn intercept(mut self, intercept: bool) -> Self {
        self.intercept = intercept;
        self
    }
}

impl Default for Linear {
    fn default() -> Self {
        Linear::new()
    }
}

/// What [`Matrices::linear`] found: `t` is about `x @ weights + intercept`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LinearModel {
    /// A weight for each column.
    pub weights: Array1<f64>,
    /// The value for a row of zeros.
    pub intercept: f64,
}

impl Matrices<'_> {
    /// The products of all columns with all columns, `x.T @ x`, of the dtype of `x`: `f32` or `f64`. One pass.
    ///
    /// # Errors
    /// As [`Engine::run`](crate::Engine::run), and if `x` is no table.
    pub fn gram(&self, x: &Input<'_>) -> Result<ArrayValue> {
        let table = Table::new("x", x)?;
        let report = self.run(Job::eval("g = x.T @ x")?.input("x", table.input()))?;
        Ok(array(&report, "g")?.clone())
    }

    /// The covariance of the columns, divided by the number of rows minus `ddof`. Two passes: the means are subtracted
    /// before the products, so that columns with a large mean lose no digits.
    ///
    /// # Errors
    /// As [`gram`](Matrices::gram), and if there are no more than `ddof` rows.
    pub fn covariance(&self, x: &Input<'_>, ddof: u64) -> Result<Array2<f64>> {
        Ok(self.moments(&Table::new("x", x)?, ddof)?.1)
    }

    /// Least squares of a table `x` and a column `t` with a value for each row, in `f64`. Two passes, or one without an
    /// intercept.
    ///
    /// # Errors
    /// As [`gram`](Matrices::gram), and [`MatrixError::Singular`] if columns depend on each other, so that there are
    /// many such weights. A small penalty chooses one.
    pub fn linear(&self, x: &Input<'_>, t: &Input<'_>, how: Linear) -> Result<LinearModel> {
        not_negative("ridge", how.ridge)?;
        let table = Table::new("x", x)?;
        let text = if how.intercept {
            "m = mean(f64(x), axis=0); k = mean(f64(t)); u = f64(x) - m; v = f64(t) - k; g = u.T @ u; b = u.T @ v"
        } else {
            "u = f64(x); g = u.T @ u; b = u.T @ f64(t)"
        };
        let job = Job::eval(text)?.input("x", table.input()).input("t", per_row("t", t, table.rows)?);
        let report = self.run(job)?;
        let mut products = matrix(&report, "g", table.width)?;
        products.diag_mut().mapv_inplace(|square| square + how.ridge);
        let weights = solve(&products.view(), &numbers(&report, "b")?)?;
        let intercept = if how.intercept { number(&report, "k")? - numbers(&report, "m")?.dot(&weights) } else { 0.0 };
        Ok(LinearModel { weights, intercept })
    }

    /// Returns the means and the covariance of the columns.
    pub(super) fn moments(&self, table: &Table<'_>, ddof: u64) -> Result<(Array1<f64>, Array2<f64>)> {
        let rows = table.rows;
        if rows <= ddof {
            return Err(MatrixError::TooFewRows { rows, ddof }.into());
        }
        let job = Job::eval("m = mean(f64(x), axis=0); u = f64(x) - m; g = u.T @ u")?.input("x", table.input());
        let report = self.run(job)?;
        Ok((numbers(&report, "m")?, matrix(&report, "g", table.width)? / (rows - ddof) as f64))
    }
}
