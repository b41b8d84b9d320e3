//! The values of reductions, from the states of all rows.

use super::reduce::Reduction;
use crate::data::{ArrayValue, Scalar};
use crate::error::{JobError, Result};

/// The results of a job with their labels, each kind in the order of the text. `None` stands for a result that does not
/// exist, as for the minimum of no rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    /// Those of one value.
    pub(crate) values: Vec<(String, Option<Scalar>)>,
    /// Those with a value for each column.
    pub(crate) arrays: Vec<(String, Option<ArrayValue>)>,
}

/// Returns the results of `rows` rows with these states, these words of all chunks, and these words of every tile that
/// are kept as they are. There are none without rows.
///
/// # Errors
/// [`Error::InvalidJob`](crate::Error::InvalidJob) if a key that is counted is outside the range.
pub(crate) fn results(
    reductions: &[Reduction],
    states: Option<&[u64]>,
    mut of_chunks: &[u64],
    of_tiles: &[u64],
    rows: u64,
) -> Result<Results> {
    let mut rest = states.unwrap_or_default();
    let mut split = |reduction: &Reduction| rest.split_off(..reduction.state_words());
    let states: Vec<Option<&[u64]>> = reductions.iter().map(&mut split).collect();
    let kept = |counter: usize| states.get(counter).copied().flatten().and_then(|state| state.first().copied());
    let (mut place, kept_words) = (0, reductions.iter().filter(|of| of.keeps_tiles).count().max(1));
    let mut results = Results::default();
    for (reduction, state) in reductions.iter().zip(&states).filter(|(reduction, _)| reduction.is_result()) {
        let label = reduction.label().to_owned();
        if reduction.keeps_tiles {
            let words: Vec<u64> = of_tiles.iter().skip(place).step_by(kept_words).copied().collect();
            results.arrays.push((label, Some(ArrayValue::of_words(reduction.state, vec![words.len() as u64], words))));
            place += 1;
        } else if let Some(tally) = reduction.tally() {
            let words = of_chunks.split_off(..reduction.chunk_words()).unwrap_or_default();
            let (count, bins) = (tally.outside(words), tally.bins);
            if count > 0 {
                return Err(JobError::KeysOutside { result: label, count, keys: bins as u64 }.into());
            }
            results.arrays.push((label, tally.values(words)));
        } else {
            let rows = reduction.counter().map_or(rows, |counter| kept(counter).unwrap_or(0));
            if reduction.shape().is_some() {
                results.arrays.push((label, reduction.finish_columns(*state, rows)));
            } else {
                let elements = rows.saturating_mul(reduction.elements);
                results.values.push((label, reduction.finish(*state, elements)));
            }
        }
    }
    Ok(results)
}
