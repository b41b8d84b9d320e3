//! The picture of a timeline: a lane for each engine and each worker.
//!
//! A short timeline is drawn span by span. A long one would be large, and narrower than a pixel in most places: its
//! picture shows for how much of each step of time a lane was busy, and below that a part of the run span by span.

use std::collections::BTreeMap;
use std::time::Duration;

use super::bars::{begin, keys, percent, share};
use super::markup::{SHORT, add, dim, escaped};
use super::report::DEVICES;
use super::style;
use crate::trace::{Span, Timeline, Track};
use crate::units;

/// The most spans that are drawn one by one.
const SPANS: usize = 2000;
/// The part of a long run that is drawn span by span has about so many.
const PART: usize = 240;
/// Steps of time of a long run.
const STEPS: usize = 160;
/// Lanes of workers of all devices together. Every device has two of them at least, and eight at most.
const WORKERS: usize = 18;
/// The width of a lane and of its steps, in units of the drawing, which is stretched to the width of its cell.
const UNITS: f64 = 4000.0;
const HEIGHT: u32 = 14;

/// The lanes of one device.
struct Lanes<'a> {
    device: &'a str,
    lanes: Vec<(String, &'a [Span])>,
    /// Workers that are not shown.
    hidden: usize,
}

/// A period of time.
#[derive(Clone, Copy)]
struct Window {
    from: Duration,
    to: Duration,
}

impl Window {
    fn length(self) -> f64 {
        self.to.saturating_sub(self.from).as_secs_f64()
    }

    fn has(self, span: &Span) -> bool {
        span.begin < self.to && span.end > self.from
    }

    /// Returns where a time lies in the window, 0 to 1.
    fn place(self, time: Duration) -> f64 {
        share(time.saturating_sub(self.from).as_secs_f64(), self.length()).min(1.0)
    }
}

/// Returns the picture of a timeline.
pub(super) fn picture(timeline: &Timeline) -> String {
    let shown = lanes(timeline);
    let spans = || shown.iter().flat_map(|device| &device.lanes).flat_map(|(_, spans)| spans.iter());
    let from = spans().map(|span| span.begin).min().unwrap_or_default();
    let to = spans().map(|span| span.end).max().unwrap_or_default();
    let whole = Window { from, to };
    if whole.length() <= 0.0 {
        return paragraph("No stage took time.");
    }
    let number = spans().count();
    let counted = units::counted(number as u64, "span");
    let mut text = keys(names_of_stages(spans()).into_iter().map(|name| (style::colour(name), name)));
    if number <= SPANS {
        return text + &paragraph(&format!("The whole run: {counted}.")) + &table(&shown, whole, exact);
    }
    let step = units::time(Duration::from_secs_f64(whole.length() / STEPS as f64));
    let line = format!("The whole run: {counted}. A bar is as high as the lane was busy in a step of {step}.");
    text += &paragraph(&line);
    text += &table(&shown, whole, in_steps);
    let part = part(whole, number, &spans);
    let [begin, length] = [part.from, part.to - part.from].map(units::time);
    let drawn = units::counted(spans().filter(|span| part.has(span)).count() as u64, "span");
    text += &paragraph(&format!("A part in its middle: {length} from {begin} on, {drawn}."));
    text + &table(&shown, part, exact)
}

fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", dim(text))
}

/// Returns the lanes that are drawn.
fn lanes(timeline: &Timeline) -> Vec<Lanes<'_>> {
    let devices = timeline.devices().iter().filter(|device| !device.rows.is_empty());
    let devices: Vec<_> = devices.take(DEVICES).collect();
    let most = (WORKERS / devices.len().max(1)).clamp(2, 8);
    devices
        .into_iter()
        .map(|device| {
            let engines = device.rows.keys().filter(|track| !matches!(track, Track::Worker(_))).count();
            let lanes = device.rows.iter().take(engines + most);
            let lanes: Vec<_> = lanes.map(|(track, spans)| (track.to_string(), spans.as_slice())).collect();
            Lanes { device: &device.name, hidden: device.rows.len() - lanes.len(), lanes }
        })
        .collect()
}

/// Returns a part in the middle of the run with about [`PART`] spans, and never more than [`SPANS`].
fn part<'a, I: Iterator<Item = &'a Span>>(whole: Window, number: usize, spans: &dyn Fn() -> I) -> Window {
    let middle = whole.from + (whole.to - whole.from) / 2;
    let mut half = Duration::from_secs_f64(whole.length() / 2.0 * PART as f64 / number as f64);
    loop {
        half = half.max(Duration::from_nanos(1));
        let part = Window { from: middle.saturating_sub(half), to: middle + half };
        let drawn = spans().filter(|span| part.has(span)).count();
        if drawn <= SPANS || half <= Duration::from_nanos(1) {
            return part;
        }
        half /= 2;
    }
}

/// Returns the names of the stages of these spans that took time, in the order of stages.
fn names_of_stages<'a>(spans: impl Iterator<Item = &'a Span>) -> Vec<&'static str> {
    let mut found = [false; style::STAGES.len()];
    for span in spans.filter(|span| span.end > span.begin) {
        if let Some(stage) = stage_of(span) {
            found[stage] = true;
        }
    }
    style::STAGES.iter().zip(found).filter(|(_, found)| *found).map(|((name, _), _)| *name).collect()
}

/// Returns the number of the stage of a span.
fn stage_of(span: &Span) -> Option<usize> {
    style::STAGES.iter().position(|(name, _)| *name == span.name)
}

/// Returns a table with a row for each lane, which `draw` draws.
fn table(devices: &[Lanes<'_>], window: Window, draw: fn(&[Span], Window) -> String) -> String {
    let mut text =
        String::from("<table class=\"overshot-full overshot-lanes\">\n<thead><tr><th scope=\"col\">lane</th>");
    let axis = axis(window);
    add(&mut text, format_args!("<th scope=\"col\" class=\"overshot-wide\">{axis}</th><th scope=\"col\">busy</th>"));
    text.push_str("</tr></thead>\n");
    for Lanes { device, lanes, hidden } in devices {
        let name = escaped(device, SHORT);
        let head = format!("<tr><th scope=\"rowgroup\" colspan=\"3\">{name}</th></tr>");
        add(&mut text, format_args!("<tbody>\n{head}\n"));
        for (name, spans) in lanes {
            let busy = spans.iter().filter(|span| window.has(span));
            let busy = busy.map(|span| window.place(span.end) - window.place(span.begin)).sum::<f64>();
            let busy = format!("{:.0} %", 100.0 * busy);
            let mut svg = begin(HEIGHT, &format!("{name}: busy for {busy} of the time"));
            svg.push_str(r#"<rect width="100%" height="100%" fill="currentColor" fill-opacity=".07"/>"#);
            svg += &draw(spans, window);
            svg.push_str("</svg>");
            let cells = format!("<td class=\"overshot-wide\">{svg}</td><td>{busy}</td>");
            add(&mut text, format_args!("<tr><th scope=\"row\">{name}</th>{cells}</tr>\n"));
        }
        if *hidden > 0 {
            let line = dim(&format!("and {} that are not shown", units::counted(*hidden as u64, "worker")));
            add(&mut text, format_args!("<tr><th scope=\"row\" colspan=\"3\">{line}</th></tr>\n"));
        }
        text.push_str("</tbody>\n");
    }
    text + "</table>\n"
}

/// Draws every span of a lane.
fn exact(spans: &[Span], window: Window) -> String {
    let mut paths: BTreeMap<(usize, bool), String> = BTreeMap::new();
    let mut drawn = [0; style::STAGES.len()];
    let mut spans: Vec<_> = spans.iter().filter(|span| window.has(span) && span.end > span.begin).collect();
    spans.sort_by_key(|span| span.begin);
    for span in spans.into_iter().take(SPANS) {
        let Some(stage) = stage_of(span) else { continue };
        drawn[stage] += 1;
        let [from, to] = [span.begin, span.end].map(|time| (UNITS * window.place(time)).round());
        let width = (to - from).max(2.0);
        // Neighbours differ in brightness, so that one sees where a chunk ends.
        let path = paths.entry((stage, drawn[stage] % 2 == 0)).or_default();
        add(path, format_args!("M{from} 0h{width}v{HEIGHT}h-{width}z"));
    }
    let mut text = stretched(UNITS, f64::from(HEIGHT));
    for ((stage, is_pale), path) in paths {
        let opacity = if is_pale { r#" fill-opacity=".6""# } else { "" };
        add(&mut text, format_args!(r#"<path fill="{}"{opacity} d="{path}"/>"#, style::STAGES[stage].1));
    }
    text + "</svg>"
}

/// Draws for how much of each step a lane was busy: stages on top of each other.
fn in_steps(spans: &[Span], window: Window) -> String {
    let mut busy = [[0.0f64; STEPS]; style::STAGES.len()];
    for span in spans.iter().filter(|span| window.has(span)) {
        let Some(stage) = stage_of(span) else { continue };
        let [from, to] = [span.begin, span.end].map(|time| STEPS as f64 * window.place(time));
        let mut at = from;
        while at < to {
            let step = (at as usize).min(STEPS - 1);
            let end = to.min(step as f64 + 1.0);
            busy[stage][step] += end - at;
            if step == STEPS - 1 {
                break;
            }
            at = end;
        }
    }
    let mut total = [0.0; STEPS];
    let mut paths = Vec::new();
    for (stage, busy) in busy.iter().enumerate().filter(|(_, busy)| busy.iter().any(|share| *share > 0.0)) {
        total.iter_mut().zip(busy).for_each(|(total, busy)| *total += busy);
        let path = outline(&total);
        paths.push(format!(r#"<path fill="{}" d="{path}"/>"#, style::STAGES[stage].1));
    }
    // Each covers the lower part of those that were added later.
    paths.reverse();
    format!("{}{}</svg>", stretched(STEPS as f64, 100.0), paths.concat())
}

/// Returns the outline of columns of these heights, 0 to 1.
fn outline(heights: &[f64; STEPS]) -> String {
    let mut path = String::from("M0 100");
    let mut runs: Vec<(i32, usize)> = Vec::new();
    for height in heights {
        let top = (100.0 - 100.0 * height.clamp(0.0, 1.0)).round() as i32;
        match runs.last_mut() {
            Some((last, width)) if *last == top => *width += 1,
            _ => runs.push((top, 1)),
        }
    }
    runs.iter().for_each(|(top, width)| add(&mut path, format_args!("V{top}h{width}")));
    path + "V100z"
}

/// Returns the beginning of a drawing of this size that is stretched to its parent's.
fn stretched(width: f64, height: f64) -> String {
    format!(r#"<svg width="100%" height="100%" viewBox="0 0 {width} {height}" preserveAspectRatio="none">"#)
}

/// Returns an axis with times from the begin of the window on. Few of them have room on a telephone.
fn axis(window: Window) -> String {
    let step = step(window.length());
    let mut svg = begin(16, &format!("time, {} in all", units::time(Duration::from_secs_f64(window.length()))));
    let mut tick = 0.0;
    while tick < window.length() {
        let place = tick / window.length();
        let x = percent(place);
        let (anchor, shift) = match place {
            0.0 => ("start", 0),
            _ if place > 0.8 => ("end", -4),
            _ => ("start", 4),
        };
        let label = units::time(Duration::from_secs_f64(tick));
        if place > 0.0 {
            add(&mut svg, format_args!(r#"<rect x="{x}" width="1" height="16" fill="currentColor"/>"#));
        }
        let place = format!(r#"x="{x}" dx="{shift}" y="11" text-anchor="{anchor}""#);
        add(&mut svg, format_args!(r#"<text {place} font-size="11" fill="currentColor">{label}</text>"#));
        tick += step;
    }
    svg + "</svg>"
}

/// Returns the time between two labels of an axis: 1, 2 or 5 times a power of ten, for at most three labels.
fn step(length: f64) -> f64 {
    let power = 10f64.powf(length.log10().floor());
    [0.5, 1.0, 2.0].iter().map(|factor| factor * power).find(|step| length / step <= 2.9).unwrap_or(power * 5.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_two_or_three_labels() {
        for hundredths in 1..10_000 {
            let length = f64::from(hundredths) / 100.0;
            let labels = (length / step(length)).ceil();
            assert!((2.0..=3.0).contains(&labels), "{length}: {labels} labels, one every {}", step(length));
        }
    }
}
