//! Tests of the host kernel and of the order of reductions.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::host::HostProgram;
use super::super::program::Program;
use super::super::{Expression, rebuild, samples};
use super::{Column, run, run_values};
use crate::data::{Dtype, Scalar};
use crate::device::kernel::{HostKernel, TILE_ROWS, TILE_THREADS, Uniform};

fn program(text: &str, inputs: &[(&str, Dtype)]) -> Arc<Program> {
    let expression = Expression::parse(text).unwrap();
    let inputs: Vec<_> = inputs.iter().map(|(name, dtype)| ((*name).to_owned(), *dtype)).collect();
    let outputs: Vec<_> = expression.outputs().map(|name| (name.to_owned(), None)).collect();
    Arc::new(expression.bind(&inputs, &[], &[], &outputs).unwrap())
}

/// Finite values whose sums depend on the order.
fn finite(dtype: Dtype, rows: usize) -> Column {
    let bits = (0..rows as u64).map(|row| {
        let value = (row as f64 * 0.7).sin() * 1e3;
        match dtype {
            dtype if dtype.is_float() => Scalar::of_float(dtype, value).bits(),
            _ => row * row,
        }
    });
    Column::from_bits(dtype, bits)
}

#[test]
fn samples_rebuild_from_their_sources() {
    let samples = samples();
    assert_eq!(samples.len(), 7 * Dtype::ALL.len() + 7 + 4);
    for kernel in samples {
        let again = rebuild(kernel.code.text()).unwrap();
        assert_eq!(again.code, kernel.code);
        assert_eq!(again.columns, kernel.columns);
        assert_eq!(again.launch, kernel.launch);
    }
    assert!(rebuild("extern \"C\" __global__ void f() {}").is_none());
    assert!(rebuild("").is_none());
}

#[test]
fn registers_are_used_again() {
    let chain: String = (0..100).map(|k| format!("t{} = t{k} * 1.5 + t{k}; ", k + 1)).collect();
    let expression = Expression::parse(&format!("t0 = a + 1; {chain} y = t100")).unwrap();
    let program = expression.bind(&[("a".into(), Dtype::F64)], &[], &[], &[("y".into(), None)]).unwrap();
    assert!(HostProgram::new(Arc::new(program)).registers() <= 5);
}

#[test]
fn numbers_take_few_registers_however_many_there_are() {
    let terms: Vec<String> = (0..5_000).map(|k| format!("a * {k} + sqrt({k})")).collect();
    let program = program(&format!("y = {}", terms.join(" + ")), &[("a", Dtype::F64)]);
    assert!(HostProgram::new(Arc::clone(&program)).registers() <= 64 + 5);
    let (outputs, _) = run(&program, 0, 2, &[Column::from_bits(Dtype::F64, [1.0, 2.0].map(f64::to_bits))]);
    // In text order: results do not depend on the assignment of registers.
    let sum = |a: f64| (1..5_000).fold(0.0, |sum, k| sum + a * f64::from(k) + f64::from(k).sqrt());
    assert_eq!(outputs[0].values().collect::<Vec<_>>(), [sum(1.0), sum(2.0)]);
}

#[test]
fn any_byte_but_0_is_true() {
    let program = program("y = a; z = a + a; n = count(a); s = sum(a)", &[("a", Dtype::Bool)]);
    let input = Column::from_bits(Dtype::Bool, [0, 1, 2, 255]);
    let (outputs, states) = run(&program, 0, 4, &[input]);
    assert_eq!(outputs[0].bytes(), [0, 1, 1, 1]);
    assert_eq!(outputs[1].bytes(), [0, 1, 1, 1]);
    assert_eq!(states, [[3], [3]]);
}

#[test]
fn one_nan_is_stored() {
    let text = "y = a; z = f32(a); w = a * 0; m = max(a); n = std(a)";
    let program = program(text, &[("a", Dtype::F64)]);
    let input = Column::from_bits(Dtype::F64, [0xfff8_0000_0000_1234, 0x7ff0_0000_0000_0001, f64::INFINITY.to_bits()]);
    let (outputs, states) = run(&program, 0, 3, &[input]);
    let (nan, nan32) = (0x7ff8_0000_0000_0000, 0x7fc0_0000);
    assert_eq!(outputs[0].bits().collect::<Vec<_>>(), [nan, nan, f64::INFINITY.to_bits()]);
    assert_eq!(outputs[1].bits().collect::<Vec<_>>(), [nan32, nan32, f32::INFINITY.to_bits().into()]);
    assert_eq!(outputs[2].bits().collect::<Vec<_>>(), [nan; 3]);
    assert_eq!(states[0], [nan]);
    assert_eq!(states[1], [3.0_f64.to_bits(), nan, nan]);
}

/// An output that is used twice goes through a register.
#[test]
fn outputs_are_the_same_whichever_way_they_take() {
    let texts = ["a + b", "a - b", "a * b", "a / b", "a // b", "a % b", "a ** b", "a & b", "a < b", "a == b"];
    let more = ["-a", "abs(a)", "sign(a)", "isnan(a)", "sqrt(a)", "sin(a)", "f32(a)", "i16(a)", "bool(a)", "a"];
    let mut compared = 0;
    for (dtype, text) in Dtype::ALL.iter().flat_map(|dtype| texts.iter().chain(&more).map(move |text| (*dtype, text))) {
        for text in [format!("where(a > b, {text}, {text})"), (*text).to_owned()] {
            let inputs = [("a".to_owned(), dtype), ("b".to_owned(), dtype)];
            let bind = |text: String, outputs: &[(String, Option<Dtype>)]| {
                Expression::parse(&text).unwrap().bind(&inputs, &[], &[], outputs).map(Arc::new)
            };
            let (y, z) = (("y".to_owned(), None), ("z".to_owned(), None));
            // Not every dtype has every operation.
            let Ok(direct) = bind(format!("y = {text}"), std::slice::from_ref(&y)) else { continue };
            let by_register = bind(format!("y = {text}; z = y"), &[y, z]).unwrap();
            for rows in [1, 63, 3000] {
                let columns = [Column::mixed(dtype, rows, 1), Column::mixed(dtype, rows, 2)];
                let (expected, _) = run(&by_register, 0, rows, &columns);
                let mut kernel = direct.kernel().new_host_kernel().unwrap();
                for is_past_cache in [false, true] {
                    assert!(kernel.store_past_cache(&[is_past_cache]));
                    let (outputs, _) = run_values(&mut *kernel, &direct, 0, rows, &columns, &[]);
                    assert_eq!(outputs[0], expected[0], "{text} of {dtype}, {rows} rows, past cache: {is_past_cache}");
                    compared += rows;
                }
            }
        }
    }
    assert!(compared > 1_000_000, "{compared}");
}

#[test]
fn random_numbers_depend_on_seed_and_row_only() {
    let program = program("x = rand(7); y = randn(s); z = rand(s)", &[("s", Dtype::I64)]);
    let seeds = Column::from_bits(Dtype::I64, vec![7; 3000]);
    let (all, _) = run(&program, 8192, 3000, std::slice::from_ref(&seeds));
    assert_eq!(all[0], all[2]);
    // 8192 + 1, of `np.random.Generator(np.random.Philox(key=7)).random(8194)[8193]`.
    assert_eq!(all[0].value(1), 0.24327222741733479);
    let (part, _) = run(&program, 8192 + 4096, 1, &[seeds.slice(0, 1)]);
    let (later, _) = run(&program, 8192, 4097, &[Column::from_bits(Dtype::I64, vec![7; 4097])]);
    assert_eq!(part[1].value(0), later[1].value(4096));
    // 0.2024657653324115 and -1.385219261235402, of the same numbers with NumPy's functions, whose last bits differ.
    let (first, _) = run(&program, 0, 2, &[seeds.slice(0, 2)]);
    let difference = |row: usize, expected: f64| (first[1].value(row) - expected).abs();
    assert!(difference(0, 0.202_465_765_332_411_5) < 1e-15 && difference(1, -1.385_219_261_235_402) < 1e-15);
}

#[test]
fn random_numbers_have_their_distributions() {
    const ROWS: usize = 200_000;
    let program = program("x = rand(1); y = randn(1); w = rand(2)", &[]);
    let (outputs, _) = run(&program, 0, ROWS, &[]);
    let [x, y, w] = [0, 1, 2].map(|k| outputs[k].bits().map(f64::from_bits).collect::<Vec<_>>());
    let mean = |values: &[f64]| values.iter().sum::<f64>() / ROWS as f64;
    let moment = |values: &[f64], power| mean(&values.iter().map(|value| value.powi(power)).collect::<Vec<_>>());
    let product = |a: &[f64], b: &[f64]| mean(&a.iter().zip(b).map(|(a, b)| a * b).collect::<Vec<_>>());
    let near = |value: f64, expected: f64, spread: f64| {
        // Five standard deviations of a mean of so many numbers.
        assert!((value - expected).abs() < 5.0 * spread / (ROWS as f64).sqrt(), "{value} instead of {expected}");
    };
    assert!(x.iter().all(|x| (0.0..1.0).contains(x)));
    near(mean(&x), 0.5, (1.0f64 / 12.0).sqrt());
    near(moment(&x, 2), 1.0 / 3.0, (4.0f64 / 45.0).sqrt());
    near(mean(&y), 0.0, 1.0);
    near(moment(&y, 2), 1.0, 2.0f64.sqrt());
    near(moment(&y, 3), 0.0, 15.0f64.sqrt());
    near(moment(&y, 4), 3.0, 96.0f64.sqrt());
    near(product(&x, &w), 0.25, (7.0f64 / 144.0).sqrt());
    near(product(&x, &y), 0.0, (1.0f64 / 3.0).sqrt());
    near(product(&x[1..], &x), 0.25, (7.0f64 / 144.0).sqrt());
}

#[test]
fn seeds_are_integers() {
    for (text, reason) in [
        ("x = rand(0.5)", "a seed is an integer, not f64; write one, like rand(1)"),
        ("x = rand(True)", "a seed is an integer, not bool"),
        ("x = randn(-1)", "-1 does not fit in u64"),
        ("x = rand()", "`rand` takes 1 argument, not 0"),
    ] {
        let bound =
            Expression::parse(text).and_then(|expression| expression.bind(&[], &[], &[], &[("x".into(), None)]));
        let error = bound.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn the_sign_of_nan_is_not_seen() {
    let program = program("y = signbit(a); z = copysign(2, a); w = signbit(copysign(a, -1))", &[("a", Dtype::F64)]);
    let input = Column::from_bits(Dtype::F64, [0xfff8_0000_0000_0000, 0x7ff8_0000_0000_0000, (-0.0_f64).to_bits()]);
    let (outputs, _) = run(&program, 0, 3, &[input]);
    assert_eq!(outputs[0].bytes(), [0, 0, 1]);
    assert_eq!(outputs[1].values().collect::<Vec<_>>(), [2.0, 2.0, -2.0]);
    assert_eq!(outputs[2].bytes(), [0, 0, 1]);
}

#[test]
fn empty_slices_need_no_alignment() {
    let program = program("y = a * 2", &[("a", Dtype::F64)]);
    HostProgram::new(Arc::clone(&program)).run(0, 0, &[&[]], &mut [&mut []], &mut [], &Uniform::default());
    let input = [1.5_f64.to_bits()];
    let mut output = [1_u64];
    let outputs: &mut [&mut [u8]] = &mut [bytemuck::cast_slice_mut(&mut output)];
    HostProgram::new(program).run(0, 1, &[bytemuck::cast_slice(&input)], outputs, &mut [], &Uniform::default());
    assert_eq!(output, [3.0_f64.to_bits()]);
}

#[test]
fn row_numbers_are_global() {
    let first_row = (1_u64 << 40) + TILE_ROWS as u64;
    let program = program("y = i; k = argmax(a)", &[("a", Dtype::I32)]);
    let mut column = Column::zeros(Dtype::I32, 5000);
    column.bytes_mut()[4 * 4999] = 1;
    let (outputs, states) = run(&program, first_row, 5000, &[column]);
    assert!(outputs[0].bits().zip(first_row..).all(|(value, row)| value == row));
    let result = program.reductions()[0].finish(Some(&states[0]), 5000);
    assert_eq!(result, Some(Scalar::I64((first_row + 4999) as i64)));
}

#[test]
fn sums_and_products_have_the_shape_that_is_promised() {
    let rows = TILE_ROWS + 777;
    // Their product is finite, too.
    let column = Column::from_bits(Dtype::F64, finite(Dtype::F64, rows).values().map(|a| (1.0 + a / 1e5).to_bits()));
    let values: Vec<f64> = column.values().collect();
    let tile = |values: &[f64], nothing: f64, combine: fn(f64, f64) -> f64| {
        let mut lanes = [nothing; TILE_THREADS];
        let mut push = |lane: usize, value| lanes[lane] = combine(lanes[lane], value);
        values.iter().enumerate().for_each(|(row, value)| push(row % TILE_THREADS, *value));
        let mut half = TILE_THREADS / 2;
        while half > 0 {
            (0..half).for_each(|lane| lanes[lane] = combine(lanes[lane], lanes[lane + half]));
            half /= 2;
        }
        lanes[0]
    };
    let (_, states) = run(&program("sum(a), prod(a)", &[("a", Dtype::F64)]), 0, rows, &[column]);
    let combine: [fn(f64, f64) -> f64; 2] = [|a, b| a + b, |a, b| a * b];
    for ((nothing, combine), state) in [-0.0, 1.0].into_iter().zip(combine).zip(states) {
        let [first, last] = [&values[..TILE_ROWS], &values[TILE_ROWS..]].map(|part| tile(part, nothing, combine));
        assert_eq!(state, [combine(first, last).to_bits()]);
    }
}

#[test]
fn chunks_do_not_show() {
    let text = "y = a * 2 + i; sum(a); mean(a); min(a); max(a); var(a); std(a * a); argmin(a); argmax(a); \
                count(a > 0); prod(1 + a)";
    let rows = 5 * TILE_ROWS + 123;
    for dtype in [Dtype::F64, Dtype::F32, Dtype::I16, Dtype::U64] {
        let program = program(text, &[("a", dtype)]);
        let kernel = program.kernel();
        let column = finite(dtype, rows);
        let whole = bytes_of(&mut *kernel.new_host_kernel().unwrap(), &program, 0, &column);
        for chunk in [TILE_ROWS, 2 * TILE_ROWS, 3 * TILE_ROWS] {
            let mut host = kernel.new_host_kernel().unwrap();
            let (mut outputs, mut partials) = (Vec::new(), Vec::new());
            for start in (0..rows).step_by(chunk) {
                let part = column.slice(start, rows.min(start + chunk));
                let (output, partial) = bytes_of(&mut *host, &program, start as u64, &part);
                outputs.extend(output);
                partials.extend(partial);
            }
            assert_eq!(whole, (outputs, partials), "{dtype}, {chunk} rows");
        }
    }
}

fn bytes_of(host: &mut dyn HostKernel, program: &Arc<Program>, first_row: u64, input: &Column) -> (Vec<u8>, Vec<u64>) {
    let mut output = Column::zeros(program.outputs()[0].1, input.rows());
    let mut partials = vec![u64::MAX; program.kernel().columns.partial_bytes(input.rows()) / 8];
    let outputs = &mut [output.bytes_mut()];
    host.run(
        first_row,
        input.rows(),
        &[input.bytes()],
        outputs,
        bytemuck::cast_slice_mut(&mut partials),
        &Uniform::default(),
    );
    (output.bytes().to_vec(), partials)
}

#[test]
fn nothing_reduces_to_what_numpy_says() {
    let text = "sum(a); mean(a); var(a); count(a); any(a); all(a); min(a); argmax(a); prod(a)";
    let results = |dtype| {
        let program = program(text, &[("a", dtype)]);
        program.reductions().iter().map(|reduction| reduction.finish(None, 0)).collect::<Vec<_>>()
    };
    let floats = results(Dtype::F32);
    assert_eq!(floats[0], Some(Scalar::F32(0.0)));
    assert!(matches!(floats[1], Some(Scalar::F32(value)) if value.is_nan()));
    assert!(matches!(floats[2], Some(Scalar::F32(value)) if value.is_nan()));
    let counts = [Some(Scalar::I64(0)), Some(Scalar::Bool(false)), Some(Scalar::Bool(true)), None, None];
    assert_eq!(floats[3..8], counts);
    assert_eq!(floats[8], Some(Scalar::F32(1.0)));
    assert_eq!(results(Dtype::U8)[0], Some(Scalar::U64(0)));
    assert_eq!(results(Dtype::U8)[8], Some(Scalar::U64(1)));
    assert_eq!(results(Dtype::Bool)[0], Some(Scalar::I64(0)));
    assert_eq!(results(Dtype::Bool)[8], Some(Scalar::I64(1)));
}

#[test]
fn a_variance_far_from_zero_keeps_its_digits() {
    let bits = (0..10_000).map(|row| (1e9 + f64::from(row % 2)).to_bits());
    let program = program("var(a)", &[("a", Dtype::F64)]);
    let (_, states) = run(&program, 0, 10_000, &[Column::from_bits(Dtype::F64, bits)]);
    let Some(Scalar::F64(variance)) = program.reductions()[0].finish(Some(&states[0]), 10_000) else { panic!() };
    assert!((variance - 0.25).abs() < 1e-9, "{variance}");
}

proptest! {
    #[test]
    fn floats_convert_as_in_rust(value in any::<f64>(), small in -1e5..1e5_f64) {
        let program = program("y = i8(a); z = u16(a); w = i64(a); v = u64(f32(a))", &[("a", Dtype::F64)]);
        let column = Column::from_bits(Dtype::F64, [value.to_bits(), small.to_bits()]);
        let (outputs, _) = run(&program, 0, 2, &[column]);
        for (row, a) in [value, small].into_iter().enumerate() {
            let bits: Vec<u64> = outputs.iter().map(|output| output.bits().nth(row).unwrap()).collect();
            prop_assert_eq!(bits, [(a as i8 as u8).into(), (a as u16).into(), a as i64 as u64, a as f32 as u64]);
        }
    }

    #[test]
    fn integers_keep_the_rule_of_division(a in any::<i16>(), b in any::<i16>()) {
        let program = program("q = a // b; r = a % b; p = q * b + r", &[("a", Dtype::I16), ("b", Dtype::I16)]);
        let columns = [a, b].map(|value| Column::from_bits(Dtype::I16, [value as u64]));
        let (outputs, _) = run(&program, 0, 1, &columns);
        let rest = outputs[1].value(0);
        if b != 0 {
            prop_assert_eq!(outputs[2].value(0), f64::from(a));
            prop_assert!(rest == 0.0 || (rest < 0.0) == (b < 0));
            prop_assert!(rest.abs() < f64::from(b).abs());
        }
    }
}

#[test]
fn rows_may_be_computed_again() {
    let text = "y = x * 2 + i + sin(x); z = x > 0; sum(y), argmax(x), min(y), any(z)";
    let program = program(text, &[("x", Dtype::F64)]);
    let rows = TILE_ROWS + 100;
    let x = finite(Dtype::F64, rows);
    let mut host = HostProgram::new(Arc::clone(&program));
    assert!(host.is_repeatable());
    let words = program.kernel().columns.partial_bytes(rows);
    let run = |host: &mut HostProgram| {
        let (mut y, mut z, mut partials) = (vec![7u64; rows], vec![7u8; rows], vec![7u64; words / 8]);
        let uniform = Uniform::default();
        let outputs = &mut [bytemuck::cast_slice_mut(&mut y), &mut z[..]];
        host.run(8 * TILE_ROWS as u64, rows, &[x.bytes()], outputs, bytemuck::cast_slice_mut(&mut partials), &uniform);
        (y, z, partials)
    };
    let first = run(&mut host);
    assert!(first == run(&mut host));
    host.use_other_instructions();
    assert!(first == run(&mut host), "with other instructions");
}
