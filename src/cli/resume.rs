//! `overshot run --resume`: a run that continues after it was interrupted.

use std::io::{self, Write};

use overshot::{Engine, Error, Job, Journal, Report};

use super::args::JobArgs;
use super::{Failure, Result};

/// Returns the journal of `--resume`; `None` without it.
pub fn journal(args: &JobArgs, job: &Job<'_>) -> Result<Option<Journal>> {
    let Some(path) = &args.resume else { return Ok(None) };
    let outputs = job.output_names();
    let journal = match (path, args.files.iter().find(|file| outputs.contains(&file.name))) {
        (Some(path), _) => Journal::at(path),
        (None, Some(output)) => Journal::beside(&output.file.path),
        (None, None) => {
            let text = "--resume needs a file for its journal, because the job has no output file: --resume=FILE";
            return Err(Failure::Usage(text.into()));
        }
    };
    Ok(Some(match args.resume_every {
        Some(every) => journal.every(every),
        None => journal,
    }))
}

/// Runs the job, and says how to continue it if it is interrupted.
pub fn run(args: &JobArgs, engine: &Engine, job: Job<'_>, journal: &Journal) -> Result<Report> {
    let result = engine.run_resumable(job, journal);
    if let Err(Error::Cancelled { .. }) = &result
        && !args.json
        && journal.path().exists()
    {
        let path = journal.path().display();
        // If standard error is closed, there is no place to write to.
        let _ = writeln!(io::stderr(), "{path} keeps the rows that are complete: repeat the command to continue");
    }
    Ok(result?)
}
