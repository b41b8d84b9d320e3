//! Temporary names of outputs: of folders, and of files where the file system has no unnamed ones. They are removed
//! when a job ends, by a signal handler when a signal ends it, and reported when nothing could remove them.

use super::file::directory;
use super::signal_list::{Entry, PATH_BYTES, SignalList};
use rustix::fs::{CWD, FlockOperation};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tempfile::TempPath;

/// The end of a temporary name.
pub(super) const SUFFIX: &str = ".partial";
/// The end of the name of a file that several processes write.
pub(super) const SHARED_SUFFIX: &str = ".parts";
/// The end of the name of the journal of a run.
pub(crate) const JOURNAL_SUFFIX: &str = ".journal";

/// The end of the name of the journal of a merge.
pub(super) const MERGE_SUFFIX: &str = ".merge";

/// The system accepts names of up to 255 bytes. A name longer than this leaves no room for the added prefix and
/// suffix.
pub(super) const LONGEST_NAME: usize = 230;

/// The temporary names that exist now.
static UNFINISHED: SignalList = SignalList::new();

/// Removes the temporary files and folders of all unfinished outputs.
///
/// This function is for the signal handler of a process that is about to end: it takes no lock and allocates no
/// memory, so that it may be called at any time. Unnamed files do not need it.
pub fn remove_unfinished_outputs() {
    remove_unfinished(|_| true);
}

/// Removes the temporary files whose paths `wanted` accepts.
pub(super) fn remove_unfinished(wanted: impl Fn(&[u8]) -> bool) {
    let remove = |path: &[u8]| {
        let mut name = [0; PATH_BYTES];
        name[..path.len()].copy_from_slice(path);
        // An error could not be reported to anybody.
        if let (true, Ok(name)) = (wanted(path), CStr::from_bytes_until_nul(&name))
            && let Err(Errno::ISDIR) = rustix::fs::unlink(name)
        {
            // Other threads may still write to it.
            let _ = (0..100).find(|_| remove_folder(CWD, name).is_ok());
        }
    };
    UNFINISHED.each(|_| true, remove);
}

/// Removes a folder and what is in it. A signal handler may call it.
#[cfg(target_os = "linux")]
fn remove_folder(parent: impl AsFd, name: &CStr) -> rustix::io::Result<()> {
    use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(&parent, name, flags, Mode::empty())?;
    let mut buffer = [std::mem::MaybeUninit::uninit(); 2048];
    let mut entries = RawDir::new(&folder, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let inner = entry.file_name();
        if matches!(inner.to_bytes(), b"." | b"..") {
            continue;
        }
        match rustix::fs::unlinkat(&folder, inner, AtFlags::empty()) {
            // As deep as an array has dimensions.
            Err(Errno::ISDIR) => remove_folder(folder.as_fd(), inner)?,
            done => done?,
        }
    }
    rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)
}

/// Elsewhere, nothing lists a folder without allocations: the folder stays, and the next run reports it.
#[cfg(not(target_os = "linux"))]
fn remove_folder(_: impl AsFd, _: &CStr) -> rustix::io::Result<()> {
    Ok(())
}

/// Adds a folder to those that are removed before the process ends at once.
#[cfg(feature = "zarr")]
pub(super) fn watch_folder(path: &Path) -> Entry {
    UNFINISHED.add(path, 0..0)
}

/// A temporary name beside a target. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct Temporary {
    path: TempPath,
    entry: Option<Entry>,
}

impl Temporary {
    /// Creates a file with `make` under a temporary name beside `target`. `make` is called again with another name
    /// if a name is taken.
    pub(super) fn beside<T>(target: &Path, mut make: impl FnMut(&Path) -> io::Result<T>) -> io::Result<(Temporary, T)> {
        let made = tempfile::Builder::new()
            .prefix(&prefix_of(target))
            .suffix(SUFFIX)
            .make_in(directory(target), |path| make(path))?;
        let (made, path) = made.into_parts();
        let entry = Some(UNFINISHED.add(&path, 0..0));
        Ok((Temporary { path, entry }, made))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// From now on no signal handler removes the file.
    pub(super) fn withdraw(&mut self) {
        self.entry = None;
    }

    /// Keeps the file that has the name.
    pub(super) fn keep(self) -> PathBuf {
        let path = self.path.to_path_buf();
        // `keep` fails only if a file attribute cannot be changed, and there is no such attribute on Unix.
        let _ = self.path.keep();
        path
    }
}

/// Returns the begin of temporary names beside a target.
pub(super) fn prefix_of(target: &Path) -> OsString {
    let name = target.file_name().unwrap_or_default();
    let mut prefix = OsString::from(".");
    if name.len() <= LONGEST_NAME {
        prefix.push(name);
        prefix.push(".");
    }
    prefix
}

/// Locks a file with a temporary name while it is open, so that other processes see that it is in use. Without
/// support for locks the file has none, and other processes cannot tell.
pub(super) fn mark_in_use(file: &File) {
    let _ = rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
}

/// Returns notes about the temporary files that killed jobs left beside these paths, and about the files of jobs in
/// parts and of runs with a journal that are not complete. Nothing removed them, and they take as much space as the
/// whole output. They are only reported, because locks do not always tell whether a job on another machine still writes
/// to one. `own` are the names of files that this run shares with others.
pub(crate) fn leftovers<'p>(paths: impl Iterator<Item = &'p Path>, own: &[&OsStr]) -> Vec<String> {
    let mut directories: HashMap<&Path, HashSet<&OsStr>> = HashMap::new();
    for path in paths {
        if let Some(name) = path.file_name() {
            directories.entry(directory(path)).or_default().insert(name);
        }
    }
    let mut notes = Vec::new();
    for (directory, names) in directories {
        // An output whose directory cannot be read returns an error itself, or does not need one.
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let (name, path) = (entry.file_name(), entry.path());
            let is_one = |target: Option<&OsStr>| target.is_some_and(|target| names.contains(target));
            if is_one(target_of(&name, SUFFIX, 6)) && !is_in_use(&path) {
                notes.push(format!("{} was left by a job that was killed: remove it", path.display()));
            }
            if own.is_empty() && is_one(journaled(&name)) {
                let note = "is of a run that was interrupted: continue that run, or remove it";
                notes.push(format!("{} {note}", path.display()));
            }
            if is_one(target_of(&name, MERGE_SUFFIX, 16)) && !is_in_use(&path) {
                let note = "is of a merge that was interrupted: merge again, or remove it";
                notes.push(format!("{} {note}", path.display()));
            }
            if is_one(target_of(&name, SHARED_SUFFIX, 16)) && !own.contains(&&*name) {
                let note = "has rows of a job that is not complete: merge its partials or continue it, or remove it";
                notes.push(format!("{} {note}", path.display()));
            }
        }
    }
    notes.sort();
    notes
}

/// Returns the name of the output that a temporary name belongs to: `c.npy` for `.c.npy.yWftqi.partial`, with a suffix
/// and so many characters before it.
pub(super) fn target_of<'n>(name: &'n OsStr, suffix: &str, characters: usize) -> Option<&'n OsStr> {
    let name = name.as_bytes().strip_prefix(b".")?.strip_suffix(suffix.as_bytes())?;
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    let is_random = name.len() - dot == characters + 1 && name[dot + 1..].iter().all(u8::is_ascii_alphanumeric);
    (is_random && dot > 0).then(|| OsStr::from_bytes(&name[..dot]))
}

/// Returns the name of the output that a journal belongs to: `c.npy` for `.c.npy.journal`.
fn journaled(name: &OsStr) -> Option<&OsStr> {
    let name = name.as_bytes().strip_prefix(b".")?.strip_suffix(JOURNAL_SUFFIX.as_bytes())?;
    Some(OsStr::from_bytes(name))
}

/// Returns whether a running job writes to the file.
pub(super) fn is_in_use(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(e) => e == rustix::io::Errno::WOULDBLOCK,
        Ok(()) => false,
    }
}
