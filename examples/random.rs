//! Adds noise to a file that is larger than the memory of the device, twice, in different chunks: it is the same noise.
//!
//! `cargo run --release --example random [ROWS]`
//!
//! The emulated device has 16 MiB of memory, so the example shows the same on every machine; with a GPU, try
//! `DeviceChoice::Auto`.

use std::{env, fs};

use overshot::{DeviceChoice, Engine, Job, Npy, Result, device::Emulated};

const NOISE: &str = "noisy = x + 0.1 * randn(7); m = mean(noisy - x); s = std(noisy - x)";

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let rows = env::args().nth(1).map_or(Ok(64 << 20), |rows| rows.parse())?;
    add_noise(rows)
}

fn add_noise(rows: u64) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir_in(".")?;
    let [clean, noisy, again] = ["clean", "noisy", "again"].map(|name| folder.path().join(name).with_extension("npy"));
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;
    cpu.run(Job::eval("x = sin(i * 1e-6)")?.rows(rows).output("x", Npy::create(&clean)))?;

    let run = |output, device: DeviceChoice, chunk| -> Result<[f64; 2]> {
        let engine = Engine::builder().device(device).device_memory(16 << 20).chunk(chunk).build()?;
        let job = Job::eval(NOISE)?.input("x", Npy::open(&clean)?).output("noisy", Npy::create(output));
        let report = engine.run(job)?;
        let value = |name| report.value(name).map(|value| value.map_or(f64::NAN, |value| value.as_f64()));
        Ok([value("m")?, value("s")?])
    };
    let [mean, deviation] = run(&noisy, Emulated::new().into(), 1 << 20)?;
    println!("the noise of {rows} rows has the mean {mean:.6} and the standard deviation {deviation:.6}");
    let spread = 0.1 / (rows as f64).sqrt();
    assert!(mean.abs() < 5.0 * spread && (deviation - 0.1).abs() < 5.0 * spread, "no such noise");

    let other = run(&again, DeviceChoice::Cpu, 200_000)?;
    assert_eq!(other, [mean, deviation]);
    assert!(fs::read(noisy)? == fs::read(again)?, "the second run has other noise");
    println!("on another device, in other chunks, it is the same to the bit");
    Ok(())
}

#[test]
fn runs() -> std::result::Result<(), Box<dyn std::error::Error>> {
    add_noise(1 << 20)
}
