//! Smooths a file that is larger than the memory of the device: every row becomes the mean of nine rows, and the rows
//! that differ most from it are counted.
//!
//! `cargo run --release --example moving_average [ROWS]`
//!
//! A chunk is copied to the device with the rows around it that its windows need. The emulated device has 16 MiB of
//! memory, so the example shows the same on every machine; with a GPU, try `DeviceChoice::Auto`.

use std::{env, fs};

use overshot::{DeviceChoice, Engine, Job, Npy, Source, device::Emulated};

/// The rows of a window.
const WINDOW: usize = 9;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows = env::args().nth(1).map_or(Ok(64 << 20), |rows| rows.parse())?;
    smooth(rows)
}

fn smooth(rows: u64) -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir_in(".")?;
    let path = |name: &str| folder.path().join(name).with_extension("npy");
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;
    cpu.run(Job::eval("x = sin(i * 1e-5) + 0.1 * randn(1)")?.rows(rows).output("x", Npy::create(path("x"))))?;

    let job = |smooth| -> overshot::Result<Job<'_>> {
        let text = "smooth = shift(moving_mean(x, 9, edge), -4, edge); rough = count(abs(x - smooth) > 0.3)";
        Ok(Job::eval(text)?.input("x", Npy::open(path("x"))?).output("smooth", Npy::create(path(smooth))))
    };
    let engine = Engine::builder().device(Emulated::new()).device_memory(16 << 20).build()?;
    let report = engine.run(job("smooth")?)?;
    println!("{report}");
    let rough = report.value("rough")?.map_or(f64::NAN, |rough| rough.as_f64());
    println!("{rough} of {rows} rows differ by more than 0.3");

    // Halos are a few rows of each chunk.
    let bytes = 8 * rows;
    assert!((bytes..bytes + bytes / 100).contains(&report.bytes_to_device), "{} bytes", report.bytes_to_device);
    // Some rows, computed in another way.
    let (x, smooth) = (Npy::open(path("x"))?, Npy::open(path("smooth"))?);
    let (mut window, mut mean) = ([0.0; WINDOW], [0.0]);
    for row in (WINDOW as u64..rows - WINDOW as u64).step_by(1009) {
        x.read(row - 4, bytemuck::cast_slice_mut(&mut window))?;
        smooth.read(row, bytemuck::cast_slice_mut(&mut mean))?;
        assert_eq!(mean[0], window.iter().sum::<f64>() / WINDOW as f64, "row {row}");
    }
    let again = cpu.run(job("again")?)?;
    assert_eq!(again.value("rough")?, report.value("rough")?);
    assert!(fs::read(path("smooth"))? == fs::read(path("again"))?, "the CPU has other bytes");
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn std::error::Error>> {
    // 40 MB.
    smooth(5_000_000)
}
