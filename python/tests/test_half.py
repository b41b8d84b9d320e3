"""`f16` has NumPy's results for `float16`, and `bf16` those of ml_dtypes."""

import itertools

import numpy as np
import overshot as ov
import pytest

ALL = np.arange(65536, dtype="u2").view("f2")
EXACT = "-x, abs(x), sqrt(x), floor(x), ceil(x), trunc(x), round(x), sign(x), x ** 2, x ** 0.5, x ** -1.0, x * x"
NEAR = "cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh".split()
OTHERS = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def same_bits(found, expected):
    """The same bits, where NaN has one form."""
    assert found.dtype == expected.dtype == np.float16
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(found.view("u2")[numbers], expected.view("u2")[numbers])
    assert set(found.view("u2")[~numbers]) <= {0x7E00}


def of_numpy(text, **names):
    functions = {name: getattr(np, name) for name in "abs sqrt floor ceil trunc round sign where".split()}
    return eval(text, functions | names)


@pytest.mark.parametrize("device", ["cpu", "emulated"])
@pytest.mark.parametrize("text", EXACT.split(", "))
def test_all_values_have_the_results_of_numpy(text, device):
    same_bits(ov.evaluate(text, x=ALL, device=device), of_numpy(text, x=ALL))


@pytest.mark.parametrize("name", NEAR)
def test_functions_of_all_values_are_the_nearest(name):
    own = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}
    own |= {"asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}
    function = getattr(np, own.get(name, name))
    # The nearest `f32`, then the nearest `f16` to that.
    expected = function(ALL.astype("f8")).astype("f4").astype("f2")
    found = ov.evaluate(f"{name}(x)", x=ALL)
    assert found.dtype == np.float16
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    numbers = np.isfinite(expected) & np.isfinite(found)
    np.testing.assert_array_equal(found[~numbers], expected[~numbers])
    apart = np.abs(found[numbers].astype("f8") - expected[numbers].astype("f8"))
    assert np.count_nonzero(apart) < 10 and np.all(apart <= np.spacing(np.abs(expected[numbers])))


@pytest.mark.parametrize("text", ["x + y", "x - y", "x * y", "x / y", "x // y", "x % y", "where(x < y, x, y)"])
def test_operators_on_pairs(text):
    rng = np.random.default_rng(3)
    x, y = ALL[rng.permutation(65536)], ALL[rng.permutation(65536)]
    same_bits(ov.evaluate(text), of_numpy(text, x=x, y=y))
    near = np.float16(1) + rng.integers(-8, 8, 65536).astype("f2") * np.finfo("f2").eps
    same_bits(ov.evaluate(text, x=near, y=near[::-1].copy()), of_numpy(text, x=near, y=near[::-1]))


@pytest.mark.parametrize("towards", [-np.inf, 0.0, 1.0, np.inf, np.nan])
def test_neighbours_of_all_values(towards):
    to = np.full_like(ALL, towards)
    same_bits(ov.evaluate("nextafter(x, to)", x=ALL), np.nextafter(ALL, to))


@pytest.mark.parametrize("other", OTHERS)
def test_promotion(other):
    x, y = np.ones(3, "f2"), np.ones(3, other)
    expected = np.result_type(x, y)
    for text in ("x + y", "y * x", "where(x > 0, x, y)", "min(x, y)"):
        assert ov.evaluate(text).dtype == expected, text
    for number in (2, 2.5, True):
        assert ov.evaluate("x * number", x=x, number=number).dtype == np.float16


def test_conversions():
    rng = np.random.default_rng(5)
    wide = np.concatenate([rng.normal(size=50_000) * np.exp2(rng.integers(-30, 20, 50_000)), [65519.99, 65520, -1e300]])
    halves = (ALL[1:0x7C00].astype("f8") + ALL[: 0x7C00 - 1].astype("f8")) / 2
    x = np.concatenate([wide, halves, np.nextafter(halves, 0), np.nextafter(halves, np.inf)])
    same_bits(ov.evaluate("f16(x)"), x.astype("f2"))
    x = x.astype("f4")
    same_bits(ov.evaluate("f16(x)"), x.astype("f2"))
    for dtype, name in (("i4", "i32"), ("u1", "u8"), ("i8", "i64"), ("?", "bool"), ("f4", "f32"), ("f8", "f64")):
        x = np.array([0, 1, -2, 100.75, 2048, 65504], "f2")
        y = np.abs(x) if dtype == "u1" else x
        y = y[:4]
        np.testing.assert_array_equal(ov.evaluate(f"{name}(y)"), y.astype(dtype))
        z = np.array([0, 1, 100, 255 if dtype == "u1" else 70000]).astype(dtype)
        same_bits(ov.evaluate("f16(z)"), z.astype("f2"))


@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_reductions_and_shapes(device):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(5000, 7)).astype("f2")
    r = ov.evaluate(
        "sum(x), mean(x), min(x), max(x), argmin(x), argmax(x), std(x), count(x > 0), columns = max(x, axis=0)",
        device=device,
    )
    rows = ov.evaluate("sum(x, axis=-1)", x=x, device=device)
    assert r["sum(x)"] == np.float16(x.sum(dtype="f8")) and r["sum(x)"].dtype == np.float16
    assert r["mean(x)"] == np.float16(x.mean(dtype="f8")) and r["mean(x)"].dtype == np.float16
    assert (r["min(x)"], r["max(x)"]) == (x.min(), x.max())
    assert (r["argmin(x)"], r["argmax(x)"], r["count(x > 0)"]) == (x.argmin(), x.argmax(), (x > 0).sum())
    np.testing.assert_array_equal(rows, x.sum(axis=-1, dtype="f8").astype("f2"))
    np.testing.assert_array_equal(r["columns"], x.max(axis=0))
    flat = x[:, 0].copy()
    np.testing.assert_array_equal(ov.evaluate("shift(x, 1, edge)", x=flat)[1:], flat[:-1])
    np.testing.assert_array_equal(ov.evaluate("moving_max(x, 2, edge)", x=flat)[1:], np.maximum(flat[1:], flat[:-1]))
    same_bits(ov.evaluate("x * 2", x=x), x * 2)


def test_files_and_scalars(tmp_path):
    x = np.linspace(-3, 3, 1001).astype("f2")
    np.save(tmp_path / "x.npy", x)
    x.tofile(tmp_path / "x.f16")
    for name, x_file in (("x.npy", tmp_path / "x.npy"), ("x.f16", ov.open(tmp_path / "x.f16", "f2"))):
        ov.evaluate("y = x + a", x=x_file, a=np.float16(0.1), out={"y": tmp_path / f"y_{name}"})
    same_bits(np.load(tmp_path / "y_x.npy"), x + np.float16(0.1))
    same_bits(np.fromfile(tmp_path / "y_x.f16", "f2"), x + np.float16(0.1))
    with pytest.raises((OSError, ValueError), match="NumPy has no such dtype"):
        ov.evaluate("y = bf16(x)", x=x, out={"y": tmp_path / "z.npy"})


def test_bf16_has_the_results_of_ml_dtypes():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x = np.arange(65536, dtype="u2").view(bfloat16)
    y = x[np.random.default_rng(2).permutation(65536)]
    for text in ("x + y", "x * y", "x - y", "x / y"):
        found, expected = ov.evaluate(text), of_numpy(text, x=x, y=y)
        assert found.dtype == expected.dtype
        numbers = ~np.isnan(expected.astype("f4"))
        np.testing.assert_array_equal(found.view("u2")[numbers], expected.view("u2")[numbers])
        assert np.isnan(found[~numbers].astype("f4")).all()
    for dtype, other in itertools.product(["f4", "f8"], [x, y]):
        assert ov.evaluate("other + w", other=other, w=np.ones(65536, dtype)).dtype == dtype
    assert ov.evaluate("sum(x)", x=np.ones(100, bfloat16)) == 100
