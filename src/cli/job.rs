//! `overshot run` and `overshot plan`.

use std::path::PathBuf;

use overshot::io::{NamedFile, NewFile};
use overshot::kernel::Call;
use overshot::{Engine, Job, Plan, Report, html};

use super::args::JobArgs;
use super::output::{print, print_document, print_json};
use super::progress::Bar;
use super::report_file::ReportFile;
use super::values::{Binding, Rows, Value};
use super::{Failure, Result, interrupt, kernel, parts, render, resume};

/// Runs the job and prints its report.
pub fn run(args: &JobArgs) -> Result {
    refuse_all(args)?;
    parts::check(args)?;
    let engine = args.limits.engine()?;
    if let Some(path) = &args.partial {
        return parts::run(args, path, &engine, job(args)?);
    }
    let print = |report: &Report| match (args.json, args.quiet) {
        (true, _) => print_json(report),
        (false, true) => print(report.values()),
        (false, false) => print(render::report(report, args.verbose)),
    };
    compute(args, &engine, print)?.1
}

/// Refuses the option of job files for an expression.
fn refuse_all(args: &JobArgs) -> Result {
    match args.all {
        true => {
            Err(Failure::Usage("--all applies only to job files, as in 'overshot run FILE.toml'; remove it".into()))
        }
        false => Ok(()),
    }
}

/// Runs the job, prints its report with `show`, and writes the trace and the page. The outputs are there if this
/// returns a report. The second result says whether that could be printed and written.
pub fn compute(args: &JobArgs, engine: &Engine, show: impl FnOnce(&Report) -> Result) -> Result<(Report, Result)> {
    let job = job(args)?;
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
        Some(journal) => resume::run(args, engine, job, journal)?,
        None => engine.run(job)?,
    };
    drop(bar);
    let printed = show(&report);
    // Last, so that the results are printed even if these files cannot be written. One that can be is.
    let traced = match (trace, &report.timeline) {
        (Some(trace), Some(timeline)) => trace.write(|out| timeline.write_chrome(out)),
        _ => Ok(()),
    };
    let drawn = page.map_or(Ok(()), |page| write_page(page, args, &report.html()));
    Ok((report, traced.and(drawn).and(printed)))
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
    refuse_all(args)?;
    if args.partial.is_some() || matches!(args.rows, Some(Rows::Range(_))) {
        return Err(Failure::Usage("a plan is one of all rows: leave out --partial, --part and --rows A..B".into()));
    }
    let plan = planned(args, &args.limits.engine()?)?;
    let page = page(args)?;
    let printed = if args.json { print_document(1, &plan) } else { print(&plan) };
    page.map_or(Ok(()), |page| write_page(page, args, &plan.html())).and(printed)
}

/// The plan of the job.
pub fn planned(args: &JobArgs, engine: &Engine) -> Result<Plan> {
    Ok(engine.plan(&job(args)?)?)
}

/// What a job does with the file or number of a name.
pub enum Use {
    /// It writes the file.
    Output,
    /// It reads files: one, or fields of one, each for an input.
    Inputs(Vec<(String, NamedFile)>),
    /// It takes the number.
    Number(Value),
    /// The kernel takes the number or the whole file.
    Argument,
}

/// The computation of a job, without its files.
pub enum Computation {
    Expression(Job<'static>),
    Kernel(Box<Call>),
}

/// Reads the expression or the declaration of the kernel, and finds what it does with each of the files, of which it
/// opens none.
pub fn declared(args: &JobArgs) -> Result<(Computation, Vec<(&Binding, Use)>)> {
    let is_resident = |name: &str| args.kernel.resident.iter().any(|resident| resident == name);
    let (computation, names) = match kernel::of(&args.expression)? {
        Some((file, entry)) => {
            let call = kernel::declared(args, file, entry)?;
            let names = Names::of(&Job::kernel(call.clone()));
            (Computation::Kernel(Box::new(call)), names)
        }
        None => {
            kernel::refuse_options(&args.kernel)?;
            let job = Job::eval(&args.expression)?;
            let names = Names::of(&job);
            (Computation::Expression(job), names)
        }
    };
    let mut uses = Vec::with_capacity(args.files.len());
    for file in &args.files {
        let used = match &computation {
            Computation::Kernel(call) if call.value_type(&file.name).is_some() || is_resident(&file.name) => {
                Use::Argument
            }
            Computation::Kernel(_) => names.use_of(file, None, args)?,
            Computation::Expression(_) => names.use_of(file, file.number()?, args)?,
        };
        uses.push((file, used));
    }
    Ok((computation, uses))
}

/// The job with its files. Inputs are opened; outputs are only named.
fn job(args: &JobArgs) -> Result<Job<'static>> {
    let (computation, uses) = declared(args)?;
    let mut job = match computation {
        Computation::Expression(job) => job,
        Computation::Kernel(call) => Job::kernel(kernel::with_arguments(args, *call)?),
    };
    if let Some(Rows::Count(rows)) = args.rows {
        job = job.rows(rows);
    }
    job = job.verify(args.verify.unwrap_or(0.0)).checksum(args.checksum);
    job = job.precision(args.precision.unwrap_or_default());
    let is_output = |used: &Use| matches!(used, Use::Output);
    let outputs: Vec<_> = uses.iter().filter(|(_, used)| is_output(used)).map(|(file, _)| &file.file).collect();
    check_encoding(args, &outputs)?;
    for (Binding { name, file }, used) in uses {
        job = match used {
            Use::Output => job.output(name, new_file(args, file)?),
            Use::Number(Value::Scalar(scalar)) => job.scalar(name, scalar),
            Use::Number(Value::Number(number)) => job.number(name, number),
            Use::Inputs(inputs) => {
                for (input, file) in inputs {
                    job = job.input(&input, args.reading.open(&file)?);
                }
                job
            }
            Use::Argument => job,
        };
    }
    Ok(job)
}

/// A file to be written as the options say. Those about encoding are for the formats that are encoded.
pub fn new_file(args: &JobArgs, file: &NamedFile) -> Result<NewFile> {
    let mut new = file.create()?.force(args.force).fsync(args.fsync);
    if !new.is_encoded() {
        return Ok(new);
    }
    if let Some(codec) = args.codec {
        new = new.codec(codec);
    }
    if let Some(chunks) = &args.chunks {
        new = new.chunks(chunks);
    }
    if !new.is_array() {
        return Ok(new);
    }
    if let Some(shards) = &args.shards {
        new = new.shards(shards);
    }
    if let Some(names) = &args.dimensions {
        new = new.dimensions(names);
    }
    Ok(new)
}

/// Options about encoding need an output that is encoded.
fn check_encoding(args: &JobArgs, outputs: &[&NamedFile]) -> Result {
    let given = [
        ("--codec", args.codec.is_some()),
        ("--chunks", args.chunks.is_some()),
        ("--shards", args.shards.is_some()),
        ("--dimensions", args.dimensions.is_some()),
    ];
    let have = |is_such: fn(&NewFile) -> bool| outputs.iter().any(|file| file.create().is_ok_and(|new| is_such(&new)));
    let [encoded, array] = [have(NewFile::is_encoded), have(NewFile::is_array)];
    for (option, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
        let problem = match option {
            "--codec" | "--chunks" if encoded => continue,
            "--codec" | "--chunks" => {
                format!("{option} is for Parquet and Zarr outputs: name one, such as y=y.parquet, or leave it out")
            }
            _ if array => continue,
            _ => format!("{option} is for Zarr outputs: name one, such as y=y.zarr, or leave it out"),
        };
        return Err(Failure::Usage(problem));
    }
    Ok(())
}

/// The names of a job.
struct Names {
    inputs: Vec<String>,
    outputs: Vec<String>,
    results: Vec<String>,
}

impl Names {
    fn of(job: &Job<'_>) -> Names {
        Names { inputs: job.input_names(), outputs: job.output_names(), results: job.result_names() }
    }

    fn use_of(&self, binding: &Binding, number: Option<Value>, args: &JobArgs) -> Result<Use> {
        let Binding { name, file } = binding;
        let path = file.path.display();
        if self.outputs.contains(name) || self.results.contains(name) {
            return match number {
                None => Ok(Use::Output),
                Some(_) => Err(Failure::Usage(format!(
                    "{name}={path}: the expression assigns '{name}', so it cannot be a number; give it a file"
                ))),
            };
        }
        if self.inputs.contains(name) {
            return Ok(number.map_or_else(|| Use::Inputs(vec![(name.clone(), file.clone())]), Use::Number));
        }
        let fields = fields_of(name, &self.inputs, args);
        if fields.is_empty() {
            return Err(Failure::Usage(format!("{name}={path}: {}", self.no_such_name(name))));
        }
        if file.field.is_some() || file.columns.is_some() {
            let (input, _) = &fields[0];
            return Err(Failure::Usage(format!(
                "{name}={path}: columns are named behind the file, and the expression reads '{input}'; leave those \
                 behind the file out, or write '{name}' in the expression"
            )));
        }
        Ok(Use::Inputs(fields.into_iter().map(|(input, field)| (input, file.with_field(&field))).collect()))
    }

    /// The problem with a name in the arguments that the job does not have.
    fn no_such_name(&self, name: &str) -> String {
        match [&self.inputs[..], &self.outputs].concat() {
            names if names.is_empty() => format!("the job has no name '{name}', and no other; remove the file"),
            names => format!("the job has no name '{name}', only {}; check the spelling", names.join(", ")),
        }
    }
}

/// The inputs that are fields of the file with this name, as `t.price` of `t`, each with its field. Those that have a
/// file of their own are not.
fn fields_of(name: &str, inputs: &[String], args: &JobArgs) -> Vec<(String, String)> {
    let own = inputs.iter().filter(|input| !args.files.iter().any(|file| file.name == **input));
    let field = |input: &String| Some((input.clone(), input.strip_prefix(name)?.strip_prefix('.')?.to_owned()));
    own.filter_map(field).collect()
}
