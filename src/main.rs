//! The command `overshot`: parse, run one subcommand, exit with its code.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
