"""Counts in bins are those of NumPy, and sums of weights those of `math.fsum`."""

import math

import numpy as np
import overshot as ov
import pytest

FLOATS = [0.0, -0.0, 1.0, -1.5, 2.5, np.inf, -np.inf, np.nan, 1e300, 5e-324, 0.1, 0.3, 0.7, -3.0, 3.0]
DTYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"]


def values(dtype, count=20_000, seed=1):
    rng = np.random.default_rng(seed)
    if dtype == "?":
        return rng.random(count) < 0.3
    if dtype[0] == "f":
        plain = np.concatenate([rng.normal(0, 2, count), FLOATS])
        with np.errstate(over="ignore"):
            return plain.astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(max(info.min, -500), min(info.max, 500), count, dtype=dtype, endpoint=True)


def at_edges(bins, low, high, dtype):
    """The edges of bins and the floats beside them."""
    edges = np.linspace(low, high, bins + 1, dtype=dtype)
    return np.concatenate([np.nextafter(edges, -np.inf), edges, np.nextafter(edges, np.inf)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("bins", "low", "high"), [(1, 0.0, 1.0), (10, -3.0, 3.0), (100, -1.7, 90.3), (65_536, -9.0, 9.0)]
)
def test_histogram(dtype, bins, low, high):
    x = values(dtype)
    if dtype[0] == "f":
        x = np.concatenate([x, at_edges(bins, low, high, dtype)])
    if dtype == "f2" and bins > 1000:
        with pytest.raises(ValueError, match="no different numbers of f16"):
            ov.evaluate(f"histogram(x, {bins}, {low}, {high})", {"x": x})
        return
    expected, _ = np.histogram(x.astype("u1") if dtype == "?" else x, bins, (low, high))
    found = ov.evaluate(f"histogram(x, {bins}, {low}, {high})", {"x": x})
    assert found.dtype == np.int64 and found.shape == (bins,)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_edges_of_many_ranges(dtype):
    rng = np.random.default_rng(5)
    for _ in range(60):
        low, bins = float(rng.normal(0, 10.0 ** rng.integers(-3, 4))), int(rng.integers(1, 200))
        high = low + 10.0 ** int(rng.integers(-2, 5))
        text = f"histogram(x, {bins}, {low!r}, {high!r})"
        try:
            x = at_edges(bins, low, high, dtype)
            expected, _ = np.histogram(x, bins, (low, high))
        except ValueError:
            with pytest.raises(ValueError, match="edge"):
                ov.evaluate(text, {"x": x})
            continue
        np.testing.assert_array_equal(ov.evaluate(text, {"x": x}), expected, err_msg=text)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype[0] != "f"])
@pytest.mark.parametrize("weights", [None, "f8", "f4", "i4", "u1"])
def test_bincount(dtype, weights):
    k = np.abs(values(dtype).astype("i8")) % (2 if dtype == "?" else 100)
    # Most keys are equal.
    k[::2] = 1
    k = k.astype(dtype)
    if weights is None:
        expected = np.bincount(k.astype("i8"), minlength=100)
        np.testing.assert_array_equal(ov.evaluate("bincount(k, 100)", {"k": k}), expected)
        return
    w = values(weights, seed=3)[: k.size]
    found = ov.evaluate("bincount(k, 100, w)", {"k": k, "w": w})
    assert found.dtype == np.float64
    exact = [math.fsum(w[k == key].tolist()) for key in range(100)]
    np.testing.assert_array_equal(found, exact)
    np.testing.assert_allclose(found, np.bincount(k.astype("i8"), w, 100), rtol=1e-9, atol=1e-9)


def test_special_weights():
    k, w = np.array([0, 1, 2, 2, 3, 4, 4]), np.array([np.inf, np.nan, np.inf, -np.inf, -0.0, 1e308, 1e308])
    with np.errstate(invalid="ignore", over="ignore"):
        expected = np.bincount(k, w, 6)
    np.testing.assert_array_equal(ov.evaluate("bincount(k, 6, w)", {"k": k, "w": w}), expected)


def test_shapes_filters_and_other_results():
    x = values("f8", 6000)[:6000].reshape(60, 100)
    with np.errstate(invalid="ignore"):
        text = "h = histogram(x, 9, -2, 2); y = x[x > 1]; p = histogram(x[x > 1], 5, 0, 5)"
        found = ov.evaluate(text, {"x": x})
    np.testing.assert_array_equal(found["h"], np.histogram(x, 9, (-2, 2))[0])
    np.testing.assert_array_equal(found["p"], np.histogram(x[x > 1], 5, (0, 5))[0])
    np.testing.assert_array_equal(found["y"], x[x > 1])
    table = np.arange(12.0).reshape(4, 3)
    found = ov.evaluate("h = histogram(x, 4, 0, 12); mean(x, axis=0)", {"x": table})
    np.testing.assert_array_equal(found["h"], [3, 3, 3, 3])
    found = ov.evaluate("n = bincount(k, 3); s = bincount(k, 3, k); m = s / n", {"k": np.array([1, 1, 2, 0])})
    np.testing.assert_array_equal(found["m"], [0, 1, 2])


def test_no_rows():
    none = {"x": np.zeros(0), "k": np.zeros(0, "i4")}
    found = ov.evaluate("h = histogram(x, 3, 0, 1); s = bincount(k, 2, x)", none)
    assert found["h"].tolist() == [0, 0, 0] and found["s"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bincount(k, 3)", "counts integers from 0 to below 3, but 2 elements"),
        ("bincount(x, 3)", "counts integers, not f64"),
        ("histogram(x, 70000, 0, 1)", "from 1 to 65536"),
        ("bincount(k, 4000, x)", "at most 3744"),
    ],
)
def test_refused(text, message):
    inputs = {"x": np.zeros(5), "k": np.array([0, 1, 2, 3, -1])}
    read = {name: array for name, array in inputs.items() if name in text.replace("bincount", "")}
    with pytest.raises(ValueError, match=message):
        ov.evaluate(text, read)
