//! File formats by file name, for the command.

use super::file::{Opened, ends_with_slash};
use super::foreign_format::{Foreign, by_name, foreign_format, is_npy};
use super::{Dtype, Input, NewFile, Npy, Output, Raw, ReadMode, Source};
use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Opens a file to be read: `.npy` as [`Npy`], every other name as [`Raw`]. Files of other formats are refused, by
/// their names and their first bytes; [`Raw::open`] takes any file.
///
/// # Errors
/// As [`Npy::open`] and [`Raw::open`]; and when `dtype` is missing for a raw file, or not the one of a `.npy` file.
pub fn open(path: impl AsRef<Path>, dtype: Option<Dtype>) -> Result<Input<'static>> {
    open_with(path, dtype, ReadMode::default())
}

/// Opens a file as [`open`] does, to be read as `reading` says.
///
/// # Errors
/// As [`open`].
pub fn open_with(path: impl AsRef<Path>, dtype: Option<Dtype>, reading: ReadMode) -> Result<Input<'static>> {
    match readable(path.as_ref(), dtype)? {
        None => agreed(Npy::open_with(path, reading)?, dtype),
        Some(dtype) => Ok(Raw::open_with(path, dtype, reading)?.into()),
    }
}

/// Opens a file as [`open`] does, to be used in place through a memory map; to be read by calls where the system cannot
/// map it.
///
/// # Safety
/// As for [`Npy::map`]: nobody may write to the file or truncate it as long as the input exists.
///
/// # Errors
/// As [`open`].
pub unsafe fn map(path: impl AsRef<Path>, dtype: Option<Dtype>) -> Result<Input<'static>> {
    match readable(path.as_ref(), dtype)? {
        // SAFETY: passed on to the caller.
        None => agreed(unsafe { Npy::map(path) }?, dtype),
        // SAFETY: as above.
        Some(dtype) => Ok(unsafe { Raw::map(path, dtype) }?.into()),
    }
}

/// A file to be written: `.npy` as by [`Npy::create`], every other name as by [`Raw::create`]. The result is cast to
/// `dtype`, if given. A file that exists is replaced only if `force`.
///
/// # Errors
/// When the name is that of another format; [`Raw::create`] takes any name.
pub fn create(path: impl AsRef<Path>, dtype: Option<Dtype>, force: bool) -> Result<Output<'static>> {
    let path = path.as_ref();
    if is_npy(path) {
        return Ok(with(Npy::create(path), dtype, force));
    }
    refuse_places(path)?;
    if let Some(foreign) = by_name(path) {
        let problem = format!("is named as {}, which is not written", foreign.what);
        let remedy = format!(
            "write a .npy file, which NumPy and others read, or raw rows (.raw); for raw rows under this name, write {}:f64!",
            path.display()
        );
        return Err(Error::file(path, problem, remedy));
    }
    Ok(with(Raw::create(path), dtype, force))
}

fn with(file: NewFile, dtype: Option<Dtype>, force: bool) -> Output<'static> {
    match dtype {
        Some(dtype) => file.dtype(dtype).force(force).into(),
        None => file.force(force).into(),
    }
}

/// The dtype as which a raw file may be read; `None` for a `.npy` file.
fn readable(path: &Path, dtype: Option<Dtype>) -> Result<Option<Dtype>> {
    refuse_places(path)?;
    let shown = path.display();
    let opened = match Opened::new(path) {
        Err(Error::File { cause: Some(e), .. }) if e.kind() == std::io::ErrorKind::NotFound && is_pattern(path) => {
            let remedy = "name one file; join several with numpy.concatenate";
            return Err(Error::file(path, "there is no such file, and patterns are not expanded", remedy));
        }
        opened => opened?,
    };
    if is_npy(path) {
        return Ok(None);
    }
    if let Some(Foreign { what, remedy }) = foreign_format(path, &opened.head(16)?) {
        let remedy = format!("{remedy}; to take its bytes for rows in spite of that, write {shown}:f64!");
        return Err(Error::file(path, format!("is {what}, not a raw file"), remedy));
    }
    match dtype {
        None => Err(Error::Job(format!("{shown}: not .npy: add the dtype, as in x={shown}:f32"))),
        dtype => Ok(dtype),
    }
}

/// Refuses what is no place of a file.
fn refuse_places(path: &Path) -> Result<()> {
    let refused = |problem: &str, remedy: &str| Err(Error::file(path, problem, remedy));
    let bytes = path.as_os_str().as_bytes();
    if bytes == b"-" {
        return refused("standard input and output cannot be used", "name a file; one that is called so is ./-");
    }
    let scheme = bytes.windows(3).position(|part| part == b"://").map(|end| &bytes[..end]);
    if scheme.is_some_and(|scheme| !scheme.is_empty() && scheme.iter().all(u8::is_ascii_alphanumeric)) {
        return refused("is an address and not a file", "copy the data to a disk first, or mount it");
    }
    if ends_with_slash(path) && !path.is_dir() {
        return refused("ends with '/', as the path of a directory does", "name a file");
    }
    Ok(())
}

/// Whether a path may be meant for several files.
fn is_pattern(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().any(|byte| b"*?[{".contains(byte))
}

/// A `.npy` file of the dtype that it is said to have.
fn agreed(npy: Npy, dtype: Option<Dtype>) -> Result<Input<'static>> {
    match dtype {
        Some(dtype) if dtype != npy.dtype() => {
            let (shown, own) = (npy.name(), npy.dtype());
            Err(Error::Job(format!(
                "{shown}: holds {own}, not {dtype}; leave ':{dtype}' away, and cast in the expression"
            )))
        }
        _ => Ok(npy.into()),
    }
}

/// A file as a text names it: `PATH`, `PATH:DTYPE`, or `PATH:DTYPE!`, which is a raw file whatever its name and its
/// first bytes are.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedFile {
    /// The path.
    pub path: PathBuf,
    /// The dtype, if the text has one.
    pub dtype: Option<Dtype>,
    /// Whether it is raw in any case. It has a dtype then.
    pub is_raw: bool,
}

impl NamedFile {
    /// Takes a text apart. Paths are bytes, not text, and may hold colons: only a word behind the last one is a dtype.
    ///
    /// # Errors
    /// [`Error::Job`] if the word behind the last colon is no dtype.
    pub fn parse(text: &OsStr) -> Result<NamedFile> {
        let bytes = text.as_bytes();
        let whole = || Ok(NamedFile { path: text.into(), dtype: None, is_raw: false });
        let Some(colon) = bytes.iter().rposition(|byte| *byte == b':') else { return whole() };
        let (word, is_raw) = match bytes[colon + 1..].strip_suffix(b"!") {
            Some(word) => (word, true),
            None => (&bytes[colon + 1..], false),
        };
        let is_word = word.first().is_some_and(u8::is_ascii_alphabetic)
            && word.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        let Some(word) = str::from_utf8(word).ok().filter(|_| is_word) else { return whole() };
        match dtype_of(word) {
            Ok(dtype) => {
                let path = OsString::from_vec(bytes[..colon].into()).into();
                Ok(NamedFile { path, dtype: Some(dtype), is_raw })
            }
            Err(error) => {
                let shown = Path::new(text).display();
                Err(Error::Job(format!(
                    "{shown}: {error}, or NumPy's name of it, such as float32; \
                     the path of a raw file that ends so needs its dtype behind it, as in {shown}:f64"
                )))
            }
        }
    }

    /// Opens the file as [`open_with`] does.
    ///
    /// # Errors
    /// As [`open`].
    pub fn open(&self, reading: ReadMode) -> Result<Input<'static>> {
        match self.raw_dtype() {
            Some(dtype) => Ok(Raw::open_with(&self.path, dtype, reading)?.into()),
            None => open_with(&self.path, self.dtype, reading),
        }
    }

    /// Opens the file as [`map()`] does.
    ///
    /// # Safety
    /// As for [`Npy::map`].
    ///
    /// # Errors
    /// As [`open`].
    pub unsafe fn map(&self) -> Result<Input<'static>> {
        match self.raw_dtype() {
            // SAFETY: passed on to the caller.
            Some(dtype) => Ok(unsafe { Raw::map(&self.path, dtype) }?.into()),
            // SAFETY: as above.
            None => unsafe { map(&self.path, self.dtype) },
        }
    }

    /// The file to be written, as by [`create`].
    ///
    /// # Errors
    /// As [`create`].
    pub fn create(&self, force: bool) -> Result<Output<'static>> {
        match self.raw_dtype() {
            Some(dtype) => Ok(Raw::create(&self.path).dtype(dtype).force(force).into()),
            None => create(&self.path, self.dtype, force),
        }
    }

    fn raw_dtype(&self) -> Option<Dtype> {
        self.dtype.filter(|_| self.is_raw)
    }
}

/// The dtype of a name, ours or NumPy's.
fn dtype_of(word: &str) -> Result<Dtype> {
    let own = match word {
        "bool_" => "bool",
        "int8" => "i8",
        "int16" => "i16",
        "int32" => "i32",
        "int64" => "i64",
        "uint8" => "u8",
        "uint16" => "u16",
        "uint32" => "u32",
        "uint64" => "u64",
        "float32" => "f32",
        "float64" => "f64",
        own => own,
    };
    own.parse()
}
