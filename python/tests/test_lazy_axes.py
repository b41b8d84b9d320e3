"""Reductions of lazy arrays along axes, and order statistics, against NumPy."""

import pickle

import numpy as np
import pytest

import overshot as ov
from overshot import _lazy

rng = np.random.default_rng(21)
AXES = [0, 1, 2, -1, (0, 1), (1, 2), (0, 2), (-1, 0), (0, 1, 2), ()]


@pytest.mark.parametrize("name", _lazy._REDUCTIONS)
@pytest.mark.parametrize("dtype", ["?", "i4", "u1", "f4", "f8"])
def test_reductions_along_axes_are_those_of_numpy(compute, name, dtype):
    a = rng.uniform(0, 9, (11, 4, 5)).astype(dtype)
    x = ov.array(a)
    for axis in [axis for axis in AXES if not (name.startswith("arg") and isinstance(axis, tuple))]:
        for kept in (False, True):
            expected = np.asarray(getattr(np, name)(a, axis=axis, keepdims=kept))
            own = getattr(np, name)(x, axis=axis, keepdims=kept), getattr(x, name)(axis, keepdims=kept)
            for lazy in own:
                assert lazy.shape == expected.shape
                value = compute(lazy)
                if expected.dtype != np.float16:
                    assert value.dtype == lazy.dtype == expected.dtype
                np.testing.assert_allclose(value, expected, rtol=1e-5 if dtype == "f4" else 1e-12)


@pytest.mark.parametrize("shape", [(3, 1 << 19), (1 << 19, 3), (2, 1 << 19, 2), (1, 70_000), (70_000, 1)])
def test_rows_may_be_long_and_many(compute, shape):
    a = rng.normal(size=shape)
    x = ov.array(a)
    for axis in range(a.ndim):
        np.testing.assert_allclose(compute(np.sum(x, axis=axis)), a.sum(axis=axis), rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(compute(x.max(axis=axis)), a.max(axis=axis))


def test_any_strides_and_repeated_elements_are_reduced(compute):
    a = rng.normal(size=(12, 10, 8))
    for view in (a[::-2], a.transpose(2, 0, 1), a[:, 3:4], np.broadcast_to(a[:, :1], a.shape), np.asfortranarray(a)):
        x = ov.array(view)
        for axis in (0, 1, (0, 2)):
            np.testing.assert_allclose(compute(np.mean(x * 2, axis=axis)), np.mean(view * 2, axis=axis))
    # Numbers alone do not say how many rows there are.
    total = ov.array(a).sum()
    np.testing.assert_allclose(compute(np.sum(np.broadcast_to(total, (3, 4)), axis=0)), np.full(4, 3 * a.sum()))


def test_values_that_depend_on_axes(compute, jobs):
    a = rng.normal(size=(700, 5))
    x = ov.array(a)
    np.testing.assert_allclose(compute((x - x.mean(axis=0)) / x.std(axis=0)), (a - a.mean(axis=0)) / a.std(axis=0))
    assert len(jobs) == 2 and jobs[0].count("axis=0") == 2, "both of the columns in the first pass"
    y = np.exp(x - x.max(axis=-1, keepdims=True))
    e = np.exp(a - a.max(axis=-1, keepdims=True))
    np.testing.assert_allclose(compute(y / y.sum(axis=-1, keepdims=True)), e / e.sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(compute(x.sum(axis=1).mean()), a.sum(axis=1).mean())
    np.testing.assert_allclose(compute(np.sum(x.T, axis=1)[::2]), a.sum(axis=0)[::2])
    np.testing.assert_allclose(compute(np.moveaxis(x.mean(axis=0, keepdims=True), 0, 1)), a.mean(axis=0)[:, None])
    np.testing.assert_array_equal(compute(x.argmax(axis=1) + 1), a.argmax(axis=1) + 1)


def test_one_job_for_what_has_the_same_rows(jobs):
    a = rng.normal(size=(60, 5))
    x = ov.array(a)
    low, total, y = ov.compute(x.min(axis=0), x.sum(), x * 2)
    assert len(jobs) == 1
    for value, expected in ((low, a.min(axis=0)), (total, a.sum()), (y, a * 2)):
        np.testing.assert_allclose(value, expected)
    # The language does not reduce the rows to one and each row to a value in one pass.
    columns, rows = ov.compute(x.max(axis=0), x.max(axis=1))
    np.testing.assert_array_equal(columns, a.max(axis=0))
    np.testing.assert_array_equal(rows, a.max(axis=1))
    assert len(jobs) == 3


def test_dtypes_and_corrections(compute):
    a = rng.normal(size=(40, 3)).astype("f4")
    x = ov.array(a)
    for axis in (None, 0, 1):
        np.testing.assert_allclose(compute(np.var(x, axis=axis, ddof=1)), np.var(a, axis=axis, ddof=1), rtol=1e-5)
        np.testing.assert_allclose(compute(x.std(axis, ddof=2)), a.std(axis, ddof=2), rtol=1e-5)
        total = np.sum(x, axis=axis, dtype="f8")
        assert total.dtype == np.float64
        np.testing.assert_allclose(compute(total), np.sum(a, axis=axis, dtype="f8"))
    np.testing.assert_array_equal(compute(np.count_nonzero(x > 0, axis=1)), np.count_nonzero(a > 0, axis=1))
    np.testing.assert_array_equal(compute(np.maximum.reduce(x)), a.max(axis=0))
    np.testing.assert_array_equal(compute(np.minimum.reduce(x, axis=1, keepdims=True)), a.min(axis=1, keepdims=True))


@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_corrections_are_rounded_once(compute, dtype):
    a = (rng.normal(size=(200, 50)) * 3).astype(dtype)
    for axis in (0, 1):
        for name in ("var", "std"):
            # Of the values as doubles, which are exact.
            expected = getattr(np, name)(a.astype("f8"), axis=axis, ddof=1).astype(dtype)
            lazy = getattr(np, name)(ov.array(a), axis=axis, ddof=1)
            assert lazy.dtype == getattr(np, name)(a, axis=axis, ddof=1).dtype
            np.testing.assert_array_equal(compute(lazy), expected)


@pytest.mark.parametrize("name", _lazy._REDUCTIONS)
@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:Degrees of freedom", "ignore:invalid value")
def test_arrays_without_elements_are_reduced_as_in_numpy(compute, name):
    for shape in ((0, 3), (3, 0), (2, 0, 3)):
        a = np.empty(shape)
        for axis in range(a.ndim):
            try:
                expected = getattr(np, name)(a, axis=axis)
            except ValueError as error:
                with pytest.raises(ValueError, match=str(error).split(" ", 1)[0]):
                    compute(getattr(np, name)(ov.array(a), axis=axis))
            else:
                value = compute(getattr(np, name)(ov.array(a), axis=axis))
                assert value.dtype == expected.dtype
                np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("dtype", ["u1", "i4", "f4", "f8"])
def test_order_statistics_are_those_of_numpy(compute, dtype):
    a = rng.uniform(0, 200, (50, 7)).astype(dtype)
    x = ov.array(a)
    for lazy, expected in [
        (np.median(x), np.median(a)),
        (np.quantile(x, 0.3), np.quantile(a, 0.3)),
        (np.percentile(x, 95), np.percentile(a, 95)),
        (np.median(abs(x - np.median(x))), np.median(abs(a - np.median(a)))),
    ]:
        value = compute(lazy)
        assert value.dtype == lazy.dtype == expected.dtype
        np.testing.assert_allclose(value, expected, rtol=1e-6)
    counts, edges = np.histogram(x, 9, (10, 150))
    expected, expected_edges = np.histogram(a, 9, (10, 150))
    np.testing.assert_array_equal(compute(counts), expected)
    np.testing.assert_array_equal(edges, expected_edges)


def test_what_the_language_has_no_axis_for_is_refused():
    x = ov.array(np.ones((3, 4)))
    for call, message in (
        (lambda: np.median(x, axis=0), "numpy.median with axis"),
        (lambda: np.quantile(x, [0.1, 0.9]), "numpy.quantile of several ranks at once"),
        (lambda: np.quantile(x, 0.5, method="lower"), "numpy.quantile with method"),
        (lambda: np.histogram(x), "numpy.histogram without a number of bins and a range"),
        (lambda: np.sum(x, axis=0, out=np.ones(4)), "numpy.sum with out"),
        (lambda: np.cumprod(x), "numpy.cumprod"),
    ):
        with pytest.raises(TypeError, match=f"{message} is not supported on lazy arrays; compute them first"):
            call()
    for axis in (2, -3, (0, 5)):
        with pytest.raises(np.exceptions.AxisError, match="does not exist: the array has 2 dimensions"):
            np.sum(x, axis=axis)
    with pytest.raises(ValueError, match="names an axis twice"):
        x.sum(axis=(0, -2))
    with pytest.raises(ValueError, match="the rank 2 is not between 0 and 1"):
        np.quantile(x, 2)
    with pytest.raises(TypeError, match="bools have no quantiles"):
        np.median(x > 0)


def test_they_can_be_pickled():
    a = rng.normal(size=(6, 4))
    x = ov.array(a)
    total = pickle.loads(pickle.dumps((x * 2).sum(axis=0)[1:]))
    np.testing.assert_allclose(np.asarray(total), (a * 2).sum(axis=0)[1:])
