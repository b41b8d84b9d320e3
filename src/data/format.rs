//! Selects the file format by the file name, for the command.

use super::dtype::dtype_names;
use super::file::{Opened, ends_with_slash};
use super::files::{Files, Part};
use super::foreign_format::{Foreign, by_name, foreign_format, is_npy};
use super::npz::{self, is_npz};
use super::pattern::several;
use super::{Dtype, Input, NewFile, Npy, Raw, ReadMode, Source};
use crate::error::{Error, JobError, Result, SettingError};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Opens a file for reading: `.npy` as [`Npy`], every other name as [`Raw`]. Or several files, which are one input:
/// those of a folder, or those whose names match a pattern of `*`, `?` and `[a-z]`, such as `part-*.npy`.
///
/// Several files are read in natural order of their names: `part-2` comes before `part-10`. Hidden files are left out,
/// as the shell does. The files have the same dtype, and shapes that differ in the lengths of the first dimension only,
/// along which they are joined; raw files have one dimension.
///
/// ```
/// use overshot::{Dtype, Engine, Job, io};
/// # let folder = tempfile::tempdir().unwrap();
/// # let pattern = folder.path().join("part-*.u8");
/// for (part, rows) in [(2, [3, 4]), (10, [5, 6]), (1, [1, 2])] {
///     std::fs::write(folder.path().join(format!("part-{part}.u8")), rows).unwrap();
/// }
/// let x = io::open(&pattern, Some(Dtype::U8))?;
/// let report = Engine::builder().build()?.run(Job::eval("sum(x * i)")?.input("x", x))?;
/// assert_eq!(report.value("sum(x * i)")?.map(|sum| sum.as_f64()), Some(70.0));
/// # Ok::<(), overshot::Error>(())
/// ```
///
/// Files of other formats are refused, by their names and their first bytes. [`Raw::open`] accepts any file.
///
/// # Errors
/// Returns the same errors as [`Npy::open`] and [`Raw::open`]. Also returns an error if `dtype` is missing for a
/// raw file, or differs from the dtype of a `.npy` file; if no file has a name of the pattern; and if the dtypes or the
/// shapes of several files do not fit together.
pub fn open(path: impl AsRef<Path>, dtype: Option<Dtype>) -> Result<Input<'static>> {
    open_with(path, dtype, ReadMode::default())
}

/// Opens a file as [`open`] does, to be read as `reading` specifies.
///
/// # Errors
/// Returns the same errors as [`open`].
pub fn open_with(path: impl AsRef<Path>, dtype: Option<Dtype>, reading: ReadMode) -> Result<Input<'static>> {
    named(path.as_ref(), |path| one(path, (None, None), dtype, reading), Dataset::input)
}

/// Opens a file as [`open`] does, to be used in place through a memory map. If the system cannot map it, it is read
/// with system calls, and so are several files, whose rows are not adjacent in memory.
///
/// # Safety
/// The contract of [`Npy::map`]: nobody may write to the file or truncate it while the input exists.
///
/// # Errors
/// Returns the same errors as [`open`].
pub unsafe fn map(path: impl AsRef<Path>, dtype: Option<Dtype>) -> Result<Input<'static>> {
    // SAFETY: the caller upholds the same contract.
    named(path.as_ref(), |path| one(path, (None, None), dtype, ReadMode::default()), |file| unsafe { file.map() })
}

/// A file of a format that can be read.
enum Dataset {
    Npy(Npy),
    Raw(Raw),
}

impl Dataset {
    fn input(self) -> Input<'static> {
        match self {
            Dataset::Npy(npy) => npy.into(),
            Dataset::Raw(raw) => raw.into(),
        }
    }

    /// Returns the file, to be used in place.
    ///
    /// # Safety
    /// The contract of [`Npy::map`].
    unsafe fn map(self) -> Input<'static> {
        match self {
            // SAFETY: the caller upholds the same contract.
            Dataset::Npy(npy) => unsafe { npy.mapped() }.into(),
            // SAFETY: as above.
            Dataset::Raw(raw) => unsafe { raw.mapped() }.into(),
        }
    }

    fn part(self) -> Part {
        match self {
            Dataset::Npy(npy) => npy.into_part(),
            Dataset::Raw(raw) => raw.into_part(),
        }
    }
}

/// Returns the file of a name as an input by `alone`, or several files as one input. `open` opens each.
fn named(
    name: &Path,
    open: impl Fn(&Path) -> Result<Dataset>,
    alone: impl FnOnce(Dataset) -> Input<'static>,
) -> Result<Input<'static>> {
    refuse_places(name)?;
    if name.is_dir()
        && let Some(foreign) = by_name(name)
    {
        return Err(not_raw(name, foreign));
    }
    match several(name)?.as_deref() {
        None => Ok(alone(open(name)?)),
        Some([only]) => Ok(alone(open(only)?)),
        Some(paths) => {
            let parts = paths.iter().map(|path| open(path).map(Dataset::part)).collect::<Result<Vec<_>>>()?;
            Ok(Files::new(name, parts)?.into())
        }
    }
}

/// Opens one file by its name; or an array of an archive, a field of records, or both.
fn one(
    path: &Path,
    (member, field): (Option<&str>, Option<&str>),
    dtype: Option<Dtype>,
    reading: ReadMode,
) -> Result<Dataset> {
    if member.is_some() || is_npz(path) {
        let archive = Opened::new(path)?;
        let array = match member {
            Some(member) => npz::array(archive, member)?,
            None => return Err(npz::no_name(&archive)),
        };
        return agreed(Npy::of(array, field, reading)?, dtype).map(Dataset::Npy);
    }
    match (readable(path, dtype)?, field) {
        (None, field) => agreed(Npy::of(Opened::new(path)?, field, reading)?, dtype).map(Dataset::Npy),
        (Some(dtype), None) => Raw::open_with(path, dtype, reading).map(Dataset::Raw),
        (Some(_), Some(field)) => Err(no_field(path, field)),
    }
}

/// Returns a file to be written: `.npy` as by [`Npy::create`], every other name as by [`Raw::create`].
///
/// The result is cast to `dtype`, if given.
///
/// # Errors
/// Returns an error if the name belongs to another format. [`Raw::create`] accepts any name.
pub fn create(path: impl AsRef<Path>, dtype: Option<Dtype>) -> Result<NewFile> {
    let path = path.as_ref();
    if is_npy(path) {
        return Ok(with(Npy::create(path), dtype));
    }
    refuse_places(path)?;
    if let Some(foreign) = by_name(path) {
        let problem = format!("has the name of {}, which cannot be written", foreign.what);
        let remedy = format!(
            "write a .npy file, which NumPy reads, or raw rows (.raw); for raw rows under this name, create it as a \
             raw file, or write {}:f64!",
            path.display()
        );
        return Err(Error::file(path, problem, remedy));
    }
    Ok(with(Raw::create(path), dtype))
}

fn with(file: NewFile, dtype: Option<Dtype>) -> NewFile {
    match dtype {
        Some(dtype) => file.dtype(dtype),
        None => file,
    }
}

/// Returns the dtype with which a raw file is read; `None` for a `.npy` file.
fn readable(path: &Path, dtype: Option<Dtype>) -> Result<Option<Dtype>> {
    let opened = Opened::new(path)?;
    if is_npy(path) {
        return Ok(None);
    }
    if let Some(foreign) = foreign_format(path, &opened.head(16)?) {
        return Err(not_raw(path, foreign));
    }
    match dtype {
        None => Err(JobError::MissingDtype { path: path.into() }.into()),
        dtype => Ok(dtype),
    }
}

fn no_field(path: &Path, field: &str) -> Error {
    let problem = format!("is a raw file, so that it has no field '{field}'");
    Error::file(path, problem, "leave the field out, or save the records with numpy.save")
}

fn not_raw(path: &Path, Foreign { what, remedy }: Foreign) -> Error {
    let shown = path.display();
    let remedy = format!("{remedy}; to read its bytes as rows anyway, open it as a raw file, or write {shown}:f64!");
    Error::file(path, format!("is {what}, not a raw file"), remedy)
}

/// Returns an error if the path cannot be that of a file.
fn refuse_places(path: &Path) -> Result<()> {
    let refused = |problem: &str, remedy: &str| Err(Error::file(path, problem, remedy));
    let bytes = path.as_os_str().as_bytes();
    if bytes == b"-" {
        return refused("standard input and output cannot be used", "name a file; for a file called '-', write ./-");
    }
    let scheme = bytes.windows(3).position(|part| part == b"://").map(|end| &bytes[..end]);
    if scheme.is_some_and(|scheme| !scheme.is_empty() && scheme.iter().all(u8::is_ascii_alphanumeric)) {
        return refused("is a URL, not a file", "copy the data to a disk first, or mount it");
    }
    if ends_with_slash(path) && !path.is_dir() {
        return refused("ends with '/', as the path of a directory does", "name a file");
    }
    Ok(())
}

/// Returns a `.npy` file, if it has the dtype that was given.
fn agreed(npy: Npy, dtype: Option<Dtype>) -> Result<Npy> {
    match dtype {
        Some(dtype) if dtype != npy.dtype() => {
            let (path, own) = (npy.name().into(), npy.dtype().to_string());
            Err(JobError::FileDtype { path, own, dtype: dtype.to_string() }.into())
        }
        _ => Ok(npy),
    }
}

/// A file named by a text: `PATH`, `PATH:DTYPE`, or `PATH:DTYPE!`, which is a raw file regardless of its name and
/// its first bytes. `PATH.npz:NAME` is an array of an archive.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The dtype, if the text contains one.
    pub dtype: Option<Dtype>,
    /// Whether the file is raw regardless of its name. It then has a dtype.
    pub is_raw: bool,
    /// The array that is read of an archive.
    pub member: Option<String>,
    /// The field of its records that is read.
    pub field: Option<String>,
}

impl NamedFile {
    /// Parses a text. Paths are bytes, not text, and may contain colons: only a word after the last colon is a
    /// dtype.
    ///
    /// # Errors
    /// Returns [`Error::InvalidSetting`] if the word after the last colon is not a dtype.
    pub fn parse(text: &OsStr) -> Result<NamedFile> {
        let bytes = text.as_bytes();
        let whole = || Ok(NamedFile { path: text.into(), dtype: None, is_raw: false, member: None, field: None });
        let Some(colon) = bytes.iter().rposition(|byte| *byte == b':') else { return whole() };
        let (word, is_raw) = match bytes[colon + 1..].strip_suffix(b"!") {
            Some(word) => (word, true),
            None => (&bytes[colon + 1..], false),
        };
        let is_word = word.first().is_some_and(u8::is_ascii_alphabetic)
            && word.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        let path = Path::new(OsStr::from_bytes(&bytes[..colon]));
        let member = str::from_utf8(word).ok().filter(|member| is_npz(path) && !is_raw && !member.is_empty());
        if let Some(member) = member {
            return Ok(NamedFile { path: path.into(), member: Some(member.into()), dtype: None, is_raw, field: None });
        }
        let Some(word) = str::from_utf8(word).ok().filter(|_| is_word) else { return whole() };
        match dtype_of(word) {
            Ok(dtype) => {
                let path = OsString::from_vec(bytes[..colon].into()).into();
                Ok(NamedFile { path, dtype: Some(dtype), is_raw, member: None, field: None })
            }
            Err(_) => {
                Err(SettingError::UnknownFileDtype { path: text.into(), name: word.into(), known: dtype_names() }
                    .into())
            }
        }
    }

    /// Opens the file as [`open_with`] does.
    ///
    /// # Errors
    /// Returns the same errors as [`open`].
    pub fn open(&self, reading: ReadMode) -> Result<Input<'static>> {
        named(&self.path, |path| self.dataset(path, reading), Dataset::input)
    }

    /// Opens the file as [`map()`] does.
    ///
    /// # Safety
    /// The contract of [`Npy::map`].
    ///
    /// # Errors
    /// Returns the same errors as [`open`].
    pub unsafe fn map(&self) -> Result<Input<'static>> {
        // SAFETY: the caller upholds the same contract.
        named(&self.path, |path| self.dataset(path, ReadMode::default()), |file| unsafe { file.map() })
    }

    /// Returns a field of the records of this file.
    pub fn with_field(&self, name: &str) -> NamedFile {
        NamedFile { field: Some(name.into()), ..self.clone() }
    }

    fn dataset(&self, path: &Path, reading: ReadMode) -> Result<Dataset> {
        match (self.raw_dtype(), &self.field) {
            (Some(_), Some(field)) => Err(no_field(path, field)),
            (Some(dtype), None) => Raw::open_with(path, dtype, reading).map(Dataset::Raw),
            (None, field) => one(path, (self.member.as_deref(), field.as_deref()), self.dtype, reading),
        }
    }

    /// Returns the files that [`open`](NamedFile::open) reads; the path itself if there are none.
    pub fn files(&self) -> Vec<PathBuf> {
        several(&self.path).ok().flatten().unwrap_or_else(|| vec![self.path.clone()])
    }

    /// Returns the file as one to be written, as [`create`] does.
    ///
    /// # Errors
    /// Returns the same errors as [`create`].
    pub fn create(&self) -> Result<NewFile> {
        match self.raw_dtype() {
            Some(dtype) => Ok(Raw::create(&self.path).dtype(dtype)),
            None => create(&self.path, self.dtype),
        }
    }

    fn raw_dtype(&self) -> Option<Dtype> {
        self.dtype.filter(|_| self.is_raw)
    }
}

/// Returns the dtype with this name, in Overshot's or NumPy's spelling.
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
        "float16" => "f16",
        "bfloat16" => "bf16",
        "float32" => "f32",
        "float64" => "f64",
        own => own,
    };
    own.parse()
}
