//! Tests of the expression language.

mod parse;
mod table;
mod twin;

use super::program::Program;
use crate::data::{Dtype, Scalar};
use crate::device::kernel::TILE_ROWS;

/// Values of one dtype in memory, aligned for all.
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

    fn from_scalar(scalar: Scalar) -> Column {
        let bits = match scalar {
            Scalar::Bool(value) => value.into(),
            Scalar::I8(value) => value as u64,
            Scalar::I16(value) => value as u64,
            Scalar::I32(value) => value as u64,
            Scalar::I64(value) => value as u64,
            Scalar::U8(value) => value.into(),
            Scalar::U16(value) => value.into(),
            Scalar::U32(value) => value.into(),
            Scalar::U64(value) => value,
            Scalar::F32(value) => value.to_bits().into(),
            Scalar::F64(value) => value.to_bits(),
        };
        Column::from_bits(scalar.dtype(), [bits])
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
            Dtype::F64 => f64::from_bits(bits),
            Dtype::F32 => f32::from_bits(bits as u32).into(),
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

/// Runs the twin: the outputs, and the state of every reduction over all rows.
fn run(
    program: &std::sync::Arc<Program>,
    first_row: u64,
    rows: usize,
    inputs: &[Column],
) -> (Vec<Column>, Vec<Vec<u64>>) {
    let kernel = program.kernel();
    let mut outputs: Vec<Column> = program.outputs().iter().map(|(_, dtype)| Column::zeros(*dtype, rows)).collect();
    let mut partials = vec![u64::MAX; kernel.columns.partial_bytes(rows) / 8];
    let inputs: Vec<&[u8]> = inputs.iter().map(Column::bytes).collect();
    let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(Column::bytes_mut).collect();
    (kernel.twin)().run(first_row, rows, &inputs, &mut slices, bytemuck::cast_slice_mut(&mut partials));
    let mut states: Vec<Vec<u64>> = Vec::new();
    let mut at = 0;
    for reduction in program.reductions() {
        let mut state: Option<Vec<u64>> = None;
        for tile in 0..rows.div_ceil(TILE_ROWS) {
            let own = &partials[tile * kernel.columns.partial_words + at..][..reduction.words()];
            match &mut state {
                Some(state) => reduction.combine(state, own),
                None => state = Some(own.to_vec()),
            }
        }
        states.extend(state);
        at += reduction.words();
    }
    (outputs, states)
}
