//! Tests of the expression language.

mod columns;
mod cuda;
mod filter;
mod host;
mod language;
mod layers;
mod needs;
mod neighbours;
mod parse;
mod passes;
mod rank;
mod row_filter;
mod scan;
mod tally;
mod together;
mod values;
mod wide;
mod windows;
mod within;

use std::sync::Arc;

use super::program::Program;
use crate::data::{Dtype, Scalar};
use crate::device::kernel::{HostKernel, Uniform};

/// Values of one dtype, in memory that is aligned for every dtype.
#[derive(Clone, Debug, PartialEq)]
struct Column {
    dtype: Dtype,
    rows: usize,
    memory: Vec<u64>,
}

impl Column {
    fn zeros(dtype: Dtype, rows: usize) -> Column {
        Column { dtype, rows, memory: vec![0; (rows * dtype.size()).div_ceil(8)] }
    }

    fn from_bits(dtype: Dtype, bits: impl IntoIterator<Item = u64>) -> Column {
        let bits: Vec<u64> = bits.into_iter().collect();
        let mut column = Column::zeros(dtype, bits.len());
        for (bytes, bits) in column.bytes_mut().chunks_mut(dtype.size()).zip(&bits) {
            bytes.copy_from_slice(&bits.to_le_bytes()[..dtype.size()]);
        }
        column
    }

    /// Large, small and all special values; the same values every time.
    fn mixed(dtype: Dtype, rows: usize, seed: u64) -> Column {
        const FLOATS: [f64; 16] = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            2.5,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            f64::MAX,
            f64::MIN_POSITIVE,
            1e-310,
            1e-40,
            -128.5,
            65_535.9,
            -9.3e18,
            1.9e19,
        ];
        let mut state = seed;
        let bits = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (kind, pick, top) = (state >> 62, (state >> 40) as usize % 16, dtype.size() * 8 - 1);
            let integer = [0, 1, 2, u64::MAX, 1 << top, (1 << top) - 1, 7, 100][pick % 8];
            let plain = ((state >> 20) & 0xfff_ffff) as f64 / 1e4 - 1e4;
            let wide = plain * ((state >> 56) as f64 - 128.0).exp2();
            let float = [FLOATS[pick], plain, wide, plain.round()][kind as usize];
            match dtype {
                Dtype::Bool => state >> 63,
                _ if dtype.is_float() => Scalar::of_float(dtype, float).bits(),
                _ if kind == 0 => integer,
                _ if kind == 1 => pick as u64,
                _ => state >> 3,
            }
        });
        Column::from_bits(dtype, bits.take(rows))
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.memory)[..self.rows * self.dtype.size()]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.memory)[..self.rows * self.dtype.size()]
    }

    fn bits(&self) -> impl Iterator<Item = u64> {
        self.bytes().chunks(self.dtype.size()).map(|bytes| {
            let mut bits = [0; 8];
            bits[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(bits)
        })
    }

    fn value(&self, row: usize) -> f64 {
        let bits = self.bits().nth(row).unwrap();
        match self.dtype {
            dtype if dtype.is_float() => Scalar::of_bits(dtype, bits).as_f64(),
            Dtype::I8 => f64::from(bits as i8),
            Dtype::I16 => f64::from(bits as i16),
            Dtype::I32 => f64::from(bits as i32),
            Dtype::I64 => bits as i64 as f64,
            _ => bits as f64,
        }
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        (0..self.rows).map(|row| self.value(row))
    }

    fn slice(&self, from: usize, to: usize) -> Column {
        Column::from_bits(self.dtype, self.bits().skip(from).take(to - from))
    }
}

/// Runs the host kernel. Returns the outputs and the partials of all tiles.
fn run_partials(program: &Arc<Program>, first_row: u64, rows: usize, inputs: &[Column]) -> (Vec<Column>, Vec<u64>) {
    run_values(&mut *program.kernel().new_host_kernel().unwrap(), program, first_row, rows, inputs, &[])
}

/// The same with an existing host kernel and with scalars.
fn run_values(
    host: &mut dyn HostKernel,
    program: &Arc<Program>,
    first_row: u64,
    rows: usize,
    inputs: &[Column],
    values: &[u64],
) -> (Vec<Column>, Vec<u64>) {
    let kernel = program.kernel();
    let mut outputs: Vec<Column> = program.outputs().iter().map(|(_, dtype)| Column::zeros(*dtype, rows)).collect();
    let mut partials = vec![u64::MAX; kernel.columns.partial_bytes(rows) / 8];
    partials[..kernel.columns.chunk_words].fill(0);
    let inputs: Vec<&[u8]> = inputs.iter().map(Column::bytes).collect();
    let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(Column::bytes_mut).collect();
    let uniform = Uniform { values, ..Uniform::default() };
    host.run(first_row, rows, &inputs, &mut slices, bytemuck::cast_slice_mut(&mut partials), &uniform);
    (outputs, partials)
}

/// Runs the host kernel. Returns the outputs and the state of every reduction over all rows.
fn run(program: &Arc<Program>, first_row: u64, rows: usize, inputs: &[Column]) -> (Vec<Column>, Vec<Vec<u64>>) {
    let (outputs, partials) = run_partials(program, first_row, rows, inputs);
    let words: usize = program.reductions().iter().map(|reduction| reduction.words()).sum();
    let mut states = Vec::new();
    let mut at = 0;
    for reduction in program.reductions() {
        let own = at..at + reduction.words();
        let mut tiles = partials.chunks(words).map(|tile| &tile[own.clone()]);
        let mut state = tiles.next().unwrap_or_default().to_vec();
        tiles.for_each(|tile| reduction.combine(&mut state, tile));
        states.push(state);
        at += reduction.words();
    }
    (outputs, states)
}
