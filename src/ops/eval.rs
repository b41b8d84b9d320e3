//! The operator `eval`: an expression over the rows of the inputs, with outputs and reductions.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::Operator;
use super::fold::{Combine, Fold};
use crate::data::Scalar;
use crate::device::kernel::{Resident, SharedKernel};
use crate::expr::{self, Program, Reduction};

pub(crate) struct Eval {
    program: Arc<Program>,
    kernel: SharedKernel,
    fold: Mutex<Fold>,
}

impl Eval {
    /// `resident` are the inputs that are one row for all rows.
    pub(crate) fn new(program: Program, resident: Vec<Arc<Resident>>) -> Self {
        let program = Arc::new(program);
        Eval { kernel: Arc::new(program.kernel_with(resident)), program, fold: Mutex::default() }
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
        // Most of the work is done outside the lock: a chunk is reduced to a few nodes first.
        let nodes = Fold::of_tiles(first_row, rows, partials, self.program.reductions());
        self.fold.lock().unwrap_or_else(PoisonError::into_inner).merge(nodes, self.program.reductions());
    }

    fn restart(&self) {
        *self.fold.lock().unwrap_or_else(PoisonError::into_inner) = Fold::default();
    }

    fn compacts(&self) -> bool {
        self.program.is_filtered()
    }

    fn difference(&self, one: &[u64], other: &[u64], rows: u64) -> Option<[String; 3]> {
        with_words(self.program.reductions()).find_map(|(reduction, own)| {
            let text = |state: &[u64]| {
                let value = reduction.finish(Some(state), rows).map_or_else(String::new, |value| value.to_string());
                let bits: Vec<_> = state.iter().map(|word| format!("{word:#x}")).collect();
                format!("{value} ({})", bits.join(" "))
            };
            let [one, other] = [one, other].map(|state| &state[own.clone()]);
            let what = || match reduction.is_result() {
                true => format!("the partial result of '{}'", reduction.label()),
                false => "the number of selected rows".into(),
            };
            (one != other).then(|| [what(), text(one), text(other)])
        })
    }

    fn state(&self) -> (Vec<Reduction>, Fold) {
        let fold = self.fold.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (self.program.reductions().to_vec(), fold)
    }

    /// The value of every reduction, in the order of the expression.
    fn results(&self, rows: u64) -> Vec<(String, Option<Scalar>)> {
        let fold = self.fold.lock().unwrap_or_else(PoisonError::into_inner).clone();
        results(self.program.reductions(), fold, rows)
    }
}

/// Returns each reduction with the words of its state.
fn with_words(reductions: &[Reduction]) -> impl Iterator<Item = (&Reduction, Range<usize>)> {
    let mut word = 0;
    reductions.iter().map(move |reduction| {
        let own = word..word + reduction.words();
        word = own.end;
        (reduction, own)
    })
}

/// Returns the label and the value of each reduction over `rows` rows, of whose tiles these are the nodes.
pub(crate) fn results(reductions: &[Reduction], nodes: Fold, rows: u64) -> Vec<(String, Option<Scalar>)> {
    expr::results(reductions, nodes.finish(reductions).as_deref(), rows)
}

impl Combine for [Reduction] {
    fn words(&self) -> usize {
        self.iter().map(|reduction| reduction.words()).sum()
    }

    fn combine(&self, mut left: &mut [u64], mut right: &[u64]) {
        for reduction in self {
            let (l, l_rest) = left.split_at_mut(reduction.words());
            let (r, r_rest) = right.split_at(reduction.words());
            reduction.combine(l, r);
            (left, right) = (l_rest, r_rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dtype;
    use crate::device::kernel::{TILE_ROWS, Uniform};
    use crate::expr::Expression;

    const TEXT: &str = "sum(x), sum(x * x), sum(1 / x), mean(x), mean(x * x), var(x), var(x * x), std(x), std(1 / x)";

    /// The results of the reductions of a fixed column, with chunks in a given order.
    fn results(rows: usize, chunk_tiles: usize, order: impl Fn(&mut Vec<usize>)) -> Vec<(String, u64)> {
        let expression = Expression::parse(TEXT).unwrap();
        let eval = Eval::new(expression.bind(&[("x".into(), Dtype::F64)], &[], &[], &[]).unwrap(), vec![]);
        let (mut state, mut row) = (1_u64, 0);
        let column: Vec<f64> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Exact on every machine: integers divided by powers of two, so that mean and spread differ between tiles.
            let (tile, noise) = (row / TILE_ROWS, (state >> 11) as f64 / (1_u64 << 53) as f64);
            row += 1;
            (noise + (tile * 37 % 29) as f64) * (1 << (tile * 5 % 7)) as f64 + 0.125
        })
        .take(rows)
        .collect();
        let mut starts: Vec<usize> = (0..rows).step_by(chunk_tiles * TILE_ROWS).collect();
        order(&mut starts);
        let mut host = eval.kernel().new_host_kernel().unwrap();
        for start in starts {
            let part = &column[start..rows.min(start + chunk_tiles * TILE_ROWS)];
            let mut partials = vec![0_u64; eval.kernel().columns.partial_bytes(part.len()) / 8];
            let bytes = bytemuck::cast_slice_mut(&mut partials);
            host.run(start as u64, part.len(), &[bytemuck::cast_slice(part)], &mut [], bytes, &Uniform::default());
            eval.absorb(start as u64, part.len(), bytemuck::cast_slice(&partials));
        }
        let bits = |(label, value): (String, Option<Scalar>)| (label, value.unwrap().bits());
        eval.results(rows as u64).into_iter().map(bits).collect()
    }

    /// The order of float additions determines the results. A release that changes these bits must announce it.
    #[test]
    fn the_order_of_folding_shows_in_these_bits() {
        let expected = [
            ("sum(x)", 0x4177_cf6d_883f_43b4),
            ("sum(x * x)", 0x4219_0dfe_9301_c931),
            ("sum(1 / x)", 0x40c6_7779_a565_6d55),
            ("mean(x)", 0x4069_2525_56ac_20e7),
            ("mean(x * x)", 0x410a_7592_5af3_d099),
            ("var(x)", 0x4105_8504_fd77_93e6),
            ("var(x * x)", 0x4261_3eff_9fc5_4eb0),
            ("std(x)", 0x407a_3de0_d28f_8e5b),
            ("std(1 / x)", 0x3fde_f1fa_2e94_7f2c),
        ];
        // 31 tiles: five nodes remain.
        let rows = 30 * TILE_ROWS + 1234;
        let orders: [fn(&mut Vec<usize>); 3] = [
            |_| {},
            |starts| starts.reverse(),
            |starts| {
                let (even, odd): (Vec<_>, Vec<_>) = starts.iter().enumerate().partition(|(k, _)| k % 2 == 0);
                *starts = odd.into_iter().chain(even).map(|(_, start)| *start).collect();
            },
        ];
        for chunk_tiles in [1, 2, 5, 64] {
            for order in orders {
                let found = results(rows, chunk_tiles, order);
                let found: Vec<_> = found.iter().map(|(label, bits)| (label.as_str(), *bits)).collect();
                assert_eq!(found, expected, "chunks of {chunk_tiles} tiles\n{found:#x?}");
            }
        }
    }
}
