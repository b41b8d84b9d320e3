//! The command `overshot`: parse, run one subcommand, exit with its code.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::Args::read().and_then(|args| cli::run(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
