//! A report on a terminal.

use overshot::{Report, device::DeviceKind, report::Stage};

use super::style::{dim, heading};

/// The heading of the table of stages begins with this.
const TABLE: &str = "stage ";
const NOTE: &str = "note: ";

/// The report: the short form, or all of it.
pub fn report(report: &Report, verbose: bool) -> String {
    let mut text = if verbose { format!("{report:#}") } else { report.to_string() };
    if verbose && could_be_compared(report) {
        text += "note: to hold this against what this machine reaches, run 'overshot bench --limits' once\n";
    }
    painted(&text)
}

/// Headings stand out, and notes do not.
fn painted(text: &str) -> String {
    let paint = |line: &str| match line {
        line if line.starts_with(TABLE) => heading(line),
        line if line.starts_with(NOTE) => dim(line),
        line => line.to_owned(),
    };
    text.lines().map(|line| paint(line) + "\n").collect()
}

/// Whether there is a verdict that lacks only a limit to be held against.
fn could_be_compared(report: &Report) -> bool {
    let has_limit = |stage| !matches!(stage, Stage::Latency) && stage != Stage::Kernel;
    !report.measured
        && report.devices.iter().any(|device| {
            // Whether the cores of the CPU compute or wait for memory is told by the limit of memory.
            let tells = |stage| has_limit(stage) || (stage == Stage::Kernel && device.kind == DeviceKind::Cpu);
            device.kind != DeviceKind::Emulated && device.bottleneck.is_some_and(|bottleneck| tells(bottleneck.stage))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_and_notes_are_painted() {
        let text = "c = 1\nstage    busy\nfill     1 ms\nnote: no GPU\n";
        let painted = painted(text);
        assert_eq!(anstream::adapter::strip_str(&painted).to_string(), text);
        let lines: Vec<_> = painted.lines().collect();
        assert_eq!(lines, ["c = 1", &heading("stage    busy"), "fill     1 ms", &dim("note: no GPU")]);
    }
}
