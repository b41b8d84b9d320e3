//! Bars. Positions are percentages, so a drawing fits any width, and its text, if any, keeps its size.

use super::markup::{SHORT, add, escaped};

/// More pieces than this are drawn as one.
const PIECES: u64 = 64;

/// A part of a stacked bar.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) colour: &'static str,
    /// Its share of the width of the drawing, 0 to 1.
    pub(super) share: f64,
    /// The number of equal pieces that it consists of.
    pub(super) pieces: u64,
}

impl Part {
    pub(super) fn new(colour: &'static str, share: f64) -> Part {
        Part { colour, share, pieces: 1 }
    }
}

/// Returns a share as a percentage of a width.
pub(super) fn percent(share: f64) -> String {
    let text = format!("{:.2}", 100.0 * share.clamp(0.0, 1.0));
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Returns a share of a whole; 0 if there is no whole.
pub(super) fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Returns a bar on a track. `label` says in words what it shows.
pub(super) fn bar(parts: &[Part], label: &str) -> String {
    let mut svg = begin(14, label);
    svg.push_str(r#"<rect width="100%" height="14" fill="currentColor" fill-opacity=".1"/>"#);
    let mut from = 0.0;
    for part in parts {
        let pieces = if part.pieces <= PIECES { part.pieces.max(1) } else { 1 };
        let width = part.share / pieces as f64;
        for piece in 0..pieces {
            // Neighbours differ in brightness, so that they can be counted.
            let opacity = if piece % 2 == 0 { "" } else { r#" fill-opacity=".7""# };
            let (x, width) = (percent(from), percent(width.min(1.0 - from)));
            add(
                &mut svg,
                format_args!(r#"<rect x="{x}" width="{width}" height="14" fill="{}"{opacity}/>"#, part.colour),
            );
            from = (from + part.share / pieces as f64).min(1.0);
        }
    }
    svg + "</svg>"
}

/// Returns a thin bar on a track, for the share of a limit.
pub(super) fn gauge(share: f64, label: &str) -> String {
    let mut svg = begin(5, label);
    svg.push_str(r#"<rect width="100%" height="5" fill="currentColor" fill-opacity=".1"/>"#);
    let width = percent(share);
    add(&mut svg, format_args!(r#"<rect width="{width}" height="5" fill="currentColor" fill-opacity=".6"/>"#));
    svg + "</svg>"
}

/// Returns the keys to colours: a square and a name, which is markup, for each.
pub(super) fn keys<'a>(keys: impl Iterator<Item = (&'static str, &'a str)>) -> String {
    let mut text = String::from("<p>");
    for (colour, name) in keys {
        let square = format!(r#"<rect width="10" height="10" fill="{colour}"/>"#);
        let svg = format!(r#"<svg width="10" height="10" aria-hidden="true">{square}</svg>"#);
        add(&mut text, format_args!(r#"<span class="overshot-key">{svg}{name}</span> "#));
    }
    text + "</p>\n"
}

/// Returns the beginning of a drawing as wide as its cell.
pub(super) fn begin(height: u32, label: &str) -> String {
    let label = escaped(label, SHORT);
    format!(r#"<svg width="100%" height="{height}" role="img" aria-label="{label}">"#)
}
