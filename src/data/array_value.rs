//! Arrays of values: results with a value for each element of a row.

use std::fmt;
use std::sync::Arc;

use super::{Dtype, Element, Scalar};

/// A dimension with more elements than this is abbreviated in text: twice [`EDGE`] of them are shown.
const SHOWN: u64 = 6;
/// So many of the first and of the last elements are shown then.
const EDGE: u64 = 3;

/// An array of values of one dtype, in row-major order: the result of a reduction that has one value for each element
/// of a row, such as `mean(x, axis=0)`.
///
/// `{}` writes it as one line, abbreviated as NumPy abbreviates: `[0 1 2 ... 97 98 99]`. Arrays are equal if their
/// dtypes, shapes and bits are; so NaN equals NaN, and 0.0 differs from -0.0. Clones share the values.
#[derive(Clone, PartialEq, Eq)]
pub struct ArrayValue {
    dtype: Dtype,
    shape: Vec<u64>,
    len: usize,
    /// The bytes of the values, in native byte order, and zeros behind the last one. They are stored in words because
    /// these are aligned for every dtype.
    words: Arc<Vec<u64>>,
}

impl ArrayValue {
    /// Creates an array of these values, which all have this dtype; `None` if one of them is `None`, or if there are
    /// fewer than the shape says.
    pub(crate) fn of_values(
        dtype: Dtype,
        shape: Vec<u64>,
        values: impl IntoIterator<Item = Option<Scalar>>,
    ) -> Option<ArrayValue> {
        let len = shape.iter().product::<u64>() as usize;
        let mut words = vec![0_u64; (len * dtype.size()).div_ceil(8)];
        let (to, values) = ((bytemuck::cast_slice_mut(&mut words), len), values.into_iter());
        match dtype.size() {
            1 => store::<1>(to, values),
            2 => store::<2>(to, values),
            4 => store::<4>(to, values),
            _ => store::<8>(to, values),
        }?;
        Some(ArrayValue { dtype, shape, len, words: Arc::new(words) })
    }

    /// The same of values in a slice.
    ///
    /// # Panics
    /// If they are not as many as the shape says.
    #[cfg(test)]
    pub(crate) fn new(dtype: Dtype, shape: Vec<u64>, values: &[Scalar]) -> ArrayValue {
        assert!(shape.iter().product::<u64>() == values.len() as u64);
        ArrayValue::of_values(dtype, shape, values.iter().copied().map(Some)).unwrap_or_else(|| unreachable!())
    }

    /// An array of this shape with the values of these words, in native byte order.
    pub(crate) fn of_words(dtype: Dtype, shape: Vec<u64>, words: Vec<u64>) -> ArrayValue {
        let len = shape.iter().product::<u64>() as usize;
        debug_assert!(words.len() == (len * dtype.size()).div_ceil(8));
        ArrayValue { dtype, shape, len, words: Arc::new(words) }
    }

    /// Returns the dtype of the values.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the lengths of the dimensions.
    #[must_use]
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the value at a place in row-major order; `None` beyond the end.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Scalar> {
        let size = self.dtype.size();
        let value = self.bytes().chunks_exact(size).nth(index)?;
        let mut word = [0; 8];
        word[low_bytes(size)..][..size].copy_from_slice(value);
        Some(Scalar::of_bits(self.dtype, u64::from_ne_bytes(word)))
    }

    /// Returns the values in row-major order.
    pub fn values(&self) -> impl ExactSizeIterator<Item = Scalar> {
        (0..self.len).map(|index| self.get(index).unwrap_or_else(|| Scalar::of_bits(self.dtype, 0)))
    }

    /// Returns the values as a vector of their type, in row-major order; `None` if they have another type. Those of
    /// `bool` have no [`Element`], so they are read with [`values`](ArrayValue::values).
    #[must_use]
    pub fn to_vec<T: Element>(&self) -> Option<Vec<T>> {
        (T::DTYPE == self.dtype).then(|| bytemuck::cast_slice(self.bytes()).to_vec())
    }

    /// Returns the bytes of the values, in row-major order and in native byte order. They are aligned for the dtype.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(self.words.as_slice())[..self.len * self.dtype.size()]
    }

    /// Returns the whole array as a part of itself.
    pub(crate) fn whole(&self) -> ArrayPart<'_> {
        ArrayPart { array: self, shape: &self.shape, first: 0 }
    }
}

/// Stores the bits of so many values of a dtype of this size; `None` if one of them is `None`. A constant size makes
/// each of them one store: results may have millions of values.
fn store<const SIZE: usize>(
    (bytes, len): (&mut [u8], usize),
    mut values: impl Iterator<Item = Option<Scalar>>,
) -> Option<()> {
    for to in bytes.as_chunks_mut::<SIZE>().0.iter_mut().take(len) {
        let value = values.next().flatten()?;
        debug_assert!(value.dtype().size() == SIZE);
        to.copy_from_slice(&value.bits().to_ne_bytes()[low_bytes(SIZE)..][..SIZE]);
    }
    Some(())
}

/// Returns where the low bytes of a word begin that has a value of this size.
const fn low_bytes(size: usize) -> usize {
    if cfg!(target_endian = "big") { 8 - size } else { 0 }
}

/// A part of an array: the array itself, the part at an index of its first dimension, and so on to a single value.
#[derive(Clone, Copy)]
pub(crate) struct ArrayPart<'a> {
    array: &'a ArrayValue,
    /// The lengths of its dimensions; of a value, none.
    shape: &'a [u64],
    first: u64,
}

impl<'a> ArrayPart<'a> {
    /// Returns the value, if it is one.
    pub(crate) fn value(self) -> Option<Scalar> {
        if self.shape.is_empty() { self.array.get(self.first as usize) } else { None }
    }

    /// Returns the length of its first dimension; 0 for a value.
    pub(crate) fn len(self) -> u64 {
        self.shape.first().copied().unwrap_or(0)
    }

    /// Returns the part at an index of the first dimension.
    pub(crate) fn at(self, index: u64) -> ArrayPart<'a> {
        let inner = self.shape.get(1..).unwrap_or_default();
        let first = self.first + index * inner.iter().product::<u64>();
        ArrayPart { array: self.array, shape: inner, first }
    }
}

impl fmt::Display for ArrayPart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(value) = self.value() {
            return fmt::Display::fmt(&value, f);
        }
        let len = self.len();
        let (head, tail) = if len > SHOWN { (EDGE, len - EDGE) } else { (len, len) };
        f.write_str("[")?;
        for index in (0..head).chain(tail..len) {
            if index > 0 {
                f.write_str(if index == tail { " ... " } else { " " })?;
            }
            fmt::Display::fmt(&self.at(index), f)?;
        }
        f.write_str("]")
    }
}

impl fmt::Display for ArrayValue {
    /// Writes one line, abbreviated as NumPy abbreviates: of more than six elements of a dimension, the first and the
    /// last three.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.whole(), f)
    }
}

impl fmt::Debug for ArrayValue {
    /// Writes all values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArrayValue {:?} ", self.shape)?;
        f.debug_list().entries(self.values()).finish()
    }
}
