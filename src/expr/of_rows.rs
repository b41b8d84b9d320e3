//! Which arrays of one dimension have a value for each row, as far as the text of an expression tells.

use std::collections::{HashMap, HashSet};

use super::Expression;
use super::parse::{Parsed, Statement, Term, TermId, Tree};

impl Expression {
    /// Returns the names of which the text tells that an array of one dimension has a value for each row: it is part of
    /// a value of one dimension that is filtered, or is the condition of a filter, a key, or an operand of a product
    /// over the rows. `is_wide` tells which names have several elements in each row: with a value that reads one of
    /// them, arrays of one dimension are broadcast as in NumPy.
    pub(crate) fn names_of_rows(&self, is_wide: impl Fn(&str) -> bool) -> HashSet<&str> {
        let Parsed { terms, statements, .. } = self.parsed();
        let value_of = |statement| match statement {
            &Statement::Assign { ref name, value, .. } => Some((name.as_str(), value)),
            _ => None,
        };
        let assigned: HashMap<&str, TermId> = statements.iter().filter_map(value_of).collect();
        let mut waiting: Vec<TermId> = terms.iter().flat_map(|term| of_rows(&term.tree, terms)).collect();
        // The value of an assigned name that is filtered may have other shapes among its operands.
        let filtered = |term: &Term| if let Tree::Filter(of, _) = term.tree { Some(of) } else { None };
        let filtered: HashSet<TermId> = terms.iter().filter_map(filtered).collect();
        // Wide values are left out, as those that were seen.
        let mut seen = wide(terms, &assigned, is_wide);
        let mut names = HashSet::new();
        while let Some(id) = waiting.pop() {
            if std::mem::replace(&mut seen[id], true) {
                continue;
            }
            match &terms[id].tree {
                Tree::Name(own) => {
                    names.insert(own.as_str());
                    waiting.extend(assigned.get(own.as_str()).filter(|_| !filtered.contains(&id)));
                }
                // What they read may have several dimensions.
                Tree::Within(..) | Tree::Times { .. } | Tree::Reduce { .. } => {}
                tree => waiting.extend(tree.operands()),
            }
        }
        names
    }
}

/// Returns the operands that go with rows, if they have one dimension.
fn of_rows(tree: &Tree, terms: &[Term]) -> Vec<TermId> {
    match *tree {
        Tree::Filter(of, condition) if matches!(terms[of].tree, Tree::Name(_)) => vec![of, condition],
        Tree::Filter(_, condition) => vec![condition],
        Tree::OneHot(key, _) => vec![key],
        Tree::Factors(left, right) => vec![left, right],
        _ => vec![],
    }
}

/// Returns for each term whether it has several elements in each row.
fn wide(terms: &[Term], assigned: &HashMap<&str, TermId>, is_wide: impl Fn(&str) -> bool) -> Vec<bool> {
    let mut wide: Vec<bool> = Vec::with_capacity(terms.len());
    for term in terms {
        // Operands, and what names stand for, are before what reads them.
        let of = |id: &TermId| wide.get(*id).copied().unwrap_or(false);
        let found = match &term.tree {
            Tree::Number(_) | Tree::Within(..) | Tree::Reduce { .. } | Tree::Factors(..) | Tree::Weighted(..) => false,
            Tree::OneHot(..) => true,
            Tree::Name(own) => is_wide(own) || assigned.get(own.as_str()).is_some_and(of),
            Tree::Times { matrix: id, .. } | Tree::Filter(id, _) => of(id),
            tree => tree.operands().iter().any(of),
        };
        wide.push(found);
    }
    wide
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_beside_wider_ones_are_broadcast() {
        // Tables are `x` and `w`, and all other names have one dimension.
        let of_rows = |text: &str| -> Vec<String> {
            let expression = Expression::parse(text).unwrap();
            let is_wide = |name: &str| ["x", "w"].contains(&name);
            let names = expression.names_of_rows(is_wide);
            expression.inputs().filter(|name| names.contains(name)).map(str::to_owned).collect()
        };
        for (text, names) in [
            ("y = x + m", &[][..]),
            ("y = x[k == 3]", &["k"]),
            ("y = x[k + j > 3]", &["j", "k"]),
            ("c = k > 3; y = x[c]; z = j[c]", &["j", "k"]),
            ("y = onehot(k, 3).T @ x", &["k"]),
            ("y = x.T @ t", &["t"]),
            ("y = x.T @ (s * t)", &["s", "t"]),
            // What is reduced within rows, or multiplied by a matrix, has rows itself.
            ("e = min(x @ w + h, axis=1); y = e[e > 0]", &[]),
            ("y = onehot(argmin(h - x @ w, axis=1), 4).T @ x", &[]),
            ("y = x[max(x - m, axis=1) > k]", &["k"]),
            ("y = x.T @ (x @ v - t)", &["t"]),
            ("y = x[(x - m) @ v > k]", &["k"]),
            // An operand that has several dimensions.
            ("u = x - m; y = u.T @ u", &[]),
            ("u = x - m; y = u.T @ t", &["t"]),
            ("y = x.T @ (x @ w - h)", &[]),
            ("y = x[x > m]", &[]),
        ] {
            let mut found = of_rows(text);
            found.sort_unstable();
            assert_eq!(found, names, "{text}");
        }
    }
}
