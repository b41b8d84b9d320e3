//! Several passes: the part of an expression that one pass over the rows computes.
//!
//! A reduction is known when all rows have been read, so what depends on it needs another pass. Each reduction is
//! computed in the first pass that can, and outputs in the last one. What earlier passes found is a value of the later
//! ones, as a scalar of the job is. Its name is the label of the reduction: `m` in `m = mean(x)`, and else its text.

use std::collections::{HashMap, HashSet};

use super::axes::{Along, Axes};
use super::fault::Fault;
use super::hints;
use super::names::Known;
use super::parse::{Parsed, Statement, Term, TermId, Tree};
use super::rank::{Bound, Ranking};
use super::scan::{self, RunningSum};
use super::words::{self, Kind};

/// The most values that a text finds by their rank.
const MOST_RANKED: usize = 100;

/// The message about more of them.
const TOO_MANY_RANKED: &str = "a text finds at most 100 values by their rank; find the others in another job";

impl Parsed {
    /// The number of passes over the rows.
    pub(super) fn passes(&self) -> usize {
        let reduced = self.reductions().map(|(_, (_, along), of)| self.known[of].after + along.passes());
        let assigned = self.assignments().map(|(_, (value, _))| self.known[value].after + 1);
        reduced.chain(assigned).max().unwrap_or(1)
    }

    /// Whether one pass computes the whole text, and nothing is left to compute after it.
    pub(super) fn is_one_pass(&self) -> bool {
        let is_result = |statement: &Statement| matches!(statement, Statement::Result { .. });
        self.passes() == 1 && !self.statements.iter().any(is_result)
    }

    /// All reductions, alone and within expressions: the label, the kind, and the term that is reduced.
    fn reductions(&self) -> impl Iterator<Item = (&str, (Kind, Along), TermId)> {
        let alone = self.statements.iter().filter_map(|statement| match statement {
            Statement::Reduce { label, kind, along, of } => Some((label.as_str(), (*kind, *along), *of)),
            _ => None,
        });
        let within = self.terms.iter().filter_map(|term| match &term.tree {
            Tree::Reduce { label, kind, along, of } => Some((label.as_str(), (*kind, *along), *of)),
            _ => None,
        });
        alone.chain(within)
    }

    /// Whether a reduction is over the rows.
    pub(super) fn reduces_rows(&self) -> bool {
        self.reductions().any(|(_, (_, along), _)| matches!(along, Along::Rows { .. } | Along::Product))
    }

    /// Checks that a value is transposed only to be multiplied.
    ///
    /// # Errors
    /// A fault at the first one that is not.
    pub(super) fn check_transposed(&self) -> Result<(), Fault> {
        let multiplied: HashSet<TermId> = self
            .terms
            .iter()
            .filter_map(|term| match term.tree {
                Tree::Factors(left, _) => Some(left),
                Tree::Times { matrix, .. } => Some(matrix),
                _ => None,
            })
            .collect();
        let mut terms = self.terms.iter().enumerate();
        match terms.find(|(id, term)| matches!(term.tree, Tree::Transposed(_)) && !multiplied.contains(id)) {
            Some((_, term)) => Err(Fault::new(term.at, hints::TRANSPOSED)),
            None => Ok(()),
        }
    }

    /// Checks that keys are only multiplied over the rows.
    ///
    /// # Errors
    /// A fault at the first ones that are not.
    pub(super) fn check_keys(&self) -> Result<(), Fault> {
        let is_transposed = |id: TermId| {
            let mut terms = self.terms.iter();
            terms.any(|term| matches!(term.tree, Tree::Transposed(of) if of == id))
        };
        let mut terms = self.terms.iter().enumerate();
        match terms.find(|(id, term)| matches!(term.tree, Tree::OneHot(..)) && !is_transposed(*id)) {
            Some((_, term)) => Err(Fault::new(term.at, hints::ONE_HOT)),
            None => Ok(()),
        }
    }

    /// The axes of the reductions within rows.
    pub(super) fn axes_within(&self) -> impl Iterator<Item = Axes> {
        self.terms.iter().filter_map(|term| match term.tree {
            Tree::Within(_, within, _) => Some(within.axes),
            _ => None,
        })
    }

    /// The part of the text that a pass computes: its reductions, and the values of these outputs. Passes count from 0.
    pub(super) fn pass(&self, number: usize, outputs: &[&str]) -> Parsed {
        let mut roots: Vec<(TermId, Statement)> = Vec::new();
        let mut labels = HashSet::new();
        for (label, (kind, along), of) in self.reductions() {
            if self.known[of].after == number && !matches!(along, Along::Order(_)) && labels.insert(label) {
                roots.push((of, Statement::Reduce { label: label.to_owned(), kind, along, of }));
            }
        }
        let mut received = vec![];
        for (ranking, of) in self.ranked() {
            let pass = match number.checked_sub(ranking.first) {
                Some(pass) if pass < ranking.order.passes() => pass,
                _ => continue,
            };
            if pass == 0 && ranking.shared != ranking.label {
                continue;
            }
            if pass > 0 {
                received.extend(Bound::ALL.map(|bound| bound.name(&ranking.label)));
            }
            let along = Along::Ranked(ranking.order, pass);
            roots.push((of, Statement::Reduce { label: ranking.label, kind: Kind::BinCount, along, of }));
        }
        let is_output = |(name, _): &(&str, _)| outputs.contains(name);
        for sum in self.running_sums().into_iter().filter(|sum| sum.pass == number) {
            let (kind, along) = (Kind::Sum, Along::Tiles);
            roots.push((sum.of, Statement::Reduce { label: sum.of_tiles(), kind, along, of: sum.of }));
        }
        roots.extend(self.assignments().filter(is_output).map(|(_, (value, statement))| (value, statement.clone())));
        let mut part = self.part(roots);
        part.inputs.extend(received);
        part
    }

    /// What is found by its rank, each label once, and the terms of the values. The first pass of the same values is
    /// the same, and has the label of the first of them.
    fn ranked(&self) -> Vec<(Ranking, TermId)> {
        let mut all: Vec<(Ranking, TermId)> = vec![];
        for (label, (_, along), of) in self.reductions() {
            let Along::Order(order) = along else { continue };
            if all.iter().any(|(other, _)| other.label == label) {
                continue;
            }
            let other = all.iter().find(|(_, values)| self.are_same(*values, of));
            let shared = other.map_or(label, |(other, _)| &other.shared).to_owned();
            all.push((Ranking { label: label.to_owned(), order, first: self.known[of].after, shared }, of));
        }
        all
    }

    /// Checks that few values are found by their rank: each has counts of its own, and scalars of the kernel.
    ///
    /// # Errors
    /// A fault at the first one that is too many.
    pub(super) fn check_ranked(&self) -> Result<(), Fault> {
        let ranked = self.reductions().filter(|(_, (_, along), _)| matches!(along, Along::Order(_)));
        let labels: HashMap<&str, TermId> = ranked.map(|(label, _, of)| (label, of)).collect();
        match labels.values().max().filter(|_| labels.len() > MOST_RANKED) {
            Some(of) => Err(Fault::new(self.terms[*of].at, TOO_MANY_RANKED)),
            None => Ok(()),
        }
    }

    /// What is found by its rank, each label once.
    pub(super) fn rankings(&self) -> Vec<Ranking> {
        self.ranked().into_iter().map(|(ranking, _)| ranking).collect()
    }

    /// The running sums, each label once.
    pub(super) fn running_sums(&self) -> Vec<RunningSum> {
        let mut all: Vec<RunningSum> = vec![];
        for term in &self.terms {
            if let Tree::RunningSum { label, of } = &term.tree
                && all.iter().all(|other| other.label != *label)
            {
                all.push(RunningSum { label: label.clone(), of: *of, pass: self.known[*of].after });
            }
        }
        all
    }

    /// Whether two terms are the same text.
    fn are_same(&self, one: TermId, other: TermId) -> bool {
        let trees = |term: TermId| {
            let along = Along::default();
            let root = Statement::Reduce { label: String::new(), kind: Kind::Count, along, of: term };
            self.part(vec![(term, root)]).terms.into_iter().map(|term| term.tree).collect::<Vec<_>>()
        };
        one == other || trees(one) == trees(other)
    }

    /// The statements that compute results from those of reductions, each with its label, the number of passes that
    /// must end before it, and a text that assigns its value.
    pub(super) fn computed_results(&self) -> impl Iterator<Item = (&str, usize, Parsed)> {
        self.statements.iter().filter_map(|statement| match statement {
            Statement::Result { at, label, value } => {
                let assign = Statement::Assign { at: *at, name: label.clone(), value: *value };
                Some((label.as_str(), self.known[*value].after, self.part(vec![(*value, assign)])))
            }
            _ => None,
        })
    }

    /// The assigned row values, each with its term and statement.
    pub(super) fn assignments(&self) -> impl Iterator<Item = (&str, (TermId, &Statement))> {
        self.statements.iter().filter_map(|statement| match statement {
            Statement::Assign { name, value, .. } => Some((name.as_str(), (*value, statement))),
            _ => None,
        })
    }

    /// The labels of reductions and results that are statements.
    pub(super) fn results(&self) -> impl Iterator<Item = &str> {
        self.statements.iter().filter_map(|statement| match statement {
            Statement::Reduce { label, .. } | Statement::Result { label, .. } => Some(label.as_str()),
            Statement::Assign { .. } => None,
        })
    }

    /// The terms that these statements need, and the statements with the assigned names among them. What reductions
    /// have come to is read by their labels.
    fn part(&self, statements: Vec<(TermId, Statement)>) -> Parsed {
        self.part_before(statements, |tree| match tree {
            Tree::Reduce { label, .. } => Some(label),
            _ => None,
        })
    }

    /// The same, where terms are read by their labels that other parts compute.
    pub(super) fn part_before<'p>(
        &'p self,
        mut statements: Vec<(TermId, Statement)>,
        label_of_other: impl Fn(&'p Tree) -> Option<&'p String>,
    ) -> Parsed {
        let assigned: HashMap<&str, (TermId, &Statement)> = self.assignments().collect();
        let mut included: HashSet<TermId> = statements.iter().map(|(root, _)| *root).collect();
        let mut needed = vec![false; self.terms.len()];
        included.iter().for_each(|root| needed[*root] = true);
        // Operands and assigned values precede what reads them.
        for id in (0..self.terms.len()).rev() {
            match &self.terms[id].tree {
                _ if !needed[id] => {}
                tree if label_of_other(tree).is_some() => {}
                Tree::Name(name) => {
                    if let Some((value, statement)) = assigned.get(name.as_str()) {
                        needed[*value] = true;
                        if included.insert(*value) {
                            statements.push((*value, (*statement).clone()));
                        }
                    }
                }
                tree => tree.operands().into_iter().for_each(|operand| needed[operand] = true),
            }
        }
        let mut part = Parsed {
            terms: vec![],
            known: vec![],
            statements: vec![],
            assigned: vec![],
            inputs: vec![],
            constants: vec![],
        };
        let mut moved = vec![0; self.terms.len()];
        for (id, Term { at, tree }) in self.terms.iter().enumerate().filter(|(id, _)| needed[*id]) {
            moved[id] = part.terms.len();
            if let Tree::RunningSum { label, .. } = tree {
                let before = scan::before(label);
                if !part.inputs.contains(&before) {
                    part.inputs.push(before);
                }
            }
            let tree = match label_of_other(tree) {
                Some(label) => Tree::Name(label.clone()),
                None => tree.with(|id| moved[id]),
            };
            if let Tree::Name(name) = &tree
                && !assigned.contains_key(name.as_str())
            {
                let is_constant = words::constant(name).is_some();
                let names = if is_constant { &mut part.constants } else { &mut part.inputs };
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
            part.terms.push(Term { at: *at, tree });
            // It receives what other passes computed.
            part.known.push(Known::default());
        }
        // Names are assigned before they are read.
        statements.sort_by_key(|(value, _)| *value);
        for (value, statement) in statements {
            part.statements.push(match statement {
                Statement::Reduce { label, kind, along, .. } => {
                    Statement::Reduce { label, kind, along, of: moved[value] }
                }
                Statement::Assign { at, name, .. } => {
                    part.assigned.push(name.clone());
                    Statement::Assign { at, name, value: moved[value] }
                }
                Statement::Result { at, label, .. } => Statement::Result { at, label, value: moved[value] },
            });
        }
        part
    }
}
