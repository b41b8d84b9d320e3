//! What is read in the place of the nulls of a column.

use super::{ColumnOptions, Dtype, Scalar};
use crate::error::{Error, Result};
use std::path::Path;

/// A value for the place of nulls, or none.
#[derive(Debug)]
pub(super) struct Nulls {
    dtype: Dtype,
    /// What the user wants, and its bits if that is a value of the dtype.
    value: Option<(String, Option<[u8; 8]>)>,
}

impl Nulls {
    pub(super) fn new(options: &ColumnOptions, dtype: Dtype) -> Nulls {
        let bits = |text: &str| Scalar::parse(word(text, dtype), dtype).map(|value| value.bits().to_ne_bytes());
        Nulls { dtype, value: options.nulls.as_ref().map(|text| (text.clone(), bits(text))) }
    }

    /// Returns the bytes of the value.
    #[cfg(any(feature = "arrow", feature = "parquet"))]
    pub(super) fn fill(&self) -> Option<&[u8]> {
        let (_, bits) = self.value.as_ref()?;
        // Native byte order: the low bytes of the word.
        let (bits, size) = (bits.as_ref()?, self.dtype.size());
        Some(if cfg!(target_endian = "little") { &bits[..size] } else { &bits[8 - size..] })
    }

    /// Returns the value, if it is one of the dtype.
    pub(super) fn value(&self) -> Option<Scalar> {
        let (_, bits) = self.value.as_ref()?;
        bits.map(|bits| Scalar::of_bits(self.dtype, u64::from_ne_bytes(bits)))
    }

    /// Returns the error for `nulls` of a column, such as `12 nulls`, if there is no value for their place.
    pub(super) fn refuse(&self, path: &Path, name: &str, nulls: &str) -> Result<()> {
        let dtype = self.dtype;
        match &self.value {
            Some((_, Some(_))) => Ok(()),
            None => {
                let problem = format!("its column '{name}' has {nulls}, and nulls are no numbers");
                let remedy = "say which value to take instead (--nulls VALUE, ov.open(..., nulls=VALUE), \
                              ColumnOptions::nulls)";
                Err(Error::file(path, problem, remedy))
            }
            Some((text, None)) => {
                let problem = format!("its column '{name}' of {dtype} has {nulls}, and {text} is no value of {dtype}");
                Err(Error::file(path, problem, "take another value instead of nulls"))
            }
        }
    }

    /// See [`Source::variant`](super::Source::variant).
    pub(super) fn variant(&self, name: &str) -> String {
        match &self.value {
            None => format!("column {name}"),
            Some((text, _)) => format!("column {name}, nulls {text}"),
        }
    }
}

/// Returns a value as it is parsed. Python and others write booleans in other ways.
fn word(text: &str, dtype: Dtype) -> &str {
    match text {
        "True" | "TRUE" | "1" if dtype == Dtype::Bool => "true",
        "False" | "FALSE" | "0" if dtype == Dtype::Bool => "false",
        text => text,
    }
}
