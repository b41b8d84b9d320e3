//! The bytes of a file, as the crate parquet reads them: at any place, by several threads.

use super::super::file::{Opened, OpenedFrom};
use bytes::Bytes;
use parquet::errors::Result;
use parquet::file::reader::{ChunkReader, Length};
use std::io::{self, BufReader};
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

    pub(super) fn opened(&self) -> &Opened {
        &self.file
    }
}

impl Length for FileBytes {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for FileBytes {
    type T = BufReader<OpenedFrom>;

    fn get_read(&self, start: u64) -> Result<BufReader<OpenedFrom>> {
        // Headers of pages are read in this way, which have some dozen bytes.
        Ok(BufReader::with_capacity(512, Opened::from(&self.file, start)))
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
