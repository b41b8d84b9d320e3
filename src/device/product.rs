//! Products of matrices: the rows of one operand times those of another, summed over the rows, and rows times a matrix.

/// Rows of a leaf of the tree in which the sums of products are added. The CPU computes leaves.
pub const PRODUCT_ROWS: usize = 1 << 11;

/// Rows of the nodes of that tree that a device with its own memory computes, where their sums stay meanwhile.
pub const DEVICE_ROWS: usize = PRODUCT_ROWS << DEVICE_LEVEL;

/// The level of these nodes.
pub(crate) const DEVICE_LEVEL: u32 = 5;

use std::fmt;
use std::str::FromStr;
use std::thread;

use half::bf16;

use super::DeviceInfo;
use super::split::is_split;
use crate::error::{Error, SettingError};

/// The dtype of the operands and of the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Float {
    /// 4 bytes.
    F32,
    /// 8 bytes.
    F64,
}

impl Float {
    /// Returns the bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Float::F32 => 4,
            Float::F64 => 8,
        }
    }

    /// Returns the bytes of a factor of a product, on a stream that was prepared with this precision.
    pub fn factor_bytes(self, precision: Precision) -> usize {
        if is_split(self, precision) { size_of::<bf16>() } else { self.size() }
    }

    /// Returns factors as a device of this precision multiplies them, as numbers of this dtype, in words. TF32 is
    /// rounded to the nearest number, of two of them to the even one.
    ///
    /// # Panics
    /// If the bytes are no whole factors, or are not aligned to them.
    pub fn factors(self, precision: Precision, bytes: &[u8]) -> Vec<u64> {
        /// The bits of an `f32` behind the first ten bits of its fraction.
        const LOST: u32 = (1 << 13) - 1;
        let count = bytes.len() / self.factor_bytes(precision);
        let mut words = vec![0_u64; (count * self.size()).div_ceil(8)];
        if is_split(self, precision) {
            let factors: &[bf16] = bytemuck::cast_slice(bytes);
            let to: &mut [f32] = bytemuck::cast_slice_mut(&mut words);
            to.iter_mut().zip(factors).for_each(|(to, factor)| *to = factor.to_f32());
            return words;
        }
        let to = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()];
        to.copy_from_slice(bytes);
        if (self, precision) == (Float::F32, Precision::Tf32) {
            for factor in bytemuck::cast_slice_mut::<u8, f32>(to).iter_mut().filter(|factor| factor.is_finite()) {
                let bits = factor.to_bits();
                let is_odd = (bits >> 13) & 1;
                *factor = f32::from_bits((bits + (LOST >> 1) + is_odd) & !LOST);
            }
        }
        words
    }
}

/// How devices multiply matrices of `f32`: see [`Job::precision`](crate::Job::precision).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// With all 24 bits of factors.
    #[default]
    Full,
    /// With 11 bits of factors, as tensor cores do: TF32. Products are added as `f32`.
    Tf32,
    /// With 16 bits of factors, in three products of `bf16` on tensor cores. Products are added as `f32`.
    Bf16x3,
}

impl Precision {
    /// Returns the precision that a device has if it is asked for this one. Tensor cores have TF32 and `bf16` since
    /// Ampere.
    pub(crate) fn on(self, device: &DeviceInfo) -> Precision {
        let capability = device.compute_capability.as_ref();
        let major = capability.and_then(|capability| capability.split('.').next()?.parse::<u32>().ok());
        if major.is_none_or(|major| major >= 8) { self } else { Precision::Full }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Precision::Full => "full",
            Precision::Tf32 => "tf32",
            Precision::Bf16x3 => "bf16x3",
        })
    }
}

impl FromStr for Precision {
    type Err = Error;

    /// # Errors
    /// [`Error::InvalidSetting`] unless the text is `full`, `tf32` or `bf16x3`.
    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "full" => Ok(Precision::Full),
            "tf32" => Ok(Precision::Tf32),
            "bf16x3" => Ok(Precision::Bf16x3),
            _ => Err(SettingError::UnknownPrecision { text: text.into() }.into()),
        }
    }
}

/// A product that a library computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AnyProduct {
    /// Over the rows of both operands.
    OverRows(Product),
    /// Of rows with a matrix.
    ByMatrix(MatrixProduct),
}

/// The sum over some rows of the products of each element of a row of the left operand with each element of the same
/// row of the right one: `left.T @ right`. Both operands and the sum are stored row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    /// The dtype.
    pub float: Float,
    /// The elements of a row of the left operand, which are the rows of the sum.
    pub left: usize,
    /// The elements of a row of the right operand, which are the columns of the sum.
    pub right: usize,
}

impl Product {
    /// Returns the number of elements of the sum.
    pub fn elements(&self) -> usize {
        self.left * self.right
    }

    /// Returns the bytes of the sum.
    pub fn bytes(&self) -> usize {
        self.elements() * self.float.size()
    }

    /// Computes the sum over `rows` rows on one core, and adds it to `sum`, or stores it there unless it `adds`. The
    /// bits depend on the shape, on the number of rows and on the instructions of the processor alone.
    ///
    /// # Panics
    /// If a slice has fewer bytes, or is not aligned to its elements.
    pub fn multiply(&self, rows: usize, [left, right]: [&[u8]; 2], sum: &mut [u8], adds: bool) {
        match self.float {
            Float::F32 => self.multiply_as::<f32>(rows, [left, right], (sum, adds), 1.0),
            Float::F64 => self.multiply_as::<f64>(rows, [left, right], (sum, adds), 1.0),
        }
    }

    /// Converts a part of a sum to `f64`, which are stored in words, both from an element on. The part ends with whole
    /// elements.
    ///
    /// # Panics
    /// If the part is not aligned to its elements, or if there are too few words.
    pub fn widen(&self, part: &[u8], words: &mut [u64]) {
        match self.float {
            // Sums over many rows are added as f64, and rounded once.
            Float::F32 => {
                let part: &[f32] = bytemuck::cast_slice(part);
                let words = &mut words[..part.len()];
                words.iter_mut().zip(part).for_each(|(word, sum)| *word = f64::from(*sum).to_bits());
            }
            Float::F64 => bytemuck::cast_slice_mut(words)[..part.len()].copy_from_slice(part),
        }
    }

    /// The same on several threads if the part is large, because writing to new memory is slow.
    ///
    /// # Panics
    /// Those of [`widen`](Product::widen).
    pub(crate) fn widen_on(&self, threads: usize, part: &[u8], words: &mut [u64]) {
        /// A thread converts so many elements in several times as long as it takes to start.
        const LEAST: usize = 1 << 17;
        let size = self.float.size();
        let step = (part.len() / size).div_ceil(threads.max(1)).max(LEAST);
        thread::scope(|scope| {
            let mut pieces = part.chunks(step * size).zip(words.chunks_mut(step));
            let own = pieces.next();
            pieces.for_each(|(part, words)| drop(scope.spawn(move || self.widen(part, words))));
            if let Some((part, words)) = own {
                self.widen(part, words);
            }
        });
    }

    /// Computes the sum of an operand with itself over `rows` rows, as [`multiply`](Product::multiply) does, and stores
    /// it. It is symmetric, so little more than half of it is multiplied.
    ///
    /// # Panics
    /// Those of [`multiply`](Product::multiply), and if the operands do not have the same elements.
    pub fn multiply_by_itself(&self, rows: usize, operand: &[u8], sum: &mut [u8]) {
        assert_eq!(self.left, self.right, "elements of the operands");
        match self.float {
            Float::F32 => self.multiply_by_itself_as::<f32>(rows, operand, sum, 1.0),
            Float::F64 => self.multiply_by_itself_as::<f64>(rows, operand, sum, 1.0),
        }
    }

    fn multiply_as<T: bytemuck::Pod>(
        &self,
        rows: usize,
        [left, right]: [&[u8]; 2],
        (sum, adds): (&mut [u8], bool),
        one: T,
    ) {
        let Product { left: m, right: n, .. } = *self;
        let (left, right) = (elements(left, rows * m), elements(right, rows * n));
        let sum = &mut bytemuck::cast_slice_mut(sum)[..self.elements()];
        add_products((left, [1, m]), (right, n), sum, [m, rows, n], (adds, one));
    }

    fn multiply_by_itself_as<T: bytemuck::Pod>(&self, rows: usize, operand: &[u8], sum: &mut [u8], one: T) {
        let width = self.left;
        let operand: &[T] = elements(operand, rows * width);
        let sum = &mut bytemuck::cast_slice_mut(sum)[..self.elements()];
        // Strips of columns, each from the diagonal on downwards.
        for first in (0..width).step_by(STRIP) {
            let columns = STRIP.min(width - first);
            let from = if rows == 0 { operand } else { &operand[first..] };
            let strip = &mut sum[first * width + first..];
            add_products((from, [1, width]), (from, width), strip, [width - first, rows, columns], (false, one));
        }
        mirror(sum, width);
    }
}

/// The product of each of some rows with a matrix: `rows @ matrix`. The rows, the matrix and the result are stored row
/// by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixProduct {
    /// The dtype.
    pub float: Float,
    /// The elements of a row that is multiplied, which are the rows of the matrix.
    pub inner: usize,
    /// The elements of a row of the matrix, and of a row of the result.
    pub width: usize,
}

impl MatrixProduct {
    /// Returns the bytes of the matrix.
    pub fn matrix_bytes(&self) -> usize {
        self.inner * self.row_bytes()
    }

    /// Returns the bytes of a row that is multiplied.
    pub fn inner_bytes(&self) -> usize {
        self.inner * self.float.size()
    }

    /// Returns the bytes of a row of the result.
    pub fn row_bytes(&self) -> usize {
        self.width * self.float.size()
    }

    /// Multiplies `rows` rows with the matrix on one core, and stores the result in `to`. The bits depend on the shape,
    /// on the number of rows and on the instructions of the processor alone.
    ///
    /// # Panics
    /// If a slice has fewer bytes, or is not aligned to its elements.
    pub fn multiply(&self, rows: usize, from: &[u8], matrix: &[u8], to: &mut [u8]) {
        match self.float {
            Float::F32 => self.multiply_as::<f32>(rows, from, matrix, to, 1.0),
            Float::F64 => self.multiply_as::<f64>(rows, from, matrix, to, 1.0),
        }
    }

    fn multiply_as<T: bytemuck::Pod>(&self, rows: usize, from: &[u8], matrix: &[u8], to: &mut [u8], one: T) {
        let MatrixProduct { inner, width, .. } = *self;
        let (from, matrix) = (elements(from, rows * inner), elements(matrix, inner * width));
        let to = &mut bytemuck::cast_slice_mut(to)[..rows * width];
        add_products((from, [inner, 1]), (matrix, width), to, [rows, inner, width], (false, one));
    }
}

/// The columns of a strip of a symmetric sum.
const STRIP: usize = 256;

fn elements<T: bytemuck::Pod>(bytes: &[u8], count: usize) -> &[T] {
    &bytemuck::cast_slice(bytes)[..count]
}

/// Multiplies a matrix of `m` rows and `k` columns with one of `k` rows and `n` columns. The elements of the left one
/// are so far apart along a column and along a row, so that it may be stored by rows or by columns. The rows of the
/// right one, and those of the sum, begin `step` elements apart.
///
/// # Panics
/// If a slice has too few elements.
fn add_products<T: bytemuck::Pod>(
    (left, [down, across]): (&[T], [usize; 2]),
    (right, step): (&[T], usize),
    sum: &mut [T],
    [m, k, n]: [usize; 3],
    (adds, one): (bool, T),
) {
    let needs = |[rows, columns]: [usize; 2], [down, across]: [usize; 2]| match (rows, columns) {
        (0, _) | (_, 0) => 0,
        _ => (rows - 1) * down + (columns - 1) * across + 1,
    };
    assert!(left.len() >= needs([m, k], [down, across]), "elements of the left operand");
    assert!(right.len() >= needs([k, n], [step, 1]), "elements of the right operand");
    assert!(sum.len() >= needs([m, n], [step, 1]), "elements of the sum");
    // SAFETY: the slices have the elements of these matrices, as checked above. `sum` is borrowed mutably, so it
    // overlaps neither operand.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            sum.as_mut_ptr(),
            1,
            step as isize,
            adds,
            left.as_ptr(),
            across as isize,
            down as isize,
            right.as_ptr(),
            1,
            step as isize,
            one,
            one,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// Copies what is below the diagonal to its mirror image, some rows and columns at a time, which stay in the cache.
fn mirror<T: Copy>(square: &mut [T], width: usize) {
    const SIDE: usize = 32;
    for row in (0..width).step_by(SIDE) {
        for column in (0..=row).step_by(SIDE) {
            for i in row..width.min(row + SIDE) {
                for j in column..i.min(column + SIDE) {
                    square[j * width + i] = square[i * width + j];
                }
            }
        }
    }
}

/// One operand of a product: a column of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The operand with this number, which the kernel computes.
    Operand(usize),
    /// The input with this number, as it is.
    Input(usize),
}

/// A product of columns of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnProduct {
    /// The product.
    pub product: Product,
    /// Its operands.
    pub sides: [Side; 2],
    /// Whether the left operand has an `i32` in each row, a key, instead of a row with 1 in the column of the key and 0
    /// in all others: the rows of the right operand are added up by their keys. A row has no key if that is none of the
    /// columns.
    pub by_key: bool,
}

/// Returns the error of a device for a product on a stream that was not prepared for products.
pub(super) fn not_prepared(device: &str) -> Error {
    Error::Device {
        device: device.into(),
        problem: "a stream was to multiply that was not prepared for it".into(),
        remedy: "report this as a bug of Overshot".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cpu;

    /// Small integers, so that every sum of products is exact.
    fn number(place: usize) -> f64 {
        ((place * 7 + place / 5) % 9) as f64 - 4.0
    }

    #[test]
    fn tf32_has_eleven_bits() {
        let rounded = |factor: f32| {
            let words = Float::F32.factors(Precision::Tf32, bytes(&[factor]));
            bytemuck::cast_slice::<u64, f32>(&words)[0]
        };
        let step = 2.0_f32.powi(-10);
        for (factor, right) in [
            (0.0, 0.0),
            (-3.0, -3.0),
            (2047.0, 2047.0),
            (2049.0, 2048.0),
            (2051.0, 2052.0),
            (1.0 + step, 1.0 + step),
            (1.0 + 0.5 * step, 1.0),
            (-1.0 - 1.5 * step, -1.0 - 2.0 * step),
            (1.0 + 0.51 * step, 1.0 + step),
            (f32::INFINITY, f32::INFINITY),
            (f32::MAX, f32::INFINITY),
        ] {
            assert_eq!(rounded(factor), right, "{factor}");
        }
        assert!(rounded(f32::NAN).is_nan());
        let others = [(Float::F32, Precision::Full), (Float::F64, Precision::Tf32), (Float::F64, Precision::Bf16x3)];
        for (float, precision) in others {
            let words = float.factors(precision, bytes(&[1.0_f64 / 3.0; 3]));
            assert_eq!((words, float.factor_bytes(precision)), (vec![(1.0_f64 / 3.0).to_bits(); 3], float.size()));
        }
    }

    #[test]
    fn tensor_cores_have_fewer_bits_since_ampere() {
        for (capability, expected) in [("7.5", false), ("8.0", true), ("9.0", true), ("12.0", true)] {
            let info = DeviceInfo { compute_capability: Some(capability.into()), ..cpu::info() };
            for precision in [Precision::Tf32, Precision::Bf16x3] {
                assert_eq!(precision.on(&info), if expected { precision } else { Precision::Full }, "{capability}");
            }
            assert_eq!(Precision::Full.on(&info), Precision::Full);
        }
    }

    #[test]
    fn products_of_an_operand_with_itself_are_symmetric() {
        for (rows, width) in [(0, 3), (1, 1), (7, 5), (40, 255), (33, 256), (20, 257), (9, 700)] {
            let product = Product { float: Float::F64, left: width, right: width };
            let operand: Vec<f64> = (0..rows * width).map(number).collect();
            let (mut whole, mut half) = (vec![f64::NAN; width * width], vec![f64::NAN; width * width]);
            product.multiply(rows, [bytes(&operand); 2], bytemuck::cast_slice_mut(&mut whole), false);
            product.multiply_by_itself(rows, bytes(&operand), bytemuck::cast_slice_mut(&mut half));
            assert_eq!(half, whole, "{rows} rows of {width}");
        }
    }

    #[test]
    fn sums_are_widened_on_any_number_of_threads() {
        let product = Product { float: Float::F32, left: 600, right: 700 };
        let sum: Vec<f32> = (0..product.elements()).map(|place| number(place) as f32 + 0.1).collect();
        let right: Vec<u64> = sum.iter().map(|sum| f64::from(*sum).to_bits()).collect();
        for (threads, count) in [(0, sum.len()), (1, sum.len()), (3, sum.len()), (8, sum.len() - 7), (2, 1), (2, 0)] {
            let mut words = vec![u64::MAX; count + 1];
            product.widen_on(threads, bytes(&sum[..count]), &mut words[..count]);
            assert!(words[..count] == right[..count] && words[count] == u64::MAX, "{count} on {threads} threads");
        }
    }

    fn bytes<T: bytemuck::Pod>(numbers: &[T]) -> &[u8] {
        bytemuck::cast_slice(numbers)
    }

    /// Multiplies as `T`, and compares with a plain loop, which begins with `before` where it adds.
    fn check<T: bytemuck::Pod + PartialEq + std::fmt::Debug>(product: Product, rows: usize, from: fn(f64) -> T) {
        let Product { left: m, right: n, .. } = product;
        let plain = |before: f64| -> Vec<T> {
            let element = |i, j| (0..rows).map(|row| number(row * m + i) * number(row * n + j + 3)).sum::<f64>();
            (0..m * n).map(|place| from(before + element(place / n, place % n))).collect()
        };
        let left: Vec<T> = (0..rows * m).map(|place| from(number(place))).collect();
        let right: Vec<T> = (0..rows * n).map(|place| from(number(place + 3))).collect();
        for (before, adds) in [(f64::NAN, false), (5.0, true)] {
            let mut sum = vec![from(before); m * n];
            product.multiply(rows, [bytes(&left), bytes(&right)], bytemuck::cast_slice_mut(&mut sum), adds);
            assert_eq!(sum, plain(if adds { before } else { 0.0 }), "{product:?}, {rows} rows, adds: {adds}");
        }
    }

    #[test]
    fn a_product_is_that_of_a_plain_loop() {
        for (left, right, rows) in
            [(1, 1, 1), (1, 17, 3), (17, 1, 3), (3, 5, 7), (33, 65, 129), (8, 8, 4096), (2, 3, 1)]
        {
            check(Product { float: Float::F32, left, right }, rows, |number| number as f32);
            check(Product { float: Float::F64, left, right }, rows, |number| number);
        }
    }

    /// Multiplies as `T`, and compares with a plain loop.
    fn check_rows<T: bytemuck::Pod + PartialEq + std::fmt::Debug>(
        product: MatrixProduct,
        rows: usize,
        as_t: fn(f64) -> T,
    ) {
        let MatrixProduct { inner, width, .. } = product;
        let from: Vec<T> = (0..rows * inner).map(|place| as_t(number(place))).collect();
        let matrix: Vec<T> = (0..inner * width).map(|place| as_t(number(place + 3))).collect();
        let mut to = vec![as_t(f64::NAN); rows * width];
        product.multiply(rows, bytes(&from), bytes(&matrix), bytemuck::cast_slice_mut(&mut to));
        let element = |i: usize, j: usize| -> f64 {
            (0..inner).map(|place| number(i * inner + place) * number(place * width + j + 3)).sum()
        };
        let plain: Vec<T> = (0..rows * width).map(|place| as_t(element(place / width, place % width))).collect();
        assert_eq!(to, plain, "{product:?}, {rows} rows");
        assert_eq!(size_of_val(&*matrix), product.matrix_bytes(), "{product:?}");
        let row_bytes = [product.inner_bytes(), product.row_bytes()];
        assert_eq!([size_of_val(&*from), size_of_val(&*to)], row_bytes.map(|bytes| rows * bytes), "{product:?}");
    }

    #[test]
    fn rows_times_a_matrix_are_those_of_a_plain_loop() {
        let shapes = [
            (1, 1, 1),
            (1, 17, 3),
            (17, 1, 3),
            (3, 5, 7),
            (7, 3, 1),
            (33, 65, 129),
            (8, 8, 4096),
            (5, 3, 0),
            (0, 3, 2),
        ];
        for (inner, width, rows) in shapes {
            check_rows(MatrixProduct { float: Float::F32, inner, width }, rows, |number| number as f32);
            check_rows(MatrixProduct { float: Float::F64, inner, width }, rows, |number| number);
        }
    }

    #[test]
    fn the_bits_of_rows_times_a_matrix_do_not_depend_on_where_they_are() {
        let product = MatrixProduct { float: Float::F32, inner: 37, width: 19 };
        let (rows, shift) = (41, 3);
        let inexact = |place: usize| (number(place) as f32 + 0.1) / 3.0;
        let multiply = |shift: usize| {
            let numbers = |count: usize, seed: usize| -> Vec<f32> {
                (0..shift + count).map(|place| inexact((place + seed).wrapping_sub(shift) % 1009)).collect()
            };
            let (from, matrix) = (numbers(rows * 37, 2000), numbers(37 * 19, 3000));
            let mut to = vec![f32::NAN; shift + rows * 19];
            let [from, matrix] = [&from[shift..], &matrix[shift..]].map(bytes);
            product.multiply(rows, from, matrix, bytemuck::cast_slice_mut(&mut to[shift..]));
            to[shift..].iter().map(|element| element.to_bits()).collect::<Vec<_>>()
        };
        assert_eq!(multiply(shift), multiply(0));
    }

    #[test]
    #[should_panic(expected = "range end index")]
    fn a_result_without_space_for_its_rows_is_refused() {
        let product = MatrixProduct { float: Float::F64, inner: 1, width: 2 };
        product.multiply(2, bytes(&[1.0, 2.0]), bytes(&[3.0, 4.0]), bytemuck::cast_slice_mut(&mut [0.0_f64; 3]));
    }

    #[test]
    fn longer_slices_are_used_in_part() {
        let product = Product { float: Float::F64, left: 1, right: 2 };
        let mut sum = [0.0, 0.0, 9.0];
        let operands = [bytes(&[2.0, 99.0]), bytes(&[3.0, 4.0, 99.0])];
        product.multiply(1, operands, bytemuck::cast_slice_mut(&mut sum), false);
        assert_eq!((sum, product.elements(), product.bytes()), ([6.0, 8.0, 9.0], 2, 16));
        let product = MatrixProduct { float: Float::F64, inner: 1, width: 2 };
        let mut to = [0.0, 0.0, 9.0];
        product.multiply(1, bytes(&[2.0, 99.0]), bytes(&[4.0, 5.0, 99.0]), bytemuck::cast_slice_mut(&mut to));
        assert_eq!(to, [8.0, 10.0, 9.0]);
    }
}
