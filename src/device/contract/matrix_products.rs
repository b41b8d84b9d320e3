//! Products of rows with a matrix in the contract of devices: [`Stream::multiply_rows`].

use std::time::Instant;

use super::products::{elements, factors, of_factors};
use super::{COLUMN, Host};
use crate::device::product::{Float, MatrixProduct};
use crate::device::{Device, Host as _, Precision, Stream, WORKSPACE_BYTES};
use crate::error::{Error, Result};

/// Checks all of it.
pub(super) fn check<D: Device>(device: &D) {
    only_a_prepared_stream_multiplies(device);
    // The numbers are small integers, which have few bits.
    for precision in [Precision::Full, Precision::Tf32, Precision::Bf16x3].map(|wanted| wanted.on(device.info())) {
        for float in [Float::F32, Float::F64] {
            for (inner, width, rows) in [(1, 1, 1), (1, 17, 3), (17, 1, 3), (3, 5, 7), (33, 65, 129), (7, 13, 900)] {
                let product = MatrixProduct { float, inner, width };
                rows_times_a_matrix_are_those_of_a_plain_loop(device, (product, precision), rows);
            }
        }
    }
}

/// Checks that a failure of a product is returned by a call or by the wait, and releases everything. One of the next
/// calls or products on `device` fails.
pub(crate) fn check_failed_matrix_product<D: Device>(device: &D) {
    let hosts = [0; 3].map(|_| Host::filled(0));
    let product = MatrixProduct { float: Float::F64, inner: 3, width: 5 };
    let error = multiply(device, (product, Precision::Full), 7, &[hosts.each_ref()]).expect_err("this run was to fail");
    assert!(matches!(error, Error::Device { .. }), "{error:?}");
    assert!(error.to_string().contains(&device.info().id), "names the device: {error}");
}

/// Multiplies twice in the same memory of the device, so that no copy may come too early or too late.
fn rows_times_a_matrix_are_those_of_a_plain_loop<D: Device>(
    device: &D,
    (product, precision): (MatrixProduct, Precision),
    rows: usize,
) {
    let [first, second] = [0, 5].map(|seed| [seed, seed + 1].map(|seed| factors(product.float, precision, seed)));
    let results = [0; 2].map(|_| Host::filled(1));
    let rounds = [&first, &second].into_iter().zip(&results).map(|([from, matrix], to)| [from, matrix, to]);
    let rounds: Vec<_> = rounds.collect();
    multiply(device, (product, precision), rows, &rounds).unwrap();
    for (round, [from, matrix, to]) in rounds.into_iter().enumerate() {
        let expected = plain((product, precision), rows, from, matrix);
        assert_eq!(elements(product.float, to, expected.len()), expected, "{product:?}, {rows} rows, round {round}");
    }
    // Nothing is written behind a result.
    let behind =
        |host: &Host| bytemuck::cast_slice::<u64, u8>(host.words())[rows * product.row_bytes()..][..64].to_vec();
    assert_eq!(behind(&results[0]), behind(&results[1]), "{product:?}, {rows} rows");
}

/// Multiplies the rows of each round with its matrix, and copies the result to its third buffer.
fn multiply<D: Device>(
    device: &D,
    (product, precision): (MatrixProduct, Precision),
    rows: usize,
    rounds: &[[&Host; 3]],
) -> Result<()> {
    let [from_at, to_at] = [8, COLUMN + 16];
    let memory = device.allocate(3 * COLUMN)?;
    let on_device = device.allocate(COLUMN)?;
    let workspace = device.allocate(WORKSPACE_BYTES)?;
    // SAFETY: the memory is page-aligned, and unpinned before it is freed.
    let _pins: Vec<D::Pin> = rounds.iter().flatten().map(|host| unsafe { host.pin(device) }).collect();
    let event = device.event(false)?;
    // Declared last: when an error ends this function, the stream is dropped first, and waits for its work.
    let mut stream = device.open_stream()?;
    // SAFETY: the rows, the matrix and the result have at most `COLUMN` bytes and do not overlap; the host's buffers
    // have as many and are left alone until the stream is dropped. Only this stream uses the workspace, and it is
    // dropped before it.
    unsafe {
        stream.prepare_products(&workspace, precision)?;
        for [from, matrix, to] in rounds {
            stream.copy_in(from.start, &memory, from_at, COLUMN)?;
            stream.copy_in(matrix.start, &on_device, 0, COLUMN)?;
            stream.multiply_rows(&product, rows, (&memory, from_at), &on_device, (&memory, to_at))?;
            stream.copy_out(&memory, to_at, to.start, COLUMN)?;
        }
    }
    stream.record(&event)?;
    device.host(Instant::now()).synchronize(&event)
}

fn only_a_prepared_stream_multiplies<D: Device>(device: &D) {
    let [memory, matrix] = [0; 2].map(|_| device.allocate(COLUMN).unwrap());
    let mut stream = device.open_stream().unwrap();
    let product = MatrixProduct { float: Float::F32, inner: 1, width: 1 };
    // SAFETY: all three are inside the memory, and the stream is dropped, and so done, before it.
    let result = unsafe { stream.multiply_rows(&product, 1, (&memory, 0), &matrix, (&memory, 8)) };
    assert!(result.is_err_and(|error| error.to_string().contains("not prepared")));
}

fn plain((product, precision): (MatrixProduct, Precision), rows: usize, from: &Host, matrix: &Host) -> Vec<f64> {
    let MatrixProduct { float, inner, width } = product;
    let factors = |host: &Host, count: usize| of_factors(float, precision, host, count);
    let (from, matrix) = (factors(from, rows * inner), factors(matrix, inner * width));
    let element = |row: usize, j: usize| (0..inner).map(|i| from[row * inner + i] * matrix[i * width + j]).sum();
    (0..rows * width).map(|place| element(place / width, place % width)).collect()
}
