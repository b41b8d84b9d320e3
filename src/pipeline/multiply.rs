//! What multiplies matrices on a device, and splits their factors before, if the precision says so: see
//! [`split`](crate::device::split).

use std::sync::Arc;

use crate::device::kernel::ColumnProduct;
use crate::device::product::MatrixProduct;
use crate::device::split::{Factor, Pieces, is_split, split};
use crate::device::{Device, Precision, Stream, WORKSPACE_BYTES};
use crate::error::Result;

/// What multiplies the rows of a panel.
pub(super) enum OverRows<D: Device> {
    /// The library of the device.
    Library,
    /// The library, a piece of split rows at a time. The kernels split the two operands.
    Split([D::Kernel; 2], Pieces),
    /// The kernel, which adds up rows by their keys.
    ByKey(D::Kernel),
}

/// A place in device memory.
type Place<'a, D> = (&'a <D as Device>::Memory, usize);

impl<D: Device> OverRows<D> {
    /// Loads what multiplies panels of so many rows.
    pub(super) fn load(device: &D, product: &ColumnProduct, precision: Precision, rows: usize) -> Result<Self> {
        if let Some(kernel) = product.kernel(rows) {
            return Ok(OverRows::ByKey(device.load(&Arc::new(kernel))?));
        }
        if !product.is_split(precision) {
            return Ok(OverRows::Library);
        }
        let product = &product.product;
        let (first, second) = (Factor::First, Factor::Second);
        let kernels = [splitter(device, first, product.left)?, splitter(device, second, product.right)?];
        Ok(OverRows::Split(kernels, product.pieces(rows)))
    }

    /// Enqueues the product of the rows of a panel. Its sum is stored, or added to what is there unless the panel
    /// `is_first`.
    ///
    /// # Safety
    /// That of [`Stream::multiply`], and the workspace is the one with which the stream was prepared, and has the bytes
    /// of the pieces behind those of the stream. The panel has no more rows than this was loaded for.
    pub(super) unsafe fn multiply(
        &self,
        (stream, workspace): (&mut D::Stream, &D::Memory),
        ColumnProduct { product, .. }: &ColumnProduct,
        (first_row, rows): (u64, usize),
        operands: [Place<'_, D>; 2],
        sum: Place<'_, D>,
        is_first: bool,
    ) -> Result<()> {
        match self {
            // SAFETY: the caller vouches for the memory.
            OverRows::Library => unsafe { stream.multiply(product, rows, operands, sum, !is_first) },
            OverRows::ByKey(kernel) => {
                let [keys, elements] = operands;
                // SAFETY: as above.
                unsafe {
                    if is_first {
                        stream.zero(sum.0, sum.1, product.bytes())?;
                    }
                    stream.launch(kernel, &[keys, elements, sum], &[], first_row, rows)
                }
            }
            OverRows::Split(kernels, pieces) => {
                let row_bytes = [product.left, product.right].map(|numbers| numbers * product.float.size());
                let places = [0, pieces.second].map(|place| (workspace, WORKSPACE_BYTES + place));
                for begin in (0..rows).step_by(pieces.rows) {
                    let count = pieces.rows.min(rows - begin);
                    for side in 0..2 {
                        let from = (operands[side].0, operands[side].1 + begin * row_bytes[side]);
                        // SAFETY: the operand has these rows, which begin at a multiple of 8, as pieces have an even
                        // number of rows; a piece has room for three of `bf16` in place of each.
                        unsafe { stream.launch(&kernels[side], &[from, places[side]], &[], 0, count)? };
                    }
                    // SAFETY: the factors are what the kernels have written, and the caller vouches for the sum.
                    unsafe { stream.multiply(product, 3 * count, places, sum, !is_first || begin > 0)? };
                }
                Ok(())
            }
        }
    }
}

/// What multiplies rows with a matrix.
pub(super) enum ByMatrix<D: Device> {
    /// The library of the device.
    Library,
    /// The library. Kernels split the rows and the matrix, which is split once.
    Split { rows: D::Kernel, matrix: D::Kernel, split: D::Memory },
}

impl<D: Device> ByMatrix<D> {
    /// Loads what multiplies.
    pub(super) fn load(device: &D, product: &MatrixProduct, precision: Precision) -> Result<Self> {
        if !is_split(product.float, precision) {
            return Ok(ByMatrix::Library);
        }
        // The thirds of a number of a row follow each other, and so do three rows of the matrix.
        let (rows, matrix) = (splitter(device, Factor::First, 1)?, splitter(device, Factor::Second, product.width)?);
        Ok(ByMatrix::Split { rows, matrix, split: device.allocate(product.split_matrix_bytes())? })
    }

    /// Enqueues what has to be done once, before products.
    ///
    /// # Safety
    /// The matrix is at the start of its memory.
    pub(super) unsafe fn prepare(
        &self,
        stream: &mut D::Stream,
        product: &MatrixProduct,
        matrix: &D::Memory,
    ) -> Result<()> {
        let ByMatrix::Split { matrix: kernel, split, .. } = self else { return Ok(()) };
        // SAFETY: the caller vouches for the matrix; the other memory has room for what it becomes.
        unsafe { stream.launch(kernel, &[(matrix, 0), (split, 0)], &[], 0, product.inner) }
    }

    /// Enqueues the product of some rows, no more than those of a batch.
    ///
    /// # Safety
    /// That of [`Stream::multiply_rows`]. `prepare` was called on the stream. The workspace is the one with which the
    /// stream was prepared, of [`Kernel::workspace_bytes`](crate::device::kernel::Kernel::workspace_bytes).
    pub(super) unsafe fn multiply(
        &self,
        (stream, workspace): (&mut D::Stream, &D::Memory),
        product: &MatrixProduct,
        rows: usize,
        from: Place<'_, D>,
        matrix: &D::Memory,
        to: Place<'_, D>,
    ) -> Result<()> {
        match self {
            // SAFETY: the caller vouches for the memory.
            ByMatrix::Library => unsafe { stream.multiply_rows(product, rows, from, matrix, to) },
            ByMatrix::Split { rows: kernel, split, .. } => {
                let place = (workspace, WORKSPACE_BYTES);
                // SAFETY: as above; the workspace has room for the split rows of a batch, and the matrix is split.
                unsafe {
                    stream.launch(kernel, &[from, place], &[], 0, rows * product.inner)?;
                    stream.multiply_rows(&product.of_split(), rows, place, split, to)
                }
            }
        }
    }
}

/// Loads the kernel that splits rows of `width` numbers.
fn splitter<D: Device>(device: &D, factor: Factor, width: usize) -> Result<D::Kernel> {
    device.load(&Arc::new(split(factor, width)))
}
