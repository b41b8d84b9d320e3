//! The command: arguments, progress, rendering. What it does, the library does.

mod args;
mod bench;
mod completions;
mod demo;
mod devices;
mod failure;
mod functions;
mod info;
mod interrupt;
mod job;
mod kernel;
mod log;
mod man;
mod output;
mod progress;
mod render;
mod style;
mod trace;
mod values;

pub use args::Args;
use args::Command;
use failure::Failure;

type Result<T = ()> = std::result::Result<T, Failure>;

/// Runs what the arguments ask for.
pub fn run(args: &Args) -> Result {
    log::start()?;
    match &args.command {
        Command::Run(args) => job::run(args),
        Command::Plan(args) => job::plan(args),
        Command::Devices(args) => devices::list(args),
        Command::Demo(args) => demo::demo(args),
        Command::Bench(args) => bench::bench(args),
        Command::Info(args) => info::info(args),
        Command::Functions => functions::list(),
        Command::Completions(args) => completions::completions(args),
        Command::Man(args) => man::man(args),
    }
}
