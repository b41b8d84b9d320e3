//! Finds clusters in a table that is larger than the memory of the device: k-means by Lloyd's algorithm.
//!
//! `cargo run --release --example k_means [ROWS]`
//!
//! Each pass finds the nearest centre of every row, adds up the rows of each centre, and counts them. The file is read
//! once for each pass. The emulated device has 192 MiB of memory, so the example shows the same on every machine; with
//! a GPU, try `DeviceChoice::Auto`.

use std::env;

use ndarray::{Array1, Array2, ArrayView, Axis};
use overshot::{DeviceChoice, Engine, Input, Job, Npy, Report, device::Emulated};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const WIDTH: usize = 16;
const CENTRES: usize = 8;

fn main() -> Outcome {
    let rows = env::args().nth(1).map_or(Ok(4 << 20), |rows| rows.parse())?;
    cluster(rows)
}

fn cluster(rows: usize) -> Outcome {
    let folder = tempfile::tempdir_in(".")?;
    let path = folder.path().join("points.npy");
    // Points around the corners of a cube of three dimensions, each of which is some of the columns.
    let corners = Array2::from_shape_fn((CENTRES, WIDTH), |(j, column)| 4.0 * ((j >> (column / 2 % 3)) & 1) as f64);
    let corner: Vec<i64> = (0..rows as i64).map(|row| row * 7 % CENTRES as i64).collect();
    let hot = Array2::from_shape_fn((rows, CENTRES), |(row, j)| f64::from(u8::from(corner[row] == j as i64)));
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;
    let job = Job::eval("x = hot @ corners + randn(1)")?.input("hot", Input::from(hot.view()));
    cpu.run(job.input("corners", Input::from(corners.view())).output("x", Npy::create(&path)))?;

    let engine = Engine::builder().device(Emulated::new()).device_memory(192 << 20).build()?;
    // The first guess is far from each corner, but nearest to it.
    let mut centres = &corners * 0.6 + 1.0;
    for round in 0..5 {
        let norms: Array1<f64> = centres.map_axis(Axis(1), |centre| centre.dot(&centre));
        // The distances of a row, without the part that is the same for all centres.
        let text = format!(
            "k = argmin(h - 2 * (x @ c.T), axis=1); n = bincount(k, {CENTRES}); s = onehot(k, {CENTRES}).T @ x"
        );
        let job = Job::eval(&text)?.input("x", Npy::open(&path)?).input("c", Input::from(centres.view()));
        let report = engine.run(job.input("h", ArrayView::from(&norms.to_vec())))?;
        if round == 0 {
            println!("{report}");
        }
        let (sums, counts) = (values(&report, "s")?, values(&report, "n")?);
        centres = Array2::from_shape_fn((CENTRES, WIDTH), |(j, column)| sums[j * WIDTH + column] / counts[j]);
    }
    // A mean of so many rows is as near to its corner as that.
    let far = (&centres - &corners).iter().fold(0.0, |most: f64, distance| most.max(distance.abs()));
    println!("the centres are {far:.4} from the corners of the cube");
    assert!(far < 6.0 / (rows as f64 / CENTRES as f64).sqrt());
    Ok(())
}

fn values(report: &Report, name: &str) -> Outcome<Vec<f64>> {
    let array = report.array(name)?.ok_or("no rows")?;
    Ok((0..array.len()).filter_map(|k| array.get(k)).map(|value| value.as_f64()).collect())
}

#[test]
fn runs() -> Outcome {
    // 26 MB.
    cluster(200_000)
}
