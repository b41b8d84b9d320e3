//! Sums of rows by key in the contract of devices: several launches add to the words of the same chunk.

use std::sync::Arc;
use std::time::Instant;

use crate::device::by_key::sums_by_key;
use crate::device::product::Float;
use crate::device::{Device, Host as _, Stream};

/// More rows than a block of the kernel looks at together.
const ROWS: usize = 5000;

/// The rows at which launches begin, and the end of the last one.
const LAUNCHES: [usize; 4] = [0, 2900, 2901, ROWS];

/// Checks that the sums are those of a plain loop, bit for bit.
pub(super) fn check<D: Device>(device: &D) {
    for (keys, width) in [(300, 1), (2000, 2), (7, 3), (1, 32), (40, 33), (3, 100)] {
        for float in [Float::F32, Float::F64] {
            let row_keys: Vec<i32> = (0..ROWS).map(|row| row_key(row, keys)).collect();
            let elements: Vec<f64> = (0..ROWS * width).map(|place| round(float, element(place))).collect();
            let found = on_device(device, float, (keys, width), (&row_keys, &elements));
            let expected = plain(float, (keys, width), (&row_keys, &elements));
            let place = found.iter().zip(&expected).position(|(found, expected)| found.to_bits() != expected.to_bits());
            assert_eq!(place, None, "{float:?}, {keys} keys, {width} columns");
            assert_eq!(found.len(), expected.len());
        }
    }
}

/// Half of the rows have the first key, often one after the other, and some have none. With more keys than classes,
/// some groups of rows in the kernel have one key, and others have several.
fn row_key(row: usize, keys: usize) -> i32 {
    let random = (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    match random % 16 {
        0..8 => 0,
        8 => [-1, keys as i32, i32::MIN, i32::MAX][random as usize / 16 % 4],
        _ => (random / 16 % keys as u64) as i32,
    }
}

/// Numbers of different sizes, whose sums depend on the order.
fn element(place: usize) -> f64 {
    (place * 7919 % 1013) as f64 / 7.0 * [1.0, -1e6, 1e-6, 1e3][place / 3 % 4]
}

fn round(float: Float, number: f64) -> f64 {
    match float {
        Float::F32 => f64::from(number as f32),
        Float::F64 => number,
    }
}

fn plain(float: Float, (keys, width): (usize, usize), (row_keys, elements): (&[i32], &[f64])) -> Vec<f64> {
    let mut sums = vec![0.0; keys * width];
    for (key, row) in row_keys.iter().zip(elements.chunks(width)) {
        if let Some(key) = (0..keys).find(|&other| other as i32 == *key) {
            for (sum, element) in sums[key * width..].iter_mut().zip(row) {
                // The sum of two f32 is the same if it is rounded to f64 first.
                *sum = round(float, *sum + element);
            }
        }
    }
    sums
}

fn on_device<D: Device>(
    device: &D,
    float: Float,
    (keys, width): (usize, usize),
    (row_keys, elements): (&[i32], &[f64]),
) -> Vec<f64> {
    let kernel = Arc::new(sums_by_key(float, keys, width, ROWS));
    let loaded = device.load(&kernel).unwrap();
    let (row_keys, elements) = (of_keys(row_keys), words(float, elements));
    let mut sums = vec![u64::MAX; kernel.columns.chunk_words];
    let memory = [&row_keys, &elements, &sums].map(|words| device.allocate(8 + words.len() * 8).unwrap());
    let event = device.event(false).unwrap();
    let mut stream = device.open_stream().unwrap();
    // SAFETY: each memory has the bytes of its vector behind the first 8, and a launch has some of all rows. The
    // vectors are left alone until the wait below.
    unsafe {
        stream.zero(&memory[2], 8, sums.len() * 8).unwrap();
        for (number, launch) in LAUNCHES.windows(2).enumerate() {
            let (start, rows) = (launch[0], launch[1] - launch[0]);
            let row_bytes = width * float.size();
            // Launches begin at offsets that are multiples of 8, so the rows are copied to where the first one is.
            let from = |words: &[u64], bytes: usize| words.as_ptr().cast::<u8>().add(start * bytes);
            stream.copy_in(from(&row_keys, size_of::<i32>()), &memory[0], 8, rows * size_of::<i32>()).unwrap();
            stream.copy_in(from(&elements, row_bytes), &memory[1], 8, rows * row_bytes).unwrap();
            let columns = memory.each_ref().map(|memory| (memory, 8));
            stream.launch(&loaded, &columns, &[], (number * ROWS) as u64, rows).unwrap();
        }
        stream.copy_out(&memory[2], 8, sums.as_mut_ptr().cast(), sums.len() * 8).unwrap();
    }
    stream.record(&event).unwrap();
    device.host(Instant::now()).synchronize(&event).unwrap();
    drop(stream);
    match float {
        Float::F32 => bytemuck::cast_slice::<u64, f32>(&sums)[..keys * width].iter().copied().map(f64::from).collect(),
        Float::F64 => bytemuck::cast_slice::<u64, f64>(&sums)[..keys * width].to_vec(),
    }
}

/// Returns keys in words.
fn of_keys(keys: &[i32]) -> Vec<u64> {
    let mut words = vec![0; keys.len().div_ceil(2)];
    bytemuck::cast_slice_mut(&mut words)[..keys.len()].copy_from_slice(keys);
    words
}

/// Returns numbers as a device has them, in words.
fn words(float: Float, numbers: &[f64]) -> Vec<u64> {
    let mut words = vec![0; (numbers.len() * float.size()).div_ceil(8)];
    match float {
        Float::F32 => {
            let slots: &mut [f32] = bytemuck::cast_slice_mut(&mut words);
            slots.iter_mut().zip(numbers).for_each(|(slot, number)| *slot = *number as f32);
        }
        Float::F64 => bytemuck::cast_slice_mut(&mut words)[..numbers.len()].copy_from_slice(numbers),
    }
    words
}
