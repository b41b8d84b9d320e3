//! `overshot functions`.

use std::fmt::Write;

use super::Result;
use super::output::print;
use super::style::heading;

type Words = &'static [(&'static str, &'static str)];

/// What is written, and what it gives, by kind.
const KINDS: &[(&str, Words)] = &[
    ("Reductions: one value of all rows; several in one pass, named as in 'm = mean(x)'", REDUCTIONS),
    ("Functions: a value for every row", FUNCTIONS),
    ("Conversions", CONVERSIONS),
    ("Operators, from those that bind most tightly", OPERATORS),
    ("Constants", CONSTANTS),
];

const REDUCTIONS: Words = &[
    ("sum(x)", "the sum"),
    ("mean(x)", "the arithmetic mean"),
    ("min(x)", "the least value, NaN if there is one"),
    ("max(x)", "the greatest value, NaN if there is one"),
    ("var(x)", "the variance of the population"),
    ("std(x)", "the standard deviation of the population"),
    ("count(x)", "how many rows are not zero"),
    ("any(x)", "whether a row is not zero"),
    ("all(x)", "whether no row is zero"),
    ("argmin(x)", "the first row that has the least value"),
    ("argmax(x)", "the first row that has the greatest value"),
];

const FUNCTIONS: Words = &[
    ("where(condition, x, y)", "x where the condition holds, else y"),
    ("clip(x, low, high)", "x, but at least low and at most high"),
    ("min(x, y)", "the lesser of two or more values in a row"),
    ("max(x, y)", "the greater of two or more values in a row"),
    ("abs(x)", "the value without its sign"),
    ("floor(x)", "rounded down"),
    ("ceil(x)", "rounded up"),
    ("round(x)", "rounded to the nearest, halves to the even one"),
    ("trunc(x)", "rounded towards zero"),
    ("isnan(x)", "whether it is NaN"),
    ("isfinite(x)", "whether it is neither infinite nor NaN"),
    ("isinf(x)", "whether it is infinite"),
    ("sqrt(x)", "the square root"),
    ("cbrt(x)", "the cube root"),
    ("hypot(x, y)", "the square root of x * x + y * y, without overflow"),
    ("exp(x)", "e to the power of x"),
    ("exp2(x)", "2 to the power of x"),
    ("expm1(x)", "exp(x) - 1, exact near 0"),
    ("log(x)", "the natural logarithm"),
    ("log2(x)", "the logarithm to base 2"),
    ("log10(x)", "the logarithm to base 10"),
    ("log1p(x)", "log(1 + x), exact near 0"),
    ("sin(x)", "the sine of radians"),
    ("cos(x)", "the cosine of radians"),
    ("tan(x)", "the tangent of radians"),
    ("asin(x)", "the angle of a sine"),
    ("acos(x)", "the angle of a cosine"),
    ("atan(x)", "the angle of a tangent"),
    ("atan2(y, x)", "the angle of the point (x, y)"),
    ("sinh(x)", "the hyperbolic sine"),
    ("cosh(x)", "the hyperbolic cosine"),
    ("tanh(x)", "the hyperbolic tangent"),
    ("asinh(x)", "the inverse hyperbolic sine"),
    ("acosh(x)", "the inverse hyperbolic cosine"),
    ("atanh(x)", "the inverse hyperbolic tangent"),
];

const CONVERSIONS: Words = &[
    ("bool(x)", "whether it is not zero"),
    ("i8(x)", "an integer of so many bits; floats saturate, NaN becomes 0; also i16, i32, i64"),
    ("u8(x)", "the same without a sign; also u16, u32, u64"),
    ("f32(x)", "a float of 32 bits"),
    ("f64(x)", "a float of 64 bits"),
];

const OPERATORS: Words = &[
    ("x ** y", "power"),
    ("-x", "negation; ~x inverts bits, or a bool"),
    ("x * y", "product; x / y quotient, x // y rounded down, x % y its remainder"),
    ("x + y", "sum; x - y difference"),
    ("x << y", "shift of bits; x >> y to the right"),
    ("x & y", "and; x ^ y exclusive or, x | y or, each less tightly"),
    ("x < y", "comparison; also <=, >, >=, ==, !="),
];

const CONSTANTS: Words = &[
    ("i", "the number of the row, from 0, as i64"),
    ("pi", "3.14159…"),
    ("e", "2.71828…"),
    ("inf", "infinity"),
    ("nan", "not a number"),
    ("true", "also True; false, False"),
];

/// Lists what expressions may use.
pub fn list() -> Result {
    let mut text = String::new();
    for (k, (kind, words)) in KINDS.iter().enumerate() {
        let _ = writeln!(text, "{}{}", if k == 0 { "" } else { "\n" }, heading(kind));
        for (usage, about) in *words {
            let _ = writeln!(text, "  {usage:24}{about}");
        }
    }
    print(text)
}

#[cfg(test)]
mod tests {
    use overshot::Job;

    use super::*;

    #[test]
    fn everything_listed_is_of_the_language() {
        for (usage, _) in KINDS.iter().flat_map(|(_, words)| *words) {
            assert!(Job::eval(&format!("result = {usage}")).is_ok(), "{usage}");
        }
        assert!(Job::eval("result = mode(x)").is_err());
    }

    #[test]
    fn lines_fit_a_terminal() {
        for (usage, about) in KINDS.iter().flat_map(|(_, words)| *words) {
            assert!(usage.len() < 24 && 26 + about.chars().count() <= 110, "{usage}: {about}");
        }
    }
}
