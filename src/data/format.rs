//! Selects the file format by the file name, for the command.

#[cfg(feature = "zarr")]
use super::Zarr;
use super::dataset::Dataset;
use super::dtype::dtype_names;
use super::file::{Opened, ends_with_slash};
use super::files::Files;
use super::foreign_format::{Foreign, by_name, foreign_format, is_npy};
use super::npz::{self, is_npz};
use super::partition::Partition;
use super::partition_folders::{FolderKey, FolderKeys};
use super::pattern::{finds, is_pattern, is_store, several, with_files_to_come};
use super::side_by_side::SideBySide;
use super::table_file::{TableFormat, only};
use super::url::{is_url, no_output};
use super::{
    ColumnOptions, Dtype, Input, NewFile, Npy, NpyFields, Raw, ReadMode, TableFile, length_and_head, numpy_shape,
};
use crate::error::{Error, JobError, Result, SettingError};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Opens a file for reading: `.npy` as [`Npy`], a Parquet or Arrow file with one column of numbers as `Parquet` or
/// `Arrow`, every other name as [`Raw`]. Or several files, which are one input: those of a folder, or those whose names
/// match a pattern of `*`, `?` and `[a-z]`, such as `part-*.npy`.
///
/// Several files are read in natural order of their names: `part-2` comes before `part-10`. Hidden files are left out,
/// as the shell does. The files have the same dtype, and shapes that differ in the lengths of the first dimension only,
/// along which they are joined; raw files have one dimension. What is in folders with a key, such as `year=2024`, is
/// among the files of a folder; [`open_column`] reads the key.
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
    NamedFile::of(path.as_ref(), dtype).open(reading)
}

/// Opens a file as [`open`] does, to be used in place through a memory map. If the system cannot map it, it is read
/// with system calls. Of several files, the rows of one at a time are used in place.
///
/// # Safety
/// The contract of [`Npy::map`]: nobody may write to the file or truncate it while the input exists.
///
/// # Errors
/// Returns the same errors as [`open`].
pub unsafe fn map(path: impl AsRef<Path>, dtype: Option<Dtype>) -> Result<Input<'static>> {
    // SAFETY: the caller upholds the same contract.
    unsafe { NamedFile::of(path.as_ref(), dtype).map() }
}

/// Opens a column of a table, a field of records or an array of a store, by its name. Or that of several files, which
/// are one input, as [`open`] reads them.
///
/// A key of the folders in which several files are, such as `year` of `sales/year=2024/part-0.parquet`, is a column,
/// too: of `i64` if all of its values are integers, or else of `f64`. It goes before a column of the same name.
///
/// ```no_run
/// use overshot::io::{self, ColumnOptions};
/// use overshot::{Engine, Job};
/// let column = |name: &str| io::open_column("sales", name, &ColumnOptions::new());
/// let job = Job::eval("mean(price[year == 2024])")?.input("price", column("price")?).input("year", column("year")?);
/// let report = Engine::builder().build()?.run(job)?;
/// # Ok::<(), overshot::Error>(())
/// ```
///
/// # Errors
/// Returns the same errors as [`open`], and those of the column. Also returns an error if a key is asked for, and its
/// values are texts, or not all files have the same keys.
pub fn open_column(path: impl AsRef<Path>, name: &str, options: &ColumnOptions) -> Result<Input<'static>> {
    let ColumnOptions { nulls, timestamps } = options.clone();
    let file = NamedFile { field: Some(name.into()), nulls, timestamps, ..NamedFile::of(path.as_ref(), None) };
    file.open(ReadMode::default())
}

/// Opens columns as [`open_column`] does, side by side: as a table of shape `(n, d)`, whose first column is that of the
/// first name. The only name `*` stands for all columns of a Parquet or Arrow file, which must all be readable then.
/// The dtype is that of the columns if all have one, and `f64` otherwise.
///
/// ```no_run
/// use overshot::io::{self, ColumnOptions};
/// use overshot::{Engine, Job};
/// let x = io::open_columns("trades.parquet", &["price", "size"], &ColumnOptions::new())?;
/// let report = Engine::builder().build()?.run(Job::eval("x.T @ x")?.input("x", x))?;
/// # Ok::<(), overshot::Error>(())
/// ```
///
/// # Errors
/// Returns the same errors as [`open_column`]. Also returns an error if a column has several dimensions, or more or
/// fewer rows than another one.
pub fn open_columns(path: impl AsRef<Path>, names: &[&str], options: &ColumnOptions) -> Result<Input<'static>> {
    let ColumnOptions { nulls, timestamps } = options.clone();
    let columns = Some(names.iter().map(ToString::to_string).collect());
    let file = NamedFile { columns, nulls, timestamps, ..NamedFile::of(path.as_ref(), None) };
    file.open(ReadMode::default())
}

/// Returns a file to be written: `.npy` as by [`Npy::create`]; `.arrow`, `.feather` and `.ipc` as by `Arrow::create`;
/// `.parquet` and `.pq` as by `Parquet::create`; `.zarr` as by `Zarr::create`; every other name as by [`Raw::create`].
///
/// The result is cast to `dtype`, if given.
///
/// # Errors
/// Returns an error if the name belongs to another format. [`Raw::create`] accepts any name.
pub fn create(path: impl AsRef<Path>, dtype: Option<Dtype>) -> Result<NewFile> {
    let path = path.as_ref();
    if is_url(path) {
        return Err(no_output(path));
    }
    if is_npy(path) {
        return Ok(with(Npy::create(path), dtype));
    }
    refuse_places(path)?;
    #[cfg(feature = "zarr")]
    if Zarr::is_named(path) {
        return Ok(with(Zarr::create(path), dtype));
    }
    if let Some(file) = TableFormat::of(path, &[]).map(|format| format.create(path)) {
        return Ok(with(file, dtype));
    }
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
    if is_url(path) {
        return Ok(());
    }
    if ends_with_slash(path) && !path.is_dir() {
        return refused("ends with '/', as the path of a directory does", "name a file");
    }
    Ok(())
}

/// A file named by a text: `PATH`, `PATH:DTYPE`, or `PATH:DTYPE!`, which is a raw file regardless of its name and
/// its first bytes. `PATH:DTYPE:2x3` is a raw file of this shape. `PATH.npz:NAME` is an array of an archive.
/// `PATH.parquet:NAME` is a column of a table, `PATH.parquet:NAME,NAME` are several side by side, and `PATH.parquet:*`
/// all of them; so it is with Arrow files.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The dtype, if the text contains one.
    pub dtype: Option<Dtype>,
    /// Whether the file is raw regardless of its name. It then has a dtype.
    pub is_raw: bool,
    /// The lengths of the dimensions of a raw file that is read.
    pub shape: Option<Vec<u64>>,
    /// The array that is read of an archive.
    pub member: Option<String>,
    /// The field of its records, or the column, that is read.
    pub field: Option<String>,
    /// The fields, or columns, that are read side by side, as a table of two dimensions. The only name `*` stands for
    /// all columns. Then `field` is none.
    pub columns: Option<Vec<String>>,
    /// The value that is read in the place of nulls, which are an error without one.
    pub nulls: Option<String>,
    /// Whether timestamps are read as integers. They are an error otherwise.
    pub timestamps: bool,
}

impl From<&Path> for NamedFile {
    /// A file of which nothing but its path is known.
    fn from(path: &Path) -> NamedFile {
        NamedFile::of(path, None)
    }
}

impl NamedFile {
    fn of(path: &Path, dtype: Option<Dtype>) -> NamedFile {
        NamedFile {
            path: path.into(),
            dtype,
            is_raw: false,
            shape: None,
            member: None,
            field: None,
            columns: None,
            nulls: None,
            timestamps: false,
        }
    }

    /// Parses a text. Paths are bytes, not text, and may contain colons: only a word after the last colon is a
    /// dtype.
    ///
    /// # Errors
    /// Returns [`Error::InvalidSetting`] if the word after the last colon is not a dtype.
    pub fn parse(text: &OsStr) -> Result<NamedFile> {
        let bytes = text.as_bytes();
        if let Some((rest, shape)) = with_shape(bytes)
            && let Ok(file @ NamedFile { dtype: Some(_), shape: None, .. }) = NamedFile::parse(rest)
        {
            return Ok(NamedFile { shape: Some(shape), ..file });
        }
        let whole = || Ok(NamedFile::of(Path::new(text), None));
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
            return Ok(NamedFile { member: Some(member.into()), ..NamedFile::of(path, None) });
        }
        let is_dtype = is_word && str::from_utf8(word).is_ok_and(|word| dtype_of(word).is_ok());
        let names = str::from_utf8(word).ok().filter(|names| !is_dtype && !is_raw && !names.is_empty());
        if let Some(names) = names.filter(|_| TableFormat::of(path, &[]).is_some()) {
            let file = NamedFile::of(path, None);
            if names != "*" && !names.contains(',') {
                return Ok(file.with_field(names));
            }
            // As in Python, a comma behind one name makes it a list of one.
            let columns = names.strip_suffix(',').unwrap_or(names).split(',').map(str::to_owned);
            return Ok(NamedFile { columns: Some(columns.collect()), ..file });
        }
        let Some(word) = str::from_utf8(word).ok().filter(|_| is_word) else { return whole() };
        match dtype_of(word) {
            Ok(dtype) => Ok(NamedFile { is_raw, ..NamedFile::of(path, Some(dtype)) }),
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
        self.input(reading, &|file| file)
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
        self.input(ReadMode::default(), &|file| unsafe { file.mapped() })
    }

    /// Returns a field of the records of this file, or a column of it.
    pub fn with_field(&self, name: &str) -> NamedFile {
        NamedFile { field: Some(name.into()), columns: None, ..self.clone() }
    }

    /// Opens columns side by side. Each file is opened once for all of its columns.
    fn table(&self, names: &[String], reading: ReadMode, placed: &dyn Fn(Dataset) -> Dataset) -> Result<SideBySide> {
        let all;
        let names = if names == ["*"] {
            let first = self.files().into_iter().next().unwrap_or_default();
            let table = TableFile::open(&first)?.ok_or_else(|| {
                Error::file(&first, "is no table, so that it has no columns", "name Parquet or Arrow files")
            })?;
            all = table.columns.into_iter().map(|column| column.name).collect::<Vec<_>>();
            &all
        } else {
            names
        };
        let paths = several(&self.path)?.unwrap_or_else(|| vec![self.path.clone()]);
        let keys = FolderKeys::of(&self.path, &paths);
        let stored: Vec<&str> = names.iter().map(String::as_str).filter(|name| !keys.has(name)).collect();
        if !stored.is_empty() {
            self.check(&keys)?;
        }
        // The parts of each column.
        let mut parts: Vec<Vec<Dataset>> = stored.iter().map(|_| Vec::new()).collect();
        for path in &paths {
            let columns = self.columns_of(path, &stored, reading)?;
            parts.iter_mut().zip(columns).for_each(|(parts, column)| parts.push(placed(column)));
        }
        let mut parts = parts.into_iter();
        let mut open = |name: &String| {
            let input = match keys.has(name) {
                true => self.partition(&keys, name, &paths, reading)?.into(),
                false => self.joined(parts.next().unwrap_or_default())?,
            };
            Ok((name.clone(), input))
        };
        SideBySide::new(&self.path, names.iter().map(&mut open).collect::<Result<_>>()?)
    }

    /// Opens columns, or fields of records, of the file, or of one of several, at this path.
    fn columns_of(&self, path: &Path, names: &[&str], reading: ReadMode) -> Result<Vec<Dataset>> {
        if self.may_be_table(path) {
            let opened = Opened::new(path)?;
            if let Some(format) = TableFormat::of(path, &opened.head(16)?) {
                let names: Vec<_> = names.iter().copied().map(Some).collect();
                let columns = format.columns(opened, &names, reading, &self.column_options())?;
                return columns.into_iter().map(|column| self.agreed(column)).collect();
            }
        }
        names.iter().map(|name| self.with_field(name).dataset(path, reading)).collect()
    }

    /// Opens the file, or several files as one input. `placed` prepares each.
    fn input(&self, reading: ReadMode, placed: &dyn Fn(Dataset) -> Dataset) -> Result<Input<'static>> {
        let name = &*self.path;
        refuse_places(name)?;
        if name.is_dir()
            && !is_store(name)
            && let Some(foreign) = by_name(name)
        {
            return Err(not_raw(name, foreign));
        }
        if let Some(columns) = &self.columns {
            return Ok(self.table(columns, reading, placed)?.into());
        }
        let open = |path: &Path| self.dataset(path, reading).map(placed);
        let Some(paths) = several(name)? else { return Ok(open(name)?.input()) };
        let keys = FolderKeys::of(name, &paths);
        if let Some(key) = self.field.as_deref().filter(|field| keys.has(field)) {
            return Ok(self.partition(&keys, key, &paths, reading)?.into());
        }
        self.check(&keys)?;
        self.joined(paths.iter().map(|path| open(path)).collect::<Result<_>>()?)
    }

    /// Checks that files of a folder have the same keys. A pattern may name files of any folders.
    fn check(&self, keys: &FolderKeys) -> Result<()> {
        if is_pattern(&self.path) { Ok(()) } else { keys.names().map(drop) }
    }

    /// Returns a key of the folders of these files as a column.
    fn partition(&self, keys: &FolderKeys, key: &str, paths: &[PathBuf], reading: ReadMode) -> Result<Partition> {
        let rows = paths.iter().map(|path| self.rows_of(path, reading)).collect::<Result<Vec<_>>>()?;
        Partition::new(keys, key, &rows, &self.column_options())
    }

    /// Returns the datasets of one file, or of several, as one input.
    fn joined(&self, mut parts: Vec<Dataset>) -> Result<Input<'static>> {
        match parts.pop() {
            Some(only) if parts.is_empty() => Ok(only.input()),
            last => Ok(Files::new(&self.path, parts.into_iter().chain(last).collect())?.into()),
        }
    }

    /// Returns whether a file may be one of named columns: its first bytes tell.
    fn may_be_table(&self, path: &Path) -> bool {
        !self.is_raw && !is_npy(path) && !is_store(path)
    }

    /// Returns the rows of the file, or of one of several, at this path.
    fn rows_of(&self, path: &Path, reading: ReadMode) -> Result<u64> {
        if self.may_be_table(path)
            && let Some(table) = TableFile::open(path)?
        {
            return Ok(table.rows());
        }
        // All fields of records have the same rows.
        let head = if is_npy(path) { length_and_head(path, NpyFields::MAX_LEN)?.1 } else { Vec::new() };
        let record = NpyFields::parse(&head).and_then(|fields| fields.record);
        let fields = record.into_iter().flat_map(|record| record.fields);
        let field = fields.filter(|field| field.dtype.is_ok()).map(|field| field.name).next();
        Ok(NamedFile { field, ..self.clone() }.dataset(path, reading)?.source().rows())
    }

    /// Returns the keys of the folders in which the files are. Those of a pattern may be in any folders, and have none
    /// if their keys differ.
    ///
    /// # Errors
    /// Returns an error if not all files of a folder have the same keys.
    pub fn keys(&self) -> Result<Vec<FolderKey>> {
        match FolderKeys::of(&self.path, &self.files()).all() {
            Err(_) if is_pattern(&self.path) => Ok(Vec::new()),
            keys => keys,
        }
    }

    /// Opens the file, or one of several, at this path.
    fn dataset(&self, path: &Path, reading: ReadMode) -> Result<Dataset> {
        let (field, member) = (self.field.as_deref(), self.member.as_deref());
        let raw = |opened, dtype| match field {
            Some(field) => Err(no_field(path, field)),
            None => {
                let raw = Raw::of(opened, dtype, reading)?;
                Ok(Dataset::Raw(self.shape.iter().try_fold(raw, |raw, shape| raw.with_shape(shape))?))
            }
        };
        if let Some(dtype) = self.raw_dtype() {
            return raw(Opened::new(path)?, dtype);
        }
        #[cfg(feature = "zarr")]
        if Zarr::is_found(path)? {
            if let Some(member) = member {
                let problem = format!("is a Zarr store and no archive, so that it has no member '{member}'");
                return Err(Error::file(path, problem, "name an array by its path, or as a field"));
            }
            return self.agreed(Dataset::Zarr(Zarr::of(path, field, reading)?.into()));
        }
        let opened = Opened::new(path)?;
        if member.is_some() || is_npz(path) {
            let array = match member {
                Some(member) => npz::array(opened, member)?,
                None => return Err(npz::no_name(&opened)),
            };
            return self.agreed(Dataset::Npy(Npy::of(array, field, reading)?));
        }
        if is_npy(path) {
            return self.agreed(Dataset::Npy(Npy::of(opened, field, reading)?));
        }
        let head = opened.head(16)?;
        if let Some(format) = TableFormat::of(path, &head) {
            let columns = format.columns(opened, &[field], reading, &self.column_options())?;
            return self.agreed(only(path, columns)?);
        }
        match (foreign_format(path, &head), self.dtype) {
            (Some(foreign), _) => Err(not_raw(path, foreign)),
            (None, Some(dtype)) => raw(opened, dtype),
            (None, None) => Err(JobError::MissingDtype { path: path.into() }.into()),
        }
    }

    /// Returns a file that knows its dtype and its shape, if these are the ones that were given.
    fn agreed(&self, file: Dataset) -> Result<Dataset> {
        let source = file.source();
        let own_shape = source.shape().map_or_else(|| vec![source.rows()], <[u64]>::to_vec);
        match (self.dtype, &self.shape) {
            (Some(dtype), _) if dtype != source.dtype() => {
                let (path, own) = (source.name().into(), source.dtype().to_string());
                Err(JobError::FileDtype { path, own, dtype: dtype.to_string() }.into())
            }
            (_, Some(shape)) if *shape != own_shape => {
                let problem = format!("has the shape {}, not {}", numpy_shape(&own_shape), numpy_shape(shape));
                Err(Error::file(source.name(), problem, "leave the shape out"))
            }
            _ => Ok(file),
        }
    }

    /// Returns the files that [`open`](NamedFile::open) reads; the path itself if there are none.
    pub fn files(&self) -> Vec<PathBuf> {
        several(&self.path).ok().flatten().unwrap_or_else(|| vec![self.path.clone()])
    }

    /// Returns the files that [`open`](NamedFile::open) would read if those of `to_come` existed, too.
    pub fn files_with(&self, to_come: &[PathBuf]) -> Vec<PathBuf> {
        with_files_to_come(&self.path, to_come)
    }

    /// Returns whether [`open`](NamedFile::open) would read a file, if it existed.
    pub fn finds(&self, file: &Path) -> bool {
        finds(&self.path, file).is_some()
    }

    /// Returns the file as one to be written, as [`create`] does.
    ///
    /// # Errors
    /// Returns the same errors as [`create`], and one if it has a shape or columns: those of an output are others.
    pub fn create(&self) -> Result<NewFile> {
        if self.columns.is_some() || self.field.is_some() {
            let problem = "is written with columns that have the names of the outputs";
            return Err(Error::file(&self.path, problem, "leave the names of columns out"));
        }
        if let Some(shape) = &self.shape {
            let problem = format!("is written with the shape of its rows, and not as {}", numpy_shape(shape));
            return Err(Error::file(&self.path, problem, "leave the shape out"));
        }
        match self.raw_dtype() {
            Some(dtype) => Ok(Raw::create(&self.path).dtype(dtype)),
            None => create(&self.path, self.dtype),
        }
    }

    fn column_options(&self) -> ColumnOptions {
        ColumnOptions { nulls: self.nulls.clone(), timestamps: self.timestamps }
    }

    fn raw_dtype(&self) -> Option<Dtype> {
        self.dtype.filter(|_| self.is_raw)
    }
}

/// Divides a text that ends with a shape, as `:2x3` or `:6`, and the rest.
fn with_shape(text: &[u8]) -> Option<(&OsStr, Vec<u64>)> {
    let colon = text.iter().rposition(|byte| *byte == b':')?;
    let lengths = str::from_utf8(&text[colon + 1..]).ok()?.split('x');
    let is_number = |length: &str| length.bytes().all(|byte| byte.is_ascii_digit());
    let shape = lengths.map(|length| length.parse().ok().filter(|_| is_number(length))).collect::<Option<_>>()?;
    Some((OsStr::from_bytes(&text[..colon]), shape))
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
