"""Expressions that use the results of reductions have the values and dtypes of NumPy."""

import numpy as np
import overshot as ov
import pytest

# What each text is in NumPy. Columns: x and y of floats, n of integers, b of bools; a number k, a scalar s.
TEXTS = {
    "(x - mean(x)) / std(x)": lambda x, y, n, b, k, s: (x - x.mean()) / x.std(),
    "x / max(abs(x))": lambda x, y, n, b, k, s: x / np.abs(x).max(),
    "(x - min(x)) / (max(x) - min(x))": lambda x, y, n, b, k, s: (x - x.min()) / (x.max() - x.min()),
    "sum(x * y) / sum(y)": lambda x, y, n, b, k, s: (x * y).sum() / y.sum(),
    "mean(x * y) - mean(x) * mean(y)": lambda x, y, n, b, k, s: (x * y).mean() - x.mean() * y.mean(),
    "sqrt(mean((x - mean(x)) ** 2))": lambda x, y, n, b, k, s: np.sqrt(((x - x.mean()) ** 2).mean()),
    "n - mean(n)": lambda x, y, n, b, k, s: n - n.mean(),
    "n - min(n)": lambda x, y, n, b, k, s: n - n.min(),
    "n // max(n)": lambda x, y, n, b, k, s: n // n.max(),
    "sum(n) // count(b)": lambda x, y, n, b, k, s: n.sum() // np.count_nonzero(b),
    "where(x > mean(x), x, max(y))": lambda x, y, n, b, k, s: np.where(x > x.mean(), x, y.max()),
    "count(x > mean(x)) / 2": lambda x, y, n, b, k, s: np.count_nonzero(x > x.mean()) / 2,
    "(b | any(x > 9)) & ~all(b)": lambda x, y, n, b, k, s: (b | (x > 9).any()) & ~b.all(),
    "x * k - sum(y) * s": lambda x, y, n, b, k, s: x * k - y.sum() * s,
    "x - max(n)": lambda x, y, n, b, k, s: x - n.max(),
    "i - argmax(x)": lambda x, y, n, b, k, s: np.arange(x.size) - x.argmax(),
    "std(x) > 2 * pi": lambda x, y, n, b, k, s: x.std() > 2 * np.pi,
    "sum(x - mean(x - mean(x)))": lambda x, y, n, b, k, s: (x - (x - x.mean()).mean()).sum(),
}


@pytest.mark.parametrize("dtypes", [("f8", "f8", "i4"), ("f4", "f4", "i8"), ("f4", "f8", "u2")])
@pytest.mark.parametrize("text", TEXTS)
def test_values_and_dtypes_are_those_of_numpy(text, dtypes):
    rng = np.random.default_rng(len(text))
    x, y = (rng.normal(5, 3, 30_001).astype(dtype) for dtype in dtypes[:2])
    n, b = rng.integers(1, 50, x.size).astype(dtypes[2]), rng.random(x.size) < 0.6
    given = {"x": x, "y": y, "n": n, "b": b, "k": 2.5, "s": np.float32(0.5)}
    read = {name: value for name, value in given.items() if name in ov.Expression(text).inputs}
    found, expected = ov.evaluate(text, read), TEXTS[text](**given)
    # NumPy counts with integers of Python.
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=2e-4 if "f4" in dtypes else 1e-9, atol=1e-2)


def test_statements_return_names_and_texts(tmp_path):
    x = np.arange(10_000.0)
    r = ov.evaluate("m = mean(x); y = x - m; max(y) / 2, half = m / 2", out={"y": tmp_path / "y.npy"})
    assert set(r) == {"m", "y", "max(y) / 2", "half"}
    assert (r["m"], r["half"], r["max(y) / 2"]) == (4999.5, 2499.75, 2499.75)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x - 4999.5)
    assert len(r.report.to_dict()["passes"]) == 2
    assert "pass 2 of 2" in str(r.report) and "pass 1 of 2" in str(ov.plan("y = x - mean(x)"))


def test_what_needs_one_pass_is_refused_by_name():
    x = np.ones(10_000)
    with pytest.raises(ValueError, match="reduce first and give the results as values"):
        ov.run_rows("sum(x - mean(x))", part=(0, 2))
