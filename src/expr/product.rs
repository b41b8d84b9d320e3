//! Products over the rows: `x.T @ y` adds up, over all rows, the products of each element of a row of `x` with each
//! element of the same row of `y`.
//!
//! The kernel of a program computes the operands of each row, as it computes outputs. They are multiplied where they
//! are, many rows at a time, by a library for matrices: see `device/product.rs`.

use super::fault::Fault;
use super::hints;
use super::ir::{Id, Node, Op};
use super::reduce::Reduction;
use super::shape::{Extent, RowShape, TermShape};
use super::words::Kind;
use crate::data::Dtype;
use crate::device::product::{Float, Product, Side};

/// The message about a product beside outputs that are filtered.
pub(super) const BESIDE_FILTER: &str =
    "a product over the rows is not computed beside filtered outputs; compute it in a job of its own";

/// An operand of a product.
pub(super) struct Factor {
    /// Its name in messages.
    pub(super) name: String,
    pub(super) at: usize,
    /// The value, in the dtype of the product. It is zero in rows that a filter leaves out.
    pub(super) id: Id,
    pub(super) dtype: Dtype,
    pub(super) shape: TermShape,
}

/// A product with its operands.
pub(super) struct Factors {
    pub(super) operands: [Factor; 2],
    reduction: Reduction,
    product: Product,
    by_key: bool,
}

/// A product over the rows.
#[derive(Clone, Debug)]
pub(crate) struct RowProduct {
    /// The sum, as a reduction whose states are the sums over some rows.
    pub(crate) reduction: Reduction,
    /// Its operands: those that the kernel computes, or inputs of the program.
    pub(crate) sides: [Side; 2],
    pub(crate) product: Product,
    /// Whether the left operand is keys.
    pub(crate) by_key: bool,
}

/// The dimensions of a value of this shape in each row, one or none, if it can be multiplied.
pub(super) fn dims_of(TermShape { extent, is_reduced, .. }: TermShape, row: &RowShape) -> Option<Vec<u64>> {
    match (extent, &row.dims[..]) {
        (Extent::Full | Extent::PerRow, [_]) | (Extent::One, [1]) if is_reduced => Some(vec![]),
        (Extent::Full, [width]) => Some(vec![*width]),
        (Extent::PerRow, [_]) => Some(vec![1]),
        (Extent::Full, []) => Some(vec![]),
        _ => None,
    }
}

/// The reduction and the product over the rows of operands with these dimensions in each row. The left one may be keys.
///
/// # Errors
/// A fault if neither has a dimension, if a row has several keys, or if the product is too large.
pub(super) fn of_sides(
    (at, label): (usize, &str),
    keys: Option<u32>,
    dtype: Dtype,
    [mut left, right]: [Vec<u64>; 2],
) -> Result<(Reduction, Product), Fault> {
    if let Some(keys) = keys {
        if left.iter().any(|dim| *dim != 1) {
            return Err(Fault::new(at, hints::KEYS_OF_ROWS));
        }
        left = vec![u64::from(keys)];
    }
    let elements = |dims: &[u64]| dims.iter().map(|dim| *dim as usize).product();
    let (rows, columns) = (elements(&left), elements(&right));
    let shape = [left, right].concat();
    if shape.is_empty() {
        return Err(Fault::new(at, NO_MATRIX));
    }
    if !Reduction::is_possible(&shape) {
        return Err(Fault::new(at, "a product over the rows has at most 16777216 elements; multiply fewer columns"));
    }
    let reduction = Reduction::new(label.to_owned(), Kind::Sum, dtype).along_rows(shape);
    Ok((reduction, Product { float: float_of(dtype), left: rows, right: columns }))
}

/// The dtype of a product of values that are `f32` or else `f64`.
pub(crate) fn float_of(dtype: Dtype) -> Float {
    if dtype == Dtype::F32 { Float::F32 } else { Float::F64 }
}

impl Factors {
    /// # Errors
    /// A fault if an operand does not have the elements of a row, or if the product is too large.
    pub(super) fn new(
        (at, label): (usize, &str),
        keys: Option<u32>,
        operands: [Factor; 2],
        row: &RowShape,
    ) -> Result<Factors, Fault> {
        let dims = |side: &Factor| dims_of(side.shape, row).ok_or_else(|| Fault::new(side.at, NO_MATRIX));
        let sides = [dims(&operands[0])?, dims(&operands[1])?];
        let (reduction, product) = of_sides((at, label), keys, operands[1].dtype, sides)?;
        Ok(Factors { operands, reduction, product, by_key: keys.is_some() })
    }
}

/// The dtype of a product at `at` of values of this dtype.
///
/// # Errors
/// A fault if there are no products of it.
pub(super) fn dtype(at: usize, dtype: Dtype) -> Result<Dtype, Fault> {
    match dtype {
        Dtype::F32 | Dtype::F64 => Ok(dtype),
        _ => {
            Err(Fault::new(at, format!("`@` multiplies f32 and f64, not {dtype}; convert first, like `f64(x).T @ y`")))
        }
    }
}

/// Finds the operands of products, of a program with these operations: inputs that are multiplied `as_they_are`, and
/// those that the kernel computes, which are numbered, each value once. Returns the products, and these operands.
pub(super) fn numbered(
    products: Vec<Factors>,
    nodes: &[Node],
    as_they_are: impl Fn(usize) -> bool,
) -> (Vec<RowProduct>, Vec<Factor>) {
    let mut all: Vec<Factor> = vec![];
    let mut side = |operand: Factor| match nodes[operand.id].op {
        Op::Input(input) if as_they_are(input) => Side::Input(input),
        _ => {
            let known = all.iter().position(|other| (other.id, other.shape) == (operand.id, operand.shape));
            Side::Operand(known.unwrap_or_else(|| {
                all.push(operand);
                all.len() - 1
            }))
        }
    };
    let each = products.into_iter();
    let products = each.map(|Factors { operands, reduction, product, by_key }| {
        let sides = operands.map(&mut side);
        RowProduct { reduction, sides, product, by_key }
    });
    (products.collect(), all)
}

const NO_MATRIX: &str = "`@` multiplies over the rows of arrays of two dimensions; give one the shape `(n, d)`, or \
     write `sum(x * y)` for the dot product";
