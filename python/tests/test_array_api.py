"""The namespace of the array API standard, against NumPy's functions of the same names, on generated inputs."""

import inspect

import numpy as np
import pytest

import overshot as ov
from overshot import array_api as xp

rng = np.random.default_rng(11)

INTEGERS = [np.dtype(code) for code in "bhilBHIL"]
FLOATS = [np.dtype(code) for code in "fd"]
NUMBERS = INTEGERS + FLOATS
BOOL = [np.dtype("?")]

OF_FLOATS = (
    "acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 reciprocal signbit sin sinh sqrt tan tanh"
).split()
OF_NUMBERS = "abs ceil floor isfinite isinf isnan negative positive round sign square trunc".split()
TWO_FLOATS = "atan2 copysign divide hypot logaddexp nextafter".split()
TWO_NUMBERS = (
    "add floor_divide greater greater_equal less less_equal maximum minimum multiply pow remainder subtract".split()
)
CASES = [
    *((name, FLOATS) for name in [*OF_FLOATS, *TWO_FLOATS]),
    *((name, NUMBERS) for name in [*OF_NUMBERS, *TWO_NUMBERS]),
    *((name, BOOL + NUMBERS) for name in ("equal", "not_equal")),
    *((name, BOOL) for name in ("logical_not", "logical_and", "logical_or", "logical_xor")),
    *((name, BOOL + INTEGERS) for name in ("bitwise_invert", "bitwise_and", "bitwise_or", "bitwise_xor")),
    *((name, INTEGERS) for name in ("bitwise_left_shift", "bitwise_right_shift")),
]
# NumPy 1.26 has these names only.
NAMES = dict(
    acos="arccos", acosh="arccosh", asin="arcsin", asinh="arcsinh", atan="arctan", atanh="arctanh", atan2="arctan2",
    bitwise_invert="invert", bitwise_left_shift="left_shift", bitwise_right_shift="right_shift", pow="power",
)  # fmt: skip
REDUCTIONS = ["all", "any", "argmax", "argmin", "count_nonzero", "max", "mean", "min", "prod", "std", "sum", "var"]


def numpys(name):
    return getattr(np, NAMES.get(name, name))


def generated(dtype, shape=(7, 9), low=None, special=True):
    """Values of a dtype, with its limits, or with zeros, infinities and NaN, among them."""
    if dtype == bool:
        return rng.random(shape) < 0.5
    if dtype.kind == "f":
        values = rng.normal(scale=3, size=shape).astype(dtype)
        if special:
            values.flat[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]
        return values
    limits = np.iinfo(dtype)
    values = rng.integers(-9 if limits.min else 0, 9, shape).astype(dtype)
    values.flat[:2] = [limits.min, limits.max]
    return values if low is None else np.maximum(values, dtype.type(low))


def assert_same(lazy, expected, roundings=4):
    assert isinstance(lazy, ov.Array) and lazy.shape == expected.shape and lazy.dtype == expected.dtype
    value = np.asarray(lazy)
    assert value.shape == expected.shape and value.dtype == expected.dtype
    if expected.dtype.kind == "f":
        tolerance = roundings * float(np.finfo(expected.dtype).eps)
        np.testing.assert_allclose(value, expected, rtol=tolerance, atol=0)
    else:
        np.testing.assert_array_equal(value, expected)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name, dtypes", CASES, ids=[name for name, _ in CASES])
def test_elementwise_functions_are_those_of_numpy(name, dtypes):
    function, own = numpys(name), getattr(xp, name)
    for dtype in dtypes:
        arguments = [generated(dtype) for _ in inspect.signature(own).parameters]
        if dtype.kind in "iu":
            if name in ("floor_divide", "remainder"):
                arguments[1] = np.where(arguments[1] == 0, dtype.type(3), arguments[1])
            elif name in ("pow", "bitwise_left_shift", "bitwise_right_shift"):
                arguments[1] = np.abs(arguments[1]) % dtype.type(8 if name == "pow" else dtype.itemsize * 8 - 1)
        expected = function(*arguments)
        assert_same(own(*map(xp.asarray, arguments)), expected)
        if len(arguments) == 2 and expected.dtype == dtype and dtype != bool:
            assert_same(own(xp.asarray(arguments[0]), 3), function(arguments[0], 3))
            assert_same(own(3, xp.asarray(arguments[1])), function(3, arguments[1]))


def test_every_function_of_the_namespace_is_tested_here():
    tested = {name for name, _ in CASES} | set(REDUCTIONS)
    tested |= set("clip where astype can_cast finfo iinfo isdtype result_type __array_namespace_info__".split())
    tested |= set("arange asarray empty empty_like eye from_dlpack full full_like linspace ones ones_like".split())
    tested |= set("zeros zeros_like broadcast_arrays broadcast_to expand_dims flip matrix_transpose meshgrid".split())
    tested |= set("moveaxis permute_dims reshape squeeze tril triu unstack".split()) | {name for name, _, _ in OTHERS}
    own = {name for name, value in vars(xp).items() if getattr(value, "__module__", "") == xp.__name__}
    assert {name for name in own if not name.startswith("_") or name == "__array_namespace_info__"} == tested


# Functions that look at several elements: their arguments, and NumPy's function of another name.
OTHERS = [
    ("cumulative_sum", lambda f, x: f(x[0, 0]), np.cumsum),
    ("cumulative_sum", lambda f, x: f(x[:, 1, 0], axis=-1, dtype=np.float32), np.cumsum),
    ("diff", lambda f, x: f(x, axis=1, n=2), np.diff),
    ("matmul", lambda f, x: f(x[:, :, 0], x[:, :3, 1]), np.matmul),
    ("matmul", lambda f, x: f(x, x[0]), np.matmul),
    ("nonzero", lambda f, x: f(x > 0)[2], np.nonzero),
    ("repeat", lambda f, x: f(x, 2, axis=1), np.repeat),
    ("repeat", lambda f, x: f(x, np.array([1, 0, 2]), axis=0), np.repeat),
    ("roll", lambda f, x: f(x, (1, -2), axis=(0, 2)), np.roll),
    ("roll", lambda f, x: f(x, 4), np.roll),
    ("take", lambda f, x: f(x, np.array([2, 0, 2]), axis=1), np.take),
    ("take_along_axis", lambda f, x: f(x, np.argsort(np.ones((3, 3, 3)), axis=1), axis=1), np.take_along_axis),
    ("tensordot", lambda f, x: f(x, x, axes=((0, 2), (1, 0))), np.tensordot),
    ("tile", lambda f, x: f(x, (2, 1, 1, 3)), np.tile),
    ("vecdot", lambda f, x: f(x, x[1], axis=-1), lambda v, w, axis: np.sum(v * w, axis=axis, dtype=v.dtype)),
]


@pytest.mark.parametrize(("name", "call", "function"), OTHERS, ids=[name for name, _, _ in OTHERS])
@pytest.mark.parametrize("dtype", ["i4", "f4", "f8"])
def test_functions_of_several_elements_are_those_of_numpy(name, call, function, dtype):
    a = (rng.normal(size=(3, 3, 3)) * 9).astype(dtype)
    x = xp.asarray(a)
    for lazy, expected in ((x, a), (x * 2 - xp.max(x, axis=0), a * 2 - a.max(axis=0))):
        want = np.asarray(call(function, expected))
        value = call(getattr(xp, name), lazy)
        assert value.shape == want.shape and value.dtype == want.dtype
        np.testing.assert_allclose(np.asarray(value), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_have_axes(name):
    a = rng.normal(size=(4, 5, 6))
    x = xp.asarray(a)
    for axis in (0, 1, -1) if name.startswith("arg") else (0, 1, -1, (0, 1), (2, 1), (0, 2), ()):
        for kept in (False, True):
            value, expected = (getattr(f, name)(v, axis=axis, keepdims=kept) for f, v in ((xp, x), (np, a)))
            assert value.shape == expected.shape and value.dtype == expected.dtype
            np.testing.assert_allclose(np.asarray(value), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", BOOL + NUMBERS, ids=str)
def test_reductions_are_those_of_numpy(name, dtype):
    a = generated(dtype, special=False)
    if dtype.kind in "iu":
        a = (a % dtype.type(50)).astype(dtype)
    x = xp.asarray(a)
    if dtype.kind != "f" and name in ("mean", "std", "var"):
        # The standard has these for floats only, and NumPy computes with 64 bits.
        np.testing.assert_allclose(float(getattr(xp, name)(x)), getattr(np, name)(a), rtol=1e-12)
        return
    expected = np.asarray(getattr(np, name)(a))
    for lazy in (getattr(xp, name)(x), getattr(xp, name)(x, axis=None if name.startswith("arg") else (1, -2))):
        assert lazy.shape == () and lazy.dtype == expected.dtype
        np.testing.assert_allclose(np.asarray(lazy), expected, rtol=1e-5 if dtype == "f" else 1e-12)
    if name in ("std", "var"):
        lazy = getattr(xp, name)(x, correction=1.5)
        assert lazy.dtype == dtype
        np.testing.assert_allclose(float(lazy), getattr(np, name)(a.astype(float), ddof=1.5), rtol=1e-5)
    # All axes of an array may be given as the only one.
    assert float(getattr(xp, name)(xp.asarray(a[0]), axis=0)) == pytest.approx(float(getattr(np, name)(a[0])))


def test_sums_have_a_dtype():
    x = xp.asarray(np.array([200.5, 100.5], "f4"))
    assert xp.sum(x, dtype=xp.int64).dtype == xp.int64 and int(xp.sum(x, dtype=xp.int64)) == 300


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_clip_and_where(dtype):
    a, low, high = generated(dtype), np.full((7, 9), 2, dtype), np.full((7, 9), 5, dtype)
    x = xp.asarray(a)
    assert_same(xp.clip(x, xp.asarray(low), xp.asarray(high)), np.clip(a, low, high))
    assert_same(xp.clip(x, 2, max=5), np.clip(a, 2, 5))
    assert_same(xp.clip(x, min=2), np.maximum(a, 2))
    assert_same(xp.clip(x, max=5), np.minimum(a, 5))
    assert_same(xp.clip(x), a)
    condition = rng.random(a.shape) < 0.5
    assert_same(xp.where(xp.asarray(condition), x, xp.asarray(low)), np.where(condition, a, low))
    assert_same(xp.where(xp.asarray(condition), x, 2), np.where(condition, a, dtype.type(2)))


def test_arrays_are_made_as_numpy_makes_them():
    for lazy, expected in [
        (xp.arange(5), np.arange(5)),
        (xp.arange(1, 9, 3, dtype=xp.float32), np.arange(1, 9, 3, "f4")),
        (xp.arange(0.5, 2, 0.25), np.arange(0.5, 2, 0.25)),
        (xp.linspace(0, 1, 7), np.linspace(0, 1, 7)),
        (xp.linspace(2, 3, 4, dtype=xp.float32, endpoint=False), np.linspace(2, 3, 4, False, dtype="f4")),
        (xp.eye(3, 4, k=1), np.eye(3, 4, 1)),
        (xp.eye(2, dtype=xp.int8), np.eye(2, dtype="i1")),
        (xp.zeros((2, 3)), np.zeros((2, 3))),
        (xp.ones(4, dtype=xp.bool), np.ones(4, bool)),
        (xp.full((2, 2), 7), np.full((2, 2), 7)),
        (xp.full(3, True), np.full(3, True)),
        (xp.full((), 1.5, dtype=xp.float32), np.full((), 1.5, "f4")),
        (xp.zeros((0, 3)), np.zeros((0, 3))),
        (xp.asarray([[1, 2], [3, 4]], dtype=xp.uint8), np.array([[1, 2], [3, 4]], "u1")),
        (xp.asarray(np.float32(2)), np.array(2, "f4")),
        (xp.asarray(np.arange(3), dtype=xp.float32), np.arange(3, dtype="f4")),
        (xp.from_dlpack(np.arange(3)), np.arange(3)),
    ]:
        assert_same(lazy, expected)
        for like in (xp.zeros_like, xp.ones_like):
            assert_same(like(lazy), getattr(np, like.__name__)(expected))
        assert_same(xp.full_like(lazy, 1, dtype=xp.int16), np.full_like(expected, 1, dtype="i2"))
        assert xp.empty_like(lazy).shape == xp.empty(lazy.shape).shape == expected.shape
        assert lazy.device == "cpu" and lazy.to_device("cpu") is lazy
    # Nothing is allocated for the elements of arrays of one value.
    assert xp.ones((10**6, 10**6)).size == 10**12
    with pytest.raises(ValueError, match="there is no device 'gpu': lazy arrays are on 'cpu'"):
        xp.zeros(3, device="gpu")


def test_copies_do_not_follow_their_source():
    a = np.arange(4.0)
    same, copy = xp.asarray(a), xp.asarray(a, copy=True)
    exported = np.from_dlpack(xp.asarray(a))
    a[0] = 9
    assert np.asarray(same)[0] == 9 and np.asarray(copy)[0] == 0 and exported[0] == 0
    array = np.array(same)
    array[1] = 7
    assert a[1] == 1, "numpy.array copies"
    assert xp.asarray(a, copy=False).dtype == float
    for source, dtype in (([1, 2], None), (a, xp.float32)):
        with pytest.raises(ValueError, match="copy=False"):
            xp.asarray(source, dtype=dtype, copy=False)


@pytest.mark.parametrize("dtype", BOOL + NUMBERS, ids=str)
def test_dtypes(dtype):
    a = np.arange(5).astype(dtype)
    for other in BOOL + NUMBERS:
        assert_same(xp.astype(xp.asarray(a), other), a.astype(other))
        assert xp.result_type(dtype, xp.asarray(np.zeros(2, other))) == np.result_type(dtype, other)
        assert xp.can_cast(dtype, other) is np.can_cast(dtype, other)
        assert xp.can_cast(xp.asarray(a), other) is np.can_cast(dtype, other)
    kind = {"b": "bool", "i": "signed integer", "u": "unsigned integer", "f": "real floating"}[dtype.kind]
    assert xp.isdtype(dtype, kind) and xp.isdtype(dtype, ("complex floating", dtype)) and xp.isdtype(dtype, dtype)
    assert xp.isdtype(dtype, "numeric") == (dtype != bool) and xp.isdtype(dtype, "integral") == (dtype.kind in "iu")
    info = xp.__array_namespace_info__()
    assert info.dtypes()[dtype.name] == dtype and dtype.name in info.dtypes(kind=kind)
    if dtype.kind == "f":
        for limits in (xp.finfo(dtype), xp.finfo(xp.asarray(a))):
            expected = np.finfo(dtype)
            assert (limits.bits, limits.dtype) == (expected.bits, expected.dtype)
            for name in ("eps", "max", "min", "smallest_normal"):
                assert type(getattr(limits, name)) is float and getattr(limits, name) == getattr(expected, name)
    elif dtype.kind in "iu":
        assert xp.iinfo(xp.asarray(a)).max == np.iinfo(dtype).max
    assert xp.result_type(np.dtype("f4"), 1.5) == np.float32
    with pytest.raises(ValueError, match="there is no kind 'float' of dtypes; the kinds are 'bool', "):
        xp.isdtype(dtype, "float")


def test_the_namespace_is_found_from_its_arrays():
    x = xp.asarray([1.0, 2.0])
    assert x.__array_namespace__() is xp and x.__array_namespace__(api_version="2022.12") is xp
    with pytest.raises(ValueError, match="version 2099.12 of the array API is not supported; the latest that is is"):
        x.__array_namespace__(api_version="2099.12")
    info = xp.__array_namespace_info__()
    assert info.default_device() in info.devices() and info.capabilities()["boolean indexing"] is True
    assert info.default_dtypes()["real floating"] == xp.asarray(1.0).dtype
    assert (xp.e, xp.pi, xp.inf, xp.newaxis) == (np.e, np.pi, np.inf, None) and xp.nan != xp.nan


def test_operators_that_assign_make_another_array():
    a = np.arange(4)
    x = y = xp.asarray(a)
    x += 1
    x *= x
    x %= 5
    x <<= 1
    np.testing.assert_array_equal(np.asarray(x), ((a + 1) ** 2 % 5) << 1)
    np.testing.assert_array_equal(np.asarray(y), a)


def test_what_is_missing_says_what_to_do():
    x = xp.asarray([[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(AttributeError, match=r"has no 'sort': lazy arrays cannot do it; numpy.asarray\(x\) computes"):
        xp.sort(x)
    assert not hasattr(xp, "linalg")
    for call in (
        lambda: xp.cumulative_sum(x, axis=0),
        lambda: xp.cumulative_sum(x[0], include_initial=True),
        lambda: xp.diff(x, prepend=x),
    ):
        with pytest.raises(TypeError, match=r"not supported on lazy arrays; compute them first: numpy.asarray\(x\)"):
            call()


def test_axes_that_do_not_exist_are_refused():
    x, y = xp.asarray(np.arange(4.0)), xp.asarray(np.ones((2, 3)))
    for call in (lambda: xp.sum(x, axis=3), lambda: xp.max(x, axis=-5), lambda: xp.sum(y, axis=(2, 3))):
        with pytest.raises(ValueError, match="does not exist: the array has [12] dimensions"):
            call()


VIEWS = [
    ("getitem", lambda np, v: v[1, :, ::-2]),
    ("element", lambda np, v: v[1, -1, 0]),
    ("ellipsis and new axes", lambda np, v: v[..., None, 1:, None]),
    ("transpose", lambda np, v: np.permute_dims(v, (2, 0, 1)) if np is xp else np.transpose(v, (2, 0, 1))),
    ("matrix_transpose", lambda np, v: np.matrix_transpose(v) if np is xp else np.swapaxes(v, -1, -2)),
    ("expand_dims", lambda np, v: np.expand_dims(v, axis=-1)),
    ("flip", lambda np, v: np.flip(v, axis=1)),
    ("flip all", lambda np, v: np.flip(v)),
    ("moveaxis", lambda np, v: np.moveaxis(v, 0, -1)),
    ("reshape", lambda np, v: np.reshape(v, (4, -1))),
    ("squeeze", lambda np, v: np.squeeze(v[:, :1], 1)),
    ("broadcast_to", lambda np, v: np.broadcast_to(v, (2, *v.shape))),
    ("broadcast_arrays", lambda np, v: np.broadcast_arrays(v[0, 0], v[:, :, :1])[1]),
    ("meshgrid", lambda np, v: np.meshgrid(v[0, 0], v[0, :, 0])[1]),
    ("meshgrid ij", lambda np, v: np.meshgrid(v[0, 0], v[0, :, 0], v[:, 0, 0], indexing="ij")[2]),
    ("tril", lambda np, v: np.tril(v, k=1)),
    ("triu", lambda np, v: np.triu(v, k=-1)),
    ("broadcasting", lambda np, v: v[:, :1] * v[0] - v[0, 0, 0]),
    ("view of a view", lambda np, v: (np.reshape(v, (6, 4))[::2] + 1).T[1]),
]


@pytest.mark.parametrize("view", [view for _, view in VIEWS], ids=[name for name, _ in VIEWS])
@pytest.mark.parametrize("is_computed", [False, True])
def test_views_of_expressions_are_those_of_numpy(view, is_computed):
    a = rng.normal(size=(2, 3, 4))
    x = xp.asarray(a)
    for lazy, expected in [
        (x, a),
        (xp.abs(x) * 2 + xp.max(x), np.abs(a) * 2 + np.max(a)),
        (x > xp.mean(x), a > np.mean(a)),
    ]:
        if is_computed:
            ov.compute(lazy)
        if expected.dtype == bool:
            lazy, expected = lazy.astype("i4"), expected.astype("i4")
        assert_same(view(xp, lazy), np.asarray(view(np, expected)))


def test_only_the_elements_of_a_view_are_computed():
    # Of a matrix with 8 TB, without the memory for it.
    x = xp.ones((10**6, 10**6)) * 3
    assert float(xp.sum(x[7, :1000])) == 3000 and float(x[-1, -1]) == 3
    with pytest.raises(IndexError):
        x[10**6]
    for key, what in ((True, "True and False"), ([1.5], "lists or arrays of float64"), ("a", "str")):
        with pytest.raises(TypeError, match=f"indexing by {what} is not supported on lazy arrays"):
            x[key]


def test_axes_that_are_kept():
    a = rng.normal(size=(3, 4))
    x = xp.asarray(a)
    for name in REDUCTIONS:
        if name != "count_nonzero":
            expected = getattr(np, name)(a, keepdims=True)
            # Each of the elements rounds once, in another order.
            assert_same(getattr(xp, name)(x, keepdims=True), expected, a.size)
    np.testing.assert_allclose(np.asarray(x - xp.mean(x, keepdims=True)), a - a.mean())
    # Numbers repeat, too.
    grid = xp.broadcast_to(xp.sum(x), (2, 2))
    assert grid.shape == (2, 2) and float(xp.sum(grid)) == pytest.approx(4 * a.sum())
    assert [float(xp.sum(row)) for row in xp.unstack(x)] == pytest.approx(list(a.sum(axis=1)))
