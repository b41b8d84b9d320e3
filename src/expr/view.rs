//! Views: which row of an input a row of a value reads.

use std::ops::Range;

use crate::device::kernel::Halo;

/// What is beyond the first and the last row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Rule {
    /// The first row, and the last one.
    Edge,
    /// The rows at the other end.
    Wrap,
}

/// A number of rows backwards; forwards if it is negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Step {
    pub(super) by: i64,
    pub(super) rule: Rule,
}

impl Step {
    /// The row before this one, of a job of so many rows.
    fn row(self, row: i64, total: i64) -> i64 {
        let moved = row.saturating_sub(self.by);
        match self.rule {
            Rule::Edge => moved.clamp(0, (total - 1).max(0)),
            Rule::Wrap => moved.checked_rem_euclid(total).unwrap_or(0),
        }
    }
}

/// How far the steps of a view lead: the row with the least number and that with the most, less the number of the row
/// itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    least: i64,
    most: i64,
}

impl Way {
    /// This one and another one.
    pub(super) fn and(self, other: Way) -> Way {
        Way { least: self.least.min(other.least), most: self.most.max(other.most) }
    }

    /// Whether none of these rows leaves a job of so many rows.
    pub(super) fn is_inside(self, rows: &Range<u64>, total: u64) -> bool {
        rows.start.checked_add_signed(self.least).is_some()
            && rows.end.checked_add_signed(self.most).is_some_and(|end| end <= total)
    }
}

/// Steps from a row to the row that is read, the first of them first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct View {
    steps: Vec<Step>,
}

impl View {
    /// The view that makes this step, and then the steps of another one.
    pub(super) fn then(step: Step, other: &View) -> View {
        let mut steps = vec![step];
        let mut rest = other.steps.as_slice();
        // Steps to the same edge, and around the ends, are one step.
        if let [next, behind @ ..] = rest
            && next.rule == step.rule
            && (step.rule == Rule::Wrap || next.by.signum() == step.by.signum())
        {
            steps[0].by += next.by;
            rest = behind;
        }
        steps.retain(|step| step.by != 0);
        steps.extend(rest);
        View { steps }
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether it reads the row itself.
    pub(super) fn is_row_itself(&self) -> bool {
        self.steps.is_empty()
    }

    /// The row that this one reads, of a job of so many rows.
    pub(super) fn row(&self, row: u64, total: u64) -> u64 {
        let total = i64::try_from(total).unwrap_or(i64::MAX);
        self.steps.iter().fold(row as i64, |row, step| step.row(row, total)) as u64
    }

    /// By how many rows these rows are moved if all of them are moved alike, because no step leaves the job.
    pub(super) fn moves(&self, rows: &Range<u64>, total: u64) -> Option<i64> {
        let (moved, way) = self.way();
        way.is_inside(rows, total).then_some(moved)
    }

    /// By how many rows a row is moved if no step leaves the job, and the way there.
    pub(super) fn way(&self) -> (i64, Way) {
        let (mut moved, mut way) = (0, Way::default());
        for step in &self.steps {
            moved -= step.by;
            way = way.and(Way { least: moved, most: moved });
        }
        (moved, way)
    }

    /// The most rows between a row and the one that it reads, around the ends or not.
    pub(super) fn reach(&self) -> u64 {
        self.steps.iter().map(|step| step.by.unsigned_abs()).sum()
    }

    /// Whether it reads rows of the other end.
    pub(super) fn wraps(&self) -> bool {
        self.steps.iter().any(|step| step.rule == Rule::Wrap)
    }

    /// The rows around a chunk that it reads. Those of the other end are not among them.
    pub(super) fn halo(&self) -> Halo {
        let reach = self.reach() as usize;
        let (mut before, mut after) = (0_i64, 0_i64);
        for step in &self.steps {
            // At an edge, a step is shorter: the row itself is in the range again.
            (before, after) = ((before + step.by).max(0), (after - step.by).max(0));
        }
        match self.steps.as_slice() {
            // A row beside the other end may come back from there, by a step that an edge has made shorter.
            [_, _, ..] if self.wraps() => Halo { before: reach, after: reach },
            _ => Halo { before: before as usize, after: after as usize },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn view(steps: &[(i64, bool)]) -> View {
        let step = |(by, wraps): &(i64, bool)| Step { by: *by, rule: if *wraps { Rule::Wrap } else { Rule::Edge } };
        steps.iter().map(step).rev().fold(View::default(), |view, step| View::then(step, &view))
    }

    proptest! {
        /// Joined steps lead to the same row, which is in the halo, or within reach of an end if a step wraps.
        #[test]
        fn a_view_reads_a_row_of_its_halo_or_of_an_end(
            steps in prop::collection::vec((-9i64..10, any::<bool>()), 0..6), total in 1u64..40,
        ) {
            let view = view(&steps);
            for row in 0..total {
                let mut expected = row as i64;
                for (by, wraps) in &steps {
                    let moved = expected - by;
                    expected = if *wraps { moved.rem_euclid(total as i64) } else { moved.clamp(0, total as i64 - 1) };
                }
                let found = view.row(row, total);
                prop_assert_eq!(found as i64, expected);
                let window = view.halo().window(&(row..row + 1), total);
                let reach = view.reach();
                let is_at_end = view.wraps() && (found < reach || found + reach >= total);
                prop_assert!(window.contains(&found) || is_at_end, "{:?}, {}, {}", view, row, found);
                if let Some(by) = view.moves(&(row..row + 1), total) {
                    prop_assert_eq!(row.checked_add_signed(by), Some(found));
                    prop_assert!(window.contains(&found));
                }
            }
        }
    }

    #[test]
    fn steps_of_one_kind_are_one() {
        assert_eq!(view(&[(1, false), (2, false)]), view(&[(3, false)]));
        assert_eq!(view(&[(1, false), (-2, false)]).steps().len(), 2);
        assert!(view(&[(5, true), (-5, true)]).is_row_itself());
        assert_eq!(view(&[(5, false), (-5, false)]).halo(), Halo { before: 0, after: 5 });
        assert_eq!(view(&[(2, true)]).halo(), Halo { before: 2, after: 0 });
    }
}
