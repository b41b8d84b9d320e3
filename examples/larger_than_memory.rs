//! A file larger than device memory, from file to file, with progress:
//!
//! `cargo run --release --example larger_than_memory [ROWS]`
//!
//! The default is half a gibibyte of `f32`. The emulated device has 16 MiB of memory, so the example shows the same on
//! every machine; with a GPU, try `DeviceChoice::Auto`.

use std::env;

use overshot::{DeviceChoice, Engine, Job, Npy, device::Emulated, io::Generator};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows = env::args().nth(1).map_or(Ok(128 << 20), |rows| rows.parse())?;
    stream(rows)
}

fn stream(rows: u64) -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir_in(".")?;
    let (signal, power) = (folder.path().join("signal.npy"), folder.path().join("power.npy"));

    // A generator computes its rows when they are needed. They can be written to a file like any others.
    let wave = Generator::new(rows, |first: u64, rows: &mut [f32]| {
        for (t, row) in (first..).zip(rows) {
            *row = (t as f32 * 1e-3).sin();
        }
    });
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;
    cpu.run(Job::eval("s = wave")?.input("wave", wave).output("s", Npy::create(&signal)))?;

    let device = DeviceChoice::from(Emulated::new());
    let engine = Engine::builder().device(device).device_memory(16 << 20).build()?;
    let job = Job::eval("p = s * s; mean(p), max(p)")?
        .input("s", Npy::open(&signal)?)
        .output("p", Npy::create(&power))
        .progress(|progress| eprint!("\r{} of {} rows", progress.done, progress.rows));
    println!("{}", engine.plan(&job)?);
    let report = engine.run(job)?;
    eprintln!();
    println!("{report}");
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn std::error::Error>> {
    stream(1 << 20)
}
