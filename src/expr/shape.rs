//! The shape of rows: which inputs have all elements of a row, and which are broadcast.

use super::fault::Fault;
use super::ir::{Node, Op};
use super::parse::Along;
use super::reduce::Reduction;

/// The message about a filter of rows of several elements.
pub(super) const NO_FILTER: &str = "a filter keeps single elements, and here a row has several of them, because inputs \
     have different shapes or rows are numbered; filter in a job whose inputs have one shape";

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
    /// All elements of each row.
    #[default]
    Full,
}

impl Extent {
    /// The extent of an operation on values of these two.
    fn and(self, other: Extent) -> Extent {
        match (self, other) {
            (Extent::One, extent) | (extent, Extent::One) => extent,
            (one, other) if one == other => one,
            _ => Extent::Full,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Extent::One => "one",
            Extent::PerRow => "row",
            Extent::PerColumn => "column",
            Extent::Full => "full",
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn parse(name: &str) -> Option<Extent> {
        [Extent::One, Extent::PerRow, Extent::PerColumn, Extent::Full].into_iter().find(|one| one.name() == name)
    }
}

/// The shape of the rows of a job. A row is a slice of an array along its first axis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowShape {
    /// The lengths of the dimensions of a row, outermost first. Empty for rows of one element.
    pub(crate) dims: Vec<u64>,
    /// The extent of each input. All others are [`Extent::Full`].
    pub(crate) extents: Vec<Extent>,
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

    /// The extent of an output whose value, at `at`, has this extent.
    pub(super) fn of_output(&self, at: usize, extent: Extent) -> Result<Extent, Fault> {
        match extent {
            Extent::PerRow if self.width() > 1 => Ok(Extent::PerRow),
            Extent::One | Extent::PerRow | Extent::Full => Ok(Extent::Full),
            Extent::PerColumn => Err(Fault::new(
                at,
                "this value is the same for all rows, so it is no output of them; compute it in a job of its own",
            )),
        }
    }

    /// The shape of the result of a reduction; `None` if it is one value.
    pub(super) fn of_result(&self, along: Along) -> Option<Vec<u64>> {
        match along {
            Along::All | Along::Bins(_) => None,
            Along::Rows { keeps_dims: true } => Some([1].into_iter().chain(self.dims.iter().copied()).collect()),
            Along::Rows { keeps_dims: false } => Some(self.dims.clone()).filter(|dims| !dims.is_empty()),
        }
    }

    /// Checks that a reduction, whose value is at `at`, reduces all elements of rows.
    pub(super) fn check_reduced(&self, at: usize, reduction: &Reduction, extent: Extent) -> Result<(), Fault> {
        let label = reduction.label();
        let message = match extent {
            Extent::One | Extent::Full => return Ok(()),
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
                Op::Element => Extent::Full,
                op => op.operands().map(|id| extents[id]).fold(Extent::One, Extent::and),
            };
            extents.push(extent);
        }
        extents
    }
}
