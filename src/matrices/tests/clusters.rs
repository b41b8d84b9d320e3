//! Clusters.

use ndarray::{Array2, Axis, array, concatenate, s};

use super::*;

/// Lloyd's algorithm in loops.
fn lloyd(x: &Array2<f64>, mut centers: Array2<f64>, iterations: usize) -> (Array2<f64>, Vec<i64>) {
    let near = |centers: &Array2<f64>| -> Vec<i64> {
        distances(x, centers).rows().into_iter().map(|row| least(row) as i64).collect()
    };
    for _ in 0..iterations {
        let labels = near(&centers);
        for (number, mut center) in centers.rows_mut().into_iter().enumerate() {
            let own: Vec<usize> = (0..x.nrows()).filter(|row| labels[*row] == number as i64).collect();
            if !own.is_empty() {
                center.assign(&x.select(Axis(0), &own).mean_axis(Axis(0)).unwrap());
            }
        }
    }
    let labels = near(&centers);
    (centers, labels)
}

#[test]
fn clusters_are_those_of_loops() {
    let x = random(5000, 3, 14) + 100.0;
    // No row is near to the last center, which stays where it is.
    let start = concatenate(Axis(0), &[x.slice(s![..6, ..]), Array2::from_elem((1, 3), 1e4).view()]).unwrap();
    let (centers, expected) = lloyd(&x, start.clone(), 4);
    for (k, engine) in engines().iter().enumerate() {
        let mut labels = vec![0_i64; 5000];
        let how = KMeans::from_centers(start.clone()).iterations(4).labels(&mut labels);
        let found = Matrices::on(engine).kmeans(&input(&x), how).unwrap();
        assert_near(&found.centers, &centers, 1e-9);
        assert_eq!((found.iterations, found.converged, labels == expected), (4, false, true), "engine {k}");
        assert_eq!((found.counts.sum(), found.counts[6]), (5000, 0));
        let squares = distances(&x, &found.centers);
        let inertia: f64 = squares.rows().into_iter().map(|row| row[least(row)]).sum();
        assert!((found.inertia - inertia).abs() < 1e-9 * inertia);
        let (mut near, mut far) = (vec![0_i64; 5000], vec![0.0; 5000]);
        Matrices::on(engine).assign(&input(&x), found.centers.view(), &mut near, &mut far).unwrap();
        assert_eq!(near, labels);
        assert!(far.iter().zip(squares.rows()).all(|(far, row)| (far - row[least(row)].sqrt()).abs() < 1e-9));
    }
}

#[test]
fn iterations_end_when_centers_stay() {
    // Eight clusters at the corners of a cube.
    let corner = |row: usize, column: usize| 8.0 * ((row % 8) >> column & 1) as f64;
    let x = random(4000, 3, 15) + Array2::from_shape_fn((4000, 3), |(row, column)| corner(row, column));
    for engine in engines() {
        let mut labels = vec![0_i64; 4000];
        let found = Matrices::on(&engine).kmeans(&input(&x), KMeans::plus_plus(8).labels(&mut labels)).unwrap();
        assert!(found.converged && found.iterations <= 4, "{found:?}");
        assert_eq!(found.counts.to_vec(), [500; 8]);
        assert!((0..4000).all(|row| labels[row] == labels[row % 8]));
        let again = Matrices::on(&cpu()).kmeans(&input(&x), KMeans::plus_plus(8)).unwrap();
        assert_near(&again.centers, &found.centers, 1e-9);
    }
    let loose = Matrices::on(&cpu()).kmeans(&input(&x), KMeans::plus_plus(8).seed(3).tolerance(1e3)).unwrap();
    assert_eq!((loose.iterations, loose.converged), (1, true));
    // Rows that are the same, so that all distances are 0.
    let same = Matrices::on(&cpu()).kmeans(&input(&Array2::ones((10, 2))), KMeans::plus_plus(3)).unwrap();
    assert_eq!((same.inertia, same.counts.sum()), (0.0, 10));
}

#[test]
fn integers_are_tables() {
    let x = array![[1_u8, 4], [2, 4], [7, 9]];
    let found = Matrices::on(&cpu()).kmeans(&x.view().into(), KMeans::plus_plus(2)).unwrap();
    assert_eq!(found.counts.sum(), 3);
}

#[test]
fn as_many_centers_as_rows_or_columns_are_clusters() {
    for (size, width) in [(1, 1), (2, 2), (3, 3), (4, 2), (2, 5)] {
        let x = random(size, width, 30);
        for engine in engines() {
            let found = Matrices::on(&engine).kmeans(&input(&x), KMeans::from_centers(x.clone())).unwrap();
            assert!(found.inertia < 1e-12 && found.counts.to_vec() == vec![1; size], "{size}, {width}: {found:?}");
            assert_near(&found.centers, &x, 1e-12);
        }
    }
}

#[test]
fn rows_may_be_large_or_small() {
    let x = array![[0.0, 0.0], [1.0, 0.0], [9.0, 1.0], [10.0, 1.0], [11.0, 1.0]];
    let check = |scale: f64, table: &Input<'_>| {
        let start = x.select(Axis(0), &[0, 3]) * scale;
        let (mut labels, mut again, mut distances) = (vec![9_i64; 5], vec![9_i64; 5], vec![9.0; 5]);
        let how = KMeans::from_centers(start).labels(&mut labels);
        let found = Matrices::on(&cpu()).kmeans(table, how).unwrap();
        assert!(found.converged && found.counts.to_vec() == [2, 3], "{scale}: {found:?}");
        Matrices::on(&cpu()).assign(table, found.centers.view(), &mut again, &mut distances).unwrap();
        assert_eq!((&labels[..], &again[..]), (&[0, 0, 1, 1, 1][..], &labels[..]), "{scale}");
        let right = [0.5, 0.5, 1.0, 0.0, 1.0].map(|distance| distance * scale);
        assert!(distances.iter().zip(right).all(|(own, right)| (own - right).abs() < 1e-6 * scale), "{distances:?}");
        // The square of the scale may be beyond all floats.
        let inertia = 2.5 * scale * scale;
        assert!(found.inertia == inertia || (found.inertia / inertia - 1.0).abs() < 1e-5, "{scale}: {found:?}");
    };
    for scale in [1e-25, 1.0, 1e20, 1e30] {
        check(scale, &x.mapv(|value| (value * scale) as f32).view().into());
    }
    for scale in [1e-170, 1.0, 1e160, 1e300] {
        check(scale, &(&x * scale).view().into());
    }
}

#[test]
fn rows_that_are_not_finite_have_no_label() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let x = array![[0.0, 1.0], [nan, 1.0], [9.0, 9.0], [inf, 9.0], [9.0, -inf], [nan, nan]];
    let centers = array![[0.0, 0.0], [9.0, 8.0]];
    for table in [input(&x), x.mapv(|value| value as f32).view().into()] {
        for engine in engines() {
            let (mut labels, mut distances) = (vec![9_i64; 6], vec![9.0; 6]);
            Matrices::on(&engine).assign(&table, centers.view(), &mut labels, &mut distances).unwrap();
            assert_eq!(labels, [0, -1, 1, -1, -1, -1]);
            assert!(labels.iter().zip(&distances).all(|(label, far)| (*label < 0) != (*far == 1.0)), "{distances:?}");
            let refused = Matrices::on(&engine).kmeans(&table, KMeans::from_centers(centers.clone()));
            assert!(refused.unwrap_err().to_string().contains("infinite or NaN"));
        }
    }
}

#[test]
fn iterations_go_on_for_rows_of_any_size() {
    let x = Array2::from_shape_fn((12, 1), |(row, _)| row as f64);
    // Powers of two change no digit.
    for scale in [2.0_f64.powi(-600), 1.0, 2.0_f64.powi(600), 2.0_f64.powi(1000)] {
        for tolerance in [0.0, 1e-4, 0.05] {
            let how = KMeans::from_centers(array![[0.0], [1.0]] * scale).tolerance(tolerance);
            let found = Matrices::on(&cpu()).kmeans(&input(&(&x * scale)), how).unwrap();
            let own = (&found.centers / scale, found.iterations, found.converged);
            let how = KMeans::from_centers(array![[0.0], [1.0]]).tolerance(tolerance);
            let right = Matrices::on(&cpu()).kmeans(&input(&x), how).unwrap();
            assert_eq!(own, (right.centers, right.iterations, true), "{scale}, {tolerance}");
            assert!(found.iterations > 2, "{found:?}");
        }
    }
}
