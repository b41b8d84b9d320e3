//! `overshot bench`. `--limits` changes nothing, because there is only one measurement. It is always made anew, so
//! saved limits that no longer fit the kernel, the firmware or the driver are replaced.

use std::io::{self, Write};

use overshot::{
    DeviceChoice,
    limits::{MachineLimits, RateBySize, RateByThreads},
    units,
};

use super::args::BenchArgs;
use super::output::{print, print_json};
use super::progress::Line;
use super::{Failure, Result};

/// Measures the machine, saves the result and prints it.
pub fn bench(args: &BenchArgs) -> Result {
    if let DeviceChoice::Emulated(_) | DeviceChoice::CpuAndEmulated(_) = args.device {
        let text = "--device emulated: has virtual time, which cannot be measured";
        return Err(Failure::Usage(format!("{text}; use auto, cpu, cuda or cuda:0")));
    }
    let line = Line::new();
    let limits = MachineLimits::measure(&args.device, &args.dir, |what| line.show(&format!("measuring {what}")))?;
    drop(line);
    let earlier = MachineLimits::saved();
    // A result that cannot be saved is still printed.
    let kept = match limits.save() {
        Ok(path) => {
            let replaced = earlier.map(|earlier| format!("{}\n", replaced(&earlier, &limits))).unwrap_or_default();
            format!("{replaced}saved in {}", path.display())
        }
        Err(error) => format!("note: not saved: {error}"),
    };
    if args.json {
        print_json(&limits)?;
        // If standard error is closed, there is no place to report that.
        let _ = writeln!(io::stderr(), "{kept}");
        return Ok(());
    }
    print(format_args!("{limits}\n{kept}\n"))
}

/// Rates with a smaller relative difference count as equal, because other work on the machine makes rates vary.
const SAME: f64 = 0.1;

/// Describes the measurement that was replaced, and how the new one differs.
fn replaced(earlier: &MachineLimits, now: &MachineLimits) -> String {
    let before = rates(earlier);
    let both = rates(now).into_iter().filter_map(|(name, rate)| {
        let (_, earlier) = before.iter().find(|(earlier, _)| *earlier == name)?;
        Some((name, *earlier, rate))
    });
    let changes: String = now.changes_since(earlier).iter().map(|change| format!("{change}\n")).collect();
    changes + &differences(&earlier.date, &both.collect::<Vec<_>>())
}

/// The best rates, with their names in the tables.
fn rates(limits: &MachineLimits) -> Vec<(String, f64)> {
    let best = |list: &[RateByThreads]| RateByThreads::best(list).map(|rate| rate.bytes_per_second);
    let host = &limits.host;
    let of_host = [
        ("copy", best(&host.copy)),
        ("2 in, 1 out", best(&host.two_in_one_out)),
        ("to slots", best(&host.stage)),
        ("from slots", best(&host.drain)),
        ("read", best(&host.read)),
        ("file in memory", best(&host.page_cache)),
        ("a new file", best(&host.new_file)),
        ("the disk", best(&host.direct_read)),
    ];
    let of_host = of_host.into_iter().filter_map(|(name, rate)| Some((name.to_owned(), rate?)));
    let of_devices = limits.devices.iter().flat_map(|device| {
        let best = |list: &[RateBySize]| RateBySize::best(list).map(|size| size.bytes_per_second);
        let rates = [
            ("in", best(&device.copy_in)),
            ("out", best(&device.copy_out)),
            ("both ways", best(&device.duplex)),
            ("2 in, 1 out", best(&device.two_in_one_out)),
            ("its memory", Some(device.memory.bytes_per_second)),
        ];
        rates.into_iter().filter_map(|(name, rate)| Some((format!("{} {name}", device.id), rate?)))
    });
    of_host.chain(of_devices).collect()
}

fn differences(date: &str, rates: &[(String, f64, f64)]) -> String {
    let differ = rates.iter().filter(|(_, before, now)| (now / before - 1.0).abs() > SAME);
    let differ = differ.map(|(name, before, now)| {
        let [before_gb, now_gb] = [*before, *now].map(units::gigabytes);
        format!("{name} {before_gb} -> {now_gb} GB/s ({:+.0} %)", (now / before - 1.0) * 100.0)
    });
    match differ.collect::<Vec<_>>() {
        none if none.is_empty() => format!("replaced the measurement of {date}; all rates are within 10 % of it"),
        differ => format!("replaced the measurement of {date}: {}", differ.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_told() {
        let rate = |name: &str, before, now| (name.to_owned(), before, now);
        let same = [rate("copy", 10e9, 10.9e9), rate("read", 10e9, 9.1e9)];
        let expected = "replaced the measurement of 2026-11-21; all rates are within 10 % of it";
        assert_eq!(differences("2026-11-21", &same), expected);
        let other = [rate("copy", 10e9, 10.9e9), rate("file in memory", 21.2e9, 5.6e9), rate("read", 10e9, 12e9)];
        let expected = "replaced the measurement of 2026-11-21: \
                        file in memory 21.2 -> 5.6 GB/s (-74 %), read 10.0 -> 12.0 GB/s (+20 %)";
        assert_eq!(differences("2026-11-21", &other), expected);
    }
}
