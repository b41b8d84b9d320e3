"""Arrays of different shapes, and reductions along the rows, have the values, dtypes and shapes of NumPy."""

import numpy as np
import overshot as ov
import pytest

REDUCTIONS = {
    "sum": np.sum, "mean": np.mean, "var": np.var, "std": np.std, "min": np.min, "max": np.max,
    "argmin": np.argmin, "argmax": np.argmax, "any": np.any, "all": np.all, "count": np.count_nonzero,
}  # fmt: skip


def table(shape, dtype, seed=1):
    rng = np.random.default_rng(seed)
    if dtype == "?":
        return rng.random(shape) < 0.9
    return (rng.normal(3, 2, shape) if dtype[0] == "f" else rng.integers(0, 5, shape)).astype(dtype)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1", "?"])
@pytest.mark.parametrize("shape", [(1, 3), (1000, 3), (700, 2, 5), (40, 300), (3, 5000), (2000, 1)])
def test_reductions_along_the_rows(shape, dtype):
    x = table(shape, dtype)
    texts = {f"{name}(x, axis=0)": (of, {}) for name, of in REDUCTIONS.items()}
    texts |= {f"{name}(x, axis=0, keepdims=True)": (of, {"keepdims": True}) for name, of in REDUCTIONS.items()}
    found = ov.evaluate("; ".join(texts), {"x": x})
    for text, (of, options) in texts.items():
        expected = of(x, axis=0, **options)
        assert found[text].shape == expected.shape, text
        if dtype != "?" or text.split("(")[0] not in ("mean", "var", "std"):
            assert found[text].dtype == expected.dtype, text
        tolerance = 1e-3 if found[text].dtype == "f4" else 1e-9
        np.testing.assert_allclose(found[text], expected, rtol=tolerance, atol=tolerance, err_msg=text)


SHAPES = [
    ((50, 4), (4,)), ((50, 4), (1, 4)), ((50, 4), (50, 1)), ((50, 4), (1, 1)), ((1, 4), (4,)),
    ((30, 2, 5), (5,)), ((30, 2, 5), (2, 1)), ((30, 2, 5), (30, 1, 1)), ((5000, 3), (3,)), ((6, 2000), (2000,)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", SHAPES)
def test_inputs_are_broadcast(shapes):
    a, b = (table(shape, "f8", seed) for seed, shape in enumerate(shapes))
    for x, y in ((a, b), (b, a)):
        np.testing.assert_array_equal(ov.evaluate("x * y - 1"), x * y - 1)
        found = ov.evaluate("c = where(x > y, x, y); sum(x * y), argmax(x - y), count(x < y)", {"x": x, "y": y})
        np.testing.assert_array_equal(found["c"], np.maximum(x, y))
        assert found["argmax(x - y)"] == np.argmax(x - y) and found["count(x < y)"] == np.count_nonzero(x < y)
        np.testing.assert_allclose(found["sum(x * y)"], (x * y).sum(), rtol=1e-12)


def test_a_value_of_each_row_has_one_column(tmp_path):
    x, w = table((300, 7), "f8"), table((300, 1), "f8", 2)
    r = ov.evaluate("y = x * w; z = w + 1; n = x * 0 + index()", out={"y": tmp_path / "y.npy", "z": tmp_path / "z.npy"})
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x * w)
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), w + 1)
    np.testing.assert_array_equal(r["n"], np.broadcast_to(np.arange(300)[:, None], x.shape))


def test_products_along_the_rows():
    x = 1 + table((500, 3), "f8") / 100
    np.testing.assert_allclose(ov.evaluate("prod(x, axis=0)"), x.prod(axis=0), rtol=1e-12)


def test_a_table_is_standardised():
    x = table((4000, 6), "f8")
    y = ov.evaluate("(x - mean(x, axis=0)) / std(x, axis=0)", {"x": x})
    np.testing.assert_allclose(y, (x - x.mean(axis=0)) / x.std(axis=0), rtol=1e-9, atol=1e-9)
    r = ov.evaluate("m = mean(x, axis=0); s = std(x, axis=0) / m; c = max(x / m, axis=0)", {"x": x})
    np.testing.assert_allclose(r["s"], x.std(axis=0) / x.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(r["c"], (x / x.mean(axis=0)).max(axis=0), rtol=1e-9)


def test_parts_have_the_results_of_one_run():
    x, m = table((20_000, 3), "f8"), table((3,), "f8", 2)
    text = "sum(x - m, axis=0), mean(x), argmin(x, axis=0)"
    parts = [ov.run_rows(text, {"x": x, "m": m}, part=(k, 3)) for k in (2, 0, 1)]
    for part in parts[1:]:
        parts[0].merge(part)
    merged, whole = parts[0].finish(), ov.evaluate(text, {"x": x, "m": m})
    for name in whole:
        np.testing.assert_array_equal(merged[name], whole[name])


def test_what_does_not_fit_is_refused():
    x = table((6, 4), "f8")
    with pytest.raises(ValueError, match="no dimensions of a row"):
        ov.evaluate("x + y", {"x": x, "y": np.ones(6)})
    for other in (np.ones(5), np.ones((5, 1)), np.ones((2, 4))):
        with pytest.raises(ValueError, match="NumPy's rules do not broadcast"):
            ov.evaluate("x + y", {"x": x, "y": other})
    for text, reason in (
        ("mean(x, axis=x)", "an axis is a number"),
        ("mean(x, keepdims=True)", "needs an axis"),
        ("sqrt(x, axis=0)", "is no reduction"),
    ):
        with pytest.raises(ValueError, match=reason):
            ov.evaluate(text, {"x": x})
