//! Sweeps over a row: a reduction within rows is known when the whole row has been read, so what depends on it needs
//! another sweep, over the same row.

use super::ir::{Id, Op};
use super::program::Program;
use super::shape::Extent;

/// What a sweep over the elements of a row computes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sweep {
    /// The operations, each after its operands. Reductions among them are those of earlier sweeps, if there are any.
    pub(super) nodes: Vec<Id>,
    /// The reductions within rows that are known after it.
    pub(super) reduces: Vec<Id>,
    /// Whether all of it is the same for all elements of a row, so that it is computed for one of them.
    pub(super) is_of_row: bool,
}

/// The sweeps of a program. The last one computes the outputs and what is reduced over all rows. If a row is `whole`,
/// all of its elements are computed at a time, and one sweep does all.
pub(super) fn of(program: &Program, is_whole: bool) -> Vec<Sweep> {
    let nodes = &program.nodes;
    if is_whole || !program.reduces_within() {
        return vec![Sweep { nodes: (0..nodes.len()).collect(), reduces: vec![], is_of_row: false }];
    }
    // The number of sweeps before a value is known.
    let mut after = vec![0_usize; nodes.len()];
    for (id, node) in nodes.iter().enumerate() {
        let of_operands = node.op.operands().map(|operand| after[operand]).max().unwrap_or(0);
        after[id] = of_operands + usize::from(matches!(node.op, Op::Reduce(..)));
    }
    // Nothing but values of whole rows. A number is a value of every element, too.
    let stores_rows =
        program.reductions.is_empty() && program.output_extents.iter().all(|extent| *extent == Extent::PerRow);
    let last = after.iter().copied().max().unwrap_or(0);
    let sweep = |number: usize| {
        let reduces: Vec<Id> =
            program.row_reductions().map(|(id, ..)| id).filter(|id| after[*id] == number + 1).collect();
        let of_reductions = reduces.iter().flat_map(|id| nodes[*id].op.operands());
        let roots: Vec<Id> = if number == last { program.roots().collect() } else { of_reductions.collect() };
        let mut needed = vec![false; nodes.len()];
        roots.into_iter().for_each(|root| needed[root] = true);
        for id in (0..nodes.len()).rev() {
            if needed[id] && !matches!(nodes[id].op, Op::Reduce(..)) {
                nodes[id].op.operands().for_each(|operand| needed[operand] = true);
            }
        }
        let own: Vec<Id> = (0..nodes.len()).filter(|id| needed[*id]).collect();
        let is_of_row = number == last && stores_rows;
        Sweep { nodes: own, reduces, is_of_row }
    };
    (0..=last).map(sweep).collect()
}
