//! Colours, on terminals that support them unless `NO_COLOR` is set (by the rules of `anstream`).

use anstyle::{AnsiColor, Style};

/// `error:`.
pub const ERROR: Style = AnsiColor::Red.on_default().bold();
/// The caret below an expression.
pub const CARET: Style = AnsiColor::Green.on_default().bold();
/// The heading of a table.
const HEADING: Style = Style::new().bold();
/// Secondary text: the summary and notes.
const DIM: Style = Style::new().dimmed();

pub fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

pub fn heading(text: &str) -> String {
    paint(HEADING, text)
}

pub fn dim(text: &str) -> String {
    paint(DIM, text)
}

/// An error message: `overshot: error: …`, followed by the expression with its caret, if there is one.
pub fn error(text: &str) -> String {
    let error = paint(ERROR, "error:");
    let painted = match text.rsplit_once('\n') {
        Some((above, caret)) if caret.trim() == "^" => format!("{above}\n{}", paint(CARET, caret)),
        _ => text.to_owned(),
    };
    format!("overshot: {error} {painted}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_carets_are_painted() {
        let plain = |text: &str| anstream::adapter::strip_str(&error(text)).to_string();
        for text in ["no such file", "column 1: no\n  § b\n  ^", "two\nlines"] {
            assert_eq!(plain(text), format!("overshot: error: {text}"));
        }
        assert!(error("column 1: no\n  b\n  ^").ends_with(&paint(CARET, "  ^")));
        assert!(error("no").contains(&paint(ERROR, "error:")));
    }
}
