//! Leaves out the rows of a table that lack a number. The table is larger than the memory of the device.
//!
//! `cargo run --release --example clean_table [ROWS]`
//!
//! A row has 12 numbers, and a tenth of the rows has a NaN among them. A condition with one value for each row keeps
//! whole rows: those that are complete. The emulated device has 16 MiB of memory, so the example shows the same on
//! every machine; with a GPU, try `DeviceChoice::Auto`.

use std::{env, fs};

use ndarray::ArrayView;
use overshot::{DeviceChoice, Engine, Input, Job, Npy, device::Emulated};

const WIDTH: usize = 12;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows = env::args().nth(1).map_or(Ok(4 << 20), |rows| rows.parse())?;
    clean(rows)
}

fn clean(rows: usize) -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir_in(".")?;
    let path = |name: &str| folder.path().join(name).with_extension("npy");
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;

    // Every tenth row lacks the number in one of its columns.
    let columns: Vec<i64> = (0..WIDTH as i64).collect();
    let zeros = vec![0_u8; rows];
    let shape = ArrayView::from_shape((rows, 1), &zeros).map_err(|error| error.to_string())?;
    let job = Job::eval("x = where((i % 10 == 3) & (c == i // 10 % 12), nan, randn(1) + n)")?;
    let job = job.input("c", ArrayView::from(&columns)).input("n", Input::from(shape));
    cpu.run(job.output("x", Npy::create(path("x"))))?;

    let job = |complete, place| -> overshot::Result<Job<'_>> {
        let text = "m = all(isfinite(x), axis=1); complete = x[m]; place = i[m]; share = mean(f64(m))";
        let job = Job::eval(text)?.input("x", Npy::open(path("x"))?);
        Ok(job.output("complete", Npy::create(path(complete))).output("place", Npy::create(path(place))))
    };
    let engine = Engine::builder().device(Emulated::new()).device_memory(16 << 20).build()?;
    let report = engine.run(job("complete", "place")?)?;
    println!("{report}");

    let kept = (rows - (rows + 6) / 10) as u64;
    assert_eq!(report.outputs[0].shape, [kept, WIDTH as u64]);
    let share = report.value("share")?.map_or(f64::NAN, |share| share.as_f64());
    assert!((share - kept as f64 / rows as f64).abs() < 1e-12, "a share of {share}");
    let report = cpu.run(Job::eval("count(isfinite(x))")?.input("x", Npy::open(path("complete"))?))?;
    let finite = report.value("count(isfinite(x))")?.map_or(f64::NAN, |count| count.as_f64());
    assert!(finite == (kept * WIDTH as u64) as f64, "{finite} numbers in {kept} rows");
    let report = cpu.run(Job::eval("sum(place % 10 == 3)")?.input("place", Npy::open(path("place"))?))?;
    assert_eq!(report.value("sum(place % 10 == 3)")?.map(|sum| sum.as_f64()), Some(0.0));
    cpu.run(job("again", "places_again")?)?;
    for (file, again) in [("complete", "again"), ("place", "places_again")] {
        assert!(fs::read(path(file))? == fs::read(path(again))?, "the CPU has other bytes");
    }
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn std::error::Error>> {
    // 38 MB.
    clean(400_000)
}
