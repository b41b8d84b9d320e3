//! Nearest neighbours, beside all distances.

use ndarray::{Array2, ArrayView1, Axis, array, concatenate, s};

use super::*;
use crate::data::Element;

/// Returns the numbers and the squared distances of the nearest rows of a query, of differences from left to right.
fn brute_force(x: &Array2<f64>, query: ArrayView1<'_, f64>, count: usize) -> Vec<(usize, f64)> {
    let square = |row: ArrayView1<'_, f64>| row.iter().zip(query).map(|(one, other)| (one - other).powi(2)).sum();
    let mut order: Vec<(usize, f64)> = x.rows().into_iter().map(square).enumerate().collect();
    order.retain(|(_, square)| square.is_finite());
    order.sort_by(|one, other| one.1.total_cmp(&other.1));
    order.truncate(count);
    order
}

#[test]
fn neighbours_are_those_of_all_distances() {
    // More rows than the host searches before the first pass, more queries than one pass takes, and rows that are the
    // same, NaN and infinite.
    let mut x = random(5000, 3, 17).mapv(|value| (value * 8.0).round() / 8.0) + 3.0;
    x[[5, 1]] = f64::NAN;
    x[[4900, 0]] = f64::INFINITY;
    let queries = concatenate(Axis(0), &[x.slice(s![4980.., ..]), (random(20, 3, 18) + 3.0).view()]).unwrap();
    for engine in engines() {
        let found = Matrices::on(&engine).nearest(&input(&x), queries.view(), 7).unwrap();
        for (query, values) in queries.rows().into_iter().enumerate() {
            for (place, (row, square)) in brute_force(&x, values, 7).into_iter().enumerate() {
                assert_eq!(found.indices[[query, place]], row as i64, "query {query}, place {place}");
                assert_eq!(found.distances[[query, place]], square.sqrt());
            }
        }
    }
}

#[test]
fn rows_that_are_not_finite_are_no_neighbours() {
    let gaps = array![[f64::NAN], [4.0], [3.0], [f64::INFINITY], [2.0], [1.0]];
    let near = Matrices::on(&cpu()).nearest(&input(&gaps), array![[0.0]].view(), 3).unwrap();
    assert_eq!(near.indices, array![[5, 4, 2]]);
    let few = Matrices::on(&cpu()).nearest(&input(&array![[1.0], [f64::NAN]]), array![[0.0]].view(), 2).unwrap();
    assert_eq!((few.indices, few.distances), (array![[0, -1]], array![[1.0, f64::INFINITY]]));
}

/// Searches for one query at a time, so that no row is found for another one.
fn assert_neighbours<T: Element + Into<f64>>(x: &Array2<T>, queries: &Array2<f64>, count: usize)
where
    for<'a> Input<'a>: From<ArrayView2<'a, T>>,
{
    let (cpu, exact) = (cpu(), x.mapv(T::into));
    for query in queries.rows() {
        let found = Matrices::on(&cpu).nearest(&x.view().into(), query.insert_axis(Axis(0)), count).unwrap();
        let right: Vec<i64> = brute_force(&exact, query, count).iter().map(|(row, _)| *row as i64).collect();
        assert_eq!(found.indices.row(0).to_vec(), right, "{query}");
    }
}

#[test]
fn rows_may_be_large_or_small() {
    let (rows, queries, sides) = (random(600, 3, 20), random(20, 3, 21), random(600, 1, 22).mapv(f64::signum));
    // Squared norms of `f32` are subnormal or zero, or nearly infinite.
    for scale in [1e-30, 1e-22, 3e-22, 1e18, 1e19, 3e37] {
        assert_neighbours(&rows.mapv(|value| (value * scale) as f32), &(&queries * scale), 4);
        let far = (&rows / 50.0 + &sides) * scale;
        let near = far.slice(s![..20, ..]).mapv(|value| value * 1.001);
        assert_neighbours(&far.mapv(|value| value as f32), &near, 4);
    }
}

#[test]
fn squares_may_overflow() {
    // The squares of all rows are infinite in `f32`, but neither are those of distances nor the products.
    let large = f64::from(f32::MAX.sqrt());
    let x = Array2::from_shape_fn((40, 2), |(row, column)| {
        let side = if row % 2 == 0 { 1.0 } else { -1.0 };
        let size = if row < 20 { 1.3 } else { 1.05 };
        if column == 0 { (large * side * size) as f32 } else { 0.0 }
    });
    let queries = x.slice(s![..2, ..]).mapv(|value| f64::from(value) * 0.45 / 1.3);
    assert_neighbours(&x, &queries, 4);
}

#[test]
fn rows_may_be_nearer_by_less_than_a_rounding() {
    let (x, queries) = (random(1000, 12, 23), random(40, 12, 24));
    assert_neighbours(&concatenate(Axis(0), &[x.view(), x.mapv(f64::next_up).view()]).unwrap(), &queries, 1);
    let x = x.mapv(|value| value as f32);
    assert_neighbours(&concatenate(Axis(0), &[x.view(), x.mapv(f32::next_up).view()]).unwrap(), &queries, 1);
}

#[test]
fn long_integers_are_neighbours() {
    let x = array![[1_i64 << 40, 0], [(1 << 40) + 1, 0], [7, 9]];
    let found = Matrices::on(&cpu()).nearest(&x.view().into(), array![[1e15, 0.0]].view(), 1).unwrap();
    assert_eq!(found.indices[[0, 0]], 1);
}

#[test]
fn squares_may_be_infinite_or_zero() {
    let nearest = |base: &[f64], query: f64| {
        let base = Array2::from_shape_fn((base.len(), 1), |(row, _)| base[row]);
        let found = Matrices::on(&cpu()).nearest(&input(&base), array![[query]].view(), base.nrows()).unwrap();
        (found.indices.row(0).to_vec(), found.distances.row(0).to_vec())
    };
    let (indices, distances) = nearest(&[0.0, 1e155, 3e155], 1e155);
    assert_eq!(indices, [1, 0, 2]);
    let right = [0.0, 1e155, 2e155];
    assert!(distances.iter().zip(right).all(|(own, right)| (own - right).abs() <= 1e-15 * right), "{distances:?}");
    assert_eq!(nearest(&[3e-170, 1e-170, 2e-170], 0.0).0, [1, 2, 0]);
}

/// Queries and rows that are far away, or near each other, do not change the neighbours of others.
#[test]
fn distances_of_all_sizes_go_together() {
    // The host searches a part of these rows, and the passes the others.
    let (most, few) = (f64::MAX, 3);
    for far in [1e200, -most / 4.0, 1e-200] {
        for at in [0, 39, 70] {
            let mut x = random(80, 2, 31);
            x.row_mut(at).fill(far);
            let mut queries = random(9, 2, 32);
            queries.row_mut(4).fill(far);
            for engine in engines() {
                let found = Matrices::on(&engine).nearest(&input(&x), queries.view(), few).unwrap();
                for (query, values) in queries.rows().into_iter().enumerate() {
                    let right = if query == 4 { vec![(at, 0.0)] } else { brute_force(&x, values, few) };
                    for (place, (row, square)) in right.into_iter().enumerate() {
                        let own = (found.indices[[query, place]], found.distances[[query, place]]);
                        assert_eq!(own, (row as i64, square.sqrt()), "{far} at {at}: query {query}, place {place}");
                    }
                }
            }
        }
    }
    // All that the host searches first is tiny, and what the passes find is not.
    let tiny = random(40, 2, 33) * 1e-170;
    let x = concatenate(Axis(0), &[tiny.view(), random(40, 2, 34).view()]).unwrap();
    let found = Matrices::on(&cpu()).nearest(&input(&x), array![[0.0, 0.0]].view(), 80).unwrap();
    let lengths: Vec<f64> = x.rows().into_iter().map(|row| row[0].hypot(row[1])).collect();
    let mut order: Vec<usize> = (0..80).collect();
    order.sort_by(|one, other| lengths[*one].total_cmp(&lengths[*other]));
    assert_eq!(found.indices.row(0).mapv(|row| row as usize).to_vec(), order);
    let is_near = |(own, row): (&f64, &usize)| (own - lengths[*row]).abs() <= 1e-15 * lengths[*row];
    assert!(found.distances.row(0).iter().zip(&order).all(is_near), "{}", found.distances);
}
