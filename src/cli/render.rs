//! Formats a report for the terminal.

use overshot::{
    Report,
    device::DeviceKind,
    report::{Bottleneck, Stage},
};

use super::style::{dim, heading};

/// The start of the heading of the table of stages.
const TABLE: &str = "stage ";
const NOTE: &str = "note: ";

/// The report in its short or its verbose form.
pub fn report(report: &Report, verbose: bool) -> String {
    let mut text = if verbose { format!("{report:#}") } else { report.to_string() };
    if verbose && could_be_compared(report) {
        text += "note: to compare this with the limits of this machine, run 'overshot bench --limits' once\n";
    }
    painted(&text)
}

/// Makes headings bold and notes dim.
fn painted(text: &str) -> String {
    let paint = |line: &str| match line {
        line if line.starts_with(TABLE) => heading(line),
        line if line.starts_with(NOTE) => dim(line),
        line => line.to_owned(),
    };
    text.lines().map(|line| paint(line) + "\n").collect()
}

/// Whether a bottleneck could be compared with a limit of the machine that was not measured.
fn could_be_compared(report: &Report) -> bool {
    let lacks_limit = |bottleneck: &Bottleneck| {
        bottleneck.stage != Stage::Latency
            && bottleneck.kind != DeviceKind::Emulated
            && bottleneck.limit_bytes_per_second.is_none()
    };
    !report.measured && report.devices.iter().filter_map(|device| device.bottleneck.as_ref()).any(lacks_limit)
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
