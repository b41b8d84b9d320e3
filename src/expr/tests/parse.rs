//! Texts: what they mean, and what is wrong with them.

use proptest::prelude::*;

use super::super::Expression;
use super::super::words::is_reserved;
use crate::data::Dtype;
use crate::error::Error;

/// The place and the reason of the error of a text, in which `a` is an `f64`, `n` an `i8`, `u` a `u64`, `b` a `bool`.
fn fault(text: &str) -> (usize, String) {
    let inputs = [("a", Dtype::F64), ("n", Dtype::I8), ("u", Dtype::U64), ("b", Dtype::Bool)];
    let inputs: Vec<_> = inputs.map(|(name, dtype)| (name.to_owned(), dtype)).into();
    let result = Expression::parse(text).and_then(|expression| {
        let outputs: Vec<_> = expression.assigned().last().map(|name| (name.clone(), None)).into_iter().collect();
        expression.bind(&inputs, &[], &outputs).map(|_| ())
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
        ("y = a)", 6, "does not fit"),
        ("y = a b", 7, "operator is missing"),
        ("y = 2a", 6, "runs into a name"),
        ("y = 0x", 5, "not a number"),
        ("y = 1__0", 5, "not a number"),
        ("y = 012", 5, "start with 0"),
        ("y = 1e", 6, "runs into a name"),
        ("y = 999999999999999999999999999999999999999999", 5, "too large"),
        ("y = a $ 2", 7, "means nothing"),
        ("y = a && b", 7, "write `&`"),
        ("y = !b", 5, "write `~`"),
        ("y = b and b", 7, "write `&`"),
        ("y = not b", 5, "write `~`"),
        ("y = a if b else 2", 7, "where("),
        ("y = 1 < a < 2", 11, "do not chain"),
        ("y = a = 2", 7, "`==`"),
        ("a + 1", 1, "goes nowhere"),
        ("a", 1, "goes nowhere"),
        ("y = sqr(a)", 5, "did you mean `sqrt`?"),
        ("y = average(a)", 5, "did you mean `mean`?"),
        ("y = xyzzy(a)", 5, "no function `xyzzy`"),
        ("y = sqrt", 5, "`sqrt(…)`"),
        ("y = sqrt(a, a)", 5, "takes 1 argument, not 2"),
        ("y = where(a, a)", 5, "takes 3 arguments, not 2"),
        ("y = min()", 5, "1 argument (all rows) or more"),
        ("sum()", 1, "takes 1 argument"),
        ("y = a - mean(a)", 9, "second pass"),
        ("m = mean(a); y = a - m", 22, "second pass"),
        ("sum(a) / 2", 1, "second pass"),
        ("y = a; y = a", 8, "assigned twice"),
        ("m = sum(a); m = a", 13, "assigned twice"),
        ("a = a + 1", 1, "read as an input"),
        ("y = a; a = 2", 8, "read as an input"),
        ("pi = 3", 1, "a meaning already"),
        ("i = 3", 1, "a meaning already"),
        ("f32 = a", 1, "a meaning already"),
        ("y = x + 1", 5, "no input `x`"),
        ("t = a; y = a", 1, "neither an output nor read"),
        ("y = n + 300", 9, "300 does not fit i8"),
        ("y = u - -1", 9, "-1 does not fit u64"),
        ("y = u8(256)", 8, "256 does not fit u8"),
        ("y = n ** -1", 10, "negative power"),
        ("y = n << 1.5", 7, "takes integers and bools"),
        ("y = n & a", 7, "not i8 and f64"),
        ("y = n & n | 1.5", 11, "takes integers and bools"),
        ("y = u & i", 7, "takes integers and bools"),
        ("y = ~a", 5, "takes integers and bools"),
        ("y = -b", 5, "write `~`"),
        ("y = b - b", 7, "write `^`"),
        ("y = 1 // 0", 7, "division by zero"),
        ("y = 1 / (2 - 2)", 7, "division by zero"),
        ("y = 2 ** 500", 7, "too large"),
        ("y = (-8) ** 0.5", 10, "not real"),
        ("y = 1 << -1", 7, "negative number"),
        ("y = é$", 6, "means nothing"),
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
    assert_eq!(expression.inputs(), ["x", "y"]);
    assert_eq!(expression.assigned(), ["t", "z"]);
    assert_eq!(expression.text(), text);
    let inputs: Vec<_> = ["x", "y"].map(|name| (name.to_owned(), Dtype::I32)).into();
    let program = expression.bind(&inputs, &[], &[("z".into(), Some(Dtype::U8))]).unwrap();
    assert_eq!(program.outputs(), [("z".to_owned(), Dtype::U8)]);
    let labels: Vec<_> = program.reductions().iter().map(|reduction| reduction.label()).collect();
    assert_eq!(labels, ["m", "sum( x )"]);
    assert!(expression.bind(&inputs, &[], &[("m".into(), None)]).is_err());
    assert!(expression.bind(&inputs, &[], &[("z".into(), None), ("z".into(), None)]).is_err());
    for name in ["pi", "i", "sqrt", "min", "f64", "and", "True"] {
        assert!(is_reserved(name), "{name}");
    }
    assert!(!is_reserved("x") && !is_reserved("I"));
}

#[test]
fn deep_texts_are_refused() {
    for text in [
        "(".repeat(100_000),
        format!("y = {}a", "(".repeat(100_000)),
        format!("y = {}a", "-".repeat(100_000)),
        format!("y = a{}", " + a".repeat(100_000)),
        format!("y = a{}", " ** a".repeat(100_000)),
        format!("y = {}a", "abs(".repeat(100_000)),
        format!("y = min({})", "min(a, ".repeat(100_000)),
    ] {
        assert!(fault(&text).1.contains("nested more than"));
    }
    // Many arguments and many statements are no depth.
    let wide = format!("y = max({}a)", "a, ".repeat(10_000));
    assert!(Expression::parse(&wide).is_ok());
    let long: String = (0..2_000).map(|k| format!("y{k} = a\n")).collect();
    assert!(Expression::parse(&long).is_ok());
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*") {
        let _ = Expression::parse(&text);
    }

    #[test]
    fn no_likely_text_panics(words in prop::collection::vec(prop::sample::select(vec![
        "a", "n", "u", "b", "i", "y", "=", "+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "~", "<<", ">>", "<", "==",
        "(", ")", ",", ";", "\n", "1", "0", "2.5", "1e300", "300", "-1", "170141183460469231731687303715884105727",
        "where(", "min(", "sum(", "sqrt(", "u8(", "f32(", "clip(", "True", "nan", "inf",
    ]), 0..24)) {
        let text = format!("y = {}", words.join(" "));
        let inputs = [("a", Dtype::F32), ("n", Dtype::I8), ("u", Dtype::U64), ("b", Dtype::Bool)];
        let inputs: Vec<_> = inputs.map(|(name, dtype)| (name.to_owned(), dtype)).into();
        if let Ok(expression) = Expression::parse(&text) {
            let outputs: Vec<_> = expression.assigned().iter().map(|name| (name.clone(), None)).collect();
            if let Ok(program) = expression.bind(&inputs, &[], &outputs) {
                let rows = 3;
                let columns: Vec<_> = inputs.iter().map(|(_, dtype)| super::Column::zeros(*dtype, rows)).collect();
                let _ = super::run(&std::sync::Arc::new(program), 0, rows, &columns);
            }
        }
    }
}
