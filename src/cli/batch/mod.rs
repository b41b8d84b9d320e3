//! `overshot run job.toml` and `overshot plan job.toml`: steps that run one after the other.

mod check;
mod file;
mod json;
mod plan;
mod state;
mod step;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use overshot::units::counted;
use overshot::{Engine, Error, Journal, Partial, Report};

use self::file::{JobFile, file_error};
use self::json::Outcome;
use self::state::{Kept, Stamp, State};
use self::step::Task;
use super::args::{JobArgs, LimitArgs};
use super::failure::StepFailure;
use super::output::{print, print_document};
use super::style::heading;
use super::{Failure, Result, interrupt, job, render};

pub use self::plan::plan;

/// The job file, if the text of a command is the path of one. An expression may end with the field `toml` of a table,
/// which is then assigned.
pub fn job_file(text: &str) -> Option<&Path> {
    let path = Path::new(text);
    let is_toml = path.extension().is_some_and(|extension| extension == "toml");
    (is_toml && (!text.contains('=') || path.is_file())).then_some(path)
}

/// Refuses what is given beside a job file, except the options of `allowed`.
fn refuse_others(path: &Path, given: &[String], allowed: &[&str]) -> Result {
    match given.iter().find(|name| *name != "EXPR" && !allowed.contains(&name.as_str())) {
        Some(name) => {
            let (path, known) = (path.display(), allowed.join(", "));
            let is_refused = name.strip_prefix("--").is_some_and(|name| step::REFUSED.contains(&name));
            Err(Failure::Usage(match is_refused {
                true => format!("{path}: {name} is not for job files, only {known}: leave it out"),
                false => format!("{path}: {name} is not for job files, only {known}: write it in the file"),
            }))
        }
        None => Ok(()),
    }
}

/// Runs the steps of a job file that have to run.
pub fn run(path: &Path, args: &JobArgs, given: &[String]) -> Result {
    refuse_others(path, given, &["--all", "--json", "--quiet", "--verbose"])?;
    let file = JobFile::open(path)?;
    let _lock = file.lock()?;
    let tasks = step::tasks(&file, args)?;
    check::files(&file, &tasks)?;
    let mut state = State::read(&file)?;
    state.begin(&file, &tasks)?;
    check_outputs(&file, &tasks, &state)?;

    let mut runner = Runner { file: &file, args, state, engines: Engines::default() };
    let mut outcomes = Vec::new();
    let mut failed = None;
    let count = tasks.len();
    for (place, mut task) in tasks.into_iter().enumerate() {
        if failed.is_some() {
            outcomes.push((task, Outcome::NotRun));
            continue;
        }
        let title = format!("[{}/{count}] {}", place + 1, task.name());
        let outcome = runner.step(&mut task, &title).unwrap_or_else(|failure| {
            let error = failure.json()["error"].take();
            failed = Some(at_task(&file, &task, failure));
            Outcome::Failed(error)
        });
        outcomes.push((task, outcome));
    }
    let printed =
        if args.json { print_document(json::SCHEMA_VERSION, &json::document(path, &outcomes)) } else { Ok(()) };
    match failed {
        Some(Failure::Step(mut failure)) => {
            failure.not_run = not_run(&outcomes);
            Err(Failure::Step(failure))
        }
        _ => printed,
    }
}

struct Runner<'a> {
    file: &'a JobFile,
    args: &'a JobArgs,
    state: State,
    engines: Engines,
}

impl Runner<'_> {
    /// Runs a task or skips it.
    fn step(&mut self, task: &mut Task, title: &str) -> Result<Outcome> {
        if interrupt::token().is_cancelled() {
            return Err(Error::Cancelled { done: 0, rows: 0 }.into());
        }
        let (args, name) = (self.args, task.name());
        if !args.all && self.state.why(task).is_none() {
            let kept = self.state.kept(task);
            show_kept(args, &name, title, &kept)?;
            return Ok(Outcome::Skipped(kept));
        }
        if !args.json && !args.quiet {
            print(heading(title) + "\n")?;
        }
        make_folders(task)?;
        if task.args.resume.is_some() {
            // A journal may replace files, but not those that appeared since it was written.
            check_outputs_of(task, &self.state)?;
        }
        task.args.force = replaces(task, &self.state);
        // Before the run, so that an input that changes during it is seen.
        let inputs = Stamp::of_inputs(task);
        let engine = self.engines.of(&task.args.limits)?;
        let (mut report, written) = job::compute(&task.args, engine, |report| show(args, &name, report))?;
        self.state.keep(self.file, task, inputs, &report, written.is_ok())?;
        // It is large, and written already.
        report.timeline = None;
        written.map(|()| Outcome::Ran(Box::new(report)))
    }
}

/// The engine of the last step, for steps with the same limits: to build one with GPUs takes a while.
#[derive(Default)]
struct Engines(Option<(LimitArgs, Engine)>);

impl Engines {
    fn of(&mut self, limits: &LimitArgs) -> Result<&Engine> {
        let engine = match self.0.take() {
            Some((own, engine)) if own == *limits => engine,
            _ => limits.engine()?,
        };
        Ok(&self.0.insert((limits.clone(), engine)).1)
    }
}

fn show(args: &JobArgs, name: &str, report: &Report) -> Result {
    match (args.json, args.quiet) {
        (true, _) => Ok(()),
        (false, true) => print(with_name(name, &report.values())),
        (false, false) => print(render::report(report, args.verbose)),
    }
}

fn show_kept(args: &JobArgs, name: &str, title: &str, kept: &Kept) -> Result {
    match (args.json, args.quiet) {
        (true, _) => Ok(()),
        (false, true) => print(with_name(name, &kept.lines)),
        (false, false) => print(format!("{}\n{}", heading(&format!("{title}: unchanged, skipped")), kept.lines)),
    }
}

/// Puts the name of a task before each line.
fn with_name(name: &str, lines: &str) -> String {
    lines.lines().map(|line| format!("{name}: {line}\n")).collect()
}

/// Finds outputs that cannot be written before any step runs.
fn check_outputs(file: &JobFile, tasks: &[Task], state: &State) -> Result {
    let check = |task| check_outputs_of(task, state).map_err(|failure| at_task(file, task, failure));
    tasks.iter().try_for_each(check)
}

fn check_outputs_of(task: &Task, state: &State) -> Result {
    let journal = match task.journal().filter(|journal| journal.path().exists()) {
        None => None,
        Some(journal) => match read_journal(&journal) {
            // The step says what is wrong with it, or that it is in use.
            None => return Ok(()),
            found => found,
        },
    };
    for output in &task.outputs {
        // A run that was interrupted at its end may have named some of its outputs.
        let is_named = || journal.as_ref().is_some_and(|journal| journal.has_named(&output.path));
        let is_own = task.args.force || state.owns(task, &output.path) || is_named();
        let new = job::new_file(&task.args, output)?.force(is_own);
        // A folder that is missing is made when the step runs.
        if folder(&output.path).is_dir() {
            new.check()?;
        }
    }
    Ok(())
}

/// Whether a run replaces its outputs: if the user wants that, or they are what the step itself has left. A run that
/// continues does as the one that it continues, because the journal of another one is refused.
fn replaces(task: &Task, state: &State) -> bool {
    let mut there = task.outputs.iter().filter(|output| output.path.symlink_metadata().is_ok()).peekable();
    let is_new = there.peek().is_none();
    let wants = task.args.force || (!is_new && there.all(|output| state.owns(task, &output.path)));
    match task.journal().and_then(|journal| read_journal(&journal)) {
        Some(journal) => journal.is_forced() || (wants && !is_new),
        None => wants,
    }
}

/// What a journal holds; `None` if there is none or it is of no use.
fn read_journal(journal: &Journal) -> Option<Partial> {
    let file = Some(journal.path()).filter(|path| path.is_file())?;
    Partial::from_bytes(&fs::read(file).ok()?).ok()
}

/// Makes the folders of the files that a task writes.
fn make_folders(task: &Task) -> Result {
    for path in task.writes().filter(|path| !folder(path).exists()) {
        let cannot = |error| file_error(folder(path), "the folder cannot be made", "check the path", Some(error));
        fs::create_dir_all(folder(path)).map_err(cannot)?;
    }
    Ok(())
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The steps that did not run, each with the number of its files if it has any.
fn not_run(outcomes: &[(Task, Outcome)]) -> Vec<String> {
    let left = outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::NotRun)).map(|(task, _)| task);
    let left: Vec<&Task> = left.collect();
    let name = |of_step: &[&Task]| match of_step {
        [one @ Task { item: None, .. }, ..] => one.step.clone(),
        all => format!("{} ({})", all[0].step, counted(all.len() as u64, "file")),
    };
    left.chunk_by(|a, b| a.step == b.step).map(name).collect()
}

fn at_task(file: &JobFile, task: &Task, failure: Failure) -> Failure {
    at_step(file, &task.step, task.item.as_deref(), failure)
}

/// Says in which step something failed.
fn at_step(file: &JobFile, step: &str, item: Option<&Path>, failure: Failure) -> Failure {
    let item = item.map(|item| shown(item.as_os_str()));
    let (file, step) = (file.shown.clone(), step.to_owned());
    Failure::Step(Box::new(StepFailure { file, step, item, failure, not_run: Vec::new() }))
}

/// The text for people: as it is if it is UTF-8, and otherwise with the numbers of its bytes.
fn shown(text: &OsStr) -> String {
    text.to_str().map_or_else(|| text.as_bytes().escape_ascii().to_string(), str::to_owned)
}

/// What stands before the bytes of a text that is not UTF-8. No path and no argument has it.
const BYTES: char = '\0';

/// The text for the state: as it is if it is UTF-8, and otherwise its bytes in hexadecimal digits. So two texts are
/// never one, and [`text_of`] takes it back.
fn exact(text: &OsStr) -> String {
    match text.to_str().filter(|text| !text.starts_with(BYTES)) {
        Some(text) => text.into(),
        None => text.as_bytes().iter().fold(BYTES.into(), |digits, byte| digits + &format!("{byte:02x}")),
    }
}

/// The text that [`exact`] has written. A state that somebody has changed may have another one.
fn text_of(exact: &str) -> OsString {
    let Some(digits) = exact.strip_prefix(BYTES) else { return exact.into() };
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
    bytes.map_or_else(|| exact.into(), OsString::from_vec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exact_texts_are_taken_back(
            bytes in proptest::collection::vec(any::<u8>(), 0..5),
            text in "\0?[0a\\\\xfé]{0,5}",
        ) {
            for bytes in [&bytes, text.as_bytes()] {
                let text = OsStr::from_bytes(bytes);
                prop_assert_eq!(text_of(&exact(text)), text);
            }
            let _ = text_of(&text);
        }
    }
}
