//! `overshot bench`, with `--limits` or without: there is one thing to measure.

use std::io::{self, Write};

use overshot::{DeviceChoice, Error, MachineLimits};

use super::Result;
use super::args::BenchArgs;
use super::output::{print, print_json};
use super::progress::Line;

/// Measures the machine, keeps the result and prints it.
pub fn bench(args: &BenchArgs) -> Result {
    if let DeviceChoice::Emulated(_) = args.device {
        let text = "--device emulated: its time is virtual, so there is nothing to measure";
        return Err(Error::Job(format!("{text}; use auto, cpu, cuda or cuda:0")).into());
    }
    let line = Line::new();
    let limits = MachineLimits::measure(&args.device, &args.dir, |what| line.show(&format!("measuring {what}")))?;
    drop(line);
    // Not kept is not lost: it is printed.
    let kept = match limits.save() {
        Ok(path) => format!("saved in {}", path.display()),
        Err(error) => format!("note: not saved: {error}"),
    };
    if args.json {
        print_json(&limits)?;
        // When standard error is gone, nobody is left to tell.
        let _ = writeln!(io::stderr(), "{kept}");
        return Ok(());
    }
    print(format_args!("{limits}\n{kept}\n"))
}
