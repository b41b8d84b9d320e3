//! `overshot completions`.

use clap::CommandFactory;

use super::Result;
use super::args::{Args, CompletionsArgs};
use super::output::print_bytes;

/// Prints the script for a shell.
pub fn completions(args: &CompletionsArgs) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "overshot", &mut script);
    print_bytes(&script)
}
