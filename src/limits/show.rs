//! The printed form of the limits: tables for people.

use std::fmt;

use super::{AggregateLimits, DeviceLimits, HostLimits, MachineLimits, Rate, RateBySize, RateByThreads};
use crate::units::{self, gigabytes as gb};

/// A smaller spread is not shown: it is usual, and hides the others.
const SHOWN: f64 = 0.05;

impl fmt::Display for MachineLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} (measured {}; rates in GB/s)", self.key, self.date)?;
        if let Some(kernel) = &self.versions.kernel {
            let firmware = self.versions.firmware.as_ref().map(|version| format!(", firmware {version}"));
            writeln!(f, "kernel {kernel}{}", firmware.unwrap_or_default())?;
        }
        write!(f, "\n{}", self.host)?;
        self.devices.iter().try_for_each(|device| write!(f, "\n{device}"))?;
        if let Some(all) = &self.all_devices {
            write!(f, "\n{all}")?;
        }
        writeln!(f, "\nEach rate is the best of several runs; -12 %: the slowest run was 12 % slower.")?;
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

impl fmt::Display for HostLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = [
            ("copy", &self.copy),
            ("2 in, 1 out", &self.two_in_one_out),
            ("to slots", &self.stage),
            ("from slots", &self.drain),
            ("read", &self.read),
            ("file in memory", &self.page_cache),
            ("new file", &self.new_file),
        ];
        let rates = |list: &Vec<RateByThreads>| (0..self.copy.len()).map(|row| Some(list.get(row)?.rate())).collect();
        let threads = self.copy.iter().map(|rate| rate.threads.to_string()).collect();
        table(f, ("threads", threads), columns.map(|(name, list)| (name, rates(list))))?;
        let best = |list: &[RateByThreads]| match RateByThreads::best(list) {
            Some(best) => {
                let threads = if best.threads == 1 { "thread" } else { "threads" };
                format!("{}{} ({} {threads})", gb(best.bytes_per_second), spread(best.rate()), best.threads)
            }
            None => "not measured".into(),
        };
        write!(f, "a new file: {}; the disk: {}", best(&self.new_file), best(&self.direct_read))?;
        match self.last_level_cache_bytes {
            0 => writeln!(f),
            bytes => writeln!(f, "; last cache: {}", units::memory(bytes)),
        }
    }
}

impl fmt::Display for DeviceLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}, driver {})", self.id, self.name, self.driver)?;
        let columns = [
            ("in", &self.copy_in),
            ("out", &self.copy_out),
            ("both ways", &self.duplex),
            ("2 in, 1 out", &self.two_in_one_out),
        ];
        let rates = |list: &Vec<RateBySize>| {
            let of = |bytes| list.iter().find(|rate| rate.bytes == bytes).map(RateBySize::rate);
            self.copy_in.iter().map(|size| of(size.bytes)).collect()
        };
        let sizes = self.copy_in.iter().map(|size| units::memory(size.bytes)).collect();
        table(f, ("copies of", sizes), columns.map(|(name, list)| (name, rates(list))))?;
        let shown = |rate: Rate| gb(rate.bytes_per_second) + &spread(rate);
        let launch = self.launch_seconds * 1e6;
        write!(f, "its memory: {}; pinning: {}, ", shown(self.memory), shown(self.pin))?;
        write!(f, "new memory {}", shown(self.pin_new))?;
        if let Some(rate) = self.pin_driver {
            write!(f, " (by the driver {})", shown(rate))?;
        }
        writeln!(f, "; a launch: {launch:.1} µs")
    }
}

impl fmt::Display for AggregateLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [copy_in, copy_out, duplex, two] = [self.copy_in, self.copy_out, self.duplex, self.two_in_one_out]
            .map(|rate| gb(rate.bytes_per_second) + &spread(rate));
        writeln!(f, "all GPUs at once: in {copy_in}, out {copy_out}, both ways {duplex}, 2 in, 1 out {two}")
    }
}

/// Returns the spread as it stands behind a rate: nothing if it is small.
fn spread(rate: Rate) -> String {
    if rate.spread < SHOWN { String::new() } else { format!(" -{:.0} %", rate.spread * 100.0) }
}

/// Writes a table: a column with names of rows, and columns of rates with their spreads.
fn table<const COLUMNS: usize>(
    f: &mut fmt::Formatter<'_>,
    (title, names): (&str, Vec<String>),
    columns: [(&str, Vec<Option<Rate>>); COLUMNS],
) -> fmt::Result {
    const NAMES: usize = 9;
    let columns = columns.map(|(title, rates)| {
        let text = |rate: Option<Rate>| rate.map_or("-".into(), |rate| gb(rate.bytes_per_second));
        let cells: Vec<_> = rates.into_iter().map(|rate| (text(rate), rate.map(spread).unwrap_or_default())).collect();
        // Points are below each other, whether a spread follows or not.
        let spreads = cells.iter().map(|(_, spread)| spread.len()).max().unwrap_or(0);
        let rates = cells.iter().map(|(rate, _)| rate.len()).max().unwrap_or(0).max(5);
        (title, cells, rates.max(title.len().saturating_sub(spreads)), spreads)
    });
    write!(f, "{title:NAMES$}")?;
    for (title, _, rates, spreads) in &columns {
        write!(f, "  {title:>width$}", width = rates + spreads)?;
    }
    writeln!(f)?;
    for (row, name) in names.iter().enumerate() {
        let mut line = format!("{name:NAMES$}");
        for (_, cells, rates, spreads) in &columns {
            let (rate, spread) = &cells[row];
            line += &format!("  {rate:>rates$}{spread:spreads$}");
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::limits::tests::example;

    #[test]
    fn everything_is_shown() {
        let text = example().to_string();
        for part in [
            "Test CPU, 4 cores, 24 GiB (measured 2026-12-31; rates in GB/s)\n",
            "\nkernel 6.8.0-51, firmware 1.4 (05/06/2026)\n",
            "threads           copy  2 in, 1 out     to slots   from slots         read  file in memory     new file",
            "2           16.0         26.0         22.0 ",
            "4           32.0 -12 %   52.0 -12 %   44.0 -12 %",
            "a new file: 1.5 -12 % (4 threads); the disk: not measured; last cache: 32.0 MiB",
            "cuda:1 (NVIDIA Test, driver 580.159.04)",
            "64.0 MiB    54.9 -6 %   51.9 -6 %   94.9 -6 %",
            "its memory: 4000; pinning: 5.0 -25 %, new memory 3.0 (by the driver 1.0); a launch: 2.5 µs",
            "all GPUs at once: in 100, out 90.0 -50 %, both ways 180, 2 in, 1 out 150",
            "note: a note",
        ] {
            assert!(text.contains(part), "no '{part}' in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 120 && line.trim_end() == line), "{text}");
    }

    #[test]
    fn what_is_missing_is_a_dash() {
        let mut limits = example();
        limits.host.page_cache.clear();
        limits.host.new_file.clear();
        let text = limits.to_string();
        assert!(text.contains("12.0                     -         -\n"), "{text}");
        assert!(text.contains("a new file: not measured"), "{text}");
    }
}
