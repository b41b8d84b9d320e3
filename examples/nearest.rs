//! Finds the nearest rows of a table that is larger than the memory of the device, exactly.
//!
//! `cargo run --release --example nearest [ROWS]`
//!
//! The table is read once for each 1024 queries. The emulated device has 192 MiB of memory, so the example shows the
//! same on every machine; with a GPU, try `DeviceChoice::Auto`.

use std::env;

use ndarray::{Array2, s};
use overshot::matrices::Matrices;
use overshot::{DeviceChoice, Engine, Input, Job, Npy, device::Emulated};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const WIDTH: usize = 16;
const NEIGHBOURS: usize = 5;

fn main() -> Outcome {
    let rows = env::args().nth(1).map_or(Ok(2 << 20), |rows| rows.parse())?;
    search(rows)
}

fn search(rows: usize) -> Outcome {
    let folder = tempfile::tempdir_in(".")?;
    let path = folder.path().join("base.npy");
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;
    let mut base = Array2::<f32>::zeros((rows, WIDTH));
    cpu.run(Job::eval("x = f32(randn(7))")?.rows((rows * WIDTH) as u64).output("x", base.view_mut()))?;
    cpu.run(Job::eval("y = x")?.input("x", Input::from(base.view())).output("y", Npy::create(&path)))?;
    // Some of the rows, moved a little, are the queries.
    let queries = base.slice(s![..20, ..]).mapv(|value| f64::from(value) + 0.01);

    let engine = Engine::builder().device(Emulated::new()).device_memory(192 << 20).build()?;
    let matrices = Matrices::on(&engine).each_pass(|report| println!("a pass over {} rows", report.rows));
    let found = matrices.nearest(&Input::from(Npy::open(&path)?), queries.view(), NEIGHBOURS)?;
    println!("{:.3}", found.distances.slice(s![..4, ..]));

    for (query, point) in queries.rows().into_iter().enumerate() {
        let square = |row: usize| -> f64 {
            base.row(row).iter().zip(point).map(|(one, other)| (f64::from(*one) - other).powi(2)).sum()
        };
        let mut all: Vec<(f64, usize)> = (0..rows).map(|row| (square(row), row)).collect();
        all.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let nearest: Vec<i64> = all[..NEIGHBOURS].iter().map(|(_, row)| *row as i64).collect();
        assert_eq!(found.indices.row(query).to_vec(), nearest);
        assert!(nearest[0] == query as i64, "the nearest row is the one that was moved");
    }
    Ok(())
}

#[test]
fn runs() -> Outcome {
    // 13 MB.
    search(200_000)
}
