//! Products of matrices: the rows of one operand times those of another, summed over the rows.

/// Rows of a leaf of the tree in which the sums of products are added. The CPU computes leaves.
pub const PRODUCT_ROWS: usize = 1 << 11;

/// Rows of the nodes of that tree that a device with its own memory computes, where their sums stay meanwhile.
pub const DEVICE_ROWS: usize = PRODUCT_ROWS << DEVICE_LEVEL;

/// The level of these nodes.
pub(crate) const DEVICE_LEVEL: u32 = 5;

use crate::error::Error;

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
        add_products((left, m), (right, n), sum, (rows, m, n), (adds, one));
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
            add_products((from, width), (from, width), strip, (rows, width - first, columns), (false, one));
        }
        mirror(sum, width);
    }
}

/// The columns of a strip of a symmetric sum.
const STRIP: usize = 256;

fn elements<T: bytemuck::Pod>(bytes: &[u8], count: usize) -> &[T] {
    &bytemuck::cast_slice(bytes)[..count]
}

/// Computes `m` rows and `n` columns of a sum over `rows` rows of two operands, whose rows begin so many elements
/// apart. The rows of the sum begin as far apart as those of the right operand.
///
/// # Panics
/// If a slice has too few elements.
fn add_products<T: bytemuck::Pod>(
    (left, left_step): (&[T], usize),
    (right, step): (&[T], usize),
    sum: &mut [T],
    (rows, m, n): (usize, usize, usize),
    (adds, one): (bool, T),
) {
    let end = |count: usize, step: usize, len: usize| if count == 0 { 0 } else { (count - 1) * step + len };
    assert!(left.len() >= end(rows, left_step, m) && right.len() >= end(rows, step, n), "elements of the operands");
    assert!(sum.len() >= end(m, step, n), "elements of the sum");
    // SAFETY: the slices have these many elements: `sum` m rows of n, `left` and `right` as many rows of m and n
    // elements as there are, of which `left` is read by columns. `sum` is borrowed mutably, so it overlaps neither.
    unsafe {
        gemm::gemm(
            m,
            n,
            rows,
            sum.as_mut_ptr(),
            1,
            step as isize,
            adds,
            left.as_ptr(),
            left_step as isize,
            1,
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

    /// Small integers, so that every sum of products is exact.
    fn number(place: usize) -> f64 {
        ((place * 7 + place / 5) % 9) as f64 - 4.0
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

    #[test]
    fn longer_slices_are_used_in_part() {
        let product = Product { float: Float::F64, left: 1, right: 2 };
        let mut sum = [0.0, 0.0, 9.0];
        let operands = [bytes(&[2.0, 99.0]), bytes(&[3.0, 4.0, 99.0])];
        product.multiply(1, operands, bytemuck::cast_slice_mut(&mut sum), false);
        assert_eq!((sum, product.elements(), product.bytes()), ([6.0, 8.0, 9.0], 2, 16));
    }
}
