//! The bytes of a file, as the crate parquet reads them: at any place, by several threads.

use super::super::file::Opened;
use bytes::Bytes;
use parquet::errors::Result;
use parquet::file::reader::{ChunkReader, Length};
use std::io::{self, BufReader, Read};
use std::sync::Arc;

/// A file.
pub(super) struct FileBytes {
    file: Arc<Opened>,
    pub(super) len: u64,
}

impl FileBytes {
    pub(super) fn new(file: Opened) -> FileBytes {
        let len = file.len;
        FileBytes { file: Arc::new(file), len }
    }

    /// See [`Source::version`](crate::Source::version).
    pub(super) fn version(&self) -> Option<u128> {
        self.file.version()
    }
}

impl Length for FileBytes {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for FileBytes {
    type T = BufReader<From>;

    fn get_read(&self, start: u64) -> Result<BufReader<From>> {
        // Headers of pages are read in this way, which have some dozen bytes.
        Ok(BufReader::with_capacity(512, From { file: self.file.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        // A damaged length must not make us ask for more memory than the file has bytes.
        if start.checked_add(length as u64).is_none_or(|end| end > self.len) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut bytes = vec![0; length];
        self.file.read_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// Reads a file from a place on.
pub(super) struct From {
    file: Arc<Opened>,
    at: u64,
}

impl Read for From {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.file.len.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let len = buf.len().min(left);
        self.file.read_at(&mut buf[..len], self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}
