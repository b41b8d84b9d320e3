//! What the steps of a job file have done, so that those that would do the same again are skipped.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use overshot::io::{folder_state, is_url, url_state};
use overshot::units::one_line;
use overshot::{Error, Report};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::file::{JobFile, file_error};
use super::step::{Task, Words};
use super::{exact, shown, text_of};
use crate::cli::report_file::ReportFile;
use crate::cli::{Failure, Result};

/// The version of the file.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
pub struct State {
    format: u32,
    /// By the keys of tasks.
    steps: BTreeMap<String, Record>,
}

/// What a task has done.
#[derive(Serialize, Deserialize)]
struct Record {
    overshot: String,
    #[serde(flatten)]
    words: Words,
    inputs: Vec<Stamp>,
    outputs: Vec<Stamp>,
    kept: Kept,
}

/// The values of a run.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Kept {
    /// As in the report's JSON.
    pub results: Value,
    pub arrays: Value,
    /// The lines that the run printed.
    pub lines: String,
}

/// What tells that a file has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// As [`exact`] writes it.
    path: String,
    /// `None` if there is no file, or nobody knows when it changes.
    file: Option<FileStamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileStamp {
    bytes: u64,
    /// Seconds and nanoseconds since 1970. Of a folder, which is a store, a checksum of the names, lengths and times of
    /// all its files. Of a URL, a checksum of what the server says.
    modified: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Stamp {
        Stamp { path: exact(path.as_os_str()), file: FileStamp::of(path).ok() }
    }

    fn missing(path: &Path) -> Stamp {
        Stamp { path: exact(path.as_os_str()), file: None }
    }

    fn is_current(&self) -> bool {
        self.file.is_some() && *self == Stamp::of(Path::new(&text_of(&self.path)))
    }

    /// The stamps of the files that a task reads, at this moment.
    pub fn of_inputs(task: &Task) -> Vec<Stamp> {
        task.reads.iter().flat_map(|name| name.files()).map(|path| Stamp::of(&path)).collect()
    }
}

impl FileStamp {
    fn of(path: &Path) -> io::Result<FileStamp> {
        let combined =
            |(state, bytes): (u128, u64)| FileStamp { bytes, modified: ((state >> 64) as i64, state as i64) };
        if is_url(path) {
            let state = url_state(path).map_err(io::Error::other)?;
            return state.map(combined).ok_or_else(|| io::ErrorKind::Unsupported.into());
        }
        let file = fs::metadata(path)?;
        if file.is_dir() {
            return folder_state(path).map(combined);
        }
        Ok(FileStamp { bytes: file.len(), modified: (file.mtime(), file.mtime_nsec()) })
    }
}

impl Kept {
    fn of(report: &Report) -> Result<Kept> {
        // As text, in which numbers have the digits of the report.
        let text = serde_json::to_string(report).map_err(|error| Failure::Output(error.into()))?;
        let mut json: Value = serde_json::from_str(&text).map_err(|error| Failure::Output(error.into()))?;
        Ok(Kept { results: json["results"].take(), arrays: json["arrays"].take(), lines: report.values() })
    }
}

/// The file of the state of a job file.
pub fn path(job_file: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(job_file);
    name.push(".state");
    name.into()
}

impl State {
    /// Reads the state of a job file. A state that is damaged, or that another version wrote, counts as none.
    pub fn read(job_file: &JobFile) -> Result<State> {
        let path = path(&job_file.name);
        let none = || State { format: FORMAT, steps: BTreeMap::new() };
        // Reading a pipe may never end.
        if fs::metadata(&path).is_ok_and(|file| !file.is_file()) {
            return Err(file_error(&path, "is not a regular file", "remove it, or move it away", None));
        }
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(none()),
            Err(error) => {
                return Err(file_error(&path, "the state of the steps cannot be read", "remove it", Some(error)));
            }
        };
        match serde_json::from_slice::<State>(&bytes) {
            Ok(state) if state.format == FORMAT => Ok(state),
            _ => {
                // If standard error is closed, there is no place to write to.
                let _ = writeln!(
                    io::stderr(),
                    "overshot: warning: {} is damaged or of another version of Overshot: every step runs, and \
                     replaces outputs only with force = true",
                    one_line(&path.to_string_lossy())
                );
                Ok(none())
            }
        }
    }

    /// Checks that the state can be written, and forgets tasks that are no more and whose outputs are gone.
    pub fn begin(&mut self, job_file: &JobFile, tasks: &[Task]) -> Result {
        let path = path(&job_file.name);
        state_file(&path)?;
        let names: HashSet<_> = tasks.iter().map(Task::key).collect();
        // A step that is taken out of the file for a while still owns its outputs.
        let is_there = |record: &Record| record.outputs.iter().any(Stamp::is_current);
        self.steps.retain(|name, record| names.contains(name) || is_there(record));
        Ok(())
    }

    /// Why a task has to run; `None` if all is as it left it.
    pub fn why(&self, task: &Task) -> Option<String> {
        let Some(record) = self.steps.get(&task.key()) else { return Some("never ran".into()) };
        let Record { overshot, words, inputs, outputs, .. } = record;
        if overshot != env!("CARGO_PKG_VERSION") {
            return Some(format!("Overshot {overshot} ran it"));
        }
        if words.expression != task.words.expression {
            return Some("the expression changed".into());
        }
        if words.files != task.words.files {
            return Some("the files changed".into());
        }
        if words.options != task.words.options {
            return Some("the options changed".into());
        }
        difference(inputs, &Stamp::of_inputs(task)).or_else(|| {
            let wrong = task.writes().map(Stamp::of).find(|now| now.file.is_none() || !outputs.contains(now))?;
            Some(format!("output {} {}", path_shown(&wrong.path), wrong.file.map_or("is missing", |_| "changed")))
        })
    }

    /// Whether a file is as the task left it.
    pub fn owns(&self, task: &Task, output: &Path) -> bool {
        let stamp = Stamp::of(output);
        stamp.file.is_some() && self.steps.get(&task.key()).is_some_and(|record| record.outputs.contains(&stamp))
    }

    /// The values that a task had.
    pub fn kept(&self, task: &Task) -> Kept {
        self.steps.get(&task.key()).map(|record| record.kept.clone()).unwrap_or_default()
    }

    /// Keeps what a task has done, on the disk. Unless all `is_written`, its pictures count as missing, so that it runs
    /// again: those that are there may be of an earlier run.
    pub fn keep(
        &mut self,
        job_file: &JobFile,
        task: &Task,
        inputs: Vec<Stamp>,
        report: &Report,
        is_written: bool,
    ) -> Result {
        let outputs = task.outputs.iter().map(|output| Stamp::of(&output.path));
        let of_picture = if is_written { Stamp::of } else { Stamp::missing };
        let pictures = task.pictures.iter().map(|path| of_picture(path));
        let record = Record {
            overshot: env!("CARGO_PKG_VERSION").into(),
            words: task.words.clone(),
            inputs,
            outputs: outputs.chain(pictures).collect(),
            kept: Kept::of(report)?,
        };
        self.steps.insert(task.key(), record);
        let text = serde_json::to_vec(self).map_err(|error| Failure::Output(error.into()))?;
        let path = path(&job_file.name);
        state_file(&path)?.write_durably(&text)
    }
}

fn state_file(path: &Path) -> Result<ReportFile<'_>> {
    ReportFile::new("the state of the steps", path, []).map_err(|failure| match failure {
        Failure::Overshot(Error::File { path, problem, cause, .. }) => {
            file_error(&path, &problem, "copy the job file to a folder that you may write to", cause)
        }
        other => other,
    })
}

/// The path of a stamp, for people.
fn path_shown(path: &str) -> String {
    shown(&text_of(path))
}

/// How inputs differ from those of the last run.
fn difference(old: &[Stamp], new: &[Stamp]) -> Option<String> {
    if old == new {
        let unknown = new.iter().find(|stamp| stamp.file.is_none())?;
        return Some(format!("input {} may have changed", path_shown(&unknown.path)));
    }
    let by_path = |stamps: &[Stamp]| -> BTreeMap<String, Option<FileStamp>> {
        stamps.iter().map(|stamp| (stamp.path.clone(), stamp.file)).collect()
    };
    let (old, new) = (by_path(old), by_path(new));
    if let Some(path) = new.keys().find(|path| !old.contains_key(*path)) {
        return Some(format!("input {} is new", path_shown(path)));
    }
    if let Some(path) = old.keys().find(|path| !new.contains_key(*path)) {
        return Some(format!("input {} is gone", path_shown(path)));
    }
    let changed = new.iter().find(|(path, file)| old.get(*path) != Some(file));
    let of_path = |(path, _): (&String, _)| format!("input {} changed", path_shown(path));
    Some(changed.map_or("the inputs have another order".into(), of_path))
}
