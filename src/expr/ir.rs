//! The intermediate representation: a list of typed operations, each on the results of earlier ones.

use std::collections::HashMap;

use super::view::View;
use super::words::{Binary, Kind, Unary};
use crate::data::Dtype;

/// The result of an operation: its index in the list.
pub(super) type Id = usize;

/// An operation. The operands of [`Unary`] and [`Binary`] operations have the same dtype. It is neither `f16` nor
/// `bf16`, unless the operation is [`Binary::NextAfter`] or [`Unary::Key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Op {
    Input(usize),
    /// An input at the row that a view gives.
    At(usize, usize),
    /// A scalar, which is known only when the kernel runs.
    Value(usize),
    /// The global row number.
    Row,
    /// The number of the row that a view gives.
    RowAt(usize),
    /// The number of rows of the job.
    TotalRows,
    /// The global number of the element, in rows of several.
    Element,
    /// The number of the element in its row, in rows of several.
    Column,
    /// A value by its bits: sign-extended for integers, 0 or 1 for `bool`.
    Constant(u64),
    Cast(Id),
    Unary(Unary, Id),
    Binary(Binary, Id, Id),
    /// The second operand where the first, a `bool`, is true; otherwise the third.
    Select(Id, Id, Id),
    /// The sum of the operand, an `i64`, `u64` or `f64`, in a row and all rows before it. The input has the sums of the
    /// rows before each tile.
    RunningSum(Id, usize),
    /// The sum, product, minimum or maximum of the elements of each row, or the column of one of the latter.
    Reduce(Kind, Id),
}

impl Op {
    /// The operands.
    pub(super) fn operands(self) -> impl Iterator<Item = Id> {
        let operands = match self {
            Op::Input(_) | Op::At(..) | Op::Value(_) | Op::Constant(_) => [None; 3],
            Op::Row | Op::RowAt(_) | Op::TotalRows | Op::Element | Op::Column => [None; 3],
            Op::Cast(a) | Op::Unary(_, a) | Op::Reduce(_, a) | Op::RunningSum(a, _) => [Some(a), None, None],
            Op::Binary(_, a, b) => [Some(a), Some(b), None],
            Op::Select(a, b, c) => [Some(a), Some(b), Some(c)],
        };
        operands.into_iter().flatten()
    }

    /// The same operation on other operands.
    pub(super) fn with(self, of: impl Fn(Id) -> Id) -> Op {
        match self {
            Op::Cast(a) => Op::Cast(of(a)),
            Op::Unary(op, a) => Op::Unary(op, of(a)),
            Op::Binary(op, a, b) => Op::Binary(op, of(a), of(b)),
            Op::Select(a, b, c) => Op::Select(of(a), of(b), of(c)),
            Op::Reduce(kind, a) => Op::Reduce(kind, of(a)),
            Op::RunningSum(a, before) => Op::RunningSum(of(a), before),
            Op::Input(_) | Op::At(..) | Op::Value(_) | Op::Constant(_) => self,
            Op::Row | Op::RowAt(_) | Op::TotalRows | Op::Element | Op::Column => self,
        }
    }
}

/// An operation with the dtype of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) op: Op,
    pub(super) dtype: Dtype,
}

/// Builds a list of operations without duplicates.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    list: Vec<Node>,
    known: HashMap<Node, Id>,
    /// The views of inputs and of row numbers.
    pub(super) views: Vec<View>,
}

impl Nodes {
    /// Adds an operation. One on `f16` or `bf16` is computed as `f32`, and then rounded. Casts from these dtypes are
    /// from that `f32`, and casts to them are from an `f32` or an `f64`.
    pub(super) fn push(&mut self, op: Op, dtype: Dtype) -> Id {
        let is_half = |of: Id| self.dtype(of).is_half();
        match op {
            Op::Binary(Binary::NextAfter, ..) | Op::Unary(Unary::Key, _) => self.add(op, dtype),
            Op::Cast(of) if is_half(of) && dtype != Dtype::F32 => {
                let wide = self.add(op, Dtype::F32);
                self.push(Op::Cast(wide), dtype)
            }
            Op::Cast(of) if dtype.is_half() && !self.dtype(of).is_float() => {
                let wide = self.add(op, Dtype::F32);
                self.add(Op::Cast(wide), dtype)
            }
            Op::Unary(_, of) | Op::Binary(_, of, _) if is_half(of) => {
                let operands: HashMap<Id, Id> =
                    op.operands().map(|of| (of, self.add(Op::Cast(of), Dtype::F32))).collect();
                let op = op.with(|of| operands[&of]);
                if dtype.is_half() {
                    let wide = self.add(op, Dtype::F32);
                    self.add(Op::Cast(wide), dtype)
                } else {
                    self.add(op, dtype)
                }
            }
            _ => self.add(op, dtype),
        }
    }

    fn add(&mut self, op: Op, dtype: Dtype) -> Id {
        let node = Node { op, dtype };
        *self.known.entry(node).or_insert_with(|| {
            self.list.push(node);
            self.list.len() - 1
        })
    }

    /// The number of a view.
    pub(super) fn view(&mut self, view: View) -> usize {
        let known = self.views.iter().position(|own| *own == view);
        known.unwrap_or_else(|| {
            self.views.push(view);
            self.views.len() - 1
        })
    }

    /// The operations so far, each after its operands.
    pub(super) fn list(&self) -> &[Node] {
        &self.list
    }

    pub(super) fn node(&self, id: Id) -> Node {
        self.list[id]
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn dtype(&self, id: Id) -> Dtype {
        self.list[id].dtype
    }

    /// Removes operations that no root needs. Returns the list and the new indices of the roots.
    pub(super) fn keep(self, roots: &[Id]) -> (Vec<Node>, Vec<Id>) {
        let mut needed = vec![false; self.list.len()];
        for &root in roots {
            needed[root] = true;
        }
        for id in (0..self.list.len()).rev().collect::<Vec<_>>() {
            if needed[id] {
                self.list[id].op.operands().for_each(|operand| needed[operand] = true);
            }
        }
        let mut moved = vec![0; self.list.len()];
        let mut kept = Vec::new();
        for (id, node) in self.list.into_iter().enumerate().filter(|(id, _)| needed[*id]) {
            moved[id] = kept.len();
            kept.push(Node { op: node.op.with(|operand| moved[operand]), ..node });
        }
        let roots = roots.iter().map(|root| moved[*root]).collect();
        (kept, roots)
    }
}
