//! What must hold on every device.
//!
//! Runs on `cpu`, on one emulated device and on three, and cases about device memory also on the stand-in for the CUDA
//! driver, in processes of its own. `OVERSHOT_TEST_DEVICE` (as `--device`, for example `cuda`) runs all on that device
//! alone. The name of a trial begins with its module: `cargo test --test devices passes,` runs one of them.
#![allow(clippy::unwrap_used, reason = "in tests")]

mod contention;
mod harness;
mod jobs;
mod kernels;
mod numpy;
mod passes;
mod rows;
mod sharded;
#[path = "../watchdog/mod.rs"]
mod watchdog;

fn main() {
    static MODULES: &[harness::Module] =
        &[jobs::MODULE, kernels::MODULE, sharded::MODULE, passes::MODULE, contention::MODULE, numpy::MODULE];
    harness::run(MODULES)
}
