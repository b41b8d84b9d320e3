"""Products of lazy arrays as matrices, against NumPy."""

import numpy as np
import pytest
from conftest import DEVICES

import overshot as ov

rng = np.random.default_rng(23)

# Functions of a long table, a small square matrix, a vector with a value for each row, and another matrix.
PRODUCTS = {
    "over the rows": lambda x, w, t, u: x.T @ x,
    "of expressions": lambda x, w, t, u: (x - x.mean(axis=0)).T @ (x * 2),
    "with a vector": lambda x, w, t, u: x.T @ t,
    "of a vector": lambda x, w, t, u: t @ x,
    "of two vectors": lambda x, w, t, u: t @ t,
    "with a matrix": lambda x, w, t, u: x @ w,
    "with a computed matrix": lambda x, w, t, u: (x + 1) @ (w * 2 - 1),
    "with a transpose": lambda x, w, t, u: x @ w.T,
    "with a row": lambda x, w, t, u: x @ w[0],
    "of a row": lambda x, w, t, u: w[0] @ x.T,
    "of a wide array": lambda x, w, t, u: w @ x.T,
    "with another width": lambda x, w, t, u: x @ u,
    "of two widths over the rows": lambda x, w, t, u: x.T @ (x @ u),
    "of a narrow table and a wide one": lambda x, w, t, u: x[:, 1:].T @ (x * 2) + 1,
    "of a wide table and a narrow one": lambda x, w, t, u: (x * 2).T @ x[:, 1:3],
    "of all rows with all": lambda x, w, t, u: x[:70] @ x[:90].T,
    "square": lambda x, w, t, u: w @ w,
    "residuals": lambda x, w, t, u: ((x @ w[0] - t) ** 2).mean(),
    "nearest": lambda x, w, t, u: (x @ w).argmax(axis=1),
    "kept rows": lambda x, w, t, u: x[t > 0].T @ x[t > 0],
    "kept products": lambda x, w, t, u: (x @ w)[t > 0],
    "dot": lambda x, w, t, u: np.dot(x, w) + np.dot(2, x),
    "stacked": lambda x, w, t, u: x[:60].reshape(3, 5, -1, 4) @ w,
    "stacked twice": lambda x, w, t, u: x[:60].reshape(5, -1, 4) @ x[:20].reshape(5, 4, -1),
    "tensordot": lambda x, w, t, u: np.tensordot(x[:60].reshape(5, -1, 4), u, 1),
    "tensordot of axes": lambda x, w, t, u: np.tensordot(x[:60].reshape(5, 12, 4), x[:24].reshape(4, 6, 4), (2, 0)),
    "no rows": lambda x, w, t, u: x[:0].T @ x[:0],
    "no columns": lambda x, w, t, u: x @ w[:, :0],
}


@pytest.mark.parametrize("function", PRODUCTS.values(), ids=PRODUCTS)
@pytest.mark.parametrize("dtype", ["i4", "f4", "f8"])
def test_products_are_those_of_numpy(compute, function, dtype):
    arrays = [(rng.normal(size=shape) * 5).astype(dtype) for shape in ((3000, 4), (4, 4), (3000,), (4, 2))]
    expected = np.asarray(function(*arrays))
    lazy = function(*map(ov.array, arrays))
    value = compute(lazy)
    assert lazy.shape == value.shape == expected.shape and lazy.dtype == value.dtype == expected.dtype
    scale = max(abs(expected).max(initial=0), 1)
    np.testing.assert_allclose(value, expected, rtol=0, atol=(1e-5 if dtype == "f4" else 1e-12) * scale)


@pytest.mark.parametrize("pair", [("f4", "f8"), ("i2", "f4"), ("f2", "f2"), ("i1", "i8"), ("?", "?"), ("?", "f8")])
def test_dtypes_are_those_of_numpy(compute, pair):
    a, b = rng.normal(size=(50, 3)).astype(pair[0]), rng.normal(size=(3, 3)).astype(pair[1])
    lazy, expected = ov.array(a) @ ov.array(b), a @ b
    assert lazy.dtype == expected.dtype
    np.testing.assert_allclose(compute(lazy), expected, rtol=1e-2 if pair == ("f2", "f2") else 1e-5, atol=1e-2)


def test_products_over_the_rows_read_them_once(jobs):
    x = ov.array(rng.normal(size=(500, 3)))
    gram, weighted = ov.compute(x.T @ x, x.T @ (x * 2))
    np.testing.assert_allclose(weighted, 2 * gram)
    assert len(jobs) == 1 and "a1" not in jobs[0], "the transpose of a transpose is the array itself"
    y = ov.array(rng.normal(size=(500, 2)))
    np.testing.assert_allclose(np.asarray(x.T @ y), np.asarray(x).T @ np.asarray(y))
    assert len(jobs) == 2 and jobs[1].count("@") == 2


def test_products_of_files_read_them_once(jobs, tmp_path):
    a = rng.normal(size=(900, 4))
    np.save(tmp_path / "a.npy", a)
    x = ov.array(tmp_path / "a.npy")
    np.testing.assert_allclose(np.asarray(x.T @ x), a.T @ a)
    assert len(jobs) == 1 and "a1" not in jobs[0]
    np.testing.assert_array_equal(np.asarray(x.T * 2), a.T * 2)
    np.testing.assert_array_equal(np.asarray(x.T[1:, ::3]), a.T[1:, ::3])
    np.testing.assert_allclose(np.asarray(x.sum(axis=1) - x.T.sum(axis=0)), 0, atol=1e-12)


@pytest.mark.parametrize("device", [device for device in DEVICES if device != "cpu"])
def test_resident_arrays_are_multiplied(device):
    a = rng.normal(size=(3000, 4))
    with ov.Engine(device) as engine:
        x = ov.array(engine.resident(a))
        np.testing.assert_allclose(np.asarray(x.T @ x), a.T @ a)
        np.testing.assert_allclose(np.asarray(x @ a[:4]), a @ a[:4])
        with pytest.raises(TypeError, match="no views of arrays on a GPU"):
            ov.compute(x.T * 2)


def test_arrays_that_do_not_fit_are_refused():
    x = ov.array(np.ones((5, 3)))
    for call, message in (
        (lambda: x @ x, r"arrays of shapes \(5, 3\) and \(5, 3\) cannot be multiplied: 3 is not 5"),
        (lambda: x @ 2, "multiply by a number with"),
        (lambda: np.tensordot(x, x, 1), "have other lengths"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    for axes in (([5], [0]), ([0], [-3]), 3):
        with pytest.raises(np.exceptions.AxisError, match="does not exist"):
            np.tensordot(x, x, axes)
    with pytest.raises(TypeError, match="numpy.dot of more than two dimensions is not supported on lazy arrays"):
        np.dot(x[None], x[0])


def test_vecdot(compute):
    vecdot = getattr(np, "vecdot", None)
    if vecdot is None:
        pytest.skip("this NumPy has no vecdot")
    a, b = rng.normal(size=(6, 7)), rng.normal(size=7)
    np.testing.assert_allclose(compute(vecdot(ov.array(a), b)), vecdot(a, b))
