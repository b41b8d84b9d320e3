//! Expressions: parse, bind dtypes, lower, run on the host. The input is a text, or, after a `~`, the choices from
//! which one is written that is valid but for its dtypes.
#![no_main]

use std::collections::HashSet;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use overshot::expr::{Expression, locate};
use overshot::testing::fuzz::Bound;
use overshot::testing::{Kernel, rebuild};
use overshot::{Dtype, Error, Scalar};
use overshot_fuzz::{Column, Grammar, Statement, bits, run};

fuzz_target!(|data: &[u8]| {
    if let Some(choices) = data.strip_prefix(b"~") {
        let _ = check_written(&mut Unstructured::new(choices));
    } else {
        check_text(&String::from_utf8_lossy(data));
    }
});

/// Inputs or scalars with their dtypes.
type Names = Vec<(String, Dtype)>;

/// Checks a text. The last character of each name that it reads says what is given: a digit is a scalar.
fn check_text(text: &str) {
    let Some(expression) = parse(text) else { return };
    let dtype = |name: &str| Dtype::ALL[name.bytes().next_back().map_or(0, usize::from) % Dtype::ALL.len()];
    let names = expression.inputs().map(|name| (name.to_owned(), dtype(name)));
    let (values, inputs): (Names, Names) = names.partition(|(name, _)| name.ends_with(|c: char| c.is_ascii_digit()));
    let outputs: Vec<_> = expression.outputs().map(|name| (name.to_owned(), None)).collect();
    let choices = text.bytes().cycle().take(1000).collect::<Vec<_>>();
    let _ = check_bound(&expression, &inputs, &values, &outputs, 5, &mut Unstructured::new(&choices));
}

/// Parses a text and checks what does not depend on dtypes.
fn parse(text: &str) -> Option<Expression> {
    let expression = match Expression::parse(text) {
        Ok(expression) => expression,
        Err(error) => {
            check_error(text, &error);
            return None;
        }
    };
    assert_eq!(expression.text(), text);
    let (read, constants): (HashSet<_>, HashSet<_>) = (expression.inputs().collect(), expression.constants().collect());
    let mut assigned = HashSet::new();
    for name in expression.outputs() {
        assert!(assigned.insert(name) && !read.contains(name) && !constants.contains(name), "{name} has two roles");
    }
    assert!(read.is_disjoint(&constants) && read.len() == expression.inputs().len());
    Some(expression)
}

fn check_error(text: &str, error: &Error) {
    let Error::Expression { column, text: own, message } = error else { panic!("another error: {error}") };
    assert!(own == text && !message.is_empty());
    assert!((1..=text.chars().count() + 1).contains(column), "column {column}");
    let place = locate(text, *column);
    assert!(text.split('\n').nth(place.line - 1).is_some_and(|line| line.starts_with(place.text)));
}

/// Checks that a bound expression has one meaning everywhere. Returns its results for the values that are chosen for
/// its columns and scalars.
fn check_bound(
    expression: &Expression,
    inputs: &Names,
    values: &Names,
    outputs: &[(String, Option<Dtype>)],
    rows: usize,
    u: &mut Unstructured<'_>,
) -> Result<Option<Run>> {
    let bound = match Bound::new(expression, inputs, values, outputs) {
        Ok(bound) => bound,
        Err(error) => {
            check_error(expression.text(), &error);
            return Ok(None);
        }
    };
    assert!(bound.outputs().iter().map(|(name, _)| name).eq(outputs.iter().map(|(name, _)| name)));
    assert!(
        bound.outputs().iter().zip(outputs).all(|((_, own), (_, wanted))| wanted.is_none_or(|dtype| dtype == *own))
    );
    let kernel = bound.kernel();
    check_source(&kernel);

    // The engine reads the rows at both ends of a job, which these kernels lack.
    if expression.text().contains("wrap") {
        return Ok(None);
    }
    let columns = inputs.iter().map(|(_, dtype)| Column::arbitrary(u, *dtype, rows)).collect::<Result<Vec<_>>>()?;
    let scalars = values.iter().map(|(_, dtype)| bits(u, *dtype)).collect::<Result<Vec<_>>>()?;
    let host = &mut *kernel.new_host_kernel().expect("expressions have one");
    let result = run(host, &kernel, bound.outputs(), rows, &columns, &scalars);
    // The same again, after fewer rows with other scalars, which a new host kernel computes alike.
    let (few, others) = (rows / 2, scalars.iter().map(|bits| bits ^ 1).collect::<Vec<_>>());
    let first: Vec<Column> = columns.iter().map(|column| column.slice(0, few)).collect();
    let used = run(host, &kernel, bound.outputs(), few, &first, &others);
    let new = &mut *kernel.new_host_kernel().expect("expressions have one");
    assert_eq!(run(new, &kernel, bound.outputs(), few, &first, &others), used);
    assert_eq!(run(host, &kernel, bound.outputs(), rows, &columns, &scalars), result);
    // A row does not depend on others that it does not name, but for its number and, if there is a filter, for its
    // place.
    let is_filtered = bound.kept(&result.1).is_some();
    if !is_filtered && !kernel.code.text().contains(" = row;\n") && !kernel.code.text().contains("total_rows") {
        for row in 0..rows.min(6) {
            let one: Vec<Column> = columns.iter().map(|column| column.slice(row, row + 1)).collect();
            let (alone, _) = run(host, &kernel, bound.outputs(), 1, &one, &scalars);
            assert!(alone.iter().zip(&result.0).all(|(alone, all)| alone.bits(0) == all.bits(row)), "row {row}");
        }
    }
    // A scalar is a column with this value in every row, unless it meets kept rows.
    if !values.is_empty() && !expression.text().contains('[') {
        let all: Names = inputs.iter().chain(values).cloned().collect();
        let bound = Bound::new(expression, &all, &[], outputs).expect("columns for scalars");
        let constant = values
            .iter()
            .zip(&scalars)
            .map(|((_, dtype), bits)| Column::from_bits(*dtype, vec![*bits; rows].into_iter()));
        let columns: Vec<Column> = columns.iter().cloned().chain(constant).collect();
        let kernel = bound.kernel();
        let host = &mut *kernel.new_host_kernel().expect("expressions have one");
        assert_eq!(run(host, &kernel, bound.outputs(), rows, &columns, &[]), result);
    }
    let results = bound.results(&result.1, rows as u64);
    assert!(results.iter().map(|(name, _)| name.as_str()).eq(expression.reductions()));
    Ok(Some(Run { columns, scalars, results }))
}

struct Run {
    columns: Vec<Column>,
    scalars: Vec<u64>,
    results: Vec<(String, Option<Scalar>)>,
}

/// The first line of a source is a comment that describes the whole kernel.
fn check_source(kernel: &Kernel) {
    let source = kernel.code.text();
    assert!(source.starts_with("// ") && !source.lines().next().is_some_and(|line| line.ends_with('\\')));
    let again = rebuild(source).expect("a source that was generated");
    assert_eq!(again.code.text(), source);
    assert!(again.columns == kernel.columns && again.launch == kernel.launch);
}

/// The source without the line that has the text of the expression.
fn body(kernel: &Kernel) -> &str {
    kernel.code.text().split_once('\n').map_or("", |(_, body)| body)
}

/// Checks an expression that is written from the grammar.
fn check_written(u: &mut Unstructured<'_>) -> Result<()> {
    let grammar = Grammar::arbitrary(u)?;
    let rows = usize::from(u.arbitrary::<u8>()?);
    let Grammar { inputs, values, .. } = &grammar;
    let text = grammar.text(false);
    let Some(expression) = parse(&text) else {
        // Reads of names that get another role later are all that the grammar does not exclude.
        let Err(error) = Expression::parse(&text) else { unreachable!() };
        assert!(
            ["nested more than", "was read as", "too large"].iter().any(|why| error.to_string().contains(why)),
            "{error}"
        );
        return Ok(());
    };
    let mut outputs = vec![];
    for name in expression.outputs() {
        outputs.push((name.to_owned(), if u.ratio(1, 4)? { Some(*u.choose(Dtype::ALL)?) } else { None }));
    }
    // Parentheses that the precedence of operators makes superfluous change nothing.
    let other = Expression::parse(&grammar.text(true)).expect("the same with parentheses");
    let both = [&expression, &other].map(|one| Bound::new(one, inputs, values, &outputs));
    match &both {
        [Ok(one), Ok(other)] => assert_eq!(body(&one.kernel()), body(&other.kernel()), "{text}"),
        [Err(one), Err(other)] => assert_eq!(message(one), message(other), "{text}"),
        [one, other] => panic!("{text}: {one:?}, with parentheses {other:?}"),
    }
    let Some(run) = check_bound(&expression, inputs, values, &outputs, rows, u)? else { return Ok(()) };
    check_results(&grammar, &run, rows);
    Ok(())
}

/// The message of an error, which may quote the expression, without parentheses and spaces.
fn message(error: &Error) -> String {
    let Error::Expression { message, .. } = error else { panic!("another error: {error}") };
    message.replace(['(', ')', ' '], "")
}

/// Compares reductions with those that are computed from the values of all rows.
fn check_results(grammar: &Grammar, run: &Run, rows: usize) {
    // The row values, as outputs of another expression.
    let Grammar { inputs, values, statements } = grammar;
    let statements = statements.iter().enumerate().map(|(k, statement)| match statement {
        Statement::Reduce(_, _, tree) => Statement::Assign(format!("of{k}"), tree.clone()),
        assign => assign.clone(),
    });
    let each = Grammar { inputs: inputs.clone(), values: values.clone(), statements: statements.collect() };
    let expression = Expression::parse(&each.text(false)).expect("values in place of reductions");
    let outputs: Vec<_> = expression.outputs().map(|name| (name.to_owned(), None)).collect();
    let bound = Bound::new(&expression, inputs, values, &outputs).expect("values in place of reductions");
    let kernel = bound.kernel();
    let host = &mut *kernel.new_host_kernel().expect("expressions have one");
    let (columns, _) = overshot_fuzz::run(host, &kernel, bound.outputs(), rows, &run.columns, &run.scalars);
    let reduced = grammar.statements.iter().zip(&columns).filter_map(|(statement, column)| match statement {
        Statement::Reduce(_, kind, _) => Some((*kind, column)),
        Statement::Assign(..) => None,
    });
    for ((kind, column), (name, result)) in reduced.zip(&run.results) {
        assert!(is_right(kind, column, *result), "{name} = {result:?}, with {kind} of {column:?}");
    }
}

/// Whether this is the result of a reduction over a column.
fn is_right(kind: &str, column: &Column, result: Option<Scalar>) -> bool {
    let rows = column.rows;
    let is_true =
        |row: usize| if column.dtype.is_float() { column.float(row) != 0.0 } else { column.integer(row) != 0 };
    let same = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan();
    // All digits, because fewer may be on the other side of the middle of two values. A number that is too large for
    // the dtype is not parsed, and a result of it is infinite.
    let rounded = |value: f64| match Scalar::parse(&format!("{value:.1074}"), column.dtype) {
        Some(rounded) => rounded.as_f64(),
        None if column.dtype.is_float() => f64::INFINITY.copysign(value),
        None => value,
    };
    let Some(result) = result else {
        return rows == 0 && matches!(kind, "min" | "max" | "argmin" | "argmax");
    };
    match kind {
        "count" => result == Scalar::I64((0..rows).filter(|row| is_true(*row)).count() as i64),
        "any" => result == Scalar::Bool((0..rows).any(is_true)),
        "all" => result == Scalar::Bool((0..rows).all(is_true)),
        "sum" if column.dtype.is_float() => same(result.as_f64(), rounded(sum(column) + 0.0)),
        "prod" if column.dtype.is_float() => same(result.as_f64(), rounded(folded(column, 1.0, |a, b| a * b))),
        "prod" => {
            let product = (0..rows).fold(1, |product: i128, row| product.wrapping_mul(column.integer(row)));
            result == if column.dtype.is_unsigned() { Scalar::U64(product as u64) } else { Scalar::I64(product as i64) }
        }
        "sum" => {
            let sum: i128 = (0..rows).map(|row| column.integer(row)).sum();
            result == if column.dtype.is_unsigned() { Scalar::U64(sum as u64) } else { Scalar::I64(sum as i64) }
        }
        "mean" => same(result.as_f64(), rounded(sum(column) / rows as f64)),
        "var" | "std" => result.as_f64().is_nan() || result.as_f64() >= 0.0,
        "min" | "max" | "argmin" | "argmax" => {
            let row = extreme(kind.ends_with("min"), column);
            match kind {
                "argmin" | "argmax" => result == Scalar::I64(row as i64),
                _ if column.dtype.is_float() => same(result.as_f64(), column.float(row)),
                _ => result.dtype() == column.dtype && result.to_string() == shown(column, row),
            }
        }
        kind => panic!("what is {kind}?"),
    }
}

fn shown(column: &Column, row: usize) -> String {
    match column.dtype {
        Dtype::Bool => (column.bits(row) != 0).to_string(),
        _ => column.integer(row).to_string(),
    }
}

/// The first row with the smallest or largest value; NaN is before all others.
fn extreme(smallest: bool, column: &Column) -> usize {
    let precedes = |a: usize, b: usize| match column.dtype.is_float() {
        true if column.float(b).is_nan() => false,
        true if column.float(a).is_nan() => true,
        true if smallest => column.float(a) < column.float(b),
        true => column.float(a) > column.float(b),
        false if smallest => column.integer(a) < column.integer(b),
        false => column.integer(a) > column.integer(b),
    };
    (1..column.rows).fold(0, |best, row| if precedes(row, best) { row } else { best })
}

fn sum(column: &Column) -> f64 {
    folded(column, -0.0, |a, b| a + b)
}

/// At most 256 rows, combined in the order that is promised.
fn folded(column: &Column, nothing: f64, combine: fn(f64, f64) -> f64) -> f64 {
    let mut lanes = [nothing; 256];
    (0..column.rows).for_each(|row| lanes[row] = combine(lanes[row], column.float(row)));
    for half in [128, 64, 32, 16, 8, 4, 2, 1] {
        (0..half).for_each(|lane| lanes[lane] = combine(lanes[lane], lanes[lane + half]));
    }
    lanes[0]
}
