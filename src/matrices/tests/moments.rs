//! Regressions and principal components.

use ndarray::{Array1, Array2, Axis, array, concatenate, s};

use super::*;

#[test]
fn products_have_the_dtype_of_the_table() {
    let x = random(3000, 7, 1);
    for engine in engines() {
        let gram = Matrices::on(&engine).gram(&input(&x)).unwrap();
        let values = Array2::from_shape_vec((7, 7), gram.to_vec::<f64>().unwrap()).unwrap();
        assert_near(&values, &x.t().dot(&x), 1e-10);
        let small = x.mapv(|value| value as f32);
        let gram = Matrices::on(&engine).gram(&Input::from(small.view())).unwrap();
        assert_eq!(gram.shape(), [7, 7]);
        assert!((f64::from(gram.to_vec::<f32>().unwrap()[0]) - values[[0, 0]]).abs() < 0.01);
        let whole = Matrices::on(&engine).gram(&Input::from(array![[1_u8, 20], [30, 4]].view())).unwrap();
        assert_eq!(whole.to_vec::<f64>(), Some(vec![901.0, 140.0, 140.0, 416.0]));
    }
}

#[test]
fn covariances_lose_no_digits() {
    let x = random(2000, 5, 2) + 1e6;
    let centered = &x - &x.mean_axis(Axis(0)).unwrap();
    for ddof in [0, 1] {
        let expected = centered.t().dot(&centered) / (2000 - ddof) as f64;
        assert_near(&Matrices::on(&cpu()).covariance(&input(&x), ddof).unwrap(), &expected, 1e-9);
    }
    let one = Matrices::on(&cpu()).covariance(&input(&array![[1.0, 2.0]]), 1);
    assert_eq!(reason(one), MatrixError::TooFewRows { rows: 1, ddof: 1 });
}

#[test]
fn least_squares_leave_nothing_along_the_columns() {
    let x = random(4000, 6, 3) + 50.0;
    let noise = random(4000, 1, 4).column(0).to_owned();
    let truth = array![1.0, -2.0, 3.0, 0.0, 0.5, 7.0];
    let t = x.dot(&truth) + 11.0 + noise;
    for (engine, ridge, with) in engines().iter().flat_map(|engine| [(engine, 0.0, true), (engine, 9.0, false)]) {
        let how = Linear::new().ridge(ridge).intercept(with);
        let model = Matrices::on(engine).linear(&input(&x), &Input::from(t.view()), how).unwrap();
        let rest = &t - &x.dot(&model.weights) - model.intercept;
        let gradient = x.t().dot(&rest) - &model.weights * ridge;
        assert!(gradient.iter().all(|slope| slope.abs() < 1e-4), "{gradient}");
        assert!(!with || rest.sum().abs() < 1e-6);
        assert!(with || model.intercept == 0.0);
    }
    // Without noise, the weights themselves.
    let exact = x.dot(&truth) + 11.0;
    let model = Matrices::on(&cpu()).linear(&input(&x), &Input::from(&exact.to_vec()), Linear::new()).unwrap();
    assert!((&model.weights - &truth).iter().all(|error| error.abs() < 1e-9) && (model.intercept - 11.0).abs() < 1e-7);
}

#[test]
fn columns_that_depend_on_others_are_an_error() {
    let x = random(500, 3, 5);
    let twice = concatenate(Axis(1), &[x.view(), (&x.slice(s![.., ..1]) * 3.0).view()]).unwrap();
    let constant = concatenate(Axis(1), &[x.view(), Array2::ones((500, 1)).view()]).unwrap();
    let t: Array1<f64> = x.column(0).mapv(|value| f64::from(u8::from(value > 0.1)));
    let target = || Input::from(t.view());
    for table in [&twice, &constant] {
        let matrices = Matrices::on(&cpu()).linear(&input(table), &target(), Linear::new());
        assert_eq!(reason(matrices), MatrixError::Singular);
        assert!(Matrices::on(&cpu()).linear(&input(table), &target(), Linear::new().ridge(0.1)).is_ok());
        let logistic = Matrices::on(&cpu()).logistic(&input(table), &target(), Logistic::new());
        assert_eq!(reason(logistic), MatrixError::Singular);
    }
}

#[test]
fn rounding_does_not_hide_that_columns_depend_on_others() {
    let t = |rows: usize| random(rows, 1, 30).column(0).to_vec();
    let of = |x: &Array2<f64>| {
        let t = t(x.nrows());
        Matrices::on(&cpu()).linear(&input(x), &Input::from(&t), Linear::new())
    };
    let mut tables: Vec<Array2<f64>> = (10..200)
        .map(|rows| Array2::from_shape_fn((rows, 3), |(row, column)| f64::from(u8::from(row % 3 == column))))
        .collect();
    for value in [1e-5, 0.1, 1.0, 12_345.678] {
        tables.push(Array2::from_elem((1000, 1), value));
        tables.push(concatenate(Axis(1), &[random(1000, 1, 31).view(), tables[tables.len() - 1].view()]).unwrap());
    }
    for seed in 0..30 {
        let inches = random(500, 1, seed) * (seed as f64).exp2() + 170.0;
        tables.push(concatenate(Axis(1), &[inches.view(), (&inches * 2.54).view()]).unwrap());
        // Columns that are nearly the same, and a combination of them.
        let near = random(500, 4, seed + 100) / 1000.0 + random(500, 1, seed);
        let sum = near.dot(&random(4, 1, seed + 200));
        tables.push(concatenate(Axis(1), &[near.view(), sum.view()]).unwrap());
    }
    for table in &tables {
        assert_eq!(reason(of(table)), MatrixError::Singular, "{table}");
    }
    // Powers of years are nearly dependent, but not quite.
    let years = Array2::from_shape_fn((900, 3), |(row, power)| (1990.0 + (row / 30) as f64).powi(power as i32 + 1));
    let model = of(&years);
    assert!(model.is_ok(), "{model:?}");
}

#[test]
fn components_are_directions_of_the_covariance() {
    let scale = Array1::from_shape_fn(12, |k| 1.0 / (1.0 + k as f64 * k as f64));
    let x = random(3000, 12, 6).dot(&random(12, 12, 7)) * scale + 5.0;
    let covariance = Matrices::on(&cpu()).covariance(&input(&x), 1).unwrap();
    for engine in engines() {
        let matrices = Matrices::on(&engine);
        let exact = matrices.pca(&input(&x), Pca::new(3)).unwrap();
        assert_eq!((exact.components.dim(), exact.turn), ((3, 12), 0.0));
        for (direction, variance) in exact.components.rows().into_iter().zip(&exact.variance) {
            let rest = covariance.dot(&direction) - &direction * *variance;
            assert!(rest.iter().all(|rest| rest.abs() < 1e-12), "{rest}");
            assert!(direction.fold(0.0, |most: f64, &x| if x.abs() > most.abs() { x } else { most }) > 0.0);
        }
        assert_near(&exact.components.dot(&exact.components.t()), &Array2::eye(3), 1e-12);
        assert!(exact.variance[0] >= exact.variance[1] && exact.variance[1] >= exact.variance[2]);
        let random = matrices.pca(&input(&x), Pca::new(3).method(Method::Randomized)).unwrap();
        assert_near(&random.components, &exact.components, 1e-6);
        assert!(random.turn < 1e-6);
    }
    let all = Matrices::on(&cpu()).pca(&input(&x), Pca::new(12)).unwrap();
    assert!((all.variance.sum() - covariance.diag().sum()).abs() < 1e-10);
    let wide = random(400, 90, 6);
    let few = Matrices::on(&cpu()).pca(&input(&wide), Pca::new(3).method(Method::Randomized).iterations(2)).unwrap();
    assert!(few.turn > 1e-3 && few.turn <= 1.0, "{}", few.turn);
    // Tables of fewer dimensions than directions that are searched.
    let flat = random(400, 2, 8).dot(&random(2, 30, 9));
    let found = Matrices::on(&cpu()).pca(&input(&flat), Pca::new(4).method(Method::Randomized)).unwrap();
    assert!(found.variance[1] > 1e-3 && found.variance[2] < 1e-12, "{}", found.variance);
}

#[test]
fn rows_are_projected() {
    let (x, directions, mean) = (random(1000, 4, 10), random(2, 4, 11), array![1.0, 2.0, 3.0, 4.0]);
    let mut y = Array2::zeros((1000, 2));
    for engine in engines() {
        let matrices = Matrices::on(&engine);
        matrices.project(&input(&x), directions.view(), Some(mean.view()), y.view_mut()).unwrap();
        assert_near(&y, &(&x - &mean).dot(&directions.t()), 1e-12);
        matrices.project(&input(&x), directions.view(), None, y.view_mut()).unwrap();
        assert_near(&y, &x.dot(&directions.t()), 1e-12);
    }
    let wrong = Matrices::on(&cpu()).project(&input(&x), x.slice(s![..2, ..3]), None, y.view_mut());
    assert!(matches!(reason(wrong), MatrixError::Shape { name: "components", .. }));
}

#[test]
fn likelihoods_are_the_largest() {
    let x = random(3000, 4, 12) * array![1.0, 5.0, 0.1, 2.0] + 20.0;
    let scores = x.dot(&array![1.0, -0.2, 4.0, 0.5]) - 107.0;
    let drawn = random(3000, 1, 13).column(0).to_owned();
    let t: Array1<bool> =
        ndarray::Zip::from(&scores).and(&drawn).map_collect(|z, r| r < &(1.0 / (1.0 + (-z).exp()) * 2.0 - 1.0));
    let ones = t.mapv(|one| f64::from(u8::from(one)));
    for (engine, penalty) in engines().iter().flat_map(|engine| [(engine, 0.0), (engine, 3.0)]) {
        let how = Logistic::new().penalty(penalty);
        let model = Matrices::on(engine).logistic(&input(&x), &Input::from(t.view()), how).unwrap();
        assert!(model.converged && model.iterations < 10, "{model:?}");
        let shares = (x.dot(&model.weights) + model.intercept).mapv(|z| 1.0 / (1.0 + (-z).exp()));
        let gradient = x.t().dot(&(&shares - &ones)) + &model.weights * penalty;
        assert!(gradient.iter().all(|slope| slope.abs() < 1e-2), "{gradient}");
        assert!((&shares - &ones).sum().abs() < 1e-3);
    }
    // A plane divides the classes.
    let divided = x.column(0).mapv(|value| value > 20.0);
    for iterations in [8, 1000] {
        let how = Logistic::new().iterations(iterations);
        let model = Matrices::on(&cpu()).logistic(&input(&x), &Input::from(divided.view()), how).unwrap();
        assert!(!model.converged && model.iterations < 30, "{model:?}");
    }
    // As many rows as columns.
    let small = Matrices::on(&cpu()).logistic(
        &input(&x.slice(s![..4, ..]).to_owned()),
        &Input::from(&[0.0, 1.0, 1.0, 0.0]),
        Logistic::new().penalty(1.0),
    );
    assert!(small.unwrap().converged);
    let of =
        |t: &Array1<f64>| reason(Matrices::on(&cpu()).logistic(&input(&x), &Input::from(t.view()), Logistic::new()));
    assert_eq!(of(&Array1::ones(3000)), MatrixError::OneClass);
    assert_eq!(of(&Array1::from_elem(3000, 0.5)), MatrixError::NotAClass { others: 3000 });
}
