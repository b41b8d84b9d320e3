//! What a file with several columns says of itself.

#[cfg(feature = "arrow")]
use super::Arrow;
#[cfg(feature = "parquet")]
use super::Parquet;
use super::dataset::Dataset;
use super::file::Opened;
use super::{ColumnOptions, Dtype, NewFile, ReadMode};
use crate::error::{Error, Result};
use std::path::Path;

/// A file with named columns: what is in it, without its rows.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TableFile {
    /// The name of the format: `arrow` or `parquet`.
    pub format: &'static str,
    /// The columns, in the order of the file.
    pub columns: Vec<TableColumn>,
    /// The rows of each [grain](crate::Source::grains), in the order of the file: those of a record batch or a row
    /// group.
    pub grains: Vec<u64>,
}

/// A column of a [`TableFile`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TableColumn {
    /// The name.
    pub name: String,
    /// The type, as the format calls it.
    pub kind: String,
    /// The dtype of the values; `None` if they are not of one, so that a job cannot read the column.
    pub dtype: Option<Dtype>,
    /// Whether the values are timestamps, which have no dtype, but are read as `i64` on
    /// [request](ColumnOptions::timestamps).
    pub is_timestamp: bool,
    /// The codec by which it is compressed. Several, if it differs from grain to grain.
    pub codec: String,
    /// The number of nulls; `None` if the file does not say it.
    pub nulls: Option<u64>,
}

impl TableFile {
    /// Reads what a file says of itself; `None` if the file has no columns that could be read by their names.
    ///
    /// ```no_run
    /// if let Some(table) = overshot::io::TableFile::open("trades.parquet")? {
    ///     println!("{} rows of {} columns", table.rows(), table.columns.len());
    /// }
    /// # Ok::<(), overshot::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened, or is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Option<TableFile>> {
        let opened = Opened::new(path.as_ref())?;
        let format = TableFormat::of(&opened.path, &opened.head(16)?);
        format.map(|format| format.table(opened)).transpose()
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.grains.iter().fold(0, |sum, rows| sum.saturating_add(*rows))
    }
}

/// A format with named columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableFormat {
    #[cfg(feature = "arrow")]
    Arrow,
    #[cfg(feature = "parquet")]
    Parquet,
}

impl TableFormat {
    /// Returns the format of a file, by its name or its first bytes.
    pub(super) fn of(path: &Path, head: &[u8]) -> Option<TableFormat> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
        match (&*ending, head) {
            #[cfg(feature = "arrow")]
            (_, [b'A', b'R', b'R', b'O', b'W', b'1', ..]) => Some(TableFormat::Arrow),
            // Version 1 of Feather is another format.
            #[cfg(feature = "arrow")]
            ("arrow" | "feather" | "ipc", head) if !head.starts_with(b"FEA1") => Some(TableFormat::Arrow),
            #[cfg(feature = "parquet")]
            ("parquet" | "pq", _) | (_, [b'P', b'A', b'R', b'1', ..]) => Some(TableFormat::Parquet),
            _ => None,
        }
    }

    /// Opens columns, each by its name or, without one, the only one that can be read. The file is read once for all.
    #[cfg_attr(
        not(any(feature = "arrow", feature = "parquet")),
        allow(unused_variables, reason = "there is no such format")
    )]
    pub(super) fn columns(
        self,
        opened: Opened,
        names: &[Option<&str>],
        reading: ReadMode,
        options: &ColumnOptions,
    ) -> Result<Vec<Dataset>> {
        match self {
            #[cfg(feature = "arrow")]
            TableFormat::Arrow => {
                let columns = Arrow::of(opened, names, reading, options)?;
                Ok(columns.into_iter().map(|column| Dataset::Arrow(column.into())).collect())
            }
            #[cfg(feature = "parquet")]
            TableFormat::Parquet => {
                let columns = Parquet::of(opened, names, reading, options)?;
                Ok(columns.into_iter().map(|column| Dataset::Parquet(column.into())).collect())
            }
        }
    }

    /// Returns a file to be written.
    #[cfg_attr(
        not(any(feature = "arrow", feature = "parquet")),
        allow(unused_variables, reason = "there is no such format")
    )]
    pub(super) fn create(self, path: &Path) -> NewFile {
        match self {
            #[cfg(feature = "arrow")]
            TableFormat::Arrow => Arrow::create(path),
            #[cfg(feature = "parquet")]
            TableFormat::Parquet => Parquet::create(path),
        }
    }

    #[cfg_attr(
        not(any(feature = "arrow", feature = "parquet")),
        allow(unused_variables, reason = "there is no such format")
    )]
    fn table(self, opened: Opened) -> Result<TableFile> {
        match self {
            #[cfg(feature = "arrow")]
            TableFormat::Arrow => Arrow::table(opened),
            #[cfg(feature = "parquet")]
            TableFormat::Parquet => Parquet::table(opened),
        }
    }
}

/// Returns the only one of the columns that were opened.
pub(super) fn only<T>(path: &Path, columns: Vec<T>) -> Result<T> {
    columns.into_iter().next().ok_or_else(|| no_numbers(path))
}

/// Returns the error of a table of which no column can be read.
pub(super) fn no_numbers(path: &Path) -> Error {
    Error::file(path, "has no column of numbers", "write its numbers as a column")
}

/// Returns names for messages: the first ones, if there are many.
pub(super) fn names(names: &[impl AsRef<str>]) -> String {
    const SHOWN: usize = 20;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
