//! Direct I/O: reads that bypass the page cache, for files that are not in it and would not stay in it.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::{Pod, Zeroable};

/// The alignment of offsets, lengths and memory that disks require. Many disks accept less.
const ALIGNMENT: u64 = 4096;
/// Bytes of one read. This is enough for full disk speed when each worker reads sequentially and several workers
/// read concurrently; larger reads are slower on virtual disks.
pub(crate) const PIECE: usize = 512 << 10;

/// A file opened a second time, for direct I/O.
#[derive(Debug)]
pub(super) struct Direct {
    file: File,
    /// Number of bytes read so far.
    read: AtomicU64,
}

#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C, align(4096))]
struct Page([u8; ALIGNMENT as usize]);

thread_local! {
    /// A bounce buffer for bytes whose alignment in the file differs from their alignment in memory. The additional
    /// copy costs nothing at the speed of a disk, because the buffer stays in the cache.
    static BOUNCE: RefCell<Vec<Page>> = const { RefCell::new(Vec::new()) };
}

impl Direct {
    /// Opens the file once more, by its path. Returns `None` if its file system does not support direct I/O, or another
    /// file has the path now.
    pub(super) fn open(path: &Path, opened: &File) -> Option<Direct> {
        #[cfg(target_os = "linux")]
        let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
        #[cfg(not(target_os = "linux"))]
        let flags = return None;
        let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
        let [now, before] = [&file, opened].map(|file| file.metadata().map(|of| (of.dev(), of.ino())));
        if now.ok()? != before.ok()? {
            return None;
        }
        // Some file systems open the file and then require other alignments or refuse every read.
        let direct = Direct { file, read: AtomicU64::new(0) };
        direct.bounce(0, &mut [0]).ok()?;
        Some(direct)
    }

    /// Returns the number of bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Fills `dst` with the bytes of the file that start at `at`.
    pub(super) fn read(&self, mut at: u64, mut dst: &mut [u8]) -> io::Result<()> {
        self.read.fetch_add(dst.len() as u64, Ordering::Relaxed);
        while !dst.is_empty() {
            let aligned = at.is_multiple_of(ALIGNMENT) && (dst.as_ptr() as u64).is_multiple_of(ALIGNMENT);
            let whole = dst.len().min(PIECE) / ALIGNMENT as usize * ALIGNMENT as usize;
            let done = if aligned && whole > 0 {
                match self.read_at(&mut dst[..whole], at)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    done => done,
                }
            } else {
                self.bounce(at, dst)?
            };
            dst = &mut dst[done..];
            at += done as u64;
        }
        Ok(())
    }

    fn read_at(&self, dst: &mut [u8], at: u64) -> io::Result<usize> {
        loop {
            match self.file.read_at(dst, at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// Reads the aligned piece that contains `at`, and copies the requested part of it. Returns the number of bytes
    /// copied.
    fn bounce(&self, at: u64, dst: &mut [u8]) -> io::Result<usize> {
        BOUNCE.with_borrow_mut(|pages| {
            pages.resize(PIECE / ALIGNMENT as usize, Page::zeroed());
            let piece: &mut [u8] = bytemuck::cast_slice_mut(pages);
            let skip = (at % ALIGNMENT) as usize;
            let wanted = (skip + dst.len()).next_multiple_of(ALIGNMENT as usize).min(PIECE);
            let got = self.read_at(&mut piece[..wanted], at - skip as u64)?;
            let done = got.saturating_sub(skip).min(dst.len());
            if done == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            dst[..done].copy_from_slice(&piece[skip..skip + done]);
            Ok(done)
        })
    }
}

/// Returns whether a range of a file seems to be in the page cache, judging by a few of its bytes. Returns `true`
/// if the system cannot tell.
pub(super) fn is_cached(file: &File, start: u64, bytes: u64) -> bool {
    const LOOKS: u64 = 4;
    (0..LOOKS).all(|look| is_byte_cached(file, start + bytes * look / LOOKS))
}

#[cfg(target_os = "linux")]
fn is_byte_cached(file: &File, at: u64) -> bool {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    let mut byte = [0];
    let read =
        rustix::io::retry_on_intr(|| preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT));
    read != Err(Errno::AGAIN)
}

#[cfg(not(target_os = "linux"))]
fn is_byte_cached(_: &File, _: u64) -> bool {
    true
}

/// Returns the size in bytes of this machine's memory, or of the part that this process may use; `u64::MAX` if it is
/// unknown. The page cache of its files counts as used by the process.
pub(super) fn memory() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let info = rustix::system::sysinfo();
        let all = info.totalram.saturating_mul(u64::from(info.mem_unit));
        crate::cgroup::memory_bytes().unwrap_or(u64::MAX).min(all)
    }
    #[cfg(not(target_os = "linux"))]
    u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    proptest! {
        #[test]
        fn reads_what_is_there(at in 0usize..1_400_000, len in 0usize..1_400_000, shift in 0usize..5000) {
            let bytes: Vec<u8> = (0..1_400_001u32).map(|i| (i.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&bytes).unwrap();
            let Some(direct) = Direct::open(file.path(), file.as_file()) else { return Ok(()) };
            let mut dst = vec![0; shift + len];
            match bytes.get(at..at + len) {
                Some(expected) => {
                    direct.read(at as u64, &mut dst[shift..]).unwrap();
                    prop_assert!(&dst[shift..] == expected);
                    prop_assert_eq!(direct.bytes(), len as u64);
                }
                None => prop_assert!(direct.read(at as u64, &mut dst[shift..]).is_err()),
            }
        }
    }

    #[test]
    fn what_was_just_read_is_cached() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[1; 100_000]).unwrap();
        std::fs::read(file.path()).unwrap();
        assert!(is_cached(file.as_file(), 0, 100_000));
    }
}
