//! The data of the demo, generated and written without the library, so that the demo checks the library independently.

use std::fs::File;
use std::io;
use std::iter;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use overshot::{CancelToken, Error};

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

/// Does the work for each block of `rows` rows on all cores, and returns the results in the order of the blocks. If the
/// system starts no more threads, fewer do the work.
///
/// # Errors
/// The first error of a thread; no block is begun after it.
pub fn each_block<T: Send>(rows: u64, work: impl Fn(Range<u64>) -> Result<T> + Sync) -> Result<Vec<T>> {
    // 2^64 bytes are more than any disk holds, so this is less than 2^45 blocks.
    let (next, blocks) = (AtomicU64::new(0), rows.div_ceil(BLOCK));
    let claim = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|block| *block < blocks);
    let work_on = || -> Result<Vec<(u64, T)>> {
        let mut done = Vec::new();
        while let Some(block) = claim() {
            let first = block * BLOCK;
            let result = work(first..(first + BLOCK).min(rows));
            done.push((block, result.inspect_err(|_| next.store(blocks, Ordering::Relaxed))?));
        }
        Ok(done)
    };
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    let mut done = thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, work_on).ok();
        let threads: Vec<_> = (1..cores).map_while(start).collect();
        let own = work_on();
        let others = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        iter::once(own).chain(others).collect::<Result<Vec<_>>>()
    })?
    .into_iter()
    .flatten()
    .collect::<Vec<_>>();
    done.sort_by_key(|(block, _)| *block);
    Ok(done.into_iter().map(|(_, result)| result).collect())
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
    each_block(rows, |block| {
        stop_if(cancel, block.start, rows)?;
        let numbers: Vec<f64> = block.clone().map(|row| number(file, row)).collect();
        let offset = HEADER_BYTES as u64 + block.start * 8;
        out.write_all_at(bytemuck::cast_slice(&numbers), offset).map_err(cannot)?;
        bar.add(block.end - block.start);
        Ok(())
    })?;
    Ok(())
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
