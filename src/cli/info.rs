//! `overshot info`: the contents of files.

mod field;
mod header;
mod key;
mod stats;
mod store;
mod table;

use std::fmt::Write;
use std::path::Path;

use overshot::io::{NamedFile, NpyFields, NpyRecord, ReadMode, StoredArray, is_url, length_and_head};
use overshot::{DeviceChoice, Engine, Error, Input, units};
use serde::Serialize;

use self::field::Field;
use self::header::NpyHeader;
use self::key::Key;
use self::stats::Stats;
use self::store::Stored;
use self::table::Table;
use super::args::InfoArgs;
use super::output::{print, print_document};
use super::style::{dim, heading};

use super::{Failure, Result};

#[derive(Serialize)]
struct Infos<'a> {
    files: &'a [Info],
}

/// The properties of a file; `None` for unknown ones.
#[derive(Serialize)]
struct Info {
    path: String,
    /// How many files it names.
    files: usize,
    /// `npy`, `npz`, `parquet`, `arrow`, `zarr 2`, `zarr 3`, `raw`, or a description of an unsupported format; of
    /// several files, that of the first one.
    format: String,
    file_bytes: Option<u64>,
    dtype: Option<&'static str>,
    rows: Option<u64>,
    shape: Option<Vec<u64>>,
    data_bytes: Option<u64>,
    npy: Option<NpyHeader>,
    /// The fields of a file of records.
    fields: Option<Vec<Field>>,
    /// The columns of a table.
    table: Option<Table>,
    /// The keys of the folders in which several files are.
    keys: Vec<Key>,
    /// The arrays of a store.
    arrays: Option<Vec<Stored>>,
    stats: Option<Stats>,
    /// Whether statistics were asked for, and are not computed, because it has columns, fields or several arrays.
    #[serde(skip)]
    lacks_stats: bool,
    /// Why a job cannot read the file, and what to do.
    problem: Option<String>,
}

/// Prints the properties of the files.
pub fn info(args: &InfoArgs) -> Result {
    let files: Vec<Info> = args.files.iter().map(|file| of_file(&args.values.of(file), args)).collect::<Result<_>>()?;
    if args.json {
        print_document(1, &Infos { files: &files })?;
    } else {
        print(files.iter().map(Info::text).collect::<String>())?;
    }
    match files.iter().filter(|file| file.problem.is_some()).count() {
        0 => Ok(()),
        bad => Err(Failure::Wrong(format!("{bad} of {} cannot be read", units::counted(files.len() as u64, "file")))),
    }
}

fn of_file(file: &NamedFile, args: &InfoArgs) -> Result<Info> {
    let info = described(file, args)?;
    Ok(match file.keys() {
        Ok(keys) => Info { keys: keys.into_iter().map(Key::of).collect(), ..info },
        Err(error) => Info { problem: Some(problem_of(error, &file.path)), ..info },
    })
}

/// The properties of the files, without the folders in which they are.
fn described(file: &NamedFile, args: &InfoArgs) -> Result<Info> {
    let paths = file.files();
    let mut info = Info { files: paths.len(), ..Info::unknown(&file.path) };
    if let Some(member) = &file.member {
        info.path = format!("{}:{member}", info.path);
    }
    // The library reports the errors below.
    let first = paths.first().unwrap_or(&file.path);
    let (first_bytes, head) = length_and_head(first, NpyFields::MAX_LEN).ok().unzip();
    let head = head.unwrap_or_default();
    let lengths = paths.iter().skip(1).map(|path| length_and_head(path, 0).ok().map(|(bytes, _)| bytes));
    info.file_bytes = lengths.fold(first_bytes, |sum, bytes| Some(sum?.saturating_add(bytes?)));
    // What cannot be opened is reported below.
    if !file.is_raw
        && file.member.is_none()
        && let Ok(Some(table)) = Table::of(&paths)
    {
        let columns = match (&file.columns, &file.field) {
            (Some(columns), _) => match &columns[..] {
                [only] if only != "*" => format!("{only},"),
                columns => columns.join(","),
            },
            (None, Some(column)) => column.clone(),
            (None, None) => return Ok(Info { lacks_stats: args.stats, ..info.with_table(table) }),
        };
        let (path, format) = (format!("{}:{columns}", info.path), table.format().into());
        return Info { path, format, ..info }.with_rows(file.open(ReadMode::default()), file, None, args);
    }
    let stored = if file.is_raw { Ok(None) } else { StoredArray::all(first) };
    let stored = match stored {
        Ok(stored) => stored,
        Err(error) => return Ok(Info { problem: Some(problem_of(error, &file.path)), ..info }),
    };
    if let Some(arrays) = stored {
        let is_one = matches!(&arrays[..], [only] if only.name.is_empty());
        let others = paths.iter().skip(1).filter_map(|path| StoredArray::all(path).ok().flatten()).flatten();
        let bytes = arrays.iter().cloned().chain(others).fold(0u64, |sum, array| sum.saturating_add(array.bytes));
        // Nobody has listed the files of a store on a web server.
        let file_bytes = Some(bytes).filter(|bytes| *bytes > 0);
        info = Info { file_bytes, ..info.with_arrays(arrays.iter().map(Stored::of).collect()) };
        // Several stores are one input if each has one array.
        if !is_one && paths.len() == 1 {
            return Ok(Info { lacks_stats: args.stats, ..info });
        }
    }
    let is_npy_name = first.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy"));
    let foreign = if file.is_raw { None } else { overshot::io::foreign_format(first, &head) };
    let is_store = info.arrays.is_some();
    info.npy = if file.is_raw { None } else { NpyHeader::parse(&head) };
    info.format = match (&info.npy, foreign) {
        _ if file.member.is_some() => "npz",
        _ if is_store => &info.format,
        (Some(_), _) => "npy",
        (None, Some(foreign)) => foreign.what,
        (None, None) if is_npy_name && !file.is_raw => "npy",
        (None, None) => "raw",
    }
    .to_owned();
    if !is_npy_name && !is_store && foreign.is_none() && file.dtype.is_none() && info.file_bytes.is_some() {
        info.problem = Some(format!("is not .npy: add the dtype, as in {}:f32", info.path));
        return Ok(info);
    }
    let record = NpyFields::parse(&head).and_then(|fields| fields.record).filter(|_| info.npy.is_some());
    // A file of records is read field by field.
    let readable = record.as_ref().and_then(|record| record.fields.iter().find(|field| field.dtype.is_ok()));
    let opened = match readable {
        Some(field) => file.with_field(&field.name).open(ReadMode::default()),
        None => file.open(ReadMode::default()),
    };
    info.lacks_stats = args.stats && record.is_some();
    info.fields = record.as_ref().map(|record| record.fields.iter().map(Field::of).collect());
    info.with_rows(opened, file, record.as_ref(), args)
}

/// Returns what is wrong, without the path of the file that is shown before.
fn problem_of(error: Error, own: &Path) -> String {
    match error {
        // The answer of a server says what is wrong.
        Error::File { path, problem, remedy, cause: Some(cause) } if path == own && is_url(own) => {
            format!("{problem} ({cause}); {remedy}")
        }
        Error::File { path, problem, remedy, .. } if path == own => format!("{problem}; {remedy}"),
        error => error.to_string(),
    }
}

fn engine(device: &DeviceChoice) -> Result<Engine> {
    Ok(Engine::builder().device(device.clone()).build()?)
}

impl Info {
    fn unknown(path: &Path) -> Info {
        Info {
            path: path.to_string_lossy().into_owned(),
            files: 1,
            format: String::new(),
            file_bytes: None,
            dtype: None,
            rows: None,
            shape: None,
            data_bytes: None,
            npy: None,
            fields: None,
            table: None,
            keys: Vec::new(),
            arrays: None,
            stats: None,
            lacks_stats: false,
            problem: None,
        }
    }

    /// The rows of what was opened: of records, if there are some, of which a field was opened.
    fn with_rows(
        mut self,
        opened: overshot::Result<Input<'static>>,
        file: &NamedFile,
        record: Option<&NpyRecord>,
        args: &InfoArgs,
    ) -> Result<Info> {
        match opened {
            Err(error) => self.problem = Some(problem_of(error, &file.path)),
            Ok(input) => {
                let source = input.source();
                let (dtype, rows) = (source.dtype(), source.rows());
                let row_bytes = record.map_or(dtype.size() as u64, |record| record.bytes);
                self.dtype = record.is_none().then(|| dtype.name());
                self.rows = Some(rows);
                self.shape = Some(source.shape().map_or_else(|| vec![rows], <[u64]>::to_vec));
                self.data_bytes = Some(rows.saturating_mul(row_bytes));
                if args.stats && record.is_none() {
                    self.stats = Some(Stats::of(source, &engine(&args.device)?, args.quiet)?);
                }
            }
        }
        Ok(self)
    }

    /// The arrays of a store.
    fn with_arrays(self, arrays: Vec<Stored>) -> Info {
        let problem = (!arrays.iter().any(Stored::is_readable)).then(|| "has no array that a job can read".into());
        let format = arrays.first().map_or("zarr", Stored::format).into();
        Info { format, problem, arrays: Some(arrays), ..self }
    }

    fn with_table(self, table: Table) -> Info {
        let problem = (!table.is_readable()).then(|| "has no column of numbers".into());
        let (format, rows) = (table.format().into(), Some(table.rows()));
        Info { format, rows, problem, table: Some(table), ..self }
    }

    fn text(&self) -> String {
        let mut text = heading(&units::one_line(&self.path));
        if let (Some(dtype), Some(rows), Some(bytes)) = (self.dtype, self.rows, self.data_bytes) {
            let _ = write!(text, ": {} of {dtype}, {}", units::counted(rows, "row"), units::bytes(bytes));
        } else if let (Some(_), Some(rows), Some(bytes)) = (&self.fields, self.rows, self.data_bytes) {
            let _ = write!(text, ": {}, {}", units::counted(rows, "record"), units::bytes(bytes));
        } else if let (Some(_), Some(rows), Some(bytes)) = (&self.table, self.rows, self.file_bytes) {
            let _ = write!(text, ": {}, {}", units::counted(rows, "row"), units::bytes(bytes));
        } else if let Some(bytes) = self.file_bytes {
            let _ = write!(text, ": {}", units::bytes(bytes));
        }
        if let Some(shape) = self.shape.as_deref().filter(|shape| shape.len() != 1) {
            let _ = write!(text, ", shape {}", units::shape(shape));
        }
        text.push('\n');
        let mut line = |what: String| _ = writeln!(text, "  {what}");
        let is_url = is_url(Path::new(&self.path));
        // Nothing of a server can be.
        let in_place = |text: String| if is_url { text.replace("; can be used in place", "") } else { text };
        match &self.npy {
            _ if self.files > 1 => line(dim(&format!("{} as one input", units::counted(self.files as u64, "file")))),
            Some(header) => line(dim(&in_place(header.text(self.shape.as_deref())))),
            None if self.arrays.is_some() => {}
            None if self.format == "npz" => line(dim("an array of a .npz archive")),
            None if self.format == "raw" && self.dtype.is_some() => {
                line(dim(&in_place("raw; can be used in place".into())));
            }
            None if self.dtype.is_some() => line(dim(&format!("of a table ({})", self.format))),
            None => {}
        }
        self.table.iter().flat_map(Table::text).for_each(&mut line);
        self.keys.iter().for_each(|key| line(key.text()));
        match self.arrays.as_deref() {
            // One array, whose dtype and shape are told above.
            Some([only]) if only.is_whole() => line(dim(&only.storage())),
            _ if self.files > 1 => {}
            arrays => arrays.into_iter().flatten().for_each(|array| line(array.text())),
        }
        self.fields.iter().flatten().for_each(|field| line(field.text()));
        if let Some(stats) = &self.stats {
            line(stats.text());
        }
        if self.lacks_stats && self.problem.is_none() {
            let path = &self.path;
            let note = match self.table {
                Some(_) => format!("no statistics of columns without their names: overshot info --stats {path}:NAME"),
                None => {
                    let job = "overshot run 'min(t.NAME), max(t.NAME), mean(t.NAME)'";
                    format!("no statistics of fields and groups: {job} t={path}")
                }
            };
            line(dim(&units::one_line(&note)));
        }
        if let Some(problem) = &self.problem {
            line(units::one_line(problem));
        }
        text
    }
}
