//! `x.T @ x` of tables that are larger than device memory: from ordinary memory, from the page cache and from pinned
//! memory.
//!
//! `cargo bench --bench products -- --device cuda,cpu --size 4GiB --device-memory 1GiB --dir /tmp`. Each figure is the
//! median of several runs, in GB/s of rows, and every sum is compared with a plain loop over a few of its elements.
//! `--precision full,bf16x3,tf32` multiplies `f32` on tensor cores, too. `--workers 13` and `--chunk 2MiB` set what the
//! plan would choose.

use std::error::Error;
use std::fs::File;
use std::path::PathBuf;

use bytemuck::Pod;
use bytesize::ByteSize;
use ndarray::ArrayView2;
use overshot::io::Element;
use overshot::{DeviceChoice, Engine, Input, Job, Npy, Precision, Report};
use rayon::prelude::*;
use serde_json::json;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Makes a table an input.
type AsInput<T> = for<'a> fn(ArrayView2<'a, T>) -> Input<'a>;

const LABEL: &str = "x.T @ x";

struct Settings {
    devices: Vec<DeviceChoice>,
    size: u64,
    device_memory: u64,
    runs: usize,
    widths: Vec<usize>,
    precisions: Vec<Precision>,
    folder: PathBuf,
    /// The size of chunks and the number of staging workers, instead of those of the plan.
    chunk: Option<u64>,
    workers: Option<usize>,
    /// Where to write a timeline of one more run.
    trace: Option<PathBuf>,
}

fn main() -> Outcome {
    let mut settings = Settings {
        devices: vec![DeviceChoice::Auto],
        size: 16 << 20,
        device_memory: 1 << 30,
        runs: 3,
        widths: vec![64, 256],
        precisions: vec![Precision::Full],
        folder: std::env::temp_dir(),
        chunk: None,
        workers: None,
        trace: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        match name.as_str() {
            "--device" => {
                settings.devices = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            "--size" => settings.size = value()?.parse::<ByteSize>()?.as_u64(),
            "--device-memory" => settings.device_memory = value()?.parse::<ByteSize>()?.as_u64(),
            "--runs" => settings.runs = value()?.parse::<usize>()?.max(1),
            "--widths" => settings.widths = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--precision" => settings.precisions = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--dir" => settings.folder = value()?.into(),
            "--chunk" => settings.chunk = Some(value()?.parse::<ByteSize>()?.as_u64()),
            "--workers" => settings.workers = Some(value()?.parse()?),
            "--trace" => settings.trace = Some(value()?.into()),
            // `cargo bench` and `cargo test` pass these.
            "--bench" | "--test" => {}
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    for width in &settings.widths {
        measure::<f64>(&settings, "f64", *width, |number| number, |table| table.into())?;
        measure::<f32>(&settings, "f32", *width, |number| number as f32, |table| table.into())?;
    }
    Ok(())
}

/// Measures tables of this dtype and width.
fn measure<T: Pod + Element + Into<f64> + Send + Sync>(
    settings: &Settings,
    dtype: &str,
    width: usize,
    of: fn(f64) -> T,
    input: AsInput<T>,
) -> Outcome {
    let rows = settings.size as usize / size_of::<T>() / width;
    let mut x = vec![of(0.0); rows * width];
    x.par_iter_mut()
        .enumerate()
        .for_each(|(place, x)| *x = of((place.wrapping_mul(0x9e37_79b9) % 1009) as f64 / 504.5));
    let path = settings.folder.join(format!("overshot-products-{}.npy", std::process::id()));
    write(&path, dtype, (rows, width), bytemuck::cast_slice(&x))?;
    let _removed = Removed(path.clone());
    for device in &settings.devices {
        let mut builder = Engine::builder().device(device.clone()).device_memory(settings.device_memory);
        if let Some(chunk) = settings.chunk {
            builder = builder.chunk(chunk);
        }
        if let Some(workers) = settings.workers {
            builder = builder.workers(workers);
        }
        let engine = builder.build()?;
        let report = Reports { settings, engine: &engine, device, dtype, x: &x, width };
        let table = ArrayView2::from_shape((rows, width), &x).map_err(|error| error.to_string())?;
        report.of("ordinary memory", || Ok(input(table)))?;
        report.of("page cache", || Ok(Input::from(Npy::open(&path)?)))?;
        if *device != DeviceChoice::Cpu {
            let mut pinned = engine.pinned::<T>(rows * width)?;
            pinned.copy_from_slice(&x);
            let table = ArrayView2::from_shape((rows, width), &pinned[..]).map_err(|error| error.to_string())?;
            report.of("pinned memory", || Ok(input(table)))?;
        }
    }
    Ok(())
}

/// What the figures of one device and one table have in common.
struct Reports<'r, T> {
    settings: &'r Settings,
    engine: &'r Engine,
    device: &'r DeviceChoice,
    dtype: &'r str,
    x: &'r [T],
    width: usize,
}

impl<T: Copy + Into<f64> + Sync> Reports<'_, T> {
    /// Measures a source, `f32` with each precision.
    fn of<'i>(&self, source: &str, input: impl Fn() -> Outcome<Input<'i>>) -> Outcome {
        let precisions = if self.dtype == "f32" { &self.settings.precisions[..] } else { &[Precision::Full] };
        precisions.iter().try_for_each(|precision| self.with(*precision, source, &input))
    }

    /// Runs the job several times, and prints its rate.
    fn with<'i>(&self, precision: Precision, source: &str, input: impl Fn() -> Outcome<Input<'i>>) -> Outcome {
        let mut seconds = Vec::with_capacity(self.settings.runs);
        let mut last = None;
        // The first run opens the device and loads what it needs.
        for run in 0..=self.settings.runs {
            let ran = self.engine.run(Job::eval(LABEL)?.input("x", input()?).precision(precision))?;
            if run > 0 {
                seconds.push(ran.time.as_secs_f64());
            }
            last = Some(ran);
        }
        seconds.sort_by(f64::total_cmp);
        let last = last.ok_or("no run")?;
        check(&last, precision, self.x, self.width)?;
        let rate = |seconds: f64| size_of_val(self.x) as f64 / seconds / 1e9;
        let line = json!({
            "dtype": self.dtype, "width": self.width, "rows": self.x.len() / self.width,
            "device": self.device.to_string(), "from": source, "precision": precision.to_string(),
            "gb_per_s": rate(seconds[seconds.len() / 2]),
            "all": seconds.iter().map(|seconds| rate(*seconds)).collect::<Vec<_>>(),
            "workers": last.devices.iter().map(|device| device.workers).sum::<usize>(),
            "pinned_bytes": last.peak_pinned_bytes,
            "device_bytes": last.devices.iter().map(|device| device.peak_device_bytes).sum::<u64>(),
            "notes": last.notes,
        });
        println!("{line}");
        if let Some(folder) = &self.settings.trace {
            let ran = self.engine.run(Job::eval(LABEL)?.input("x", input()?).precision(precision).timeline(true))?;
            let source = source.replace(' ', "-");
            let name = format!("products-{}-{precision}-{}-{source}.json", self.dtype, self.width);
            if let Some(timeline) = ran.timeline {
                timeline.write_chrome(std::io::BufWriter::new(File::create(folder.join(name))?))?;
            }
        }
        Ok(())
    }
}

/// Compares some elements of the sum with plain loops.
fn check<T: Copy + Into<f64> + Sync>(report: &Report, precision: Precision, x: &[T], width: usize) -> Outcome {
    let near = if precision == Precision::Tf32 { 2e-3 } else { 1e-4 };
    let sum = report.array(LABEL)?.ok_or("no sum")?;
    for (i, j) in [(0, 0), (width / 3, width - 1), (width - 1, width / 2)] {
        let products = x.par_chunks(width).map(|row| row[i].into() * row[j].into());
        let right: f64 = products.sum();
        let found = sum.get(i * width + j).map_or(f64::NAN, |value| value.as_f64());
        if (found - right).abs() > near * right.abs() {
            return Err(format!("element ({i}, {j}) of the sum is {found}, and not {right}").into());
        }
    }
    Ok(())
}

/// Writes a `.npy` file.
fn write(path: &std::path::Path, dtype: &str, (rows, width): (usize, usize), bytes: &[u8]) -> Outcome {
    use std::io::Write as _;
    let code = if dtype == "f64" { "<f8" } else { "<f4" };
    let text = format!("{{'descr': '{code}', 'fortran_order': False, 'shape': ({rows}, {width}), }}");
    let length = (text.len() + 11).next_multiple_of(64) - 10;
    let mut file = File::create(path)?;
    file.write_all(b"\x93NUMPY\x01\x00")?;
    file.write_all(&(length as u16).to_le_bytes())?;
    file.write_all(format!("{text:<width$}\n", width = length - 1).as_bytes())?;
    file.write_all(bytes)?;
    Ok(())
}

struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
