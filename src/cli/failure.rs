//! What goes wrong, as one line on standard error and an exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use overshot::Error;

use super::style;

/// Why the command ends without success.
#[derive(Debug)]
pub enum Failure {
    /// The arguments are no command line of ours.
    Arguments(clap::Error),
    /// The environment asks for what cannot be done.
    Usage(String),
    /// The library says no.
    Overshot(Error),
    /// The demo found a wrong result.
    Wrong(String),
    /// Standard output cannot be written.
    Output(io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Overshot(error)
    }
}

impl Failure {
    /// Tells the user, and returns the exit code: 2 for what cannot be run as it was asked for, 1 for a run that failed.
    pub fn report(&self) -> ExitCode {
        // When standard error is gone, nobody is left to tell.
        let _ = writeln!(anstream::stderr(), "{}", style::error(&self.text()));
        ExitCode::from(if self.is_usage() { 2 } else { 1 })
    }

    fn is_usage(&self) -> bool {
        match self {
            Failure::Arguments(_) | Failure::Usage(_) => true,
            Failure::Overshot(error) => error.is_usage(),
            Failure::Wrong(_) | Failure::Output(_) => false,
        }
    }

    fn text(&self) -> String {
        match self {
            Failure::Arguments(error) => in_short(&error.to_string()),
            Failure::Usage(text) | Failure::Wrong(text) => text.clone(),
            Failure::Overshot(Error::Expression { column, text, message }) => {
                format!("column {column}: {}\n{}", one_line(message), pointed_at(text, *column))
            }
            Failure::Overshot(error) => one_line(&error.to_string()),
            Failure::Output(error) => format!("standard output cannot be written ({error}); check where it leads"),
        }
    }
}

/// What clap says, with its tips, in one line. Its usage lines are for `--help`.
fn in_short(text: &str) -> String {
    let text = text.trim_start_matches("error: ").split("\nUsage:").next().unwrap_or_default();
    let text = text.split("\nFor more information").next().unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    one_line(&(words.join(" ").replace(" tip: ", "; ") + "; see --help"))
}

/// Names of files may hold line breaks, which must not break the line.
fn one_line(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// The expression, and below it a caret at the column. A line break in it is shown as a blank, which keeps the columns.
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
    fn a_line_break_in_a_name_stays_in_the_line() {
        assert_eq!(Failure::from(Error::Job("a\nb is missing".into())).text(), "a\\nb is missing");
    }
}
