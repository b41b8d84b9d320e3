//! Runs a job on all GPUs of the host, with the same bits as on one of them:
//!
//! `cargo run --release --example all_gpus [DEVICE]`
//!
//! The default is all GPUs; `cuda:0,2` names two of them; `emulated` needs no GPU.

use std::env;
use std::error::Error;

use overshot::{DeviceChoice, Engine, Job, Report, device::Emulated};

fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1).as_deref() {
        None => compare(DeviceChoice::Cuda, 128 << 20),
        Some("emulated") => compare(emulated(), 32 << 20),
        Some(devices) => compare(devices.parse()?, 128 << 20),
    }
}

/// Three devices: the second computes twice as fast as the others, and the third has little memory.
fn emulated() -> DeviceChoice {
    let device = || Emulated::new().kernel_rate(1e8);
    DeviceChoice::Emulated(vec![device(), device().kernel_rate(2e8), device().memory(1 << 20)])
}

fn compare(all: DeviceChoice, rows: usize) -> Result<(), Box<dyn Error>> {
    let one = match &all {
        DeviceChoice::Emulated(devices) => devices[0].clone().into(),
        DeviceChoice::CudaDevices(numbers) => DeviceChoice::CudaDevices(vec![numbers[0]]),
        _ => DeviceChoice::CudaDevices(vec![0]),
    };
    let x: Vec<f32> = (0..rows).map(|row| (row % 10_007) as f32 / 1000.0).collect();
    let run = |choice: DeviceChoice| -> Result<(Vec<u32>, Report), Box<dyn Error>> {
        let mut y = vec![0f32; rows];
        let engine = Engine::builder().device(choice).build()?;
        let report = engine.run(Job::eval("y = sin(x) * exp(x); sum(y)")?.input("x", &x).output("y", &mut y))?;
        Ok((y.into_iter().map(f32::to_bits).collect(), report))
    };
    let (all, one) = (run(all)?, run(one)?);
    for device in &all.1.devices {
        let share = 100.0 * device.rows as f64 / rows as f64;
        println!("{} did {share:.1} % of the rows, in chunks of up to {}", device.id, device.chunk_rows);
    }
    all.1.notes.iter().for_each(|note| println!("note: {note}"));
    if (all.0, all.1.value("sum(y)")) != (one.0, one.1.value("sum(y)")) {
        return Err("the results differ".into());
    }
    println!("{} alone gives the same {rows} rows and the same sum, bit for bit", one.1.devices[0].id);
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn Error>> {
    compare(emulated(), 1 << 20)
}
