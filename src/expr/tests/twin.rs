//! The twin, and the shape of reductions.

use std::sync::Arc;

use super::super::{Expression, rebuild, samples};
use crate::data::{Dtype, Scalar};
use crate::device::kernel::TILE_ROWS;

#[test]
fn samples_rebuild_from_their_sources() {
    let samples = samples();
    assert_eq!(samples.len(), 4 * Dtype::ALL.len() + 5);
    for kernel in samples {
        let again = rebuild(&kernel.source).unwrap();
        assert_eq!(again.source, kernel.source);
        assert_eq!(again.columns, kernel.columns);
    }
}

#[test]
fn smoke() {
    let e = Expression::parse("y = a * b + i; m = mean(a); max(y); argmin(a - 2); std(a)").unwrap();
    let p = Arc::new(e.bind(&[("a".into(), Dtype::F64), ("b".into(), Dtype::I8)], &[("y".into(), None)]).unwrap());
    let k = p.kernel();
    let a: Vec<f64> = (0..TILE_ROWS + 500).map(|i| i as f64).collect();
    let b: Vec<i8> = a.iter().map(|_| 2).collect();
    let mut y = vec![0.0_f64; a.len()];
    let mut partials = vec![0_u64; k.columns.partial_bytes(a.len()) / 8];
    (k.twin)().run(
        0,
        a.len(),
        &[bytemuck::cast_slice(&a), bytemuck::cast_slice(&b)],
        &mut [bytemuck::cast_slice_mut(&mut y)],
        bytemuck::cast_slice_mut(&mut partials),
    );
    assert!(y.iter().enumerate().all(|(i, y)| *y == 3.0 * i as f64));
    let words = k.columns.partial_words;
    let (left, right) = partials.split_at_mut(words);
    let mut at = 0;
    let mut results = vec![];
    for r in p.reductions() {
        r.combine(&mut left[at..at + r.words()], &right[at..at + r.words()]);
        results.push((r.label().to_owned(), r.finish(Some(&left[at..at + r.words()]), a.len() as u64)));
        at += r.words();
    }
    let n = a.len() as f64;
    assert_eq!(results[0], ("m".into(), Some(Scalar::F64((n - 1.0) / 2.0))));
    assert_eq!(results[1], ("max(y)".into(), Some(Scalar::F64(3.0 * (n - 1.0)))));
    assert_eq!(results[2], ("argmin(a - 2)".into(), Some(Scalar::I64(0))));
    let Some(Scalar::F64(std)) = results[3].1 else { panic!() };
    assert!((std - ((n * n - 1.0) / 12.0).sqrt()).abs() < 1e-9);
}
