//! The cache folder, where data is stored for this user from one process to the next: compiled kernels, measured
//! limits, and what runs learned about kinds of jobs.
//!
//! Compiled kernels from this folder are executed with access to the user's data. The folder and its files must
//! therefore belong to the user or to root, and nobody else may have write permission.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

/// Returns `$OVERSHOT_CACHE`, or else `overshot` in the user's cache folder. Returns `None` if `$OVERSHOT_CACHE` is
/// empty, which disables caching, or if there is no home folder. The folder may not exist yet.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    folder(|name| env::var_os(name))
}

fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(folder) = variable("OVERSHOT_CACHE") {
        return (!folder.is_empty()).then(|| folder.into());
    }
    // The XDG specification says that a relative path there is invalid and must be ignored.
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    base.map(|base| base.join("overshot"))
}

/// The reason why a file or folder is not used, with its path.
#[derive(Debug)]
pub(crate) struct Refused(String);

impl Refused {
    fn new(path: &Path, problem: impl fmt::Display) -> Self {
        Refused(format!("{}: {problem}", path.display()))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the content of a file of at most `most` bytes, or `None` if there is no file. Never blocks, whatever is
/// at the path.
///
/// # Errors
/// Returns [`Refused`] if another user could have written the file, or it cannot be read.
pub(crate) fn read(path: &Path, most: u64) -> Result<Option<Vec<u8>>, Refused> {
    let (folder, Some(name)) = (folder_of(path), path.file_name()) else { return Ok(None) };
    let opened = match openat(CWD, folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened.map_err(|error| Refused::new(folder, error))?,
    };
    check(folder, &opened, FileType::Directory)?;
    // A symbolic link could lead anywhere, and opening a pipe would block.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match openat(&opened, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(Refused::new(path, "is a symbolic link")),
        file => file.map_err(|error| Refused::new(path, error))?,
    };
    check(path, &file, FileType::RegularFile)?;
    let mut content = Vec::new();
    File::from(file).take(most + 1).read_to_end(&mut content).map_err(|error| Refused::new(path, error))?;
    if content.len() as u64 > most {
        return Err(Refused::new(path, format_args!("has more than {most} bytes")));
    }
    Ok(Some(content))
}

/// Writes a file that only this user may access, and creates its folder if necessary. Other processes see the whole
/// file or nothing.
///
/// # Errors
/// Returns [`Refused`] if others may write to the folder, or the file cannot be written.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> Result<(), Refused> {
    let folder = folder_of(path);
    let cannot = |error: io::Error| Refused::new(path, error);
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(cannot)?;
    let opened = openat(CWD, folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    check(folder, &opened.map_err(|error| cannot(error.into()))?, FileType::Directory)?;
    let mut draft = tempfile::NamedTempFile::new_in(folder).map_err(cannot)?;
    draft.write_all(content).map_err(cannot)?;
    draft.persist(path).map_err(|error| cannot(error.error))?;
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Checks that the opened file is of this type, and that only its owner, which is this user or root, may write to
/// it.
fn check(path: &Path, opened: &OwnedFd, wanted: FileType) -> Result<(), Refused> {
    let found = fstat(opened).map_err(|error| Refused::new(path, error))?;
    if FileType::from_raw_mode(found.st_mode) != wanted {
        return Err(Refused::new(path, "is not the expected kind of file"));
    }
    match distrust(found.st_uid, found.st_mode, rustix::process::geteuid().as_raw()) {
        Some(problem) => Err(Refused::new(path, problem)),
        None => Ok(()),
    }
}

/// Returns why `user` cannot trust a file with this owner and mode.
fn distrust(owner: u32, mode: u32, user: u32) -> Option<String> {
    if owner != user && owner != 0 {
        return Some(format!("belongs to another user (number {owner})"));
    }
    (mode & 0o022 != 0).then(|| {
        format!("others may write to it (mode {:o}); allow only its owner to write (chmod go-w)", mode & 0o7777)
    })
}

/// The FNV-1a hash. It is good enough to name files and to detect damage, and it is the same in every version of
/// Rust.
pub(crate) fn fnv1a(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_follows_the_environment() {
        let with = |pairs: &'static [(&str, &str)]| {
            folder(move |name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.into()))
        };
        assert_eq!(with(&[("OVERSHOT_CACHE", "/c"), ("HOME", "/h")]), Some("/c".into()));
        assert_eq!(with(&[("OVERSHOT_CACHE", ""), ("HOME", "/h")]), None);
        assert_eq!(with(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]), Some("/x/overshot".into()));
        assert_eq!(with(&[("XDG_CACHE_HOME", "x"), ("HOME", "/h")]), Some("/h/.cache/overshot".into()));
        assert_eq!(with(&[]), None);
    }

    fn permit(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_is_written_is_read_and_for_this_user_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a/b/file");
        assert_eq!(read(&path, 100).unwrap(), None);
        write_whole(&path, b"content").unwrap();
        assert_eq!(read(&path, 7).unwrap().as_deref(), Some(&b"content"[..]));
        assert_eq!(read(&home.path().join("a/b/other"), 100).unwrap(), None);
        let mode = |path: &str| {
            let found = std::fs::metadata(home.path().join(path)).unwrap();
            std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o777
        };
        assert_eq!(["a", "a/b", "a/b/file"].map(mode), [0o700, 0o700, 0o600]);
    }

    #[test]
    fn what_others_may_write_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("cache/file");
        write_whole(&path, b"content").unwrap();
        for (place, wrong, right) in [(&*path, 0o620, 0o600), (&*path, 0o602, 0o644), (folder_of(&path), 0o1777, 0o755)]
        {
            permit(place, wrong);
            let problem = read(&path, 100).unwrap_err().to_string();
            assert!(
                problem.starts_with(&place.display().to_string()) && problem.contains("others may write"),
                "{problem}"
            );
            permit(place, right);
            assert!(read(&path, 100).unwrap().is_some());
        }
        permit(folder_of(&path), 0o770);
        assert!(write_whole(&path, b"other").unwrap_err().to_string().contains("others may write"));
        permit(folder_of(&path), 0o700);
        assert_eq!(read(&path, 100).unwrap().as_deref(), Some(&b"content"[..]));
    }

    #[test]
    fn what_belongs_to_others_is_refused() {
        assert_eq!(distrust(1000, 0o100_644, 1000), None);
        assert_eq!(distrust(0, 0o100_644, 1000), None);
        assert!(distrust(1001, 0o100_600, 1000).unwrap().contains("another user (number 1001)"));
        assert!(distrust(1001, 0o100_600, 0).unwrap().contains("another user (number 1001)"));
        // The complete check, if the tests may change the owner of files.
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        write_whole(&path, b"content").unwrap();
        if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() && !rustix::process::geteuid().is_root() {
            unreachable!("only root gives files away");
        }
        let is_theirs = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&path).unwrap()) == 65534;
        assert_eq!(read(&path, 100).is_err(), is_theirs);
    }

    #[test]
    fn only_files_are_read_and_nothing_is_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let path = |name| home.path().join(name);
        write_whole(&path("file"), &[1; 101]).unwrap();
        rustix::fs::mkfifoat(CWD, path("pipe"), Mode::from(0o600)).unwrap();
        std::fs::create_dir(path("folder")).unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("zero")).unwrap();
        for (name, words) in [
            ("file", "more than 100 bytes"),
            ("pipe", "is not the expected"),
            ("folder", "is not the expected"),
            ("link", "symbolic link"),
            ("zero", "symbolic link"),
            ("file/below", "ot a directory"),
        ] {
            let problem = read(&path(name), 100).unwrap_err().to_string();
            assert!(problem.contains(words), "{name}: {problem}");
        }
        assert!(read(Path::new("/dev/zero"), 100).is_err());
    }
}
