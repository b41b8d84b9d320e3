//! Parses functions of neighbouring rows: `shift(x, 1, edge)`. Their last arguments are no values of rows.

use super::fault::Fault;
use super::lex::Token;
use super::parse::{Parser, TermId, Tree};
use super::words::{FunctionInfo, Near, Weak};

/// What is beyond the first and the last row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Border {
    /// The first row, and the last one.
    Edge,
    /// The rows at the other end.
    Wrap,
    /// This number.
    Number(Weak),
}

/// A function of neighbouring rows with what it takes beside the value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Neighbours {
    pub(super) function: Near,
    /// How many rows a shift moves, or a window has; 1 for a difference.
    pub(super) rows: i64,
    pub(super) border: Border,
}

/// The most rows that a shift moves.
pub(super) const MOST_SHIFTED: i64 = 65_536;

/// The most rows of a window. Each is a term of the generated code: the compiler takes two seconds for this many, and a
/// minute for four times as many.
pub(super) const MOST_IN_WINDOW: i64 = 256;

impl Parser<'_> {
    /// Parses the arguments of a function behind its parenthesis, and the parenthesis that closes them.
    pub(super) fn neighbours(
        &mut self,
        (at, open): (usize, usize),
        function: Near,
        info: &FunctionInfo,
    ) -> Result<TermId, Fault> {
        let usage = info.usage;
        let of = self.deeper(|parser| parser.term(0))?;
        let rows = if function == Near::Diff { 1 } else { self.rows(function, usage)? };
        if !self.is_sign(",") {
            let message = format!(
                "`{}` needs a rule for what is beyond the first and the last row: write `edge` (the row at the edge), \
                 `wrap` (the other end), `nan` or a number at the end, as in `{usage}`",
                info.name
            );
            return Err(Fault::new(self.at(), message));
        }
        self.advance();
        let border = self.border(info)?;
        self.close(open, ")")?;
        Ok(self.push(at, Tree::Near(Neighbours { function, rows, border }, of)))
    }

    /// Parses the number of rows of a shift or of a window.
    fn rows(&mut self, function: Near, usage: &str) -> Result<i64, Fault> {
        let is_separated = self.is_sign(",");
        if is_separated {
            self.advance();
        }
        let at = self.at();
        let number = if is_separated { self.signed_number() } else { None };
        let (what, range) = match function {
            Near::Shift | Near::Diff => ("a shift", -MOST_SHIFTED..=MOST_SHIFTED),
            Near::Moving(_) => ("a window", 1..=MOST_IN_WINDOW),
        };
        let rows = match number {
            Some(Weak::Int(rows)) => i64::try_from(rows).ok().filter(|rows| range.contains(rows)),
            _ => None,
        };
        rows.ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            let message = format!(
                "the rows of {what} are an integer from {least} to {most} that is written in the text, as in `{usage}`"
            );
            Fault::new(at, message)
        })
    }

    /// Parses a rule for the border.
    fn border(&mut self, info: &FunctionInfo) -> Result<Border, Fault> {
        let at = self.at();
        let word = match self.token() {
            Token::Name(name) => match name.as_str() {
                "edge" => Some(Border::Edge),
                "wrap" => Some(Border::Wrap),
                _ => None,
            },
            _ => None,
        };
        if let Some(word) = word {
            self.advance();
            return Ok(word);
        }
        self.signed_number().map(Border::Number).ok_or_else(|| {
            let message =
                format!("the rule for the border of `{}` is `edge`, `wrap`, `nan` or a number of the text", info.name);
            Fault::new(at, message)
        })
    }

    /// Parses a number with its sign; `nan` and `inf` are numbers, too. `None` if there is none.
    fn signed_number(&mut self) -> Option<Weak> {
        let is_negative = self.is_sign("-");
        if is_negative || self.is_sign("+") {
            self.advance();
        }
        let number = match self.token() {
            Token::Number(number) => *number,
            Token::Name(name) => match name.as_str() {
                "nan" => Weak::Float(f64::NAN),
                "inf" => Weak::Float(f64::INFINITY),
                "True" | "true" => Weak::Bool(true),
                "False" | "false" => Weak::Bool(false),
                _ => return None,
            },
            _ => return None,
        };
        self.advance();
        match number {
            Weak::Int(value) if is_negative => Some(Weak::Int(-value)),
            Weak::Float(value) if is_negative => Some(Weak::Float(-value)),
            Weak::Bool(_) if is_negative => None,
            number => Some(number),
        }
    }
}
