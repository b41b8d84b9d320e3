//! The words of the language: operators, functions, reductions and constants.

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
    Sign,
    SignBit,
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
    /// The integer with the order of floats. It is no word of the language.
    Key,
}

impl Unary {
    /// All operations that are written as functions.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn functions() -> impl Iterator<Item = (&'static str, Unary)> {
        WORDS.iter().filter_map(|word| match word.meaning {
            Meaning::Call(Function::Unary(op)) => Some((word.info.name, op)),
            _ => None,
        })
    }

    /// The function name, or the sign of an operator.
    pub(super) fn name(self) -> &'static str {
        let is_own = |meaning| meaning == Meaning::Prefix(self) || meaning == Meaning::Call(Function::Unary(self));
        WORDS.iter().find(|word| is_own(word.meaning)).map_or("", |word| word.info.name)
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
    Fmod,
    CopySign,
    NextAfter,
    /// The random number of a seed at a position, both `u64`: an `f64`.
    Random,
}

impl Binary {
    /// Every operator with its sign, and how tightly it binds on its left and on its right.
    pub(super) fn signs() -> impl Iterator<Item = (&'static str, Binary, u8, u8)> {
        WORDS.iter().filter_map(|word| match word.meaning {
            Meaning::Infix(op, above, below) => Some((word.info.name, op, above, below)),
            _ => None,
        })
    }

    /// How tightly `@` binds on its left and on its right: as `*` does.
    pub(super) const MATRIX: (u8, u8) = (13, 14);

    /// The sign of an operator, or the function name.
    pub(super) fn name(self) -> &'static str {
        let is_own = |meaning| match meaning {
            Meaning::Infix(op, ..) | Meaning::Call(Function::Binary(op) | Function::Extreme(op)) => op == self,
            _ => false,
        };
        WORDS.iter().find(|word| is_own(word.meaning)).map_or("", |word| word.info.name)
    }

    /// Whether this is a function of floats: operands of other dtypes become floats.
    pub(super) fn is_of_floats(self) -> bool {
        matches!(self, Binary::Atan2 | Binary::Hypot | Binary::CopySign | Binary::NextAfter)
    }

    /// Whether this is a comparison.
    pub(super) fn is_comparison(self) -> bool {
        matches!(self, Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge)
    }
}

/// The kind of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Sum,
    Prod,
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
    /// The number of elements in each bin.
    Histogram,
    /// The number of each integer, or the sum of the weights that go with it.
    BinCount,
    /// Counts the rows that a filter keeps. It is no word of the language.
    Kept,
}

impl Kind {
    /// All reductions of one argument with their names.
    pub(super) fn names() -> impl Iterator<Item = (&'static str, Kind)> {
        WORDS.iter().filter_map(|word| match word.meaning {
            Meaning::Call(Function::Reduce(kind)) => Some((word.info.name, kind)),
            _ => None,
        })
    }

    /// Those that count elements in bins.
    pub(super) fn tallies() -> impl Iterator<Item = (&'static str, Kind)> {
        WORDS.iter().filter_map(|word| match word.meaning {
            Meaning::Call(Function::Tally(kind)) => Some((word.info.name, kind)),
            _ => None,
        })
    }

    /// The name of the reduction.
    pub(super) fn name(self) -> &'static str {
        Kind::names().chain(Kind::tallies()).find(|(_, kind)| *kind == self).map_or("kept", |(name, _)| name)
    }
}

/// How random numbers are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distribution {
    /// From 0 to below 1.
    Uniform,
    /// With mean 0 and standard deviation 1.
    Normal,
}

/// A function of neighbouring rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Near {
    /// The value some rows before.
    Shift,
    /// The difference from the row before.
    Diff,
    /// A reduction of a row and those before it.
    Moving(Window),
}

/// How the rows of a moving window are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    Sum,
    Mean,
    Min,
    Max,
}

/// How values are chosen by their rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ranked {
    Median,
    Quantile,
    /// The largest.
    Top,
}

/// The meaning of a name that is followed by `(`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Function {
    Unary(Unary),
    Binary(Binary),
    /// `min` or `max` of two or more operands.
    Extreme(Binary),
    /// The row number.
    Index,
    Where,
    Clip,
    Random(Distribution),
    Cast(Dtype),
    Near(Near),
    /// The sum of a row and all rows before it.
    RunningSum,
    /// A key as a row with a 1 in its column.
    OneHot,
    Reduce(Kind),
    /// A reduction that counts elements in bins. Only its first argument, and weights, are values of rows.
    Tally(Kind),
    /// A reduction that finds values by their rank. Only its first argument is a value of rows.
    Ranked(Ranked),
}

impl Function {
    /// Finds the function called `name` that takes this number of arguments (`min` and `max` of one argument are
    /// reductions), or else one of that name that takes another number.
    pub(super) fn find(name: &str, arguments: usize) -> Option<(Function, &'static FunctionInfo)> {
        let all = WORDS.iter().filter(|word| word.info.is_called(name)).filter_map(|word| match word.meaning {
            Meaning::Call(function) => Some((function, &word.info)),
            _ => None,
        });
        let (fitting, others): (Vec<_>, Vec<_>) = all.partition(|(_, info)| info.takes(arguments));
        fitting.into_iter().chain(others).next()
    }

    /// Whether a function has this name.
    pub(super) fn exists(name: &str) -> bool {
        Function::find(name, 1).is_some()
    }
}

/// A number without a fixed dtype: a literal, or the result of an operation on literals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Weak {
    Bool(bool),
    Int(i128),
    Float(f64),
}

/// The meaning of a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fixed {
    Number(Weak),
    /// The row number.
    Index,
}

/// Returns the meaning of the constant called `name`.
pub(super) fn constant(name: &str) -> Option<Fixed> {
    WORDS.iter().filter(|word| word.info.is_called(name)).find_map(|word| match word.meaning {
        Meaning::Constant(value) => Some(value),
        _ => None,
    })
}

/// Words of other languages that cannot be names.
const FOREIGN: &[&str] = &["and", "or", "not", "if", "else", "for", "in", "is", "lambda", "None"];

/// Whether the name is reserved. Names of functions and constants are not: columns may have them.
pub(super) fn is_reserved(name: &str) -> bool {
    FOREIGN.contains(&name)
}

/// The kind of word that a [`FunctionInfo`] describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FunctionKind {
    /// A prefix or infix operator.
    Operator,
    /// A name with a fixed value, unless an input, a scalar or a result has the same name.
    Constant,
    /// A function of values in the same row.
    Function,
    /// A function that converts its argument to the dtype it is named after.
    Conversion,
    /// A function of all rows, which must be a whole statement.
    Reduction,
}

/// A word of the expression language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionInfo {
    /// The kind of word.
    pub kind: FunctionKind,
    /// The word. `min` and `max` occur as functions and as reductions; `+` and `-` occur as prefix and as infix
    /// operators.
    pub name: &'static str,
    /// Other names of the same word.
    pub aliases: &'static [&'static str],
    /// The syntax, as in `where(condition, a, b)`.
    pub usage: &'static str,
    /// The smallest number of arguments or operands.
    pub least_arguments: usize,
    /// The largest number of arguments or operands; `None` if there is no limit.
    pub most_arguments: Option<usize>,
    /// The result, described in one line.
    pub about: &'static str,
}

impl FunctionInfo {
    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    /// Whether the word takes this number of arguments.
    pub(super) fn takes(&self, arguments: usize) -> bool {
        self.least_arguments <= arguments && self.most_arguments.is_none_or(|most| arguments <= most)
    }
}

/// Returns all words of the expression language: operators, constants, functions, conversions and reductions.
///
/// ```
/// use overshot::expr::{FunctionKind, functions};
/// for reduction in functions().filter(|word| word.kind == FunctionKind::Reduction) {
///     println!("{:10} {}", reduction.usage, reduction.about);
/// }
/// ```
pub fn functions() -> impl Iterator<Item = FunctionInfo> {
    WORDS.iter().map(|word| word.info)
}

/// The meaning of a word to the parser.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meaning {
    Prefix(Unary),
    /// With the precedence of its left and of its right side.
    Infix(Binary, u8, u8),
    Constant(Fixed),
    Call(Function),
}

struct Word {
    info: FunctionInfo,
    meaning: Meaning,
}

type Aliases = &'static [&'static str];
type Text = &'static str;

const fn infix(name: Text, op: Binary, (above, below): (u8, u8), usage: Text, about: Text) -> Word {
    word(FunctionKind::Operator, name, &[], (2, Some(2)), Meaning::Infix(op, above, below), usage, about)
}

const fn prefix(name: Text, op: Unary, usage: Text, about: Text) -> Word {
    word(FunctionKind::Operator, name, &[], (1, Some(1)), Meaning::Prefix(op), usage, about)
}

const fn fixed(name: Text, aliases: Aliases, value: Fixed, about: Text) -> Word {
    word(FunctionKind::Constant, name, aliases, (0, Some(0)), Meaning::Constant(value), name, about)
}

const fn unary(name: Text, aliases: Aliases, op: Unary, usage: Text, about: Text) -> Word {
    function(name, aliases, (1, Some(1)), Function::Unary(op), usage, about)
}

const fn function(
    name: Text,
    aliases: Aliases,
    arguments: (usize, Option<usize>),
    function: Function,
    usage: Text,
    about: Text,
) -> Word {
    word(FunctionKind::Function, name, aliases, arguments, Meaning::Call(function), usage, about)
}

const fn moving(name: Text, window: Window, usage: Text, about: Text) -> Word {
    function(name, &[], (3, Some(3)), Function::Near(Near::Moving(window)), usage, about)
}

const fn conversion(name: Text, dtype: Dtype, usage: Text, about: Text) -> Word {
    let meaning = Meaning::Call(Function::Cast(dtype));
    word(FunctionKind::Conversion, name, &[], (1, Some(1)), meaning, usage, about)
}

const fn reduction(name: Text, kind: Kind, usage: Text, about: Text) -> Word {
    let meaning = Meaning::Call(Function::Reduce(kind));
    word(FunctionKind::Reduction, name, &[], (1, Some(1)), meaning, usage, about)
}

const fn tally(name: Text, kind: Kind, arguments: usize, usage: Text, about: Text) -> Word {
    let arguments = (arguments, Some(arguments));
    word(FunctionKind::Reduction, name, &[], arguments, Meaning::Call(Function::Tally(kind)), usage, about)
}

const fn ranked(name: Text, ranked: Ranked, arguments: usize, usage: Text, about: Text) -> Word {
    let arguments = (arguments, Some(arguments));
    word(FunctionKind::Reduction, name, &[], arguments, Meaning::Call(Function::Ranked(ranked)), usage, about)
}

const fn word(
    kind: FunctionKind,
    name: Text,
    aliases: Aliases,
    (least_arguments, most_arguments): (usize, Option<usize>),
    meaning: Meaning,
    usage: Text,
    about: Text,
) -> Word {
    Word { info: FunctionInfo { kind, name, aliases, usage, least_arguments, most_arguments, about }, meaning }
}

const fn float(value: f64) -> Fixed {
    Fixed::Number(Weak::Float(value))
}

/// All words of the language, for the parser and for the documentation of the command.
static WORDS: &[Word] = &[
    infix("==", Binary::Eq, (1, 2), "a == b", "equal"),
    infix("!=", Binary::Ne, (1, 2), "a != b", "not equal"),
    infix("<", Binary::Lt, (1, 2), "a < b", "less"),
    infix("<=", Binary::Le, (1, 2), "a <= b", "less or equal"),
    infix(">", Binary::Gt, (1, 2), "a > b", "greater"),
    infix(">=", Binary::Ge, (1, 2), "a >= b", "greater or equal"),
    infix("|", Binary::Or, (3, 4), "a | b", "bitwise or; logical or for bools"),
    infix("^", Binary::Xor, (5, 6), "a ^ b", "bitwise exclusive or"),
    infix("&", Binary::And, (7, 8), "a & b", "bitwise and; logical and for bools"),
    infix("<<", Binary::Shl, (9, 10), "a << b", "left shift"),
    infix(">>", Binary::Shr, (9, 10), "a >> b", "right shift"),
    infix("+", Binary::Add, (11, 12), "a + b", "sum"),
    infix("-", Binary::Sub, (11, 12), "a - b", "difference"),
    infix("*", Binary::Mul, (13, 14), "a * b", "product"),
    infix("/", Binary::Div, (13, 14), "a / b", "quotient, always a float"),
    infix("//", Binary::FloorDiv, (13, 14), "a // b", "quotient rounded down"),
    infix("%", Binary::Rem, (13, 14), "a % b", "remainder of `//`, with the sign of the divisor"),
    // The right operand of `**` may have a sign, and includes the next `**`.
    infix("**", Binary::Pow, (17, 15), "a ** b", "power"),
    prefix("+", Unary::Pos, "+x", "x unchanged"),
    prefix("-", Unary::Neg, "-x", "x negated"),
    prefix("~", Unary::Not, "~x", "bitwise not; logical not for bools"),
    fixed("pi", &[], float(std::f64::consts::PI), "3.14159…"),
    fixed("e", &[], float(std::f64::consts::E), "2.71828…"),
    fixed("inf", &[], float(f64::INFINITY), "infinity"),
    fixed("nan", &[], float(f64::NAN), "not a number"),
    fixed("True", &["true"], Fixed::Number(Weak::Bool(true)), "true"),
    fixed("False", &["false"], Fixed::Number(Weak::Bool(false)), "false"),
    fixed("i", &[], Fixed::Index, "the row number, from 0, as i64; short for index()"),
    function("index", &[], (0, Some(0)), Function::Index, "index()", "the row number, from 0, as i64"),
    function(
        "rand",
        &[],
        (1, Some(1)),
        Function::Random(Distribution::Uniform),
        "rand(seed)",
        "a random number from 0 to below 1 for each row, as f64; the same for the same seed",
    ),
    function(
        "randn",
        &[],
        (1, Some(1)),
        Function::Random(Distribution::Normal),
        "randn(seed)",
        "a random number of the standard normal distribution for each row, as f64; the same for the same seed",
    ),
    function(
        "where",
        &[],
        (3, Some(3)),
        Function::Where,
        "where(condition, a, b)",
        "a where the condition holds, else b",
    ),
    function(
        "clip",
        &[],
        (3, Some(3)),
        Function::Clip,
        "clip(x, low, high)",
        "x limited to the range from low to high",
    ),
    function(
        "min",
        &["minimum"],
        (2, None),
        Function::Extreme(Binary::Min),
        "min(a, b, …)",
        "the smallest of several values in the same row; NaN if any is NaN",
    ),
    function(
        "max",
        &["maximum"],
        (2, None),
        Function::Extreme(Binary::Max),
        "max(a, b, …)",
        "the largest of several values in the same row; NaN if any is NaN",
    ),
    unary("abs", &["absolute"], Unary::Abs, "abs(x)", "absolute value"),
    unary("floor", &[], Unary::Floor, "floor(x)", "rounded down"),
    unary("ceil", &[], Unary::Ceil, "ceil(x)", "rounded up"),
    unary("round", &[], Unary::Round, "round(x)", "rounded to the nearest integer, halves to the even one"),
    unary("trunc", &[], Unary::Trunc, "trunc(x)", "rounded towards 0"),
    unary("sign", &[], Unary::Sign, "sign(x)", "1, 0 or -1, by the sign of x; NaN of NaN"),
    unary("signbit", &[], Unary::SignBit, "signbit(x)", "whether x is negative or -0; NaN is not"),
    unary("isnan", &[], Unary::IsNan, "isnan(x)", "whether x is NaN"),
    unary("isfinite", &[], Unary::IsFinite, "isfinite(x)", "whether x is neither infinite nor NaN"),
    unary("isinf", &[], Unary::IsInf, "isinf(x)", "whether x is infinite"),
    unary("sqrt", &[], Unary::Sqrt, "sqrt(x)", "square root"),
    unary("cbrt", &[], Unary::Cbrt, "cbrt(x)", "cube root"),
    unary("exp", &[], Unary::Exp, "exp(x)", "e to the power of x"),
    unary("exp2", &[], Unary::Exp2, "exp2(x)", "2 to the power of x"),
    unary("expm1", &[], Unary::Expm1, "expm1(x)", "exp(x) - 1, accurate near 0"),
    unary("log", &[], Unary::Log, "log(x)", "natural logarithm"),
    unary("log2", &[], Unary::Log2, "log2(x)", "logarithm to base 2"),
    unary("log10", &[], Unary::Log10, "log10(x)", "logarithm to base 10"),
    unary("log1p", &[], Unary::Log1p, "log1p(x)", "log(1 + x), accurate near 0"),
    unary("sin", &[], Unary::Sin, "sin(x)", "sine of radians"),
    unary("cos", &[], Unary::Cos, "cos(x)", "cosine of radians"),
    unary("tan", &[], Unary::Tan, "tan(x)", "tangent of radians"),
    unary("asin", &["arcsin"], Unary::Asin, "asin(x)", "inverse sine"),
    unary("acos", &["arccos"], Unary::Acos, "acos(x)", "inverse cosine"),
    unary("atan", &["arctan"], Unary::Atan, "atan(x)", "inverse tangent"),
    unary("sinh", &[], Unary::Sinh, "sinh(x)", "hyperbolic sine"),
    unary("cosh", &[], Unary::Cosh, "cosh(x)", "hyperbolic cosine"),
    unary("tanh", &[], Unary::Tanh, "tanh(x)", "hyperbolic tangent"),
    unary("asinh", &["arcsinh"], Unary::Asinh, "asinh(x)", "inverse hyperbolic sine"),
    unary("acosh", &["arccosh"], Unary::Acosh, "acosh(x)", "inverse hyperbolic cosine"),
    unary("atanh", &["arctanh"], Unary::Atanh, "atanh(x)", "inverse hyperbolic tangent"),
    function(
        "atan2",
        &["arctan2"],
        (2, Some(2)),
        Function::Binary(Binary::Atan2),
        "atan2(y, x)",
        "angle of the point (x, y)",
    ),
    function(
        "hypot",
        &[],
        (2, Some(2)),
        Function::Binary(Binary::Hypot),
        "hypot(a, b)",
        "sqrt(a * a + b * b) without overflow",
    ),
    function(
        "fmod",
        &[],
        (2, Some(2)),
        Function::Binary(Binary::Fmod),
        "fmod(a, b)",
        "remainder of the quotient rounded towards 0, with the sign of a",
    ),
    function(
        "copysign",
        &[],
        (2, Some(2)),
        Function::Binary(Binary::CopySign),
        "copysign(x, y)",
        "x with the sign of y, a float; NaN has the sign +",
    ),
    function(
        "nextafter",
        &[],
        (2, Some(2)),
        Function::Binary(Binary::NextAfter),
        "nextafter(x, y)",
        "the next float after x towards y",
    ),
    function("power", &[], (2, Some(2)), Function::Binary(Binary::Pow), "power(a, b)", "power, like a ** b"),
    function(
        "shift",
        &[],
        (3, Some(3)),
        Function::Near(Near::Shift),
        "shift(x, 1, edge)",
        "x of the row before, or of another distance; the border is edge, wrap, nan or a number",
    ),
    function(
        "diff",
        &[],
        (2, Some(2)),
        Function::Near(Near::Diff),
        "diff(x, edge)",
        "x - shift(x, 1, edge), the difference from the row before; the border is that of shift",
    ),
    moving("moving_sum", Window::Sum, "moving_sum(x, 5, edge)", "sum of the last 5 rows, with the border of shift"),
    moving("moving_mean", Window::Mean, "moving_mean(x, 5, edge)", "mean of the last 5 rows, with the border of shift"),
    moving("moving_min", Window::Min, "moving_min(x, 5, edge)", "smallest of the last 5 rows; NaN if any is NaN"),
    moving("moving_max", Window::Max, "moving_max(x, 5, edge)", "largest of the last 5 rows; NaN if any is NaN"),
    function(
        "onehot",
        &[],
        (2, Some(2)),
        Function::OneHot,
        "onehot(k, n).T @ x",
        "sums of the rows of x where k, an integer, is 0, 1, … n - 1",
    ),
    function(
        "cumsum",
        &[],
        (1, Some(1)),
        Function::RunningSum,
        "cumsum(x)",
        "running sum: x of this row and of all rows before it",
    ),
    conversion("bool", Dtype::Bool, "bool(x)", "to bool: true unless 0"),
    conversion("i8", Dtype::I8, "i8(x)", "to 8-bit integer"),
    conversion("i16", Dtype::I16, "i16(x)", "to 16-bit integer"),
    conversion("i32", Dtype::I32, "i32(x)", "to 32-bit integer"),
    conversion("i64", Dtype::I64, "i64(x)", "to 64-bit integer"),
    conversion("u8", Dtype::U8, "u8(x)", "to unsigned 8-bit integer"),
    conversion("u16", Dtype::U16, "u16(x)", "to unsigned 16-bit integer"),
    conversion("u32", Dtype::U32, "u32(x)", "to unsigned 32-bit integer"),
    conversion("u64", Dtype::U64, "u64(x)", "to unsigned 64-bit integer"),
    conversion("f16", Dtype::F16, "f16(x)", "to 16-bit float"),
    conversion("bf16", Dtype::Bf16, "bf16(x)", "to 16-bit float with the range of f32"),
    conversion("f32", Dtype::F32, "f32(x)", "to 32-bit float"),
    conversion("f64", Dtype::F64, "f64(x)", "to 64-bit float"),
    reduction("sum", Kind::Sum, "sum(x)", "sum"),
    reduction("prod", Kind::Prod, "prod(x)", "product"),
    reduction("mean", Kind::Mean, "mean(x)", "arithmetic mean"),
    reduction("min", Kind::Min, "min(x)", "smallest value; NaN if any is NaN"),
    reduction("max", Kind::Max, "max(x)", "largest value; NaN if any is NaN"),
    reduction("var", Kind::Var, "var(x)", "variance: mean squared distance from the mean"),
    reduction("std", Kind::Std, "std(x)", "standard deviation: square root of var(x)"),
    reduction("count", Kind::Count, "count(x)", "number of rows where x is true"),
    reduction("any", Kind::Any, "any(x)", "whether x is true in any row"),
    reduction("all", Kind::All, "all(x)", "whether x is true in all rows"),
    reduction("argmin", Kind::ArgMin, "argmin(x)", "row number of the first smallest value"),
    reduction("argmax", Kind::ArgMax, "argmax(x)", "row number of the first largest value"),
    ranked("median", Ranked::Median, 1, "median(x)", "middle value, or the mean of both; NaN if any value is NaN"),
    ranked(
        "quantile",
        Ranked::Quantile,
        2,
        "quantile(x, q)",
        "value that the share q, from 0 to 1, of the values is below; interpolated; NaN if any value is NaN",
    ),
    ranked("topk", Ranked::Top, 2, "topk(x, k)", "array of the k largest values, in descending order; NaN is largest"),
    tally(
        "histogram",
        Kind::Histogram,
        4,
        "histogram(x, bins, low, high)",
        "array of the number of values in each of `bins` bins of the same width from low to high",
    ),
    tally(
        "bincount",
        Kind::BinCount,
        2,
        "bincount(k, n)",
        "array of the number of times that k, an integer, is 0, 1, … n - 1",
    ),
    tally(
        "bincount",
        Kind::BinCount,
        3,
        "bincount(k, n, weights)",
        "array of the sums of the weights where k, an integer, is 0, 1, … n - 1; exact, then rounded to f64",
    ),
];
