"""Medians, quantiles and the largest values are those of NumPy."""

import warnings

import numpy as np
import overshot as ov
import pytest

DTYPES = ["f8", "f4", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1"]
SHARES = [0.0, 0.05, 0.25, 0.3, 0.5, 0.75, 0.9, 0.999, 1.0]


def values(dtype, count, seed=1):
    """Values whose differences do not overflow, so that NumPy's quantiles are right."""
    rng = np.random.default_rng(seed)
    if dtype[0] == "f":
        return (rng.normal(0, 2, count) * 10.0 ** rng.integers(-20, 20, count)).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min // 2, info.max // 2, count, dtype=dtype)


def quantile(x, share):
    """That of NumPy. Where it is one value, NumPy has NaN if that value or the next one is infinite."""
    value, ordered, place = np.quantile(x, share), np.sort(x, axis=None), share * (np.size(x) - 1)
    low, high = ordered[int(np.floor(place))], ordered[int(np.ceil(place))]
    is_value = not np.isnan(ordered[-1]) and low == high
    return low if np.isnan(value) and is_value else value


def check(x, shares=SHARES, count=3):
    names = [f"quantile(x, {share!r})" for share in shares]
    found = ov.evaluate(f"median(x), {', '.join(names)}; t = topk(x, {count})", {"x": x})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = [np.median(x), *(quantile(x, share) for share in shares)]
    for name, own in zip(["median(x)", *names], expected, strict=True):
        np.testing.assert_array_equal(found[name], own, err_msg=name)
        assert found[name].dtype == own.dtype, name
    np.testing.assert_array_equal(found["t"], np.sort(x, axis=None)[::-1][:count])
    assert found["t"].dtype == x.dtype


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [3, 4, 1000, 100_001])
def test_values(dtype, count):
    check(values(dtype, count))


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_values(dtype):
    check(np.full(70_000, 7, dtype))
    check(np.repeat(np.array([3, 100], dtype), 50_000))
    check(np.repeat(np.array([3, 100], dtype), [50_000, 50_001]))


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_special_values(dtype):
    for special in ([np.nan], [np.inf], [-np.inf], [np.inf, -np.inf], [0.0, -0.0], [np.inf] * 5, [5e-324, -5e-324]):
        check(np.concatenate([values(dtype, 8), special]).astype(dtype))
    check(np.array([np.inf, np.inf, 1, 2], dtype))
    check(np.array([-0.0, 0.0, -0.0], dtype))


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
@pytest.mark.parametrize("count", [29_999, 40_000, 60_000, 65_536])
def test_many_of_the_largest(dtype, count):
    rng = np.random.default_rng(1)
    steps = np.concatenate([2 + rng.random(30_000) / 20, 1 + rng.random(40_000) / 20, rng.random(10_000) / 100])
    for x in (steps, rng.normal(size=1_000_000)):
        x = (x * 1e6).astype(dtype)
        np.testing.assert_array_equal(ov.evaluate(f"t = topk(x, {count})", x=x)["t"], np.sort(x)[::-1][:count])


def test_sixteen_bits():
    """NumPy rounds each step of a quantile to f16, and Overshot the result."""
    x = np.random.default_rng(8).normal(0, 50, 1025).astype("f2")
    found = ov.evaluate("m = median(x), q = quantile(x, 0.25), p = quantile(x, 0.7), t = topk(x, 3)", x=x)
    wide = x.astype("f4")
    assert found["m"] == np.median(x) and found["m"].dtype == x.dtype
    assert found["q"] == np.quantile(x, 0.25) and found["q"].dtype == x.dtype
    assert found["p"] == np.float16(np.quantile(wide, 0.7))
    np.testing.assert_array_equal(found["t"], np.sort(x)[::-1][:3])
    assert found["t"].dtype == x.dtype
    assert np.isnan(ov.evaluate("median(x)", x=np.append(x, np.float16(np.nan))))


@pytest.mark.parametrize("seed", range(60))
def test_any_values(seed):
    """Floats of any bits but NaN, and integers, with a random share."""
    rng = np.random.default_rng(seed)
    count, share = int(rng.integers(3, 40)), float(rng.random())
    floats = rng.integers(0, 2**64, count, dtype="u8").view("f8")
    # The differences of the largest ones overflow, in NumPy too.
    check(np.where(np.isfinite(floats), floats, 0.0), [share])
    check(rng.integers(-(2**62), 2**62, count), [share])


def test_values_that_share_most_bits():
    rng = np.random.default_rng(3)
    for bits in (16, 32, 40):
        check((0x3FF0_0000_0000_0000 + rng.integers(0, 2**bits, 200_000)).view("f8"))


def test_differences_do_not_overflow():
    x = np.array([-128, 127], "i1")
    assert ov.evaluate("quantile(x, 0.25)", {"x": x}) == -128 + 255 * 0.25


def test_bools():
    x = np.array([True, False, True, True])
    assert ov.evaluate("median(x)", {"x": x}) == np.median(x)
    np.testing.assert_array_equal(ov.evaluate("topk(x, 4)", {"x": x}), np.sort(x)[::-1])
    with pytest.raises(TypeError):
        np.quantile(x, 0.5)
    with pytest.raises(ValueError, match="bools have no values between them"):
        ov.evaluate("quantile(x, 0.5)", {"x": x})


def test_no_values():
    x = np.zeros(0)
    found = ov.evaluate("median(x), quantile(x, 0.3)", {"x": x})
    assert np.isnan(found["median(x)"]) and np.isnan(found["quantile(x, 0.3)"])
    with pytest.raises(ValueError, match="has 4 values, but only 3 exist"):
        ov.evaluate("topk(x, 4)", {"x": np.zeros(3)})


def test_shapes_and_kept_rows():
    x = values("f4", 30_000)
    check(x.reshape(-1, 3))
    found = ov.evaluate("m = median(x[x > 0]); t = topk(x[x < 0], 2)", {"x": x})
    assert found["m"] == np.median(x[x > 0])
    np.testing.assert_array_equal(found["t"], np.sort(x[x < 0])[::-1][:2])


def test_in_expressions():
    x = np.random.default_rng(1).normal(size=100_000)
    found = ov.evaluate("y = (x - median(x)) / (quantile(x, 0.75) - quantile(x, 0.25))", {"x": x})
    np.testing.assert_array_equal(found["y"], (x - np.median(x)) / (np.quantile(x, 0.75) - np.quantile(x, 0.25)))
    found = ov.evaluate("z = x[x > quantile(x, 0.99)]", {"x": x})
    np.testing.assert_array_equal(found["z"], x[x > np.quantile(x, 0.99)])


def test_what_is_refused():
    for text, message in [
        ("quantile(x, 2)", "from 0 to 1"),
        ("topk(x, 0)", "from 1 to 65536"),
        ("median(x, axis=0)", "leave out `axis`"),
    ]:
        with pytest.raises(ValueError, match=message):
            ov.evaluate(text, {"x": np.zeros(3)})
