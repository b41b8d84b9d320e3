//! Arrays in the memory of all GPUs, and passes over a dataset that is larger than that memory:
//!
//! `cargo run --release --example sharded [DEVICE]`
//!
//! The default is all GPUs, limited to 64 MiB each so that the dataset does not fit. Without a GPU, it runs on two
//! emulated devices.

use std::env;

use overshot::{
    DeviceChoice, Engine, Job,
    device::{DeviceKind, Emulated, devices},
};

fn main() -> overshot::Result<()> {
    let has_gpu = devices().0.iter().any(|device| device.kind == DeviceKind::Cuda);
    let choice = match env::args().nth(1) {
        Some(choice) => choice.parse()?,
        None if has_gpu => DeviceChoice::Cuda,
        None => DeviceChoice::Emulated(vec![Emulated::new(), Emulated::new().seed(1)]),
    };
    show(choice, 64 << 20)
}

fn show(choice: DeviceChoice, device_memory: u64) -> overshot::Result<()> {
    let engine = Engine::builder().device(choice).device_memory(device_memory).build()?;
    let all = device_memory * engine.devices().len() as u64;

    // An array of half of the memory is computed on the devices and used there. None of it crosses the link.
    let mut x = engine.sharded::<f64>(all as usize / 16)?;
    println!("an array of {} rows: {:?}", x.len(), x.on_devices());
    let rows = x.len() as u64;
    for text in ["x = sin(f64(i))", "mean(x), std(x)", "sum(x * x), max(x)"] {
        let job = Job::eval(text)?;
        let job = if text.starts_with("x =") { job.rows(rows).output("x", &mut x) } else { job.input("x", &x) };
        let report = engine.run(job)?;
        println!("  {text:20} {} bytes in, {} out", report.bytes_to_device, report.bytes_from_device);
    }
    drop(x);

    // A dataset larger than the memory: the first pass copies the rows that fit, later passes move only the rest. The
    // first rows of the next pass are copied before the scalars that depend on the previous pass are known.
    let data: Vec<f32> = (0..all as usize / 4 / 4 * 5).map(|row| (row % 1001) as f32).collect();
    let data = engine.resident(&data)?;
    println!("a dataset of {} rows: {:?}", data.rows(), data.on_devices());
    let job = Job::eval("m = mean(clip(x, center - 100, center + 300))")?.input("x", &data).scalar("center", 0.0);
    engine.passes(job, |passes| {
        for pass in 1..=4 {
            let report = passes.run()?;
            let Some(center) = report.value("m")? else { break };
            let (bytes, ahead) = (report.bytes_to_device, report.bytes_ahead);
            println!("  pass {pass}: mean {center:.3}, {bytes} bytes in, {ahead} of them ahead");
            passes.set("center", center)?;
        }
        Ok(())
    })?;
    engine.memory().iter().for_each(|memory| println!("{memory}"));
    Ok(())
}

#[test]
fn runs() -> overshot::Result<()> {
    show(DeviceChoice::Cpu, 8 << 20)?;
    show("emulated:1*2".parse()?, 8 << 20)
}
