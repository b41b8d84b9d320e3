//! Moving windows on the host: the sum, minimum or maximum of an input in several rows is one loop.
//!
//! In a program, a window is a chain of operations, one for each of its rows. Operation by operation, every row of a
//! window would be a pass over the block, or several: one that tells whether the row exists, one that chooses the value
//! of the border if not, and one that converts. Where all rows of a block have whole windows, a loop keeps the results
//! of some elements in vector registers while it goes through the window. It does the same operations in the same
//! order, so it has the same bits. Blocks at an end of the job are computed operation by operation.

use std::ops::Range;

use bytemuck::{Pod, cast_slice};

use super::apply::{self, Block, Rows, Target, for_all, for_floats, for_ints};
use super::ir::{Id, Node, Op};
use super::program::Program;
use super::scalar::{Value, greatest, least};
use super::shape::Extent;
use super::view::Way;
use super::words::Binary;
use crate::data::Dtype;

/// A chain of fewer operations is computed one by one.
const FEWEST_ROWS: usize = 4;

/// The elements whose results are in registers at a time.
const LANES: usize = 32;

/// The sum, minimum or maximum of an input in several rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MovingWindow {
    /// The result.
    pub(super) id: Id,
    input: usize,
    op: Binary,
    from: Dtype,
    to: Dtype,
    /// By how many rows each row of the window is moved, in the order in which they are combined.
    rows: Vec<i64>,
    /// The way to all of them.
    way: Way,
}

impl MovingWindow {
    /// Returns the window whose result is that of an operation.
    fn of(program: &Program, id: Id) -> Option<MovingWindow> {
        let Node { op: Op::Binary(op, ..), dtype } = program.nodes[id] else { return None };
        let (mut rows, mut way, mut next, mut input) = (vec![], Way::default(), id, None);
        let mut add = |of: Id| {
            let (own, moved, of_row) = row_of(program, of)?;
            rows.push(moved);
            way = way.and(of_row);
            (*input.get_or_insert(own) == own).then_some(())
        };
        // The last row of the window is the second operand of the last operation.
        while let Node { op: Op::Binary(own, before, last), dtype: of } = program.nodes[next]
            && (own, of) == (op, dtype)
        {
            add(last)?;
            next = before;
        }
        add(next)?;
        rows.reverse();
        let input = input?;
        let from = program.inputs[input].1;
        let window = MovingWindow { id, input, op, from, to: dtype, rows, way };
        (window.rows.len() >= FEWEST_ROWS && window.has_loop()).then_some(window)
    }

    fn has_loop(&self) -> bool {
        let MovingWindow { op, from, to, .. } = *self;
        let is_wider = match to {
            Dtype::F64 => from != Dtype::Bool && !from.is_half(),
            Dtype::I64 => matches!(from, Dtype::I8 | Dtype::I16 | Dtype::I32),
            Dtype::U64 => matches!(from, Dtype::U8 | Dtype::U16 | Dtype::U32),
            _ => false,
        };
        let is_same = from == to && from != Dtype::Bool && !from.is_half();
        is_same && matches!(op, Binary::Add | Binary::Min | Binary::Max) || is_wider && op == Binary::Add
    }

    /// Whether these rows have whole windows in a job of so many rows.
    pub(super) fn is_whole(&self, rows: &Range<u64>, total: u64) -> bool {
        self.way.is_inside(rows, total)
    }

    /// Computes a block whose rows have whole windows.
    pub(super) fn apply(&self, block: &Block<'_>, target: Target<'_>) {
        match self.op {
            Binary::Min => for_all!(self.from, T => self.run(block, target, |value: T| value, least::<T>)),
            Binary::Max => for_all!(self.from, T => self.run(block, target, |value: T| value, greatest::<T>)),
            _ if self.from == self.to => for_ints!(
                self.from,
                T => self.run(block, target, |value: T| value, T::wrapping_add),
                else for_floats!(self.from, T => self.run(block, target, |value: T| value, |a: T, b| a + b), else {})
            ),
            _ if self.to == Dtype::F64 => for_ints!(
                self.from,
                T => self.run(block, target, |value: T| value as f64, |a, b| a + b),
                else self.run(block, target, |value: f32| f64::from(value), |a, b| a + b)
            ),
            _ => match self.from {
                Dtype::I8 => self.run(block, target, |value: i8| i64::from(value), i64::wrapping_add),
                Dtype::I16 => self.run(block, target, |value: i16| i64::from(value), i64::wrapping_add),
                Dtype::I32 => self.run(block, target, |value: i32| i64::from(value), i64::wrapping_add),
                Dtype::U8 => self.run(block, target, |value: u8| u64::from(value), u64::wrapping_add),
                Dtype::U16 => self.run(block, target, |value: u16| u64::from(value), u64::wrapping_add),
                Dtype::U32 => self.run(block, target, |value: u32| u64::from(value), u64::wrapping_add),
                _ => {}
            },
        }
    }

    fn run<A: Pod, R: Value>(
        &self,
        block: &Block<'_>,
        target: Target<'_>,
        convert: impl Fn(A) -> R,
        combine: impl Fn(R, R) -> R,
    ) {
        let input = block.inputs[self.input];
        let first = (input.front * block.width + block.start) as i64;
        // None is before the first element, because the input has the rows that the window reads.
        let starts = self.rows.iter().map(|moved| (first + moved * block.width as i64) as usize).collect();
        let windows = Windows { values: cast_slice(input.rows), starts, convert, combine };
        apply::run(target, block.elements, windows);
    }
}

/// If an operation reads an input wherever the row that it reads exists: the input, by how many rows that row is moved,
/// and the way there.
fn row_of(program: &Program, id: Id) -> Option<(usize, i64, Way)> {
    let of_cast = |id: Id| match program.nodes[id].op {
        Op::Cast(of) => of,
        _ => id,
    };
    let converted = of_cast(id);
    let (exists, read) = match program.nodes[converted].op {
        Op::Select(condition, then, _) => (Some(exists_before(program, condition)?), then),
        _ => (None, converted),
    };
    // Converted once at most.
    let read = if converted == id { of_cast(read) } else { read };
    let (input, (moved, way)) = match program.nodes[read].op {
        Op::Input(input) => (input, (0, Way::default())),
        Op::At(input, view) => (input, program.near.views[view].way()),
        _ => return None,
    };
    let is_read_there = program.row.extent(input) == Extent::Full && exists.is_none_or(|own| own == -moved);
    is_read_there.then_some((input, moved, way))
}

/// Returns the number of rows if a condition is that the row so many before exists: [`super::neighbours::is_inside`].
fn exists_before(program: &Program, condition: Id) -> Option<i64> {
    let nodes = &program.nodes;
    match nodes[condition].op {
        Op::Binary(Binary::Ge, row, first) => match (nodes[row].op, nodes[first].op) {
            (Op::Row, Op::Constant(before)) => Some(before as i64),
            _ => None,
        },
        Op::Binary(Binary::Lt, row, end) => match (nodes[row].op, nodes[end].op) {
            (Op::Row, Op::Binary(Binary::Add, total, before)) => match (nodes[total].op, nodes[before].op) {
                (Op::TotalRows, Op::Constant(before)) => Some(before as i64),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// The windows of a program, and the operations that remain where they are whole, in their order.
pub(super) fn of(program: &Program) -> (Vec<MovingWindow>, Vec<Id>) {
    let mut needed = vec![false; program.nodes.len()];
    program.roots().for_each(|root| needed[root] = true);
    let mut windows = vec![];
    for id in (0..needed.len()).rev() {
        if !needed[id] {
            continue;
        }
        match MovingWindow::of(program, id) {
            Some(window) => windows.push(window),
            None => program.nodes[id].op.operands().for_each(|operand| needed[operand] = true),
        }
    }
    let remaining = (0..needed.len()).filter(|id| needed[*id]).collect();
    (windows, remaining)
}

/// The windows of the elements of a block.
struct Windows<'a, A, C, F> {
    values: &'a [A],
    /// Where the elements of the block are in each row of their windows.
    starts: Vec<usize>,
    convert: C,
    combine: F,
}

impl<A: Pod, R: Value, C: Fn(A) -> R, F: Fn(R, R) -> R> Rows<R> for Windows<'_, A, C, F> {
    #[inline(always)]
    fn compute(&self, rows: Range<usize>, out: &mut [R], then: impl Fn(R) -> R) {
        let Some((first, rest)) = self.starts.split_first() else { return };
        let mut begin = rows.start;
        let mut groups = out.chunks_exact_mut(LANES);
        for group in &mut groups {
            let mut lanes = [R::zeroed(); LANES];
            let of_row = |start: usize| match self.values[start + begin..].first_chunk::<LANES>() {
                Some(values) => values,
                None => panic!("a window reads beyond the rows of its input"),
            };
            let values = of_row(*first);
            for lane in 0..LANES {
                lanes[lane] = (self.convert)(values[lane]);
            }
            for start in rest {
                let values = of_row(*start);
                for lane in 0..LANES {
                    lanes[lane] = (self.combine)(lanes[lane], (self.convert)(values[lane]));
                }
            }
            for lane in 0..LANES {
                group[lane] = then(lanes[lane]);
            }
            begin += LANES;
        }
        for (slot, element) in groups.into_remainder().iter_mut().zip(begin..) {
            let value = |start: &usize| (self.convert)(self.values[start + element]);
            *slot = then(rest.iter().fold(value(first), |all, start| (self.combine)(all, value(start))));
        }
    }
}
