//! Measurements of files: in the page cache, new files, and reads from the disk.
//!
//! The files have no name, so the system removes them when the process ends, even if it is killed.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use memmap2::MmapMut;

use super::HostLimits;
use super::host::{Ordinary, PIECE, SLOT, Slots};
use super::rates::RateByThreads;
use super::team::{LEAST_RUNS, best, per_second, repeats, seconds, thread_counts};
use crate::data::{DIRECT_PIECE, Dtype, SinkMemory, map_file, reserve};

/// The most bytes of a new file.
const NEW_FILE: usize = 1 << 30;
/// Bytes that stay in the first-level cache, from which new files are written.
const TILE: usize = 32 << 10;
/// The bytes of a new file that is written first, to find out how large one must be for a run that is long enough.
const FIRST_FILE: usize = 32 << 20;
/// The most bytes of the file that is read from the disk.
const FILE: usize = 128 << 20;
/// Threads that read from the disk. Disks need several concurrent requests, whatever the number of cores.
const DIRECT_THREADS: [usize; 3] = [4, 16, 64];
/// Bytes written between two syncs to the disk, and the time after which no more are written.
const SYNC: usize = 16 << 20;
const SYNC_TIME: Duration = Duration::from_millis(400);

/// Measures the rates of files in `folder`. A measurement that is not possible becomes a note.
pub(super) fn measure(
    host: &mut HostLimits,
    memory: &Ordinary,
    folder: &Path,
    notes: &mut Vec<String>,
    progress: &mut dyn FnMut(&str),
) {
    let mut note = |what: &str, error: io::Error| {
        notes.push(format!("{what} was not measured: {} does not support it ({error})", folder.display()));
    };
    progress("a file in memory");
    match page_cache(memory, folder, host.cores) {
        Ok(rates) => host.page_cache = rates,
        Err(error) => note("reading files in the page cache", error),
    }
    progress("a new file");
    match new_file(memory.bytes().len(), folder, host.cores) {
        Ok(rates) => host.new_file = rates,
        Err(error) => note("writing new files", error),
    }
    progress("the disk");
    match direct_read(memory, folder) {
        Ok(rates) => host.direct_read = rates,
        Err(error) => note("reading the disk without the page cache", error),
    }
}

/// Creates a file without a name, if there is space for `bytes` and much more.
fn file(folder: &Path, bytes: usize) -> io::Result<File> {
    let file = tempfile::tempfile_in(folder)?;
    let space = rustix::fs::fstatvfs(&file)?;
    // A file system that does not know its space reports 0 blocks.
    if space.f_blocks > 0 && space.f_bavail.saturating_mul(space.f_frsize) / 4 < bytes as u64 {
        return Err(ErrorKind::StorageFull.into());
    }
    Ok(file)
}

fn page_cache(memory: &Ordinary, folder: &Path, cores: usize) -> io::Result<Vec<RateByThreads>> {
    let content = memory.bytes();
    let content = &content[..content.len() / 2];
    let mut file = file(folder, content.len())?;
    file.write_all(content)?;
    let rate = |threads| {
        let mut team = Slots::of(threads)?;
        // New mappings each time, because a job also maps its files anew and accesses every page for the first time.
        let mut run = |times: usize| {
            // SAFETY: the file has no name, so nobody else can open it, and it contains all of `content`.
            let map = || unsafe { map_file(&file, content.len() as u64) }.ok_or(ErrorKind::Unsupported);
            let maps = (0..times).map(|_| map()).collect::<Result<Vec<_>, _>>()?;
            let pieces = maps.iter().flat_map(|map| map.chunks(PIECE));
            seconds(&mut team, pieces, |slots, piece| {
                slots.fill(piece);
                Ok(())
            })
        };
        let times = repeats(run(1)?);
        let rate = best(LEAST_RUNS, || io::Result::Ok(per_second(times * content.len(), run(times)?)))?;
        Ok(RateByThreads::new(threads, rate))
    };
    thread_counts(cores).into_iter().map(rate).collect()
}

/// Measures files of at most `most` bytes.
fn new_file(most: usize, folder: &Path, cores: usize) -> io::Result<Vec<RateByThreads>> {
    let most = most.min(NEW_FILE);
    let rate = |threads| {
        // The rows are written from the cache: the cores have just computed them, or a device has just copied them.
        let mut team = vec![[1; TILE]; threads];
        let mut run = |bytes: usize| {
            let file = file(folder, bytes)?;
            if !reserve(&file, bytes as u64)? {
                return Err(ErrorKind::Unsupported.into());
            }
            let map = SinkMemory::map(&file, 0..bytes as u64, Dtype::U8).ok_or(ErrorKind::Unsupported)?;
            // As large as a huge page, so that no two threads create the same one.
            seconds(&mut team, (0..bytes).step_by(SLOT), |tile, first| {
                let end = bytes.min(first + SLOT);
                for part in map.claim(first as u64..end as u64).chunks_mut(TILE) {
                    map.copy(part, &tile[..part.len()]);
                }
                Ok(())
            })
        };
        let first = most.min(FIRST_FILE);
        // At the end, some threads have nothing left to write. A long run has a short end.
        let bytes = first.saturating_mul(4 * repeats(run(first)?)).min(most);
        let rate = best(LEAST_RUNS, || io::Result::Ok(per_second(bytes, run(bytes)?)))?;
        Ok(RateByThreads::new(threads, rate))
    };
    thread_counts(cores).into_iter().map(rate).collect()
}

fn direct_read(memory: &Ordinary, folder: &Path) -> io::Result<Vec<RateByThreads>> {
    let content = &memory.bytes()[..memory.bytes().len().min(FILE)];
    let mut file = file(folder, content.len())?;
    past_the_cache(&file, true)?;
    past_the_cache(&file, false)?;
    // The file must be on the disk before it can be read from there, which takes long on slow disks.
    let (begin, mut bytes) = (Instant::now(), 0);
    for part in content.chunks(SYNC) {
        file.write_all(part)?;
        file.sync_data()?;
        bytes += part.len() / DIRECT_PIECE * DIRECT_PIECE;
        if begin.elapsed() > SYNC_TIME {
            break;
        }
    }
    if bytes == 0 {
        return Err(io::Error::other("there is too little memory"));
    }
    past_the_cache(&file, true)?;
    let rate = |threads| {
        let mut buffers = buffers(threads)?;
        let times = repeats(read_directly(&file, bytes, 1, &mut buffers)?);
        let run = || io::Result::Ok(per_second(times * bytes, read_directly(&file, bytes, times, &mut buffers)?));
        Ok(RateByThreads::new(threads, best(LEAST_RUNS, run)?))
    };
    DIRECT_THREADS.into_iter().map(rate).collect()
}

/// One buffer for each thread.
fn buffers(threads: usize) -> io::Result<Vec<MmapMut>> {
    // Whole pages, as direct reads require.
    let buffers = (0..threads).map(|_| MmapMut::map_anon(DIRECT_PIECE));
    let mut buffers = buffers.collect::<io::Result<Vec<_>>>()?;
    buffers.iter_mut().for_each(|buffer| buffer.fill(1));
    Ok(buffers)
}

/// Reads the first `bytes` of a file several times without the page cache, with one thread per buffer. Returns the time
/// in seconds.
fn read_directly(file: &File, bytes: usize, times: usize, buffers: &mut [MmapMut]) -> io::Result<f64> {
    let pieces = (0..times).flat_map(|_| (0..bytes).step_by(DIRECT_PIECE));
    seconds(buffers, pieces, |buffer, start| {
        file.read_exact_at(&mut buffer[..DIRECT_PIECE.min(bytes - start)], start as u64)
    })
}

/// Returns the bytes per second of direct reads of a file, read once and not processed: the reference for a job that
/// reads it. The last bytes are omitted if they do not fill a page.
#[cfg(feature = "testing")]
pub(crate) fn bare_direct_read(path: &Path) -> io::Result<f64> {
    const PAGE: usize = 4096;
    let file = File::open(path)?;
    past_the_cache(&file, true)?;
    let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)? / PAGE * PAGE;
    let mut buffers = buffers(DIRECT_THREADS[1])?;
    Ok(per_second(bytes, read_directly(&file, bytes, 1, &mut buffers)?))
}

/// Sets whether reads of the file bypass the page cache.
#[cfg(target_os = "linux")]
fn past_the_cache(file: &File, direct: bool) -> io::Result<()> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fstatfs};
    const TMPFS: u64 = 0x0102_1994;
    if fstatfs(file)?.f_type as u64 == TMPFS {
        return Err(io::Error::other("it is in memory, not on a disk"));
    }
    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, direct);
    Ok(fcntl_setfl(file, flags)?)
}

#[cfg(not(target_os = "linux"))]
fn past_the_cache(_: &File, _: bool) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_rates_and_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let memory = Ordinary::new((4 << 20) + 8, 1).unwrap();
        let (mut host, mut notes) = (HostLimits { cores: 3, ..HostLimits::default() }, Vec::new());
        measure(&mut host, &memory, folder.path(), &mut notes, &mut |_| {});
        assert_eq!(host.page_cache.len(), 3, "{notes:?}");
        let lists = [&host.page_cache, &host.new_file, &host.direct_read];
        assert!(lists.into_iter().flatten().all(|rate| rate.bytes_per_second > 0.0), "{host:?}");
        // If the file system of the test cannot do something, it is in the notes.
        let missing = [&host.new_file, &host.direct_read].iter().filter(|rates| rates.is_empty()).count();
        assert_eq!(notes.len(), missing, "{notes:?}");
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_cannot_have_files_is_a_note() {
        let memory = Ordinary::new(1 << 20, 1).unwrap();
        let (mut host, mut notes) = (HostLimits::default(), Vec::new());
        measure(&mut host, &memory, Path::new("/proc"), &mut notes, &mut |_| {});
        assert_eq!((host, notes.len()), (HostLimits::default(), 3));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_is_no_disk() {
        // Not every machine has a file system in memory here.
        if let Ok(file) = tempfile::tempfile_in("/dev/shm") {
            assert!(past_the_cache(&file, true).is_err());
        }
    }
}
