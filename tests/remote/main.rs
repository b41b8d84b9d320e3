//! Inputs by URL: they have the rows of the local file, or are an error that names the URL.

#![allow(clippy::unwrap_used, reason = "in tests")]

mod faults;
mod formats;
mod server;
mod versions;

use overshot::{Engine, Input, Job, Npy};
use std::path::Path;

/// Writes the numbers from 0 on.
fn npy(path: &Path, rows: u64) {
    let engine = Engine::builder().build().unwrap();
    engine.run(Job::eval("x = f64(i)").unwrap().rows(rows).output("x", Npy::create(path))).unwrap();
}

/// Reads all rows, in three pieces.
fn rows(input: &Input<'_>) -> overshot::Result<Vec<u8>> {
    rows_in(input, 3)
}

/// Reads all rows, in so many pieces.
fn rows_in(input: &Input<'_>, pieces: usize) -> overshot::Result<Vec<u8>> {
    let source = input.source();
    let size = source.dtype().size();
    let mut bytes = vec![0; source.rows() as usize * size];
    let piece = bytes.len().div_ceil(pieces).next_multiple_of(size).max(size);
    for (number, piece_rows) in bytes.chunks_mut(piece).enumerate() {
        source.read((number * piece / size) as u64, piece_rows)?;
    }
    Ok(bytes)
}
