//! Rows in a file, for all formats: adjacent ones in one piece or several, fields of records, and arrays in Fortran
//! order.

use super::direct::{Direct, is_cached, memory};
use super::file::Opened;
use super::file_map::FileMap;
use super::fortran::Fortran;
use super::storage::{Ordered, read_error};
use super::{Dtype, Memory, ReadMode};
use crate::error::{Error, Result};
use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Files larger than 1/`LARGE` of the machine's memory do not stay in the page cache. Rows of them that are not
/// cached are read with direct I/O.
const LARGE: u64 = 2;

/// Where the rows are in a file.
#[derive(Debug)]
pub(super) struct Place {
    /// The pieces, in the order of their rows.
    pub pieces: Vec<Piece>,
    /// Bytes from a row to the next one of its piece: more than the size of a row if it is a field of a record.
    pub stride: u64,
    /// Whether the byte order differs from the machine's.
    pub swapped: bool,
}

/// Rows that follow each other in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// The number of the first row.
    pub row: u64,
    /// The offset of the first row, in bytes.
    pub at: u64,
}

impl Place {
    /// One piece with all rows.
    pub(super) fn one(at: u64, stride: u64, swapped: bool) -> Place {
        Place { pieces: vec![Piece { row: 0, at }], stride, swapped }
    }

    /// Returns the parts of these rows that follow each other in the file: the offset of each, and its number of rows.
    fn parts(&self, first: u64, rows: u64) -> impl Iterator<Item = (u64, u64)> {
        let begin = self.pieces.partition_point(|piece| piece.row <= first).saturating_sub(1);
        let (own, end) = (&self.pieces[begin.min(self.pieces.len())..], first.saturating_add(rows));
        own.iter().enumerate().map_while(move |(k, piece)| {
            let behind = own.get(k + 1).map_or(end, |next| next.row.min(end));
            let row = piece.row.max(first);
            (row < end).then(|| (piece.at + (row - piece.row) * self.stride, behind.saturating_sub(row)))
        })
    }

    /// Returns the offset behind the last row, of so many, in the file.
    fn end(&self, rows: u64, dtype: Dtype) -> u64 {
        let ends = self.parts(0, rows).filter_map(|(at, rows)| Some(at + rows.checked_sub(1)? * self.stride));
        ends.max().map_or(0, |last| last + dtype.size() as u64)
    }
}

/// A file, part of which is rows.
#[derive(Debug)]
pub(super) struct FileRows {
    pub path: PathBuf,
    pub dtype: Dtype,
    pub rows: u64,
    bytes: Ordered,
    place: Place,
    /// The order in which the rows are stored, unless it is theirs. There is one piece then.
    order: Option<Fortran>,
    map: Option<Arc<FileMap>>,
    direct: Option<Direct>,
    /// Whether all reads bypass the page cache, and not only reads of rows that are not cached.
    is_direct: bool,
    /// Why the file is not read as requested, or not as fast as it could be.
    notes: Vec<&'static str>,
}

impl FileRows {
    /// The `rows` rows at `place` in the opened file. `len` is the length of the file, which contains them.
    pub(super) fn new(opened: Opened, dtype: Dtype, rows: u64, place: Place, reading: ReadMode) -> Self {
        let Opened { path, storage, start, len } = opened;
        let is_whole = place.end(rows, dtype) <= len;
        debug_assert!(is_whole, "{} has fewer rows", path.display());
        let pieces = place.pieces.into_iter().map(|piece| Piece { at: start + piece.at, ..piece }).collect();
        let place = Place { pieces, ..place };
        let is_direct = reading == ReadMode::Direct;
        let file = storage.file();
        let direct = file.filter(|_| is_direct || len > memory() / LARGE).and_then(|file| Direct::open(&path, file));
        let mut notes = Vec::new();
        if is_direct && file.is_none() {
            notes.push("is not read with direct I/O, because it is on a server");
        } else if is_direct && rows > 0 && direct.is_none() {
            notes.push("cannot be read with direct I/O here, so it is read through the page cache");
        }
        notes.extend(storage.note());
        if place.stride != dtype.size() as u64 {
            notes.push("holds records, of which a field is gathered; a file of the field alone is read faster");
        }
        let bytes = Ordered::new(storage);
        FileRows { path, dtype, rows, bytes, place, order: None, map: None, direct, is_direct, notes }
    }

    /// Returns the rows as those of an array of this shape that is stored in Fortran order. The shape has as many
    /// elements as there are rows.
    pub(super) fn in_fortran_order(mut self, shape: &[u64]) -> Self {
        self.order = Fortran::new(shape, self.place.stride);
        if self.order.is_some() {
            self.notes.push(
                "is in Fortran order, so its rows are gathered and not used in place; for repeated use, save it with \
                 numpy.save(path, numpy.ascontiguousarray(array))",
            );
        }
        self
    }

    /// Uses the rows in place through a memory map, if the system can map the file.
    ///
    /// # Safety
    /// Nobody may write to the file or truncate it while this value exists.
    pub(super) unsafe fn mapped(mut self) -> Self {
        let end = self.place.end(self.rows, self.dtype);
        let Some(file) = self.bytes.storage.file() else { return self };
        // SAFETY: the caller upholds the contract; the file is as long as its rows, as `new` requires.
        self.map = unsafe { FileMap::of(&self.path, file, end) };
        if self.rows > 0 && self.map.is_none() {
            self.notes.push("cannot be memory-mapped here, so it is read with system calls, which is slower");
        }
        self
    }

    /// Reads the rows as some of a dataset of this many bytes, which may be too large for the page cache.
    pub(super) fn among(mut self, bytes: u64) -> Self {
        if self.direct.is_none() && bytes > memory() / LARGE {
            self.direct = self.bytes.storage.file().and_then(|file| Direct::open(&self.path, file));
        }
        self
    }

    /// Returns the size in bytes of the part of the file that is read.
    pub(super) fn bytes(&self) -> u64 {
        self.rows * self.place.stride
    }

    pub(super) fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        let beyond = || {
            let problem = format!("rows from {first} on were requested, but it has {} rows", self.rows);
            Error::file(&self.path, problem, "this is a bug in the caller of Source::read")
        };
        let size = self.dtype.size() as u64;
        let fits = first.checked_mul(size).and_then(|at| at.checked_add(dst.len() as u64));
        if fits.is_none_or(|end| end > self.rows * size) {
            return Err(beyond());
        }
        if dst.is_empty() {
            return Ok(());
        }
        let failed = |e: io::Error| match e.kind() {
            io::ErrorKind::UnexpectedEof => {
                let remedy = "do not change a file while it is read";
                Error::file(&self.path, format!("it became shorter than {} rows", self.rows), remedy)
            }
            _ => read_error(&self.path, e),
        };
        let direct = self.direct.as_ref().filter(|_| !self.is_cached(first, dst.len() as u64 / size));
        let read = |at: u64, stride: u64, dst: &mut [u8]| self.read_stored(at, stride, dst, direct);
        match (&self.order, &self.place.pieces[..]) {
            (Some(order), [piece]) => {
                let read = |place: u64, stride: u64, dst: &mut [u8]| read(piece.at + place, stride, dst);
                order.read(first, dst, self.dtype.size(), read)
            }
            _ => {
                let mut rest = &mut *dst;
                self.place.parts(first, rest.len() as u64 / size).try_for_each(|(at, rows)| {
                    let (part, after) = std::mem::take(&mut rest).split_at_mut((rows * size) as usize);
                    rest = after;
                    read(at, self.place.stride, part)
                })
            }
        }
        .map_err(failed)?;
        if self.place.swapped {
            swap_bytes(dst, self.dtype.size());
        }
        Ok(())
    }

    /// Fills `dst` with elements that are `stride` bytes apart, from an offset in the file on.
    fn read_stored(&self, at: u64, stride: u64, dst: &mut [u8], direct: Option<&Direct>) -> io::Result<()> {
        let read = |at: u64, dst: &mut [u8]| match direct {
            Some(direct) => direct.read(at, dst),
            // Columns are read at many places.
            None if self.order.is_some() => self.bytes.storage.read_at(dst, at),
            None => self.bytes.read_at(dst, at),
        };
        let is_adjacent = stride == self.dtype.size() as u64;
        match self.map.as_ref().filter(|_| direct.is_none()) {
            Some(map) => {
                let bytes = usize::try_from(at).ok().and_then(|at| map.bytes.get(at..));
                let bytes = bytes.ok_or(io::ErrorKind::UnexpectedEof)?;
                match is_adjacent {
                    true => copy_rows(bytes, 0, self.dtype, dst).ok_or(io::ErrorKind::UnexpectedEof)?,
                    false => gather(bytes, stride, self.dtype, dst),
                }
                Ok(())
            }
            None if is_adjacent => read(at, dst),
            None => gather_by(at, stride, self.dtype, dst, read),
        }
    }

    /// Returns all rows, if they are in memory as one piece.
    pub(super) fn memory(&self) -> Option<Memory<'_>> {
        self.piece(0, self.rows)
    }

    /// Returns rows, if they are in memory as one piece.
    pub(super) fn piece(&self, first: u64, rows: u64) -> Option<Memory<'_>> {
        let size = self.dtype.size() as u64;
        let is_adjacent = self.place.stride == size && self.order.is_none();
        let is_plain = !self.place.swapped && is_adjacent;
        let (at, found) = self.place.parts(first, rows).next().filter(|_| is_plain)?;
        let (at, len) = (usize::try_from(at).ok()?, usize::try_from(rows.checked_mul(size)?).ok()?);
        let bytes = self.map.as_ref()?.bytes.get(at..at.checked_add(len)?)?;
        if found == rows { Memory::new(bytes, self.dtype) } else { None }
    }

    /// Returns whether the rows can be read without a disk. An estimate is enough here.
    pub(super) fn is_cached(&self, first: u64, rows: u64) -> bool {
        match (&self.direct, self.bytes.storage.file()) {
            (None, _) | (_, None) => true,
            (Some(_), _) if self.is_direct => false,
            (Some(_), Some(file)) => {
                let (first, rows) = match &self.order {
                    None => (first, rows),
                    // Each column has some of these rows, so a few columns are looked at.
                    Some(order) => (order.index_of(first), self.rows - order.index_of(first)),
                };
                let mut parts = self.place.parts(first, rows);
                parts.all(|(at, rows)| is_cached(file, at, rows * self.place.stride))
            }
        }
    }

    /// Returns the number of bytes read with direct I/O so far.
    pub(super) fn bytes_read_direct(&self) -> u64 {
        self.direct.as_ref().map_or(0, Direct::bytes)
    }

    /// See [`Source::decode_memory`](super::Source::decode_memory).
    pub(super) fn memory_ahead(&self) -> u64 {
        if self.order.is_some() { 0 } else { self.bytes.memory() }
    }

    /// Forgets what was read before it is needed.
    pub(super) fn forget(&self) {
        self.bytes.forget();
    }

    /// See [`Source::version`](super::Source::version).
    pub(super) fn version(&self) -> Option<u128> {
        self.bytes.version()
    }

    /// Returns why the file is not read as requested.
    pub(super) fn warning(&self) -> Option<String> {
        let is_as_usual = self.notes.is_empty();
        (!is_as_usual).then(|| format!("{} {}", self.path.display(), self.notes.join("; it ")))
    }
}

/// Bytes of records that are read at once, to gather a field of them. They stay in the cache of a core.
const RECORDS: u64 = 128 << 10;
/// Of longer records, the field alone is read: so many bytes take several times as long as a call, if they are cached.
const LONG: u64 = 16 << 10;

thread_local! {
    /// The records from which a field is gathered.
    static GATHERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Fills `dst` with rows that are `stride` bytes apart, from the offset `at` on.
fn gather_by(
    at: u64,
    stride: u64,
    dtype: Dtype,
    dst: &mut [u8],
    read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    let size = dtype.size();
    let count = if stride > LONG { 1 } else { (RECORDS / stride) as usize };
    GATHERED.with_borrow_mut(|records| {
        for (piece, rows) in dst.chunks_mut(count * size).enumerate() {
            records.resize((rows.len() / size - 1) * stride as usize * usize::from(count > 1) + size, 0);
            read(at + piece as u64 * count as u64 * stride, records)?;
            gather(records, stride, dtype, rows);
        }
        Ok(())
    })
}

/// Copies rows that are `stride` bytes apart.
fn gather(from: &[u8], stride: u64, dtype: Dtype, dst: &mut [u8]) {
    fn copy<const N: usize>(from: &[u8], stride: usize, dst: &mut [u8]) {
        for (row, record) in dst.as_chunks_mut::<N>().0.iter_mut().zip(from.chunks(stride)) {
            if let Some(field) = record.first_chunk() {
                *row = *field;
            }
        }
    }
    // A stride beyond `usize` has one row.
    let stride = usize::try_from(stride).unwrap_or(usize::MAX);
    match dtype.size() {
        1 => copy::<1>(from, stride, dst),
        2 => copy::<2>(from, stride, dst),
        4 => copy::<4>(from, stride, dst),
        _ => copy::<8>(from, stride, dst),
    }
}

/// Copies the rows that start at row `first` out of `bytes`, which holds all rows. Returns `None` if there are not
/// enough rows.
pub(super) fn copy_rows(bytes: &[u8], first: u64, dtype: Dtype, dst: &mut [u8]) -> Option<()> {
    let start = usize::try_from(first).ok()?.checked_mul(dtype.size())?;
    let end = start.checked_add(dst.len())?;
    dst.copy_from_slice(bytes.get(start..end)?);
    Some(())
}

/// Reverses the bytes of every element.
pub(super) fn swap_bytes(rows: &mut [u8], size: usize) {
    fn swap<const N: usize>(rows: &mut [u8]) {
        for row in rows.as_chunks_mut::<N>().0 {
            row.reverse();
        }
    }
    match size {
        2 => swap::<2>(rows),
        4 => swap::<4>(rows),
        8 => swap::<8>(rows),
        _ => {}
    }
}
