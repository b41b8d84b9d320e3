"""NumPy's functions on lazy arrays that are no ufuncs, and products of matrices."""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from overshot._lazy import (
    PRODUCT_OVER_ROWS,
    PRODUCT_WITH_MATRIX,
    _REDUCTIONS,
    Array,
    _axes,
    _known,
    _of,
    _of_rows,
    _own,
    _reduced,
    _Step,
    _unsupported,
    _View,
    _viewed,
    _without_other_rows,
    array,
)

# A product of two widths is one of so many products with a column, at most.
_MOST_COLUMNS = 32
# What NumPy has as a default where `None` is a value.
_NO_VALUE = inspect.signature(np.sum).parameters["keepdims"].default
# The language moves rows by at most so many.
_FARTHEST = 65536


def call(function: Any, arguments: Any, options: Any) -> Any:
    """Calls a function of NumPy, as `__array_function__` does."""
    own = _FUNCTIONS.get(function)
    if own is None:
        raise _unsupported(f"numpy.{function.__name__}", ())
    given = {name: value for name, value in _bound(function, *arguments, **options).items() if value is not _NO_VALUE}
    if own in _METHODS:
        given["self"] = given.pop("a")
    # What is left at NumPy's default need not exist here.
    extra = [name for name, value in given.items() if name not in _parameters(own) and value is not None]
    if extra:
        raise _unsupported(f"numpy.{function.__name__}", extra)
    return own(**{name: value for name, value in given.items() if name in _parameters(own)})


_signature = functools.lru_cache(inspect.signature)


def _parameters_of(own: Callable[..., Any]) -> frozenset[str]:
    """Returns the names of the arguments that a function here takes."""
    # A view takes those of NumPy's function, and the function of a method those of the method. Nobody waits for
    # signatures when the package is imported.
    return frozenset(_signature(getattr(own, "like", own)).parameters) - {"out", "subok"}


_parameters = functools.lru_cache(_parameters_of)


def _bound(function: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
    """Returns the arguments of a call of NumPy's function by name."""
    try:
        signature = _signature(function)
    except ValueError:
        # Older releases do not tell the signature of what is written in C; the names here are the same.
        signature = _signature(_FUNCTIONS[function])
    return signature.bind(*arguments, **options).arguments


def _method(name: str) -> Callable[..., Any]:
    """Returns a function that is a method of lazy arrays, too."""

    def of_array(self: Any, **options: Any) -> Any:
        return method(array(self), **options)

    of_array.like = method = getattr(Array, name)  # type: ignore[attr-defined]
    return of_array


def where(condition: Any, x: Any, y: Any) -> Array:
    return _of("where(bool({}), {}, {})", condition, x, y)


def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Array:
    low, high = a_min if min is None else min, a_max if max is None else max
    if low is None or high is None:
        values = array(a)
        return values if low is high else array(np.minimum(values, high) if low is None else np.maximum(values, low))
    return _of("clip({}, {}, {})", a, low, high)


def round_(a: Any, decimals: Any = 0) -> Array:
    if decimals != 0:
        raise _unsupported("numpy.round", ("decimals",))
    return _of("round({})", a)


def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    return _reduced("sum", _of("i64(bool({}))", a), axis, keepdims)


def cumsum(a: Any, axis: int | None = None, dtype: Any = None) -> Array:
    values = _known(array(a) if dtype is None else array(a).astype(dtype))
    if axis is None or not values.ndim:
        values = values if values.ndim == 1 else ravel(values)
    elif values.ndim > 1:
        raise _unsupported("numpy.cumsum of several dimensions with axis", ())
    else:
        _axes(axis, 1)
    sums = _of("cumsum({})", _of_rows(values))
    return sums if dtype is None else sums.astype(dtype)


def diff(a: Any, n: int = 1, axis: int = -1) -> Array:
    if n < 0:
        raise ValueError(f"n={n} is negative; it is the number of times that values are subtracted")
    values = array(a)
    (k,) = _axes(axis, values.ndim)
    head, tail = (slice(None),) * k, slice(None, -1)
    for _ in range(n):
        lower, upper = values[(*head, tail)], values[(*head, slice(1, None))]
        values = array(np.not_equal(upper, lower) if values.dtype == np.bool_ else np.subtract(upper, lower))
    return values


def roll(a: Any, shift: Any, axis: Any = None) -> Array:
    values = _known(array(a))
    if axis is None:
        total = sum(operator.index(each) for each in np.ravel(shift))
        return _viewed(_rolled(ravel(values), total), operator.methodcaller("reshape", values.shape))
    shifts, axes = np.broadcast_arrays(shift, axis)
    for each, own in zip(shifts.flat, axes.flat, strict=True):
        (k,) = _axes(int(own), values.ndim)
        moved = values if k == 0 else _viewed(values, functools.partial(np.moveaxis, source=k, destination=0))
        values = _rolled(moved, int(each))
        if k:
            values = _viewed(values, functools.partial(np.moveaxis, source=0, destination=k))
    return values


def _rolled(values: Array, shift: int) -> Array:
    """Moves rows along the first axis; those that leave it at one end come back at the other."""
    length = values.shape[0]
    if values.size == 0 or shift % length == 0:
        return values
    shift %= length
    shift = shift if shift <= length - shift else shift - length
    if abs(shift) > _FARTHEST:
        raise ValueError(f"numpy.roll by {abs(shift)} rows is too far for a lazy array; roll by {_FARTHEST} at most")
    text = f"shift({{}}, {shift}, wrap)"
    if values.ndim == 1:
        return _of(text, _of_rows(_without_other_rows(values)))
    return Array(_Step("roll", text, is_rows=True), (_of_rows(values),), values.shape)


def median(a: Any) -> Array:
    return _ranked(a, "median({})")


def quantile(a: Any, q: Any) -> Array:
    if np.ndim(q):
        raise _unsupported("numpy.quantile of several ranks at once", ())
    if not 0 <= float(q) <= 1:
        raise ValueError(f"the rank {q} is not between 0 and 1")
    return _ranked(a, f"quantile({{}}, {float(q)!r})")


def percentile(a: Any, q: Any) -> Array:
    return quantile(a, np.true_divide(q, 100))


def _ranked(a: Any, text: str) -> Array:
    values = array(a)
    if values.dtype == np.bool_:
        raise TypeError("bools have no quantiles; convert them first: x.astype('u1')")
    return Array(_Step("quantile", text), (values,), ())


def histogram(a: Any, bins: Any = 10, range: Any = None) -> tuple[Array, np.ndarray]:
    values = array(a)
    if isinstance(bins, bool) or not isinstance(bins, (int, np.integer)) or range is None:
        raise _unsupported("numpy.histogram without a number of bins and a range", ())
    low, high = (float(each) for each in range)
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.histogram_bin_edges(np.empty(0, values.dtype), int(bins), (low, high))
    counts = _Step("histogram", f"histogram({{}}, {int(bins)}, {low!r}, {high!r})")
    return Array(counts, (values,), (int(bins),)), edges


def ravel(a: Any) -> Array:
    values = _known(array(a))
    return _viewed(values, operator.methodcaller("reshape", values.size))


def _view(function: Any) -> Callable[..., Array]:
    """Returns a function of NumPy that makes a view."""

    def view(**options: Any) -> Array:
        # Of NumPy's functions, the first argument is the array.
        values = array(options.pop(next(iter(_signature(function).parameters))))
        # Places of elements may be lazy arrays, too.
        known = {name: np.asarray(value) if isinstance(value, Array) else value for name, value in options.items()}
        return _viewed(values, functools.partial(_called, function, known))

    view.like = function  # type: ignore[attr-defined]
    return view


def _called(function: Any, options: dict[str, Any], values: Any) -> Any:
    return function(values, **options)


def nonzero(a: Any) -> tuple[Array, ...]:
    values = _known(array(a))
    if not values.ndim:
        raise ValueError("an array without dimensions has no places of its elements; use x != 0")
    places = flatnonzero(values)
    if values.ndim == 1 or not values.size:
        return (places,) * values.ndim
    steps = [math.prod(values.shape[k + 1 :]) for k in range(values.ndim)]
    return tuple(array(places // step % length) for step, length in zip(steps, values.shape, strict=True))


def flatnonzero(a: Any) -> Array:
    flat = _of_rows(ravel(a))
    # Not zero is true of NaN, too.
    return _of("where(bool({}), index(), 0)", flat)[flat.astype("bool")]


# Products


def matmul(x1: Any, x2: Any) -> Array:
    a, b = _known(array(x1)), _known(array(x2))
    if not a.ndim or not b.ndim:
        raise ValueError("a product of matrices is of arrays with dimensions; multiply by a number with *")
    inner, other = a.shape[-1], b.shape[-2] if b.ndim > 1 else b.shape[0]
    if inner != other:
        raise ValueError(f"arrays of shapes {a.shape} and {b.shape} cannot be multiplied: {inner} is not {other}")
    dtype = np.result_type(a.dtype, b.dtype)
    if a.ndim == b.ndim == 1 or max(a.ndim, b.ndim) > 2 or dtype.kind in "biu" or not (a.size and b.size):
        return _summed(a, b)
    # The language multiplies matrices of these.
    own = dtype if dtype in (np.float32, np.float64) else np.dtype(np.float32)
    a, b = (each if each.dtype == own else each.astype(own) for each in (a, b))
    product = _product(a, b)
    return product if own == dtype else product.astype(dtype)


def _summed(a: Array, b: Array) -> Array:
    """Multiplies and adds element by element, for what the language does not multiply as matrices."""
    rows, columns = a, (b.mT if b.ndim > 1 else b)
    if a.ndim > 1 and b.ndim > 1:
        rows, columns = rows[..., None, :], columns[..., None, :, :]
    return _summed_along(rows, columns)


def _summed_along(a: Array, b: Array) -> Array:
    dtype = np.result_type(a.dtype, b.dtype)
    if dtype == np.bool_:
        return _reduced("any", np.logical_and(a, b), -1)
    return _reduced("sum", np.multiply(a.astype(dtype), b.astype(dtype)), -1).astype(dtype)


def _product(a: Array, b: Array) -> Array:
    """Multiplies two matrices, or a matrix and a vector, along the longest of their dimensions."""
    m, n, k = (a.shape[0] if a.ndim > 1 else 1), (b.shape[1] if b.ndim > 1 else 1), a.shape[-1]
    shape = a.shape[:-1] + b.shape[1:]
    if k > max(m, n) and (m == n or 1 in (m, n)):
        left = _transposed(a) if a.ndim > 1 else a[:, None]
        right = b if b.ndim > 1 else b[:, None]
        return _over_rows(left, right, shape)
    if k > max(m, n) and min(m, n) <= _MOST_COLUMNS:
        # The language has no tables of two widths in one product: columns of the narrow one, in one job.
        left, right = _transposed(a), b
        if n <= m:
            parts = [_over_rows(left, right[:, j : j + 1], (m,)) for j in range(n)]
            return Array(_View(_columns), tuple(parts), shape)
        parts = [_over_rows(left[:, j : j + 1], right, (n,)) for j in range(m)]
        return Array(_View(_rows), tuple(parts), shape)
    if a.ndim == 1 or (b.ndim > 1 and n > m):
        product = _by_rows(_transposed(b), _transposed(a) if a.ndim > 1 else a)
        return product if len(shape) == 1 else _transposed(product)
    return _by_rows(a, b)


def _over_rows(a: Array, b: Array, shape: tuple[int, ...]) -> Array:
    return Array(_Step("matmul", PRODUCT_OVER_ROWS), (_of_rows(a), _of_rows(b)), shape)


def _columns(*parts: np.ndarray) -> np.ndarray:
    return np.stack(parts, axis=1)


def _rows(*parts: np.ndarray) -> np.ndarray:
    return np.stack(parts)


def _by_rows(a: Array, b: Array) -> Array:
    # What stands right is an array of the job. It is never the same object as a column.
    matrix = Array(_own, (b,), b.shape) if b._value is None or isinstance(b._value, np.ndarray) else b
    step = _Step("matmul", PRODUCT_WITH_MATRIX, is_rows=True)
    return Array(step, (_of_rows(a), matrix), a.shape[:-1] + b.shape[1:])


def _transposed(values: Array) -> Array:
    # The transpose of a transpose is the array itself, also where it has no views.
    if isinstance(values._form, _View) and values._form.function is np.transpose and values.ndim == 2:
        source: Array = values._arguments[0]
        return source
    return values.T


def dot(a: Any, b: Any) -> Array:
    x, y = array(a), array(b)
    if not x.ndim or not y.ndim:
        return array(np.multiply(x, y))
    if max(x.ndim, y.ndim) > 2:
        raise _unsupported("numpy.dot of more than two dimensions", ())
    return matmul(x, y)


def vecdot(x1: Any, x2: Any, axis: int = -1) -> Array:
    a, b = _known(array(x1)), _known(array(x2))
    (k,), (j,) = _axes(axis, a.ndim), _axes(axis, b.ndim)
    if a.shape[k] != b.shape[j]:
        raise ValueError(f"arrays of shapes {a.shape} and {b.shape} have other lengths along axis {axis}")
    last = [_viewed(each, functools.partial(np.moveaxis, source=axis, destination=-1)) for each in (a, b)]
    return _summed_along(last[0], last[1])


def tensordot(a: Any, b: Any, axes: Any = 2) -> Array:
    x, y = _known(array(a)), _known(array(b))
    if isinstance(axes, (int, np.integer)):
        count = int(axes)
        pair: Any = (range(x.ndim - count, x.ndim), range(count))
    else:
        pair = tuple((each,) if isinstance(each, (int, np.integer)) else each for each in axes)
    own = [k for each in pair[0] for k in _axes(each, x.ndim)]
    other = [k for each in pair[1] for k in _axes(each, y.ndim)]
    if [x.shape[k] for k in own] != [y.shape[k] for k in other]:
        raise ValueError(f"arrays of shapes {x.shape} and {y.shape} have other lengths along the axes {axes}")
    left = [k for k in range(x.ndim) if k not in own]
    right = [k for k in range(y.ndim) if k not in other]
    inner = math.prod(x.shape[k] for k in own)
    shape = tuple(x.shape[k] for k in left) + tuple(y.shape[k] for k in right)
    rows = _reordered(x, [*left, *own], (-1 if x.size else math.prod(x.shape[k] for k in left), inner))
    columns = _reordered(y, [*other, *right], (inner, -1 if y.size else math.prod(y.shape[k] for k in right)))
    return _viewed(matmul(rows, columns), operator.methodcaller("reshape", shape))


def _reordered(values: Array, order: list[int], shape: tuple[int, ...]) -> Array:
    moved = _viewed(values, functools.partial(np.transpose, axes=order))
    return _viewed(moved, operator.methodcaller("reshape", shape))


UFUNCS: dict[np.ufunc, Callable[..., Any]] = {np.matmul: matmul}
if hasattr(np, "vecdot"):
    UFUNCS[np.vecdot] = vecdot

_METHODS = [_method(name) for name in (*_REDUCTIONS, "min", "max")]
_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **dict(zip([*(getattr(np, name) for name in _REDUCTIONS), np.amin, np.amax], _METHODS, strict=True)),
    np.where: where,
    np.clip: clip,
    np.round: round_,
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a: a.size,
    np.count_nonzero: count_nonzero,
    np.cumsum: cumsum,
    np.diff: diff,
    np.roll: roll,
    np.median: median,
    np.quantile: quantile,
    np.percentile: percentile,
    np.histogram: histogram,
    np.dot: dot,
    np.tensordot: tensordot,
    np.ravel: ravel,
    np.nonzero: nonzero,
    np.flatnonzero: flatnonzero,
}
_VIEWS = "transpose reshape squeeze expand_dims moveaxis swapaxes flip broadcast_to".split()
_VIEWS += "take take_along_axis repeat tile".split()
_FUNCTIONS.update({getattr(np, name): _view(getattr(np, name)) for name in _VIEWS})
