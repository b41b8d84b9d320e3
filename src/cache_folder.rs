//! The folder where things are kept for this user from one process to the next: compiled kernels, measured limits.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// `$OVERSHOT_CACHE`, else `overshot` in the user's cache folder. `None` when `$OVERSHOT_CACHE` is empty, which means that
/// nothing is to be kept, or there is no home. It need not exist yet.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    folder(|name| env::var_os(name))
}

fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(folder) = variable("OVERSHOT_CACHE") {
        return (!folder.is_empty()).then(|| folder.into());
    }
    // A relative path there is invalid by the XDG specification, and to be ignored.
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    base.map(|base| base.join("overshot"))
}

/// Writes a file and, if need be, its folder. Another process sees all of it or nothing.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut draft = tempfile::NamedTempFile::new_in(folder)?;
    draft.write_all(content)?;
    draft.persist(path)?;
    Ok(())
}

/// The FNV-1a hash: enough to name files and to notice damage, and the same in every version of Rust.
pub(crate) fn fnv1a(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_follows_the_environment() {
        let with = |pairs: &'static [(&str, &str)]| {
            folder(move |name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.into()))
        };
        assert_eq!(with(&[("OVERSHOT_CACHE", "/c"), ("HOME", "/h")]), Some("/c".into()));
        assert_eq!(with(&[("OVERSHOT_CACHE", ""), ("HOME", "/h")]), None);
        assert_eq!(with(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]), Some("/x/overshot".into()));
        assert_eq!(with(&[("XDG_CACHE_HOME", "x"), ("HOME", "/h")]), Some("/h/.cache/overshot".into()));
        assert_eq!(with(&[]), None);
    }
}
