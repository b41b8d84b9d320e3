//! Shapes of inputs: what a row is, and which inputs are broadcast, by NumPy's rules.
//!
//! If all inputs have the same shape, a row is one element, whatever the shape, so that chunks may begin anywhere.
//! Otherwise, or if the expression needs rows, a row is a slice along the first axis. An input then has all elements of
//! each row, one element of each row, or one row that is the same for all rows. An array of one dimension has a value
//! for each row, which goes with others of its shape, if it cannot be broadcast, is filtered, or is in the condition of
//! a filter.

use crate::data::numpy_shape;
use crate::error::{JobError, Result};
use crate::expr::{Axes, Extent, RowShape};

/// An input as far as its shape goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shaped<'s> {
    pub(super) name: &'s str,
    /// The number of elements.
    pub(super) count: u64,
    /// The lengths of its dimensions; `None` for those that only have elements, such as slices.
    pub(super) shape: Option<&'s [u64]>,
    /// Whether the text tells that it has a value for each row, if it has one dimension.
    pub(super) is_of_rows: bool,
}

impl Shaped<'_> {
    /// Whether it has one dimension, which is the first one of arrays of the shape `whole`: the text tells so, or it
    /// cannot be broadcast to the last dimension.
    fn has_value_of_each_row(&self, whole: &[u64]) -> bool {
        let length = match self.shape {
            Some([length]) => *length,
            Some(_) => return false,
            None => self.count,
        };
        let fits = |last: &u64| length == 1 || *last == 1 || length == *last;
        let is_broadcast = !self.is_of_rows && whole.last().is_some_and(fits);
        whole.len() > 1 && whole[0] == length && !is_broadcast
    }
}

/// The shape of a job whose rows have several elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wide {
    /// The number of rows.
    pub(super) rows: u64,
    /// The lengths of the dimensions in front of those of a row: the number of rows, or its factors.
    pub(super) outer: Vec<u64>,
    /// Their shape, and the extent of each input.
    pub(super) row: RowShape,
}

impl Wide {
    /// The shape of arrays with all elements.
    pub(super) fn whole(&self) -> Vec<u64> {
        self.outer.iter().chain(&self.row.dims).copied().collect()
    }

    /// The shape of an array with so many elements of each row, if a filter keeps all rows.
    pub(super) fn of_kept_rows(&self, elements: u64, is_reduced: bool) -> Vec<u64> {
        let shape = self.of_elements(elements, is_reduced);
        [self.rows].into_iter().chain(shape[self.outer.len()..].iter().copied()).collect()
    }

    /// The shape of an array with so many elements of each row: all, or one. One that was reduced has no dimensions of
    /// a row.
    pub(super) fn of_elements(&self, elements: u64, is_reduced: bool) -> Vec<u64> {
        let mut shape = self.whole();
        if is_reduced {
            shape.truncate(self.outer.len());
        } else if elements == 1 {
            shape[self.outer.len()..].fill(1);
        }
        shape
    }
}

/// What decides about the rows of a job, besides its inputs.
#[derive(Default)]
pub(super) struct RowNeeds {
    /// Whether a value depends on the first axis.
    pub(super) first_axis: bool,
    /// The axes of reductions within rows.
    pub(super) within: Vec<Axes>,
}

impl RowNeeds {
    /// The number of dimensions of a row, of arrays of so many dimensions and of one shape. It is all but the first,
    /// unless only others are reduced.
    fn dims_of_row(&self, dims: usize) -> usize {
        let mut reduced = self.within.iter().map(|axes| axes.last_of(dims));
        match reduced.next().flatten() {
            Some(count) if !self.first_axis && reduced.all(|other| other == Some(count)) => count,
            _ => dims - 1,
        }
    }
}

/// Returns the shape of a job with these inputs; `None` if a row is one element.
///
/// # Errors
/// If the shapes do not fit together.
pub(super) fn wide(inputs: &[Shaped<'_>], needs: &RowNeeds) -> Result<Option<Wide>> {
    let shapes = || inputs.iter().filter_map(|input| Some((input, input.shape?)));
    let Some((first, longest)) = shapes().max_by_key(|(_, shape)| shape.len()) else { return Ok(None) };
    let differ = |(first, shape): (&Shaped<'_>, &[u64]), name: &str, other: &[u64]| JobError::ShapesDiffer {
        first: first.name.into(),
        shape: numpy_shape(shape),
        other: name.into(),
        other_shape: numpy_shape(other),
    };
    if longest.len() < 2 {
        // Their lengths are numbers of rows, which are compared with those of all inputs and outputs.
        return Ok(None);
    }
    let mut whole = longest.to_vec();
    // Last those of one dimension, and of these the ones that may have a value for each row: others decide about that.
    let mut in_order: Vec<_> = shapes().collect();
    in_order.sort_by_key(|(_, shape)| (shape.len() == 1, shape.first() == longest.first()));
    for (place, (input, shape)) in in_order.iter().enumerate() {
        if input.has_value_of_each_row(&whole) {
            continue;
        }
        if !are_broadcast(&whole, shape) {
            // The one that has these lengths.
            let other = in_order[..place].iter().find(|(_, other)| !are_broadcast(other, shape));
            return Err(differ(*other.unwrap_or(&(first, longest)), input.name, shape).into());
        }
        for (dim, other) in whole.iter_mut().rev().zip(shape.iter().rev()).filter(|(dim, _)| **dim == 1) {
            *dim = *other;
        }
    }
    let elements = whole.iter().try_fold(1_u64, |all, dim| all.checked_mul(*dim));
    // What has no shape goes with every shape of as many elements.
    let is_whole = |input: &Shaped<'_>| match input.shape {
        Some(shape) => shape == whole,
        None => Some(input.count) == elements,
    };
    let are_whole = inputs.iter().all(is_whole);
    if !needs.first_axis && needs.within.is_empty() && are_whole {
        return Ok(None);
    }
    if elements.is_none_or(|elements| elements > u64::MAX / 16) {
        return Err(JobError::TooLarge { name: first.name.into() }.into());
    }
    let outer = whole.len() - if are_whole { needs.dims_of_row(whole.len()) } else { whole.len() - 1 };
    let dims = whole[outer..].to_vec();
    if let Some(dim) = dims.iter().rev().position(|dim| *dim == 0) {
        let is_zero = |shape: &&[u64]| shape.iter().rev().nth(dim) == Some(&0);
        let of = |input: &Shaped<'_>| Some((input.name.to_owned(), input.shape.filter(is_zero)?.to_vec()));
        let (name, shape) = inputs.iter().find_map(of).unwrap_or((first.name.into(), longest.to_vec()));
        return Err(JobError::NoElements { name, shape: numpy_shape(&shape) }.into());
    }
    let extent = |input: &Shaped<'_>| {
        let own = [input.count];
        let shape = input.shape.unwrap_or(&own);
        if is_whole(input) {
            return Ok(Extent::Full);
        }
        if input.has_value_of_each_row(&whole) {
            return Ok(Extent::PerRow);
        }
        // Beside a single row, one element of each row is also one row for all rows.
        let is_per_row = shape.len() == whole.len() && shape[0] == whole[0] && shape[1..].iter().all(|dim| *dim == 1);
        if !is_per_row && (shape.len() < whole.len() || shape[0] == 1) {
            let fits = dims.iter().rev().zip(shape.iter().rev()).all(|(dim, other)| dim == other || *other == 1);
            return if fits { Ok(Extent::PerColumn) } else { Err(differ((first, longest), input.name, shape)) };
        }
        match is_per_row {
            true => Ok(Extent::PerRow),
            false => Err(JobError::PartlyBroadcast {
                name: input.name.into(),
                shape: numpy_shape(shape),
                whole: numpy_shape(&whole),
            }),
        }
    };
    let extents = inputs.iter().map(extent).collect::<Result<Vec<_>, JobError>>()?;
    let is_reduced = |(input, extent): (&Shaped<'_>, &Extent)| {
        *extent == Extent::PerRow && input.shape.is_none_or(|shape| shape.len() == 1)
    };
    let reduced = inputs.iter().zip(&extents).map(is_reduced).collect();
    let lacks = |(input, extent): (&Shaped<'_>, &Extent)| {
        let Some(own) = input.shape.filter(|_| *extent == Extent::PerColumn) else { return 0 };
        let of_row = own.iter().rev().map(Some).chain(std::iter::repeat(None));
        // The first dimensions of a row may be those that an array does not name.
        let bits = (0..dims.len()).rev().zip(of_row).filter(|(_, length)| length.is_none_or(|length| *length == 1));
        bits.fold(0_u64, |all, (number, _)| all | 1_u64.checked_shl(number as u32).unwrap_or(0))
    };
    let lacks = inputs.iter().zip(&extents).map(lacks).collect();
    // No more than all elements, whose number fits.
    let rows = whole[..outer].iter().product();
    Ok(Some(Wide {
        rows,
        outer: whole[..outer].to_vec(),
        row: RowShape { dims, outer: outer - 1, extents, reduced, lacks },
    }))
}

/// Returns whether an array has several elements in each row.
pub(super) fn is_wide(shape: &[u64]) -> bool {
    shape.iter().skip(1).any(|length| *length != 1)
}

/// Returns whether NumPy's rules broadcast arrays of these shapes to one shape.
fn are_broadcast(one: &[u64], other: &[u64]) -> bool {
    one.iter().rev().zip(other.iter().rev()).all(|(one, other)| one == other || *one == 1 || *other == 1)
}

/// Whether an array has these dimensions, or one more of one element in front.
pub(super) fn is_same(shape: &[u64], dims: &[u64]) -> bool {
    shape == dims || matches!(shape, [1, rest @ ..] if rest == dims)
}

/// Returns the elements of a row of this shape, of an array of elements of `size` bytes that is broadcast to it.
pub(super) fn broadcast(bytes: &[u8], size: usize, shape: &[u64], dims: &[u64]) -> Vec<u8> {
    // The step of each dimension in the array: none along those that are repeated.
    let mut steps = vec![0_u64; dims.len()];
    let mut step = 1;
    for (own, length) in steps.iter_mut().rev().zip(shape.iter().rev()) {
        *own = if *length == 1 { 0 } else { step };
        step *= length;
    }
    let elements: u64 = dims.iter().product();
    let mut all = Vec::with_capacity(usize::try_from(elements).unwrap_or(0).saturating_mul(size));
    for element in 0..elements {
        let (mut rest, mut from) = (element, 0);
        for (dim, step) in dims.iter().zip(&steps).rev() {
            from += rest % dim * step;
            rest /= dim;
        }
        let from = from as usize * size;
        all.extend_from_slice(bytes.get(from..from + size).unwrap_or_default());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shaped<'s>(name: &'s str, count: u64, shape: Option<&'s [u64]>) -> Shaped<'s> {
        Shaped { name, count, shape, is_of_rows: false }
    }

    fn of(shapes: &[&[u64]], needs_rows: bool) -> Result<Option<Wide>> {
        let names: Vec<String> = (0..shapes.len()).map(|k| format!("x{k}")).collect();
        let inputs = shapes.iter().zip(&names);
        let inputs: Vec<Shaped<'_>> =
            inputs.map(|(shape, name)| shaped(name, shape.iter().product(), Some(shape))).collect();
        wide(&inputs, &RowNeeds { first_axis: needs_rows, within: vec![] })
    }

    #[test]
    fn the_input_without_elements_in_a_row_is_named() {
        for (shapes, name) in [(&[&[0, 1][..], &[0][..]][..], "'x1' has the shape (0,)"), (&[&[3, 0]], "'x0' has")] {
            let error = of(shapes, true).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("no elements"), "{error}");
        }
    }

    #[test]
    fn equal_shapes_are_elements_unless_rows_are_needed() {
        assert_eq!(of(&[&[5, 3], &[5, 3]], false).unwrap(), None);
        assert_eq!(of(&[&[5], &[5]], true).unwrap(), None);
        assert_eq!(of(&[&[5, 3]], true).unwrap().map(|wide| (wide.rows, wide.row.dims)), Some((5, vec![3])));
        let slice = shaped("s", 15, None);
        let array = shaped("a", 15, Some(&[5, 3]));
        assert_eq!(wide(&[slice, array], &RowNeeds::default()).unwrap(), None);
    }

    #[test]
    fn rows_without_elements_and_too_many_elements_are_refused() {
        assert!(of(&[&[5, 0]], true).is_err() && of(&[&[5, 0], &[5, 1]], false).is_err());
        assert_eq!(of(&[&[5, 0], &[5, 0]], false).unwrap(), None);
        assert_eq!(of(&[&[0, 3]], true).unwrap().map(|wide| wide.rows), Some(0));
        let side = 1 << 16;
        let shapes = [&[2, 1, 1, 1, 1][..], &[side, 1, 1, 1], &[side, 1, 1], &[side, 1], &[side]];
        assert!(of(&shapes, false).is_err());
    }

    #[test]
    fn inputs_are_broadcast_by_numpys_rules() {
        use Extent::{Full, PerColumn, PerRow};
        let cases: [(&[&[u64]], &[Extent]); 7] = [
            (&[&[5, 3], &[3]], &[Full, PerColumn]),
            (&[&[5, 3], &[1, 3], &[1], &[1, 1]], &[Full, PerColumn, PerColumn, PerColumn]),
            (&[&[5, 1], &[5, 3]], &[PerRow, Full]),
            (&[&[5, 1], &[3]], &[PerRow, PerColumn]),
            (&[&[5, 2, 3], &[2, 1], &[5, 1, 1]], &[Full, PerColumn, PerRow]),
            (&[&[1, 3], &[3]], &[Full, PerColumn]),
            (&[&[1, 2, 3], &[1, 1, 3]], &[Full, PerColumn]),
        ];
        for (shapes, extents) in cases {
            assert_eq!(of(shapes, false).unwrap().unwrap().row.extents, extents, "{shapes:?}");
        }
        for shapes in [&[&[5, 3][..], &[4]][..], &[&[5, 3], &[2]], &[&[5, 2, 3], &[5, 2, 1]], &[&[5, 2, 3], &[2]]] {
            assert!(of(shapes, false).is_err(), "{shapes:?}");
        }
    }

    #[test]
    fn an_error_names_two_shapes_that_differ() {
        for (shapes, names) in [
            (&[&[5, 3][..], &[5, 2], &[5, 1]], ["x0", "x1"]),
            (&[&[5, 1], &[5, 3], &[5, 2]], ["x1", "x2"]),
            (&[&[5, 1], &[3], &[2]], ["x1", "x2"]),
        ] {
            let error = of(shapes, true).unwrap_err().to_string();
            assert!(names.iter().all(|name| error.contains(&format!("'{name}'"))), "{shapes:?}: {error}");
        }
    }

    #[test]
    fn small_arrays_lack_dimensions_of_a_row() {
        for (small, lacks) in [
            (&[2, 3][..], 0b00),
            (&[3], 0b01),
            (&[2, 1], 0b10),
            (&[1, 3], 0b01),
            (&[1], 0b11),
            (&[1, 1, 1], 0b11),
            (&[1, 2, 3], 0b00),
        ] {
            let row = of(&[&[5, 2, 3], small, &[5, 1, 1]], false).unwrap().unwrap().row;
            assert_eq!(row.lacks, [0, lacks, 0], "{small:?}");
        }
    }

    #[test]
    fn arrays_of_one_dimension_may_have_a_value_of_each_row() {
        use Extent::{Full, PerColumn, PerRow};
        let check = |shapes: &[&[u64]], extents: &[Extent], reduced: &[bool]| {
            let wide = of(shapes, false).unwrap().unwrap();
            assert_eq!((&wide.row.extents[..], &wide.row.reduced[..]), (extents, reduced), "{shapes:?}");
        };
        check(&[&[5, 3], &[5]], &[Full, PerRow], &[false, true]);
        check(&[&[5], &[5, 2, 3], &[3]], &[PerRow, Full, PerColumn], &[true, false, false]);
        check(&[&[5, 1], &[5], &[3]], &[PerRow, PerRow, PerColumn], &[false, true, false]);
        check(&[&[5, 1], &[3], &[5]], &[PerRow, PerColumn, PerRow], &[false, false, true]);
        // What can be broadcast is.
        check(&[&[5, 5], &[5]], &[Full, PerColumn], &[false, false]);
        check(&[&[5, 1], &[5]], &[PerRow, PerColumn], &[false, false]);
        check(&[&[1, 3], &[1]], &[Full, PerColumn], &[false, false]);
        let slice = shaped("s", 5, None);
        let array = shaped("a", 15, Some(&[5, 3]));
        assert_eq!(wide(&[slice, array], &RowNeeds::default()).unwrap().unwrap().row.reduced, [true, false]);
        // A condition of rows is none of columns.
        for (rows, width) in [(5, 5), (1, 3), (5, 1)] {
            let table = [rows, width];
            let array = shaped("a", rows * width, Some(&table));
            let key = Shaped { is_of_rows: true, ..shaped("k", rows, Some(&table[..1])) };
            let row = wide(&[array, key], &RowNeeds::default()).unwrap().unwrap().row;
            assert_eq!((row.dims, row.reduced), (vec![width], vec![false, true]), "{table:?}");
        }
    }

    #[test]
    fn rows_are_repeated_along_their_dimensions() {
        assert_eq!(broadcast(&[1, 2, 3], 1, &[3], &[2, 3]), [1, 2, 3, 1, 2, 3]);
        assert_eq!(broadcast(&[1, 2], 1, &[1, 2, 1], &[2, 3]), [1, 1, 1, 2, 2, 2]);
        assert_eq!(broadcast(&[7, 8], 2, &[1], &[3]), [7, 8, 7, 8, 7, 8]);
    }
}
