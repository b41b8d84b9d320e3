//! Ridge regression on a table that is larger than the memory of the device, by conjugate gradients.
//!
//! `cargo run --release --example ridge [ROWS]`
//!
//! Every step multiplies the rows by a direction, and the results by the rows: `x.T @ (x @ p)`, in one pass over the
//! file. No matrix of all pairs of columns is needed, so tables may have any number of them. The emulated device has
//! 192 MiB of memory, so the example shows the same on every machine; with a GPU, try `DeviceChoice::Auto`.

use std::env;

use ndarray::{Array1, ArrayView, Axis};
use overshot::{DeviceChoice, Engine, Input, Job, Npy, device::Emulated};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const WIDTH: usize = 40;
const PENALTY: f64 = 3.0;

fn main() -> Outcome {
    let rows = env::args().nth(1).map_or(Ok(1 << 20), |rows| rows.parse())?;
    regress(rows)
}

fn regress(rows: usize) -> Outcome {
    let folder = tempfile::tempdir_in(".")?;
    let path = |name: &str| folder.path().join(name).with_extension("npy");
    // A table of random numbers with columns of different sizes, and a target that depends on them, with noise.
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;
    let (zeros, sizes) = (vec![0.0; rows], (0..WIDTH).map(|column| 1.0 + column as f64 / 10.0).collect::<Vec<_>>());
    let zeros = ArrayView::from(&zeros).insert_axis(Axis(1));
    let job = Job::eval("x = randn(1) * sizes + zeros")?.input("zeros", Input::from(zeros));
    cpu.run(job.input("sizes", ArrayView::from(&sizes)).output("x", Npy::create(path("x"))))?;
    let truth: Vec<f64> = (0..WIDTH).map(|column| ((column * 7) % 5) as f64 - 2.0).collect();
    let job = Job::eval("t = x @ w + 0.1 * randn(2)")?.input("x", Npy::open(path("x"))?);
    cpu.run(job.input("w", ArrayView::from(&truth)).output("t", Npy::create(path("t"))))?;

    let engine = Engine::builder().device(Emulated::new()).device_memory(192 << 20).build()?;
    let table = || -> overshot::Result<_> { Npy::open(path("x")) };
    let report = engine.run(Job::eval("r = x.T @ t")?.input("x", table()?).input("t", Npy::open(path("t"))?))?;
    let right: Array1<f64> = report.array("r")?.and_then(|array| array.to_vec()).ok_or("no rows")?.into();
    let times = |p: &Array1<f64>| -> Outcome<Array1<f64>> {
        let direction = p.to_vec();
        let job = Job::eval("g = x.T @ (x @ p)")?.input("x", table()?).input("p", ArrayView::from(&direction));
        let report = engine.run(job)?;
        let product: Array1<f64> = report.array("g")?.and_then(|array| array.to_vec()).ok_or("no rows")?.into();
        Ok(product + p * PENALTY)
    };
    let (mut weights, mut rest) = (Array1::<f64>::zeros(WIDTH), right.clone());
    let (mut direction, mut size) = (rest.clone(), rest.dot(&rest));
    let mut steps = 0;
    while size > 1e-16 * right.dot(&right) {
        let product = times(&direction)?;
        let step = size / direction.dot(&product);
        weights.scaled_add(step, &direction);
        rest.scaled_add(-step, &product);
        let before = std::mem::replace(&mut size, rest.dot(&rest));
        direction = &rest + &direction * (size / before);
        steps += 1;
    }
    let error = (&weights - &Array1::from(truth)).iter().fold(0.0, |most: f64, error| most.max(error.abs()));
    println!("{steps} steps, and the weights differ from those of the target by at most {error:.5}");
    assert!((times(&weights)? - &right).iter().all(|rest| rest.abs() < 1e-7 * right.dot(&right).sqrt()));
    assert!(steps < 50 && error < 1.0 / (rows as f64).sqrt() + 2.0 * PENALTY / rows as f64);
    Ok(())
}

#[test]
fn runs() -> Outcome {
    // 64 MB.
    regress(200_000)
}
