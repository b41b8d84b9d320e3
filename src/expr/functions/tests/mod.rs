//! Tests of the functions: their accuracy, and that every instance of a loop gives the same bits.
//!
//! That CUDA gives these bits too is tested in `expr/tests/cuda.rs` and, on a GPU, in `tests/suite.rs`.

use proptest::prelude::*;

use super::dispatch::Level;
use super::{BINARY, UNARY};

/// Numbers at which something changes, and their neighbours.
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

fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// Every function at every level, of a block and of each value alone.
fn check_levels(a: &[f64], b: &[f64]) {
    let mut plain = vec![0.0; a.len()];
    let mut own = vec![0.0; a.len()];
    let mut alone = [0.0];
    for op in UNARY {
        Level::Plain.unary(*op, a, &mut plain);
        for level in Level::supported() {
            level.unary(*op, a, &mut own);
            for (k, x) in a.iter().enumerate() {
                level.unary(*op, &[*x], &mut alone);
                let values = (plain[k], own[k], alone[0]);
                assert!(same(values.0, values.1) && same(values.0, values.2), "{op:?} {level:?} {x:e}: {values:?}");
            }
        }
    }
    for (op, _) in BINARY {
        Level::Plain.binary(*op, a, b, &mut plain);
        for level in Level::supported() {
            level.binary(*op, a, b, &mut own);
            for (k, (x, y)) in a.iter().zip(b).enumerate() {
                level.binary(*op, &[*x], &[*y], &mut alone);
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
        // Without large values sines take another path.
        if turn == 0 {
            let easy: Vec<f64> = hard.iter().copied().filter(|x| x.abs() <= 1e9).collect();
            check_levels(&easy, &easy);
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
