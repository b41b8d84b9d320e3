//! Which rows of inputs are not read, because no result depends on them, and which rows are not computed, because all
//! of them give the same: see [`Needs`].

use super::check::BoundJob;
use crate::data::{Bounds, Input, Scalar, Unread};
use crate::expr::{Dependence, Needs, Outcome};
use crate::units::count;
use std::ops::Range;

/// An input that is a column of the job.
struct Column {
    /// Its number among the inputs of the program.
    input: usize,
    bounds: Vec<Bounds>,
    /// The first of the bounds that do not end before the rows in question.
    next: usize,
    /// Whether all of its rows must be read.
    is_whole: bool,
    unread: Unread,
}

/// The rows of a job that need not be read or computed.
pub(super) struct Unneeded {
    /// The rows of each column that are not read.
    pub(super) unread: Vec<Unread>,
    /// Ranges of rows in whole tiles, in ascending order. All rows with the same number give the same.
    pub(super) alike: Vec<(Range<u64>, usize)>,
}

/// Returns the rows that need not be read or computed. Adds notes.
pub(super) fn of(bound: &BoundJob, inputs: &[(String, Input<'_>)], notes: &mut Vec<String>) -> Unneeded {
    let streamed = || inputs.iter().zip(&bound.inputs).enumerate().filter(|(_, (_, column))| !column.is_resident);
    let Some(needs) = &bound.needs else { return none(bound) };
    let columns = streamed().map(|(input, ((name, source), _))| {
        let bounds = if needs.is_conditional(input) { bounds_of(name, source, bound.rows, notes) } else { vec![] };
        // Rows that stay on devices are there for other jobs, too.
        let is_whole = source.shards().is_some();
        Column { input, bounds, next: 0, is_whole, unread: Unread::default() }
    });
    let mut columns: Vec<Column> = columns.collect();
    let values = &bound.operator.kernel().values;
    let scalars = if values.are_known() { values.known().unwrap_or_default() } else { &[] };
    let alike = divide(needs, scalars, &bound.range, &mut columns);
    // Rows that stay on devices are copied there.
    let alike = alike.into_iter().filter(|_| !columns.iter().any(|column| column.is_whole));
    let tile = bound.operator.kernel().columns.unit_rows() as u64;
    let alike = alike.filter_map(|(rows, outcome)| {
        let tiles = rows.start.next_multiple_of(tile)..rows.end / tile * tile;
        (tiles.start < tiles.end).then_some((tiles, outcome))
    });
    let left_out = columns.iter().zip(streamed()).filter_map(|(column, (_, ((name, source), _)))| {
        let rows = column.unread.count(&bound.range);
        // Rows in memory are used there.
        (rows > 0 && source.source().piece(0, 1).is_none()).then(|| format!("{} of '{name}'", count(rows)))
    });
    let left_out: Vec<String> = left_out.collect();
    // The report of a job in parts would have a note for each.
    if !left_out.is_empty() && bound.range == (0..bound.rows) {
        notes.push(format!(
            "some rows were not read, because statistics say that no result depends on them: {}",
            left_out.join(", ")
        ));
    }
    let alike = alike.collect();
    Unneeded { unread: columns.into_iter().map(|column| column.unread).collect(), alike }
}

/// What [`of`] returns if all rows are read and computed.
pub(super) fn none(bound: &BoundJob) -> Unneeded {
    let streamed = bound.inputs.iter().filter(|column| !column.is_resident);
    Unneeded { unread: streamed.map(|_| Unread::default()).collect(), alike: vec![] }
}

/// Returns the bounds of an input of so many rows. None, with a note, if they cannot be used.
fn bounds_of(name: &str, input: &Input<'_>, rows: u64, notes: &mut Vec<String>) -> Vec<Bounds> {
    let (dtype, mut end) = (input.source().dtype(), 0);
    let mut follows = |own: &Bounds| {
        let fits = own.are_of(dtype, end, rows);
        end = own.rows.end;
        fits
    };
    let unusable = match input.source().bounds() {
        Ok(bounds) if bounds.iter().all(&mut follows) => return bounds,
        Ok(_) => "contradict themselves".to_owned(),
        Err(error) => format!("are not known: {error}"),
    };
    notes.push(format!("all rows of '{name}' are read, because the bounds of their values {unusable}"));
    vec![]
}

/// Finds the rows that are not read, one range after the other in which no bounds change. Returns ranges of rows that
/// are alike; those with the same number give the same.
fn divide(needs: &Needs, scalars: &[u64], rows: &Range<u64>, columns: &mut [Column]) -> Vec<(Range<u64>, usize)> {
    let ends = columns.iter().flat_map(|column| &column.bounds).flat_map(|own| [own.rows.start, own.rows.end]);
    let mut ends: Vec<u64> = ends.collect();
    if ends.is_empty() {
        return vec![];
    }
    ends.retain(|end| rows.contains(end));
    ends.extend([rows.start, rows.end]);
    ends.sort_unstable();
    ends.dedup();
    let inputs = columns.iter().map(|column| column.input + 1).max().unwrap_or(0);
    let (mut bounds, mut known) = (vec![None; inputs], None::<(Vec<_>, Dependence)>);
    let (mut alike, mut outcomes) = (Vec::<(Range<u64>, usize)>::new(), Vec::<Outcome>::new());
    for range in ends.windows(2).map(|pair| pair[0]..pair[1]) {
        columns.iter_mut().for_each(|column| bounds[column.input] = column.at(&range));
        // Pages of rows in no order mostly have the same bounds.
        let (_, depend) = match known.take() {
            Some(own) if own.0 == bounds => known.insert(own),
            _ => known.insert((bounds.clone(), needs.of_rows(&bounds, scalars))),
        };
        if let Some(outcome) = &depend.outcome
            && let Some(number) = number_of(outcome, &mut outcomes)
        {
            match alike.last_mut() {
                Some((last, own)) if last.end == range.start && *own == number => last.end = range.end,
                _ => alike.push((range.clone(), number)),
            }
        }
        for column in columns.iter_mut().filter(|column| !column.is_whole && !depend.inputs[column.input]) {
            // A value within the bounds: what is known of the results was deduced for these.
            let value = bounds[column.input].map_or(0, |(least, _)| least.bits());
            column.unread.push(range.clone(), value);
        }
    }
    alike
}

/// Returns the number of an outcome; `None` if it is another one than those that have numbers, which are enough.
fn number_of(outcome: &Outcome, outcomes: &mut Vec<Outcome>) -> Option<usize> {
    // Where each page has an outcome of its own, a search of all would take longer than the rows.
    const ENOUGH: usize = 64;
    let known = outcomes.iter().position(|own| own == outcome);
    if known.is_none() && outcomes.len() < ENOUGH {
        outcomes.push(outcome.clone());
        return Some(outcomes.len() - 1);
    }
    known
}

impl Column {
    /// Returns the bounds of rows behind those that were asked for before.
    fn at(&mut self, rows: &Range<u64>) -> Option<(Scalar, Scalar)> {
        while self.bounds.get(self.next).is_some_and(|own| own.rows.end <= rows.start) {
            self.next += 1;
        }
        let own = self.bounds.get(self.next).filter(|own| own.rows.start <= rows.start)?;
        Some((own.least, own.greatest))
    }
}
