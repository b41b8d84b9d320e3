//! Sets of rows.

use std::ops::Range;

/// Rows as ranges, in order, none empty, and no two of which touch.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RowSet(Vec<Range<u64>>);

impl RowSet {
    pub(super) fn of(rows: Range<u64>) -> RowSet {
        RowSet(if rows.is_empty() { vec![] } else { vec![rows] })
    }

    /// Creates a set of ranges; `None` if two of them have a row in common, or one ends before it begins.
    pub(super) fn of_ranges(ranges: &[Range<u64>]) -> Option<RowSet> {
        let mut all = RowSet::default();
        for range in ranges {
            let own = RowSet::of(range.clone());
            if range.start > range.end || all.overlap(&own).is_some() {
                return None;
            }
            all.add(&own);
        }
        Some(all)
    }

    pub(super) fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// Returns the first rows that both sets have.
    pub(super) fn overlap(&self, other: &RowSet) -> Option<Range<u64>> {
        let (mut own, mut others) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(a), Some(b)) = (own.peek(), others.peek()) {
            let (start, end) = (a.start.max(b.start), a.end.min(b.end));
            if start < end {
                return Some(start..end);
            }
            if a.end <= b.end {
                own.next();
            } else {
                others.next();
            }
        }
        None
    }

    /// Adds rows that the set does not have.
    pub(super) fn add(&mut self, other: &RowSet) {
        let mut ranges = std::mem::take(&mut self.0);
        ranges.extend(other.0.iter().cloned());
        ranges.sort_unstable_by_key(|range| range.start);
        for range in ranges {
            match self.0.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => self.0.push(range),
            }
        }
    }

    /// Returns the first rows of 0 to `rows` that the set does not have.
    pub(super) fn missing(&self, rows: u64) -> Option<Range<u64>> {
        let (start, next) = match self.0.first() {
            Some(first) if first.start == 0 => (first.end, self.0.get(1)),
            first => (0, first),
        };
        (start < rows).then(|| start..next.map_or(rows, |next| next.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_as_a_set_of_numbers(ranges in prop::collection::vec((0u64..60, 0u64..9), 0..12)) {
            let (mut set, mut twin) = (RowSet::default(), BTreeSet::new());
            for (start, len) in ranges {
                let (own, rows) = (RowSet::of(start..start + len), start..start + len);
                let first = rows.clone().find(|row| twin.contains(row));
                prop_assert_eq!(set.overlap(&own).map(|both| both.start), first);
                prop_assert_eq!(own.overlap(&set).map(|both| both.start), first);
                if first.is_none() {
                    set.add(&own);
                    twin.extend(rows);
                }
                let found: Vec<u64> = set.ranges().iter().cloned().flatten().collect();
                prop_assert_eq!(found, twin.iter().copied().collect::<Vec<_>>());
                prop_assert!(set.ranges().windows(2).all(|pair| pair[0].end < pair[1].start));
                let missing: Vec<u64> = set.missing(70).into_iter().flatten().collect();
                let gap = (0..70).skip_while(|row| twin.contains(row)).take_while(|row| !twin.contains(row));
                let gap: Vec<u64> = gap.collect();
                prop_assert_eq!(missing, gap);
                prop_assert_eq!(RowSet::of_ranges(set.ranges()), Some(set.clone()));
            }
        }
    }
}
