//! The files of `--trace`, `--html` and `--partial`.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use overshot::{Error, io::FileId};

use super::{Failure, Result, unfinished};

/// A file to which a part of the report of a job will be written.
pub struct ReportFile<'a> {
    /// What it is, for messages: `the trace`.
    what: &'static str,
    /// The path as given by the user, for messages.
    path: &'a Path,
    /// The absolute path, with symbolic links resolved.
    target: PathBuf,
    /// The permissions of the file to be replaced.
    permissions: Option<Permissions>,
}

impl<'a> ReportFile<'a> {
    /// Checks that the file can be created, without touching it: an existing file is replaced only when the new one is
    /// complete. `others` are the other files of the job with their descriptions.
    ///
    /// # Errors
    /// If the path is one of the others, is not a regular file, or is in a directory in which files cannot be created.
    pub fn new(
        what: &'static str,
        path: &'a Path,
        others: impl IntoIterator<Item = (String, PathBuf)>,
    ) -> Result<ReportFile<'a>> {
        let cannot = |problem: &str, remedy: &str, cause: Option<io::Error>| Error::File {
            path: path.into(),
            problem: problem.into(),
            remedy: remedy.into(),
            cause,
        };
        let no_file = &another_file(what);
        let there = match fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() => {
                return Err(cannot("is not a regular file", no_file, None).into());
            }
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(cannot("cannot be looked up", no_file, Some(error)).into()),
        };
        let target = match &there {
            Some(_) => path.canonicalize().ok(),
            None if path.is_symlink() => None,
            None => new_place(path),
        };
        let Some(target) = target else {
            return Err(cannot("cannot be created", &format!("check the path of {what}"), None).into());
        };
        let id = FileId::of(path);
        let mut others = others.into_iter();
        if let Some((other, _)) = others.find(|(_, other)| id.is_some() && FileId::of(other) == id) {
            let text = format!("{}: is both {what} and {other}: {no_file}", path.display());
            return Err(Failure::Usage(text));
        }
        // Detects a directory without write permission before any work is done. This file never has a name.
        if let Err(error) = tempfile::tempfile_in(directory(&target)) {
            return Err(cannot("files cannot be created in its directory", no_file, Some(error)).into());
        }
        let permissions = there.as_ref().map(Metadata::permissions);
        Ok(ReportFile { what, path, target, permissions })
    }

    /// Writes the file.
    pub fn write(&self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result {
        self.write_then(content, |_| Ok(()))
    }

    /// Writes the file, which is on the disk before it has its name.
    pub fn write_durably(&self, content: &[u8]) -> Result {
        let folder = directory(&self.target).to_owned();
        self.write_then(|out| out.write_all(content), File::sync_all)?;
        // The name lasts, too, if the file system is asked for that. Some folders cannot be opened.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        Ok(())
    }

    fn write_then(
        &self,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
        then: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result {
        let ReportFile { what, path, target, permissions } = self;
        write(target, permissions.clone(), content, then).map_err(|error| {
            let (problem, remedy) = (format!("{what} cannot be written"), another_file(what));
            Error::File { path: (*path).into(), problem, remedy, cause: Some(error) }.into()
        })
    }
}

/// The remedy if a file is refused.
fn another_file(what: &str) -> String {
    format!("choose another file for {what}")
}

/// Writes the file under a temporary name and renames it when it is complete.
fn write(
    target: &Path,
    permissions: Option<Permissions>,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    then: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let mut prefix = OsString::from(".");
    prefix.push(target.file_name().unwrap_or_default());
    prefix.push(".");
    let mut file = tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(".partial")
        // The default for new files; the umask applies.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory(target))?;
    unfinished::path(file.path());
    if let Some(permissions) = permissions {
        file.as_file().set_permissions(permissions)?;
    }
    let mut out = BufWriter::new(file.as_file_mut());
    content(&mut out)?;
    out.flush()?;
    drop(out);
    then(file.as_file())?;
    file.persist(target)?;
    Ok(())
}

/// The absolute path of a file that does not exist yet, if its directory exists.
fn new_place(path: &Path) -> Option<PathBuf> {
    Some(directory(path).canonicalize().ok()?.join(path.file_name()?))
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
