//! Counts: how many elements are in each bin, and the sums of their weights.
//!
//! All elements of a chunk are counted in the same words, because counts and exact sums do not depend on an order. So
//! they are no part of the tree of tiles: the words of chunks are added as they arrive. `kernels/tally.cu` adds to the
//! same words on CUDA.

use super::bins::Bins;
use super::exact::{Digits, Value};
use crate::data::{ArrayValue, Dtype, Scalar};

/// The most words of a count: 2 MiB, which every chunk brings back.
const MOST_WORDS: usize = 1 << 18;
/// The words behind the digits of a sum of floats: the numbers of NaNs, of infinities, and of negative infinities.
const SPECIAL_WORDS: usize = 3;
/// The elements of a block of threads whose weights are added in shared memory: the sums of 16 bits of each fit in 32.
pub(super) const MOST_IN_SHARED: usize = 1 << 15;
/// The key of elements that a filter leaves out.
pub(super) const LEFT_OUT: i64 = i64::MIN;

/// What a reduction counts.
///
/// Its words are the number of elements whose key has no bin, if it counts keys, and then those of each bin: the count,
/// or the digits of the sum of weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tally {
    /// The number of bins.
    pub(super) bins: usize,
    /// Whether it counts integers, of which none may be outside the bins.
    pub(super) of_keys: bool,
    /// What it counts in; `None` for one that only combines words.
    pub(super) place: Option<Bins>,
    /// The dtype of the weights whose sums it computes; `None` if it counts elements.
    pub(super) weights: Option<Dtype>,
}

impl Tally {
    pub(super) fn of(place: Bins, weights: Option<Dtype>) -> Tally {
        let of_keys = matches!(place, Bins::Keys(_));
        Tally { bins: place.count() as usize, of_keys, place: Some(place), weights }
    }

    /// One that combines words of this many bins.
    pub(super) fn of_words(bins: usize, of_keys: bool, weights: Option<Dtype>) -> Tally {
        Tally { bins, of_keys, place: None, weights }
    }

    /// The dtype in which the kernel has the weights.
    pub(super) fn weight_state(dtype: Dtype) -> Dtype {
        match dtype {
            _ if dtype.is_float() => Dtype::F64,
            _ if dtype.is_signed() => Dtype::I64,
            _ => Dtype::U64,
        }
    }

    /// The words of a bin.
    pub(super) fn bin_words(&self) -> usize {
        match self.weights {
            None => 1,
            Some(dtype) => Digits::of(dtype).count + if dtype.is_float() { SPECIAL_WORDS } else { 0 },
        }
    }

    /// The words in front of those of the bins.
    pub(super) fn first_word(&self) -> usize {
        usize::from(self.of_keys)
    }

    /// All words.
    pub(super) fn words(&self) -> usize {
        self.first_word() + self.bins * self.bin_words()
    }

    /// The most bins that it may have with these weights.
    pub(super) fn most_bins(&self) -> usize {
        MOST_WORDS / self.bin_words()
    }

    /// Whether so many elements may be counted before the words are added to others.
    pub(super) const MOST_ELEMENTS: usize = 1 << 30;

    /// The dtype of the result.
    pub(super) fn result_dtype(&self) -> Dtype {
        if self.weights.is_some() { Dtype::F64 } else { Dtype::I64 }
    }

    /// Counts elements: values as `f64` in bins of the same width, and otherwise keys as `i64`.
    pub(super) fn push(&self, values: &[u64], weights: &[u64], words: &mut [u64]) {
        match self.place {
            Some(Bins::Equal(edges)) => {
                for value in values {
                    if let Some(bin) = edges.bin(f64::from_bits(*value)) {
                        words[bin as usize] = words[bin as usize].wrapping_add(1);
                    }
                }
            }
            Some(Bins::Keys(count)) => {
                let Some((outside, words)) = words.split_first_mut() else { return };
                let mut weights = weights.iter();
                for key in values {
                    let weight = weights.next().copied().unwrap_or(0);
                    if *key < u64::from(count) {
                        self.add(*key as usize, weight, words);
                    } else if *key as i64 != LEFT_OUT {
                        *outside += 1;
                    }
                }
            }
            Some(Bins::List(_)) => {
                let Some((count, words)) = words.split_first_mut() else { return };
                for (_, listed) in values.iter().zip(weights).filter(|(key, _)| **key == 0) {
                    if let Some(word) = words.get_mut(*count as usize) {
                        *word = *listed;
                    }
                    *count += 1;
                }
            }
            None => {}
        }
    }

    /// Returns the words of listed elements.
    fn listed<'w>(&self, words: &'w [u64]) -> Option<&'w [u64]> {
        let (Some(Bins::List(_)), Some((count, listed))) = (self.place, words.split_first()) else { return None };
        Some(&listed[..listed.len().min(*count as usize)])
    }

    /// Adds an element with this weight to a bin.
    #[inline(always)]
    fn add(&self, bin: usize, weight: u64, words: &mut [u64]) {
        let Some(dtype) = self.weights else {
            words[bin] = words[bin].wrapping_add(1);
            return;
        };
        let digits = Digits::of(dtype);
        let own = &mut words[bin * self.bin_words()..][..self.bin_words()];
        let value = match dtype.is_float() {
            true => {
                let weight = f64::from_bits(weight);
                if !weight.is_finite() {
                    let special = if weight.is_nan() { 0 } else { 1 + usize::from(weight < 0.0) };
                    own[digits.count + special] += 1;
                    return;
                }
                digits.of_float(weight)
            }
            false => Digits::of_integer(weight, dtype.is_signed()),
        };
        let Value { is_negative, at, digits } = value;
        for (digit, word) in digits.into_iter().zip(&mut own[at..]) {
            let digit = u64::from(digit);
            *word = word.wrapping_add(if is_negative { digit.wrapping_neg() } else { digit });
        }
    }

    /// Adds the words of other elements.
    pub(crate) fn combine(&self, left: &mut [u64], right: &[u64]) {
        if let (Some(listed), Some(count)) = (self.listed(right), right.first()) {
            let used = left.first().map_or(0, |count| *count as usize);
            let free = left.iter_mut().skip(1 + used);
            free.zip(listed).for_each(|(word, listed)| *word = *listed);
            left[0] += count;
            return;
        }
        left.iter_mut().zip(right).for_each(|(left, right)| *left = left.wrapping_add(*right));
        if let Some(dtype) = self.weights {
            let count = Digits::of(dtype).count;
            let bins = left[self.first_word()..].chunks_mut(self.bin_words());
            bins.for_each(|bin| Digits::carry(&mut bin[..count]));
        }
    }

    /// Returns what differs first in the words of a count with this label, and both as text.
    pub(crate) fn difference(&self, label: &str, [one, other]: [&[u64]; 2]) -> Option<[String; 3]> {
        let is_same = match [one, other].map(|words| self.listed(words)) {
            // A kernel lists elements in any order.
            [Some(one), Some(other)] => sorted(one) == sorted(other),
            _ => one == other,
        };
        if is_same {
            return None;
        }
        let bins = (0..self.bins).map(|bin| (bin, [one, other].map(|words| self.bin(words, bin))));
        let Some((bin, words)) = bins.into_iter().find(|(_, [one, other])| one != other) else {
            let [one, other] = [one, other].map(|words| self.outside(words).to_string());
            return Some([format!("the number of elements that '{label}' does not count"), one, other]);
        };
        let [one, other] = words.map(|words| {
            let bits: Vec<_> = words.iter().map(|word| format!("{word:#x}")).collect();
            format!("{} ({})", self.value(words), bits.join(" "))
        });
        Some([format!("the partial result of '{label}' at [{bin}]"), one, other])
    }

    /// Returns the number of elements whose key has no bin.
    pub(super) fn outside(&self, words: &[u64]) -> u64 {
        words.first().copied().filter(|_| self.of_keys).unwrap_or(0)
    }

    /// Returns the words of a bin.
    pub(super) fn bin<'w>(&self, words: &'w [u64], bin: usize) -> &'w [u64] {
        words
            .get(self.first_word() + bin * self.bin_words()..)
            .and_then(|rest| rest.get(..self.bin_words()))
            .unwrap_or_default()
    }

    /// Returns the value of a bin with these words, which were added to others or are those of one chunk.
    pub(super) fn value(&self, bin: &[u64]) -> Scalar {
        let Some(dtype) = self.weights else {
            return Scalar::I64(bin.first().map_or(0, |count| *count as i64));
        };
        let digits = Digits::of(dtype);
        let Some((words, special)) = bin.split_at_checked(digits.count) else { return Scalar::F64(0.0) };
        let has = |which: usize| special.get(which).is_some_and(|count| *count > 0);
        Scalar::F64(match (has(0), has(1), has(2)) {
            (true, ..) | (_, true, true) => f64::NAN,
            (_, true, _) => f64::INFINITY,
            (_, _, true) => f64::NEG_INFINITY,
            _ => {
                let mut words = words.to_vec();
                Digits::carry(&mut words);
                digits.round(&words)
            }
        })
    }

    /// Returns the values of all bins; zeros without words.
    pub(super) fn values(&self, words: &[u64]) -> Option<ArrayValue> {
        let values = (0..self.bins).map(|bin| Some(self.value(self.bin(words, bin))));
        ArrayValue::of_values(self.result_dtype(), vec![self.bins as u64], values)
    }
}

fn sorted(words: &[u64]) -> Vec<u64> {
    let mut words = words.to_vec();
    words.sort_unstable();
    words
}
