//! The columns of tables, as `overshot info` shows them.

use std::path::PathBuf;

use overshot::io::{TableColumn, TableFile};
use overshot::{Error, units};
use serde::Serialize;

/// A table in a file, or in several.
#[derive(Debug, PartialEq, Serialize)]
pub struct Table {
    columns: Vec<Column>,
    /// The number of grains (row groups or record batches), and the rows of the longest one.
    grains: usize,
    longest_grain: u64,
    #[serde(skip)]
    rows: u64,
    #[serde(skip)]
    format: &'static str,
}

#[derive(Debug, PartialEq, Serialize)]
struct Column {
    name: String,
    /// The type, as the format calls it.
    kind: String,
    /// The dtype; `None` for a column that cannot be read, or only on request.
    dtype: Option<&'static str>,
    is_timestamp: bool,
    codec: String,
    /// The number of nulls; `None` if the file does not say it.
    nulls: Option<u64>,
}

impl Table {
    /// Reads what files say of themselves; `None` if the first one is no table.
    pub fn of(paths: &[PathBuf]) -> Result<Option<Table>, Error> {
        let mut tables = paths.iter().map(TableFile::open);
        let Some(first) = tables.next().transpose()?.flatten() else { return Ok(None) };
        let columns = first.columns.iter().map(|column| Column { nulls: Some(0), ..Column::of(column) }).collect();
        let mut table = Table { columns, grains: 0, longest_grain: 0, rows: 0, format: first.format };
        table.add(&first);
        for other in tables {
            // Reading the files as one input tells what does not fit together.
            if let Some(other) = other? {
                table.add(&other);
            }
        }
        Ok(Some(table))
    }

    fn add(&mut self, file: &TableFile) {
        self.rows = self.rows.saturating_add(file.rows());
        self.grains += file.grains.len();
        self.longest_grain = self.longest_grain.max(file.grains.iter().copied().max().unwrap_or(0));
        for own in &mut self.columns {
            let nulls = file.columns.iter().find(|column| column.name == own.name).and_then(|column| column.nulls);
            own.nulls = own.nulls.zip(nulls).map(|(own, nulls)| own.saturating_add(nulls));
        }
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn format(&self) -> &'static str {
        self.format
    }

    /// Returns whether a job can read a column.
    pub fn is_readable(&self) -> bool {
        self.columns.iter().any(|column| column.dtype.is_some() || column.is_timestamp)
    }

    /// Returns a line for the table, and one for each column.
    pub fn text(&self) -> Vec<String> {
        let groups = match (self.format, self.grains as u64) {
            ("arrow", 1) => "1 record batch".to_owned(),
            ("arrow", batches) => format!("{} record batches", units::count(batches)),
            (_, groups) => units::counted(groups, "row group"),
        };
        let longest = units::counted(self.longest_grain, "row");
        let about = format!("{}: {groups} of at most {longest}", self.format);
        std::iter::once(about).chain(self.columns.iter().map(Column::text)).collect()
    }
}

impl Column {
    fn of(column: &TableColumn) -> Column {
        let TableColumn { name, kind, dtype, is_timestamp, codec, nulls, .. } = column;
        let (name, kind, codec) = (name.clone(), kind.clone(), codec.clone());
        Column { name, kind, dtype: dtype.map(|dtype| dtype.name()), is_timestamp: *is_timestamp, codec, nulls: *nulls }
    }

    fn text(&self) -> String {
        let with_nulls = |what: &str| match self.nulls {
            Some(nulls) if nulls > 0 => format!("{what} with {}", units::counted(nulls, "null")),
            _ => what.to_owned(),
        };
        let what = match self.dtype {
            Some(dtype) => with_nulls(dtype),
            None if self.is_timestamp => format!("{}, i64 with --timestamps", with_nulls(&self.kind)),
            None => format!("{}, which a job cannot read", self.kind),
        };
        let codec = if self.codec.is_empty() { String::new() } else { format!("; {}", self.codec) };
        units::one_line(&format!("column {}: {what}{codec}", self.name))
    }
}
