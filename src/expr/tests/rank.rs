//! Tests of order statistics: the CUDA source, the order of keys, and what is refused.

use std::sync::Arc;

use super::super::Expression;
use super::super::program::Program;
use super::super::rank::{Bound, MOST_LISTED, Order, Part, bits_of_key, greatest_key, key_bits};
use super::cuda::run_wide_as_cpp;
use super::{Column, run_values};
use crate::data::Dtype;
use crate::device::as_cpp::has_compiler;

/// A pass of a text, and the values that it receives: the range, and whether it lists keys.
fn program(text: &str, pass: usize, dtype: Dtype) -> Arc<Program> {
    let part = Expression::parse(text).unwrap().pass(pass, &[]);
    let received = part.inputs().filter(|name| name.contains(": ")).map(|name| (name.to_owned(), Dtype::U64));
    let received: Vec<_> = received.collect();
    let inputs: Vec<_> =
        part.inputs().filter(|name| !name.contains(": ")).map(|name| (name.to_owned(), dtype)).collect();
    Arc::new(part.bind(&inputs, &received, &[], &[]).unwrap())
}

/// The words of a count, and those behind them, whose listed keys are in ascending order.
fn sorted(program: &Program, words: &[u64]) -> Vec<u64> {
    let mut words = words.to_vec();
    let mut before = 0;
    for reduction in program.reductions() {
        if reduction.label().ends_with(": list") {
            let count = words[before] as usize;
            words[before + 1..][..count].sort_unstable();
        }
        before += reduction.chunk_words();
    }
    words
}

#[test]
fn cuda_source_gives_the_same_bits() {
    if !has_compiler() {
        return;
    }
    let rows = 4096 + 700;
    for (dtype, passes) in [
        (Dtype::F64, 0..3),
        (Dtype::F32, 0..2),
        (Dtype::I32, 1..2),
        (Dtype::I8, 0..1),
        (Dtype::F16, 0..1),
        (Dtype::Bf16, 0..1),
    ] {
        let column = Column::mixed(dtype, rows, 7);
        for pass in passes {
            for text in ["median(x)", "quantile(x[x > 0], 0.25); topk(x, 3)"] {
                let program = program(text, pass, dtype);
                let top = greatest_key(key_bits(dtype));
                // The range of each search, which counts and lists in turn.
                for is_list in [0, 1] {
                    let values = program.values.iter().map(|(name, _)| match name {
                        name if name.ends_with(": low") => top / 3,
                        name if name.ends_with(": high") => top / 4 * 3,
                        name if name.ends_with(": shift") => u64::from(key_bits(dtype)).saturating_sub(17),
                        _ => is_list,
                    });
                    let values: Vec<u64> = values.collect();
                    let inputs = std::slice::from_ref(&column);
                    let mut host = program.kernel().new_host_kernel().unwrap();
                    let (_, partials) = run_values(&mut *host, &program, 0, rows, inputs, &values);
                    let cpp = run_wide_as_cpp(&program, (0, rows), (inputs, &[]), &values);
                    let words = cpp.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
                    let cpp: Vec<u64> = words.collect();
                    assert!(sorted(&program, &cpp) == sorted(&program, &partials), "{text} of {dtype}, pass {pass}");
                    let counted = &partials[..program.chunk_words()];
                    let sum = counted.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word));
                    assert!(is_list == 1 || sum > 100, "{text} of {dtype}, pass {pass}");
                }
            }
        }
    }
}

#[test]
fn keys_have_the_order_of_values() {
    for &dtype in Dtype::ALL {
        let bits = key_bits(dtype);
        let step = (greatest_key(bits) / 997).max(1);
        let keys: Vec<u64> = (0..997).map(|k| k * step).filter(|key| *key <= greatest_key(bits)).collect();
        let mut column = Column::from_bits(dtype, keys.iter().map(|key| bits_of_key(dtype, *key)));
        if dtype == Dtype::Bool {
            column = Column::from_bits(dtype, [0, 1]);
        }
        let values: Vec<f64> = column.values().filter(|value| !value.is_nan()).collect();
        assert!(values.is_sorted() && values.len() > 1, "{dtype}: {values:?}");
        // The kernel has the same keys: it lists them all.
        if bits <= 16 {
            continue;
        }
        let program = program("topk(x, 1)", 1, dtype);
        let values = program.values.iter().map(|(name, _)| match name {
            name if name.ends_with(": low") || name.ends_with(": shift") => 0,
            name if name.ends_with(": high") => u64::MAX,
            _ => 1,
        });
        let values: Vec<u64> = values.collect();
        let mut host = program.kernel().new_host_kernel().unwrap();
        let (_, words) = run_values(&mut *host, &program, 0, column.rows(), &[column.clone()], &values);
        let before = program.reductions()[0].chunk_words();
        assert_eq!(words[before] as usize, keys.len());
        for (row, (found, key)) in words[before + 1..].iter().zip(&keys).enumerate() {
            // Every NaN has the greatest key.
            let is_nan = dtype.is_float() && column.value(row).is_nan();
            assert_eq!(*found, if is_nan { greatest_key(bits) } else { *key }, "{dtype}: {key:#x}");
        }
    }
}

/// Each pass resolves 16 bits or more, or lists what is left.
#[test]
fn passes_are_few() {
    let passes =
        |order: Order, bits: u32| (0..9).filter(move |pass| order.counts(*pass, bits) || order.lists(*pass, bits));
    for (order, expected) in
        [(Order::Median, [1, 1, 2, 4]), (Order::Quantile(0.1), [1, 1, 2, 4]), (Order::Top(7), [1, 1, 3, 5])]
    {
        let found = [8, 16, 32, 64].map(|bits| passes(order, bits).count());
        assert_eq!(found, expected, "{order:?}");
    }
    let text = |text: &str| Expression::parse(text).unwrap();
    assert_eq!(text("median(x), mean(x)").passes(), 4);
    assert_eq!(text("y = x - median(x)").passes(), 5);
    // What is counted first is counted once for all that is found among the same values.
    let expression = text("median(x + 1), topk(x, 3); q = quantile(x + 1, 0.1)");
    let first: Vec<String> = expression.pass(0, &[]).reductions().map(str::to_owned).collect();
    assert_eq!(first, ["median(x + 1)", "topk(x, 3)"]);
    let second = expression.pass(1, &[]);
    assert_eq!(second.reductions().count(), 3);
    assert!(Bound::ALL.iter().all(|bound| second.inputs().any(|name| name == bound.name("q"))));
    assert!(!second.reductions().any(|label| label == Part::Counts.label("q")));
}

#[test]
fn what_has_no_rank_is_refused() {
    let most = format!("from 1 to {MOST_LISTED} values");
    for (text, reason) in [
        ("quantile(x, 1.5)", "from 0 to 1"),
        ("quantile(x, -0.1)", "from 0 to 1"),
        ("quantile(x, nan)", "a number of the text"),
        ("quantile(x, x)", "a number of the text"),
        ("quantile(x)", "takes 2 arguments"),
        ("median(x, 1)", "takes 1 argument"),
        ("median(x, axis=0)", "leave out `axis` and `keepdims`"),
        ("median(x, keepdims=True)", "leave out `axis` and `keepdims`"),
        ("topk(x, 0)", &most),
        ("topk(x, 65537)", &most),
        ("topk(x, 2.5)", &most),
        ("topk(x, k)", &most),
        ("median(median(x))", "reduces a result, which is known already"),
    ] {
        let error = Expression::parse(text).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
    let inputs = [("x".to_owned(), Dtype::F64)];
    let error = Expression::parse("median(x)").unwrap().bind(&inputs, &[], &[], &[]).unwrap_err().to_string();
    assert!(error.contains("known only after all rows"), "{error}");
}
