//! The comparison with NumPy: `tests/numpy/cases.txt`, which `tests/numpy/generate.py` explains and writes.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::Expression;
use super::{Column, run};
use crate::data::Dtype;

const TABLE: &str = include_str!("../../../tests/numpy/cases.txt");

/// How far a function without an exact result may be from NumPy's, in units of the last place. NumPy's own vary by
/// processor, within 4.
const MAX_ULP: u64 = 4;

/// How far sums may be, relative to the sum of magnitudes or, if larger, the result.
const CLOSE: f64 = 1e-12;
const CLOSE_F32: f64 = 1e-6;

#[test]
fn gives_what_numpy_gives() {
    let mut columns = HashMap::new();
    let (mut checked, mut wrong) = (0, Vec::new());
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        if let Some(values) = line.strip_prefix("values ") {
            let mut words = values.split(' ');
            let name = words.next().unwrap();
            let dtype = Dtype::from_name(words.next().unwrap()).unwrap();
            columns.insert(name, Column::from_bits(dtype, words.map(bits)));
            continue;
        }
        checked += 1;
        if let Err(problem) = check(line, &columns) {
            let line: String = line.chars().take(100).collect();
            wrong.push(format!("{line}\n    {problem}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {checked} cases:\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
    assert!(checked > 5000);
}

fn bits(hex: &str) -> u64 {
    u64::from_str_radix(hex, 16).unwrap()
}

fn check(line: &str, columns: &HashMap<&str, Column>) -> Result<(), String> {
    let fields: Vec<&str> = line.split('\t').collect();
    let (kind, bound) = fields[0].split_once(' ').unwrap_or((fields[0], ""));
    let inputs: Vec<(String, Column)> = fields[2]
        .split(' ')
        .map(|input| {
            let (name, column) = input.split_once('=').unwrap();
            (name.to_owned(), columns[column].clone())
        })
        .collect();
    let text = if kind == "reduce" { fields[1].to_owned() } else { format!("y = {}", fields[1]) };
    let expression = Expression::parse(&text);
    let dtypes: Vec<(String, Dtype)> = inputs.iter().map(|(name, column)| (name.clone(), column.dtype)).collect();
    let outputs: &[_] = if kind == "reduce" { &[] } else { &[("y".to_owned(), None)] };
    let program = expression.and_then(|expression| expression.bind(&dtypes, outputs));
    let program = match (program, kind) {
        (Err(_), "error") => return Ok(()),
        (Ok(program), "error") => return Err(format!("no error but {:?}", program.outputs())),
        (Err(error), _) => return Err(error.to_string()),
        (Ok(program), _) => Arc::new(program),
    };
    let expected = Column::from_bits(Dtype::from_name(fields[3]).unwrap(), fields[4].split(' ').map(bits));
    let inputs: Vec<Column> = inputs.into_iter().map(|(_, column)| column).collect();
    let rows = inputs[0].rows();
    let (outputs, states) = run(&program, 0, rows, &inputs);
    let ours = if kind == "reduce" {
        let scalar = program.reductions()[0].finish(Some(&states[0]), rows as u64).ok_or("no value")?;
        Column::from_scalar(scalar)
    } else {
        outputs.into_iter().next().unwrap()
    };
    if ours.dtype != expected.dtype {
        return Err(format!("{} instead of {}", ours.dtype, expected.dtype));
    }
    let magnitude: f64 = inputs[0].values().map(f64::abs).filter(|value| value.is_finite()).sum();
    for (row, (ours_bits, expected_bits)) in ours.bits().zip(expected.bits()).enumerate() {
        let (a, b) = (ours.value(row), expected.value(row));
        let agrees = ours_bits == expected_bits
            || (a.is_nan() && b.is_nan())
            || match bound {
                "zero" => a == b && a == 0.0,
                "ulp" => distance(ours.dtype, ours_bits, expected_bits) <= MAX_ULP,
                "close" => {
                    (a - b).abs() <= magnitude.max(b.abs()) * if ours.dtype == Dtype::F32 { CLOSE_F32 } else { CLOSE }
                }
                _ => false,
            };
        if !agrees {
            let rows: Vec<f64> = inputs.iter().map(|input| input.value(row)).collect();
            return Err(format!("row {row} {rows:?}: {a:?} ({ours_bits:x}) instead of {b:?} ({expected_bits:x})"));
        }
    }
    Ok(())
}

/// Floats between two floats.
pub(super) fn distance(dtype: Dtype, a: u64, b: u64) -> u64 {
    let place = |bits: u64| match dtype {
        Dtype::F32 if bits >> 31 == 1 => -((bits & 0x7fff_ffff) as i64),
        Dtype::F64 if bits >> 63 == 1 => -((bits & (u64::MAX >> 1)) as i64),
        _ => bits as i64,
    };
    place(a).abs_diff(place(b))
}
