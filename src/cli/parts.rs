//! `overshot run … --partial` and `overshot merge`: jobs in parts.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use overshot::units::{count, one_line};
use overshot::{Engine, Error, Job, JobError, Partial, PartialError};
use serde_json::json;

use super::args::{JobArgs, MergeArgs};
use super::output::{print, print_document, print_json};
use super::progress::Bar;
use super::report_file::ReportFile;
use super::values::Rows;
use super::{Failure, Result, interrupt, job, render};

/// The version of the JSON that tells which rows a partial has.
const SCHEMA_VERSION: u32 = 1;

/// Checks that the arguments say which rows to run if they name a partial, and only then.
pub fn check(args: &JobArgs) -> Result {
    let problem = match (&args.partial, &args.part, &args.rows) {
        (None, _, Some(Rows::Range(_))) => "--rows A..B needs --partial FILE, for the results of these rows",
        (Some(_), None, None | Some(Rows::Count(_))) => "--partial needs the rows to run: --part K/N, or --rows A..B",
        (Some(_), Some(_), Some(Rows::Range(_))) => "--part and --rows A..B both say which rows to run: leave one out",
        _ => return Ok(()),
    };
    Err(Failure::Usage(problem.into()))
}

/// Runs some rows of a job, and writes their partial.
pub fn run(args: &JobArgs, path: &Path, engine: &Engine, job: Job<'static>) -> Result {
    let file = file(path, job::files(args))?;
    let plan = engine.plan(&job).map_err(|error| unknown_rows(args, error))?;
    let rows = match (&args.rows, args.part) {
        (_, Some((part, of))) => engine.rows_of_part(&job, part, of)?,
        (Some(Rows::Range(rows)), None) => rows.clone(),
        (_, None) => 0..plan.rows,
    };
    let row_bytes = if args.files.is_empty() { 0 } else { plan.row_bytes };
    let bar = Bar::new(args.quiet, "overshot", rows.end.saturating_sub(rows.start), row_bytes);
    let job = job.cancel_token(interrupt::token()).progress(|progress| bar.show(progress));
    let partial = engine.run_rows(job, rows)?;
    drop(bar);
    write(file, path, &partial, args.json, args.quiet)
}

/// The file of a partial to be written. It replaces a partial, and no other file: it might be an input or an output of
/// the job, which `merge` gets no arguments for.
fn file(path: &Path, others: impl IntoIterator<Item = (String, PathBuf)>) -> Result<ReportFile<'_>> {
    let file = ReportFile::new("the partial", path, others)?;
    let mut begin = vec![];
    match File::open(path).and_then(|there| there.take(64).read_to_end(&mut begin)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(cannot(path, "cannot be read", "check its permissions", Some(error)).into());
        }
        _ => {}
    }
    if !begin.is_empty() && matches!(Partial::from_bytes(&begin), Err(Error::InvalidPartial(PartialError::NoPartial))) {
        let remedy = "choose another file for the partial, or remove this one";
        return Err(cannot(path, "is no partial", remedy, None).into());
    }
    Ok(file)
}

fn cannot(path: &Path, problem: &str, remedy: &str, cause: Option<io::Error>) -> Error {
    Error::File { path: path.into(), problem: problem.into(), remedy: remedy.into(), cause }
}

/// Says what to do if rows are named by their numbers, and nothing has rows.
fn unknown_rows(args: &JobArgs, error: Error) -> Failure {
    match (&args.rows, &error) {
        (Some(Rows::Range(_)), Error::InvalidJob(JobError::UnknownRows)) => Failure::Usage(
            "--rows A..B are rows of input files, and the job has none: write --rows N, the number of all rows, and \
             --part K/N"
                .into(),
        ),
        _ => error.into(),
    }
}

/// Merges partials, and prints the report of the whole job or writes a partial again.
pub fn merge(args: &MergeArgs) -> Result {
    let others = args.partials.iter().map(|path| ("a partial to be merged".to_owned(), path.clone()));
    let to = match args.partial.as_deref() {
        Some(target) => Some((target, file(target, others)?)),
        None => None,
    };
    let mut all: Option<Partial> = None;
    for path in &args.partials {
        let in_it = |error| Failure::In(path.clone(), Box::new(error));
        let partial = Partial::from_bytes(&read(path)?).map_err(in_it)?;
        match &mut all {
            Some(all) => all.merge(partial).map_err(in_it)?,
            None => all = Some(partial),
        }
    }
    let Some(all) = all else { return Err(Failure::Usage("name the partials to merge".into())) };
    if let Some((shown, file)) = to {
        return write(file, shown, &all, args.json, args.quiet);
    }
    let report = all.checksum(args.checksum).finish()?;
    match (args.json, args.quiet) {
        (true, _) => print_json(&report),
        (false, true) => print(report.values()),
        (false, false) => print(render::report(&report, args.verbose)),
    }
}

/// Reads the file of a partial. Refuses pipes and devices, because reading them may never end.
fn read(path: &Path) -> Result<Vec<u8>> {
    let unreadable = |error: io::Error| cannot(path, "the partial cannot be read", "check the path", Some(error));
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(cannot(path, "is not a regular file", "name the file of a partial", None).into());
    }
    Ok(fs::read(path).map_err(unreadable)?)
}

/// Writes a partial, and prints which rows it has.
fn write(file: ReportFile<'_>, path: &Path, partial: &Partial, is_json: bool, is_quiet: bool) -> Result {
    file.write_durably(&partial.to_bytes())?;
    let shown = path.to_string_lossy();
    if is_json {
        let rows: Vec<_> = partial.rows().iter().map(|rows| [rows.start, rows.end]).collect();
        let document = json!({ "partial": shown, "rows": rows, "total_rows": partial.total_rows() });
        return print_document(SCHEMA_VERSION, &document);
    }
    if is_quiet {
        return Ok(());
    }
    let range = |rows: &Range<u64>| format!("{} to {}", count(rows.start), count(rows.end));
    let rows = match partial.rows() {
        [] => "no rows".to_owned(),
        rows => format!("rows {}", rows.iter().map(range).collect::<Vec<_>>().join(", ")),
    };
    print(format!("{rows} of {} -> {}\n", count(partial.total_rows()), one_line(&shown)))
}
