"""Reductions within rows have the values, dtypes and shapes of NumPy."""

import numpy as np
import overshot as ov
import pytest

from test_table import REDUCTIONS, table

EXACT = ("min", "max", "argmin", "argmax", "any", "all", "count")


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1", "i8", "?"])
@pytest.mark.parametrize("shape", [(1, 3), (1000, 3), (300, 16), (100, 31), (40, 300), (3, 5000), (200, 1), (0, 4)])
def test_rows_are_reduced(shape, dtype):
    x = table(shape, dtype)
    for axis in (1, -1):
        for keepdims in (False, True):
            options = f"axis={axis}, keepdims={keepdims}"
            found = ov.evaluate("; ".join(f"{name}_ = {name}(x, {options})" for name in REDUCTIONS), {"x": x})
            for name, of in REDUCTIONS.items():
                own, expected = found[f"{name}_"], of(x, axis=axis, keepdims=keepdims)
                assert own.shape == expected.shape, name
                if dtype != "?" or name not in ("mean", "var", "std"):
                    assert own.dtype == expected.dtype, name
                if name in EXACT or (name == "sum" and dtype[0] != "f"):
                    np.testing.assert_array_equal(own, expected, err_msg=name)
                else:
                    tolerance = 1e-4 if own.dtype == "f4" else 1e-11
                    np.testing.assert_allclose(own, expected, rtol=tolerance, atol=tolerance, err_msg=name)


def test_products_of_rows():
    x = 1 + table((500, 7), "f8") / 100
    np.testing.assert_allclose(ov.evaluate("prod(x, axis=1)"), x.prod(axis=1), rtol=1e-12)
    n = table((500, 30), "i4")
    np.testing.assert_array_equal(ov.evaluate("prod(n, axis=1)"), n.prod(axis=1))


@pytest.mark.parametrize("width", [2, 10, 257, 1500])
def test_special_values(width):
    x = table((60, width), "f8")
    x[::3, width // 2], x[::4, 0], x[1::5, -1], x[7] = np.nan, np.inf, -np.inf, -0.0
    with np.errstate(invalid="ignore"):
        for name in ("min", "max", "argmin", "argmax", "any", "all", "sum", "mean", "var", "std"):
            found, expected = ov.evaluate(f"{name}(x, axis=1)", {"x": x}), REDUCTIONS[name](x, axis=1)
            np.testing.assert_allclose(found, expected, rtol=1e-11, err_msg=name)


@pytest.mark.parametrize("shape", [(2000, 5), (100, 300), (4, 30000), (6, 7, 40)])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_softmax(shape, dtype):
    x = table(shape, dtype)
    text = "y = exp(x - max(x, axis=-1, keepdims=True)); z = y / sum(y, axis=-1, keepdims=True)"
    y = np.exp(x - x.max(axis=-1, keepdims=True))
    found = ov.evaluate(text)["z"]
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found, y / y.sum(axis=-1, keepdims=True), rtol=1e-4 if dtype == "f4" else 1e-12)


@pytest.mark.parametrize("axis", [-1, 2, (1, 2), (-2, -1), (2, 1), (-1,)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_more_dimensions(axis, keepdims):
    x = table((30, 4, 5), "f8")
    found = ov.evaluate(f"s = sum(x, axis={axis}, keepdims={keepdims}); m = max(x, axis={axis}) * 2", {"x": x})
    expected = x.sum(axis=axis, keepdims=keepdims)
    assert found["s"].shape == expected.shape
    np.testing.assert_allclose(found["s"], expected, rtol=1e-12)
    np.testing.assert_array_equal(found["m"], x.max(axis=axis) * 2)


def test_rows_of_files(tmp_path):
    x = table((700, 11), "f4")
    np.save(tmp_path / "x.npy", x)
    out = {"s": tmp_path / "s.npy", "k": tmp_path / "k.npy"}
    ov.evaluate("s = sum(x, axis=1); k = max(x, axis=1, keepdims=True)", {"x": tmp_path / "x.npy"}, out=out)
    assert np.load(tmp_path / "s.npy").shape == (700,)
    np.testing.assert_array_equal(np.load(tmp_path / "k.npy"), x.max(axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x - mean(x, axis=1)", "keepdims=True"),
        ("sum(x, axis=2)", "arrays of 2"),
        ("sum(x, axis=(0, 1))", "leave out `axis`"),
        ("sum(x, axis=(1, 1))", "several different ones"),
        ("sum(v, axis=1)", "arrays of 3"),
        ("s = sum(x, axis=1); y = x[x > 0]", "a filter keeps whole rows"),
        ("m = argmax(sum(x, axis=1))", "one element for each row"),
        ("s = sum(x, axis=1); sum(x, axis=0)", "compute them in jobs of their own"),
    ],
)
def test_what_is_refused(text, problem):
    name, shape = ("v", (5, 4, 3)) if "(v" in text else ("x", (5, 4))
    with pytest.raises(ValueError, match=problem):
        ov.evaluate(text, {name: table(shape, "f8")})
