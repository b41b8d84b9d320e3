//! Tests of scalars.

use std::slice;
use std::sync::Arc;

use super::cuda::everything;
use super::{Column, run_partials, run_values};
use crate::data::Dtype;
use crate::device::kernel::Argument;
use crate::expr::{Expression, Number, Program, rebuild};

fn named(names: &[&str], dtype: Dtype) -> Vec<(String, Dtype)> {
    names.iter().map(|name| ((*name).to_owned(), dtype)).collect()
}

/// Runs every operation on every dtype, with one or both operands as scalars. The same host kernel runs with all
/// scalars.
#[test]
fn a_value_is_as_a_column_of_it() {
    let (first_row, rows) = (3 << 40, 4096 + 1100);
    for &dtype in Dtype::ALL {
        let a = Column::mixed(dtype, rows, 1);
        let (of_columns, values) = (everything(&named(&["a", "b"], dtype), &[]), named(&["b"], dtype));
        let beside = everything(&named(&["a"], dtype), &values);
        let alone = everything(&[], &named(&["a", "b"], dtype));
        let [mut beside_twin, mut alone_twin] = [&beside, &alone].map(|of| of.kernel().new_host_kernel().unwrap());
        let special = Column::mixed(dtype, 12, 2);
        for (a_bits, b_bits) in special.bits().zip(special.bits().skip(1)) {
            let b = Column::from_bits(dtype, vec![b_bits; rows]);
            let expected = run_partials(&of_columns, first_row, rows, &[a.clone(), b.clone()]);
            let found = run_values(&mut *beside_twin, &beside, first_row, rows, slice::from_ref(&a), &[b_bits]);
            assert_eq!(found, expected, "{dtype}: {b_bits:#x}");
            let constant = Column::from_bits(dtype, vec![a_bits; rows]);
            let expected = run_partials(&of_columns, first_row, rows, &[constant, b]);
            let found = run_values(&mut *alone_twin, &alone, first_row, rows, &[], &[a_bits, b_bits]);
            assert_eq!(found, expected, "{dtype}: {a_bits:#x} and {b_bits:#x}");
        }
    }
}

#[test]
fn values_have_dtypes_as_columns_have() {
    let expression = Expression::parse("y = x * v; z = x * 2; w = n + v").unwrap();
    let inputs = [("x".to_owned(), Dtype::F32), ("n".to_owned(), Dtype::I8)];
    let outputs = ["y", "z", "w"].map(|name| (name.to_owned(), None));
    let dtypes = |value| {
        let program = expression.bind(&inputs, &named(&["v"], value), &[], &outputs).unwrap();
        program.outputs().iter().map(|(_, dtype)| *dtype).collect::<Vec<_>>()
    };
    assert_eq!(dtypes(Dtype::F64), [Dtype::F64, Dtype::F32, Dtype::F64]);
    assert_eq!(dtypes(Dtype::F32), [Dtype::F32, Dtype::F32, Dtype::F32]);
    assert_eq!(dtypes(Dtype::I64), [Dtype::F64, Dtype::F32, Dtype::I64]);
}

#[test]
fn a_kernel_waits_for_values_only_if_it_has_some() {
    let kernel = |values: &[(String, Dtype)]| {
        let expression = Expression::parse(if values.is_empty() { "y = 2 * i" } else { "y = v * i" }).unwrap();
        Arc::new(expression.bind(&[], values, &[], &[("y".into(), None)]).unwrap()).kernel()
    };
    assert!(kernel(&[]).values.are_known());
    assert!(!kernel(&named(&["v"], Dtype::I64)).values.are_known());
}

#[test]
fn values_are_the_last_parameters() {
    let program = everything(&named(&["x"], Dtype::F64), &named(&["a", "b"], Dtype::Bool));
    let kernel = program.kernel();
    let columns = 2 + program.outputs().len();
    assert_eq!(
        kernel.launch.arguments[columns + 1..],
        [Argument::Column(columns - 1), Argument::Value(0), Argument::Value(1)]
    );
    assert!(kernel.code.text().contains("u64* __restrict__ partials, u8 value0, u8 value1)"));
}

#[test]
#[should_panic(expected = "number of values")]
fn a_host_kernel_needs_all_scalars() {
    let program = everything(&[], &named(&["a", "b"], Dtype::F32));
    run_values(&mut *program.kernel().new_host_kernel().unwrap(), &program, 0, 1, &[], &[0]);
}

/// Binds an expression of `x`, `z` and the number `k`, or returns the message of the error.
fn with_number(text: &str, dtype: Dtype, numbers: &[(String, Number)]) -> Result<Arc<Program>, String> {
    let expression = Expression::parse(text).unwrap();
    let inputs = named(&["x", "z"], dtype);
    let program = expression.bind(&inputs, &[], numbers, &[("y".into(), None)]);
    program.map(Arc::new).map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())
}

/// A number of the job and the same number in the text give the same dtypes, bits and errors.
#[test]
fn a_number_is_as_a_literal() {
    let texts = [
        "y = x + K",
        "y = K - x",
        "y = x * (2 * K + 1)",
        "y = x * -K + +K",
        "y = x / K",
        "y = x // K",
        "y = x ** K",
        "y = K ** x",
        "y = power(x, K)",
        "y = x < K",
        "y = K == x",
        "y = (K > 1) & (x > z)",
        "y = where(x > z, K, x)",
        "y = where(x > z, K, K)",
        "y = clip(x, K, 100)",
        "y = max(z, K, x, 1)",
        "y = atan2(x, K) + hypot(K, K)",
        "y = sqrt(K) + x",
        "y = abs(K) + x",
        "t = K * 2; y = t * x",
        "y = i8(K) + x",
        "y = x & K",
        "y = ~K + x",
        "y = K",
        "y = K * i",
        "y = x * K; sum(K * x), mean(K)",
    ];
    let numbers =
        ["true", "0", "1", "2", "-3", "200", "9000000000000000000", "0.0", "0.5", "2.0", "-1.5", "1e300", "nan"];
    let rows = 600;
    let mut compared = 0;
    for (dtype, text) in Dtype::ALL.iter().flat_map(|dtype| texts.map(|text| (*dtype, text))) {
        let columns = [Column::mixed(dtype, rows, 1), Column::mixed(dtype, rows, 2)];
        for number in numbers {
            let given = [("k".to_owned(), number.parse::<Number>().unwrap())];
            // In parentheses, because `-3 ** x` is `-(3 ** x)`.
            let literal = with_number(&text.replace('K', &format!("({})", number.replace("true", "True"))), dtype, &[]);
            let own = with_number(&text.replace('K', "k"), dtype, &given);
            let (literal, own) = match (literal, own) {
                (Ok(literal), Ok(own)) => (literal, own),
                (Err(_), Err(_)) => continue,
                (literal, own) => panic!("{dtype}: {text}, {number}: {literal:?}, {own:?}"),
            };
            assert_eq!(literal.outputs(), own.outputs(), "{dtype}: {text}, {number}");
            let values: Vec<u64> = own.values().iter().map(|_| given[0].1.as_f64().to_bits()).collect();
            let expected = run_partials(&literal, 7, rows, &columns);
            let mut kernel = own.kernel().new_host_kernel().unwrap();
            let found = run_values(&mut *kernel, &own, 7, rows, &columns, &values);
            assert_eq!(found, expected, "{dtype}: {text}, {number}");
            compared += 1;
        }
    }
    assert!(compared > 2500, "{compared} comparisons");
}

#[test]
fn only_floats_that_are_no_exponents_leave_the_source_as_it_is() {
    let source = |text, number: Number| {
        with_number(text, Dtype::F32, &[("k".into(), number)]).unwrap().kernel().code.text().to_owned()
    };
    let same = |text, a: Number, b: Number| source(text, a) == source(text, b);
    assert!(same("y = x * k + z", 0.25.into(), (-3.0).into()));
    assert!(!same("y = x * k + z", 2.into(), 3.into()));
    for text in ["y = x ** k + z", "y = k * power(x, k) + z"] {
        assert!(!same(text, 0.25.into(), 0.75.into()));
        assert_eq!(source(text, 2.0.into()).matches("value0").count(), 0);
    }
}

/// The stand-in for a GPU rebuilds kernels from their sources.
#[test]
fn a_source_tells_its_numbers() {
    for (text, number) in
        [("y = x * k + z", Number::from(0.25)), ("y = x ** k + z", 3.5.into()), ("y = k + x * z", 7.into())]
    {
        let program = with_number(text, Dtype::F64, &[("k".into(), number)]).unwrap();
        let source = program.kernel().code.text().to_owned();
        assert_eq!(rebuild(&source).unwrap().code.text(), source);
    }
}
