//! A folder that gets its name only when it is complete.

use super::file::{directory, io_error, write_error};
use super::rights::may_write;
use super::signal_list::Entry;
use super::temporary::{SUFFIX, mark_in_use, prefix_of, watch_folder};
use super::unfinished_file::{Abilities, FORCE, appeared, cannot_create, exchange, give_rights, to_come};
use crate::error::{Error, Result};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A folder with a temporary name beside its own one. Dropping it removes it, even after
/// [`publish`](UnfinishedFolder::publish); only [`commit`](UnfinishedFolder::commit) keeps it.
#[derive(Debug)]
pub(super) struct UnfinishedFolder {
    /// The path as given by the user, for messages.
    path: PathBuf,
    /// The final name, absolute and without links.
    target: PathBuf,
    /// The temporary name.
    temporary: PathBuf,
    /// While the temporary name is that of the new folder, a signal handler removes it.
    watched: Option<Entry>,
    stage: Stage,
    force: bool,
    /// Refuses folders that are not to be replaced.
    may_replace: fn(&Path) -> Result<()>,
    /// The folder itself, which is locked while it is written.
    folder: File,
    /// The attributes of the replaced folder that could not be kept.
    note: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// It has the temporary name.
    Temporary,
    /// It has its name, which nothing had before.
    Named,
    /// It has its name. The folder that it replaced has the temporary one.
    Replaced,
    Committed,
}

impl UnfinishedFolder {
    /// Creates an empty folder in the directory of `path`. `may_replace` tells whether the folder that has the name now
    /// is one that may be replaced, and is asked if `force` is set.
    ///
    /// # Errors
    /// Returns an error if something has the name and may not be replaced, or no folder can be created there.
    pub(super) fn create(path: &Path, force: bool, may_replace: fn(&Path) -> Result<()>) -> Result<Self> {
        let target = target(path, force, may_replace)?;
        let replaced = fs::symlink_metadata(&target).ok();
        let mode = if replaced.is_some() { 0o700 } else { 0o777 };
        let make = |path: &Path| DirBuilder::new().mode(mode).create(path);
        let made =
            tempfile::Builder::new().prefix(&prefix_of(&target)).suffix(SUFFIX).make_in(directory(&target), make);
        // `TempPath` would remove a file.
        let temporary = made.and_then(|made| made.into_temp_path().keep().map_err(|e| e.error));
        let temporary = temporary.map_err(|e| cannot_create(path, &target, 0, e))?;
        let opened = File::open(&temporary);
        let mut made = UnfinishedFolder {
            path: path.to_owned(),
            target,
            watched: Some(watch_folder(&temporary)),
            stage: Stage::Temporary,
            force,
            may_replace,
            folder: opened.map_err(|e| {
                // Nothing was written to it.
                let _ = fs::remove_dir(&temporary);
                cannot_create(path, &temporary, 0, e)
            })?,
            temporary,
            note: None,
        };
        mark_in_use(&made.folder);
        made.note = give_rights(path, &made.target, replaced, &made.folder)?;
        Ok(made)
    }

    /// Returns the path as given by the user.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder that files are written to.
    pub(super) fn place(&self) -> &Path {
        match self.stage {
            Stage::Temporary => &self.temporary,
            _ => &self.target,
        }
    }

    /// Returns the attributes of the replaced folder that could not be kept.
    pub(super) fn warning(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Checks whether the name is free, or may be taken from the folder that has it.
    pub(super) fn check(&self) -> Result<()> {
        match fs::symlink_metadata(&self.target) {
            Err(_) => Ok(()),
            // The one that was there may have gone, and something else be in its place.
            Ok(found) if self.force && found.is_dir() => (self.may_replace)(&self.target),
            Ok(_) => Err(appeared(&self.path)),
        }
    }

    /// Waits until the names of all files in it are on the disk. The files themselves are.
    pub(super) fn sync(&self) -> Result<()> {
        let mut folders = vec![self.place().to_owned()];
        let mut sync = || {
            while let Some(folder) = folders.pop() {
                File::open(&folder)?.sync_all()?;
                for entry in fs::read_dir(&folder)? {
                    let entry = entry?;
                    if entry.file_type()?.is_dir() {
                        folders.push(entry.path());
                    }
                }
            }
            Ok(())
        };
        sync().map_err(|e| write_error(&self.path, 0, e))
    }

    /// Gives the folder its name. Dropping it then releases the name, and returns it to the folder that had it before.
    pub(super) fn publish(&mut self) -> Result<()> {
        if self.stage != Stage::Temporary {
            return Ok(());
        }
        self.check()?;
        // What has the temporary name from here on may be the folder that was replaced.
        self.watched = None;
        let done = match rename_to_free(&self.temporary, &self.target) {
            Ok(()) => Ok(Stage::Named),
            Err(e) if is_taken(&e) && self.force => swap(&self.temporary, &self.target).map(|()| Stage::Replaced),
            Err(e) => Err(e),
        };
        self.stage = done.map_err(|e| match is_taken(&e) {
            true => appeared(&self.path),
            false => io_error(&self.path, "cannot take its name", "check its directory", e),
        })?;
        Ok(())
    }

    /// Returns whether the folder has got its name.
    pub(super) fn is_named(&self) -> bool {
        self.stage != Stage::Temporary
    }

    /// Gives the folder its name permanently.
    pub(super) fn commit(mut self) -> Result<()> {
        self.publish()?;
        if std::mem::replace(&mut self.stage, Stage::Committed) == Stage::Replaced {
            // What was exchanged in the end may be something else.
            (self.may_replace)(&self.temporary)?;
            fs::remove_dir_all(&self.temporary).map_err(|e| {
                let problem = format!("is complete, but the old folder is still there as {}", self.temporary.display());
                io_error(&self.path, problem, "remove the old folder", e)
            })?;
        }
        Ok(())
    }

    /// Returns whether the folder still has its name.
    fn has_its_name(&self) -> bool {
        let (named, own) = (fs::symlink_metadata(&self.target), self.folder.metadata());
        matches!((named, own), (Ok(named), Ok(own)) if (named.dev(), named.ino()) == (own.dev(), own.ino()))
    }
}

impl Drop for UnfinishedFolder {
    fn drop(&mut self) {
        // An error was returned already, and it says more than an error from here would.
        let _ = match self.stage {
            Stage::Committed => return,
            Stage::Temporary => fs::remove_dir_all(&self.temporary),
            Stage::Named | Stage::Replaced if !self.has_its_name() => return,
            Stage::Named => fs::remove_dir_all(&self.target),
            Stage::Replaced => swap(&self.temporary, &self.target).and_then(|()| fs::remove_dir_all(&self.temporary)),
        };
    }
}

/// Returns the folder that `path` names, absolute and without links, if it may be created there.
pub(super) fn target(path: &Path, force: bool, may_replace: fn(&Path) -> Result<()>) -> Result<PathBuf> {
    let target = resolve(path)?;
    match fs::symlink_metadata(&target) {
        Err(_) => {}
        Ok(_) if !force => return Err(Error::file(path, "exists already", FORCE)),
        Ok(found) if !found.is_dir() => {
            return Err(Error::file(path, "is a file, which no folder replaces", "choose another name, or remove it"));
        }
        Ok(_) => {
            may_replace(&target)?;
            let remedy = "allow it (chmod u+w), or choose another name";
            may_write(&target).map_err(|e| io_error(path, "may not be written to", remedy, e))?;
        }
    }
    Ok(target)
}

/// Returns the place of a folder that exists or is to come.
pub(super) fn resolve(path: &Path) -> Result<PathBuf> {
    let unknown = |e| io_error(path, "cannot be looked up", "check the path", e);
    if fs::metadata(path).is_ok() {
        return path.canonicalize().map_err(unknown);
    }
    to_come(path)
}

fn is_taken(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty)
}

/// Exchanges the names of two folders.
fn swap(a: &Path, b: &Path) -> io::Result<()> {
    match exchange(a, b, Abilities::default()) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            // For a moment, neither folder has the second name.
            let aside = a.with_extension("aside");
            fs::rename(b, &aside)?;
            if let Err(e) = fs::rename(a, b) {
                fs::rename(&aside, b)?;
                return Err(e);
            }
            fs::rename(&aside, a)
        }
        done => Ok(done?),
    }
}

/// Renames a folder, if nothing has the new name.
fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            done => return Ok(done?),
        }
    }
    if fs::symlink_metadata(to).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    fs::rename(from, to)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::super::temporary::remove_unfinished;
    use super::*;

    fn entries(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn create(path: &Path, force: bool) -> Result<UnfinishedFolder> {
        let folder = UnfinishedFolder::create(path, force, |_| Ok(()))?;
        fs::write(folder.place().join("new"), b"new").unwrap();
        Ok(folder)
    }

    #[test]
    fn a_folder_has_its_name_when_it_is_committed_and_leaves_nothing_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let folder = create(&path, false).unwrap();
        assert!(!path.exists() && super::super::temporary::leftovers([&*path].into_iter(), &[]).is_empty(), "in use");
        drop(folder);
        let mut published = create(&path, false).unwrap();
        published.publish().unwrap();
        assert!(path.join("new").exists());
        drop(published);
        assert!(entries(dir.path()).is_empty());
        let folder = create(&path, false).unwrap();
        folder.sync().unwrap();
        folder.commit().unwrap();
        assert_eq!((entries(dir.path()), entries(&path)), (vec!["a".to_owned()], vec!["new".to_owned()]));
    }

    #[test]
    fn a_folder_is_replaced_on_request_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("old"), b"old").unwrap();
        assert!(create(&path, false).unwrap_err().to_string().contains("exists already"));
        let refuse = |path: &Path| Err(Error::file(path, "is dear", "keep it"));
        assert!(UnfinishedFolder::create(&path, true, refuse).unwrap_err().to_string().contains("is dear"));
        let mut folder = create(&path, true).unwrap();
        folder.publish().unwrap();
        assert_eq!(entries(&path), ["new"]);
        drop(folder);
        assert_eq!((entries(dir.path()), entries(&path)), (vec!["a".to_owned()], vec!["old".to_owned()]));
        create(&path, true).unwrap().commit().unwrap();
        assert_eq!((entries(dir.path()), entries(&path)), (vec!["a".to_owned()], vec!["new".to_owned()]));
    }

    #[test]
    fn a_signal_handler_removes_it_until_it_has_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let own = |found: &[u8]| found.starts_with(dir.path().as_os_str().as_bytes());
        let mut folder = create(&path, false).unwrap();
        let chunks = folder.place().join("c/0/1");
        fs::create_dir_all(&chunks).unwrap();
        for chunk in 0..300 {
            fs::write(chunks.join(chunk.to_string()), b"1").unwrap();
        }
        std::os::unix::fs::symlink(dir.path(), folder.place().join("c/link")).unwrap();
        fs::write(dir.path().join("other"), b"1").unwrap();
        remove_unfinished(own);
        assert_eq!(entries(dir.path()), ["other"]);
        drop(folder);
        folder = create(&path, false).unwrap();
        folder.publish().unwrap();
        remove_unfinished(own);
        assert_eq!((entries(dir.path()), entries(&path)), (vec!["a".into(), "other".into()], vec!["new".to_owned()]));
        folder.commit().unwrap();
        let mut folder = create(&path, true).unwrap();
        folder.publish().unwrap();
        remove_unfinished(own);
        drop(folder);
        assert_eq!((entries(dir.path()), entries(&path)), (vec!["a".into(), "other".into()], vec!["new".to_owned()]));
    }

    #[test]
    fn a_name_that_something_took_meanwhile_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut folder = create(&path, false).unwrap();
        fs::write(&path, b"other").unwrap();
        assert!(folder.check().is_err());
        assert!(folder.publish().unwrap_err().to_string().contains("appeared while the job ran"));
        drop(folder);
        assert_eq!((entries(dir.path()), fs::read(&path).unwrap()), (vec!["a".to_owned()], b"other".to_vec()));
        assert!(create(&path, true).unwrap_err().to_string().contains("is a file"), "no folder replaces a file");
        assert!(create(&dir.path().join("missing/a"), false).unwrap_err().to_string().contains("its directory"));
    }
}
