//! What can go wrong, in words that say where and what to do.

use std::ops::Range;
use std::path::PathBuf;

/// The result of everything in Overshot that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of Overshot.
///
/// Its `Display` is one line that names the place (file, column, device, rows), the reason and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An expression does not parse or does not type-check.
    #[error("column {column} of '{text}': {message}")]
    Expression {
        /// Where, counted in characters from 1.
        column: usize,
        /// The whole expression.
        text: String,
        /// The reason and the remedy.
        message: String,
    },

    /// A kernel does not compile.
    #[error("{name}{}: {message}{}; correct the kernel",
        if *line > 0 { format!(", line {line}") } else { String::new() },
        if text.is_empty() { String::new() } else { format!(": `{text}`") })]
    Compile {
        /// What the source is called.
        name: String,
        /// The line, counted from 1; 0 if the compiler named none.
        line: usize,
        /// That line of the source.
        text: String,
        /// What the compiler said.
        message: String,
    },

    /// The parts of a job do not fit each other: an unknown or missing name, row counts that differ, a dtype that
    /// cannot be written.
    #[error("{0}")]
    Job(String),

    /// A file cannot be used.
    #[error("{}: {problem}; {remedy}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        problem: String,
        /// What to do.
        remedy: String,
        /// What the operating system said, when it said something.
        source: Option<std::io::Error>,
    },

    /// A memory limit is too small for even one chunk.
    #[error("{what} is limited to {limit} bytes but one chunk needs {needed} bytes; {remedy}")]
    Budget {
        /// Which limit.
        what: &'static str,
        /// The limit in bytes.
        limit: u64,
        /// What the smallest possible chunk needs, in bytes.
        needed: u64,
        /// What to do.
        remedy: String,
    },

    /// A device cannot be used, or failed outside any chunk.
    #[error("{device}: {problem}; {remedy}")]
    Device {
        /// The device as `--device` names it.
        device: String,
        /// The reason.
        problem: String,
        /// What to do.
        remedy: String,
    },

    /// A device has no memory left for an allocation.
    #[error("{device}: out of memory for {}; close other programs on the device, or set a smaller chunk", allocation(*bytes))]
    OutOfMemory {
        /// The device as `--device` names it.
        device: String,
        /// The size of the allocation in bytes; 0 for a context, whose size the driver keeps to itself.
        bytes: u64,
    },

    /// A chunk failed on its way through the pipeline.
    #[error("{device}, lane {lane}, chunk {chunk} (rows {} to {}): {source}", rows.start, rows.end)]
    Chunk {
        /// The device as `--device` names it.
        device: String,
        /// The lane, counted from 0 on each device.
        lane: usize,
        /// The chunk, counted from 0 in claim order; the first one that it may have been, if the device does not tell.
        chunk: u64,
        /// Its rows, or those of all chunks that it may have been.
        rows: Range<u64>,
        /// What happened.
        source: Box<Error>,
    },

    /// A lane gave up because another lane failed, or the run is not needed any more. A run that is needed returns the other's
    /// error, never this one.
    #[doc(hidden)]
    #[error("another lane failed")]
    Abandoned,

    /// The job was stopped by its [`CancelToken`](crate::CancelToken).
    #[error("stopped after {done} of {rows} rows; no output file was written")]
    Cancelled {
        /// Rows done when it stopped.
        done: u64,
        /// Rows of the job.
        rows: u64,
    },
}

fn allocation(bytes: u64) -> String {
    if bytes == 0 { "a context".into() } else { format!("an allocation of {bytes} bytes") }
}

impl Error {
    /// Whether the job as it was asked for cannot be run at all, as opposed to a run that failed: the command exits
    /// with 2 for these and with 1 for the others.
    pub fn is_usage(&self) -> bool {
        matches!(self, Error::Expression { .. } | Error::Compile { .. } | Error::Job(_))
    }

    /// Whether it happened only because of another error.
    pub(crate) fn is_consequence(&self) -> bool {
        match self {
            Error::Abandoned => true,
            Error::Chunk { source, .. } => source.is_consequence(),
            _ => false,
        }
    }

    pub(crate) fn file(path: impl Into<PathBuf>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Error::File { path: path.into(), problem: problem.into(), remedy: remedy.into(), source: None }
    }
}
