//! Names that are URLs.

use crate::error::{Error, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns the scheme of a name that is a URL: `s3` of `s3://bucket/x.npy`.
pub(super) fn scheme(name: &Path) -> Option<&str> {
    let bytes = name.as_os_str().as_bytes();
    let scheme = &bytes[..bytes.windows(3).position(|part| part == b"://")?];
    let is_one = !scheme.is_empty() && scheme.iter().all(u8::is_ascii_alphanumeric);
    str::from_utf8(scheme).ok().filter(|_| is_one)
}

/// Returns whether a name is a URL, and no path of a file.
#[doc(hidden)]
pub fn is_url(name: &Path) -> bool {
    scheme(name).is_some()
}

/// Returns a number that is another one after an object, or one of a store of several objects, has changed; and the
/// bytes of all objects. `None` if the server does not say what has changed.
///
/// # Errors
/// Returns an error if the server cannot be asked, or has no such object.
#[doc(hidden)]
pub fn url_state(url: &Path) -> Result<Option<(u128, u64)>> {
    #[cfg(feature = "remote")]
    return match super::is_store(url) {
        true => super::remote::state_of_all(url),
        false => {
            let object = super::remote::RemoteObject::open(url)?;
            Ok(object.version().map(|version| (version, object.len())))
        }
    };
    #[cfg(not(feature = "remote"))]
    refused(url)
}

/// Returns the error for an output that is a URL.
pub(super) fn no_output(url: &Path) -> Error {
    Error::file(url, "is a URL, and outputs are files", "write a file, and copy it there")
}

/// Returns the error for what cannot be said of a URL in a build without object stores.
#[cfg(not(feature = "remote"))]
pub(super) fn refused<T>(url: &Path) -> Result<T> {
    let remedy = "build Overshot with the feature remote, or copy the data to a disk first";
    Err(Error::file(url, "is a URL, which this build of Overshot cannot read", remedy))
}

/// Returns an error if the URL is not of a kind that can be read.
#[cfg(feature = "remote")]
pub(super) fn check(url: &Path) -> Result<()> {
    match scheme(url).map(str::to_ascii_lowercase).as_deref() {
        Some("s3" | "s3a" | "gs" | "az" | "azure" | "adl" | "abfs" | "abfss" | "http" | "https") => Ok(()),
        _ => {
            let remedy = "use s3://, gs://, az://, abfss://, http:// or https://, or copy the data to a disk first";
            Err(Error::file(url, "is a URL of another kind than those that can be read", remedy))
        }
    }
}
