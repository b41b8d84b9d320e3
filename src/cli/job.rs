//! `overshot run` and `overshot plan`.

use std::path::PathBuf;

use overshot::{Job, html};

use super::args::{JobArgs, open};
use super::output::{print, print_json};
use super::progress::Bar;
use super::report_file::ReportFile;
use super::values::{Binding, Rows, Value};
use super::{Failure, Result, interrupt, kernel, parts, render, resume};

/// Runs the job and prints its report.
pub fn run(args: &JobArgs) -> Result {
    parts::check(args)?;
    let engine = args.limits.engine()?;
    let job = job(args)?;
    if let Some(path) = &args.partial {
        return parts::run(args, path, &engine, job);
    }
    let journal = resume::journal(args, &job)?;
    let plan = engine.plan(&job)?;
    let trace = args.trace.as_deref().map(|path| ReportFile::new("the trace", path, files(args))).transpose()?;
    let page = page(args)?;
    // Without files there is no data, so there is no rate to show.
    let row_bytes = if args.files.is_empty() { 0 } else { plan.row_bytes };
    let bar = Bar::new(args.quiet, "overshot", plan.rows, row_bytes);
    let job = job.cancel_token(interrupt::token()).progress(|progress| bar.show(progress));
    let job = job.timeline(trace.is_some() || page.is_some());
    let report = match &journal {
        Some(journal) => resume::run(args, &engine, job, journal)?,
        None => engine.run(job)?,
    };
    drop(bar);
    let printed = match (args.json, args.quiet) {
        (true, _) => print_json(&report),
        (false, true) => print(report.values()),
        (false, false) => print(render::report(&report, args.verbose)),
    };
    // Last, so that the results are printed even if these files cannot be written. One that can be is.
    let traced = match (trace, &report.timeline) {
        (Some(trace), Some(timeline)) => trace.write(|out| timeline.write_chrome(out)),
        _ => Ok(()),
    };
    let drawn = page.map_or(Ok(()), |page| write_page(page, args, &report.html()));
    traced.and(drawn).and(printed)
}

/// The file of `--html`, which is none of the others.
fn page(args: &JobArgs) -> Result<Option<ReportFile<'_>>> {
    let trace = args.trace.as_deref().map(|path| ("the trace".to_owned(), path.to_owned()));
    args.html.as_deref().map(|path| ReportFile::new("the page", path, files(args).chain(trace))).transpose()
}

fn write_page(page: ReportFile<'_>, args: &JobArgs, fragment: &str) -> Result {
    page.write(|out| out.write_all(html::page(&args.expression, fragment).as_bytes()))
}

/// The files of a job, each with its description.
pub fn files(args: &JobArgs) -> impl Iterator<Item = (String, PathBuf)> {
    let kernel = kernel::file(&args.expression).map(|file| ("the kernel's file".to_owned(), file.to_owned()));
    let of_name = |file: &Binding| {
        let what = format!("'{}'", file.name);
        file.file.files().into_iter().map(move |path| (what.clone(), path)).collect::<Vec<_>>()
    };
    kernel.into_iter().chain(args.files.iter().flat_map(of_name))
}

/// Prints the plan of the job.
pub fn plan(args: &JobArgs) -> Result {
    if args.partial.is_some() || matches!(args.rows, Some(Rows::Range(_))) {
        return Err(Failure::Usage("a plan is one of all rows: leave out --partial, --part and --rows A..B".into()));
    }
    let plan = args.limits.engine()?.plan(&job(args)?)?;
    let page = page(args)?;
    let printed = if args.json { print_json(&plan) } else { print(&plan) };
    page.map_or(Ok(()), |page| write_page(page, args, &plan.html())).and(printed)
}

/// The job with its files. Inputs are opened; outputs are only named.
fn job(args: &JobArgs) -> Result<Job<'static>> {
    let call = match kernel::of(&args.expression)? {
        Some((file, entry)) => Some(kernel::call(args, file, entry)?),
        None => kernel::refuse_options(&args.kernel).map(|()| None)?,
    };
    let is_argument = |name: &str| {
        call.as_ref().is_some_and(|call| call.value_type(name).is_some())
            || args.kernel.resident.iter().any(|r| r == name)
    };
    let files: Vec<_> = args.files.iter().filter(|file| !is_argument(&file.name)).collect();
    let is_expression = call.is_none();
    let mut job = match call {
        Some(call) => Job::kernel(call),
        None => Job::eval(&args.expression)?,
    };
    if let Some(Rows::Count(rows)) = args.rows {
        job = job.rows(rows);
    }
    job = job.verify(args.verify.unwrap_or(0.0)).checksum(args.checksum);
    job = job.precision(args.precision.unwrap_or_default());
    let nulls = args.nulls.as_deref();
    for file in files {
        let (name, path) = (&file.name, file.file.path.display());
        let number = if is_expression { file.number()? } else { None };
        let (inputs, outputs) = (job.input_names(), [job.output_names(), job.result_names()].concat());
        job = if outputs.contains(name) {
            if number.is_some() {
                let text =
                    format!("{name}={path}: the expression assigns '{name}', so it cannot be a number; give it a file");
                return Err(Failure::Usage(text));
            }
            job.output(name, file.file.create()?.force(args.force).fsync(args.fsync))
        } else if inputs.contains(name) {
            match number {
                Some(Value::Scalar(scalar)) => job.scalar(name, scalar),
                Some(Value::Number(number)) => job.number(name, number),
                None => job.input(name, open(&file.file.with_nulls(nulls), args.read_mode)?),
            }
        } else {
            let fields = fields_of(name, &inputs, args);
            if fields.is_empty() {
                return Err(Failure::Usage(format!("{name}={path}: {}", no_such_name(name, &job))));
            }
            for (input, field) in fields {
                job = job.input(&input, open(&file.file.with_field(&field).with_nulls(nulls), args.read_mode)?);
            }
            job
        };
    }
    Ok(job)
}

/// The inputs that are fields of the file with this name, as `t.price` of `t`, each with its field. Those that have a
/// file of their own are not.
fn fields_of(name: &str, inputs: &[String], args: &JobArgs) -> Vec<(String, String)> {
    let own = inputs.iter().filter(|input| !args.files.iter().any(|file| file.name == **input));
    let field = |input: &String| Some((input.clone(), input.strip_prefix(name)?.strip_prefix('.')?.to_owned()));
    own.filter_map(field).collect()
}

/// The problem with a name in the arguments that the job does not have.
fn no_such_name(name: &str, job: &Job<'_>) -> String {
    match [job.input_names(), job.output_names()].concat() {
        names if names.is_empty() => format!("the job has no name '{name}', and no other; remove the file"),
        names => format!("the job has no name '{name}', only {}; check the spelling", names.join(", ")),
    }
}
