//! The folder, its files, and the log of their changes.

use std::collections::HashSet;
use std::env;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard};

use crate::event::Event;
use crate::system;

pub static FOLDER: LazyLock<Option<Folder>> = LazyLock::new(Folder::from_env);

pub struct Folder {
    path: PathBuf,
    is_recorded: bool,
    log: Mutex<Log>,
}

pub struct Log {
    /// The numbers of the files that were opened in the folder.
    pub files: HashSet<u64>,
    descriptor: Option<c_int>,
}

impl Log {
    pub fn add(&mut self, event: &Event) {
        let Some(descriptor) = self.descriptor else { return };
        let bytes = event.to_bytes();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let written = system!(SYS_write, descriptor, rest.as_ptr(), rest.len());
            if written <= 0 {
                // A message would be written through this library, which is locked.
                std::process::abort();
            }
            rest = &rest[written as usize..];
        }
    }
}

impl Folder {
    fn from_env() -> Option<Folder> {
        let path = PathBuf::from(env::var_os("OVERSHOT_FILES_FOLDER")?);
        let log = env::var_os("OVERSHOT_FILES_LOG").map(|log| {
            let log = CString::new(log.as_bytes()).unwrap();
            let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
            let descriptor = system!(SYS_openat, libc::AT_FDCWD, log.as_ptr(), flags, 0o600);
            assert!(descriptor >= 0, "the log cannot be opened");
            descriptor as c_int
        });
        let files = Mutex::new(Log { files: HashSet::new(), descriptor: log });
        Some(Folder { path, is_recorded: log.is_some(), log: files })
    }

    pub fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap()
    }

    fn absolute(at: c_int, path: *const c_char) -> Option<PathBuf> {
        if path.is_null() || at != libc::AT_FDCWD {
            // Overshot names files by their paths.
            return None;
        }
        // SAFETY: the caller of the replaced function passed the path.
        let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
        if path.is_absolute() { Some(path.into()) } else { Some(env::current_dir().ok()?.join(path)) }
    }

    /// Returns the name of a path in the folder, which has a slash if it is in one of its folders.
    pub fn name_at(&self, at: c_int, path: *const c_char) -> Option<String> {
        let path = Self::absolute(at, path)?;
        let name = path.strip_prefix(&self.path).ok()?.to_str()?;
        (!name.is_empty()).then(|| name.to_owned())
    }

    /// Returns whether a path is that of the folder, or in it.
    pub fn has(&self, at: c_int, path: *const c_char) -> bool {
        Self::absolute(at, path).is_some_and(|path| path.starts_with(&self.path))
    }

    /// Returns the name of an open folder, which is empty for this one.
    pub fn name_of(&self, file: c_int) -> Option<String> {
        let link = CString::new(format!("/proc/self/fd/{file}")).unwrap();
        let mut path = [0u8; libc::PATH_MAX as usize];
        let len = system!(SYS_readlinkat, libc::AT_FDCWD, link.as_ptr(), path.as_mut_ptr(), path.len());
        let path = Path::new(OsStr::from_bytes(path.get(..usize::try_from(len).ok()?)?));
        Some(path.strip_prefix(&self.path).ok()?.to_str()?.to_owned())
    }
}

fn stat(file: c_int) -> Option<libc::stat64> {
    let mut stat = std::mem::MaybeUninit::<libc::stat64>::zeroed();
    // SAFETY: a structure of zeros is one, and the system call fills it.
    (system!(SYS_fstat, file, stat.as_mut_ptr()) == 0).then(|| unsafe { stat.assume_init() })
}

fn stat_at(at: c_int, path: *const c_char) -> Option<libc::stat64> {
    let mut stat = std::mem::MaybeUninit::<libc::stat64>::zeroed();
    // SAFETY: as above.
    (system!(SYS_newfstatat, at, path, stat.as_mut_ptr(), 0) == 0).then(|| unsafe { stat.assume_init() })
}

pub fn exists(at: c_int, path: *const c_char) -> bool {
    stat_at(at, path).is_some()
}

/// Returns the number of a file by its name.
pub fn number(at: c_int, path: *const c_char) -> Option<u64> {
    stat_at(at, path).map(|stat| stat.st_ino)
}

/// Returns the number of an open regular file.
pub fn regular(file: c_int) -> Option<u64> {
    stat(file).filter(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG).map(|stat| stat.st_ino)
}

/// Returns the number of an open file of the folder.
pub fn tracked(file: c_int) -> Option<(&'static Folder, u64)> {
    let folder = FOLDER.as_ref()?;
    let number = regular(file)?;
    folder.log().files.contains(&number).then_some((folder, number))
}

pub fn len(file: c_int) -> u64 {
    stat(file).map_or(0, |stat| stat.st_size as u64)
}

/// Returns when a file was changed: seconds and nanoseconds.
pub fn modified(file: c_int) -> [i64; 2] {
    stat(file).map_or([0; 2], |stat| [stat.st_mtime, stat.st_mtime_nsec])
}

pub fn position(file: c_int) -> i64 {
    system!(SYS_lseek, file, 0, libc::SEEK_CUR)
}
