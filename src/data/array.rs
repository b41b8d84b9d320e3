//! Arrays of the crate ndarray as sources and targets. They are used in place, as slices are, and have a shape.

use ndarray::{ArcArray, ArrayView, ArrayViewMut, Dimension};

use super::raw_array::check_shape;
use super::slice::OwnedSource;
use super::{Dtype, Element, Input, Memory, Output, Placement, Sink, Source, Target};
use crate::error::{ColumnError, Error, Result};

/// The rows of another source, in the shape of an array.
struct ArraySource<S> {
    rows: S,
    shape: Vec<u64>,
}

impl<S: Source> Source for ArraySource<S> {
    fn dtype(&self) -> Dtype {
        self.rows.dtype()
    }

    fn rows(&self) -> u64 {
        self.rows.rows()
    }

    fn name(&self) -> String {
        "array".into()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        self.rows.read(first, dst)
    }

    fn memory(&self) -> Option<Memory<'_>> {
        self.rows.memory()
    }

    fn shape(&self) -> Option<&[u64]> {
        Some(&self.shape)
    }
}

/// The rows of a slice, in the shape of an array.
struct ArrayTarget<'a> {
    rows: Output<'a>,
    shape: Vec<u64>,
}

impl Target for ArrayTarget<'_> {
    fn name(&self) -> String {
        "array".into()
    }

    fn dtype(&self) -> Option<Dtype> {
        self.rows.target().dtype()
    }

    fn rows(&self) -> Option<u64> {
        self.rows.target().rows()
    }

    fn place(&self) -> Placement {
        self.rows.target().place()
    }

    fn memory(&self) -> Option<&[u8]> {
        self.rows.target().memory()
    }

    fn open<'s>(self: Box<Self>, dtype: Dtype, rows: u64, shape: Option<&[u64]>) -> Result<Box<dyn Sink + 's>>
    where
        Self: 's,
    {
        check_shape(&self.shape, shape)?;
        self.rows.open(dtype, rows, None)
    }
}

fn shape_of(shape: &[usize]) -> Vec<u64> {
    shape.iter().map(|&length| length as u64).collect()
}

fn not_standard(shape: &[usize], strides: &[isize]) -> Error {
    ColumnError::NotStandardLayout { shape: format!("{shape:?}"), strides: format!("{strides:?}") }.into()
}

/// Implements the conversions for arrays of one or all elements.
macro_rules! arrays {
    ($($element:ty, $dtype:expr $(, $bound:ident)?);*) => {$(
        /// An array that a job reads in place; it needs the feature `ndarray`. It has the shape of the array, and
        /// each of its elements is a row: an array of shape `(n, d)` has `n * d` rows.
        ///
        /// # Errors
        /// [`Error::InvalidColumn`](crate::Error::InvalidColumn) if the array is not in standard layout: contiguous,
        /// in row-major order.
        impl<'a, $(T: $bound,)? D: Dimension + 'a> TryFrom<ArrayView<'a, $element, D>> for Input<'a> {
            type Error = Error;

            fn try_from(array: ArrayView<'a, $element, D>) -> Result<Self> {
                let rows = array.to_slice().ok_or_else(|| not_standard(array.shape(), array.strides()))?;
                let rows = OwnedSource { values: rows, dtype: $dtype, bytes: |rows| bytemuck::cast_slice(rows) };
                Ok(ArraySource { rows, shape: shape_of(array.shape()) }.into())
            }
        }

        /// As for [`ArrayView`]. The job shares the array, so that it borrows nothing.
        ///
        /// # Errors
        /// As for [`ArrayView`].
        impl<$(T: $bound,)? D: Dimension + 'static> TryFrom<ArcArray<$element, D>> for Input<'_> {
            type Error = Error;

            fn try_from(array: ArcArray<$element, D>) -> Result<Self> {
                if !array.is_standard_layout() {
                    return Err(not_standard(array.shape(), array.strides()));
                }
                let shape = shape_of(array.shape());
                let rows = OwnedSource {
                    values: array,
                    dtype: $dtype,
                    bytes: |array| bytemuck::cast_slice(array.as_slice().unwrap_or_default()),
                };
                Ok(ArraySource { rows, shape }.into())
            }
        }

        /// An array that a job writes in place; it needs the feature `ndarray`. Each of its elements is a row.
        ///
        /// # Errors
        /// [`Error::InvalidColumn`](crate::Error::InvalidColumn) if the array is not in standard layout: contiguous,
        /// in row-major order. The job fails with it, too, if its inputs have a shape and the array has another.
        impl<'a, $(T: $bound,)? D: Dimension> TryFrom<ArrayViewMut<'a, $element, D>> for Output<'a> {
            type Error = Error;

            fn try_from(array: ArrayViewMut<'a, $element, D>) -> Result<Self> {
                let (shape, strides) = (array.shape().to_vec(), array.strides().to_vec());
                let rows = array.into_slice().ok_or_else(|| not_standard(&shape, &strides))?;
                Ok(ArrayTarget { rows: rows.into(), shape: shape_of(&shape) }.into())
            }
        }
    )*};
}
arrays!(T, T::DTYPE, Element; bool, Dtype::Bool);
