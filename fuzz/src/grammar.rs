//! Expressions from a grammar, and the two ways to write one: with the fewest parentheses, and with all.

use arbitrary::{Result, Unstructured};
use overshot::Dtype;
use overshot::expr::{FunctionInfo, FunctionKind, functions};

/// The infix operators by precedence, from the lowest on.
const INFIX: [&[&str]; 8] = [
    &["==", "!=", "<", "<=", ">", ">="],
    &["|"],
    &["^"],
    &["&"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "//", "%"],
    &["**"],
];
/// The levels in [`INFIX`] of the operators that give integers of integers; those before [`SUM`] take nothing else.
const BITS: std::ops::RangeInclusive<usize> = 1..=6;
const SUM: usize = 5;
/// The level of `**` in [`INFIX`]. It alone associates to the right.
const POWER: usize = 7;
/// Prefix operators. Their precedence is between that of `*` and that of `**`.
const SIGNS: [&str; 3] = ["+", "-", "~"];
const SIGN_PRECEDENCE: usize = 7;
const POWER_PRECEDENCE: usize = 8;
const LEAF_PRECEDENCE: usize = 9;

const NUMBERS: [&str; 32] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "64",
    "127",
    "128",
    "255",
    "256",
    "32768",
    "65536",
    "2147483648",
    "4294967295",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "0x1f",
    "0b101",
    "0o17",
    "1_000",
    "0.5",
    "2.5",
    "1e3",
    "1e-300",
    "1e400",
    "3.",
    ".25",
    "1e-46",
    "True",
    "false",
];
const CONSTANTS: [&str; 5] = ["pi", "e", "inf", "nan", "i"];
const NAMES: [&str; 10] = ["a", "b", "x_1", "long_name", "é", "e", "i", "pi", "sum", "where"];
const INTEGERS: [&str; 4] = ["i64", "i32", "i8", "u8"];
const MAX_DEPTH: usize = 7;

/// A value for each row.
#[derive(Clone, Debug)]
pub enum Tree {
    Leaf(String),
    Sign(&'static str, Box<Tree>),
    Infix(usize, &'static str, Box<Tree>, Box<Tree>),
    Call(&'static str, Vec<Tree>),
}

/// A statement.
#[derive(Clone, Debug)]
pub enum Statement {
    Assign(String, Tree),
    /// With its name, if it has one, and the kind.
    Reduce(Option<String>, &'static str, Tree),
}

/// Statements with the names that they read.
#[derive(Clone, Debug, Default)]
pub struct Grammar {
    pub inputs: Vec<(String, Dtype)>,
    pub values: Vec<(String, Dtype)>,
    pub statements: Vec<Statement>,
}

impl Grammar {
    /// Chooses columns, scalars and statements over them.
    pub fn arbitrary(u: &mut Unstructured<'_>) -> Result<Grammar> {
        let mut grammar = Grammar::default();
        for _ in 0..u.int_in_range(0..=5)? {
            let name = (*u.choose(&NAMES)?).to_owned();
            let dtype = *u.choose(Dtype::ALL)?;
            let is_value = u.ratio(1, 3)?;
            if grammar.given().any(|(other, _)| *other == name) {
                continue;
            }
            if is_value { &mut grammar.values } else { &mut grammar.inputs }.push((name, dtype));
        }
        for k in 0..u.int_in_range(1..=4)? {
            let depth = u.int_in_range(0..=MAX_DEPTH - 1)?;
            let tree = grammar.tree(u, depth, false)?;
            let kind = FunctionKind::Reduction;
            let statement = match u.int_in_range(0..=2)? {
                0 => Statement::Reduce(Some(format!("r{k}")), word(u, kind)?.name, tree),
                1 => Statement::Reduce(None, word(u, kind)?.name, tree),
                _ => Statement::Assign(format!("y{k}"), tree),
            };
            grammar.statements.push(statement);
        }
        // A job needs all that it gives, and gives no more.
        let mut read = vec![];
        grammar.statements.iter().for_each(|statement| statement.tree().names(&mut read));
        grammar.inputs.retain(|(name, _)| read.contains(name));
        grammar.values.retain(|(name, _)| read.contains(name));
        Ok(grammar)
    }

    fn given(&self) -> impl Iterator<Item = &(String, Dtype)> {
        self.inputs.iter().chain(&self.values)
    }

    /// Chooses a value. One that is `exact` is an integer, as far as possible, for the operators that need integers.
    fn tree(&self, u: &mut Unstructured<'_>, depth: usize, exact: bool) -> Result<Tree> {
        if depth == MAX_DEPTH || u.is_empty() {
            return self.leaf(u, exact);
        }
        let operand = |u: &mut Unstructured<'_>, exact| Ok(Box::new(self.tree(u, depth + 1, exact)?));
        Ok(match u.int_in_range(0..=9)? {
            0 | 1 => self.leaf(u, exact)?,
            2 => {
                let sign = *u.choose(&SIGNS)?;
                Tree::Sign(sign, operand(u, exact || sign == "~")?)
            }
            3..=6 => {
                let level = if exact { u.int_in_range(BITS)? } else { u.choose_index(INFIX.len())? };
                let sign = *u.choose(INFIX[level])?;
                let exact = (exact || BITS.contains(&level) && level < SUM) && u.ratio(31, 32)?;
                Tree::Infix(level, sign, operand(u, exact)?, operand(u, exact)?)
            }
            7 => Tree::Call(u.choose(&INTEGERS)?, vec![self.tree(u, depth + 1, false)?]),
            8 if !exact => Tree::Call(word(u, FunctionKind::Conversion)?.name, vec![self.tree(u, depth + 1, false)?]),
            _ => {
                let FunctionInfo { name, aliases, least_arguments, most_arguments, .. } =
                    if exact { named("min") } else { word(u, FunctionKind::Function)? };
                let name = if aliases.is_empty() || u.arbitrary()? { name } else { *u.choose(aliases)? };
                let count = u.int_in_range(least_arguments..=most_arguments.unwrap_or(4))?;
                let arguments = (0..count).map(|_| self.tree(u, depth + 1, exact));
                Tree::Call(name, arguments.collect::<Result<_>>()?)
            }
        })
    }

    fn leaf(&self, u: &mut Unstructured<'_>, exact: bool) -> Result<Tree> {
        let assigned = self.statements.iter().filter_map(|statement| match statement {
            Statement::Assign(name, _) if !exact => Some(name),
            _ => None,
        });
        let given = self.given().filter(|(_, dtype)| !exact || dtype.is_integer());
        let names: Vec<&String> = given.map(|(name, _)| name).chain(assigned).collect();
        Ok(Tree::Leaf(match u.int_in_range(0..=9)? {
            0 if !exact => (*u.choose(&NUMBERS)?).into(),
            1 if !exact => (*u.choose(&CONSTANTS)?).into(),
            0..=3 => u.int_in_range(0..=127)?.to_string(),
            _ if names.is_empty() => "index()".into(),
            _ => (*u.choose(&names)?).clone(),
        }))
    }

    /// The text, with the fewest parentheses or with all.
    pub fn text(&self, all_parentheses: bool) -> String {
        let separator = if all_parentheses { " ;\n" } else { "; " };
        let statements: Vec<String> = self.statements.iter().map(|one| one.text(all_parentheses)).collect();
        statements.join(separator)
    }
}

/// The function of this name.
fn named(name: &str) -> FunctionInfo {
    functions().find(|word| word.kind == FunctionKind::Function && word.name == name).expect("a function")
}

/// Whether some arguments are numbers of the text or rules for the border, not values of rows.
fn has_fixed_arguments(word: &FunctionInfo) -> bool {
    // The median takes several passes, and a program has one.
    let is_reduction = word.kind == FunctionKind::Reduction;
    let is_near = word.usage.ends_with(", edge)");
    // Keys are only factors of products.
    is_reduction && (word.least_arguments > 1 || word.name == "median") || is_near || word.name == "onehot"
}

/// Chooses a word of the language whose arguments are values.
fn word(u: &mut Unstructured<'_>, kind: FunctionKind) -> Result<FunctionInfo> {
    let words: Vec<FunctionInfo> = functions().filter(|word| word.kind == kind && !has_fixed_arguments(word)).collect();
    u.choose(&words).copied()
}

impl Statement {
    pub fn tree(&self) -> &Tree {
        match self {
            Statement::Assign(_, tree) | Statement::Reduce(_, _, tree) => tree,
        }
    }

    fn text(&self, all: bool) -> String {
        let tree = self.tree().text(all);
        match self {
            Statement::Assign(name, _) => format!("{name} = {tree}"),
            Statement::Reduce(None, kind, _) => format!("{kind}({tree})"),
            Statement::Reduce(Some(name), kind, _) => format!("{name} = {kind}({tree})"),
        }
    }
}

impl Tree {
    fn names(&self, found: &mut Vec<String>) {
        match self {
            Tree::Leaf(name) => found.push(name.clone()),
            Tree::Sign(_, of) => of.names(found),
            Tree::Infix(_, _, left, right) => [left, right].into_iter().for_each(|of| of.names(found)),
            Tree::Call(_, arguments) => arguments.iter().for_each(|of| of.names(found)),
        }
    }

    fn precedence(&self) -> usize {
        match self {
            Tree::Infix(POWER, ..) => POWER_PRECEDENCE,
            Tree::Infix(level, ..) => *level,
            Tree::Sign(..) => SIGN_PRECEDENCE,
            Tree::Leaf(_) | Tree::Call(..) => LEAF_PRECEDENCE,
        }
    }

    fn text(&self, all: bool) -> String {
        let operand = |of: &Tree, least: usize| match of.text(all) {
            text if all => format!("( {text}\n)"),
            text if of.precedence() < least => format!("({text})"),
            text => text,
        };
        match self {
            Tree::Leaf(text) => text.clone(),
            Tree::Sign(sign, of) => format!("{sign}{}", operand(of, SIGN_PRECEDENCE)),
            Tree::Infix(POWER, sign, left, right) => {
                format!("{}{sign}{}", operand(left, LEAF_PRECEDENCE), operand(right, SIGN_PRECEDENCE))
            }
            // Comparisons do not chain.
            Tree::Infix(0, sign, left, right) => format!("{}{sign}{}", operand(left, 1), operand(right, 1)),
            Tree::Infix(level, sign, left, right) => {
                format!("{} {sign} {}", operand(left, *level), operand(right, level + 1))
            }
            Tree::Call(name, arguments) => {
                let arguments: Vec<String> = arguments.iter().map(|argument| operand(argument, 0)).collect();
                format!("{name}({})", arguments.join(", "))
            }
        }
    }
}
