//! Verification: chosen chunks are computed again on the CPU, from inputs that are read anew, and every byte is
//! compared.
//!
//! A worker verifies a chunk when its results are back on the host and before it writes or absorbs any of them. What is
//! compared are the outputs, where the device or the CPU has left them (in the slot, in pinned memory, in the memory of
//! a slice, or in resident memory), and the partial results of every tile and of the chunk.

use std::ops::Range;
use std::time::{Duration, Instant};

use twox_hash::XxHash3_128;

use super::cpu::bytes_of;
use super::meter::Meter;
use super::{OutputColumn, Work};
use crate::data::{Chunk, Dtype, Scalar};
use crate::device::kernel::{HostKernel, Kernel, Uniform};
use crate::error::{Error, Result, VerificationError};
use crate::panics;
use crate::report::RecomputedBy;

/// Rows are computed again in pieces of about so many bytes: few enough that they stay in the cache, and enough that
/// reading them costs little more than their bytes.
const PIECE_BYTES: usize = 1 << 20;
/// The seed of the hash that chooses chunks. With another one, other chunks are verified.
const SEED: u64 = 0x6f76_6572_7368_6f74;

/// What a run verifies.
pub(crate) struct Verification {
    /// The fraction of the chunks, above 0.
    pub(crate) fraction: f64,
    /// The names and dtypes of the outputs, for errors.
    pub(crate) outputs: Vec<(String, Dtype)>,
}

impl Verification {
    /// Returns whether a chunk is verified: the first one always, and others by a hash of their number. A larger
    /// fraction chooses the same chunks, and more.
    fn chooses(&self, chunk: u64) -> bool {
        let hash = XxHash3_128::oneshot_with_seed(SEED, &chunk.to_le_bytes()) as u64;
        chunk == 0 || ((hash >> 11) as f64) < self.fraction * (1u64 << 53) as f64
    }
}

/// What a worker has verified.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verified {
    pub(crate) chunks: u64,
    pub(crate) rows: u64,
    pub(crate) time: Duration,
}

/// Returns how the chunks of a device are computed again, and the host kernel that does so; `None` if the kernel has no
/// host kernel.
pub(crate) fn recomputation(kernel: &Kernel, is_cpu: bool) -> Option<(RecomputedBy, Box<dyn HostKernel>)> {
    let mut host = kernel.new_host_kernel()?;
    let by = match is_cpu {
        false => RecomputedBy::Cpu,
        true if host.use_other_instructions() => RecomputedBy::OtherInstructions,
        true => RecomputedBy::SameCode,
    };
    Some((by, host))
}

/// Verifies the chunks of one worker.
pub(super) struct Verifier<'r> {
    verification: &'r Verification,
    work: &'r Work<'r>,
    /// The device of the worker, as `--device` names it.
    device: String,
    by: RecomputedBy,
    host: Box<dyn HostKernel>,
    resident: Vec<&'r [u8]>,
    /// Rows of the inputs, and what is computed from them.
    inputs: Vec<Vec<u64>>,
    outputs: Vec<Vec<u64>>,
    partials: Vec<u64>,
    /// Rows of an output that are not in a slot.
    found: Vec<u64>,
}

impl<'r> Verifier<'r> {
    /// Creates the verifier of a worker on this device; `None` if the run verifies nothing.
    ///
    /// # Errors
    /// [`Error::InvalidKernel`] if the kernel has no host kernel.
    pub(super) fn of(work: &'r Work<'r>, device: &str, is_cpu: bool) -> Result<Option<Self>> {
        let Some(verification) = &work.verification else { return Ok(None) };
        let kernel = work.operator.kernel();
        let (by, host) = recomputation(kernel, is_cpu).ok_or_else(|| kernel.no_host_kernel(device))?;
        Ok(Some(Verifier {
            verification,
            work,
            device: device.to_owned(),
            by,
            host,
            resident: kernel.resident.iter().map(|array| array.bytes()).collect(),
            inputs: vec![vec![]; kernel.columns.inputs.len()],
            outputs: vec![vec![]; kernel.columns.outputs.len()],
            partials: vec![],
            found: vec![],
        }))
    }

    /// Computes a chunk again if it is chosen. `staged` returns the staged rows of an output, and `partials` are the
    /// partial results of the chunk.
    ///
    /// # Errors
    /// [`Error::Chunk`] with [`Error::Verification`] if a byte differs; with those of the sources.
    pub(super) fn check<'c>(
        &mut self,
        chunk: &Chunk,
        staged: impl Fn(usize) -> Option<&'c [u8]>,
        partials: &[u8],
        meter: &mut Meter,
    ) -> Result<()> {
        if !self.verification.chooses(chunk.index()) {
            return Ok(());
        }
        let begin = Instant::now();
        let columns = &self.work.operator.kernel().columns;
        let piece = (PIECE_BYTES / columns.row_bytes().max(1)).next_multiple_of(columns.tile_rows);
        let own = columns.chunk_partials();
        bytes_of(&mut self.partials, own.end)?.fill(0);
        for first in (0..chunk.len()).step_by(piece) {
            let rows = first..chunk.len().min(first + piece);
            self.check_rows(chunk, rows, &staged, partials).map_err(|error| meter.with_chunk(chunk, error))?;
        }
        let [found, again] =
            [partials, bytes_of(&mut self.partials, own.end)?].map(|words| words_of(&words[..own.end]));
        if let Some([what, found, again]) = self.work.operator.difference_of_chunk(&found, &again) {
            let error = self.difference().error(what, chunk.rows().start, found, again);
            return Err(meter.with_chunk(chunk, error));
        }
        let verified = &mut meter.outcome.verified;
        verified.chunks += 1;
        verified.rows += chunk.len() as u64;
        verified.time += begin.elapsed();
        Ok(())
    }

    fn difference(&self) -> Difference {
        Difference { by: self.by, is_own_code: !self.host.is_repeatable() }
    }

    /// Computes some rows of a chunk again, which are whole tiles.
    fn check_rows<'c>(
        &mut self,
        chunk: &Chunk,
        rows: Range<usize>,
        staged: &impl Fn(usize) -> Option<&'c [u8]>,
        partials: &[u8],
    ) -> Result<()> {
        let Work { operator, inputs, outputs, .. } = self.work;
        let (kernel, len) = (operator.kernel(), rows.len());
        let (columns, first_row) = (&kernel.columns, chunk.rows().start + rows.start as u64);
        let values = kernel.values.wait().ok_or_else(Error::abandoned)?;
        let mut read: Vec<&[u8]> = Vec::with_capacity(inputs.len());
        for (k, (input, memory)) in inputs.iter().zip(&mut self.inputs).enumerate() {
            let window = columns.window(k, &(first_row..first_row + len as u64));
            let to = bytes_of(memory, (window.end - window.start) as usize * columns.inputs[k])?;
            input.read(window.start, to)?;
            read.push(to);
        }
        let sizes = columns.outputs.iter();
        let computed = sizes.zip(&mut self.outputs).map(|(&size, memory)| bytes_of(memory, len * size));
        let mut computed = computed.collect::<Result<Vec<_>>>()?;
        // The words of the chunk are in front, and have those of the rows before these.
        let again = bytes_of(&mut self.partials, columns.partial_bytes(len))?;
        let uniform = Uniform { resident: &self.resident, values, total_rows: columns.total_rows };
        panics::catch(|| kernel.whose(), || self.host.run(first_row, len, &read, &mut computed, again, &uniform))?;

        let difference = Difference { by: self.by, is_own_code: !self.host.is_repeatable() };
        let tiles = &again[columns.tile_partials(0..len)];
        let found = &partials[columns.tile_partials(rows.clone())];
        let tile_bytes = columns.partial_words * 8;
        for tile in 0..found.len().checked_div(tile_bytes).unwrap_or(0) {
            let [one, other] = [found, tiles].map(|tiles| words_of(&tiles[tile * tile_bytes..][..tile_bytes]));
            let tile_rows = columns.tile_rows.min(len - tile * columns.tile_rows) as u64;
            if let Some([what, found, again]) = operator.difference(&one, &other, tile_rows) {
                return Err(difference.error(what, first_row + (tile * columns.tile_rows) as u64, found, again));
            }
        }
        for (k, (again, &size)) in computed.iter().zip(&columns.outputs).enumerate() {
            let found = match staged(k) {
                Some(all) => &all[rows.start * size..rows.end * size],
                None => {
                    let to = bytes_of(&mut self.found, len * size)?;
                    outputs[k].read_back(&self.device, chunk, first_row, to)?;
                    to
                }
            };
            // A kernel that selects rows writes these to the begin of their tile, and anything behind them.
            let selected = |tile: usize| match operator.compacts() {
                true => words_of(&tiles[tile * tile_bytes..][..tile_bytes])[0] as usize,
                false => columns.tile_rows.min(len - tile * columns.tile_rows),
            };
            for tile in 0..len.div_ceil(columns.tile_rows) {
                let own = tile * columns.tile_rows * size..(tile * columns.tile_rows + selected(tile)) * size;
                if let Some(at) = first_difference(&found[own.clone()], &again[own.clone()]) {
                    let (name, dtype) = &self.verification.outputs[k];
                    let at = (own.start + at) / dtype.size() * dtype.size();
                    let [found, again] = [found, again].map(|rows| element(*dtype, &rows[at..at + dtype.size()]));
                    return Err(difference.error(format!("'{name}'"), first_row + (at / size) as u64, found, again));
                }
            }
        }
        Ok(())
    }
}

impl OutputColumn<'_> {
    /// Reads rows of a chunk, from `first_row` of the job on, that the device has written in place.
    fn read_back(&self, device: &str, chunk: &Chunk, first_row: u64, to: &mut [u8]) -> Result<()> {
        if let Some(read) = self.sharded.as_ref().and_then(|sharded| sharded.read(device, chunk, first_row, to)) {
            return read;
        }
        let memory = self.memory.ok_or_else(|| Error::Internal("an output of a chunk is nowhere".into()))?;
        let first = first_row * self.elements;
        let rows = first..first + (to.len() / memory.row_bytes()) as u64;
        to.copy_from_slice(&memory.claim_for_run(rows)?);
        Ok(())
    }
}

/// What is known of every difference.
struct Difference {
    by: RecomputedBy,
    /// Whether the code is the caller's own, and may differ from what it computes on the host.
    is_own_code: bool,
}

impl Difference {
    fn error(self, what: String, row: u64, found: String, again: String) -> Error {
        let remedy = match self.is_own_code {
            true => "check that the kernel and its function for the host compute the same, each time they are called",
            false => {
                "run the job again, and if it differs again, test the memory of the device and of the host, and run \
                 without the device"
            }
        };
        let (by, remedy) = (self.by.to_string(), remedy.into());
        Box::new(VerificationError { what, row, found, again, by, remedy }).into()
    }
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

/// Returns the first byte that differs between slices of the same length.
fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    // Comparing slices is much faster than comparing their bytes one by one.
    if one == other { None } else { one.iter().zip(other).position(|(one, other)| one != other) }
}

/// Returns an element as text, with its bits.
fn element(dtype: Dtype, bytes: &[u8]) -> String {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(word);
    format!("{} ({bits:#x})", Scalar::of_bits(dtype, bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(fraction: f64) -> Vec<u64> {
        let verification = Verification { fraction, outputs: vec![] };
        (0..10_000).filter(|chunk| verification.chooses(*chunk)).collect()
    }

    #[test]
    fn a_fraction_of_the_chunks_is_chosen_and_always_the_same() {
        assert_eq!(chosen(1e-12), [0]);
        assert_eq!(chosen(1.0).len(), 10_000);
        let (few, many) = (chosen(0.01), chosen(0.1));
        assert!((70..130).contains(&few.len()) && (900..1100).contains(&many.len()), "{}, {}", few.len(), many.len());
        assert!(few.iter().all(|chunk| many.contains(chunk)));
        assert_eq!(few, chosen(0.01));
    }

    #[test]
    fn the_first_difference_is_found_and_shown_with_its_bits() {
        let (one, mut other) = ([7; 1000], [7; 1000]);
        assert_eq!(first_difference(&one, &other), None);
        (other[3], other[900]) = (8, 8);
        assert_eq!(first_difference(&one, &other), Some(3));
        assert_eq!(element(Dtype::F32, &1.5f32.to_le_bytes()), "1.5 (0x3fc00000)");
        assert_eq!(element(Dtype::I16, &(-2i16).to_le_bytes()), "-2 (0xfffe)");
    }
}
