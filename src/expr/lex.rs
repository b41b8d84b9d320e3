//! The lexer: turns text into tokens.

use super::fault::Fault;
use super::hints;
use super::words::{Binary, Weak};

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Number(Weak),
    Name(String),
    Sign(&'static str),
    /// A line end outside of parentheses and brackets.
    Line,
    End,
}

/// Signs that are not infix operators, which are in [`Binary::signs`].
const OTHER_SIGNS: &[&str] = &["(", ")", "[", "]", ",", ";", "=", "~", "@", TRANSPOSED];

/// The sign of a transposed value, as in `x.T @ y`.
pub(super) const TRANSPOSED: &str = ".T";

/// Returns the tokens of a text with their positions, in characters from 0. The last token is [`Token::End`].
pub(super) fn tokens(text: &[char]) -> Result<Vec<(Token, usize)>, Fault> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    let mut open = Vec::new();
    while let Some(c) = lexer.peek(0) {
        let at = lexer.at;
        if c == '\n' && open.is_empty() {
            lexer.at += 1;
            tokens.push((Token::Line, at));
        } else if c.is_whitespace() {
            lexer.at += 1;
        } else if c.is_ascii_digit() || (c == '.' && lexer.peek(1).is_some_and(|d| d.is_ascii_digit())) {
            tokens.push((Token::Number(lexer.number()?), at));
        } else if starts_name(c) {
            tokens.push((Token::Name(lexer.name()), at));
        } else if c == ':' && open.last() == Some(&"[") {
            let dimensions = text[at..].iter().take_while(|c| **c != ']').filter(|c| **c == ',').count() + 1;
            return Err(Fault::new(at, hints::slice(dimensions)));
        } else {
            let sign = lexer.sign()?;
            match sign {
                "(" | "[" => open.push(sign),
                ")" | "]" => {
                    open.pop();
                }
                _ => {}
            }
            tokens.push((Token::Sign(sign), at));
        }
    }
    tokens.push((Token::End, text.len()));
    Ok(tokens)
}

fn starts_name(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn continues_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

struct Lexer<'a> {
    text: &'a [char],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).copied()
    }

    fn take_while(&mut self, mut fits: impl FnMut(char) -> bool) -> String {
        let taken: String = self.text[self.at..].iter().take_while(|c| fits(**c)).collect();
        self.at += taken.chars().count();
        taken
    }

    /// Reads a name. Behind a dot is the name of a field, as in `t.price`; `x.mean(` is no name, and neither are
    /// `x.T @` and `@ w.T`.
    fn name(&mut self) -> String {
        let start = self.at;
        let before = self.text[..start].iter().rev().find(|c| !c.is_whitespace());
        self.take_while(continues_name);
        while self.peek(0) == Some('.') && self.peek(1).is_some_and(starts_name) {
            let dot = self.at;
            self.at += 1;
            let field = self.take_while(continues_name);
            let next = self.text[self.at..].iter().find(|c| !c.is_whitespace());
            let is_factor = next == Some(&'@') || before == Some(&'@');
            if next == Some(&'(') || field == "T" && is_factor {
                self.at = dot;
                break;
            }
        }
        self.text[start..self.at].iter().collect()
    }

    fn sign(&mut self) -> Result<&'static str, Fault> {
        let starts = |sign: &str| sign.chars().enumerate().all(|(k, c)| self.peek(k) == Some(c));
        for (foreign, ours) in [("&&", "`&`"), ("||", "`|`"), ("<>", "`!=`"), ("===", "`==`")] {
            if starts(foreign) {
                return Err(Fault::new(self.at, format!("`{foreign}` is not an operator; write {ours}")));
            }
        }
        let signs = Binary::signs().map(|(sign, ..)| sign).chain(OTHER_SIGNS.iter().copied());
        match signs.filter(|sign| starts(sign)).max_by_key(|sign| sign.len()) {
            Some(sign) => {
                self.at += sign.len();
                Ok(sign)
            }
            None if starts("!") => Err(Fault::new(self.at, "`!` is not an operator; write `~` or `!=`")),
            None => Err(Fault::new(self.at, hints::sign(self.peek(0).unwrap_or(' ')))),
        }
    }

    fn number(&mut self) -> Result<Weak, Fault> {
        let start = self.at;
        let radix = match (self.peek(0), self.peek(1)) {
            (Some('0'), Some('x' | 'X')) => 16,
            (Some('0'), Some('o' | 'O')) => 8,
            (Some('0'), Some('b' | 'B')) => 2,
            _ => 10,
        };
        let mut is_float = false;
        let mut written = String::new();
        if radix != 10 {
            self.at += 2;
            written = self.digits(start, 16)?;
        } else {
            if self.peek(0) != Some('.') {
                written += &self.digits(start, 10)?;
            }
            if self.peek(0) == Some('.') {
                self.at += 1;
                is_float = true;
                written.push('.');
                if self.peek(0).is_some_and(|c| c.is_ascii_digit()) {
                    written += &self.digits(start, 10)?;
                }
            }
            let sign = usize::from(matches!(self.peek(1), Some('+' | '-')));
            if matches!(self.peek(0), Some('e' | 'E')) && self.peek(1 + sign).is_some_and(|c| c.is_ascii_digit()) {
                is_float = true;
                written.extend(&self.text[self.at..self.at + 1 + sign]);
                self.at += 1 + sign;
                written += &self.digits(start, 10)?;
            }
        }
        if self.peek(0).is_some_and(continues_name) {
            return Err(Fault::new(self.at, "a name directly follows a number; write an operator between them"));
        }
        let malformed = || Fault::new(start, "not a number");
        if is_float {
            return written.parse().map(Weak::Float).map_err(|_| malformed());
        }
        if radix == 10 && written.len() > 1 && written.starts_with('0') && written.chars().any(|c| c != '0') {
            return Err(Fault::new(start, "a decimal number cannot start with 0; octal numbers start with 0o"));
        }
        match i128::from_str_radix(&written, radix) {
            Ok(value) => Ok(Weak::Int(value)),
            Err(error) if *error.kind() == std::num::IntErrorKind::PosOverflow => {
                Err(Fault::new(start, "the number is too large; write it as a float, like 1e40"))
            }
            Err(_) => Err(malformed()),
        }
    }

    /// Reads digits and removes the single underscores between them.
    fn digits(&mut self, start: usize, radix: u32) -> Result<String, Fault> {
        let run = self.take_while(|c| c.is_digit(radix) || c == '_');
        // As in Python, an underscore may follow 0x.
        let run = if radix == 16 { run.strip_prefix('_').unwrap_or(&run) } else { &run };
        if run.is_empty() || run.starts_with('_') || run.ends_with('_') || run.contains("__") {
            return Err(Fault::new(start, "not a number"));
        }
        Ok(run.replace('_', ""))
    }
}
