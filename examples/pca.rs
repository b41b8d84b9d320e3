//! Finds the principal components of a table that is larger than the memory of the device, and writes the coordinates
//! of its rows along them.
//!
//! `cargo run --release --example pca [ROWS]`
//!
//! Two passes over the file: one for the means, and one for the covariance. The emulated device has 192 MiB of memory,
//! so the example shows the same on every machine; with a GPU, try `DeviceChoice::Auto`.

use std::env;

use ndarray::{Array2, array};
use overshot::matrices::{Matrices, Pca};
use overshot::{DeviceChoice, Engine, Input, Job, Npy, device::Emulated};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const WIDTH: usize = 24;

fn main() -> Outcome {
    let rows = env::args().nth(1).map_or(Ok(2 << 20), |rows| rows.parse())?;
    reduce(rows)
}

fn reduce(rows: usize) -> Outcome {
    let folder = tempfile::tempdir_in(".")?;
    let path = |name: &str| folder.path().join(name).with_extension("npy");
    // Two directions at a right angle along which rows vary, and a little noise in all columns.
    let direction = |row: usize, column: usize| (((column + 1) * (row + 1)) as f64 * 0.26).sin();
    let mut directions = Array2::from_shape_fn((2, WIDTH), |(row, column)| direction(row, column));
    let along = directions.row(0).dot(&directions.row(1)) / directions.row(0).dot(&directions.row(0));
    let rest = &directions.row(1) - &(&directions.row(0) * along);
    directions.row_mut(1).assign(&rest);
    for mut row in directions.rows_mut() {
        row /= row.dot(&row).sqrt();
    }
    let pairs = Array2::<f64>::zeros((rows, 2));
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;
    let job = Job::eval("x = (pairs + randn(1) * sizes) @ directions + 100")?;
    let job = job.input("pairs", Input::from(pairs.view())).input("sizes", Input::from(array![5.0, 3.0].into_shared()));
    let job = job.input("directions", Input::from(directions.view()));
    cpu.run(job.output("x", Npy::create(path("x"))))?;

    let engine = Engine::builder().device(Emulated::new()).device_memory(192 << 20).build()?;
    let (matrices, table) = (Matrices::on(&engine), Input::from(Npy::open(path("x"))?));
    let found = matrices.pca(&table, Pca::new(2))?;
    println!("variances {:.3}, expected 25 and 9", found.variance);
    let (components, mean) = (found.components.view(), found.mean.view());
    println!("{}", matrices.project(&table, components, Some(mean), Npy::create(path("y")))?);

    // Directions have a sign of their own, and variances of samples are as near as that.
    let cosines = found.components.dot(&directions.t()).mapv(f64::abs);
    assert!(cosines[[0, 0]] > 1.0 - 20.0 / rows as f64 && cosines[[1, 1]] > 1.0 - 20.0 / rows as f64, "{cosines}");
    let limit = 10.0 / (rows as f64).sqrt();
    assert!((found.variance[0] / 25.0 - 1.0).abs() < limit && (found.variance[1] / 9.0 - 1.0).abs() < limit);
    // The coordinates have these variances, and no mean.
    let job = Job::eval("m = mean(y, axis=0); v = var(y, axis=0)")?.input("y", Npy::open(path("y"))?);
    let report = cpu.run(job)?;
    let numbers =
        |name: &str| -> Outcome<Vec<f64>> { Ok(report.array(name)?.and_then(|a| a.to_vec()).ok_or("no rows")?) };
    assert!(numbers("m")?.iter().all(|mean| mean.abs() < 1e-9));
    let far = |(own, variance): (f64, &f64)| (own / variance - 1.0).abs();
    assert!(numbers("v")?.into_iter().zip(&found.variance).map(far).all(|far| far < 1e-4));
    Ok(())
}

#[test]
fn runs() -> Outcome {
    // 38 MB.
    reduce(200_000)
}
