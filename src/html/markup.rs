//! Markup: escaped text, tables, lists.

use std::fmt::Write;

use crate::units;

/// A name or a path has at most so many bytes of markup; the rest is left out.
pub(super) const SHORT: usize = 300;
/// A note has at most so many.
const NOTE: usize = 1000;
/// An expression has at most so many.
pub(super) const LONG: usize = 4000;
/// A table or a list has at most so many rows.
const ROWS: usize = 40;

/// Returns text for markup and for quoted attributes: at most `most` bytes, and no control characters.
pub(super) fn escaped(text: &str, most: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(most));
    for c in text.chars() {
        let before = shown.len();
        match c {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            '\'' => shown.push_str("&#39;"),
            // These reorder the text around them, so a name could pass for another one.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => shown.extend(c.escape_unicode()),
            c => shown.push_str(&units::one_line(c.encode_utf8(&mut [0; 4]))),
        }
        if shown.len() > most {
            shown.truncate(before);
            shown.push('…');
            break;
        }
    }
    shown
}

/// Returns a name, a path or a value as code.
pub(super) fn code(text: &str) -> String {
    format!("<code>{}</code>", escaped(text, SHORT))
}

/// Returns an expression as code. Its line breaks stay.
pub(super) fn lines_of_code(text: &str) -> String {
    let mut shown = String::new();
    for line in text.lines() {
        if shown.len() >= LONG {
            shown.push('…');
            break;
        }
        let most = LONG - shown.len();
        shown.push_str(&escaped(&line.replace('\t', "    "), most));
        shown.push('\n');
    }
    format!("<pre><code>{}</code></pre>\n", shown.trim_end())
}

/// Returns secondary text.
pub(super) fn dim(text: &str) -> String {
    format!("<small>{text}</small>")
}

/// Returns a section with its heading, which is markup.
pub(super) fn section(heading: &str, content: &str) -> String {
    format!("<h4>{heading}</h4>\n{content}\n")
}

/// Returns a table. The first cell of each row is its header. Cells are markup. If there are more rows than a table may
/// have, a line below says how many of these `things` are left out.
pub(super) fn table<const N: usize>(
    head: [&str; N],
    rows: impl ExactSizeIterator<Item = [String; N]>,
    things: &str,
) -> String {
    let left_out = rows.len().saturating_sub(ROWS);
    let mut text = String::from("<table>\n<thead><tr>");
    head.iter().for_each(|cell| add(&mut text, format_args!("<th scope=\"col\">{cell}</th>")));
    text.push_str("</tr></thead>\n<tbody>\n");
    for row in rows.take(ROWS) {
        text.push_str("<tr>");
        for (place, cell) in row.iter().enumerate() {
            match place {
                0 => add(&mut text, format_args!("<th scope=\"row\">{cell}</th>")),
                _ => add(&mut text, format_args!("<td>{cell}</td>")),
            }
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody>\n</table>\n");
    if left_out > 0 {
        text += &left_out_text(left_out, things);
    }
    text
}

/// Returns a line that says how many things are left out.
pub(super) fn left_out_text(number: usize, things: &str) -> String {
    format!("<p>{}</p>\n", dim(&format!("and {} more {things}", units::count(number as u64))))
}

/// Returns the most important numbers, each with what it is. Both are markup; what it is may be empty.
pub(super) fn figures(figures: &[(String, String)]) -> String {
    let mut text = String::from("<dl>\n");
    for (number, what) in figures {
        add(&mut text, format_args!("<div><dt>{number}</dt><dd>{what}</dd></div>\n"));
    }
    text + "</dl>\n"
}

/// Returns the notes as a list.
pub(super) fn notes(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let mut list = String::from("<ul>\n");
    notes.iter().take(ROWS).for_each(|note| add(&mut list, format_args!("<li>{}</li>\n", escaped(note, NOTE))));
    list.push_str("</ul>\n");
    if notes.len() > ROWS {
        list += &left_out_text(notes.len() - ROWS, "notes");
    }
    section("Notes", &list)
}

/// Appends formatted text. Writing to a string does not fail.
pub(super) fn add(text: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(what);
}
