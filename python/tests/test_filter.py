"""Filters have the rows, the values and the dtypes of NumPy's boolean indexing."""

import numpy as np
import overshot as ov
import pytest

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
# One row in the last partial tile, several tiles, less than one, and one row.
ROWS = [1, 1000, 4096, 4097, 3 * 4096 + 1, 300_001]
CONDITIONS = {
    "none": lambda x: np.zeros(x.size, bool),
    "all": lambda x: np.ones(x.size, bool),
    "some": lambda x: np.random.default_rng(x.size).random(x.size) < 0.4,
    "the last": lambda x: np.arange(x.size) == x.size - 1,
    "the first tile": lambda x: np.arange(x.size) < 4096,
}


def column(dtype, rows):
    rng = np.random.default_rng(rows)
    if dtype in "f2f4f8":
        x = rng.normal(0, 100, rows).astype(dtype)
        x[::7] = np.nan
        return x
    return rng.integers(0, 2 if dtype == "?" else 120, rows).astype(dtype)


@pytest.mark.parametrize("device", ["cpu", "emulated"])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_those_of_numpy(dtype, condition, device):
    for rows in ROWS:
        x = column(dtype, rows)
        m = CONDITIONS[condition](x)
        found = ov.evaluate("x[m]", device=device, chunk="256KiB")
        assert found.dtype == x.dtype and found.shape == x[m].shape
        np.testing.assert_array_equal(found, x[m])
        r = ov.evaluate("y = x[m]; place = i[m]; z = (x * 2)[m]", x=x, m=m, device=device)
        np.testing.assert_array_equal(r["y"], x[m])
        np.testing.assert_array_equal(r["place"], np.flatnonzero(m))
        np.testing.assert_array_equal(r["z"], (x * 2)[m])
        assert all(output["rows"] == np.count_nonzero(m) for output in r.report.to_dict()["outputs"])


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions_are_those_of_numpy(dtype, condition):
    for rows in ROWS:
        x = column(dtype, rows)
        x = np.where(np.isnan(x), x.dtype.type(3), x) if x.dtype.kind == "f" else x
        m = CONDITIONS[condition](x)
        kept = x[m]
        text = "sum(x[m]), count(x[m]), any(x[m]), all(x[m]), mean(x[m]), var(x[m]), std(x[m]), min(x[m]), max(x[m])"
        r = ov.evaluate(text)
        exact = {"sum": kept.sum(), "any": kept.any(), "all": kept.all(), "count": np.count_nonzero(kept)}
        with np.errstate(all="ignore"), pytest.warns(RuntimeWarning) if not kept.size else _nothing():
            # NumPy's variance of `f2` overflows, because it rounds the sum of squares.
            wide = kept.astype("f8") if dtype == "f2" else kept
            near = {"mean": wide.mean(), "var": wide.var(), "std": wide.std()}
        limits = {"min": kept.min(), "max": kept.max()} if kept.size else {"min": None, "max": None}
        for name, value in (exact | limits).items():
            if name == "sum" and x.dtype.kind == "f":
                # The order of additions is another one, and the sum of `f32` is computed in `f64`.
                bound = np.abs(kept).sum(dtype="f8") * np.finfo(x.dtype).eps * 20
                total = kept.sum(dtype="f8").astype(x.dtype)
                np.testing.assert_allclose(r["sum(x[m])"], total, rtol=0, atol=bound)
                continue
            assert r[f"{name}(x[m])"] == value, name
        for name, value in near.items():
            close = {"f2": 3e-2, "f4": 1e-3}.get(dtype, 1e-11)
            np.testing.assert_allclose(r[f"{name}(x[m])"], value, rtol=close, atol=1e-9)


def _nothing():
    return np.errstate()


def test_texts_are_those_of_numpy():
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(2, 50_000))
    n = rng.integers(0, 9, x.size)
    for text in [
        "x[x > 0]",
        "x[x > 0] + y[x > 0] * 2",
        "(x * y)[(x > 0) & (n == 3)]",
        "-x[x > 0] ** 2",
        "x[n == 3][y[n == 3] > 0]",
        "x[~(n > 3)]",
        "n[x > y]",
    ]:
        np.testing.assert_array_equal(ov.evaluate(text), eval(text))
    np.testing.assert_array_equal(ov.evaluate("x[x > mean(x)]"), x[x > x.mean()])


def test_outputs_of_all_kinds(tmp_path):
    x = np.random.default_rng(6).normal(size=20_000)
    kept = x[x > 1]
    file = ov.evaluate("x[x > 1]", out=tmp_path / "y.npy")
    np.testing.assert_array_equal(file, kept)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), kept)
    np.testing.assert_array_equal(ov.evaluate("x[x > 1]", out=tmp_path / "y.raw"), kept)
    # An array has room for all rows, and the first of them are the result.
    out = np.full(x.size, 7.0)
    found = ov.evaluate("x[x > 1]", out=out)
    np.testing.assert_array_equal(found, kept)
    assert np.shares_memory(found, out) and (out[kept.size :] == 7).all()
    # It may be the input.
    own = x.copy()
    found = ov.evaluate("own[own > 1]", out=own)
    np.testing.assert_array_equal(found, kept)
    np.testing.assert_array_equal(own[kept.size :], x[kept.size :])
    with pytest.raises(ValueError, match="has 5"):
        ov.evaluate("x[x > 1]", out=np.zeros(5))


def test_kept_rows_have_one_dimension(tmp_path):
    x = np.random.default_rng(7).normal(size=(300, 40))
    for array in (x, np.asfortranarray(x)):
        np.testing.assert_array_equal(ov.evaluate("array[array > 0]"), x[x > 0])
    out = np.zeros_like(x)
    np.testing.assert_array_equal(ov.evaluate("x[x > 0]", out=out), x[x > 0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x[0]", "a row cannot be read by its number"),
        ("x[n]", "write a comparison of rows"),
        ("x[1:]", "slices, like"),
        ("x[x > 0] + x", "filter all of them"),
        ("y = x[x > 0]; z = x", "compute them in two jobs"),
        ("argmax(x[x > 0])", "among all rows"),
    ],
)
def test_what_numpy_refuses_or_does_otherwise_is_an_error(text, message):
    x, n = np.ones(10), np.arange(10)
    with pytest.raises(ValueError, match=message):
        ov.evaluate(text, x=x, n=n) if "n" in text else ov.evaluate(text, x=x)
