//! Tests of how a text is divided into layers.

use super::super::{Expression, Multiplicand};

/// For each layer, the names that it reads, what it computes, and what is multiplied then; and at last the products
/// over the rows whose operands are of different layers.
fn layers(text: &str, outputs: &[&str]) -> Vec<String> {
    let expression = Expression::parse(text).unwrap();
    let divided = expression.layers(outputs).unwrap();
    let name = |of: &Multiplicand| match of {
        Multiplicand::Input(name) => format!("input {name}"),
        Multiplicand::Output(name) => name.clone(),
    };
    let layer = |layer: &super::super::Layer| {
        let read: Vec<_> = layer.expression.inputs().chain(layer.expression.constants()).collect();
        let computed = layer.expression.reductions().chain(layer.expression.outputs());
        let multiplied = layer.multiplied.iter().map(|by| {
            let transposed = if by.is_transposed { ".T" } else { "" };
            format!("{} @ {}{transposed}", name(&by.of), by.matrix)
        });
        let of_layer =
            [computed.map(str::to_owned).collect::<Vec<_>>(), multiplied.collect()].map(|all| all.join(", "));
        assert!(layer.factors.iter().all(|factor| of_layer[0].contains(factor.as_str())));
        format!("{} -> {} -> {}", read.join(", "), of_layer[0], of_layer[1])
    };
    let crossed = divided.crossed.iter().map(|product| {
        let [left, right] = [&product.sides[0], &product.sides[1]].map(name);
        format!("{}: {left} T@ {right}{}", product.label, if product.is_by_key() { ", by key" } else { "" })
    });
    divided.layers.iter().map(layer).chain(crossed).collect()
}

#[test]
fn every_layer_has_what_it_needs() {
    for (text, outputs, expected) in [
        ("y = x @ w", vec!["y"], vec![" ->  -> input x @ w", "x @ w -> y -> "]),
        ("sum(x @ w.T + x @ w.T)", vec![], vec![" ->  -> input x @ w.T", "x @ w.T -> sum(x @ w.T + x @ w.T) -> "]),
        (
            "u = x - m; y = u @ w + b; max(t)",
            vec!["y"],
            vec!["x, m -> u, the rows of 'u @ w' -> the rows of 'u @ w' @ w", "u @ w, b, t -> max(t), y -> "],
        ),
        // A product of a product, in parentheses and without.
        (
            "y = (x @ v) @ w; z = x @ v @ w",
            vec!["y", "z"],
            vec![
                " ->  -> input x @ v",
                "x @ v -> the rows of '(x @ v) @ w', the rows of 'x @ v @ w' -> \
                 the rows of '(x @ v) @ w' @ w, the rows of 'x @ v @ w' @ w",
                "(x @ v) @ w, x @ v @ w -> y, z -> ",
            ],
        ),
        // Temporaries are in each layer that reads them.
        (
            "t = exp(a); y = t * (t @ w)",
            vec!["y"],
            vec!["a -> t, the rows of 't @ w' -> the rows of 't @ w' @ w", "a, t @ w -> t, y -> "],
        ),
        // Products over the rows are in the layer of both operands, or none.
        (
            "x.T @ x; p = x @ w; c = p.T @ p; d = x.T @ p; e = (x + 1).T @ x",
            vec![],
            vec![
                "x -> x.T @ x, e -> input x @ w",
                "x @ w -> c, p, the right operand of 'd' -> ",
                "d: input x T@ the right operand of 'd'",
            ],
        ),
        (
            "onehot(argmax(x @ w, axis=1), 3).T @ x; onehot(k, 4).T @ x",
            vec![],
            vec![
                "k, x -> onehot(k, 4).T @ x -> input x @ w",
                "x @ w -> the left operand of 'onehot(argmax(x @ w, axis=1), 3).T @ x' -> ",
                "onehot(argmax(x @ w, axis=1), 3).T @ x: the left operand of \
                 'onehot(argmax(x @ w, axis=1), 3).T @ x' T@ input x, by key",
            ],
        ),
    ] {
        assert_eq!(layers(text, &outputs), expected, "{text}");
    }
}

#[test]
fn a_text_without_matrices_has_no_layers() {
    for text in ["y = x + 1", "x.T @ x", "onehot(k, 3).T @ x", "sum(t.T)"] {
        assert!(Expression::parse(text).unwrap().layers(&["y"]).is_none(), "{text}");
    }
}

#[test]
fn the_second_pass_has_layers_of_its_own() {
    let expression = Expression::parse("u = x - mean(x, axis=0); y = u @ w").unwrap();
    assert!(expression.passes() == 2 && expression.pass(0, &[]).layers(&[]).is_none());
    let layers = expression.pass(1, &["y"]).layers(&["y"]).unwrap().layers;
    assert_eq!(layers[0].expression.inputs().collect::<Vec<_>>(), ["x", "mean(x, axis=0)"]);
    assert_eq!(layers[1].expression.outputs().collect::<Vec<_>>(), ["y"]);
    assert_eq!(expression.matrices().into_iter().collect::<Vec<_>>(), ["w"]);
}
