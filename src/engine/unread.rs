//! Which rows of inputs are not read, because no result depends on them: see [`Needs`].

use super::check::BoundJob;
use crate::data::{Bounds, Input, Scalar, Unread};
use crate::expr::Needs;
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

/// Returns the rows of each column that are not read. Adds notes.
pub(super) fn of(bound: &BoundJob, inputs: &[(String, Input<'_>)], notes: &mut Vec<String>) -> Vec<Unread> {
    let streamed = || inputs.iter().zip(&bound.inputs).enumerate().filter(|(_, (_, column))| !column.is_resident);
    let Some(needs) = &bound.needs else { return all_read(bound) };
    let columns = streamed().map(|(input, ((name, source), _))| {
        let bounds = if needs.is_conditional(input) { bounds_of(name, source, bound.rows, notes) } else { vec![] };
        // Rows that stay on devices are there for other jobs, too.
        let is_whole = source.shards().is_some();
        Column { input, bounds, next: 0, is_whole, unread: Unread::default() }
    });
    let mut columns: Vec<Column> = columns.collect();
    let values = &bound.operator.kernel().values;
    let scalars = if values.are_known() { values.known().unwrap_or_default() } else { &[] };
    divide(needs, scalars, &bound.range, &mut columns);
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
    columns.into_iter().map(|column| column.unread).collect()
}

/// What [`of`] returns if all rows are read.
pub(super) fn all_read(bound: &BoundJob) -> Vec<Unread> {
    bound.inputs.iter().filter(|column| !column.is_resident).map(|_| Unread::default()).collect()
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

/// Finds the rows that are not read, one range after the other in which no bounds change.
fn divide(needs: &Needs, scalars: &[u64], rows: &Range<u64>, columns: &mut [Column]) {
    let ends = columns.iter().flat_map(|column| &column.bounds).flat_map(|own| [own.rows.start, own.rows.end]);
    let mut ends: Vec<u64> = ends.collect();
    if ends.is_empty() {
        return;
    }
    ends.retain(|end| rows.contains(end));
    ends.extend([rows.start, rows.end]);
    ends.sort_unstable();
    ends.dedup();
    let inputs = columns.iter().map(|column| column.input + 1).max().unwrap_or(0);
    let (mut bounds, mut known, mut needed) = (vec![None; inputs], None, Vec::new());
    for range in ends.windows(2).map(|pair| pair[0]..pair[1]) {
        columns.iter_mut().for_each(|column| bounds[column.input] = column.at(&range));
        // Pages of rows in no order mostly have the same bounds.
        if known.as_ref() != Some(&bounds) {
            needed = needs.inputs(&bounds, scalars);
            known = Some(bounds.clone());
        }
        for column in columns.iter_mut().filter(|column| !column.is_whole && !needed[column.input]) {
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
