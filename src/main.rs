//! The command `overshot`.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
