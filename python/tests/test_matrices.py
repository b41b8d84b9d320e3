"""Regressions, clusters, neighbours and components of tables agree with scikit-learn or NumPy, on the cores and on the
emulated device, which gets less memory than the larger tables need, and have the same bits for every chunk size."""

import doctest
import multiprocessing
import warnings
import weakref

import numpy as np
import overshot as ov
import pytest
from conftest import DEVICES as NAMES

SETTINGS = [{"device": device, "device_memory": "256MiB" if device == "emulated" else None} for device in NAMES]
CHUNKS = ["64KiB", "300KiB", "4MiB"]
DEVICES = pytest.mark.parametrize("settings", SETTINGS, ids=NAMES)
DTYPES = pytest.mark.parametrize("dtype", ["f4", "f8"])


def table(rows, columns, dtype="f8", seed=1):
    return np.random.default_rng(seed).normal(size=(rows, columns)).astype(dtype)


def points(count, columns):
    """Points that are far from zero."""
    return np.random.default_rng(5).normal(size=(count, columns)) * 3 + 40


def groups(rows, columns, dtype="f8", count=6, spread=0.3, seed=6):
    """Rows around some points."""
    rng = np.random.default_rng(seed)
    noise = spread * rng.normal(size=(rows, columns))
    return (points(count, columns)[rng.integers(count, size=rows)] + noise).astype(dtype)


def same_for_all_chunks(compute):
    """Computes with each chunk size, and compares the bytes of all arrays and numbers."""
    for settings in SETTINGS:
        found = [compute(**settings, chunk=chunk) for chunk in CHUNKS]
        for other in found[1:]:
            for one, two in zip(found[0], other, strict=True):
                np.testing.assert_array_equal(one, two)


def test_the_examples_in_docstrings_are_right():
    failed, tried = doctest.testmod(ov.matrices, extraglobs={"np": np, "ov": ov})
    assert failed == 0 and tried > 15


def labelled(rows, columns, scale=1.0, dtype="f8", shift=0.0):
    x = table(rows, columns, dtype) * scale + shift
    weights = np.linspace(-1, 1, columns) / scale
    z = (x.astype("f8") - shift) @ weights + 0.4
    return x.astype(dtype), np.random.default_rng(9).random(rows) < 1 / (1 + np.exp(-z))


@DEVICES
@DTYPES
@pytest.mark.parametrize("penalty", [0.0, 3.0])
def test_logistic_regression(settings, dtype, penalty):
    linear_model = pytest.importorskip("sklearn.linear_model")
    x, t = labelled(20_000, 7, dtype=dtype)
    found = ov.matrices.logistic(x, t, penalty=penalty, **settings)
    c = 1 / penalty if penalty else np.inf
    right = linear_model.LogisticRegression(C=c, tol=1e-12, max_iter=200, solver="newton-cholesky")
    right.fit(x.astype("f8"), t)
    np.testing.assert_allclose(found.weights, right.coef_[0], rtol=1e-6, atol=1e-8)
    assert found.intercept == pytest.approx(right.intercept_[0], rel=1e-6)
    assert found.converged and found.iterations < 8


def gradient_is_zero(found, x, t, penalty=0.0):
    """Whether there is no better model: a check that needs no other implementation."""
    with np.errstate(over="ignore"):
        p = 1 / (1 + np.exp(-(x @ found.weights + found.intercept)))
    scale = np.abs(x).sum(axis=0) + 1
    return (np.abs(x.T @ (p - t) + penalty * found.weights) < 1e-9 * scale).all() and abs((p - t).sum()) < 1e-6 * len(t)


@pytest.mark.parametrize("scale, shift", [(1.0, 1e4), (1e3, 0.0), (1e-3, 5.0)])
def test_logistic_regression_of_columns_of_any_scale(scale, shift):
    x, t = labelled(5000, 4, scale=scale, shift=shift)
    found = ov.matrices.logistic(x, t.astype("i4"))
    assert found.converged and gradient_is_zero(found, x, t)


def test_logistic_regression_with_steps_that_are_too_long():
    # One far row, on the other side than the rest of its class: full steps would lead away from the least loss.
    x, t = np.append(np.linspace(-0.2, 0.2, 41), -3.0)[:, None], np.zeros(42)
    t[[26, 32, 38, 41]] = 1
    found = ov.matrices.logistic(x, t, penalty=1e-3)
    assert found.converged and gradient_is_zero(found, x, t, 1e-3)


def test_logistic_regression_of_far_rows_does_not_overflow():
    x = np.array([[-1e6], [-1.0], [1.0], [1e6], [2.0], [-2.0]])
    t = np.array([0, 1, 0, 1, 1, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ov.matrices.logistic(x, t, penalty=0.1)
    assert np.isfinite(found.weights).all() and np.isfinite(found.intercept)


def test_logistic_regression_of_classes_that_are_apart_does_not_converge():
    x = table(200, 2)
    found = ov.matrices.logistic(x, x[:, 0] > 0, iterations=40)
    assert not found.converged and found.iterations < 40
    assert ((x @ found.weights + found.intercept > 0) == (x[:, 0] > 0)).all()
    assert ov.matrices.logistic(x, x[:, 0] > 0, penalty=0.1).converged


def test_logistic_regression_of_files(tmp_path):
    x, t = labelled(3000, 3)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "t.npy", t)
    found = ov.matrices.logistic(tmp_path / "x.npy", tmp_path / "t.npy")
    right = ov.matrices.logistic(x, t)
    np.testing.assert_array_equal(found.weights, right.weights)


def test_logistic_regression_refuses():
    x, t = labelled(100, 2)
    for labels, arguments, message in [
        (t * 2, {}, "neither 0 nor 1"),
        (np.zeros(100), {}, "the same value of t"),
        (t, {"penalty": -1}, "penalty"),
        (t, {"iterations": 0}, "from 1 to .* iterations"),
        (t, {"iterations": -1}, "iterations is -1"),
    ]:
        with pytest.raises(ValueError, match=message):
            ov.matrices.logistic(x, labels, **arguments)


@DEVICES
@DTYPES
@pytest.mark.parametrize("is_near", [True, False])
def test_k_means_from_a_start(settings, dtype, is_near):
    cluster = pytest.importorskip("sklearn.cluster")
    x = groups(30_000, 5, dtype)
    # A center beside each group, or several in one, from where they move for a long time.
    start = (points(6, 5) if is_near else x[:6]).astype(dtype) + np.asarray(0.5, dtype)
    found = ov.matrices.kmeans(x, start, iterations=30, labels=True, **settings)
    right = cluster.KMeans(6, init=start, n_init=1, tol=0, max_iter=30, algorithm="lloyd").fit(x)
    assert found.inertia == pytest.approx(right.inertia_, rel=1e-5)
    exact = ((x.astype("f8") - found.centers[found.labels]) ** 2).sum()
    assert found.inertia == pytest.approx(exact, rel=1e-6 if dtype == "f4" else 1e-10)
    np.testing.assert_array_equal(found.counts, np.bincount(found.labels, minlength=6))
    assert found.converged == is_near and found.labels.dtype == "i8"
    if is_near or dtype == "f8":  # scikit-learn computes with f32, too, so that rows between two centers differ
        np.testing.assert_allclose(found.centers, right.cluster_centers_, rtol=1e-5)
        np.testing.assert_array_equal(found.labels, right.labels_)


@DEVICES
@pytest.mark.parametrize("count", [1, 2, 300])
@pytest.mark.parametrize("columns", [1, 2, 33])
def test_k_means_of_any_width(settings, count, columns):
    x = table(3000, columns)
    start = x[:count]
    found = ov.matrices.kmeans(x, start, iterations=3, labels=True, **settings)
    centers = start
    for _ in range(3):
        near = ((x[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
        means = [x[near == k].mean(axis=0) if (near == k).any() else centers[k] for k in range(count)]
        centers = np.array(means)
    squares = ((x[:, None] - centers) ** 2).sum(axis=2)
    np.testing.assert_allclose(found.centers, centers, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found.labels, squares.argmin(axis=1))
    assert found.inertia == pytest.approx(squares.min(axis=1).sum(), rel=1e-9)


def test_k_means_finds_a_start():
    cluster = pytest.importorskip("sklearn.cluster")
    x = groups(20_000, 4, "f4", count=12)
    found = ov.matrices.kmeans(x, 12, seed=3, device="cpu")
    right = cluster.KMeans(12, n_init=3, random_state=0).fit(x)
    assert found.inertia < 1.6 * right.inertia_
    again = ov.matrices.kmeans(x, 12, seed=3, device="cpu")
    np.testing.assert_array_equal(found.centers, again.centers)
    assert found.inertia == again.inertia and found.labels is None


def test_k_means_draws_rows_of_large_tables(tmp_path):
    x = groups(70_000, 3, count=5)
    np.save(tmp_path / "x.npy", x)
    right = ov.matrices.kmeans(x, 5)
    assert right.inertia < 2 * 70_000 * 3 * 0.3**2
    for other in (tmp_path / "x.npy", np.load(tmp_path / "x.npy", mmap_mode="r"), tmp_path / "*.npy"):
        np.testing.assert_array_equal(ov.matrices.kmeans(other, 5).centers, right.centers)


def test_k_means_keeps_centers_without_rows():
    x = groups(1000, 2)
    start = np.vstack([x[:2], [[1e3, -1e3]]])
    found = ov.matrices.kmeans(x, start)
    np.testing.assert_array_equal(found.centers[2], start[2])
    assert found.counts[2] == 0 and found.counts.sum() == 1000


def test_k_means_ends_at_its_tolerance():
    x = table(20_000, 3)
    found = [ov.matrices.kmeans(x, x[:8], iterations=300, tolerance=tolerance) for tolerance in (1e-2, 1e-4, 0.0)]
    assert all(one.converged for one in found)
    assert found[0].iterations < found[1].iterations < found[2].iterations
    assert found[0].inertia > found[1].inertia >= found[2].inertia
    assert not ov.matrices.kmeans(x, x[:8], iterations=2).converged


def test_k_means_of_rows_far_from_zero_in_f4():
    # Squared norms are 1e8 times the squared distances: without a shift, no digit of them would be left in f32.
    x = groups(9000, 3, "f4", spread=0.01, count=4) + np.float32(100)
    start = np.vstack([x[:4], x[:4] + np.float32(0.02)])
    found = ov.matrices.kmeans(x, start, labels=True)
    squares = ((x[:, None].astype("f8") - found.centers) ** 2).sum(axis=2)
    assert np.mean(found.labels != squares.argmin(axis=1)) < 0.01
    assert found.inertia == pytest.approx(squares.min(axis=1).sum(), rel=1e-5)


def test_k_means_of_integers():
    x = np.random.default_rng(1).integers(0, 255, (5000, 8)).astype("u1")
    found, right = (ov.matrices.kmeans(of, x[:5].astype("f8"), labels=True) for of in (x, x.astype("f8")))
    np.testing.assert_allclose(found.centers, right.centers)
    np.testing.assert_array_equal(found.labels, right.labels)


def test_k_means_refuses():
    x = table(50, 3)
    for start, message in [
        (0, "from 1 to 50 centers"),
        (51, "from 1 to 50 centers"),
        (-1, "count is -1"),
        (x[:, :2], "shape"),
        (x[:2] * np.inf, "NaN"),
    ]:
        with pytest.raises(ValueError, match=message):
            ov.matrices.kmeans(x, start)
    with pytest.raises(ValueError, match="from 1 to .* iterations"):
        ov.matrices.kmeans(x, 2, iterations=0)
    with pytest.raises(ValueError, match=r"shape \(50,\), and not \(n, d\)"):
        ov.matrices.kmeans(x[:, 0], 2)
    x[7, 1] = np.nan
    for start in (2, np.zeros((2, 3))):
        with pytest.raises(ValueError, match="infinite or NaN"):
            ov.matrices.kmeans(x, start)


@DEVICES
@DTYPES
def test_rows_are_assigned_to_centers(settings, dtype, tmp_path):
    x = groups(9000, 5, dtype)
    centers = np.vstack([x[:10], x[3:4]]).astype("f8")
    found = ov.matrices.assign(x, centers, **settings)
    squares = ((x[:, None].astype("f8") - centers) ** 2).sum(axis=2)
    np.testing.assert_allclose(found.distances, np.sqrt(squares.min(axis=1)), rtol=1e-5, atol=1e-5)
    assert found.distances.dtype == "f8" and 10 not in found.labels
    clusters = ov.matrices.kmeans(x, centers, iterations=4, labels=True, **settings)
    np.testing.assert_array_equal(ov.matrices.assign(x, clusters.centers, **settings).labels, clusters.labels)
    out = {"labels": tmp_path / "labels.npy", "distances": tmp_path / "distances.npy"}
    ov.matrices.assign(x, centers, out=out, **settings)
    np.testing.assert_array_equal(np.load(out["labels"]), found.labels)


def brute_force(base, queries, count):
    indices, distances = [], []
    for query in queries.astype("f8"):
        squares = ((base.astype("f8") - query) ** 2).sum(axis=1)
        order = np.lexsort((np.arange(len(base)), squares))[:count]
        indices.append(order)
        distances.append(np.sqrt(squares[order]))
    return np.array(indices), np.array(distances)


@DEVICES
@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "i4"])
@pytest.mark.parametrize("rows, columns", [(300, 3), (65_536, 1), (300_001, 4), (70_000, 40)])
def test_nearest_neighbours_with_ties(settings, dtype, rows, columns):
    # Small integers: many rows have the same distance, and some are equal.
    rng = np.random.default_rng(4)
    base, queries = rng.integers(0, 9, (rows, columns)).astype(dtype), rng.integers(0, 9, (17, columns)).astype("f8")
    found = ov.matrices.nearest(base, queries, 5, **settings)
    indices, distances = brute_force(base, queries, 5)
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_allclose(found.distances, distances, rtol=1e-15)


@DEVICES
@DTYPES
@pytest.mark.parametrize("shift", [0, 1e3])
def test_nearest_neighbours_of_any_numbers(settings, dtype, shift):
    base, queries = (table(100_000, 12, seed=2) + shift).astype(dtype), table(40, 12, seed=3) + shift
    base[90_000:] = base[:10_000]
    for count in (1, 10):
        found = ov.matrices.nearest(base, queries, count, **settings)
        indices, distances = brute_force(base, queries, count)
        np.testing.assert_array_equal(found.indices, indices)
        np.testing.assert_allclose(found.distances, distances, rtol=1e-15)


def test_nearest_neighbours_in_batches_of_a_file(tmp_path):
    # More queries than one pass takes, and more rows than the cores search before the first pass.
    base, queries = table(70_000, 3, "f4"), table(1100, 3, "f4", seed=3)
    np.save(tmp_path / "base.npy", base)
    checked = np.r_[0:5, 1020:1030, 1095:1100]
    indices, _ = brute_force(base, queries[checked], 3)
    right = ov.matrices.nearest(base, queries, 3).indices
    np.testing.assert_array_equal(right[checked], indices)
    for of in (tmp_path / "base.npy", np.load(tmp_path / "base.npy", mmap_mode="r"), np.asfortranarray(base)):
        np.testing.assert_array_equal(ov.matrices.nearest(of, queries[:20], 3).indices, right[:20])
    assert ov.matrices.nearest(base[:100], queries[:0], 3).indices.shape == (0, 3)


def test_neighbours_among_rows_that_are_not_finite():
    base = table(140_000, 2)
    base[::2] = np.nan
    base[1::4] = np.inf
    rows = np.nonzero(np.isfinite(base).all(axis=1))[0]
    found = ov.matrices.nearest(base, np.zeros((2, 2)), len(rows) + 1)
    indices, distances = brute_force(base[rows], np.zeros((2, 2)), len(rows))
    np.testing.assert_array_equal(found.indices[:, :-1], rows[indices])
    np.testing.assert_allclose(found.distances[:, :-1], distances, rtol=1e-15)
    assert (found.indices[:, -1] == -1).all() and np.isinf(found.distances[:, -1]).all()


def test_neighbours_refuse():
    x = table(50, 3)
    for count in (0, 51):
        with pytest.raises(ValueError, match="from 1 to 50 neighbours"):
            ov.matrices.nearest(x, x, count)
    with pytest.raises(ValueError, match="count is -1"):
        ov.matrices.nearest(x, x, -1)
    for queries, message in [(x[0], r"not \(k, d\)"), (x[:, :2], r"not \(q, 3\)"), (x * np.nan, "NaN")]:
        with pytest.raises(ValueError, match=message):
            ov.matrices.nearest(x, queries, 1)


def low_rank(rows, columns, dtype="f8"):
    """Rows with few directions of large variance, and noise."""
    rng = np.random.default_rng(6)
    directions = rng.normal(size=(8, columns)) * np.linspace(4, 1, 8)[:, None]
    return (rng.normal(size=(rows, 8)) @ directions + 0.1 * rng.normal(size=(rows, columns)) + 7).astype(dtype)


def sine(one, two):
    """The sine of the largest angle between the spaces of the rows of two orthonormal arrays."""
    return np.linalg.norm(one - one @ two.T @ two, 2)


@DEVICES
@DTYPES
@pytest.mark.parametrize("columns", [12, 60, 300])
def test_random_directions_find_principal_components(settings, dtype, columns):
    x = low_rank(4000, columns, dtype)
    found = ov.matrices.pca(x, 5, method="randomized", **settings)
    exact = x.astype("f8") - x.mean(axis=0, dtype="f8")
    _, values, vectors = np.linalg.svd(exact, full_matrices=False)
    assert sine(found.components, vectors[:5]) < 1e-6
    np.testing.assert_allclose(found.variance, values[:5] ** 2 / (len(x) - 1), rtol=1e-9)
    np.testing.assert_allclose(found.components @ found.components.T, np.eye(5), atol=1e-12)
    assert (found.components.max(axis=1) > -found.components.min(axis=1)).all()


def test_wide_tables_have_principal_components():
    x = low_rank(300, 5000, "f4")
    found = ov.matrices.pca(x, 3)
    vectors = np.linalg.svd(x.astype("f8") - x.mean(axis=0, dtype="f8"), full_matrices=False)[2]
    assert sine(found.components, vectors[:3]) < 1e-6


def test_components_of_few_directions():
    # The rank is less than the number of directions: what is left of them is noise.
    x = low_rank(500, 40)[:4]
    found = ov.matrices.pca(x, 6, method="randomized")
    right = ov.matrices.pca(x, 6, method="exact")
    np.testing.assert_allclose(found.variance, right.variance, rtol=1e-9, atol=1e-9 * right.variance[0])
    assert sine(found.components[:3], right.components[:3]) < 1e-9


def test_components_that_are_not_found_warn():
    x = table(2000, 400)
    with pytest.warns(RuntimeWarning, match="give more of them"):
        ov.matrices.pca(x, 3, method="randomized", iterations=2)
    with pytest.raises(ValueError, match="the method is"):
        ov.matrices.pca(x, 3, method="fast")
    with pytest.raises(ValueError, match="from 1 to 400"):
        ov.matrices.pca(x, 401, method="randomized")


@DEVICES
@DTYPES
def test_projections(settings, dtype, tmp_path):
    x = low_rank(5000, 20, dtype)
    model = ov.matrices.pca(x, 3, **settings)
    found = ov.matrices.project(x, model, **settings)
    exact = x.astype("f8")
    np.testing.assert_allclose(found, (exact - model.mean) @ model.components.T, atol=1e-9)
    np.testing.assert_allclose(found.var(axis=0, ddof=1), model.variance, rtol=1e-9)
    plain = ov.matrices.project(x, model.components[:1], **settings)
    np.testing.assert_allclose(plain, exact @ model.components[:1].T, atol=1e-9)
    ov.matrices.project(x, model, out=tmp_path / "y.npy", **settings)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), found)


def test_chunks_have_the_same_bits():
    x, t = labelled(40_000, 6)
    y, queries = groups(40_000, 6, "f4"), groups(30, 6, "f4", seed=8)
    same_for_all_chunks(lambda **settings: ov.matrices.logistic(x, t, **settings))
    same_for_all_chunks(lambda **settings: ov.matrices.kmeans(y, y[:5], labels=True, **settings))
    same_for_all_chunks(lambda **settings: ov.matrices.assign(y, y[:5], **settings))
    same_for_all_chunks(lambda **settings: ov.matrices.nearest(y, queries, 4, **settings))
    same_for_all_chunks(lambda **settings: ov.matrices.pca(y, 2, method="randomized", **settings))
    same_for_all_chunks(lambda **settings: [ov.matrices.project(y, y[:2], **settings)])


def test_engines_and_resident_tables():
    x, t = labelled(9000, 4)
    with ov.Engine(device="emulated", device_memory="256MiB") as engine:
        resident = engine.resident(x)
        found = ov.matrices.kmeans(resident, 3, engine=engine)
        np.testing.assert_array_equal(found.centers, ov.matrices.kmeans(x, 3, engine=engine).centers)
        found = ov.matrices.logistic(resident, t, engine=engine)
        np.testing.assert_array_equal(found.weights, ov.matrices.logistic(x, t, engine=engine).weights)
        assert ov.matrices.gram(resident, engine=engine).shape == (4, 4)
        with pytest.raises(TypeError, match="its own settings: leave out chunk"):
            ov.matrices.gram(x, engine=engine, chunk="1MiB")
    with pytest.raises(ValueError, match="closed"):
        ov.matrices.gram(x, engine=engine)
    with pytest.raises(TypeError, match="two outputs"):
        ov.matrices.assign(x, x[:2], out="labels.npy")
    with pytest.raises(TypeError, match="no option 'verify'"):
        ov.matrices.gram(x, verify=0.1)


def test_least_squares_have_one_answer():
    x = table(500, 3)
    model = ov.matrices.linear(x, x @ [1.0, -2.0, 0.5] + 4)
    np.testing.assert_allclose(model.weights, [1, -2, 0.5], atol=1e-12)
    assert model.intercept == pytest.approx(4)
    twice = np.hstack([x, x[:, :1]])
    for regression in (ov.matrices.linear, ov.matrices.logistic):
        with pytest.raises(np.linalg.LinAlgError, match="constant or follows from others"):
            regression(twice, x[:, 0] > 0.5)
    assert np.isfinite(ov.matrices.linear(twice, x[:, 0], ridge=1e-3).weights).all()


@DEVICES
def test_moments(settings):
    x = table(5000, 5) + 1e4
    np.testing.assert_allclose(ov.matrices.covariance(x, **settings), np.cov(x, rowvar=False), atol=1e-9)
    assert ov.matrices.gram(x.astype("f4"), **settings).dtype == "f4"
    with pytest.raises(ValueError, match="have no covariance with ddof=1"):
        ov.matrices.covariance(x[:1], **settings)


def test_labels_go_where_they_are_wanted(tmp_path):
    x = groups(3000, 2)
    right = ov.matrices.kmeans(x, x[:4], labels=True)
    own = np.full(3000, -1)
    assert ov.matrices.kmeans(x, x[:4], labels=own).labels is own
    files = [ov.matrices.kmeans(x, x[:4], labels=tmp_path / name).labels for name in ("labels.npy", "labels.i64")]
    for labels in (own, *files):
        np.testing.assert_array_equal(labels, right.labels)
    with pytest.raises(OSError, match="exists already"):
        ov.matrices.kmeans(x, x[:4], labels=tmp_path / "labels.npy")
    # The labels take the place of what is read.
    numbers = np.zeros((3000, 1), "i8")
    numbers[::2] = 5
    ov.matrices.kmeans(numbers, 2, labels=numbers[:, 0])
    assert set(numbers[:, 0]) == {0, 1}


def test_passes_are_told():
    x, reports, seen = table(5000, 3), [], []
    found = ov.matrices.kmeans(x, x[:3], iterations=4, each_pass=reports.append, progress=lambda *at: seen.append(at))
    assert len(reports) == found.iterations + 1 and all(report.rows == 5000 for report in reports)
    assert seen[-1] == (5000, 5000)

    def stop(_):
        raise LookupError("enough")

    for device in NAMES:
        for option in ({"each_pass": stop}, {"progress": lambda *_: stop(None)}):
            with pytest.raises(LookupError, match="enough"):
                ov.matrices.kmeans(x, x[:3], device=device, device_memory="256MiB", **option)


def test_notes_are_logged_once(caplog):
    with caplog.at_level("INFO", logger="overshot"):
        ov.matrices.kmeans(np.asfortranarray(table(500, 3)), 2, iterations=3, device="cpu")
    assert len([record for record in caplog.records if "is gathered" in record.getMessage()]) == 1


def test_tables_are_not_kept():
    x = table(500, 3)
    kept = weakref.ref(x)
    ov.matrices.kmeans(x, 3)
    with pytest.raises(ValueError, match="NaN"):
        ov.matrices.kmeans(x, np.full((2, 3), np.nan))
    del x
    assert kept() is None


def cluster(x, to):
    to.put(ov.matrices.kmeans(x, 4, seed=1).centers)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="there is no fork")
def test_a_process_that_is_forked_has_threads_of_its_own():
    x = groups(3000, 2)
    right = ov.matrices.kmeans(x, 4, seed=1).centers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        process = context.Process(target=cluster, args=(x, queue))
        process.start()
        np.testing.assert_array_equal(queue.get(timeout=60), right)
        process.join()


@DEVICES
def test_tf32_is_for_products_of_float32(settings, tmp_path):
    x = groups(20_000, 24, "f4")
    start = points(6, 24)
    full = ov.matrices.kmeans(x, start, precision="full", **settings)
    # Centers that far apart are the nearest ones with few bits, too.
    for precision in ("tf32", "bf16x3"):
        for one, two in zip(full, ov.matrices.kmeans(x, start, precision=precision, **settings), strict=True):
            np.testing.assert_array_equal(one, two)
    for number, part in enumerate(np.split(x, 2)):
        np.save(tmp_path / f"{number}.npy", part)
    several = ov.open(tmp_path / "*.npy")
    assert ov.matrices.kmeans(several, 6, precision="tf32", **settings).counts.sum() == 20_000
    report = ov.evaluate("g = x.T @ x; n = count(x > 0)", {"x": x}, precision="tf32", **settings).report
    assert any("TF32" in note for note in report.notes)
    plans = [ov.plan("x.T @ x", {"x": x}, precision=name, device="emulated") for name in ("full", "bf16x3")]
    full, split = (plan.to_dict()["devices"][0] for plan in plans)
    assert split["panel_bytes"] > full["panel_bytes"] > 0
    part = ov.run_rows("x.T @ x", {"x": x}, part=(0, 1), precision="tf32", **settings)
    with pytest.raises(ValueError, match="precision of products: tf32 here and full there"):
        part.merge(ov.run_rows("x.T @ x", {"x": x}, part=(0, 1), **settings))
    for text, array in (("x.T @ x", x.astype("f8")), ("sum(x)", x)):
        with pytest.raises(ValueError, match="is for products of f32, and the job has none"):
            ov.evaluate(text, {"x": array}, precision="tf32", **settings)
    with pytest.raises(ValueError, match="no precision 'half': use full, tf32 or bf16x3"):
        ov.evaluate("x.T @ x", {"x": x}, precision="half", **settings)
    with pytest.raises(ValueError, match="neighbours are exact"):
        ov.matrices.nearest(x, x[:2], 1, precision="tf32", **settings)
