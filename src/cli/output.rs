//! Standard output.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use serde::Serialize;

use super::{Failure, Result};

/// Prints text to standard output, in colour if that is a terminal that has it. A reader that went away, as `head` does,
/// has what it wanted.
pub fn print(text: impl Display) -> Result {
    write(&mut anstream::stdout().lock(), &text)
}

/// Prints a value as JSON.
pub fn print_json(value: &impl Serialize) -> Result {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::Output(error.into()))?;
    print_bytes(text.as_bytes()).and_then(|()| print_bytes(b"\n"))
}

/// Prints bytes as they are, for programs.
pub fn print_bytes(bytes: &[u8]) -> Result {
    let mut out = io::stdout().lock();
    written(out.write_all(bytes).and_then(|()| out.flush()))
}

fn write(out: &mut impl Write, text: &impl Display) -> Result {
    written(write!(out, "{text}").and_then(|()| out.flush()))
}

/// How a write to standard output went.
pub fn written(result: io::Result<()>) -> Result {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Output(error)),
        _ => Ok(()),
    }
}
