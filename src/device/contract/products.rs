//! Products of matrices in the contract of devices: [`Stream::prepare_products`] and [`Stream::multiply`].

use std::time::Instant;

use half::bf16;

use super::{COLUMN, Host};
use crate::device::product::{Float, Product};
use crate::device::{Device, Host as _, Precision, Stream, WORKSPACE_BYTES};
use crate::error::{Error, Result};

/// Checks all of it.
pub(super) fn check<D: Device>(device: &D) {
    only_a_prepared_stream_multiplies(device);
    // The numbers are small integers, which have few bits.
    for precision in [Precision::Full, Precision::Tf32, Precision::Bf16x3].map(|wanted| wanted.on(device.info())) {
        for float in [Float::F32, Float::F64] {
            for (left, right, rows) in [(1, 1, 1), (1, 17, 3), (17, 1, 3), (3, 5, 7), (33, 65, 129), (7, 13, 900)] {
                a_product_is_that_of_a_plain_loop(device, (Product { float, left, right }, precision), rows);
            }
        }
    }
    operands_may_be_the_same_memory(device);
    a_prepared_stream_may_be_dropped_at_once(device);
}

/// Checks that a failure of a product is returned by a call or by the wait, and releases everything. One of the next
/// calls or products on `device` fails.
pub(crate) fn check_failed_product<D: Device>(device: &D) {
    let (left, right) = (Host::filled(0), Host::filled(0));
    let product = Product { float: Float::F64, left: 3, right: 5 };
    let error = multiply(device, product, 7, [&left, &right], &Host::filled(0)).expect_err("this run was to fail");
    assert!(matches!(error, Error::Device { .. }), "{error:?}");
    assert!(error.to_string().contains(&device.info().id), "names the device: {error}");
}

/// Stores a product between copies of the same stream into the operands and out of the sum, which must neither come
/// too early nor too late; then adds a product of other operands.
fn a_product_is_that_of_a_plain_loop<D: Device>(device: &D, (product, precision): (Product, Precision), rows: usize) {
    let [first, second] = [0, 5].map(|seed| [seed, seed + 1].map(|seed| factors(product.float, precision, seed)));
    let [stored, added, others] = [0; 3].map(|_| Host::filled(1));
    let memory = device.allocate(4 * COLUMN).unwrap();
    let workspace = device.allocate(WORKSPACE_BYTES).unwrap();
    let mut stream = device.open_stream().unwrap();
    let event = device.event(false).unwrap();
    let [left_at, right_at, sum_at] = [0, COLUMN + 8, 2 * COLUMN + 16];
    let hosts = first.iter().chain(&second).chain([&stored, &added, &others]);
    // SAFETY: the memory is page-aligned, and unpinned before it is freed.
    let pins: Vec<D::Pin> = hosts.map(|host| unsafe { host.pin(device) }).collect();
    // SAFETY: the rows of the operands and the sum have at most `COLUMN` bytes and do not overlap; the host's buffers
    // have as many and are left alone until the wait below. Only this stream uses the workspace, and it is dropped
    // before it.
    unsafe {
        stream.prepare_products(&workspace, precision).unwrap();
        for ([left, right], sum, adds) in [(&first, &stored, false), (&second, &added, true)] {
            stream.copy_in(left.start, &memory, left_at, COLUMN).unwrap();
            stream.copy_in(right.start, &memory, right_at, COLUMN).unwrap();
            let operands = [(&memory, left_at), (&memory, right_at)];
            stream.multiply(&product, rows, operands, (&memory, sum_at), adds).unwrap();
            stream.copy_out(&memory, sum_at, sum.start, COLUMN).unwrap();
        }
        // Another sum is stored where there is one. Its operands are those of the first product.
        for (operand, at) in first.iter().zip([left_at, right_at]) {
            stream.copy_in(operand.start, &memory, at, COLUMN).unwrap();
        }
        let operands = [(&memory, left_at), (&memory, right_at)];
        stream.multiply(&product, rows, operands, (&memory, sum_at), false).unwrap();
        stream.copy_out(&memory, sum_at, others.start, COLUMN).unwrap();
    }
    stream.record(&event).unwrap();
    device.host(Instant::now()).synchronize(&event).unwrap();
    drop(stream);
    drop(pins);
    let [once, twice] = [&first, &second].map(|[left, right]| plain((product, precision), rows, left, right));
    let both: Vec<f64> = once.iter().zip(&twice).map(|(a, b)| a + b).collect();
    let what = format!("{product:?}, {rows} rows");
    assert_eq!(elements(product.float, &stored, product.elements()), once, "{what}");
    assert_eq!(elements(product.float, &added, product.elements()), both, "{what}, added");
    assert_eq!(elements(product.float, &others, product.elements()), once, "{what}, stored over another sum");
    // Nothing is written behind a sum.
    let behind = |host: &Host| bytemuck::cast_slice::<u64, u8>(host.words())[product.bytes()..][..64].to_vec();
    assert_eq!(behind(&stored), behind(&others), "{what}");
}

fn operands_may_be_the_same_memory<D: Device>(device: &D) {
    for float in [Float::F32, Float::F64] {
        let product = Product { float, left: 11, right: 11 };
        let (operand, sum) = (numbers(float, 3), Host::filled(1));
        multiply(device, product, 100, [&operand, &operand], &sum).unwrap();
        let right = plain((product, Precision::Full), 100, &operand, &operand);
        assert_eq!(elements(float, &sum, product.elements()), right);
    }
}

/// Multiplies rows of these operands, which are in the same memory of the device if they are in the same one here.
fn multiply<D: Device>(device: &D, product: Product, rows: usize, operands: [&Host; 2], sum: &Host) -> Result<()> {
    let [left, right] = operands;
    let right_at = if std::ptr::eq(left, right) { 0 } else { COLUMN };
    let memory = device.allocate(3 * COLUMN)?;
    let workspace = device.allocate(WORKSPACE_BYTES)?;
    // Declared last: when an error ends this function, the stream is dropped first, and waits for its work.
    let mut stream = device.open_stream()?;
    let event = device.event(false)?;
    // SAFETY: as in `a_product_is_that_of_a_plain_loop`.
    unsafe {
        stream.prepare_products(&workspace, Precision::Full)?;
        stream.copy_in(left.start, &memory, 0, COLUMN)?;
        stream.copy_in(right.start, &memory, right_at, COLUMN)?;
        let operands = [(&memory, 0), (&memory, right_at)];
        stream.multiply(&product, rows, operands, (&memory, 2 * COLUMN), false)?;
        stream.copy_out(&memory, 2 * COLUMN, sum.start, COLUMN)?;
    }
    stream.record(&event)?;
    device.host(Instant::now()).synchronize(&event)
}

fn only_a_prepared_stream_multiplies<D: Device>(device: &D) {
    let memory = device.allocate(COLUMN).unwrap();
    let mut stream = device.open_stream().unwrap();
    let product = Product { float: Float::F32, left: 1, right: 1 };
    // SAFETY: all three are inside the memory, and the stream is dropped, and so done, before it.
    let result = unsafe { stream.multiply(&product, 1, [(&memory, 0), (&memory, 8)], (&memory, 16), false) };
    assert!(result.is_err_and(|error| error.to_string().contains("not prepared")));
}

fn a_prepared_stream_may_be_dropped_at_once<D: Device>(device: &D) {
    let workspace = device.allocate(WORKSPACE_BYTES).unwrap();
    for _ in 0..3 {
        let mut stream = device.open_stream().unwrap();
        // SAFETY: the stream of the turn is the only one that uses the workspace, and it is dropped before it.
        unsafe { stream.prepare_products(&workspace, Precision::Full).unwrap() };
    }
}

/// Small integers, so that every sum of products is exact.
pub(super) fn numbers(float: Float, seed: usize) -> Host {
    let mut host = Host::filled(0);
    let number = |place: usize| ((place * (7 + 2 * seed) + place / 5) % 9) as f64 - 4.0;
    match float {
        Float::F32 => {
            let numbers = bytemuck::cast_slice_mut::<u64, f32>(host.words_mut());
            numbers.iter_mut().enumerate().for_each(|(place, slot)| *slot = number(place) as f32);
        }
        Float::F64 => {
            let numbers = bytemuck::cast_slice_mut::<u64, f64>(host.words_mut());
            numbers.iter_mut().enumerate().for_each(|(place, slot)| *slot = number(place));
        }
    }
    host
}

/// Returns [`numbers`] as factors of products with this precision.
pub(super) fn factors(float: Float, precision: Precision, seed: usize) -> Host {
    let mut host = numbers(float, seed);
    if float.factor_bytes(precision) < float.size() {
        let numbers = bytemuck::cast_slice::<u64, f32>(host.words()).to_vec();
        let factors = bytemuck::cast_slice_mut::<u64, bf16>(host.words_mut());
        factors.iter_mut().zip(numbers).for_each(|(factor, number)| *factor = bf16::from_f32(number));
    }
    host
}

/// Returns the first factors of a buffer.
pub(super) fn of_factors(float: Float, precision: Precision, host: &Host, count: usize) -> Vec<f64> {
    let bytes = &bytemuck::cast_slice(host.words())[..count * float.factor_bytes(precision)];
    let words = float.factors(precision, bytes);
    match float {
        Float::F32 => bytemuck::cast_slice::<u64, f32>(&words)[..count].iter().copied().map(f64::from).collect(),
        Float::F64 => bytemuck::cast_slice::<u64, f64>(&words)[..count].to_vec(),
    }
}

/// Returns the first elements of a buffer.
pub(super) fn elements(float: Float, host: &Host, count: usize) -> Vec<f64> {
    match float {
        Float::F32 => bytemuck::cast_slice::<u64, f32>(host.words())[..count].iter().copied().map(f64::from).collect(),
        Float::F64 => bytemuck::cast_slice::<u64, f64>(host.words())[..count].to_vec(),
    }
}

fn plain((product, precision): (Product, Precision), rows: usize, left: &Host, right: &Host) -> Vec<f64> {
    let Product { float, left: m, right: n } = product;
    let factors = |host: &Host, count: usize| of_factors(float, precision, host, count);
    let (left, right) = (factors(left, rows * m), factors(right, rows * n));
    let element = |i: usize, j: usize| (0..rows).map(|row| left[row * m + i] * right[row * n + j]).sum();
    (0..m * n).map(|place| element(place / n, place % n)).collect()
}
