//! Names of a text, and when their values can be computed.

use std::collections::HashMap;

use super::axes::Along;
use super::fault::Fault;
use super::parse::{Term, Tree};
use super::words::{self, Fixed, Function};

/// When a value can be computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// The number of passes over the rows that must end first.
    pub(super) after: usize,
    /// Whether it differs from row to row, as far as the text tells: it reads a column, or a name that may be one.
    of_rows: bool,
}

impl Known {
    const ROWS: Known = Known { after: 0, of_rows: true };

    /// Checks that this value may be reduced. NumPy's reductions of one number have other values than those of as many
    /// equal numbers as there are rows.
    pub(super) fn check_reduced(self, at: usize) -> Result<(), Fault> {
        match self.is_result() {
            true => Err(Fault::new(at, "this reduces a result, which is known already; leave the reduction out")),
            false => Ok(()),
        }
    }

    /// Checks that this value may be moved to other rows.
    fn check_moved(self, at: usize) -> Result<(), Fault> {
        match self.is_result() {
            true => Err(Fault::new(at, "this moves rows, and the value is a result of all rows, which has none")),
            false => Ok(()),
        }
    }

    /// Checks that this value may be added up from row to row.
    fn check_added(self, at: usize) -> Result<(), Fault> {
        match self.is_result() {
            true => Err(Fault::new(at, "this adds up rows, and the value is a result of all rows, which has none")),
            false => Ok(()),
        }
    }

    /// Checks that the rows of this value may be multiplied by a matrix.
    fn check_multiplied(self, at: usize) -> Result<(), Fault> {
        match self.is_result() {
            true => Err(Fault::new(at, "this multiplies rows, and the value is a result of all rows, which has none")),
            false => Ok(()),
        }
    }

    /// A reduction of this value.
    pub(super) fn reduced(self, along: Along) -> Known {
        Known { after: self.after + along.passes(), of_rows: false }
    }

    /// Whether it is one value, which is computed from those of reductions.
    pub(super) fn is_result(self) -> bool {
        self.after > 0 && !self.of_rows
    }

    fn and(self, other: Known) -> Known {
        Known { after: self.after.max(other.after), of_rows: self.of_rows || other.of_rows }
    }
}

/// The role of a name in the text so far.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// An input, a scalar or a constant.
    Read,
    /// A value of the text.
    Assigned(Known),
}

/// The names and terms met so far.
#[derive(Default)]
pub(super) struct Names {
    /// When each term can be computed.
    pub(super) known: Vec<Known>,
    /// Names of assigned row values.
    pub(super) assigned: Vec<String>,
    pub(super) inputs: Vec<String>,
    pub(super) constants: Vec<String>,
    roles: HashMap<String, Role>,
}

impl Names {
    /// Records the terms of a statement and the names that they read. Returns when the last of them can be computed.
    pub(super) fn read(&mut self, terms: &[Term]) -> Result<Known, Fault> {
        for Term { at, tree } in terms {
            if let Tree::Reduce { of, .. } | Tree::Within(_, _, of) = tree {
                self.known[*of].check_reduced(*at)?;
            }
            if let Tree::Times { of, .. } = tree {
                self.known[*of].check_multiplied(*at)?;
            }
            if let Tree::Near(_, of) = tree {
                self.known[*of].check_moved(*at)?;
            }
            if let Tree::RunningSum { of, .. } = tree {
                self.known[*of].check_added(*at)?;
            }
            let known = self.term(tree);
            self.known.push(known);
        }
        Ok(self.known.last().copied().unwrap_or_default())
    }

    fn term(&mut self, tree: &Tree) -> Known {
        let of_operands = || tree.operands().into_iter().map(|of| self.known[of]).fold(Known::default(), Known::and);
        match tree {
            Tree::Name(name) => self.name(name),
            Tree::Call(Function::Index | Function::Random(_), _) => of_operands().and(Known::ROWS),
            Tree::Reduce { along, .. } => of_operands().reduced(*along),
            // The sums of whole tiles are known after a pass.
            Tree::RunningSum { .. } => Known { after: of_operands().after + 1, of_rows: true },
            _ => of_operands(),
        }
    }

    fn name(&mut self, name: &str) -> Known {
        let constant = words::constant(name);
        let role = self.roles.get(name).copied().unwrap_or_else(|| {
            let names = if constant.is_some() { &mut self.constants } else { &mut self.inputs };
            names.push(name.to_owned());
            self.roles.insert(name.to_owned(), Role::Read);
            Role::Read
        });
        match (role, constant) {
            (Role::Assigned(known), _) => known,
            (Role::Read, Some(Fixed::Number(_))) => Known::default(),
            (Role::Read, Some(Fixed::Index) | None) => Known::ROWS,
        }
    }

    /// Records an assigned name.
    pub(super) fn assign(&mut self, at: usize, name: &str, known: Known) -> Result<(), Fault> {
        if words::is_reserved(name) {
            return Err(Fault::new(at, format!("`{name}` is a reserved word; choose another name")));
        }
        match self.roles.insert(name.to_owned(), Role::Assigned(known)) {
            Some(Role::Read) if words::constant(name).is_some() => Err(Fault::new(
                at,
                format!("`{name}` was read as a constant earlier; choose another name for the result"),
            )),
            Some(Role::Read) => Err(Fault::new(
                at,
                format!("`{name}` was read as an input earlier; choose another name for the result"),
            )),
            Some(Role::Assigned(_)) => Err(Fault::new(at, format!("`{name}` is assigned twice; choose another name"))),
            None => {
                if !known.is_result() {
                    self.assigned.push(name.to_owned());
                }
                Ok(())
            }
        }
    }
}
