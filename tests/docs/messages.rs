//! The messages of errors, as the sources have them.
//!
//! A message is a string literal with a space in an error position:
//!
//! - in an attribute `#[error(…)]`;
//! - in what makes an error: `Err(…)`, `JobError::…(…)`, the fields of `Error::File { … }`, `map_err(…)`, …;
//! - in the arguments of a function that returns an error, or of a closure that makes one, as in `fail(…)`;
//! - in a variable, constant or function that is used in an error position. A function counts if it returns text and
//!   if its file, or else the crate, has no other function of its name.
//!
//! Values that complete a message are shown as `…`.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use proc_macro2::{Delimiter, Group, Ident, Spacing, TokenStream, TokenTree};

/// Types of errors, and functions that take or make an error.
const MAKERS: [&str; 13] = [
    "ColumnError",
    "Err",
    "Error",
    "Failure",
    "Fault",
    "JobError",
    "KernelError",
    "Missing",
    "Refused",
    "SettingError",
    "map_err",
    "ok_or",
    "ok_or_else",
];

/// Names in the type of a constant or function that is text.
const TEXT: [&str; 6] = ["Option", "Refusal", "Result", "String", "static", "str"];

/// Fields of errors that hold text for people. Others name a part of the job or the machine.
const FIELDS: [&str; 3] = ["message", "problem", "remedy"];

/// Calls in error positions whose arguments no user sees.
const SILENT: [&str; 16] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug",
    "debug_assert",
    "debug_assert_eq",
    "expect",
    "expect_err",
    "info",
    "panic",
    "split",
    "strip_prefix",
    "trace",
    "unreachable",
    "warn",
    "writeln",
];

/// A function or a constant; or without a name, the rest of a file.
struct Item {
    file: String,
    name: String,
    /// The names in its type.
    types: Vec<String>,
    body: Vec<TokenTree>,
}

impl Item {
    /// Whether it is one text, as opposed to a table of texts.
    fn is_text(&self) -> bool {
        let is_string = |name: &&String| ["Refusal", "String", "str"].contains(&name.as_str());
        self.types.iter().all(|name| TEXT.contains(&name.as_str())) && self.types.iter().filter(is_string).count() == 1
    }

    fn makes_errors(&self) -> bool {
        // Types other than errors have constructors of these names, too.
        let is_constructor = ["from", "new"].contains(&self.name.as_str());
        !is_constructor && matches!(&self.types[..], [one] if MAKERS.contains(&one.as_str()))
    }
}

/// Returns the messages of all sources, each with a file that has it. A source is the name and the text of a file.
pub fn messages(sources: Vec<(String, String)>) -> BTreeMap<String, String> {
    let mut items = Vec::new();
    for (file, text) in sources {
        let tokens = without_tests(text.parse().unwrap());
        let body = take_items(tokens, &file, &mut items);
        items.push(Item { file, name: String::new(), types: Vec::new(), body });
    }
    let functions = items.iter().filter(|item| item.makes_errors()).map(|item| item.name.clone());
    let makers: BTreeSet<String> = functions.chain(MAKERS.map(str::to_owned)).collect();

    let mut found = BTreeMap::new();
    // Each item, and whether all of it is an error position.
    let mut to_do: Vec<(usize, bool)> = (0..items.len()).map(|item| (item, false)).collect();
    let mut is_whole = vec![false; items.len()];
    while let Some((place, is_error)) = to_do.pop() {
        let item = &items[place];
        let mut search = Search { makers: makers.clone(), ..Search::default() };
        search.define(&item.body);
        if is_error {
            search.collect(&item.body);
        } else {
            search.find(&item.body);
        }
        found.extend(search.messages.into_iter().map(|message| (message, item.file.clone())));
        for (path, name) in search.names {
            let named = (0..items.len()).filter(|&other| items[other].name == name);
            let (here, elsewhere): (Vec<_>, Vec<_>) = named.partition(|&other| items[other].file == item.file);
            let is_led_to = |other: &usize| path.as_ref().is_some_and(|path| items[*other].file.contains(path));
            let elsewhere: Vec<_> = elsewhere.into_iter().filter(is_led_to).collect();
            let is_module = path.as_ref().is_some_and(|path| !path.is_empty() && !elsewhere.is_empty());
            let one = if here.is_empty() || is_module { elsewhere } else { here };
            if let [one] = one[..]
                && items[one].is_text()
                && !mem::replace(&mut is_whole[one], true)
            {
                to_do.push((one, true));
            }
        }
    }
    found
}

/// Returns the tokens without test code and attributes. `#[error(…)]` becomes `Error(…)`.
fn without_tests(tokens: TokenStream) -> Vec<TokenTree> {
    let mut tokens = tokens.into_iter().peekable();
    let mut kept = Vec::new();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(sign) if sign.as_char() == '#' => {
                tokens.next_if(|next| is_sign(next, '!'));
                let Some(TokenTree::Group(attribute)) = tokens.next() else { continue };
                let text = attribute.stream().to_string();
                if text.starts_with("error") {
                    kept.push(TokenTree::Ident(Ident::new("Error", attribute.span())));
                    kept.extend(attribute.stream().into_iter().skip(1));
                } else if text.starts_with("cfg") && text.contains("test") {
                    // To the end of the item.
                    while tokens.next().is_some_and(|token| !is_sign(&token, ';') && braces(&token).is_none()) {}
                }
            }
            TokenTree::Group(group) => {
                let inner = without_tests(group.stream()).into_iter().collect();
                kept.push(TokenTree::Group(Group::new(group.delimiter(), inner)));
            }
            token => kept.push(token),
        }
    }
    kept
}

/// Moves functions and constants to `items`, and returns the rest.
fn take_items(tokens: Vec<TokenTree>, file: &str, items: &mut Vec<Item>) -> Vec<TokenTree> {
    let mut rest = Vec::new();
    let mut next = 0;
    while let Some(token) = tokens.get(next) {
        let behind = &tokens[next..];
        let (head, body) = if is_name(token, "fn") {
            let end = behind.iter().position(|token| is_sign(token, ';') || braces(token).is_some());
            let end = end.unwrap_or(behind.len() - 1);
            let arrow = behind[..end].windows(2).position(|pair| is_sign(&pair[0], '-') && is_sign(&pair[1], '>'));
            next += end + 1;
            (&behind[arrow.unwrap_or(end)..end], braces(&behind[end]).unwrap_or_default())
        } else if (is_name(token, "const") || is_name(token, "static"))
            && behind.get(2).is_some_and(|t| is_sign(t, ':'))
        {
            let end = behind.iter().position(|token| is_sign(token, ';')).unwrap_or(behind.len());
            let sign = behind[..end].iter().position(|token| is_sign(token, '=')).unwrap_or(end);
            next += end + 1;
            (&behind[2..sign], behind[sign..end].to_vec())
        } else {
            rest.push(match token {
                TokenTree::Group(group) => {
                    let inner = take_items(inside(group), file, items).into_iter().collect();
                    TokenTree::Group(Group::new(group.delimiter(), inner))
                }
                token => token.clone(),
            });
            next += 1;
            continue;
        };
        let body = take_items(body, file, items);
        let types = names(head).collect();
        items.push(Item { file: file.into(), name: behind[1].to_string(), types, body });
    }
    rest
}

/// The search for messages in one item.
#[derive(Default)]
struct Search {
    makers: BTreeSet<String>,
    /// Variables by name.
    variables: BTreeMap<String, Vec<Vec<TokenTree>>>,
    messages: Vec<String>,
    /// Functions and constants in error positions: the name before, as a module, and their own.
    names: BTreeSet<(Option<String>, String)>,
}

impl Search {
    /// Finds variables, and closures that make errors.
    fn define(&mut self, tokens: &[TokenTree]) {
        for (place, token) in tokens.iter().enumerate() {
            if let TokenTree::Group(group) = token {
                self.define(&inside(group));
            } else if is_name(token, "let") && !(place > 0 && is_name(&tokens[place - 1], "if")) {
                let statement = tokens[place..].split(|token| is_sign(token, ';')).next().unwrap_or_default();
                let Some(sign) = statement.iter().position(|token| is_sign(token, '=')) else { continue };
                let (pattern, value) = statement.split_at(sign);
                let first = value.iter().skip(1).find(|token| !is_name(token, "move"));
                let is_closure = first.is_some_and(|token| is_sign(token, '|'));
                let is_maker = is_closure && self.makes_errors(value);
                for name in names(pattern) {
                    if is_maker {
                        self.makers.insert(name.clone());
                    }
                    self.variables.entry(name).or_default().push(value.to_vec());
                }
            }
        }
    }

    /// Whether an error is made, as opposed to a type named.
    fn makes_errors(&self, tokens: &[TokenTree]) -> bool {
        let is_used = |next: &TokenTree| match next {
            TokenTree::Punct(sign) => sign.as_char() == ':' && sign.spacing() == Spacing::Joint,
            other => matches!(other, TokenTree::Group(_)),
        };
        let makes = |pair: &[TokenTree]| {
            is_used(&pair[1]) && matches!(&pair[0], TokenTree::Ident(name) if self.makers.contains(&name.to_string()))
        };
        tokens.windows(2).any(makes)
            || tokens.iter().any(|token| matches!(token, TokenTree::Group(group) if self.makes_errors(&inside(group))))
    }

    /// Finds error positions.
    fn find(&mut self, tokens: &[TokenTree]) {
        for (place, token) in tokens.iter().enumerate() {
            let behind = &tokens[place + 1..];
            if FIELDS.iter().any(|name| is_name(token, name)) && is_assignment(behind) {
                self.collect(behind.split(|token| is_sign(token, ';')).next().unwrap_or_default());
            }
            let TokenTree::Group(group) = token else { continue };
            if path_before(&tokens[..place]).any(|name| self.makers.contains(&name)) {
                self.collect_group(tokens, place, group);
            }
            self.find(&inside(group));
        }
    }

    /// Collects messages and names of an error position.
    fn collect(&mut self, tokens: &[TokenTree]) {
        for (place, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.collect_group(tokens, place, group),
                TokenTree::Ident(name) => {
                    let is_called = tokens.len() == 1 || matches!(tokens.get(place + 1), Some(TokenTree::Group(_)));
                    let module = match place.checked_sub(1).map(|before| &tokens[before]) {
                        Some(before) if is_sign(before, ':') => {
                            tokens.get(place.wrapping_sub(3)).map(ToString::to_string)
                        }
                        // A method may be anywhere.
                        Some(before) if is_sign(before, '.') => Some(String::new()),
                        _ => None,
                    };
                    self.collect_name(&name.to_string(), module, is_called);
                }
                TokenTree::Literal(literal) => {
                    let Some((message, values)) = message(&literal.to_string()) else { continue };
                    values.iter().for_each(|value| self.collect_name(value, None, false));
                    if message.contains(' ') && message.contains(|c: char| c.is_ascii_lowercase()) {
                        self.messages.push(message);
                    }
                }
                TokenTree::Punct(_) => {}
            }
        }
    }

    fn collect_name(&mut self, name: &str, module: Option<String>, is_called: bool) {
        if let Some(values) = self.variables.remove(name) {
            values.iter().for_each(|value| self.collect(value));
        } else if is_called || name == name.to_uppercase() {
            self.names.insert((module, name.to_owned()));
        }
    }

    fn collect_group(&mut self, tokens: &[TokenTree], place: usize, group: &Group) {
        let path: Vec<String> = path_before(&tokens[..place]).collect();
        if path.iter().any(|name| SILENT.contains(&name.as_str())) {
            return;
        }
        let inner = inside(group);
        if group.delimiter() != Delimiter::Brace || !path.iter().any(|name| self.makers.contains(name)) {
            return self.collect(&inner);
        }
        // An error with fields.
        for field in inner.split(|token| is_sign(token, ',')) {
            if field.first().is_some_and(|first| FIELDS.iter().any(|name| is_name(first, name))) {
                self.collect(field);
            }
        }
    }
}

/// Returns the names of a path or a macro at the end of the tokens.
fn path_before(tokens: &[TokenTree]) -> impl Iterator<Item = String> {
    let is_path =
        |token: &&TokenTree| matches!(token, TokenTree::Ident(_)) || is_sign(token, ':') || is_sign(token, '!');
    names(tokens.iter().rev().take_while(is_path))
}

/// Whether `=` or `+=` comes next, but not `==` or `=>`.
fn is_assignment(tokens: &[TokenTree]) -> bool {
    let mut signs = tokens.iter().map_while(|token| match token {
        TokenTree::Punct(sign) => Some((sign.as_char(), sign.spacing())),
        _ => None,
    });
    matches!(signs.find(|sign| *sign != ('+', Spacing::Joint)), Some(('=', Spacing::Alone)))
}

fn names<'a>(tokens: impl IntoIterator<Item = &'a TokenTree>) -> impl Iterator<Item = String> {
    tokens.into_iter().flat_map(|token| match token {
        TokenTree::Group(group) => names(&inside(group)).collect(),
        TokenTree::Ident(name) => vec![name.to_string()],
        _ => Vec::new(),
    })
}

fn inside(group: &Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}

fn braces(token: &TokenTree) -> Option<Vec<TokenTree>> {
    match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(inside(group)),
        _ => None,
    }
}

fn is_sign(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

fn is_name(token: &TokenTree, name: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == name)
}

/// Returns the text of a string literal with `…` in the places of values, and the names of these values.
fn message(literal: &str) -> Option<(String, Vec<String>)> {
    let quoted = literal.strip_prefix('"')?.strip_suffix('"')?;
    let (mut text, mut values) = (String::new(), Vec::new());
    let mut rest = quoted.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next()? {
                'n' => text.push('\n'),
                '\n' => while rest.next_if(|c| c.is_whitespace()).is_some() {},
                other => text.push(other),
            },
            '{' | '}' if rest.next_if_eq(&c).is_some() => text.push(c),
            '{' => {
                let value: String = rest.by_ref().take_while(|c| *c != '}').collect();
                values.extend(value.split(':').next().map(str::to_owned));
                text.push('…');
            }
            other => text.push(other),
        }
    }
    Some((text.split_whitespace().collect::<Vec<_>>().join(" "), values))
}
