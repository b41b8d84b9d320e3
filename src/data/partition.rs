//! A column whose values are in the names of folders, and not in the files.

use super::bounds::fill;
use super::nulls::Nulls;
use super::partition_folders::FolderKeys;
use super::sink::wanted_rows;
use super::{Bounds, ColumnOptions, Dtype, Scalar, Source};
use crate::error::{Error, Result};
use crate::units;
use std::path::{Path, PathBuf};

/// The bytes of a value: `i64` or `f64`.
const SIZE: usize = 8;

/// The values of a key of folders, as `year` of `sales/year=2024/part-0.parquet`: all rows of a file have one value.
#[derive(Debug)]
pub(super) struct Partition {
    /// The folder or the pattern that the user named.
    name: PathBuf,
    files: Vec<PathBuf>,
    dtype: Dtype,
    /// The first row of each file, and the value of its rows.
    values: Vec<(u64, Scalar)>,
    rows: u64,
    variant: String,
}

impl Partition {
    /// Returns the values of a key of files, of which there is at least one. `rows` are the rows of each.
    ///
    /// # Errors
    /// If not all files have the same keys, if a value is no number, and if there are nulls and no value for their
    /// place.
    pub(super) fn new(keys: &FolderKeys<'_>, key: &str, rows: &[u64], options: &ColumnOptions) -> Result<Partition> {
        let FolderKeys { name, files, .. } = *keys;
        keys.names()?;
        let (dtype, of_files) = keys.values(key)?;
        let nulls = Nulls::new(options, dtype);
        let null_rows = of_files.iter().zip(rows).filter(|(value, _)| value.is_none()).map(|(_, rows)| *rows);
        let null_rows = null_rows.fold(0, u64::saturating_add);
        if null_rows > 0 {
            nulls.refuse(name, key, &units::counted(null_rows, "null"))?;
        }
        let null = nulls.value().unwrap_or(Scalar::I64(0));
        let (mut values, mut end) = (Vec::with_capacity(files.len()), 0u64);
        for (value, rows) in of_files.iter().zip(rows) {
            values.push((end, value.unwrap_or(null)));
            end = end.checked_add(*rows).filter(|end| end.checked_mul(SIZE as u64).is_some()).ok_or_else(|| {
                Error::file(name, "its files have more rows than can be counted", "read fewer files at once")
            })?;
        }
        Ok(Partition { name: name.into(), files: files.into(), dtype, values, rows: end, variant: nulls.variant(key) })
    }
}

impl Source for Partition {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn name(&self) -> String {
        self.name.display().to_string()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        let own_rows = self.rows;
        let wanted = wanted_rows(first, dst, SIZE, own_rows, || self.name())?;
        let (mut rest, mut row) = (dst, wanted.start);
        let file = self.values.partition_point(|(start, _)| *start <= first).saturating_sub(1);
        let ends = self.values[file + 1..].iter().map(|(start, _)| *start).chain([own_rows]);
        for ((_, value), end) in self.values[file..].iter().zip(ends) {
            let end = end.min(wanted.end);
            let (piece, after) = rest.split_at_mut((end - row) as usize * SIZE);
            fill(piece, SIZE, value.bits());
            (rest, row) = (after, end);
            if rest.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// The rows of a file have its value.
    fn bounds(&self) -> Result<Vec<Bounds>> {
        let ends = self.values.iter().skip(1).map(|(first, _)| *first).chain([self.rows]);
        let files = self.values.iter().zip(ends);
        let files = files.map(|((first, value), end)| Bounds { rows: *first..end, least: *value, greatest: *value });
        // NaN, in the place of nulls, is outside of all bounds.
        Ok(files.filter(|own| !own.rows.is_empty() && own.least.order(own.least).is_some()).collect())
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.name)
    }

    fn files(&self) -> Vec<&Path> {
        self.files.iter().map(PathBuf::as_path).collect()
    }

    fn variant(&self) -> String {
        self.variant.clone()
    }
}
