//! Finds clusters in a table that is larger than the memory of the device: k-means by Lloyd's algorithm.
//!
//! `cargo run --release --example k_means [ROWS]`
//!
//! Each pass finds the nearest center of every row, adds up the rows of each center, and counts them. The file is read
//! once for each pass. The emulated device has 192 MiB of memory, so the example shows the same on every machine; with
//! a GPU, try `DeviceChoice::Auto`.

use std::env;

use ndarray::Array2;
use overshot::matrices::{KMeans, Matrices};
use overshot::{DeviceChoice, Engine, Input, Job, Npy, device::Emulated};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const WIDTH: usize = 16;
const CENTERS: usize = 8;

fn main() -> Outcome {
    let rows = env::args().nth(1).map_or(Ok(4 << 20), |rows| rows.parse())?;
    cluster(rows)
}

fn cluster(rows: usize) -> Outcome {
    let folder = tempfile::tempdir_in(".")?;
    let path = |name: &str| folder.path().join(name).with_extension("npy");
    // Points around the corners of a cube of three dimensions, each of which is some of the columns.
    let corners = Array2::from_shape_fn((CENTERS, WIDTH), |(j, column)| 4.0 * ((j >> (column / 2 % 3)) & 1) as f64);
    let corner: Vec<i64> = (0..rows as i64).map(|row| row * 7 % CENTERS as i64).collect();
    let hot = Array2::from_shape_fn((rows, CENTERS), |(row, j)| f64::from(u8::from(corner[row] == j as i64)));
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;
    let job = Job::eval("x = hot @ corners + randn(1)")?.input("hot", Input::from(hot.view()));
    cpu.run(job.input("corners", Input::from(corners.view())).output("x", Npy::create(path("points"))))?;

    let engine = Engine::builder().device(Emulated::new()).device_memory(192 << 20).build()?;
    let matrices = Matrices::on(&engine).each_pass(|report| println!("a pass over {} rows", report.rows));
    let points = Input::from(Npy::open(path("points"))?);
    let how = KMeans::plus_plus(CENTERS).tolerance(1e-4).labels(Npy::create(path("labels")));
    let found = matrices.kmeans(&points, how)?;
    println!("{} iterations, inertia {:.1}, {} rows", found.iterations, found.inertia, found.counts);

    // A mean of so many rows is as near to its corner as that, and each corner has a center.
    let limit = 6.0 / (rows as f64 / CENTERS as f64).sqrt();
    let is_near = |corner: &ndarray::ArrayView1<'_, f64>, center: &ndarray::ArrayView1<'_, f64>| {
        corner.iter().zip(center).all(|(one, other)| (one - other).abs() < limit)
    };
    let centers = found.centers.rows();
    assert!(corners.rows().into_iter().all(|corner| centers.clone().into_iter().any(|row| is_near(&corner, &row))));
    assert!(found.converged && found.counts.sum() == rows as u64);
    Ok(())
}

#[test]
fn runs() -> Outcome {
    // 26 MB.
    cluster(200_000)
}
