//! The algorithms beside plain loops, and the conditions that define their answers.

mod clusters;
mod moments;
mod neighbors;

use std::cell::RefCell;
use std::time::Duration;

use ndarray::{Array2, ArrayView2, s};

use super::start::{plus_plus, uniform};
use super::table::Table;
use super::*;
use crate::device::{DeviceChoice, Emulated};
use crate::error::Error;

fn cpu() -> Engine {
    Engine::builder().device(DeviceChoice::Cpu).build().unwrap()
}

/// Engines whose chunks and workers differ. The last two multiply in panels, as GPUs do.
fn engines() -> Vec<Engine> {
    let emulated = || Engine::builder().device(Emulated::new()).device_memory(192 << 20);
    vec![
        cpu(),
        Engine::builder().device(DeviceChoice::Cpu).workers(3).chunk(4096).build().unwrap(),
        emulated().build().unwrap(),
        emulated().workers(1).chunk(65_536).build().unwrap(),
    ]
}

/// Random numbers from -1 to below 1.
fn random(rows: usize, columns: usize, seed: u64) -> Array2<f64> {
    let numbers = uniform(&cpu(), rows * columns, seed).unwrap();
    Array2::from_shape_vec((rows, columns), numbers).unwrap() * 2.0 - 1.0
}

fn input(values: &Array2<f64>) -> Input<'_> {
    values.view().into()
}

fn reason<T: fmt::Debug>(result: Result<T>) -> MatrixError {
    match result {
        Err(Error::InvalidTable(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

fn assert_near(one: &Array2<f64>, other: &Array2<f64>, tolerance: f64) {
    let far = (one - other).iter().fold(0.0, |most: f64, difference| most.max(difference.abs()));
    assert!(one.dim() == other.dim() && far <= tolerance, "{far}");
}

/// Squared distances of all rows from all points, of differences.
fn distances(rows: &Array2<f64>, points: &Array2<f64>) -> Array2<f64> {
    Array2::from_shape_fn((rows.nrows(), points.nrows()), |(row, point)| {
        (&rows.row(row) - &points.row(point)).mapv(|difference| difference * difference).sum()
    })
}

fn least(values: ndarray::ArrayView1<'_, f64>) -> usize {
    values.iter().enumerate().fold(0, |least, (k, value)| if *value < values[least] { k } else { least })
}

#[test]
fn algorithms_have_the_same_bits_for_every_schedule() {
    let x = random(20_000, 5, 16);
    let all: Vec<_> = engines()
        .iter()
        .map(|engine| {
            let matrices = Matrices::on(engine);
            let clusters = matrices.kmeans(&input(&x), KMeans::plus_plus(4).iterations(3)).unwrap();
            (clusters, matrices.pca(&input(&x), Pca::new(2).method(Method::Randomized)).unwrap())
        })
        .collect();
    // The CPU with the CPU, and the emulated device with itself.
    assert!(all[0] == all[1] && all[2] == all[3]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let (cpu, x) = (cpu(), random(10, 3, 19));
    let matrices = || Matrices::on(&cpu);
    let list = vec![1.0; 30];
    let flat = reason(matrices().gram(&Input::from(&list)));
    assert_eq!(flat.to_string(), "x has the shape (30,), and not (n, d); reshape it");
    let long = reason(matrices().linear(&input(&x), &Input::from(&list), Linear::new()));
    assert!(matches!(long, MatrixError::Shape { name: "t", .. }), "{long}");
    assert!(matches!(reason(matrices().pca(&input(&x), Pca::new(4))), MatrixError::Count { most: 3, .. }));
    assert!(matches!(reason(matrices().pca(&input(&x), Pca::new(0))), MatrixError::Count { count: 0, .. }));
    let many = KMeans::plus_plus(11);
    assert!(matches!(reason(matrices().kmeans(&input(&x), many)), MatrixError::Count { most: 10, .. }));
    let none = KMeans::plus_plus(2).iterations(0);
    assert!(matches!(reason(matrices().kmeans(&input(&x), none)), MatrixError::Count { what: "iterations", .. }));
    let narrow = KMeans::from_centers(Array2::zeros((2, 2)));
    assert!(matches!(reason(matrices().kmeans(&input(&x), narrow)), MatrixError::Shape { name: "centers", .. }));
    let infinite = KMeans::from_centers(Array2::from_elem((2, 3), f64::INFINITY));
    let reasons = [
        reason(matrices().kmeans(&input(&x), infinite)),
        reason(matrices().kmeans(&input(&(&x * f64::NAN)), KMeans::plus_plus(2))),
        reason(matrices().kmeans(&input(&(&x * f64::NAN)), KMeans::from_centers(x.slice(s![..2, ..]).to_owned()))),
        reason(matrices().pca(&input(&(&x * f64::NAN)), Pca::new(2))),
        reason(matrices().nearest(&input(&x), (&x * f64::NAN).view(), 1)),
    ];
    assert!(reasons.iter().all(|reason| matches!(reason, MatrixError::NotFinite { .. })), "{reasons:?}");
    let queries: ArrayView2<'_, f64> = x.view();
    assert!(matches!(reason(matrices().nearest(&input(&x), queries, 11)), MatrixError::Count { most: 10, .. }));
    let reduced = matrices().precision(Precision::Tf32).nearest(&input(&x), queries, 1);
    assert_eq!(reason(reduced), MatrixError::Inexact);
    let single = matrices().precision(Precision::Tf32).covariance(&input(&x), 1);
    assert!(matches!(single, Err(Error::InvalidJob(_))), "{single:?}");
    let small = x.mapv(|value| value as f32);
    assert!(matrices().precision(Precision::Tf32).kmeans(&small.view().into(), KMeans::plus_plus(2)).is_ok());
    let negative = matrices().linear(&input(&x), &Input::from(&list[..10]), Linear::new().ridge(-1.0));
    assert_eq!(reason(negative), MatrixError::Negative { name: "ridge", value: -1.0 });
    let infinite = matrices().linear(&input(&x), &Input::from(&list[..10]), Linear::new().ridge(f64::INFINITY));
    assert!(matches!(reason(infinite), MatrixError::Negative { name: "ridge", .. }));
    let no_number = matrices().pca(&input(&x), Pca::new(1).method(Method::Randomized).tolerance(f64::NAN));
    assert!(matches!(reason(no_number), MatrixError::Negative { name: "tolerance", .. }));
    let (empty, none) = (Array2::zeros((0, 3)), Vec::<f64>::new());
    for ridge in [0.0, 1.0] {
        let how = Linear::new().ridge(ridge);
        assert_eq!(reason(matrices().linear(&input(&empty), &Input::from(&none), how)), MatrixError::NoRows);
    }
    let reasons = [
        reason(matrices().logistic(&input(&empty), &Input::from(&none), Logistic::new())),
        reason(matrices().kmeans(&input(&empty), KMeans::plus_plus(1))),
        reason(matrices().nearest(&input(&empty), x.slice(s![..1, ..]), 1)),
    ];
    assert!(reasons.iter().all(|reason| *reason == MatrixError::NoRows), "{reasons:?}");
    assert!(matrices().gram(&input(&Array2::zeros((0, 3)))).is_ok());
}

#[test]
fn each_pass_is_told_and_can_be_stopped() {
    let (x, engine) = (random(1000, 2, 20), cpu());
    let reports = std::cell::Cell::new(0);
    let matrices = Matrices::on(&engine).each_pass(|report| {
        assert_eq!(report.rows, 1000);
        reports.set(reports.get() + 1);
    });
    let found = matrices.kmeans(&input(&x), KMeans::plus_plus(3).iterations(2)).unwrap();
    assert_eq!(reports.get(), found.iterations + 1);
    let token = CancelToken::new();
    let stop = || token.cancel();
    let matrices = Matrices::on(&engine).cancel_token(token.clone()).progress(|_| stop());
    assert!(matrices.kmeans(&input(&x), KMeans::plus_plus(3)).is_err());
    // The host's own work ends, too.
    let stopped = Matrices::on(&engine).cancel_token(token.clone());
    let start = plus_plus(&stopped, &Table::new("x", &input(&x)).unwrap(), 3, 0);
    assert!(matches!(start, Err(Error::Cancelled { .. })));
    let near = stopped.nearest(&input(&x), x.slice(s![..2, ..]), 1);
    assert!(matches!(near, Err(Error::Cancelled { .. })));
}

/// Runs an algorithm, and returns the bytes that each pass copied to the device.
fn copied(engine: &Engine, algorithm: impl FnOnce(&Matrices<'_>)) -> Vec<u64> {
    let copied = RefCell::new(vec![]);
    let each_pass = |report: &Report| copied.borrow_mut().push(report.bytes_to_device);
    algorithm(&Matrices::on(engine).each_pass(each_pass));
    copied.into_inner()
}

#[test]
fn rows_stay_on_the_device_between_passes() {
    let x = random(40_000, 12, 50);
    let t: Vec<f64> = x.column(0).iter().map(|value| f64::from(u8::from(*value > 0.1))).collect();
    let bytes = (x.len() * size_of::<f64>()) as u64;
    let run = |number: usize, engine: &Engine| {
        copied(engine, |matrices| match number {
            0 => drop(matrices.kmeans(&input(&x), KMeans::plus_plus(3).iterations(4)).unwrap()),
            1 => drop(matrices.logistic(&input(&x), &Input::from(&t), Logistic::new().iterations(4)).unwrap()),
            _ => {
                let how = Pca::new(2).method(Method::Randomized).tolerance(0.0).iterations(1);
                drop(matrices.pca(&input(&x), how).unwrap());
            }
        })
    };
    let engine = || Engine::builder().device(Emulated::new());
    for number in 0..3 {
        let all = run(number, &engine().device_memory(1 << 30).build().unwrap());
        assert!(all.len() >= 2 && all[0] >= bytes, "{number}: {all:?}");
        // The column `t` does not stay.
        assert!(all[1..].iter().all(|copied| *copied < bytes / 4), "{number}: {all:?}");
        // A device that may be given up keeps none.
        let limited = engine().device_memory(1 << 30).device_timeout(Duration::from_secs(1000)).build().unwrap();
        assert!(run(number, &limited).iter().all(|copied| *copied >= bytes), "{number}");
    }
}

#[test]
fn of_a_table_that_does_not_fit_pieces_stay() {
    const PIECE: u64 = 16 << 20;
    let x = random(5 << 14, 128, 52);
    let bytes = (x.len() * size_of::<f64>()) as u64;
    let run = |memory: u64| {
        let engine = Engine::builder().device(Emulated::new()).device_memory(memory).chunk(1 << 20).build().unwrap();
        let how = || KMeans::from_centers(x.slice(s![..3, ..]).to_owned()).iterations(2);
        let mut centers = None;
        let all = copied(&engine, |matrices| centers = Some(matrices.kmeans(&input(&x), how()).unwrap().centers));
        assert!(all[0] >= bytes && all[1] == all[2], "{all:?}");
        (all[0] - all[1], centers.unwrap())
    };
    let ((none, streamed), (some, expected)) = (run(200 << 20), run(260 << 20));
    assert!(none == 0 && 2 * PIECE < some && some < bytes, "{none} and {some} bytes stayed");
    assert_eq!(streamed, expected);
    // 7/8 of 40 MiB have room for two of five pieces, and for a part of a third one.
    let engine = Engine::builder().device(Emulated::new()).device_memory(40 << 20).build().unwrap();
    let table = engine.resident(input(&x)).unwrap();
    let ranges: Vec<_> = table.on_devices().into_iter().map(|(_, rows)| rows).collect();
    let elements = PIECE / size_of::<f64>() as u64;
    assert_eq!(ranges, [0..2 * elements, 3 * elements..3 * elements + (3 << 17)]);
}

#[test]
fn rows_that_fit_stay_on_the_device_wherever_they_end() {
    let x = random(300_000, 16, 51);
    let bytes = (x.len() * size_of::<f64>()) as u64;
    let mut before = bytes;
    // Blocks and panels are as large as they can be, so that rows get the memory beyond them, and end within a chunk.
    for memory in (150 << 20..176 << 20).step_by(5 << 20) {
        let engine = Engine::builder().device(Emulated::new()).device_memory(memory).chunk(2 << 20).build().unwrap();
        let how = || KMeans::from_centers(x.slice(s![..3, ..]).to_owned()).iterations(2);
        let all = copied(&engine, |matrices| drop(matrices.kmeans(&input(&x), how()).unwrap()));
        assert!(all[0] >= bytes && all.len() == 3 && all[1] == all[2], "{memory}: {all:?}");
        assert!(all[1] + (4 << 20) < before, "{memory}: {all:?}, but {before} with less memory");
        before = all[1];
    }
}
