//! Whether markup is well-formed, and its text.

/// A piece of markup: a tag without its brackets, or the text before the next tag.
enum Piece<'a> {
    Tag(&'a str),
    Text(&'a str),
}

fn pieces(html: &str) -> Result<Vec<Piece<'_>>, String> {
    let (mut rest, mut found) = (html, Vec::new());
    while let Some(begin) = rest.find('<') {
        found.push(Piece::Text(&rest[..begin]));
        let end = rest[begin..].find('>').ok_or("a tag does not end")? + begin;
        found.push(Piece::Tag(&rest[begin + 1..end]));
        rest = &rest[end + 1..];
    }
    found.push(Piece::Text(rest));
    Ok(found)
}

/// Checks that all tags are closed in their order, that attributes are quoted, and that text has no bare `&` and `>`.
pub(super) fn check(html: &str) -> Result<(), String> {
    let mut open = Vec::new();
    for piece in pieces(html)? {
        match piece {
            Piece::Text(text) => check_text(text, open.last() == Some(&"style"))?,
            Piece::Tag(tag) => {
                if let Some(name) = tag.strip_prefix('/') {
                    match open.pop() {
                        Some(opened) if opened == name => {}
                        other => return Err(format!("</{name}> closes {other:?}")),
                    }
                    continue;
                }
                let (body, is_empty) = tag.strip_suffix('/').map_or((tag, false), |body| (body, true));
                let (name, attributes) = body.split_once(' ').unwrap_or((body, ""));
                if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
                    return Err(format!("<{tag}> is no tag"));
                }
                check_attributes(attributes).map_err(|problem| format!("<{tag}>: {problem}"))?;
                if !is_empty {
                    open.push(name);
                }
            }
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("never closed: {open:?}")) }
}

fn check_text(text: &str, is_style: bool) -> Result<(), String> {
    let bare = text.split('&').skip(1).any(|behind| {
        let name = behind.split(';').next().unwrap_or_default();
        !behind.contains(';') || !["amp", "lt", "gt", "quot", "#39"].contains(&name)
    });
    if bare || text.contains('>') || (is_style && text.contains('&')) {
        return Err(format!("a character is not escaped in {text}"));
    }
    match text.chars().find(|c| c.is_control() && *c != '\n') {
        Some(control) => Err(format!("has {control:?}")),
        None => Ok(()),
    }
}

fn check_attributes(attributes: &str) -> Result<(), String> {
    let parts: Vec<_> = attributes.split('"').collect();
    let mut names: Vec<_> = parts.iter().step_by(2).collect();
    if names.pop().is_none_or(|last| !last.is_empty()) {
        return Err("an attribute is not quoted".into());
    }
    names.iter().try_for_each(|name| {
        let bare = name.trim().strip_suffix('=').unwrap_or_default();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if !bare.is_empty() && bare.chars().all(is_name) { Ok(()) } else { Err(format!("'{name}' is no attribute")) }
    })?;
    parts.iter().skip(1).step_by(2).try_for_each(|value| check_text(value, false))
}

/// Returns the text of markup without its style, with single spaces between words.
pub(super) fn text_of(html: &str) -> String {
    let (mut text, mut is_style) = (String::new(), false);
    for piece in pieces(html).unwrap() {
        match piece {
            Piece::Tag(tag) => is_style = tag == "style",
            Piece::Text(part) if !is_style => text += &format!(" {part}"),
            Piece::Text(_) => {}
        }
    }
    for (entity, character) in [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")] {
        text = text.replace(entity, character);
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn mistakes_are_found() {
    check("<p class=\"a\">1 &lt; 2<br/><b>&amp;</b></p>").unwrap();
    for broken in [
        "<p>",
        "<p></b>",
        "</p>",
        "<p><b></p></b>",
        "<p class=a></p>",
        "<p class=\"a></p>",
        "<p>a & b</p>",
        "<p>&nbsp;</p>",
        "<p>a > b</p>",
        "<p>a < b</p>",
        "<p title=\"a & b\"></p>",
        "<p>\u{1b}</p>",
    ] {
        assert!(check(broken).is_err(), "{broken}");
    }
}
