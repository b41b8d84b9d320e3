//! Messages about words that the language does not have: how to write the same, or that it is not supported.
//!
//! A message suggests a word only if it means the same. A function with a similar name may compute something else.

use super::words::{Function, FunctionInfo, FunctionKind, functions};

/// Replacements for functions of NumPy, numexpr and others.
const INSTEAD: &[(&[&str], &str)] = &[
    (&["average", "avg", "nanaverage"], "write `mean(x)`, or with weights `sum(x * w)` and `sum(w)`"),
    (&["float", "float64", "double"], "write `f64(x)`"),
    (&["float32", "single"], "write `f32(x)`"),
    (&["int", "int64", "long"], "write `i64(x)`"),
    (&["int32"], "write `i32(x)`"),
    (&["int16", "int8", "uint8", "uint16", "uint32", "uint64"], "write the dtype as in `i16(x)` or `u8(x)`"),
    (&["bool_", "boolean"], "write `bool(x)`"),
    (&["astype", "asarray", "array"], "convert with the name of a dtype, like `f32(x)`"),
    (&["ln", "loge"], "write `log(x)`"),
    (&["pow", "float_power"], "write `a ** b` or `power(a, b)`"),
    (&["square"], "write `x ** 2`"),
    (&["exp10"], "write `10.0 ** x`"),
    (&["reciprocal"], "write `1 / x`"),
    (&["negative"], "write `-x`"),
    (&["positive"], "write `+x`"),
    (&["fabs"], "write `abs(x)`"),
    (&["rint", "around", "round_"], "write `round(x)`"),
    (&["fix"], "write `trunc(x)`"),
    (&["ceiling"], "write `ceil(x)`"),
    (&["fmin"], "write `where(isnan(a), b, where(isnan(b), a, min(a, b)))`"),
    (&["fmax"], "write `where(isnan(a), b, where(isnan(b), a, max(a, b)))`"),
    (&["amin", "minimum_reduce"], "write `min(x)`"),
    (&["amax", "maximum_reduce"], "write `max(x)`"),
    (&["stddev", "stdev"], "write `std(x)`"),
    (&["variance"], "write `var(x)`"),
    (&["add"], "write `a + b`"),
    (&["subtract"], "write `a - b`"),
    (&["multiply"], "write `a * b`"),
    (&["divide", "true_divide"], "write `a / b`"),
    (&["floor_divide"], "write `a // b`"),
    (&["mod", "remainder"], "write `a % b`"),
    (&["logical_and", "bitwise_and"], "write `a & b`"),
    (&["logical_or", "bitwise_or"], "write `a | b`"),
    (&["logical_xor", "bitwise_xor"], "write `a ^ b`"),
    (&["logical_not", "bitwise_not", "invert"], "write `~a`"),
    (&["left_shift", "right_shift"], "write `a << b` or `a >> b`"),
    (&["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"], "write the sign, like `a == b`"),
    (&["isclose", "allclose"], "write `abs(a - b) <= tolerance`"),
    (&["isin", "in1d"], "write `(x == a) | (x == b)`"),
    (&["between"], "write `(low <= x) & (x <= high)`"),
    (&["sgn", "signum"], "write `sign(x)`"),
    (&["heaviside"], "write `where(x > 0, 1, where(x < 0, 0, h))`"),
    (&["iif", "ifelse", "cond", "select", "piecewise", "choose"], "write `where(condition, a, b)`"),
    (&["nan_to_num"], "write `where(isnan(x), 0, x)`"),
    (&["isneginf", "isposinf"], "write `x == -inf` or `x == inf`"),
    (&["deg2rad", "radians"], "write `x * (pi / 180)`"),
    (&["rad2deg", "degrees"], "write `x * (180 / pi)`"),
    (&["sec"], "write `1 / cos(x)`"),
    (&["csc", "cosec"], "write `1 / sin(x)`"),
    (&["cot"], "write `1 / tan(x)`"),
    (&["sigmoid", "expit"], "write `1 / (1 + exp(-x))`"),
    (&["logaddexp"], "write `max(a, b) + log1p(exp(-abs(a - b)))`"),
    (&["count_nonzero"], "write `count(x)`"),
    (&["nansum"], "write `sum(x[~isnan(x)])`"),
    (&["nanprod"], "write `prod(x[~isnan(x)])`"),
    (&["nanstd", "nanvar"], "write `std(x[~isnan(x)])` or `var(x[~isnan(x)])`"),
    (&["nanmean"], "write `mean(x[~isnan(x)])`"),
    (&["nanmin"], "write `min(x[~isnan(x)])`"),
    (&["nanmax"], "write `max(x[~isnan(x)])`"),
    (&["ptp"], "write `min(x), max(x)`"),
    (&["dot", "vdot", "inner"], "write `sum(x * y)`"),
    (&["norm"], "write `sum(x * x)`; the norm is its square root"),
    (&["cov", "corrcoef", "corr"], "compute it from `mean(x * y), mean(x), mean(y), std(x), std(y)`"),
    (&["product"], "write `prod(x)`"),
    (&["histogram2d", "histogramdd"], "write `bincount(i64(a * m) * n + i64(b * n), 1000)`, with the cells as keys"),
    (&["value_counts", "groupby"], "write `bincount(k, 100)`, or `bincount(k, 100, x)` for the sums of x"),
    (&["hist"], "write `histogram(x, 100, -3, 3)`"),
    (&["percentile"], "write `quantile(x, 0.25)` for 25 percent"),
    (&["nanmedian"], "write `median(x[~isnan(x)])`"),
    (&["nanquantile", "nanpercentile"], "write `quantile(x[~isnan(x)], 0.25)`"),
    (&["nlargest"], "write `topk(x, 10)`"),
    (&["nsmallest"], "write `t = topk(-x, 10)`, and `-t`; of integers `t = topk(~x, 10)`, and `~t`"),
    (&["mode"], "write `bincount(k, 100)`, whose greatest count is that of the mode"),
    (&["sort", "argsort", "unique", "partition", "argpartition"], "rows keep their order"),
    (&["cumprod", "cummax", "cummin"], "a row cannot read all rows before it"),
    (&["nancumsum"], "write `cumsum(where(isnan(x), 0, x))`"),
    (&["accumulate", "running_sum"], "write `cumsum(x)`"),
    (&["roll"], "write `shift(x, 1, wrap)`"),
    (&["lag"], "write `shift(x, 1, edge)`"),
    (&["lead"], "write `shift(x, -1, edge)`"),
    (&["rolling", "move_mean", "rolling_mean"], "write `moving_mean(x, 5, edge)`"),
    (&["move_sum", "rolling_sum"], "write `moving_sum(x, 5, edge)`"),
    (&["ediff1d"], "write `diff(x, edge)`"),
    (&["gradient"], "write `(shift(x, -1, edge) - shift(x, 1, edge)) / 2`"),
    (&["convolve"], "write a sum, like `shift(x, -1, 0) + 2 * x + shift(x, 1, 0)`"),
    (&["interp", "fft"], "a row reads only rows near it"),
    (&["trapz", "trapezoid"], "write `sum((x + shift(x, 1, edge)) / 2 * (i > 0))`"),
    (&["matmul", "einsum", "outer", "cross", "tensordot"], "operations are on single elements"),
    (&["keep", "filter", "compress", "extract"], "write `x[x > 0]`"),
    (&["nonzero", "flatnonzero", "argwhere"], "write `index()[x > 0]`"),
    (&["searchsorted", "digitize", "take", "gather"], "a row reads only rows near it"),
    (&["conj", "conjugate", "real", "imag", "angle", "complex"], "there are no complex numbers"),
    (
        &["zeros_like", "ones_like", "full_like", "zeros", "ones", "full"],
        "a number applies to all rows, like `y = 0 * x + 1`",
    ),
    (&["arange", "linspace", "row", "rownum"], "write `index()`, the row number"),
    (&["len", "size", "shape", "nrows"], "the report shows the number of rows"),
    (&["random", "uniform"], "write `rand(1)`, where 1 is the seed"),
    (&["normal", "standard_normal"], "write `randn(1)`, where 1 is the seed"),
    (&["spacing", "frexp", "ldexp", "modf"], ""),
    (&["erf", "erfc", "gamma", "lgamma", "gammaln", "sinc", "j0", "i0"], ""),
];

/// The message about an unknown function.
pub(super) fn unknown_function(name: &str) -> String {
    let lower = name.to_lowercase();
    let instead = INSTEAD.iter().find(|(names, _)| names.contains(&lower.as_str()));
    match (instead, nearest(&lower)) {
        (Some((_, "")), _) => format!("the function `{name}` is not supported"),
        (Some((_, instead)), _) => format!("the function `{name}` is not supported; {instead}"),
        (None, Some(near)) => format!("there is no function `{name}`; did you mean `{near}`?"),
        (None, None) => format!("there is no function `{name}`"),
    }
}

/// The function whose name differs by a typing error: one letter too many or too few, or two letters swapped.
fn nearest(name: &str) -> Option<&'static str> {
    let callable = functions().filter(|word| !matches!(word.kind, FunctionKind::Operator | FunctionKind::Constant));
    let mut names = callable.flat_map(|word| [word.name].into_iter().chain(word.aliases.iter().copied()));
    names.find(|own| own.len() > 2 && (*own == name || is_slip(name, own)))
}

fn is_slip(name: &str, own: &str) -> bool {
    let (name, own): (Vec<char>, Vec<char>) = (name.chars().collect(), own.chars().collect());
    let lacks = |long: &[char], short: &[char]| {
        long.len() == short.len() + 1
            && (0..long.len())
                .any(|left_out| long[..left_out] == short[..left_out] && long[left_out + 1..] == short[left_out..])
    };
    let mut swapped = name.clone();
    let is_swap = (1..name.len()).any(|k| {
        swapped.copy_from_slice(&name);
        swapped.swap(k - 1, k);
        swapped == own
    });
    is_swap || lacks(&name, &own) || lacks(&own, &name)
}

/// The message about `name(…, keyword=…)`.
pub(super) fn keyword(name: &str, keyword: &str) -> String {
    let instead = match keyword {
        "axis" | "keepdims" => "only reductions have an axis",
        "ddof" | "correction" => "`var` and `std` divide by the number of rows; multiply the variance by n / (n - 1)",
        "dtype" => "convert the argument, like `sum(f64(x))`",
        "where" => "choose rows in the argument, like `sum(x[condition])`",
        "initial" | "default" => "include it in the argument",
        _ => "pass the arguments by position",
    };
    format!("keyword arguments, like `{keyword}` of `{name}`, are not supported; {instead}")
}

/// The message about a wrong number of arguments.
pub(super) fn arguments(name: &str, info: &FunctionInfo, given: usize) -> String {
    let takes = match (info.least_arguments, info.most_arguments) {
        _ if matches!(name, "min" | "max") => "1 argument (all rows) or more (the same row)".to_owned(),
        (least, None) => format!("{least} or more arguments"),
        (0, _) => "no arguments".to_owned(),
        (1, _) => "1 argument".to_owned(),
        (least, _) => format!("{least} arguments"),
    };
    format!("`{name}` takes {takes}, not {given}")
}

/// The message about `x[1:]`, or about `x[:, 0]`, which has two dimensions.
pub(super) fn slice(dimensions: usize) -> &'static str {
    match dimensions {
        1 => {
            "slices, like `x[1:]`, are not supported; select rows by their number, like `x[index() >= 1]`, or pass a \
             part of the input"
        }
        _ => SEVERAL_DIMENSIONS,
    }
}

/// The message about a matrix that is no array of the job.
pub(super) const MATRIX: &str = "rows are multiplied by an array of the job, like `x @ w` or `x @ w.T`; compute it \
     first, or write `x.T @ y` for a product over the rows and `sum(x * y)` for the dot product";

/// The message about the number of keys.
pub(super) const NUMBER_OF_KEYS: &str =
    "the number of keys of `onehot` is a number of the text, from 1 to 16777216, as in `onehot(k, 10).T @ x`";

/// The message about keys that are not multiplied.
pub(super) const ONE_HOT: &str = "`onehot` is only multiplied over the rows, like `onehot(k, 10).T @ x`, which adds up \
     rows by their keys; compare with a number for a value of 0 or 1, like `k == 3`";

/// The message about keys of several columns.
pub(super) const KEYS_OF_ROWS: &str = "each row has one key here; give keys of the shape `(n,)` or `(n, 1)`";

/// The message about a product in a text that was not divided at its products.
pub(super) const UNDIVIDED: &str = "a product with a matrix is computed by an engine";

/// The message about neighbours in a text with such a product.
pub(super) const OTHER_ROWS_BESIDE_PRODUCT: &str =
    "other rows are not read beside a product with a matrix; write this to an output first, in a job of its own";

/// The message about kept rows that are multiplied.
pub(super) const FILTERED_FACTOR: &str = "all rows are multiplied; filter the product, like `(x @ w)[x > 0]`, or \
     write zeros, like `where(x > 0, x, 0) @ w`";

/// The message about a transposed value that is not multiplied.
pub(super) const TRANSPOSED: &str = "a transposed value can only be multiplied, like `x.T @ y` or `x @ w.T`";

/// The message about `x[m, 0]`.
pub(super) const SEVERAL_DIMENSIONS: &str =
    "brackets with `,` are not supported, because a row is one element; pass each column as an input of its own";

/// The message about an unknown sign.
pub(super) fn sign(sign: char) -> String {
    match sign {
        '"' | '\'' => "strings are not supported; write names without quotes".to_owned(),
        '.' => "`.` is not supported; write `mean(x)` instead of `x.mean()` or `np.mean(x)`".to_owned(),
        '?' | ':' => format!("`{sign}` is not supported; write `where(condition, a, b)` to choose between values"),
        '#' => "`#` is not supported; there are no comments".to_owned(),
        _ => format!("{sign:?} is not supported"),
    }
}

/// The message about a name that is read but has neither an input nor a scalar.
pub(crate) fn unbound(name: &str) -> String {
    let missing = format!("the expression reads '{name}', but the job has no input of that name and no value");
    match Function::exists(name) {
        true => format!("{missing}; to call the function of that name, write {name}(…)"),
        false => format!("{missing}; give '{name}' an input or a value"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::Expression;

    #[test]
    fn suggestions_mean_the_same() {
        for (name, part) in [
            ("sqr", "did you mean `sqrt`?"),
            ("Sqrt", "did you mean `sqrt`?"),
            ("mena", "did you mean `mean`?"),
            ("artan2", "did you mean `atan2`?"),
            ("average", "write `mean(x)`"),
            ("percentile", "write `quantile(x, 0.25)`"),
            ("sort", "not supported; rows keep their order"),
            ("signum", "write `sign(x)`"),
            ("hist", "write `histogram("),
            ("cumprod", "a row cannot read all rows before it"),
            ("lag", "write `shift(x, 1, edge)`"),
            ("dot", "write `sum(x * y)`"),
            ("spacing", "`spacing` is not supported"),
        ] {
            let message = unknown_function(name);
            assert!(message.contains(part), "{message}");
        }
        for name in ["keep", "cov", "sort", "percentile", "dot", "sim", "xyzzy", "lag", "mode", "qsort"] {
            assert!(!unknown_function(name).contains("did you mean"), "{}", unknown_function(name));
        }
    }

    #[test]
    fn what_is_written_instead_parses() {
        for (names, instead) in INSTEAD {
            for name in *names {
                assert!(!Function::exists(name), "{name} exists");
            }
            // Text between backquotes is valid in the language, except for single signs.
            let quoted = instead.split('`').skip(1).step_by(2).filter(|quoted| quoted.len() > 2);
            for text in quoted {
                let parses = Expression::parse(text).or_else(|_| Expression::parse(&format!("z = {text}")));
                assert!(parses.is_ok(), "{names:?}: {text}");
            }
        }
    }
}
