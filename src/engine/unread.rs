//! Which rows of inputs are not read, because no result depends on them: see [`Needs`].

use super::check::BoundJob;
use crate::data::{Bounds, Input, Scalar, Unread};
use crate::expr::Needs;
use crate::units::count;
use std::ops::Range;

/// The bounds of an input that is a column of the job.
struct Column {
    /// Its number among the inputs of the program.
    input: usize,
    bounds: Vec<Bounds>,
    /// The first of the bounds that do not end before the rows in question.
    next: usize,
    /// Whether its rows may be left out.
    is_read: bool,
    unread: Unread,
}

/// Returns the rows of each input that are not read. Inputs that are one row for all rows are left out. Adds notes.
pub(super) fn of(bound: &BoundJob, inputs: &[(String, Input<'_>)], notes: &mut Vec<String>) -> Vec<Unread> {
    let streamed = || inputs.iter().zip(&bound.inputs).enumerate().filter(|(_, (_, column))| !column.is_resident);
    let Some(needs) = &bound.needs else { return streamed().map(|_| Unread::default()).collect() };
    let columns = streamed().map(|(input, ((name, source), _))| {
        let source_of = source.source();
        let bounds = source_of.bounds().unwrap_or_else(|error| {
            notes.push(format!("all rows of '{name}' are read, because their bounds are not known: {error}"));
            vec![]
        });
        let mut end = 0;
        let are_bounds = bounds.iter().all(|own| {
            let fits = own.are_of(source_of.dtype(), end, bound.rows);
            end = own.rows.end;
            fits
        });
        // Rows that stay on devices are there for other jobs, too.
        let is_read = source.shards().is_none();
        let bounds = if are_bounds { bounds } else { vec![] };
        Column { input, bounds, next: 0, is_read, unread: Unread::default() }
    });
    let mut columns: Vec<Column> = columns.collect();
    let values = &bound.operator.kernel().values;
    let scalars = if values.are_known() { values.known().unwrap_or_default() } else { &[] };
    divide(needs, scalars, bound.rows, &mut columns);
    let left_out = columns.iter().zip(streamed()).filter_map(|(column, (_, ((name, _), _)))| {
        let rows = column.unread.count(&bound.range);
        (rows > 0).then(|| format!("{} of '{name}'", count(rows)))
    });
    let left_out: Vec<String> = left_out.collect();
    if !left_out.is_empty() {
        notes.push(format!(
            "some rows were not read, because statistics say that no result depends on them: {}",
            left_out.join(", ")
        ));
    }
    columns.into_iter().map(|column| column.unread).collect()
}

/// Finds the rows that are not read, one range after the other in which no bounds change.
fn divide(needs: &Needs, scalars: &[u64], rows: u64, columns: &mut [Column]) {
    let ends = columns.iter().flat_map(|column| &column.bounds).flat_map(|own| [own.rows.start, own.rows.end]);
    let mut ends: Vec<u64> = ends.collect();
    if ends.is_empty() {
        return;
    }
    ends.extend([0, rows]);
    ends.sort_unstable();
    ends.dedup();
    let inputs = columns.iter().map(|column| column.input + 1).max().unwrap_or(0);
    let mut bounds = vec![None; inputs];
    for range in ends.windows(2).map(|pair| pair[0]..pair[1]) {
        columns.iter_mut().for_each(|column| bounds[column.input] = column.at(&range));
        let needed = needs.inputs(&bounds, scalars);
        for column in columns.iter_mut().filter(|column| column.is_read && !needed[column.input]) {
            // A value within the bounds: what is known of the results was deduced for these.
            let value = bounds[column.input].map_or(0, |(least, _)| least.bits());
            column.unread.push(range.clone(), value);
        }
    }
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
