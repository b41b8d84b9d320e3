//! Layers: the parts of a text between its products with matrices.
//!
//! `x @ w` multiplies each row of `x` by a matrix that is the same for all rows. A library does that, so one kernel
//! computes what is multiplied, and another one what depends on the result. The text is divided into one text for each
//! of these kernels, as it is divided into passes: what is multiplied before a layer is an input of it, whose name is
//! the text of the product.
//!
//! ```text
//!  x.T @ (x @ w - t)        layer 0: x        multiplied by w
//!                           layer 1: (x @ w) - t, an operand of the product over the rows, as x of layer 0 is
//! ```

use std::collections::HashMap;

use super::axes::Along;
use super::fault::Fault;
use super::hints;
use super::parse::{Parsed, Statement, Term, TermId, Tree};
use super::reduce::Reduction;
use super::{product, words};
use crate::data::Dtype;
use crate::device::product::Product;

/// The layers of a text, and its products over the rows whose operands are of different layers.
#[derive(Debug)]
pub(super) struct Divided {
    pub(super) layers: Vec<Layer>,
    pub(super) crossed: Vec<Crossed>,
}

/// A layer: the text that a kernel computes, and what is multiplied after it.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) parsed: Parsed,
    /// The outputs that are no outputs of the job, because they are multiplied.
    pub(super) factors: Vec<String>,
    pub(super) multiplied: Vec<Multiplied>,
}

/// Rows times a matrix.
#[derive(Clone, Debug)]
pub(crate) struct Multiplied {
    /// The name of the result in later layers.
    pub(crate) label: String,
    pub(crate) of: Multiplicand,
    /// The name of the array.
    pub(crate) matrix: String,
    pub(crate) is_transposed: bool,
}

/// What is multiplied.
#[derive(Clone, Debug)]
pub(crate) enum Multiplicand {
    /// An input of the job, as it is.
    Input(String),
    /// An output of the layer, by its name.
    Output(String),
}

/// A product over the rows whose operands are of different layers.
#[derive(Clone, Debug)]
pub(crate) struct Crossed {
    pub(crate) label: String,
    at: usize,
    /// The number of keys, if the left operand is keys.
    keys: Option<u32>,
    /// The left operand and the right one.
    pub(crate) sides: [Multiplicand; 2],
}

impl Crossed {
    /// Whether rows are added by their keys, which are the left operand, an `i32`.
    pub(crate) fn is_by_key(&self) -> bool {
        self.keys.is_some()
    }

    /// The reduction and the product of operands of this dtype, which have these dimensions in each row: one, or none.
    ///
    /// # Errors
    /// A fault if neither has one, or if the product is too large.
    pub(super) fn bind(&self, dtype: Dtype, sides: [Vec<u64>; 2]) -> Result<(Reduction, Product), Fault> {
        product::of_sides((self.at, &self.label), self.keys, dtype, sides)
    }
}

impl Parsed {
    /// The names of the arrays by which rows are multiplied.
    pub(super) fn matrices(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().filter_map(|term| match &term.tree {
            Tree::Times { matrix, .. } => self.matrix(*matrix).map(|(name, _)| name),
            _ => None,
        })
    }

    /// The names of products with matrices in later layers.
    pub(super) fn labels_of_products(&self) -> Vec<String> {
        let label = |term: &Term| if let Tree::Times { label, .. } = &term.tree { Some(label.clone()) } else { None };
        self.terms.iter().filter_map(label).collect()
    }

    /// The name of a matrix, and whether it is transposed.
    fn matrix(&self, term: TermId) -> Option<(&str, bool)> {
        match &self.terms[term].tree {
            Tree::Name(name) => Some((name, false)),
            Tree::Transposed(of) => match &self.terms[*of].tree {
                Tree::Name(name) => Some((name, true)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Checks that rows are multiplied by arrays of the job.
    ///
    /// # Errors
    /// A fault at the first other matrix.
    pub(super) fn check_matrices(&self) -> Result<(), Fault> {
        let is_given = |name: &str| {
            let is_result = self.results().any(|label| label == name);
            !is_result && words::constant(name).is_none() && !self.assigned.iter().any(|own| own == name)
        };
        for term in &self.terms {
            if let Tree::Times { matrix, .. } = term.tree
                && !self.matrix(matrix).is_some_and(|(name, _)| is_given(name))
            {
                return Err(Fault::new(self.terms[matrix].at, hints::MATRIX));
            }
        }
        Ok(())
    }

    /// For each term, the number of products with matrices that come before it.
    fn layers_before(&self) -> Vec<usize> {
        let assigned: HashMap<&str, TermId> = self.assignments().map(|(name, (value, _))| (name, value)).collect();
        let mut before: Vec<usize> = Vec::with_capacity(self.terms.len());
        for term in &self.terms {
            let of_operands = |tree: &Tree| tree.operands().into_iter().map(|of| before[of]).max().unwrap_or(0);
            let own = match &term.tree {
                Tree::Name(name) => assigned.get(name.as_str()).map_or(0, |value| before[*value]),
                Tree::Times { of, .. } => before[*of] + 1,
                tree => of_operands(tree),
            };
            before.push(own);
        }
        before
    }

    /// Divides a text of one pass, of which these are outputs; `None` if it has no products with matrices.
    pub(super) fn divide(&self, outputs: &[&str]) -> Option<Divided> {
        let before = self.layers_before();
        let last = before.iter().copied().max().filter(|last| *last > 0)?;
        let mut division = Division { parsed: self, before, layers: vec![Draft::default(); last + 1] };
        for term in &self.terms {
            if let Tree::Times { label, of, matrix } = &term.tree
                && let Some((matrix, is_transposed)) = self.matrix(*matrix)
            {
                division.multiply(label, *of, (matrix, is_transposed));
            }
        }
        let mut crossed = vec![];
        for statement in &self.statements {
            match statement {
                Statement::Reduce { label, along: Along::Product, of, .. } => {
                    crossed.extend(division.product(label, *of, statement));
                }
                Statement::Assign { name, value, .. } if outputs.contains(&name.as_str()) => {
                    division.layers[last].roots.push((*value, statement.clone()));
                }
                Statement::Assign { .. } => {}
                Statement::Reduce { of: value, .. } | Statement::Result { value, .. } => {
                    division.layers[last].roots.push((*value, statement.clone()));
                }
            }
        }
        let layer = |Draft { roots, factors, multiplied }| {
            let parsed = self.part_before(roots, |tree| match tree {
                Tree::Times { label, .. } => Some(label),
                _ => None,
            });
            Layer { parsed, factors, multiplied }
        };
        Some(Divided { layers: division.layers.into_iter().map(layer).collect(), crossed })
    }
}

/// A text while it is divided.
struct Division<'p> {
    parsed: &'p Parsed,
    /// For each term, the number of products with matrices that come before it.
    before: Vec<usize>,
    layers: Vec<Draft>,
}

/// A layer whose text is not put together yet.
#[derive(Clone, Default)]
struct Draft {
    roots: Vec<(TermId, Statement)>,
    factors: Vec<String>,
    multiplied: Vec<Multiplied>,
}

impl Division<'_> {
    /// Adds rows times a matrix, once for each text.
    fn multiply(&mut self, label: &str, of: TermId, (matrix, is_transposed): (&str, bool)) {
        let layer = self.before[of];
        if self.layers[layer].multiplied.iter().all(|other| other.label != label) {
            let (label, matrix) = (label.to_owned(), matrix.to_owned());
            let of = self.multiplicand(of, format!("the rows of '{label}'"));
            self.layers[layer].multiplied.push(Multiplied { label, of, matrix, is_transposed });
        }
    }

    /// Adds a product over the rows, which is one of its layer if both operands are of the same.
    fn product(&mut self, label: &str, of: TermId, statement: &Statement) -> Option<Crossed> {
        let Tree::Factors(left, right) = self.parsed.terms[of].tree else { return None };
        if self.before[left] == self.before[right] {
            self.layers[self.before[left]].roots.push((of, statement.clone()));
            return None;
        }
        let terms = &self.parsed.terms;
        let left = if let Tree::Transposed(of) = terms[left].tree { of } else { left };
        let keys = if let Tree::OneHot(_, keys) = terms[left].tree { Some(keys) } else { None };
        let mut side = |which: &str, of: TermId| self.multiplicand(of, format!("the {which} operand of '{label}'"));
        let sides = [side("left", left), side("right", right)];
        Some(Crossed { label: label.to_owned(), at: terms[of].at, keys, sides })
    }

    /// Makes a value an output of its layer, with this name, unless it is an input as it is.
    fn multiplicand(&mut self, of: TermId, name: String) -> Multiplicand {
        let term = &self.parsed.terms[of];
        match &term.tree {
            Tree::Name(input) if self.parsed.inputs.contains(input) => Multiplicand::Input(input.clone()),
            _ => {
                let layer = &mut self.layers[self.before[of]];
                layer.roots.push((of, Statement::Assign { at: term.at, name: name.clone(), value: of }));
                layer.factors.push(name.clone());
                Multiplicand::Output(name)
            }
        }
    }
}
