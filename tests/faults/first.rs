//! A device multiplies once before the first chunk, so that a library loads its code then.

use super::jobs::{JOBS, Run};
use super::standin::{Watchdog, calls, disarm, engine};

/// The calls that multiply.
const PRODUCTS: [&str; 3] = ["cublasDgemm_v2_64", "cublasGemmEx_64", "cublasSgemm_v2_64"];

#[test]
#[ignore = "needs the stand-in driver"]
fn the_first_products_on_the_standin() {
    let watchdog = Watchdog::start();
    let products_of = |run: Run, engine: &overshot::Engine| {
        disarm();
        assert!(run(engine).unwrap(), "wrong rows");
        PRODUCTS.map(calls)
    };
    // Products over the rows of two shapes, and rows times a matrix.
    for (name, more) in [("products", [1, 1, 0]), ("multiplied", [1, 0, 0])] {
        watchdog.next(name);
        let job = JOBS.iter().find(|job| job.name == name).unwrap();
        let engine = engine().unwrap();
        let [first, second, third] = [0; 3].map(|_| products_of(job.run, &engine));
        assert_eq!(second, third, "{name}");
        assert_eq!(first, [0, 1, 2].map(|call| second[call] + more[call]), "{name}");
    }
}
