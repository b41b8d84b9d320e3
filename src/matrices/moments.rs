//! Moments of the columns, and least squares from them.

use ndarray::{Array1, Array2};

use super::solve::solve;
use super::table::{Table, per_row};
use super::{Matrices, array, matrix, not_negative, number, numbers};
use crate::data::{ArrayValue, Dtype, Input};
use crate::error::{MatrixError, Result};
use crate::job::Job;

/// A column whose values differ from their mean by no more than this times the mean is constant, but for rounding.
const CONSTANT: f64 = 4.0 * f64::EPSILON;

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
    /// The products of all columns with all columns, `x.T @ x`: as `f32` if `x` is, otherwise as `f64`. One pass.
    ///
    /// # Errors
    /// As [`Engine::run`](crate::Engine::run), and if `x` is no table.
    pub fn gram(&self, x: &Input<'_>) -> Result<ArrayValue> {
        let table = Table::new("x", x)?;
        // Products are of floats.
        let text = match x.source().dtype() {
            Dtype::F32 | Dtype::F64 => "g = x.T @ x",
            _ => "u = f64(x); g = u.T @ u",
        };
        let report = self.run(Job::eval(text)?.input("x", table.input()))?;
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
        if table.rows == 0 {
            return Err(MatrixError::NoRows.into());
        }
        let text = if how.intercept {
            "m = mean(f64(x), axis=0); k = mean(f64(t)); u = f64(x) - m; v = f64(t) - k; g = u.T @ u; b = u.T @ v;
            rest = sum(u, axis=0); rest_of_t = sum(v)"
        } else {
            "u = f64(x); g = u.T @ u; b = u.T @ f64(t)"
        };
        let job = Job::eval(text)?.input("x", table.input()).input("t", per_row("t", t, table.rows)?);
        let report = self.run(job)?;
        let (mut products, mut right) = (matrix(&report, "g", table.width)?.to_owned(), numbers(&report, "b")?);
        let (mut mean, mut mean_of_t) = (Array1::zeros(table.width), 0.0);
        if how.intercept {
            // What the rounding of the means has left in every row. The products of a constant column are nothing else.
            let rows = table.rows as f64;
            let (rest, rest_of_t) = (numbers(&report, "rest")? / rows, number(&report, "rest_of_t")? / rows);
            (mean, mean_of_t) = (numbers(&report, "m")?, number(&report, "k")?);
            for ((row, column), product) in products.indexed_iter_mut() {
                *product -= rows * rest[row] * rest[column];
            }
            right.zip_mut_with(&rest, |right, rest| *right -= rows * rest * rest_of_t);
            let is_constant = |(square, mean): (&f64, &f64)| *square <= rows * (CONSTANT * mean).powi(2);
            if how.ridge == 0.0 && products.diag().iter().zip(&mean).any(is_constant) {
                return Err(MatrixError::Singular.into());
            }
            mean += &rest;
            mean_of_t += rest_of_t;
        }
        products.diag_mut().mapv_inplace(|square| square + how.ridge);
        let weights = solve(&products.view(), &right)?;
        Ok(LinearModel { intercept: mean_of_t - mean.dot(&weights), weights })
    }

    /// Returns the means and the covariance of the columns.
    pub(super) fn moments(&self, table: &Table<'_>, ddof: u64) -> Result<(Array1<f64>, Array2<f64>)> {
        let rows = table.rows;
        if rows <= ddof {
            return Err(MatrixError::TooFewRows { rows, ddof }.into());
        }
        let job = Job::eval("m = mean(f64(x), axis=0); u = f64(x) - m; g = u.T @ u")?.input("x", table.input());
        let report = self.run(job)?;
        Ok((numbers(&report, "m")?, &matrix(&report, "g", table.width)? / (rows - ddof) as f64))
    }
}
