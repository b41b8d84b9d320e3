//! A column of a table: what all formats of tables know of it.

#[cfg(feature = "parquet")]
use super::Scalar;
use super::file::Opened;
use super::nulls::Nulls;
use super::table_file::{names, no_numbers};
use super::{ColumnOptions, Dtype};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// What the values of a column are.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Values {
    Numbers(Dtype),
    /// Integers of 64 bits, which are read as such on request. With the name of the type, and their unit, such as `us`.
    Timestamps(String, &'static str),
    /// What they are instead, such as `is nested`.
    Refused(String),
}

impl Values {
    /// Returns the dtype as which they are read, with timestamps or without them; `None` if they are not.
    pub(super) fn dtype(&self, with_timestamps: bool) -> Option<Dtype> {
        match self {
            Values::Numbers(dtype) => Some(*dtype),
            Values::Timestamps(..) => with_timestamps.then_some(Dtype::I64),
            Values::Refused(_) => None,
        }
    }

    /// Returns the dtype as which the column of a table is read.
    fn read_as(&self, path: &Path, name: &str, options: &ColumnOptions) -> Result<Dtype> {
        match self {
            Values::Numbers(dtype) => Ok(*dtype),
            Values::Timestamps(..) if options.timestamps => Ok(Dtype::I64),
            Values::Timestamps(kind, _) => {
                let problem = format!("its column '{name}' is of the type {kind}");
                let remedy = "read the integers that the file has for them (--timestamps, ov.open(..., \
                              timestamps=True), ColumnOptions::timestamps), or write it as numbers";
                Err(Error::file(path, problem, remedy))
            }
            Values::Refused(what) => {
                let problem = format!("its column '{name}' {what}");
                Err(Error::file(path, problem, "write it as numbers, as in pyarrow's cast"))
            }
        }
    }
}

/// A column of numbers, and what is read in the place of nulls.
#[derive(Debug)]
pub(super) struct Column {
    pub path: PathBuf,
    pub name: String,
    pub dtype: Dtype,
    /// The unit of timestamps.
    unit: Option<&'static str>,
    nulls: Nulls,
    /// The version of the file when it was opened.
    version: Option<u128>,
}

impl Column {
    /// A column of a file that has been opened.
    ///
    /// # Errors
    /// If its values are not read with these options.
    pub(super) fn new(file: &Opened, name: &str, values: &Values, options: &ColumnOptions) -> Result<Column> {
        let dtype = values.read_as(&file.path, name, options)?;
        let unit = if let Values::Timestamps(_, unit) = values { Some(*unit) } else { None };
        let nulls = Nulls::new(options, dtype);
        Ok(Column { path: file.path.clone(), name: name.into(), dtype, unit, nulls, version: file.version() })
    }

    /// Returns what its rows are, for messages: a dtype, or timestamps with their unit.
    pub(super) fn holds(&self) -> String {
        self.unit.map_or_else(|| self.dtype.to_string(), |unit| format!("timestamps in {unit}"))
    }

    /// Returns the bytes of the value for the place of nulls.
    pub(super) fn fill(&self) -> Option<&[u8]> {
        self.nulls.fill()
    }

    /// Returns the value for the place of nulls.
    #[cfg(feature = "parquet")]
    pub(super) fn null(&self) -> Option<Scalar> {
        self.nulls.value()
    }

    /// Returns the error for `nulls`, such as `12 nulls`, if there is no value for their place.
    pub(super) fn refuse_nulls(&self, nulls: &str) -> Result<()> {
        self.nulls.refuse(&self.path, &self.name, nulls)
    }

    /// Returns the error for a grain of which the file says one thing and holds another.
    pub(super) fn damaged(&self, file: &Opened, format: &str, grain: &str, what: &str) -> Error {
        if file.version() != self.version {
            return Error::file(&self.path, "changed while it was read", "do not change a file while it is read");
        }
        incomplete(&self.path, format, &format!("column '{}' of {grain} {what}", self.name))
    }

    /// See [`Source::variant`](super::Source::variant).
    pub(super) fn variant(&self) -> String {
        self.nulls.variant(&self.name)
    }
}

/// A column as it is found by its name.
pub(super) struct Named {
    pub name: String,
    /// Whether it can be read.
    pub is_readable: bool,
    /// Whether it is in another column, whose name its own one begins with.
    pub is_inner: bool,
}

/// Returns the place of a column among those of a table. Without a name, it is the only one that can be read.
pub(super) fn found(path: &Path, columns: &[Named], name: Option<&str>) -> Result<usize> {
    let Some(name) = name else {
        let readable = || columns.iter().enumerate().filter(|(_, own)| own.is_readable);
        let mut only = readable();
        return match (only.next(), only.next()) {
            (Some((place, _)), None) => Ok(place),
            _ => Err(no_name(path, &readable().map(|(_, own)| &*own.name).collect::<Vec<_>>())),
        };
    };
    let mut own = (0..columns.len()).filter(|place| !columns[*place].is_inner && columns[*place].name == name);
    match (own.next(), own.count()) {
        (Some(place), 0) => return Ok(place),
        (Some(_), others) => {
            let problem = format!("has {} columns with the name '{name}', which is ambiguous", others + 1);
            return Err(Error::file(path, problem, "write it again with a name for each"));
        }
        (None, _) => {}
    }
    // Whoever opens it says that it is nested.
    let is_part = |own: &Named| {
        let rest = own.name.strip_prefix(name).filter(|_| own.is_inner);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    columns.iter().position(is_part).ok_or_else(|| {
        let all: Vec<&str> = columns.iter().filter(|own| !own.is_inner).map(|own| &*own.name).collect();
        if all.is_empty() {
            return Error::file(path, "is a table without columns", "name a file that has some");
        }
        Error::file(path, format!("has no column '{name}', only {}", names(&all)), "check the name")
    })
}

/// Returns the error for a file that says one thing and holds another.
pub(super) fn incomplete(path: &Path, format: &str, what: &str) -> Error {
    Error::file(path, format!("is not a complete {format} file: {what}"), "copy or write it again")
}

/// Returns the error for a file of which no column is named.
fn no_name(path: &Path, columns: &[&str]) -> Error {
    let Some(first) = columns.first() else {
        return no_numbers(path);
    };
    let problem = format!("is a table of the columns {}", names(columns));
    let (own, all) = (path.display(), columns.iter().take(2).copied().collect::<Vec<_>>().join(","));
    let remedy = format!(
        "name one of them in the expression: for a table t, write t.{first}; or take some side by side, as one array: \
         {own}:{all}, in Python ov.open(..., field=[...])"
    );
    Error::file(path, problem, remedy)
}
