//! The parser: turns tokens into terms.

use std::collections::HashMap;

use super::fault::Fault;
use super::hints;
use super::lex::{Token, tokens};
use super::words::{self, Binary, Function, Kind, Unary, Weak};

/// The maximum nesting depth of parentheses, signs and right operands, because the parser recurses.
const MAX_DEPTH: usize = 200;

/// The index of a term in [`Parsed::terms`].
pub(super) type TermId = usize;

/// A term with its position in the text, in characters from 0.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Term {
    pub(super) at: usize,
    pub(super) tree: Tree,
}

/// The content of a term. Its operands precede it in the list.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    Number(Weak),
    Name(String),
    Unary(Unary, TermId),
    Binary(Binary, TermId, TermId),
    Call(Function, Vec<TermId>),
}

/// A statement. Its terms follow those of the previous statement; the term of the whole value is the last.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Statement {
    /// Computes a value for every row.
    Assign { at: usize, name: String, value: TermId },
    /// Computes one value from all rows.
    Reduce { label: String, kind: Kind, of: TermId },
}

/// A parsed text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parsed {
    /// The terms of all statements, each after its operands, so that no walk recurses even for a very long sum.
    pub(super) terms: Vec<Term>,
    pub(super) statements: Vec<Statement>,
    /// Names of assigned row values, in text order.
    pub(super) assigned: Vec<String>,
    /// Names that are read but not assigned, except for constants, in order of first use.
    pub(super) inputs: Vec<String>,
    /// Names of constants that are read but not assigned, in order of first use.
    pub(super) constants: Vec<String>,
}

/// Parses a text.
pub(super) fn parse(text: &str) -> Result<Parsed, Fault> {
    let chars: Vec<char> = text.chars().collect();
    let mut parser = Parser { tokens: tokens(&chars)?, next: 0, depth: 0, terms: Vec::new() };
    let mut names = Names::default();
    let mut statements = Vec::new();
    loop {
        while parser.at_separator() {
            parser.next += 1;
        }
        if *parser.token() == Token::End {
            break;
        }
        let statement = parser.statement(&chars, &mut names)?;
        statements.push(statement);
        if !parser.at_separator() && *parser.token() != Token::End {
            return Err(parser.unexpected());
        }
    }
    if statements.is_empty() {
        return Err(Fault::new(0, "there is nothing to compute; write something like `y = 2 * x`"));
    }
    let Names { assigned, inputs, constants, .. } = names;
    Ok(Parsed { terms: parser.terms, statements, assigned, inputs, constants })
}

/// The role of a name in the text so far.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// An input, a scalar or a constant.
    Read,
    Assigned,
    Reduction,
}

/// The names met so far.
#[derive(Default)]
struct Names {
    assigned: Vec<String>,
    inputs: Vec<String>,
    constants: Vec<String>,
    roles: HashMap<String, Role>,
}

impl Names {
    /// Records the names that a statement reads. Refuses reductions, whose values are known only after all rows.
    fn read(&mut self, terms: &[Term]) -> Result<(), Fault> {
        for term in terms {
            match &term.tree {
                Tree::Name(name) => match self.roles.get(name) {
                    Some(Role::Reduction) => return Err(two_passes(term.at, name)),
                    Some(Role::Assigned | Role::Read) => {}
                    None => {
                        let is_constant = words::constant(name).is_some();
                        let names = if is_constant { &mut self.constants } else { &mut self.inputs };
                        names.push(name.clone());
                        self.roles.insert(name.clone(), Role::Read);
                    }
                },
                Tree::Call(Function::Reduce(kind), _) => {
                    return Err(two_passes(term.at, &format!("{}(…)", kind.name())));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn assign(&mut self, at: usize, name: &str, is_reduction: bool) -> Result<(), Fault> {
        if words::is_reserved(name) {
            return Err(Fault::new(at, format!("`{name}` is a reserved word; choose another name")));
        }
        let role = if is_reduction { Role::Reduction } else { Role::Assigned };
        match self.roles.insert(name.to_owned(), role) {
            Some(Role::Read) if words::constant(name).is_some() => Err(Fault::new(
                at,
                format!("`{name}` was read as a constant earlier; choose another name for the result"),
            )),
            Some(Role::Read) => Err(Fault::new(
                at,
                format!("`{name}` was read as an input earlier; choose another name for the result"),
            )),
            Some(_) => Err(Fault::new(at, format!("`{name}` is assigned twice; choose another name"))),
            None => {
                if !is_reduction {
                    self.assigned.push(name.to_owned());
                }
                Ok(())
            }
        }
    }
}

fn two_passes(at: usize, name: &str) -> Fault {
    Fault::new(
        at,
        format!(
            "`{name}` is known only after all rows, so this needs a second pass over them; compute `{name}` in a first \
             run, replace it by a name here, and pass its value to the second run under that name"
        ),
    )
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    next: usize,
    depth: usize,
    terms: Vec<Term>,
}

impl Parser {
    // The parser never moves past the last token, `End`, so there is always a current token.
    fn token(&self) -> &Token {
        &self.tokens[self.next].0
    }

    fn at(&self) -> usize {
        self.tokens[self.next].1
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self.token(), Token::Sign(s) if *s == sign)
    }

    fn at_separator(&self) -> bool {
        *self.token() == Token::Line || self.is_sign(";") || self.is_sign(",")
    }

    fn unexpected(&self) -> Fault {
        let message = match self.token() {
            Token::End => "the expression ends too early".to_owned(),
            Token::Line => "the line ends too early; put an expression that spans lines in parentheses".to_owned(),
            Token::Name(name) => match name.as_str() {
                "and" => "write `&` for `and`, with parentheses around both sides".to_owned(),
                "or" => "write `|` for `or`, with parentheses around both sides".to_owned(),
                "not" => "write `~` for `not`, with parentheses around what follows".to_owned(),
                "if" | "else" => "write `where(condition, then, otherwise)` for `if`".to_owned(),
                _ => format!("an operator is missing before `{name}`"),
            },
            Token::Number(_) => "an operator is missing before this number".to_owned(),
            Token::Sign("=") => {
                "`=` can only follow a single name at the start of a statement; compare with `==`".to_owned()
            }
            Token::Sign(sign) => format!("unexpected `{sign}`"),
        };
        Fault::new(self.at(), message)
    }

    fn statement(&mut self, text: &[char], names: &mut Names) -> Result<Statement, Fault> {
        let at = self.at();
        let follows_assign = matches!(self.tokens.get(self.next + 1), Some((Token::Sign("="), _)));
        let name = match self.token() {
            Token::Name(name) if follows_assign => Some(name.clone()),
            _ => None,
        };
        if name.is_some() {
            self.next += 2;
        }
        let first = self.terms.len();
        let value = self.term(0)?;
        if let Tree::Call(Function::Reduce(kind), arguments) = &self.terms[value].tree
            && let (kind, Some(&of)) = (*kind, arguments.first())
        {
            // The reduction itself has no value per row.
            self.terms.truncate(value);
            names.read(&self.terms[first..])?;
            if let Some(name) = &name {
                names.assign(at, name, true)?;
            }
            let label = match &name {
                Some(name) => name.clone(),
                None => on_one_line(&text[at..self.at()]),
            };
            return Ok(Statement::Reduce { label, kind, of });
        }
        names.read(&self.terms[first..])?;
        let Some(name) = name else {
            return Err(Fault::new(
                at,
                "this value is not used; give it a name, like `y = …`, or reduce it, like `sum(…)`",
            ));
        };
        names.assign(at, &name, false)?;
        Ok(Statement::Assign { at, name, value })
    }

    /// Parses a term of operators with a precedence of at least `least`.
    fn term(&mut self, least: u8) -> Result<TermId, Fault> {
        let mut left = self.signed()?;
        let mut compared = false;
        while let Token::Sign(sign) = *self.token() {
            let Some((_, op, above, below)) = Binary::signs().find(|(s, ..)| *s == sign) else { break };
            if above < least {
                break;
            }
            if op.is_comparison() && compared {
                return Err(Fault::new(self.at(), "comparisons do not chain; write `(a < b) & (b < c)`"));
            }
            compared |= op.is_comparison();
            let at = self.at();
            self.next += 1;
            let right = self.deeper(|parser| parser.term(below))?;
            left = self.push(at, Tree::Binary(op, left, right));
        }
        Ok(left)
    }

    /// Parses an operand with its prefix signs, which have a lower precedence than a `**` that follows.
    fn signed(&mut self) -> Result<TermId, Fault> {
        let at = self.at();
        let op = match self.token() {
            Token::Sign("+") => Unary::Pos,
            Token::Sign("-") => Unary::Neg,
            Token::Sign("~") => Unary::Not,
            _ => return self.operand(),
        };
        self.next += 1;
        let of = self.deeper(|parser| parser.term(15))?;
        Ok(self.push(at, Tree::Unary(op, of)))
    }

    fn operand(&mut self) -> Result<TermId, Fault> {
        let at = self.at();
        match self.token().clone() {
            Token::Number(value) => {
                self.next += 1;
                Ok(self.push(at, Tree::Number(value)))
            }
            Token::Sign("(") => {
                self.next += 1;
                let inner = self.deeper(|parser| parser.term(0))?;
                self.close(at)?;
                Ok(inner)
            }
            Token::Name(name) if matches!(name.as_str(), "and" | "or" | "not" | "if" | "else") => {
                Err(self.unexpected())
            }
            Token::Name(name) => {
                self.next += 1;
                if self.is_sign("(") { self.call(at, &name) } else { Ok(self.push(at, Tree::Name(name))) }
            }
            _ => Err(self.unexpected()),
        }
    }

    fn call(&mut self, at: usize, name: &str) -> Result<TermId, Fault> {
        let open = self.at();
        self.next += 1;
        let mut arguments = Vec::new();
        while !self.is_sign(")") {
            if let (Token::Name(keyword), Some((Token::Sign("="), _))) = (self.token(), self.tokens.get(self.next + 1))
            {
                return Err(Fault::new(self.at(), hints::keyword(name, keyword)));
            }
            arguments.push(self.deeper(|parser| parser.term(0))?);
            if !self.is_sign(",") {
                break;
            }
            self.next += 1;
        }
        self.close(open)?;
        let Some((function, info)) = Function::find(name, arguments.len()) else {
            return Err(Fault::new(at, hints::unknown_function(name)));
        };
        if !info.takes(arguments.len()) {
            return Err(Fault::new(at, hints::arguments(name, info, arguments.len())));
        }
        Ok(self.push(at, Tree::Call(function, arguments)))
    }

    fn close(&mut self, open: usize) -> Result<(), Fault> {
        if self.is_sign(")") {
            self.next += 1;
            return Ok(());
        }
        match self.token() {
            Token::End => Err(Fault::new(open, "this parenthesis is never closed")),
            _ => Err(self.unexpected()),
        }
    }

    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        if self.depth == MAX_DEPTH {
            return Err(too_deep(self.at()));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn push(&mut self, at: usize, tree: Tree) -> TermId {
        self.terms.push(Term { at, tree });
        self.terms.len() - 1
    }
}

/// Replaces every run of whitespace by one space.
fn on_one_line(text: &[char]) -> String {
    let text: String = text.iter().collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn too_deep(at: usize) -> Fault {
    Fault::new(
        at,
        format!("the expression is nested more than {MAX_DEPTH} levels deep; split it into several statements"),
    )
}
