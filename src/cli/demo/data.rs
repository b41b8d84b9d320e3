//! The data of the demo, generated and written without the library, so that the demo checks the library independently.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use overshot::{CancelToken, Error};
use rayon::prelude::*;

use crate::cli::Result;
use crate::cli::progress::Bar;

/// Selects the numbers of the first file.
pub const A: u64 = 0x0a;
/// Selects the numbers of the second file.
pub const B: u64 = 0x0b;

/// Rows generated at a time: 512 KiB.
const BLOCK: u64 = 1 << 16;
const HEADER_BYTES: usize = 128;

/// The number in a row of a file: pseudorandom, from -10 to 10, the same on every machine.
pub fn number(file: u64, row: u64) -> f64 {
    // SplitMix64 as a hash of the row.
    let mut bits = (row.wrapping_add(file << 56)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    (bits >> 11) as f64 * (20.0 / (1u64 << 53) as f64) - 10.0
}

/// A parallel iterator over the blocks of `rows` rows.
pub fn blocks(rows: u64) -> impl IndexedParallelIterator<Item = Range<u64>> {
    // 2^64 bytes are more than any disk holds, so this is less than 2^45 blocks.
    (0..rows.div_ceil(BLOCK) as usize).into_par_iter().map(move |block| {
        let first = block as u64 * BLOCK;
        first..(first + BLOCK).min(rows)
    })
}

/// Writes a file of `rows` numbers.
pub fn write(path: &Path, file: u64, rows: u64, cancel: &CancelToken, bar: &Bar) -> Result {
    let cannot = |error: io::Error| Error::File {
        path: path.into(),
        problem: "cannot be written".into(),
        remedy: "check its disk, or use another --dir".into(),
        cause: Some(error),
    };
    let out = File::create_new(path).map_err(cannot)?;
    out.write_all_at(&header(rows), 0).map_err(cannot)?;
    blocks(rows).try_for_each(|block| {
        stop_if(cancel, block.start, rows)?;
        let numbers: Vec<f64> = block.clone().map(|row| number(file, row)).collect();
        let offset = HEADER_BYTES as u64 + block.start * 8;
        out.write_all_at(bytemuck::cast_slice(&numbers), offset).map_err(cannot)?;
        bar.add(block.end - block.start);
        Ok(())
    })
}

/// Returns an error if Ctrl-C was pressed.
pub fn stop_if(cancel: &CancelToken, done: u64, rows: u64) -> Result {
    if cancel.is_cancelled() { Err(Error::Cancelled { done, rows }.into()) } else { Ok(()) }
}

/// A header of version 1: magic, version, length, and a Python dictionary up to a line break.
fn header(rows: u64) -> Vec<u8> {
    let order = if cfg!(target_endian = "little") { '<' } else { '>' };
    let mut header = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    header.extend(format!("{{'descr': '{order}f8', 'fortran_order': False, 'shape': ({rows},), }}").bytes());
    header.resize(HEADER_BYTES - 1, b' ');
    header.push(b'\n');
    header
}
