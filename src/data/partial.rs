//! A file that gets its name only when it is complete.

use super::file::{directory, io_error, write_error};
use crate::error::{Error, Result};
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file of fixed length under a temporary name; dropping it removes it.
#[derive(Debug)]
pub(super) struct Partial {
    /// The path as the user gave it, for messages.
    path: PathBuf,
    /// The name to take: `path` with its links followed, absolute, so that it means the same at the end.
    target: PathBuf,
    temporary: NamedTempFile,
    len: u64,
    force: bool,
    reserved: bool,
}

impl Partial {
    /// Makes a file of `len` bytes beside `path`, in space of its own.
    ///
    /// # Errors
    /// When `path` exists and `force` is not set, is no regular file, or has no directory in which it can be made; or
    /// when `len` bytes do not fit.
    pub fn create(path: &Path, len: u64, force: bool) -> Result<Self> {
        Self::create_with(path, len, force, reserve)
    }

    /// `create` with the system's way to reserve space replaced, for tests.
    pub fn create_with(
        path: &Path,
        len: u64,
        force: bool,
        reserve: fn(&File, u64) -> io::Result<bool>,
    ) -> Result<Self> {
        let target = target(path, force)?;
        let name = target.file_name().unwrap_or_default();
        let mut prefix = OsString::from(".");
        // The system takes names of up to 255 bytes; a long one leaves no room for what we add.
        if name.len() <= 230 {
            prefix.push(name);
            prefix.push(".");
        }
        let temporary = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(".partial")
            // As for every new file: what the umask leaves of this.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory(&target))
            // The error that comes names the temporary file, which says nothing to the user.
            .map_err(|e| match e.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => write_error(path, len, e.kind().into()),
                kind => {
                    let problem = format!("no file can be made in its directory {}", directory(&target).display());
                    io_error(path, problem, "choose a directory that you may write to", kind.into())
                }
            })?;
        let mut partial = Partial { path: path.into(), target, temporary, len, force, reserved: false };
        partial.reserved = reserve(partial.file(), len).map_err(|e| write_error(path, len, e))?;
        Ok(partial)
    }

    /// The path as the user gave it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file(&self) -> &File {
        self.temporary.as_file()
    }

    /// Whether space for all bytes is set aside, so that the file may be written through a map.
    pub fn is_reserved(&self) -> bool {
        self.reserved
    }

    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file().write_all_at(bytes, offset).map_err(|e| write_error(&self.path, self.len, e))
    }

    /// Whether its name is free, or may be taken from the file that has it.
    pub fn check(&self) -> Result<()> {
        let taken = !self.force && fs::symlink_metadata(&self.target).is_ok();
        if taken { Err(appeared(&self.path)) } else { Ok(()) }
    }

    /// Gives the file its name.
    pub fn commit(self) -> Result<()> {
        let Partial { path, target, temporary, force, .. } = self;
        let named = if force { temporary.persist(&target) } else { temporary.persist_noclobber(&target) };
        named.map(drop).map_err(|e| match e.error.kind() {
            io::ErrorKind::AlreadyExists => appeared(&path),
            _ => io_error(&path, "cannot take its name", "check its directory", e.error),
        })
    }
}

fn appeared(path: &Path) -> Error {
    let problem = "appeared while the job ran; it was left alone and the result dropped";
    Error::file(path, problem, format!("choose another name, or {FORCE}"))
}

const FORCE: &str = "replace it with --force or .force(true)";

/// The file that `path` stands for, if it may be written.
fn target(path: &Path, force: bool) -> Result<PathBuf> {
    let error = |problem: &str, remedy: &str| Err(Error::file(path, problem, remedy));
    let Some(name) = path.file_name() else {
        return error("names no file", "name a file");
    };
    let unknown = |e| io_error(path, "cannot be looked up", "check the path", e);
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return error("is a directory", "name a file in it"),
        Ok(metadata) if !metadata.is_file() => return error("is not a regular file", "write to a file"),
        Ok(_) if !force => return error("exists already", FORCE),
        Ok(_) => return path.canonicalize().map_err(unknown),
        // What is missing, the file or its directory, is found out below.
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
        Err(e) => return Err(unknown(e)),
    }
    if fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink()) {
        return error("is a symbolic link that leads nowhere", "remove the link, or name the file itself");
    }
    let directory = directory(path);
    match directory.canonicalize() {
        Ok(canonical) if canonical.is_dir() => Ok(canonical.join(name)),
        Ok(_) => error(&format!("{} is not a directory", directory.display()), "check the path"),
        Err(e) => {
            let problem = format!("its directory {} cannot be used", directory.display());
            Err(io_error(path, problem, "make it with mkdir -p, or check the path", e))
        }
    }
}

/// Gives a new file `len` bytes of real space. `Ok(false)` if the file system cannot do that: the file then only has the
/// length.
pub(crate) fn reserve(file: &File, len: u64) -> io::Result<bool> {
    if len == 0 {
        return Ok(true);
    }
    // Some file systems set aside all they have before they find that it is not enough, and others that their answer was
    // a guess. So ask first. Those that cannot count say 0 blocks.
    let space = rustix::fs::fstatvfs(file)?;
    if space.f_blocks > 0 && space.f_bavail.saturating_mul(space.f_frsize) < len {
        return Err(rustix::io::Errno::NOSPC.into());
    }
    match allocate(file, len) {
        Err(e) if e.kind() == io::ErrorKind::Unsupported => {
            file.set_len(len)?;
            Ok(false)
        }
        done => done.map(|()| true),
    }
}

#[cfg(target_os = "linux")]
fn allocate(file: &File, len: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    // Straight from the kernel: the C library would imitate it, on file systems without, by writing every page.
    Ok(rustix::io::retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, len))?)
}

#[cfg(not(target_os = "linux"))]
fn allocate(_: &File, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
