"""The Python array API standard on lazy arrays, as far as Overshot's language reaches.

>>> import overshot.array_api as xp
>>> x = xp.asarray(np.arange(4.0))
>>> float(xp.sum(xp.sqrt(x) * 2))
8.292528739883945

Functions build expressions; `overshot.compute`, `numpy.asarray`, `float` and the like compute them. The shape of
`x[mask]` is known from its values only, so asking for it computes them. What this module lacks, lazy arrays cannot do:
`numpy.asarray(x)` computes them for other libraries.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from overshot import _lazy_functions
from overshot._columns import null_count
from overshot._lazy import Array, _operand, _reduced_as, _unsupported, _viewed, array

__array_api_version__ = "2024.12"

Dtype = np.dtype[Any]
Shape = int | tuple[int, ...]
Axis = int | tuple[int, ...] | None

e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None

bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64 = map(
    np.dtype, "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()
)
_KINDS: dict[str, tuple[Dtype, ...]] = {
    "bool": (bool,),
    "signed integer": (int8, int16, int32, int64),
    "unsigned integer": (uint8, uint16, uint32, uint64),
    "real floating": (float32, float64),
    "complex floating": (),
}
_KINDS["integral"] = _KINDS["signed integer"] + _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"]
_DTYPES = (bool, *_KINDS["numeric"])


def __getattr__(name: str) -> Any:
    message = f"overshot.array_api has no {name!r}: lazy arrays cannot do it; numpy.asarray(x) computes them for NumPy"
    raise AttributeError(message, name=name, obj=None)


# Elementwise functions


def _unary(function: Callable[[Any], Any]) -> Callable[[Any], Array]:
    def of_one(x: Any, /) -> Array:
        return array(function(array(x)))

    return of_one


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Array]:
    def of_two(x1: Any, x2: Any, /) -> Array:
        return array(function(_operand(x1), _operand(x2)))

    return of_two


abs = _unary(np.absolute)
acos = _unary(np.arccos)
acosh = _unary(np.arccosh)
asin = _unary(np.arcsin)
asinh = _unary(np.arcsinh)
atan = _unary(np.arctan)
atanh = _unary(np.arctanh)
bitwise_invert = _unary(np.invert)
ceil = _unary(np.ceil)
cos = _unary(np.cos)
cosh = _unary(np.cosh)
exp = _unary(np.exp)
expm1 = _unary(np.expm1)
floor = _unary(np.floor)
isfinite = _unary(np.isfinite)
isinf = _unary(np.isinf)
isnan = _unary(np.isnan)
log = _unary(np.log)
log10 = _unary(np.log10)
log1p = _unary(np.log1p)
log2 = _unary(np.log2)
logical_not = _unary(np.logical_not)
negative = _unary(np.negative)
positive = _unary(np.positive)
reciprocal = _unary(np.reciprocal)
round = _unary(np.round)
sign = _unary(np.sign)
signbit = _unary(np.signbit)
sin = _unary(np.sin)
sinh = _unary(np.sinh)
sqrt = _unary(np.sqrt)
square = _unary(np.square)
tan = _unary(np.tan)
tanh = _unary(np.tanh)
trunc = _unary(np.trunc)

add = _binary(np.add)
atan2 = _binary(np.arctan2)
bitwise_and = _binary(np.bitwise_and)
bitwise_left_shift = _binary(np.left_shift)
bitwise_or = _binary(np.bitwise_or)
bitwise_right_shift = _binary(np.right_shift)
bitwise_xor = _binary(np.bitwise_xor)
copysign = _binary(np.copysign)
divide = _binary(np.true_divide)
equal = _binary(np.equal)
floor_divide = _binary(np.floor_divide)
greater = _binary(np.greater)
greater_equal = _binary(np.greater_equal)
hypot = _binary(np.hypot)
less = _binary(np.less)
less_equal = _binary(np.less_equal)
logaddexp = _binary(np.logaddexp)
logical_and = _binary(np.logical_and)
logical_or = _binary(np.logical_or)
logical_xor = _binary(np.logical_xor)
maximum = _binary(np.maximum)
minimum = _binary(np.minimum)
multiply = _binary(np.multiply)
nextafter = _binary(np.nextafter)
not_equal = _binary(np.not_equal)
pow = _binary(np.power)
remainder = _binary(np.remainder)
subtract = _binary(np.subtract)


def clip(x: Any, /, min: Any = None, max: Any = None) -> Array:
    x = array(x)
    if min is not None and max is not None:
        return array(np.clip(x, _operand(min), _operand(max)))
    if min is not None:
        return maximum(x, min)
    return x if max is None else minimum(x, max)


def where(condition: Any, x1: Any, x2: Any, /) -> Array:
    return array(np.where(array(condition), _operand(x1), _operand(x2)))


# Reductions


def all(x: Any, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Array:
    return array(x).all(axis, keepdims=keepdims)


def any(x: Any, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Array:
    return array(x).any(axis, keepdims=keepdims)


def argmax(x: Any, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Array:
    return array(x).argmax(axis, keepdims=keepdims)


def argmin(x: Any, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Array:
    return array(x).argmin(axis, keepdims=keepdims)


def count_nonzero(x: Any, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Array:
    return _lazy_functions.count_nonzero(x, axis, keepdims=keepdims)


def max(x: Any, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Array:
    return array(x).max(axis, keepdims=keepdims)


def mean(x: Any, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Array:
    return array(x).mean(axis, keepdims=keepdims)


def min(x: Any, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Array:
    return array(x).min(axis, keepdims=keepdims)


def prod(x: Any, /, *, axis: Axis = None, dtype: Any = None, keepdims: builtins.bool = False) -> Array:
    return _reduced_as("prod", x, axis, dtype, keepdims)


def std(x: Any, /, *, axis: Axis = None, correction: float = 0.0, keepdims: builtins.bool = False) -> Array:
    return array(x).std(axis, ddof=correction, keepdims=keepdims)


def sum(x: Any, /, *, axis: Axis = None, dtype: Any = None, keepdims: builtins.bool = False) -> Array:
    return _reduced_as("sum", x, axis, dtype, keepdims)


def var(x: Any, /, *, axis: Axis = None, correction: float = 0.0, keepdims: builtins.bool = False) -> Array:
    return array(x).var(axis, ddof=correction, keepdims=keepdims)


# Functions of several rows


def cumulative_sum(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: builtins.bool = False
) -> Array:
    x = array(x)
    if include_initial:
        raise _unsupported("cumulative_sum with include_initial", ())
    if x.ndim > 1:
        raise _unsupported("cumulative_sum of several dimensions", ())
    return _lazy_functions.cumsum(x, axis, dtype)


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Array:
    if prepend is not None or append is not None:
        raise _unsupported("diff with prepend or append", ())
    return _lazy_functions.diff(x, n, axis)


def nonzero(x: Any, /) -> tuple[Array, ...]:
    return _lazy_functions.nonzero(x)


def roll(x: Any, /, shift: Shape, *, axis: Axis = None) -> Array:
    return _lazy_functions.roll(x, shift, axis)


# Products


def matmul(x1: Any, x2: Any, /) -> Array:
    return _lazy_functions.matmul(x1, x2)


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Array:
    return _lazy_functions.tensordot(x1, x2, axes)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    return _lazy_functions.vecdot(x1, x2, axis)


# Views


def broadcast_arrays(*arrays: Any) -> list[Array]:
    shape = np.broadcast_shapes(*(array(each).shape for each in arrays))
    return [broadcast_to(each, shape) for each in arrays]


def broadcast_to(x: Any, /, shape: tuple[int, ...]) -> Array:
    return _viewed(array(x), functools.partial(np.broadcast_to, shape=shape))


def expand_dims(x: Any, /, axis: int) -> Array:
    return _viewed(array(x), functools.partial(np.expand_dims, axis=axis))


def flip(x: Any, /, *, axis: Axis = None) -> Array:
    return _viewed(array(x), functools.partial(np.flip, axis=axis))


def matrix_transpose(x: Any, /) -> Array:
    return _viewed(array(x), operator.methodcaller("swapaxes", -1, -2))


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Array]:
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing {indexing!r} is neither 'xy' nor 'ij'")
    last = len(arrays) - 1
    grids = [array(each)[(None,) * k + (slice(None),) + (None,) * (last - k)] for k, each in enumerate(arrays)]
    if indexing == "xy" and last > 0:
        grids = [moveaxis(each, 0, 1) for each in grids]
    return broadcast_arrays(*grids)


def moveaxis(x: Any, source: Any, destination: Any, /) -> Array:
    return _viewed(array(x), functools.partial(np.moveaxis, source=source, destination=destination))


def permute_dims(x: Any, /, axes: tuple[int, ...]) -> Array:
    return _viewed(array(x), functools.partial(np.transpose, axes=axes))


def reshape(x: Any, /, shape: tuple[int, ...], *, copy: builtins.bool | None = None) -> Array:
    # NumPy copies arrays whose elements it cannot name by strides.
    return _viewed(array(x), operator.methodcaller("reshape", shape))


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Array:
    return array(np.repeat(array(x), repeats, axis))


def squeeze(x: Any, /, axis: int | tuple[int, ...]) -> Array:
    return _viewed(array(x), functools.partial(np.squeeze, axis=axis))


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Array:
    return array(np.take(array(x), indices, axis))


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Array:
    return array(np.take_along_axis(array(x), indices, axis))


def tile(x: Any, repetitions: tuple[int, ...], /) -> Array:
    return array(np.tile(array(x), repetitions))


def tril(x: Any, /, *, k: int = 0) -> Array:
    x = array(x)
    return where(np.tri(x.shape[-2], x.shape[-1], k, np.bool_), x, zeros_like(x))


def triu(x: Any, /, *, k: int = 0) -> Array:
    x = array(x)
    return where(np.tri(x.shape[-2], x.shape[-1], k - 1, np.bool_), zeros_like(x), x)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Array, ...]:
    x = moveaxis(x, axis, 0)
    return tuple(x[k] for k in range(x.shape[0]))


# Arrays


def _created(values: Any, device: Any) -> Array:
    if device not in (None, "cpu"):
        raise ValueError(f"there is no device {device!r}: lazy arrays are on 'cpu'; computing them chooses the devices")
    return array(values)


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: builtins.bool | None = None) -> Array:
    is_array = hasattr(obj, "dtype")
    if copy is False and not (is_array and dtype in (None, obj.dtype)):
        raise ValueError("copy=False is possible for arrays of the same dtype only; leave copy out")
    # Nulls are refused, of which NumPy would make NaN.
    values = array(obj if is_array or null_count(obj) else np.asarray(obj, dtype))
    if copy:
        values = array(np.array(values))
    return _created(values if dtype in (None, values.dtype) else values.astype(dtype), device)


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: Any = None
) -> Array:
    first, last = (0, start) if stop is None else (start, stop)
    return _created(np.arange(first, last, step, dtype=dtype), device)


def empty(shape: Shape, *, dtype: Any = None, device: Any = None) -> Array:
    return zeros(shape, dtype=dtype, device=device)


def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Array:
    return full_like(x, 0, dtype=dtype, device=device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Array:
    return _created(np.eye(n_rows, n_cols, k, dtype or float64), device)


def from_dlpack(x: Any, /, *, device: Any = None, copy: builtins.bool | None = None) -> Array:
    values = x if isinstance(x, Array) else np.from_dlpack(x)
    return asarray(values, device=device, copy=copy)


def full(shape: Shape, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Array:
    # One element for the whole array, which has strides of 0.
    return _created(np.broadcast_to(np.asarray(fill_value, dtype), shape), device)


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Array:
    x = array(x)
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device)


def linspace(
    start: float, stop: float, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: builtins.bool = True
) -> Array:
    return _created(np.linspace(start, stop, num, endpoint, dtype=dtype), device)


def ones(shape: Shape, *, dtype: Any = None, device: Any = None) -> Array:
    return full(shape, 1, dtype=dtype or float64, device=device)


def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Array:
    return full_like(x, 1, dtype=dtype, device=device)


def zeros(shape: Shape, *, dtype: Any = None, device: Any = None) -> Array:
    return full(shape, 0, dtype=dtype or float64, device=device)


def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Array:
    return full_like(x, 0, dtype=dtype, device=device)


# Dtypes


def astype(x: Any, dtype: Any, /, *, copy: builtins.bool = True, device: Any = None) -> Array:
    return _created(array(x).astype(dtype), device)


def _dtype(value: Any) -> Dtype:
    return np.dtype(value.dtype if isinstance(value, (Array, np.ndarray)) else value)


def can_cast(from_: Any, to: Any, /) -> builtins.bool:
    return builtins.bool(np.can_cast(_dtype(from_), to))


@dataclasses.dataclass(frozen=True)
class finfo:
    """The limits of a floating dtype, as numbers of Python."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Dtype

    def __init__(self, type: Any, /) -> None:
        limits = np.finfo(_dtype(type))
        for field in dataclasses.fields(self):
            value = getattr(limits, field.name)
            object.__setattr__(self, field.name, value if field.name in ("bits", "dtype") else float(value))


def iinfo(type: Any, /) -> np.iinfo[Any]:
    return np.iinfo(_dtype(type))


def isdtype(dtype: Any, kind: Any) -> builtins.bool:
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, each) for each in kind)
    if not isinstance(kind, str):
        return builtins.bool(np.dtype(dtype) == kind)
    if kind not in _KINDS:
        raise ValueError(f"there is no kind {kind!r} of dtypes; the kinds are {', '.join(map(repr, _KINDS))}")
    return np.dtype(dtype) in _KINDS[kind]


def result_type(*arrays_and_dtypes: Any) -> Dtype:
    plain = [each.dtype if isinstance(each, Array) else each for each in arrays_and_dtypes]
    return np.result_type(*plain)


# Inspection


class __array_namespace_info__:
    """What the namespace can do."""

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        return "cpu"

    def default_dtypes(self, *, device: Any = None) -> dict[str, Dtype]:
        return {"real floating": float64, "integral": int64, "indexing": int64}

    def devices(self) -> list[str]:
        return ["cpu"]

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Dtype]:
        return {each.name: each for each in _DTYPES if kind is None or isdtype(each, kind)}
