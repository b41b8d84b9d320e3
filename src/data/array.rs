//! Arrays of the crate ndarray as inputs and outputs, of any strides: a [`RawArray`] of each.

use ndarray::{ArcArray, ArrayView, ArrayViewMut, Dimension};

use super::{ArrayValue, Dtype, Element, Input, Memory, Output, RawArray, RawArrayMut, Source};
use crate::error::Result;

/// The elements of an array, with the array that keeps them.
struct SharedArray<A> {
    elements: RawArray<'static>,
    _array: A,
}

impl<A: Send + Sync> Source for SharedArray<A> {
    fn dtype(&self) -> Dtype {
        self.elements.dtype()
    }

    fn rows(&self) -> u64 {
        self.elements.rows()
    }

    fn name(&self) -> String {
        self.elements.name()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        self.elements.read(first, dst)
    }

    fn memory(&self) -> Option<Memory<'_>> {
        self.elements.memory()
    }

    fn shape(&self) -> Option<&[u64]> {
        self.elements.shape()
    }

    fn version(&self) -> Option<u128> {
        self.elements.version()
    }

    fn warning(&self) -> Option<String> {
        self.elements.warning()
    }
}

fn shape_of(shape: &[usize]) -> Vec<u64> {
    shape.iter().map(|&length| length as u64).collect()
}

/// Returns the strides in bytes.
fn strides_of(strides: &[isize], element: usize) -> Vec<isize> {
    strides.iter().map(|stride| stride * element as isize).collect()
}

/// Implements the conversions for arrays of one or all elements.
macro_rules! arrays {
    ($($element:ty, $dtype:expr $(, $bound:ident)?);*) => {$(
        /// An array that a job reads in place; it needs the feature `ndarray`. It has the shape of the array, and
        /// each of its elements is a row: an array of shape `(n, d)` has `n * d` rows. If they are not adjacent in
        /// row-major order, they are gathered chunk by chunk; the report says so.
        impl<'a, $(T: $bound,)? D: Dimension> From<ArrayView<'a, $element, D>> for Input<'a> {
            fn from(array: ArrayView<'a, $element, D>) -> Self {
                let (shape, strides) = (shape_of(array.shape()), strides_of(array.strides(), size_of::<$element>()));
                // SAFETY: the view borrows its elements for `'a`.
                unsafe { RawArray::<'a>::new(array.as_ptr().cast(), $dtype, &shape, &strides) }.into()
            }
        }

        /// As for [`ArrayView`]. The job shares the array, so that it borrows nothing.
        impl<$(T: $bound,)? D: Dimension + Send + Sync + 'static> From<ArcArray<$element, D>> for Input<'_> {
            fn from(array: ArcArray<$element, D>) -> Self {
                let (shape, strides) = (shape_of(array.shape()), strides_of(array.strides(), size_of::<$element>()));
                // SAFETY: the source keeps the array, whose elements have a fixed address, as long as `elements`;
                // nobody writes to the elements of a shared array.
                let elements = unsafe { RawArray::new(array.as_ptr().cast(), $dtype, &shape, &strides) };
                SharedArray { elements, _array: array }.into()
            }
        }

        /// An array that a job writes in place, of any strides; it needs the feature `ndarray`. Each of its elements is
        /// a row. If the inputs of the job have a shape, the array must have it, too.
        impl<'a, $(T: $bound,)? D: Dimension> From<ArrayViewMut<'a, $element, D>> for Output<'a> {
            fn from(mut array: ArrayViewMut<'a, $element, D>) -> Self {
                let (shape, strides) = (shape_of(array.shape()), strides_of(array.strides(), size_of::<$element>()));
                // SAFETY: the view borrows its elements for `'a`, and they do not overlap.
                unsafe { RawArrayMut::<'a>::new(array.as_mut_ptr().cast(), $dtype, &shape, &strides) }.into()
            }
        }
    )*};
}
arrays!(T, T::DTYPE, Element; bool, Dtype::Bool);

/// A copy; it needs the feature `ndarray`.
impl<T: Element, D: Dimension> From<ArrayView<'_, T, D>> for ArrayValue {
    fn from(array: ArrayView<'_, T, D>) -> Self {
        let mut words = vec![0_u64; (array.len() * size_of::<T>()).div_ceil(8)];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        for (to, value) in bytes.chunks_exact_mut(size_of::<T>()).zip(&array) {
            to.copy_from_slice(bytemuck::bytes_of(value));
        }
        ArrayValue::of_words(T::DTYPE, shape_of(array.shape()), words)
    }
}
