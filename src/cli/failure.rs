//! Errors of the command: one line on standard error, and an exit code.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::ErrorKind;
use overshot::Error;
use overshot::units::one_line;
use serde_json::{Value, json};

use super::args::Args;
use super::interrupt;

use super::style;

/// An error that ends the command.
#[derive(Debug)]
pub enum Failure {
    /// The arguments are not a valid command line.
    Arguments(clap::Error),
    /// An environment variable or an argument has an invalid value.
    Usage(String),
    /// The library returned an error.
    Overshot(Error),
    /// The library returned an error that concerns this file.
    In(PathBuf, Box<Error>),
    /// A job file is not what it should be at this place.
    JobFile { path: PathBuf, line: usize, column: usize, text: String, message: String },
    /// A step of a job file failed.
    Step(Box<StepFailure>),
    /// The demo found a wrong result.
    Wrong(String),
    /// Standard output cannot be written.
    Output(io::Error),
}

/// The failure of a step of a job file.
#[derive(Debug)]
pub struct StepFailure {
    pub file: PathBuf,
    pub step: String,
    /// The file of `each`.
    pub item: Option<String>,
    pub failure: Failure,
    /// The later steps, which did not run.
    pub not_run: Vec<String>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Overshot(error)
    }
}

impl Failure {
    /// Prints the error, as JSON if requested, and returns the exit code: 2 for invalid arguments and jobs, 1 for a
    /// run that failed.
    pub fn report(&self, is_json: bool) -> ExitCode {
        // If standard error is closed, there is no place to report that.
        let _ = match is_json {
            true => writeln!(io::stderr(), "{}", self.json()),
            false => writeln!(anstream::stderr(), "{}", style::error(&self.text())),
        };
        if let (false, Failure::Step(step)) = (is_json, self)
            && !step.not_run.is_empty()
        {
            let _ = writeln!(io::stderr(), "did not run: {}", one_line(&step.not_run.join(", ")));
        }
        ExitCode::from(if self.is_usage() { 2 } else { 1 })
    }

    /// The error as `{"error": {"kind": …, "message": …}}`, with additional fields for some kinds.
    pub fn json(&self) -> Value {
        let (kind, mut fields) = match self {
            Failure::JobFile { path, line, column, .. } => {
                let path = path.to_string_lossy();
                ("arguments", json!({ "file": path, "line": line, "column": column }))
            }
            Failure::Step(step) => {
                let mut error = step.failure.json();
                let fields = &mut error["error"];
                fields["job"] = step.file.to_string_lossy().into();
                fields["step"] = step.step.as_str().into();
                fields["item"] = step.item.as_deref().into();
                fields["not_run"] = step.not_run.as_slice().into();
                return error;
            }
            Failure::Arguments(_) | Failure::Usage(_) => ("arguments", json!({})),
            Failure::Overshot(error) => in_fields(error),
            Failure::In(path, error) => {
                let (kind, mut fields) = in_fields(error);
                fields["path"] = path.to_string_lossy().into();
                (kind, fields)
            }
            Failure::Wrong(_) => ("check", json!({})),
            Failure::Output(_) => ("output", json!({})),
        };
        fields["kind"] = kind.into();
        fields["message"] = match self {
            Failure::Overshot(Error::Expression { message, .. }) => message.clone(),
            Failure::Overshot(error) => error.to_string(),
            other => other.text(),
        }
        .into();
        json!({ "error": fields })
    }

    fn is_usage(&self) -> bool {
        match self {
            Failure::Arguments(_) | Failure::Usage(_) => true,
            Failure::Overshot(error) => error.is_usage(),
            Failure::In(_, error) => error.is_usage(),
            Failure::JobFile { .. } => true,
            Failure::Step(step) => step.failure.is_usage(),
            Failure::Wrong(_) | Failure::Output(_) => false,
        }
    }

    fn text(&self) -> String {
        match self {
            Failure::Arguments(error) if error.kind() == ErrorKind::InvalidSubcommand => {
                let names: Vec<_> =
                    Args::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
                in_short(&error.to_string(), &format!("there are {}; see --help", names.join(", ")))
            }
            Failure::Arguments(error) => in_short(&error.to_string(), "see --help"),
            Failure::Usage(text) => one_line(text),
            Failure::Wrong(text) => text.clone(),
            Failure::Overshot(Error::Expression { column, text, message }) => {
                format!("column {column}: {}\n{}", one_line(message), pointed_at(text, *column))
            }
            Failure::Overshot(error) => one_line(&error.to_string()),
            Failure::In(path, error) => one_line(&format!("{}: {error}", path.display())),
            Failure::JobFile { path, line, column, text, message } => {
                let place = format!("{}: line {line}, column {column}", path.display());
                format!("{}\n{}", one_line(&format!("{place}: {message}")), pointed_at(text, *column))
            }
            Failure::Step(step) => {
                let StepFailure { file, step, item, failure, .. } = &**step;
                let item = item.as_ref().map(|item| format!(", {item}")).unwrap_or_default();
                let place = one_line(&format!("{}: step '{step}'{item}", file.display()));
                format!("{place}: {}", failure.text())
            }
            Failure::Output(error) => {
                format!("standard output cannot be written ({error}); check where it is redirected to")
            }
        }
    }
}

/// The kind of an error, and the fields that programs need besides the message.
fn in_fields(error: &Error) -> (&'static str, Value) {
    match error {
        Error::Expression { column, text, .. } => ("expression", json!({ "column": column, "expression": text })),
        Error::Compile { name, line, text, .. } => ("kernel", json!({ "file": name, "line": line, "text": text })),
        Error::InvalidJob(_) | Error::InvalidKernel(_) | Error::InvalidColumn(_) | Error::InvalidSetting(_) => {
            ("job", json!({}))
        }
        Error::InvalidPartial(_) => ("partial", json!({})),
        Error::InvalidTable(_) => ("table", json!({})),
        // The command has no code of a caller.
        Error::Internal(_) | Error::Panicked { .. } => ("internal", json!({})),
        Error::File { path, problem, remedy, cause } => {
            let (path, cause) = (path.to_string_lossy(), cause.as_ref().map(ToString::to_string));
            ("file", json!({ "path": path, "problem": problem, "remedy": remedy, "cause": cause }))
        }
        Error::Budget { limit, needed, .. } => ("memory", json!({ "limit_bytes": limit, "needed_bytes": needed })),
        Error::OutOfMemory { device, .. } => ("memory", json!({ "device": device })),
        Error::Device { device, .. } => ("device", json!({ "device": device })),
        Error::Chunk { device, chunk, rows, cause, .. } => {
            let (kind, mut fields) = in_fields(cause);
            fields["device"] = device.as_str().into();
            fields["chunk"] = (*chunk).into();
            fields["first_row"] = rows.start.into();
            fields["rows"] = (rows.end - rows.start).into();
            (kind, fields)
        }
        Error::Verification(error) => ("verification", json!({ "row": error.row })),
        Error::Cancelled { done, rows } => {
            ("stopped", json!({ "done_rows": done, "rows": rows, "signal": interrupt::received() }))
        }
        _ => ("other", json!({})),
    }
}

/// A message of clap with its tips and a remedy, on one line. The usage lines are omitted: `--help` prints them.
fn in_short(text: &str, remedy: &str) -> String {
    let text = text.trim_start_matches("error: ").split("\nUsage:").next().unwrap_or_default();
    let text = text.split("\nFor more information").next().unwrap_or_default();
    // What begins with dashes is meant as an option.
    let lines = text.lines().filter(|line| line.trim_start().strip_prefix("tip: to pass ").is_none());
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    one_line(&format!("{}; {remedy}", words.join(" ").replace(" tip: ", "; ")))
}

/// The expression, with a caret under the column. Line breaks are shown as spaces, so that columns do not move.
fn pointed_at(text: &str, column: usize) -> String {
    let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("  {shown}\n  {}^", " ".repeat(column.saturating_sub(1).min(shown.chars().count())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_shown_with_a_caret() {
        let error = Error::Expression { column: 5, text: "c =\n§ b".into(), message: "no".into() };
        assert_eq!(Failure::from(error).text(), "column 5: no\n  c = § b\n      ^");
    }

    #[test]
    fn json_has_the_kind_and_the_place() {
        let error = Error::Expression { column: 5, text: "c =\nx".into(), message: "no \"x\"".into() };
        let expected =
            json!({"error": {"kind": "expression", "message": "no \"x\"", "column": 5, "expression": "c =\nx"}});
        assert_eq!(Failure::from(error).json(), expected);
        let source = Error::File { path: "a".into(), problem: "p".into(), remedy: "r".into(), cause: None };
        let chunk = Error::Chunk { device: "cpu".into(), worker: 0, chunk: 3, rows: 10..30, cause: Box::new(source) };
        let json = Failure::from(chunk).json();
        assert_eq!((&json["error"]["kind"], &json["error"]["path"]), (&"file".into(), &"a".into()));
        assert_eq!((&json["error"]["first_row"], &json["error"]["rows"]), (&10.into(), &20.into()));
    }

    #[test]
    fn a_line_break_in_a_name_stays_in_the_line() {
        assert_eq!(Failure::Usage("a\nb is missing".into()).text(), "a\\nb is missing");
    }
}
