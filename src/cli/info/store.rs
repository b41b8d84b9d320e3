//! The arrays of stores, as `overshot info` shows them.

use overshot::io::StoredArray;
use overshot::units;
use serde::Serialize;

#[derive(Debug, PartialEq, Serialize)]
pub struct Stored {
    name: String,
    /// The format with its version.
    format: &'static str,
    /// The type, as the format calls it.
    kind: String,
    /// The dtype; `None` for an array that cannot be read.
    dtype: Option<&'static str>,
    shape: Vec<u64>,
    /// The lengths of the chunks; empty if they are not regular, or the array has no axes.
    chunks: Vec<u64>,
    shards: Option<Vec<u64>>,
    codecs: Vec<String>,
    file_bytes: u64,
}

impl Stored {
    pub fn of(array: &StoredArray) -> Stored {
        let StoredArray { name, format, kind, dtype, shape, chunks, shards, codecs, bytes, .. } = array.clone();
        let dtype = dtype.map(|dtype| dtype.name());
        Stored { name, format, kind, dtype, shape, chunks, shards, codecs, file_bytes: bytes }
    }

    pub fn format(&self) -> &'static str {
        self.format
    }

    /// Returns whether the folder itself is the array.
    pub fn is_whole(&self) -> bool {
        self.name.is_empty()
    }

    /// Returns whether a job can read it.
    pub fn is_readable(&self) -> bool {
        self.dtype.is_some() && self.is_regular()
    }

    fn is_regular(&self) -> bool {
        self.chunks.len() == self.shape.len()
    }

    /// Returns a line about one of several arrays.
    pub fn text(&self) -> String {
        let what = match self.dtype {
            Some(dtype) => format!("{dtype}, shape {}", units::shape(&self.shape)),
            None => format!("{}, which a job cannot read", self.kind),
        };
        units::one_line(&format!("array {}: {what}; {}", self.name, self.storage()))
    }

    /// Returns how it is stored.
    pub fn storage(&self) -> String {
        let shards = self.shards.as_ref().map(|shards| format!(" in shards of {}", units::shape(shards)));
        let chunks = match self.dtype {
            _ if self.is_regular() => format!(", chunks {}", units::shape(&self.chunks)),
            Some(_) => ", irregular chunks".into(),
            // What cannot be opened does not say it.
            None => String::new(),
        };
        let (format, codecs) = (self.format, self.codecs.join(", "));
        units::one_line(&format!("{format}{chunks}{}; {codecs}", shards.unwrap_or_default()))
    }
}
