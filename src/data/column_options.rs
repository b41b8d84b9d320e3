//! How columns of tables are read.

use super::Scalar;

/// How a column of a table is read, where it has something else than numbers: `Parquet::column_with` and
/// `Arrow::column_with` take it.
///
/// ```
/// use overshot::io::ColumnOptions;
/// let options = ColumnOptions::new().nulls(-1).timestamps(true);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnOptions {
    /// The value for the place of nulls, as a text, because the column says of which dtype it must be.
    pub(super) nulls: Option<String>,
    pub(super) timestamps: bool,
}

impl ColumnOptions {
    /// Options by which nulls and timestamps are refused.
    pub fn new() -> ColumnOptions {
        ColumnOptions::default()
    }

    /// Reads this value in the place of nulls, which are an error otherwise.
    pub fn nulls(self, value: impl Into<Scalar>) -> ColumnOptions {
        ColumnOptions { nulls: Some(value.into().to_string()), ..self }
    }

    /// Reads timestamps as the integers that the file holds, of dtype `i64` and in the file's own unit. They are an
    /// error otherwise. Dates and times of day always are.
    pub fn timestamps(self, yes: bool) -> ColumnOptions {
        ColumnOptions { timestamps: yes, ..self }
    }
}
