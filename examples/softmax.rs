//! Computes the softmax of each row of a table that is larger than the memory of the device.
//!
//! `cargo run --release --example softmax [ROWS]`
//!
//! A row has 1000 numbers. Its maximum and its sum are needed for each element, but for no other row, so the file is
//! read once. The emulated device has 16 MiB of memory, so the example shows the same on every machine; with a GPU, try
//! `DeviceChoice::Auto`.

use std::{env, fs};

use ndarray::ArrayView;
use overshot::{DeviceChoice, Engine, Input, Job, Npy, Source, device::Emulated};

const WIDTH: usize = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows = env::args().nth(1).map_or(Ok(50_000), |rows| rows.parse())?;
    softmax(rows)
}

fn softmax(rows: usize) -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir_in(".")?;
    let path = |name: &str| folder.path().join(name).with_extension("npy");
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;

    // Scores: noise, and a peak whose column is the number of the row.
    let (row, column) = (vec![0_u8; rows], (0..WIDTH as i64).collect::<Vec<_>>());
    let row = ArrayView::from_shape((rows, 1), &row).map_err(|error| error.to_string())?;
    let job = Job::eval("x = f32(randn(1) + where(index() % 1000 == c, 20, 0) + 0 * n)")?;
    let job = job.input("c", ArrayView::from(&column)).input("n", Input::from(row));
    cpu.run(job.output("x", Npy::create(path("scores"))))?;

    let job = |outputs: [&str; 2]| -> overshot::Result<Job<'_>> {
        let job = Job::eval(
            "y = exp(x - max(x, axis=-1, keepdims=True)); z = y / sum(y, axis=-1, keepdims=True);
             k = argmax(x, axis=-1)",
        )?;
        let [z, k] = outputs.map(|name| Npy::create(path(name)));
        Ok(job.input("x", Npy::open(path("scores"))?).output("z", z).output("k", k))
    };
    let engine = Engine::builder().device(Emulated::new()).device_memory(16 << 20).build()?;
    println!("{}", engine.plan(&job(["softmax", "peaks"])?)?);
    println!("{}", engine.run(job(["softmax", "peaks"])?)?);

    let check = Job::eval("s = abs(sum(z, axis=1) - 1) < 1e-5; p = max(z, axis=1) > 0.99")?;
    let (mut sums, mut are_peaks) = (vec![false; rows], vec![false; rows]);
    let check = check.input("z", Npy::open(path("softmax"))?).output("s", &mut sums).output("p", &mut are_peaks);
    engine.run(check)?;
    assert!(sums.iter().all(|is_one| *is_one), "a row has another sum");
    assert!(are_peaks.iter().filter(|is_peak| **is_peak).count() > rows * 9 / 10, "most peaks are certain");
    let mut peaks = vec![0_i64; rows];
    Npy::open(path("peaks"))?.read(0, bytemuck::cast_slice_mut(&mut peaks))?;
    assert!(peaks.iter().zip(0..).all(|(peak, row)| *peak == row % 1000), "a peak is at another place");
    cpu.run(job(["again", "places"])?)?;
    for (one, other) in [("softmax", "again"), ("peaks", "places")] {
        assert!(fs::read(path(one))? == fs::read(path(other))?, "the CPU has other bytes");
    }
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn std::error::Error>> {
    // 40 MB.
    softmax(10_000)
}
