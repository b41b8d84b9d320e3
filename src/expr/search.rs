//! The search for values by their rank: from what a pass has counted to the range of the next pass, and to the result.

use std::iter::repeat_n;

use super::rank::{Bound, MOST_LISTED, Order, Part, Ranking, bits_of_key, greatest_key, key_bits, shift_of};
use super::reduce::Reduction;
use crate::data::{ArrayValue, Dtype, Scalar};
use crate::error::{Error, JobError, Result};

/// The search for one result.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    ranking: Ranking,
    /// The dtype of the values.
    dtype: Dtype,
    bits: u32,
    /// The number of passes that are done.
    passes: usize,
    /// The number of values.
    total: u64,
    /// The ranks of the two values between which the result is, from 0.
    ranks: [u64; 2],
    /// The range of the next pass. There are no keys inside if the two values are the ends of the gap from `high` to
    /// `low`.
    low: u64,
    high: u64,
    shift: u32,
    /// Whether the next pass lists the keys of the range.
    is_list: bool,
    /// The number of keys below the range.
    below: u64,
    /// Where keys above a value are listed: this value.
    tie: Option<u64>,
    outcome: Option<Outcome>,
}

/// What has been found.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    /// There are no values.
    Nothing,
    /// NaN is among the values.
    Nan,
    /// The keys at both ranks.
    Between([u64; 2]),
    /// The greatest keys in descending order.
    Top(Vec<u64>),
}

/// What a pass has found out.
pub(crate) struct Counted<'r> {
    /// The results that are arrays.
    pub(crate) arrays: &'r [(String, Option<ArrayValue>)],
    /// The other results.
    pub(crate) values: &'r [(String, Option<Scalar>)],
}

impl Counted<'_> {
    fn words(&self, part: Part, label: &str) -> Vec<u64> {
        let own = part.label(label);
        let array = self.arrays.iter().find(|(name, _)| *name == own).and_then(|(_, array)| array.as_ref());
        array.map(|array| array.values().map(Scalar::bits).collect()).unwrap_or_default()
    }

    fn value(&self, part: Part, label: &str) -> Option<u64> {
        let own = part.label(label);
        self.values.iter().find(|(name, _)| *name == own)?.1.map(Scalar::bits)
    }
}

impl Search {
    /// The search for a result that these reductions of its first pass begin; `None` if they do not.
    pub(crate) fn of(ranking: Ranking, reductions: &[Reduction]) -> Option<Search> {
        let counts = Part::Counts.label(&ranking.shared);
        let counts = reductions.iter().find(|reduction| reduction.label() == counts)?;
        Some(Search::new(ranking, counts.dtype()))
    }

    fn new(ranking: Ranking, dtype: Dtype) -> Search {
        let bits = key_bits(dtype);
        let high = greatest_key(bits);
        Search {
            ranking,
            dtype,
            bits,
            passes: 0,
            total: 0,
            ranks: [0; 2],
            low: 0,
            high,
            shift: shift_of(high),
            is_list: false,
            below: 0,
            tie: None,
            outcome: None,
        }
    }

    pub(crate) fn ranking(&self) -> &Ranking {
        &self.ranking
    }

    /// Whether no more passes are needed.
    pub(crate) fn is_done(&self) -> bool {
        self.outcome.is_some()
    }

    /// The dtype of the result.
    pub(crate) fn result_dtype(&self) -> Dtype {
        match self.ranking.order {
            Order::Top(_) => self.dtype,
            _ if self.dtype.is_float() => self.dtype,
            _ => Dtype::F64,
        }
    }

    /// The shape of the result, if it is an array.
    pub(crate) fn shape(&self) -> Option<Vec<u64>> {
        match self.ranking.order {
            Order::Top(count) => Some(vec![count.into()]),
            _ => None,
        }
    }

    /// The names of the scalars that passes receive, and their values for the next one.
    pub(crate) fn scalars(&self) -> impl Iterator<Item = (String, Scalar)> {
        Bound::ALL.into_iter().map(|bound| {
            let value = match bound {
                Bound::Low => self.low,
                Bound::High => self.high,
                Bound::Shift => self.shift.into(),
                Bound::IsList => self.is_list.into(),
            };
            (bound.name(&self.ranking.label), Scalar::U64(value))
        })
    }

    /// Returns whether this is the label of what a pass finds out for this search.
    pub(crate) fn has_part(&self, label: &str) -> bool {
        Part::ALL.iter().any(|part| part.label(&self.ranking.label) == label)
    }

    /// Finds the range of the next pass, or the result, from what the last one has counted.
    ///
    /// # Errors
    /// [`Error::InvalidJob`] if there are fewer values than wanted, or if the passes did not read the same values.
    pub(crate) fn absorb(&mut self, counted: &Counted<'_>) -> Result<()> {
        if self.is_done() {
            return Ok(());
        }
        let label = if self.passes == 0 { &self.ranking.shared } else { &self.ranking.label };
        let ends = [Part::Greatest, Part::Least].map(|part| counted.value(part, label));
        let is_gap = self.low > self.high;
        self.outcome = if is_gap {
            let [Some(below), Some(above)] = ends else { return Err(self.other_values()) };
            Some(Outcome::Between([below, above]))
        } else if self.is_list {
            Some(self.of_list(counted.words(Part::List, label))?)
        } else {
            self.of_counts(&counted.words(Part::Counts, label), ends)?
        };
        if self.is_done() {
            // Passes that run for others count nothing.
            (self.low, self.high) = (1, 0);
        }
        self.passes += 1;
        Ok(())
    }

    /// What the list of all keys of the range tells.
    fn of_list(&self, list: Vec<u64>) -> Result<Outcome> {
        let Some((count, keys)) = list.split_first() else { return Err(self.other_values()) };
        let Some(keys) = keys.get(..*count as usize) else { return Err(self.other_values()) };
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        if let Order::Top(wanted) = self.ranking.order {
            let wanted = wanted as usize;
            let listed = keys.into_iter().rev().chain(self.tie.into_iter().flat_map(|tie| repeat_n(tie, wanted)));
            let top: Vec<u64> = listed.take(wanted).collect();
            return if top.len() == wanted { Ok(Outcome::Top(top)) } else { Err(self.other_values()) };
        }
        let at = |rank: u64| keys.get(rank.checked_sub(self.below)? as usize).copied();
        match self.ranks.map(at) {
            [Some(first), Some(second)] => Ok(Outcome::Between([first, second])),
            _ => Err(self.other_values()),
        }
    }

    /// What the counts of keys in bins tell, together with the greatest key up to the end of the range, and the least
    /// one from its begin on.
    fn of_counts(&mut self, counts: &[u64], [greatest, least]: [Option<u64>; 2]) -> Result<Option<Outcome>> {
        if self.passes == 0 {
            self.total = counts.iter().sum();
            if let Some(outcome) = self.begin(greatest)? {
                return Ok(Some(outcome));
            }
        }
        let (mut below, mut bins) = (self.below, [None; 2]);
        for (bin, count) in (0_u64..).zip(counts) {
            for (place, rank) in bins.iter_mut().zip(self.ranks) {
                if place.is_none() && rank < below + count {
                    *place = Some((bin, below, *count));
                }
            }
            below += count;
        }
        let ([Some((first, below, count)), Some((second, ..))], Some(greatest), Some(least)) = (bins, greatest, least)
        else {
            return Err(self.other_values());
        };
        let (from, shift) = (self.low, self.shift);
        let start = |bin: u64| from + (bin << shift);
        let end = |bin: u64| start(bin).saturating_add((1 << shift) - 1);
        if first != second {
            let (low, high) = (start(second), end(first));
            (self.low, self.high) = (low, high);
            return Ok((self.shift == 0).then_some(Outcome::Between([high, low])));
        }
        let (low, high) = (start(first).max(least), end(first).min(greatest));
        if let Order::Top(wanted) = self.ranking.order {
            let top = greatest_key(self.bits);
            let above = self.total.saturating_sub(below + count);
            if low == high && self.shift == 0 && self.high == top {
                let bins = counts.iter().enumerate().rev().filter(|(_, count)| **count > 0);
                let keys = bins.flat_map(|(bin, count)| repeat_n(start(bin as u64), *count as usize));
                return Ok(Some(Outcome::Top(keys.take(wanted as usize).collect())));
            }
            if low == high && above == 0 {
                return Ok(Some(Outcome::Top(vec![low; wanted as usize])));
            }
            if self.total.saturating_sub(below) <= MOST_LISTED.into() {
                (self.low, self.high, self.is_list, self.below) = (low, top, true, below);
                return Ok(None);
            }
            if low == high && low == top {
                return Err(self.other_values());
            }
            if low == high {
                (self.low, self.high, self.is_list, self.tie) = (low + 1, top, true, Some(low));
                return Ok(None);
            }
        } else if low == high {
            return Ok(Some(Outcome::Between([low; 2])));
        }
        (self.low, self.high, self.below) = (low, high, below);
        self.shift = shift_of(high - low);
        // The largest values are listed with all keys above the range, of which there are too many here.
        let is_top = matches!(self.ranking.order, Order::Top(_));
        let lists_next = self.ranking.order.lists(self.passes + 1, self.bits);
        self.is_list = !is_top && lists_next && count <= MOST_LISTED.into();
        Ok(None)
    }

    /// Finds the wanted ranks, and what is known without them.
    fn begin(&mut self, greatest: Option<u64>) -> Result<Option<Outcome>> {
        let total = self.total;
        self.ranks = match self.ranking.order {
            Order::Top(count) if total < count.into() => {
                let (result, count) = (self.ranking.label.clone(), count.into());
                return Err(JobError::TooFewValues { result, values: total, count }.into());
            }
            Order::Top(count) => [total - u64::from(count); 2],
            _ if total == 0 => return Ok(Some(Outcome::Nothing)),
            _ if self.dtype.is_float() && greatest == Some(greatest_key(self.bits)) => return Ok(Some(Outcome::Nan)),
            Order::Median => [(total - 1) / 2, total / 2],
            Order::Quantile(share) => {
                let (first, _) = place(share, total);
                first.map_or([total - 1; 2], |first| [first, first + 1])
            }
        };
        Ok(None)
    }

    fn other_values(&self) -> Error {
        JobError::OtherValues { result: self.ranking.label.clone() }.into()
    }

    /// Returns the value of the result; `None` if it is an array, or not found yet.
    pub(crate) fn value(&self) -> Option<Scalar> {
        let found = match self.outcome.as_ref()? {
            Outcome::Nothing | Outcome::Nan => f64::NAN,
            Outcome::Between(keys) => {
                let values = keys.map(|key| Scalar::of_bits(self.dtype, bits_of_key(self.dtype, key)).as_f64());
                let found = match self.dtype {
                    Dtype::F64 => self.between_doubles(values),
                    // Computed in f32, as NumPy does for f32.
                    dtype if dtype.is_float() => self.between_singles(values.map(|value| value as f32)).into(),
                    _ => self.between_integers(keys.map(|key| i128::from(key) - self.zero())),
                };
                // The difference to an infinity, or of two of them, is not needed where the quantile is one value.
                let is_value = values[0] == values[1] || self.share() == Some(0.0);
                if found.is_nan() && is_value { values[0] } else { found }
            }
            Outcome::Top(_) => return None,
        };
        Some(Scalar::of_float(self.result_dtype(), found))
    }

    /// Returns the array of the result; `None` if it is a value, or not found yet.
    pub(crate) fn array(&self) -> Option<ArrayValue> {
        let Outcome::Top(keys) = self.outcome.as_ref()? else { return None };
        let values = keys.iter().map(|key| Some(Scalar::of_bits(self.dtype, bits_of_key(self.dtype, *key))));
        ArrayValue::of_values(self.dtype, self.shape()?, values)
    }

    /// The share of the way from the first value to the second; `None` for their mean.
    fn share(&self) -> Option<f64> {
        match self.ranking.order {
            Order::Quantile(share) => Some(place(share, self.total).1),
            _ => None,
        }
    }

    fn between_singles(&self, [a, b]: [f32; 2]) -> f32 {
        match self.share() {
            None if self.ranks[0] == self.ranks[1] => a,
            None => (a + b) / 2.0,
            Some(share) if share >= 0.5 => b - (b - a) * ((1.0 - share) as f32),
            Some(share) => a + (b - a) * (share as f32),
        }
    }

    fn between_doubles(&self, [a, b]: [f64; 2]) -> f64 {
        match self.share() {
            None if self.ranks[0] == self.ranks[1] => a,
            None => (a + b) / 2.0,
            Some(share) if share >= 0.5 => b - (b - a) * (1.0 - share),
            Some(share) => a + (b - a) * share,
        }
    }

    /// The key of the integer 0.
    fn zero(&self) -> i128 {
        if self.dtype.is_signed() { 1 << (self.bits - 1) } else { 0 }
    }

    /// The difference of two integers is exact.
    fn between_integers(&self, [a, b]: [i128; 2]) -> f64 {
        let difference = (b - a) as f64;
        match self.share() {
            None if self.ranks[0] == self.ranks[1] => a as f64,
            None => (a as f64 + b as f64) / 2.0,
            Some(share) if share >= 0.5 => b as f64 - difference * (1.0 - share),
            Some(share) => a as f64 + difference * share,
        }
    }
}

/// Returns the rank of the value before a quantile, from 0, and the share of the way to the next one, as NumPy computes
/// them. There is no rank if the quantile is the greatest value.
fn place(share: f64, total: u64) -> (Option<u64>, f64) {
    let last = (total - 1) as f64;
    let place = last * share;
    if place >= last {
        // NumPy then has the number -1.
        return (None, place + 1.0);
    }
    (Some(place as u64), place - place.floor())
}
