//! Errors: each says where it happened, why, and what to do about it.

use std::ops::Range;
use std::path::PathBuf;

/// The result of a fallible operation of Overshot.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of Overshot.
///
/// The `Display` text is one line that names the place (file, column, device, rows), the reason and the remedy.
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

    /// A job, an option or a kernel cannot be used as it is, for a reason that has no kind of its own.
    #[error("{0}")]
    Job(String),

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

    /// An error of a [`Source`](crate::Source), [`Sink`](crate::Sink) or [`Target`](crate::io::Target) that the caller
    /// implements.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),

    /// A worker stopped because another worker failed, or because the run is not needed any more. A run whose
    /// result is needed returns the original error, never this one.
    #[doc(hidden)]
    #[error("another worker failed")]
    Abandoned,

    /// The job was cancelled through its [`CancelToken`](crate::CancelToken).
    #[error("stopped after {done} of {rows} rows; no output file was written")]
    Cancelled {
        /// Number of rows completed before the job stopped.
        done: u64,
        /// Number of rows of the job.
        rows: u64,
    },
}

/// Why the parts of a job do not fit each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// A name is given twice in the same role.
    #[error("{role} '{name}' is given twice: leave one out")]
    #[non_exhaustive]
    GivenTwice {
        /// `input`, `value` or `output`.
        role: &'static str,
        /// The name.
        name: String,
    },

    /// A name is given as an input and as a value.
    #[error("'{name}' is given as an input and as a value: leave one out")]
    #[non_exhaustive]
    InputAndValue {
        /// The name.
        name: String,
    },

    /// A name that the expression assigns is given as an input or a value.
    #[error("'{name}' is assigned by the expression, so it is an output, not {role}: rename one of them")]
    #[non_exhaustive]
    Assigned {
        /// The name.
        name: String,
        /// `an input` or `a value`.
        role: &'static str,
    },

    /// An input, a value or an output has a name that the expression does not have.
    #[error("{message}")]
    #[non_exhaustive]
    UnknownName {
        /// The name.
        name: String,
        /// The whole message, with the names that there are.
        message: String,
    },

    /// The expression reads a name that nothing is given for.
    #[error("{message}")]
    #[non_exhaustive]
    MissingName {
        /// The name.
        name: String,
        /// The whole message.
        message: String,
    },

    /// The result of a reduction is given an output.
    #[error("'{name}' is one number of all rows, which the report has: it takes no output")]
    #[non_exhaustive]
    ReductionOutput {
        /// The name.
        name: String,
    },

    /// Nothing says how many rows there are.
    #[error("the number of rows is unknown: give an input, or the number of rows")]
    UnknownRows,

    /// Two columns have different numbers of rows.
    #[error("{first} has {rows} rows but {other} has {other_rows}; all must have the same number")]
    #[non_exhaustive]
    RowsDiffer {
        /// The first column.
        first: String,
        /// Its rows.
        rows: u64,
        /// The column that differs.
        other: String,
        /// Its rows.
        other_rows: u64,
    },

    /// A column ends within a row.
    #[error("{column} has {count} elements, which are no whole rows of {elements} elements")]
    #[non_exhaustive]
    PartialRow {
        /// The column.
        column: String,
        /// Its elements.
        count: u64,
        /// Elements of a row.
        elements: u64,
    },

    /// Two inputs have different shapes.
    #[error(
        "input '{first}' has the shape {shape} but '{other}' has {other_shape}, and shapes are not broadcast: \
         reshape one of \
         them, as in {other}.reshape{shape}"
    )]
    #[non_exhaustive]
    ShapesDiffer {
        /// The first input with a shape.
        first: String,
        /// Its shape, as NumPy writes it.
        shape: String,
        /// The input that differs.
        other: String,
        /// Its shape, as NumPy writes it.
        other_shape: String,
    },

    /// An output holds another dtype than the result has.
    #[error("output '{name}' ({target}) holds {own}, but the result is {result}: {remedy}")]
    #[non_exhaustive]
    OutputDtype {
        /// The name.
        name: String,
        /// What the output is.
        target: String,
        /// The dtype that it holds.
        own: String,
        /// The dtype of the result.
        result: String,
        /// What to do.
        remedy: String,
    },

    /// An output is the file of an input or of another output.
    #[error("{} is both '{other}' and the output '{output}': write to another file", path.display())]
    #[non_exhaustive]
    FileClash {
        /// The file.
        path: PathBuf,
        /// The other column of that file.
        other: String,
        /// The output.
        output: String,
    },

    /// A pass sets a value that the job does not have.
    #[error("the job has no value '{name}' to begin with: give it one")]
    #[non_exhaustive]
    UnknownValue {
        /// The name.
        name: String,
    },

    /// A pass sets a value to another dtype than the job has.
    #[error("the value '{name}' is {dtype} to begin with, but {new} later: convert it")]
    #[non_exhaustive]
    ValueDtype {
        /// The name.
        name: String,
        /// The dtype in the job.
        dtype: String,
        /// The dtype of the new value.
        new: String,
    },

    /// A job with a kernel has a value, which belongs to the kernel's call.
    #[error("the kernel '{kernel}' has the values of its call: give '{name}' a value there")]
    #[non_exhaustive]
    KernelValue {
        /// The kernel.
        kernel: String,
        /// The name of the value.
        name: String,
    },

    /// The job cannot be run in the way that was asked for.
    #[error("{0}")]
    NotSupported(String),
}

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
        matches!(self, Error::Expression { .. } | Error::Compile { .. } | Error::InvalidJob(_) | Error::Job(_))
    }

    /// Returns whether this error is only a consequence of another error.
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
