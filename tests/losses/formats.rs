//! Jobs with inputs and outputs in Parquet files and Zarr stores, whose calls fail.

use std::path::Path;

use overshot::io::NewFile;
use overshot::{Input, Job, Parquet, Zarr};

use crate::jobs::{Done, LostJob};
use crate::plain::{ROWS, TEXT, engine};

pub const JOBS: &[LostJob] = &[
    LostJob { name: "Parquet files", prepare: parquet_input, run: |folder, _| parquet(folder), ..JOB },
    LostJob { name: "Zarr stores", prepare: zarr_input, run: |folder, _| zarr(folder), ..JOB },
];
const JOB: LostJob = LostJob { name: "", prepare: parquet_input, run: |_, _| Ok(()), replaces: false, writes: true };

fn input(file: NewFile) -> Done {
    engine("cpu")?.run(Job::eval("x = f64(i * 7919 % 101)")?.rows(ROWS as u64).output("x", file))?;
    Ok(())
}

fn parquet_input(folder: &Path, _: &Path) -> Done {
    input(Parquet::create(folder.join("x.parquet")).chunks(&[20_000]))
}

fn zarr_input(folder: &Path, _: &Path) -> Done {
    input(Zarr::create(folder.join("x.zarr")).chunks(&[20_000]))
}

fn run(x: Input<'_>, y: NewFile, t: NewFile) -> Done {
    engine("cpu")?.run(Job::eval(TEXT)?.input("x", x).output("y", y.fsync(true)).output("t", t.fsync(true)))?;
    Ok(())
}

fn parquet(folder: &Path) -> Done {
    let x = Parquet::column(folder.join("x.parquet"), "x")?;
    let [y, t] = ["y.parquet", "t.parquet"].map(|name| Parquet::create(folder.join(name)).chunks(&[20_000]));
    run(x.into(), y, t)
}

fn zarr(folder: &Path) -> Done {
    let [y, t] = ["y.zarr", "t.zarr"].map(|name| Zarr::create(folder.join(name)).chunks(&[20_000]));
    run(Zarr::open(folder.join("x.zarr"))?.into(), y, t)
}
