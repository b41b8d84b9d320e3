"""Products over the rows have the values, dtypes and shapes of NumPy, and so has what follows from them."""

import numpy as np
import overshot as ov
import pytest


def table(rows, columns, dtype="f8", seed=1):
    return np.random.default_rng(seed).normal(size=(rows, columns)).astype(dtype)


def whole(rows, columns, dtype="f8"):
    """Small integers, whose products are exact."""
    return np.random.default_rng(2).integers(-4, 5, (rows, columns)).astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (1000, 1), (5000, 17), (70_000, 5), (2000, 150)])
@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_products(shape, dtype, device):
    x, t = whole(*shape, dtype), whole(shape[0], 1, dtype)
    texts = {"a": "x.T @ x", "b": "(x - 1).T @ x", "c": "x.T @ t", "d": "t.T @ (2 * x)", "e": "t.T @ t"}
    found = ov.evaluate("; ".join(f"{name} = {text}" for name, text in texts.items()), device=device)
    for name, text in texts.items():
        expected = eval(text, {"x": x, "t": t})
        assert found[name].shape == expected.shape and found[name].dtype == expected.dtype, text
        np.testing.assert_array_equal(found[name], expected, err_msg=text)


def test_vectors():
    x, t = whole(6000, 7), whole(6000, 1)[:, 0]
    np.testing.assert_array_equal(ov.evaluate("x.T @ t"), x.T @ t)
    np.testing.assert_array_equal(ov.evaluate("t.T @ x"), t.T @ x)
    np.testing.assert_array_equal(ov.evaluate("x.T @ (t * t)"), x.T @ (t * t))


@pytest.mark.parametrize("dtype, tolerance", [("f4", 2e-4), ("f8", 1e-12)])
def test_values_are_near_those_of_numpy(dtype, tolerance):
    # The emulated device has 64 MiB.
    x = table(20_000, 17, dtype)
    exact = x.astype("f8").T @ x.astype("f8")
    scale = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    for device in ("cpu", "emulated"):
        found = ov.matrices.gram(x, device=device)
        assert found.dtype == dtype
        assert np.max(np.abs(found - exact) / scale) < tolerance


def test_a_result_goes_to_a_file(tmp_path):
    x = whole(9000, 4)
    path = tmp_path / "g.npy"
    ov.evaluate("g = x.T @ x; mean(x)", out={"g": path})
    np.testing.assert_array_equal(np.load(path), x.T @ x)


def test_parts():
    x = table(150_000, 3)
    expected = ov.evaluate("x.T @ x", device="cpu")
    parts = [ov.run_rows("x.T @ x", x=x, part=(k, 2), device="cpu") for k in range(2)]
    all_ = parts[1]
    all_.merge(parts[0])
    np.testing.assert_array_equal(all_.finish()["x.T @ x"], expected)


def test_refusals():
    x = whole(10, 3)
    n = x.astype("i4")
    for text, message in [
        ("x @ x", "give it two names"),
        ("n.T @ n", "convert first"),
        ("y = (x + 1).T", "can only be multiplied"),
        ("sum(x.T @ x)", "known already"),
    ]:
        with pytest.raises(ValueError, match=message):
            ov.evaluate(text)
    with pytest.raises(ValueError, match="cannot be verified"):
        ov.evaluate("x.T @ x", verify=1.0)


def test_covariance_of_columns_far_from_zero():
    x = table(30_000, 6) + 1e6
    expected = np.cov(x, rowvar=False)
    np.testing.assert_allclose(ov.matrices.covariance(x), expected, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ov.matrices.covariance(x, ddof=0), np.cov(x, rowvar=False, ddof=0), atol=1e-8)
    with pytest.raises(ValueError, match="1 rows have no covariance"):
        ov.matrices.covariance(x[:1])


def test_principal_components():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(20_000, 12)) @ rng.normal(size=(12, 12)) + rng.normal(size=12)
    found = ov.matrices.pca(x, 4)
    _, values, vectors = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(found.variance, values[:4] ** 2 / (len(x) - 1), rtol=1e-10)
    # The sine of the largest angle between the subspaces.
    rest = found.components - found.components @ vectors[:4].T @ vectors[:4]
    assert np.linalg.norm(rest, 2) < 1e-10
    assert (found.components.max(axis=1) > -found.components.min(axis=1)).all()
    np.testing.assert_allclose(found.mean, x.mean(axis=0), atol=1e-12)
    for count in (0, 13):
        with pytest.raises(ValueError, match="components"):
            ov.matrices.pca(x, count)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 10.0])
def test_least_squares(intercept, ridge):
    x = table(20_000, 9) + 2
    t = x @ np.arange(9.0) + 5 + table(20_000, 1, seed=7)[:, 0]
    found = ov.matrices.linear(x, t, ridge=ridge, intercept=intercept)
    u, v = (x - x.mean(axis=0), t - t.mean()) if intercept else (x, t)
    rows = np.vstack([u, np.sqrt(ridge) * np.eye(9)])
    expected = np.linalg.lstsq(rows, np.concatenate([v, np.zeros(9)]), rcond=None)[0]
    np.testing.assert_allclose(found.weights, expected, rtol=1e-9)
    shift = t.mean() - x.mean(axis=0) @ expected if intercept else 0.0
    assert found.intercept == pytest.approx(shift, rel=1e-9, abs=1e-9)


def test_least_squares_of_a_file(tmp_path):
    x = table(5000, 3, "f4")
    np.save(tmp_path / "x.npy", x)
    t = (x @ np.array([1.0, -2.0, 0.5]) + 3).astype("f8")
    found = ov.matrices.linear(tmp_path / "x.npy", t)
    np.testing.assert_allclose(found.weights, [1.0, -2.0, 0.5], atol=1e-6)
    assert found.intercept == pytest.approx(3, abs=1e-6)


def test_columns_that_depend_on_each_other():
    x = np.repeat(whole(1000, 2), 2, axis=1)
    t = x[:, 0]
    with pytest.raises(np.linalg.LinAlgError):
        ov.matrices.linear(x, t, intercept=False)
    found = ov.matrices.linear(x, t, ridge=1e-6, intercept=False)
    np.testing.assert_allclose(found.weights, [0.5, 0.5, 0, 0], atol=1e-6)
    with pytest.raises(ValueError, match="ridge"):
        ov.matrices.linear(x, t, ridge=-1)
