//! Filters: `x[x > 0]` has the rows of `x` where the condition is true, in order.
//!
//! A filtered value is computed for every row, as all values are, and the binder knows which rows it has. So
//! elementwise operations on values of one filter need nothing more. The kernel moves the kept rows of its outputs
//! together, and a reduction of kept rows receives the neutral value in all others.

use super::fault::Fault;
use super::ir::{Id, Nodes, Op};
use super::reduce::{Fold, Reduction};
use super::tally::LEFT_OUT;
use super::words::Binary;
use crate::data::Dtype;

/// The rows that a value has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rows {
    /// None of its own: it is one number, which goes with any rows.
    One,
    All,
    /// Those where this `bool` is true.
    Kept(Id),
}

impl Rows {
    /// Where the rows are that it has; `None` if it has all rows, or none of its own.
    pub(super) fn condition(self) -> Option<Id> {
        match self {
            Rows::Kept(condition) => Some(condition),
            Rows::One | Rows::All => None,
        }
    }

    /// The rows of a function of neighbouring rows at `at` of a value with these rows.
    pub(super) fn moved(self, at: usize) -> Result<Rows, Fault> {
        match self {
            Rows::All => Ok(Rows::All),
            Rows::One => Err(Fault::new(at, "this moves rows, and the value is one number for all of them")),
            Rows::Kept(_) => Err(Fault::new(
                at,
                "the neighbours of kept rows are not known, because other rows are between them; move the rows first, \
                 like `shift(x, 1, edge)[x > 0]`",
            )),
        }
    }

    /// The rows of an operation at `at` on values with these rows.
    pub(super) fn of_operation(at: usize, operands: impl IntoIterator<Item = Rows>) -> Result<Rows, Fault> {
        operands.into_iter().try_fold(Rows::One, |all, other| match (all, other) {
            (Rows::One, rows) | (rows, Rows::One) => Ok(rows),
            (one, other) if one == other => Ok(one),
            (Rows::Kept(_), Rows::Kept(_)) => Err(Fault::new(
                at,
                "these values are filtered by different conditions; filter them by one, like `(x + y)[a & b]`",
            )),
            _ => Err(Fault::new(
                at,
                "one of these values is filtered, and another has all rows; filter all of them, like `(x + y)[m]`",
            )),
        })
    }

    /// The rows that a filter at `at` keeps of a value, where a condition of this dtype is true.
    pub(super) fn filtered(
        self,
        at: usize,
        nodes: &mut Nodes,
        (condition, dtype, rows): (Option<Id>, Dtype, Rows),
    ) -> Result<Rows, Fault> {
        if rows == Rows::One && dtype.is_integer() {
            let message =
                "a row cannot be read by its number; keep the rows where a condition is true, like `x[index() == 3]`";
            return Err(Fault::new(at, message));
        }
        if rows == Rows::One {
            let message = "this condition is one number for all rows; write a comparison of rows, like `x[x > 0]`";
            return Err(Fault::new(at, message));
        }
        let Some(condition) = condition.filter(|_| dtype == Dtype::Bool) else {
            let message = format!(
                "a filter takes a condition, which is a bool for each row, and not {dtype}; write a comparison of \
                 rows, like `x[x > 0]`"
            );
            return Err(Fault::new(at, message));
        };
        match (self, rows) {
            (Rows::One, _) => Err(Fault::new(
                at,
                "a filter keeps rows, and this value is one number for all of them; filter a value that has rows",
            )),
            (Rows::All, Rows::All) => Ok(Rows::Kept(condition)),
            (Rows::Kept(one), Rows::Kept(other)) if one == other => {
                Ok(Rows::Kept(nodes.push(Op::Binary(Binary::And, one, condition), Dtype::Bool)))
            }
            _ => Err(Fault::new(
                at,
                "the value and its condition are not filtered alike; join the conditions, like `x[a & b]`",
            )),
        }
    }
}

/// Returns the condition by which all outputs are filtered; `None` if none is. `outputs` are their names, with the
/// positions and the rows of their values.
pub(super) fn of_outputs<'n>(outputs: impl IntoIterator<Item = (&'n str, usize, Rows)>) -> Result<Option<Id>, Fault> {
    let mut outputs = outputs.into_iter();
    let Some((first, _, rows)) = outputs.next() else { return Ok(None) };
    if let Some((name, at, other)) = outputs.find(|(_, _, other)| other.condition() != rows.condition()) {
        let message = match (rows, other) {
            (Rows::Kept(_), Rows::Kept(_)) => {
                format!(
                    "the outputs `{first}` and `{name}` are filtered by different conditions; compute them in two jobs"
                )
            }
            _ => format!(
                "one of the outputs `{first}` and `{name}` is filtered, and the other has all rows; compute them in \
                 two jobs"
            ),
        };
        return Err(Fault::new(at, message));
    }
    Ok(rows.condition())
}

/// Makes a reduction, whose value is at `at`, count only the elements where the condition is true: those of rows that a
/// filter keeps, or one of each row.
pub(super) fn keep(
    (at, is_filtered): (usize, bool),
    nodes: &mut Nodes,
    reduction: &mut Reduction,
    condition: Id,
) -> Result<(), Fault> {
    match reduction.fold {
        Fold::ArgMin | Fold::ArgMax if !is_filtered => {
            let message = format!(
                "`{}` of a value with one element for each row is not supported; write the value to an output, and \
                 find the row there",
                reduction.kind()
            );
            return Err(Fault::new(at, message));
        }
        Fold::ArgMin | Fold::ArgMax => {
            let message = format!(
                "`{0}` of kept rows is not supported, because the number of kept rows before a row is not known; find \
                 its number among all rows, like `{0}(where(condition, x, {1}inf))`",
                reduction.kind(),
                if reduction.fold == Fold::ArgMin { "" } else { "-" },
            );
            return Err(Fault::new(at, message));
        }
        Fold::Moments => reduction.weight = Some(nodes.push(Op::Cast(condition), Dtype::F64)),
        Fold::Sum | Fold::Product | Fold::Min | Fold::Max | Fold::Tally => {}
    }
    let neutral = nodes.push(Op::Constant(reduction.neutral()), reduction.state);
    reduction.of = nodes.push(Op::Select(condition, reduction.of, neutral), reduction.state);
    Ok(())
}

/// Makes a count of elements in bins leave out those where the condition is false.
pub(super) fn leave_out(nodes: &mut Nodes, reduction: &mut Reduction, condition: Id) {
    let state = reduction.state;
    let (kept, left_out) = match state {
        // No bin has NaN.
        Dtype::F64 => (reduction.of, f64::NAN.to_bits()),
        _ => (reduction.of, LEFT_OUT as u64),
    };
    let left_out = nodes.push(Op::Constant(left_out), state);
    reduction.of = nodes.push(Op::Select(condition, kept, left_out), state);
}

/// Whether an element is the first one of its row, and the condition, if there is one, is true.
pub(super) fn in_first_column(nodes: &mut Nodes, condition: Option<Id>) -> Id {
    let [column, first] = [Op::Column, Op::Constant(0)].map(|op| nodes.push(op, Dtype::I64));
    let is_first = nodes.push(Op::Binary(Binary::Eq, column, first), Dtype::Bool);
    condition.map_or(is_first, |condition| nodes.push(Op::Binary(Binary::And, condition, is_first), Dtype::Bool))
}

/// Puts reductions that count kept rows in front of these, each with its condition: those of the outputs first, and
/// those that the values of others need. Rows may have several elements.
pub(super) fn count(
    nodes: &mut Nodes,
    have_several: bool,
    of_outputs: Option<Id>,
    mut reductions: Vec<(Reduction, Option<Id>)>,
) -> Vec<Reduction> {
    let mut conditions: Vec<Id> = of_outputs.into_iter().collect();
    for (reduction, condition) in &mut reductions {
        let Some(condition) = condition.filter(|_| reduction.needs_count()) else { continue };
        let place = conditions.iter().position(|other| *other == condition);
        reduction.counter = Some(place.unwrap_or(conditions.len()));
        if place.is_none() {
            conditions.push(condition);
        }
    }
    let counters = conditions.into_iter().map(|condition| {
        let counted = if have_several { in_first_column(nodes, Some(condition)) } else { condition };
        Reduction::of_kept_rows(nodes.push(Op::Cast(counted), Dtype::U64))
    });
    counters.chain(reductions.into_iter().map(|(reduction, _)| reduction)).collect()
}
