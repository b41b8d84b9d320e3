//! The words of the language: operators, functions, reductions and constants, by name.

use crate::data::Dtype;

/// An operation on one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Unary {
    Pos,
    Neg,
    Not,
    Abs,
    Floor,
    Ceil,
    Round,
    Trunc,
    IsNan,
    IsFinite,
    IsInf,
    Sqrt,
    Cbrt,
    Exp,
    Exp2,
    Expm1,
    Log,
    Log2,
    Log10,
    Log1p,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
}

impl Unary {
    /// Every operation that is written as a function.
    pub(super) const FUNCTIONS: &[(&str, Unary)] = &[
        ("abs", Unary::Abs),
        ("floor", Unary::Floor),
        ("ceil", Unary::Ceil),
        ("round", Unary::Round),
        ("trunc", Unary::Trunc),
        ("isnan", Unary::IsNan),
        ("isfinite", Unary::IsFinite),
        ("isinf", Unary::IsInf),
        ("sqrt", Unary::Sqrt),
        ("cbrt", Unary::Cbrt),
        ("exp", Unary::Exp),
        ("exp2", Unary::Exp2),
        ("expm1", Unary::Expm1),
        ("log", Unary::Log),
        ("log2", Unary::Log2),
        ("log10", Unary::Log10),
        ("log1p", Unary::Log1p),
        ("sin", Unary::Sin),
        ("cos", Unary::Cos),
        ("tan", Unary::Tan),
        ("asin", Unary::Asin),
        ("acos", Unary::Acos),
        ("atan", Unary::Atan),
        ("sinh", Unary::Sinh),
        ("cosh", Unary::Cosh),
        ("tanh", Unary::Tanh),
        ("asinh", Unary::Asinh),
        ("acosh", Unary::Acosh),
        ("atanh", Unary::Atanh),
    ];

    /// Its function name, or its sign.
    pub(super) fn name(self) -> &'static str {
        match self {
            Unary::Pos => "+",
            Unary::Neg => "-",
            Unary::Not => "~",
            _ => Unary::FUNCTIONS.iter().find(|(_, op)| *op == self).map_or("", |(name, _)| name),
        }
    }
}

/// An operation on two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Rem,
    Pow,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Min,
    Max,
    Atan2,
    Hypot,
}

impl Binary {
    /// Every operation with its sign, and how tightly it binds on its left and on its right.
    pub(super) const SIGNS: &[(&str, Binary, u8, u8)] = &[
        ("==", Binary::Eq, 1, 2),
        ("!=", Binary::Ne, 1, 2),
        ("<", Binary::Lt, 1, 2),
        ("<=", Binary::Le, 1, 2),
        (">", Binary::Gt, 1, 2),
        (">=", Binary::Ge, 1, 2),
        ("|", Binary::Or, 3, 4),
        ("^", Binary::Xor, 5, 6),
        ("&", Binary::And, 7, 8),
        ("<<", Binary::Shl, 9, 10),
        (">>", Binary::Shr, 9, 10),
        ("+", Binary::Add, 11, 12),
        ("-", Binary::Sub, 11, 12),
        ("*", Binary::Mul, 13, 14),
        ("/", Binary::Div, 13, 14),
        ("//", Binary::FloorDiv, 13, 14),
        ("%", Binary::Rem, 13, 14),
        // To the right of `**` stands a signed operand, which takes the next `**` along.
        ("**", Binary::Pow, 17, 15),
    ];

    /// Its sign, or its function name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Binary::Min => "min",
            Binary::Max => "max",
            Binary::Atan2 => "atan2",
            Binary::Hypot => "hypot",
            _ => Binary::SIGNS.iter().find(|(_, op, ..)| *op == self).map_or("", |(sign, ..)| sign),
        }
    }

    /// Whether it compares.
    pub(super) fn is_comparison(self) -> bool {
        matches!(self, Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge)
    }
}

/// What a reduction tells of all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Sum,
    Mean,
    Min,
    Max,
    Var,
    Std,
    Count,
    Any,
    All,
    ArgMin,
    ArgMax,
}

impl Kind {
    /// Every reduction with its name.
    pub(super) const NAMES: &[(&str, Kind)] = &[
        ("sum", Kind::Sum),
        ("mean", Kind::Mean),
        ("min", Kind::Min),
        ("max", Kind::Max),
        ("var", Kind::Var),
        ("std", Kind::Std),
        ("count", Kind::Count),
        ("any", Kind::Any),
        ("all", Kind::All),
        ("argmin", Kind::ArgMin),
        ("argmax", Kind::ArgMax),
    ];
}

/// What a name followed by `(` stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Function {
    Unary(Unary),
    Binary(Binary),
    /// `min` or `max` of two or more operands.
    Extreme(Binary),
    Where,
    Clip,
    Cast(Dtype),
    Reduce(Kind),
}

impl Function {
    /// The function called `name` with `arguments` arguments; `min` and `max` of one argument reduce.
    pub(super) fn find(name: &str, arguments: usize) -> Option<Function> {
        let extreme = match name {
            "min" => Some(Binary::Min),
            "max" => Some(Binary::Max),
            _ => None,
        };
        if let Some(op) = extreme.filter(|_| arguments != 1) {
            return Some(Function::Extreme(op));
        }
        let unary = Unary::FUNCTIONS.iter().find(|(n, _)| *n == name).map(|(_, op)| Function::Unary(*op));
        let reduce = Kind::NAMES.iter().find(|(n, _)| *n == name).map(|(_, kind)| Function::Reduce(*kind));
        let other = match name {
            "where" => Some(Function::Where),
            "clip" => Some(Function::Clip),
            "atan2" => Some(Function::Binary(Binary::Atan2)),
            "hypot" => Some(Function::Binary(Binary::Hypot)),
            _ => name.parse().ok().map(Function::Cast),
        };
        unary.or(reduce).or(other)
    }

    /// How many arguments it takes, at least and at most.
    pub(super) fn arity(self) -> (usize, usize) {
        match self {
            Function::Unary(_) | Function::Cast(_) | Function::Reduce(_) => (1, 1),
            Function::Binary(_) => (2, 2),
            Function::Extreme(_) => (2, usize::MAX),
            Function::Where | Function::Clip => (3, 3),
        }
    }
}

/// A number without a dtype of its own: what stands in the text as such, and what is computed of nothing else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Weak {
    Bool(bool),
    Int(i128),
    Float(f64),
}

/// The number a name stands for.
pub(super) fn constant(name: &str) -> Option<Weak> {
    Some(match name {
        "pi" => Weak::Float(std::f64::consts::PI),
        "e" => Weak::Float(std::f64::consts::E),
        "inf" => Weak::Float(f64::INFINITY),
        "nan" => Weak::Float(f64::NAN),
        "True" | "true" => Weak::Bool(true),
        "False" | "false" => Weak::Bool(false),
        _ => return None,
    })
}

/// The name of the row number.
pub(super) const ROW: &str = "i";

/// Words of other languages that are no names here.
const FOREIGN: &[&str] = &["and", "or", "not", "if", "else", "for", "in", "is", "lambda", "None"];

/// Whether a name means something in the language, so that no column can have it.
pub(crate) fn is_reserved(name: &str) -> bool {
    name == ROW || constant(name).is_some() || Function::find(name, 1).is_some() || FOREIGN.contains(&name)
}

/// The function whose name is nearest to a name that is none.
pub(super) fn nearest_function(name: &str) -> Option<&'static str> {
    let lower = name.to_lowercase();
    let names = Unary::FUNCTIONS.iter().map(|(n, _)| *n);
    let names = names.chain(Kind::NAMES.iter().map(|(n, _)| *n)).chain(["where", "clip", "atan2", "hypot"]);
    let names = names.chain(Dtype::ALL.iter().map(|dtype| dtype.name()));
    let alias = match lower.as_str() {
        "float" | "float64" | "double" => Some("f64"),
        "float32" => Some("f32"),
        "int" | "int64" => Some("i64"),
        "int32" => Some("i32"),
        "ln" => Some("log"),
        "power" | "pow" => Some("**"),
        "minimum" => Some("min"),
        "maximum" => Some("max"),
        "arctan2" => Some("atan2"),
        "average" | "avg" => Some("mean"),
        _ => None,
    };
    let near = names.map(|n| (distance(&lower, n), n)).min()?;
    alias.or((near.0 <= 2 && near.0 < name.len()).then_some(near.1))
}

/// How many letters must be put in, left out or changed to make one word of the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().take(32).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}
