//! A file that gets its name only when it is complete.

use super::file::{directory, ends_with_slash, io_error, too_many_open, write_error};
use super::rights::{Rights, may_write};
use super::temporary::{Temporary, mark_in_use};
use crate::error::{Error, Result};
use rustix::io::Errno;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file of fixed length that has no name yet, or a temporary one where the file system has no files without a name.
/// Dropping it removes it, also after [`publish`](Partial::publish); only [`commit`](Partial::commit) keeps it.
#[derive(Debug)]
pub(super) struct Partial {
    /// The path as the user gave it, for messages.
    path: PathBuf,
    /// The name to take: `path` with its links followed, absolute, so that it means the same at the end.
    target: PathBuf,
    file: File,
    stage: Stage,
    len: u64,
    force: bool,
    reserved: bool,
    abilities: Abilities,
    /// What could not be kept of the file that it replaces.
    note: Option<String>,
}

#[derive(Debug)]
enum Stage {
    /// It has no name, and vanishes with the process.
    Unnamed,
    Temporary(Temporary),
    /// It has its name, which no file had before.
    Named,
    /// It has its name; the file that had it before is under this one.
    Replaced(PathBuf),
    /// It keeps its name.
    Committed,
}

/// What the file system can do. Tests take some of it away.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abilities {
    /// Reserves space; `Ok(false)` where that cannot be done.
    pub reserve: fn(&File, u64) -> io::Result<bool>,
    /// Whether there are files without a name (`O_TMPFILE`).
    pub unnamed: bool,
    /// Whether two files can change names (`RENAME_EXCHANGE`).
    pub exchange: bool,
}

impl Default for Abilities {
    fn default() -> Self {
        let is_linux = cfg!(target_os = "linux");
        Abilities { reserve, unnamed: is_linux, exchange: is_linux }
    }
}

impl Partial {
    /// Makes a file of `len` bytes in the directory of `path`, in space of its own.
    ///
    /// # Errors
    /// When `path` exists and `force` is not set, is no regular file, may not be written, or has no directory in which
    /// a file can be made; or when `len` bytes do not fit.
    pub fn create(path: &Path, len: u64, force: bool) -> Result<Self> {
        Self::create_with(path, len, force, Abilities::default())
    }

    /// `create` on a file system that can do so much.
    pub fn create_with(path: &Path, len: u64, force: bool, abilities: Abilities) -> Result<Self> {
        let (target, replaced) = target(path, force)?;
        // A file that replaces another one has its rights from the start. A new one has what the umask leaves of this.
        let mode = if replaced.is_some() { 0o600 } else { 0o666 };
        let made = match unnamed(directory(&target), mode, abilities) {
            Ok(Some(file)) => Ok((file, Stage::Unnamed)),
            Ok(None) => named(&target, mode).map(|(temporary, file)| (file, Stage::Temporary(temporary))),
            Err(e) => Err(e),
        };
        let (file, stage) = made.map_err(|e| cannot_create(path, &target, len, e))?;
        let note = match replaced {
            Some(replaced) => {
                let rights = Rights::of(&target, &replaced).give(&file);
                rights.map_err(|e| io_error(path, "cannot be given the rights of the file it replaces", RIGHTS, e))?
            }
            None => None,
        };
        let path = path.to_owned();
        let mut partial = Partial { path, target, file, stage, len, force, reserved: false, abilities, note };
        partial.reserved = (abilities.reserve)(&partial.file, len).map_err(|e| write_error(&partial.path, len, e))?;
        Ok(partial)
    }

    /// The path as the user gave it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// What could not be kept of the file that it replaces.
    pub fn warning(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Whether space for all bytes is set aside, so that the file may be written through a map.
    pub fn is_reserved(&self) -> bool {
        self.reserved
    }

    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|e| write_error(&self.path, self.len, e))
    }

    /// Whether its name is free, or may be taken from the file that has it.
    pub fn check(&self) -> Result<()> {
        let taken = !self.force && fs::symlink_metadata(&self.target).is_ok();
        if taken { Err(appeared(&self.path)) } else { Ok(()) }
    }

    /// Gives the file its name. Dropping it takes the name back, and gives it back to the file that had it before.
    pub fn publish(&mut self) -> Result<()> {
        let done = match self.take_free_name() {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && self.force => self.replace(),
            done => done,
        };
        done.map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => appeared(&self.path),
            _ => io_error(&self.path, "cannot take its name", "check its directory", e),
        })
    }

    /// Gives the file its name, and keeps it.
    pub fn commit(mut self) -> Result<()> {
        self.publish()?;
        if let Stage::Replaced(old) = std::mem::replace(&mut self.stage, Stage::Committed) {
            fs::remove_file(&old).map_err(|e| {
                let problem = format!("is complete, but the old file is still there as {}", old.display());
                io_error(&self.path, problem, "remove that", e)
            })?;
        }
        Ok(())
    }

    /// Takes the name if no file has it.
    fn take_free_name(&mut self) -> io::Result<()> {
        match &mut self.stage {
            Stage::Unnamed => link_unnamed(&self.file, &self.target)?,
            Stage::Temporary(temporary) => rename_to_free(temporary.path(), &self.target)?,
            _ => return Ok(()),
        }
        if let Stage::Temporary(temporary) = std::mem::replace(&mut self.stage, Stage::Named) {
            temporary.keep();
        }
        Ok(())
    }

    /// Takes the name from the file that has it, which is kept under a temporary one.
    fn replace(&mut self) -> io::Result<()> {
        if !fs::symlink_metadata(&self.target)?.is_file() {
            return Err(io::Error::other("it is no regular file any more"));
        }
        let (file, target) = (&self.file, &self.target);
        let mut temporary = match std::mem::replace(&mut self.stage, Stage::Unnamed) {
            Stage::Temporary(temporary) => temporary,
            _ => Temporary::beside(target, |path| link_unnamed(file, path))?.0,
        };
        // From here on the temporary name may be that of the old file, which no signal handler may remove.
        temporary.withdraw();
        match exchange(temporary.path(), target, self.abilities) {
            Ok(()) => self.stage = Stage::Replaced(temporary.keep()),
            Err(e) if is_unsupported(e) => match Temporary::beside(target, |path| fs::hard_link(target, path)) {
                Ok((mut old, ())) => {
                    old.withdraw();
                    fs::rename(temporary.path(), target)?;
                    self.stage = Stage::Replaced(old.keep());
                    temporary.keep();
                }
                // Nothing is left by which the old file could come back.
                Err(_) => {
                    fs::rename(temporary.path(), target)?;
                    self.stage = Stage::Committed;
                    temporary.keep();
                }
            },
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    /// Whether the file still has its name.
    fn has_its_name(&self) -> bool {
        let (named, own) = (fs::symlink_metadata(&self.target), self.file.metadata());
        matches!((named, own), (Ok(named), Ok(own)) if (named.dev(), named.ino()) == (own.dev(), own.ino()))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // There is an error already, which says more than one of these would.
        match &self.stage {
            Stage::Named if self.has_its_name() => drop(fs::remove_file(&self.target)),
            Stage::Replaced(old) if self.has_its_name() => drop(fs::rename(old, &self.target)),
            _ => {}
        }
    }
}

const RIGHTS: &str = "choose another name, or remove that file first";

fn appeared(path: &Path) -> Error {
    let problem = "appeared while the job ran; it was left alone and the result dropped";
    Error::file(path, problem, FORCE)
}

const FORCE: &str = "choose another name, or have it replaced with 'force'";

/// The file that `path` stands for, if it may be written, and what is known of the file that is there.
fn target(path: &Path, force: bool) -> Result<(PathBuf, Option<Metadata>)> {
    let error = |problem: &str, remedy: &str| Err(Error::file(path, problem, remedy));
    let Some(name) = path.file_name() else {
        return error("names no file", "name a file");
    };
    let unknown = |e| io_error(path, "cannot be looked up", "check the path", e);
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return error("is a directory", "name a file in it"),
        Ok(metadata) if !metadata.is_file() => return error("is not a regular file", "write to a file"),
        Ok(_) if !force => return error("exists already", FORCE),
        Ok(metadata) => {
            may_write(path).map_err(|e| {
                io_error(path, "may not be written to", "allow it (chmod u+w), or choose another name", e)
            })?;
            return Ok((path.canonicalize().map_err(unknown)?, Some(metadata)));
        }
        // What is missing, the file or its directory, is found out below.
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
        Err(e) => return Err(unknown(e)),
    }
    if ends_with_slash(path) {
        return error("ends with '/', as the path of a directory does", "name a file");
    }
    if fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink()) {
        return error("is a symbolic link that leads nowhere", "remove the link, or name the file itself");
    }
    let directory = directory(path);
    match directory.canonicalize() {
        Ok(canonical) if canonical.is_dir() => Ok((canonical.join(name), None)),
        Ok(_) => error(&format!("{} is not a directory", directory.display()), "check the path"),
        Err(e) => {
            let problem = format!("its directory {} cannot be used", directory.display());
            Err(io_error(path, problem, "make it with mkdir -p, or check the path", e))
        }
    }
}

/// Why no file can be made beside `target`.
fn cannot_create(path: &Path, target: &Path, len: u64, e: io::Error) -> Error {
    if matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return write_error(path, len, e);
    }
    let problem = format!("no file can be made in its directory {}", directory(target).display());
    let remedy = too_many_open(&e).unwrap_or("choose a directory that you may write to");
    io_error(path, problem, remedy, e)
}

/// A new file without a name. `None` where the file system has no such files, or there is no way to give it a name
/// later.
#[cfg(target_os = "linux")]
fn unnamed(directory: &Path, mode: u32, abilities: Abilities) -> io::Result<Option<File>> {
    use rustix::fs::OFlags;
    if !abilities.unnamed {
        return Ok(None);
    }
    let flags = OFlags::TMPFILE.bits() as i32;
    match File::options().read(true).write(true).mode(mode).custom_flags(flags).open(directory) {
        // Its name will be that of its descriptor, for which /proc must be there.
        Ok(file) => Ok(fs::metadata(descriptor(&file)).is_ok().then_some(file)),
        Err(e) => match Errno::from_io_error(&e) {
            // File systems without, and systems that know no such files and take the path for what is to be opened.
            Some(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => Ok(None),
            _ => Err(e),
        },
    }
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_: &Path, _: u32, _: Abilities) -> io::Result<Option<File>> {
    Ok(None)
}

/// The path by which the system finds an open file that has no name.
fn descriptor(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// A new file with a temporary name beside `target`.
fn named(target: &Path, mode: u32) -> io::Result<(Temporary, File)> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true).mode(mode);
    let (temporary, file) = Temporary::beside(target, |path| options.open(path))?;
    mark_in_use(&file);
    Ok((temporary, file))
}

/// Gives a file without a name this one, if no file has it.
fn link_unnamed(file: &File, name: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    Ok(linkat(CWD, descriptor(file), CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

/// Gives a file another name, if no file has that.
fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Err(e) if is_unsupported(e) => {}
            done => return Ok(done?),
        }
    }
    fs::hard_link(from, to)?;
    fs::remove_file(from)
}

/// Lets two files change names.
fn exchange(a: &Path, b: &Path, abilities: Abilities) -> rustix::io::Result<()> {
    if !abilities.exchange {
        return Err(Errno::INVAL);
    }
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (a, b);
        Err(Errno::INVAL)
    }
}

/// Whether an error says that the file system cannot do what it was asked for.
fn is_unsupported(e: Errno) -> bool {
    matches!(e, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
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
