"""Filters of whole rows, held to NumPy's results."""

import numpy as np
import overshot as ov
import pytest

SHAPES = [(0, 3), (1, 5), (5, 5), (700, 2), (3000, 7), (300, 256), (120, 257), (40, 1500), (60, 3, 4)]


def table(shape, dtype, seed=1):
    x = np.random.default_rng([seed, *shape]).normal(scale=9, size=shape).astype(dtype)
    return x


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "u1"])
@pytest.mark.parametrize("shape", SHAPES)
def test_kept_rows_are_those_of_numpy(evaluate, shape, dtype):
    x, key = table(shape, dtype), table(shape[:1], "f8", 2)
    mask = key > 1
    rows = np.arange(shape[0])
    conditions = {"key > 1": mask, "(key > 1) & (i % 2 == 0)": mask & (rows % 2 == 0), "i > 3": rows > 3}
    for text, condition in conditions.items():
        r = evaluate(f"m = {text}; y = x[m]; k = key[m]; place = i[m]", {"x": x, "key": key})
        assert r["y"].dtype == x.dtype
        np.testing.assert_array_equal(r["y"], x[condition])
        np.testing.assert_array_equal(r["k"], key[condition])
        np.testing.assert_array_equal(r["place"], rows[condition])
        assert r["y"].shape == x[condition].shape and r["k"].shape == (condition.sum(),)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if len(shape) == 2 and shape[0]])
def test_conditions_that_are_reduced_within_rows(evaluate, shape):
    x = table(shape, "f8")
    x[::3, -1] = np.nan
    complete = np.isfinite(x).all(axis=1)
    np.testing.assert_array_equal(evaluate("x[all(isfinite(x), axis=1)]", {"x": x}), x[complete])
    r = evaluate("m = max(x, axis=1) > 9; s = sum(abs(x), axis=1)[m]; k = min(x, axis=1, keepdims=True)[m]", {"x": x})
    mask = x.max(axis=1) > 9
    np.testing.assert_allclose(r["s"], np.abs(x).sum(axis=1)[mask], rtol=1e-14)
    np.testing.assert_array_equal(r["k"], x.min(axis=1, keepdims=True)[mask])


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[0] > 1])
def test_reductions_of_kept_rows(evaluate, shape):
    x, key = table(shape, "f8"), table(shape[:1], "f8", 2)
    mask = key > 1
    kept = x[mask]
    text = "m = key > 1; a = mean(x[m]); b = mean(x[m], axis=0); c = var(x[m], axis=0); d = count(m); e = sum(key[m])"
    r = evaluate(text, {"x": x, "key": key})
    if len(kept) == 0:
        return
    np.testing.assert_allclose(r["a"], kept.mean(), rtol=1e-12)
    np.testing.assert_allclose(r["b"], kept.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(r["c"], kept.var(axis=0), rtol=1e-10)
    assert r["d"] == mask.sum()
    np.testing.assert_allclose(r["e"], key[mask].sum(), rtol=1e-12)


def test_values_of_rows_are_reduced(evaluate):
    x = table((2000, 30), "f8")
    s = x.sum(axis=1)
    r = evaluate("s = sum(x, axis=1); mean(s), max(s), std(s), m = median(s), n = count(s > 0)", {"x": x})
    np.testing.assert_allclose(r["mean(s)"], s.mean(), rtol=1e-12)
    np.testing.assert_allclose([r["max(s)"], r["std(s)"], r["m"]], [s.max(), s.std(), np.median(s)], rtol=1e-12)
    assert r["n"] == (s > 0).sum()


def test_outputs_of_all_kinds(tmp_path):
    x, key = table((5000, 6), "f4"), table((5000,), "f8", 2)
    kept = x[key > 1]
    file = ov.evaluate("x[key > 1]", {"x": x, "key": key}, out=tmp_path / "y.npy")
    np.testing.assert_array_equal(file, kept)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), kept)
    # An array has room for all rows, and the first of them are the result.
    out = np.full(x.shape, 7, "f4")
    found = ov.evaluate("x[key > 1]", {"x": x, "key": key}, out=out)
    np.testing.assert_array_equal(found, kept)
    assert np.shares_memory(found, out) and (out[len(kept) :] == 7).all()
    # It may be the input.
    own = x.copy()
    np.testing.assert_array_equal(ov.evaluate("own[key > 1]", {"own": own, "key": key}, out=own), kept)
    np.testing.assert_array_equal(own[len(kept) :], x[len(kept) :])
    report = ov.evaluate("y = x[key > 1]; n = count(key > 1)", {"x": x, "key": key}).report
    assert report.to_dict()["outputs"][0]["shape"] == list(kept.shape)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("y = (x * 2)[x > 0]; s = sum(x, axis=1)", "a filter keeps whole rows"),
        ("x[key > 0] + key[key > 0]", "no dimensions of a row"),
        ("x + key", "no dimensions of a row"),
        ("y = x[key > 0]; z = key", "filtered"),
    ],
)
def test_what_is_refused(text, problem):
    with pytest.raises(ValueError, match=problem):
        ov.evaluate(text, {"x": table((9, 4), "f8"), **({"key": table((9,), "f8")} if "key" in text else {})})
