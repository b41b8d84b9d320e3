//! The operator `eval`: an expression over the rows of the inputs, with outputs and reductions.

use std::sync::{Arc, Mutex, PoisonError};

use super::Operator;
use super::fold::{Combine, Fold};
use crate::data::Scalar;
use crate::device::kernel::SharedKernel;
use crate::expr::Program;

pub(crate) struct Eval {
    program: Arc<Program>,
    kernel: SharedKernel,
    fold: Mutex<Fold>,
}

impl Eval {
    pub(crate) fn new(program: Program) -> Self {
        let program = Arc::new(program);
        Eval { kernel: Arc::new(program.kernel()), program, fold: Mutex::default() }
    }
}

impl Operator for Eval {
    fn kernel(&self) -> &SharedKernel {
        &self.kernel
    }

    fn absorb(&self, first_row: u64, rows: usize, partials: &[u8]) {
        if self.program.reductions().is_empty() {
            return;
        }
        // Most of the work is done before the lock is taken: a chunk comes down to a few nodes.
        let nodes = Fold::of_tiles(first_row, rows, partials, &*self.program);
        self.fold.lock().unwrap_or_else(PoisonError::into_inner).merge(nodes, &*self.program);
    }

    /// The value of every reduction, in the order of the expression.
    fn results(&self, rows: u64) -> Vec<(String, Option<Scalar>)> {
        let fold = std::mem::take(&mut *self.fold.lock().unwrap_or_else(PoisonError::into_inner));
        let state = fold.finish(&*self.program);
        let mut word = 0;
        let each = self.program.reductions().iter().map(|reduction| {
            let own = word..word + reduction.words();
            word = own.end;
            (reduction.label().to_owned(), reduction.finish(state.as_deref().map(|state| &state[own]), rows))
        });
        each.collect()
    }
}

impl Combine for Program {
    fn words(&self) -> usize {
        self.reductions().iter().map(|reduction| reduction.words()).sum()
    }

    fn combine(&self, mut left: &mut [u64], mut right: &[u64]) {
        for reduction in self.reductions() {
            let (l, l_rest) = left.split_at_mut(reduction.words());
            let (r, r_rest) = right.split_at(reduction.words());
            reduction.combine(l, r);
            (left, right) = (l_rest, r_rest);
        }
    }
}
