//! The keys of the folders in which files are, as `overshot info` shows them.

use overshot::io::FolderKey;
use overshot::units;
use serde::Serialize;

#[derive(Debug, PartialEq, Serialize)]
pub struct Key {
    name: String,
    /// The dtype; `None` for texts, which cannot be read.
    dtype: Option<&'static str>,
}

impl Key {
    pub fn of(key: FolderKey) -> Key {
        Key { name: key.name, dtype: key.dtype.map(|dtype| dtype.name()) }
    }

    pub fn text(&self) -> String {
        units::one_line(&format!("key {}: {}", self.name, self.dtype.unwrap_or("texts, which a job cannot read")))
    }
}
