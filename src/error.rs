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
    #[error("{}: {problem}{}; {remedy}", path.display(), reason(cause))]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        problem: String,
        /// What to do.
        remedy: String,
        /// What the operating system said, when it said something. It is a part of the message, and so it is not the
        /// error's [`source`](std::error::Error::source).
        cause: Option<std::io::Error>,
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
    #[error("{device}, worker {worker}, chunk {chunk} (rows {} to {}): {cause}", rows.start, rows.end)]
    Chunk {
        /// The device as `--device` names it.
        device: String,
        /// The worker, counted from 0 on each device.
        worker: usize,
        /// The chunk, counted from 0 in claim order; the first one that it may have been, if the device does not tell.
        chunk: u64,
        /// Its rows, or those of all chunks that it may have been.
        rows: Range<u64>,
        /// What happened. It is a part of the message, and so it is not the error's
        /// [`source`](std::error::Error::source).
        cause: Box<Error>,
    },

    /// An error of the caller's own [`Source`](crate::Source), [`Sink`](crate::Sink) or [`Target`](crate::io::Target).
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),

    /// A worker gave up because another worker failed, or the run is not needed any more. A run that is needed returns the other's
    /// error, never this one.
    #[doc(hidden)]
    #[error("another worker failed")]
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

/// What the operating system said, behind a problem.
fn reason(cause: &Option<std::io::Error>) -> String {
    cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default()
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
            Error::Chunk { cause, .. } => cause.is_consequence(),
            _ => false,
        }
    }

    pub(crate) fn file(path: impl Into<PathBuf>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Error::File { path: path.into(), problem: problem.into(), remedy: remedy.into(), cause: None }
    }

    /// An error of the caller's own, as [`Source::read`](crate::Source::read) and [`Sink::write`](crate::Sink::write)
    /// return them.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Other(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;
    use std::io;

    /// What programs print that print an error with all its sources.
    fn chain(error: &dyn std::error::Error) -> Vec<String> {
        let mut next = Some(error);
        std::iter::from_fn(|| {
            let error = next?;
            next = error.source();
            Some(error.to_string())
        })
        .collect()
    }

    fn in_chunk(cause: Error) -> Error {
        Error::Chunk { device: "cpu".into(), worker: 0, chunk: 4, rows: 5..9, cause: cause.into() }
    }

    #[test]
    fn a_cause_is_said_once() {
        let cause = Some(io::Error::other("the disk is on fire"));
        let file = Error::File { path: "a".into(), problem: "cannot be read".into(), remedy: "leave".into(), cause };
        assert_eq!(chain(&file), ["a: cannot be read (the disk is on fire); leave"]);
        let text = "cpu, worker 0, chunk 4 (rows 5 to 9): a: cannot be read (the disk is on fire); leave";
        assert_eq!(chain(&in_chunk(file)), [text]);
        assert_eq!(chain(&Error::file("a", "is short", "copy it")), ["a: is short; copy it"]);
    }

    #[test]
    fn errors_of_the_callers_own_stay_what_they_are() {
        #[derive(Debug, thiserror::Error)]
        #[error("S3 said 503")]
        struct Own(#[source] io::Error);
        let error = Error::other(Own(io::Error::other("timeout")));
        assert_eq!(chain(&error), ["S3 said 503", "timeout"]);
        assert!(error.source().is_some() && !error.is_usage());
        let Error::Other(own) = &error else { panic!("{error:?}") };
        assert!(own.is::<Own>());
        assert_eq!(chain(&in_chunk(error)), ["cpu, worker 0, chunk 4 (rows 5 to 9): S3 said 503"]);
        assert_eq!(Error::other("text alone").to_string(), "text alone");
    }
}
