//! Where the elements of an array are in its chunks.

use std::ops::Range;

/// What is kept of a decoded chunk beside its elements: where it is, how many use it, and what the allocator needs.
const BESIDE: u64 = 96;

/// The chunks of an array, in C order. The chunks that begin at the same index along the first axis are a **slab**.
#[derive(Debug)]
pub(super) struct Grid {
    /// Outermost first; at least one. An axis along which chunks are as long as the array belongs to the axis before,
    /// so that the elements of a chunk are adjacent in longer pieces.
    axes: Vec<Axis>,
    /// The number of chunks along each axis of the array.
    counts: Vec<u64>,
    /// The bytes of an element.
    size: usize,
}

#[derive(Clone, Copy, Debug)]
struct Axis {
    /// The length of the array and of a chunk.
    length: u64,
    chunk: u64,
    /// The elements from an index to the next one: in the array, and in a chunk.
    stride: u64,
    chunk_stride: u64,
}

impl Axis {
    fn count(&self) -> u64 {
        self.length.div_ceil(self.chunk)
    }
}

impl Grid {
    /// Returns the chunks of an array whose elements have so many bytes; `None` if no memory could have so many bytes.
    /// No chunk has a length of 0.
    pub(super) fn new(shape: &[u64], chunk: &[u64], size: usize) -> Option<Grid> {
        let counts: Vec<u64> = shape.iter().zip(chunk).map(|(length, chunk)| length.div_ceil(*chunk)).collect();
        let mut lengths: Vec<(u64, u64)> = Vec::new();
        for own in shape.iter().copied().zip(chunk.iter().copied()) {
            match lengths.last_mut() {
                Some((length, chunk)) if own.0 == own.1 => {
                    (*length, *chunk) = (length.checked_mul(own.0)?, chunk.checked_mul(own.1)?);
                }
                _ => lengths.push(own),
            }
        }
        if lengths.is_empty() {
            lengths.push((1, 1));
        }
        let (mut stride, mut chunk_stride) = (1u64, 1u64);
        let mut axes = Vec::new();
        for &(length, chunk) in lengths.iter().rev() {
            axes.push(Axis { length, chunk, stride, chunk_stride });
            stride = stride.checked_mul(length)?;
            chunk_stride = chunk_stride.checked_mul(chunk)?;
        }
        axes.reverse();
        let grid = Grid { axes, counts, size };
        let fits = |elements: u64| elements.checked_mul(size as u64).filter(|bytes| isize::try_from(*bytes).is_ok());
        fits(stride)?;
        fits(chunk_stride.checked_mul(grid.slab_chunks()?)?)?;
        Some(grid)
    }

    pub(super) fn elements(&self) -> u64 {
        self.axes[0].length * self.axes[0].stride
    }

    pub(super) fn chunk_bytes(&self) -> u64 {
        self.axes[0].chunk * self.axes[0].chunk_stride * self.size as u64
    }

    fn slab_chunks(&self) -> Option<u64> {
        self.axes[1..].iter().try_fold(1u64, |count, axis| count.checked_mul(axis.count()))
    }

    /// Returns the number of chunks of a slab.
    pub(super) fn chunks(&self) -> usize {
        // It is less than the bytes of a slab, which fit.
        self.slab_chunks().unwrap_or(u64::MAX) as usize
    }

    /// Returns the bytes that a decoded slab takes.
    pub(super) fn slab_memory(&self) -> u64 {
        self.chunk_bytes().saturating_add(BESIDE).saturating_mul(self.chunks() as u64)
    }

    pub(super) fn slabs(&self) -> u64 {
        self.axes[0].count()
    }

    /// Returns the elements of a slab.
    pub(super) fn slab(&self, slab: u64) -> Range<u64> {
        let Axis { length, chunk, stride, .. } = self.axes[0];
        slab * chunk * stride..((slab + 1) * chunk).min(length) * stride
    }

    pub(super) fn slab_of(&self, element: u64) -> u64 {
        element / self.axes[0].stride / self.axes[0].chunk
    }

    /// Returns the chunks of a slab that have these of its elements, and perhaps a few others.
    pub(super) fn chunks_with(&self, elements: &Range<u64>) -> Range<usize> {
        let (mut first, mut inner) = (0, self.chunks());
        let (mut from, mut to) = (elements.start, elements.end - 1);
        for (number, axis) in self.axes.iter().enumerate() {
            let (begin, end) = (from / axis.stride, to / axis.stride);
            (from, to) = (from % axis.stride, to % axis.stride);
            if number > 0 {
                inner /= axis.count() as usize;
                let chunks = begin / axis.chunk..end / axis.chunk + 1;
                if begin != end {
                    return first + chunks.start as usize * inner..first + chunks.end as usize * inner;
                }
                first += chunks.start as usize * inner;
            } else if begin != end {
                return 0..inner;
            }
        }
        first..first + 1
    }

    /// Returns the indices of a chunk of a slab.
    pub(super) fn indices(&self, slab: u64, chunk: usize) -> Vec<u64> {
        let mut rest = chunk as u64;
        let mut indices = self.counts.clone();
        for index in indices.iter_mut().skip(1).rev() {
            (rest, *index) = (rest / *index, rest % *index);
        }
        if let Some(first) = indices.first_mut() {
            *first = slab;
        }
        indices
    }

    /// Fills those elements of `dst`, which begins at element `first`, that a chunk has.
    pub(super) fn copy(&self, slab: u64, chunk: usize, bytes: &[u8], first: u64, dst: &mut [u8]) {
        self.pieces(slab, chunk, first..first + (dst.len() / self.size) as u64, |to, from| {
            dst[to].copy_from_slice(&bytes[from]);
        });
    }

    /// Fills a chunk with those of its elements that `src` has, which begins at element `first`.
    pub(super) fn gather(&self, slab: u64, chunk: usize, src: &[u8], first: u64, bytes: &mut [u8]) {
        self.pieces(slab, chunk, first..first + (src.len() / self.size) as u64, |from, to| {
            bytes[to].copy_from_slice(&src[from]);
        });
    }

    /// Calls `copy` for the adjacent elements that are wanted and that a chunk has: with their bytes among those that
    /// are wanted, and among those of the chunk.
    fn pieces(&self, slab: u64, chunk: usize, wanted: Range<u64>, mut copy: impl FnMut(Range<usize>, Range<usize>)) {
        let mut rest = chunk as u64;
        let mut starts: Vec<u64> = self.axes.iter().map(Axis::count).collect();
        for start in starts.iter_mut().skip(1).rev() {
            (rest, *start) = (rest / *start, rest % *start);
        }
        starts[0] = slab;
        starts.iter_mut().zip(&self.axes).for_each(|(start, axis)| *start *= axis.chunk);
        let bytes = |first: u64, len: u64| first as usize * self.size..(first + len) as usize * self.size;
        let mut piece = |element: u64, own: u64, len: u64| {
            let (begin, end) = (element.max(wanted.start), (element + len).min(wanted.end));
            copy(bytes(begin - wanted.start, end - begin), bytes(own + (begin - element), end - begin));
        };
        pieces(&self.axes, &starts, &wanted, (0, 0), &mut piece);
    }
}

/// Calls `copy` with the adjacent elements of a chunk that have some of those that are wanted: the first one in the
/// array, the first one in the chunk, and their number. `at` is where the axes begin, in the array and in the chunk.
fn pieces(axes: &[Axis], starts: &[u64], wanted: &Range<u64>, at: (u64, u64), copy: &mut impl FnMut(u64, u64, u64)) {
    let ([axis, inner @ ..], [start, starts @ ..]) = (axes, starts) else { return };
    let own = *start..(start + axis.chunk).min(axis.length);
    // The indices whose elements are wanted.
    let begin = (wanted.start.saturating_sub(at.0) / axis.stride).clamp(own.start, own.end);
    let end = wanted.end.saturating_sub(at.0).div_ceil(axis.stride).clamp(begin, own.end);
    if inner.is_empty() {
        if begin < end {
            copy(at.0 + begin, at.1 + (begin - start), end - begin);
        }
        return;
    }
    for index in begin..end {
        let at = (at.0 + index * axis.stride, at.1 + (index - start) * axis.chunk_stride);
        pieces(inner, starts, wanted, at, copy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The number of an element of a chunk, or `None` beyond the end of the array.
    fn element_of(shape: &[u64], chunk: &[u64], indices: &[u64], mut own: u64) -> Option<u64> {
        let mut within = vec![0; chunk.len()];
        for (index, length) in within.iter_mut().zip(chunk).rev() {
            (own, *index) = (own / length, own % length);
        }
        let place = indices.iter().zip(chunk).zip(&within).map(|((index, length), within)| index * length + within);
        place.zip(shape).try_fold(0, |sum, (index, length)| (index < *length).then_some(sum * length + index))
    }

    proptest! {
        /// Every element comes from the chunk that has it, whichever elements are wanted.
        #[test]
        fn elements_are_where_the_chunks_have_them(
            axes in prop::collection::vec((1u64..7, 1u64..5), 0..4),
            from in any::<prop::sample::Index>(),
            len in any::<prop::sample::Index>(),
        ) {
            let (shape, chunk): (Vec<u64>, Vec<u64>) = axes.into_iter().unzip();
            let grid = Grid::new(&shape, &chunk, 2).unwrap();
            let elements = shape.iter().product::<u64>();
            prop_assert_eq!(grid.elements(), elements);
            let first = from.index(elements as usize) as u64;
            let end = first + 1 + len.index((elements - first) as usize) as u64;
            let mut found = vec![u16::MAX; (end - first) as usize];
            for slab in grid.slab_of(first)..=grid.slab_of(end - 1) {
                let own = grid.slab(slab);
                let wanted = own.start.max(first)..own.end.min(end);
                for number in grid.chunks_with(&wanted) {
                    let indices = grid.indices(slab, number);
                    let count = grid.chunk_bytes() / 2;
                    let numbers = (0..count).map(|own| element_of(&shape, &chunk, &indices, own));
                    let values: Vec<u16> = numbers.map(|number| number.map_or(u16::MAX, |own| own as u16)).collect();
                    let to = (wanted.start - first) as usize..(wanted.end - first) as usize;
                    let dst = bytemuck::cast_slice_mut(&mut found[to]);
                    grid.copy(slab, number, bytemuck::cast_slice(&values), wanted.start, dst);
                    // The other way round, what is not wanted stays as it is.
                    let mut back = values.clone();
                    back.iter_mut().filter(|own| wanted.contains(&u64::from(**own))).for_each(|own| *own = u16::MAX);
                    grid.gather(slab, number, dst, wanted.start, bytemuck::cast_slice_mut(&mut back));
                    prop_assert_eq!(back, values);
                }
            }
            prop_assert!(found.iter().map(|own| u64::from(*own)).eq(first..end), "{:?}", found);
            prop_assert_eq!(grid.slabs(), grid.slab_of(elements - 1) + 1);
        }
    }

    #[test]
    fn few_chunks_are_needed_for_a_piece_of_a_wide_row() {
        let grid = Grid::new(&[4, 10, 10], &[2, 2, 5], 8).unwrap();
        assert_eq!((grid.slabs(), grid.chunks(), grid.chunk_bytes()), (2, 10, 160));
        assert_eq!(grid.chunks_with(&(0..200)), 0..10);
        assert_eq!(grid.chunks_with(&(99..101)), 0..10, "two rows");
        assert_eq!(grid.chunks_with(&(120..140)), 2..4);
        assert_eq!(grid.chunks_with(&(125..130)), 3..4);
        assert_eq!(grid.indices(1, 3), [1, 1, 1]);
    }

    #[test]
    fn arrays_that_no_memory_could_hold_have_no_grid() {
        for (shape, chunk) in [
            (&[u64::MAX, 2][..], &[1, 1][..]),
            (&[1 << 40, 1 << 20], &[1, 1]),
            (&[1], &[u64::MAX]),
            (&[1, 1 << 40], &[1 << 30, 3]),
            (&[2, u64::MAX / 2], &[1, 2]),
        ] {
            assert!(Grid::new(shape, chunk, 8).is_none(), "{shape:?}");
        }
        assert_eq!(Grid::new(&[0, 5], &[3, 2], 8).unwrap().elements(), 0);
        assert_eq!(Grid::new(&[5, 0], &[3, 2], 8).unwrap().slabs(), 2);
    }
}
