//! Several files as one dataset.

use super::dataset::Dataset;
use super::sink::wanted_rows;
use super::{Bounds, Dtype, Memory, Source};
use crate::error::{Error, JobError, Result};
use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;
use twox_hash::XxHash3_128;

/// Several files, whose rows follow each other. They are joined along their first dimension.
///
/// Their rows are not adjacent in memory, so that only those of one file at a time can be used in place.
#[derive(Debug)]
pub(super) struct Files {
    /// The folder or the pattern that the user named.
    name: PathBuf,
    /// With their first rows.
    files: Vec<(u64, Dataset)>,
    dtype: Dtype,
    rows: u64,
    shape: Option<Vec<u64>>,
    grains: Vec<u64>,
    /// The numbers of the files that were read last. Others keep nothing in memory.
    recent: Mutex<VecDeque<usize>>,
    /// The most of them: a core reads one at a time, and one more may have been read just now.
    most_recent: usize,
}

impl Files {
    /// Joins files, of which there is at least one.
    ///
    /// # Errors
    /// If the dtypes or the columns differ, or the shapes differ in more than the lengths of the first dimension.
    pub(super) fn new(name: &Path, parts: Vec<Dataset>) -> Result<Files> {
        check_columns(&parts)?;
        let shape = joined_shape(&parts)?;
        let bytes = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.bytes()));
        let (mut rows, mut dtype) = (0u64, Dtype::U8);
        let (mut files, mut grains) = (Vec::<(u64, Dataset)>::with_capacity(parts.len()), Vec::new());
        for part in parts {
            let source = part.source();
            match files.first() {
                // Timestamps of two units have one dtype.
                Some((_, first)) if first.holds() != part.holds() => {
                    let (own, other_dtype) = (first.holds(), part.holds());
                    let (first, other) = (path_of(first.source()), path_of(source));
                    return Err(JobError::FilesDtype { first, own, other, other_dtype }.into());
                }
                _ => dtype = source.dtype(),
            }
            let (start, len) = (rows, source.rows());
            rows = start.checked_add(len).filter(|rows| rows.checked_mul(dtype.size() as u64).is_some()).ok_or_else(
                || Error::file(name, "its files have more rows than can be counted", "read fewer files at once"),
            )?;
            grains.extend(source.grains().iter().map(|first| start + first));
            files.push((start, part.among(bytes)));
        }
        let most_recent = available_parallelism().map_or(1, usize::from) + 1;
        Ok(Files { name: name.into(), files, dtype, rows, shape, grains, recent: Mutex::default(), most_recent })
    }

    /// Returns the numbers of the files that have some of these rows: each with the range of its own rows.
    fn parts(&self, rows: Range<u64>) -> impl Iterator<Item = (usize, Range<u64>)> {
        let next = self.files.partition_point(|(first, file)| first + file.source().rows() <= rows.start);
        self.files[next..].iter().enumerate().map_while(move |(k, (first, file))| {
            let end = first + file.source().rows();
            let own = rows.start.max(*first) - first..rows.end.min(end).saturating_sub(*first);
            (*first < rows.end).then_some((next + k, own))
        })
    }

    fn source(&self, file: usize) -> &dyn Source {
        self.files[file].1.source()
    }

    /// Notes that a file is read. What another one keeps in memory goes, if it was not read for the longest time.
    fn touch(&self, file: usize) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.back() == Some(&file) {
            return;
        }
        recent.retain(|other| *other != file);
        recent.push_back(file);
        let gone = if recent.len() > self.most_recent { recent.pop_front() } else { None };
        drop(recent);
        if let Some(gone) = gone {
            self.files[gone].1.forget();
        }
    }

    fn sources(&self) -> impl Iterator<Item = &dyn Source> {
        self.files.iter().map(|(_, file)| file.source())
    }
}

/// Returns the path of a file.
fn path_of(file: &dyn Source) -> PathBuf {
    file.path().map(PathBuf::from).unwrap_or_default()
}

/// Checks that the files have the same column, which may be the only one of each.
fn check_columns(parts: &[Dataset]) -> Result<()> {
    let mut named = parts.iter().filter_map(|part| Some((part.source(), part.column()?)));
    let Some((first, own)) = named.next() else { return Ok(()) };
    match named.find(|(_, name)| *name != own) {
        None => Ok(()),
        Some((other, other_name)) => {
            let (first, other) = (path_of(first), path_of(other));
            Err(JobError::FilesColumn { first, own: own.into(), other, other_name: other_name.into() }.into())
        }
    }
}

/// Returns the shape of all files together; `None` if none has one.
fn joined_shape(parts: &[Dataset]) -> Result<Option<Vec<u64>>> {
    let sources = || parts.iter().map(Dataset::source);
    let Some((first, shape)) = sources().find_map(|part| Some((part, part.shape()?))) else {
        return Ok(None);
    };
    let mut length = 0u64;
    for part in sources() {
        // A file without a header has one dimension.
        let flat = [part.rows()];
        let own = part.shape().unwrap_or(&flat);
        let Some((along, rest)) = own.split_first() else {
            let problem = "has no dimension along which it can be joined with other files";
            return Err(Error::file(path_of(part), problem, "save it again with numpy.save(path, array.reshape(1))"));
        };
        if shape.get(1..) != Some(rest) {
            let (shape, other_shape) = (numpy_shape(shape), numpy_shape(own));
            let (first, other) = (path_of(first), path_of(part));
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
        let wanted = wanted_rows(first, dst, size, own_rows, || self.name())?;
        let mut rest = dst;
        for (file, rows) in self.parts(wanted) {
            let (piece, after) = rest.split_at_mut((rows.end - rows.start) as usize * size);
            self.touch(file);
            self.source(file).read(rows.start, piece)?;
            // Others may have been read meanwhile.
            self.touch(file);
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
        self.sources().filter_map(Source::path).collect()
    }

    fn piece(&self, first: u64, rows: u64) -> Option<Memory<'_>> {
        let (file, own) = self.parts(first..first.checked_add(rows)?).next()?;
        if own.end - own.start == rows { self.source(file).piece(own.start, rows) } else { None }
    }

    fn grains(&self) -> &[u64] {
        &self.grains
    }

    fn variant(&self) -> String {
        self.sources().next().map(Source::variant).unwrap_or_default()
    }

    fn is_cached(&self, first: u64, rows: u64) -> bool {
        let mut parts = self.parts(first..first.saturating_add(rows));
        parts.all(|(file, rows)| self.source(file).is_cached(rows.start, rows.end - rows.start))
    }

    fn decodes(&self) -> bool {
        self.sources().any(Source::decodes)
    }

    fn decode_memory(&self) -> u64 {
        // Cursors of tables wait in one file for each core, but not all that may wait do so in each. The first pages of
        // a file are read for this, and not those of all.
        if !self.grains.is_empty() {
            let largest = self.files.iter().map(|(_, file)| file).max_by_key(|file| file.bytes());
            return largest.map_or(0, |file| file.source().decode_memory().saturating_mul(2));
        }
        let mut each: Vec<u64> = self.sources().map(Source::decode_memory).collect();
        each.sort_unstable();
        each.iter().rev().take(self.most_recent).fold(0, |sum, own| sum.saturating_add(*own))
    }

    fn bounds(&self) -> Result<Vec<Bounds>> {
        let mut all = Vec::new();
        for (first, file) in &self.files {
            let moved = |own: Bounds| Bounds { rows: first + own.rows.start..first + own.rows.end, ..own };
            all.extend(file.source().bounds()?.into_iter().map(moved));
        }
        Ok(all)
    }

    fn bytes_read_direct(&self) -> u64 {
        self.sources().map(Source::bytes_read_direct).sum()
    }

    fn version(&self) -> Option<u128> {
        let versions = self.sources().map(Source::version).collect::<Option<Vec<_>>>()?;
        Some(XxHash3_128::oneshot(bytemuck::cast_slice(&versions)))
    }

    fn warning(&self) -> Option<String> {
        self.sources().find_map(Source::warning)
    }
}
