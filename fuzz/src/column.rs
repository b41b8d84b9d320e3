//! Columns of values, and host kernels that run on them.

use arbitrary::{Result, Unstructured};
use overshot::Dtype;
use overshot::testing::{HostKernel, Kernel, TILE_ROWS, Uniform};

/// Values of one dtype, in memory that is aligned for every dtype.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub dtype: Dtype,
    pub rows: usize,
    words: Vec<u64>,
}

impl Column {
    pub fn zeros(dtype: Dtype, rows: usize) -> Column {
        Column { dtype, rows, words: vec![0; (rows * dtype.size()).div_ceil(8)] }
    }

    pub fn from_bits(dtype: Dtype, bits: impl ExactSizeIterator<Item = u64>) -> Column {
        let mut column = Column::zeros(dtype, bits.len());
        for (bytes, bits) in column.bytes_mut().chunks_mut(dtype.size()).zip(bits) {
            bytes.copy_from_slice(&bits.to_le_bytes()[..dtype.size()]);
        }
        column
    }

    /// Arbitrary values, special ones among them.
    pub fn arbitrary(u: &mut Unstructured<'_>, dtype: Dtype, rows: usize) -> Result<Column> {
        let bits: Vec<u64> = (0..rows).map(|_| bits(u, dtype)).collect::<Result<_>>()?;
        Ok(Column::from_bits(dtype, bits.into_iter()))
    }

    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.rows * self.dtype.size()]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.rows * self.dtype.size()]
    }

    /// The bits of a row, in the low bits of the word.
    pub fn bits(&self, row: usize) -> u64 {
        let mut word = [0; 8];
        let size = self.dtype.size();
        word[..size].copy_from_slice(&self.bytes()[row * size..][..size]);
        u64::from_le_bytes(word)
    }

    pub fn slice(&self, from: usize, to: usize) -> Column {
        Column::from_bits(self.dtype, (from..to).map(|row| self.bits(row)).collect::<Vec<_>>().into_iter())
    }

    /// An integer or `bool` as a number.
    pub fn integer(&self, row: usize) -> i128 {
        let bits = self.bits(row);
        match self.dtype {
            Dtype::Bool => i128::from(bits != 0),
            Dtype::I8 => i128::from(bits as i8),
            Dtype::I16 => i128::from(bits as i16),
            Dtype::I32 => i128::from(bits as i32),
            Dtype::I64 => i128::from(bits as i64),
            _ => i128::from(bits),
        }
    }

    /// A value of any dtype as a float.
    pub fn float(&self, row: usize) -> f64 {
        match self.dtype {
            // The bits of a bf16 are the upper ones of an f32.
            Dtype::Bf16 => f32::from_bits((self.bits(row) as u32) << 16).into(),
            Dtype::F16 => f16_value(self.bits(row) as u32),
            Dtype::F32 => f32::from_bits(self.bits(row) as u32).into(),
            Dtype::F64 => f64::from_bits(self.bits(row)),
            _ => self.integer(row) as f64,
        }
    }
}

/// The value of an `f16`.
fn f16_value(bits: u32) -> f64 {
    let (exponent, mantissa) = (bits >> 10 & 31, f64::from(bits & 0x3ff));
    let size = match exponent {
        31 if mantissa > 0.0 => f64::NAN,
        31 => f64::INFINITY,
        0 => mantissa * 2f64.powi(-24),
        _ => (1024.0 + mantissa) * 2f64.powi(exponent as i32 - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// The bits of an arbitrary value, in the low bits of the word. A `bool` is 0 or 1.
pub fn bits(u: &mut Unstructured<'_>, dtype: Dtype) -> Result<u64> {
    const FLOATS: [f64; 14] = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        0.5,
        3.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        f64::MAX,
        f64::MIN_POSITIVE,
        1e-310,
        65_535.9,
        -9.3e18,
    ];
    let top = dtype.size() * 8 - 1;
    let mask = u64::MAX >> (63 - top);
    let special: bool = u.arbitrary()?;
    Ok(match dtype {
        Dtype::Bool => u64::from(special),
        Dtype::F32 if special => (*u.choose(&FLOATS)? as f32).to_bits().into(),
        Dtype::F64 if special => u.choose(&FLOATS)?.to_bits(),
        _ if special => *u.choose(&[0, 1, 2, u64::MAX, 1 << top, (1 << top) - 1, 7, 63, 64])? & mask,
        _ => u.arbitrary::<u64>()? & mask,
    })
}

/// Runs a host kernel from row 0 on. Returns the outputs and the partials.
pub fn run(
    host: &mut dyn HostKernel,
    kernel: &Kernel,
    outputs: &[(String, Dtype)],
    rows: usize,
    inputs: &[Column],
    values: &[u64],
) -> (Vec<Column>, Vec<u64>) {
    let mut outputs: Vec<Column> = outputs.iter().map(|(_, dtype)| Column::zeros(*dtype, rows)).collect();
    // What is not written shows.
    outputs.iter_mut().for_each(|output| output.bytes_mut().fill(0xa5));
    let mut partials = vec![u64::MAX; kernel.columns.partial_bytes(rows) / 8];
    let inputs: Vec<&[u8]> = inputs.iter().map(Column::bytes).collect();
    let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(Column::bytes_mut).collect();
    let uniform = Uniform { values, total_rows: rows as u64, ..Uniform::default() };
    host.run(0, rows, &inputs, &mut slices, bytemuck::cast_slice_mut(&mut partials), &uniform);
    (outputs, partials)
}

/// Chooses a number of rows: few, or whole tiles and a few more.
pub fn rows(u: &mut Unstructured<'_>) -> Result<usize> {
    Ok(if u.arbitrary()? {
        u.int_in_range(0..=50)?
    } else {
        u.int_in_range(0..=4)? * TILE_ROWS + u.int_in_range(0..=2)?
    })
}
