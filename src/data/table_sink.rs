//! Outputs that are columns of one new file.
//!
//! Each column has a sink of its own. The file gets its name when all columns are complete: the sinks share it, and the
//! first one that is published or committed does so for all. If fewer rows are kept, the columns move together, so that
//! the file is the one that these rows alone would have.

use super::arrow::NewTable;
use super::file::{announce_map, write_error};
use super::gate::Gate;
use super::new_file::{NewColumn, misfit, note, publish, require_sync, unequal, writers};
use super::signal_list::Entry;
use super::sink::rows_of;
use super::unfinished_file::UnfinishedFile;
use super::{Dtype, Sink, SinkMemory};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Values are moved in pieces of so many bytes.
const PIECE: u64 = 8 << 20;

/// The file that the columns share.
#[derive(Debug)]
struct TableFile {
    path: PathBuf,
    /// `None` after the commit.
    file: RwLock<Option<UnfinishedFile>>,
    columns: Vec<(String, Dtype)>,
    /// The rows of each column.
    rows: Mutex<Vec<u64>>,
    writers: Gate,
    fsync: bool,
}

/// The rows of one column.
#[derive(Debug)]
struct ColumnSink {
    table: Arc<TableFile>,
    column: usize,
    /// The rows that it has room for.
    room: u64,
    /// The offset of the first row, in bytes.
    offset: u64,
    map: Option<(SinkMemory<'static>, Entry)>,
}

/// Creates a file with these columns, which have the same number of rows, and returns a sink for each.
///
/// # Errors
/// Returns an error if the file cannot be created.
pub(super) fn create(path: &Path, columns: Vec<NewColumn>, (force, fsync): (bool, bool)) -> Result<Vec<Box<dyn Sink>>> {
    let rows = columns.first().map_or(0, |first| first.rows);
    let columns: Vec<(String, Dtype)> = columns.into_iter().map(|column| (column.name, column.dtype)).collect();
    let row_bytes: u64 = columns.iter().map(|(_, dtype)| dtype.size() as u64).sum();
    // Each column has room for less than this.
    if rows.checked_mul(row_bytes).is_none_or(|bytes| i64::try_from(bytes).is_err()) {
        let dtypes: Vec<String> = columns.iter().map(|(_, dtype)| dtype.to_string()).collect();
        let problem = format!("cannot hold {rows} rows of {}", dtypes.join(", "));
        return Err(Error::file(path, problem, "write fewer rows"));
    }
    let table = layout(&columns, rows);
    let (header, trailer) = (table.header(), table.trailer());
    let place = |column| header.len() as u64 + table.offset(column);
    let end = |column: usize| place(column) + rows * columns[column].1.size() as u64;
    let last = end(columns.len() - 1);
    let unfinished = UnfinishedFile::create(path, last + trailer.len() as u64, force)?;
    if fsync {
        require_sync(path, unfinished.target())?;
    }
    unfinished.write_at(&header, 0)?;
    unfinished.write_at(&trailer, last)?;
    let map = |column: usize| {
        let rows = place(column)..end(column);
        let map = SinkMemory::map(unfinished.file(), rows, columns[column].1).filter(|_| unfinished.is_reserved())?;
        let entry = announce_map(path, map.address());
        Some((map, entry))
    };
    let opened: Vec<_> = (0..columns.len()).map(|column| (place(column), map(column))).collect();
    let shared = Arc::new(TableFile {
        path: path.to_owned(),
        rows: Mutex::new(vec![rows; columns.len()]),
        file: RwLock::new(Some(unfinished)),
        columns,
        writers: Gate::new(writers()),
        fsync,
    });
    let sink = |(column, (offset, map))| {
        let table = shared.clone();
        Box::new(ColumnSink { table, column, room: rows, offset, map }) as Box<dyn Sink>
    };
    Ok(opened.into_iter().enumerate().map(sink).collect())
}

fn layout(columns: &[(String, Dtype)], rows: u64) -> NewTable<'_> {
    NewTable { columns: columns.iter().map(|(name, dtype)| (&**name, *dtype)).collect(), rows }
}

impl TableFile {
    fn rows(&self) -> MutexGuard<'_, Vec<u64>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the file, unless it is committed.
    fn with<T: Default>(&self, does: impl FnOnce(&UnfinishedFile) -> Result<T>) -> Result<T> {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        file.as_ref().map_or_else(|| Ok(T::default()), does)
    }

    /// Moves the columns together, from room for `room` rows on, of which they have `rows`.
    fn shorten(&self, file: &UnfinishedFile, room: u64, rows: u64) -> Result<()> {
        let (old, new) = (layout(&self.columns, room), layout(&self.columns, rows));
        let header = new.header();
        let start = header.len() as u64;
        let mut buffer = vec![];
        for (column, (_, dtype)) in self.columns.iter().enumerate() {
            let bytes = rows * dtype.size() as u64;
            let (from, to) = (start + old.offset(column), start + new.offset(column));
            // A piece is never moved to where values follow that are still to be moved.
            for at in (0..if from == to { 0 } else { bytes.div_ceil(PIECE) }).map(|piece| piece * PIECE) {
                buffer.resize((bytes - at).min(PIECE) as usize, 0);
                file.read_at(&mut buffer, from + at)?;
                file.write_at(&buffer, to + at)?;
            }
            file.write_at(&new.padding(*dtype), to + bytes)?;
        }
        file.write_at(&header, 0)?;
        let (end, trailer) = (start + new.last_end(), new.trailer());
        file.write_at(&trailer, end)?;
        let len = end + trailer.len() as u64;
        file.file().set_len(len).map_err(|e| write_error(&self.path, len, e))
    }
}

impl ColumnSink {
    fn size(&self) -> u64 {
        self.table.columns[self.column].1.size() as u64
    }

    fn kept(&self) -> u64 {
        self.table.rows()[self.column]
    }
}

impl Sink for ColumnSink {
    fn write(&self, first_row: u64, bytes: &[u8]) -> Result<()> {
        let rows = rows_of(first_row, bytes, self.size() as usize).filter(|rows| rows.end <= self.room);
        let refused = || misfit(&self.table.path, first_row, bytes);
        let rows = rows.ok_or_else(refused)?;
        let _pass = self.table.writers.enter();
        let Some((map, _)) = &self.map else {
            return self.table.with(|file| file.write_at(bytes, self.offset + rows.start * self.size()));
        };
        let mut claim = map.try_claim(rows).ok_or_else(refused)?;
        map.copy(&mut claim, bytes);
        Ok(())
    }

    fn warning(&self) -> Option<String> {
        // One for the file is enough.
        let warning = |file: &UnfinishedFile| Ok(note(file, self.map.is_none() && self.room > 0));
        self.table.with(warning).ok().flatten().filter(|_| self.column == 0)
    }

    fn truncate(&mut self, rows: u64) -> Result<()> {
        // The maps must be gone first, because nobody may touch pages that the file no longer has.
        self.map = None;
        let mut all = self.table.rows();
        all[self.column] = rows;
        // Until the last column has the rows, the others stay where they are.
        match all.iter().all(|own| *own == rows) {
            true => self.table.with(|file| self.table.shorten(file, self.room, rows)),
            false => Ok(()),
        }
    }

    fn header_bytes(&self) -> u64 {
        layout(&self.table.columns, self.kept()).header().len() as u64
    }

    /// Also those of the other columns.
    fn trailer_bytes(&self) -> u64 {
        let table = layout(&self.table.columns, self.kept());
        table.last_end() + table.trailer().len() as u64 - self.kept() * self.size()
    }

    fn read_back(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        self.table.with(|file| file.read_at(to, offset))
    }

    fn check(&self) -> Result<()> {
        let (table, rows) = (&*self.table, self.table.rows());
        if let Some(other) = rows.iter().position(|own| *own != rows[0]) {
            return Err(unequal(&table.path, &table.columns[0].0, rows[0], &table.columns[other].0, rows[other]));
        }
        table.with(|file| {
            file.check()?;
            if table.fsync { file.sync() } else { Ok(()) }
        })
    }

    fn publish(&mut self) -> Result<()> {
        self.map = None;
        let mut file = self.table.file.write().unwrap_or_else(PoisonError::into_inner);
        file.as_mut().map_or(Ok(()), |file| publish(file, self.table.fsync))
    }

    fn commit(mut self: Box<Self>) -> Result<()> {
        self.publish()?;
        let file = self.table.file.write().unwrap_or_else(PoisonError::into_inner).take();
        file.map_or(Ok(()), UnfinishedFile::commit)
    }
}
