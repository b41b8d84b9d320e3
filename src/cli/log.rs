//! The log: what the library traces, on standard error, if `OVERSHOT_LOG` asks for it.

use std::env::{self, VarError};
use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use super::{Failure, Result};

const VARIABLE: &str = "OVERSHOT_LOG";

/// Starts the log, if the variable is set, to a filter such as `debug` or `overshot=trace`.
pub fn start() -> Result {
    let invalid = |why: String| Failure::Usage(format!("{VARIABLE}: {why}; set it to a filter such as debug"));
    let filter = match env::var(VARIABLE) {
        Err(VarError::NotPresent) => return Ok(()),
        Err(VarError::NotUnicode(_)) => return Err(invalid("is not UTF-8 text".into())),
        Ok(text) => EnvFilter::try_new(text).map_err(|error| invalid(error.to_string()))?,
    };
    // The work of a chunk is a span: its end tells what was done, by which worker, in what time.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        // A log that cannot be written, as its reader is gone or its disk full, is no reason to stop the job: the subscriber
        // would tell with a macro that panics.
        .log_internal_errors(false)
        .init();
    Ok(())
}
