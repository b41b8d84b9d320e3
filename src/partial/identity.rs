//! What identifies a job and its inputs.

use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use super::output::OutputId;
use crate::data::{Source, is_url};
use crate::error::Result;

/// An input is sampled at this many places, with this many rows at each.
const SAMPLES: u64 = 64;
const SAMPLE_ROWS: u64 = 128;

/// What identifies a job: partials of the same job are equal in all of this.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobId {
    /// The version of Overshot.
    pub(crate) version: String,
    /// The expression, or the entry point of a kernel.
    pub(crate) text: String,
    /// What identifies a kernel of the caller's own; `None` for an expression.
    pub(crate) kernel: Option<String>,
    /// The number of rows of the whole job.
    pub(crate) rows: u64,
    pub(crate) inputs: Vec<InputId>,
    /// Scalars and numbers, with their dtypes and values.
    pub(crate) values: Vec<(String, String)>,
    pub(crate) outputs: Vec<OutputId>,
    /// How products of `f32` are multiplied; `None` with full precision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) precision: Option<String>,
}

/// What identifies an input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct InputId {
    pub(super) name: String,
    pub(super) dtype: String,
    pub(super) rows: u64,
    pub(super) shape: Option<Vec<u64>>,
    /// The size of a file in bytes, and its time in nanoseconds since 1970. Of several files, all sizes together, and a
    /// checksum of each size and time. Of URLs and folders, what the source says is its version.
    file: Option<(u64, u64)>,
    /// A checksum of some of the rows, or what the source says identifies them.
    sample: String,
}

impl InputId {
    /// Identifies an input.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub(crate) fn of(name: &str, source: &dyn Source) -> Result<Self> {
        let (dtype, rows) = (source.dtype(), source.rows());
        let sample = match source.identity() {
            Some(identity) => format!("identity {identity}"),
            None => [sample(source)?, source.variant()].join(" ").trim_end().into(),
        };
        let file = of_source(source);
        let shape = source.shape().map(<[u64]>::to_vec);
        Ok(InputId { name: name.to_owned(), dtype: dtype.to_string(), rows, shape, file, sample })
    }
}

/// Returns a checksum of some of the rows.
fn sample(source: &dyn Source) -> Result<String> {
    let (dtype, rows) = (source.dtype(), source.rows());
    let mut bytes = Vec::new();
    // From the first rows to the last ones; of a small input, all rows.
    let (count, samples) = (rows.min(SAMPLE_ROWS), rows.div_ceil(SAMPLE_ROWS).min(SAMPLES));
    let steps = samples.saturating_sub(1).max(1);
    for sample in 0..samples {
        let first = (u128::from(rows - count) * u128::from(sample) / u128::from(steps)) as u64;
        let end = bytes.len();
        bytes.resize(end + count as usize * dtype.size(), 0);
        source.read(first, &mut bytes[end..])?;
    }
    Ok(format!("{:032x}", XxHash3_128::oneshot(&bytes)))
}

fn of_source(source: &dyn Source) -> Option<(u64, u64)> {
    let paths = source.files();
    // A URL has no metadata here, and that of a folder does not change with the files in it.
    match paths.iter().any(|path| is_url(path) || path.is_dir()) {
        true => source.version().map(|version| ((version >> 64) as u64, version as u64)),
        false => of_files(&paths),
    }
}

fn of_files(paths: &[&Path]) -> Option<(u64, u64)> {
    let files: Vec<(u64, u64)> = paths.iter().map(|path| of_file(path)).collect::<Option<_>>()?;
    match files[..] {
        [] => None,
        [one] => Some(one),
        _ => {
            let numbers: Vec<u64> = files.iter().flat_map(|(size, time)| [*size, *time]).collect();
            let checksum = XxHash3_128::oneshot(bytemuck::cast_slice(&numbers)) as u64;
            Some((files.iter().fold(0, |sum: u64, (size, _)| sum.saturating_add(*size)), checksum))
        }
    }
}

fn of_file(path: &Path) -> Option<(u64, u64)> {
    let metadata = path.metadata().ok()?;
    let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some((metadata.len(), modified.as_nanos() as u64))
}

impl JobId {
    /// Returns a number that other jobs do not have.
    pub(crate) fn number(&self) -> u128 {
        // Strings, numbers and lists of them always have a JSON form.
        XxHash3_128::oneshot(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// Returns how another job differs, for people.
    pub(crate) fn difference(&self, other: &JobId) -> Option<String> {
        let differ = |what: &str, own: &dyn std::fmt::Display, others: &dyn std::fmt::Display| {
            Some(format!("{what}: {own} here and {others} there"))
        };
        if self.version != other.version {
            return differ("the version of Overshot", &self.version, &other.version);
        }
        if self.text != other.text {
            return differ("the expression", &self.text, &other.text);
        }
        if self.kernel != other.kernel {
            return Some("the code or the settings of the kernel".into());
        }
        if self.rows != other.rows {
            return differ("the number of rows", &self.rows, &other.rows);
        }
        if self.precision != other.precision {
            let [own, others] = [self, other].map(|job| job.precision.as_deref().unwrap_or("full"));
            return differ("the precision of products", &own, &others);
        }
        if self.values != other.values {
            return Some("the values of its names".into());
        }
        let names = |job: &JobId| job.inputs.iter().map(|input| input.name.clone()).collect::<Vec<_>>().join(", ");
        if names(self) != names(other) {
            return differ("the inputs", &names(self), &names(other));
        }
        let outputs = |job: &JobId| job.outputs.iter().map(|output| output.name.clone()).collect::<Vec<_>>().join(", ");
        if outputs(self) != outputs(other) {
            return differ("the outputs", &outputs(self), &outputs(other));
        }
        if let Some((own, others)) = self.outputs.iter().zip(&other.outputs).find(|(own, others)| own != others) {
            return Some(format!("the output {}: {}", own.name, own.difference(others)));
        }
        let (own, others) = self.inputs.iter().zip(&other.inputs).find(|(own, others)| own != others)?;
        let what = match () {
            () if own.dtype != others.dtype => return differ(&own.name, &own.dtype, &others.dtype),
            () if own.rows != others.rows => {
                return differ(&format!("the rows of {}", own.name), &own.rows, &others.rows);
            }
            () if own.shape != others.shape => "its shape",
            () if own.file != others.file => "the size or the time of a file of it",
            () => "its values",
        };
        Some(format!("the input {}: {what}", own.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Input;

    #[test]
    fn all_rows_of_a_small_input_are_sampled_and_both_ends_of_a_large_one() {
        let of = |values: &[f32]| InputId::of("x", Input::from(values).source()).unwrap();
        for rows in [1, 127, 128, 129, 300, 8191, 8192] {
            let mut values = vec![1.0f32; rows];
            let whole = of(&values);
            for row in 0..rows {
                values[row] = 2.0;
                assert_ne!(of(&values), whole, "row {row} of {rows}");
                values[row] = 1.0;
            }
        }
        let mut values = vec![1.0f32; 1_000_003];
        let whole = of(&values);
        for row in [0, 127, 999_875, 1_000_002] {
            values[row] = 2.0;
            assert_ne!(of(&values), whole, "row {row}");
            values[row] = 1.0;
        }
        assert_eq!(of(&values), whole);
        assert_ne!(of(&[]), of(&[0.0]));
    }

    #[test]
    fn an_identity_of_the_source_takes_the_place_of_samples() {
        use crate::data::{Blocks, Dtype};
        let of = |identity: &str| {
            let input = Input::from(Blocks::new(Dtype::F32, &[9], identity));
            InputId::of("x", input.borrowed().source()).unwrap()
        };
        assert_eq!(of("a"), of("a"));
        assert_ne!(of("a"), of("b"));
    }
}
