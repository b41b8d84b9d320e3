//! `overshot demo`: streams two files through a device with less memory than they need, and checks the result.

mod check;
mod data;
mod folder;

use std::{env, fs};

use overshot::{CancelToken, DeviceChoice, Engine, EngineBuilder, Job, Npy, Report, device::DeviceKind, units};

use super::args::DemoArgs;
use super::output::print;
use super::progress::Bar;
use super::values::emulated;
use super::{Result, interrupt, render};
use folder::Folder;

const EXPRESSION: &str = "c = sqrt(a * a + b * b); mean(c), max(c)";
/// Inputs and output, 8 bytes each.
const ROW_BYTES: u64 = 3 * 8;
/// Room for a few small chunks.
const LEAST_MEMORY: u64 = 1 << 20;
/// The memory of the emulated device, unless the data is smaller.
const EMULATED_MEMORY: u64 = 64 << 20;

/// The state shared by all parts of the demo.
struct Demo<'a> {
    args: &'a DemoArgs,
    rows: u64,
    folder: Folder,
    cancel: CancelToken,
}

/// Runs the demo.
pub fn demo(args: &DemoArgs) -> Result {
    let cancel = interrupt::token();
    let rows = args.size.div_ceil(8);
    // First, so that a missing device is reported before a minute is spent on writing files.
    let engine = Engine::builder().device(args.device.clone()).build()?;
    let kinds: Vec<_> = engine.devices().iter().map(|device| device.kind).collect();
    let folder = Folder::new(args.dir.as_deref(), args.keep, rows.saturating_mul(ROW_BYTES))?;
    let demo = Demo { args, rows, folder, cancel };

    demo.write()?;
    if args.device == DeviceChoice::Auto && kinds == [DeviceKind::Cpu] {
        print("No GPU was found, so this uses the CPU ('overshot devices' shows the reason).\n")?;
        demo.stream(DeviceChoice::Cpu, DeviceKind::Cpu)?;
        print("\nThe same job on an emulated GPU, which shows how the pipeline works:\n")?;
        demo.stream(DeviceChoice::from(emulated()), DeviceKind::Emulated)?;
    } else {
        demo.stream(args.device.clone(), kinds.first().copied().unwrap_or(DeviceKind::Cpu))?;
    }
    demo.farewell()
}

impl Demo<'_> {
    fn write(&self) -> Result {
        let Demo { args, rows, folder, cancel } = self;
        let each = units::bytes(rows.saturating_mul(8));
        print(format_args!(
            "Writing a.npy and b.npy, {each} each, in {}\n",
            units::one_line(&folder.path().to_string_lossy())
        ))?;
        let bar = Bar::new(args.quiet, "writing", 2 * rows, 8);
        data::write(&folder.path().join("a.npy"), data::A, *rows, cancel, &bar)?;
        data::write(&folder.path().join("b.npy"), data::B, *rows, cancel, &bar)
    }

    /// Runs the job on a device, checks and removes its output, and prints the report.
    fn stream(&self, device: DeviceChoice, kind: DeviceKind) -> Result {
        let Demo { args, rows, folder, cancel } = self;
        let data = rows.saturating_mul(ROW_BYTES);
        let memory = match kind {
            DeviceKind::Cpu => None,
            DeviceKind::Emulated => Some((data / 4).clamp(LEAST_MEMORY, EMULATED_MEMORY)),
            _ => Some((data / 4).max(LEAST_MEMORY)),
        };
        let (name, size) = (device.to_string(), units::bytes(data));
        let through =
            memory.map(|bytes| format!(" through {} of device memory", units::memory(bytes))).unwrap_or_default();
        print(format_args!("\novershot run '{EXPRESSION}' on {name}: {size}{through}\n"))?;

        let output = folder.path().join("c.npy");
        // Removes the output of the previous device: there may be no space for two.
        let _ = fs::remove_file(&output);
        let engine = Engine::builder().device(device);
        let engine = memory.into_iter().fold(engine, EngineBuilder::device_memory).build()?;
        let bar = Bar::new(args.quiet, "streaming", *rows, ROW_BYTES);
        // SAFETY: the demo created the files in a new directory, and no longer writes to them.
        let map = |name| unsafe { Npy::map(folder.path().join(name)) };
        let job = Job::eval(EXPRESSION)?
            .input("a", map("a.npy")?)
            .input("b", map("b.npy")?)
            .output("c", Npy::create(&output))
            .cancel_token(cancel.clone())
            .progress(|progress| bar.show(progress));
        let report = engine.run(job)?;
        drop(bar);
        self.check(&report)?;
        // Verbose on devices with their own memory, to show how the stages overlap.
        print(render::report(&report, kind != DeviceKind::Cpu))
    }

    fn check(&self, report: &Report) -> Result {
        let Demo { args, rows, folder, cancel } = self;
        let bar = Bar::new(args.quiet, "checking", *rows, 8);
        let truth = check::file(&folder.path().join("c.npy"), *rows, cancel, &bar)?;
        drop(bar);
        truth.matches(report)?;
        print(format_args!("Checked: {}\n\n", check::CLAIM))
    }

    fn farewell(self) -> Result {
        // The name by which the command was called, so that the lines can be pasted.
        let overshot =
            env::args_os().next().map_or_else(|| "overshot".into(), |name| name.to_string_lossy().into_owned());
        let files = self.folder.path().to_owned();
        let (a, b, c) = (files.join("a.npy"), files.join("b.npy"), files.join("d.npy"));
        if self.folder.finish()? {
            let (a, b, c) = (a.display(), b.display(), c.display());
            print(format_args!(
                "\nDone; the files are kept in {}. Now try:\n  {overshot} run 'd = a - b; std(d)' a={a} b={b} d={c}\n",
                files.display()
            ))?;
        } else {
            print("\nDone; the files are removed (--keep keeps them). Now try:\n")?;
        }
        print(format_args!(
            "  {overshot} info --stats YOUR.npy\n  {overshot} run 'mean(x), std(x)' x=YOUR.npy\n  \
             {overshot} devices\n  {overshot} functions\n"
        ))
    }
}
