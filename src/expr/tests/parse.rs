//! Tests of the meaning of expressions, and of errors in them.

use proptest::prelude::*;

use super::super::{Expression, functions, locate};
use crate::data::Dtype;
use crate::error::Error;

/// The column and the message of the error in a text, in which `a` is an `f64`, `n` an `i8`, `u` a `u64`, `b` a `bool`.
fn fault(text: &str) -> (usize, String) {
    let inputs = [("a", Dtype::F64), ("n", Dtype::I8), ("u", Dtype::U64), ("b", Dtype::Bool)];
    let inputs: Vec<_> = inputs.map(|(name, dtype)| (name.to_owned(), dtype)).into();
    let result = Expression::parse(text).and_then(|expression| {
        let outputs: Vec<_> = expression.outputs().last().map(|name| (name.to_owned(), None)).into_iter().collect();
        expression.bind(&inputs, &[], &[], &outputs).map(|_| ())
    });
    match result {
        Err(Error::Expression { column, text: shown, message }) => {
            assert_eq!(shown, text);
            (column, message)
        }
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn errors_say_where_and_what_to_do() {
    for (text, column, part) in [
        ("", 1, "nothing to compute"),
        (" ;;", 1, "nothing to compute"),
        ("y = ", 5, "ends too early"),
        ("y = (a", 5, "never closed"),
        ("y = a)", 6, "unexpected `)`"),
        ("y = a b", 7, "operator is missing"),
        ("y = 2a", 6, "directly follows a number"),
        ("y = 0x", 5, "not a number"),
        ("y = 1__0", 5, "not a number"),
        ("y = 012", 5, "start with 0"),
        ("y = 1e", 6, "directly follows a number"),
        ("y = 999999999999999999999999999999999999999999", 5, "too large"),
        ("y = a $ 2", 7, "is not supported"),
        ("y = a && b", 7, "write `&`"),
        ("y = !b", 5, "write `~`"),
        ("y = b and b", 7, "write `&`"),
        ("y = not b", 5, "write `~`"),
        ("y = a if b else 2", 7, "where("),
        ("y = 1 < a < 2", 11, "do not chain"),
        ("y = a = 2", 7, "`==`"),
        ("a + 1", 1, "is not used"),
        ("a", 1, "is not used"),
        ("y = sqr(a)", 5, "did you mean `sqrt`?"),
        ("y = average(a)", 5, "write `mean(x)`"),
        (
            "y = where(a, a, dtype=a)",
            17,
            "keyword arguments, like `dtype` of `where`, are not supported; convert the argument",
        ),
        ("y = sqrt(a, axis=0)", 5, "`sqrt` is no reduction, so it has no axis"),
        ("mean(a, axis=1)", 1, "this value is not used"),
        ("mean(a, axis=a)", 9, "an axis is a number"),
        ("y = mean(a, axis=)", 13, "an axis is a number"),
        ("y = mean(a, axis=())", 13, "an axis is a number"),
        ("y = mean(a, axis=(1, 1))", 13, "an axis is a number, or several different ones"),
        ("y = mean(a, axis=(1 2))", 13, "an axis is a number"),
        ("y = mean(a, axis=1.0)", 13, "an axis is a number"),
        ("y = mean(a, axis=-64) + mean(a, axis=64)", 33, "an axis is a number"),
        ("y = mean(a, axis=(0, 1))", 5, "the first axis is not reduced together with others"),
        ("y = sum(mean(a, axis=0), axis=1)", 5, "this reduces a result"),
        ("mean(a, axis=0, a)", 17, "arguments by position come before those by name"),
        ("mean(a, axis=0, keepdims=1)", 17, "`keepdims` is `True` or `False`"),
        ("mean(a, keepdims=True)", 1, "`keepdims` needs an axis"),
        ("var(a, ddof=1)", 8, "divide by the number of rows"),
        ("y = f(x=1)", 7, "keyword arguments"),
        ("y = a[1:]", 8, "slices, like `x[1:]`"),
        ("y = a[n]", 6, "write a comparison of rows"),
        ("y = a[a > 0", 6, "never closed"),
        ("y = a.mean()", 6, "write `mean(x)` instead of"),
        ("y = np.mean (a)", 7, "write `mean(x)` instead of"),
        ("y = a.b.mean()", 8, "write `mean(x)` instead of"),
        ("y = a.", 6, "write `mean(x)` instead of"),
        ("y = a.5", 6, "an operator is missing before this number"),
        ("y = 1.a", 7, "directly follows a number"),
        ("y.b = a", 1, "`y.b` is a field, which can only be read; assign a name without a dot"),
        ("t.s = sum(a)", 1, "`t.s` is a field"),
        ("y = 'a'", 5, "without quotes"),
        (
            "y = isnan(a) | a > 1",
            14,
            "not bool and f64; it has a higher precedence than comparisons; put them in parentheses",
        ),
        ("y = 1 < a & n", 11, "like `a & (x > 1)`"),
        ("y = sqrt(a) & index()", 13, "accepts integers and bools, not f64 and i64"),
        ("y = index(a)", 5, "takes no arguments, not 1"),
        ("y = maximum(a)", 5, "takes 2 or more arguments, not 1"),
        ("y = xyzzy(a)", 5, "no function `xyzzy`"),
        ("y = sqrt", 5, "to call the function of that name, write sqrt(…)"),
        ("y = sqrt(a, a)", 5, "takes 1 argument, not 2"),
        ("y = where(a, a)", 5, "takes 3 arguments, not 2"),
        ("y = min()", 5, "1 argument (all rows) or more"),
        ("sum()", 1, "takes 1 argument"),
        ("a - mean(a)", 1, "this value is not used"),
        ("m = sum(sum(a))", 5, "reduces a result, which is known already"),
        ("y = a; s = sum(y); y - mean(2 * s)", 24, "reduces a result"),
        ("sum(a) / a", 1, "this value is not used"),
        ("y = a; m = mean(a); y = m", 21, "assigned twice"),
        ("y = a; y = a", 8, "assigned twice"),
        ("m = sum(a); m = a", 13, "assigned twice"),
        ("a = a + 1", 1, "was read as an input"),
        ("y = a; a = 2", 8, "was read as an input"),
        ("y = pi; pi = 3", 9, "was read as a constant earlier"),
        ("y = i + a; i = a", 12, "was read as a constant earlier"),
        ("if = a", 1, "a reserved word"),
        ("y = x + 1", 5, "reads 'x', but the job has no input of that name"),
        ("t = a; y = a", 1, "assigned but not used"),
        ("y = n + 300", 9, "300 does not fit in i8; convert the other operand first, like i64(a)"),
        ("y = n + 9223372036854775808", 9, "like u64(a)"),
        ("y = n + 18446744073709551616", 9, "like f64(a)"),
        ("y = u - -1", 9, "-1 does not fit in u64"),
        ("y = u8(256)", 8, "256 does not fit in u8"),
        ("y = n ** -1", 10, "negative power"),
        ("y = n << 1.5", 7, "accepts integers and bools"),
        ("y = n & a", 7, "not i8 and f64"),
        ("y = n & n | 1.5", 11, "accepts integers and bools"),
        ("y = u & i", 7, "accepts integers and bools"),
        ("y = ~a", 5, "accepts integers and bools"),
        ("y = -b", 5, "write `~`"),
        ("y = b - b", 7, "write `^`"),
        ("y = 1 // 0", 7, "division by zero"),
        ("y = 1 / (2 - 2)", 7, "division by zero"),
        ("y = 2 ** 500", 7, "too large"),
        ("y = (-8) ** 0.5", 10, "not real"),
        ("y = 1 << -1", 7, "count is negative"),
        ("y = é$", 6, "is not supported"),
        ("y = a +\n a", 8, "line ends too early"),
    ] {
        let (at, message) = fault(text);
        assert!(message.contains(part), "{text}: {message}");
        assert_eq!(at, column, "{text}: {message}");
    }
}

#[test]
fn statements_and_names() {
    let text = "t = (x +\n y) * 2\n z = t + x, m = mean(z); sum( x ) ;";
    let expression = Expression::parse(text).unwrap();
    assert_eq!(expression.inputs().collect::<Vec<_>>(), ["x", "y"]);
    assert_eq!(expression.outputs().collect::<Vec<_>>(), ["t", "z"]);
    assert_eq!(expression.text(), text);
    let inputs: Vec<_> = ["x", "y"].map(|name| (name.to_owned(), Dtype::I32)).into();
    let program = expression.bind(&inputs, &[], &[], &[("z".into(), Some(Dtype::U8))]).unwrap();
    assert_eq!(program.outputs(), [("z".to_owned(), Dtype::U8)]);
    let labels: Vec<_> = program.reductions().iter().map(|reduction| reduction.label()).collect();
    assert_eq!(labels, ["m", "sum( x )"]);
    assert!(expression.bind(&inputs, &[], &[], &[("m".into(), None)]).is_err());
    assert!(expression.bind(&inputs, &[], &[], &[("z".into(), None), ("z".into(), None)]).is_err());
}

#[test]
fn deep_texts_are_refused() {
    for text in [
        "(".repeat(100_000),
        format!("y = {}a", "(".repeat(100_000)),
        format!("y = {}a", "-".repeat(100_000)),
        format!("y = a{}", " ** a".repeat(100_000)),
        format!("y = {}a", "abs(".repeat(100_000)),
        format!("y = min({})", "min(a, ".repeat(100_000)),
    ] {
        assert!(fault(&text).1.contains("nested more than"));
    }
    // Many operands, arguments or statements do not count as nesting.
    for operator in ["+", "-", "*", "/", "==", "|"].map(|sign| format!(" {sign} 1")) {
        let chain = Expression::parse(&format!("y = 1{}", operator.repeat(100_000)));
        assert_eq!(chain.is_ok(), !operator.contains("=="), "{operator}");
    }
    let wide = format!("y = max({}a)", "a, ".repeat(10_000));
    assert!(Expression::parse(&wide).is_ok());
    let long: String = (0..2_000).map(|k| format!("y{k} = a\n")).collect();
    assert!(Expression::parse(&long).is_ok());
}

#[test]
fn a_sum_of_thousands_of_terms_is_flat() {
    let (columns, terms) = (20, 20_000);
    let text: Vec<String> = (0..terms).map(|k| format!("x{} * {}", k % columns, k % 1000)).collect();
    let expression = Expression::parse(&format!("y = {}", text.join(" + "))).unwrap();
    let inputs: Vec<_> = (0..columns).map(|k| (format!("x{k}"), Dtype::I64)).collect();
    let program = std::sync::Arc::new(expression.bind(&inputs, &[], &[], &[("y".into(), None)]).unwrap());
    let ones: Vec<_> = (0..columns).map(|_| super::Column::from_bits(Dtype::I64, [1])).collect();
    let (outputs, _) = super::run(&program, 0, 1, &ones);
    assert_eq!(outputs[0].bits().collect::<Vec<_>>(), [(0..1000).sum::<u64>() * terms as u64 / 1000]);
}

#[test]
fn names_of_fields_have_dots() {
    let inputs = |text: &str| Expression::parse(text).unwrap().inputs().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(inputs("sum(t.price * t.size)"), ["t.price", "t.size"]);
    assert_eq!(inputs("y = t.ü2+t"), ["t.ü2", "t"]);
    assert_eq!(inputs("y = where(a.b.c>1.,.5,1.e1) ** 2."), ["a.b.c"]);
    assert_eq!(inputs("y = t.sum + pi.x"), ["t.sum", "pi.x"], "words of the language are names of fields");
    let dtypes: Vec<_> =
        [("t.x", Dtype::F32), ("t.y", Dtype::I64)].map(|(name, dtype)| (name.to_owned(), dtype)).into();
    let program = Expression::parse("m = max(t.x), n = sum(t.y)").unwrap().bind(&dtypes, &[], &[], &[]);
    assert!(program.is_ok());
}

#[test]
fn a_product_over_the_rows_is_a_reduction() {
    let labels = |text: &str| Expression::parse(text).unwrap().reductions().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(labels("x.T @ y"), ["x.T @ y"]);
    assert_eq!(labels("g = (x - 1).T  @ (y * 2); sum(x)"), ["g", "sum(x)"]);
    let inputs = |text: &str| Expression::parse(text).unwrap().inputs().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(inputs("x.T @ t.y"), ["x", "t.y"]);
    assert_eq!(inputs("t.x.T@ x"), ["t.x", "x"]);
    // A field may be called T, unless it is multiplied.
    assert_eq!(inputs("sum(t.T)"), ["t.T"]);
    assert_eq!(inputs("sum(x @ t.w.T)"), ["x", "t.w"]);
    assert_eq!(inputs("sum(x @ (w.T))"), ["x", "w.T"]);
    // `@` binds as `*` does.
    assert_eq!(labels("x.T @ -x ** 2"), ["x.T @ -x ** 2"]);
    for (text, message) in [
        ("x @ y", "this value is not used"),
        ("y = x @ (w + 1)", "by an array of the job"),
        ("y = x @ 3", "by an array of the job"),
        ("y = x @ pi", "by an array of the job"),
        ("w = x + 1; y = x @ w", "by an array of the job"),
        ("m = mean(x, axis=0); y = x @ m", "by an array of the job"),
        ("y = mean(x, axis=0) @ w", "which has none"),
        ("g = 2 * x.T @ y", "can only be multiplied"),
        ("y = onehot(k, 3)", "only multiplied over the rows"),
        ("y = onehot(k, 3) @ w", "only multiplied over the rows"),
        ("x.T @ onehot(k, 3)", "only multiplied over the rows"),
        ("onehot(k, n).T @ x", "number of keys"),
        ("onehot(k, 0).T @ x", "number of keys"),
        ("onehot(k, 16777217).T @ x", "number of keys"),
        ("onehot(k).T @ x", "2"),
        ("y = (x + 1).T", "can only be multiplied"),
        ("x.T @ (y + 1).T", "can only be multiplied"),
        ("sum((x * 2).T)", "can only be multiplied"),
        ("x.T @", "ends too early"),
    ] {
        let (_, found) = fault(text);
        assert!(found.contains(message), "{text}: {found}");
    }
}

/// The dtype and the bits of `y` in a row where every input is 3.
fn value_of(text: &str, inputs: &[(&str, Dtype)]) -> (Dtype, u64) {
    let expression = Expression::parse(text).unwrap();
    let named: Vec<_> = inputs.iter().map(|(name, dtype)| ((*name).to_owned(), *dtype)).collect();
    let program = std::sync::Arc::new(expression.bind(&named, &[], &[], &[("y".into(), None)]).unwrap());
    let three = |dtype| if dtype == Dtype::F64 { 3f64.to_bits() } else { 3 };
    let columns: Vec<_> = inputs.iter().map(|(_, dtype)| super::Column::from_bits(*dtype, [three(*dtype)])).collect();
    let (outputs, _) = super::run(&program, 5, 1, &columns);
    (outputs[0].dtype, outputs[0].bits().next().unwrap())
}

#[test]
fn an_input_or_a_result_goes_before_a_constant() {
    let (e, pi) = (std::f64::consts::E.to_bits(), std::f64::consts::PI.to_bits());
    assert_eq!(value_of("y = e", &[]), (Dtype::F64, e));
    assert_eq!(value_of("y = e", &[("e", Dtype::I8)]), (Dtype::I8, 3));
    assert_eq!(value_of("pi = e * 2; y = pi", &[("e", Dtype::F64)]), (Dtype::F64, 6f64.to_bits()));
    assert_eq!(value_of("y = pi", &[("e", Dtype::F64)]), (Dtype::F64, pi));
    assert_eq!(value_of("y = i", &[]), (Dtype::I64, 5));
    assert_eq!(value_of("y = i - index()", &[("i", Dtype::I64)]), (Dtype::I64, -2i64 as u64));
    assert_eq!(value_of("index = 7 + index(); y = index", &[]), (Dtype::I64, 12));
    // Functions are recognised by their parentheses, so columns may have their names.
    assert_eq!(
        value_of("y = max(max, min) + f64(f32)", &[("max", Dtype::F64), ("min", Dtype::F64), ("f32", Dtype::I8)]).1,
        6f64.to_bits()
    );
    let expression = Expression::parse("i = 2 * pi; y = x * i + e + pi; e2 = True").unwrap();
    assert_eq!(expression.inputs().collect::<Vec<_>>(), ["x"]);
    assert_eq!(expression.constants().collect::<Vec<_>>(), ["pi", "e", "True"]);
}

#[test]
fn aliases_are_the_functions() {
    let inputs = [("a", Dtype::F64)];
    for (alias, own) in [
        ("arcsin(a / 4)", "asin(a / 4)"),
        ("arccos(a / 4)", "acos(a / 4)"),
        ("arctan(a)", "atan(a)"),
        ("arctan2(a, 2)", "atan2(a, 2)"),
        ("arcsinh(a)", "asinh(a)"),
        ("arccosh(a)", "acosh(a)"),
        ("arctanh(a / 4)", "atanh(a / 4)"),
        ("maximum(a, 2)", "max(a, 2)"),
        ("minimum(a, 2)", "min(a, 2)"),
        ("power(a, 2.5)", "a ** 2.5"),
        ("power(2, 3) + a", "8 + a"),
        ("absolute(-a)", "abs(-a)"),
        ("where(true, a, 1)", "where(True, a, 1)"),
    ] {
        let value = |text| value_of(&format!("y = {text}"), &inputs);
        assert_eq!(value(alias), value(own), "{alias}");
    }
}

#[test]
fn quotients_of_numbers_are_rounded_once() {
    for (text, bits) in [
        // The results of Python.
        ("2147483647 / 9007199254740993", 0x3e8f_ffff_ffbf_ffff),
        ("1 / 3", 0x3fd5_5555_5555_5555),
        ("-7 / 2", (-3.5f64).to_bits()),
        ("0 / -5", (-0.0f64).to_bits()),
        ("170141183460469231731687303715884105727 / 3", 0x47c5_5555_5555_5555),
        ("1 / 170141183460469231731687303715884105727", 0x3800_0000_0000_0000),
        ("9007199254740993 / 1", 0x4340_0000_0000_0000),
        ("9007199254740995 / 1", 0x4340_0000_0000_0002),
        ("18014398509481987 / 2", 0x4340_0000_0000_0001),
    ] {
        assert_eq!(value_of(&format!("y = {text}"), &[]), (Dtype::F64, bits), "{text}");
    }
}

#[test]
fn an_integer_beyond_all_dtypes_is_a_float_among_numbers_and_bools() {
    let large = 18_446_744_073_709_551_616.0_f64.to_bits();
    assert_eq!(value_of("y = max(8, b, 2**64)", &[("b", Dtype::Bool)]), (Dtype::F64, large));
    assert_eq!(value_of("y = 2**64", &[]), (Dtype::F64, large));
    assert!(fault("y = n + 2**64").1.contains("does not fit in i8"));
}

#[test]
fn labels_are_on_one_line() {
    let expression = Expression::parse("sum(\n  a\t*\n b ); m = max(a\n)").unwrap_or_else(|_| panic!());
    assert_eq!(expression.reductions().collect::<Vec<_>>(), ["sum( a * b )", "m"]);
}

#[test]
fn places_are_found_in_texts_of_several_lines() {
    let text = "é = a\n y = sqrt(é) $ 2\nsum(y)";
    let (column, _) = fault(text);
    let place = locate(text, column);
    assert_eq!((place.line, place.column, place.text), (2, 14, " y = sqrt(é) $ 2"));
    assert_eq!(place.text.chars().nth(place.column - 1), Some('$'));
    for (column, line, in_line) in [(1, 1, 1), (6, 1, 6), (7, 2, 1), (23, 2, 17), (24, 3, 1), (30, 3, 7), (99, 3, 7)] {
        let place = locate(text, column);
        assert_eq!((place.line, place.column), (line, in_line), "{column}");
    }
}

/// Words that often occur in expressions.
fn words() -> impl Strategy<Value = Vec<&'static str>> {
    let own = functions().flat_map(|word| [word.name].into_iter().chain(word.aliases.iter().copied()));
    let others = [
        "a",
        "n",
        "u",
        "b",
        "y",
        "z",
        "=",
        "(",
        ")",
        "(",
        ")",
        ",",
        ";",
        "\n",
        " ",
        "1",
        "0",
        "2.5",
        "1e300",
        "300",
        "-1",
        "170141183460469231731687303715884105727",
        "0x_ff",
        "axis=",
        ", axis=0",
        ", axis=(1, -1",
        "[",
        "and",
        "median(",
        "x",
        "2 **",
        "sum(",
        "where(",
        "é",
        "'",
        "#",
    ];
    prop::collection::vec(prop::sample::select(own.chain(others).collect::<Vec<_>>()), 0..40)
}

proptest! {
    #[test]
    fn no_soup_of_words_panics(words in words(), blank in prop::sample::select(vec!["", " "])) {
        let _ = value_or_error(&words.join(blank));
    }

    #[test]
    fn what_is_shown_parses_to_the_same(words in words()) {
        if let Ok(expression) = Expression::parse(&words.join(" ")) {
            let again: Expression = expression.to_string().parse().unwrap();
            prop_assert_eq!(format!("{:?}", expression.parsed()), format!("{:?}", again.parsed()));
        }
    }

    #[test]
    fn quotients_are_those_of_floats_where_these_are_exact(a in -(1i64 << 53)..1 << 53, b in 1i64..1 << 53) {
        prop_assert_eq!(value_of(&format!("y = {a} / {b}"), &[]).1, (a as f64 / b as f64).to_bits());
    }

    #[test]
    fn no_text_panics(text in "\\PC*") {
        let _ = Expression::parse(&text);
    }

    #[test]
    fn no_likely_text_panics(words in prop::collection::vec(prop::sample::select(vec![
        "a", "n", "u", "b", "i", "y", "=", "+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "~", "<<", ">>", "<",
        "==", "(", ")", ",", ";", "\n", "1", "0", "2.5", "1e300", "300", "-1",
        "170141183460469231731687303715884105727",
        "where(", "min(", "sum(", "sqrt(", "u8(", "f32(", "clip(", "True", "nan", "inf",
    ]), 0..24)) {
        let _ = value_or_error(&format!("y = {}", words.join(" ")));
    }
}

/// Parses a text, binds it with inputs of several dtypes and with values, and runs it on three rows.
fn value_or_error(text: &str) -> crate::error::Result<()> {
    let inputs = [("a", Dtype::F32), ("n", Dtype::I8), ("u", Dtype::U64), ("b", Dtype::Bool), ("e", Dtype::I32)];
    let inputs: Vec<_> = inputs.map(|(name, dtype)| (name.to_owned(), dtype)).into();
    let expression = Expression::parse(text)?;
    let outputs: Vec<_> = expression.outputs().map(|name| (name.to_owned(), None)).collect();
    let program = std::sync::Arc::new(expression.bind(&inputs, &[], &[], &outputs)?);
    let columns: Vec<_> = inputs.iter().map(|(_, dtype)| super::Column::zeros(*dtype, 3)).collect();
    super::run(&program, 0, 3, &columns);
    Ok(())
}
