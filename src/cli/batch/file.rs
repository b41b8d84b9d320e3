//! Job files: TOML that names steps.

use std::collections::HashSet;
use std::env;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use overshot::Error;
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

    /// Keeps other processes from running the same job file until the returned file is closed.
    pub fn lock(&self) -> Result<File> {
        let cannot = |error| file_error(&self.shown, "the job file cannot be opened", "check the path", Some(error));
        let file = File::open(&self.name).map_err(cannot)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let text = format!("{}: another process runs this job file; wait for it", self.shown.display());
                Err(Failure::Usage(text))
            }
            // Some file systems have no locks.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
        }
    }
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
