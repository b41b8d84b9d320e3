//! Arrays in Fortran order: the elements of the first dimension are adjacent in the file. Rows are elements in C order,
//! so they are gathered.
//!
//! A range of rows has a few adjacent elements of each column, where a column is all elements that differ in the first
//! index only. Each such piece is read at once, into a buffer, from which the rows are filled. If the range is less
//! than a slice along the first axis, the next axis takes the place of the first one.

use std::cell::RefCell;
use std::io;
use std::ops::Range;

/// Bytes of columns that are read before their elements go to their rows. They stay in the cache of a core. This is no
/// power of two, so that the columns of a block do not all fall on the same few lines of the cache.
const BLOCK: usize = 65 * 4096;
/// Bytes of a row that a block has at least: a line of the cache.
const LINE: usize = 64;
/// Columns that a block has at most, unless they are short of a line: one line of each stays in the fastest cache.
const WIDE: usize = 256;
/// So many bytes are read in about the time of a call that reads a few of them.
const CALL: u64 = 4096;

thread_local! {
    /// The columns from which rows are filled.
    static COLUMNS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The places of the elements of an array in Fortran order.
#[derive(Debug)]
pub(super) struct Fortran {
    /// The dimensions, outermost first, without those of one element. There are at least two.
    axes: Vec<Axis>,
}

/// A dimension.
#[derive(Clone, Copy, Debug)]
struct Axis {
    /// The elements from an index to the next one in C order: the product of the lengths behind.
    elements: u64,
    /// The bytes from an index to the next one in the file.
    stride: u64,
}

impl Fortran {
    /// Returns the places of elements that are `stride` bytes apart in the file, and whose bytes fit. `None` if C order
    /// is the same.
    pub(super) fn new(shape: &[u64], mut stride: u64) -> Option<Fortran> {
        let lengths: Vec<u64> = shape.iter().copied().filter(|length| *length != 1).collect();
        if lengths.len() < 2 || lengths.contains(&0) {
            return None;
        }
        let mut elements: u64 = lengths.iter().product();
        let axis = |length| {
            elements /= length;
            let axis = Axis { elements, stride };
            stride *= length;
            axis
        };
        Some(Fortran { axes: lengths.into_iter().map(axis).collect() })
    }

    /// Returns the index of an element along the first axis.
    pub(super) fn index_of(&self, element: u64) -> u64 {
        self.axes.first().map_or(0, |axis| element / axis.elements)
    }

    /// Fills `dst` with elements of `size` bytes, from number `first` in C order on. `read` takes the place of an
    /// element in bytes, a stride and a buffer, and fills the buffer with elements that are so many bytes apart.
    pub(super) fn read(
        &self,
        first: u64,
        dst: &mut [u8],
        size: usize,
        read: impl Fn(u64, u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        match size {
            1 => gather::<1>(&self.axes, 0, first, dst.as_chunks_mut().0, &read),
            2 => gather::<2>(&self.axes, 0, first, dst.as_chunks_mut().0, &read),
            4 => gather::<4>(&self.axes, 0, first, dst.as_chunks_mut().0, &read),
            _ => gather::<8>(&self.axes, 0, first, dst.as_chunks_mut().0, &read),
        }
    }
}

/// Fills `dst` with elements of the slice that begins at a place and has these dimensions.
fn gather<const N: usize>(
    axes: &[Axis],
    place: u64,
    first: u64,
    dst: &mut [[u8; N]],
    read: &impl Fn(u64, u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    let Some((axis, inner)) = axes.split_first() else { return Ok(()) };
    let Some(next) = inner.first() else {
        return read(place + first * axis.stride, axis.stride, dst.as_flattened_mut());
    };
    let rows = first / axis.elements..(first + dst.len() as u64).div_ceil(axis.elements);
    // If each column has one of the elements at most, they are no longer pieces than those along the next axis. And a
    // few rows of short columns are read sooner by reading all columns once for each row.
    let is_short = (rows.end - rows.start).saturating_mul(next.stride) <= CALL;
    if dst.len() as u64 > axis.elements && !is_short {
        return gather_columns(*axis, inner, place, first, dst, read);
    }
    let mut rest = dst;
    for row in rows {
        let begin = first.saturating_sub(row * axis.elements);
        let len = (axis.elements - begin).min(rest.len() as u64) as usize;
        let (own, after) = rest.split_at_mut(len);
        gather(inner, place + row * axis.stride, begin, own, read)?;
        rest = after;
    }
    Ok(())
}

/// Fills `dst`, which has more elements than a row, by columns: the elements of each are a stride of the axis apart.
fn gather_columns<const N: usize>(
    axis: Axis,
    inner: &[Axis],
    place: u64,
    first: u64,
    dst: &mut [[u8; N]],
    read: &impl Fn(u64, u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    let place = place + first / axis.elements * axis.stride;
    let skipped = (first % axis.elements) as usize;
    let part = Part { columns: axis.elements as usize, skipped, end: skipped + dst.len() };
    COLUMNS.with_borrow_mut(|buffer| {
        buffer.resize(BLOCK, 0);
        let buffer = buffer.as_chunks_mut().0;
        for block in part.blocks(buffer.len(), LINE / N) {
            for (column, piece) in block.columns.clone().zip(buffer.chunks_mut(block.rows.len())) {
                let rows = part.rows_of(column, &block);
                if !rows.is_empty() {
                    let at = place + place_of(inner, column as u64) + rows.start as u64 * axis.stride;
                    let own = rows.start - block.rows.start..rows.end - block.rows.start;
                    read(at, axis.stride, piece[own].as_flattened_mut())?;
                }
            }
            part.fill_rows(&block, buffer, dst);
        }
        Ok(())
    })
}

/// Returns the place of an element in its slice, whose dimensions these are.
fn place_of(axes: &[Axis], element: u64) -> u64 {
    let mut rest = element;
    let along = |axis: &Axis| {
        let index = rest / axis.elements;
        rest %= axis.elements;
        index * axis.stride
    };
    axes.iter().map(along).sum()
}

/// A range of elements that is more than a row: whole rows, except the first and the last one.
#[derive(Clone, Copy)]
struct Part {
    /// The elements of a row.
    columns: usize,
    /// The elements that the first row lacks.
    skipped: usize,
    /// The elements from the begin of the first row to the end of the range.
    end: usize,
}

/// Rows and columns of a part that are in the buffer at once: one column after the other.
struct Block {
    rows: Range<usize>,
    columns: Range<usize>,
}

impl Part {
    /// Divides a part into blocks that fit a buffer. They are as high as possible, so that long pieces are read, but
    /// have `wide` columns, if there are so many.
    fn blocks(self, buffer: usize, wide: usize) -> impl Iterator<Item = Block> {
        let rows = self.end.div_ceil(self.columns);
        let wide = (buffer / rows).clamp(wide, WIDE).min(self.columns);
        let high = (buffer / wide).min(rows);
        let across = move |top: usize| {
            let rows = top..rows.min(top + high);
            let at = move |left: usize| Block { rows: rows.clone(), columns: left..self.columns.min(left + wide) };
            (0..self.columns).step_by(wide).map(at)
        };
        (0..rows).step_by(high).flat_map(across)
    }

    /// Returns the rows of a block in which the part has an element of a column.
    fn rows_of(self, column: usize, block: &Block) -> Range<usize> {
        let begin = usize::from(column < self.skipped);
        let end = self.end / self.columns + usize::from(column < self.end % self.columns);
        block.rows.start.max(begin)..block.rows.end.min(end)
    }

    /// Returns the columns of a block of which the part has an element in a row.
    fn columns_of(self, row: usize, block: &Block) -> Range<usize> {
        let begin = if row == 0 { self.skipped } else { 0 };
        block.columns.start.max(begin)..block.columns.end.min(self.end - row * self.columns)
    }

    /// Copies the elements of a block from the buffer to their rows.
    fn fill_rows<const N: usize>(self, block: &Block, buffer: &[[u8; N]], dst: &mut [[u8; N]]) {
        let high = block.rows.len();
        for row in block.rows.clone() {
            let columns = self.columns_of(row, block);
            if columns.is_empty() {
                continue;
            }
            let begin = row * self.columns + columns.start - self.skipped;
            let mut from = (columns.start - block.columns.start) * high + row - block.rows.start;
            for element in &mut dst[begin..begin + columns.len()] {
                *element = buffer[from];
                from += high;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The indices of the elements of a shape, in C order.
    fn indices(shape: &[u64]) -> Vec<Vec<u64>> {
        shape.iter().fold(vec![vec![]], |all, length| {
            all.iter().flat_map(|index| (0..*length).map(move |last| [&index[..], &[last]].concat())).collect()
        })
    }

    /// The naive twin: the number of each element in Fortran order, in C order.
    fn naive(shape: &[u64]) -> Vec<u64> {
        let number = |index: Vec<u64>| index.iter().zip(shape).rev().fold(0, |number, (i, length)| number * length + i);
        indices(shape).into_iter().map(number).collect()
    }

    /// The bytes of the element with this number in a file.
    fn element(number: u64, size: usize) -> [u8; 8] {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(size as u32);
        mixed.to_ne_bytes()
    }

    /// Reads a range of a shape, with strides between elements. Returns the bytes, and the lengths of the pieces that
    /// were read, in elements.
    fn read(shape: &[u64], size: usize, stride: u64, first: u64, rows: usize) -> (Vec<u8>, Vec<usize>) {
        let (mut dst, pieces) = (vec![0xaa; rows * size], RefCell::new(vec![]));
        let fortran = Fortran::new(shape, stride).unwrap();
        let fill = |at: u64, step: u64, to: &mut [u8]| {
            assert!(at.is_multiple_of(stride) && step.is_multiple_of(stride) && to.is_empty() == (rows == 0));
            pieces.borrow_mut().push(to.len() / size);
            for (k, to) in to.chunks_mut(size).enumerate() {
                to.copy_from_slice(&element(at / stride + k as u64 * (step / stride), size)[..size]);
            }
            Ok(())
        };
        fortran.read(first, &mut dst, size, fill).unwrap();
        (dst, pieces.into_inner())
    }

    fn check(shape: &[u64], size: usize, stride: u64, first: u64, rows: usize) -> Vec<usize> {
        let numbers = &naive(shape)[first as usize..][..rows];
        let expected: Vec<u8> = numbers.iter().flat_map(|number| element(*number, size)[..size].to_vec()).collect();
        let (bytes, pieces) = read(shape, size, stride, first, rows);
        assert!(bytes == expected, "{rows} elements of {size} bytes from {first} on of {shape:?}");
        pieces
    }

    /// Shapes of all ranks up to 4 in which C order is another one, and of up to some 100,000 elements.
    fn shapes() -> impl Strategy<Value = Vec<u64>> {
        let lengths = prop_oneof![
            prop::collection::vec(1u64..8, 2..=4),
            prop::collection::vec(prop_oneof![1u64..4, 10u64..50], 2..=3),
            (2u64..9, 1000u64..10_000).prop_map(|(wide, high)| vec![high, wide]),
            (2u64..9, 1000u64..10_000).prop_map(|(high, wide)| vec![high, wide]),
            (600u64..900, 100u64..150).prop_map(|(high, wide)| vec![high, wide]),
        ];
        lengths.prop_filter("C order", |shape| Fortran::new(shape, 1).is_some())
    }

    proptest! {
        #[test]
        fn elements_are_those_of_the_naive_twin(
            shape in shapes(),
            size in prop::sample::select(&[1usize, 2, 4, 8][..]),
            between in prop_oneof![Just(0u64), 1u64..2000],
            (a, b) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        ) {
            let all = shape.iter().product::<u64>() as usize;
            let (a, b) = (a.index(all + 1), b.index(all + 1));
            check(&shape, size, size as u64 + between, a.min(b) as u64, a.abs_diff(b));
            check(&shape, size, size as u64 + between, 0, all);
        }
    }

    #[test]
    fn every_range_of_a_small_array_is_read() {
        for (shape, size) in [(&[3, 4][..], 8), (&[2, 3, 4], 1), (&[3, 1, 2, 2], 2), (&[5, 3], 4)] {
            let all = shape.iter().product::<u64>();
            for first in 0..=all {
                for end in first..=all {
                    // Far apart, columns are read; otherwise all columns are read for each row.
                    check(shape, size, 8, first, (end - first) as usize);
                    check(shape, size, 10_000, first, (end - first) as usize);
                }
            }
        }
    }

    #[test]
    fn each_column_is_read_at_once() {
        // Three rows, the first and the last of which are not whole.
        assert_eq!(check(&[1000, 5], 8, 8, 12, 9), [2, 1, 2, 2, 2]);
        assert_eq!(check(&[1000, 5], 8, 8, 1000, 2500), [500; 5]);
        // A block is as high as the buffer permits: 260 KiB, of 8 columns of f64 at least.
        assert_eq!(check(&[9000, 10], 8, 8, 0, 90_000), [[4160; 10], [4160; 10], [680; 10]].concat());
        assert_eq!(check(&[5000, 20], 8, 8, 0, 100_000), [[4160; 20], [840; 20]].concat());
        // The other axes are those of the file, too.
        assert_eq!(check(&[600, 3, 2], 4, 4, 600, 3000), [500; 6]);
    }

    #[test]
    fn less_than_a_slice_is_read_along_the_next_axis() {
        assert_eq!(check(&[1000, 300], 8, 8, 310, 280), [280]);
        assert_eq!(check(&[1000, 300], 8, 8, 310, 300), [290, 10]);
        assert_eq!(check(&[1000, 30, 20], 8, 8, 610, 100), [5; 20]);
        // 16 rows of columns of 128 bytes are less than what a call takes, and 17 of 256 bytes are more.
        assert_eq!(check(&[16, 500], 8, 8, 0, 8000), [500; 16]);
        assert_eq!(check(&[64, 500], 4, 4, 0, 8500), [17; 500]);
    }

    #[test]
    fn c_order_may_be_the_same() {
        for shape in [&[][..], &[7], &[1, 7], &[1, 1, 7, 1], &[0, 3], &[3, 0, 1 << 62]] {
            assert!(Fortran::new(shape, 8).is_none(), "{shape:?}");
        }
        assert_eq!(Fortran::new(&[1, 4, 1, 3], 8).unwrap().index_of(7), 2);
    }

    #[test]
    fn an_error_ends_the_reading() {
        let fortran = Fortran::new(&[1000, 5], 8).unwrap();
        let fails =
            |at: u64, _: u64, _: &mut [u8]| if at < 16_000 { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        for (first, rows) in [(0, 30), (0, 5)] {
            let result = fortran.read(first, &mut vec![0; rows * 8], 8, fails);
            assert_eq!(result.is_err(), rows == 30);
        }
    }
}
