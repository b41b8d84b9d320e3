//! The command: arguments, progress and output. The library does the work.

mod args;
mod batch;
mod bench;
mod completions;
mod demo;
mod devices;
mod failure;
mod functions;
mod help;
mod info;
mod interrupt;
mod job;
mod kernel;
mod log;
mod lost_page;
mod man;
#[cfg(feature = "matrices")]
mod matrices;
mod output;
mod parts;
mod progress;
mod render;
mod report_file;
mod resume;
mod style;
mod unfinished;
mod values;

use std::process::ExitCode;

use args::{Args, Command};
use failure::Failure;

type Result<T = ()> = std::result::Result<T, Failure>;

/// Runs the command and returns its exit code. If a signal stopped it, the signal terminates the process instead.
pub fn main() -> ExitCode {
    let is_json = args::ask_for_json();
    lost_page::handle(is_json);
    interrupt::survive_file_size_limit();
    let code = match Args::read().and_then(|args| args.map_or(Ok(()), |args| run(&args))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(is_json),
    };
    interrupt::end_if_received();
    code
}

fn run(args: &Args) -> Result {
    log::start()?;
    match &args.command {
        Command::Run(job) => match batch::job_file(&job.expression) {
            Some(path) => batch::run(path, job, &args.given),
            None => job::run(job),
        },
        Command::Merge(args) => parts::merge(args),
        #[cfg(feature = "matrices")]
        Command::Matrices(args) => matrices::run(args),
        Command::Plan(job) => match batch::job_file(&job.expression) {
            Some(path) => batch::plan(path, job, &args.given),
            None => job::plan(job),
        },
        Command::Devices(args) => devices::list(args),
        Command::Demo(args) => demo::demo(args),
        Command::Bench(args) => bench::bench(args),
        Command::Info(args) => info::info(args),
        Command::Functions => functions::list(),
        Command::Completions(args) => completions::completions(args),
        Command::Man(args) => man::man(args),
    }
}
