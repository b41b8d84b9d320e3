//! The state of a job: what the rows that were processed so far have come to.

use super::fold::{Combine, Fold};
use crate::error::Result;
use crate::expr::{self, Reduction, Results};

/// The reductions of a job, and the nodes of their trees so far.
#[derive(Clone, Default)]
pub(crate) struct State {
    /// Those that the kernel computes.
    pub(crate) reductions: Vec<Reduction>,
    pub(crate) nodes: Fold,
    /// The products over the rows, whose tiles are others.
    pub(crate) products: Vec<Reduction>,
    pub(crate) sums: Fold,
}

impl State {
    /// Returns all reductions.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Reduction> {
        self.reductions.iter().chain(&self.products)
    }

    /// Returns the words of a node of the tree of tiles.
    pub(crate) fn node_words(&self) -> usize {
        self.reductions.words()
    }

    /// Returns the words that are kept of each tile.
    pub(crate) fn kept_words(&self) -> usize {
        self.reductions.iter().filter(|one| one.keeps_tiles()).map(|one| one.words() * one.columns()).sum()
    }

    /// Returns whether the other one has the same reductions.
    pub(crate) fn is_like(&self, other: &State) -> bool {
        let [own, others] = [self, other].map(|state| state.all().map(Reduction::key));
        self.products.len() == other.products.len() && own.eq(others)
    }

    /// Adds the nodes of other rows, of the same reductions.
    pub(crate) fn merge(&mut self, other: State) {
        self.nodes.merge(other.nodes, &*self.reductions);
        self.sums.merge(other.sums, &*self.products);
    }

    /// Returns the results over all `rows` rows.
    ///
    /// # Errors
    /// [`Error::InvalidJob`](crate::Error::InvalidJob) if rows have values for which there is no result.
    pub(crate) fn results(&self, rows: u64) -> Result<Results> {
        let State { reductions, nodes, products, sums } = self;
        results((reductions, nodes), (products, sums), rows)
    }
}

/// Returns the results of reductions and of products over the rows, from the trees of all `rows` rows.
///
/// # Errors
/// Those of [`State::results`].
pub(super) fn results(
    (reductions, nodes): (&[Reduction], &Fold),
    (products, sums): (&[Reduction], &Fold),
    rows: u64,
) -> Result<Results> {
    let states = nodes.finish(reductions);
    let mut results = expr::results(reductions, states.as_deref(), nodes.sums(), &nodes.kept(), rows)?;
    let of_products = expr::results(products, sums.finish(products).as_deref(), &[], &[], rows)?;
    results.arrays.extend(of_products.arrays);
    Ok(results)
}
