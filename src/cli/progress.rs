//! The progress bar, and a line of progress: on standard error, if that is a terminal.

use std::fmt::Write;

use bytesize::ByteSize;
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use overshot::Progress;

const TEMPLATE: &str = "{what} {bar:30} {percent:>3}%  {done} of {all} rows  {rate}  {eta} left";

/// A bar that counts rows and is gone when dropped.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar named `what` over `rows` rows of `row_bytes` bytes each.
    pub fn new(quiet: bool, what: &'static str, rows: u64, row_bytes: u64) -> Bar {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let rate = move |state: &ProgressState, out: &mut dyn Write| {
            let _ = write!(out, "{:.1}/s", ByteSize((state.per_sec() * row_bytes as f64) as u64));
        };
        let style = ProgressStyle::with_template(TEMPLATE)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .with_key("what", move |_: &ProgressState, out: &mut dyn Write| {
                let _ = out.write_str(what);
            })
            .with_key("done", |state: &ProgressState, out: &mut dyn Write| {
                let _ = write!(out, "{}", HumanCount(state.pos()));
            })
            .with_key("all", |state: &ProgressState, out: &mut dyn Write| {
                let _ = write!(out, "{}", HumanCount(state.len().unwrap_or(0)));
            })
            .with_key("rate", rate);
        Bar(ProgressBar::with_draw_target(Some(rows), target).with_style(style))
    }

    /// Shows how far a job is. Lanes call it in any order: the bar never goes back.
    pub fn show(&self, progress: Progress) {
        if progress.done > self.0.position() {
            self.0.set_position(progress.done);
        }
    }

    /// Counts more rows.
    pub fn add(&self, rows: u64) {
        self.0.inc(rows);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A line that says what is being done and is gone when dropped.
pub struct Line(ProgressBar);

impl Line {
    pub fn new() -> Line {
        Line(
            ProgressBar::no_length()
                .with_style(ProgressStyle::with_template("{msg}").unwrap_or(ProgressStyle::default_bar())),
        )
    }

    /// Says what is done now.
    pub fn show(&self, what: &str) {
        self.0.set_message(what.to_owned());
        // Measurements are short, and a line that is not drawn at once would name the one before.
        self.0.tick();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
