//! The printed form of the limits: tables for people.

use std::fmt;

use super::{DeviceLimits, HostLimits, MachineLimits, RateBySize, RateByThreads};
use crate::units::{self, gigabytes as gb};

impl fmt::Display for MachineLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} (measured {}; rates in GB/s)", self.key, self.date)?;
        write!(f, "\n{}", self.host)?;
        self.devices.iter().try_for_each(|device| write!(f, "\n{device}"))?;
        if let Some(all) = &self.all_devices {
            let (copy_in, copy_out, duplex) = (gb(all.copy_in), gb(all.copy_out), gb(all.duplex));
            writeln!(f, "\nall GPUs at once: {copy_in} in, {copy_out} out, {duplex} both ways")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

impl fmt::Display for HostLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column =
            |list: &[RateByThreads], row: usize| list.get(row).map_or("-".into(), |rate| gb(rate.bytes_per_second));
        writeln!(f, "{:10}{:>8} {:>10} {:>8} {:>16}", "threads", "copy", "to slots", "read", "file in memory")?;
        for (row, RateByThreads { threads, .. }) in self.copy.iter().enumerate() {
            let [copy, stage, read, file] =
                [&self.copy, &self.stage, &self.read, &self.page_cache].map(|list| column(list, row));
            writeln!(f, "{threads:<10}{copy:>8} {stage:>10} {read:>8} {file:>16}")?;
        }
        let optional = |rate: Option<f64>| rate.map_or("not measured".into(), gb);
        write!(f, "a new file: {}; the disk: {}", optional(self.new_file), optional(self.direct_read))?;
        match self.last_level_cache_bytes {
            0 => writeln!(f),
            bytes => writeln!(f, "; last cache: {}", units::memory(bytes)),
        }
    }
}

impl fmt::Display for DeviceLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}, {})", self.id, self.name, self.driver)?;
        writeln!(f, "{:10}{:>8} {:>8} {:>10} {:>16}", "copies of", "in", "out", "both ways", "two in, one out")?;
        for RateBySize { bytes, .. } in &self.copy_in {
            let rate = |list: &[RateBySize]| RateBySize::rate_at(list, *bytes).map_or("-".into(), gb);
            let size = units::memory(*bytes);
            let [copy_in, copy_out, duplex, two] =
                [&self.copy_in, &self.copy_out, &self.duplex, &self.two_in_one_out].map(|list| rate(list));
            writeln!(f, "{size:10}{copy_in:>8} {copy_out:>8} {duplex:>10} {two:>16}")?;
        }
        let (memory, launch) = (gb(self.memory), self.launch_seconds * 1e6);
        write!(f, "its memory: {memory}; pinning: {}, new memory {}", gb(self.pin), gb(self.pin_new))?;
        if let Some(rate) = self.pin_driver {
            write!(f, " (by the driver {})", gb(rate))?;
        }
        writeln!(f, "; a launch: {launch:.1} µs")
    }
}

#[cfg(test)]
mod tests {
    use crate::limits::tests::example;

    #[test]
    fn everything_is_shown() {
        let text = example().to_string();
        for part in [
            "Test CPU, 4 cores, 24 GiB (measured 2026-12-31; rates in GB/s)",
            "4             32.0       44.0     48.0             28.0",
            "a new file: 1.5; the disk: not measured; last cache: 32.0 MiB",
            "cuda:1 (NVIDIA Test, CUDA 13.0)",
            "64.0 MiB      54.9     51.9       94.9             79.9",
            "its memory: 4000; pinning: 5.0, new memory 3.0 (by the driver 1.0); a launch: 2.5 µs",
            "all GPUs at once: 100 in, 90.0 out, 180 both ways",
            "note: a note",
        ] {
            assert!(text.contains(part), "no '{part}' in\n{text}");
        }
    }

    #[test]
    fn what_is_missing_is_a_dash() {
        let mut limits = example();
        limits.host.page_cache.clear();
        limits.host.new_file = None;
        let text = limits.to_string();
        assert!(text.contains("12.0                -\n") && text.contains("a new file: not measured"), "{text}");
    }
}
