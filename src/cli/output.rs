//! Standard output.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use serde::Serialize;

use super::{Failure, Result};

/// Prints to standard output. A reader that went away, as `head` does, has what it wanted.
pub fn print(text: impl Display) -> Result {
    let mut out = io::stdout().lock();
    written(write!(out, "{text}").and_then(|()| out.flush()))
}

/// How a write to standard output went.
pub fn written(result: io::Result<()>) -> Result {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Output(error)),
        _ => Ok(()),
    }
}

/// Prints a value as JSON.
pub fn print_json(value: &impl Serialize) -> Result {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::Output(error.into()))?;
    print(format_args!("{text}\n"))
}
