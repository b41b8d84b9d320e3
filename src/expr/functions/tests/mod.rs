//! Tests of the functions: their accuracy, and that every instance of a loop gives the same bits.
//!
//! `expr/tests/cuda.rs` and, on a GPU, `tests/devices/jobs.rs` test that CUDA gives the same bits, too.

use proptest::prelude::*;

use super::{BINARY, OfOne, OfTwo, UNARY};
use crate::expr::dispatch::{self, Level};
use crate::expr::words::{Binary, Unary};

/// Numbers at which an algorithm changes, and their neighbours.
pub(in super::super) fn hard() -> Vec<f64> {
    let edges = [
        0.0,
        5e-324,
        f64::MIN_POSITIVE,
        1e-300,
        1e-20,
        1e-17,
        1e-8,
        0.25,
        0.346_573_590_279_972_6,
        std::f64::consts::SQRT_2 - 1.0,
        0.5,
        std::f64::consts::FRAC_1_SQRT_2,
        std::f64::consts::FRAC_PI_4,
        1.0,
        std::f64::consts::SQRT_2,
        std::f64::consts::FRAC_PI_2,
        2.0,
        std::f64::consts::SQRT_2 + 1.0,
        3.0,
        std::f64::consts::PI,
        8.0,
        22.0,
        40.0,
        103.0,
        709.782_712_893_384,
        710.475_860_073_943_9,
        745.133_219_101_941_1,
        1000.0,
        1023.0,
        1074.5,
        268_435_456.0,
        1_073_741_824.0,
        1e10,
        4_503_599_627_370_496.0,
        9_007_199_254_740_992.0,
        1e22,
        1e130,
        1e150,
        5.319_372_648_326_541e255,
        f64::MAX,
        f64::INFINITY,
        f64::NAN,
    ];
    let around = |x: f64| [x.next_down(), x, x.next_up(), -x, -x.next_up()];
    edges.into_iter().flat_map(around).collect()
}

fn unary(op: Unary, a: &[f64], out: &mut [f64]) {
    dispatch::run(OfOne { op, a, out });
}

fn binary(op: Binary, a: &[f64], b: &[f64], out: &mut [f64]) {
    dispatch::run(OfTwo { op, a, b, out });
}

fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// Runs every function at every level, on a block and on each value alone.
fn check_levels(a: &[f64], b: &[f64]) {
    let mut plain = vec![0.0; a.len()];
    let mut own = vec![0.0; a.len()];
    let mut alone = [0.0];
    for op in UNARY {
        Level::Plain.run(OfOne { op: *op, a, out: &mut plain });
        for level in Level::supported() {
            level.run(OfOne { op: *op, a, out: &mut own });
            for (k, x) in a.iter().enumerate() {
                level.run(OfOne { op: *op, a: &[*x], out: &mut alone });
                let values = (plain[k], own[k], alone[0]);
                assert!(same(values.0, values.1) && same(values.0, values.2), "{op:?} {level:?} {x:e}: {values:?}");
            }
        }
    }
    for (op, _) in BINARY {
        Level::Plain.run(OfTwo { op: *op, a, b, out: &mut plain });
        for level in Level::supported() {
            level.run(OfTwo { op: *op, a, b, out: &mut own });
            for (k, (x, y)) in a.iter().zip(b).enumerate() {
                level.run(OfTwo { op: *op, a: &[*x], b: &[*y], out: &mut alone });
                let values = (plain[k], own[k], alone[0]);
                assert!(
                    same(values.0, values.1) && same(values.0, values.2),
                    "{op:?} {level:?} {x:e} {y:e}: {values:?}"
                );
            }
        }
    }
}

#[test]
fn hard_values_have_the_same_bits_at_every_level() {
    let hard = hard();
    for turn in 0..hard.len() {
        let other: Vec<f64> = hard.iter().cycle().skip(turn).take(hard.len()).copied().collect();
        check_levels(&hard, &other);
        // Without large values, sines use another algorithm.
        if turn == 0 {
            let easy: Vec<f64> = hard.iter().copied().filter(|x| x.abs() <= 1e9).collect();
            check_levels(&easy, &easy);
        }
    }
}

/// Checks every line of `reference.txt`, which `reference.py` explains. Prints the largest error of each function.
#[test]
fn accuracy_is_within_1_ulp() {
    let mut worst: Vec<(&str, f64, &str)> = Vec::new();
    for line in include_str!("reference.txt").lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let (name, rest) = (words[0], words[words.len() - 1].parse::<f64>().unwrap());
        let bits: Vec<u64> =
            words[1..words.len() - 1].iter().map(|word| u64::from_str_radix(word, 16).unwrap()).collect();
        let value = |k: usize| f64::from_bits(bits[k]);
        let mut out = [f64::NAN];
        if let [_, _, _] = bits[..] {
            let op = BINARY.iter().find(|(_, of)| *of == name).unwrap().0;
            binary(op, &[value(0)], &[value(1)], &mut out);
        } else {
            let op = UNARY.iter().find(|op| op.name() == name).unwrap();
            unary(*op, &[value(0)], &mut out);
        }
        // Floats of the same sign are in the order of their bits. The error of the result grows with `rest`.
        let places = out[0].to_bits() as i64 - bits[bits.len() - 1] as i64;
        let sign = if out[0].is_sign_negative() { -1.0 } else { 1.0 };
        let error = (places as f64 - sign * rest).abs();
        match worst.last_mut() {
            Some(last) if last.0 == name => {
                if error > last.1 {
                    *last = (name, error, line);
                }
            }
            _ => worst.push((name, error, line)),
        }
    }
    worst.iter().for_each(|(name, error, line)| println!("{name}: at most {error:.3} ulp, at {line}"));
    assert_eq!(worst.len(), UNARY.len() + BINARY.len());
    assert!(worst.iter().all(|(_, error, _)| *error < 1.0));
}

/// The special cases of annex F of C99, which NumPy follows.
#[test]
fn special_values() {
    let (inf, nan, tiny) = (f64::INFINITY, f64::NAN, 5e-324_f64);
    let one = |name: &str, x: f64| {
        let mut out = [1234.5];
        unary(*UNARY.iter().find(|op| op.name() == name).unwrap(), &[x], &mut out);
        out[0]
    };
    for name in ["cbrt", "expm1", "log1p", "sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh"] {
        for x in [0.0_f64, -0.0, tiny, -tiny] {
            let expected = if name == "cbrt" { x.cbrt() } else { x };
            assert!(same(one(name, x), expected), "{name}({x:e})");
        }
    }
    for (name, x, expected) in [
        ("exp", 0.0, 1.0),
        ("exp", 710.0, inf),
        ("exp", -746.0, 0.0),
        ("exp", -inf, 0.0),
        ("exp2", 1024.0, inf),
        ("exp2", -1074.0, tiny),
        ("exp2", 10.0, 1024.0),
        ("expm1", -inf, -1.0),
        ("expm1", 1e300, inf),
        ("log", 1.0, 0.0),
        ("log", -0.0, -inf),
        ("log", -tiny, nan),
        ("log", inf, inf),
        ("log2", tiny, -1074.0),
        ("log10", 1e15, 15.0),
        ("log1p", -1.0, -inf),
        ("log1p", -1.5, nan),
        ("log1p", inf, inf),
        ("sin", inf, nan),
        ("cos", -0.0, 1.0),
        ("tan", -inf, nan),
        ("asin", 1.5, nan),
        ("acos", 1.0, 0.0),
        ("acos", -1.0, std::f64::consts::PI),
        ("atan", -inf, -std::f64::consts::FRAC_PI_2),
        ("sinh", -711.0, -inf),
        ("cosh", -inf, inf),
        ("tanh", -inf, -1.0),
        ("asinh", -inf, -inf),
        ("acosh", 1.0, 0.0),
        ("acosh", 0.5, nan),
        ("acosh", inf, inf),
        ("atanh", -1.0, -inf),
        ("atanh", 1.5, nan),
        ("cbrt", -inf, -inf),
        ("cbrt", -27.0, -3.0),
    ] {
        assert!(same(one(name, x), expected), "{name}({x:e}) is {:e}", one(name, x));
    }
    UNARY.iter().for_each(|op| assert!(one(op.name(), nan).is_nan(), "{op:?}"));

    let two = |op, x: f64, y: f64| {
        let mut out = [1234.5];
        binary(op, &[x], &[y], &mut out);
        out[0]
    };
    // The standard library is right for exact results; all bases and exponents here are special.
    let special = [0.0, 0.5, 1.0, 2.0, 3.0, 1e300, inf, nan, -0.0, -0.5, -1.0, -2.0, -3.0, -1e300, -inf];
    for x in special {
        for y in special {
            let power = two(Binary::Pow, x, y);
            assert!(same(power, x.powf(y)) || (power / x.powf(y) - 1.0).abs() < 1e-15, "{x} ** {y} is {power}");
            let angle = two(Binary::Atan2, x, y);
            assert!(same(angle, x.atan2(y)) || (angle / x.atan2(y) - 1.0).abs() < 1e-15, "atan2({x}, {y}) is {angle}");
            let length = two(Binary::Hypot, x, y);
            assert!(same(length, x.hypot(y)) || (length / x.hypot(y) - 1.0).abs() < 1e-15, "hypot({x}, {y})");
        }
    }
}

proptest! {
    #[test]
    fn any_values_have_the_same_bits_at_every_level(
        pairs in prop::collection::vec((any::<u64>(), any::<u64>()), 1..40),
        plain in prop::collection::vec((-50.0..50.0_f64, -50.0..50.0_f64), 1..40),
    ) {
        let bits = pairs.iter().map(|(a, b)| (f64::from_bits(*a), f64::from_bits(*b)));
        let (a, b): (Vec<f64>, Vec<f64>) = bits.chain(plain).unzip();
        check_levels(&a, &b);
    }
}
