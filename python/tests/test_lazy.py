"""Lazy arrays and `jit`, against the same functions of NumPy."""

import collections
import enum
import pickle

import numpy as np
import pytest
from conftest import DEVICES

import overshot as ov
from overshot import _lazy

rng = np.random.default_rng(3)


@pytest.mark.parametrize("ufunc", [*_lazy._UFUNCS, *_lazy._COMPOSED], ids=lambda ufunc: ufunc.__name__)
@pytest.mark.parametrize("dtype", ["?", "i4", "u1", "f4", "f8"])
def test_ufuncs_are_those_of_numpy(ufunc, dtype):
    arrays = [rng.uniform(1, 5, 100).astype(dtype) for _ in range(ufunc.nin)]
    if ufunc is np.reciprocal and dtype[0] != "f":
        with pytest.raises(TypeError, match="numpy.reciprocal of integers is not supported on lazy arrays"):
            ufunc(ov.array(arrays[0]))
        return
    if ufunc in (np.arcsin, np.arccos, np.arctanh):
        arrays = [(each / 8).astype(dtype) for each in arrays]
    try:
        expected = ufunc(*arrays)
    except TypeError:
        with pytest.raises((TypeError, ValueError)):
            ov.compute(ufunc(*map(ov.array, arrays)))
        return
    if expected.dtype == np.float16:
        return  # Overshot has no float16; docs/expressions.md says what it gives instead.
    lazy = ufunc(*map(ov.array, arrays))
    assert isinstance(lazy, ov.Array) and lazy.shape == (100,)
    assert lazy.dtype == expected.dtype
    # NumPy's functions of float32 are within 4 units in the last place, ours within 1: see test_accuracy.py.
    np.testing.assert_allclose(np.asarray(lazy), expected, rtol=5e-7 if expected.dtype == np.float32 else 1e-14)


@pytest.mark.parametrize("name", _lazy._REDUCTIONS)
@pytest.mark.parametrize("dtype", ["?", "i4", "u1", "f4", "f8"])
def test_reductions_are_those_of_numpy(name, dtype):
    a = rng.uniform(0, 9, 1000).astype(dtype)
    for lazy in (getattr(ov.array(a), name)(), getattr(np, name)(ov.array(a))):
        (value,) = ov.compute(lazy)
        expected = getattr(np, name)(a)
        if np.asarray(expected).dtype != np.float16:
            assert value.dtype == lazy.dtype == expected.dtype
        np.testing.assert_allclose(value, expected, rtol=1e-5 if a.dtype == "f4" else 1e-12)


def test_operators_take_numbers_and_arrays_on_both_sides():
    a, b = rng.normal(size=50).astype("f4"), rng.normal(size=50)
    x = ov.array(a)
    for lazy, expected in [
        (2.5 * x - 1, 2.5 * a - 1),
        (-x**2 / (1 + abs(x)), -(a**2) / (1 + abs(a))),
        (b - x, b - a),
        (np.float64(2) * x, np.float64(2) * a),
        (x % -0.75 + (x < -0.5), a % -0.75 + (a < -0.5)),
        (np.where(x > 0, x, np.nan), np.where(a > 0, a, np.nan)),
        (np.clip(x, -0.5, 0.5), np.clip(a, -0.5, 0.5)),
        (np.clip(x, None, 0.5) - np.clip(x, -0.5, None), np.clip(a, None, 0.5) - np.clip(a, -0.5, None)),
        (np.minimum(x, np.inf) + np.maximum(-np.inf, x), np.minimum(a, np.inf) + np.maximum(-np.inf, a)),
        ((x == a) | (x != x) & ~(x >= 0), (a == a) | (a != a) & ~(a >= 0)),
        (x.astype("i8") << 2, a.astype("i8") << 2),
        (np.round(x), np.round(a)),
    ]:
        result = np.asarray(lazy)
        assert result.dtype == expected.dtype == lazy.dtype
        np.testing.assert_array_equal(result, expected)
    assert float((x * 0 + enum.IntEnum("Side", "left right").right).max()) == 2.0
    assert int(np.count_nonzero(x > 0)) == (a > 0).sum()
    assert len(x) == 50 and float((x * 0).sum()) == 0.0 and bool((x == a).all())


def test_random_expressions_are_those_of_numpy(jobs):
    binary = [np.add, np.subtract, np.multiply, np.maximum, np.hypot]
    unary = [np.sin, np.tanh, np.absolute, np.floor]
    for _ in range(50):
        pairs = [(a, ov.array(a)) for a in rng.normal(size=(3, 300))]
        for _ in range(rng.integers(1, 30)):
            picked = [pairs[k] for k in rng.integers(len(pairs), size=2)]
            ufunc = rng.choice(binary if rng.random() < 0.6 else unary)
            pairs.append(tuple(ufunc(*[pair[side] for pair in picked[: ufunc.nin]]) for side in (0, 1)))
        del jobs[:]
        wanted = [pairs[k] for k in rng.integers(len(pairs), size=3)]
        for expected, value in zip([pair[0] for pair in wanted], ov.compute(*[pair[1] for pair in wanted])):
            np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-9)
        assert len(jobs) <= 1


def test_dtypes_of_values_that_depend_on_reductions(jobs):
    x = ov.array(rng.normal(size=9).astype("f4"))
    assert ((x - x.mean()) / 2).dtype == np.float32 and (x.sum() * np.float64(2)).dtype == np.float64
    assert (x.argmax() * 2).dtype == np.int64 and (x > x.mean()).dtype == np.bool_
    total = x
    for _ in range(2000):
        total = np.square(total)
    assert total.dtype == np.float32 and not jobs


def test_no_more_passes_than_needed(jobs):
    a = rng.normal(size=1000)
    x = ov.array(a)
    y = (x - x.mean()) / x.std()
    total, z = ov.compute(x.max(), y)
    np.testing.assert_allclose(z, (a - a.mean()) / a.std(), rtol=1e-12)
    assert total == a.max()
    # All three reductions in the first pass, and the quotient in the second.
    assert len(jobs) == 2 and [jobs[0].count(each) for each in ("mean(", "std(", "max(")] == [1, 1, 1], jobs
    assert ov.compute(y)[0] is z and len(jobs) == 2, "what is computed is kept"
    np.testing.assert_allclose(float(((x - x.mean()) ** 2).mean()), a.var())
    assert len(jobs) == 4


def test_what_a_pass_returns_is_not_computed_again(jobs):
    a = np.arange(1.0, 9.0).reshape(4, 2)
    for function in (
        lambda y: (y, y - y.mean()),
        lambda y: (y - y.max(axis=0), y, y.sum()),
        lambda y: (y, (y - y.mean()) / y.std(), y * 2),
    ):
        del jobs[:]
        values = ov.compute(*function(np.sin(ov.array(a))), device="cpu")
        for value, expected in zip(values, function(np.sin(a)), strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-14)
        assert len(jobs) == 2 and sum(text.count("sin(") for text in jobs) == 1, jobs


def test_reductions_of_several_shapes_are_computed_together(jobs):
    a, b = np.arange(4.0), np.arange(6.0).reshape(2, 3)
    x, y = ov.array(a), ov.array(b)
    assert ov.compute(x.sum(), y.sum(), x.max()) == (6.0, 15.0, 3.0) and len(jobs) == 2
    np.testing.assert_allclose(np.asarray((x - y.mean()) / x.std()), (a - b.mean()) / a.std())


def test_reductions_of_ufuncs():
    x = ov.array(np.arange(4.0))
    assert float(np.add.reduce(x)) == float(np.add.reduce(x, axis=0)) == 6.0
    for options in ({"initial": 100}, {"dtype": "f4"}, {"where": np.ones(4, bool)}):
        with pytest.raises(TypeError, match="not supported on lazy arrays"):
            np.add.reduce(x, **options)
    with pytest.raises(TypeError):
        list(ov.array(np.float64(3)))


def test_another_float_is_the_same_text(jobs):
    x = ov.array(np.linspace(-2, 2, 9, dtype="f4"))
    for scale in (0.5, -1.5, 1e30, 0.1):
        (y,) = ov.compute(x * scale + 2 - scale**2 * x)
        with np.errstate(all="ignore"):
            expected = np.asarray(x) * scale + 2 - scale**2 * np.asarray(x)
        np.testing.assert_array_equal(y, expected)
        assert y.dtype == expected.dtype
    assert len(set(jobs)) == 1, jobs


def test_a_value_that_is_used_twice_is_computed_once(jobs):
    x = ov.array(rng.normal(size=10))
    y = np.exp(x)
    ov.compute(y * y + y)
    assert jobs[0].count("exp(") == 1
    total = x
    for k in range(5000):
        total = total + k / 8
    assert np.asarray(total)[0] == pytest.approx(np.asarray(x)[0] + 5000 * 4999 / 16)


def test_jit_returns_what_the_function_returns():
    a, b = rng.uniform(1, 2, 100), np.arange(100)
    Pair = collections.namedtuple("Pair", "low high")

    def f(a, b, k=2):
        return np.log(a) * b + k

    np.testing.assert_allclose(ov.jit(f)(a, b), f(a, b), rtol=1e-14)
    for device in DEVICES:
        np.testing.assert_allclose(ov.jit(device=device)(f)(a, b=b, k=3), f(a, b, 3), rtol=1e-14)
    assert ov.jit(lambda a: {"s": a.sum(), "n": 3})(b) == {"s": 4950, "n": 3}
    assert ov.jit(lambda a: Pair(a.min(), a.max()))(b) == Pair(0, 99)
    assert ov.jit(lambda a: [a.sum()])(b) == [4950] and ov.jit(lambda a: 5)(b) == 5
    assert ov.jit(f).__name__ == "f"


def test_files_are_lazy_arrays(tmp_path):
    a = rng.normal(size=(20, 30))
    np.save(tmp_path / "a.npy", a)
    a.tofile(tmp_path / "a.f64")
    x = ov.array(tmp_path / "a.npy")
    assert x.shape == (20, 30) and x.dtype == np.float64 and x.ndim == 2 and x.size == 600
    np.testing.assert_array_equal(np.asarray(x * 2), a * 2)
    np.testing.assert_array_equal(np.asarray(x), a)
    raw = ov.array(ov.open(tmp_path / "a.f64", "f8"))
    np.testing.assert_array_equal(np.asarray(raw), a.ravel())
    assert ov.jit(lambda file: file.max())(ov.open(tmp_path / "a.npy")) == a.max()


def test_what_is_not_supported_says_so():
    x = ov.array(np.arange(4.0))
    for call in (
        lambda: np.sort(x),
        lambda: np.sum(x, where=np.ones(4, bool)),
        lambda: np.add(x, x, out=np.empty(4)),
        lambda: np.multiply.accumulate(x),
        lambda: np.frexp(x),
    ):
        with pytest.raises(TypeError, match="not supported on lazy arrays"):
            call()
    with pytest.raises(ValueError, match=r"arrays of shapes \(3,\) and \(4,\) cannot be broadcast; index"):
        x + np.ones(3)
    with pytest.raises(ValueError, match="zero-size array to reduction operation min"):
        ov.compute(ov.array(np.empty(0)).min())
    with pytest.raises(TypeError, match="list is not a lazy array"):
        ov.compute([1])
    # The last one would take the place of an input.
    for name in ("divice", "out", "rows", "text", "a0"):
        with pytest.raises(TypeError, match=f"there is no setting '{name}'; the settings are device, device_memory"):
            ov.compute(x + 1, **{name: np.zeros(4)})
        with pytest.raises(TypeError, match=f"there is no setting '{name}'"):
            ov.jit(**{name: 3})
    with pytest.raises(TypeError):
        hash(x)
    with pytest.raises(ValueError, match="only one element|truth value"):
        bool(x > 1)


def test_lazy_arrays_can_be_pickled():
    x = pickle.loads(pickle.dumps(ov.array(np.arange(4.0)) * 2))
    np.testing.assert_array_equal(np.asarray(x), [0, 2, 4, 6])
    assert repr(x + 1).startswith("<overshot.Array of shape (4,)")


def test_numpys_spellings_of_the_same(compute):
    a, w = np.arange(12.0).reshape(4, 3) / 7, np.arange(9.0).reshape(3, 3)

    def multiplied(x):
        x @= w
        return x

    for function in (
        multiplied,
        lambda x: np.histogram(x, 4, (1, 1))[0],
        lambda x: np.round(x, 0),
        lambda x: np.round(x, decimals=0),
        lambda x: np.roll(x, (1, 2)),
        lambda x: np.roll(x, [1, -3, 5]),
        lambda x: x.astype("f4", copy=False),
        lambda x: np.sum(x, axis=0, keepdims=np._NoValue),
        lambda x: np.max(x, 1, None, np._NoValue),
    ):
        expected, lazy = function(a.copy()), function(ov.array(a))
        assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(compute(lazy), expected)
    with pytest.raises(TypeError, match="numpy.round with decimals is not supported"):
        np.round(ov.array(a), 1)
    for function in (lambda x: x.astype(">f4"), lambda x: x.sum(dtype=">f4"), lambda x: np.cumsum(x, dtype=">f4")):
        with pytest.raises(TypeError, match="dtype: the bytes of '>f4' are in an order"):
            function(ov.array(a))
    for name in _lazy._REDUCTIONS:
        for axis in (0, -1):
            own = getattr(ov.array(np.array(3.0)), name)
            try:
                expected = getattr(np.array(3.0), name)(axis=axis)
            except np.exceptions.AxisError:
                with pytest.raises(np.exceptions.AxisError):
                    own(axis=axis)
            else:
                assert float(own(axis=axis)) == expected
    np.testing.assert_array_equal(np.histogram(ov.array(a), 4, (1, 1))[1], np.histogram(a, 4, (1, 1))[1])


def test_dtypes_and_errors_that_differ_from_those_of_numpy():
    """What the documentation lists: entries that no longer differ have to go."""
    ones = {name: np.ones(3, name) for name in ("?", "i1", "u1", "i2", "u2", "f4", "f8")}
    for name in ("?", "i1", "u1"):
        assert (np.sqrt(ov.array(ones[name])).dtype, np.sqrt(ones[name]).dtype) == (np.float32, np.float16)
    for name in ("?", "i1", "u1", "i2", "u2"):
        assert np.rint(ov.array(ones[name])).dtype == np.float64 != np.rint(ones[name]).dtype
        own = np.logaddexp(ov.array(ones["f4"]), ones[name]).dtype
        assert own == np.float64 != np.logaddexp(ones["f4"], ones[name]).dtype
    for function, name, error in (
        (lambda x: x + 300, "u1", OverflowError),
        (lambda x: -x, "?", TypeError),
        (lambda x: x - x, "?", TypeError),
        (lambda x: ~x, "f8", TypeError),
    ):
        # NumPy 1 makes more bits of them.
        if error is not OverflowError or int(np.__version__.split(".")[0]) > 1:
            with pytest.raises(error):
                function(ones[name])
        lazy = function(ov.array(ones[name]))
        with pytest.raises(ValueError):
            ov.compute(lazy)
