//! Tokens to trees.

use std::collections::HashMap;

use super::Fault;
use super::lex::{Token, tokens};
use super::words::{self, Binary, Function, Kind, Unary, Weak};

/// How deep a tree may be: everything that walks trees does so by recursion.
const MAX_DEPTH: usize = 200;

/// One term with its place: characters from 0.
#[derive(Clone, Debug)]
pub(super) struct Term {
    pub(super) at: usize,
    pub(super) tree: Tree,
    depth: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Tree {
    Number(Weak),
    Row,
    Name(String),
    Unary(Unary, Box<Term>),
    Binary(Binary, Box<Term>, Box<Term>),
    Call(Function, Vec<Term>),
}

/// What one statement is for.
#[derive(Clone, Debug)]
pub(super) enum Statement {
    /// A value for every row.
    Assign { at: usize, name: String, value: Term },
    /// One value of all rows.
    Reduce { label: String, kind: Kind, of: Term },
}

/// A whole text.
#[derive(Clone, Debug)]
pub(super) struct Parsed {
    pub(super) statements: Vec<Statement>,
    /// Names assigned a row value, in text order.
    pub(super) assigned: Vec<String>,
    /// Names read but not assigned, in order of first use.
    pub(super) inputs: Vec<String>,
}

/// Parses a text.
pub(super) fn parse(text: &str) -> Result<Parsed, Fault> {
    let chars: Vec<char> = text.chars().collect();
    let mut parser = Parser { tokens: tokens(&chars)?, next: 0, depth: 0 };
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
    Ok(Parsed { statements, assigned: names.assigned, inputs: names.inputs })
}

/// The names met so far.
#[derive(Default)]
struct Names {
    assigned: Vec<String>,
    inputs: Vec<String>,
    /// Every name with a meaning of its own, and whether it is a reduction.
    taken: HashMap<String, bool>,
}

impl Names {
    fn read(&mut self, term: &Term) -> Result<(), Fault> {
        match &term.tree {
            Tree::Number(_) | Tree::Row => {}
            Tree::Name(name) => match self.taken.get(name) {
                Some(true) => return Err(two_passes(term.at, name)),
                Some(false) => {}
                None if self.inputs.contains(name) => {}
                None => self.inputs.push(name.clone()),
            },
            Tree::Unary(_, of) => self.read(of)?,
            Tree::Binary(_, left, right) => {
                self.read(left)?;
                self.read(right)?;
            }
            Tree::Call(Function::Reduce(kind), _) => {
                let name = Kind::NAMES.iter().find(|(_, k)| k == kind).map_or("", |(name, _)| name);
                return Err(two_passes(term.at, name));
            }
            Tree::Call(_, arguments) => arguments.iter().try_for_each(|term| self.read(term))?,
        }
        Ok(())
    }

    fn assign(&mut self, at: usize, name: &str, is_reduction: bool) -> Result<(), Fault> {
        if words::is_reserved(name) {
            return Err(Fault::new(at, format!("`{name}` has a meaning already; choose another name")));
        }
        if self.inputs.iter().any(|input| input == name) {
            return Err(Fault::new(at, format!("`{name}` is read as an input; give the result another name")));
        }
        if self.taken.insert(name.to_owned(), is_reduction).is_some() {
            return Err(Fault::new(at, format!("`{name}` is assigned twice; choose another name")));
        }
        if !is_reduction {
            self.assigned.push(name.to_owned());
        }
        Ok(())
    }
}

fn two_passes(at: usize, name: &str) -> Fault {
    Fault::new(
        at,
        format!(
            "`{name}` is known only after all rows, and computing with it would take a second pass; \
             reduce in a statement of its own, then use the number it gave"
        ),
    )
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    next: usize,
    depth: usize,
}

impl Parser {
    // The last token is `End` and is never passed, so that there always is a next one.
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
            Token::Line => "the line ends too early; put parentheses around what spans lines".to_owned(),
            Token::Name(name) => match name.as_str() {
                "and" => "write `&` for `and`, with parentheses around both sides".to_owned(),
                "or" => "write `|` for `or`, with parentheses around both sides".to_owned(),
                "not" => "write `~` for `not`, with parentheses around what follows".to_owned(),
                "if" | "else" => "write `where(condition, then, otherwise)` for `if`".to_owned(),
                _ => format!("an operator is missing before `{name}`"),
            },
            Token::Number(_) => "an operator is missing before this number".to_owned(),
            Token::Sign("=") => {
                "`=` stands after a single name at the start of a statement; compare with `==`".to_owned()
            }
            Token::Sign(sign) => format!("`{sign}` does not fit here"),
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
        let value = self.term(0)?;
        if let Tree::Call(Function::Reduce(kind), mut arguments) = value.tree {
            if let Some(of) = arguments.pop() {
                names.read(&of)?;
                if let Some(name) = &name {
                    names.assign(at, name, true)?;
                }
                let source: String = text[at..self.at()].iter().collect();
                let label = name.clone().unwrap_or_else(|| source.trim().to_owned());
                return Ok(Statement::Reduce { label, kind, of });
            }
            return Err(self.unexpected());
        }
        names.read(&value)?;
        let Some(name) = name else {
            return Err(Fault::new(
                at,
                "this value goes nowhere; give it a name, like `y = …`, or reduce it, like `sum(…)`",
            ));
        };
        names.assign(at, &name, false)?;
        Ok(Statement::Assign { at, name, value })
    }

    /// A term of operators that bind at least as tightly as `least`.
    fn term(&mut self, least: u8) -> Result<Term, Fault> {
        let mut left = self.signed()?;
        let mut compared = false;
        while let Token::Sign(sign) = *self.token() {
            let Some((_, op, above, below)) = Binary::SIGNS.iter().copied().find(|(s, ..)| *s == sign) else { break };
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
            let depth = left.depth.max(right.depth) + 1;
            left = self.grown(at, depth, Tree::Binary(op, Box::new(left), Box::new(right)))?;
        }
        Ok(left)
    }

    /// An operand with the signs before it, which bind less tightly than `**` behind it.
    fn signed(&mut self) -> Result<Term, Fault> {
        let at = self.at();
        let op = match self.token() {
            Token::Sign("+") => Unary::Pos,
            Token::Sign("-") => Unary::Neg,
            Token::Sign("~") => Unary::Not,
            _ => return self.operand(),
        };
        self.next += 1;
        let of = self.deeper(|parser| parser.term(15))?;
        self.grown(at, of.depth + 1, Tree::Unary(op, Box::new(of)))
    }

    fn operand(&mut self) -> Result<Term, Fault> {
        let at = self.at();
        match self.token().clone() {
            Token::Number(value) => {
                self.next += 1;
                self.grown(at, 1, Tree::Number(value))
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
                if self.is_sign("(") { self.call(at, &name) } else { self.name(at, name) }
            }
            _ => Err(self.unexpected()),
        }
    }

    fn name(&self, at: usize, name: String) -> Result<Term, Fault> {
        if let Some(value) = words::constant(&name) {
            return self.grown(at, 1, Tree::Number(value));
        }
        if name == words::ROW {
            return self.grown(at, 1, Tree::Row);
        }
        if words::is_reserved(&name) {
            return Err(Fault::new(at, format!("`{name}` is no column; a function is written `{name}(…)`")));
        }
        self.grown(at, 1, Tree::Name(name))
    }

    fn call(&mut self, at: usize, name: &str) -> Result<Term, Fault> {
        let open = self.at();
        self.next += 1;
        let mut arguments = Vec::new();
        while !self.is_sign(")") {
            arguments.push(self.deeper(|parser| parser.term(0))?);
            if !self.is_sign(",") {
                break;
            }
            self.next += 1;
        }
        self.close(open)?;
        let Some(function) = Function::find(name, arguments.len()) else {
            let message = match words::nearest_function(name) {
                Some(near) => format!("there is no function `{name}`; did you mean `{near}`?"),
                None => format!("there is no function `{name}`"),
            };
            return Err(Fault::new(at, message));
        };
        let (least, most) = function.arity();
        if arguments.len() < least || arguments.len() > most {
            let takes = match (least, name) {
                (2, "min" | "max") => "1 argument (all rows) or more (the same row)".to_owned(),
                (1, _) => "1 argument".to_owned(),
                _ => format!("{least} arguments"),
            };
            return Err(Fault::new(at, format!("`{name}` takes {takes}, not {}", arguments.len())));
        }
        let depth = arguments.iter().map(|term| term.depth).max().unwrap_or(0) + 1;
        self.grown(at, depth, Tree::Call(function, arguments))
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

    fn grown(&self, at: usize, depth: usize, tree: Tree) -> Result<Term, Fault> {
        if depth > MAX_DEPTH { Err(too_deep(at)) } else { Ok(Term { at, tree, depth }) }
    }
}

fn too_deep(at: usize) -> Fault {
    Fault::new(at, format!("the expression is nested more than {MAX_DEPTH} deep; split it into several statements"))
}
