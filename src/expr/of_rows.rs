//! Which arrays of one dimension have a value for each row, as far as the text of an expression tells.

use super::Expression;
use super::parse::{Parsed, Statement, TermId, Tree};

impl Expression {
    /// Returns whether the text tells that an array with this name and of one dimension has a value for each row: it
    /// is part of a value of one dimension that is filtered, or is the condition of a filter, a key, or an operand of a
    /// product over the rows. `is_wide` tells which names have several elements in each row: with a value that reads
    /// one of them, arrays of one dimension are broadcast as in NumPy.
    pub(crate) fn has_value_of_each_row(&self, name: &str, is_wide: impl Fn(&str) -> bool) -> bool {
        let values = Values { parsed: self.parsed(), is_wide };
        let terms = &values.parsed.terms;
        let mut are_wide = vec![None; terms.len()];
        let mut waiting: Vec<TermId> = terms.iter().flat_map(|term| values.of_rows(&term.tree)).collect();
        // The value of an assigned name that is filtered may have other shapes among its operands.
        let is_filtered = |id: TermId| terms.iter().any(|term| matches!(term.tree, Tree::Filter(of, _) if of == id));
        let mut seen = vec![false; terms.len()];
        while let Some(id) = waiting.pop() {
            if std::mem::replace(&mut seen[id], true) || values.is_wide(id, &mut are_wide) {
                continue;
            }
            match &terms[id].tree {
                Tree::Name(own) if own == name => return true,
                Tree::Name(own) => waiting.extend(values.assigned(own).filter(|_| !is_filtered(id))),
                // What they read may have several dimensions.
                Tree::Within(..) | Tree::Times { .. } => {}
                tree => waiting.extend(tree.operands()),
            }
        }
        false
    }
}

/// The values of an expression.
struct Values<'p, F> {
    parsed: &'p Parsed,
    is_wide: F,
}

impl<F: Fn(&str) -> bool> Values<'_, F> {
    /// Returns what an assigned name stands for.
    fn assigned(&self, name: &str) -> Option<TermId> {
        self.parsed.statements.iter().find_map(|statement| match statement {
            Statement::Assign { name: own, value, .. } if own == name => Some(*value),
            _ => None,
        })
    }

    /// Returns the operands that go with rows, if they have one dimension.
    fn of_rows(&self, tree: &Tree) -> Vec<TermId> {
        let is_name = |id: TermId| matches!(self.parsed.terms[id].tree, Tree::Name(_));
        match *tree {
            Tree::Filter(of, condition) if is_name(of) => vec![of, condition],
            Tree::Filter(_, condition) => vec![condition],
            Tree::OneHot(key, _) => vec![key],
            Tree::Factors(left, right) => vec![left, right],
            _ => vec![],
        }
    }

    /// Returns whether a value has several elements of each row. `known` are those of all values, as far as they were
    /// asked for.
    fn is_wide(&self, id: TermId, known: &mut [Option<bool>]) -> bool {
        if let Some(known) = known[id] {
            return known;
        }
        // A name may be assigned what reads it.
        known[id] = Some(false);
        let is_wide = match &self.parsed.terms[id].tree {
            Tree::Number(_) | Tree::Within(..) | Tree::Reduce { .. } | Tree::Factors(..) | Tree::Weighted(..) => false,
            Tree::OneHot(..) => true,
            Tree::Name(own) => {
                (self.is_wide)(own) || self.assigned(own).is_some_and(|value| self.is_wide(value, known))
            }
            Tree::Times { matrix: of, .. } | Tree::Filter(of, _) => self.is_wide(*of, known),
            tree => tree.operands().into_iter().any(|operand| self.is_wide(operand, known)),
        };
        known[id] = Some(is_wide);
        is_wide
    }
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
            let names = expression.inputs().filter(|name| expression.has_value_of_each_row(name, is_wide));
            names.map(str::to_owned).collect()
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
