//! How the values of output files are compressed.

use crate::error::{Error, Result, SettingError};
use std::fmt;
use std::str::FromStr;

/// The compression of a Parquet file or a Zarr array that a job writes ([`NewFile::codec`](super::NewFile::codec)).
///
/// ```
/// use overshot::io::Codec;
/// assert_eq!("zstd:3".parse::<Codec>()?, Codec::Zstd(3));
/// assert_eq!(Codec::default(), Codec::Zstd(1));
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Codec {
    /// The values as they are.
    None,
    /// Snappy, in Parquet files.
    Snappy,
    /// LZ4: the raw one of Parquet files; in Zarr arrays that of Blosc, which puts together the bytes of values that
    /// have the same weight before.
    Lz4,
    /// Zstandard, at a level from 1, the fastest, to 22.
    Zstd(u8),
    /// Gzip, at a level from 1 to 9.
    Gzip(u8),
}

const KNOWN: &str = "none, snappy, lz4, zstd, zstd:1 to zstd:22, gzip, or gzip:1 to gzip:9";

impl Default for Codec {
    /// Zstandard at level 1: small files at a speed that most disks do not reach.
    fn default() -> Codec {
        Codec::Zstd(1)
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Codec::None => f.write_str("none"),
            Codec::Snappy => f.write_str("snappy"),
            Codec::Lz4 => f.write_str("lz4"),
            Codec::Zstd(level) => write!(f, "zstd:{level}"),
            Codec::Gzip(level) => write!(f, "gzip:{level}"),
        }
    }
}

impl FromStr for Codec {
    type Err = Error;

    /// Parses `none`, `snappy`, `lz4`, `zstd`, `zstd:LEVEL`, `gzip` and `gzip:LEVEL`.
    ///
    /// # Errors
    /// [`SettingError::UnknownCodec`] for all else.
    fn from_str(text: &str) -> Result<Codec> {
        let unknown = || SettingError::UnknownCodec { text: text.into(), known: KNOWN }.into();
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level.parse::<u8>().map_err(|_| unknown())?)),
            None => (text, None),
        };
        match (name, level) {
            ("none", None) => Ok(Codec::None),
            ("snappy", None) => Ok(Codec::Snappy),
            ("lz4", None) => Ok(Codec::Lz4),
            ("zstd", None) => Ok(Codec::default()),
            ("zstd", Some(level @ 1..=22)) => Ok(Codec::Zstd(level)),
            ("gzip", None) => Ok(Codec::Gzip(6)),
            ("gzip", Some(level @ 1..=9)) => Ok(Codec::Gzip(level)),
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_parsed() {
        let levels = (1..=22).map(Codec::Zstd).chain((1..=9).map(Codec::Gzip));
        for codec in levels.chain([Codec::None, Codec::Snappy, Codec::Lz4]) {
            assert_eq!(codec.to_string().parse::<Codec>().unwrap(), codec);
        }
        for text in ["", "zip", "zstd:0", "zstd:23", "zstd:", "gzip:10", "none:1", "lz4:1", "zstd:300", "ZSTD"] {
            let error = text.parse::<Codec>().unwrap_err().to_string();
            assert!(error.contains(&format!("'{text}'")) && error.contains(KNOWN), "{error}");
        }
    }
}
