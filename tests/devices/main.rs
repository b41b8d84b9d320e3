//! Tests that must pass on every device.
//!
//! They run on `cpu`, on one emulated device, on three, and on `cpu` with two. Cases about device memory also run on
//! the stand-in for the CUDA driver, in separate processes. `OVERSHOT_TEST_DEVICE` (with the values of `--device`, for
//! example `cuda`) runs all cases on that device only. The name of a trial begins with its module: `cargo test --test
//! devices passes,` runs one module.
#![allow(clippy::unwrap_used, reason = "in tests")]

mod bounds;
mod changed_files;
mod checksums;
mod contention;
mod counts;
mod divided;
mod each_fault;
#[path = "../faults/jobs.rs"]
mod fault_jobs;
mod fills;
mod filters;
#[cfg(all(feature = "arrow", feature = "parquet", feature = "zarr"))]
mod grains;
mod halos;
mod hangs;
mod harness;
mod jobs;
mod kernels;
mod losses;
mod matrices;
mod neighbours;
mod numpy;
mod order;
mod panics;
mod part_files;
mod partials;
mod passes;
mod products;
mod resumes;
mod rows;
mod scan;
mod sharded;
mod sharing;
mod tables;
mod verdict;
mod verified;
#[path = "../watchdog/mod.rs"]
mod watchdog;
mod wide;
mod within;

fn main() {
    static MODULES: &[harness::Module] = &[
        jobs::MODULE,
        kernels::MODULE,
        bounds::MODULE,
        fills::MODULE,
        filters::MODULE,
        #[cfg(all(feature = "arrow", feature = "parquet", feature = "zarr"))]
        grains::MODULE,
        sharded::MODULE,
        part_files::MODULE,
        resumes::MODULE,
        losses::MODULE,
        matrices::MODULE,
        hangs::MODULE,
        each_fault::MODULE,
        changed_files::MODULE,
        partials::MODULE,
        passes::MODULE,
        products::MODULE,
        divided::MODULE,
        contention::MODULE,
        panics::MODULE,
        counts::MODULE,
        order::MODULE,
        scan::MODULE,
        sharing::MODULE,
        numpy::MODULE,
        verdict::MODULE,
        verified::MODULE,
        wide::MODULE,
        neighbours::MODULE,
        halos::MODULE,
        within::MODULE,
        checksums::MODULE,
    ];
    harness::run(MODULES)
}
