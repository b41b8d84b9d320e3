//! Eigenvalues, equations and orthonormal directions of matrices that are small, by faer.

use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::{factor as llt, solve as llt_solve};
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::linalg::householder::{
    apply_block_householder_sequence_on_the_left_in_place_scratch as apply_scratch,
    apply_block_householder_sequence_on_the_left_in_place_with_conj as apply,
};
use faer::linalg::matmul::matmul;
use faer::linalg::qr::no_pivoting::factor as qr;
use faer::linalg::triangular_inverse::invert_lower_triangular;
use faer::{Accum, Conj, Mat, MatMut, MatRef, Par};
use ndarray::{Array1, Array2, ArrayView2};

use crate::error::MatrixError;

/// In how many parts faer divides its work. It is the same on every machine, because sums of other parts have other
/// bits; threads take the parts.
const PARTS: usize = 8;

fn parallel() -> Par {
    Par::rayon(PARTS)
}

fn of_array(values: &ArrayView2<'_, f64>) -> Mat<f64> {
    Mat::from_fn(values.nrows(), values.ncols(), |row, column| values[[row, column]])
}

/// Returns the product of a matrix and another one that is transposed. The calling thread computes it alone.
pub(super) fn times_transposed(one: &ArrayView2<'_, f64>, other: &ArrayView2<'_, f64>) -> Array2<f64> {
    let (rows, columns, inner) = (one.nrows(), other.nrows(), one.ncols());
    let (one, other) = (one.as_standard_layout(), other.as_standard_layout());
    let mut product = vec![0.0; rows * columns];
    if let (Some(one), Some(other)) = (one.as_slice(), other.as_slice()) {
        let other = MatRef::from_row_major_slice(other, columns, inner).transpose();
        let one = MatRef::from_row_major_slice(one, rows, inner);
        let to = MatMut::from_row_major_slice_mut(&mut product, rows, columns);
        matmul(to, Accum::Replace, one, other, 1.0, Par::Seq);
    }
    Array2::from_shape_vec((rows, columns), product).unwrap_or_default()
}

/// Returns the eigenvalues of a symmetric matrix in ascending order, and the eigenvectors as columns.
pub(super) fn eigen(values: &ArrayView2<'_, f64>) -> Result<(Array1<f64>, Array2<f64>), MatrixError> {
    if !values.iter().all(|value| value.is_finite()) {
        return Err(MatrixError::NotFinite { name: "x" });
    }
    let size = values.nrows();
    let (mut found, mut vectors) = (Diag::zeros(size), Mat::zeros(size, size));
    let scratch = self_adjoint_evd_scratch::<f64>(size, ComputeEigenvectors::Yes, parallel(), Default::default());
    self_adjoint_evd(
        of_array(values).as_ref(),
        found.as_mut(),
        Some(vectors.as_mut()),
        parallel(),
        MemStack::new(&mut MemBuffer::new(scratch)),
        Default::default(),
    )
    .map_err(|_| MatrixError::NoEigenvalues)?;
    let column = found.column_vector();
    Ok((Array1::from_shape_fn(size, |k| column[k]), Array2::from_shape_fn((size, size), |(row, k)| vectors[(row, k)])))
}

/// The most that rounding may be magnified in a solution. Sums of products have errors of some units in the last place,
/// so a larger magnification leaves no digit.
const WORST: f64 = 1.0 / (128.0 * f64::EPSILON);

/// Solves equations with a symmetric positive matrix, by Cholesky's method.
///
/// # Errors
/// [`MatrixError::Singular`] if a column follows from others up to rounding.
pub(super) fn solve(values: &ArrayView2<'_, f64>, right: &Array1<f64>) -> Result<Array1<f64>, MatrixError> {
    if !values.iter().all(|value| value.is_finite()) {
        return Err(MatrixError::NotFinite { name: "x" });
    }
    if !right.iter().all(|value| value.is_finite()) {
        return Err(MatrixError::NotFinite { name: "t" });
    }
    // With ones on the diagonal, so that units of columns do not matter.
    let size = values.nrows();
    let scale = values.diag().mapv(|square| square.sqrt().recip());
    if !scale.iter().all(|scale| scale.is_finite()) {
        return Err(MatrixError::Singular);
    }
    let mut factor = Mat::from_fn(size, size, |row, column| values[[row, column]] * scale[row] * scale[column]);
    let scratch = llt::cholesky_in_place_scratch::<f64>(size, parallel(), Default::default());
    llt::cholesky_in_place(
        factor.as_mut(),
        Default::default(),
        parallel(),
        MemStack::new(&mut MemBuffer::new(scratch)),
        Default::default(),
    )
    .map_err(|_| MatrixError::Singular)?;
    // A row of the inverse factor has the weights by which other columns give its column, divided by what they leave of
    // it. So the square of their sum bounds by how much errors of the products are magnified.
    let mut inverse = Mat::<f64>::zeros(size, size);
    invert_lower_triangular(inverse.as_mut(), factor.as_ref(), parallel());
    let magnified = |row: usize| (0..=row).map(|column| inverse[(row, column)].abs()).sum::<f64>().powi(2);
    if (0..size).any(|row| magnified(row).is_nan() || magnified(row) > WORST) {
        return Err(MatrixError::Singular);
    }
    let mut solution = Mat::from_fn(size, 1, |row, _| right[row] * scale[row]);
    let scratch = llt_solve::solve_in_place_scratch::<f64>(size, 1, parallel());
    let mut memory = MemBuffer::new(scratch);
    llt_solve::solve_in_place(factor.as_ref(), solution.as_mut(), parallel(), MemStack::new(&mut memory));
    Ok(Array1::from_shape_fn(size, |row| solution[(row, 0)] * scale[row]))
}

/// Returns orthonormal directions, as columns, that are orthogonal to those of a basis, and span with it what the given
/// ones span with it. There are no more than the space has room for.
pub(super) fn orthonormal(directions: Array2<f64>, basis: &Array2<f64>) -> Array2<f64> {
    let count = directions.ncols().min(basis.nrows() - basis.ncols());
    let mut directions = directions.slice_move(ndarray::s![.., ..count]);
    // What is left of directions within the basis is noise, which has to be made orthogonal again.
    for _ in 0..3 {
        directions = q_of(&(&directions - &basis.dot(&basis.t().dot(&directions))).view());
    }
    directions
}

/// Returns Q of the QR decomposition: as many orthonormal columns as the matrix has.
fn q_of(values: &ArrayView2<'_, f64>) -> Array2<f64> {
    let (rows, columns) = values.dim();
    let block = qr::recommended_block_size::<f64>(rows, columns);
    let (mut basis, mut factors) = (of_array(values), Mat::zeros(block, columns));
    let scratch = qr::qr_in_place_scratch::<f64>(rows, columns, block, parallel(), Default::default());
    let mut memory = MemBuffer::new(scratch);
    qr::qr_in_place(basis.as_mut(), factors.as_mut(), parallel(), MemStack::new(&mut memory), Default::default());
    let mut orthonormal = Mat::<f64>::identity(rows, columns);
    let mut memory = MemBuffer::new(apply_scratch::<f64>(rows, block, columns));
    let stack = MemStack::new(&mut memory);
    apply(basis.as_ref(), factors.as_ref(), Conj::No, orthonormal.as_mut(), parallel(), stack);
    Array2::from_shape_fn((rows, columns), |(row, column)| orthonormal[(row, column)])
}
