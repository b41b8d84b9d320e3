//! Filters a file that is larger than the memory of the device: the rows above the mean go to a new file, with their
//! numbers beside them.
//!
//! `cargo run --release --example filter [ROWS]`
//!
//! The mean is known after the last row, so the file is read in two passes. The emulated device has 16 MiB of memory,
//! so the example shows the same on every machine; with a GPU, try `DeviceChoice::Auto`.

use std::{env, fs};

use overshot::{DeviceChoice, Engine, Job, Npy, device::Emulated};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows = env::args().nth(1).map_or(Ok(64 << 20), |rows| rows.parse())?;
    filter(rows)
}

fn filter(rows: u64) -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir_in(".")?;
    let path = |name: &str| folder.path().join(name).with_extension("npy");
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;
    cpu.run(Job::eval("x = 20 + 5 * randn(1)")?.rows(rows).output("x", Npy::create(path("x"))))?;

    let job = |high, place| -> overshot::Result<Job<'_>> {
        let text = "m = mean(x); high = x[x > m]; place = i[x > m]; least = min(high); deviation = std(high)";
        let job = Job::eval(text)?.input("x", Npy::open(path("x"))?);
        Ok(job.output("high", Npy::create(path(high))).output("place", Npy::create(path(place))))
    };
    let engine = Engine::builder().device(Emulated::new()).device_memory(16 << 20).build()?;
    let report = engine.run(job("high", "place")?)?;
    println!("{report}");

    // The files have the kept rows and no others, which are about half of all.
    let kept = report.outputs[0].rows;
    let high = Job::eval("n = count(high == high); least = min(high); last = max(place)")?;
    let high = high.input("high", Npy::open(path("high"))?).input("place", Npy::open(path("place"))?);
    let check = cpu.run(high)?;
    let value = |name: &str| Ok::<_, overshot::Error>(check.value(name)?.map_or(f64::NAN, |value| value.as_f64()));
    println!("{kept} of {rows} rows, from {:.6} on; the last is row {}", value("least")?, value("last")?);
    assert!(value("n")? == kept as f64 && kept > rows * 2 / 5 && kept < rows * 3 / 5);
    assert_eq!(check.value("least")?, report.value("least")?);
    assert!(value("least")? > report.value("m")?.map_or(f64::NAN, |mean| mean.as_f64()));
    cpu.run(job("high_again", "place_again")?)?;
    for (file, again) in [("high", "high_again"), ("place", "place_again")] {
        assert!(fs::read(path(file))? == fs::read(path(again))?, "the CPU has other bytes");
    }
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn std::error::Error>> {
    // 40 MB.
    filter(5_000_000)
}
