//! Errors: each says where it happened, why, and what to do about it.

mod column;
mod job;
mod kernel;
mod matrix;
mod partial;
mod setting;
mod verification;

pub use column::ColumnError;
pub use job::JobError;
pub use kernel::KernelError;
pub use matrix::MatrixError;
pub use partial::PartialError;
pub use setting::SettingError;
pub use verification::VerificationError;

use std::ops::Range;
use std::path::PathBuf;

/// The result of a fallible operation of Overshot.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of Overshot.
///
/// The `Display` text is one line that names the place (file, column, device, rows), the reason and the remedy.
///
/// ```
/// use overshot::{Engine, Error, Job, JobError};
/// let engine = Engine::builder().build()?;
/// let result = engine.run(Job::eval("sum(x + y)")?.input("x", &[1.0, 2.0]).input("y", &[1.0]));
/// match result {
///     Err(error @ Error::InvalidJob(JobError::RowsDiffer { .. })) => {
///         assert!(error.is_usage());
///         assert!(error.to_string().contains("has 2 rows but input y (slice) has 1"));
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An expression does not parse or does not type-check.
    #[error("column {column} of '{text}': {message}")]
    Expression {
        /// The position of the error, in characters counted from 1.
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
        /// The name of the source.
        name: String,
        /// The line, counted from 1; 0 if the compiler named none.
        line: usize,
        /// The text of that line.
        text: String,
        /// The message of the compiler.
        message: String,
    },

    /// The parts of a job do not match: an unknown or missing name, different row counts, or a dtype that cannot be
    /// written.
    #[error(transparent)]
    InvalidJob(#[from] JobError),

    /// A kernel of the caller's own cannot be used as it is declared, set up or called.
    #[error(transparent)]
    InvalidKernel(#[from] KernelError),

    /// Partials do not fit together, or cannot be read.
    #[error(transparent)]
    InvalidPartial(#[from] PartialError),

    /// An algorithm on tables cannot use what it was given, or has no answer.
    #[error(transparent)]
    InvalidTable(#[from] MatrixError),

    /// An input or output breaks the contract of its trait, or is asked for rows that it does not have.
    #[error(transparent)]
    InvalidColumn(#[from] ColumnError),

    /// A setting of the engine, or a text that names a device or a dtype, is not valid.
    #[error(transparent)]
    InvalidSetting(#[from] SettingError),

    /// Overshot contradicts itself. This is a defect of Overshot, not of the job.
    #[error("{0}: this is a defect of Overshot, please report it")]
    Internal(String),

    /// A file cannot be used.
    #[error("{}: {problem}{}; {remedy}", path.display(), reason(cause))]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        problem: String,
        /// What to do.
        remedy: String,
        /// The error of the operating system, if there is one. It is part of the message and is therefore not
        /// returned by [`source`](std::error::Error::source).
        cause: Option<std::io::Error>,
    },

    /// A memory limit is too small for even one chunk.
    #[error("{what} is limited to {limit} bytes but one chunk needs {needed} bytes; {remedy}")]
    Budget {
        /// The name of the limit.
        what: &'static str,
        /// The limit in bytes.
        limit: u64,
        /// The memory that the smallest possible chunk needs, in bytes.
        needed: u64,
        /// What to do.
        remedy: String,
    },

    /// A device cannot be used, or failed outside any chunk.
    #[error("{device}: {problem}; {remedy}")]
    Device {
        /// The device, as `--device` names it.
        device: String,
        /// The reason.
        problem: String,
        /// What to do.
        remedy: String,
    },

    /// A device has no memory left for an allocation.
    #[error(
        "{device}: out of memory for {}; close other programs on the device, or set a smaller chunk",
        allocation(*bytes)
    )]
    OutOfMemory {
        /// The device, as `--device` names it.
        device: String,
        /// The size of the allocation in bytes; 0 for a context, whose size the driver does not report.
        bytes: u64,
    },

    /// A chunk failed in the pipeline.
    #[error("{device}, worker {worker}, chunk {chunk} (rows {} to {}): {cause}", rows.start, rows.end)]
    Chunk {
        /// The device, as `--device` names it.
        device: String,
        /// The index of the worker, counted from 0 on each device.
        worker: usize,
        /// The index of the chunk, counted from 0 in claim order. If the device does not report which chunk failed,
        /// this is the first chunk that may have failed.
        chunk: u64,
        /// The rows of the chunk, or of all chunks that may have failed.
        rows: Range<u64>,
        /// The cause. It is part of the message and is therefore not returned by
        /// [`source`](std::error::Error::source).
        cause: Box<Error>,
    },

    /// A chunk was computed again, and a byte differs. It is the cause of an [`Error::Chunk`], which names the device,
    /// the chunk and its rows.
    #[error(transparent)]
    Verification(#[from] Box<VerificationError>),

    /// An error of a [`Source`](crate::Source), [`Sink`](crate::Sink) or [`Target`](crate::io::Target) that the caller
    /// implements.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),

    /// Code of the caller panicked: a [`Source`](crate::Source), a [`Sink`](crate::Sink), a function of a kernel, or
    /// the [progress](crate::Job::progress) function. Only the job that called it ends. In a chunk, it is the cause of
    /// an [`Error::Chunk`].
    #[error("{whose} panicked: {message}; correct it, or report it if it is not code of yours")]
    Panicked {
        /// Whose code it was.
        whose: String,
        /// The message of the panic.
        message: String,
    },

    /// The job was cancelled through its [`CancelToken`](crate::CancelToken).
    #[error("stopped after {done} of {rows} rows; no output file was written")]
    Cancelled {
        /// Number of rows completed before the job stopped.
        done: u64,
        /// Number of rows of the job.
        rows: u64,
    },
}

/// What [`Error::abandoned`] holds. No caller can name it.
#[derive(Debug, thiserror::Error)]
#[error("another worker failed")]
struct Abandoned;

/// Returns the operating system's error in parentheses, to follow a problem.
fn reason(cause: &Option<std::io::Error>) -> String {
    cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default()
}

fn allocation(bytes: u64) -> String {
    if bytes == 0 { "a context".into() } else { format!("an allocation of {bytes} bytes") }
}

impl Error {
    /// Returns whether the job is invalid as requested, as opposed to a run that failed. The command exits with
    /// status 2 for invalid jobs and with status 1 for other errors.
    pub fn is_usage(&self) -> bool {
        use Error::{Compile, Expression, InvalidColumn, InvalidJob, InvalidKernel, InvalidPartial, InvalidSetting};
        let is_invalid =
            matches!(self, InvalidJob(_) | InvalidKernel(_) | InvalidColumn(_) | InvalidPartial(_) | InvalidSetting(_));
        is_invalid || matches!(self, Expression { .. } | Compile { .. } | Error::InvalidTable(_))
    }

    /// Returns the error of a worker that stops because another worker failed, or because the run is not needed any
    /// more. A run whose result is needed returns the original error, never this one.
    pub(crate) fn abandoned() -> Self {
        Error::other(Abandoned)
    }

    /// Returns whether this is the error that [`abandoned`](Error::abandoned) returns.
    pub(crate) fn is_abandoned(&self) -> bool {
        matches!(self, Error::Other(error) if error.is::<Abandoned>())
    }

    /// Returns whether this error is only a consequence of another error.
    pub(crate) fn is_consequence(&self) -> bool {
        match self {
            error if error.is_abandoned() => true,
            Error::Chunk { cause, .. } => cause.is_consequence(),
            _ => false,
        }
    }

    pub(crate) fn file(path: impl Into<PathBuf>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Error::File { path: path.into(), problem: problem.into(), remedy: remedy.into(), cause: None }
    }

    /// Wraps an error of the caller, to be returned from [`Source::read`](crate::Source::read) or
    /// [`Sink::write`](crate::Sink::write).
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Other(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;
    use std::io;

    /// Returns what a program prints that reports an error with all its sources.
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
    fn the_consequence_of_an_error_is_told_from_errors_of_callers() {
        let in_chunks = in_chunk(in_chunk(Error::abandoned()));
        assert!(Error::abandoned().is_consequence() && in_chunks.is_consequence() && !in_chunks.is_abandoned());
        let own = Error::other(Error::abandoned().to_string());
        assert!(!own.is_consequence() && !in_chunk(own).is_consequence());
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
