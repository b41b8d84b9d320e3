//! Standardises a file that is larger than the memory of the device: the mean becomes 0 and the deviation 1.
//!
//! `cargo run --release --example standardise [ROWS]`
//!
//! The mean is known after the last row, so the file is read in two passes. The emulated device has 16 MiB of memory,
//! so the example shows the same on every machine; with a GPU, try `DeviceChoice::Auto`.

use std::{env, fs};

use overshot::{DeviceChoice, Engine, Job, Npy, device::Emulated};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows = env::args().nth(1).map_or(Ok(64 << 20), |rows| rows.parse())?;
    standardise(rows)
}

fn standardise(rows: u64) -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir_in(".")?;
    let [raw, standard, again] =
        ["raw", "standard", "again"].map(|name| folder.path().join(name).with_extension("npy"));
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;
    cpu.run(Job::eval("x = 20 + 5 * randn(1)")?.rows(rows).output("x", Npy::create(&raw)))?;

    let job = |output| -> overshot::Result<Job<'_>> {
        let job = Job::eval("y = (x - mean(x)) / std(x)")?.input("x", Npy::open(&raw)?);
        Ok(job.output("y", Npy::create(output)))
    };
    let engine = Engine::builder().device(Emulated::new()).device_memory(16 << 20).build()?;
    println!("{}", engine.plan(&job(&standard)?)?);
    let report = engine.run(job(&standard)?)?;
    println!("{report}");
    // Some rows stay on the device after the first pass.
    let [first, second] = [0, 1].map(|pass| report.passes[pass].bytes_to_device);
    println!("copied to the device: {first} bytes in the first pass, {second} in the second");
    assert!(second < first);

    let check = cpu.run(Job::eval("mean(y), std(y)")?.input("y", Npy::open(&standard)?))?;
    let values: Vec<f64> = check.results.iter().map(|(_, value)| value.map_or(f64::NAN, |v| v.as_f64())).collect();
    println!("mean {:.1e}, deviation {:.12}", values[0], values[1]);
    assert!(values[0].abs() < 1e-9 && (values[1] - 1.0).abs() < 1e-9);
    cpu.run(job(&again)?)?;
    assert!(fs::read(standard)? == fs::read(again)?, "the CPU has other bytes");
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn std::error::Error>> {
    // 40 MB.
    standardise(5_000_000)
}
