//! Neighbours: `shift(x, 1, edge)` has in each row the value of the row before.
//!
//! Operations on the elements of a row commute with shifts, so a shift moves to what the value is computed from: an
//! input is read at the row that a [`View`] gives, and the row number is the one of that row. So a kernel computes a
//! neighbour anew from the inputs, whose chunks have halos.

use super::fault::Fault;
use super::ir::{Id, Node, Nodes, Op};
use super::reduce::Reduction;
use super::scan;
use super::shape::{Extent, RowShape};
use super::view::{Step, View};
use super::words::{Binary, Kind, Window};
use crate::data::Dtype;
use crate::device::kernel::Halo;

/// The most operations of an expression with neighbours: the compiler takes about a minute for so many.
const MOST_OPERATIONS: usize = 20_000;

/// The most rows between a row and one that its value is computed from.
const MOST_REACH: u64 = 65_536;

/// The most bytes of the rows at both ends of inputs that every device has.
const MOST_END_BYTES: u64 = 1 << 30;

/// Moves a value by a step: the inputs that it is computed from are read there.
pub(super) fn shifted(at: usize, nodes: &mut Nodes, root: Id, step: Step, row: &RowShape) -> Result<Id, Fault> {
    let mut needed = vec![false; root + 1];
    needed[root] = true;
    for id in (0..=root).rev() {
        if needed[id] {
            nodes.node(id).op.operands().for_each(|operand| needed[operand] = true);
        }
    }
    let mut moved = vec![0; root + 1];
    for id in (0..=root).filter(|id| needed[*id]) {
        let node = nodes.node(id);
        moved[id] = match node.op {
            Op::Input(input) if row.extent(input) == Extent::PerColumn => id,
            Op::Input(input) => {
                let view = view(at, nodes, step, None)?;
                push_input(nodes, input, view, node.dtype)
            }
            Op::At(input, old) => {
                let view = view(at, nodes, step, Some(old))?;
                push_input(nodes, input, view, node.dtype)
            }
            Op::Row => {
                let view = view(at, nodes, step, None)?;
                push_row(nodes, view)
            }
            Op::RowAt(old) => {
                let view = view(at, nodes, step, Some(old))?;
                push_row(nodes, view)
            }
            Op::Element => {
                let view = view(at, nodes, step, None)?;
                element(nodes, view, row.width())
            }
            Op::RunningSum(..) => return Err(Fault::new(at, scan::MOVED)),
            op => nodes.push(op.with(|operand| moved[operand]), node.dtype),
        };
    }
    if nodes.len() > MOST_OPERATIONS {
        let message = format!(
            "with its neighbours, the expression has more than {MOST_OPERATIONS} operations; write a part of it to an \
             output first, and read that in another job"
        );
        return Err(Fault::new(at, message));
    }
    Ok(moved[root])
}

/// The view that makes a step, and then those of another view.
fn view(at: usize, nodes: &Nodes, step: Step, old: Option<usize>) -> Result<View, Fault> {
    let none = View::default();
    let view = View::then(step, old.map_or(&none, |old| &nodes.views[old]));
    if view.reach() > MOST_REACH {
        let message =
            format!("shifts of shifts reach over {} rows here; at most {MOST_REACH} are supported", view.reach());
        return Err(Fault::new(at, message));
    }
    Ok(view)
}

fn push_input(nodes: &mut Nodes, input: usize, view: View, dtype: Dtype) -> Id {
    match view.is_row_itself() {
        true => nodes.push(Op::Input(input), dtype),
        false => {
            let view = nodes.view(view);
            nodes.push(Op::At(input, view), dtype)
        }
    }
}

fn push_row(nodes: &mut Nodes, view: View) -> Id {
    match view.is_row_itself() {
        true => nodes.push(Op::Row, Dtype::I64),
        false => {
            let view = nodes.view(view);
            nodes.push(Op::RowAt(view), Dtype::I64)
        }
    }
}

/// The number of the element in the same column of the row that a view gives.
fn element(nodes: &mut Nodes, view: View, width: usize) -> Id {
    let (there, here) = (push_row(nodes, view), nodes.push(Op::Row, Dtype::I64));
    let rows = nodes.push(Op::Binary(Binary::Sub, there, here), Dtype::I64);
    let width = nodes.push(Op::Constant(width as u64), Dtype::I64);
    let elements = nodes.push(Op::Binary(Binary::Mul, rows, width), Dtype::I64);
    let element = nodes.push(Op::Element, Dtype::I64);
    nodes.push(Op::Binary(Binary::Add, element, elements), Dtype::I64)
}

/// A `bool` that is true where a shift by so many rows backwards reads a row that exists.
pub(super) fn is_inside(nodes: &mut Nodes, by: i64) -> Id {
    let row = nodes.push(Op::Row, Dtype::I64);
    match by {
        1.. => {
            let first = nodes.push(Op::Constant(by as u64), Dtype::I64);
            nodes.push(Op::Binary(Binary::Ge, row, first), Dtype::Bool)
        }
        _ => {
            let total = nodes.push(Op::TotalRows, Dtype::I64);
            let by = nodes.push(Op::Constant(by as u64), Dtype::I64);
            let end = nodes.push(Op::Binary(Binary::Add, total, by), Dtype::I64);
            nodes.push(Op::Binary(Binary::Lt, row, end), Dtype::Bool)
        }
    }
}

/// How a window combines values of a dtype: the dtype in which it does so, that of its result, and the operation.
pub(super) fn of_window(window: Window, dtype: Dtype) -> (Dtype, Dtype, Binary) {
    let of = |kind| {
        let reduction = Reduction::new(String::new(), kind, dtype);
        (reduction.state, reduction.result_dtype(), Binary::Add)
    };
    match window {
        Window::Sum => of(Kind::Sum),
        Window::Mean => of(Kind::Mean),
        Window::Min => (dtype, dtype, Binary::Min),
        Window::Max => (dtype, dtype, Binary::Max),
    }
}

/// What a program reads beside the rows of a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Neighbourhood {
    pub(super) views: Vec<View>,
    /// The halo of each input; empty if no input has one.
    pub(super) halos: Vec<Halo>,
    /// The inputs that are read around the ends, each with the rows at both ends that a kernel needs.
    pub(super) ends: Vec<(usize, usize)>,
    /// Whether the kernel receives the number of rows of the job.
    pub(super) reads_total: bool,
}

impl Neighbourhood {
    /// What these operations read.
    pub(super) fn of(nodes: &[Node], views: Vec<View>, inputs: usize) -> Neighbourhood {
        let mut found = Neighbourhood { views, ..Neighbourhood::default() };
        for node in nodes {
            match node.op {
                Op::At(input, view) => {
                    found.reads_total = true;
                    found.halos.resize(inputs, Halo::default());
                    let (view, halo) = (&found.views[view], &mut found.halos[input]);
                    let Halo { before, after } = view.halo();
                    *halo = Halo { before: halo.before.max(before), after: halo.after.max(after) };
                    if view.wraps() {
                        let rows = view.reach() as usize;
                        match found.ends.iter_mut().find(|(own, _)| *own == input) {
                            Some((_, most)) => *most = rows.max(*most),
                            None => found.ends.push((input, rows)),
                        }
                    }
                }
                Op::RowAt(_) | Op::TotalRows => found.reads_total = true,
                _ => {}
            }
        }
        found.ends.sort_unstable();
        found
    }

    /// The halo of an input.
    pub(super) fn halo(&self, input: usize) -> Halo {
        self.halos.get(input).copied().unwrap_or_default()
    }

    /// Checks that the rows at both ends of inputs, which have so many bytes in a row, are not too large together.
    pub(super) fn check(&self, row_bytes: impl Fn(usize) -> usize) -> Result<(), Fault> {
        let bytes = |(input, rows): &(usize, usize)| (2 * *rows as u64).saturating_mul(row_bytes(*input) as u64);
        match Some(self.ends.iter().map(bytes).fold(0, u64::saturating_add)).filter(|bytes| *bytes > MOST_END_BYTES) {
            Some(bytes) => {
                let message = format!(
                    "with `wrap`, every device has the rows at both ends of inputs, which are {bytes} bytes here; at \
                     most {MOST_END_BYTES} are supported"
                );
                Err(Fault::new(0, message))
            }
            None => Ok(()),
        }
    }
}
