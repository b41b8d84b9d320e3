//! Divides CUDA C++ into tokens, as far as declarations need them. Every text has tokens: the compiler, not this
//! module, refuses what C++ forbids.

/// A token, and its place in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'t> {
    pub(super) kind: TokenKind,
    pub(super) text: &'t str,
    pub(super) start: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A name or a keyword.
    Word,
    Number,
    /// A string or a character, with its prefix and quotes. If it is not closed, it ends with its line.
    Literal,
    /// Any other character.
    Punctuation,
    /// A line of the preprocessor, from its `#` on.
    Directive,
}

/// Returns the tokens of a text, without comments.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut start = 0;
    let mut begins_line = true;
    while let Some(first) = text[start..].chars().next() {
        let rest = &text[start..];
        if first == '\n' {
            begins_line = true;
            start += 1;
        } else if let Some(length) = blank(rest) {
            start += length;
        } else {
            let (kind, length) = match first {
                '#' if begins_line => (TokenKind::Directive, directive(rest)),
                _ => token(rest, first),
            };
            tokens.push(Token { kind, text: &rest[..length], start });
            begins_line = false;
            start += length;
        }
    }
    tokens
}

pub(super) fn is_word_start(c: char) -> bool {
    c.is_alphabetic() || c == '_' || c == '$'
}

pub(super) fn is_word_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Returns the length of the blank, comment or line continuation at the start of the text. A newline is none of these.
fn blank(text: &str) -> Option<usize> {
    if let Some(length) = continuation(text) {
        return Some(length);
    }
    if text.starts_with("//") {
        return Some(line(text));
    }
    if let Some(comment) = text.strip_prefix("/*") {
        return Some(comment.find("*/").map_or(text.len(), |end| end + 4));
    }
    text.chars().next().filter(|c| c.is_whitespace() && *c != '\n').map(char::len_utf8)
}

/// Returns the length of the backslash and newline at the start of the text.
fn continuation(text: &str) -> Option<usize> {
    ["\\\n", "\\\r\n"].iter().find(|pair| text.starts_with(**pair)).map(|pair| pair.len())
}

/// Returns the number of bytes before the newline that ends this line, continuation lines included.
fn line(text: &str) -> usize {
    let ends = |end: &usize| !text[..*end].trim_end_matches('\r').ends_with('\\');
    text.match_indices('\n').map(|(end, _)| end).find(ends).unwrap_or(text.len())
}

/// Returns the length of a directive. It ends with the line, unless the line ends inside a comment or a raw string.
fn directive(text: &str) -> usize {
    let mut end = 1;
    while let Some(first) = text[end..].chars().next() {
        if first == '\n' {
            break;
        }
        let rest = &text[end..];
        end += blank(rest).unwrap_or_else(|| token(rest, first).1);
    }
    end
}

fn token(text: &str, first: char) -> (TokenKind, usize) {
    if is_word_start(first) {
        let length = text.find(|c| !is_word_part(c)).unwrap_or(text.len());
        let (word, behind) = text.split_at(length);
        if let ("R" | "LR" | "uR" | "UR" | "u8R", Some(raw)) = (word, behind.strip_prefix('"')) {
            return (TokenKind::Literal, length + 1 + raw_string(raw));
        }
        if matches!(word, "L" | "u" | "U" | "u8") && behind.starts_with(['"', '\'']) {
            return (TokenKind::Literal, length + literal(behind));
        }
        return (TokenKind::Word, length);
    }
    let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    if is_digit(Some(first)) || first == '.' && is_digit(text.chars().nth(1)) {
        return (TokenKind::Number, number(text));
    }
    if matches!(first, '"' | '\'') {
        return (TokenKind::Literal, literal(text));
    }
    (TokenKind::Punctuation, first.len_utf8())
}

/// Returns the length of a number, such as `1'000`, `0x1p-3`, `1.5e+3f`.
fn number(text: &str) -> usize {
    let mut previous = ' ';
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        let goes_on = match c {
            '+' | '-' => matches!(previous, 'e' | 'E' | 'p' | 'P'),
            '\'' => at > 0 && characters.peek().is_some_and(|(_, next)| next.is_ascii_alphanumeric()),
            _ => is_word_part(c) || c == '.',
        };
        if !goes_on {
            return at;
        }
        previous = c;
    }
    text.len()
}

/// Returns the length of a string or a character, from its opening quote.
fn literal(text: &str) -> usize {
    let quote = text.chars().next();
    let mut end = quote.map_or(0, char::len_utf8);
    while let Some(c) = text[end..].chars().next() {
        if c == '\n' {
            return end;
        }
        end += c.len_utf8();
        if Some(c) == quote {
            return end;
        }
        if c == '\\' {
            // The escaped character may be a newline of two characters.
            let escaped = text[end..].chars().next().map_or(0, char::len_utf8);
            end += continuation(&text[end - 1..]).map_or(escaped, |pair| pair - 1);
        }
    }
    end
}

/// Returns the length of a raw string after its first quote: `delimiter(…)delimiter"`.
fn raw_string(text: &str) -> usize {
    let Some((delimiter, content)) = text.split_once('(') else { return text.len() };
    let end = format!("){delimiter}\"");
    content.find(&end).map_or(text.len(), |at| delimiter.len() + 1 + at + end.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        tokens(text).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn literals_hide_what_is_in_them() {
        assert_eq!(texts(r#"a '"' b "\"" c 'x'"#), ["a", r#"'"'"#, "b", r#""\"""#, "c", "'x'"]);
        assert_eq!(texts("R\"x(a)\" \"b)x\" u8\"\\\\\" c"), ["R\"x(a)\" \"b)x\"", "u8\"\\\\\"", "c"]);
        assert_eq!(texts("1'000'000 + 0x1p-3f - 1.5e+3"), ["1'000'000", "+", "0x1p-3f", "-", "1.5e+3"]);
        assert_eq!(texts("'open\nb \"open too\nc"), ["'open", "b", "\"open too", "c"]);
        assert_eq!(texts("\"a\\\r\nb\" c"), ["\"a\\\r\nb\"", "c"]);
    }

    #[test]
    fn comments_and_continued_lines_are_left_out() {
        assert_eq!(texts("a // b \\\n still \" the comment\n c /* d\n\" */ e /* open"), ["a", "c", "e"]);
        assert_eq!(texts("a \\\n b"), ["a", "b"]);
    }

    #[test]
    fn directives_are_whole_lines() {
        let text = "  # define A \\\n b /* c\n d */ e\nf # g\n#if 0 // don't";
        assert_eq!(texts(text), ["# define A \\\n b /* c\n d */ e", "f", "#", "g", "#if 0 // don't"]);
        assert_eq!(texts("#error don't\nb"), ["#error don't", "b"]);
    }

    /// Text that comes near C++.
    fn soup() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "\"",
            "'",
            "\\",
            "\n",
            "\r\n",
            "//",
            "/*",
            "*/",
            "R\"",
            "u8R\"x(",
            ")x\"",
            "#",
            "#if 0\n",
            "#endif\n",
            "(",
            ")",
            "{",
            "}",
            "[",
            "]",
            ",",
            ";",
            "k",
            "²",
            "é",
            "1",
            "'0",
            "e+",
            ".",
            "__global__ ",
            "extern \"C\" ",
            "void ",
            "const ",
            "float ",
            "*",
            "x",
            " ",
            "\u{a0}",
        ]);
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_text_has_tokens(text in prop_oneof![any::<String>(), soup()]) {
            let mut end = 0;
            for token in tokens(&text) {
                prop_assert!(token.start >= end && !token.text.is_empty());
                prop_assert_eq!(&text[token.start..][..token.text.len()], token.text);
                end = token.start + token.text.len();
            }
        }

        #[test]
        fn declarations_of_any_text_never_panic(text in prop_oneof![any::<String>(), soup()], entry in "[ké(]{0,2}") {
            let _ = super::super::declaration::of_source(&text, &entry);
            let _ = super::super::declaration::of_text(&text);
        }

        #[test]
        fn tokens_survive_any_blanks_between_them(
            tokens in prop::collection::vec(
                prop_oneof![
                    "[a-z_][a-z0-9_]{0,5}", "[0-9]{1,3}", Just("1'0".to_owned()), Just(r#"'"'"#.to_owned()),
                    Just(r#""a\"//b""#.to_owned()), Just("R\"d(\n\")d\"".to_owned()), "[*(){}\\[\\],;=<>]",
                ],
                0..20,
            ),
            blanks in prop::collection::vec(
                prop::sample::select(vec![" ", "\n", " /* \" ' */ ", " // ' \\\n \"\n", "\\\n", " \t\r\n"]), 20,
            ),
        ) {
            let text: String = tokens.iter().zip(&blanks).flat_map(|(token, blank)| [token.as_str(), blank]).collect();
            prop_assert_eq!(texts(&text), tokens);
        }
    }
}
