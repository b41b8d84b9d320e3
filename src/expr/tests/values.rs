//! Tests of scalars.

use std::slice;
use std::sync::Arc;

use super::cuda::everything;
use super::{Column, run_partials, run_values};
use crate::data::Dtype;
use crate::device::kernel::Argument;
use crate::expr::Expression;

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
        let program = expression.bind(&inputs, &named(&["v"], value), &outputs).unwrap();
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
        Arc::new(expression.bind(&[], values, &[("y".into(), None)]).unwrap()).kernel()
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
