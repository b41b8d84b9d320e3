//! The values of reductions, from the states of all rows.

use super::reduce::Reduction;
use crate::data::{ArrayValue, Scalar};

/// The results of a job with their labels, each kind in the order of the text. `None` stands for a result that does not
/// exist, as for the minimum of no rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    /// Those of one value.
    pub(crate) values: Vec<(String, Option<Scalar>)>,
    /// Those with a value for each column.
    pub(crate) arrays: Vec<(String, Option<ArrayValue>)>,
}

/// Returns the results of `rows` rows with these states. `None` if there are no rows.
pub(crate) fn results(reductions: &[Reduction], states: Option<&[u64]>, rows: u64) -> Results {
    let mut rest = states.unwrap_or_default();
    let mut split = |reduction: &Reduction| rest.split_off(..reduction.state_words());
    let states: Vec<Option<&[u64]>> = reductions.iter().map(&mut split).collect();
    let kept = |counter: usize| states.get(counter).copied().flatten().and_then(|state| state.first().copied());
    let mut results = Results::default();
    for (reduction, state) in reductions.iter().zip(&states).filter(|(reduction, _)| reduction.is_result()) {
        let label = reduction.label().to_owned();
        if reduction.shape().is_some() {
            results.arrays.push((label, reduction.finish_columns(*state, rows)));
        } else {
            let rows = reduction.counter().map_or(rows, |counter| kept(counter).unwrap_or(0));
            results.values.push((label, reduction.finish(*state, rows)));
        }
    }
    results
}
