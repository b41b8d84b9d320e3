//! What a process that must end at once removes first: output files that have no name of their own yet, and folders of the
//! demo.

use std::ffi::CStr;
use std::fs;
use std::io::Write;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{CWD, OFlags, fcntl_getfl, readlinkat_raw, unlink};
use rustix::io::{FdFlags, fcntl_getfd};

/// The ending of the name that a file has until it is complete.
pub const SUFFIX: &str = ".partial";
/// So many numbers without a descriptor in a row mean that there are no more: the system hands out the lowest free one.
const GAP: usize = 1000;

static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Has a folder removed, with all that is in it, if the process ends by a second signal.
pub fn folder(path: &Path) {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).push(path.into());
}

/// Removes all of them.
pub fn remove() {
    files();
    for folder in FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        let _ = fs::remove_dir_all(folder);
    }
}

/// Removes unfinished files. Allocates nothing and takes no lock, so that a signal handler may call it.
///
/// The files are those of our open descriptors: whatever has happened to their folder meanwhile, the system knows where they
/// are. Files without any name need no removal.
pub fn files() {
    let mut gap = 0;
    for fd in 3.. {
        if gap == GAP {
            return;
        }
        let mut link = [0; 32];
        if write!(&mut link[..31], "/proc/self/fd/{fd}").is_err() {
            return;
        }
        let Ok(link) = CStr::from_bytes_until_nul(&link) else { return };
        // With room for the zero at the end.
        let mut path = [0; 4097];
        let Ok(length) = readlinkat_raw(CWD, link, &mut path[..4096]) else {
            gap += 1;
            continue;
        };
        gap = 0;
        if is_partial(&path[..length])
            && is_written_by_us(fd)
            && let Ok(path) = CStr::from_bytes_with_nul(&path[..=length])
        {
            let _ = unlink(path);
        }
    }
}

/// Whether this is the path of a hidden file with our ending.
fn is_partial(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name.starts_with(b".") && name.ends_with(SUFFIX.as_bytes())
}

/// Whether this process itself opened the file, to write to it: what others hand down stays open across `exec`, and inputs
/// are only read.
fn is_written_by_us(fd: RawFd) -> bool {
    // SAFETY: it is only asked about, at once; a descriptor that was closed meanwhile gives an error.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl_getfd(fd).is_ok_and(|flags| flags.contains(FdFlags::CLOEXEC))
        && fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::RDWR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn only_unfinished_files_that_we_write_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let open = |name: &str| File::options().read(true).write(true).create_new(true).open(path(name)).unwrap();
        let kept = [open(".done"), open("not_hidden.partial")];
        File::create(path(".input.partial")).unwrap();
        let input = File::open(path(".input.partial")).unwrap();
        let unfinished = open(".c.npy.abc.partial");
        let moved = folder.path().with_extension("moved");
        fs::rename(folder.path(), &moved).unwrap();
        files();
        drop((kept, input, unfinished));
        let mut names: Vec<_> = fs::read_dir(&moved).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        fs::remove_dir_all(moved).unwrap();
        assert_eq!(names, [".done", ".input.partial", "not_hidden.partial"]);
    }
}
