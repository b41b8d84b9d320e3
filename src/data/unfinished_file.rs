//! A file that gets its name only when it is complete.

use super::file::{directory, ends_with_slash, io_error, too_many_open, write_error};
use super::rights::{Rights, may_write};
use super::stamp::Stamp;
use super::temporary::{Temporary, mark_in_use};
use crate::error::{Error, Result};
use rustix::io::Errno;
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file of fixed length that has no name yet, or a temporary name on file systems without unnamed files. Dropping
/// it removes it, even after [`publish`](UnfinishedFile::publish); only [`commit`](UnfinishedFile::commit) keeps it. A
/// file that was [adopted](UnfinishedFile::adopt) gets its hidden name back instead.
#[derive(Debug)]
pub(super) struct UnfinishedFile {
    /// The path as given by the user, for messages.
    path: PathBuf,
    /// The final name: `path` with its links resolved, and absolute, so that it means the same at the end of the
    /// run.
    target: PathBuf,
    file: File,
    stage: Stage,
    len: u64,
    force: bool,
    reserved: bool,
    abilities: Abilities,
    /// The attributes of the replaced file that could not be kept.
    note: Option<String>,
    /// The name that an adopted file had before, and has again if it is dropped.
    hidden: Option<PathBuf>,
}

#[derive(Debug)]
enum Stage {
    /// The file has no name, and disappears with the process.
    Unnamed,
    Temporary(Temporary),
    /// The file has its hidden name.
    Hidden,
    /// The file has its name, which no other file had before.
    Named,
    /// The file has its name. The file that it replaced has this temporary name.
    Replaced(PathBuf),
    /// The file keeps its name.
    Committed,
}

/// The features of the file system. Tests disable some of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abilities {
    /// Reserves space. Returns `Ok(false)` if the file system does not support it.
    pub reserve: fn(&File, u64) -> io::Result<bool>,
    /// Whether there are unnamed files (`O_TMPFILE`).
    pub unnamed: bool,
    /// Whether two files can exchange names (`RENAME_EXCHANGE`).
    pub exchange: bool,
}

impl Default for Abilities {
    fn default() -> Self {
        let is_linux = cfg!(target_os = "linux");
        Abilities { reserve, unnamed: is_linux, exchange: is_linux }
    }
}

impl UnfinishedFile {
    /// Creates a file of `len` bytes, with reserved space, in the directory of `path`.
    ///
    /// # Errors
    /// Returns an error if `path` exists and `force` is not set, is not a regular file, may not be written to, or
    /// has no directory in which a file can be created; or if `len` bytes do not fit.
    pub(super) fn create(path: &Path, len: u64, force: bool) -> Result<Self> {
        Self::create_with(path, len, force, Abilities::default())
    }

    /// Like `create`, on a file system with these abilities.
    pub(super) fn create_with(path: &Path, len: u64, force: bool, abilities: Abilities) -> Result<Self> {
        let (target, replaced) = target(path, force)?;
        // A file that replaces another one is private until it has the permissions of that file. A new file gets
        // this mode, reduced by the umask.
        let mode = if replaced.is_some() { 0o600 } else { 0o666 };
        let made = draft(&target, mode, abilities).map(|(file, temporary)| match temporary {
            Some(temporary) => (file, Stage::Temporary(temporary)),
            None => (file, Stage::Unnamed),
        });
        let (file, stage) = made.map_err(|e| cannot_create(path, &target, len, e))?;
        let note = give_rights(path, &target, replaced, &file)?;
        let path = path.to_owned();
        let reserved = (abilities.reserve)(&file, len).map_err(|e| write_error(&path, len, e))?;
        Ok(UnfinishedFile { path, target, file, stage, len, force, reserved, abilities, note, hidden: None })
    }

    /// Takes over a complete file of `len` bytes with a hidden name beside `path`, which is absolute and without links.
    ///
    /// # Errors
    /// Returns an error if `path` exists and `force` is not set, is not a regular file, or may not be written to.
    pub(super) fn adopt(path: &Path, hidden: PathBuf, file: File, len: u64, force: bool) -> Result<Self> {
        if !force && fs::symlink_metadata(path).is_ok() {
            return Err(is_taken(path, &hidden));
        }
        let (target, replaced) = target(path, force)?;
        let note = give_rights(path, &target, replaced, &file)?;
        let (path, abilities, hidden) = (path.to_owned(), Abilities::default(), Some(hidden));
        Ok(UnfinishedFile {
            path,
            target,
            file,
            stage: Stage::Hidden,
            len,
            force,
            reserved: false,
            abilities,
            note,
            hidden,
        })
    }

    /// Returns the path as given by the user.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the final name.
    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the attributes of the replaced file that could not be kept.
    pub(super) fn warning(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Returns whether space for all bytes is reserved, so that the file may be written through a map.
    pub(super) fn is_reserved(&self) -> bool {
        self.reserved
    }

    pub(super) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|e| write_error(&self.path, self.len, e))
    }

    pub(super) fn read_at(&self, to: &mut [u8], offset: u64) -> Result<()> {
        let read = self.file.read_exact_at(to, offset);
        read.map_err(|e| io_error(&self.path, "cannot be read back for its checksum", "check the disk", e))
    }

    /// Checks whether the name is free, or may be taken from the file that has it.
    pub(super) fn check(&self) -> Result<()> {
        let taken = !self.force && fs::symlink_metadata(&self.target).is_ok();
        if taken { Err(self.appeared()) } else { Ok(()) }
    }

    /// Waits until the file is on the disk, with its length and without what was behind its rows. Returns its stamp.
    pub(super) fn seal(&self) -> Result<Stamp> {
        let cannot = |e| write_error(&self.path, self.len, e);
        self.file.set_len(self.len).map_err(cannot)?;
        self.sync()?;
        Stamp::of(&self.file).map_err(cannot)
    }

    /// Waits until the bytes are on the disk.
    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|e| write_error(&self.path, self.len, e))
    }

    /// Gives the file its name. Dropping it then releases the name, and returns it to the file that had it before.
    pub(super) fn publish(&mut self) -> Result<()> {
        let done = match self.take_free_name() {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && self.force => self.replace(),
            done => done,
        };
        done.map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => self.appeared(),
            _ => io_error(&self.path, "cannot take its name", "check its directory", e),
        })
    }

    /// Returns whether the file has got its name.
    pub(super) fn is_named(&self) -> bool {
        matches!(self.stage, Stage::Named | Stage::Replaced(_) | Stage::Committed)
    }

    /// Gives the file its name permanently.
    pub(super) fn commit(mut self) -> Result<()> {
        self.publish()?;
        if let Stage::Replaced(old) = std::mem::replace(&mut self.stage, Stage::Committed) {
            fs::remove_file(&old).map_err(|e| {
                let problem = format!("is complete, but the old file is still there as {}", old.display());
                io_error(&self.path, problem, "remove the old file", e)
            })?;
        }
        Ok(())
    }

    /// Takes the name if no file has it.
    fn take_free_name(&mut self) -> io::Result<()> {
        match (&self.stage, &self.hidden) {
            (Stage::Unnamed, _) => link_unnamed(&self.file, &self.target)?,
            (Stage::Temporary(temporary), _) => rename_to_free(temporary.path(), &self.target)?,
            (Stage::Hidden, Some(hidden)) => rename_to_free(hidden, &self.target)?,
            _ => return Ok(()),
        }
        if let Stage::Temporary(temporary) = std::mem::replace(&mut self.stage, Stage::Named) {
            temporary.keep();
        }
        Ok(())
    }

    /// Takes the name from the file that has it, which then has a temporary name.
    fn replace(&mut self) -> io::Result<()> {
        if !fs::symlink_metadata(&self.target)?.is_file() {
            return Err(io::Error::other("it is no longer a regular file"));
        }
        let (file, target) = (&self.file, &self.target);
        if let (Stage::Hidden, Some(hidden)) = (&self.stage, &self.hidden) {
            // They do not exchange their names: if this process is killed then, the old file would have the hidden
            // name, and be taken for the rows of the job.
            self.stage = self.rename_over(hidden)?;
            return Ok(());
        }
        let mut temporary = match std::mem::replace(&mut self.stage, Stage::Unnamed) {
            Stage::Temporary(temporary) => temporary,
            _ => Temporary::beside(target, |path| link_unnamed(file, path))?.0,
        };
        // From here on the temporary name may be that of the old file, which no signal handler may remove.
        temporary.withdraw();
        match exchange(temporary.path(), target, self.abilities) {
            Ok(()) => self.stage = Stage::Replaced(temporary.keep()),
            Err(e) if is_unsupported(e) => {
                self.stage = self.rename_over(temporary.path())?;
                temporary.keep();
            }
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    /// Renames the file over the one that has its name, which gets a second name before.
    fn rename_over(&self, from: &Path) -> io::Result<Stage> {
        match Temporary::beside(&self.target, |path| fs::hard_link(&self.target, path)) {
            Ok((mut old, ())) => {
                old.withdraw();
                fs::rename(from, &self.target)?;
                Ok(Stage::Replaced(old.keep()))
            }
            // No name is left under which the old file could be restored.
            Err(_) => fs::rename(from, &self.target).map(|()| Stage::Committed),
        }
    }

    /// Returns the error for a name that another file has.
    fn appeared(&self) -> Error {
        match &self.hidden {
            Some(hidden) => is_taken(&self.path, hidden),
            None => appeared(&self.path),
        }
    }

    /// Releases the name that the file has.
    fn release(&self) -> io::Result<()> {
        match &self.hidden {
            Some(hidden) => fs::rename(&self.target, hidden),
            None => fs::remove_file(&self.target),
        }
    }

    /// Returns whether the file still has its name.
    fn has_its_name(&self) -> bool {
        let (named, own) = (fs::symlink_metadata(&self.target), self.file.metadata());
        matches!((named, own), (Ok(named), Ok(own)) if (named.dev(), named.ino()) == (own.dev(), own.ino()))
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        // An error was returned already, and it says more than an error from here would.
        match &self.stage {
            Stage::Named if self.has_its_name() => drop(self.release()),
            Stage::Replaced(old) if self.has_its_name() => {
                let released = if self.hidden.is_some() { self.release() } else { Ok(()) };
                drop(released.and_then(|()| fs::rename(old, &self.target)));
            }
            _ => {}
        }
    }
}

const RIGHTS: &str = "choose another name, or remove that file first";

/// Returns the error for a name that another file took meanwhile.
pub(super) fn appeared(path: &Path) -> Error {
    let problem = "appeared while the job ran; it was left unchanged and the result was discarded";
    Error::file(path, problem, FORCE)
}

/// Returns the error for a merged file whose name another file has.
fn is_taken(path: &Path, hidden: &Path) -> Error {
    let problem = format!("exists already; the rows of the merged parts are still in {}", hidden.display());
    Error::file(path, problem, "move that file away, and merge again")
}

pub(super) const FORCE: &str = "choose another name, or set 'force' to replace it";

/// Gives a file the permissions of the one that it replaces. Returns those that could not be kept.
pub(super) fn give_rights(
    path: &Path,
    target: &Path,
    replaced: Option<Metadata>,
    file: &File,
) -> Result<Option<String>> {
    let Some(replaced) = replaced else { return Ok(None) };
    let rights = Rights::of(target, &replaced).give(file);
    rights.map_err(|e| io_error(path, "cannot be given the permissions of the file it replaces", RIGHTS, e))
}

/// Returns the file that `path` resolves to, if it may be written, and the metadata of the existing file.
pub(super) fn target(path: &Path, force: bool) -> Result<(PathBuf, Option<Metadata>)> {
    let (target, existing) = resolve(path)?;
    if existing.is_some() {
        if !force {
            return Err(Error::file(path, "exists already", FORCE));
        }
        let remedy = "allow it (chmod u+w), or choose another name";
        may_write(path).map_err(|e| io_error(path, "may not be written to", remedy, e))?;
    }
    Ok((target, existing))
}

/// Returns the file that `path` resolves to, and the metadata of the existing file.
pub(super) fn resolve(path: &Path) -> Result<(PathBuf, Option<Metadata>)> {
    let error = |problem: &str, remedy: &str| Err(Error::file(path, problem, remedy));
    if path.file_name().is_none() {
        return error("does not name a file", "name a file");
    }
    let unknown = |e| io_error(path, "cannot be looked up", "check the path", e);
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return error("is a directory", "name a file in it"),
        Ok(metadata) if !metadata.is_file() => return error("is not a regular file", "write to a file"),
        Ok(metadata) => return Ok((path.canonicalize().map_err(unknown)?, Some(metadata))),
        // A missing file or directory is handled below.
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
        Err(e) => return Err(unknown(e)),
    }
    Ok((to_come(path)?, None))
}

/// Returns the place of a file or folder that is to come.
pub(super) fn to_come(path: &Path) -> Result<PathBuf> {
    let error = |problem: &str, remedy: &str| Err(Error::file(path, problem, remedy));
    let Some(name) = path.file_name() else {
        return error("does not name a file", "name a file");
    };
    if ends_with_slash(path) {
        return error("ends with '/', as the path of a directory does", "name a file");
    }
    if fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink()) {
        return error("is a symbolic link to a missing file", "remove the link, or name the file itself");
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

/// Returns why no file can be created beside `target`.
pub(super) fn cannot_create(path: &Path, target: &Path, len: u64, e: io::Error) -> Error {
    if matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return write_error(path, len, e);
    }
    let problem = format!("no file can be created in its directory {}", directory(target).display());
    let remedy = too_many_open(&e).unwrap_or("choose a directory that you may write to");
    io_error(path, problem, remedy, e)
}

/// Creates an unnamed file. Returns `None` if the file system does not support unnamed files, or if the file could
/// not be named later.
#[cfg(target_os = "linux")]
fn unnamed(directory: &Path, mode: u32, abilities: Abilities) -> io::Result<Option<File>> {
    use rustix::fs::OFlags;
    if !abilities.unnamed {
        return Ok(None);
    }
    let flags = OFlags::TMPFILE.bits() as i32;
    match File::options().read(true).write(true).mode(mode).custom_flags(flags).open(directory) {
        // The file is named through its descriptor later, which requires /proc.
        Ok(file) => Ok(fs::metadata(descriptor(&file)).is_ok().then_some(file)),
        Err(e) => match Errno::from_io_error(&e) {
            // The file system has no unnamed files, or the kernel does not know them and treats the path as the
            // file to open.
            Some(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => Ok(None),
            _ => Err(e),
        },
    }
}

/// Creates a file that has no name yet, or a temporary one on file systems without unnamed files, to be named as
/// `target` or beside it.
pub(super) fn draft(target: &Path, mode: u32, abilities: Abilities) -> io::Result<(File, Option<Temporary>)> {
    match unnamed(directory(target), mode, abilities)? {
        Some(file) => Ok((file, None)),
        None => named(target, mode).map(|(temporary, file)| (file, Some(temporary))),
    }
}

/// Gives a [`draft`] this name, if no file has it.
pub(super) fn name_draft(file: &File, temporary: Option<Temporary>, name: &Path) -> io::Result<()> {
    match temporary {
        Some(temporary) => rename_to_free(temporary.path(), name).map(|()| drop(temporary.keep())),
        None => link_unnamed(file, name),
    }
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_: &Path, _: u32, _: Abilities) -> io::Result<Option<File>> {
    Ok(None)
}

/// Returns the path under which the system finds an open unnamed file.
fn descriptor(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Creates a file with a temporary name beside `target`, and locks it.
pub(super) fn named(target: &Path, mode: u32) -> io::Result<(Temporary, File)> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true).mode(mode);
    let (temporary, file) = Temporary::beside(target, |path| options.open(path))?;
    mark_in_use(&file);
    Ok((temporary, file))
}

/// Gives an unnamed file this name, if no file has it.
fn link_unnamed(file: &File, name: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    Ok(linkat(CWD, descriptor(file), CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

/// Renames a file, if no file has the new name.
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

/// Exchanges the names of two files.
pub(super) fn exchange(a: &Path, b: &Path, abilities: Abilities) -> rustix::io::Result<()> {
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

/// Returns whether an error says that the file system does not support the operation.
fn is_unsupported(e: Errno) -> bool {
    matches!(e, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// Reserves `len` bytes of space for a new file. Returns `Ok(false)` if the file system does not support this: the
/// file then only has the length.
pub(crate) fn reserve(file: &File, len: u64) -> io::Result<bool> {
    reserve_with(file, len, |file, len| allocate(file, 0, len))
}

/// Does what [`reserve`] says by a call that allocates space.
pub(super) fn reserve_with(file: &File, len: u64, allocate: impl Fn(&File, u64) -> io::Result<()>) -> io::Result<bool> {
    if len == 0 {
        return Ok(true);
    }
    check_space(file, len)?;
    match allocate(file, len) {
        Err(e) if e.kind() == io::ErrorKind::Unsupported => {
            file.set_len(len)?;
            Ok(false)
        }
        done => done.map(|()| true),
    }
}

/// Reserves the space of some bytes of a file that has its length, if the file system supports this.
pub(super) fn reserve_range(file: &File, bytes: Range<u64>) -> io::Result<()> {
    let len = bytes.end - bytes.start;
    if len == 0 {
        return Ok(());
    }
    // Bytes that were written before have their space.
    if file.metadata()?.blocks().saturating_mul(512) < len {
        check_space(file, len)?;
    }
    match allocate(file, bytes.start, len) {
        Err(e) if e.kind() == io::ErrorKind::Unsupported => Ok(()),
        done => done,
    }
}

/// Returns an error if the file system has less space than this.
fn check_space(file: &File, len: u64) -> io::Result<()> {
    // Some file systems allocate all the space they have before they find that it is not enough, and the answer of
    // others turns out to be a guess. So ask for the free space first. File systems that cannot count report 0
    // blocks.
    let space = rustix::fs::fstatvfs(file)?;
    if space.f_blocks > 0 && space.f_bavail.saturating_mul(space.f_frsize) < len {
        return Err(rustix::io::Errno::NOSPC.into());
    }
    Ok(())
}

/// Allocates the space of `len` bytes from `offset` on.
#[cfg(target_os = "linux")]
fn allocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    // Called directly: the C library emulates it, on file systems that do not support it, by writing every page.
    Ok(rustix::io::retry_on_intr(|| fallocate(file, FallocateFlags::empty(), offset, len))?)
}

#[cfg(not(target_os = "linux"))]
fn allocate(_: &File, _: u64, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
