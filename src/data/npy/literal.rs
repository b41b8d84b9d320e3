//! A parser for the Python literals that NumPy writes into headers, and no others.

/// A Python literal.
#[derive(Debug, PartialEq)]
pub(super) enum Literal<'a> {
    Text(&'a str),
    Bool(bool),
    Integer(u64),
    Tuple(Vec<Literal<'a>>),
    /// A list, which only headers of structured dtypes contain: the fields.
    List(Vec<Literal<'a>>),
    Dict(Vec<(&'a str, Literal<'a>)>),
}

/// Parses all of `text` as one literal. An error says what is wrong and where, in bytes from the start. Integers
/// may end with `L`, as in Python 2, if `long` is set, which depends on the version of the format.
pub(super) fn parse(text: &str, long: bool) -> Result<Literal<'_>, String> {
    let mut parser = Parser { text, at: 0, long };
    // A blank at the start of a line is an indentation, except at the start of the first line.
    let lines = text.trim_start_matches([' ', '\t']);
    let first = lines.trim_start_matches(['\n', '\r']);
    if first.len() < lines.len() && first.starts_with([' ', '\t']) {
        return Err("a line begins with whitespace".into());
    }
    let literal = parser.literal(0)?;
    match parser.peek() {
        None => Ok(literal),
        Some(_) => Err(parser.wrong("the end")),
    }
}

/// Deeper than the header of any array, where each structured dtype in another one takes two, and shallow enough for
/// any stack.
const MAX_DEPTH: usize = 32;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    long: bool,
}

impl<'a> Parser<'a> {
    fn literal(&mut self, depth: usize) -> Result<Literal<'a>, String> {
        if depth > MAX_DEPTH {
            return Err(self.wrong("fewer brackets"));
        }
        match self.peek() {
            Some(b'{') => self.dict(depth),
            Some(b'(') => self.tuple(depth),
            Some(b'[') => self.list(depth),
            Some(b'\'' | b'"') => Ok(Literal::Text(self.string()?)),
            Some(b'0'..=b'9') => self.integer(),
            _ if self.word("True") => Ok(Literal::Bool(true)),
            _ if self.word("False") => Ok(Literal::Bool(false)),
            _ => Err(self.wrong("a value")),
        }
    }

    fn dict(&mut self, depth: usize) -> Result<Literal<'a>, String> {
        let mut entries = Vec::new();
        self.expect('{')?;
        while !self.accept('}') {
            let key = self.string()?;
            self.expect(':')?;
            entries.push((key, self.literal(depth + 1)?));
            self.separator('}')?;
        }
        Ok(Literal::Dict(entries))
    }

    fn tuple(&mut self, depth: usize) -> Result<Literal<'a>, String> {
        let mut items = Vec::new();
        self.expect('(')?;
        while !self.accept(')') {
            items.push(self.literal(depth + 1)?);
            // `(5)` is the number 5 and not a tuple.
            if items.len() == 1 && self.peek() == Some(b')') {
                return Err(self.wrong("','"));
            }
            self.separator(')')?;
        }
        Ok(Literal::Tuple(items))
    }

    fn list(&mut self, depth: usize) -> Result<Literal<'a>, String> {
        let mut items = Vec::new();
        self.expect('[')?;
        while !self.accept(']') {
            items.push(self.literal(depth + 1)?);
            self.separator(']')?;
        }
        Ok(Literal::List(items))
    }

    /// A string without escapes: NumPy's keys and dtypes contain none.
    fn string(&mut self) -> Result<&'a str, String> {
        let quote = match self.peek() {
            Some(b'\'') => '\'',
            Some(b'"') => '"',
            _ => return Err(self.wrong("a string")),
        };
        let rest = &self.text[self.at + 1..];
        match rest.find([quote, '\\', '\n']) {
            Some(end) if rest[end..].starts_with(quote) => {
                self.at += end + 2;
                Ok(&rest[..end])
            }
            _ => Err(self.wrong("a plain string")),
        }
    }

    /// An integer, with the `L` that Python 2 appends to long integers.
    fn integer(&mut self) -> Result<Literal<'a>, String> {
        let rest = &self.text[self.at..];
        let digits = &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())];
        let value = digits.parse().map_err(|_| self.wrong("a number below 2^64"))?;
        // Python permits leading zeros only in zero itself.
        if value != 0 && digits.starts_with('0') {
            return Err(self.wrong("a number that does not begin with 0"));
        }
        self.at += digits.len();
        if self.long && self.text[self.at..].starts_with('L') {
            self.at += 1;
        }
        Ok(Literal::Integer(value))
    }

    fn word(&mut self, word: &str) -> bool {
        let found = self.text[self.at..].starts_with(word);
        if found {
            self.at += word.len();
        }
        found
    }

    /// Parses a comma, or stops at the end of a sequence.
    fn separator(&mut self, end: char) -> Result<(), String> {
        if self.accept(',') || self.peek() == Some(end as u8) {
            return Ok(());
        }
        Err(self.wrong(&format!("',' or '{end}'")))
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        if self.accept(wanted) { Ok(()) } else { Err(self.wrong(&format!("'{wanted}'"))) }
    }

    fn accept(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted as u8);
        if found {
            self.at += 1;
        }
        found
    }

    /// Returns the first byte of the next character that is not a space.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\n', '\t', '\r']).len();
        self.text.as_bytes().get(self.at).copied()
    }

    fn wrong(&self, wanted: &str) -> String {
        let found = match self.text[self.at..].chars().next() {
            Some(c) => format!("{c:?}"),
            None => "nothing".into(),
        };
        format!("{wanted} expected at {} but {found} found", self.at)
    }
}
