//! Several files as one dataset.

use super::file::FileRows;
use super::sink::rows_of;
use super::{Dtype, Source};
use crate::error::{ColumnError, Error, JobError, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_128;

/// The rows of one of the files.
#[derive(Debug)]
pub(super) struct Part {
    pub rows: FileRows,
    /// The dimensions; `None` for a file without a header.
    pub shape: Option<Vec<u64>>,
}

/// Several files, whose rows follow each other. They are joined along their first dimension.
///
/// Their rows are not adjacent in memory, so they are never used in place, and a map would save nothing.
#[derive(Debug)]
pub(super) struct Files {
    /// The folder or the pattern that the user named.
    name: PathBuf,
    /// With their first rows.
    files: Vec<(u64, FileRows)>,
    dtype: Dtype,
    rows: u64,
    shape: Option<Vec<u64>>,
}

impl Files {
    /// Joins files, of which there is at least one.
    ///
    /// # Errors
    /// If the dtypes differ, or the shapes differ in more than the lengths of the first dimension.
    pub(super) fn new(name: &Path, parts: Vec<Part>) -> Result<Files> {
        let shape = joined_shape(&parts)?;
        let bytes = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.rows.bytes()));
        let (mut rows, mut dtype, mut files) = (0u64, Dtype::U8, Vec::<(u64, FileRows)>::with_capacity(parts.len()));
        for Part { rows: part, .. } in parts {
            match files.first() {
                Some((_, first)) if first.dtype != part.dtype => {
                    let (own, other_dtype) = (first.dtype.to_string(), part.dtype.to_string());
                    let (first, other) = (first.path.clone(), part.path);
                    return Err(JobError::FilesDtype { first, own, other, other_dtype }.into());
                }
                _ => dtype = part.dtype,
            }
            let (start, len) = (rows, part.rows);
            files.push((start, part.among(bytes)));
            rows = start.checked_add(len).filter(|rows| rows.checked_mul(dtype.size() as u64).is_some()).ok_or_else(
                || Error::file(name, "its files have more rows than can be counted", "read fewer files at once"),
            )?;
        }
        Ok(Files { name: name.into(), files, dtype, rows, shape })
    }

    /// Returns the files that have some of these rows: each with the range of its own rows.
    fn parts(&self, rows: Range<u64>) -> impl Iterator<Item = (&FileRows, Range<u64>)> {
        let next = self.files.partition_point(|(first, file)| first + file.rows <= rows.start);
        self.files[next..].iter().map_while(move |(first, file)| {
            let own = rows.start.max(*first) - first..rows.end.min(first + file.rows).saturating_sub(*first);
            (*first < rows.end).then_some((file, own))
        })
    }
}

/// Returns the shape of all files together; `None` if none has one.
fn joined_shape(parts: &[Part]) -> Result<Option<Vec<u64>>> {
    let Some((first, shape)) = parts.iter().find_map(|part| Some((&part.rows, part.shape.as_deref()?))) else {
        return Ok(None);
    };
    let mut length = 0u64;
    for part in parts {
        // A file without a header has one dimension.
        let flat = [part.rows.rows];
        let own = part.shape.as_deref().unwrap_or(&flat);
        let Some((along, rest)) = own.split_first() else {
            let problem = "has no dimension along which it can be joined with other files";
            return Err(Error::file(&part.rows.path, problem, "save it again with numpy.save(path, array.reshape(1))"));
        };
        if shape.get(1..) != Some(rest) {
            let (shape, other_shape) = (numpy_shape(shape), numpy_shape(own));
            let (first, other) = (first.path.clone(), part.rows.path.clone());
            return Err(JobError::FilesShape { first, shape, other, other_shape }.into());
        }
        length = length.saturating_add(*along);
    }
    Ok(Some([&[length], &shape[1..]].concat()))
}

/// Returns a shape as Python writes it.
pub(crate) fn numpy_shape(shape: &[u64]) -> String {
    match shape {
        [length] => format!("({length},)"),
        _ => format!("({})", shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

impl Source for Files {
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
        let (size, own_rows) = (self.dtype.size(), self.rows);
        let wanted = rows_of(first, dst, size).filter(|wanted| wanted.end <= own_rows).ok_or_else(|| {
            let rows = (dst.len() / size) as u64;
            ColumnError::ReadBeyondEnd { column: self.name(), first, rows, own_rows }
        })?;
        let mut rest = dst;
        for (file, rows) in self.parts(wanted) {
            let (piece, after) = rest.split_at_mut((rows.end - rows.start) as usize * size);
            file.read(rows.start, piece)?;
            rest = after;
        }
        Ok(())
    }

    fn shape(&self) -> Option<&[u64]> {
        self.shape.as_deref()
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.name)
    }

    fn files(&self) -> Vec<&Path> {
        self.files.iter().map(|(_, file)| file.path.as_path()).collect()
    }

    fn is_cached(&self, first: u64, rows: u64) -> bool {
        let mut parts = self.parts(first..first.saturating_add(rows));
        parts.all(|(file, rows)| file.is_cached(rows.start, rows.end - rows.start))
    }

    fn bytes_read_direct(&self) -> u64 {
        self.files.iter().map(|(_, file)| file.bytes_read_direct()).sum()
    }

    fn version(&self) -> Option<u128> {
        let versions = self.files.iter().map(|(_, file)| file.version()).collect::<Option<Vec<_>>>()?;
        Some(XxHash3_128::oneshot(bytemuck::cast_slice(&versions)))
    }

    fn warning(&self) -> Option<String> {
        self.files.iter().find_map(|(_, file)| file.warning())
    }
}
