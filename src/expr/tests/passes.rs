//! Tests of how a text is divided into passes.

use super::super::reduce::Reduction;
use super::super::words::Kind;
use super::super::{Expression, rebuild};
use crate::data::Dtype;
use std::sync::Arc;

/// The names that each pass reads, and its reductions; then the names that each computed result reads.
fn divided(text: &str, outputs: &[&str]) -> Vec<String> {
    let expression = Expression::parse(text).unwrap();
    let last = expression.passes() - 1;
    let passes = (0..=last).map(|number| {
        let pass = expression.pass(number, if number == last { outputs } else { &[] });
        assert!(pass.is_one_pass() && pass.text() == text);
        let names = |names: Vec<&str>| names.join(", ");
        let read = names(pass.inputs().chain(pass.constants()).collect());
        format!("{read} -> {}", names(pass.reductions().chain(pass.outputs()).collect()))
    });
    let results = expression.computed_results().map(|result| {
        let read: Vec<_> = result.expression.inputs().chain(result.expression.constants()).collect();
        format!("{} after {}: {}", result.label, result.after, read.join(", "))
    });
    passes.chain(results).collect()
}

#[test]
fn every_pass_has_what_it_needs() {
    for (text, outputs, expected) in [
        ("sum(x), mean(y)", vec![], vec!["x, y -> sum(x), mean(y)"]),
        ("y = (x - mean(x)) / std( x )", vec!["y"], vec!["x -> mean(x), std( x )", "x, mean(x), std( x ) -> y"]),
        // Equal texts are one reduction, and a named one keeps its name.
        ("y = x - mean(x), z = x / mean(x); mean(x)", vec!["y", "z"], vec!["x -> mean(x)", "x, mean(x) -> y, z"]),
        ("m = mean(x); y = x - m", vec!["y"], vec!["x -> m", "x, m -> y"]),
        // Temporaries are in each pass that reads them, and outputs in the last one.
        (
            "t = a * b; u = 2 * a; y = t - max(t); sum(c)",
            vec!["y", "u"],
            vec!["a, b, c -> max(t), sum(c), t", "a, b, max(t) -> t, u, y"],
        ),
        // A reduction is in the first pass that can compute it.
        (
            "m = mean(x); s = sum((x - m) ** 2); sum(w); y = x / s",
            vec!["y"],
            vec!["x, w -> m, sum(w)", "x, m -> s", "x, s -> y"],
        ),
        (
            "sum(x - mean(x - mean(x)))",
            vec![],
            vec![
                "x -> mean(x)",
                "x, mean(x) -> mean(x - mean(x))",
                "x, mean(x - mean(x)) -> sum(x - mean(x - mean(x)))",
            ],
        ),
        // Results of results need no pass.
        (
            "r = sum(a * b) / sum(b); r * pi, q = r + 1; y = a * q",
            vec!["y"],
            vec![
                "a, b -> sum(a * b), sum(b)",
                "a, q -> y",
                "r after 1: sum(a * b), sum(b)",
                "r * pi after 1: r, pi",
                "q after 1: r",
            ],
        ),
        // A value that may differ from row to row is none of them, whatever it is multiplied with.
        (
            "y = mean(x) * k; z = i - min(x)",
            vec!["y", "z"],
            vec!["x -> mean(x), min(x)", "mean(x), k, min(x), i -> y, z"],
        ),
        ("y = rand(1) * sum(x)", vec!["y"], vec!["x -> sum(x)", "sum(x) -> y"]),
    ] {
        assert_eq!(divided(text, &outputs), expected, "{text}");
    }
}

#[test]
fn a_pass_is_rebuilt_from_its_source() {
    let expression = Expression::parse("t = a * b; m = mean(t); y = t - m * k; z = y / max(y)").unwrap();
    let [a, b] = ["a", "b"].map(|name| (name.to_owned(), Dtype::F32));
    let value = |name: &str, dtype| (name.to_owned(), dtype);
    let of_passes = [
        vec![],
        vec![value("k", Dtype::F64), value("m", Dtype::F32)],
        vec![value("k", Dtype::F64), value("m", Dtype::F32), value("max(y)", Dtype::F64)],
    ];
    for (number, values) in of_passes.into_iter().enumerate() {
        let outputs = if number == 2 { &["y", "z"][..] } else { &[] };
        let requested: Vec<_> = outputs.iter().map(|name| ((*name).to_owned(), None)).collect();
        let pass = expression.pass(number, outputs);
        let program = pass.bind(&[a.clone(), b.clone()], &values, &[], &requested).unwrap();
        let kernel = Arc::new(program).kernel();
        let source = kernel.code.text();
        let again = rebuild(source).unwrap();
        assert_eq!(again.code.text(), source);
        assert_eq!(again.columns, kernel.columns);
    }
}

#[test]
fn the_dtype_of_a_result_is_known_before_it() {
    for (_, kind) in Kind::names() {
        for &dtype in Dtype::ALL {
            let reduction = Reduction::new(String::new(), kind, dtype);
            let state = vec![0; reduction.words()];
            let value = reduction.finish(Some(&state), 1).unwrap();
            assert_eq!(value.dtype(), reduction.result_dtype(), "{kind:?} of {dtype}");
            assert!(reduction.finish(None, 0).is_none_or(|value| value.dtype() == reduction.result_dtype()));
        }
    }
}
