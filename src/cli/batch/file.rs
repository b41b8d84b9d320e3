//! Job files: TOML that names steps.

use std::collections::HashSet;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use overshot::Error;
use rustix::io::Errno;
use serde::Deserialize;
use toml::Table;

use crate::cli::{Failure, Result};

/// A job file. The process is in its folder, so that all paths in it mean what they say.
pub struct JobFile {
    /// The path as given by the user, for messages.
    pub shown: PathBuf,
    /// Its name in its folder.
    pub name: PathBuf,
    /// Options of all steps.
    pub options: Table,
    pub steps: Vec<StepText>,
}

/// What the file holds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    options: Table,
    #[serde(default)]
    step: Vec<StepText>,
}

/// A step as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepText {
    pub name: String,
    /// An expression, or a kernel.
    pub run: String,
    /// The files that the step runs for, once each.
    pub each: Option<String>,
    #[serde(default)]
    pub files: Table,
    #[serde(default)]
    pub options: Table,
}

impl JobFile {
    /// Reads a job file, and enters its folder.
    pub fn open(path: &Path) -> Result<JobFile> {
        let content = parse(path, &read(path)?)?;
        check_names(path, &content.step)?;
        // A path that ends with `..` is no file, so this one has a name.
        let name = path.file_name().map(PathBuf::from).unwrap_or_default();
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            env::set_current_dir(folder).map_err(|error| {
                file_error(path, "its folder cannot be entered", "allow that (chmod u+x)", Some(error))
            })?;
        }
        Ok(JobFile { shown: path.into(), name, options: content.options, steps: content.step })
    }

    /// Keeps other processes from running the same job file until the returned lock is dropped. The job file itself has
    /// no lock: editors replace it.
    pub fn lock(&self) -> Result<Lock> {
        let path = self.lock_path();
        let cannot = |error| {
            let remedy = "copy the job file to a folder that you may write to";
            file_error(&path, "the lock of the job file cannot be opened", remedy, Some(error))
        };
        loop {
            // Network file systems give a lock only to a process that may write. A pipe is not waited for.
            let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
            let file = file.map_err(cannot)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let text = format!("{}: another process runs this job file; wait for it", self.shown.display());
                    return Err(Failure::Usage(text));
                }
                // Then nobody can tell whether another process runs it.
                Err(TryLockError::Error(error)) if has_no_locks(&error) => {}
                Err(TryLockError::Error(error)) => return Err(cannot(error)),
            }
            match fs::metadata(&path).and_then(|named| Ok((named, file.metadata()?))) {
                Ok((named, own)) if (named.dev(), named.ino()) == (own.dev(), own.ino()) => {
                    return Ok(Lock { path, file });
                }
                // Another process has removed it in between.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(cannot(error)),
            }
        }
    }

    /// The file of the lock.
    pub fn lock_path(&self) -> PathBuf {
        let mut name = OsString::from(".");
        name.push(&self.name);
        name.push(".lock");
        name.into()
    }
}

/// The lock of a job file.
pub struct Lock {
    path: PathBuf,
    /// Locked as long as it is open.
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Before it is closed, so that it is not the lock of another process. A file with content is somebody else's.
        if self.file.metadata().is_ok_and(|file| file.is_file() && file.len() == 0) {
            // If it stays, the next run uses it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether an error of a lock says that the file system has none.
fn has_no_locks(error: &io::Error) -> bool {
    let is_missing = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    error.kind() == io::ErrorKind::Unsupported || is_missing(Errno::NOLCK) || is_missing(Errno::OPNOTSUPP)
}

/// Reads the text. Refuses pipes and devices, because reading them may never end.
fn read(path: &Path) -> Result<String> {
    let cannot = |error| file_error(path, "the job file cannot be read", "check the path", Some(error));
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(file_error(path, "is not a regular file", "save the job in a regular file", None));
    }
    let not_text = |_| Failure::Usage(format!("{}: is not UTF-8 text; save it as UTF-8", path.display()));
    String::from_utf8(fs::read(path).map_err(cannot)?).map_err(not_text)
}

pub fn file_error(path: &Path, problem: &str, remedy: &str, cause: Option<io::Error>) -> Failure {
    Error::File { path: path.into(), problem: problem.into(), remedy: remedy.into(), cause }.into()
}

fn parse(path: &Path, text: &str) -> Result<Content> {
    toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        Failure::JobFile {
            path: path.into(),
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
            text: text[start..].lines().next().unwrap_or_default().into(),
            message: error.message().into(),
        }
    })
}

fn check_names(path: &Path, steps: &[StepText]) -> Result {
    let wrong = |text: String| Err(Failure::Usage(format!("{}: {text}", path.display())));
    let mut names = HashSet::new();
    for StepText { name, .. } in steps {
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
            return wrong(format!("the name of a step is '{name}'; write letters, digits, - and _"));
        }
        if !names.insert(name) {
            return wrong(format!("two steps have the name '{name}'; give each its own name"));
        }
    }
    if steps.is_empty() { wrong("has no step; write one, with [[step]], name and run".into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "[options]\ndevice = \"cpu\"\n\n[[step]]\nname = \"a\"\nrun = \"sum(x)\"\nfiles = { x = 5.0 }\n";

    fn at(text: &str) -> (usize, usize, String) {
        match parse(Path::new("job.toml"), text).map(|_| ()) {
            Err(Failure::JobFile { line, column, text, .. }) => (line, column, text),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn an_error_has_its_line() {
        assert_eq!(at(&format!("{TEXT}each = 3\n")), (8, 8, "each = 3".into()));
        assert_eq!(at(&format!("{TEXT}ü = = 3\n")).0, 8);
        assert_eq!(at(&TEXT.replace("run", "ran")).0, 6);
        assert_eq!(at(&TEXT.replace("run = \"sum(x)\"\n", "")).0, 4, "the step without it");
        assert_eq!(at("a = [").0, 1);
    }

    #[test]
    fn names_of_steps_are_unique_words() {
        let check = |names: &[&str]| {
            let step = |name: &&str| format!("[[step]]\nname = \"{name}\"\nrun = \"sum(i)\"\n");
            let text: String = names.iter().map(step).collect();
            check_names(Path::new("j"), &parse(Path::new("j"), &text).unwrap().step).is_ok()
        };
        assert!(check(&["a"]) && check(&["a-B_1", "a", "2"]));
        for names in [&[][..], &["a", "b", "a"], &["a b"], &[""], &["ä"], &["a:b"]] {
            assert!(!check(names), "{names:?}");
        }
    }

    proptest! {
        #[test]
        fn damaged_files_are_errors(
            place in 0..TEXT.len(),
            text in "[\\[\\]{}=\"',.#a1é\n\\\\-]{0,6}",
            cut in 0..9_usize,
        ) {
            let end = (place + cut).min(TEXT.len());
            let damaged = format!("{}{text}{}", &TEXT[..place], &TEXT[end..]);
            let _ = parse(Path::new("job.toml"), &damaged);
        }
    }
}
