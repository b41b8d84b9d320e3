"""Views of lazy arrays, and views of those, against NumPy."""

import numpy as np
import pytest

import overshot as ov

A, V = np.arange(12.0).reshape(4, 3), np.array([1.0, -1.0, 2.0])

OF_NUMBERS = {
    "a row": lambda x, v: np.broadcast_to(x.mean(keepdims=True), (4, 3))[0],
    "tiled twice": lambda x, v: np.tile(np.tile(v.sum(), 3), 2)[::-1],
    "a sum of a view": lambda x, v: (np.repeat(v.sum(keepdims=True), 3) + 0)[1:].sum(),
    "a row of a difference": lambda x, v: (x - x.mean(keepdims=True))[1],
    "differences": lambda x, v: np.diff(x.max(keepdims=True) + x),
    "an axis of numbers": lambda x, v: np.broadcast_to(v.sum(), (4, 3)).sum(axis=1)[1:],
    "a number again": lambda x, v: np.broadcast_to(v.sum(), (4, 3))[1][2] + v,
    "new axes": lambda x, v: (v.max() * 2)[None][:, None] + x,
    "reshaped": lambda x, v: np.tile(v.sum(), 12).reshape(4, 3)[:, 1:].T,
    "of an input": lambda x, v: np.repeat(np.broadcast_to(v[0], (2,)), 2)[1:],
}


@pytest.mark.parametrize("function", OF_NUMBERS.values(), ids=OF_NUMBERS)
def test_numbers_may_be_repeated_again(compute, function):
    expected = np.asarray(function(A, V))
    lazy = function(ov.array(A), ov.array(V))
    assert lazy.shape == expected.shape
    value = compute(lazy)
    assert value.shape == expected.shape
    np.testing.assert_allclose(value, expected)


def test_numbers_that_are_repeated_may_have_their_value():
    x, v = ov.array(A), ov.array(V)
    peak = v.max(keepdims=True)
    both = ov.compute(peak, v / peak)
    for value, expected in zip(both, (V.max(keepdims=True), V / V.max(keepdims=True)), strict=True):
        np.testing.assert_array_equal(value, expected)
    peak = x.max(keepdims=True)
    scaled = x / peak
    np.asarray(peak)
    np.testing.assert_array_equal(np.asarray(scaled), A / A.max())
    repeated = np.broadcast_to(v.sum(), (3,))
    first = repeated[:2]
    np.asarray(repeated)
    np.testing.assert_array_equal(np.asarray(first), [2, 2])
    np.testing.assert_array_equal(np.asarray(repeated[1:] * 2), [4, 4])


def nodes(values):
    seen, stack = {}, [values]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            stack += [each for each in node._arguments if isinstance(each, ov.Array)]
    return len(seen)


def test_graphs_of_views_of_views_do_not_double(compute):
    a = np.arange(40.0) ** 2

    def smoothed(x):
        for _ in range(14):
            x = (x[1:] + x[:-1]) * 0.5
        return x

    for function in (smoothed, lambda x: np.diff(x + 1, n=13), lambda x: np.diff(x.reshape(8, 5) * 2, n=4, axis=1)):
        lazy = function(ov.array(a))
        assert nodes(lazy) < 1000
        np.testing.assert_allclose(compute(lazy), function(a), rtol=1e-9, atol=1e-6)


def test_elements_that_differ_are_not_the_same():
    a = np.arange(24.0).reshape(4, 6)
    x = ov.array(a)
    for function in (
        lambda x: x[:, 1:][:, :-1] - x[:, :-1][:, 1:] + x[:, 2:],
        lambda x: (x[:2] * 2.0 - x[2:] * 2)[::-1] + (x[:2] * -0.0)[::-1],
        lambda x: (x[:3, :3] + x[:3, :3].T)[1:],
        lambda x: (x.astype("i4") / 2 + x.astype("i8") // 2)[1:, ::2],
        lambda x: (x[:2].reshape(12) + x[:2].reshape(3, 4)[:, :1].reshape(3)[0])[1:],
    ):
        np.testing.assert_array_equal(np.asarray(function(x)), function(a))


def test_many_inputs():
    arrays = [np.full(4, float(k)) for k in range(400)]
    total = sum((ov.array(each) for each in arrays), start=0)
    np.testing.assert_array_equal(np.asarray(total), sum(arrays))
