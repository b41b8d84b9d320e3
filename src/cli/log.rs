//! The log: events of the library on standard error, if `OVERSHOT_LOG` is set.

use std::env::{self, VarError};
use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use super::{Failure, Result};

const VARIABLE: &str = "OVERSHOT_LOG";

/// Starts the log if the variable is set. Its value is a filter, such as `debug` or `overshot=trace`.
pub fn start() -> Result {
    let invalid = |why: String| Failure::Usage(format!("{VARIABLE}: {why}; set it to a filter such as debug"));
    let filter = match env::var(VARIABLE) {
        Err(VarError::NotPresent) => return Ok(()),
        Err(VarError::NotUnicode(_)) => return Err(invalid("is not UTF-8 text".into())),
        Ok(text) => EnvFilter::try_new(text).map_err(|error| invalid(error.to_string()))?,
    };
    // The work on a chunk is a span. The close event contains the chunk, the worker and the time.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        // A closed pipe or a full disk must not stop the job: the subscriber reports internal errors with a macro
        // that panics.
        .log_internal_errors(false)
        .init();
    Ok(())
}
