//! Progress on standard error: a line that is redrawn on a terminal, plain lines otherwise.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use overshot::{Progress, units};

/// Shorter jobs show no progress.
const APPEARS: Duration = Duration::from_secs(1);
/// The minimum time between two updates on a terminal.
const REDRAW: Duration = Duration::from_millis(100);
/// The minimum time between two plain lines.
const PLAIN: Duration = Duration::from_secs(10);
/// A plain line is printed after this much progress, or after [`PLAIN_ANYWAY`].
const PLAIN_PERCENT: u64 = 10;
const PLAIN_ANYWAY: Duration = Duration::from_secs(60);
/// The width of a terminal that does not report it.
const WIDTH: usize = 80;
const BAR: usize = 30;
const LEAST_BAR: usize = 10;

/// A progress bar, which is erased when dropped.
pub struct Bar {
    what: &'static str,
    rows: u64,
    row_bytes: u64,
    began: Instant,
    how: How,
    state: Mutex<State>,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Never,
    /// Redrawn on a terminal.
    Drawn,
    /// Plain lines, for a log.
    Lines,
}

#[derive(Default)]
struct State {
    done: u64,
    /// The time and rows of the last update shown.
    shown: Option<(Duration, u64)>,
}

impl State {
    /// Records the number of rows done. Returns whether an update is due.
    fn is_due(&mut self, how: How, elapsed: Duration, done: u64, rows: u64) -> bool {
        // Workers report in any order; progress never goes back.
        self.done = self.done.max(done);
        let (last, told) = self.shown.unwrap_or_default();
        let since = elapsed.saturating_sub(last);
        let is_due = match how {
            How::Never => false,
            How::Drawn => elapsed >= APPEARS && since >= REDRAW,
            How::Lines => {
                let more = percent(self.done, rows) >= percent(told, rows) + PLAIN_PERCENT;
                since >= PLAIN && (more || since >= PLAIN_ANYWAY)
            }
        };
        if is_due {
            self.shown = Some((elapsed, self.done));
        }
        is_due
    }
}

impl Bar {
    /// Progress of `what` over `rows` rows of `row_bytes` bytes each; 0 bytes if there is no data.
    pub fn new(quiet: bool, what: &'static str, rows: u64, row_bytes: u64) -> Bar {
        let how = match (quiet, io::stderr().is_terminal()) {
            (true, _) => How::Never,
            (false, true) => How::Drawn,
            (false, false) => How::Lines,
        };
        Bar { what, rows, row_bytes, began: Instant::now(), how, state: Mutex::default() }
    }

    /// Shows the progress of a job.
    pub fn show(&self, progress: Progress) {
        self.update(|_| progress.done);
    }

    /// Adds rows to those done.
    pub fn add(&self, rows: u64) {
        self.update(|done| done + rows);
    }

    fn update(&self, done: impl FnOnce(u64) -> u64) {
        let Ok(mut state) = self.state.lock() else { return };
        let (elapsed, done) = (self.began.elapsed(), done(state.done));
        if !state.is_due(self.how, elapsed, done, self.rows) {
            return;
        }
        let point = Point { what: self.what, rows: self.rows, row_bytes: self.row_bytes, done: state.done, elapsed };
        match self.how {
            How::Never => {}
            How::Drawn => draw(&point.drawn(width())),
            How::Lines => say(&point.plain()),
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        let shown = self.state.get_mut().is_ok_and(|state| state.shown.is_some());
        if self.how == How::Drawn && shown {
            draw("");
        }
    }
}

/// The progress of a job at a point in time.
struct Point {
    what: &'static str,
    rows: u64,
    row_bytes: u64,
    done: u64,
    elapsed: Duration,
}

impl Point {
    /// A line that is shorter than `width`, with a bar if there is room for one.
    fn drawn(&self, width: usize) -> String {
        let Point { what, rows, done, .. } = *self;
        let room = width.saturating_sub(1);
        let share = format!("{:>3} %", percent(done, rows));
        let left = self.left().map(|time| format!("  {time} left")).unwrap_or_default();
        let rate = self.rate().map(|rate| format!("  {rate}")).unwrap_or_default();
        let of = format!("  {} of {}", units::count(done), units::counted(rows, "row"));
        // The texts before and after the bar, from the longest form to the shortest.
        let forms = [
            (format!("{what} {share} "), format!("{of}{rate}{left}")),
            (format!("{what} {share} "), format!("{rate}{left}")),
            (format!("{share} "), left.clone()),
        ];
        for (before, behind) in &forms {
            let text = before.chars().count() + behind.chars().count();
            if text + LEAST_BAR <= room {
                return format!("{before}{}{behind}", bar(done, rows, BAR.min(room - text)));
            }
        }
        let text = format!("{share}{left}");
        if text.chars().count() <= room { text } else { share.chars().take(room).collect() }
    }

    /// A line for a log.
    fn plain(&self) -> String {
        let Point { what, rows, done, .. } = *self;
        let (share, done, rows) = (percent(done, rows), units::count(done), units::counted(rows, "row"));
        let rate = self.rate().map(|rate| format!(", {rate}")).unwrap_or_default();
        let left = self.left().map(|time| format!(", {time} left")).unwrap_or_default();
        format!("{what}: {share} %, {done} of {rows}{rate}{left}")
    }

    /// Bytes per second so far; `None` without data.
    fn rate(&self) -> Option<String> {
        let bytes = self.done as f64 * self.row_bytes as f64;
        (bytes > 0.0 && !self.elapsed.is_zero()).then(|| units::rate(bytes / self.elapsed.as_secs_f64()))
    }

    /// The estimated remaining time, in whole seconds.
    fn left(&self) -> Option<String> {
        let rest = self.rows.saturating_sub(self.done) as f64 / self.done as f64;
        let seconds = (rest * self.elapsed.as_secs_f64()).ceil();
        // An estimate of more than a year is meaningless.
        let text = || match seconds as u64 {
            seconds @ 0..60 => format!("{seconds} s"),
            seconds => units::time(Duration::from_secs(seconds)),
        };
        (seconds < 3.2e7).then(text)
    }
}

fn percent(done: u64, rows: u64) -> u64 {
    if rows == 0 { 100 } else { (u128::from(done.min(rows)) * 100 / u128::from(rows)) as u64 }
}

fn bar(done: u64, rows: u64, width: usize) -> String {
    let full = (percent(done, rows) as usize * width / 100).min(width);
    "█".repeat(full) + &"░".repeat(width - full)
}

/// Columns of the terminal.
fn width() -> usize {
    match rustix::termios::tcgetwinsize(io::stderr()) {
        Ok(size) if size.ws_col > 0 => size.ws_col.into(),
        _ => WIDTH,
    }
}

/// Replaces the line that was drawn before. If standard error is closed, there is no place to report that.
fn draw(text: &str) {
    let _ = write!(io::stderr(), "\r\x1b[K{text}").and_then(|()| io::stderr().flush());
}

fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A status line, which is erased when dropped. Shown only on a terminal.
pub struct Line(bool);

impl Line {
    pub fn new() -> Line {
        Line(io::stderr().is_terminal())
    }

    /// Shows a status.
    pub fn show(&self, what: &str) {
        if self.0 {
            draw(&what.chars().take(width().saturating_sub(1)).collect::<String>());
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.0 {
            draw("");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(done: u64, row_bytes: u64) -> Point {
        Point { what: "overshot", rows: 300_000_000, row_bytes, done, elapsed: Duration::from_millis(800) }
    }

    #[test]
    fn it_fits_80_columns() {
        let expected = "overshot  29 % ███░░░░░░░░░  87,556,096 of 300,000,000 rows  1.8 GB/s  2 s left";
        assert_eq!(point(87_556_096, 16).drawn(80), expected);
        assert_eq!(expected.chars().count(), 79);
        let wide = "overshot  29 % ████████░░░░░░░░░░░░░░░░░░░░░░  87,556,096 of 300,000,000 rows  1.8 GB/s  2 s left";
        assert_eq!(point(87_556_096, 16).drawn(200), wide);
    }

    #[test]
    fn it_fits_every_width() {
        for width in 1..200 {
            for rows in [0, 1, 300_000_000, u64::MAX] {
                for done in [0, 1, rows / 3, rows] {
                    let point = Point { rows, ..point(done, 24) };
                    let text = point.drawn(width);
                    assert!(text.chars().count() < width, "{width} columns: '{text}'");
                }
            }
        }
        assert_eq!(point(87_556_096, 16).drawn(60), "overshot  29 % ██████░░░░░░░░░░░░░░░░░░  1.8 GB/s  2 s left");
        assert_eq!(point(87_556_096, 16).drawn(20), " 29 %  2 s left");
    }

    #[test]
    fn a_job_without_data_has_no_rate() {
        let expected = "overshot: 50 %, 150,000,000 of 300,000,000 rows, 1 s left";
        assert_eq!(point(150_000_000, 0).plain(), expected);
        assert!(!point(150_000_000, 0).drawn(80).contains("B/s"));
        let expected = "overshot: 50 %, 150,000,000 of 300,000,000 rows, 3.0 GB/s, 1 s left";
        assert_eq!(point(150_000_000, 16).plain(), expected);
        // Nothing done, nothing known.
        assert_eq!(point(0, 16).plain(), "overshot: 0 %, 0 of 300,000,000 rows");
    }

    /// The times, in tenths of a second, at which something is shown of a job that does `each` of 1000 rows in a tenth.
    fn shown(how: How, each: u64, tenths: u64) -> Vec<u64> {
        let mut state = State::default();
        let is_due = |&at: &u64| state.is_due(how, Duration::from_millis(at * 100), at * each / 10, 1000);
        (0..=tenths).filter(is_due).collect()
    }

    #[test]
    fn a_terminal_shows_it_after_a_second() {
        assert_eq!(shown(How::Drawn, 10, 9), [0; 0]);
        assert_eq!(shown(How::Drawn, 10, 13), [10, 11, 12, 13]);
        assert_eq!(shown(How::Never, 10, 1000), [0; 0]);
    }

    #[test]
    fn a_log_gets_a_line_at_times() {
        // 2 % in a second: a line every ten seconds.
        assert_eq!(shown(How::Lines, 20, 350), [100, 200, 300]);
        // 0.1 % in a second: a line every minute.
        assert_eq!(shown(How::Lines, 1, 1300), [600, 1200]);
        // 1 % in a second: a line at every 10 %.
        assert_eq!(shown(How::Lines, 5, 500), [200, 400]);
        assert_eq!(shown(How::Lines, 100, 99), [0; 0]);
    }

    #[test]
    fn it_never_goes_back() {
        let mut state = State::default();
        for (done, most) in [(5, 5), (3, 5), (8, 8)] {
            state.is_due(How::Lines, Duration::ZERO, done, 10);
            assert_eq!(state.done, most);
        }
    }
}
