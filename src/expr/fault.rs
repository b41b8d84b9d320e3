//! Errors in an expression, with their location.

use crate::error::Error;

/// An error in an expression, at a character counted from 0.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(at: usize, message: impl Into<String>) -> Fault {
        Fault { at, message: message.into() }
    }

    pub(super) fn in_text(self, text: &str) -> Error {
        Error::Expression { column: self.at + 1, text: text.to_owned(), message: self.message }
    }
}

/// A location in a text of several lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location<'t> {
    /// The line, counted from 1.
    pub line: usize,
    /// The character in the line, counted from 1.
    pub column: usize,
    /// The text of the line, without its line end.
    pub text: &'t str,
}

/// Returns the location of the character `column` of a text. As in [`Error::Expression`], `column` counts from 1
/// through the whole text, including line ends. A column past the end of the text gives the end of the last line.
pub fn locate(text: &str, column: usize) -> Location<'_> {
    let mut left = column.saturating_sub(1);
    let lines = text.split('\n').enumerate();
    let mut last = Location { line: 1, column: 1, text: "" };
    for (index, line) in lines {
        let length = line.chars().count();
        last = Location { line: index + 1, column: left.min(length) + 1, text: line.trim_end_matches('\r') };
        if left <= length {
            break;
        }
        left -= length + 1;
    }
    last
}
