"""Running sums have NumPy's dtypes, and its values where additions are exact."""

import numpy as np
import overshot as ov
import pytest


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i4", "u4", "i8", "u8", "f4", "f8"])
@pytest.mark.parametrize("rows", [0, 1, 7, 4096, 4097, 100_003])
def test_sums_are_those_of_numpy(dtype, rows):
    x = np.random.default_rng(rows).integers(0, 2 if dtype == "?" else 100, rows).astype(dtype)
    with np.errstate(over="ignore"):
        expected = np.cumsum(x)
    found = ov.evaluate("cumsum(x)")
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sums_of_fractions_are_near(dtype):
    x = np.random.default_rng(1).normal(size=300_001).astype(dtype)
    rtol, atol = (1e-5, 1e-2) if dtype == "f4" else (1e-12, 1e-9)
    np.testing.assert_allclose(ov.evaluate("cumsum(x)"), np.cumsum(x, dtype="f8"), rtol=rtol, atol=atol)


def test_the_bits_are_the_same_for_all_chunks_and_devices():
    x = np.random.default_rng(2).normal(size=200_003)
    right = ov.evaluate("cumsum(x)", device="cpu")
    for device in ("cpu", "emulated", "emulated:2"):
        for chunk in ("64KiB", "1MiB"):
            np.testing.assert_array_equal(ov.evaluate("cumsum(x)", device=device, chunk=chunk), right)


def test_sums_of_sums_and_what_is_computed_from_them():
    x = np.random.default_rng(3).integers(-50, 50, 50_001).astype("f8")
    r = ov.evaluate("c = cumsum(x); d = cumsum(c); y = c / 2 + d; max(c)", out={"c": None, "d": None})
    c = np.cumsum(x)
    np.testing.assert_array_equal(r["c"], c)
    np.testing.assert_array_equal(r["d"], np.cumsum(c))
    np.testing.assert_array_equal(r["y"], c / 2 + np.cumsum(c))
    assert r["max(c)"] == c.max()


def test_the_last_sum_is_the_sum():
    x = np.random.default_rng(4).normal(size=123_457)
    r = ov.evaluate("c = cumsum(x); sum(x)")
    np.testing.assert_allclose(r["c"][-1], r["sum(x)"], rtol=1e-12)
