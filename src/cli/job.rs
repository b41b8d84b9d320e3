//! `overshot run` and `overshot plan`.

use overshot::{Error, Job};

use super::args::JobArgs;
use super::output::{print, print_json};
use super::progress::Bar;
use super::trace::Trace;
use super::{Result, interrupt, kernel, render};

/// Runs the job and prints its report.
pub fn run(args: &JobArgs) -> Result {
    let engine = args.limits.engine()?;
    let job = job(args)?;
    let plan = engine.plan(&job)?;
    // Made before the run: a path that cannot be written is found out before any work is done.
    let trace = args.trace.as_deref().map(Trace::create).transpose()?;
    // Without files there is no data, whose rate one could show.
    let row_bytes = if args.files.is_empty() { 0 } else { plan.row_bytes };
    let bar = Bar::new(args.quiet, "overshot", plan.rows, row_bytes);
    let job = job.cancel_token(interrupt::token()).progress(|progress| bar.show(progress)).timeline(trace.is_some());
    let report = engine.run(job)?;
    drop(bar);
    if let (Some(trace), Some(timeline)) = (trace, &report.timeline) {
        trace.write(timeline)?;
    }
    match (args.json, args.quiet) {
        (true, _) => print_json(&report),
        (false, true) => print(report.values()),
        (false, false) => print(render::report(&report, args.verbose)),
    }
}

/// Prints how the job would be run.
pub fn plan(args: &JobArgs) -> Result {
    let plan = args.limits.engine()?.plan(&job(args)?)?;
    if args.json { print_json(&plan) } else { print(&plan) }
}

/// The job with its files. Inputs are opened; outputs are only named.
fn job(args: &JobArgs) -> Result<Job<'static>> {
    let call = match kernel::of(&args.expression) {
        Some((file, entry)) => Some(kernel::call(args, &file, entry)?),
        None => kernel::refuse_options(&args.kernel).map(|()| None)?,
    };
    let is_argument = |name: &str| {
        call.as_ref().is_some_and(|call| call.value_type(name).is_some())
            || args.kernel.resident.iter().any(|r| r == name)
    };
    let files: Vec<_> = args.files.iter().filter(|file| !is_argument(&file.name)).collect();
    let mut job = match call {
        Some(call) => Job::kernel(call),
        None => Job::eval(&args.expression)?,
    };
    if let Some(rows) = args.rows {
        job = job.rows(rows);
    }
    for file in files {
        job = if job.output_names().contains(&file.name) {
            job.output(&file.name, file.file.create(args.force)?)
        } else if job.input_names().contains(&file.name) {
            job.input(&file.name, args.open(&file.file)?)
        } else {
            let names = [job.input_names(), job.output_names()].concat().join(", ");
            let (name, path) = (&file.name, file.file.path.display());
            let text = format!("{name}={path}: there is no name '{name}', only {names}; check its spelling");
            return Err(Error::Job(text).into());
        };
    }
    Ok(job)
}
