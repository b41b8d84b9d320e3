//! `overshot man`.

use clap::CommandFactory;

use super::args::{Args, ManArgs};
use super::output::print_bytes;
use super::{Failure, Result};

/// Prints the page of the command or of a subcommand.
pub fn man(args: &ManArgs) -> Result {
    let mut command = Args::command();
    // Gives subcommands their full names in usage lines.
    command.build();
    let page = match &args.command {
        None => command,
        Some(name) => {
            let Some(found) = command.find_subcommand(name) else {
                let names: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
                return Err(Failure::Usage(format!(
                    "there is no command '{name}'; the commands are {}",
                    names.join(", ")
                )));
            };
            found.clone()
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text).map_err(Failure::Output)?;
    print_bytes(&text)
}
