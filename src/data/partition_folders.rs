//! Folders whose names have a key and a value, as Hive and its successors divide a table: `year=2024`.

use super::pattern::{entries, is_pattern, is_store};
use super::table_file::names;
use super::url::is_url;
use super::{Dtype, Scalar};
use crate::error::{Error, Result};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// The value of a folder with the rows whose value is null.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// A key of the folders in which several files are.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq)]
pub struct FolderKey {
    /// The key.
    pub name: String,
    /// The dtype of its values; `None` if they are texts, which a job cannot read.
    pub dtype: Option<Dtype>,
}

/// Returns the key and the value in the name of a folder.
pub(super) fn key_value(name: &OsStr) -> Option<(String, String)> {
    let (key, value) = name.to_str()?.split_once('=').filter(|(key, _)| !key.is_empty())?;
    Some((decoded(key), decoded(value)))
}

/// Returns a name in which `%41` stands for `A`: writers do that with characters that have another meaning in paths.
fn decoded(name: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(name.len()), name.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits = rest.get(1..3).filter(|digits| *first == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let byte = digits.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &rest[3..] } else { after };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| name.into())
}

/// Returns these paths, but for each folder with a key what is in it.
///
/// # Errors
/// If a folder cannot be read.
pub(super) fn files_within(paths: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let (mut files, mut rest) = (Vec::with_capacity(paths.len()), paths);
    while let Some(path) = rest.pop() {
        let has_key = path.file_name().and_then(key_value).is_some();
        match has_key && path.is_dir() && !is_store(&path) {
            true => rest.extend(entries(&path)?),
            false => files.push(path),
        }
    }
    Ok(files)
}

/// The keys of the folders in which several files are.
pub(super) struct FolderKeys<'a> {
    /// The folder or the pattern that stands for the files.
    pub(super) name: &'a Path,
    pub(super) files: &'a [PathBuf],
    /// Those of each file, with their values.
    keys: Vec<Vec<(String, String)>>,
}

impl<'a> FolderKeys<'a> {
    /// Returns the keys of files, in the part of their paths for which the name stands.
    pub(super) fn of(name: &'a Path, files: &'a [PathBuf]) -> FolderKeys<'a> {
        let is_folder = name.is_dir();
        let is_given = |part: &Component<'_>| is_folder || !is_pattern(part.as_ref());
        let given = name.components().take_while(is_given).count();
        // The names in a URL are encoded once more.
        let is_encoded = is_url(name);
        let pair = |part: Component<'_>| match key_value(part.as_os_str())? {
            (key, value) if is_encoded => Some((decoded(&key), decoded(&value))),
            pair => Some(pair),
        };
        let keys_of = |file: &PathBuf| {
            let folders = file.parent().into_iter().flat_map(Path::components);
            folders.skip(given).filter_map(pair).collect()
        };
        FolderKeys { name, files, keys: files.iter().map(keys_of).collect() }
    }

    /// Returns whether one of the files is in a folder with this key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.iter().flatten().any(|(own, _)| own == key)
    }

    /// Returns the keys.
    ///
    /// # Errors
    /// If not all files have the same ones.
    pub(super) fn names(&self) -> Result<Vec<&str>> {
        let mut all = self.keys.iter().map(|own| own.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>());
        let first = all.next().unwrap_or_default();
        let Some((other, file)) = all.zip(self.files.iter().skip(1)).find(|(other, _)| *other != first) else {
            return Ok(first);
        };
        let shown = |keys: &[&str]| if keys.is_empty() { "none".to_owned() } else { names(keys) };
        let problem = format!(
            "is in folders with other keys ({}) than {} ({}), and they are read as one input",
            shown(&other),
            self.files[0].display(),
            shown(&first)
        );
        Err(Error::file(file, problem, "move one of them, or name files with the same keys by a pattern"))
    }

    /// Returns the dtype of the values of a key that all files have, and the bytes of the value of each file; `None`
    /// for a null.
    ///
    /// # Errors
    /// If a value is no number.
    pub(super) fn values(&self, key: &str) -> Result<(Dtype, Vec<Option<Scalar>>)> {
        let texts = || self.keys.iter().map(|own| text_of(own, key));
        let integers: Option<Vec<_>> = texts().map(|text| parsed(text, |text| text.parse::<i64>().ok())).collect();
        if let Some(integers) = integers {
            return Ok((Dtype::I64, integers.into_iter().map(|value| value.map(Scalar::I64)).collect()));
        }
        let float = |text: &str| text.parse::<f64>().ok().filter(|value| value.is_finite());
        let floats: Option<Vec<_>> = texts().map(|text| parsed(text, float)).collect();
        if let Some(floats) = floats {
            return Ok((Dtype::F64, floats.into_iter().map(|value| value.map(Scalar::F64)).collect()));
        }
        let text = texts().flatten().find(|text| float(text).is_none()).unwrap_or_default();
        let problem = format!("its key '{key}' has the value '{text}', which is no number");
        let remedy = format!("choose its folders by a pattern, as in '{key}={text}/*', or write a column of numbers");
        Err(Error::file(self.name, problem, remedy))
    }

    /// Returns the keys, each with its dtype.
    ///
    /// # Errors
    /// If not all files have the same ones.
    pub(super) fn all(&self) -> Result<Vec<FolderKey>> {
        let dtype = |name: &str| self.values(name).map(|(dtype, _)| dtype).ok();
        Ok(self.names()?.into_iter().map(|name| FolderKey { name: name.into(), dtype: dtype(name) }).collect())
    }
}

/// Returns the value of a key; `None` for a null.
fn text_of<'a>(own: &'a [(String, String)], key: &str) -> Option<&'a str> {
    own.iter().find(|(own, _)| own == key).map(|(_, value)| value.as_str()).filter(|value| *value != NULL)
}

/// Returns a value as a number, and a null as it is; `None` if the value is none.
fn parsed<T>(text: Option<&str>, number: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    text.map_or(Some(None), |text| number(text).map(Some))
}
