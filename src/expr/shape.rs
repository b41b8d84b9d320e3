//! The shape of rows: which inputs have all elements of a row, and which are broadcast.

use super::axes::{Along, Within};
use super::fault::Fault;
use super::ir::{Node, Op};
use super::rank;
use super::reduce::Reduction;

/// The message about a condition that is not one of rows.
const NO_CONDITION_OF_ROWS: &str = "a filter keeps whole rows here, because inputs have different shapes, or rows are \
     numbered or reduced, and this condition has several elements for each row; reduce it, like \
     `x[all(x > 0, axis=1)]`";

/// The message about a result of too many columns.
pub(super) const TOO_MANY_COLUMNS: &str =
    "a result has at most 16777216 columns, and a row here has more elements; reduce parts of the rows";

/// The elements that a value has of each row. Elements that it does not have are those that it has, repeated, as in
/// NumPy's broadcasting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Extent {
    /// One element for all rows: a number.
    One,
    /// One element of each row.
    PerRow,
    /// One row, which is the same for all rows.
    PerColumn,
    /// One element for each tile of rows: sums of the rows before it.
    PerTile,
    /// All elements of each row.
    #[default]
    Full,
}

impl Extent {
    /// The extent of an operation on values of these two.
    pub(super) fn and(self, other: Extent) -> Extent {
        match (self, other) {
            (Extent::One, extent) | (extent, Extent::One) => extent,
            (one, other) if one == other => one,
            _ => Extent::Full,
        }
    }

    /// Whether it stays on the device for the whole job.
    pub(crate) fn is_resident(self) -> bool {
        matches!(self, Extent::PerColumn | Extent::PerTile)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Extent::One => "one",
            Extent::PerRow => "row",
            Extent::PerColumn => "column",
            Extent::PerTile => "tile",
            Extent::Full => "full",
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn parse(name: &str) -> Option<Extent> {
        let mut all = [Extent::One, Extent::PerRow, Extent::PerColumn, Extent::PerTile, Extent::Full].into_iter();
        all.find(|one| one.name() == name)
    }
}

/// The shape of a term of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TermShape {
    pub(super) extent: Extent,
    /// The dimensions of a row along which it does not change, whatever its extent: see [`RowShape::lacks`].
    pub(super) lacks: u64,
    /// Whether it has one element for each row and no dimensions of a row: it was reduced within rows, or is an input
    /// of this shape.
    pub(super) is_reduced: bool,
}

impl TermShape {
    /// The shape of numbers, and of row numbers, which go with every shape.
    pub(super) const ONE: TermShape = TermShape { extent: Extent::One, lacks: u64::MAX, is_reduced: false };

    pub(super) const FULL: TermShape = TermShape { extent: Extent::Full, lacks: 0, is_reduced: false };

    /// Whether it has dimensions of a row: conditions that have none, such as that of row numbers, keep rows.
    fn has_dims(self) -> bool {
        self.extent != Extent::One && !self.is_reduced
    }

    /// The shape of a value with one element for each row.
    fn per_row(is_reduced: bool) -> TermShape {
        TermShape { extent: Extent::PerRow, lacks: u64::MAX, is_reduced }
    }

    /// The shape of an operation at `at` on values of these shapes.
    pub(super) fn of_operation(at: usize, operands: impl IntoIterator<Item = TermShape>) -> Result<TermShape, Fault> {
        operands.into_iter().try_fold(TermShape::ONE, |one, other| match (one.extent, other.extent) {
            (Extent::One, _) => Ok(other),
            (_, Extent::One) => Ok(one),
            _ if one.is_reduced != other.is_reduced => Err(Fault::new(
                at,
                "one of these values has one element for each row and no dimensions of a row, and the other has them; \
                 write `keepdims=True` beside `axis`, or give an array of the shape (n, 1)",
            )),
            (own, of_other) => {
                Ok(TermShape { extent: own.and(of_other), lacks: one.lacks & other.lacks, is_reduced: one.is_reduced })
            }
        })
    }

    /// Checks that a value of this shape, at `at`, can be the condition by which rows are filtered.
    pub(super) fn check_condition(self, at: usize) -> Result<(), Fault> {
        match self.extent {
            // Numbers of rows go with every shape.
            Extent::One | Extent::PerRow => Ok(()),
            Extent::PerColumn | Extent::PerTile | Extent::Full => Err(Fault::new(at, NO_CONDITION_OF_ROWS)),
        }
    }
}

/// The shape of the rows of a job. A row is a slice of an array along its first axis, or along several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowShape {
    /// The lengths of the dimensions of a row, outermost first. Empty for rows of one element.
    pub(crate) dims: Vec<u64>,
    /// The number of axes in front of those of a row, without the first one.
    pub(crate) outer: usize,
    /// The extent of each input. All others are [`Extent::Full`].
    pub(crate) extents: Vec<Extent>,
    /// Which inputs have one element for each row and no dimensions of a row, as what was reduced within rows. All
    /// others have not.
    pub(crate) reduced: Vec<bool>,
    /// The dimensions of a row along which each input of one row for all rows is repeated: bit `k` is dimension `k`.
    /// It is 0 for all others.
    pub(crate) lacks: Vec<u64>,
}

impl RowShape {
    /// The number of elements of a row.
    pub(crate) fn width(&self) -> usize {
        self.dims.iter().map(|dim| usize::try_from(*dim).unwrap_or(usize::MAX)).fold(1, usize::saturating_mul)
    }

    /// The extent of an input.
    pub(crate) fn extent(&self, input: usize) -> Extent {
        self.extents.get(input).copied().unwrap_or_default()
    }

    /// The shape of an input as a term.
    pub(super) fn of_input(&self, input: usize) -> TermShape {
        let extent = self.extent(input);
        let lacks = match extent {
            Extent::One | Extent::PerRow => u64::MAX,
            Extent::PerColumn | Extent::PerTile | Extent::Full => self.lacks.get(input).copied().unwrap_or(0),
        };
        TermShape { extent, lacks, is_reduced: self.is_reduced(input) }
    }

    /// The shape of a value of this shape where a condition keeps it. Numbers of rows become an array of them, and
    /// elements of rows of one element lose the dimensions of a row, which rows keep.
    pub(super) fn of_kept(&self, of: TermShape, condition: TermShape) -> TermShape {
        match of.extent {
            Extent::One if self.width() > 1 => TermShape::per_row(true),
            _ if self.width() == 1 && condition.has_dims() => TermShape { is_reduced: true, ..of },
            _ => of,
        }
    }

    /// Checks that a value at `at`, which is reduced or is an output, has all dimensions of a row. One of inputs that
    /// are broadcast may lack some, which another input of the job has.
    pub(super) fn check_dims(&self, at: usize, of: TermShape) -> Result<(), Fault> {
        let bit = |number: usize| u32::try_from(number).ok().and_then(|number| 1_u64.checked_shl(number)).unwrap_or(0);
        let is_lacked = |(number, length): (usize, &u64)| *length > 1 && of.lacks & bit(number) != 0;
        let may_lack = matches!(of.extent, Extent::Full | Extent::PerColumn);
        if !may_lack || !self.dims.iter().enumerate().any(is_lacked) {
            return Ok(());
        }
        Err(Fault::new(
            at,
            "this value does not have all dimensions that a row has here, because other arrays have more; compute it \
             in a job of its own, without them",
        ))
    }

    /// Whether an input has one element for each row and no dimensions of a row.
    pub(crate) fn is_reduced(&self, input: usize) -> bool {
        self.reduced.get(input).copied().unwrap_or(false)
    }

    /// The number of elements that an input has in a row.
    pub(crate) fn elements(&self, input: usize) -> usize {
        match self.extent(input) {
            Extent::PerRow => 1,
            Extent::PerTile => 0,
            Extent::One | Extent::PerColumn | Extent::Full => self.width(),
        }
    }

    /// The extent of an output whose value, at `at`, has this extent.
    pub(super) fn of_output(&self, at: usize, extent: Extent) -> Result<Extent, Fault> {
        match extent {
            Extent::PerRow if self.width() > 1 => Ok(Extent::PerRow),
            Extent::One | Extent::PerRow | Extent::PerTile | Extent::Full => Ok(Extent::Full),
            Extent::PerColumn => Err(Fault::new(
                at,
                "this value is the same for all rows, so it is no output of them; compute it in a job of its own",
            )),
        }
    }

    /// The shape of the result of a reduction; `None` if it is one value.
    pub(super) fn of_result(&self, along: Along) -> Option<Vec<u64>> {
        match along {
            Along::Product => None,
            Along::All | Along::Tiles | Along::Bins(_) | Along::Order(_) | Along::Ranked(..) | Along::Within(_) => None,
            Along::Rows { keeps_dims: true } => Some([1].into_iter().chain(self.dims.iter().copied()).collect()),
            Along::Rows { keeps_dims: false } => Some(self.dims.clone()).filter(|dims| !dims.is_empty()),
        }
    }

    /// Checks that a reduction at `at` is of all elements of a row, and that its value, of this shape, has all of them.
    /// Returns the shape of the result.
    pub(super) fn within(&self, at: usize, within: Within, of: TermShape) -> Result<TermShape, Fault> {
        let dims = self.dims.len();
        if dims == 0 {
            return Err(Fault::new(at, "arrays of one dimension have no other axis; leave out `axis`"));
        }
        let all = 1 + self.outer + dims;
        if let Some(axis) = within.axes.beyond(all) {
            return Err(Fault::new(at, format!("arrays of {all} dimensions have no axis {axis}; write another one")));
        }
        if within.axes.is_first_of(all) {
            return Err(Fault::new(at, "this is the first axis; write `axis=0`"));
        }
        self.check_dims(at, of)?;
        if within.axes.last_of(all) != Some(dims) {
            let message = format!(
                "a row here is all dimensions but the first of arrays of {all}, and a reduction within rows is of \
                 all of these; give arrays of two dimensions of one shape"
            );
            return Err(Fault::new(at, message));
        }
        match of.extent {
            Extent::Full => Ok(TermShape::per_row(!within.keeps_dims)),
            _ => Err(Fault::new(
                at,
                "this reduces a value within rows that does not have all elements of each row; leave the reduction out",
            )),
        }
    }

    /// Checks that a reduction, whose value is at `at`, reduces all elements of rows. `is_within` if others in the pass
    /// reduce within rows.
    pub(super) fn check_reduced(
        &self,
        at: usize,
        reduction: &Reduction,
        (extent, is_within): (Extent, bool),
    ) -> Result<(), Fault> {
        let label = rank::found_for(reduction.label());
        if is_within && reduction.is_by_column() {
            let message =
                format!("`{label}` is over the rows, and others reduce within rows; compute them in jobs of their own");
            return Err(Fault::new(at, message));
        }
        let message = match extent {
            Extent::One | Extent::PerTile | Extent::Full => return Ok(()),
            Extent::PerRow if self.width() == 1 => return Ok(()),
            Extent::PerRow => {
                format!("`{label}` reduces a value that has one element for each row; reduce it in a job of its own")
            }
            Extent::PerColumn => {
                format!("`{label}` reduces a value that has one row for all rows; reduce it in a job of its own")
            }
        };
        Err(Fault::new(at, message))
    }

    /// The extent of every operation.
    pub(super) fn of_nodes(&self, nodes: &[Node]) -> Vec<Extent> {
        let mut extents = Vec::with_capacity(nodes.len());
        for node in nodes {
            let extent = match node.op {
                Op::Input(input) | Op::At(input, _) => self.extent(input),
                Op::Row | Op::RowAt(_) => Extent::PerRow,
                Op::Element | Op::RunningSum(..) => Extent::Full,
                Op::Column => Extent::PerColumn,
                Op::Reduce(..) => Extent::PerRow,
                op => op.operands().map(|id| extents[id]).fold(Extent::One, Extent::and),
            };
            extents.push(extent);
        }
        extents
    }
}
