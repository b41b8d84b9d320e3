//! Steps as arguments of `overshot run`.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::Parser;
use overshot::io::{NamedFile, is_store};
use overshot::{Expression, Journal};
use toml::{Table, Value};

use super::file::{JobFile, StepText};
use super::{at_step, exact, shown};
use crate::cli::args::JobArgs;
use crate::cli::job::{self, Computation, Use};
use crate::cli::{Failure, Result, kernel, parts};

/// Options that are not those of a step: they are of the whole command, or make a part of a job.
pub const REFUSED: [&str; 8] = ["all", "help", "json", "part", "partial", "quiet", "verbose", "version"];

/// Options that change neither results nor outputs. A step is not run again if they change.
const NEUTRAL: [&str; 10] = [
    "chunk",
    "device-memory",
    "device-timeout",
    "force",
    "fsync",
    "pinned-memory",
    "read-mode",
    "resume",
    "resume-every",
    "workers",
];

/// What stands for the file of `each`.
const PLACES: [&str; 3] = ["{path}", "{name}", "{stem}"];

/// One run of a step: the only one, or that of a file of `each`.
pub struct Task {
    pub step: String,
    pub item: Option<PathBuf>,
    pub args: JobArgs,
    pub words: Words,
    /// The files that it reads, and its kernel.
    pub reads: Vec<NamedFile>,
    /// The files of `each`, for the first one of them.
    pub each: Option<NamedFile>,
    /// The files of its results.
    pub outputs: Vec<NamedFile>,
    /// The trace and the page, which replace others.
    pub pictures: Vec<PathBuf>,
}

/// What is written about a task, as far as it matters to its results.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Words {
    pub expression: String,
    pub files: Vec<String>,
    pub options: Vec<String>,
}

/// The arguments of `run` alone, without what belongs to a command line.
#[derive(Parser)]
#[command(name = "overshot run", no_binary_name = true, disable_help_flag = true, disable_version_flag = true)]
struct StepArgs {
    #[command(flatten)]
    job: JobArgs,
}

impl Task {
    /// All files that it writes. One of which several outputs are columns is there once.
    pub fn writes(&self) -> impl Iterator<Item = &Path> {
        let mut tables = HashSet::new();
        let table = |file: &NamedFile| file.create().ok()?.table();
        let outputs = self.outputs.iter().filter(move |file| table(file).is_none_or(|table| tables.insert(table)));
        outputs.map(|file| file.path.as_path()).chain(self.pictures.iter().map(PathBuf::as_path))
    }

    /// Where it keeps what it needs to continue, as `--resume` does.
    pub fn journal(&self) -> Option<Journal> {
        match self.args.resume.as_ref()? {
            Some(path) => Some(Journal::at(path)),
            None => self.outputs.first().map(|output| Journal::beside(&output.path)),
        }
    }

    /// Its name for people: that of the step, and the file of `each`.
    pub fn name(&self) -> String {
        self.name_with(shown)
    }

    /// Its name in the state, which no other task has.
    pub fn key(&self) -> String {
        self.name_with(exact)
    }

    fn name_with(&self, text: fn(&OsStr) -> String) -> String {
        match &self.item {
            Some(item) => format!("{}: {}", self.step, text(item.as_os_str())),
            None => self.step.clone(),
        }
    }
}

/// The tasks of all steps. `of_command` has the options of the command.
pub fn tasks(file: &JobFile, of_command: &JobArgs) -> Result<Vec<Task>> {
    let mut tasks = Vec::new();
    let mut written: Vec<PathBuf> = Vec::new();
    for step in &file.steps {
        let in_step = |item: Option<&Path>, failure| at_step(file, &step.name, item, failure);
        let mut own = Vec::new();
        match &step.each {
            None => own.push(task(file, step, None).map_err(|failure| in_step(None, failure))?),
            Some(each) => {
                let named = NamedFile::from(Path::new(each));
                let is_one = |item: &PathBuf| !item.is_dir() || is_store(item);
                for item in named.files_with(&written).into_iter().filter(is_one) {
                    let made = task(file, step, Some(&item)).map_err(|failure| in_step(Some(&item), failure))?;
                    own.push(made);
                }
                let Some(first) = own.first_mut() else {
                    let text = format!("each = \"{each}\" names no file; check the path");
                    return Err(in_step(None, Failure::Usage(text)));
                };
                first.each = Some(named);
            }
        }
        for task in &mut own {
            let JobArgs { json, quiet, verbose, .. } = *of_command;
            (task.args.json, task.args.quiet, task.args.verbose) = (json, quiet, verbose);
            written.extend(task.writes().map(Path::to_owned));
        }
        tasks.extend(own);
    }
    Ok(tasks)
}

fn task(file: &JobFile, step: &StepText, item: Option<&Path>) -> Result<Task> {
    if Path::new(&step.run).extension().is_some_and(|extension| extension == "toml") && !step.run.contains('=') {
        let text = format!("a step runs an expression or a kernel, not the job file {}: put its steps here", step.run);
        return Err(Failure::Usage(text));
    }
    let mut merged = file.options.clone();
    merged.extend(step.options.clone());
    let options = options(&merged, item)?;
    let files = files(&step.files, item)?;
    let words = options.iter().map(|(_, word)| word.as_os_str());
    let words = words.chain(["--", &step.run].map(OsStr::new)).chain(files.iter().map(OsString::as_os_str));
    let args = StepArgs::try_parse_from(words).map_err(Failure::Arguments)?.job;
    parts::check(&args)?;
    let matters = options.iter().filter(|(name, _)| !NEUTRAL.contains(&name.as_str()));
    let words = Words {
        expression: step.run.clone(),
        files: files.iter().map(|word| exact(word)).collect(),
        options: matters.map(|(_, word)| exact(word)).collect(),
    };
    let (reads, outputs) = uses(&args)?;
    let pictures = [&args.trace, &args.html].into_iter().flatten().cloned().collect();
    let (step, item) = (step.name.clone(), item.map(Path::to_owned));
    Ok(Task { step, item, words, reads, each: None, outputs, pictures, args })
}

/// The files that a task reads and writes.
fn uses(args: &JobArgs) -> Result<(Vec<NamedFile>, Vec<NamedFile>)> {
    let (computation, uses) = job::declared(args)?;
    let (mut reads, mut outputs, mut given) = (Vec::new(), Vec::new(), Vec::new());
    for (binding, used) in uses {
        let is_resident = args.kernel.resident.contains(&binding.name);
        match used {
            Use::Output => outputs.push(binding.file.clone()),
            Use::Inputs(inputs) => {
                given.extend(inputs.into_iter().map(|(input, _)| input));
                reads.push(binding.file.clone());
            }
            Use::Argument if is_resident => reads.push(binding.file.clone()),
            Use::Number(_) | Use::Argument => given.push(binding.name.clone()),
        }
    }
    match computation {
        Computation::Expression(_) => {
            let expression = Expression::parse(&args.expression)?;
            if let Some(name) = expression.inputs().find(|name| !given.iter().any(|given| given == name)) {
                let text = format!("the expression reads '{name}', which has no file and no number; add it to files");
                return Err(Failure::Usage(text));
            }
        }
        Computation::Kernel(_) => reads.extend(kernel::file(&args.expression).map(NamedFile::from)),
    }
    Ok((reads, outputs))
}

/// The options, each with its name.
fn options(options: &Table, item: Option<&Path>) -> Result<Vec<(String, OsString)>> {
    let mut words = Vec::new();
    for (name, value) in options {
        if REFUSED.contains(&name.as_str()) {
            let text = format!("the option '{name}' is not one of a step; leave it out");
            return Err(Failure::Usage(text));
        }
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') {
            let text = format!("there is no option '{name}'; write one of 'overshot run --help' without its dashes");
            return Err(Failure::Usage(text));
        }
        let values = match value {
            Value::Boolean(false) => continue,
            Value::Boolean(true) => {
                words.push((name.clone(), format!("--{name}").into()));
                continue;
            }
            Value::Array(values) => values.as_slice(),
            one => std::slice::from_ref(one),
        };
        for value in values {
            let Some(value) = text(value) else {
                let text = format!("the option '{name}' has a value of another kind; write a text, a number or true");
                return Err(Failure::Usage(text));
            };
            let mut word = OsString::from(format!("--{name}="));
            word.push(fill(&value, item)?);
            words.push((name.clone(), word));
        }
    }
    // The same options in another order are the same.
    words.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(words)
}

/// The files and numbers, as `NAME=PATH`.
fn files(files: &Table, item: Option<&Path>) -> Result<Vec<OsString>> {
    let word = |(name, value)| {
        let Some(value) = text(value) else {
            let text = format!("'{name}' is neither a path nor a number; write \"PATH\", 5.0 or true");
            return Err(Failure::Usage(text));
        };
        let mut word = OsString::from(format!("{name}="));
        word.push(fill(&value, item)?);
        Ok(word)
    };
    files.iter().map(word).collect()
}

/// The value as a word of a command line.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        // With its point, which tells it from an integer.
        Value::Float(number) => Some(format!("{number:?}")),
        Value::Boolean(value) => Some(value.to_string()),
        Value::Array(_) | Value::Table(_) | Value::Datetime(_) => None,
    }
}

/// Puts the file of `each` into a text.
fn fill(text: &str, item: Option<&Path>) -> Result<OsString> {
    let mut filled = OsString::new();
    let mut rest = text;
    loop {
        let next = PLACES.iter().filter_map(|place| Some((rest.find(place)?, *place))).min();
        let Some((start, place)) = next else {
            filled.push(rest);
            return Ok(filled);
        };
        let Some(item) = item else {
            let text = format!("{place} stands for a file of 'each', which this step does not have; add it");
            return Err(Failure::Usage(text));
        };
        filled.push(&rest[..start]);
        filled.push(match place {
            "{path}" => item.as_os_str(),
            "{name}" => item.file_name().unwrap_or_default(),
            _ => item.file_stem().unwrap_or_default(),
        });
        rest = &rest[start + place.len()..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn lists_of_options_name_options() {
        let command = StepArgs::command();
        let known: Vec<_> = command.get_arguments().filter_map(|argument| argument.get_long()).collect();
        for name in NEUTRAL.iter().chain(&REFUSED).filter(|name| !["help", "version"].contains(*name)) {
            assert!(known.contains(name), "{name}");
        }
    }

    #[test]
    fn options_become_arguments() {
        let table = |text: &str| toml::from_str::<Table>(text).unwrap();
        let words = |text: &str| -> Result<Vec<String>> {
            Ok(options(&table(text), None)?.iter().map(|(_, word)| exact(word)).collect())
        };
        let text = "workers = 3\nforce = true\nfsync = false\nhalo = [\"x=1\", \"y=2:0\"]\nverify = 1.0";
        assert_eq!(words(text).unwrap(), ["--force", "--halo=x=1", "--halo=y=2:0", "--verify=1.0", "--workers=3"]);
        for text in ["partial = \"p\"", "\"a=b\" = true", "\"\" = 1", "device = { a = 1 }", "rows = 1979-05-27"] {
            assert!(words(text).is_err(), "{text}");
        }
    }

    #[test]
    fn places_are_filled_once() {
        let fill = |text: &str, item: &str| exact(&fill(text, Some(Path::new(item))).unwrap());
        assert_eq!(fill("out/{stem}-{name}.x", "in/a.b.npy"), "out/a.b-a.b.npy.x");
        assert_eq!(fill("{path}:f32", "in/{stem}"), "in/{stem}:f32");
        assert_eq!(fill("{other}", "in/a"), "{other}");
        assert!(super::fill("{name}", None).is_err());
    }
}
