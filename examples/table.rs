//! Standardises the columns of a table that is larger than the memory of the device.
//!
//! `cargo run --release --example table [ROWS]`
//!
//! A row has 12 numbers. Their means and deviations are known after the last row, so the file is read in two passes.
//! The emulated device has 16 MiB of memory, so the example shows the same on every machine; with a GPU, try
//! `DeviceChoice::Auto`.

use std::{env, fs};

use ndarray::ArrayView;
use overshot::{DeviceChoice, Engine, Input, Job, Npy, device::Emulated};

const WIDTH: usize = 12;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows = env::args().nth(1).map_or(Ok(4 << 20), |rows| rows.parse())?;
    standardise(rows)
}

fn standardise(rows: usize) -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir_in(".")?;
    let path = |name: &str| folder.path().join(name).with_extension("npy");
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;

    // A table whose columns have the centers 0 to 11 and the deviations 1 to 12.
    let noise = path("noise");
    let zeros = vec![0_u8; rows];
    let shape = ArrayView::from_shape((rows, 1), &zeros).map_err(|error| error.to_string())?;
    let columns: Vec<f64> = (0..WIDTH).map(|column| column as f64).collect();
    let job = Job::eval("x = c + (c + 1) * randn(1) + 0 * n")?.input("c", ArrayView::from(&columns));
    cpu.run(job.input("n", Input::from(shape)).output("x", Npy::create(&noise)))?;

    let job = |output: &str| -> overshot::Result<Job<'_>> {
        let job = Job::eval("y = (x - mean(x, axis=0)) / std(x, axis=0)")?.input("x", Npy::open(&noise)?);
        Ok(job.output("y", Npy::create(path(output))))
    };
    let engine = Engine::builder().device(Emulated::new()).device_memory(16 << 20).build()?;
    println!("{}", engine.plan(&job("standard")?)?);
    println!("{}", engine.run(job("standard")?)?);

    let check = Job::eval("mean(y, axis=0), std(y, axis=0), mean(x, axis=0)")?;
    let check = check.input("y", Npy::open(path("standard"))?).input("x", Npy::open(&noise)?);
    let report = engine.run(check)?;
    println!("{report}");
    let values = |name: &str| -> Result<Vec<f64>, Box<dyn std::error::Error>> {
        Ok(report.array(name)?.and_then(|array| array.to_vec()).ok_or("no rows")?)
    };
    assert!(values("mean(y, axis=0)")?.iter().all(|mean| mean.abs() < 1e-9));
    assert!(values("std(y, axis=0)")?.iter().all(|spread| (spread - 1.0).abs() < 1e-9));
    let near = |(mean, center): (&f64, &f64)| (mean - center).abs() < 100.0 / (rows as f64).sqrt();
    assert!(values("mean(x, axis=0)")?.iter().zip(&columns).all(near));
    cpu.run(job("again")?)?;
    assert!(fs::read(path("standard"))? == fs::read(path("again"))?, "the CPU has other bytes");
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn std::error::Error>> {
    // 38 MB.
    standardise(400_000)
}
