//! What a store says of its arrays.

use super::Dtype;
#[cfg(feature = "zarr")]
use super::Zarr;
use crate::error::Result;
use std::path::Path;

/// An array of a store: what is in it, without its values.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredArray {
    /// The name in the store; empty if the folder itself is the array.
    pub name: String,
    /// The name of the format, with its version: `zarr 2` or `zarr 3`.
    pub format: &'static str,
    /// The type, as the format calls it.
    pub kind: String,
    /// The dtype of the values; `None` if they are not of one, so that a job cannot read the array.
    pub dtype: Option<Dtype>,
    /// The lengths of the axes, outermost first.
    pub shape: Vec<u64>,
    /// The lengths of the chunks, which are decoded as a whole; empty if these are not regular, or the array
    /// has no axes.
    pub chunks: Vec<u64>,
    /// The lengths of the shards, which are files of several chunks, if there are any.
    pub shards: Option<Vec<u64>>,
    /// The names of the codecs, in the order in which values are encoded.
    pub codecs: Vec<String>,
    /// The bytes of its files; 0 if a server does not list them.
    pub bytes: u64,
}

impl StoredArray {
    /// Reads what a store says of its arrays, in the order of their names; `None` if the folder is no store. An array
    /// that cannot be read has no dtype.
    ///
    /// ```no_run
    /// for array in overshot::io::StoredArray::all("era5.zarr")?.unwrap_or_default() {
    ///     println!("{}: {:?} in chunks of {:?}", array.name, array.shape, array.chunks);
    /// }
    /// # Ok::<(), overshot::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if a server cannot say what is there.
    #[cfg_attr(not(feature = "zarr"), allow(unused_variables, reason = "there is no such format"))]
    pub fn all(path: impl AsRef<Path>) -> Result<Option<Vec<StoredArray>>> {
        #[cfg(feature = "zarr")]
        return Zarr::described(path.as_ref());
        #[cfg(not(feature = "zarr"))]
        Ok(None)
    }
}
