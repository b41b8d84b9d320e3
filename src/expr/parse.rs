//! The parser: turns tokens into terms.

use std::collections::HashSet;

use super::axes::{Along, Axes, Within};
use super::bins::{Bins, COUNTS, Edges};
use super::border::Neighbours;
use super::fault::Fault;
use super::hints;
use super::lex::{TRANSPOSED, Token, tokens};
use super::names::{Known, Names};
use super::rank::{MOST_LISTED, Order};
use super::words::{Binary, Function, Kind, Ranked, Unary, Weak};
use crate::data::Dtype;

/// The maximum nesting depth of parentheses, signs and right operands, because the parser recurses.
const MAX_DEPTH: usize = 200;

/// The most keys by which rows are added: as many as elements of a result.
const MOST_KEYS: u32 = 1 << 24;

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
    /// The rows of the first operand where the second is true.
    Filter(TermId, TermId),
    /// The first operand, whose elements are counted, with the second one, their weights.
    Weighted(TermId, TermId),
    /// A key, as a row of so many elements that are 0, except for a 1 in the column of the key.
    OneHot(TermId, u32),
    /// The operand, whose rows are columns: the left one of a product.
    Transposed(TermId),
    /// The operands of a product over the rows, of which the first one is transposed.
    Factors(TermId, TermId),
    /// Rows times a matrix: a name, or a transposed one. A library multiplies, before the kernel that reads the result.
    Times {
        label: String,
        of: TermId,
        matrix: TermId,
    },
    /// A function of neighbouring rows.
    Near(Neighbours, TermId),
    /// The sums of a value in each row and all rows before it. They are known after a pass over the rows.
    RunningSum {
        label: String,
        of: TermId,
    },
    /// A reduction within an expression. Its value is known after a pass over the rows.
    Reduce {
        label: String,
        kind: Kind,
        along: Along,
        of: TermId,
    },
    /// A reduction of the elements of each row.
    Within(Kind, Within, TermId),
}

impl Tree {
    /// The operands.
    pub(super) fn operands(&self) -> Vec<TermId> {
        match self {
            Tree::Number(_) | Tree::Name(_) => vec![],
            Tree::Unary(_, of) | Tree::Near(_, of) | Tree::Within(_, _, of) | Tree::Transposed(of) => vec![*of],
            Tree::Reduce { of, .. } | Tree::RunningSum { of, .. } | Tree::OneHot(of, _) => vec![*of],
            Tree::Binary(_, left, right) | Tree::Filter(left, right) => vec![*left, *right],
            Tree::Weighted(left, right) | Tree::Factors(left, right) => vec![*left, *right],
            Tree::Times { of, matrix, .. } => vec![*of, *matrix],
            Tree::Call(_, arguments) => arguments.clone(),
        }
    }

    /// The same with other operands.
    pub(super) fn with(&self, of: impl Fn(TermId) -> TermId) -> Tree {
        let mut tree = self.clone();
        match &mut tree {
            Tree::Number(_) | Tree::Name(_) => {}
            Tree::Unary(_, a) | Tree::Near(_, a) | Tree::Within(_, _, a) | Tree::Transposed(a) => *a = of(*a),
            Tree::Reduce { of: a, .. } | Tree::RunningSum { of: a, .. } | Tree::OneHot(a, _) => *a = of(*a),
            Tree::Binary(_, a, b) | Tree::Filter(a, b) | Tree::Weighted(a, b) | Tree::Factors(a, b) => {
                (*a, *b) = (of(*a), of(*b));
            }
            Tree::Times { of: a, matrix, .. } => (*a, *matrix) = (of(*a), of(*matrix)),
            Tree::Call(_, all) => all.iter_mut().for_each(|argument| *argument = of(*argument)),
        }
        tree
    }
}

/// A statement. Its terms follow those of the previous statement; the term of the whole value is the last.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Statement {
    /// Computes a value for every row.
    Assign { at: usize, name: String, value: TermId },
    /// Computes one value from all rows.
    Reduce { label: String, kind: Kind, along: Along, of: TermId },
    /// Computes one value from those of reductions.
    Result { at: usize, label: String, value: TermId },
}

/// A parsed text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parsed {
    /// The terms of all statements, each after its operands, so that no walk recurses even for a very long sum.
    pub(super) terms: Vec<Term>,
    /// When each term can be computed.
    pub(super) known: Vec<Known>,
    pub(super) statements: Vec<Statement>,
    /// Names of assigned row values, in text order.
    pub(super) assigned: Vec<String>,
    /// Names that are read but not assigned, except for constants, in order of first use.
    pub(super) inputs: Vec<String>,
    /// Names of constants that are read but not assigned, in order of first use.
    pub(super) constants: Vec<String>,
}

impl Parsed {
    /// Checks that every assigned row value is read, or is one of these outputs.
    pub(super) fn check_used<'n>(&'n self, outputs: impl Iterator<Item = &'n str>) -> Result<(), Fault> {
        let read = self.terms.iter().filter_map(|term| match &term.tree {
            Tree::Name(name) => Some(name.as_str()),
            _ => None,
        });
        let mut used: HashSet<&str> = outputs.collect();
        used.extend(read);
        let unused = self.statements.iter().find_map(|statement| match statement {
            Statement::Assign { at, name, .. } if !used.contains(name.as_str()) => Some((*at, name)),
            _ => None,
        });
        match unused {
            Some((at, name)) => {
                let message = format!("`{name}` is assigned but not used; give '{name}' an output, or remove it");
                Err(Fault::new(at, message))
            }
            None => Ok(()),
        }
    }
}

/// Parses a text.
pub(super) fn parse(text: &str) -> Result<Parsed, Fault> {
    let chars: Vec<char> = text.chars().collect();
    let mut parser = Parser { text: &chars, tokens: tokens(&chars)?, next: 0, depth: 0, terms: Vec::new() };
    let mut names = Names::default();
    let mut statements = Vec::new();
    loop {
        while parser.at_separator() {
            parser.next += 1;
        }
        if *parser.token() == Token::End {
            break;
        }
        let statement = parser.statement(&mut names)?;
        statements.push(statement);
        if !parser.at_separator() && *parser.token() != Token::End {
            return Err(parser.unexpected());
        }
    }
    if statements.is_empty() {
        return Err(Fault::new(0, "there is nothing to compute; write something like `y = 2 * x`"));
    }
    let Names { known, assigned, inputs, constants, .. } = names;
    let parsed = Parsed { terms: parser.terms, known, statements, assigned, inputs, constants };
    parsed.check_ranked()?;
    parsed.check_transposed()?;
    parsed.check_matrices()?;
    parsed.check_keys()?;
    Ok(parsed)
}

pub(super) struct Parser<'t> {
    text: &'t [char],
    tokens: Vec<(Token, usize)>,
    next: usize,
    depth: usize,
    terms: Vec<Term>,
}

impl Parser<'_> {
    // The parser never moves past the last token, `End`, so there is always a current token.
    pub(super) fn token(&self) -> &Token {
        &self.tokens[self.next].0
    }

    pub(super) fn at(&self) -> usize {
        self.tokens[self.next].1
    }

    pub(super) fn is_sign(&self, sign: &str) -> bool {
        matches!(self.token(), Token::Sign(s) if *s == sign)
    }

    /// Goes to the next token. The current one is not the last.
    pub(super) fn advance(&mut self) {
        self.next += 1;
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
            Token::Sign("[") => "`[` can only follow a value, as in `x[x > 0]`, and there are no lists".to_owned(),
            Token::Sign(sign) => format!("unexpected `{sign}`"),
        };
        Fault::new(self.at(), message)
    }

    fn statement(&mut self, names: &mut Names) -> Result<Statement, Fault> {
        let at = self.at();
        let follows_assign = matches!(self.tokens.get(self.next + 1), Some((Token::Sign("="), _)));
        let name = match self.token() {
            Token::Name(name) if follows_assign => Some(name.clone()),
            _ => None,
        };
        if let Some(name) = name.as_ref().filter(|name| name.contains('.')) {
            return Err(Fault::new(
                at,
                format!("`{name}` is a field, which can only be read; assign a name without a dot"),
            ));
        }
        if name.is_some() {
            self.next += 2;
        }
        let first = self.terms.len();
        let value = self.term(0)?;
        if let Tree::Reduce { kind, along, of, .. } = self.terms[value].tree {
            // The reduction itself has no value per row.
            let reduction_at = self.terms[value].at;
            self.terms.truncate(value);
            let of_rows = names.read(&self.terms[first..])?;
            of_rows.check_reduced(reduction_at)?;
            if let Some(name) = &name {
                names.assign(at, name, of_rows.reduced(along))?;
            }
            return Ok(Statement::Reduce { label: name.unwrap_or_else(|| self.label(at)), kind, along, of });
        }
        let known = names.read(&self.terms[first..])?;
        if let Some(name) = &name {
            names.assign(at, name, known)?;
        }
        match name {
            name if known.is_result() => {
                Ok(Statement::Result { at, label: name.unwrap_or_else(|| self.label(at)), value })
            }
            Some(name) => Ok(Statement::Assign { at, name, value }),
            None => {
                Err(Fault::new(at, "this value is not used; give it a name, like `y = …`, or reduce it, like `sum(…)`"))
            }
        }
    }

    /// The text from `at` to the next token, on one line.
    fn label(&self, at: usize) -> String {
        let text: String = self.text[at..self.at()].iter().collect();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Parses a term of operators with a precedence of at least `least`.
    pub(super) fn term(&mut self, least: u8) -> Result<TermId, Fault> {
        let begin = self.at();
        let mut left = self.signed()?;
        let mut compared = false;
        while let Token::Sign(sign) = *self.token() {
            if sign == "@" && Binary::MATRIX.0 >= least {
                left = self.product(begin, left)?;
                continue;
            }
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

    /// Parses the right operand of a product, whose left one begins at `begin`: over the rows if the left one is
    /// transposed, and else with a matrix.
    fn product(&mut self, begin: usize, left: TermId) -> Result<TermId, Fault> {
        let at = self.at();
        self.next += 1;
        let right = self.deeper(|parser| parser.term(Binary::MATRIX.1))?;
        let label = self.label(begin);
        if !matches!(self.terms[left].tree, Tree::Transposed(_)) {
            return Ok(self.push(at, Tree::Times { label, of: left, matrix: right }));
        }
        let of = self.push(at, Tree::Factors(left, right));
        Ok(self.push(at, Tree::Reduce { label, kind: Kind::Sum, along: Along::Product, of }))
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

    /// Parses an operand with the filters that follow it, and whether it is transposed.
    fn operand(&mut self) -> Result<TermId, Fault> {
        let mut value = self.unfiltered()?;
        while self.is_sign("[") || self.is_sign(TRANSPOSED) {
            let at = self.at();
            if self.is_sign(TRANSPOSED) {
                self.next += 1;
                value = self.push(at, Tree::Transposed(value));
                continue;
            }
            self.next += 1;
            let condition = self.deeper(|parser| parser.term(0))?;
            if self.is_sign(",") {
                return Err(Fault::new(self.at(), hints::SEVERAL_DIMENSIONS));
            }
            self.close(at, "]")?;
            if self.is_sign("=") {
                let message = "the rows of a filter cannot be assigned; write `y = where(condition, a, b)`";
                return Err(Fault::new(self.at(), message));
            }
            value = self.push(at, Tree::Filter(value, condition));
        }
        Ok(value)
    }

    fn unfiltered(&mut self) -> Result<TermId, Fault> {
        let at = self.at();
        match self.token().clone() {
            Token::Number(value) => {
                self.next += 1;
                Ok(self.push(at, Tree::Number(value)))
            }
            Token::Sign("(") => {
                self.next += 1;
                let inner = self.deeper(|parser| parser.term(0))?;
                self.close(at, ")")?;
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
        if let Some((Function::Near(function), info)) = Function::find(name, 1) {
            return self.neighbours((at, open), function, info);
        }
        let (mut arguments, mut options) = (Vec::new(), Options::default());
        while !self.is_sign(")") {
            if let (Token::Name(keyword), Some((Token::Sign("="), _))) = (self.token(), self.tokens.get(self.next + 1))
            {
                let keyword = keyword.clone();
                let at = self.at();
                self.next += 2;
                self.option(at, (name, &keyword), &mut options)?;
            } else if options.is_set() {
                return Err(Fault::new(self.at(), "arguments by position come before those by name"));
            } else {
                arguments.push(self.deeper(|parser| parser.term(0))?);
            }
            if !self.is_sign(",") {
                break;
            }
            self.next += 1;
        }
        self.close(open, ")")?;
        let Some((function, info)) = Function::find(name, arguments.len()) else {
            return Err(Fault::new(at, hints::unknown_function(name)));
        };
        if !info.takes(arguments.len()) {
            return Err(Fault::new(at, hints::arguments(name, info, arguments.len())));
        }
        match (function, arguments.first()) {
            (Function::Reduce(kind), Some(&of)) => {
                let label = self.label(at);
                match options.along(at)? {
                    Along::Within(within) => Ok(self.push(at, Tree::Within(kind, within, of))),
                    along => Ok(self.push(at, Tree::Reduce { label, kind, along, of })),
                }
            }
            (Function::Tally(_), _) if options.is_set() => {
                Err(Fault::new(at, format!("`{name}` counts all elements; leave out `axis` and `keepdims`")))
            }
            (Function::Tally(kind), _) => self.tally(at, (name, kind), &arguments),
            (Function::Ranked(_), _) if options.is_set() => {
                Err(Fault::new(at, format!("`{name}` is that of all elements; leave out `axis` and `keepdims`")))
            }
            (Function::Ranked(ranked), _) => self.ranked(at, ranked, &arguments),
            _ if options.is_set() => Err(Fault::new(at, format!("`{name}` is no reduction, so it has no axis"))),
            (Function::OneHot, Some(&of)) => {
                let keys = match arguments.get(1).and_then(|number| self.number(*number)) {
                    Some(Weak::Int(keys)) => u32::try_from(keys).ok().filter(|keys| (1..=MOST_KEYS).contains(keys)),
                    _ => None,
                };
                let keys = keys.ok_or_else(|| Fault::new(at, hints::NUMBER_OF_KEYS))?;
                // The number behind the key is no term of its own.
                self.terms.truncate(of + 1);
                Ok(self.push(at, Tree::OneHot(of, keys)))
            }
            (Function::RunningSum, Some(&of)) => {
                let label = self.label(at);
                Ok(self.push(at, Tree::RunningSum { label, of }))
            }
            _ => Ok(self.push(at, Tree::Call(function, arguments))),
        }
    }

    /// The count of elements in bins, which numbers of the text define.
    fn tally(&mut self, at: usize, (name, kind): (&str, Kind), arguments: &[TermId]) -> Result<TermId, Fault> {
        let number = |parser: &Self, argument: usize| parser.number(arguments[argument]);
        let bins_at = self.terms[arguments[1]].at;
        let bins = match number(self, 1) {
            Some(Weak::Int(bins)) => u32::try_from(bins).ok().filter(|bins| COUNTS.contains(bins)),
            _ => None,
        };
        let Some(bins) = bins else {
            let (what, most) = (if kind == Kind::Histogram { "bins" } else { "keys" }, COUNTS.end());
            let message = format!("the number of {what} of `{name}` is a number of the text, from 1 to {most}");
            return Err(Fault::new(bins_at, message));
        };
        let (bins, of) = match (kind, arguments) {
            (Kind::Histogram, [_, _, low_at, _]) => {
                let low_at = self.terms[*low_at].at;
                let [low, high] = [2, 3].map(|argument| number(self, argument).map(Weak::float));
                let (Some(low), Some(high)) = (low, high) else {
                    return Err(Fault::new(low_at, "the range of `histogram` is two numbers of the text, like -3, 3"));
                };
                let edges = Edges { bins, low, high, dtype: Dtype::F64 };
                if low >= high || !edges.are_distinct() {
                    let message = "`histogram` counts from a number to a greater one, and each bin has an edge of its \
                                   own; use fewer bins, or another range";
                    return Err(Fault::new(low_at, message));
                }
                (Bins::Equal(edges), arguments[0])
            }
            (_, [key, _, weights]) => {
                let of = self.push(self.terms[*weights].at, Tree::Weighted(*key, *weights));
                (Bins::Keys(bins), of)
            }
            _ => (Bins::Keys(bins), arguments[0]),
        };
        // The numbers behind the value are no terms of their own.
        self.terms.truncate(of + 1);
        let label = self.label(at);
        Ok(self.push(at, Tree::Reduce { label, kind, along: Along::Bins(bins), of }))
    }

    /// The values of some ranks, which numbers of the text define.
    fn ranked(&mut self, at: usize, ranked: Ranked, arguments: &[TermId]) -> Result<TermId, Fault> {
        let number = arguments.get(1).map(|number| (self.number(*number), self.terms[*number].at));
        let order = match (ranked, number) {
            (Ranked::Quantile, Some((share, at))) => {
                let share = share.map(Weak::float).filter(|share| (0.0..=1.0).contains(share));
                Order::Quantile(share.ok_or_else(|| Fault::new(at, SHARE))?)
            }
            (Ranked::Top, Some((Some(Weak::Int(count)), at))) => {
                let count = u32::try_from(count).ok().filter(|count| (1..=MOST_LISTED).contains(count));
                Order::Top(count.ok_or_else(|| Fault::new(at, top_count()))?)
            }
            (Ranked::Top, Some((_, at))) => return Err(Fault::new(at, top_count())),
            _ => Order::Median,
        };
        // The number behind the value is no term of its own.
        let of = arguments[0];
        self.terms.truncate(of + 1);
        let label = self.label(at);
        Ok(self.push(at, Tree::Reduce { label, kind: Kind::BinCount, along: Along::Order(order), of }))
    }

    /// The number that a term is, if it is one of the text, with or without a sign.
    fn number(&self, term: TermId) -> Option<Weak> {
        match self.terms[term].tree {
            Tree::Number(weak) => Some(weak),
            Tree::Unary(Unary::Pos, of) => self.number(of),
            Tree::Unary(Unary::Neg, of) => match self.number(of)? {
                Weak::Int(value) => Some(Weak::Int(-value)),
                Weak::Float(value) => Some(Weak::Float(-value)),
                Weak::Bool(_) => None,
            },
            _ => None,
        }
    }

    /// Parses the value of an option of a function, whose name is at `at`.
    fn option(&mut self, at: usize, (name, keyword): (&str, &str), options: &mut Options) -> Result<(), Fault> {
        match (keyword, self.token()) {
            ("axis", Token::Name(none)) if none == "None" => options.axes = Some(None),
            ("axis", _) => {
                let axes = self.axes().ok_or_else(|| Fault::new(at, AXES))?;
                options.axes = Some(Some(axes));
                return Ok(());
            }
            ("keepdims", Token::Name(value)) if value == "True" => options.keeps_dims = Some(true),
            ("keepdims", Token::Name(value)) if value == "False" => options.keeps_dims = Some(false),
            ("keepdims", _) => return Err(Fault::new(at, "`keepdims` is `True` or `False`")),
            _ => return Err(Fault::new(at, hints::keyword(name, keyword))),
        }
        self.next += 1;
        Ok(())
    }

    /// Parses an axis, or several in parentheses; `None` if they are no different numbers.
    fn axes(&mut self) -> Option<Axes> {
        let mut axes = Axes::default();
        let is_tuple = self.is_sign("(");
        self.next += usize::from(is_tuple);
        loop {
            let is_negative = self.is_sign("-");
            self.next += usize::from(is_negative);
            let Token::Number(Weak::Int(number)) = *self.token() else { return None };
            self.next += 1;
            if !axes.add(if is_negative { number.checked_neg()? } else { number }) {
                return None;
            }
            if !is_tuple {
                return Some(axes);
            }
            let is_separated = self.is_sign(",");
            self.next += usize::from(is_separated);
            if self.is_sign(")") {
                self.next += 1;
                return Some(axes);
            }
            if !is_separated {
                return None;
            }
        }
    }

    pub(super) fn close(&mut self, open: usize, sign: &str) -> Result<(), Fault> {
        if self.is_sign(sign) {
            self.next += 1;
            return Ok(());
        }
        match self.token() {
            Token::End if sign == "]" => Err(Fault::new(open, "this bracket is never closed")),
            Token::End => Err(Fault::new(open, "this parenthesis is never closed")),
            _ => Err(self.unexpected()),
        }
    }

    pub(super) fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        if self.depth == MAX_DEPTH {
            return Err(too_deep(self.at()));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    pub(super) fn push(&mut self, at: usize, tree: Tree) -> TermId {
        self.terms.push(Term { at, tree });
        self.terms.len() - 1
    }
}

/// The options of a reduction.
#[derive(Default)]
struct Options {
    /// Its axes, of which there are none for `axis=None`.
    axes: Option<Option<Axes>>,
    keeps_dims: Option<bool>,
}

impl Options {
    fn is_set(&self) -> bool {
        self.axes.is_some() || self.keeps_dims.is_some()
    }

    fn along(&self, at: usize) -> Result<Along, Fault> {
        let keeps_dims = self.keeps_dims == Some(true);
        match self.axes.flatten() {
            Some(axes) if axes.is_first() => Ok(Along::Rows { keeps_dims }),
            Some(axes) if axes.has_first() => Err(Fault::new(at, WITH_FIRST)),
            Some(axes) => Ok(Along::Within(Within { axes, keeps_dims })),
            None if keeps_dims => Err(Fault::new(at, "`keepdims` needs an axis; write `axis=0` beside it")),
            None => Ok(Along::All),
        }
    }
}

const SHARE: &str = "the share of `quantile` is a number of the text, from 0 to 1; write 0.25 for 25 percent";

fn top_count() -> String {
    format!("`topk` returns from 1 to {MOST_LISTED} values; write their number in the text, like topk(x, 10)")
}

const AXES: &str = "an axis is a number, or several different ones in parentheses; write `axis=-1` or `axis=(1, 2)`";

const WITH_FIRST: &str = "the first axis is not reduced together with others; leave out `axis` to reduce all elements";

fn too_deep(at: usize) -> Fault {
    Fault::new(
        at,
        format!("the expression is nested more than {MAX_DEPTH} levels deep; split it into several statements"),
    )
}
