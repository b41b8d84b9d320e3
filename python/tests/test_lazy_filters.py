"""Masks, places and running values of lazy arrays, against NumPy."""

import numpy as np
import pytest

import overshot as ov

rng = np.random.default_rng(22)

FILTERS = {
    "elements": lambda x, v: x[x > 0],
    "computed from kept elements": lambda x, v: np.sqrt(x[x > 0]) * 2 - x[x > 0].mean(),
    "a mean decides": lambda x, v: x[x > x.mean()],
    "combined": lambda x, v: x[abs(x) < 1] + (x * x)[abs(x) < 1],
    "of other masks": lambda x, v: x[x > 0].sum() - x[x < 0].sum(),
    "an array of NumPy": lambda x, v: x[np.arange(4 * 500).reshape(500, 4) % 3 == 0],
    "rows": lambda x, v: x[v > 0],
    "rows of an expression": lambda x, v: (x * 2 + v[:, None])[v > 0] - 1,
    "rows by what is in them": lambda x, v: x[(x > -1).all(axis=1)],
    "means of kept columns": lambda x, v: x[v > 0].mean(axis=0),
    "sums of kept rows": lambda x, v: x[v > 0].sum(axis=1),
    "all of the kept rows": lambda x, v: x[v > 0].std(),
    "filtered twice": lambda x, v: x[x > 0][x[x > 0] < 1],
    "views of kept rows": lambda x, v: x[v > 0][::2, 1:].T,
    "broadcast": lambda x, v: x[v > 0] - x[v > 0].mean(axis=0),
    "places of kept elements": lambda x, v: np.argmax(x[x > 0]),
    "order": lambda x, v: np.median(x[x > 0]) + np.histogram(x[x > 0], 3, (0, 1))[0],
    "the largest running sum": lambda x, v: np.cumsum(v)[v > 0].max(),
    "running sums of kept elements": lambda x, v: np.cumsum(v[v > 0]),
    "none": lambda x, v: x[x > 99],
    "a mask without dimensions": lambda x, v: x[v.sum() > -(10**9)],
    "nonzero": lambda x, v: np.nonzero(x > 1)[1] * 10 + np.nonzero(x > 1)[0],
    "flatnonzero": lambda x, v: np.flatnonzero(x > 1),
    "axes of several dimensions": lambda x, v: x.reshape(50, 10, 4)[x.reshape(50, 10, 4).sum(axis=2) > 0],
}


@pytest.mark.parametrize("function", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("dtype", ["i4", "f4", "f8"])
def test_filters_are_those_of_numpy(compute, function, dtype):
    a, b = (rng.normal(size=(500, 4)) * 3).astype(dtype), (rng.normal(size=500) * 3).astype(dtype)
    with np.errstate(all="ignore"):
        expected = np.asarray(function(a, b))
    lazy = function(ov.array(a), ov.array(b))
    value = compute(lazy)
    assert lazy.dtype == value.dtype == expected.dtype and lazy.shape == value.shape == expected.shape
    np.testing.assert_allclose(value, expected, rtol=1e-4 if dtype == "f4" else 1e-10, atol=1e-4)


def test_one_pass_for_what_one_mask_keeps(jobs):
    a, b = rng.normal(size=(2, 300))
    x, y = ov.array(a), ov.array(b)
    kept, both, mean = ov.compute(x[x > 0], x[x > 0] * y[x > 0], x[x > 0].mean())
    np.testing.assert_array_equal(kept, a[a > 0])
    np.testing.assert_array_equal(both, a[a > 0] * b[a > 0])
    assert mean == pytest.approx(a[a > 0].mean()) and len(jobs) == 1
    # Their lengths differ.
    with pytest.raises(ValueError, match="cannot be broadcast"):
        x[x > 0] + y[y > 0.5]
    assert np.asarray(x[x > 0.5])[0] == a[a > 0.5][0]


def test_the_shape_is_computed_when_it_is_asked_for(jobs):
    x = ov.array(np.arange(10.0))
    kept = x[x > 6] * 2
    assert repr(kept).startswith("<overshot.Array of shape (?,): ") and kept.ndim == 1 and kept.dtype == float
    assert not jobs
    assert kept.shape == (3,) and len(kept) == 3 and [float(each) for each in kept] == [14, 16, 18]
    assert sum("[" in job for job in jobs) == 1
    # In a function of `jit`, with the settings of the function.
    devices = []
    f = ov.jit(lambda v: v[v > 3] / v[v > 3].size, device="cpu", progress=lambda done, rows: devices.append(rows))
    np.testing.assert_allclose(f(np.arange(9.0)), np.arange(4, 9) / 5)
    assert len(devices) >= 2


def test_arrays_without_elements():
    for shape in ((0,), (0, 3), (3, 0)):
        a = np.empty(shape)
        x = ov.array(a)
        np.testing.assert_array_equal(np.asarray(x[x > 0]), a[a > 0])
        row_mask = np.ones(shape[0], bool)
        np.testing.assert_array_equal(np.asarray(x[row_mask]), a[row_mask])
    assert ov.array(np.ones(3))[np.empty(0, bool)].shape == (0,)


def test_places_of_elements(compute):
    a = rng.normal(size=(30, 4, 5))
    x, places = ov.array(a), np.array([[3, 0], [-1, 3]])
    for function in (
        lambda v: v[places],
        lambda v: (v * 2)[1:, places[0], 2],
        lambda v: v.sum(axis=0)[[0, 3]],
        lambda v: np.take(v - v.mean(axis=0), places, axis=2),
        lambda v: np.take_along_axis(v, np.argmax(v, axis=1, keepdims=True), axis=1),
        lambda v: np.repeat(v, [2, 0, 1, 1], axis=1),
        lambda v: np.tile(v, (2, 1)),
        lambda v: v[np.array([], int)],
        lambda v: v[[]],
    ):
        np.testing.assert_allclose(compute(function(x)), function(a))
    # The places are those of when it was indexed.
    own = np.array([1])
    later = x.sum(axis=1)[own]
    own[0] = 2
    np.testing.assert_allclose(compute(later), a.sum(axis=1)[[1]])


@pytest.mark.parametrize("dtype", ["?", "u1", "i4", "f4", "f8"])
def test_functions_of_several_rows_are_those_of_numpy(compute, dtype):
    # NumPy's sums of whole numbers are exact.
    a = np.floor(rng.uniform(0, 9, 9001) * (rng.random(9001) < 0.7)).astype(dtype)
    b = a[:8100].reshape(90, 9, 10)
    for function, values in [
        (np.cumsum, a),
        (np.cumsum, b),
        (lambda v: v.cumsum(0), a),
        (lambda v: np.cumsum(v, dtype="f8")[::7], a),
        (lambda v: np.cumsum(v)[v > 1] * 2 - np.sum(v), a),
        (np.add.accumulate, a),
        (np.diff, b),
        (lambda v: np.diff(v, 2, axis=0), b),
        (lambda v: np.diff(v * v, axis=1), b),
        (lambda v: np.roll(v, 5), a),
        (lambda v: np.roll(v, -4500) == v, a),
        (lambda v: np.roll(v, 3), b),
        (lambda v: np.roll(v, (1, -2), axis=(0, -1)), b),
        (lambda v: np.roll(v, 0), a),
    ]:
        expected = function(values)
        lazy = function(ov.array(values))
        value = compute(lazy)
        assert (lazy.shape, lazy.dtype) == (value.shape, value.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(value, expected)


def test_what_the_language_lacks_is_refused():
    x = ov.array(np.ones((4, 3)))
    for call, message in (
        (lambda: x[:, np.ones(3, bool)], "indexing by a mask and other keys at once"),
        (lambda: x[[0.5]], "indexing by lists or arrays of float64"),
        (lambda: np.cumsum(x, axis=0), "numpy.cumsum of several dimensions with axis"),
        (lambda: np.diff(x, prepend=0), "numpy.diff with prepend"),
        (lambda: np.concatenate([x, x]), "numpy.concatenate"),
    ):
        with pytest.raises(TypeError, match=f"{message} is not supported on lazy arrays; compute them first"):
            call()
    with pytest.raises(IndexError, match=r"a mask of shape \(3,\) does not fit an array of shape \(4, 3\)"):
        x[np.ones(3, bool)]
    with pytest.raises(IndexError):
        x[[7]]
    with pytest.raises(ValueError, match="numpy.roll by 100000 rows is too far for a lazy array"):
        np.roll(ov.array(np.zeros(200_001)), 100_000)
    with pytest.raises(ValueError, match="n=-1 is negative"):
        np.diff(x, -1)
    with pytest.raises(TypeError, match="does not support item assignment"):
        x[0] = 1


def test_kept_elements_may_have_their_values():
    a, b = rng.normal(size=(2, 300))
    x = ov.array(a)
    kept, expected = x[x > 0], a[a > 0]
    total = (kept * 2).sum()
    assert len(kept) == len(expected)
    np.testing.assert_allclose(ov.compute(total, x.sum()), (expected.sum() * 2, a.sum()))
    kept = x[x > 0]
    doubled = kept * 2
    len(kept)
    np.testing.assert_allclose(np.asarray(doubled + x[x > 0]), expected * 3)
    assert doubled.shape == expected.shape
    # The mask itself has its value.
    positive = x > 0
    product = x[positive] * x[x > 0]
    for value, own in zip(ov.compute(positive, product, x[x > 0]), (a > 0, expected**2, expected), strict=True):
        np.testing.assert_array_equal(value, own)
    # Several on the way, in any order.
    one, other = np.sqrt(x[x > 0]), x[x > 0] * ov.array(b)[x > 0]
    both, mean = one + other * 2, (one * other).mean()
    np.asarray(other)
    np.asarray(one)
    own = np.sqrt(expected), expected * b[a > 0]
    np.testing.assert_allclose(float(mean), (own[0] * own[1]).mean())
    np.testing.assert_allclose(np.asarray(both), own[0] + own[1] * 2)


def test_kept_rows_may_have_their_values():
    a, mask = rng.normal(size=(4, 3)), np.array([False, True, False, False])
    x = ov.array(a)
    kept = x[mask]
    total = (kept * 2).sum(axis=0)
    assert kept.shape == (1, 3)
    for value, expected in zip(ov.compute(total, x.sum(axis=0)), (a[mask].sum(axis=0) * 2, a.sum(axis=0)), strict=True):
        np.testing.assert_allclose(value, expected)


def test_conditions_of_other_zeros_are_others():
    a = np.array([1.0, -1.0, 2.0])
    x = ov.array(a)
    with np.errstate(divide="ignore"):
        expected = a[a / 0.0 > 0], a[a / -0.0 > 0]
    for value, own in zip(ov.compute(x[x / 0.0 > 0], x[x / -0.0 > 0]), expected, strict=True):
        np.testing.assert_array_equal(value, own)


def test_results_of_every_kind_go_together(compute):
    a, b = rng.normal(size=(40, 3)), rng.normal(size=40)
    kinds = [
        lambda x, v: x * 2,
        lambda x, v: x.mean(),
        lambda x, v: x.sum(axis=0),
        lambda x, v: x.any(axis=1),
        lambda x, v: np.roll(x, 1, 0),
        lambda x, v: x @ x[:3],
        lambda x, v: x.T @ x,
        lambda x, v: np.median(x),
        lambda x, v: x[x > 0],
        lambda x, v: x[x > 0].mean(),
        lambda x, v: np.median(x[x > 1]),
        lambda x, v: x[v > 0],
        lambda x, v: x[v > 0].sum(),
        lambda x, v: x[v > 0].max(axis=0),
        lambda x, v: np.histogram(x[v < 0], 3, (-1, 1))[0],
    ]
    for one in kinds:
        for other in kinds:
            functions = (one, other, kinds[rng.integers(len(kinds))])
            x, v = ov.array(a), ov.array(b)
            values = ov.compute(*(function(x, v) for function in functions))
            for value, function in zip(values, functions, strict=True):
                np.testing.assert_allclose(value, function(a, b), atol=1e-12)


def test_masks_of_repeated_numbers(compute):
    a = np.array([1.0, -1.0, 2.0])
    for function in (
        lambda v: np.repeat(v.sum(), 3)[v > 0],
        lambda v: np.broadcast_to(v.max(), (3, 2))[v > 0] * 2,
        lambda v: np.repeat(v.sum(), 3)[np.repeat(v.sum() > 0, 3)],
    ):
        np.testing.assert_array_equal(compute(function(ov.array(a))), function(a))


def test_other_rows_of_other_rows(compute):
    a = np.floor(rng.uniform(0, 9, 9001))
    for function in (
        lambda v: np.roll(np.cumsum(v), 1, axis=0),
        lambda v: np.roll(np.cumsum(v) * 2 + v, -3, axis=-1),
        lambda v: np.roll(np.roll(v, 2, axis=0) - v, 5, axis=0),
        lambda v: np.cumsum(np.roll(v, 2, axis=0)),
        lambda v: np.cumsum(np.cumsum(v) % 5),
        lambda v: np.roll(v, 2, axis=0)[np.cumsum(v) > 9],
        lambda v: np.diff(np.roll(np.cumsum(v), 7)),
    ):
        np.testing.assert_array_equal(compute(function(ov.array(a))), function(a))
