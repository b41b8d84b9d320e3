//! The bytes of a file, as the crate parquet reads them: at any place, by several threads.

use super::super::file::Opened;
use bytes::Bytes;
use parquet::errors::Result;
use parquet::file::reader::{ChunkReader, Length};
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// A file.
pub(super) struct FileBytes {
    file: Arc<Opened>,
    pub(super) len: u64,
    /// Bytes that are read before they are needed, if the file is on a server.
    ahead: Option<Arc<Ahead>>,
}

impl FileBytes {
    pub(super) fn new(file: Opened) -> FileBytes {
        let len = file.len;
        FileBytes { file: Arc::new(file), len, ahead: None }
    }

    pub(super) fn opened(&self) -> &Opened {
        &self.file
    }

    /// Returns whether the file is on a server.
    pub(super) fn is_remote(&self) -> bool {
        self.file.storage.file().is_none()
    }

    /// Returns the file for someone who reads these bytes of it from the first one to the last one, page by page.
    pub(super) fn in_order(&self, bytes: Range<u64>) -> FileBytes {
        let ahead = || Arc::new(Ahead { file: self.file.clone(), end: bytes.end, read: Mutex::default() });
        let ahead = self.is_remote().then(ahead);
        FileBytes { file: self.file.clone(), len: self.len, ahead }
    }
}

/// Reads more of a server's file at once than what is asked for, which is a page or its header of some dozen bytes.
struct Ahead {
    file: Arc<Opened>,
    /// Where the bytes end that are wanted.
    end: u64,
    /// An offset, and bytes from there on.
    read: Mutex<(u64, Vec<u8>)>,
}

impl Ahead {
    fn read_at(&self, dst: &mut [u8], at: u64) -> io::Result<()> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, bytes) = &mut *read;
        let known = at.checked_sub(*first).and_then(|skip| bytes.get(usize::try_from(skip).ok()?..)?.get(..dst.len()));
        if let Some(known) = known {
            dst.copy_from_slice(known);
            return Ok(());
        }
        let step = usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX).min(self.file.step(0));
        if dst.len() >= step {
            return self.file.read_at(dst, at);
        }
        // What is left of a read that failed is not known.
        bytes.clear();
        let mut next = std::mem::take(bytes);
        next.resize(step, 0);
        self.file.read_at(&mut next, at)?;
        dst.copy_from_slice(&next[..dst.len()]);
        *read = (at, next);
        Ok(())
    }
}

/// Reads a file from an offset on.
pub(super) struct BytesFrom {
    file: Arc<Opened>,
    ahead: Option<Arc<Ahead>>,
    at: u64,
}

impl Read for BytesFrom {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.file.len.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let len = buf.len().min(left);
        let dst = &mut buf[..len];
        match &self.ahead {
            Some(ahead) => ahead.read_at(dst, self.at)?,
            None => self.file.read_at(dst, self.at)?,
        }
        self.at += len as u64;
        Ok(len)
    }
}

impl Length for FileBytes {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for FileBytes {
    type T = BufReader<BytesFrom>;

    fn get_read(&self, start: u64) -> Result<BufReader<BytesFrom>> {
        let from = BytesFrom { file: self.file.clone(), ahead: self.ahead.clone(), at: start };
        // Headers of pages are read in this way, which have some dozen bytes.
        Ok(BufReader::with_capacity(512, from))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        // A damaged length must not make us ask for more memory than the file has bytes.
        if start.checked_add(length as u64).is_none_or(|end| end > self.len) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut bytes = vec![0; length];
        match &self.ahead {
            Some(ahead) => ahead.read_at(&mut bytes, start)?,
            None => self.file.read_at(&mut bytes, start)?,
        }
        Ok(bytes.into())
    }
}
